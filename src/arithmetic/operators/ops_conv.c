/* Convolution and its transpose: as products of matrices where that is worth it, else one tap after the other.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENT double
#include "arithmetic/operators/kernels/conv_columns_template.h"

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "arithmetic/operators/window.h"
#include "core/error.h"
#include "core/memory.h"

/* ---- block by block ---- */

/* A matrix of columns stays in the second-level cache: 128 KiB; chosen. */
enum { MAX_COLUMNS = 96, MAX_ROWS = 170 };

/* Adds in order of channels and taps, as one tap after the other would: the same bits. Weights must be finite,
 * since padding is multiplied, too. */
static void add_blocks(const struct nd_conv_group *g, double *room)
{
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    const struct planes planes = {g->w, g->in, 0};
    size_t n_rows = g->n_in * (size_t)g->w->n_kernel, n_out = (size_t)g->w->n_out;
    bool is_plain = nd_window_is_pointwise(g->w);
    for (size_t from = 0; from < n_out; from += MAX_COLUMNS)
        for (size_t k = 0; k < n_rows; k += MAX_ROWS) {
            struct nd_gemm gemm = {.n = g->n_out,
                                   .n_k = n_rows - k < MAX_ROWS ? n_rows - k : MAX_ROWS,
                                   .m = n_out - from < MAX_COLUMNS ? n_out - from : MAX_COLUMNS,
                                   .a = g->weight + k,
                                   .b = is_plain ? g->in + k * n_out + from : room,
                                   .c = g->out + from,
                                   .a_row = n_rows,
                                   .b_row = is_plain ? n_out : MAX_COLUMNS,
                                   .c_row = n_out};
            const struct block block = {(ptrdiff_t)from, (ptrdiff_t)gemm.m};
            for (size_t i = 0; i < gemm.n_k && !is_plain; i++)
                copy_columns(&planes, k + i, block, room + i * MAX_COLUMNS);
            kernels->add(&gemm);
        }
}

/* ---- tap by tap ---- */

/* out += weight * in along a row: the innermost loop of both. */
static void add_row(double *restrict out, ptrdiff_t out_step, const double *restrict in, ptrdiff_t in_step,
                    double weight, ptrdiff_t n)
{
    if (out_step == 1 && in_step == 1)
        for (ptrdiff_t i = 0; i < n; i++)
            out[i] += weight * in[i];
    else
        for (ptrdiff_t i = 0; i < n; i++)
            out[i * out_step] += weight * in[i * in_step];
}

/* One tap of the kernel between the plane of windows (out) and the plane that they slide over (in). Forward
 * adds to out, transposed to in. */
struct weighted_tap {
    ptrdiff_t k[ND_WINDOW_AXES];
    double weight;
    bool is_transposed;
};

static void add_tap(const struct nd_window *w, const struct weighted_tap *tap, double *out, double *in)
{
    ptrdiff_t from[ND_WINDOW_AXES], to[ND_WINDOW_AXES], offset[ND_WINDOW_AXES];
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        nd_window_range(w, axis, tap->k[axis], &from[axis], &to[axis]);
        offset[axis] = tap->k[axis] * w->dilation[axis] - w->pad_begin[axis];
        if (from[axis] >= to[axis])
            return;
    }
    for (ptrdiff_t d = from[0]; d < to[0]; d++)
        for (ptrdiff_t h = from[1]; h < to[1]; h++) {
            double *out_row = out + (d * w->out[1] + h) * w->out[2] + from[2];
            double *in_row =
                in + ((d * w->stride[0] + offset[0]) * w->in[1] + h * w->stride[1] + offset[1]) * w->in[2] +
                from[2] * w->stride[2] + offset[2];
            if (tap->is_transposed)
                add_row(in_row, w->stride[2], out_row, 1, tap->weight, to[2] - from[2]);
            else
                add_row(out_row, 1, in_row, w->stride[2], tap->weight, to[2] - from[2]);
        }
}

/* All taps of one kernel between two planes. */
static void add_kernel(const struct nd_window *w, const double *kernel, bool is_transposed, double *out,
                       double *in)
{
    struct weighted_tap tap = {.is_transposed = is_transposed};
    for (tap.k[0] = 0; tap.k[0] < w->kernel[0]; tap.k[0]++)
        for (tap.k[1] = 0; tap.k[1] < w->kernel[1]; tap.k[1]++)
            for (tap.k[2] = 0; tap.k[2] < w->kernel[2]; tap.k[2]++) {
                tap.weight = *kernel++;
                add_tap(w, &tap, out, in);
            }
}

