/* Failures of a graph, told apart by the model. */
#include <stdlib.h>

#include "core/memory.h"
#include "model/graph/loaded.h"
#include "npudiff/capture/logs.h"

/* Every tensor that one node makes and another reads; constants are no reason to fail. */
static size_t list_links(const struct nd_graph *graph, size_t (*links)[2])
{
    size_t n = 0;
    for (size_t node = 0; node < graph->n_nodes; node++)
        for (size_t m = 0; m < graph->nodes[node].n_made; m++) {
            size_t tensor = graph->made[graph->nodes[node].first_made + m];
            for (size_t r = 0; tensor != ND_NO_INDEX && r < graph->tensors[tensor].n_readers; r++, n++)
                if (links != NULL) {
                    links[n][0] = node;
                    links[n][1] = graph->readers[graph->tensors[tensor].first_reader + r];
                }
        }
    return n;
}

enum nd_status nd_failure_cascade_of_model(const struct nd_log_finding *findings, size_t n,
                                           const struct nd_model *model, struct nd_failure_cascade *out,
                                           struct nd_error *err)
{
    size_t n_nodes = model->graph.n_nodes, n_links = list_links(&model->graph, NULL);
    const char **names = nd_calloc(n_nodes, sizeof *names);
    size_t(*links)[2] = nd_calloc(n_links, sizeof *links);
    enum nd_status status = names != NULL && links != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK) {
        list_links(&model->graph, links);
        for (size_t i = 0; i < n_nodes; i++)
            names[i] = model->nodes[i].name;
        const struct nd_failure_graph graph = {
            .names = names, .n_nodes = n_nodes, .links = (const size_t(*)[2])links, .n_links = n_links};
        status = nd_failure_cascade_find(findings, n, &graph, out, err);
    }
    free(links);
    free(names);
    return status;
}
