/* Finds the tensors that a capture can record, and what they are called. */
#include "model/graph/graph.h"

#include <stdlib.h>
#include <string.h>

#include "core/files/suffix.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "model/graph/quant.h"

const char *nd_graph_node_name(const Onnx__NodeProto *node)
{
    if (nd_onnx_text(node->name)[0] != '\0')
        return node->name;
    for (size_t i = 0; i < node->n_output; i++)
        if (node->output[i][0] != '\0')
            return node->output[i];
    return nd_onnx_text(node->op_type);
}

static enum nd_node_kind kind_of(const Onnx__NodeProto *node)
{
    const char *domain = nd_onnx_domain(node->domain);
    if (domain[0] != '\0' && strcmp(domain, "com.microsoft") != 0)
        return ND_NODE_OTHER;
    if (strcmp(node->op_type, "QuantizeLinear") == 0)
        return ND_NODE_QUANTIZE;
    return strcmp(node->op_type, "DequantizeLinear") == 0 ? ND_NODE_DEQUANTIZE : ND_NODE_OTHER;
}

/* Operators without inputs (or with constant ones) whose results are no constants all the same. */
static bool is_random(const Onnx__NodeProto *node)
{
    static const char *const random[] = {"RandomNormal",      "RandomNormalLike", "RandomUniform",
                                         "RandomUniformLike", "Multinomial",      "Bernoulli"};
    for (size_t i = 0; i < sizeof random / sizeof random[0]; i++)
        if (strcmp(node->op_type, random[i]) == 0)
            return true;
    return false;
}

static bool append(size_t **items, size_t *n, size_t *capacity, size_t value)
{
    if (!nd_grow((void **)items, capacity, *n + 1, sizeof **items))
        return false;
    (*items)[(*n)++] = value;
    return true;
}

/* Adds the tensor `name`, which must be new: what makes a tensor a second time contradicts the first. */
static enum nd_status add_tensor(struct nd_graph *graph, const char *name, const char *what,
                                 struct nd_graph_tensor **out, struct nd_error *err)
{
    if (nd_onnx_text(name)[0] == '\0')
        return nd_fail(err, ND_E_MODEL_GRAPH, what, "%s has no name", what);
    if (nd_names_find(&graph->names, name) != ND_NO_INDEX)
        return nd_fail(err, ND_E_MODEL_GRAPH, name, "%s '%s' has the name of another tensor of the graph", what,
                       name);
    if (!nd_grow((void **)&graph->tensors, &graph->tensors_capacity, graph->n_tensors + 1,
                 sizeof *graph->tensors) ||
        !nd_names_add(&graph->names, name, graph->n_tensors))
        return nd_fail_memory(err);
    *out = &graph->tensors[graph->n_tensors++];
    **out = (struct nd_graph_tensor){
        .name = name, .producer = ND_NO_INDEX, .input = ND_NO_INDEX, .output = ND_NO_INDEX};
    return ND_OK;
}

static enum nd_status add_initializer(struct nd_graph *graph, const Onnx__TensorProto *values, bool is_sparse,
                                      struct nd_error *err)
{
    if (values == NULL)
        return nd_fail(err, ND_E_MODEL_GRAPH, NULL, "a sparse initializer has no values");
    struct nd_graph_tensor *tensor = NULL;
    enum nd_status status = add_tensor(graph, values->name, "initializer", &tensor, err);
    if (status != ND_OK)
        return status;
    tensor->initializer = is_sparse ? NULL : values;
    tensor->is_constant = true;
    return ND_OK;
}

static enum nd_status add_sources(struct nd_graph *graph, struct nd_error *err)
{
    const Onnx__GraphProto *proto = graph->proto;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < proto->n_initializer && status == ND_OK; i++)
        status = add_initializer(graph, proto->initializer[i], false, err);
    for (size_t i = 0; i < proto->n_sparse_initializer && status == ND_OK; i++)
        status = add_initializer(graph, proto->sparse_initializer[i]->values, true, err);
    for (size_t i = 0; i < proto->n_input && status == ND_OK; i++) {
        /* Up to IR version 3 every initializer was an input as well. */
        size_t known = nd_names_find(&graph->names, nd_onnx_text(proto->input[i]->name));
        struct nd_graph_tensor *tensor = NULL;
        if (known != ND_NO_INDEX && graph->tensors[known].is_constant &&
            graph->tensors[known].input == ND_NO_INDEX)
            tensor = &graph->tensors[known];
        else
            status = add_tensor(graph, proto->input[i]->name, "graph input", &tensor, err);
        if (status == ND_OK) {
            tensor->input = i;
            tensor->value_info = proto->input[i];
        }
    }
    return status;
}

