/* The same elements in other places or another shape: permuted, repeated, joined, cut, padded, reshaped. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"

/* ---- permuted, repeated, joined ---- */

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

static enum nd_status nd_op_transpose(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list given;
    bool marks[ND_MAX_RANK];
    int perm[ND_MAX_RANK];
    ND_TRY(nd_op_list(call, SIZE_MAX, "perm", &given, err));
    ND_TRY(nd_op_axes(call, &given, x->shape.rank, marks, err));
    if (given.n != 0 && given.n != (size_t)x->shape.rank)
        return nd_op_misfit(call, err, "perm has %zu entries for %d dimensions", given.n, x->shape.rank);
    struct nd_shape shape = {.rank = x->shape.rank};
    for (int axis = 0; axis < shape.rank; axis++) {
        int64_t from = given.n != 0 ? given.v[axis] : shape.rank - 1 - axis;
        perm[axis] = (int)(from < 0 ? from + shape.rank : from);
        shape.dims[axis] = x->shape.dims[perm[axis]];
    }
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    permute(x->x, shape.rank, x->shape.dims, perm, call->outputs[0]->x);
    return ND_OK;
}

/* DepthToSpace and SpaceToDepth: N x C x H x W as six axes. */
static enum nd_status move_blocks(const struct nd_op_call *call, const struct nd_shape *shape,
                                  const int64_t *dims, const int *perm, struct nd_error *err)
{
    ND_TRY(nd_op_make(call, 0, call->inputs[0]->dtype, shape, err));
    permute(call->inputs[0]->x, 6, dims, perm, call->outputs[0]->x);
    return ND_OK;
}

static enum nd_status block_size(const struct nd_op_call *call, int64_t *b, struct nd_error *err)
{
    *b = nd_op_i(call, "blocksize", 0);
    if (call->inputs[0]->shape.rank != 4 || *b < 1 || *b > 1 << 20)
        return nd_op_misfit(call, err, "blocks of %lld in %d dimensions", (long long)*b,
                            call->inputs[0]->shape.rank);
    return ND_OK;
}

