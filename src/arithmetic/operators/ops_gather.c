/* Elements chosen by indices, and elements put into places that indices name. */
#include <math.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"

/* ---- chosen by indices ---- */

/* Element i of the indices as a place on an axis of that size: counted from the end if negative. */
static enum nd_status find_place(const struct nd_op_call *call, const struct nd_array *indices, size_t i,
                                 int64_t dim, ptrdiff_t *out, struct nd_error *err)
{
    int64_t index = nd_op_whole(indices, i);
    if (index < -dim || index >= dim)
        return nd_op_misfit(call, err, "index %lld of %lld", (long long)index, (long long)dim);
    *out = (ptrdiff_t)(index < 0 ? index + dim : index);
    return ND_OK;
}

static void copy_run(double *to, const double *from, size_t n)
{
    if (n > 0)
        memcpy(to, from, n * sizeof *to);
}

static enum nd_status nd_op_gather(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *indices = call->inputs[1];
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err));
    if (x->shape.rank - 1 + indices->shape.rank > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%d dimensions", x->shape.rank - 1 + indices->shape.rank);
    struct nd_shape shape = {.rank = axis};
    memcpy(shape.dims, x->shape.dims, (size_t)axis * sizeof shape.dims[0]);
    for (int i = 0; i < indices->shape.rank; i++)
        shape.dims[shape.rank++] = indices->shape.dims[i];
    for (int i = axis + 1; i < x->shape.rank; i++)
        shape.dims[shape.rank++] = x->shape.dims[i];
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    size_t n_outer = nd_dims_product(&x->shape, 0, axis),
           n = nd_dims_product(&x->shape, axis + 1, x->shape.rank);
    size_t dim = (size_t)x->shape.dims[axis];
    for (size_t i = 0; i < indices->n; i++) {
        ptrdiff_t at = 0;
        ND_TRY(find_place(call, indices, i, x->shape.dims[axis], &at, err));
        for (size_t outer = 0; outer < n_outer && n > 0; outer++)
            copy_run(call->outputs[0]->x + (outer * indices->n + i) * n, x->x + (outer * dim + (size_t)at) * n,
                     n);
    }
    return ND_OK;
}

/* GatherElements, ScatterElements: a walk over the indices (inputs[1]), at[0], and beside it over the data
 * (inputs[0]), at[1], where the axis itself is not counted. The ranks are equal. ND_E_EXACT_SHAPE: indices that
 * are larger than the data. */
static enum nd_status walk_indices(const struct nd_op_call *call, int axis, struct nd_walk *walk,
                                   ptrdiff_t data_strides[ND_MAX_RANK], struct nd_error *err)
{
    const struct nd_shape *data = &call->inputs[0]->shape, *indices = &call->inputs[1]->shape;
    ptrdiff_t strides[ND_MAX_RANK];
    nd_strides(data, data_strides);
    nd_strides(indices, strides);
    for (int i = 0; i < data->rank; i++) {
        if (i != axis && indices->dims[i] > data->dims[i])
            return nd_op_misfit(call, err, "indices that are larger than the data");
        nd_walk_axis(walk, indices->dims[i], strides[i], i == axis ? 0 : data_strides[i], 0);
    }
    return ND_OK;
}

static enum nd_status nd_op_gather_elements(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *indices = call->inputs[1];
    ptrdiff_t x_strides[ND_MAX_RANK];
    struct nd_walk walk = {0};
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err));
    if (indices->shape.rank != x->shape.rank)
        return nd_op_misfit(call, err, "indices of %d dimensions", indices->shape.rank);
    ND_TRY(walk_indices(call, axis, &walk, x_strides, err));
    ND_TRY(nd_op_make(call, 0, x->dtype, &indices->shape, err));
    for (bool more = nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n; i++) {
            size_t to = (size_t)(walk.at[0] + i * walk.step[0]);
            ptrdiff_t at = 0;
            ND_TRY(find_place(call, indices, to, x->shape.dims[axis], &at, err));
            call->outputs[0]->x[to] = x->x[walk.at[1] + i * walk.step[1] + at * x_strides[axis]];
        }
    return ND_OK;
}

/* The output of GatherND: the indices without their last axis, then what is left of the data after `depth`
 * axes. */
