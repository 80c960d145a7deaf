/* Reductions over some axes. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

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
    if (m == NULL)
        return nd_fail_memory(err);
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
    double *m = NULL, n = 1;
    if (reduction->step == step_exp) {
        enum nd_status status = find_largest(x, is_reduced, y->n, &m, err);
        if (status != ND_OK)
            return status;
    }
    for (int axis = 0; axis < x->shape.rank; axis++)
        n *= is_reduced[axis] ? (double)x->shape.dims[axis] : 1;
    reduce(x, is_reduced, reduction->step, reduction->start, y->x, m);
    for (size_t i = 0; i < y->n && reduction->last != NULL; i++)
        y->x[i] = reduction->last(y->x[i], n, m != NULL ? m[i] : 0);
    free(m);
    return nd_op_wrap(call, y, err);
}

/* Axes are an attribute first, an input since opset 13 (ReduceSum) or 18; none means all of them or, with
 * noop_with_empty_axes, really none: every element is reduced by itself, so that squares and logarithms are
 * still taken. */
enum nd_status nd_op_reduce(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    bool is_reduced[ND_MAX_RANK];
    struct nd_op_list axes;
    enum nd_status status = nd_op_list(call, 1, "axes", &axes, err);
    if (status == ND_OK)
        status = nd_op_axes(call, &axes, x->shape.rank, is_reduced, err);
    if (status != ND_OK)
        return status;
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
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    return status == ND_OK ? run_reduction(call, is_reduced, err) : status;
}
