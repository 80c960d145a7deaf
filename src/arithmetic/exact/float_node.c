/* One node of a float graph by itself, and how errors of rounding grow in it: docs/science/theory.md#floats. */
#include "arithmetic/exact/float_node.h"

#include <string.h>

#include "arithmetic/exact/graph_internal.h"
#include "core/text/strbuf.h"

/* Numbers in a pooling window, at least; chosen. */
enum { WINDOW = 64 };

static const Onnx__NodeProto *proto_of(const struct nd_float_node *node)
{
    return node->proto;
}

static bool is_tensor_itself(const struct nd_exact_graph *g, size_t value, size_t *tensor)
{
    *tensor = g->model->tensor_of_value[value];
    return *tensor != ND_NO_INDEX &&
           strcmp(g->model->tensors[*tensor].onnx_name, g->model->graph.tensors[value].name) == 0;
}

/* Between quantised layers: what a DequantizeLinear makes of the quantised values of a tensor. */
static bool is_dequantised_tensor(const struct nd_exact_graph *g, size_t value, struct nd_float_node *node,
                                  size_t i)
{
    size_t tensor = g->model->tensor_of_value[value], maker = g->model->graph.tensors[value].producer;
    if (tensor == ND_NO_INDEX || maker == ND_NO_INDEX ||
        g->model->graph.nodes[maker].kind != ND_NODE_DEQUANTIZE)
        return false;
    node->inputs[i].index = tensor;
    node->inputs[i].quant = &g->model->tensors[tensor].quant;
    return node->inputs[i].quant->n > 0;
}

static bool find_input(const struct nd_exact_graph *g, size_t tensor, struct nd_float_node *node, size_t i)
{
    if (tensor == ND_NO_INDEX) {
        node->inputs[i].source = ND_FLOAT_OMITTED;
        return true;
    }
    if (g->constants[tensor].shape.rank >= 0) {
        node->inputs[i].source = ND_FLOAT_CONSTANT;
        node->inputs[i].constant = &g->constants[tensor];
        return true;
    }
    for (size_t k = 0; k < g->model->n_inputs; k++)
        if (strcmp(g->model->inputs[k].name, g->model->graph.tensors[tensor].name) == 0) {
            node->inputs[i].source = ND_FLOAT_INPUT;
            node->inputs[i].index = k;
            return true;
        }
    node->inputs[i].source = ND_FLOAT_TENSOR;
    if (is_tensor_itself(g, tensor, &node->inputs[i].index))
        return true;
    node->inputs[i].source = ND_FLOAT_QVALUES;
    return is_dequantised_tensor(g, tensor, node, i);
}

bool nd_float_node_find(const struct nd_exact_graph *g, size_t tensor, struct nd_float_node *out)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t value = nd_names_find(&graph->names, g->model->tensors[tensor].onnx_name);
    size_t maker = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    if (maker == ND_NO_INDEX || graph->nodes[maker].kind != ND_NODE_OTHER || graph->nodes[maker].is_constant)
        return false;
    const struct nd_graph_node *n = &graph->nodes[maker];
    *out = (struct nd_float_node){
        .proto = n->proto, .opset = g->model->opset, .n_inputs = n->n_inputs, .n_outputs = n->n_made};
    if (n->n_inputs > ND_FLOAT_OPERANDS || n->n_made > ND_FLOAT_OPERANDS || n->n_uses > n->n_inputs)
        return false;
    while (nd_graph_made(graph, maker, out->output) != value)
        out->output++;
    bool is_known = true;
    for (size_t i = 0; i < n->n_inputs && is_known; i++)
        is_known = find_input(g, nd_graph_used(graph, maker, i), out, i);
    return is_known;
}

enum nd_status nd_float_node_run(const struct nd_float_node *node, const struct nd_array *const *inputs,
                                 struct nd_array *out, struct nd_error *err)
{
    struct nd_array made[ND_FLOAT_OPERANDS] = {0}, *outputs[ND_FLOAT_OPERANDS];
    for (size_t i = 0; i < node->n_outputs; i++)
        outputs[i] = i == node->output ? out : &made[i];
    const struct nd_op_call call = {.node = proto_of(node),
                                    .opset = node->opset,
                                    .n_inputs = node->n_inputs,
                                    .n_outputs = node->n_outputs,
                                    .inputs = inputs,
                                    .outputs = outputs};
    enum nd_status status = nd_op_run(&call, err);
    for (size_t i = 0; i < node->n_outputs; i++)
        nd_array_deinit(&made[i]);
    return status;
}

