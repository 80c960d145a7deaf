/* Weights as products take them, made once for a graph. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/graph_internal.h"
#include "arithmetic/exact/linear/linear_families.h"

bool nd_exact_feeds_units(const struct nd_exact_graph *g, size_t node)
{
    const struct nd_graph *graph = &g->model->graph;
    const struct nd_graph_node *n = &graph->nodes[node];
    bool feeds = n->n_made > 0;
    for (size_t i = 0; i < n->n_made && feeds; i++) {
        size_t made = nd_graph_made(graph, node, i), edge;
        if (made == ND_NO_INDEX)
            continue;
        const struct nd_graph_tensor *tensor = &graph->tensors[made];
        edge = g->model->tensor_edge[made];
        feeds = tensor->output == ND_NO_INDEX &&
                (edge == ND_NO_INDEX || strcmp(g->model->edges[edge].onnx_name, tensor->name) != 0);
        for (size_t r = 0; r < tensor->n_readers && feeds; r++) {
            size_t reader = graph->readers[tensor->first_reader + r];
            feeds = graph->nodes[reader].kind == ND_NODE_QUANTIZE && g->unit_of_node[reader] == reader;
        }
    }
    return feeds;
}

bool nd_exact_graph_is_pure(const struct nd_exact_graph *g)
{
    return g->is_pure;
}

bool nd_exact_has_only_units(const struct nd_exact_graph *g)
{
    const struct nd_graph *graph = &g->model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && !graph->nodes[n].is_constant && graph->nodes[n].kind == ND_NODE_OTHER &&
            g->unit_of_node[n] == ND_NO_INDEX && !nd_exact_feeds_units(g, n))
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
    size_t tensor = nd_graph_used(graph, node, 1);
    size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        g->quants[producer].quant.n == 0)
        return ND_NO_INDEX;
    size_t codes = nd_graph_used(graph, producer, 0);
    return codes != ND_NO_INDEX && g->constants[codes].shape.rank >= 0 ? producer : ND_NO_INDEX;
}

static bool is_without_zero(const struct nd_exact_graph *g, size_t codes)
{
    const struct nd_quant *quant = &g->quants[g->store->dequantiser[codes]].quant;
    bool is_without = nd_dtype_is_integer(g->constants[codes].dtype);
    for (size_t c = 0; c < quant->n && is_without; c++)
        is_without = quant->zero_point[c] == 0;
    return is_without;
}

static enum nd_status prepare_shorts(const struct nd_exact_graph *g, size_t codes, struct nd_error *err)
{
    const struct nd_array *wholes = &g->wholes[codes];
    if (g->largest[codes] > INT16_MAX)
        return ND_OK;
    int16_t *shorts = nd_tensor_room((wholes->n + 1) * sizeof *shorts);
    if (shorts == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < wholes->n; i++)
        shorts[i] = (int16_t)wholes->x[i];
    shorts[wholes->n] = 0;
    g->shorts[codes] = shorts;
    return ND_OK;
}

/* Codes without a zero point are their own wholes. */
static enum nd_status share_wholes(const struct nd_exact_graph *g, size_t codes, struct nd_array *wholes,
                                   struct nd_error *err)
{
    int axis;
    size_t n_inner;
    double largest = 0;
    *wholes = g->constants[codes];
    wholes->dtype = ND_DTYPE_F32; /* operators make integers of integers wrap around */
    for (size_t i = 0; i < wholes->n; i++)
        largest = fabs(wholes->x[i]) > largest ? fabs(wholes->x[i]) : largest;
    g->largest[codes] = largest;
    return nd_linear_layout(&g->quants[g->store->dequantiser[codes]].quant, &wholes->shape, &axis, &n_inner,
                            err);
}

/* One scale and zero point for all, or by channel: as the unit's evaluation would make them. What it refuses is
 * left to it. */
