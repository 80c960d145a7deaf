/* What goes along one axis: softmax, the index of an extreme, running sums, the k largest. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <stdlib.h>

#include "core/memory.h"

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
enum nd_status nd_op_softmax(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    bool coerces = call->opset < 13;
    int64_t named = nd_op_i(call, "axis", coerces ? 1 : -1);
    int axis = x->shape.rank; /* opset < 13 may name the end: lines of one element */
    enum nd_status status = ND_OK;
    if (!coerces || named != axis)
        status = nd_op_axis(call, named, x->shape.rank, &axis, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    if (status != ND_OK || x->n == 0)
        return status;
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

enum nd_status nd_op_arg(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int axis = 0;
    enum nd_status status = nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err);
    if (status != ND_OK)
        return status;
    bool keeps = nd_op_i(call, "keepdims", 1) != 0;
    struct nd_shape shape = {0};
    for (int i = 0; i < x->shape.rank; i++)
        if (i != axis || keeps)
            shape.dims[shape.rank++] = i == axis ? 1 : x->shape.dims[i];
    struct lines lines = lines_along(&x->shape, axis);
    status = nd_op_make(call, 0, ND_DTYPE_I64, &shape, err);
    if (status == ND_OK && lines.n == 0 && call->outputs[0]->n > 0)
        return nd_op_misfit(call, err, "no element along axis %d", axis);
    bool is_min = nd_op_is(call, "ArgMin"), takes_last = nd_op_i(call, "select_last_index", 0) != 0;
    for (size_t line = 0; status == ND_OK && line < call->outputs[0]->n; line++)
        call->outputs[0]->x[line] =
            (double)find_extreme(x->x + line_base(&lines, line), &lines, is_min, takes_last);
    return status;
}

enum nd_status nd_op_cumsum(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *named = call->inputs[1];
    int axis = 0;
    if (named->n != 1)
        return nd_op_misfit(call, err, "%zu axes", named->n);
    enum nd_status status = nd_op_axis(call, nd_op_whole(named, 0), x->shape.rank, &axis, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    if (status != ND_OK || x->n == 0)
        return status;
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
enum nd_status nd_op_topk(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *wanted = call->inputs[1];
    int axis = 0;
    enum nd_status status = nd_op_axis(call, nd_op_i(call, "axis", -1), x->shape.rank, &axis, err);
    if (status != ND_OK)
        return status;
    int64_t k = wanted->n == 1 ? nd_op_whole(wanted, 0) : -1;
    if (k < 0 || k > x->shape.dims[axis])
        return nd_op_misfit(call, err, "k is %lld for an axis of %lld", (long long)k,
                            (long long)x->shape.dims[axis]);
    struct nd_shape shape = x->shape;
    shape.dims[axis] = k;
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status == ND_OK && nd_op_out(call, 1) != NULL)
        status = nd_op_make(call, 1, ND_DTYPE_I64, &shape, err);
    if (status != ND_OK || call->outputs[0]->n == 0)
        return status;
    struct lines lines = lines_along(&x->shape, axis);
    struct ranked *ranked = nd_calloc(lines.n, sizeof *ranked);
    if (ranked == NULL)
        return nd_fail_memory(err);
    topk_lines(call, &lines, (size_t)k, ranked);
    free(ranked);
    return ND_OK;
}