/* Of a product: numbers of the weights that belong to one value. */
static size_t terms_of_product(const struct nd_float_node *node, const struct nd_array *const *inputs)
{
    const struct nd_shape *a = &inputs[0]->shape, *w = &inputs[node->n_inputs > 1 ? 1 : 0]->shape;
    const char *op = nd_onnx_text(proto_of(node)->op_type);
    if (strcmp(op, "Conv") == 0)
        return w->rank > 0 ? nd_dims_product(w, 1, w->rank) : 1;
    if (strcmp(op, "ConvTranspose") == 0)
        return w->rank > 2 ? (size_t)w->dims[0] * nd_dims_product(w, 2, w->rank) : 1;
    if (strcmp(op, "Gemm") == 0 && nd_onnx_attribute_i(proto_of(node), "transA", 0) != 0)
        return (size_t)a->dims[0];
    return a->rank > 0 ? (size_t)a->dims[a->rank - 1] : 1;
}

bool nd_float_is_product(const struct nd_float_node *node)
{
    return ND_IS_ONE_OF(proto_of(node)->op_type, "Conv", "ConvTranspose", "Gemm", "MatMul");
}

enum nd_float_growth nd_float_node_growth(const struct nd_float_node *node,
                                          const struct nd_array *const *inputs, const struct nd_array *out,
                                          size_t *n_terms)
{
    const char *op = nd_onnx_text(proto_of(node)->op_type);
    *n_terms = 1;
    if (node->n_inputs == 0 || inputs[0] == NULL)
        return ND_FLOAT_OF_ELEMENTS;
    if (nd_float_is_product(node)) {
        *n_terms = terms_of_product(node, inputs);
        return ND_FLOAT_OF_SUMS;
    }
    /* No value is made of more than all of them. */
    size_t all = inputs[0]->n > 0 ? inputs[0]->n : 1;
    if (ND_IS_ONE_OF(op, "Einsum", "AveragePool", "GlobalAveragePool", "ReduceSum", "ReduceMean", "CumSum",
                     "Sum", "Mean")) {
        *n_terms = out->n > 0 && out->n < all ? 2 * (all / out->n) : all;
        if (*n_terms < WINDOW && all > WINDOW) /* windows overlap */
            *n_terms = WINDOW;
        return ND_FLOAT_OF_SUMS;
    }
    /* A place is off by three roundings of the largest place, and the value by that part of its neighbours'
     * difference. */
    if (ND_IS_ONE_OF(op, "Resize", "Upsample", "GridSample")) {
        for (int i = 2; i < out->shape.rank; i++)
            *n_terms = out->shape.dims[i] > (int64_t)*n_terms ? (size_t)out->shape.dims[i] : *n_terms;
        *n_terms *= 9 * *n_terms;
        return ND_FLOAT_OF_ROWS;
    }
    if (ND_IS_ONE_OF(op, "Softmax", "LogSoftmax", "LayerNormalization", "InstanceNormalization",
                     "GroupNormalization", "LRN", "LpNormalization", "ReduceL2", "ReduceLogSumExp",
                     "ReduceSumSquare", "RMSNormalization", "ReduceL1", "ReduceProd", "LpPool", "GlobalLpPool",
                     "LSTM", "GRU", "RNN", "SimplifiedLayerNormalization")) {
        int64_t last = inputs[0]->shape.rank > 0 ? inputs[0]->shape.dims[inputs[0]->shape.rank - 1] : 1;
        *n_terms = out->n > 0 && out->n < all ? 2 * (all / out->n) : (size_t)(last > 0 ? last : 1);
        return ND_FLOAT_OF_ROWS;
    }
    return ND_FLOAT_OF_ELEMENTS;
}

enum nd_float_inside nd_float_node_inside(const struct nd_float_node *node)
{
    const char *op = nd_onnx_text(proto_of(node)->op_type);
    if (ND_IS_ONE_OF(op, "Celu", "Elu", "Selu", "HardSigmoid", "Sigmoid", "Softmax", "Tanh", "Erf"))
        return ND_FLOAT_ONE_INSIDE;
    return ND_IS_ONE_OF(op, "Gelu", "BiasGelu", "FastGelu", "QuickGelu", "HardSwish", "Mish", "LogSoftmax",
                        "Softplus")
               ? ND_FLOAT_INPUT_INSIDE
               : ND_FLOAT_NOTHING_INSIDE;
}
