/* Finds the tensors that a capture can record, and what they are called. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "core/files/suffix.h"
#include "model/graph/loaded.h"
#include "model/graph/quant.h"

struct finder {
    struct nd_model *model;
    const size_t *unit_of_node;
    size_t *natural; /* [n_edges]: the tensor that an edge is named after */
    size_t edges_capacity, types_capacity, natural_capacity;
};

/* What is known of an edge when it is found. */
struct found {
    size_t tensor;  /* whose bytes are recorded */
    size_t natural; /* the tensor that it stands for */
    size_t quant;   /* the QuantizeLinear or DequantizeLinear that tells its scale; ND_NO_INDEX */
    bool is_input;
};

static size_t first_input(const struct nd_graph *graph, size_t node)
{
    return graph->uses[graph->nodes[node].first_use];
}

/* The first live node of that kind that reads the tensor as its data (not as a scale). */
static size_t reader_of_kind(const struct nd_graph *graph, size_t tensor, enum nd_node_kind kind)
{
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    for (size_t r = 0; r < t->n_readers; r++) {
        size_t node = graph->readers[t->first_reader + r];
        if (graph->nodes[node].kind == kind && first_input(graph, node) == tensor)
            return node;
    }
    return ND_NO_INDEX;
}

static const Onnx__TypeProto__Tensor *type_of(const struct nd_graph *graph, size_t tensor)
{
    return nd_onnx_tensor_type(graph->tensors[tensor].value_info);
}

/* Codes have the shape of what they stand for and of what is made of them: any of these may declare it. */
static const Onnx__TypeProto__Tensor *find_shape(const struct nd_model *model, const struct found *found)
{
    const struct nd_graph *graph = &model->graph;
    size_t dequantize = reader_of_kind(graph, found->tensor, ND_NODE_DEQUANTIZE);
    size_t candidates[] = {found->natural, found->tensor,
                           dequantize != ND_NO_INDEX ? graph->made[graph->nodes[dequantize].first_made]
                                                     : ND_NO_INDEX};
    for (size_t i = 0; i < sizeof candidates / sizeof candidates[0]; i++) {
        const Onnx__TypeProto__Tensor *type =
            candidates[i] != ND_NO_INDEX ? type_of(graph, candidates[i]) : NULL;
        if (type != NULL && type->shape != NULL)
            return type;
    }
    /* Codes made of other codes have their shape. */
    size_t source = model->tensor_edge[found->natural];
    return source != ND_NO_INDEX ? model->edge_types[source] : NULL;
}

static enum nd_status read_quant(const struct nd_model *model, const struct found *found, struct nd_edge *edge,
                                 struct nd_error *err)
{
    const Onnx__TypeProto__Tensor *type = type_of(&model->graph, found->tensor);
    enum nd_dtype declared =
        type != NULL && type->has_elem_type ? nd_onnx_dtype(type->elem_type) : ND_DTYPE_NONE;
    edge->quant.axis = -1;
    edge->dtype = declared;
    if (found->quant == ND_NO_INDEX)
        return ND_OK;
    struct nd_node_quant quant;
    enum nd_status status = nd_node_quant_read(&model->graph, found->quant, model->path, &quant, err);
    if (status != ND_OK)
        return status;
    edge->quant = quant.quant;
    /* A QuantizeLinear makes the type; a DequantizeLinear reads what is there. */
    if (quant.dtype != ND_DTYPE_NONE &&
        (model->graph.nodes[found->quant].kind == ND_NODE_QUANTIZE || declared == ND_DTYPE_NONE))
        edge->dtype = quant.dtype;
    if (edge->dtype != ND_DTYPE_NONE && !nd_dtype_is_of_codes(edge->dtype))
        nd_quant_deinit(&edge->quant);
    return ND_OK;
}

