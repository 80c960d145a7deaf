/* The list of operators, and what all of them share.
 *
 * Every value is a double whatever the graph calls it, and nothing is rounded to a narrower float type, not
 * even by Cast. Sums are added up in plain double in order (C order of the summed axes), starting from 0: their
 * relative error is at most about n * 2^-53 of the sum of the magnitudes. exp, log, tanh, erf and the like are
 * the C library's, which are off by about one unit in the last place of a double. Attributes are single
 * precision in ONNX; the reference takes them, and the defaults of the specification, as the floats they are.
 * NaN goes through minima, maxima and pooling. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/memory.h"
#include "model/graph/graph.h"

#define MS "com.microsoft"

static const struct nd_op ops[] = {
    {"", "QuantizeLinear", 2, nd_op_quantize},
    {MS, "QuantizeLinear", 2, nd_op_quantize},
    {"", "DequantizeLinear", 2, nd_op_dequantize},
    {MS, "DequantizeLinear", 2, nd_op_dequantize},

    {"", "Conv", 2, nd_op_conv},
    {"", "ConvTranspose", 2, nd_op_conv_transpose},
    {"", "Gemm", 2, nd_op_gemm},
    {"", "MatMul", 2, nd_op_matmul},
    {"", "Einsum", 1, nd_op_einsum},

    {"", "Add", 2, nd_op_binary},
    {"", "Sub", 2, nd_op_binary},
    {"", "Mul", 2, nd_op_binary},
    {"", "Div", 2, nd_op_binary},
    {"", "Pow", 2, nd_op_binary},
    {"", "Mod", 2, nd_op_binary},
    {"", "Equal", 2, nd_op_binary},
    {"", "Less", 2, nd_op_binary},
    {"", "LessOrEqual", 2, nd_op_binary},
    {"", "Greater", 2, nd_op_binary},
    {"", "GreaterOrEqual", 2, nd_op_binary},
    {"", "And", 2, nd_op_binary},
    {"", "Or", 2, nd_op_binary},
    {"", "Xor", 2, nd_op_binary},
    {"", "PRelu", 2, nd_op_binary},
    {"", "Min", 1, nd_op_variadic},
    {"", "Max", 1, nd_op_variadic},
    {"", "Sum", 1, nd_op_variadic},
    {"", "Mean", 1, nd_op_variadic},
    {"", "Where", 3, nd_op_where},

    {"", "Abs", 1, nd_op_unary},
    {"", "Acos", 1, nd_op_unary},
    {"", "Acosh", 1, nd_op_unary},
    {"", "Asin", 1, nd_op_unary},
    {"", "Asinh", 1, nd_op_unary},
    {"", "Atan", 1, nd_op_unary},
    {"", "Atanh", 1, nd_op_unary},
    {"", "Ceil", 1, nd_op_unary},
    {"", "Celu", 1, nd_op_unary},
    {"", "Cos", 1, nd_op_unary},
    {"", "Cosh", 1, nd_op_unary},
    {"", "Elu", 1, nd_op_unary},
    {"", "Erf", 1, nd_op_unary},
    {"", "Exp", 1, nd_op_unary},
    {"", "Floor", 1, nd_op_unary},
    {"", "HardSigmoid", 1, nd_op_unary},
    {"", "HardSwish", 1, nd_op_unary},
    {"", "IsInf", 1, nd_op_unary},
    {"", "IsNaN", 1, nd_op_unary},
    {"", "LeakyRelu", 1, nd_op_unary},
    {"", "Log", 1, nd_op_unary},
    {"", "Mish", 1, nd_op_unary},
    {"", "Neg", 1, nd_op_unary},
    {"", "Not", 1, nd_op_unary},
    {"", "Reciprocal", 1, nd_op_unary},
    {"", "Relu", 1, nd_op_unary},
    {"", "Round", 1, nd_op_unary},
    {"", "Selu", 1, nd_op_unary},
    {"", "Shrink", 1, nd_op_unary},
    {"", "Sigmoid", 1, nd_op_unary},
    {"", "Sign", 1, nd_op_unary},
    {"", "Sin", 1, nd_op_unary},
    {"", "Sinh", 1, nd_op_unary},
    {"", "Softplus", 1, nd_op_unary},
    {"", "Softsign", 1, nd_op_unary},
    {"", "Sqrt", 1, nd_op_unary},
    {"", "Tan", 1, nd_op_unary},
    {"", "Tanh", 1, nd_op_unary},
    {"", "ThresholdedRelu", 1, nd_op_unary},
    {MS, "QuickGelu", 1, nd_op_unary},
    {"", "Clip", 1, nd_op_clip},
    {"", "Gelu", 1, nd_op_gelu},
    {MS, "Gelu", 1, nd_op_gelu},
    {MS, "BiasGelu", 2, nd_op_bias_gelu},
    {MS, "FastGelu", 1, nd_op_bias_gelu},

    {"", "AveragePool", 1, nd_op_pool},
    {"", "LpPool", 1, nd_op_pool},
    {"", "MaxPool", 1, nd_op_pool},
    {"", "GlobalAveragePool", 1, nd_op_global_pool},
    {"", "GlobalLpPool", 1, nd_op_global_pool},
    {"", "GlobalMaxPool", 1, nd_op_global_pool},

    {"", "ReduceL1", 1, nd_op_reduce},
    {"", "ReduceL2", 1, nd_op_reduce},
    {"", "ReduceLogSum", 1, nd_op_reduce},
    {"", "ReduceLogSumExp", 1, nd_op_reduce},
    {"", "ReduceMax", 1, nd_op_reduce},
    {"", "ReduceMean", 1, nd_op_reduce},
    {"", "ReduceMin", 1, nd_op_reduce},
    {"", "ReduceProd", 1, nd_op_reduce},
    {"", "ReduceSum", 1, nd_op_reduce},
    {"", "ReduceSumSquare", 1, nd_op_reduce},
    {"", "ArgMax", 1, nd_op_arg},
    {"", "ArgMin", 1, nd_op_arg},
    {"", "CumSum", 2, nd_op_cumsum},
    {"", "Hardmax", 1, nd_op_softmax},
    {"", "LogSoftmax", 1, nd_op_softmax},
    {"", "Softmax", 1, nd_op_softmax},
    {"", "TopK", 2, nd_op_topk},

    {"", "BatchNormalization", 5, nd_op_batch_norm},
    {"", "GroupNormalization", 3, nd_op_group_norm},
    {"", "InstanceNormalization", 3, nd_op_group_norm},
    {"", "LRN", 1, nd_op_lrn},
    {"", "LayerNormalization", 2, nd_op_layer_norm},
    {"", "LpNormalization", 1, nd_op_lp_norm},
    {"", "RMSNormalization", 2, nd_op_layer_norm},
    {"", "SimplifiedLayerNormalization", 2, nd_op_layer_norm}, /* ONNX Runtime has it in the default domain */
    {MS, "SkipLayerNormalization", 3, nd_op_skip_norm},
    {MS, "SkipSimplifiedLayerNormalization", 3, nd_op_skip_norm},

    {"", "Concat", 1, nd_op_concat},
    {"", "DepthToSpace", 1, nd_op_depth_to_space},
    {"", "Dropout", 1, nd_op_dropout},
    {"", "Expand", 2, nd_op_expand},
    {"", "Flatten", 1, nd_op_flatten},
    {"", "Gather", 2, nd_op_gather},
    {"", "GatherElements", 2, nd_op_gather_elements},
    {"", "GatherND", 2, nd_op_gather_nd},
    {"", "Identity", 1, nd_op_identity},
    {"", "OneHot", 3, nd_op_one_hot},
    {"", "Pad", 1, nd_op_pad},
    {"", "Reshape", 1, nd_op_reshape},
    {"", "Resize", 1, nd_op_resize},
    {"", "Shape", 1, nd_op_shape},
    {"", "Size", 1, nd_op_size},
    {"", "Slice", 1, nd_op_slice},
    {"", "SpaceToDepth", 1, nd_op_space_to_depth},
    {"", "Split", 1, nd_op_split},
    {"", "Squeeze", 1, nd_op_squeeze},
    {"", "Tile", 2, nd_op_tile},
    {"", "Transpose", 1, nd_op_transpose},
    {"", "Trilu", 1, nd_op_trilu},
    {"", "Unsqueeze", 1, nd_op_unsqueeze},
    {"", "Upsample", 1, nd_op_resize},

    {"", "Scatter", 3, nd_op_scatter_elements},
    {"", "ScatterElements", 3, nd_op_scatter_elements},
    {"", "ScatterND", 3, nd_op_scatter_nd},
    {"", "GridSample", 2, nd_op_grid_sample},

    {"", "GRU", 3, nd_op_recurrent},
    {"", "LSTM", 3, nd_op_recurrent},
    {"", "RNN", 3, nd_op_recurrent},

    {"", "ConvInteger", 2, nd_op_integer_conv},
    {"", "QLinearConv", 8, nd_op_integer_conv},
    {"", "MatMulInteger", 2, nd_op_integer_matmul},
    {"", "QLinearMatMul", 8, nd_op_integer_matmul},

    {"", "Cast", 1, nd_op_cast},
    {"", "CastLike", 2, nd_op_cast},
    {"", "Constant", 0, nd_op_constant},
    {"", "ConstantOfShape", 1, nd_op_constant_of_shape},
    {"", "Range", 3, nd_op_range},
};

