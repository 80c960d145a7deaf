/* The exact value before rounding of layers whose operator is linear, bilinear, a quotient or a choice in its
 * inputs:
 *
 *     DequantizeLinear* -> operator -> [Relu | Clip]* -> QuantizeLinear
 *
 * v = real / scale of the output, without the output's zero point, as a quotient of exact numbers: what a
 * rule (rounding.h) turns into a quantised value. real means what the graph says in real arithmetic:
 * scale * (quantised value - zero point) for quantised values and the stored value of constants that are
 * floats, nothing rounded on the way.
 *
 *     struct nd_linear_input inputs[] = {{&x_codes, &x_quant}, {&w_codes, &w_quant}, {&bias_codes, &b_quant}};
 *     struct nd_linear_call call = {.node = conv, .opset = 21, .n_inputs = 3, .inputs = inputs,
 *                                   .low = -HUGE_VAL, .high = HUGE_VAL, .out_quant = &edge->quant};
 *     ... nd_linear_fold(relu, ..., &call.low, &call.high) for every Relu or Clip behind it ...
 *     nd_linear_layer(&call, &result, err);
 *     quantised value[i] = nd_qvalue_of_ratio(&result.v[i], zero_point, dtype, rounding);
 *
 * Operators:
 *     none (requantise);
 *     Conv, ConvTranspose, Gemm, MatMul: the weights per tensor or per output channel, the bias of quantised
 * values with scales of its own or of floats, any alpha and beta; Add, Sub, Mul, Div, Sum, PRelu, LeakyRelu,
 * HardSigmoid, HardSwish; AveragePool, GlobalAveragePool, ReduceMean, ReduceSum; what chooses or moves values:
 * MaxPool, ReduceMax, Min, Relu, Clip, Where, Concat, Slice, Transpose, Reshape, Gather, Pad, Resize to the
 * nearest and so on (the list is in linear_layer.c). */
#pragma once

#include "arithmetic/exact/linear/quick.h"
#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/array.h"
#include "model/graph/onnx.h"

struct nd_linear_input {
    /* Quantised values where quant is given, real numbers otherwise (floats, axes, shapes). NULL: an omitted
     * input. */
    const struct nd_array *values;
    const struct nd_quant *quant;
    /* Of constants, where somebody has prepared them: what nd_linear_packed_weights makes of the two. NULL:
     * nobody has. */
    const struct nd_array *packed_weights;
    double largest;
    const int16_t *shorts; /* `wholes` for nd_op_shorts, nothing without them; NULL: they do not fit */
};

enum { ND_EXACT_LINK_INPUTS = 6, ND_EXACT_MAX_LINKS = 12 };
/* An operator inside of a layer that has several between its quantised inputs and what is quantised. */
struct nd_exact_link {
    const Onnx__NodeProto *node;
    size_t n_inputs;
    struct nd_linear_input inputs[ND_EXACT_LINK_INPUTS]; /* no values: left out, or made by a link */
    size_t from[ND_EXACT_LINK_INPUTS];                   /* the link that makes the input; SIZE_MAX: none */
    size_t tensors[ND_EXACT_LINK_INPUTS];                /* that are read; SIZE_MAX for constants */
    bool is_constant[ND_EXACT_LINK_INPUTS], is_input[ND_EXACT_LINK_INPUTS]; /* of the graph, perhaps moved */
};

/* What those who look at one layer share, so that it is made once: input 0 in whole numbers, and of products
 * the sums of input 0 and input 1, both in whole numbers. Zeroed before; deinit behind. */
struct nd_linear_shared {
    struct nd_array x, sums; /* n = 0: not made yet */
    double largest;
};
void nd_linear_shared_deinit(struct nd_linear_shared *shared);

struct nd_linear_call {
    const Onnx__NodeProto *node; /* the operator; NULL: the output is inputs[0] with another quantisation */
    int64_t opset;
    size_t n_inputs;
    const struct nd_linear_input *inputs;
    size_t output;    /* which output of the node is meant (Split) */
    double low, high; /* bounds of the real value behind the operator, -HUGE_VAL and HUGE_VAL without */
    const struct nd_quant *out_quant; /* only its scales matter */
    struct nd_linear_shared *shared;  /* of these inputs; NULL: nothing is shared */
};

struct nd_linear_result {
    struct nd_shape shape;
    size_t n;
    struct nd_ratio *v;     /* [n] in C order, owned; NULL where they were left quick */
    struct nd_quick *quick; /* the same values, owned; NULL where v has them */
};

/* ND_ERR_UNSUPPORTED (ND_E_EXACT_OPERATOR), when the layer is to be evaluated in plain double instead: another
 * operator or domain; quantisation without scales (n = 0) or with scales that are not positive and finite;
 * scales per channel along an axis that is summed over, or of what is averaged; weights that are fractions;
 * sums that could reach 2^53 (2^21 terms of full 16-bit quantised values, 2^37 of 8-bit ones stay below it) or,
 * of means, 2^48; quantised values of over 29 bits in other places than a bias. ND_ERR_FORMAT
 * (ND_E_EXACT_SHAPE): shapes or numbers of scales that do not fit. ND_ERR_MEMORY. *result, which need not be
 * initialised, is written on success only; it needs nd_linear_deinit then. Threads may call at the same time.
 *
 * An output per channel has its own scale in every channel. v is infinite or NaN where Div divides by a
 * quantised value at the zero point, or where constants are: nd_round_ratio says what becomes of it. */
enum nd_status nd_linear_layer(const struct nd_linear_call *call, struct nd_linear_result *result,
                               struct nd_error *err);
/* The same, but the values may be left quick; they borrow call->shared. */
enum nd_status nd_linear_layer_quick(const struct nd_linear_call *call, struct nd_linear_result *result,
                                     struct nd_error *err);
void nd_linear_deinit(struct nd_linear_result *result);

/* Narrows bounds by a Relu or Clip that follows; inputs are those of the node (the first is not looked at and
 * may be omitted). False: another operator, or bounds that are not scalars; then nothing is changed. Apply in
 * graph order. */
bool nd_linear_fold(const Onnx__NodeProto *node, size_t n_inputs, const struct nd_linear_input *inputs,
                    double *low, double *high);
