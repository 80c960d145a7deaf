/* Reading ONNX protobufs: bytes to message, and what single messages say. */
#pragma once

#include "core/error.h"
#include "npudiff/core/tensor.h"
#include "onnx.pb-c.h"

/* Decodes a model file. Nothing but a model with an IR version and a graph that has a node or an output passes;
 * the rest is ND_E_MODEL_PARSE, the message naming path. Free *out with onnx__model_proto__free_unpacked(..,
 * NULL).
 *
 * libprotobuf-c recurses without a limit, merges repeated parts in quadratic time and cuts text at a NUL; files
 * that would make it do so are refused before it sees them. */
enum nd_status nd_onnx_decode(const char *path, const void *bytes, size_t size_bytes, Onnx__ModelProto **out,
                              struct nd_error *err);

/* Decodes a TensorProto of its own, such as ONNX's test data, with the same care. ND_E_MODEL_PARSE, the
 * message naming path. Free *out with onnx__tensor_proto__free_unpacked(.., NULL). */
enum nd_status nd_onnx_decode_tensor(const char *path, const void *bytes, size_t size_bytes,
                                     Onnx__TensorProto **out, struct nd_error *err);

/* Calls visit for every TensorProto anywhere in the message (initializers, attributes, subgraphs, functions)
 * until it returns something else than ND_OK; returns that. */
enum nd_status nd_onnx_visit_tensors(const ProtobufCMessage *message,
                                     enum nd_status (*visit)(const Onnx__TensorProto *tensor, void *context,
                                                             struct nd_error *err),
                                     void *context, struct nd_error *err);

/* ND_E_MODEL_UNSUPPORTED when a name anywhere in the message is longer than ND_MAX_NAME_BYTES. */
enum nd_status nd_onnx_check_names(const ProtobufCMessage *message, struct nd_error *err);

/* text, or "" for NULL: absent and empty protobuf text mean the same. */
const char *nd_onnx_text(const char *text);

/* ONNX's element type, or ND_DTYPE_NONE for those that cannot be captured here (strings, complex, 8-bit floats,
 * 4-bit integers...), though captures made elsewhere may hold some of them. */
enum nd_dtype nd_onnx_dtype(int32_t elem_type);

/* The tensor type of a value, or NULL when it has none (no type at all, a sequence, a map, an optional). */
const Onnx__TypeProto__Tensor *nd_onnx_tensor_type(const Onnx__ValueInfoProto *value);

/* The declared shape: rank -1 where none is declared, -1 for a dynamic dimension. ND_E_MODEL_UNSUPPORTED for a
 * rank over ND_MAX_RANK; name is for the message. type is nullable. */
enum nd_status nd_onnx_shape(const Onnx__TypeProto__Tensor *type, const char *name, struct nd_shape *shape,
                             struct nd_error *err);

/* How many elements its dimensions say; false when one is negative or the product does not fit. */
bool nd_onnx_n_elems(const Onnx__TensorProto *tensor, size_t *out);

/* The attribute of that name, or NULL. */
const Onnx__AttributeProto *nd_onnx_attribute(const Onnx__NodeProto *node, const char *name);

/* Its value, or otherwise when it is absent. A writer of proto3 leaves a zero out: then the type alone says
 * that it is there. */
int64_t nd_onnx_attribute_i(const Onnx__NodeProto *node, const char *name, int64_t otherwise);
double nd_onnx_attribute_f(const Onnx__NodeProto *node, const char *name, double otherwise);

/* Whether the attribute, which may be NULL, holds one integer. */
bool nd_onnx_is_integer(const Onnx__AttributeProto *attribute);

/* Whether the operator only moves values: its outputs hold values of its first input, so that their quantised
 * values can only be the same. */
bool nd_onnx_is_mover(const Onnx__NodeProto *node);

/* Whether operators of this type take quantised values themselves (ONNX Runtime's QOperator format). */
bool nd_onnx_is_qoperator(const char *op_type);

/* The domain with the two spellings of the default one made equal: "ai.onnx" is "". Never NULL. */
const char *nd_onnx_domain(const char *domain);
