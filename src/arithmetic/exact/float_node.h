/* One node of a float graph by itself: what makes a tensor, worked out from any values of what it reads. */
#pragma once

#include "arithmetic/exact/eval_graph.h"

enum { ND_FLOAT_OPERANDS = 16 };

enum nd_float_source {
    ND_FLOAT_OMITTED,
    ND_FLOAT_CONSTANT, /* `constant` */
    ND_FLOAT_INPUT,    /* of the model: `index` */
    ND_FLOAT_TENSOR,   /* of the model: `index` */
    ND_FLOAT_QVALUES,  /* the same, of quantised values: `quant` dequantises them */
};

struct nd_float_node {
    const void *proto; /* Onnx__NodeProto */
    int64_t opset;
    size_t n_inputs, n_outputs, output; /* which output the tensor is */
    struct {
        enum nd_float_source source;
        size_t index;
        const struct nd_array *constant;
        const struct nd_quant *quant;
    } inputs[ND_FLOAT_OPERANDS];
};

/* How errors of rounding grow in it. */
enum nd_float_growth {
    ND_FLOAT_OF_SUMS,     /* sums of products of its inputs: linear in each */
    ND_FLOAT_OF_ROWS,     /* a function of a whole row, such as Softmax */
    ND_FLOAT_OF_ELEMENTS, /* each value by itself */
};

/* The node that makes the tensor. False: a quantiser makes it, or it reads what is no tensor, input or
 * constant. */
bool nd_float_node_find(const struct nd_exact_graph *graph, size_t tensor, struct nd_float_node *out);

/* Values of the tensor from those of the inputs, NULL where one is omitted. *out is zeroed before and freed by
 * the caller in any case. ND_ERR_UNSUPPORTED and others of nd_op_run. */
enum nd_status nd_float_node_run(const struct nd_float_node *node, const struct nd_array *const *inputs,
                                 struct nd_array *out, struct nd_error *err);

/* Functions that are made of a number near 1 from which another is taken, or of a product of their input with
 * one: what is rounded then is that number, however small the result is. */
enum nd_float_inside {
    ND_FLOAT_NOTHING_INSIDE,
    ND_FLOAT_ONE_INSIDE,   /* Sigmoid, Elu ... */
    ND_FLOAT_INPUT_INSIDE, /* Gelu, HardSwish ... */
};
enum nd_float_inside nd_float_node_inside(const struct nd_float_node *node);

/* *n_terms: how many numbers are added up for one value, at most. */
bool nd_float_is_product(const struct nd_float_node *node); /* Conv, ConvTranspose, Gemm, MatMul */
enum nd_float_growth nd_float_node_growth(const struct nd_float_node *node,
                                          const struct nd_array *const *inputs, const struct nd_array *out,
                                          size_t *n_terms);
