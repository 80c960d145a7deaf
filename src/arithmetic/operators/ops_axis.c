/* Operators along axes: reductions, softmax, the index of an extreme, running sums, the k largest,
 * normalisations. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/error.h"
#include "core/memory.h"

/* ---- reductions over some axes ---- */

/* How an element joins what was reduced so far; m is the largest element, which only LogSumExp asks for. */
typedef double step_function(double so_far, double x, double m);
typedef double last_function(double reduced, double n, double m);

#define STEP(name, formula)                                                                                    \
    static double step_##name(double y, double x, double m)                                                    \
    {                                                                                                          \
        (void)m;                                                                                               \
        return formula;                                                                                        \
    }

STEP(sum, y + x)
STEP(square, y + x * x)
STEP(abs, y + fabs(x))
STEP(product, y *x)
STEP(exp, y + exp(x - m))
STEP(max, x > y || isnan(x) ? x : y)
STEP(min, x < y || isnan(x) ? x : y)

#define LAST(name, formula)                                                                                    \
    static double last_##name(double y, double n, double m)                                                    \
    {                                                                                                          \
        (void)n;                                                                                               \
        (void)m;                                                                                               \
        return formula;                                                                                        \
    }

LAST(mean, y / n)
LAST(root, sqrt(y))
LAST(log, log(y))
LAST(log_exp, log(y) + m)

static const struct reduction {
    const char *op_type;
    double start;
    step_function *step;
    last_function *last; /* nullable */
} reductions[] = {
    {"ReduceL1", 0, step_abs, NULL},          {"ReduceL2", 0, step_square, last_root},
    {"ReduceLogSum", 0, step_sum, last_log},  {"ReduceLogSumExp", 0, step_exp, last_log_exp},
    {"ReduceMax", -HUGE_VAL, step_max, NULL}, {"ReduceMean", 0, step_sum, last_mean},
    {"ReduceMin", HUGE_VAL, step_min, NULL},  {"ReduceProd", 1, step_product, NULL},
    {"ReduceSum", 0, step_sum, NULL},         {"ReduceSumSquare", 0, step_square, NULL},
};

static const struct reduction *find_reduction(const char *op_type)
{
    const struct reduction *found = reductions;
    while (strcmp(found->op_type, op_type) != 0) /* every operator of the list in ops.c has a row */
        found++;
    return found;
}

/* y of x, in C order of x; m has an entry per element of y, or is NULL. */
static void reduce(const struct nd_array *x, const bool *is_reduced, step_function *step, double start,
                   double *y, const double *m)
{
    struct nd_walk walk = {0};
    ptrdiff_t strides[ND_MAX_RANK], kept[ND_MAX_RANK], stride = 1;
    nd_strides(&x->shape, strides);
    for (int axis = x->shape.rank - 1; axis >= 0; axis--) {
        kept[axis] = is_reduced[axis] ? 0 : stride;
        stride *= is_reduced[axis] ? 1 : (ptrdiff_t)x->shape.dims[axis];
    }
    for (int axis = 0; axis < x->shape.rank; axis++)
        nd_walk_axis(&walk, x->shape.dims[axis], strides[axis], kept[axis], 0);
    for (ptrdiff_t i = 0; i < stride; i++)
        y[i] = start;
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++) {
            ptrdiff_t to = walk.at[1] + i * walk.step[1];
            y[to] = step(y[to], x->x[walk.at[0] + i * walk.step[0]], m != NULL ? m[to] : 0);
        }
}

/* The largest element of each sum of LogSumExp; an infinite one is taken as 0, as its exponential is no better.
 */
static enum nd_status find_largest(const struct nd_array *x, const bool *is_reduced, size_t n, double **out,
                                   struct nd_error *err)
{
    double *m = nd_calloc(n, sizeof *m);
    ND_TRY_MEMORY(m != NULL, err);
    reduce(x, is_reduced, step_max, -(double)INFINITY, m, NULL);
    for (size_t i = 0; i < n; i++)
        if (isinf(m[i]))
            m[i] = 0;
    *out = m;
    return ND_OK;
}

