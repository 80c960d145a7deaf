#include "record/import/formats/tensorproto.h"

#include <string.h>

/* The numbers of enum nd_dtype are ONNX's own. */
static enum nd_dtype find_dtype(int32_t data_type)
{
    enum nd_dtype dtype = (enum nd_dtype)data_type;
    return data_type > 0 && data_type < 64 && nd_dtype_size_bytes(dtype) > 0 ? dtype : ND_DTYPE_NONE;
}

/* Bytes of what is packed: two 4-bit integers to a byte. */
static bool is_packed(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
}

static size_t packed_bytes(enum nd_dtype dtype, size_t n)
{
    return is_packed(dtype) ? n / 2 + n % 2 : n * nd_dtype_size_bytes(dtype);
}

enum nd_status nd_tensorproto_describe(const Onnx__TensorProto *proto, const char *path, enum nd_dtype *dtype,
                                       struct nd_shape *shape, struct nd_error *err)
{
    int32_t data_type = proto->has_data_type ? proto->data_type : 0;
    bool is_external =
        proto->has_data_location && proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
    if (proto->segment != NULL || is_external)
        return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' keeps its data elsewhere (%s), which is not read",
                       path, is_external ? "external data" : "a segment");
    *dtype = find_dtype(data_type);
    if (*dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_IMPORT_TYPE, path, "'%s' has the ONNX element type %d, which captures lack",
                       path, (int)data_type);
    if (proto->n_dims >= ND_MAX_RANK)
        return nd_fail(err, ND_E_IMPORT_TYPE, path, "'%s' has %zu dimensions; at most %d are stored", path,
                       proto->n_dims, ND_MAX_RANK - 1);
    *shape = (struct nd_shape){.rank = (int)proto->n_dims};
    for (size_t d = 0; d < proto->n_dims; d++) {
        if (proto->dims[d] < 0)
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' has a dimension of %lld", path,
                           (long long)proto->dims[d]);
        shape->dims[d] = proto->dims[d];
    }
    size_t n_elems = 0, n_there = proto->raw_data.len * 2 + proto->n_float_data + proto->n_int32_data * 2 +
                                  proto->n_int64_data + proto->n_double_data + proto->n_uint64_data;
    enum nd_status status = nd_shape_n_elems(shape, &n_elems, err);
    if (status == ND_OK && n_elems > n_there) /* before anything of that size is allocated */
        status = nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' says that it has %zu elements, but holds fewer",
                         path, n_elems);
    return status;
}

/* The two numbers in a byte, the first in its low half. */
static void put_nibble(enum nd_dtype dtype, unsigned char packed, size_t i, unsigned char *out)
{
    unsigned nibble = i % 2 == 0 ? packed & 15u : packed >> 4u;
    out[i] = (unsigned char)(dtype == ND_DTYPE_I4 && nibble > 7 ? nibble | 0xf0u : nibble);
}

static enum nd_status fail_count(const char *path, const char *field, size_t n_found, const char *what,
                                 size_t n, struct nd_error *err)
{
    return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' has %zu %s in %s; its shape and type take %zu", path,
                   n_found, what, field, n);
}

static enum nd_status unpack_raw(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                 size_t n, unsigned char *out, struct nd_error *err)
{
    size_t n_bytes = packed_bytes(dtype, n);
    if (proto->raw_data.len != n_bytes)
        return fail_count(path, "raw_data", proto->raw_data.len, "bytes", n_bytes, err);
    for (size_t i = 0; is_packed(dtype) && i < n; i++)
        put_nibble(dtype, proto->raw_data.data[i / 2], i, out);
    if (!is_packed(dtype) && n_bytes > 0)
        memcpy(out, proto->raw_data.data, n_bytes);
    return ND_OK;
}

