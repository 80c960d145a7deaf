/* The same elements in another shape, and what a shape is. */
#include "arithmetic/operators/ops_shared.h"

#include <string.h>

static enum nd_status give_shape(const struct nd_op_call *call, const struct nd_shape *shape,
                                 struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    char from[128], to[128];
    size_t n;
    enum nd_status status = nd_shape_n_elems(shape, &n, err);
    if (status == ND_OK && n != x->n)
        return nd_op_misfit(call, err, "%s is reshaped to %s", nd_shape_format(&x->shape, from, sizeof from),
                            nd_shape_format(shape, to, sizeof to));
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, shape, err);
    if (status == ND_OK && n > 0)
        memcpy(call->outputs[0]->x, x->x, n * sizeof *x->x);
    return status;
}

/* 0 takes the dimension of the input (unless allowzero), -1 what is left. */
enum nd_status nd_op_reshape(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list wanted;
    enum nd_status status = nd_op_list(call, 1, "shape", &wanted, err);
    if (status != ND_OK)
        return status;
    if (wanted.n > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%zu dimensions", wanted.n);
    bool allows_zero = nd_op_i(call, "allowzero", 0) != 0;
    struct nd_shape shape = {.rank = (int)wanted.n}, known;
    int open = -1;
    for (int axis = 0; axis < shape.rank; axis++) {
        int64_t dim = wanted.v[axis];
        if (dim == 0 && !allows_zero) {
            if (axis >= x->shape.rank)
                return nd_op_misfit(call, err, "dimension %d is taken from %d", axis, x->shape.rank);
            dim = x->shape.dims[axis];
        }
        if (dim == -1 && open >= 0)
            return nd_op_misfit(call, err, "two dimensions are -1");
        if (dim == -1)
            open = axis;
        shape.dims[axis] = dim;
    }
    if (open < 0)
        return give_shape(call, &shape, err);
    known = shape;
    known.dims[open] = 1;
    size_t n;
    status = nd_shape_n_elems(&known, &n, err);
    if (status == ND_OK && (n == 0 || x->n % n != 0))
        return nd_op_misfit(call, err, "%zu elements cannot be reshaped", x->n);
    if (status != ND_OK)
        return status;
    shape.dims[open] = (int64_t)(x->n / n);
    return give_shape(call, &shape, err);
}

enum nd_status nd_op_flatten(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    int64_t named = nd_op_i(call, "axis", 1);
    int axis = x->rank;
    enum nd_status status = named == x->rank ? ND_OK : nd_op_axis(call, named, x->rank, &axis, err);
    if (status != ND_OK)
        return status;
    struct nd_shape shape = {.rank = 2};
    shape.dims[0] = (int64_t)nd_dims_product(x, 0, axis);
    shape.dims[1] = (int64_t)nd_dims_product(x, axis, x->rank);
    return give_shape(call, &shape, err);
}

enum nd_status nd_op_squeeze(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    struct nd_op_list axes;
    bool marks[ND_MAX_RANK];
    enum nd_status status = nd_op_list(call, 1, "axes", &axes, err);
    if (status == ND_OK)
        status = nd_op_axes(call, &axes, x->rank, marks, err);
    if (status != ND_OK)
        return status;
    struct nd_shape shape = {0};
    for (int axis = 0; axis < x->rank; axis++) {
        bool goes = axes.is_given ? marks[axis] : x->dims[axis] == 1;
        if (goes && x->dims[axis] != 1)
            return nd_op_misfit(call, err, "dimension %d is %lld", axis, (long long)x->dims[axis]);
        if (!goes)
            shape.dims[shape.rank++] = x->dims[axis];
    }
    return give_shape(call, &shape, err);
}

enum nd_status nd_op_unsqueeze(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    struct nd_op_list axes;
    bool marks[ND_MAX_RANK];
    enum nd_status status = nd_op_list(call, 1, "axes", &axes, err);
    if (status != ND_OK)
        return status;
    if (axes.n > (size_t)(ND_MAX_RANK - x->rank))
        return nd_op_unsupported(call, err, "%zu dimensions", axes.n + (size_t)x->rank);
    struct nd_shape shape = {.rank = x->rank + (int)axes.n};
    status = nd_op_axes(call, &axes, shape.rank, marks, err);
    if (status != ND_OK)
        return status;
    for (int axis = 0, from = 0; axis < shape.rank; axis++)
        shape.dims[axis] = marks[axis] ? 1 : x->dims[from++];
    return give_shape(call, &shape, err);
}

enum nd_status nd_op_identity(const struct nd_op_call *call, struct nd_error *err)
{
    return nd_array_copy(call->inputs[0], call->outputs[0], err);
}

/* As at inference: everything is kept. */
enum nd_status nd_op_dropout(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *training = nd_op_in(call, 2);
    if (training != NULL && training->n > 0 && training->x[0] != 0)
        return nd_op_unsupported(call, err, "training");
    enum nd_status status = nd_array_copy(x, call->outputs[0], err);
    if (status == ND_OK && nd_op_out(call, 1) != NULL)
        status = nd_op_make(call, 1, ND_DTYPE_BOOL, &x->shape, err);
    for (size_t i = 0; status == ND_OK && nd_op_out(call, 1) != NULL && i < x->n; i++)
        call->outputs[1]->x[i] = 1;
    return status;
}

/* An end of the range of axes: counted from the end if negative, and clipped. */
static int clip_axis(int64_t axis, int rank)
{
    if (axis < 0)
        axis += rank;
    return axis < 0 ? 0 : axis > rank ? rank : (int)axis;
}

enum nd_status nd_op_shape(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    int start = clip_axis(nd_op_i(call, "start", 0), x->rank);
    int end = clip_axis(nd_op_i(call, "end", x->rank), x->rank);
    struct nd_shape shape = {.rank = 1, .dims = {end > start ? end - start : 0}};
    enum nd_status status = nd_op_make(call, 0, ND_DTYPE_I64, &shape, err);
    for (int axis = start; axis < end && status == ND_OK; axis++)
        call->outputs[0]->x[axis - start] = (double)x->dims[axis];
    return status;
}

enum nd_status nd_op_size(const struct nd_op_call *call, struct nd_error *err)
{
    struct nd_shape scalar = {0};
    enum nd_status status = nd_op_make(call, 0, ND_DTYPE_I64, &scalar, err);
    if (status == ND_OK)
        call->outputs[0]->x[0] = (double)call->inputs[0]->n;
    return status;
}
