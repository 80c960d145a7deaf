/* Shapes of what joins, drops, adds and reorders axes. */
#include <math.h>
#include <string.h>

#include "model/graph/infer_rules.h"

static struct nd_shape reshape(const struct nd_infer_view *view)
{
    const struct nd_tensor_info *in = nd_infer_arg(view, 0);
    struct nd_shape out = {0};
    out.rank = nd_infer_integers(view, 1, out.dims, ND_MAX_RANK);
    bool keeps_zero = nd_onnx_attribute_i(view->proto, "allowzero", 0) == 0;
    double known = 1;
    int open = -1;
    for (int i = 0; i < out.rank; i++) {
        if (out.dims[i] == 0 && keeps_zero)
            out.dims[i] = i < in->shape.rank ? in->shape.dims[i] : -2;
        if (out.dims[i] < -1 || (out.dims[i] == -1 && open >= 0))
            return nd_infer_unknown.shape;
        if (out.dims[i] == -1)
            open = i;
        else
            known *= (double)out.dims[i];
    }
    if (out.rank < 0 || open < 0)
        return out.rank < 0 ? nd_infer_unknown.shape : out;
    double n = nd_infer_elems(in);
    if (!(known > 0) || !(n >= 0) || fmod(n, known) != 0 || n > 1e15)
        return nd_infer_unknown.shape;
    out.dims[open] = (int64_t)(n / known);
    return out;
}

static struct nd_shape transpose(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    struct nd_shape out = *in;
    for (int i = 0; i < in->rank; i++) {
        int64_t from = nd_infer_list_at(view->proto, "perm", (size_t)i, in->rank - 1 - i);
        if (from < 0 || from >= in->rank)
            return nd_infer_unknown.shape;
        out.dims[i] = in->dims[from];
    }
    return out;
}

static struct nd_shape flatten(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    int64_t axis = nd_onnx_attribute_i(view->proto, "axis", 1);
    double sides[2] = {1, 1};
    if (in->rank < 0)
        return nd_infer_unknown.shape;
    axis += axis < 0 ? in->rank : 0;
    for (int i = 0; i < in->rank; i++)
        sides[i >= axis] *= (double)in->dims[i];
    if (sides[0] > 1e15 || sides[1] > 1e15)
        return nd_infer_unknown.shape;
    return (struct nd_shape){2, {(int64_t)sides[0], (int64_t)sides[1]}};
}

static struct nd_shape concat(const struct nd_infer_view *view)
{
    struct nd_shape out = nd_infer_arg(view, 0)->shape;
    int axis = nd_infer_axis(nd_onnx_attribute_i(view->proto, "axis", 0), out.rank);
    if (axis < 0)
        return nd_infer_unknown.shape;
    for (size_t i = 1; i < view->proto->n_input; i++) {
        const struct nd_shape *next = &nd_infer_arg(view, i)->shape;
        if (next->rank != out.rank || next->dims[axis] > INT32_MAX || out.dims[axis] > INT32_MAX)
            return nd_infer_unknown.shape;
        out.dims[axis] += next->dims[axis];
    }
    return out;
}

/* The axes of a reduction, Squeeze or Unsqueeze over `rank` dimensions as bits; -1 when they are not known. */
static int axes_of(const struct nd_infer_view *view, int rank, bool *has_axes)
{
    int64_t axes[ND_MAX_RANK];
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(view->proto, "axes");
    int n = 0, bits = 0;
    if (attribute != NULL && attribute->n_ints <= ND_MAX_RANK) {
        n = (int)attribute->n_ints;
        memcpy(axes, attribute->ints, attribute->n_ints * sizeof *axes);
    } else if (view->proto->n_input > 1 && view->proto->input[1][0] != '\0') {
        n = nd_infer_integers(view, 1, axes, ND_MAX_RANK);
    }
    *has_axes = n > 0;
    for (int i = 0; i < n; i++) {
        int64_t axis = axes[i] + (axes[i] < 0 ? rank : 0);
        if (axis < 0 || axis >= rank)
            return -1;
        bits |= 1 << axis;
    }
    return n < 0 ? -1 : bits;
}

static struct nd_shape reduction(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    struct nd_shape out = {0};
    bool has_axes;
    int axes = axes_of(view, in->rank, &has_axes);
    if (in->rank < 0 || axes < 0)
        return nd_infer_unknown.shape;
    bool is_noop = nd_onnx_attribute_i(view->proto, "noop_with_empty_axes", 0) != 0;
    bool keeps = nd_onnx_attribute_i(view->proto, "keepdims", 1) != 0;
    for (int i = 0; i < in->rank; i++) {
        bool is_reduced = has_axes ? (axes >> i & 1) != 0 : !is_noop;
        if (!is_reduced)
            out.dims[out.rank++] = in->dims[i];
        else if (keeps)
            out.dims[out.rank++] = 1;
    }
    return out;
}

static struct nd_shape squeeze(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    struct nd_shape out = {0};
    bool has_axes;
    int axes = axes_of(view, in->rank, &has_axes);
    if (in->rank < 0 || axes < 0)
        return nd_infer_unknown.shape;
    for (int i = 0; i < in->rank; i++)
        if (has_axes ? (axes >> i & 1) == 0 : in->dims[i] != 1)
            out.dims[out.rank++] = in->dims[i];
    return out;
}

static struct nd_shape unsqueeze(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape;
    int64_t axes[ND_MAX_RANK];
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(view->proto, "axes");
    int n = attribute != NULL ? (int)attribute->n_ints : nd_infer_integers(view, 1, axes, ND_MAX_RANK);
    bool has_axes;
    if (in->rank < 0 || n < 1 || in->rank + n > ND_MAX_RANK)
        return nd_infer_unknown.shape;
    struct nd_shape out = {.rank = in->rank + n};
    int bits = axes_of(view, out.rank, &has_axes);
    if (bits < 0)
        return nd_infer_unknown.shape;
    for (int i = 0, from = 0; i < out.rank; i++) {
        bool is_new = (bits >> i & 1) != 0 || from == in->rank;
        out.dims[i] = is_new ? 1 : in->dims[from++];
    }
    return out;
}

static struct nd_shape gather(const struct nd_infer_view *view)
{
    const struct nd_shape *in = &nd_infer_arg(view, 0)->shape, *indices = &nd_infer_arg(view, 1)->shape;
    int axis = nd_infer_axis(nd_onnx_attribute_i(view->proto, "axis", 0), in->rank);
    struct nd_shape out = {0};
    if (indices->rank < 0 || axis < 0 || in->rank - 1 + indices->rank > ND_MAX_RANK)
        return nd_infer_unknown.shape;
    for (int i = 0; i < in->rank; i++) {
        if (i != axis)
            out.dims[out.rank++] = in->dims[i];
        for (int k = 0; i == axis && k < indices->rank; k++)
            out.dims[out.rank++] = indices->dims[k];
    }
    return out;
}

const struct nd_infer_rule nd_infer_axes_rules[] = {
    {"Concat", concat},       {"Flatten", flatten},     {"Gather", gather},
    {"Reduce*", reduction},   {"Reshape", reshape},     {"Squeeze", squeeze},
    {"Transpose", transpose}, {"Unsqueeze", unsqueeze}, {NULL, NULL},
};
