/* A part of a model as a model of its own: which nodes come along, and where it is cut. */
#include "model/rewrite/subgraph.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* ---- which nodes ---- */

/* What a node of the part cannot do without: what makes its constants, the DequantizeLinear that hands it real
 * values of codes, and, for a QuantizeLinear, the operator whose result it requantises, which a unit may share
 * with others (Split). */
static bool is_support(const struct nd_graph *graph, size_t reader, size_t use, size_t producer)
{
    const struct nd_graph_node *node = &graph->nodes[producer];
    return node->is_constant || node->kind == ND_NODE_DEQUANTIZE ||
           (graph->nodes[reader].kind == ND_NODE_QUANTIZE && use == 0);
}

/* Producers stand before their readers, so one walk from the end finds all. */
static void pull_support(struct nd_subgraph *part)
{
    const struct nd_graph *graph = &part->source->graph;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        if (!part->has_node[n])
            continue;
        const struct nd_graph_node *node = &graph->nodes[n];
        for (size_t u = 0; u < node->n_uses; u++) {
            size_t tensor = graph->uses[node->first_use + u];
            if (tensor == ND_NO_INDEX)
                continue;
            part->has_tensor[tensor] = true;
            size_t producer = graph->tensors[tensor].producer;
            if (producer != ND_NO_INDEX && is_support(graph, n, u, producer))
                part->has_node[producer] = true;
        }
        for (size_t i = 0; i < node->n_made; i++)
            if (graph->made[node->first_made + i] != ND_NO_INDEX)
                part->has_tensor[graph->made[node->first_made + i]] = true;
    }
}

/* ---- where it is cut ---- */

static void add_tensor(struct nd_subgraph *part, enum nd_subgraph_end end, size_t tensor)
{
    if (part->end_of[tensor] != ND_SUBGRAPH_INSIDE)
        return;
    part->end_of[tensor] = end;
    if (end == ND_SUBGRAPH_INPUT)
        part->inputs[part->n_inputs++] = tensor;
    else
        part->outputs[part->n_outputs++] = tensor;
}

static void find_inputs(struct nd_subgraph *part)
{
    const struct nd_graph *graph = &part->source->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct nd_graph_node *node = &graph->nodes[n];
        for (size_t u = 0; part->has_node[n] && u < node->n_uses; u++) {
            size_t tensor = graph->uses[node->first_use + u];
            if (tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant)
                continue;
            size_t producer = graph->tensors[tensor].producer;
            if (producer == ND_NO_INDEX || !part->has_node[producer])
                add_tensor(part, ND_SUBGRAPH_INPUT, tensor);
        }
    }
}

static bool is_read_outside(const struct nd_subgraph *part, size_t tensor);

/* A DequantizeLinear that only came along hands nothing out: where its values go outside, its codes do. */
static bool is_outside_reader(const struct nd_subgraph *part, size_t reader)
{
    const struct nd_graph *graph = &part->source->graph;
    const struct nd_graph_node *node = &graph->nodes[reader];
    if (!part->has_node[reader])
        return true;
    if (part->is_asked[reader] || node->kind != ND_NODE_DEQUANTIZE || node->n_made == 0)
        return false;
    size_t made = graph->made[node->first_made];
    return made != ND_NO_INDEX && (graph->tensors[made].output != ND_NO_INDEX || is_read_outside(part, made));
}

static bool is_read_outside(const struct nd_subgraph *part, size_t tensor)
{
    const struct nd_graph *graph = &part->source->graph;
    const struct nd_graph_tensor *found = &graph->tensors[tensor];
    for (size_t r = 0; r < found->n_readers; r++)
        if (is_outside_reader(part, graph->readers[found->first_reader + r]))
            return true;
    return false;
}