/* The tensors of the graph around it that a subgraph reads. Names inside a subgraph differ from those around it
 * (ONNX demands that), so a name that is known here means the tensor here. */
static enum nd_status add_captures(struct nd_graph *graph, const Onnx__GraphProto *subgraph,
                                   struct nd_error *err);

static enum nd_status add_capture(struct nd_graph *graph, const char *name, struct nd_error *err)
{
    size_t tensor = nd_names_find(&graph->names, nd_onnx_text(name));
    if (tensor == ND_NO_INDEX || append(&graph->uses, &graph->n_uses, &graph->uses_capacity, tensor))
        return ND_OK;
    return nd_fail_memory(err);
}

static enum nd_status add_node_captures(struct nd_graph *graph, const Onnx__NodeProto *node,
                                        struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t a = 0; a < node->n_attribute && status == ND_OK; a++) {
        const Onnx__AttributeProto *attribute = node->attribute[a];
        if (attribute->g != NULL)
            status = add_captures(graph, attribute->g, err);
        for (size_t g = 0; g < attribute->n_graphs && status == ND_OK; g++)
            status = add_captures(graph, attribute->graphs[g], err);
    }
    return status;
}

static enum nd_status add_captures(struct nd_graph *graph, const Onnx__GraphProto *subgraph,
                                   struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < subgraph->n_node && status == ND_OK; i++) {
        for (size_t k = 0; k < subgraph->node[i]->n_input && status == ND_OK; k++)
            status = add_capture(graph, subgraph->node[i]->input[k], err);
        if (status == ND_OK)
            status = add_node_captures(graph, subgraph->node[i], err);
    }
    for (size_t i = 0; i < subgraph->n_output && status == ND_OK; i++)
        status = add_capture(graph, subgraph->output[i]->name, err);
    return status;
}

static enum nd_status add_uses(struct nd_graph *graph, size_t index, struct nd_error *err)
{
    const Onnx__NodeProto *proto = graph->proto->node[index];
    struct nd_graph_node *node = &graph->nodes[index];
    node->first_use = graph->n_uses;
    node->n_inputs = proto->n_input;
    for (size_t i = 0; i < proto->n_input; i++) {
        size_t tensor = nd_names_find(&graph->names, proto->input[i]);
        if (tensor == ND_NO_INDEX && proto->input[i][0] != '\0')
            return nd_fail(err, ND_E_MODEL_GRAPH, proto->input[i],
                           "node '%s' (%s) reads tensor '%s', which nothing makes", nd_graph_node_name(proto),
                           proto->op_type, proto->input[i]);
        if (!append(&graph->uses, &graph->n_uses, &graph->uses_capacity, tensor))
            return nd_fail_memory(err);
    }
    enum nd_status status = add_node_captures(graph, proto, err);
    node->n_uses = graph->n_uses - node->first_use;
    return status;
}

static bool has_subgraph(const Onnx__NodeProto *node)
{
    for (size_t i = 0; i < node->n_attribute; i++)
        if (node->attribute[i]->g != NULL || node->attribute[i]->n_graphs > 0)
            return true;
    return false;
}

static bool computes_a_constant(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    if (is_random(node->proto) || has_subgraph(node->proto))
        return false;
    for (size_t i = 0; i < node->n_inputs; i++) {
        size_t tensor = graph->uses[node->first_use + i];
        if (tensor != ND_NO_INDEX && !graph->tensors[tensor].is_constant)
            return false;
    }
    return true;
}

