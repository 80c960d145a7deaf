/* Copies of a model whose outputs are chosen edges. The copy borrows whatever it does not change. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/graph/loaded.h"
#include "model/rewrite/expose.h"
#include "model/rewrite/put.h"

struct copy {
    const struct nd_model *source;
    const bool *as_floats; /* [n_edges of the model], or NULL */
    bool *needed_nodes;
    bool *needed_tensors;
    size_t *targets; /* the tensors that become outputs, in order */
    size_t n_targets;
    size_t *output_of; /* [n_tensors]: 1 + position among the targets, 0 for none */

    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__NodeProto *nodes;       /* copies of nodes that get a name */
    Onnx__ValueInfoProto *values; /* [n_targets] of outputs that had none */
    Onnx__TypeProto *types;
    Onnx__TypeProto__Tensor *tensor_types;
};

static bool is_float(const struct copy *copy, size_t edge)
{
    return copy->as_floats != NULL && copy->as_floats[edge];
}

/* The tensor that shows the edge. */
static size_t find_tensor(const struct copy *copy, size_t edge)
{
    struct nd_dequantised floats = {.tensor = copy->source->edges[edge].onnx_name};
    if (is_float(copy, edge))
        nd_model_find_dequantised(copy->source, edge, &floats);
    return nd_names_find(&copy->source->graph.names, floats.tensor);
}

static enum nd_status find_targets(struct copy *copy, const size_t *edges, size_t n_edges, struct nd_error *err)
{
    const struct nd_model *model = copy->source;
    if (n_edges == 0)
        return nd_fail(err, ND_E_MODEL_NO_EDGE, model->path, "no edge of '%s' was asked for", model->path);
    for (size_t i = 0; i < n_edges; i++) {
        const struct nd_edge *edge = nd_model_edge(model, edges[i]);
        size_t tensor = find_tensor(copy, edges[i]);
        if (model->graph.tensors[tensor].producer == ND_NO_INDEX)
            return nd_fail(err, ND_E_OPTION_VALUE, edge->name,
                           "edge '%s' is an input of '%s' and cannot be an output as well", edge->name,
                           model->path);
        if (copy->output_of[tensor] != 0)
            return nd_fail(err, ND_E_OPTION_VALUE, edge->name, "edge '%s' is asked for twice", edge->name);
        copy->output_of[tensor] = ++copy->n_targets;
        copy->targets[i] = tensor;
    }
    nd_graph_walk_back(&model->graph, copy->targets, copy->n_targets, copy->needed_nodes, copy->needed_tensors);
    return ND_OK;
}

static enum nd_status allocate(struct copy *copy, size_t n_edges, struct nd_error *err)
{
    const struct nd_graph *graph = &copy->source->graph;
    const Onnx__GraphProto *proto = graph->proto;
    size_t n_values = proto->n_value_info + proto->n_output;
    copy->model = *copy->source->proto;
    copy->graph = *proto;
    copy->model.graph = &copy->graph;
    copy->needed_nodes = nd_calloc(graph->n_nodes, sizeof *copy->needed_nodes);
    copy->needed_tensors = nd_calloc(graph->n_tensors, sizeof *copy->needed_tensors);
    copy->output_of = nd_calloc(graph->n_tensors, sizeof *copy->output_of);
    copy->targets = nd_calloc(n_edges, sizeof *copy->targets);
    copy->nodes = nd_calloc(graph->n_nodes, sizeof *copy->nodes);
    copy->values = nd_calloc(n_edges, sizeof *copy->values);
    copy->types = nd_calloc(n_edges, sizeof *copy->types);
    copy->tensor_types = nd_calloc(n_edges, sizeof *copy->tensor_types);
    copy->graph.node = nd_calloc(proto->n_node, sizeof(void *));
    copy->graph.initializer = nd_calloc(proto->n_initializer, sizeof(void *));
    copy->graph.sparse_initializer = nd_calloc(proto->n_sparse_initializer, sizeof(void *));
    copy->graph.input = nd_calloc(proto->n_input, sizeof(void *));
    copy->graph.output = nd_calloc(n_edges, sizeof(void *));
    copy->graph.value_info = nd_calloc(n_values, sizeof(void *));
    copy->graph.n_node = copy->graph.n_initializer = copy->graph.n_sparse_initializer = 0;
    copy->graph.n_input = copy->graph.n_output = copy->graph.n_value_info = 0;
    bool is_whole = copy->needed_nodes != NULL && copy->needed_tensors != NULL && copy->output_of != NULL &&
                    copy->targets != NULL && copy->nodes != NULL && copy->values != NULL &&
                    copy->types != NULL && copy->tensor_types != NULL && copy->graph.node != NULL &&
                    copy->graph.initializer != NULL && copy->graph.sparse_initializer != NULL &&
                    copy->graph.input != NULL && copy->graph.output != NULL && copy->graph.value_info != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static void copy_deinit(struct copy *copy)
{
    free(copy->needed_nodes);
    free(copy->needed_tensors);
    free(copy->output_of);
    free(copy->targets);
    free(copy->nodes);
    free(copy->values);
    free(copy->types);
    free(copy->tensor_types);
    free(copy->graph.node);
    free(copy->graph.initializer);
    free(copy->graph.sparse_initializer);
    free(copy->graph.input);
    free(copy->graph.output);
    free(copy->graph.value_info);
}

static bool is_needed(const struct copy *copy, const char *name)
{
    size_t tensor = nd_names_find(&copy->source->graph.names, nd_onnx_text(name));
    return tensor != ND_NO_INDEX && copy->needed_tensors[tensor];
}

static void keep_nodes(struct copy *copy)
{
    const struct nd_graph *graph = &copy->source->graph;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (!copy->needed_nodes[i])
            continue;
        Onnx__NodeProto *node = graph->proto->node[i];
        if (nd_onnx_text(node->name)[0] == '\0') {
            /* The runtime reports nodes by name; packing does not write to it. */
            copy->nodes[i] = *node;
            copy->nodes[i].name = (char *)(uintptr_t)nd_graph_node_name(node);
            node = &copy->nodes[i];
        }
        copy->graph.node[copy->graph.n_node++] = node;
    }
}