/* Codes and the real values of the same codes together are more than some providers can return. */
static bool is_handed_out_as_floats(const struct nd_subgraph *part, size_t tensor)
{
    const struct nd_graph *graph = &part->source->graph;
    const struct nd_graph_tensor *found = &graph->tensors[tensor];
    for (size_t r = 0; r < found->n_readers; r++) {
        size_t reader = graph->readers[found->first_reader + r];
        const struct nd_graph_node *node = &graph->nodes[reader];
        size_t made = node->n_made > 0 ? graph->made[node->first_made] : ND_NO_INDEX;
        if (node->kind == ND_NODE_DEQUANTIZE && part->is_asked[reader] && made != ND_NO_INDEX &&
            (graph->tensors[made].output != ND_NO_INDEX || is_read_outside(part, made)))
            return true;
    }
    return false;
}

static bool is_output(const struct nd_subgraph *part, size_t node, size_t tensor)
{
    const struct nd_graph *graph = &part->source->graph;
    bool is_operator = graph->nodes[node].kind == ND_NODE_OTHER && !graph->nodes[node].is_constant;
    if (part->is_open && is_operator)
        return true;
    if (!part->is_asked[node])
        return false;
    if (graph->tensors[tensor].output != ND_NO_INDEX)
        return true;
    return is_read_outside(part, tensor) && !is_handed_out_as_floats(part, tensor);
}

static void find_outputs(struct nd_subgraph *part, const char *extra)
{
    const struct nd_graph *graph = &part->source->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct nd_graph_node *node = &graph->nodes[n];
        for (size_t i = 0; part->has_node[n] && i < node->n_made; i++) {
            size_t made = graph->made[node->first_made + i];
            if (made != ND_NO_INDEX &&
                (is_output(part, n, made) || (extra != NULL && strcmp(graph->tensors[made].name, extra) == 0)))
                add_tensor(part, ND_SUBGRAPH_OUTPUT, made);
        }
    }
}

/* ---- the part ---- */

static enum nd_status allocate(struct nd_subgraph *part, struct nd_error *err)
{
    const struct nd_graph *graph = &part->source->graph;
    part->is_asked = nd_calloc(graph->n_nodes, sizeof *part->is_asked);
    part->has_node = nd_calloc(graph->n_nodes, sizeof *part->has_node);
    part->has_tensor = nd_calloc(graph->n_tensors, sizeof *part->has_tensor);
    part->end_of = nd_calloc(graph->n_tensors, sizeof *part->end_of);
    part->inputs = nd_calloc(graph->n_tensors, sizeof *part->inputs);
    part->outputs = nd_calloc(graph->n_tensors, sizeof *part->outputs);
    bool is_whole = part->is_asked != NULL && part->has_node != NULL && part->has_tensor != NULL &&
                    part->end_of != NULL && part->inputs != NULL && part->outputs != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_subgraph_init(struct nd_subgraph *part, const struct nd_model *model,
                                const struct nd_model_cut *cut, struct nd_error *err)
{
    *part = (struct nd_subgraph){.source = model, .is_open = cut->is_open};
    enum nd_status status = allocate(part, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < cut->n_nodes; i++) {
        if (cut->nodes[i] >= model->graph.n_nodes)
            return nd_fail(err, ND_E_OPTION_VALUE, model->path, "'%s' has no node number %zu", model->path,
                           cut->nodes[i]);
        part->is_asked[cut->nodes[i]] = part->has_node[cut->nodes[i]] = true;
    }
    pull_support(part);
    find_inputs(part);
    find_outputs(part, cut->output);
    if (part->n_outputs == 0)
        return nd_fail(err, ND_E_MODEL_NO_EDGE, model->path, "that part of '%s' hands nothing out",
                       model->path);
    return ND_OK;
}

void nd_subgraph_deinit(struct nd_subgraph *part)
{
    free(part->is_asked);
    free(part->has_node);
    free(part->has_tensor);
    free(part->end_of);
    free(part->inputs);
    free(part->outputs);
    *part = (struct nd_subgraph){0};
}