static enum nd_status run_reduction(const struct nd_op_call *call, const bool *is_reduced, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    const struct reduction *reduction = find_reduction(call->node->op_type);
    struct nd_array *y = call->outputs[0];
    ND_FREED double *m = NULL;
    double n = 1;
    if (reduction->step == step_exp)
        ND_TRY(find_largest(x, is_reduced, y->n, &m, err));
    for (int axis = 0; axis < x->shape.rank; axis++)
        n *= is_reduced[axis] ? (double)x->shape.dims[axis] : 1;
    reduce(x, is_reduced, reduction->step, reduction->start, y->x, m);
    for (size_t i = 0; i < y->n && reduction->last != NULL; i++)
        y->x[i] = reduction->last(y->x[i], n, m != NULL ? m[i] : 0);
    return nd_op_wrap(call, y, err);
}

/* Axes are an attribute first, an input since opset 13 (ReduceSum) or 18; none means all of them or, with
 * noop_with_empty_axes, really none: every element is reduced by itself, so that squares and logarithms are
 * still taken. */
static enum nd_status nd_op_reduce(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    bool is_reduced[ND_MAX_RANK];
    struct nd_op_list axes;
    ND_TRY(nd_op_list(call, 1, "axes", &axes, err));
    ND_TRY(nd_op_axes(call, &axes, x->shape.rank, is_reduced, err));
    bool keeps = nd_op_i(call, "keepdims", 1) != 0;
    bool is_all = axes.n == 0 && nd_op_i(call, "noop_with_empty_axes", 0) == 0;
    struct nd_shape shape = {0};
    for (int axis = 0; axis < x->shape.rank; axis++) {
        if (is_all)
            is_reduced[axis] = true;
        if (!is_reduced[axis])
            shape.dims[shape.rank++] = x->shape.dims[axis];
        else if (keeps)
            shape.dims[shape.rank++] = 1;
    }
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    return run_reduction(call, is_reduced, err);
}

/* ---- along one axis ---- */

/* A tensor as lines along an axis: line l has n elements, from base(l) on, `step` apart. */
struct lines {
    size_t n_lines, n, step;
};

static struct lines lines_along(const struct nd_shape *shape, int axis)
{
    struct lines lines = {.n = (size_t)shape->dims[axis],
                          .step = nd_dims_product(shape, axis + 1, shape->rank)};
    lines.n_lines = nd_dims_product(shape, 0, axis) * lines.step;
    return lines;
}

static size_t line_base(const struct lines *lines, size_t line)
{
    return line / lines->step * lines->step * lines->n + line % lines->step;
}

/* Whether x goes before best: larger (or smaller), and NaN before all else. */
static bool is_ahead(double x, double best, bool wants_smallest)
{
    if (isnan(x) || isnan(best))
        return isnan(x) && !isnan(best);
    return wants_smallest ? x < best : x > best;
}

static size_t find_extreme(const double *x, const struct lines *lines, bool wants_smallest, bool takes_last)
{
    size_t best = 0;
    for (size_t i = 1; i < lines->n; i++) {
        double value = x[i * lines->step], held = x[best * lines->step];
        bool ties = value == held || (isnan(value) && isnan(held));
        if (is_ahead(value, held, wants_smallest) || (takes_last && ties))
            best = i;
    }
    return best;
}

enum softmax_kind { SOFTMAX, LOG_SOFTMAX, HARDMAX };

static void softmax_line(const double *x, double *y, const struct lines *lines, enum softmax_kind kind)
{
    size_t at = find_extreme(x, lines, false, false);
    double largest = x[at * lines->step], sum = 0;
    if (kind == HARDMAX) {
        y[at * lines->step] = 1; /* the others are 0 */
        return;
    }
    for (size_t i = 0; i < lines->n; i++) {
        double e = exp(x[i * lines->step] - largest);
        y[i * lines->step] = e;
        sum += e;
    }
    double log_sum = log(sum);
    for (size_t i = 0; i < lines->n; i++)
        if (kind == LOG_SOFTMAX)
            y[i * lines->step] = x[i * lines->step] - largest - log_sum;
        else
            y[i * lines->step] /= sum;
}

/* Before opset 13 all axes from `axis` on are one; since then it is the one axis. */
static enum nd_status nd_op_softmax(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    bool coerces = call->opset < 13;
    int64_t named = nd_op_i(call, "axis", coerces ? 1 : -1);
    int axis = x->shape.rank; /* opset < 13 may name the end: lines of one element */
    if (!coerces || named != axis)
        ND_TRY(nd_op_axis(call, named, x->shape.rank, &axis, err));
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    if (x->n == 0)
        return ND_OK;
    struct lines lines = {.n = nd_dims_product(&x->shape, axis, x->shape.rank), .step = 1};
    lines.n_lines = x->n / lines.n;
    if (!coerces)
        lines = lines_along(&x->shape, axis);
    enum softmax_kind kind = nd_op_is(call, "LogSoftmax") ? LOG_SOFTMAX
                             : nd_op_is(call, "Hardmax")  ? HARDMAX
                                                          : SOFTMAX;
    for (size_t line = 0; line < lines.n_lines; line++)
        softmax_line(x->x + line_base(&lines, line), call->outputs[0]->x + line_base(&lines, line), &lines,
                     kind);
    return ND_OK;
}

