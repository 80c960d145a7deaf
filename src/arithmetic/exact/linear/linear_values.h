/* What linear layers read and give. Each family first makes the exact real values, as quotients of a number
 * and a positive double divisor; nd_linear_layer then applies bounds and the scale of the output. */
#pragma once

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/operators/ops_shared.h"

/* Sums of whole numbers below it are exact in doubles, in any order. */
#define ND_LINEAR_LARGEST 0x1p53

enum nd_status nd_linear_unsupported(const struct nd_linear_call *call, struct nd_error *err, const char *text);

/* The values are left quick: the caller fills `quick`, whose divisor and sign are 1. */
enum nd_status nd_linear_make_quick(struct nd_linear_result *result, const struct nd_shape *shape,
                                    enum nd_quick_kind kind, struct nd_error *err);
/* Room for the values of an output of that shape: all are 0 / 1. */
enum nd_status nd_linear_make(struct nd_linear_result *result, const struct nd_shape *shape,
                              struct nd_error *err);

bool nd_linear_has(const struct nd_linear_call *call, size_t i);
size_t nd_linear_n_scales(const struct nd_linear_input *input); /* 1 for values without quantisation */
double nd_linear_scale(const struct nd_linear_input *input, size_t channel);

/* The axis that the scales of a tensor of that shape belong to, -1 with one scale for all. *n_inner is the
 * number of elements that follow each other and share a scale. ND_E_EXACT_SHAPE: the number of scales does not
 * fit. */
enum nd_status nd_linear_layout(const struct nd_quant *quant, const struct nd_shape *shape, int *axis,
                                size_t *n_inner, struct nd_error *err);

/* Input i in real numbers: quantised values of up to 29 bits times a float32 are exact in double. */
enum nd_status nd_linear_reals(const struct nd_linear_call *call, size_t i, struct nd_array *out,
                               struct nd_error *err);
/* Input i in whole numbers: quantised values less zero point, or values without quantisation that have no
 * fraction. *largest is the largest magnitude. */
enum nd_status nd_linear_packed_weights(const struct nd_linear_call *call, size_t i, struct nd_array *out,
                                        double *largest, struct nd_error *err);

/* The same without a copy where there is one already: *out is borrowed, or else `own`, which the caller frees.
 */
enum nd_status nd_linear_borrow_packed_weights(const struct nd_linear_call *call, size_t i,
                                               struct nd_array *own, const struct nd_array **out,
                                               double *largest, struct nd_error *err);
/* Of a Conv, Gemm or MatMul: the sums of x and the weights, both of nd_linear_borrow_packed_weights; node:
 * without what scales sums. Shared where they can be. */
enum nd_status nd_linear_add_up(const struct nd_linear_call *call, const Onnx__NodeProto *node,
                                const struct nd_array *const operands[2], struct nd_array *own,
                                const struct nd_array **out, struct nd_error *err);

/* Runs an operator (the node of the call, or what is made of it) for one output. */
enum nd_status nd_linear_run(const struct nd_linear_call *call, const Onnx__NodeProto *node,
                             const struct nd_array *const *inputs, size_t n_inputs, struct nd_array *out,
                             struct nd_error *err);

/* linear_product.c: the real values of a Conv, ConvTranspose, Gemm or MatMul, as nd_linear_make has them. */
enum nd_status nd_linear_product(const struct nd_linear_call *call, struct nd_linear_result *result,
                                 struct nd_error *err);
