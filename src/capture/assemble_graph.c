#include "capture/assemble_graph.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "spool/fields.h"

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
    }
    return status;
}

/* The provider of the node called `name` in that pass. A provider's layout pass may rename a node in one
 * session and not in another, so that each pass is asked for its own edges. */
static const char *provider_of(const struct nd_assembled_graph *graph, const struct nd_spool_index *index,
                               size_t pass, const char *name)
{
    for (size_t i = 0; name != NULL && pass == 0 && i < graph->n_nodes; i++)
        if (strcmp(graph->nodes[i].name, name) == 0)
            return graph->nodes[i].provider;
    for (size_t i = 0; name != NULL && pass > 0 && i < graph->n_later_nodes; i++)
        if (index->later_nodes[i].index[0] == pass && strcmp(graph->later_nodes[i].name, name) == 0)
            return graph->later_nodes[i].provider;
    return "";
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