static enum nd_status nd_op_arg(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err));
    bool keeps = nd_op_i(call, "keepdims", 1) != 0;
    struct nd_shape shape = {0};
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis || keeps)
            shape.dims[shape.rank++] = i == axis ? 1 : x->shape.dims[i];
    struct lines lines = lines_along(&x->shape, axis);
    ND_TRY(nd_op_make(call, 0, ND_DTYPE_I64, &shape, err));
    if (lines.n == 0 && call->outputs[0]->n > 0)
        return nd_op_misfit(call, err, "no element along axis %d", axis);
    bool is_min = nd_op_is(call, "ArgMin"), takes_last = nd_op_i(call, "select_last_index", 0) != 0;
    for (size_t line = 0; line < call->outputs[0]->n; line++)
        call->outputs[0]->x[line] =
            (double)find_extreme(x->x + line_base(&lines, line), &lines, is_min, takes_last);
    return ND_OK;
}

static enum nd_status nd_op_cumsum(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *named = call->inputs[1];
    int axis = 0;
    if (named->n != 1)
        return nd_op_misfit(call, err, "%zu axes", named->n);
    ND_TRY(nd_op_axis(call, nd_op_whole(named, 0), x->shape.rank, &axis, err));
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    if (x->n == 0)
        return ND_OK;
    struct lines lines = lines_along(&x->shape, axis);
    bool is_exclusive = nd_op_i(call, "exclusive", 0) != 0, is_reverse = nd_op_i(call, "reverse", 0) != 0;
    for (size_t line = 0; line < lines.n_lines; line++) {
        double sum = 0;
        for (size_t i = 0; i < lines.n; i++) {
            size_t at = line_base(&lines, line) + (is_reverse ? lines.n - 1 - i : i) * lines.step;
            double with = sum + x->x[at];
            call->outputs[0]->x[at] = is_exclusive ? sum : with;
            sum = with;
        }
    }
    return nd_op_wrap(call, call->outputs[0], err);
}

struct ranked {
    double value;
    size_t index;
};

/* Equal values keep their order. */
static int compare_index(const struct ranked *a, const struct ranked *b)
{
    return a->index < b->index ? -1 : a->index > b->index ? 1 : 0;
}

static int compare_largest(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (is_ahead(a->value, b->value, false))
        return -1;
    return is_ahead(b->value, a->value, false) ? 1 : compare_index(a, b);
}

static int compare_smallest(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    if (is_ahead(a->value, b->value, true))
        return -1;
    return is_ahead(b->value, a->value, true) ? 1 : compare_index(a, b);
}

static void topk_lines(const struct nd_op_call *call, const struct lines *lines, size_t k,
                       struct ranked *ranked)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_array *values = nd_op_out(call, 0), *indices = nd_op_out(call, 1);
    struct lines out = {.n_lines = lines->n_lines, .n = k, .step = lines->step};
    bool is_largest = nd_op_i(call, "largest", 1) != 0;
    for (size_t line = 0; line < lines->n_lines; line++) {
        for (size_t i = 0; i < lines->n; i++)
            ranked[i] = (struct ranked){x->x[line_base(lines, line) + i * lines->step], i};
        qsort(ranked, lines->n, sizeof *ranked, is_largest ? compare_largest : compare_smallest);
        for (size_t i = 0; i < k; i++) {
            size_t at = line_base(&out, line) + i * out.step;
            values->x[at] = ranked[i].value;
            if (indices != NULL)
                indices->x[at] = (double)ranked[i].index;
        }
    }
}

