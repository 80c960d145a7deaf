/* Which operators lie between DequantizeLinear and QuantizeLinear, and what such a layer reads. */
#include <stdlib.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"

static size_t quantised_tensor(const struct nd_graph *graph, size_t quantize)
{
    return graph->uses[graph->nodes[quantize].first_use];
}

/* Marks the tensors that come from a quantised one without another QuantizeLinear between. */
static void mark_dependent(const struct nd_graph *graph, bool *depends)
{
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct nd_graph_node *node = &graph->nodes[n];
        bool is_dependent = node->kind == ND_NODE_DEQUANTIZE;
        for (size_t i = 0; i < node->n_uses && !is_dependent; i++) {
            size_t used = graph->uses[node->first_use + i];
            is_dependent = used != ND_NO_INDEX && depends[used];
        }
        for (size_t i = 0; i < node->n_made; i++) {
            size_t made = graph->made[node->first_made + i];
            if (made != ND_NO_INDEX)
                depends[made] = is_dependent && node->kind != ND_NODE_QUANTIZE && !node->is_constant;
        }
    }
}

/* The one layer that everything goes to that the node makes, or ND_NO_INDEX. */
static size_t common_layer(const struct nd_graph *graph, const struct nd_graph_node *node,
                           const size_t *layer_of_node)
{
    size_t layer = ND_NO_INDEX;
    for (size_t i = 0; i < node->n_made; i++) {
        size_t made = graph->made[node->first_made + i];
        if (made == ND_NO_INDEX)
            continue;
        const struct nd_graph_tensor *tensor = &graph->tensors[made];
        if (tensor->output != ND_NO_INDEX)
            return ND_NO_INDEX;
        for (size_t r = 0; r < tensor->n_readers; r++) {
            size_t readers_layer = layer_of_node[graph->readers[tensor->first_reader + r]];
            if (readers_layer == ND_NO_INDEX || (layer != ND_NO_INDEX && layer != readers_layer))
                return ND_NO_INDEX;
            layer = readers_layer;
        }
    }
    return layer;
}

static size_t assign(const struct nd_graph *graph, size_t index, const bool *depends,
                     const size_t *layer_of_node)
{
    const struct nd_graph_node *node = &graph->nodes[index];
    if (!node->is_alive || node->is_constant || node->kind == ND_NODE_DEQUANTIZE)
        return ND_NO_INDEX;
    if (node->kind == ND_NODE_QUANTIZE) {
        const struct nd_graph_tensor *source = &graph->tensors[quantised_tensor(graph, index)];
        return source->producer == ND_NO_INDEX || source->is_constant ? ND_NO_INDEX : index;
    }
    size_t layer = common_layer(graph, node, layer_of_node);
    if (layer == ND_NO_INDEX || graph->tensors[quantised_tensor(graph, layer)].producer == index)
        return layer;
    for (size_t i = 0; i < node->n_uses; i++) {
        size_t used = graph->uses[node->first_use + i];
        if (used != ND_NO_INDEX && depends[used])
            return layer;
    }
    return ND_NO_INDEX;
}

enum nd_status nd_layers_assign(const struct nd_graph *graph, size_t **out, struct nd_error *err)
{
    size_t *layer_of_node = nd_calloc(graph->n_nodes, sizeof *layer_of_node);
    bool *depends = nd_calloc(graph->n_tensors, sizeof *depends);
    if (layer_of_node == NULL || depends == NULL) {
        free(layer_of_node);
        free(depends);
        return nd_fail_memory(err);
    }
    mark_dependent(graph, depends);
    for (size_t n = graph->n_nodes; n-- > 0;)
        layer_of_node[n] = assign(graph, n, depends, layer_of_node);
    free(depends);
    *out = layer_of_node;
    return ND_OK;
}

/* The nodes of each layer in graph order, as lists: first[q] of the layer that node q ends, next[n] after node
 * n.
 */
struct members {
    size_t *first;
    size_t *next;
};

static enum nd_status list_members(const struct nd_graph *graph, const size_t *layer_of_node,
                                   struct members *out, struct nd_error *err)
{
    out->first = nd_calloc(graph->n_nodes, sizeof *out->first);
    out->next = nd_calloc(graph->n_nodes, sizeof *out->next);
    if (out->first == NULL || out->next == NULL)
        return nd_fail_memory(err);
    for (size_t n = 0; n < graph->n_nodes; n++)
        out->first[n] = ND_NO_INDEX;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        size_t layer = layer_of_node[n];
        if (layer == ND_NO_INDEX || layer == n)
            continue;
        out->next[n] = out->first[layer];
        out->first[layer] = n;
    }
    return ND_OK;
}

