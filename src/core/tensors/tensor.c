/* Tensors: types, shapes, the parameters of their quantisation (scales.h), and what a tensor of a model is
 * (npudiff/core/tensor.h). */
#include <math.h>
#include <stdio.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "npudiff/core/tensor.h"

enum dtype_kind { KIND_OTHER, KIND_UNSIGNED, KIND_SIGNED, KIND_FLOAT };

static const struct dtype_row {
    enum nd_dtype dtype;
    const char *name;
    size_t size_bytes;
    enum dtype_kind kind;
} rows[] = {
    {ND_DTYPE_F32, "float32", 4, KIND_FLOAT},        {ND_DTYPE_U8, "uint8", 1, KIND_UNSIGNED},
    {ND_DTYPE_I8, "int8", 1, KIND_SIGNED},           {ND_DTYPE_U16, "uint16", 2, KIND_UNSIGNED},
    {ND_DTYPE_I16, "int16", 2, KIND_SIGNED},         {ND_DTYPE_I32, "int32", 4, KIND_SIGNED},
    {ND_DTYPE_I64, "int64", 8, KIND_SIGNED},         {ND_DTYPE_BOOL, "bool", 1, KIND_OTHER},
    {ND_DTYPE_F16, "float16", 2, KIND_FLOAT},        {ND_DTYPE_F64, "float64", 8, KIND_FLOAT},
    {ND_DTYPE_U32, "uint32", 4, KIND_UNSIGNED},      {ND_DTYPE_U64, "uint64", 8, KIND_UNSIGNED},
    {ND_DTYPE_BF16, "bfloat16", 2, KIND_FLOAT},      {ND_DTYPE_F8E4M3FN, "float8_e4m3fn", 1, KIND_FLOAT},
    {ND_DTYPE_F8E5M2, "float8_e5m2", 1, KIND_FLOAT}, {ND_DTYPE_U4, "uint4", 1, KIND_UNSIGNED},
    {ND_DTYPE_I4, "int4", 1, KIND_SIGNED},
};

static const struct dtype_row *find_row(enum nd_dtype dtype)
{
    static const struct dtype_row none = {ND_DTYPE_NONE, "none", 0, KIND_OTHER};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].dtype == dtype)
            return &rows[i];
    return &none;
}

const char *nd_dtype_name(enum nd_dtype dtype)
{
    return find_row(dtype)->name;
}

enum nd_dtype nd_dtype_from_name(const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].dtype;
    return ND_DTYPE_NONE;
}

size_t nd_dtype_size_bytes(enum nd_dtype dtype)
{
    return find_row(dtype)->size_bytes;
}

bool nd_dtype_is_integer(enum nd_dtype dtype)
{
    enum dtype_kind kind = find_row(dtype)->kind;
    return kind == KIND_UNSIGNED || kind == KIND_SIGNED;
}

bool nd_dtype_is_signed_integer(enum nd_dtype dtype)
{
    return find_row(dtype)->kind == KIND_SIGNED;
}

bool nd_dtype_is_float(enum nd_dtype dtype)
{
    return find_row(dtype)->kind == KIND_FLOAT;
}

enum nd_status nd_shape_n_elems(const struct nd_shape *shape, size_t *out, struct nd_error *err)
{
    if (shape->rank < 0 || shape->rank > ND_MAX_RANK)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "a tensor of rank %d; 0 to %d are accepted", shape->rank,
                       ND_MAX_RANK);
    size_t n = 1;
    for (int i = 0; i < shape->rank; i++) {
        if (shape->dims[i] < 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "dimension %d is %lld", i,
                           (long long)shape->dims[i]);
        if (!nd_size_mul(n, (size_t)shape->dims[i], &n))
            return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor's number of elements does not fit");
    }
    *out = n;
    return ND_OK;
}

enum nd_status nd_shape_size_bytes(const struct nd_shape *shape, enum nd_dtype dtype, size_t *out,
                                   struct nd_error *err)
{
    size_t n;
    ND_TRY(nd_shape_n_elems(shape, &n, err));
    size_t elem_bytes = nd_dtype_size_bytes(dtype);
    if (elem_bytes == 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "element type %d is not known", (int)dtype);
    if (!nd_size_mul(n, elem_bytes, out))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor's size does not fit");
    return ND_OK;
}