/* Sorted even where that is not asked for: any order would do then. */
static enum nd_status nd_op_topk(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *wanted = call->inputs[1];
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", -1), x->shape.rank, &axis, err));
    int64_t k = wanted->n == 1 ? nd_op_whole(wanted, 0) : -1;
    if (k < 0 || k > x->shape.dims[axis])
        return nd_op_misfit(call, err, "k is %lld for an axis of %lld", (long long)k,
                            (long long)x->shape.dims[axis]);
    struct nd_shape shape = x->shape;
    shape.dims[axis] = k;
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    if (nd_op_out(call, 1) != NULL)
        ND_TRY(nd_op_make(call, 1, ND_DTYPE_I64, &shape, err));
    if (call->outputs[0]->n == 0)
        return ND_OK;
    struct lines lines = lines_along(&x->shape, axis);
    ND_FREED struct ranked *ranked = nd_calloc(lines.n, sizeof *ranked);
    ND_TRY_MEMORY(ranked != NULL, err);
    topk_lines(call, &lines, (size_t)k, ranked);
    return ND_OK;
}

/* ---- normalisations: by mean and variance, by a norm, by the neighbours ---- */

/* Mean and 1 / sqrt(variance + epsilon) of n elements; without a mean (RMS) the mean is 0. */
struct moments {
    double mean;
    double inverse;
};

static struct moments moments_of(const double *x, size_t n, double epsilon, bool has_mean)
{
    double sum = 0, squares = 0;
    for (size_t i = 0; i < n && has_mean; i++)
        sum += x[i];
    double mean = has_mean ? sum / (double)n : 0;
    for (size_t i = 0; i < n; i++)
        squares += (x[i] - mean) * (x[i] - mean);
    return (struct moments){.mean = mean, .inverse = 1 / sqrt(squares / (double)n + epsilon)};
}

/* One line of n elements of LayerNormalization; scale and bias (nullable) have as many. */
/* The outputs for mean and inverse standard deviation; without a mean (RMS) only the latter, where the mean
 * would be. */
static enum nd_status make_moments(const struct nd_op_call *call, int axis, bool has_mean,
                                   struct nd_array **mean, struct nd_array **inverse, struct nd_error *err)
{
    struct nd_shape shape = call->inputs[0]->shape;
    for (int i = axis; i < shape.rank; i++)
        shape.dims[i] = 1;
    for (size_t i = 1; i <= 2; i++)
        if (nd_op_out(call, i) != NULL)
            ND_TRY(nd_op_make(call, i, call->inputs[0]->dtype, &shape, err));
    *mean = has_mean ? nd_op_out(call, 1) : NULL;
    *inverse = nd_op_out(call, has_mean ? 2 : 1);
    return ND_OK;
}

static void put(struct nd_array *array, size_t i, double value)
{
    if (array != NULL)
        array->x[i] = value;
}

/* What is normalised, over its axes from `axis` on. */
struct layer {
    const struct nd_array *x, *scale, *bias; /* bias is nullable */
    int axis;
    bool has_mean;
};

/* x and y from `axis` on. Scale and bias are as large as that part; one that would have to be repeated is
 * refused. */
static enum nd_status normalize_lines(const struct nd_op_call *call, const struct layer *layer,
                                      struct nd_error *err)
{
    const struct nd_array *x = layer->x, *scale = layer->scale, *bias = layer->bias;
    struct nd_array *y = call->outputs[0], *mean, *inverse;
    size_t n = nd_dims_product(&x->shape, layer->axis, x->shape.rank);
    double epsilon =
        nd_op_f(call, "epsilon", (double)(nd_op_is(call, "SkipLayerNormalization") ? 1e-12F : 1e-5F));
    if (scale->n != n || (bias != NULL && bias->n != n))
        return nd_op_unsupported(call, err, "a scale or bias that is not as large as what is normalised");
    ND_TRY(make_moments(call, layer->axis, layer->has_mean, &mean, &inverse, err));
    for (size_t line = 0; x->n > 0 && line < x->n / n; line++) {
        const double *from = x->x + line * n;
        double *to = y->x + line * n;
        struct moments m = moments_of(from, n, epsilon, layer->has_mean);
        for (size_t i = 0; i < n; i++)
            to[i] = (from[i] - m.mean) * m.inverse * scale->x[i] + (bias != NULL ? bias->x[i] : 0);
        put(mean, line, m.mean);
        put(inverse, line, m.inverse);
    }
    return ND_OK;
}

static enum nd_status nd_op_layer_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", -1), x->shape.rank, &axis, err));
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    const struct layer layer = {x, call->inputs[1], nd_op_in(call, 2), axis,
                                nd_op_is(call, "LayerNormalization")};
    return normalize_lines(call, &layer, err);
}