/* Rows of a pointwise kernel follow each other in memory: one long row. */
static void merge_pointwise(struct nd_window *w)
{
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        if (w->kernel[axis] != 1 || w->stride[axis] != 1 || w->pad_begin[axis] != 0 ||
            w->in[axis] != w->out[axis])
            return;
    w->in[2] = w->out[2] = w->n_in;
    w->in[0] = w->in[1] = w->out[0] = w->out[1] = 1;
}

static void add_bias(const struct nd_array *bias, struct nd_array *y)
{
    size_t n_planes = bias == NULL || y->n == 0 ? 0 : (size_t)(y->shape.dims[0] * y->shape.dims[1]);
    for (size_t plane = 0; plane < n_planes; plane++) {
        size_t n = y->n / n_planes;
        double added = bias->x[plane % bias->n], *to = y->x + plane * n;
        for (size_t i = 0; i < n; i++)
            to[i] += added;
    }
}

/* The kernel's size is the weight's, whatever kernel_shape says; but it must not say something else. */
static enum nd_status check_weight(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *weight = call->inputs[1];
    const int64_t *kernel = NULL;
    size_t n = nd_op_ints(call, "kernel_shape", &kernel);
    if (weight->shape.rank != x->shape.rank || x->shape.rank < 3)
        return nd_op_misfit(call, err, "a tensor of %d and a weight of %d dimensions", x->shape.rank,
                            weight->shape.rank);
    for (size_t i = 0; i < n; i++)
        if (n != (size_t)x->shape.rank - 2 || kernel[i] != weight->shape.dims[2 + i])
            return nd_op_misfit(call, err, "kernel_shape is not the weight's");
    if (nd_op_i(call, "group", 1) < 1)
        return nd_op_misfit(call, err, "group is %lld", (long long)nd_op_i(call, "group", 1));
    return ND_OK;
}

/* One tap after the other: weights that are no numbers do not meet the padding. */
static void add_taps(const struct nd_op_call *call, const struct nd_window *window, int64_t n_groups)
{
    const struct nd_array *x = call->inputs[0], *weight = call->inputs[1], *y = call->outputs[0];
    int64_t n_out = weight->shape.dims[0], n_in = weight->shape.dims[1];
    struct nd_window w = *window;
    memset(y->x, 0, y->n * sizeof *y->x);
    merge_pointwise(&w);
    for (int64_t n = 0; n < x->shape.dims[0]; n++)
        for (int64_t m = 0; m < n_out; m++) {
            const double *kernels = weight->x + m * n_in * w.n_kernel;
            double *in = x->x + (n * n_in * n_groups + m / (n_out / n_groups) * n_in) * w.n_in;
            for (int64_t c = 0; c < n_in; c++)
                add_kernel(&w, kernels + c * w.n_kernel, false, y->x + (n * n_out + m) * w.n_out,
                           in + c * w.n_in);
        }
}

static enum nd_status add_groups(const struct nd_op_call *call, const struct nd_window *w, int64_t n_groups,
                                 struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *weight = call->inputs[1], *y = call->outputs[0];
    int64_t n_out = weight->shape.dims[0] / n_groups, n_in = weight->shape.dims[1];
    ND_FREED double *room = nd_calloc(MAX_COLUMNS * MAX_ROWS, sizeof *room);
    struct nd_conv_planes planes;
    ND_CLEANUP(nd_conv_shorts_end) struct nd_conv_shorts shorts = {.in = NULL};
    ND_TRY_MEMORY(room != NULL, err);
    bool is_by_planes = n_in == 1 && n_out <= 2 && nd_conv_planes_begin(&planes, w);
    struct nd_short_range range = {.n_terms = 0};
    if (call->shorts != NULL && !is_by_planes)
        range = nd_short_range_of(x, call->shorts);
    for (int64_t i = 0; i < x->shape.dims[0] * n_groups; i++) {
        int64_t first = i % n_groups * n_out * n_in * w->n_kernel;
        const struct nd_conv_group group = {.w = w,
                                            .n_in = (size_t)n_in,
                                            .n_out = (size_t)n_out,
                                            .weight = weight->x + first,
                                            .in = x->x + i * n_in * w->n_in,
                                            .out = y->x + i * n_out * w->n_out,
                                            .short_weight =
                                                call->shorts != NULL ? call->shorts->weights + first : NULL,
                                            .range = range};
        if (is_by_planes) {
            nd_conv_planes_run(&planes, &group);
            continue;
        }
        memset(group.out, 0,
               (size_t)(n_out * w->n_out) * sizeof *group.out); /* near in time: it stays in the caches */
        if (shorts.in != NULL || nd_conv_shorts_begin(&shorts, &group))
            nd_conv_shorts_add(&shorts, &group);
        else
            add_blocks(&group, room);
    }
    if (is_by_planes)
        nd_conv_planes_end(&planes);
    return ND_OK;
}