static enum nd_status add_node(struct nd_graph *graph, size_t index, struct nd_error *err)
{
    const Onnx__NodeProto *proto = graph->proto->node[index];
    struct nd_graph_node *node = &graph->nodes[index];
    node->proto = proto;
    if (nd_onnx_text(proto->op_type)[0] == '\0')
        return nd_fail(err, ND_E_MODEL_GRAPH, nd_graph_node_name(proto), "node '%s' names no operator",
                       nd_graph_node_name(proto));
    node->kind = kind_of(proto);
    enum nd_status status = add_uses(graph, index, err);
    if (status != ND_OK)
        return status;
    if (node->kind != ND_NODE_OTHER &&
        (proto->n_input < 2 || proto->input[0][0] == '\0' || proto->input[1][0] == '\0' ||
         proto->n_output != 1 || proto->output[0][0] == '\0'))
        return nd_fail(err, ND_E_MODEL_GRAPH, nd_graph_node_name(proto),
                       "node '%s' (%s) needs a tensor and a scale, and one output", nd_graph_node_name(proto),
                       proto->op_type);
    node->is_constant = computes_a_constant(graph, node);
    node->first_made = graph->n_made;
    node->n_made = proto->n_output;
    for (size_t i = 0; i < proto->n_output && status == ND_OK; i++) {
        size_t made = ND_NO_INDEX;
        if (proto->output[i][0] != '\0') {
            struct nd_graph_tensor *tensor = NULL;
            made = graph->n_tensors;
            status = add_tensor(graph, proto->output[i], "node output", &tensor, err);
            if (status != ND_OK) {
                nd_error_context(err, "node '%s' (%s)", nd_graph_node_name(proto), proto->op_type);
                return status;
            }
            tensor->producer = index;
            tensor->is_constant = node->is_constant;
        }
        if (!append(&graph->made, &graph->n_made, &graph->made_capacity, made))
            status = nd_fail_memory(err);
    }
    return status;
}

static enum nd_status add_outputs(struct nd_graph *graph, struct nd_error *err)
{
    for (size_t i = 0; i < graph->proto->n_output; i++) {
        const char *name = nd_onnx_text(graph->proto->output[i]->name);
        size_t tensor = nd_names_find(&graph->names, name);
        if (tensor == ND_NO_INDEX)
            return nd_fail(err, ND_E_MODEL_GRAPH, name, "graph output '%s' is made by nothing", name);
        if (graph->tensors[tensor].output != ND_NO_INDEX)
            return nd_fail(err, ND_E_MODEL_GRAPH, name, "graph output '%s' is listed twice", name);
        graph->tensors[tensor].output = i;
        if (nd_onnx_tensor_type(graph->tensors[tensor].value_info) == NULL)
            graph->tensors[tensor].value_info = graph->proto->output[i];
    }
    for (size_t i = 0; i < graph->proto->n_value_info; i++) {
        size_t tensor = nd_names_find(&graph->names, nd_onnx_text(graph->proto->value_info[i]->name));
        if (tensor != ND_NO_INDEX &&
            (graph->tensors[tensor].value_info == NULL || graph->tensors[tensor].value_info->type == NULL))
            graph->tensors[tensor].value_info = graph->proto->value_info[i];
    }
    return ND_OK;
}

void nd_graph_walk_back(const struct nd_graph *graph, const size_t *tensors, size_t n_tensors,
                        bool *needed_nodes, bool *needed_tensors)
{
    for (size_t i = 0; i < n_tensors; i++)
        needed_tensors[tensors[i]] = true;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        const struct nd_graph_node *node = &graph->nodes[n];
        for (size_t i = 0; i < node->n_made; i++) {
            size_t made = graph->made[node->first_made + i];
            needed_nodes[n] |= made != ND_NO_INDEX && needed_tensors[made];
        }
        for (size_t i = 0; needed_nodes[n] && i < node->n_uses; i++) {
            size_t used = graph->uses[node->first_use + i];
            if (used != ND_NO_INDEX)
                needed_tensors[used] = true;
        }
    }
}

static enum nd_status find_living(struct nd_graph *graph, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n_outputs = graph->proto->n_output;
    size_t *outputs = nd_calloc(n_outputs, sizeof *outputs);
    bool *nodes = nd_calloc(graph->n_nodes, sizeof *nodes),
         *tensors = nd_calloc(graph->n_tensors, sizeof *tensors);
    if (outputs == NULL || nodes == NULL || tensors == NULL) {
        status = nd_fail_memory(err);
        goto out;
    }
    for (size_t i = 0; i < n_outputs; i++)
        outputs[i] = nd_names_find(&graph->names, graph->proto->output[i]->name);
    nd_graph_walk_back(graph, outputs, n_outputs, nodes, tensors);
    for (size_t i = 0; i < graph->n_nodes; i++)
        graph->nodes[i].is_alive = nodes[i];
out:
    free(outputs);
    free(nodes);
    free(tensors);
    return status;
}