static enum nd_status nd_op_depth_to_space(const struct nd_op_call *call, struct nd_error *err)
{
    const int64_t *x = call->inputs[0]->shape.dims;
    char mode[8];
    int64_t b;
    ND_TRY(block_size(call, &b, err));
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

static enum nd_status nd_op_space_to_depth(const struct nd_op_call *call, struct nd_error *err)
{
    const int64_t *x = call->inputs[0]->shape.dims;
    int64_t b;
    ND_TRY(block_size(call, &b, err));
    if (x[2] % b != 0 || x[3] % b != 0)
        return nd_op_misfit(call, err, "%lld x %lld in blocks of %lld", (long long)x[2], (long long)x[3],
                            (long long)b);
    struct nd_shape shape = {.rank = 4, .dims = {x[0], x[1] * b * b, x[2] / b, x[3] / b}};
    const int64_t dims[] = {x[0], x[1], x[2] / b, b, x[3] / b, b};
    static const int perm[] = {0, 3, 5, 1, 2, 4};
    return move_blocks(call, &shape, dims, perm, err);
}

static enum nd_status nd_op_expand(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list wanted;
    ND_TRY(nd_op_list(call, 1, NULL, &wanted, err));
    if (wanted.n > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%zu dimensions", wanted.n);
    struct nd_shape shape = {.rank = (int)wanted.n};
    memcpy(shape.dims, wanted.v, wanted.n * sizeof wanted.v[0]);
    ND_TRY(nd_op_broadcast(call, &x->shape, &shape, err));
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    struct nd_walk walk = {0};
    for (int axis = 0; axis < shape.rank; axis++)
        nd_walk_axis(&walk, shape.dims[axis], nd_broadcast_stride(x, &shape, axis), 0, 0);
    copy_out(&walk, x->x, call->outputs[0]->x);
    return ND_OK;
}

static enum nd_status nd_op_tile(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list repeats;
    ND_TRY(nd_op_list(call, 1, NULL, &repeats, err));
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
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    copy_out(&walk, x->x, call->outputs[0]->x);
    return ND_OK;
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

static enum nd_status nd_op_concat(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *first = call->inputs[0];
    struct nd_shape shape;
    int axis = 0;
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", call->opset < 4 ? 1 : INT64_MAX), first->shape.rank, &axis,
                      err));
    ND_TRY(join_shapes(call, axis, &shape, err));
    ND_TRY(nd_op_make(call, 0, first->dtype, &shape, err));
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
    ND_TRY(nd_op_make(call, part, x->dtype, &shape, err));
    if (call->outputs[part]->n == 0)
        return ND_OK;
    size_t n_outer = nd_dims_product(&shape, 0, axis), n_inner = nd_dims_product(&shape, axis + 1, shape.rank);
    size_t n = n_inner * (size_t)length, stride = n_inner * (size_t)x->shape.dims[axis];
    for (size_t outer = 0; outer < n_outer; outer++)
        memcpy(call->outputs[part]->x + outer * n, x->x + outer * stride + (size_t)from * n_inner,
               n * sizeof *x->x);
    return ND_OK;
}

static enum nd_status nd_op_split(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    ND_FREED int64_t *lengths = nd_calloc(call->n_outputs, sizeof *lengths);
    int64_t from = 0;
    int axis = 0;
    ND_TRY_MEMORY(lengths != NULL, err);
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", 0), x->shape.rank, &axis, err));
    ND_TRY(split_lengths(call, x->shape.dims[axis], lengths, call->n_outputs, err));
    for (size_t part = 0; part < call->n_outputs; part++) {
        ND_TRY(copy_part(call, part, axis, from, lengths[part], err));
        from += lengths[part];
    }
    return ND_OK;
}

static enum nd_status nd_op_trilu(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *k = nd_op_in(call, 1);
    int rank = x->shape.rank;
    if (rank < 2 || (k != NULL && k->n != 1))
        return nd_op_misfit(call, err, "a tensor of %d dimensions", rank);
    double diagonal = k != NULL ? k->x[0] : 0;
    bool is_upper = nd_op_i(call, "upper", 1) != 0;
    ND_TRY(nd_array_copy(x, call->outputs[0], err));
    size_t n_rows = (size_t)x->shape.dims[rank - 2], n_columns = (size_t)x->shape.dims[rank - 1];
    for (size_t i = 0; i < x->n; i++) {
        double right = (double)(i % n_columns) - (double)(i / n_columns % n_rows); /* of the main diagonal */
        if (is_upper ? right < diagonal : right > diagonal)
            call->outputs[0]->x[i] = 0;
    }
    return ND_OK;
}

/* ---- Slice and Pad ---- */

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
    ND_TRY(nd_op_list(call, 1, "starts", &starts, err));
    ND_TRY(nd_op_list(call, 2, "ends", &ends, err));
    ND_TRY(nd_op_list(call, 3, "axes", &axes, err));
    ND_TRY(nd_op_list(call, 4, NULL, &steps, err));
    if (ends.n != starts.n || (axes.is_given && axes.n != starts.n) || (steps.is_given && steps.n != starts.n))
        return nd_op_misfit(call, err, "%zu starts and %zu ends", starts.n, ends.n);
    for (int axis = 0; axis < ND_MAX_RANK; axis++)
        cuts[axis] = (struct cut){.step = 1, .n = x->dims[axis]};
    for (size_t i = 0; i < starts.n; i++) {
        int axis = 0;
        int64_t step = steps.is_given ? steps.v[i] : 1;
        ND_TRY(nd_op_axis(call, axes.is_given ? axes.v[i] : (int64_t)i, x->rank, &axis, err));
        if (step == 0)
            return nd_op_misfit(call, err, "a step of 0");
        cuts[axis] = cut_axis(x->dims[axis], starts.v[i], ends.v[i], step);
    }
    return ND_OK;
}

