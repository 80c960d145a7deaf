/* Element types, shapes, quantisation parameters and digests: the words that all other headers use.
 *
 * A block of elements has one type (`enum nd_dtype`) and a shape (`struct nd_shape`). Where it is quantised it
 * holds integers, and `struct nd_quant` says which real number each stands for: real = scale * (value -
 * zero_point). `struct nd_tensor` describes a tensor of a model that a capture records: name, type, shape,
 * quantisation.
 *
 * All functions are thread safe.
 *
 * Example:
 *
 *     static void describe(const struct nd_tensor *tensor)
 *     {
 *         const struct nd_quant *quant = &tensor->quant;
 *         char shape[64];
 *         nd_shape_format(&tensor->shape, shape, sizeof shape);
 *         printf("%s: %s of %s", tensor->name, nd_dtype_name(tensor->dtype), shape);
 *         if (quant->n == 1)
 *             printf(", scale %g, zero point %lld", quant->scale[0], (long long)quant->zero_point[0]);
 *         putchar('\n');
 *     }
 *
 * Stability: stable. A change that breaks programs raises the number in the library's soname. */
#ifndef NPUDIFF_TENSOR_H
#define NPUDIFF_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "npudiff/core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Element types, numbered as ONNX's TensorProto.DataType and ONNX Runtime's ONNXTensorElementDataType.
 *
 * Here and in captures every element takes whole bytes: a uint4 is a byte of 0..15, an int4 a byte of -8..7
 * (sign extended). ONNX and ONNX Runtime pack two of them to a byte; code that reads such data unpacks it or
 * refuses it. */
enum nd_dtype {
    ND_DTYPE_NONE = 0,
    ND_DTYPE_F32 = 1,
    ND_DTYPE_U8 = 2,
    ND_DTYPE_I8 = 3,
    ND_DTYPE_U16 = 4,
    ND_DTYPE_I16 = 5,
    ND_DTYPE_I32 = 6,
    ND_DTYPE_I64 = 7,
    ND_DTYPE_BOOL = 9,
    ND_DTYPE_F16 = 10,
    ND_DTYPE_F64 = 11,
    ND_DTYPE_U32 = 12,
    ND_DTYPE_U64 = 13,
    ND_DTYPE_BF16 = 16,
    ND_DTYPE_F8E4M3FN = 17,
    ND_DTYPE_F8E5M2 = 19,
    ND_DTYPE_U4 = 21,
    ND_DTYPE_I4 = 22,
};

/* "float32", "uint8", "bfloat16", "float8_e4m3fn", ... as numpy and ml_dtypes spell them; "none" for anything
 * unknown. Static. */
ND_PUBLIC const char *nd_dtype_name(enum nd_dtype dtype);

/* The type spelled `name`, or ND_DTYPE_NONE. */
ND_PUBLIC enum nd_dtype nd_dtype_from_name(const char *name);

/* Bytes of one element (1 for uint4 and int4); 0 for ND_DTYPE_NONE and unknown values. */
ND_PUBLIC size_t nd_dtype_size_bytes(enum nd_dtype dtype);

/* Integer types hold codes where a tensor is quantised. bool is neither integer nor float. */
ND_PUBLIC bool nd_dtype_is_integer(enum nd_dtype dtype);
ND_PUBLIC bool nd_dtype_is_signed_integer(enum nd_dtype dtype);
ND_PUBLIC bool nd_dtype_is_float(enum nd_dtype dtype);

enum { ND_MAX_RANK = 8 };

/* The dimensions of a tensor, outermost first. rank 0 is a scalar (one element). */
struct nd_shape {
    int rank;
    int64_t dims[ND_MAX_RANK];
};

/* Product of the dimensions: 1 for a scalar, 0 when a dimension is 0. ND_ERR_MEMORY when it does not fit in
 * size_t, ND_ERR_FORMAT for a negative dimension or a rank out of range. */
ND_PUBLIC enum nd_status nd_shape_n_elems(const struct nd_shape *shape, size_t *out, struct nd_error *err);

/* nd_shape_n_elems times the element size, checked the same way. ND_ERR_FORMAT for an unknown dtype. */
ND_PUBLIC enum nd_status nd_shape_size_bytes(const struct nd_shape *shape, enum nd_dtype dtype, size_t *out,
                                             struct nd_error *err);

ND_PUBLIC bool nd_shape_equal(const struct nd_shape *a, const struct nd_shape *b);

/* Writes "1x3x224x224" ("scalar" for rank 0) into buf, always terminated; returns buf. */
ND_PUBLIC char *nd_shape_format(const struct nd_shape *shape, char *buf, size_t buf_size);

/* Quantisation parameters of a tensor: real = scale * (code - zero_point). n is 0 where the tensor is not
 * quantised, 1 per tensor, or the length of dimension `axis` per channel. The arrays have n entries and are
 * owned by the struct that embeds this one. */
struct nd_quant {
    size_t n;
    int axis; /* -1 unless per channel */
    float *scale;
    int64_t *zero_point;
};

/* XXH3-128 of a tensor's bytes (little endian, C order): low and high 64 bits. */
struct nd_digest {
    uint64_t low;
    uint64_t high;
};

/* The digest of `size_bytes` bytes; data may be NULL when size_bytes is 0. */
ND_PUBLIC struct nd_digest nd_digest_bytes(const void *data, size_t size_bytes);

ND_PUBLIC bool nd_digest_equal(struct nd_digest a, struct nd_digest b);

/* A tensor that a capture records, as the model describes it.
 *
 * `name` is the name shared by the float and the quantised model; `onnx_name` is the tensor of the quantised
 * graph whose bytes are recorded (the QuantizeLinear output where the tensor is quantised); `op_types` the
 * operators of the layer that makes it, in graph order joined with '+' ("Conv+Relu"; "input" for a graph
 * input's own QuantizeLinear); `node` the name of the node that produces onnx_name. The strings are owned. */
struct nd_tensor {
    char *name;
    char *onnx_name;
    char *op_types;
    char *node;
    enum nd_dtype dtype;   /* of the recorded bytes; ND_DTYPE_NONE until it is known from a run */
    struct nd_shape shape; /* of one sample; rank -1 until it is known */
    struct nd_quant quant;
    bool is_model_input;  /* it stands for an input of the model */
    bool is_model_output; /* it stands for an output of the model */
};

/* Frees what the tensor owns and zeroes it. A zeroed tensor is accepted. */
ND_PUBLIC void nd_tensor_deinit(struct nd_tensor *tensor);

/* A deep copy into *dst (overwritten, not freed first). ND_ERR_MEMORY leaves *dst zeroed. */
ND_PUBLIC enum nd_status nd_tensor_copy(const struct nd_tensor *src, struct nd_tensor *dst,
                                        struct nd_error *err);

#ifdef __cplusplus
}
#endif
#endif
