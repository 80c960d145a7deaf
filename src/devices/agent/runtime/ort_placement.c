#include <stdlib.h>

#include "core/memory.h"
#include "devices/agent/runtime/ort_runtime.h"

struct rows {
    struct nd_placement *items;
    size_t n, capacity;
};

static enum nd_status add_nodes(const struct nd_ort *ort, const struct ort_ep_subgraph *subgraph, size_t number,
                                struct rows *rows, struct nd_error *err)
{
    static const char doing[] = "reading placement";
    const char *provider = NULL;
    const struct ort_ep_node *const *nodes = NULL;
    size_t n_nodes = 0;
    enum nd_status status =
        nd_ort_check(ort, ort->EpAssignedSubgraph_GetEpName(subgraph, &provider), doing, err);
    if (status == ND_OK)
        status = nd_ort_check(ort, ort->EpAssignedSubgraph_GetNodes(subgraph, &nodes, &n_nodes), doing, err);
    if (status == ND_OK &&
        !nd_grow((void **)&rows->items, &rows->capacity, rows->n + n_nodes, sizeof *rows->items))
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < n_nodes; i++) {
        struct nd_placement *row = &rows->items[rows->n];
        row->provider = provider;
        row->subgraph = number;
        status = nd_ort_check(ort, ort->EpAssignedNode_GetName(nodes[i], &row->name), doing, err);
        if (status == ND_OK)
            status = nd_ort_check(ort, ort->EpAssignedNode_GetDomain(nodes[i], &row->domain), doing, err);
        if (status == ND_OK)
            status =
                nd_ort_check(ort, ort->EpAssignedNode_GetOperatorType(nodes[i], &row->op_type), doing, err);
        if (status == ND_OK)
            rows->n++;
    }
    return status;
}

enum nd_status nd_session_placement(const struct nd_session *session, struct nd_placement **out, size_t *n,
                                    struct nd_error *err)
{
    const struct nd_ort *ort = &session->runtime->ort;
    const struct ort_ep_subgraph *const *subgraphs = NULL;
    size_t n_subgraphs = 0;
    struct rows rows = {0};
    enum nd_status status =
        nd_ort_check(ort, ort->Session_GetEpGraphAssignmentInfo(session->handle, &subgraphs, &n_subgraphs),
                     "reading placement", err);
    for (size_t i = 0; status == ND_OK && i < n_subgraphs; i++)
        status = add_nodes(ort, subgraphs[i], i, &rows, err);
    if (status != ND_OK) {
        free(rows.items);
        return status;
    }
    *out = rows.items;
    *n = rows.n;
    return ND_OK;
}
