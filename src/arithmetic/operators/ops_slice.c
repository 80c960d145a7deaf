/* Slice and Pad. */
#include "arithmetic/operators/ops_shared.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

static int64_t clamp(int64_t value, int64_t low, int64_t high)
{
    return value < low ? low : value > high ? high : value;
}

/* Where a slice of an axis begins, how far it steps, how long it is. */
struct cut {
    int64_t start, step, n;
};

/* As Python cuts: ends counted from the end if negative, then clipped. */
static struct cut cut_axis(int64_t dim, int64_t start, int64_t end, int64_t step)
{
    struct cut cut = {.step = clamp(step, -((int64_t)1 << 60), (int64_t)1 << 60)};
    bool is_back = step < 0;
    start = clamp(start < 0 ? start + dim : start, is_back ? -1 : 0, is_back ? dim - 1 : dim);
    end = clamp(end < 0 ? end + dim : end, is_back ? -1 : 0, is_back ? dim - 1 : dim);
    cut.start = start;
    if (is_back ? start > end : start < end)
        cut.n = is_back ? (start - end - cut.step - 1) / -cut.step : (end - start + cut.step - 1) / cut.step;
    return cut;
}

/* Inputs since opset 10, attributes before. */
static enum nd_status read_cuts(const struct nd_op_call *call, struct cut cuts[ND_MAX_RANK],
                                struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    struct nd_op_list starts, ends, axes, steps;
    enum nd_status status = nd_op_list(call, 1, "starts", &starts, err);
    if (status == ND_OK)
        status = nd_op_list(call, 2, "ends", &ends, err);
    if (status == ND_OK)
        status = nd_op_list(call, 3, "axes", &axes, err);
    if (status == ND_OK)
        status = nd_op_list(call, 4, NULL, &steps, err);
    if (status != ND_OK)
        return status;
    if (ends.n != starts.n || (axes.is_given && axes.n != starts.n) || (steps.is_given && steps.n != starts.n))
        return nd_op_misfit(call, err, "%zu starts and %zu ends", starts.n, ends.n);
    for (int axis = 0; axis < ND_MAX_RANK; axis++)
        cuts[axis] = (struct cut){.step = 1, .n = x->dims[axis]};
    for (size_t i = 0; i < starts.n; i++) {
        int axis = 0;
        int64_t step = steps.is_given ? steps.v[i] : 1;
        status = nd_op_axis(call, axes.is_given ? axes.v[i] : (int64_t)i, x->rank, &axis, err);
        if (status != ND_OK)
            return status;
        if (step == 0)
            return nd_op_misfit(call, err, "a step of 0");
        cuts[axis] = cut_axis(x->dims[axis], starts.v[i], ends.v[i], step);
    }
    return ND_OK;
}

enum nd_status nd_op_slice(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct cut cuts[ND_MAX_RANK] = {0};
    enum nd_status status = read_cuts(call, cuts, err);
    if (status != ND_OK)
        return status;
    struct nd_shape shape = {.rank = x->shape.rank};
    struct nd_walk walk = {0};
    ptrdiff_t strides[ND_MAX_RANK];
    nd_strides(&x->shape, strides);
    for (int axis = 0; axis < shape.rank; axis++) {
        shape.dims[axis] = cuts[axis].n;
        walk.at[0] += cuts[axis].n > 0 ? cuts[axis].start * strides[axis] : 0;
        nd_walk_axis(&walk, cuts[axis].n, cuts[axis].n > 1 ? cuts[axis].step * strides[axis] : 0, 0, 0);
    }
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    double *y = call->outputs[0]->x;
    for (bool more = status == ND_OK && nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++)
            *y++ = x->x[walk.at[0] + i * walk.step[0]];
    return status;
}

enum pad_mode { PAD_CONSTANT, PAD_REFLECT, PAD_TENSOR, PAD_WRAP };

/* The element that stands at i when an axis of n elements goes on; -1 for the constant. */
static int64_t padded_index(int64_t i, int64_t n, enum pad_mode mode)
{
    if (i >= 0 && i < n)
        return i;
    if (mode == PAD_CONSTANT || n == 0)
        return -1;
    if (mode == PAD_TENSOR)
        return i < 0 ? 0 : n - 1;
    if (mode == PAD_WRAP)
        return (i % n + n) % n;
    if (n == 1)
        return 0;
    int64_t period = 2 * (n - 1), at = (i % period + period) % period;
    return at < n ? at : period - at;
}

