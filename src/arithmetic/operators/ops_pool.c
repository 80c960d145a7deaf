/* Pooling: the largest, the mean or a norm of what a window covers. */
#include <math.h>

#include "arithmetic/operators/window.h"

enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP };

struct pool {
    enum pool_kind kind;
    bool counts_padding;
    double p, padding; /* padding: -infinity, which is never a maximum */
};

/* What a window has taken in so far. */
struct taken {
    double value;
    ptrdiff_t n;  /* elements of the input */
    ptrdiff_t at; /* of the largest one */
};

static void take(const struct pool *pool, struct taken *taken, double x, ptrdiff_t at)
{
    if (pool->kind == POOL_AVERAGE)
        taken->value += x;
    if (pool->kind == POOL_LP)
        taken->value += pow(fabs(x), pool->p);
    if (pool->kind == POOL_MAX && (taken->n == 0 || x > taken->value || (isnan(x) && !isnan(taken->value)))) {
        taken->value = x;
        taken->at = at;
    }
    taken->n++;
}

struct taps {
    ptrdiff_t from, to; /* from..to - 1 */
};

/* The taps of window o of an axis that lie between low and high. */
static struct taps taps_inside(const struct nd_window *w, int axis, ptrdiff_t o, ptrdiff_t low, ptrdiff_t high)
{
    ptrdiff_t start = o * w->stride[axis] - w->pad_begin[axis], step = w->dilation[axis];
    ptrdiff_t first = start >= low ? 0 : (low - start + step - 1) / step;
    ptrdiff_t end = start >= high ? 0 : (high - start + step - 1) / step;
    return (struct taps){first, end < w->kernel[axis] ? end : w->kernel[axis]};
}

/* How many elements an average is of: those of the input, or those of the padded input. What ceil_mode adds
 * past the padding is never counted. */
static double divisor(const struct nd_window *w, const struct pool *pool, const ptrdiff_t o[ND_WINDOW_AXES],
                      ptrdiff_t n)
{
    if (!pool->counts_padding)
        return (double)n;
    ptrdiff_t count = 1;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        struct taps taps = taps_inside(w, axis, o[axis], -w->pad_begin[axis], w->in[axis] + w->pad_end[axis]);
        count *= taps.to - taps.from;
    }
    return (double)count;
}

static struct taken pool_window(const struct nd_window *w, const struct pool *pool, const double *in,
                                const ptrdiff_t o[ND_WINDOW_AXES])
{
    struct taken taken = {0};
    struct taps taps[ND_WINDOW_AXES];
    ptrdiff_t start[ND_WINDOW_AXES];
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        taps[axis] = taps_inside(w, axis, o[axis], 0, w->in[axis]);
        start[axis] = o[axis] * w->stride[axis] - w->pad_begin[axis];
    }
    for (ptrdiff_t d = taps[0].from; d < taps[0].to; d++)
        for (ptrdiff_t h = taps[1].from; h < taps[1].to; h++)
            for (ptrdiff_t k = taps[2].from; k < taps[2].to; k++) {
                ptrdiff_t at =
                    ((start[0] + d * w->dilation[0]) * w->in[1] + start[1] + h * w->dilation[1]) * w->in[2] +
                    start[2] + k * w->dilation[2];
                take(pool, &taken, in[at], at);
            }
    return taken;
}

/* A window of nothing but padding has no maximum: -infinity. */
static double result(const struct nd_window *w, const struct pool *pool, const ptrdiff_t o[ND_WINDOW_AXES],
                     const struct taken *taken)
{
    switch (pool->kind) {
    case POOL_AVERAGE:
        return taken->value / divisor(w, pool, o, taken->n);
    case POOL_LP:
        return pow(taken->value, 1 / pool->p);
    default:
        return taken->n > 0 ? taken->value : -(double)INFINITY;
    }
}

static void pool_planes(const struct nd_window *w, const struct pool *pool, size_t n_planes, const double *x,
                        double *y, double *indices)
{
    for (size_t plane = 0; plane < n_planes; plane++) {
        ptrdiff_t base = (ptrdiff_t)plane * w->n_in, o[ND_WINDOW_AXES];
        for (o[0] = 0; o[0] < w->out[0]; o[0]++)
            for (o[1] = 0; o[1] < w->out[1]; o[1]++)
                for (o[2] = 0; o[2] < w->out[2]; o[2]++) {
                    struct taken taken = pool_window(w, pool, x + base, o);
                    *y++ = result(w, pool, o, &taken);
                    if (indices != NULL)
                        *indices++ = (double)(base + taken.at);
                }
    }
}

/* ---- a row of windows at a time ---- */

static ptrdiff_t count_of(struct taps taps)
{
    return taps.to > taps.from ? taps.to - taps.from : 0;
}

/* What one tap adds to a row of windows; as `take`, in every window in the same order of taps. */
static void take_row(bool is_max, const double *in, ptrdiff_t stride, double *y, ptrdiff_t n)
{
    for (ptrdiff_t i = 0; i < n && !is_max; i++)
        y[i] += in[i * stride];
    for (ptrdiff_t i = 0; i < n && is_max; i++) {
        double x = in[i * stride];
        y[i] = x > y[i] || (isnan(x) && !isnan(y[i])) ? x : y[i];
    }
}

/* The taps of the last axis in the order of their places. */
static void take_taps(const struct nd_window *w, bool is_max, const double *in, double *y)
{
    for (ptrdiff_t k = 0; k < w->kernel[2]; k++) {
        ptrdiff_t from, to;
        nd_window_range(w, 2, k, &from, &to);
        if (from < to)
            take_row(is_max, in + from * w->stride[2] - w->pad_begin[2] + k * w->dilation[2], w->stride[2],
                     y + from, to - from);
    }
}