static enum nd_status gather_nd_shape(const struct nd_op_call *call, int batch, int64_t n_index,
                                      struct nd_shape *out, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape, *indices = &call->inputs[1]->shape;
    struct nd_shape shape = {.rank = indices->rank - 1};
    int rest = x->rank - batch - (int)n_index;
    for (int i = 0; i < batch; i++)
        if (indices->dims[i] != x->dims[i])
            return nd_op_misfit(call, err, "batches of %lld and %lld", (long long)x->dims[i],
                                (long long)indices->dims[i]);
    if (shape.rank + rest > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%d dimensions", shape.rank + rest);
    memcpy(shape.dims, indices->dims, (size_t)shape.rank * sizeof shape.dims[0]);
    for (int i = x->rank - rest; i < x->rank; i++)
        shape.dims[shape.rank++] = x->dims[i];
    *out = shape;
    return ND_OK;
}

static enum nd_status nd_op_gather_nd(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *indices = call->inputs[1];
    int64_t batch = nd_op_i(call, "batch_dims", 0);
    int64_t n_index = indices->shape.rank > 0 ? indices->shape.dims[indices->shape.rank - 1] : 0;
    struct nd_shape shape;
    ptrdiff_t strides[ND_MAX_RANK];
    if (batch < 0 || n_index < 1 || batch >= indices->shape.rank || n_index > x->shape.rank - batch)
        return nd_op_misfit(call, err, "indices of length %lld into %d dimensions", (long long)n_index,
                            x->shape.rank);
    enum nd_status status = gather_nd_shape(call, (int)batch, n_index, &shape, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status != ND_OK || call->outputs[0]->n == 0)
        return status;
    nd_strides(&x->shape, strides);
    size_t n = nd_dims_product(&x->shape, (int)(batch + n_index), x->shape.rank),
           n_tuples = indices->n / (size_t)n_index;
    size_t per_batch = n_tuples / nd_dims_product(&x->shape, 0, (int)batch);
    size_t batch_size = nd_dims_product(&x->shape, (int)batch, x->shape.rank);
    for (size_t tuple = 0; tuple < n_tuples && status == ND_OK; tuple++) {
        ptrdiff_t at = (ptrdiff_t)(tuple / per_batch * batch_size), one = 0;
        for (int64_t i = 0; i < n_index && status == ND_OK; i++) {
            status = find_place(call, indices, tuple * (size_t)n_index + (size_t)i, x->shape.dims[batch + i],
                                &one, err);
            at += status == ND_OK ? one * strides[batch + i] : 0;
        }
        if (status == ND_OK)
            copy_run(call->outputs[0]->x + tuple * n, x->x + at, n);
    }
    return status;
}

/* An index out of range has no hot element. */
static enum nd_status nd_op_one_hot(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *indices = call->inputs[0], *depth = call->inputs[1], *values = call->inputs[2];
    struct nd_shape shape = {.rank = indices->shape.rank + 1};
    int axis = 0;
    if (depth->n != 1 || values->n != 2)
        return nd_op_misfit(call, err, "%zu depths and %zu values", depth->n, values->n);
    if (shape.rank > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%d dimensions", shape.rank);
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", -1), shape.rank, &axis, err));
    for (int i = 0, from = 0; i < shape.rank; i++)
        shape.dims[i] = i == axis ? nd_op_whole(depth, 0) : indices->shape.dims[from++];
    ND_TRY(nd_op_make(call, 0, values->dtype, &shape, err));
    if (call->outputs[0]->n == 0)
        return ND_OK;
    struct nd_array *y = call->outputs[0];
    size_t n_inner = nd_dims_product(&shape, axis + 1, shape.rank), dim = (size_t)shape.dims[axis];
    for (size_t i = 0; i < y->n; i++)
        y->x[i] = values->x[0];
    for (size_t i = 0; i < indices->n; i++) {
        int64_t index = nd_op_whole(indices, i);
        if (index < -shape.dims[axis] || index >= shape.dims[axis])
            continue;
        size_t hot = (size_t)(index < 0 ? index + shape.dims[axis] : index);
        y->x[(i / n_inner * dim + hot) * n_inner + i % n_inner] = values->x[1];
    }
    return ND_OK;
}

/* ---- put into places ---- */

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
    ND_TRY(nd_op_make(call, 0, x->dtype, &x->shape, err));
    if (x->n > 0)
        memcpy(call->outputs[0]->x, x->x, x->n * sizeof *x->x);
    return ND_OK;
}

static enum nd_status nd_op_scatter_elements(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *indices = call->inputs[1], *updates = call->inputs[2];
    ptrdiff_t x_strides[ND_MAX_RANK];
    struct nd_walk walk = {0};
    combine *function;
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err));
    if (indices->shape.rank != x->shape.rank || !nd_shape_equal(&indices->shape, &updates->shape))
        return nd_op_misfit(call, err, "indices that do not fit to the data or to the updates");
    ND_TRY(walk_indices(call, axis, &walk, x_strides, err));
    enum nd_status status = begin(call, &function, err);
    for (bool more = status == ND_OK && nd_walk_begin(&walk); more; more = nd_walk_next(&walk))
        for (ptrdiff_t i = 0; i < walk.n && status == ND_OK; i++) {
            size_t from = (size_t)(walk.at[0] + i * walk.step[0]);
            ptrdiff_t at = 0;
            status = find_place(call, indices, from, x->shape.dims[axis], &at, err);
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

static enum nd_status nd_op_scatter_nd(const struct nd_op_call *call, struct nd_error *err)
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
                find_place(call, indices, tuple * (size_t)n_index + (size_t)i, x->shape.dims[i], &one, err);
            at += status == ND_OK ? one * strides[i] : 0;
        }
        for (size_t k = 0; k < n && status == ND_OK; k++) {
            double *y = &call->outputs[0]->x[(size_t)at + k];
            *y = function(*y, updates->x[tuple * n + k]);
        }
    }
    return status == ND_OK ? nd_op_wrap(call, call->outputs[0], err) : status;
}

/* ---- the operators ---- */

const struct nd_op nd_ops_gathers[] = {
    {"", "Gather", 2, nd_op_gather},
    {"", "GatherElements", 2, nd_op_gather_elements},
    {"", "GatherND", 2, nd_op_gather_nd},
    {"", "OneHot", 3, nd_op_one_hot},
    {"", "Scatter", 3, nd_op_scatter_elements},
    {"", "ScatterElements", 3, nd_op_scatter_elements},
    {"", "ScatterND", 3, nd_op_scatter_nd},
    {NULL, NULL, 0, NULL},
};