static enum nd_status pad_mode_of(const struct nd_op_call *call, enum pad_mode *out, struct nd_error *err)
{
    static const char *const names[] = {"constant", "reflect", "edge", "wrap"};
    char mode[16];
    nd_op_text(call, "mode", mode, sizeof mode);
    for (int i = 0; i < 4; i++)
        if (strcmp(mode, names[i]) == 0 || (i == 0 && mode[0] == '\0')) {
            *out = (enum pad_mode)i;
            return ND_OK;
        }
    return nd_op_unsupported(call, err, "mode '%s'", mode);
}

/* Pads of every axis, those at the beginning first. Larger ones than 2^30 are refused. */
static enum nd_status read_pads(const struct nd_op_call *call, int64_t pads[2 * ND_MAX_RANK],
                                struct nd_error *err)
{
    int rank = call->inputs[0]->shape.rank;
    struct nd_op_list given, axes;
    enum nd_status status = nd_op_list(call, 1, "pads", &given, err);
    if (status == ND_OK)
        status = nd_op_list(call, 3, NULL, &axes, err);
    if (status != ND_OK)
        return status;
    size_t n = axes.is_given ? axes.n : (size_t)rank;
    if (given.n != 2 * n)
        return nd_op_misfit(call, err, "%zu pads for %zu axes", given.n, n);
    memset(pads, 0, 2 * ND_MAX_RANK * sizeof pads[0]);
    for (size_t i = 0; i < n; i++) {
        int axis = 0;
        status = nd_op_axis(call, axes.is_given ? axes.v[i] : (int64_t)i, rank, &axis, err);
        if (status != ND_OK)
            return status;
        pads[axis] = given.v[i];
        pads[ND_MAX_RANK + axis] = given.v[n + i];
        if (llabs(clamp(given.v[i], -INT64_MAX, INT64_MAX)) > 1 << 30 ||
            llabs(clamp(given.v[n + i], -INT64_MAX, INT64_MAX)) > 1 << 30)
            return nd_op_misfit(call, err, "pads of %lld and %lld", (long long)given.v[i],
                                (long long)given.v[n + i]);
    }
    return ND_OK;
}

/* Fills y; index counts along its axes. */
static void pad(const struct nd_array *x, struct nd_array *y, const int64_t *begins, enum pad_mode mode,
                double constant)
{
    ptrdiff_t strides[ND_MAX_RANK];
    int64_t index[ND_MAX_RANK] = {0};
    int rank = y->shape.rank;
    nd_strides(&x->shape, strides);
    for (size_t i = 0; i < y->n; i++) {
        ptrdiff_t at = 0;
        bool is_outside = false;
        for (int axis = 0; axis < rank; axis++) {
            int64_t from = padded_index(index[axis] - begins[axis], x->shape.dims[axis], mode);
            is_outside = is_outside || from < 0;
            at += from * strides[axis];
        }
        y->x[i] = is_outside ? constant : x->x[at];
        for (int axis = rank - 1; axis >= 0 && ++index[axis] == y->shape.dims[axis]; axis--)
            index[axis] = 0;
    }
}

enum nd_status nd_op_pad(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *value = nd_op_in(call, 2);
    int64_t pads[2 * ND_MAX_RANK];
    enum pad_mode mode = PAD_CONSTANT;
    enum nd_status status = pad_mode_of(call, &mode, err);
    if (status == ND_OK)
        status = read_pads(call, pads, err);
    if (status != ND_OK)
        return status;
    if (value != NULL && value->n != 1)
        return nd_op_misfit(call, err, "%zu values to pad with", value->n);
    struct nd_shape shape = x->shape;
    for (int axis = 0; axis < shape.rank; axis++) {
        shape.dims[axis] += pads[axis] + pads[ND_MAX_RANK + axis];
        if (shape.dims[axis] < 0 || (shape.dims[axis] > 0 && x->shape.dims[axis] == 0 && mode != PAD_CONSTANT))
            return nd_op_misfit(call, err, "dimension %d cannot be padded", axis);
    }
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status == ND_OK)
        pad(x, call->outputs[0], pads, mode, value != NULL ? value->x[0] : nd_op_f(call, "value", 0));
    return status;
}
