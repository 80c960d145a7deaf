#include "record/sessions/assemble_graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/names.h"
#include "devices/agent/spool/record_fields.h"

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

/* The providers of the nodes of one pass. */
struct pass_providers {
    struct nd_names names;               /* of the nodes, with their places in `nodes` */
    const struct nd_capture_node *nodes; /* of pass 0, or of all others */
    const char *common;                  /* where all that computes ran on one; else "" */
};

/* Of two nodes of one name the first counts. */
static enum nd_status find_providers(const struct nd_assembled_graph *graph, const struct nd_spool_index *index,
                                     size_t pass, struct pass_providers *out, struct nd_error *err)
{
    struct pass_providers found = {.nodes = pass == 0 ? graph->nodes : graph->later_nodes};
    size_t n = pass == 0 ? graph->n_nodes : graph->n_later_nodes;
    bool is_common = true;
    for (size_t i = 0; i < n; i++) {
        const struct nd_capture_node *node = &found.nodes[i];
        if (pass != 0 && index->later_nodes[i].index[0] != pass)
            continue;
        if (nd_names_find(&found.names, node->name) == SIZE_MAX && !nd_names_add(&found.names, node->name, i)) {
            nd_names_deinit(&found.names);
            return nd_fail_memory(err);
        }
        if (strcmp(node->op_type, "QuantizeLinear") == 0 || strcmp(node->op_type, "DequantizeLinear") == 0)
            continue;
        is_common = is_common && (found.common == NULL || strcmp(found.common, node->provider) == 0);
        found.common = node->provider;
    }
    if (found.common == NULL || !is_common)
        found.common = "";
    *out = found;
    return ND_OK;
}

/* A provider's layout pass may have replaced the node by one of another name: then, where all that computes in
 * the session ran on one provider, so did it; else "" (unknown). */
static const char *provider_of(const struct pass_providers *providers, const char *name)
{
    size_t node = name != NULL ? nd_names_find(&providers->names, name) : SIZE_MAX;
    return node != SIZE_MAX ? providers->nodes[node].provider : providers->common;
}

/* The first pass of any edge that is not before `from`; SIZE_MAX: none. */
static size_t next_pass(const struct nd_assembly *assembly, size_t n_edges, size_t from)
{
    size_t next = SIZE_MAX;
    for (size_t e = 0; e < n_edges; e++)
        if (assembly->pass_of_edge[e] >= from && assembly->pass_of_edge[e] < next)
            next = assembly->pass_of_edge[e];
    return next;
}

static enum nd_status find_all_providers(struct nd_assembled_graph *graph, const struct nd_assembly *assembly,
                                         const struct nd_spool_index *index, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < graph->n_edges; e++)
        graph->providers[e] = "";
    for (size_t pass = next_pass(assembly, graph->n_edges, 0); pass != SIZE_MAX && status == ND_OK;
         pass = next_pass(assembly, graph->n_edges, pass + 1)) {
        struct pass_providers providers = {0};
        status = find_providers(graph, index, pass, &providers, err);
        for (size_t e = 0; status == ND_OK && e < graph->n_edges; e++)
            if (assembly->pass_of_edge[e] == pass)
                graph->providers[e] = provider_of(&providers, graph->edges[e].node);
        nd_names_deinit(&providers.names);
    }
    return status;
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
    return status == ND_OK ? find_all_providers(graph, assembly, index, err) : status;
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