static bool is_finite(const struct nd_array *array)
{
    size_t n_broken = 0;
    for (size_t i = 0; i < array->n; i++)
        n_broken += fabs(array->x[i]) < HUGE_VAL ? 0 : 1;
    return n_broken == 0;
}

static enum nd_status convolve(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *weight = call->inputs[1], *bias = nd_op_in(call, 2);
    struct nd_window w;
    ND_TRY(check_weight(call, err));
    ND_TRY(nd_window_read(call, &x->shape, &weight->shape.dims[2], &w, err));
    ND_TRY(nd_window_fit(call, &w, err));
    int64_t n_groups = nd_op_i(call, "group", 1), n_out = weight->shape.dims[0], n_in = weight->shape.dims[1];
    if (x->shape.dims[1] % n_groups != 0 || x->shape.dims[1] / n_groups != n_in || n_out % n_groups != 0 ||
        (bias != NULL && (int64_t)bias->n != n_out))
        return nd_op_misfit(call, err, "%lld channels in %lld groups, a weight of %lld x %lld",
                            (long long)x->shape.dims[1], (long long)n_groups, (long long)n_out,
                            (long long)n_in);
    struct nd_shape shape = nd_window_shape(&w, x->shape.dims[0], n_out);
    struct nd_array *y = call->outputs[0];
    ND_TRY(x->n > 0 ? nd_op_make_room(call, 0, x->dtype, &shape, err)
                    : nd_op_make(call, 0, x->dtype, &shape, err));
    if (y->n == 0 || x->n == 0)
        return ND_OK;
    /* A weight that is no number makes sums that are none: where there are fewer of these, they are looked at.
     */
    bool asks_sums = call->shorts == NULL && y->n < weight->n;
    bool has_numbers = call->shorts != NULL || asks_sums || is_finite(weight);
    ND_TRY(has_numbers ? add_groups(call, &w, n_groups, err) : ND_OK);
    if (!has_numbers || (asks_sums && !is_finite(y) && !is_finite(weight)))
        add_taps(call, &w, n_groups);
    add_bias(bias, y);
    return nd_op_wrap(call, y, err);
}

/* Padded with p: the convolution of x - p, which is padded with 0, and p times the sum of each kernel. */
static enum nd_status convolve_padded(const struct nd_op_call *call, double p, struct nd_error *err)
{
    ND_CLEANUP(nd_array_deinit) struct nd_array x = {0};
    ND_CLEANUP(nd_array_deinit) struct nd_array sums = {0};
    const struct nd_array *weight = call->inputs[1], *inputs[] = {&x, weight, nd_op_in(call, 2)};
    struct nd_op_call moved = *call;
    moved.inputs = inputs;
    moved.shorts = NULL;
    ND_TRY(nd_array_copy(call->inputs[0], &x, err));
    for (size_t i = 0; i < x.n; i++)
        x.x[i] -= p;
    ND_TRY(convolve(&moved, err));
    const struct nd_shape channels = {.rank = 1, .dims = {weight->shape.dims[0]}};
    ND_TRY(nd_array_make(&sums, ND_DTYPE_F64, &channels, err));
    size_t n = sums.n > 0 ? weight->n / sums.n : 0;
    for (size_t i = 0; i < sums.n * n; i++)
        sums.x[i / n] += p * weight->x[i];
    add_bias(&sums, call->outputs[0]);
    return ND_OK;
}

enum nd_status nd_op_conv(const struct nd_op_call *call, struct nd_error *err)
{
    double padding = nd_op_f(call, ND_PADDING, 0);
    return padding == 0 ? convolve(call, err) : convolve_padded(call, padding, err);
}

/* Of the transpose, the windows lie on the input and slide over the output: w->out is the input's size already,
 * and this finds w->in. Pads are given, or follow from output_shape or auto_pad. */