bool nd_shape_equal(const struct nd_shape *a, const struct nd_shape *b)
{
    if (a->rank != b->rank)
        return false;
    for (int i = 0; i < a->rank; i++)
        if (a->dims[i] != b->dims[i])
            return false;
    return true;
}

char *nd_shape_format(const struct nd_shape *shape, char *buf, size_t buf_size)
{
    if (shape->rank <= 0) {
        snprintf(buf, buf_size, shape->rank == 0 ? "scalar" : "unknown");
        return buf;
    }
    size_t used = 0;
    for (int i = 0; i < shape->rank && used < buf_size; i++)
        used +=
            (size_t)snprintf(buf + used, buf_size - used, i > 0 ? "x%lld" : "%lld", (long long)shape->dims[i]);
    return buf;
}

void nd_quant_deinit(struct nd_quant *quant)
{
    ND_FREE_ALL(quant->scale, quant->zero_point);
    *quant = (struct nd_quant){.axis = -1};
}

bool nd_quant_is_same(const struct nd_quant *a, const struct nd_quant *b)
{
    return a != NULL && b != NULL && a->n == 1 && b->n == 1 && a->scale[0] == b->scale[0] &&
           a->zero_point[0] == b->zero_point[0];
}

bool nd_dtype_is_of_qvalues(enum nd_dtype dtype)
{
    return nd_dtype_is_integer(dtype) && nd_dtype_size_bytes(dtype) <= sizeof(int32_t);
}

bool nd_quant_is_sound(const struct nd_quant *quant)
{
    for (size_t i = 0; i < quant->n; i++)
        if (!(quant->scale[i] > 0 && isfinite(quant->scale[i])))
            return false;
    return quant->n > 0;
}

enum nd_status nd_quant_copy(const struct nd_quant *from, struct nd_quant *to, struct nd_error *err)
{
    struct nd_quant copy = {.n = from->n,
                            .axis = from->axis,
                            .scale = nd_calloc(from->n, sizeof *copy.scale),
                            .zero_point = nd_calloc(from->n, sizeof *copy.zero_point)};
    if (copy.scale == NULL || copy.zero_point == NULL) {
        nd_quant_deinit(&copy);
        return nd_fail_memory(err);
    }
    if (from->n > 0) {
        memcpy(copy.scale, from->scale, from->n * sizeof *from->scale);
        memcpy(copy.zero_point, from->zero_point, from->n * sizeof *from->zero_point);
    }
    *to = copy;
    return ND_OK;
}

size_t nd_quant_inner(const struct nd_quant *quant, const struct nd_shape *shape)
{
    size_t inner = 1;
    for (int d = quant->n > 1 ? quant->axis + 1 : shape->rank; d < shape->rank; d++)
        inner *= (size_t)shape->dims[d];
    return inner > 0 ? inner : 1;
}

void nd_tensor_deinit(struct nd_tensor *tensor)
{
    ND_FREE_ALL(tensor->name, tensor->onnx_name, tensor->op_types, tensor->node);
    nd_quant_deinit(&tensor->quant);
    *tensor = (struct nd_tensor){0};
}

enum nd_status nd_tensor_copy(const struct nd_tensor *src, struct nd_tensor *dst, struct nd_error *err)
{
    *dst = *src;
    dst->quant = (struct nd_quant){.axis = -1};
    dst->name = nd_strdup(src->name);
    dst->onnx_name = nd_strdup(src->onnx_name);
    dst->op_types = nd_strdup(src->op_types);
    dst->node = nd_strdup(src->node);
    bool is_whole =
        (src->name == NULL || dst->name != NULL) && (src->onnx_name == NULL || dst->onnx_name != NULL) &&
        (src->op_types == NULL || dst->op_types != NULL) && (src->node == NULL || dst->node != NULL);
    enum nd_status status = is_whole ? nd_quant_copy(&src->quant, &dst->quant, err) : nd_fail_memory(err);
    if (status != ND_OK)
        nd_tensor_deinit(dst);
    return status;
}