/* com.microsoft: input + skip (+ bias) is normalised over the last axis; output 3 is that sum. */
static enum nd_status nd_op_skip_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *skip = call->inputs[1];
    bool has_mean = nd_op_is(call, "SkipLayerNormalization");
    const struct nd_array *beta = has_mean ? nd_op_in(call, 3) : NULL, *bias = nd_op_in(call, has_mean ? 4 : 3);
    ND_CLEANUP(nd_array_deinit) struct nd_array own = {0};
    struct nd_array *sum = nd_op_out(call, 3);
    int rank = x->shape.rank;
    if (rank == 0 || !nd_shape_equal(&x->shape, &skip->shape) ||
        (bias != NULL && (int64_t)bias->n != x->shape.dims[rank - 1]))
        return nd_op_unsupported(call, err, "a skip or bias that has to be broadcast");
    if (sum == NULL)
        sum = &own;
    const struct layer layer = {sum, call->inputs[2], beta, rank - 1, has_mean};
    ND_TRY(nd_array_copy(x, sum, err));
    for (size_t i = 0; i < x->n; i++)
        sum->x[i] += skip->x[i] + (bias != NULL ? bias->x[i % bias->n] : 0);
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    return normalize_lines(call, &layer, err);
}

/* Instance: a group per channel. Group: num_groups of them; scale and bias are per group up to opset 20, per
 * channel since 21. */
static enum nd_status nd_op_group_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *scale = call->inputs[1], *bias = call->inputs[2];
    if (x->shape.rank < 2)
        return nd_op_misfit(call, err, "a tensor of %d dimensions", x->shape.rank);
    bool is_group = nd_op_is(call, "GroupNormalization");
    int64_t n_channels = x->shape.dims[1], n_groups = is_group ? nd_op_i(call, "num_groups", 0) : n_channels;
    int64_t n_scales = is_group && call->opset < 21 ? n_groups : n_channels;
    if (n_groups < 1 || n_channels % n_groups != 0 || (int64_t)scale->n != n_scales ||
        (int64_t)bias->n != n_scales)
        return nd_op_misfit(call, err, "%lld channels in %lld groups with %zu scales and %zu biases",
                            (long long)n_channels, (long long)n_groups, scale->n, bias->n);
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    if (x->n == 0)
        return ND_OK;
    double epsilon = nd_op_f(call, "epsilon", (double)1e-5F);
    size_t plane = nd_dims_product(&x->shape, 2, x->shape.rank);
    size_t per_group = (size_t)(n_channels / n_groups), per_scale = (size_t)(n_channels / n_scales);
    for (size_t at = 0; at < x->n; at += per_group * plane) {
        struct moments m = moments_of(x->x + at, per_group * plane, epsilon, true);
        for (size_t i = at; i < at + per_group * plane; i++) {
            size_t s = i / plane % (size_t)n_channels / per_scale;
            call->outputs[0]->x[i] = (x->x[i] - m.mean) * m.inverse * scale->x[s] + bias->x[s];
        }
    }
    return ND_OK;
}

static enum nd_status nd_op_batch_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    if (nd_op_i(call, "training_mode", 0) != 0 || nd_op_out(call, 1) != NULL)
        return nd_op_unsupported(call, err, "training");
    if (nd_op_i(call, "spatial", 1) == 0)
        return nd_op_unsupported(call, err, "spatial = 0");
    size_t n_channels = x->shape.rank > 1 ? (size_t)x->shape.dims[1] : 1;
    for (size_t i = 1; i <= 4; i++)
        if (call->inputs[i]->n != n_channels)
            return nd_op_misfit(call, err, "input %zu has %zu elements for %zu channels", i, call->inputs[i]->n,
                                n_channels);
    const double *scale = call->inputs[1]->x, *bias = call->inputs[2]->x;
    const double *mean = call->inputs[3]->x, *variance = call->inputs[4]->x;
    double epsilon = nd_op_f(call, "epsilon", (double)1e-5F);
    size_t plane = nd_dims_product(&x->shape, 2, x->shape.rank);
    ND_TRY(nd_op_make_room(call, 0, x->dtype, &x->shape, err));
    for (size_t first = 0; first < x->n; first += plane) {
        size_t c = first / plane % n_channels;
        double centre = mean[c], deviation = sqrt(variance[c] + epsilon), factor = scale[c], added = bias[c];
        const double *in = x->x + first;
        double *out = call->outputs[0]->x + first;
        for (size_t i = 0; i < plane; i++)
            out[i] = (in[i] - centre) / deviation * factor + added;
    }
    return ND_OK;
}