static enum nd_status add_edge(struct finder *finder, const struct found *found, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph_tensor *tensor = &model->graph.tensors[found->tensor];
    size_t n = model->n_edges + 1;
    if (!nd_grow((void **)&model->edges, &finder->edges_capacity, n, sizeof *model->edges) ||
        !nd_grow((void **)&model->edge_types, &finder->types_capacity, n, sizeof *model->edge_types) ||
        !nd_grow((void **)&finder->natural, &finder->natural_capacity, n, sizeof *finder->natural))
        return nd_fail_memory(err);
    struct nd_edge *edge = &model->edges[model->n_edges];
    *edge = (struct nd_edge){.shape = {.rank = -1}, .is_model_input = found->is_input};
    enum nd_status status = read_quant(model, found, edge, err);
    if (status != ND_OK)
        return status;
    const Onnx__NodeProto *producer =
        tensor->producer != ND_NO_INDEX ? model->graph.nodes[tensor->producer].proto : NULL;
    edge->onnx_name = nd_strdup(tensor->name);
    edge->node = nd_strdup(producer != NULL ? nd_graph_node_name(producer) : "");
    /* Of a unit's edge, nd_units_find says it better. */
    edge->op_types = nd_strdup(found->is_input || producer == NULL ? "input" : producer->op_type);
    model->edge_types[model->n_edges] = find_shape(model, found);
    finder->natural[model->n_edges] = found->natural;
    model->tensor_edge[found->tensor] = model->n_edges++;
    return edge->onnx_name != NULL && edge->node != NULL && edge->op_types != NULL ? ND_OK
                                                                                   : nd_fail_memory(err);
}

/* An edge of codes that a QuantizeLinear makes. */
static enum nd_status add_quantize(struct finder *finder, size_t node, bool is_input, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    size_t source = first_input(&model->graph, node);
    struct found found = {.tensor = model->graph.made[model->graph.nodes[node].first_made],
                          .natural = source,
                          .quant = node,
                          .is_input = is_input};
    enum nd_status status = add_edge(finder, &found, err);
    if (status == ND_OK && model->tensor_edge[source] == ND_NO_INDEX)
        model->tensor_edge[source] = model->tensor_edge[found.tensor];
    return status;
}

/* The graph inputs that are quantised, or are codes themselves. Floats as they are fed are no edges. */
static enum nd_status add_input_edges(struct finder *finder, struct nd_error *err)
{
    struct nd_graph *graph = &finder->model->graph;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < graph->proto->n_input && status == ND_OK; i++) {
        size_t t = nd_names_find(&graph->names, graph->proto->input[i]->name);
        const struct nd_graph_tensor *tensor = &graph->tensors[t];
        if (tensor->is_constant)
            continue;
        for (size_t r = 0; r < tensor->n_readers && status == ND_OK; r++) {
            size_t node = graph->readers[tensor->first_reader + r];
            if (graph->nodes[node].kind == ND_NODE_QUANTIZE && first_input(graph, node) == t &&
                finder->model->tensor_edge[graph->made[graph->nodes[node].first_made]] == ND_NO_INDEX)
                status = add_quantize(finder, node, true, err);
        }
        size_t dequantize = reader_of_kind(graph, t, ND_NODE_DEQUANTIZE);
        if (dequantize != ND_NO_INDEX && finder->model->tensor_edge[t] == ND_NO_INDEX && status == ND_OK)
            status = add_edge(
                finder, &(struct found){.tensor = t, .natural = t, .quant = dequantize, .is_input = true}, err);
    }
    return status;
}

/* What an operator makes, unless it is hidden in a unit or a QuantizeLinear makes codes of it. */
static enum nd_status add_plain(struct finder *finder, size_t index, struct nd_error *err)
{
    const struct nd_graph *graph = &finder->model->graph;
    const struct nd_graph_node *node = &graph->nodes[index];
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < node->n_made && status == ND_OK; i++) {
        size_t made = graph->made[node->first_made + i];
        if (made == ND_NO_INDEX || !nd_graph_is_wanted(graph, made) ||
            reader_of_kind(graph, made, ND_NODE_QUANTIZE) != ND_NO_INDEX)
            continue;
        const Onnx__ValueInfoProto *info = graph->tensors[made].value_info;
        if (info != NULL && info->type != NULL && info->type->value_case != ONNX__TYPE_PROTO__VALUE__NOT_SET &&
            nd_onnx_tensor_type(info) == NULL)
            continue; /* a sequence, a map... */
        struct found found = {
            .tensor = made, .natural = made, .quant = reader_of_kind(graph, made, ND_NODE_DEQUANTIZE)};
        status = add_edge(finder, &found, err);
    }
    return status;
}