static enum nd_status fit_transposed(const struct nd_op_call *call, struct nd_window *w, struct nd_error *err)
{
    char mode[16];
    const int64_t *extra = NULL, *wanted = NULL;
    size_t n = (size_t)w->n_axes, n_extra = nd_op_ints(call, "output_padding", &extra);
    size_t n_wanted = nd_op_ints(call, "output_shape", &wanted);
    nd_op_text(call, "auto_pad", mode, sizeof mode);
    bool is_same = strcmp(mode, "SAME_UPPER") == 0 || strcmp(mode, "SAME_LOWER") == 0;
    if ((n_extra != 0 && n_extra != n) || (n_wanted != 0 && n_wanted != n))
        return nd_op_misfit(call, err, "output_padding or output_shape of another length");
    for (size_t i = 0; i < n; i++) {
        size_t axis = ND_WINDOW_AXES - n + i;
        int64_t add = n_extra != 0 ? extra[i] : 0;
        if (add < 0 || add > ND_WINDOW_MAX || (n_wanted != 0 && (wanted[i] < 1 || wanted[i] > ND_WINDOW_MAX)))
            return nd_op_misfit(call, err, "output_padding or output_shape out of range");
        ptrdiff_t full =
            (w->out[axis] - 1) * w->stride[axis] + (w->kernel[axis] - 1) * w->dilation[axis] + 1 + add;
        if (strcmp(mode, "VALID") == 0)
            w->pad_begin[axis] = w->pad_end[axis] = 0;
        w->in[axis] = full - w->pad_begin[axis] - w->pad_end[axis];
        if (n_wanted != 0 || is_same) {
            w->in[axis] = n_wanted != 0 ? (ptrdiff_t)wanted[i] : w->out[axis] * w->stride[axis];
            ptrdiff_t total = full - w->in[axis];
            w->pad_begin[axis] = strcmp(mode, "SAME_UPPER") == 0 ? total / 2 : total - total / 2;
            if (total < 0) /* what no window reaches is at the end */
                w->pad_begin[axis] = 0;
        }
        if (w->in[axis] < 1)
            return nd_op_misfit(call, err, "an output of %td elements", w->in[axis]);
    }
    return ND_OK;
}

static enum nd_status transposed_window(const struct nd_op_call *call, struct nd_window *w,
                                        struct nd_error *err)
{
    ND_TRY(nd_window_read(call, &call->inputs[0]->shape, &call->inputs[1]->shape.dims[2], w, err));
    memcpy(w->out, w->in, sizeof w->out);
    return fit_transposed(call, w, err);
}

/* Whether every output belongs to one tap of one window: it is a sum over the channels alone. */
static bool is_tiled(const struct nd_window *w)
{
    bool is_it = true;
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        is_it = is_it && w->kernel[axis] == w->stride[axis] && w->pad_begin[axis] == 0 &&
                (w->dilation[axis] == 1 || w->kernel[axis] == 1) &&
                w->in[axis] == w->out[axis] * w->stride[axis];
    return is_it;
}

/* One group of one sample: a product of matrices for each row of the input. weight[n_in][n_out][w.n_kernel]. */
struct tiles {
    const struct nd_window *w;
    size_t n_in, n_out;
    const double *weight, *in;
    double *out, *factors, *sums; /* room: [n_out][w.n_kernel][n_in] and [n_out][w.n_kernel][w.out[2]] */
};

static void put_row(const struct tiles *t, ptrdiff_t d, ptrdiff_t h)
{
    const struct nd_window *w = t->w;
    const double *sums = t->sums;
    for (size_t m = 0; m < t->n_out; m++)
        for (ptrdiff_t k = 0; k < w->n_kernel; k++) {
            ptrdiff_t k0 = k / (w->kernel[1] * w->kernel[2]), k1 = k / w->kernel[2] % w->kernel[1];
            double *to = t->out + (ptrdiff_t)m * w->n_in + k % w->kernel[2] +
                         ((d * w->stride[0] + k0) * w->in[1] + h * w->stride[1] + k1) * w->in[2];
            for (ptrdiff_t i = 0; i < w->out[2]; i++)
                to[i * w->stride[2]] = *sums++;
        }
}