struct layer_builder {
    struct nd_model *model;
    size_t *seen_in; /* [n_edges]: 1 + the last layer that was found to read the tensor */
    struct nd_strbuf op_types;
    size_t *inputs;
    size_t n_inputs, capacity;
};

static bool add_input(struct layer_builder *builder, size_t value, size_t own_tensor)
{
    struct nd_model *model = builder->model;
    if (value == ND_NO_INDEX || model->graph.tensors[value].is_constant)
        return true;
    size_t tensor = model->tensor_of_value[value];
    if (tensor == ND_NO_INDEX || tensor == own_tensor || builder->seen_in[tensor] == model->n_layers + 1)
        return true;
    builder->seen_in[tensor] = model->n_layers + 1;
    if (!nd_grow((void **)&builder->inputs, &builder->capacity, builder->n_inputs + 1, sizeof *builder->inputs))
        return false;
    builder->inputs[builder->n_inputs++] = tensor;
    return true;
}

static bool add_member(struct layer_builder *builder, size_t index, size_t own_tensor)
{
    const struct nd_graph *graph = &builder->model->graph;
    const struct nd_graph_node *node = &graph->nodes[index];
    nd_strbuf_printf(&builder->op_types, "%s%s", builder->op_types.len > 0 ? "+" : "", node->proto->op_type);
    for (size_t i = 0; i < node->n_uses; i++)
        if (!add_input(builder, graph->uses[node->first_use + i], own_tensor))
            return false;
    return true;
}

static enum nd_status add_layer(struct layer_builder *builder, size_t quantize, const struct members *members,
                                struct nd_error *err)
{
    struct nd_model *model = builder->model;
    const struct nd_graph *graph = &model->graph;
    size_t source = quantised_tensor(graph, quantize), last = graph->tensors[source].producer;
    size_t tensor = model->tensor_of_value[graph->made[graph->nodes[quantize].first_made]];
    bool has_memory = true, has_last = false;
    for (size_t n = members->first[quantize]; n != ND_NO_INDEX && has_memory; n = members->next[n]) {
        has_memory = add_member(builder, n, tensor);
        has_last = has_last || n == last;
    }
    /* An operator whose output has other readers as well belongs to no layer alone; still it makes this tensor.
     */
    if (has_memory && !has_last && graph->nodes[last].kind == ND_NODE_OTHER)
        has_memory = add_member(builder, last, tensor);
    if (has_memory && graph->nodes[last].kind != ND_NODE_OTHER) {
        nd_strbuf_puts(&builder->op_types, "requantise");
        has_memory = add_input(builder, source, tensor);
    }
    char *op_types = nd_strbuf_take(&builder->op_types);
    if (!has_memory || op_types == NULL) {
        free(op_types);
        return nd_fail_memory(err);
    }
    free(model->tensors[tensor].op_types);
    model->tensors[tensor].op_types = op_types;
    if (model->layer_of_tensor[tensor] == ND_NO_INDEX)
        model->layer_of_tensor[tensor] = model->n_layers;
    model->layers[model->n_layers++] = (struct nd_model_layer){.name = model->tensors[tensor].name,
                                                               .op_types = op_types,
                                                               .tensor = tensor,
                                                               .n_inputs = builder->n_inputs,
                                                               .inputs = builder->inputs};
    builder->inputs = NULL;
    builder->n_inputs = builder->capacity = 0;
    return ND_OK;
}

enum nd_status nd_layers_find(struct nd_model *model, const size_t *layer_of_node, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    struct members members = {0};
    struct layer_builder builder = {.model = model,
                                    .seen_in = nd_calloc(model->n_tensors, sizeof *builder.seen_in)};
    enum nd_status status = list_members(graph, layer_of_node, &members, err);
    size_t n_layers = 0;
    for (size_t n = 0; n < graph->n_nodes; n++)
        n_layers += layer_of_node[n] == n;
    model->layers = nd_calloc(n_layers, sizeof *model->layers);
    model->layer_of_tensor = nd_calloc(model->n_tensors, sizeof *model->layer_of_tensor);
    if (status == ND_OK && (builder.seen_in == NULL || model->layers == NULL || model->layer_of_tensor == NULL))
        status = nd_fail_memory(err);
    for (size_t e = 0; status == ND_OK && e < model->n_tensors; e++)
        model->layer_of_tensor[e] = ND_NO_INDEX;
    for (size_t n = 0; n < graph->n_nodes && status == ND_OK; n++)
        if (layer_of_node[n] == n)
            status = add_layer(&builder, n, &members, err);
    nd_strbuf_deinit(&builder.op_types);
    free(builder.inputs);
    free(builder.seen_in);
    free(members.first);
    free(members.next);
    return status;
}
