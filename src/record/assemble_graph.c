#include "record/assemble_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "spool/record_fields.h"

static void free_nodes(struct nd_capture_node *nodes, size_t n)
{
    for (size_t i = 0; nodes != NULL && i < n; i++) {
        free(nodes[i].name);
        free(nodes[i].op_type);
        free(nodes[i].domain);
        free(nodes[i].provider);
    }
    free(nodes);
}

static enum nd_status read_nodes(const struct nd_record *records, size_t n, struct nd_capture_node **out,
                                 struct nd_error *err)
{
    struct nd_capture_node *nodes = nd_calloc(n, sizeof *nodes);
    bool is_whole = nodes != NULL;
    for (size_t i = 0; is_whole && i < n; i++) {
        nodes[i].name = nd_fields_get(&records[i], "name");
        nodes[i].op_type = nd_fields_get(&records[i], "op_type");
        nodes[i].domain = nd_fields_get(&records[i], "domain");
        nodes[i].provider = nd_fields_get(&records[i], "provider");
        uint64_t subgraph;
        if (nd_fields_get_u64(&records[i], "subgraph", &subgraph) && subgraph <= INT32_MAX)
            nodes[i].subgraph = (int64_t)subgraph;
        is_whole = nodes[i].name != NULL && nodes[i].op_type != NULL && nodes[i].domain != NULL &&
                   nodes[i].provider != NULL;
    }
    if (!is_whole) {
        free_nodes(nodes, n);
        return nd_fail_memory(err);
    }
    *out = nodes;
    return ND_OK;
}

/* While an edge's rank is unknown its axis counts from the end. What a capture says of axes must hold without
 * that; parameters that no axis can be told for are left out. */
static void settle_axis(struct nd_edge *edge)
{
    struct nd_quant *quant = &edge->quant;
    if (quant->n > 1 && quant->axis < 0 && edge->shape.rank >= 0)
        quant->axis += edge->shape.rank;
    bool is_known = edge->shape.rank >= 0;
    bool has_axis =
        quant->axis >= 0 &&
        (!is_known || (quant->axis < edge->shape.rank && edge->shape.dims[quant->axis] == (int64_t)quant->n));
    if (quant->n <= 1 && !has_axis)
        quant->axis = -1;
    if (quant->n <= 1 || has_axis)
        return;
    free(quant->scale);
    free(quant->zero_point);
    *quant = (struct nd_quant){.axis = -1};
}

static enum nd_status complete_edges(struct nd_assembled_graph *graph, const struct nd_assembly *assembly,
                                     const struct nd_spool_index *index, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    graph->edges = nd_calloc(assembly->n_edges, sizeof *graph->edges);
    graph->providers = nd_calloc(assembly->n_edges, sizeof *graph->providers);
    if (graph->edges == NULL || graph->providers == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; status == ND_OK && e < assembly->n_edges; e++) {
        graph->n_edges = e + 1;
        status = nd_edge_copy(assembly->edges[e], &graph->edges[e], err);
        if (status == ND_OK && index->outputs[e].is_known) {
            graph->edges[e].dtype = index->outputs[e].dtype;
            graph->edges[e].shape = index->outputs[e].shape;
        }
        if (status == ND_OK)
            settle_axis(&graph->edges[e]);
    }
    return status;
}

/* The nodes of one pass, one after the other. */
static const struct nd_capture_node *node_of_pass(const struct nd_assembled_graph *graph,
                                                  const struct nd_spool_index *index, size_t pass, size_t *i)
{
    size_t n = pass == 0 ? graph->n_nodes : graph->n_later_nodes;
    for (; *i < n; (*i)++)
        if (pass == 0 || index->later_nodes[*i].index[0] == pass)
            return pass == 0 ? &graph->nodes[(*i)++] : &graph->later_nodes[(*i)++];
    return NULL;
}

/* The provider of the node called `name` in that pass. A provider's layout pass may have replaced the node by
 * one of another name: then, where all that computes in the session ran on one provider, so did it; else ""
 * (unknown). */
static const char *provider_of(const struct nd_assembled_graph *graph, const struct nd_spool_index *index,
                               size_t pass, const char *name)
{
    const struct nd_capture_node *node;
    const char *common = NULL;
    bool is_common = true;
    for (size_t i = 0; (node = node_of_pass(graph, index, pass, &i)) != NULL;) {
        if (name != NULL && strcmp(node->name, name) == 0)
            return node->provider;
        if (strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0)
            continue;
        is_common = is_common && (common == NULL || strcmp(common, node->provider) == 0);
        common = node->provider;
    }
    return common != NULL && is_common ? common : "";
}

enum nd_status nd_assembled_graph_init(struct nd_assembled_graph *graph, const struct nd_assembly *assembly,
                                       const struct nd_spool_index *index, struct nd_error *err)
{
    enum nd_status status = complete_edges(graph, assembly, index, err);
    if (status == ND_OK)
        status = read_nodes(index->nodes, index->n_nodes, &graph->nodes, err);
    if (status == ND_OK)
        graph->n_nodes = index->n_nodes;
    if (status == ND_OK)
        status = read_nodes(index->later_nodes, index->n_later_nodes, &graph->later_nodes, err);
    if (status == ND_OK)
        graph->n_later_nodes = index->n_later_nodes;
    for (size_t e = 0; status == ND_OK && e < graph->n_edges; e++)
        graph->providers[e] = provider_of(graph, index, assembly->pass_of_edge[e], graph->edges[e].node);
    return status;
}

void nd_assembled_graph_deinit(struct nd_assembled_graph *graph)
{
    for (size_t e = 0; e < graph->n_edges; e++)
        nd_edge_deinit(&graph->edges[e]);
    free(graph->edges);
    free(graph->providers);
    free_nodes(graph->nodes, graph->n_nodes);
    free_nodes(graph->later_nodes, graph->n_later_nodes);
    *graph = (struct nd_assembled_graph){0};
}
