/* The values of an ONNX TensorProto. */
#ifndef ND_IMPORT_TENSORPROTO_H
#define ND_IMPORT_TENSORPROTO_H

#include "model/graph/onnx.h"

/* Type and shape. ND_E_IMPORT_FORMAT: negative or too many dimensions, data in another file or in segments;
 * ND_E_IMPORT_TYPE: a type that captures lack (strings, complex numbers, other small floats). path is for
 * messages. */
enum nd_status nd_tensorproto_describe(const Onnx__TensorProto *proto, const char *path, enum nd_dtype *dtype,
                                       struct nd_shape *shape, struct nd_error *err);

/* The elements, whichever of its fields holds them, 4-bit integers a byte each. data has room for all of them.
 * ND_E_IMPORT_FORMAT: another number of elements than the shape has, a value that the type cannot hold, two
 * fields. */
enum nd_status nd_tensorproto_unpack(const Onnx__TensorProto *proto, const char *path, enum nd_dtype dtype,
                                     const struct nd_shape *shape, void *data, struct nd_error *err);

#endif