static enum nd_status find_readers(struct nd_graph *graph, struct nd_error *err)
{
    graph->readers = nd_calloc(graph->n_uses, sizeof *graph->readers);
    if (graph->readers == NULL)
        return nd_fail_memory(err);
    /* Counting sort of all uses by tensor. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t n = 0; n < graph->n_nodes; n++) {
            const struct nd_graph_node *node = &graph->nodes[n];
            for (size_t i = 0; node->is_alive && i < node->n_uses; i++) {
                size_t used = graph->uses[node->first_use + i];
                if (used == ND_NO_INDEX)
                    continue;
                struct nd_graph_tensor *tensor = &graph->tensors[used];
                if (pass == 1)
                    graph->readers[tensor->first_reader + tensor->n_readers] = n;
                tensor->n_readers++;
            }
        }
        for (size_t t = 0, first = 0; pass == 0 && t < graph->n_tensors; t++) {
            graph->tensors[t].first_reader = first;
            first += graph->tensors[t].n_readers;
            graph->tensors[t].n_readers = 0;
        }
    }
    return ND_OK;
}

enum nd_status nd_graph_init(struct nd_graph *graph, const Onnx__GraphProto *proto, struct nd_error *err)
{
    *graph = (struct nd_graph){.proto = proto, .n_nodes = proto->n_node};
    graph->nodes = nd_calloc(graph->n_nodes, sizeof *graph->nodes);
    if (graph->nodes == NULL)
        return nd_fail_memory(err);
    enum nd_status status = add_sources(graph, err);
    for (size_t i = 0; i < graph->n_nodes && status == ND_OK; i++)
        status = add_node(graph, i, err);
    if (status == ND_OK)
        status = add_outputs(graph, err);
    if (status == ND_OK)
        status = find_living(graph, err);
    return status == ND_OK ? find_readers(graph, err) : status;
}

void nd_graph_deinit(struct nd_graph *graph)
{
    nd_names_deinit(&graph->names);
    free(graph->tensors);
    free(graph->nodes);
    free(graph->uses);
    free(graph->made);
    free(graph->readers);
    *graph = (struct nd_graph){0};
}

size_t nd_graph_used(const struct nd_graph *graph, size_t node, size_t i)
{
    const struct nd_graph_node *n = &graph->nodes[node];
    return i < n->n_inputs ? graph->uses[n->first_use + i] : ND_NO_INDEX;
}

size_t nd_graph_made(const struct nd_graph *graph, size_t node, size_t i)
{
    const struct nd_graph_node *n = &graph->nodes[node];
    return i < n->n_made ? graph->made[n->first_made + i] : ND_NO_INDEX;
}

/* Whether tensor is a tensor read by a live node, or an output of the graph. */
static bool nd_graph_is_wanted(const struct nd_graph *graph, size_t tensor)
{
    return graph->tensors[tensor].n_readers > 0 || graph->tensors[tensor].output != ND_NO_INDEX;
}

const Onnx__TensorProto *nd_graph_constant(const struct nd_graph *graph, size_t tensor)
{
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    if (t->initializer != NULL || t->producer == ND_NO_INDEX)
        return t->initializer;
    const Onnx__NodeProto *node = graph->nodes[t->producer].proto;
    const Onnx__AttributeProto *value =
        strcmp(nd_onnx_text(node->op_type), "Constant") == 0 ? nd_onnx_attribute(node, "value") : NULL;
    return value != NULL ? value->t : NULL;
}

struct finder {
    struct nd_model *model;
    const size_t *layer_of_node;
    size_t *natural; /* [n_edges]: the tensor that a tensor is named after */
    size_t tensors_capacity, types_capacity, natural_capacity;
};

/* What is known of a tensor when it is found. */
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

/* Quantised values have the shape of what they stand for and of what is made of them: any of these may declare
 * it. */
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
    /* Quantised values made of other quantised values have their shape. */
    size_t source = model->tensor_of_value[found->natural];
    return source != ND_NO_INDEX ? model->tensor_types[source] : NULL;
}