/* A line of zeros stays one. */
static enum nd_status nd_op_lp_norm(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int64_t p = nd_op_i(call, "p", 2);
    int axis = 0;
    if (p != 1 && p != 2)
        return nd_op_unsupported(call, err, "p = %lld", (long long)p);
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", -1), x->shape.rank, &axis, err));
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    if (x->n == 0)
        return ND_OK;
    size_t n = (size_t)x->shape.dims[axis], step = nd_dims_product(&x->shape, axis + 1, x->shape.rank);
    for (size_t line = 0; line < x->n / n; line++) {
        size_t base = line / step * step * n + line % step;
        double norm = 0;
        for (size_t i = 0; i < n; i++) {
            double value = x->x[base + i * step];
            norm += p == 1 ? fabs(value) : value * value;
        }
        norm = p == 1 ? norm : sqrt(norm);
        for (size_t i = 0; i < n; i++)
            call->outputs[0]->x[base + i * step] = norm == 0 ? 0 : x->x[base + i * step] / norm;
    }
    return ND_OK;
}

/* y = x / (bias + alpha / size * (sum of the squares of the channels around))^beta. */
static enum nd_status nd_op_lrn(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int64_t size = nd_op_i(call, "size", 0);
    if (x->shape.rank < 2 || size < 1)
        return nd_op_misfit(call, err, "a size of %lld on %d dimensions", (long long)size, x->shape.rank);
    double alpha = nd_op_f(call, "alpha", (double)1e-4F), beta = nd_op_f(call, "beta", 0.75);
    double bias = nd_op_f(call, "bias", 1);
    int64_t n_channels = x->shape.dims[1], before = (size - 1) / 2, after = size - 1 - before;
    size_t plane = nd_dims_product(&x->shape, 2, x->shape.rank);
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    for (size_t i = 0; i < x->n; i++) {
        int64_t c = (int64_t)(i / plane) % n_channels;
        int64_t from = c > before ? c - before : 0,
                to = after < n_channels - 1 - c ? c + after : n_channels - 1;
        double squares = 0;
        for (int64_t other = from; other <= to; other++) {
            double value = x->x[(size_t)((int64_t)i + (other - c) * (int64_t)plane)];
            squares += value * value;
        }
        call->outputs[0]->x[i] = x->x[i] / pow(bias + alpha / (double)size * squares, beta);
    }
    return ND_OK;
}

/* ---- the operators ---- */

const struct nd_op nd_ops_axes[] = {
    {"", "ReduceL1", 1, nd_op_reduce},
    {"", "ReduceL2", 1, nd_op_reduce},
    {"", "ReduceLogSum", 1, nd_op_reduce},
    {"", "ReduceLogSumExp", 1, nd_op_reduce},
    {"", "ReduceMax", 1, nd_op_reduce},
    {"", "ReduceMean", 1, nd_op_reduce},
    {"", "ReduceMin", 1, nd_op_reduce},
    {"", "ReduceProd", 1, nd_op_reduce},
    {"", "ReduceSum", 1, nd_op_reduce},
    {"", "ReduceSumSquare", 1, nd_op_reduce},
    {"", "ArgMax", 1, nd_op_arg},
    {"", "ArgMin", 1, nd_op_arg},
    {"", "CumSum", 2, nd_op_cumsum},
    {"", "Hardmax", 1, nd_op_softmax},
    {"", "LogSoftmax", 1, nd_op_softmax},
    {"", "Softmax", 1, nd_op_softmax},
    {"", "TopK", 2, nd_op_topk},
    {"", "BatchNormalization", 5, nd_op_batch_norm},
    {"", "GroupNormalization", 3, nd_op_group_norm},
    {"", "InstanceNormalization", 3, nd_op_group_norm},
    {"", "LRN", 1, nd_op_lrn},
    {"", "LayerNormalization", 2, nd_op_layer_norm},
    {"", "LpNormalization", 1, nd_op_lp_norm},
    {"", "RMSNormalization", 2, nd_op_layer_norm},
    {"", "SimplifiedLayerNormalization", 2, nd_op_layer_norm}, /* ONNX Runtime has it in the default domain */
    {MS, "SkipLayerNormalization", 3, nd_op_skip_norm},
    {MS, "SkipSimplifiedLayerNormalization", 3, nd_op_skip_norm},
    {NULL, NULL, 0, NULL},
};
