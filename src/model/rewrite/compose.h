/* Writing small ONNX models: a probe of one operator, say, made to order.
 *
 *     struct nd_compose *c = NULL;
 *     nd_compose_create(21, &c, err);
 *     nd_compose_input(c, "x", ND_DTYPE_U8, &shape);
 *     nd_compose_constant(c, "w", ND_DTYPE_U8, &shape, quantised values);
 *     nd_compose_node(c, "MatMulInteger", (const char *[]){"x", "w", NULL}, "y");
 *     nd_compose_output(c, "y", ND_DTYPE_I32, &shape);
 *     status = nd_compose_write(c, path, err);
 *
 * Nothing between create and write reports: what went wrong (memory) is told by nd_compose_write. Everything
 * given is copied. Nodes are called after their output. */
#pragma once

#include "core/error.h"
#include "npudiff/core/tensor.h"

struct nd_compose;

enum nd_status nd_compose_create(int64_t opset, struct nd_compose **out, struct nd_error *err);
void nd_compose_destroy(struct nd_compose **compose);

void nd_compose_input(struct nd_compose *compose, const char *name, enum nd_dtype dtype,
                      const struct nd_shape *shape);
void nd_compose_output(struct nd_compose *compose, const char *name, enum nd_dtype dtype,
                       const struct nd_shape *shape);
/* data: the elements in C order, little endian, one byte or more each. */
void nd_compose_constant(struct nd_compose *compose, const char *name, enum nd_dtype dtype,
                         const struct nd_shape *shape, const void *data);

/* A node with one output; inputs end with NULL, "" is an omitted one. Nodes are given in topological order. */
void nd_compose_node(struct nd_compose *compose, const char *op_type, const char *const *inputs,
                     const char *output);

/* Attributes of the last node. */
void nd_compose_attribute_i(struct nd_compose *compose, const char *name, int64_t value);
void nd_compose_attribute_ints(struct nd_compose *compose, const char *name, const int64_t *values, size_t n);
void nd_compose_attribute_f(struct nd_compose *compose, const char *name, float value);
void nd_compose_attribute_s(struct nd_compose *compose, const char *name, const char *value);

/* Quantised values to floats and back: constants "<output>_scale" and "<output>_zero_point" and a node between
 * input and output. quant has one scale, or one per place along quant->axis; quantised values are of dtype. */
void nd_compose_dequantize(struct nd_compose *compose, const char *input, const char *output,
                           const struct nd_quant *quant, enum nd_dtype dtype);
void nd_compose_quantize(struct nd_compose *compose, const char *input, const char *output,
                         const struct nd_quant *quant, enum nd_dtype dtype);

/* Writes the model as it is now; may be called again. Equal calls, equal bytes. ND_ERR_MEMORY, ND_ERR_IO. */
enum nd_status nd_compose_write(const struct nd_compose *compose, const char *path, struct nd_error *err);
