/* Weights as products take them, made once for a graph. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "eval/graph_internal.h"
#include "eval/linear_families.h"

bool nd_exact_graph_is_pure(const struct nd_exact_graph *g)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && !graph->nodes[n].is_constant && graph->nodes[n].kind == ND_NODE_OTHER &&
            g->unit_of_node[n] == ND_NO_INDEX)
            return false;
    return true;
}

static bool is_product(const Onnx__NodeProto *node)
{
    static const char *const names[] = {"Conv", "ConvTranspose", "Gemm", "MatMul"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(nd_onnx_text(node->op_type), names[i]) == 0 && nd_onnx_domain(node->domain)[0] == 0)
            return true;
    return false;
}

/* The DequantizeLinear of constant codes that is the product's second operand, or ND_NO_INDEX. */
static size_t find_weights(const struct nd_exact_graph *g, size_t node)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t tensor = nd_exact_used(graph, node, 1);
    size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        g->quants[producer].quant.n == 0)
        return ND_NO_INDEX;
    size_t codes = nd_exact_used(graph, producer, 0);
    return codes != ND_NO_INDEX && g->constants[codes].shape.rank >= 0 ? producer : ND_NO_INDEX;
}

static bool shares_values(const struct nd_array *a, const struct nd_array *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->x, b->x, a->n * sizeof *a->x) == 0);
}

static enum nd_status prepare_shorts(struct nd_exact_graph *g, size_t codes, struct nd_error *err)
{
    const struct nd_array *wholes = &g->wholes[codes];
    if (g->largest[codes] > INT16_MAX)
        return ND_OK;
    int16_t *shorts = nd_calloc(wholes->n + 1, sizeof *shorts);
    if (shorts == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < wholes->n; i++)
        shorts[i] = (int16_t)wholes->x[i];
    g->shorts[codes] = shorts;
    return ND_OK;
}

/* One scale and zero point for all, or by channel: as the unit's evaluation would make them. What it refuses is
 * left to it. */
static enum nd_status prepare(struct nd_exact_graph *g, size_t dequantize, struct nd_error *err)
{
    size_t codes = nd_exact_used(&g->model->graph, dequantize, 0);
    const struct nd_linear_input input = {.values = &g->constants[codes],
                                          .quant = &g->quants[dequantize].quant};
    const struct nd_linear_call call = {.opset = g->model->opset, .n_inputs = 1, .inputs = &input};
    struct nd_array wholes = {0};
    struct nd_error ignored;
    enum nd_status status = nd_linear_wholes(&call, 0, &wholes, &g->largest[codes], &ignored);
    if (status == ND_ERR_MEMORY)
        return nd_fail_memory(err);
    if (status != ND_OK) {
        nd_array_deinit(&wholes);
        return ND_OK;
    }
    if (shares_values(&wholes, &g->constants[codes])) {
        free(wholes.x);
        wholes.x = g->constants[codes].x;
    }
    g->wholes[codes] = wholes;
    return prepare_shorts(g, codes, err);
}

/* Codes that two DequantizeLinear read, with zero points each, are nobody's. */
enum nd_status nd_exact_prepare_wholes(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t *readers = nd_calloc(graph->n_tensors, sizeof *readers);
    enum nd_status status = readers != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t n = 0; status == ND_OK && n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && graph->nodes[n].kind == ND_NODE_DEQUANTIZE &&
            nd_exact_used(graph, n, 0) != ND_NO_INDEX)
            readers[nd_exact_used(graph, n, 0)]++;
    for (size_t n = 0; status == ND_OK && n < graph->n_nodes; n++) {
        if (!graph->nodes[n].is_alive || !is_product(graph->nodes[n].proto))
            continue;
        size_t dequantize = find_weights(g, n);
        size_t codes = dequantize != ND_NO_INDEX ? nd_exact_used(graph, dequantize, 0) : ND_NO_INDEX;
        if (codes != ND_NO_INDEX && readers[codes] == 1 && g->wholes[codes].x == NULL)
            status = prepare(g, dequantize, err);
    }
    free(readers);
    return status;
}

void nd_exact_forget_wholes(struct nd_exact_graph *g)
{
    for (size_t t = 0; g->wholes != NULL && t < g->model->graph.n_tensors; t++)
        if (g->wholes[t].x != NULL && g->wholes[t].x != g->constants[t].x)
            free(g->wholes[t].x);
    for (size_t t = 0; g->shorts != NULL && t < g->model->graph.n_tensors; t++)
        free(g->shorts[t]);
    free(g->wholes);
    free(g->largest);
    free(g->shorts);
}