static enum nd_status read_quant(const struct nd_model *model, const struct found *found,
                                 struct nd_tensor *tensor, struct nd_error *err)
{
    const Onnx__TypeProto__Tensor *type = type_of(&model->graph, found->tensor);
    enum nd_dtype declared =
        type != NULL && type->has_elem_type ? nd_onnx_dtype(type->elem_type) : ND_DTYPE_NONE;
    tensor->quant.axis = -1;
    tensor->dtype = declared;
    if (found->quant == ND_NO_INDEX)
        return ND_OK;
    struct nd_node_quant quant;
    enum nd_status status = nd_node_quant_read(&model->graph, found->quant, model->path, &quant, err);
    if (status != ND_OK)
        return status;
    tensor->quant = quant.quant;
    /* A QuantizeLinear makes the type; a DequantizeLinear reads what is there. */
    if (quant.dtype != ND_DTYPE_NONE &&
        (model->graph.nodes[found->quant].kind == ND_NODE_QUANTIZE || declared == ND_DTYPE_NONE))
        tensor->dtype = quant.dtype;
    if (tensor->dtype != ND_DTYPE_NONE && !nd_dtype_is_of_qvalues(tensor->dtype))
        nd_quant_deinit(&tensor->quant);
    return ND_OK;
}

static enum nd_status add_found(struct finder *finder, const struct found *found, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph_tensor *value = &model->graph.tensors[found->tensor];
    size_t n = model->n_tensors + 1;
    if (!nd_grow((void **)&model->tensors, &finder->tensors_capacity, n, sizeof *model->tensors) ||
        !nd_grow((void **)&model->tensor_types, &finder->types_capacity, n, sizeof *model->tensor_types) ||
        !nd_grow((void **)&finder->natural, &finder->natural_capacity, n, sizeof *finder->natural))
        return nd_fail_memory(err);
    struct nd_tensor *tensor = &model->tensors[model->n_tensors];
    *tensor = (struct nd_tensor){.shape = {.rank = -1}, .is_model_input = found->is_input};
    enum nd_status status = read_quant(model, found, tensor, err);
    if (status != ND_OK)
        return status;
    const Onnx__NodeProto *producer =
        value->producer != ND_NO_INDEX ? model->graph.nodes[value->producer].proto : NULL;
    tensor->onnx_name = nd_strdup(value->name);
    tensor->node = nd_strdup(producer != NULL ? nd_graph_node_name(producer) : "");
    /* Of a layer's tensor, nd_layers_find says it better. */
    tensor->op_types = nd_strdup(found->is_input || producer == NULL ? "input" : producer->op_type);
    model->tensor_types[model->n_tensors] = find_shape(model, found);
    finder->natural[model->n_tensors] = found->natural;
    model->tensor_of_value[found->tensor] = model->n_tensors++;
    return tensor->onnx_name != NULL && tensor->node != NULL && tensor->op_types != NULL ? ND_OK
                                                                                         : nd_fail_memory(err);
}

/* A tensor of quantised values that a QuantizeLinear makes. */
static enum nd_status add_quantize(struct finder *finder, size_t node, bool is_input, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    size_t source = first_input(&model->graph, node);
    struct found found = {.tensor = model->graph.made[model->graph.nodes[node].first_made],
                          .natural = source,
                          .quant = node,
                          .is_input = is_input};
    enum nd_status status = add_found(finder, &found, err);
    if (status == ND_OK && model->tensor_of_value[source] == ND_NO_INDEX)
        model->tensor_of_value[source] = model->tensor_of_value[found.tensor];
    return status;
}

/* The graph inputs that are quantised, or are quantised values themselves. Floats as they are fed are no
 * tensors. */
static enum nd_status add_input_tensors(struct finder *finder, struct nd_error *err)
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
                finder->model->tensor_of_value[graph->made[graph->nodes[node].first_made]] == ND_NO_INDEX)
                status = add_quantize(finder, node, true, err);
        }
        size_t dequantize = reader_of_kind(graph, t, ND_NODE_DEQUANTIZE);
        if (dequantize != ND_NO_INDEX && finder->model->tensor_of_value[t] == ND_NO_INDEX && status == ND_OK)
            status = add_found(
                finder, &(struct found){.tensor = t, .natural = t, .quant = dequantize, .is_input = true}, err);
    }
    return status;
}

/* What an operator makes, unless it is hidden in a unit or a QuantizeLinear makes quantised values of it. */
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
        status = add_found(finder, &found, err);
    }
    return status;
}

static enum nd_status add_node_tensors(struct finder *finder, size_t index, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph_node *node = &model->graph.nodes[index];
    if (!node->is_alive || node->is_constant)
        return ND_OK;
    size_t made = node->n_made > 0 ? model->graph.made[node->first_made] : ND_NO_INDEX;
    switch (node->kind) {
    case ND_NODE_QUANTIZE:
        return model->tensor_of_value[made] == ND_NO_INDEX ? add_quantize(finder, index, false, err) : ND_OK;
    case ND_NODE_DEQUANTIZE:
        model->tensor_of_value[made] = model->tensor_of_value[first_input(&model->graph, index)];
        return ND_OK;
    case ND_NODE_OTHER:
        break;
    }
    return finder->layer_of_node[index] == ND_NO_INDEX ? add_plain(finder, index, err) : ND_OK;
}

