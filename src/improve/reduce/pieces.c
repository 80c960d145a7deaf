#include "improve/reduce/pieces.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/graph/loaded.h"

bool nd_node_is_operator(const struct nd_model *model, size_t node)
{
    const struct nd_graph_node *found = &model->graph.nodes[node];
    return found->kind == ND_NODE_OTHER && !found->is_constant;
}

static const struct nd_graph_tensor *made_tensor(const struct nd_graph *graph, const struct nd_graph_node *node,
                                                 size_t i)
{
    size_t made = graph->made[node->first_made + i];
    return made != ND_NO_INDEX ? &graph->tensors[made] : NULL;
}

/* A DequantizeLinear is a part of its own only where its floats leave the model. */
static bool makes_output(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    for (size_t i = 0; i < node->n_made; i++) {
        const struct nd_graph_tensor *tensor = made_tensor(graph, node, i);
        if (tensor != NULL && tensor->output != ND_NO_INDEX)
            return true;
    }
    return false;
}

/* An operator that several units share comes along with each of them. */
static bool is_shared(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    if (node->kind != ND_NODE_OTHER || makes_output(graph, node))
        return false;
    bool is_read = false;
    for (size_t i = 0; i < node->n_made; i++) {
        const struct nd_graph_tensor *tensor = made_tensor(graph, node, i);
        for (size_t r = 0; tensor != NULL && r < tensor->n_readers; r++) {
            is_read = true;
            if (graph->nodes[graph->readers[tensor->first_reader + r]].kind != ND_NODE_QUANTIZE)
                return false;
        }
    }
    return is_read;
}

static bool stands_alone(const struct nd_graph *graph, size_t n)
{
    const struct nd_graph_node *node = &graph->nodes[n];
    if (!node->is_alive || node->is_constant || is_shared(graph, node))
        return false;
    return node->kind != ND_NODE_DEQUANTIZE || makes_output(graph, node);
}

/* Makes a piece of all nodes with the same group, in the order of the groups' last nodes; ND_NO_INDEX is in
 * none. */
static enum nd_status collect(const size_t *group, size_t n_nodes, struct nd_pieces *out, struct nd_error *err)
{
    out->items = nd_calloc(n_nodes, sizeof *out->items);
    size_t *piece_of = nd_calloc(n_nodes, sizeof *piece_of), *n_in = nd_calloc(n_nodes, sizeof *n_in);
    enum nd_status status =
        out->items != NULL && piece_of != NULL && n_in != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t n = 0; status == ND_OK && n < n_nodes; n++) {
        if (group[n] == ND_NO_INDEX)
            continue;
        n_in[group[n]]++;
        /* A group is called by its last node, which is met when all of it was. */
        if (group[n] == n)
            piece_of[n] = out->n++;
    }
    for (size_t n = 0; status == ND_OK && n < n_nodes; n++) {
        if (group[n] == ND_NO_INDEX)
            continue;
        struct nd_piece *piece = &out->items[piece_of[group[n]]];
        if (piece->nodes == NULL && (piece->nodes = nd_calloc(n_in[group[n]], sizeof *piece->nodes)) == NULL)
            status = nd_fail_memory(err);
        else
            piece->nodes[piece->n_nodes++] = n;
    }
    free(piece_of);
    free(n_in);
    return status;
}

enum nd_status nd_pieces_of_units(const struct nd_model *model, struct nd_pieces *out, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    size_t *group = NULL;
    *out = (struct nd_pieces){0};
    enum nd_status status = nd_units_assign(graph, &group, err);
    if (status != ND_OK)
        return status;
    for (size_t n = 0; n < graph->n_nodes; n++)
        if (group[n] == ND_NO_INDEX && stands_alone(graph, n))
            group[n] = n;
    status = collect(group, graph->n_nodes, out, err);
    free(group);
    return status;
}

