/* Tensors from nothing and of another type: stored tensors, Constant, Range, Cast. */
#include <math.h>
#include <string.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"
#include "model/graph/external.h"

/* The type of that number, where it is one of ours. */
static enum nd_dtype dtype_of(int64_t elem_type)
{
    enum nd_dtype dtype = elem_type > 0 && elem_type < 64 ? (enum nd_dtype)elem_type : ND_DTYPE_NONE;
    return nd_dtype_size_bytes(dtype) > 0 ? dtype : ND_DTYPE_NONE;
}

static bool is_4bit(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
}

/* Two to a byte, the first in the low half. */
static void unpack_4bit(enum nd_dtype dtype, uint8_t byte, size_t i, double *x)
{
    int bits = i % 2 == 0 ? byte & 15 : byte >> 4;
    *x = dtype == ND_DTYPE_I4 && bits > 7 ? bits - 16 : bits;
}

static void decode_raw(enum nd_dtype dtype, const uint8_t *bytes, size_t n, double *x)
{
    for (size_t i = 0; i < n && is_4bit(dtype); i++)
        unpack_4bit(dtype, bytes[i / 2], i, &x[i]);
    if (!is_4bit(dtype))
        nd_array_load(dtype, bytes, n, x);
}

/* int32_data: integers, the bits of small floats, packed 4-bit integers. */
static void decode_int32(enum nd_dtype dtype, const int32_t *data, size_t n, double *x)
{
    for (size_t i = 0; i < n; i++) {
        uint16_t bits = (uint16_t)data[i / (is_4bit(dtype) ? 2 : 1)];
        if (is_4bit(dtype))
            unpack_4bit(dtype, (uint8_t)bits, i, &x[i]);
        else if (nd_dtype_is_float(dtype))
            nd_array_load(dtype, &bits, 1, &x[i]);
        else
            x[i] = (double)data[i];
    }
}

/* How many elements the tensor has data for; *raw tells whether they are bytes. */
static size_t available(const Onnx__TensorProto *tensor, enum nd_dtype dtype, bool *is_raw)
{
    *is_raw = tensor->has_raw_data && tensor->raw_data.len > 0;
    size_t per_item = is_4bit(dtype) ? 2 : 1;
    if (*is_raw)
        return tensor->raw_data.len / nd_dtype_size_bytes(dtype) * per_item;
    switch (dtype) {
    case ND_DTYPE_F32:
        return tensor->n_float_data;
    case ND_DTYPE_F64:
        return tensor->n_double_data;
    case ND_DTYPE_I64:
        return tensor->n_int64_data;
    case ND_DTYPE_U32:
    case ND_DTYPE_U64:
        return tensor->n_uint64_data;
    default:
        return tensor->n_int32_data * per_item;
    }
}

static void decode(const Onnx__TensorProto *tensor, enum nd_dtype dtype, bool is_raw, size_t n, double *x)
{
    if (is_raw) {
        decode_raw(dtype, tensor->raw_data.data, n, x);
        return;
    }
    switch (dtype) {
    case ND_DTYPE_F32:
        nd_array_load(dtype, tensor->float_data, n, x);
        break;
    case ND_DTYPE_F64:
        nd_array_load(dtype, tensor->double_data, n, x);
        break;
    case ND_DTYPE_I64:
        nd_array_load(dtype, tensor->int64_data, n, x);
        break;
    case ND_DTYPE_U32:
    case ND_DTYPE_U64:
        nd_array_load(ND_DTYPE_U64, tensor->uint64_data, n, x);
        break;
    default:
        decode_int32(dtype, tensor->int32_data, n, x);
    }
}

enum nd_status nd_op_tensor(const Onnx__TensorProto *tensor, struct nd_array *out, struct nd_error *err)
{
    const char *name = nd_onnx_text(tensor->name);
    enum nd_dtype dtype = tensor->has_data_type ? dtype_of(tensor->data_type) : ND_DTYPE_NONE;
    if (dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_EXACT_OPERATOR, name, "constant '%s' has type %d, which is not handled", name,
                       (int)tensor->data_type);
    if (nd_external_is(tensor))
        return nd_fail(err, ND_E_EXACT_OPERATOR, name, "constant '%s' lies in a different file", name);
    if (tensor->n_dims > ND_MAX_RANK)
        return nd_fail(err, ND_E_EXACT_OPERATOR, name, "constant '%s' has %zu dimensions", name,
                       tensor->n_dims);
    struct nd_shape shape = {.rank = (int)tensor->n_dims};
    if (tensor->n_dims > 0)
        memcpy(shape.dims, tensor->dims, tensor->n_dims * sizeof shape.dims[0]);
    size_t n;
    bool is_raw;
    ND_TRY(nd_shape_n_elems(&shape, &n, err));
    size_t held = available(tensor, dtype, &is_raw);
    /* Before making room: a wild dimension must not make us allocate. */
    if (n != held && !(is_4bit(dtype) && n + 1 == held))
        return nd_fail(err, ND_E_EXACT_SHAPE, name, "constant '%s' has %zu elements, its shape says %zu", name,
                       held, n);
    ND_TRY(nd_array_make_room(out, dtype, &shape, err));
    decode(tensor, dtype, is_raw, n, out->x);
    return ND_OK;
}

