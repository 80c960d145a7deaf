/* The readers of foreign formats. That of qnn-net-run is in qnn/net_run.h. */
#pragma once

#include "model/graph/onnx.h"
#include "record/import/imported.h"

extern const struct nd_import_reader nd_import_numpy;
extern const struct nd_import_reader nd_import_raw;
extern const struct nd_import_reader nd_import_onnx_pb;
extern const struct nd_import_reader nd_import_aihub;
extern const struct nd_import_reader nd_import_polygraphy;

/* The reader of that name, or NULL. */
const struct nd_import_reader *nd_import_reader_find(const char *name);

/* ---- the values of an ONNX TensorProto ---- */

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
