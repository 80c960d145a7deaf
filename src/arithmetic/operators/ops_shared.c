/* What operators share: failing, inputs and attributes of a call, axes, broadcasting, integers, and walks over
 * tensors. */
#include "arithmetic/operators/ops_shared.h"

#include <assert.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "model/graph/graph.h"

/* ---- calls ---- */

const struct nd_op *nd_op_in_list(const struct nd_op *list, const char *domain, const char *op_type)
{
    const char *wanted = nd_onnx_domain(domain);
    for (const struct nd_op *op = list; op->run != NULL; op++)
        if (strcmp(op->op_type, op_type) == 0 && strcmp(op->domain, wanted) == 0)
            return op;
    return NULL;
}

#define FAIL_WITH(id)                                                                                          \
    do {                                                                                                       \
        char text[512];                                                                                        \
        va_list args;                                                                                          \
        va_start(args, fmt);                                                                                   \
        vsnprintf(text, sizeof text, fmt, args);                                                               \
        va_end(args);                                                                                          \
        return nd_fail(err, id, nd_graph_node_name(call->node), "%s", text);                                   \
    } while (0)

enum nd_status nd_op_unsupported(const struct nd_op_call *call, struct nd_error *err, const char *fmt, ...)
{
    FAIL_WITH(ND_E_EXACT_OPERATOR);
}

enum nd_status nd_op_misfit(const struct nd_op_call *call, struct nd_error *err, const char *fmt, ...)
{
    FAIL_WITH(ND_E_EXACT_SHAPE);
}

const struct nd_array *nd_op_in(const struct nd_op_call *call, size_t i)
{
    return i < call->n_inputs ? call->inputs[i] : NULL;
}

struct nd_array *nd_op_out(const struct nd_op_call *call, size_t i)
{
    return i < call->n_outputs ? call->outputs[i] : NULL;
}

bool nd_op_is(const struct nd_op_call *call, const char *op_type)
{
    return strcmp(nd_onnx_text(call->node->op_type), op_type) == 0;
}

enum nd_status nd_op_make(const struct nd_op_call *call, size_t i, enum nd_dtype dtype,
                          const struct nd_shape *shape, struct nd_error *err)
{
    return nd_array_make(call->outputs[i], dtype, shape, err);
}

enum nd_status nd_op_make_room(const struct nd_op_call *call, size_t i, enum nd_dtype dtype,
                               const struct nd_shape *shape, struct nd_error *err)
{
    return nd_array_make_room(call->outputs[i], dtype, shape, err);
}

/* ---- attributes ---- */

double nd_op_f(const struct nd_op_call *call, const char *name, double otherwise)
{
    return nd_onnx_attribute_f(call->node, name, otherwise);
}

int64_t nd_op_i(const struct nd_op_call *call, const char *name, int64_t otherwise)
{
    return nd_onnx_attribute_i(call->node, name, otherwise);
}

size_t nd_op_ints(const struct nd_op_call *call, const char *name, const int64_t **values)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(call->node, name);
    if (attribute == NULL || attribute->n_ints == 0)
        return 0;
    *values = attribute->ints;
    return attribute->n_ints;
}

const char *nd_op_text(const struct nd_op_call *call, const char *name, char *buf, size_t buf_size)
{
    const Onnx__AttributeProto *attribute = nd_onnx_attribute(call->node, name);
    size_t n = attribute != NULL && attribute->has_s ? attribute->s.len : 0;
    if (n >= buf_size)
        n = buf_size - 1;
    if (n > 0)
        memcpy(buf, attribute->s.data, n);
    buf[n] = '\0';
    return buf;
}

/* ---- axes and lists ---- */

enum nd_status nd_op_axis(const struct nd_op_call *call, int64_t axis, int rank, int *out, struct nd_error *err)
{
    if (axis < -rank || axis >= rank)
        return nd_op_misfit(call, err, "axis %lld of %d dimensions", (long long)axis, rank);
    *out = (int)(axis < 0 ? axis + rank : axis);
    return ND_OK;
}

int64_t nd_op_whole(const struct nd_array *array, size_t i)
{
    int64_t value;
    nd_array_store(ND_DTYPE_I64, &array->x[i], 1, &value);
    return value;
}

enum nd_status nd_op_list(const struct nd_op_call *call, size_t i, const char *name, struct nd_op_list *out,
                          struct nd_error *err)
{
    const struct nd_array *input = nd_op_in(call, i);
    const Onnx__AttributeProto *attribute = name != NULL ? nd_onnx_attribute(call->node, name) : NULL;
    struct nd_op_list made = {.is_given = input != NULL || attribute != NULL};
    if (input == NULL && attribute == NULL) {
        *out = made;
        return ND_OK;
    }
    made.n = input != NULL ? input->n : attribute->n_ints;
    if (made.n > sizeof made.v / sizeof made.v[0])
        return nd_op_misfit(call, err, "%zu numbers in '%s'", made.n, name != NULL ? name : "an input");
    for (size_t k = 0; k < made.n; k++)
        made.v[k] = input != NULL ? nd_op_whole(input, k) : attribute->ints[k];
    *out = made;
    return ND_OK;
}

