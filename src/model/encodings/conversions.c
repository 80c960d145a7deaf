/* Tensors whose codes are made of other codes: DequantizeLinear, QuantizeLinear and no operator between. */
#include <string.h>

#include "core/memory.h"
#include "model/encodings/building.h"
#include "model/graph/loaded.h"

/* The nodes that read what is dequantised of the codes, but for quantisers. */
static enum nd_status add_readers(const struct nd_graph *graph, size_t codes, struct nd_encoding *encoding,
                                  struct nd_error *err)
{
    size_t capacity = 0;
    for (size_t d = 0; d < graph->tensors[codes].n_readers; d++) {
        const struct nd_graph_node *node =
            &graph->nodes[graph->readers[graph->tensors[codes].first_reader + d]];
        size_t made = node->kind == ND_NODE_DEQUANTIZE ? graph->made[node->first_made] : ND_NO_INDEX;
        for (size_t r = 0; made != ND_NO_INDEX && r < graph->tensors[made].n_readers; r++) {
            size_t reader = graph->readers[graph->tensors[made].first_reader + r];
            if (graph->nodes[reader].kind != ND_NODE_OTHER)
                continue;
            if (!nd_grow((void **)&encoding->readers, &capacity, encoding->n_readers + 1,
                         sizeof *encoding->readers))
                return nd_fail_memory(err);
            char *name = nd_strdup(nd_graph_node_name(graph->nodes[reader].proto));
            if (name == NULL)
                return nd_fail_memory(err);
            encoding->readers[encoding->n_readers++] = name;
        }
    }
    return ND_OK;
}

enum nd_status nd_encodings_find_conversions(struct nd_encodings *encodings, const struct nd_model *model,
                                             struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t u = 0; u < model->n_units && status == ND_OK; u++) {
        const struct nd_model_unit *unit = &model->units[u];
        const struct nd_edge *edge = &model->edges[unit->edge];
        size_t item = nd_encodings_find(encodings, edge->name);
        if (strcmp(unit->op_types, "requantise") != 0 || unit->n_inputs != 1 || item == SIZE_MAX ||
            nd_encodings_find(encodings, model->edges[unit->inputs[0]].name) == SIZE_MAX)
            continue;
        struct nd_encoding *encoding = &encodings->items[item];
        encoding->converted_from = nd_strdup(model->edges[unit->inputs[0]].name);
        status =
            encoding->converted_from != NULL
                ? add_readers(&model->graph, nd_names_find(&model->graph.names, edge->onnx_name), encoding, err)
                : nd_fail_memory(err);
    }
    return status;
}