/* The same bits as add_kernel gives: a sum in order of channels. */
static void multiply_tiles(const struct tiles *t)
{
    const struct nd_window *w = t->w;
    size_t n_kernel = (size_t)w->n_kernel, n_rows = t->n_out * n_kernel, n_columns = (size_t)w->out[2];
    for (size_t c = 0; c < t->n_in; c++)
        for (size_t i = 0; i < n_rows; i++)
            t->factors[i * t->n_in + c] = t->weight[c * n_rows + i];
    for (ptrdiff_t d = 0; d < w->out[0]; d++)
        for (ptrdiff_t h = 0; h < w->out[1]; h++) {
            const struct nd_gemm gemm = {.n = n_rows,
                                         .n_k = t->n_in,
                                         .m = n_columns,
                                         .a = t->factors,
                                         .b = t->in + (d * w->out[1] + h) * w->out[2],
                                         .c = t->sums,
                                         .a_row = t->n_in,
                                         .b_row = (size_t)w->n_out,
                                         .c_row = n_columns};
            memset(t->sums, 0, n_rows * n_columns * sizeof *t->sums);
            nd_gemm_kernels()->add(&gemm);
            put_row(t, d, h);
        }
}

static enum nd_status add_tiles(const struct nd_op_call *call, const struct nd_window *w, int64_t n_groups,
                                struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *weight = call->inputs[1], *y = call->outputs[0];
    int64_t n_in = x->shape.dims[1] / n_groups, n_out = weight->shape.dims[1];
    size_t n_rows = (size_t)(n_out * w->n_kernel);
    ND_FREED double *factors = nd_calloc(n_rows * (size_t)n_in, sizeof *factors);
    ND_FREED double *sums = nd_calloc(n_rows * (size_t)w->out[2], sizeof *sums);
    ND_TRY_MEMORY(factors != NULL && sums != NULL, err);
    for (int64_t i = 0; i < x->shape.dims[0] * n_groups; i++) {
        const struct tiles tiles = {.w = w,
                                    .n_in = (size_t)n_in,
                                    .n_out = (size_t)n_out,
                                    .weight = weight->x + i % n_groups * n_in * n_out * w->n_kernel,
                                    .in = x->x + i * n_in * w->n_out,
                                    .out = y->x + i * n_out * w->n_in,
                                    .factors = factors,
                                    .sums = sums};
        multiply_tiles(&tiles);
    }
    return ND_OK;
}

static enum nd_status nd_op_conv_transpose(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *weight = call->inputs[1], *bias = nd_op_in(call, 2);
    struct nd_window w, reversed;
    ND_TRY(check_weight(call, err));
    ND_TRY(transposed_window(call, &w, err));
    int64_t n_groups = nd_op_i(call, "group", 1), n_in = x->shape.dims[1], n_out = weight->shape.dims[1];
    if (weight->shape.dims[0] != n_in || n_in % n_groups != 0 ||
        (bias != NULL && (int64_t)bias->n != n_out * n_groups))
        return nd_op_misfit(call, err, "%lld channels in %lld groups, a weight of %lld x %lld", (long long)n_in,
                            (long long)n_groups, (long long)weight->shape.dims[0], (long long)n_out);
    reversed = w;
    memcpy(reversed.out, w.in, sizeof w.in);
    struct nd_shape shape = nd_window_shape(&reversed, x->shape.dims[0], n_out * n_groups);
    struct nd_array *y = call->outputs[0];
    enum nd_status status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status != ND_OK || y->n == 0 || x->n == 0)
        return status;
    nd_window_close(&w);
    bool is_by_tiles = is_tiled(&w);
    if (is_by_tiles)
        status = add_tiles(call, &w, n_groups, err);
    for (int64_t n = 0; n < x->shape.dims[0] && !is_by_tiles; n++)
        for (int64_t c = 0; c < n_in; c++)
            for (int64_t m = 0; m < n_out; m++) {
                int64_t plane = n * n_out * n_groups + c / (n_in / n_groups) * n_out + m;
                add_kernel(&w, weight->x + (c * n_out + m) * w.n_kernel, true, x->x + (n * n_in + c) * w.n_out,
                           y->x + plane * w.n_in);
            }
    if (status != ND_OK)
        return status;
    add_bias(bias, y);
    return nd_op_wrap(call, y, err);
}

/* ---- the operators ---- */

const struct nd_op nd_ops_convolutions[] = {
    {"", "Conv", 2, nd_op_conv},
    {"", "ConvTranspose", 2, nd_op_conv_transpose},
    {NULL, NULL, 0, NULL},
};
