/* Pooling. */
#include "operators/window.h"

#include <math.h>
#include <string.h>

enum pool_kind { POOL_MAX, POOL_AVERAGE, POOL_LP };

struct pool {
    enum pool_kind kind;
    bool counts_padding;
    double p;
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

static struct pool pool_of(const struct nd_op_call *call)
{
    struct pool pool = {.kind = POOL_MAX};
    if (nd_op_is(call, "AveragePool") || nd_op_is(call, "GlobalAveragePool"))
        pool.kind = POOL_AVERAGE;
    if (nd_op_is(call, "LpPool") || nd_op_is(call, "GlobalLpPool"))
        pool.kind = POOL_LP;
    pool.counts_padding = nd_op_i(call, "count_include_pad", 0) != 0;
    pool.p = (double)nd_op_i(call, "p", 2);
    return pool;
}

enum nd_status nd_op_pool(const struct nd_op_call *call, struct nd_error *err)
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
    enum nd_status status = nd_window_read(call, &x->shape, kernel, &w, err);
    if (status == ND_OK)
        status = nd_window_fit(call, &w, err);
    if (status != ND_OK)
        return status;
    struct nd_shape shape = nd_window_shape(&w, x->shape.dims[0], x->shape.dims[1]);
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status == ND_OK && indices != NULL)
        status = nd_op_make(call, 1, ND_DTYPE_I64, &shape, err);
    if (status != ND_OK || x->n == 0)
        return status;
    struct pool pool = pool_of(call);
    pool_planes(&w, &pool, (size_t)(x->shape.dims[0] * x->shape.dims[1]), x->x, call->outputs[0]->x,
                indices != NULL ? indices->x : NULL);
    return ND_OK;
}

enum nd_status nd_op_global_pool(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    if (x->shape.rank < 2)
        return nd_op_misfit(call, err, "a tensor of %d dimensions", x->shape.rank);
    struct nd_shape shape = x->shape;
    for (int axis = 2; axis < shape.rank; axis++)
        shape.dims[axis] = 1;
    enum nd_status status = nd_op_make(call, 0, x->dtype, &shape, err);
    size_t n_planes = (size_t)(shape.dims[0] * shape.dims[1]);
    if (status != ND_OK || x->n == 0)
        return status;
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
