/* What the integer accumulator of a layer counts. */
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/memory.h"

/* The operator of the layer that makes the tensor, past Relu and Clip, or ND_NO_INDEX. */
static size_t find_operator(const struct nd_exact_graph *g, size_t tensor)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t value = nd_names_find(&graph->names, g->model->tensors[tensor].onnx_name);
    size_t node = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    bool is_inside = node != ND_NO_INDEX && graph->nodes[node].kind == ND_NODE_QUANTIZE;
    while (is_inside) {
        value = nd_graph_used(graph, node, 0);
        node = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
        const char *op_type = node != ND_NO_INDEX ? nd_onnx_text(graph->nodes[node].proto->op_type) : "";
        is_inside = strcmp(op_type, "Relu") == 0 || strcmp(op_type, "Clip") == 0;
    }
    return node;
}

/* The scales of the DequantizeLinear that makes input i, or NULL. */
static const struct nd_quant *input_quant(const struct nd_exact_graph *g, size_t node, size_t i)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_graph_used(graph, node, i);
    size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        g->quants[producer].quant.n == 0)
        return NULL;
    return &g->quants[producer].quant;
}

/* Sums times alpha are no accumulator. */
static bool is_plain_product(const Onnx__NodeProto *node)
{
    const char *op_type = nd_onnx_text(node->op_type);
    if (strcmp(op_type, "Gemm") != 0)
        return strcmp(op_type, "Conv") == 0 || strcmp(op_type, "MatMul") == 0;
    const Onnx__AttributeProto *alpha = nd_onnx_attribute(node, "alpha");
    const Onnx__AttributeProto *beta = nd_onnx_attribute(node, "beta");
    return (alpha == NULL || alpha->f == 1) && (beta == NULL || beta->f == 1);
}

enum nd_status nd_exact_accumulator_steps(const struct nd_exact_graph *g, size_t tensor, struct nd_wide **out,
                                          size_t *n, struct nd_error *err)
{
    const char *name = g->model->tensors[tensor].name;
    size_t node = find_operator(g, tensor);
    const struct nd_quant *left = NULL, *right = NULL;
    if (node != ND_NO_INDEX && is_plain_product(g->model->graph.nodes[node].proto)) {
        left = input_quant(g, node, 0);
        right = input_quant(g, node, 1);
    }
    if (left == NULL || right == NULL || left->n != 1)
        return nd_fail(
            err, ND_E_EXACT_OPERATOR, name,
            "the layer of '%s' is no Conv, Gemm or MatMul of quantised values: it has no integer accumulator",
            name);
    struct nd_wide *steps = nd_calloc(right->n, sizeof *steps);
    if (steps == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < right->n; i++)
        steps[i] = nd_wide_product((double)left->scale[0], (double)right->scale[i]);
    *out = steps;
    *n = right->n;
    return ND_OK;
}
