/* Elements put into places that indices name. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <string.h>

typedef double combine(double old, double update);

static double take(double old, double update)
{
    (void)old;
    return update;
}

static double add(double old, double update)
{
    return old + update;
}

static double multiply(double old, double update)
{
    return old * update;
}

static double most(double old, double update)
{
    return isnan(old) || old > update ? old : update;
}

static double least(double old, double update)
{
    return isnan(old) || old < update ? old : update;
}

static combine *find_combine(const struct nd_op_call *call)
{
    static const struct {
        const char *name;
        combine *function;
    } known[] = {{"", take}, {"none", take}, {"add", add}, {"mul", multiply}, {"max", most}, {"min", least}};
    char name[16];
    nd_op_text(call, "reduction", name, sizeof name);
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strcmp(known[i].name, name) == 0)
            return known[i].function;
    return NULL;
}

static enum nd_status begin(const struct nd_op_call *call, combine **function, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    *function = find_combine(call);
    if (*function == NULL)
        return nd_op_unsupported(call, err, "this reduction");
    enum nd_status status = nd_op_make(call, 0, x->dtype, &x->shape, err);
    if (status == ND_OK && x->n > 0)
        memcpy(call->outputs[0]->x, x->x, x->n * sizeof *x->x);
    return status;
}

enum nd_status nd_op_scatter_elements(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *indices = call->inputs[1], *updates = call->inputs[2];
    ptrdiff_t x_strides[ND_MAX_RANK];
    struct nd_walk walk = {0};
    combine *function;
    int axis = 0;
    enum nd_status status = nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err);
    if (status != ND_OK)
        return status;
    if (indices->shape.rank != x->shape.rank || !nd_shape_equal(&indices->shape, &updates->shape))
        return nd_op_misfit(call, err, "indices that do not fit to the data or to the updates");
    status = nd_op_walk_indices(call, axis, &walk, x_strides, err);
    if (status != ND_OK)
        return status;
    status = begin(call, &function, err);
    for (bool more = status == ND_OK && nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n && status == ND_OK; i++) {
            size_t from = (size_t)(walk.at[0] + i * walk.step[0]);
            ptrdiff_t at = 0;
            status = nd_op_place(call, indices, from, x->shape.dims[axis], &at, err);
            if (status != ND_OK)
                break;
            double *y = &call->outputs[0]->x[walk.at[1] + i * walk.step[1] + at * x_strides[axis]];
            *y = function(*y, updates->x[from]);
        }
    return status == ND_OK ? nd_op_wrap(call, call->outputs[0], err) : status;
}

/* Updates: the indices without their last axis, then what is left of the data behind the axes that they name.
 */
static bool fits(const struct nd_shape *x, const struct nd_shape *indices, const struct nd_shape *updates,
                 int64_t n_index)
{
    struct nd_shape shape = {.rank = indices->rank - 1};
    if (n_index < 1 || n_index > x->rank || shape.rank + x->rank - (int)n_index > ND_MAX_RANK)
        return false;
    memcpy(shape.dims, indices->dims, (size_t)shape.rank * sizeof shape.dims[0]);
    for (int i = (int)n_index; i < x->rank; i++)
        shape.dims[shape.rank++] = x->dims[i];
    return nd_shape_equal(&shape, updates);
}

enum nd_status nd_op_scatter_nd(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *indices = call->inputs[1], *updates = call->inputs[2];
    int64_t n_index = indices->shape.rank > 0 ? indices->shape.dims[indices->shape.rank - 1] : 0;
    ptrdiff_t strides[ND_MAX_RANK];
    combine *function;
    if (!fits(&x->shape, &indices->shape, &updates->shape, n_index))
        return nd_op_misfit(call, err, "updates or indices that do not fit to the data");
    enum nd_status status = begin(call, &function, err);
    if (status != ND_OK || updates->n == 0)
        return status;
    nd_strides(&x->shape, strides);
    size_t n = nd_dims_product(&x->shape, (int)n_index, x->shape.rank);
    for (size_t tuple = 0; tuple < indices->n / (size_t)n_index && status == ND_OK; tuple++) {
        ptrdiff_t at = 0, one = 0;
        for (int64_t i = 0; i < n_index && status == ND_OK; i++) {
            status =
                nd_op_place(call, indices, tuple * (size_t)n_index + (size_t)i, x->shape.dims[i], &one, err);
            at += status == ND_OK ? one * strides[i] : 0;
        }
        for (size_t k = 0; k < n && status == ND_OK; k++) {
            double *y = &call->outputs[0]->x[(size_t)at + k];
            *y = function(*y, updates->x[tuple * n + k]);
        }
    }
    return status == ND_OK ? nd_op_wrap(call, call->outputs[0], err) : status;
}