static enum nd_status add_node_edges(struct finder *finder, size_t index, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph_node *node = &model->graph.nodes[index];
    if (!node->is_alive || node->is_constant)
        return ND_OK;
    size_t made = node->n_made > 0 ? model->graph.made[node->first_made] : ND_NO_INDEX;
    switch (node->kind) {
    case ND_NODE_QUANTIZE:
        return model->tensor_edge[made] == ND_NO_INDEX ? add_quantize(finder, index, false, err) : ND_OK;
    case ND_NODE_DEQUANTIZE:
        model->tensor_edge[made] = model->tensor_edge[first_input(&model->graph, index)];
        return ND_OK;
    case ND_NODE_OTHER:
        break;
    }
    return finder->unit_of_node[index] == ND_NO_INDEX ? add_plain(finder, index, err) : ND_OK;
}

/* text without the suffix, in new memory; all of it when it does not end so. */
static char *without_suffix(const char *text, const char *suffix)
{
    size_t n_stem = nd_stem_bytes(text, suffix);
    return n_stem > 0 ? strndup(text, n_stem) : nd_strdup(text);
}

/* Gives the edge a name that it owns if the name is free. False: out of memory. */
static bool try_name(struct nd_edge *edge, struct nd_names *taken, char *name, size_t index)
{
    if (name == NULL)
        return false;
    if (edge->name != NULL || nd_names_find(taken, name) != ND_NO_INDEX) {
        free(name);
        return true;
    }
    edge->name = name;
    return nd_names_add(taken, name, index);
}

static bool name_edge(struct finder *finder, struct nd_names *taken, size_t index)
{
    static const char quantize_output[] = "_QuantizeLinear_Output";
    const struct nd_graph *graph = &finder->model->graph;
    struct nd_edge *edge = &finder->model->edges[index];
    const struct nd_graph_tensor *natural = &graph->tensors[finder->natural[index]];
    /* Codes made of a dequantised tensor: what they stand for is named by that tensor's own codes. */
    bool is_requantised =
        natural->producer != ND_NO_INDEX && graph->nodes[natural->producer].kind == ND_NODE_DEQUANTIZE;
    if (edge->name != NULL)
        return true;
    bool has_memory =
        is_requantised || try_name(edge, taken, without_suffix(natural->name, "_QuantizeLinear_Input"), index);
    has_memory = has_memory && try_name(edge, taken, without_suffix(edge->onnx_name, quantize_output), index) &&
                 try_name(edge, taken, nd_strdup(edge->onnx_name), index);
    for (size_t i = 2; has_memory && edge->name == NULL; i++) {
        struct nd_strbuf numbered = {0};
        nd_strbuf_printf(&numbered, "%s#%zu", edge->onnx_name, i);
        has_memory = try_name(edge, taken, nd_strbuf_take(&numbered), index);
    }
    return has_memory;
}

static enum nd_status name_edges(struct finder *finder, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph *graph = &model->graph;
    struct nd_names taken = {0};
    bool has_memory = true;
    /* The names of the graph's outputs go first: nothing else may take them. Among the outputs of one edge,
     * floats go before codes. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < graph->proto->n_output && has_memory; i++) {
            size_t t = nd_names_find(&graph->names, graph->proto->output[i]->name),
                   edge = model->tensor_edge[t];
            bool is_codes =
                edge != ND_NO_INDEX && strcmp(model->edges[edge].onnx_name, graph->tensors[t].name) == 0;
            if (edge != ND_NO_INDEX && is_codes == (pass == 1) && graph->tensors[t].input == ND_NO_INDEX)
                has_memory = try_name(&model->edges[edge], &taken, nd_strdup(graph->tensors[t].name), edge);
        }
    }
    for (size_t i = 0; i < model->n_edges && has_memory; i++)
        has_memory = name_edge(finder, &taken, i);
    nd_names_deinit(&taken);
    return has_memory ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_edges_find(struct nd_model *model, const size_t *unit_of_node, struct nd_error *err)
{
    struct finder finder = {.model = model, .unit_of_node = unit_of_node};
    model->tensor_edge = nd_calloc(model->graph.n_tensors, sizeof *model->tensor_edge);
    if (model->tensor_edge == NULL)
        return nd_fail_memory(err);
    for (size_t t = 0; t < model->graph.n_tensors; t++)
        model->tensor_edge[t] = ND_NO_INDEX;
    enum nd_status status = add_input_edges(&finder, err);
    for (size_t n = 0; n < model->graph.n_nodes && status == ND_OK; n++)
        status = add_node_edges(&finder, n, err);
    if (status == ND_OK)
        status = name_edges(&finder, err);
    free(finder.natural);
    return status;
}