enum nd_status nd_op_axes(const struct nd_op_call *call, const struct nd_op_list *list, int rank,
                          bool marks[ND_MAX_RANK], struct nd_error *err)
{
    memset(marks, 0, ND_MAX_RANK * sizeof marks[0]);
    for (size_t k = 0; k < list->n; k++) {
        int axis = 0;
        ND_TRY(nd_op_axis(call, list->v[k], rank, &axis, err));
        if (marks[axis])
            return nd_op_misfit(call, err, "axis %d is named twice", axis);
        marks[axis] = true;
    }
    return ND_OK;
}

size_t nd_dims_product(const struct nd_shape *shape, int from, int to)
{
    size_t product = 1;
    for (int axis = from; axis < to; axis++)
        product *= (size_t)shape->dims[axis];
    return product;
}

/* ---- broadcasting ---- */

enum nd_status nd_op_broadcast(const struct nd_op_call *call, const struct nd_shape *other,
                               struct nd_shape *shape, struct nd_error *err)
{
    struct nd_shape made = {.rank = shape->rank > other->rank ? shape->rank : other->rank};
    for (int axis = 0; axis < made.rank; axis++) {
        int in_a = axis - (made.rank - shape->rank), in_b = axis - (made.rank - other->rank);
        int64_t a = in_a >= 0 ? shape->dims[in_a] : 1, b = in_b >= 0 ? other->dims[in_b] : 1;
        if (a != b && a != 1 && b != 1) {
            char text_a[128], text_b[128];
            return nd_op_misfit(call, err, "shapes %s and %s cannot be broadcast",
                                nd_shape_format(shape, text_a, sizeof text_a),
                                nd_shape_format(other, text_b, sizeof text_b));
        }
        made.dims[axis] = a == 1 ? b : a;
    }
    *shape = made;
    return ND_OK;
}

ptrdiff_t nd_broadcast_stride(const struct nd_array *array, const struct nd_shape *shape, int axis)
{
    int own = axis - (shape->rank - array->shape.rank);
    if (own < 0 || array->shape.dims[own] == 1)
        return 0;
    return (ptrdiff_t)nd_dims_product(&array->shape, own + 1, array->shape.rank);
}

/* ---- integers ---- */

static int bits_of(enum nd_dtype dtype)
{
    if (dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4)
        return 4;
    return 8 * (int)nd_dtype_size_bytes(dtype);
}

enum nd_status nd_op_wrap(const struct nd_op_call *call, struct nd_array *array, struct nd_error *err)
{
    if (!nd_dtype_is_integer(array->dtype))
        return ND_OK;
    int bits = bits_of(array->dtype);
    double range = ldexp(1, bits);
    double low = nd_dtype_is_signed_integer(array->dtype) ? -range / 2 : 0;
    for (size_t i = 0; i < array->n; i++) {
        double x = trunc(array->x[i]); /* a mean or a power of integers */
        array->x[i] = x;
        if (x >= low && x < low + range && (bits < 64 || fabs(x) <= 0x1p53))
            continue;
        if (!(fabs(x) <= 0x1p53))
            return nd_op_unsupported(call, err, "an integer that a double cannot hold");
        array->x[i] = x - range * floor((x - low) / range);
    }
    return ND_OK;
}

/* ---- walks ---- */

void nd_walk_axis(struct nd_walk *walk, int64_t dim, ptrdiff_t stride0, ptrdiff_t stride1, ptrdiff_t stride2)
{
    const ptrdiff_t added[ND_WALK_OPERANDS] = {stride0, stride1, stride2};
    if (dim == 0)
        walk->is_empty = true;
    if (dim <= 1)
        return;
    bool merges = walk->rank > 0;
    for (int k = 0; k < ND_WALK_OPERANDS && merges; k++)
        merges = walk->strides[k][walk->rank - 1] == added[k] * (ptrdiff_t)dim;
    if (!merges) {
        assert(walk->rank < ND_WALK_RANK);
        walk->dims[walk->rank++] = 1;
    }
    walk->dims[walk->rank - 1] *= (ptrdiff_t)dim;
    for (int k = 0; k < ND_WALK_OPERANDS; k++)
        walk->strides[k][walk->rank - 1] = added[k];
}

bool nd_walk_begin(struct nd_walk *walk)
{
    if (walk->is_empty)
        return false;
    if (walk->rank == 0) /* one element */
        walk->dims[walk->rank++] = 1;
    walk->n = walk->dims[walk->rank - 1];
    for (int k = 0; k < ND_WALK_OPERANDS; k++)
        walk->step[k] = walk->strides[k][walk->rank - 1];
    for (int axis = 0; axis < walk->rank; axis++)
        walk->index[axis] = 0;
    return true;
}

bool nd_walk_next(struct nd_walk *walk)
{
    for (int axis = walk->rank - 2; axis >= 0; axis--) {
        bool wraps = ++walk->index[axis] == walk->dims[axis];
        for (int k = 0; k < ND_WALK_OPERANDS; k++)
            walk->at[k] += wraps ? walk->strides[k][axis] * (1 - walk->dims[axis]) : walk->strides[k][axis];
        if (!wraps)
            return true;
        walk->index[axis] = 0;
    }
    return false;
}

void nd_strides(const struct nd_shape *shape, ptrdiff_t strides[ND_MAX_RANK])
{
    ptrdiff_t stride = 1;
    for (int axis = shape->rank - 1; axis >= 0; axis--) {
        strides[axis] = stride;
        stride *= (ptrdiff_t)shape->dims[axis];
    }
}