enum nd_status nd_exact_make_wholes(const struct nd_exact_graph *g, size_t codes, struct nd_error *err)
{
    size_t dequantize = g->store->dequantiser[codes];
    if (dequantize == ND_NO_INDEX)
        return ND_OK;
    const struct nd_linear_input input = {.values = &g->constants[codes],
                                          .quant = &g->quants[dequantize].quant};
    const struct nd_linear_call call = {.opset = g->model->opset, .n_inputs = 1, .inputs = &input};
    struct nd_array wholes = {0};
    struct nd_error ignored;
    if (is_without_zero(g, codes)) {
        if (share_wholes(g, codes, &wholes, &ignored) != ND_OK)
            return ND_OK;
        g->wholes[codes] = wholes;
        return prepare_shorts(g, codes, err);
    }
    enum nd_status status = nd_linear_wholes(&call, 0, &wholes, &g->largest[codes], &ignored);
    if (status == ND_ERR_MEMORY)
        return nd_fail_memory(err);
    if (status != ND_OK) {
        nd_array_deinit(&wholes);
        return ND_OK;
    }
    g->wholes[codes] = wholes;
    return prepare_shorts(g, codes, err);
}

/* Codes and wholes from the shorts of both. */
enum nd_status nd_exact_widen_shorts(const struct nd_exact_graph *g, size_t codes, struct nd_error *err)
{
    struct nd_array *values = &g->constants[codes], *wholes = &g->wholes[codes];
    const struct nd_quant *quant = &g->quants[g->store->dequantiser[codes]].quant;
    const int16_t *shorts = g->shorts[codes];
    bool is_shared = is_without_zero(g, codes);
    values->x = nd_tensor_room(values->n * sizeof *values->x);
    wholes->x = is_shared ? values->x : nd_tensor_room(values->n * sizeof *wholes->x);
    if (values->x == NULL || wholes->x == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < values->n; i++)
        wholes->x[i] = (double)shorts[i];
    size_t inner = nd_exact_inner(quant, &values->shape, values->n), channel = 0;
    for (size_t start = 0; start < values->n && !is_shared; start += inner, channel = (channel + 1) % quant->n)
        for (size_t i = start; i < start + inner; i++)
            values->x[i] = wholes->x[i] + (double)quant->zero_point[channel];
    return ND_OK;
}

/* Codes that two DequantizeLinear read, with zero points each, are nobody's. */
enum nd_status nd_exact_prepare_wholes(struct nd_exact_graph *g, struct nd_error *err)
{
    const struct nd_graph *graph = &g->model->graph;
    size_t *readers = nd_calloc(graph->n_tensors, sizeof *readers), *found = g->store->dequantiser;
    enum nd_status status = readers != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t n = 0; status == ND_OK && n < graph->n_nodes; n++)
        if (graph->nodes[n].is_alive && graph->nodes[n].kind == ND_NODE_DEQUANTIZE &&
            nd_graph_used(graph, n, 0) != ND_NO_INDEX)
            readers[nd_graph_used(graph, n, 0)]++;
    for (size_t n = 0; status == ND_OK && n < graph->n_nodes; n++) {
        if (!graph->nodes[n].is_alive || !is_product(graph->nodes[n].proto))
            continue;
        size_t dequantize = find_weights(g, n);
        size_t codes = dequantize != ND_NO_INDEX ? nd_graph_used(graph, dequantize, 0) : ND_NO_INDEX;
        if (codes == ND_NO_INDEX || readers[codes] != 1 || found[codes] != ND_NO_INDEX)
            continue;
        found[codes] = dequantize;
        status = nd_exact_store_make_wholes(g, codes, err);
    }
    free(readers);
    return status;
}

void nd_exact_forget_wholes(const struct nd_exact_graph *g, size_t tensor)
{
    if (g->wholes[tensor].x != g->constants[tensor].x)
        free(g->wholes[tensor].x);
    g->wholes[tensor].x = NULL;
}
