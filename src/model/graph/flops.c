/* Floating point operations of one node. Of an integer model they are operations on codes: the same number. */
#include <math.h>
#include <string.h>

#include "core/text/strbuf.h"
#include "model/graph/infer.h"

struct node_view {
    const struct nd_graph *graph;
    const Onnx__NodeProto *proto;
    const struct nd_tensor_info *infos;
    size_t node;
};

static const struct nd_tensor_info *input(const struct node_view *view, size_t i)
{
    return nd_infer_input(view->graph, view->node, i, view->infos);
}

static const struct nd_tensor_info *output(const struct node_view *view)
{
    return nd_infer_output(view->graph, view->node, 0, view->infos);
}

/* Product of dimensions [1, rank) of a shape. */
static double product(const struct nd_shape *shape)
{
    double n = shape->rank < 0 ? (double)NAN : 1;
    for (int i = 1; i < shape->rank; i++)
        n *= (double)shape->dims[i];
    return n;
}

/* 2 N Co Ho Wo (Ci / g) k: the weights of one output channel are w[1:]. */
static double conv(const struct node_view *view)
{
    return 2 * nd_infer_elems(output(view)) * product(&input(view, 1)->shape);
}

/* 2 N Ci Hi Wi (Co / g) k: every input value meets the weights of its channel, w[1:]. */
static double conv_transpose(const struct node_view *view)
{
    return 2 * nd_infer_elems(input(view, 0)) * product(&input(view, 1)->shape);
}

static double matmul(const struct node_view *view)
{
    const struct nd_shape *a = &input(view, 0)->shape;
    return a->rank < 1 ? (double)NAN : 2 * nd_infer_elems(output(view)) * (double)a->dims[a->rank - 1];
}

static double gemm(const struct node_view *view)
{
    const struct nd_shape *a = &input(view, 0)->shape;
    bool is_transposed = nd_onnx_attribute_i(view->proto, "transA", 0) != 0;
    return a->rank != 2 ? (double)NAN
                        : 2 * nd_infer_elems(output(view)) * (double)a->dims[is_transposed ? 0 : 1];
}

static double einsum(const struct node_view *view)
{
    struct nd_einsum sum;
    if (!nd_infer_einsum(view->graph, view->node, view->infos, &sum) || sum.n_operands > 2)
        return (double)NAN;
    double all = 1;
    bool is_reduced = false;
    for (size_t c = 0; c < sizeof sum.size / sizeof sum.size[0]; c++) {
        all *= sum.size[c] > 0 ? sum.size[c] : 1;
        is_reduced = is_reduced || (sum.size[c] > 0 && !sum.in_output[c]);
    }
    if (sum.n_operands == 1)
        return is_reduced ? all : 0;
    return is_reduced ? 2 * all : all;
}

static double pooling(const struct node_view *view)
{
    const Onnx__AttributeProto *kernel = nd_onnx_attribute(view->proto, "kernel_shape");
    double k = 1;
    if (kernel == NULL)
        return (double)NAN;
    for (size_t i = 0; i < kernel->n_ints; i++)
        k *= (double)kernel->ints[i];
    return nd_infer_elems(output(view)) * k;
}

static double per_input(const struct node_view *view)
{
    return nd_infer_elems(input(view, 0));
}

static double softmax(const struct node_view *view)
{
    return 5 * nd_infer_elems(output(view));
}

static double normalisation(const struct node_view *view)
{
    return 8 * nd_infer_elems(output(view));
}

static double nothing(const struct node_view *view)
{
    (void)view;
    return 0;
}

static const struct {
    const char *ops;
    double (*rule)(const struct node_view *view);
} rules[] = {
    {"AveragePool LpPool MaxPool", pooling},
    {"BatchNormalization GroupNormalization InstanceNormalization LRN LayerNormalization "
     "MeanVarianceNormalization RMSNormalization",
     normalisation},
    {"Cast Concat Constant ConstantOfShape DepthToSpace Dropout Expand Flatten Gather GatherElements "
     "GatherND Identity Pad Reshape ScatterElements ScatterND Shape Size Slice SpaceToDepth Split "
     "Squeeze Tile Transpose Unsqueeze",
     nothing},
    {"Conv ConvInteger", conv},
    {"ConvTranspose", conv_transpose},
    {"CumSum GlobalAveragePool GlobalLpPool GlobalMaxPool", per_input},
    {"Einsum", einsum},
    {"Gemm", gemm},
    {"LogSoftmax Softmax", softmax},
    {"MatMul MatMulInteger", matmul},
};

double nd_node_flops(const struct nd_graph *graph, size_t node, const struct nd_tensor_info *infos)
{
    const struct node_view view = {graph, graph->nodes[node].proto, infos, node};
    const char *domain = nd_onnx_domain(view.proto->domain);
    if (domain[0] != '\0' && strcmp(domain, "com.microsoft") != 0)
        return (double)NAN;
    if (nd_infer_is_elementwise(view.proto))
        return nd_infer_elems(output(&view));
    if (strncmp(view.proto->op_type, "Reduce", 6) == 0)
        return per_input(&view);
    for (size_t i = 0; i < sizeof rules / sizeof rules[0]; i++)
        if (nd_has_word(rules[i].ops, view.proto->op_type))
            return rules[i].rule(&view);
    return (double)NAN;
}