/* text without the suffix, in new memory; all of it when it does not end so. */
static char *without_suffix(const char *text, const char *suffix)
{
    size_t n_stem = nd_stem_bytes(text, suffix);
    return n_stem > 0 ? strndup(text, n_stem) : nd_strdup(text);
}

/* Gives the tensor a name that it owns if the name is free. False: out of memory. */
static bool try_name(struct nd_tensor *tensor, struct nd_names *taken, char *name, size_t index)
{
    if (name == NULL)
        return false;
    if (tensor->name != NULL || nd_names_find(taken, name) != ND_NO_INDEX) {
        free(name);
        return true;
    }
    tensor->name = name;
    return nd_names_add(taken, name, index);
}

static bool name_tensor(struct finder *finder, struct nd_names *taken, size_t index)
{
    static const char quantize_output[] = "_QuantizeLinear_Output";
    const struct nd_graph *graph = &finder->model->graph;
    struct nd_tensor *tensor = &finder->model->tensors[index];
    const struct nd_graph_tensor *natural = &graph->tensors[finder->natural[index]];
    /* Quantised values made of a dequantised tensor: what they stand for is named by that tensor's own codes.
     */
    bool is_requantised =
        natural->producer != ND_NO_INDEX && graph->nodes[natural->producer].kind == ND_NODE_DEQUANTIZE;
    if (tensor->name != NULL)
        return true;
    bool has_memory = is_requantised ||
                      try_name(tensor, taken, without_suffix(natural->name, "_QuantizeLinear_Input"), index);
    has_memory = has_memory &&
                 try_name(tensor, taken, without_suffix(tensor->onnx_name, quantize_output), index) &&
                 try_name(tensor, taken, nd_strdup(tensor->onnx_name), index);
    for (size_t i = 2; has_memory && tensor->name == NULL; i++) {
        struct nd_strbuf numbered = {0};
        nd_strbuf_printf(&numbered, "%s#%zu", tensor->onnx_name, i);
        has_memory = try_name(tensor, taken, nd_strbuf_take(&numbered), index);
    }
    return has_memory;
}

static enum nd_status name_tensors(struct finder *finder, struct nd_error *err)
{
    struct nd_model *model = finder->model;
    const struct nd_graph *graph = &model->graph;
    struct nd_names taken = {0};
    bool has_memory = true;
    /* The names of the graph's outputs go first: nothing else may take them. Among the outputs of one tensor,
     * floats go before quantised values. */
    for (int pass = 0; pass < 2; pass++) {
        for (size_t i = 0; i < graph->proto->n_output && has_memory; i++) {
            size_t t = nd_names_find(&graph->names, graph->proto->output[i]->name),
                   tensor = model->tensor_of_value[t];
            bool is_qvalues =
                tensor != ND_NO_INDEX && strcmp(model->tensors[tensor].onnx_name, graph->tensors[t].name) == 0;
            if (tensor != ND_NO_INDEX && is_qvalues == (pass == 1) && graph->tensors[t].input == ND_NO_INDEX)
                has_memory =
                    try_name(&model->tensors[tensor], &taken, nd_strdup(graph->tensors[t].name), tensor);
        }
    }
    for (size_t i = 0; i < model->n_tensors && has_memory; i++)
        has_memory = name_tensor(finder, &taken, i);
    nd_names_deinit(&taken);
    return has_memory ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_tensors_find(struct nd_model *model, const size_t *layer_of_node, struct nd_error *err)
{
    struct finder finder = {.model = model, .layer_of_node = layer_of_node};
    model->tensor_of_value = nd_calloc(model->graph.n_tensors, sizeof *model->tensor_of_value);
    if (model->tensor_of_value == NULL)
        return nd_fail_memory(err);
    for (size_t t = 0; t < model->graph.n_tensors; t++)
        model->tensor_of_value[t] = ND_NO_INDEX;
    enum nd_status status = add_input_tensors(&finder, err);
    for (size_t n = 0; n < model->graph.n_nodes && status == ND_OK; n++)
        status = add_node_tensors(&finder, n, err);
    if (status == ND_OK)
        status = name_tensors(&finder, err);
    free(finder.natural);
    return status;
}
