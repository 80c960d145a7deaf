/* Where the quantised values of a tensor become floats. */
#include <string.h>

#include "core/tensors/scales.h"
#include "model/graph/loaded.h"
#include "model/graph/quant.h"

static bool has_quant(const struct nd_model *model, size_t node, const struct nd_quant *quant)
{
    struct nd_node_quant own = {0};
    bool is_same = nd_node_quant_read(&model->graph, node, model->path, &own, NULL) == ND_OK &&
                   own.quant.n == 1 && own.quant.scale[0] == quant->scale[0] &&
                   own.quant.zero_point[0] == quant->zero_point[0];
    nd_quant_deinit(&own.quant);
    return is_same;
}

bool nd_model_find_dequantised(const struct nd_model *model, size_t tensor, struct nd_dequantised *out)
{
    const struct nd_graph *graph = &model->graph;
    const struct nd_tensor *known = &model->tensors[tensor];
    size_t qvalues = nd_names_find(&graph->names, known->onnx_name), found = ND_NO_INDEX;
    const struct nd_graph_tensor *value = &graph->tensors[qvalues];
    for (size_t r = 0; known->quant.n == 1 && known->quant.scale[0] > 0 && r < value->n_readers; r++) {
        size_t node = graph->readers[value->first_reader + r];
        size_t made =
            graph->nodes[node].kind == ND_NODE_DEQUANTIZE ? nd_graph_made(graph, node, 0) : ND_NO_INDEX;
        if (made == ND_NO_INDEX || nd_graph_used(graph, node, 0) != qvalues ||
            !has_quant(model, node, &known->quant))
            continue;
        if (found == ND_NO_INDEX || strcmp(graph->tensors[made].name, known->name) == 0)
            found = node;
    }
    if (found == ND_NO_INDEX)
        return false;
    *out = (struct nd_dequantised){nd_graph_node_name(graph->nodes[found].proto),
                                   graph->tensors[nd_graph_made(graph, found, 0)].name};
    return true;
}

bool nd_model_dequantises_before_end(const struct nd_model *model, size_t node)
{
    const struct nd_graph *graph = &model->graph;
    size_t made = graph->nodes[node].n_made > 0 ? nd_graph_made(graph, node, 0) : ND_NO_INDEX;
    return model->nodes[node].is_io_quantisation && graph->nodes[node].kind == ND_NODE_DEQUANTIZE &&
           made != ND_NO_INDEX && graph->tensors[made].output == ND_NO_INDEX;
}