enum nd_status nd_pieces_of_operators(const struct nd_model *model, const size_t *nodes, size_t n_nodes,
                                      struct nd_pieces *out, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    *out = (struct nd_pieces){0};
    size_t *group = nd_calloc(graph->n_nodes, sizeof *group);
    if (group == NULL)
        return nd_fail_memory(err);
    for (size_t n = 0; n < graph->n_nodes; n++)
        group[n] = ND_NO_INDEX;
    for (size_t i = 0; i < n_nodes; i++)
        group[nodes[i]] = nodes[i];
    /* The operator joins its QuantizeLinear, the last of them where there are several. */
    for (size_t i = 0; i < n_nodes; i++) {
        const struct nd_graph_node *node = &graph->nodes[nodes[i]];
        size_t source = graph->uses[node->first_use];
        size_t producer = node->kind == ND_NODE_QUANTIZE && source != ND_NO_INDEX
                              ? graph->tensors[source].producer
                              : ND_NO_INDEX;
        if (producer != ND_NO_INDEX && group[producer] == producer && nd_node_is_operator(model, producer) &&
            graph->tensors[source].n_readers == 1)
            group[producer] = nodes[i];
    }
    enum nd_status status = collect(group, graph->n_nodes, out, err);
    free(group);
    return status;
}

void nd_pieces_deinit(struct nd_pieces *pieces)
{
    for (size_t i = 0; i < pieces->n; i++)
        free(pieces->items[i].nodes);
    free(pieces->items);
    *pieces = (struct nd_pieces){0};
}

static int by_index(const void *a, const void *b)
{
    size_t x = *(const size_t *)a, y = *(const size_t *)b;
    return (x > y) - (x < y);
}

enum nd_status nd_pieces_nodes(const struct nd_pieces *pieces, const size_t *parts, size_t n_parts,
                               size_t **nodes, size_t *n_nodes, struct nd_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < n_parts; i++)
        n += pieces->items[parts[i]].n_nodes;
    size_t *all = nd_calloc(n, sizeof *all);
    if (all == NULL)
        return nd_fail_memory(err);
    n = 0;
    for (size_t i = 0; i < n_parts; i++) {
        const struct nd_piece *piece = &pieces->items[parts[i]];
        for (size_t k = 0; k < piece->n_nodes; k++)
            all[n++] = piece->nodes[k];
    }
    qsort(all, n, sizeof *all, by_index);
    *nodes = all;
    *n_nodes = n;
    return ND_OK;
}

/* The node that makes what the tensor stands for: behind DequantizeLinear. ND_NO_INDEX for inputs and
 * constants. */
static size_t real_producer(const struct nd_graph *graph, size_t tensor)
{
    while (tensor != ND_NO_INDEX && !graph->tensors[tensor].is_constant) {
        size_t producer = graph->tensors[tensor].producer;
        if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE)
            return producer;
        tensor = graph->uses[graph->nodes[producer].first_use];
    }
    return ND_NO_INDEX;
}

static bool has_node(const struct nd_piece *piece, size_t node)
{
    for (size_t i = 0; i < piece->n_nodes; i++)
        if (piece->nodes[i] == node)
            return true;
    return false;
}

static bool reads(const struct nd_graph *graph, const struct nd_piece *reader, const struct nd_piece *maker)
{
    for (size_t i = 0; i < reader->n_nodes; i++) {
        const struct nd_graph_node *node = &graph->nodes[reader->nodes[i]];
        for (size_t u = 0; u < node->n_uses; u++)
            if (has_node(maker, real_producer(graph, graph->uses[node->first_use + u])))
                return true;
    }
    return false;
}

void nd_pieces_near(const struct nd_model *model, const struct nd_pieces *pieces, size_t piece, bool *is_near)
{
    for (size_t i = 0; i < pieces->n; i++)
        is_near[i] = i == piece || reads(&model->graph, &pieces->items[i], &pieces->items[piece]) ||
                     reads(&model->graph, &pieces->items[piece], &pieces->items[i]);
}