/* A scalar (n = 0) or a vector from an attribute. */
static enum nd_status make_numbers(const struct nd_op_call *call, const Onnx__AttributeProto *value,
                                   bool is_vector, struct nd_error *err)
{
    bool is_float = strncmp(value->name, "value_float", strlen("value_float")) == 0;
    size_t n = !is_vector ? 1 : is_float ? value->n_floats : value->n_ints;
    struct nd_shape shape = {.rank = is_vector ? 1 : 0, .dims = {(int64_t)n}};
    ND_TRY(nd_op_make(call, 0, is_float ? ND_DTYPE_F32 : ND_DTYPE_I64, &shape, err));
    for (size_t i = 0; i < n; i++)
        call->outputs[0]->x[i] = is_float ? (double)(is_vector ? value->floats[i] : value->f)
                                          : (double)(is_vector ? value->ints[i] : value->i);
    return ND_OK;
}

static enum nd_status nd_op_constant(const struct nd_op_call *call, struct nd_error *err)
{
    static const char *const names[] = {"value_float", "value_int", "value_floats", "value_ints"};
    const Onnx__AttributeProto *value = nd_onnx_attribute(call->node, "value");
    if (value != NULL && value->t != NULL)
        return nd_op_tensor(value->t, call->outputs[0], err);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        value = nd_onnx_attribute(call->node, names[i]);
        if (value != NULL)
            return make_numbers(call, value, i >= 2, err);
    }
    return nd_op_unsupported(call, err, "a constant that is no number");
}

static enum nd_status nd_op_constant_of_shape(const struct nd_op_call *call, struct nd_error *err)
{
    const Onnx__AttributeProto *value = nd_onnx_attribute(call->node, "value");
    ND_CLEANUP(nd_array_deinit) struct nd_array one = {.dtype = ND_DTYPE_F32};
    struct nd_op_list dims;
    ND_TRY(nd_op_list(call, 0, NULL, &dims, err));
    if (dims.n > ND_MAX_RANK)
        return nd_op_unsupported(call, err, "%zu dimensions", dims.n);
    if (value != NULL && value->t != NULL)
        ND_TRY(nd_op_tensor(value->t, &one, err));
    if (value != NULL && one.n != 1)
        return nd_op_misfit(call, err, "a value of %zu elements", one.n);
    struct nd_shape shape = {.rank = (int)dims.n};
    memcpy(shape.dims, dims.v, dims.n * sizeof dims.v[0]);
    ND_TRY(nd_op_make(call, 0, one.dtype, &shape, err));
    for (size_t i = 0; one.n == 1 && i < call->outputs[0]->n; i++)
        call->outputs[0]->x[i] = one.x[0];
    return ND_OK;
}

static enum nd_status nd_op_range(const struct nd_op_call *call, struct nd_error *err)
{
    for (size_t i = 0; i < 3; i++)
        if (call->inputs[i]->n != 1)
            return nd_op_misfit(call, err, "input %zu has %zu elements", i, call->inputs[i]->n);
    double start = call->inputs[0]->x[0], limit = call->inputs[1]->x[0], delta = call->inputs[2]->x[0];
    double n = ceil((limit - start) / delta);
    if (delta == 0 || isnan(n) || n > 0x1p40)
        return nd_op_misfit(call, err, "a range from %g to %g by %g", start, limit, delta);
    struct nd_shape shape = {.rank = 1, .dims = {n > 0 ? (int64_t)n : 0}};
    ND_TRY(nd_op_make(call, 0, call->inputs[0]->dtype, &shape, err));
    for (size_t i = 0; i < call->outputs[0]->n; i++)
        call->outputs[0]->x[i] = start + (double)i * delta;
    return ND_OK;
}

/* To a float type, the double stays as it is: the reference does not round. To an integer, the fraction is
 * dropped; one that does not fit wraps around as in C, and is refused where a double cannot tell it
 * (nd_op_wrap). */
static enum nd_status nd_op_cast(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    bool is_like = nd_op_is(call, "CastLike");
    enum nd_dtype dtype = is_like ? call->inputs[1]->dtype : dtype_of(nd_op_i(call, "to", 0));
    if (dtype == ND_DTYPE_NONE)
        return nd_op_unsupported(call, err, "a cast to type %lld", (long long)nd_op_i(call, "to", 0));
    ND_TRY(nd_array_copy(x, call->outputs[0], err));
    call->outputs[0]->dtype = dtype;
    for (size_t i = 0; i < x->n && x->dtype == ND_DTYPE_F32 && nd_dtype_is_integer(dtype); i++)
        call->outputs[0]->x[i] = (double)(float)x->x[i]; /* it jumps: ROW_OF_FLOATS of ops_elements.c */
    for (size_t i = 0; i < x->n && dtype == ND_DTYPE_BOOL; i++)
        call->outputs[0]->x[i] = x->x[i] != 0 ? 1 : 0;
    if (x->dtype == dtype)
        return ND_OK;
    return nd_op_wrap(call, call->outputs[0], err);
}

/* ---- the operators ---- */

const struct nd_op nd_ops_makers[] = {
    {"", "Cast", 1, nd_op_cast},         {"", "CastLike", 2, nd_op_cast},
    {"", "Constant", 0, nd_op_constant}, {"", "ConstantOfShape", 1, nd_op_constant_of_shape},
    {"", "Range", 3, nd_op_range},       {NULL, NULL, 0, NULL},
};
