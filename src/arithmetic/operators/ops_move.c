/* The same elements in other places: permuted, repeated, joined, cut. */
#include "arithmetic/operators/ops_shared.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* Writes y in C order; operand 0 of the walk is where the elements come from. */
static void copy_out(struct nd_walk *walk, const double *x, double *y)
{
    for (bool more = nd_walk_begin(walk); more; more = nd_walk_next(walk))
        for (ptrdiff_t i = 0; i < walk->n; i++)
            *y++ = x[walk->at[0] + i * walk->step[0]];
}

/* x as a tensor of `rank` dimensions (at most ND_MAX_RANK), its axes in the order of perm. */
static void permute(const double *x, int rank, const int64_t *dims, const int *perm, double *y)
{
    struct nd_shape shape = {.rank = rank};
    struct nd_walk walk = {0};
    ptrdiff_t strides[ND_MAX_RANK];
    memcpy(shape.dims, dims, (size_t)rank * sizeof *dims);
    nd_strides(&shape, strides);
    for (int i = 0; i < rank; i++)
        nd_walk_axis(&walk, dims[perm[i]], strides[perm[i]], 0, 0);
    copy_out(&walk, x, y);
}

enum nd_status nd_op_transpose(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list given;
    bool marks[ND_MAX_RANK];
    int perm[ND_MAX_RANK];
    enum nd_status status = nd_op_list(call, SIZE_MAX, "perm", &given, err);
    if (status == ND_OK)
        status = nd_op_axes(call, &given, x->shape.rank, marks, err);
    if (status != ND_OK)
        return status;
    if (given.n != 0 && given.n != (size_t)x->shape.rank)
        return nd_op_misfit(call, err, "perm has %zu entries for %d dimensions", given.n, x->shape.rank);
    struct nd_shape shape = {.rank = x->shape.rank};
    for (int axis = 0; axis < shape.rank; axis++) {
        int64_t from = given.n != 0 ? given.v[axis] : shape.rank - 1 - axis;
        perm[axis] = (int)(from < 0 ? from + shape.rank : from);
        shape.dims[axis] = x->shape.dims[perm[axis]];
    }
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status == ND_OK)
        permute(x->x, shape.rank, x->shape.dims, perm, call->outputs[0]->x);
    return status;
}

/* DepthToSpace and SpaceToDepth: N x C x H x W as six axes. */
static enum nd_status move_blocks(const struct nd_op_call *call, const struct nd_shape *shape,
                                  const int64_t *dims, const int *perm, struct nd_error *err)
{
    enum nd_status status = nd_op_make(call, 0, call->inputs[0]->dtype, shape, err);
    if (status == ND_OK)
        permute(call->inputs[0]->x, 6, dims, perm, call->outputs[0]->x);
    return status;
}

static enum nd_status block_size(const struct nd_op_call *call, int64_t *b, struct nd_error *err)
{
    *b = nd_op_i(call, "blocksize", 0);
    if (call->inputs[0]->shape.rank != 4 || *b < 1 || *b > 1 << 20)
        return nd_op_misfit(call, err, "blocks of %lld in %d dimensions", (long long)*b,
                            call->inputs[0]->shape.rank);
    return ND_OK;
}

enum nd_status nd_op_depth_to_space(const struct nd_op_call *call, struct nd_error *err)
{
    const int64_t *x = call->inputs[0]->shape.dims;
    char mode[8];
    int64_t b;
    enum nd_status status = block_size(call, &b, err);
    if (status != ND_OK)
        return status;
    nd_op_text(call, "mode", mode, sizeof mode);
    bool is_crd = strcmp(mode, "CRD") == 0;
    if (!is_crd && mode[0] != '\0' && strcmp(mode, "DCR") != 0)
        return nd_op_unsupported(call, err, "mode '%s'", mode);
    if (x[1] % (b * b) != 0)
        return nd_op_misfit(call, err, "%lld channels in blocks of %lld", (long long)x[1], (long long)b);
    struct nd_shape shape = {.rank = 4, .dims = {x[0], x[1] / (b * b), x[2] * b, x[3] * b}};
    const int64_t dcr[] = {x[0], b, b, x[1] / (b * b), x[2], x[3]};
    const int64_t crd[] = {x[0], x[1] / (b * b), b, b, x[2], x[3]};
    static const int dcr_perm[] = {0, 3, 4, 1, 5, 2}, crd_perm[] = {0, 1, 4, 2, 5, 3};
    return move_blocks(call, &shape, is_crd ? crd : dcr, is_crd ? crd_perm : dcr_perm, err);
}