/* Whether the low bytes are the value: an int32 may stand for codes or for the bits of a small float. */
static bool fits(enum nd_dtype dtype, int32_t value)
{
    size_t n_bits = is_packed(dtype) ? 8 : 8 * nd_dtype_size_bytes(dtype);
    if (n_bits >= 32)
        return true;
    if (dtype == ND_DTYPE_BOOL)
        return value == 0 || value == 1;
    if (nd_dtype_is_signed_integer(dtype) && !is_packed(dtype))
        return value >= -(INT32_C(1) << (n_bits - 1)) && value < INT32_C(1) << (n_bits - 1);
    return value >= 0 && value < INT32_C(1) << n_bits;
}

static enum nd_status unpack_int32(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                   size_t n, unsigned char *out, struct nd_error *err)
{
    size_t size = nd_dtype_size_bytes(dtype), n_fields = is_packed(dtype) ? n / 2 + n % 2 : n;
    if (proto->n_int32_data != n_fields)
        return fail_count(path, "int32_data", proto->n_int32_data, "numbers", n_fields, err);
    for (size_t i = 0; i < n_fields; i++)
        if (!fits(dtype, proto->int32_data[i]))
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s': element %zu is %ld, which is no %s", path, i,
                           (long)proto->int32_data[i], nd_dtype_name(dtype));
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = (uint32_t)proto->int32_data[is_packed(dtype) ? i / 2 : i];
        if (is_packed(dtype))
            put_nibble(dtype, (unsigned char)bits, i, out);
        else
            memcpy(out + i * size, &bits, size); /* little endian, as all of npudiff's data */
    }
    return ND_OK;
}

static enum nd_status unpack_uint64(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                    size_t n, unsigned char *out, struct nd_error *err)
{
    size_t size = nd_dtype_size_bytes(dtype);
    if (proto->n_uint64_data != n)
        return fail_count(path, "uint64_data", proto->n_uint64_data, "numbers", n, err);
    for (size_t i = 0; i < n; i++) {
        uint64_t value = proto->uint64_data[i];
        if (size == 4 && value > UINT32_MAX)
            return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s': element %zu is %llu, which is no uint32", path,
                           i, (unsigned long long)value);
        memcpy(out + i * size, &value, size);
    }
    return ND_OK;
}

enum nd_status nd_tensorproto_unpack(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                     const struct nd_shape *shape, void *data, struct nd_error *err)
{
    size_t n = 0;
    int n_fields = (proto->n_float_data > 0) + (proto->n_int32_data > 0) + (proto->n_int64_data > 0) +
                   (proto->n_double_data > 0) + (proto->n_uint64_data > 0) + (proto->n_string_data > 0);
    enum nd_status status = nd_shape_n_elems(shape, &n, err);
    if (status != ND_OK)
        return status;
    if (n_fields + (proto->has_raw_data && proto->raw_data.len > 0) > 1)
        return nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' holds its data in several fields", path);
    if (proto->has_raw_data && n_fields == 0)
        return unpack_raw(proto, path, dtype, n, data, err);
    if (dtype == ND_DTYPE_U32 || dtype == ND_DTYPE_U64)
        return unpack_uint64(proto, path, dtype, n, data, err);
    const struct {
        enum nd_dtype dtype;
        const char *name;
        const void *values;
        size_t n;
    } fields[] = {{ND_DTYPE_F32, "float_data", proto->float_data, proto->n_float_data},
                  {ND_DTYPE_F64, "double_data", proto->double_data, proto->n_double_data},
                  {ND_DTYPE_I64, "int64_data", proto->int64_data, proto->n_int64_data}};
    for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
        if (fields[f].dtype != dtype)
            continue;
        if (fields[f].n != n)
            return fail_count(path, fields[f].name, fields[f].n, "numbers", n, err);
        if (n > 0)
            memcpy(data, fields[f].values, n * nd_dtype_size_bytes(dtype));
        return ND_OK;
    }
    return unpack_int32(proto, path, dtype, n, data, err);
}