const struct nd_op *nd_op_find(const char *domain, const char *op_type)
{
    const char *wanted = nd_onnx_domain(domain);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        if (strcmp(ops[i].op_type, op_type) == 0 && strcmp(ops[i].domain, wanted) == 0)
            return &ops[i];
    return NULL;
}

bool nd_op_is_function(const Onnx__NodeProto *node)
{
    const struct nd_op *op = nd_op_find(node->domain, nd_onnx_text(node->op_type));
    return op != NULL && node->n_input == 1 && (op->run == nd_op_unary || op->run == nd_op_gelu);
}

/* A zeroed array has the shape of one element, and none. */
static bool is_made(const struct nd_array *array)
{
    return array->n == nd_dims_product(&array->shape, 0, array->shape.rank);
}

static enum nd_status run(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_op *op = nd_op_find(call->node->domain, nd_onnx_text(call->node->op_type));
    if (op == NULL)
        return nd_op_unsupported(call, err, "the operator is not evaluated in double precision");
    for (size_t i = 0; i < op->n_required; i++)
        if (nd_op_in(call, i) == NULL)
            return nd_op_misfit(call, err, "input %zu is missing", i);
    if (nd_op_out(call, 0) == NULL && op->run != nd_op_recurrent) /* of which the last state may do */
        return nd_op_unsupported(call, err, "its first output is omitted");
    enum nd_status status = op->run(call, err);
    for (size_t i = 0; i < call->n_outputs && status == ND_OK; i++)
        if (call->outputs[i] != NULL && !is_made(call->outputs[i]))
            status = nd_op_unsupported(call, err, "its output %zu is not evaluated", i);
    return status;
}

enum nd_status nd_op_run(const struct nd_op_call *call, struct nd_error *err)
{
    enum nd_status status = run(call, err);
    if (status != ND_OK)
        nd_error_context(err, "node '%s' (%s)", nd_graph_node_name(call->node),
                         nd_onnx_text(call->node->op_type));
    return status;
}