static enum nd_status nd_op_slice(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct cut cuts[ND_MAX_RANK] = {0};
    ND_TRY(read_cuts(call, cuts, err));
    struct nd_shape shape = {.rank = x->shape.rank};
    struct nd_walk walk = {0};
    ptrdiff_t strides[ND_MAX_RANK];
    nd_strides(&x->shape, strides);
    for (int axis = 0; axis < shape.rank; axis++) {
        shape.dims[axis] = cuts[axis].n;
        walk.at[0] += cuts[axis].n > 0 ? cuts[axis].start * strides[axis] : 0;
        nd_walk_axis(&walk, cuts[axis].n, cuts[axis].n > 1 ? cuts[axis].step * strides[axis] : 0, 0, 0);
    }
    enum nd_status status = nd_op_make(call, 0, x->dtype, &shape, err);
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
    ND_TRY(nd_op_list(call, 1, "pads", &given, err));
    ND_TRY(nd_op_list(call, 3, NULL, &axes, err));
    size_t n = axes.is_given ? axes.n : (size_t)rank;
    if (given.n != 2 * n)
        return nd_op_misfit(call, err, "%zu pads for %zu axes", given.n, n);
    memset(pads, 0, 2 * ND_MAX_RANK * sizeof pads[0]);
    for (size_t i = 0; i < n; i++) {
        int axis = 0;
        ND_TRY(nd_op_axis(call, axes.is_given ? axes.v[i] : (int64_t)i, rank, &axis, err));
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

static enum nd_status nd_op_pad(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *value = nd_op_in(call, 2);
    int64_t pads[2 * ND_MAX_RANK];
    enum pad_mode mode = PAD_CONSTANT;
    ND_TRY(pad_mode_of(call, &mode, err));
    ND_TRY(read_pads(call, pads, err));
    if (value != NULL && value->n != 1)
        return nd_op_misfit(call, err, "%zu values to pad with", value->n);
    struct nd_shape shape = x->shape;
    for (int axis = 0; axis < shape.rank; axis++) {
        shape.dims[axis] += pads[axis] + pads[ND_MAX_RANK + axis];
        if (shape.dims[axis] < 0 || (shape.dims[axis] > 0 && x->shape.dims[axis] == 0 && mode != PAD_CONSTANT))
            return nd_op_misfit(call, err, "dimension %d cannot be padded", axis);
    }
    ND_TRY(nd_op_make(call, 0, x->dtype, &shape, err));
    pad(x, call->outputs[0], pads, mode, value != NULL ? value->x[0] : nd_op_f(call, "value", 0));
    return ND_OK;
}

/* ---- shapes ---- */

static enum nd_status give_shape(const struct nd_op_call *call, const struct nd_shape *shape,
                                 struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    char from[128], to[128];
    size_t n;
    ND_TRY(nd_shape_n_elems(shape, &n, err));
    if (n != x->n)
        return nd_op_misfit(call, err, "%s is reshaped to %s", nd_shape_format(&x->shape, from, sizeof from),
                            nd_shape_format(shape, to, sizeof to));
    ND_TRY(nd_op_make(call, 0, x->dtype, shape, err));
    if (n > 0)
        memcpy(call->outputs[0]->x, x->x, n * sizeof *x->x);
    return ND_OK;
}

/* 0 takes the dimension of the input (unless allowzero), -1 what is left. */
static enum nd_status nd_op_reshape(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct nd_op_list wanted;
    ND_TRY(nd_op_list(call, 1, "shape", &wanted, err));
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
    ND_TRY(nd_shape_n_elems(&known, &n, err));
    if (n == 0 || x->n % n != 0)
        return nd_op_misfit(call, err, "%zu elements cannot be reshaped", x->n);
    shape.dims[open] = (int64_t)(x->n / n);
    return give_shape(call, &shape, err);
}

static enum nd_status nd_op_flatten(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    int64_t named = nd_op_i(call, "axis", 1);
    int axis = x->rank;
    ND_TRY(named == x->rank ? ND_OK : nd_op_axis(call, named, x->rank, &axis, err));
    struct nd_shape shape = {.rank = 2};
    shape.dims[0] = (int64_t)nd_dims_product(x, 0, axis);
    shape.dims[1] = (int64_t)nd_dims_product(x, axis, x->rank);
    return give_shape(call, &shape, err);
}

static enum nd_status nd_op_squeeze(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    struct nd_op_list axes;
    bool marks[ND_MAX_RANK];
    ND_TRY(nd_op_list(call, 1, "axes", &axes, err));
    ND_TRY(nd_op_axes(call, &axes, x->rank, marks, err));
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

static enum nd_status nd_op_unsqueeze(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    struct nd_op_list axes;
    bool marks[ND_MAX_RANK];
    ND_TRY(nd_op_list(call, 1, "axes", &axes, err));
    if (axes.n > (size_t)(ND_MAX_RANK - x->rank))
        return nd_op_unsupported(call, err, "%zu dimensions", axes.n + (size_t)x->rank);
    struct nd_shape shape = {.rank = x->rank + (int)axes.n};
    ND_TRY(nd_op_axes(call, &axes, shape.rank, marks, err));
    for (int axis = 0, from = 0; axis < shape.rank; axis++)
        shape.dims[axis] = marks[axis] ? 1 : x->dims[from++];
    return give_shape(call, &shape, err);
}

static enum nd_status nd_op_identity(const struct nd_op_call *call, struct nd_error *err)
{
    return nd_array_copy(call->inputs[0], call->outputs[0], err);
}

/* As at inference: everything is kept. */
static enum nd_status nd_op_dropout(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *training = nd_op_in(call, 2);
    if (training != NULL && training->n > 0 && training->x[0] != 0)
        return nd_op_unsupported(call, err, "training");
    ND_TRY(nd_array_copy(x, call->outputs[0], err));
    if (nd_op_out(call, 1) != NULL)
        ND_TRY(nd_op_make(call, 1, ND_DTYPE_BOOL, &x->shape, err));
    for (size_t i = 0; nd_op_out(call, 1) != NULL && i < x->n; i++)
        call->outputs[1]->x[i] = 1;
    return ND_OK;
}

/* An end of the range of axes: counted from the end if negative, and clipped. */
static int clip_axis(int64_t axis, int rank)
{
    if (axis < 0)
        axis += rank;
    return axis < 0 ? 0 : axis > rank ? rank : (int)axis;
}

static enum nd_status nd_op_shape(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape;
    int start = clip_axis(nd_op_i(call, "start", 0), x->rank);
    int end = clip_axis(nd_op_i(call, "end", x->rank), x->rank);
    struct nd_shape shape = {.rank = 1, .dims = {end > start ? end - start : 0}};
    ND_TRY(nd_op_make(call, 0, ND_DTYPE_I64, &shape, err));
    for (int axis = start; axis < end; axis++)
        call->outputs[0]->x[axis - start] = (double)x->dims[axis];
    return ND_OK;
}

static enum nd_status nd_op_size(const struct nd_op_call *call, struct nd_error *err)
{
    struct nd_shape scalar = {0};
    ND_TRY(nd_op_make(call, 0, ND_DTYPE_I64, &scalar, err));
    call->outputs[0]->x[0] = (double)call->inputs[0]->n;
    return ND_OK;
}

/* ---- the operators ---- */

const struct nd_op nd_ops_moves[] = {
    {"", "Concat", 1, nd_op_concat},
    {"", "DepthToSpace", 1, nd_op_depth_to_space},
    {"", "Dropout", 1, nd_op_dropout},
    {"", "Expand", 2, nd_op_expand},
    {"", "Flatten", 1, nd_op_flatten},
    {"", "Identity", 1, nd_op_identity},
    {"", "Pad", 1, nd_op_pad},
    {"", "Reshape", 1, nd_op_reshape},
    {"", "Shape", 1, nd_op_shape},
    {"", "Size", 1, nd_op_size},
    {"", "Slice", 1, nd_op_slice},
    {"", "SpaceToDepth", 1, nd_op_space_to_depth},
    {"", "Split", 1, nd_op_split},
    {"", "Squeeze", 1, nd_op_squeeze},
    {"", "Tile", 2, nd_op_tile},
    {"", "Transpose", 1, nd_op_transpose},
    {"", "Trilu", 1, nd_op_trilu},
    {"", "Unsqueeze", 1, nd_op_unsqueeze},
    {NULL, NULL, 0, NULL},
};