static void keep_sources(struct copy *copy)
{
    const struct nd_graph *graph = &copy->source->graph;
    const Onnx__GraphProto *proto = graph->proto;
    for (size_t i = 0; i < proto->n_initializer; i++)
        if (is_needed(copy, proto->initializer[i]->name))
            copy->graph.initializer[copy->graph.n_initializer++] = proto->initializer[i];
    for (size_t i = 0; i < proto->n_sparse_initializer; i++)
        if (is_needed(copy, proto->sparse_initializer[i]->values->name))
            copy->graph.sparse_initializer[copy->graph.n_sparse_initializer++] = proto->sparse_initializer[i];
    /* All inputs stay, so that a probe fits every copy; but an initializer that is listed as an input would,
     * alone, become an input that somebody has to feed. */
    for (size_t i = 0; i < proto->n_input; i++) {
        size_t tensor = nd_names_find(&graph->names, proto->input[i]->name);
        if (!graph->tensors[tensor].is_constant || copy->needed_tensors[tensor])
            copy->graph.input[copy->graph.n_input++] = proto->input[i];
    }
}

/* An output that was none before: its type as far as it is known. */
static Onnx__ValueInfoProto *make_output(struct copy *copy, size_t position, size_t edge)
{
    const struct nd_edge *known = &copy->source->edges[edge];
    Onnx__ValueInfoProto *value = &copy->values[position];
    onnx__value_info_proto__init(value);
    enum nd_dtype dtype = is_float(copy, edge) ? ND_DTYPE_F32 : known->dtype;
    value->name =
        (char *)(uintptr_t)copy->source->graph.tensors[copy->targets[position]].name; /* not written to */
    if (dtype == ND_DTYPE_NONE)
        return value;
    onnx__type_proto__tensor__init(&copy->tensor_types[position]);
    copy->tensor_types[position].has_elem_type = true;
    copy->tensor_types[position].elem_type = (int32_t)dtype;
    /* Codes have the shape that the float tensor declares. */
    if (copy->source->edge_types[edge] != NULL)
        copy->tensor_types[position].shape = copy->source->edge_types[edge]->shape;
    onnx__type_proto__init(&copy->types[position]);
    copy->types[position].value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    copy->types[position].tensor_type = &copy->tensor_types[position];
    value->type = &copy->types[position];
    return value;
}

static void choose_outputs(struct copy *copy, const size_t *edges)
{
    const struct nd_graph *graph = &copy->source->graph;
    const Onnx__GraphProto *proto = graph->proto;
    for (size_t i = 0; i < copy->n_targets; i++)
        copy->graph.output[copy->graph.n_output++] = make_output(copy, i, edges[i]);
    /* Former outputs describe tensors that may still be inside; an output needs no second description. A
     * value's original description is better than ours. */
    for (size_t i = 0; i < proto->n_value_info + proto->n_output; i++) {
        Onnx__ValueInfoProto *value =
            i < proto->n_value_info ? proto->value_info[i] : proto->output[i - proto->n_value_info];
        size_t tensor = nd_names_find(&graph->names, nd_onnx_text(value->name));
        if (tensor == ND_NO_INDEX || !copy->needed_tensors[tensor])
            continue;
        if (copy->output_of[tensor] == 0)
            copy->graph.value_info[copy->graph.n_value_info++] = value;
        else if (nd_onnx_tensor_type(value) != NULL)
            copy->graph.output[copy->output_of[tensor] - 1] = value;
    }
}

enum nd_status nd_model_write_shown(const struct nd_model *model, const size_t *edges, size_t n_edges,
                                    const bool *as_floats, const char *path, struct nd_error *err)
{
    struct copy copy = {.source = model, .as_floats = as_floats};
    enum nd_status status = allocate(&copy, n_edges, err);
    if (status == ND_OK)
        status = find_targets(&copy, edges, n_edges, err);
    if (status == ND_OK) {
        keep_nodes(&copy);
        keep_sources(&copy);
        choose_outputs(&copy, edges);
        status = nd_rewrite_put(&copy.model, &model->external, path, err);
    }
    copy_deinit(&copy);
    return status;
}

enum nd_status nd_model_write_exposed(const struct nd_model *model, const size_t *edges, size_t n_edges,
                                      const char *path, struct nd_error *err)
{
    return nd_model_write_shown(model, edges, n_edges, NULL, path, err);
}