enum nd_status nd_op_space_to_depth(const struct nd_op_call *call, struct nd_error *err)
{
    const int64_t *x = call->inputs[0]->shape.dims;
    int64_t b;
    enum nd_status status = block_size(call, &b, err);
    if (status != ND_OK)
        return status;
    if (x[2] % b != 0 || x[3] % b != 0)
        return nd_op_misfit(call, err, "%lld x %lld in blocks of %lld", (long long)x[2], (long long)x[3],
                            (long long)b);
    struct nd_shape shape = {.rank = 4, .dims = {x[0], x[1] * b * b, x[2] / b, x[3] / b}};
    const int64_t dims[] = {x[0], x[1], x[2] / b, b, x[3] / b, b};
    static const int perm[] = {0, 3, 5, 1, 2, 4};
    return move_blocks(call, &shape, dims, perm, err);
}

enum nd_status nd_op_expand(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list wanted;
    enum nd_status status = nd_op_list(call, 1, NULL, &wanted, err);
    if (status != ND_OK)
        return status;
    if (wanted.n > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%zu dimensions", wanted.n);
    struct nd_shape shape = {.rank = (int)wanted.n};
    memcpy(shape.dims, wanted.v, wanted.n * sizeof wanted.v[0]);
    status = nd_op_broadcast(call, &x->shape, &shape, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status != ND_OK)
        return status;
    struct nd_walk walk = {0};
    for (int axis = 0; axis < shape.rank; axis++)
        nd_walk_axis(&walk, shape.dims[axis], nd_broadcast_stride(x, &shape, axis), 0, 0);
    copy_out(&walk, x->x, call->outputs[0]->x);
    return ND_OK;
}

enum nd_status nd_op_tile(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list repeats;
    enum nd_status status = nd_op_list(call, 1, NULL, &repeats, err);
    if (status != ND_OK)
        return status;
    if (repeats.n != (size_t)x->shape.rank)
        return nd_op_misfit(call, err, "%zu repeats for %d dimensions", repeats.n, x->shape.rank);
    struct nd_shape shape = x->shape;
    struct nd_walk walk = {0};
    ptrdiff_t strides[ND_MAX_RANK];
    nd_strides(&x->shape, strides);
    for (int axis = 0; axis < shape.rank; axis++) {
        if (repeats.v[axis] < 0 || (shape.dims[axis] > 0 && repeats.v[axis] > INT64_MAX / shape.dims[axis]))
            return nd_op_misfit(call, err, "%lld repeats", (long long)repeats.v[axis]);
        shape.dims[axis] *= repeats.v[axis];
        nd_walk_axis(&walk, repeats.v[axis], 0, 0, 0);
        nd_walk_axis(&walk, x->shape.dims[axis], strides[axis], 0, 0);
    }
    status = nd_op_make(call, 0, x->dtype, &shape, err);
    if (status == ND_OK)
        copy_out(&walk, x->x, call->outputs[0]->x);
    return status;
}

/* The shape of all inputs joined along an axis. */
static enum nd_status join_shapes(const struct nd_op_call *call, int axis, struct nd_shape *out,
                                  struct nd_error *err)
{
    struct nd_shape joined = call->inputs[0]->shape;
    for (size_t i = 1; i < call->n_inputs; i++) {
        if (nd_op_in(call, i) == NULL)
            return nd_op_misfit(call, err, "input %zu is missing", i);
        struct nd_shape other = call->inputs[i]->shape;
        int64_t dim = other.rank == joined.rank ? other.dims[axis] : 0;
        other.dims[axis] = joined.dims[axis];
        if (!nd_shape_equal(&joined, &other) || dim > INT64_MAX - joined.dims[axis])
            return nd_op_misfit(call, err, "input %zu does not fit to the others", i);
        joined.dims[axis] += dim;
    }
    *out = joined;
    return ND_OK;
}

enum nd_status nd_op_concat(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *first = call->inputs[0];
    struct nd_shape shape;
    int axis = 0;
    enum nd_status status =
        nd_op_axis(call, nd_op_i(call, "axis", call->opset < 4 ? 1 : INT64_MAX), first->shape.rank, &axis, err);
    if (status == ND_OK)
        status = join_shapes(call, axis, &shape, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, first->dtype, &shape, err);
    if (status != ND_OK)
        return status;
    double *y = call->outputs[0]->x;
    size_t n_outer = nd_dims_product(&shape, 0, axis);
    for (size_t outer = 0; outer < n_outer; outer++)
        for (size_t i = 0; i < call->n_inputs; i++) {
            const struct nd_array *x = call->inputs[i];
            size_t n = nd_dims_product(&x->shape, axis, shape.rank);
            if (n > 0)
                memcpy(y, x->x + outer * n, n * sizeof *y);
            if (n > 0)
                y += n;
        }
    return ND_OK;
}

/* How long part i of n_parts is: as listed, or even, the last one shorter where that is allowed (num_outputs).
 */
static enum nd_status split_lengths(const struct nd_op_call *call, int64_t dim, int64_t *lengths,
                                    size_t n_parts, struct nd_error *err)
{
    const struct nd_array *input = nd_op_in(call, 1);
    const int64_t *listed = NULL;
    size_t n_listed = input != NULL ? input->n : nd_op_ints(call, "split", &listed);
    bool is_even = input == NULL && n_listed == 0;
    int64_t even = dim / (int64_t)n_parts + (dim % (int64_t)n_parts != 0 ? 1 : 0), left = dim;
    if (!is_even && n_listed != n_parts)
        return nd_op_misfit(call, err, "%zu parts and %zu outputs", n_listed, n_parts);
    if (is_even && call->opset < 18 && dim % (int64_t)n_parts != 0)
        return nd_op_misfit(call, err, "%lld elements in %zu parts", (long long)dim, n_parts);
    for (size_t i = 0; i < n_parts; i++) {
        int64_t length = is_even         ? (left < even ? left : even)
                         : input != NULL ? nd_op_whole(input, i)
                                         : listed[i];
        if (length < 0 || length > left)
            return nd_op_misfit(call, err, "part %zu has %lld elements", i, (long long)length);
        lengths[i] = length;
        left -= length;
    }
    return left == 0 ? ND_OK : nd_op_misfit(call, err, "%lld elements are in no part", (long long)left);
}

static enum nd_status copy_part(const struct nd_op_call *call, size_t part, int axis, int64_t from,
                                int64_t length, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_shape shape = x->shape;
    if (call->outputs[part] == NULL)
        return ND_OK;
    shape.dims[axis] = length;
    enum nd_status status = nd_op_make(call, part, x->dtype, &shape, err);
    if (status != ND_OK || call->outputs[part]->n == 0)
        return status;
    size_t n_outer = nd_dims_product(&shape, 0, axis), n_inner = nd_dims_product(&shape, axis + 1, shape.rank);
    size_t n = n_inner * (size_t)length, stride = n_inner * (size_t)x->shape.dims[axis];
    for (size_t outer = 0; outer < n_outer; outer++)
        memcpy(call->outputs[part]->x + outer * n, x->x + outer * stride + (size_t)from * n_inner,
               n * sizeof *x->x);
    return ND_OK;
}

enum nd_status nd_op_split(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    int64_t *lengths = nd_calloc(call->n_outputs, sizeof *lengths), from = 0;
    int axis = 0;
    enum nd_status status = lengths != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err);
    if (status == ND_OK)
        status = split_lengths(call, x->shape.dims[axis], lengths, call->n_outputs, err);
    for (size_t part = 0; part < call->n_outputs && status == ND_OK; part++) {
        status = copy_part(call, part, axis, from, lengths[part], err);
        from += lengths[part];
    }
    free(lengths);
    return status;
}

enum nd_status nd_op_trilu(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *k = nd_op_in(call, 1);
    int rank = x->shape.rank;
    if (rank < 2 || (k != NULL && k->n != 1))
        return nd_op_misfit(call, err, "a tensor of %d dimensions", rank);
    double diagonal = k != NULL ? k->x[0] : 0;
    bool is_upper = nd_op_i(call, "upper", 1) != 0;
    enum nd_status status = nd_array_copy(x, call->outputs[0], err);
    size_t n_rows = (size_t)x->shape.dims[rank - 2], n_columns = (size_t)x->shape.dims[rank - 1];
    for (size_t i = 0; i < x->n && status == ND_OK; i++) {
        double right = (double)(i % n_columns) - (double)(i / n_columns % n_rows); /* of the main diagonal */
        if (is_upper ? right < diagonal : right > diagonal)
            call->outputs[0]->x[i] = 0;
    }
    return status;
}
