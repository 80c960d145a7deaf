/* Which operators compute at 16 bits when some tensors have 16 bits. */
#include <stdlib.h>

#include "core/memory.h"
#include "model/rewrite/widen.h"

static size_t first_input(const struct nd_graph *graph, size_t node)
{
    return graph->nodes[node].n_uses > 0 ? graph->uses[graph->nodes[node].first_use] : ND_NO_INDEX;
}

static bool is_operator(const struct nd_graph *graph, size_t node)
{
    return node != ND_NO_INDEX && graph->nodes[node].kind == ND_NODE_OTHER && graph->nodes[node].is_alive &&
           !graph->nodes[node].is_constant;
}

/* A QuantizeLinear or DequantizeLinear of an activation. */
static bool is_quantiser(const struct nd_graph *graph, size_t node, enum nd_node_kind kind)
{
    return graph->nodes[node].kind == kind && graph->nodes[node].is_alive && !graph->nodes[node].is_constant;
}

const char *nd_widening_obstacle(const struct nd_model *model, size_t tensor)
{
    const struct nd_graph *graph = &model->graph;
    const struct nd_tensor *e = nd_model_tensor(model, tensor);
    size_t qvalues = nd_names_find(&graph->names, e->onnx_name);
    if (e->quant.n != 1 || (e->dtype != ND_DTYPE_U8 && e->dtype != ND_DTYPE_I8))
        return "it has no 8-bit values of one scale";
    if (qvalues == ND_NO_INDEX || graph->tensors[qvalues].producer == ND_NO_INDEX ||
        !is_quantiser(graph, graph->tensors[qvalues].producer, ND_NODE_QUANTIZE))
        return "no QuantizeLinear makes it";
    if (graph->tensors[qvalues].output != ND_NO_INDEX)
        return "the model gives its quantised values out";
    for (size_t r = 0; r < graph->tensors[qvalues].n_readers; r++)
        if (graph->nodes[graph->readers[graph->tensors[qvalues].first_reader + r]].kind != ND_NODE_DEQUANTIZE)
            return "an operator reads its quantised values";
    return NULL;
}

/* ---- operators that share floats ---- */

static size_t root_of(size_t *parents, size_t node)
{
    while (parents[node] != node)
        node = parents[node] = parents[parents[node]];
    return node;
}

static void join_operators(const struct nd_graph *graph, size_t *parents)
{
    for (size_t n = 0; n < graph->n_nodes; n++) {
        for (size_t i = 0; i < graph->nodes[n].n_uses && is_operator(graph, n); i++) {
            size_t tensor = graph->uses[graph->nodes[n].first_use + i];
            size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
            if (is_operator(graph, producer))
                parents[root_of(parents, n)] = root_of(parents, producer);
        }
    }
}

/* Marks the roots of the operators that read the tensor. */
static void mark_readers(const struct nd_graph *graph, size_t tensor, size_t *parents, bool *is_wide)
{
    for (size_t r = 0; r < graph->tensors[tensor].n_readers; r++) {
        size_t node = graph->readers[graph->tensors[tensor].first_reader + r];
        if (is_operator(graph, node))
            is_wide[root_of(parents, node)] = true;
    }
}

static void mark_around(const struct nd_model *model, const struct nd_wide_parts *parts, size_t *parents)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t source = first_input(graph, n);
        if (is_quantiser(graph, n, ND_NODE_QUANTIZE)) {
            size_t tensor = model->tensor_of_value[graph->made[graph->nodes[n].first_made]];
            size_t producer = graph->tensors[source].producer;
            if (tensor != ND_NO_INDEX && parts->is_wide_tensor[tensor] && is_operator(graph, producer))
                parts->is_wide_node[root_of(parents, producer)] = true;
        } else if (is_quantiser(graph, n, ND_NODE_DEQUANTIZE)) {
            size_t tensor = model->tensor_of_value[source];
            if (tensor != ND_NO_INDEX && parts->is_wide_tensor[tensor])
                mark_readers(graph, graph->made[graph->nodes[n].first_made], parents, parts->is_wide_node);
        }
    }
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t root = is_operator(graph, n) ? root_of(parents, n) : n;
        parts->is_wide_node[n] = is_operator(graph, n) && parts->is_wide_node[root];
    }
}

/* ---- borders ---- */

/* An 8-bit tensor that stays so. */
static bool is_narrow(const struct nd_model *model, const struct nd_wide_parts *parts, size_t tensor)
{
    const struct nd_tensor *e = tensor != ND_NO_INDEX ? nd_model_tensor(model, tensor) : NULL;
    return e != NULL && !parts->is_wide_tensor[tensor] && e->quant.n == 1 &&
           (e->dtype == ND_DTYPE_U8 || e->dtype == ND_DTYPE_I8);
}

static bool has_wide_reader(const struct nd_graph *graph, const struct nd_wide_parts *parts, size_t tensor)
{
    for (size_t r = 0; r < graph->tensors[tensor].n_readers; r++)
        if (parts->is_wide_node[graph->readers[graph->tensors[tensor].first_reader + r]])
            return true;
    return false;
}

static void mark_conversions(const struct nd_model *model, const struct nd_wide_parts *parts)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t source = first_input(graph, n);
        if (is_quantiser(graph, n, ND_NODE_QUANTIZE)) {
            size_t producer = graph->tensors[source].producer;
            parts->is_converted[n] =
                is_narrow(model, parts, model->tensor_of_value[graph->made[graph->nodes[n].first_made]]) &&
                producer != ND_NO_INDEX && parts->is_wide_node[producer];
        } else if (is_quantiser(graph, n, ND_NODE_DEQUANTIZE)) {
            /* What was rounded to 16 bits before it became 8 is read as it was then. */
            size_t quantise = graph->tensors[source].producer;
            parts->is_converted[n] = is_narrow(model, parts, model->tensor_of_value[source]) &&
                                     has_wide_reader(graph, parts, graph->made[graph->nodes[n].first_made]) &&
                                     (quantise == ND_NO_INDEX || !parts->is_converted[quantise]);
        }
    }
}

enum nd_status nd_wide_parts_find(const struct nd_model *model, const struct nd_wide_tensor *tensors,
                                  size_t n_tensors, struct nd_wide_parts *out, struct nd_error *err)
{
    size_t n_nodes = model->graph.n_nodes, *parents = nd_calloc(n_nodes, sizeof *parents);
    out->is_wide_tensor = nd_calloc(model->n_tensors, sizeof *out->is_wide_tensor);
    out->is_wide_node = nd_calloc(n_nodes, sizeof *out->is_wide_node);
    out->is_converted = nd_calloc(n_nodes, sizeof *out->is_converted);
    bool has_all = parents != NULL && out->is_wide_tensor != NULL && out->is_wide_node != NULL &&
                   out->is_converted != NULL;
    for (size_t n = 0; n < n_nodes && has_all; n++)
        parents[n] = n;
    for (size_t i = 0; i < n_tensors && has_all; i++)
        out->is_wide_tensor[tensors[i].tensor] = true;
    if (has_all) {
        join_operators(&model->graph, parents);
        mark_around(model, out, parents);
        mark_conversions(model, out);
    }
    free(parents);
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_wide_parts_deinit(struct nd_wide_parts *parts)
{
    free(parts->is_wide_tensor);
    free(parts->is_wide_node);
    free(parts->is_converted);
    *parts = (struct nd_wide_parts){0};
}