/* Windows that reach into a padding which is a number: it may be their maximum. */
static void take_padding(const struct nd_window *w, ptrdiff_t n_rows, double padding, double *y)
{
    for (ptrdiff_t i = 0; i < w->out[2]; i++)
        if (n_rows * count_of(taps_inside(w, 2, i, 0, w->in[2])) < w->n_kernel && y[i] < padding)
            y[i] = padding;
}

/* Maxima and averages without places. */
static void pool_rows(const struct nd_window *w, const struct pool *pool, size_t n_planes, const double *x,
                      double *y)
{
    bool is_max = pool->kind == POOL_MAX;
    ptrdiff_t o[ND_WINDOW_AXES];
    for (size_t plane = 0; plane < n_planes; plane++, x += w->n_in)
        for (o[0] = 0; o[0] < w->out[0]; o[0]++)
            for (o[1] = 0; o[1] < w->out[1]; o[1]++, y += w->out[2]) {
                struct taps planes = taps_inside(w, 0, o[0], 0, w->in[0]);
                struct taps rows = taps_inside(w, 1, o[1], 0, w->in[1]);
                ptrdiff_t n = count_of(planes) * count_of(rows);
                for (ptrdiff_t i = 0; i < w->out[2]; i++)
                    y[i] = is_max ? -(double)INFINITY : 0;
                for (ptrdiff_t d = planes.from; d < planes.to; d++)
                    for (ptrdiff_t h = rows.from; h < rows.to; h++)
                        take_taps(w, is_max,
                                  x + ((o[0] * w->stride[0] - w->pad_begin[0] + d * w->dilation[0]) * w->in[1] +
                                       o[1] * w->stride[1] - w->pad_begin[1] + h * w->dilation[1]) *
                                          w->in[2],
                                  y);
                if (is_max && isfinite(pool->padding))
                    take_padding(w, n, pool->padding, y);
                for (o[2] = 0; o[2] < w->out[2] && !is_max; o[2]++)
                    y[o[2]] /= divisor(w, pool, o, n * count_of(taps_inside(w, 2, o[2], 0, w->in[2])));
            }
}

static struct pool pool_of(const struct nd_op_call *call)
{
    struct pool pool = {.kind = POOL_MAX};
    if (nd_op_is(call, "AveragePool") || nd_op_is(call, "GlobalAveragePool"))
        pool.kind = POOL_AVERAGE;
    if (nd_op_is(call, "LpPool") || nd_op_is(call, "GlobalLpPool"))
        pool.kind = POOL_LP;
    pool.counts_padding = nd_op_i(call, "count_include_pad", 0) != 0;
    pool.p = (double)nd_op_i(call, "p", 2);
    pool.padding = nd_op_f(call, ND_PADDING, -(double)INFINITY);
    return pool;
}

static enum nd_status nd_op_pool(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    const int64_t *kernel = NULL;
    size_t n_kernel = nd_op_ints(call, "kernel_shape", &kernel);
    struct nd_window w;
    struct nd_array *indices = nd_op_out(call, 1);
    if ((int)n_kernel != x->shape.rank - 2 || n_kernel == 0)
        return nd_op_misfit(call, err, "a tensor of %d and a kernel of %zu dimensions", x->shape.rank,
                            n_kernel);
    if (indices != NULL && nd_op_i(call, "storage_order", 0) != 0)
        return nd_op_unsupported(call, err, "storage_order");
    ND_TRY(nd_window_read(call, &x->shape, kernel, &w, err));
    ND_TRY(nd_window_fit(call, &w, err));
    struct nd_shape shape = nd_window_shape(&w, x->shape.dims[0], x->shape.dims[1]);
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    if (indices != NULL)
        ND_TRY(nd_op_make(call, 1, ND_DTYPE_I64, &shape, err));
    if (x->n == 0)
        return ND_OK;
    struct pool pool = pool_of(call);
    size_t n_planes = (size_t)(x->shape.dims[0] * x->shape.dims[1]);
    if (indices == NULL && pool.kind != POOL_LP)
        pool_rows(&w, &pool, n_planes, x->x, call->outputs[0]->x);
    else
        pool_planes(&w, &pool, n_planes, x->x, call->outputs[0]->x, indices != NULL ? indices->x : NULL);
    return ND_OK;
}

static enum nd_status nd_op_global_pool(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    if (x->shape.rank < 2)
        return nd_op_misfit(call, err, "a tensor of %d dimensions", x->shape.rank);
    struct nd_shape shape = x->shape;
    for (int axis = 2; axis < shape.rank; axis++)
        shape.dims[axis] = 1;
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    size_t n_planes = (size_t)(shape.dims[0] * shape.dims[1]);
    if (x->n == 0)
        return ND_OK;
    ptrdiff_t n = (ptrdiff_t)(x->n / n_planes); /* one window, as large as the plane */
    struct nd_window w = {.in = {1, 1, n},
                          .out = {1, 1, 1},
                          .kernel = {1, 1, n},
                          .stride = {1, 1, 1},
                          .dilation = {1, 1, 1},
                          .n_in = n};
    struct pool pool = pool_of(call);
    pool_planes(&w, &pool, n_planes, x->x, call->outputs[0]->x, NULL);
    return ND_OK;
}

/* ---- the operators ---- */

const struct nd_op nd_ops_pools[] = {
    {"", "AveragePool", 1, nd_op_pool},
    {"", "LpPool", 1, nd_op_pool},
    {"", "MaxPool", 1, nd_op_pool},
    {"", "GlobalAveragePool", 1, nd_op_global_pool},
    {"", "GlobalLpPool", 1, nd_op_global_pool},
    {"", "GlobalMaxPool", 1, nd_op_global_pool},
    {NULL, NULL, 0, NULL},
};
