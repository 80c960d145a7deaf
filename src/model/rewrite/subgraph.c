/* A part of a model as a model of its own: which nodes come along, and where it is cut. */

#include "core/memory.h"
#include "model/graph/loaded.h"
#include "model/rewrite/put.h"

/* A part of a model: the nodes it consists of and the tensors at which it is cut. */

enum nd_subgraph_end { ND_SUBGRAPH_INSIDE, ND_SUBGRAPH_INPUT, ND_SUBGRAPH_OUTPUT };

/* Nodes and tensors are those of source->graph. */
struct nd_subgraph {
    const struct nd_model *source; /* borrowed */
    bool is_open;
    bool *is_asked;               /* [n_nodes] */
    bool *has_node;               /* [n_nodes]: asked for, or needed by one that is */
    bool *has_tensor;             /* [n_tensors] */
    enum nd_subgraph_end *end_of; /* [n_tensors] */
    size_t *inputs;               /* tensors that have to be fed, in the order of their first reader */
    size_t n_inputs;
    size_t *outputs; /* in the order of the nodes that make them */
    size_t n_outputs;
};

/* ---- which nodes ---- */

/* What a node of the part cannot do without: what makes its constants, the DequantizeLinear that hands it real
 * values of quantised values, and, for a QuantizeLinear, the operator whose result it requantises, which a
 * layer may share with others (Split). */
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

/* A DequantizeLinear that only came along hands nothing out: its quantised values go outside. */
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

/* Quantised values and their real values together are more than some providers can return. */
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

/* Finds what nd_model_write_subgraph documents. Call nd_subgraph_deinit in any case. */
static enum nd_status nd_subgraph_init(struct nd_subgraph *part, const struct nd_model *model,
                                       const struct nd_model_cut *cut, struct nd_error *err)
{
    *part = (struct nd_subgraph){.source = model, .is_open = cut->is_open};
    ND_TRY(allocate(part, err));
    for (size_t i = 0; i < cut->n_nodes; i++) {
        if (cut->nodes[i] >= model->graph.n_nodes)
            return nd_fail(err, ND_E_OPTION_VALUE, model->path, "'%s' has no node number %zu", model->path,
                           cut->nodes[i]);
        part->is_asked[cut->nodes[i]] = part->has_node[cut->nodes[i]] = true;
    }
    pull_support(part);
    find_inputs(part);
    const struct nd_graph *graph = &part->source->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        const struct nd_graph_node *node = &graph->nodes[n];
        for (size_t i = 0; part->has_node[n] && i < node->n_made; i++) {
            size_t made = graph->made[node->first_made + i];
            if (made != ND_NO_INDEX &&
                (is_output(part, n, made) ||
                 (cut->output != NULL && strcmp(graph->tensors[made].name, cut->output) == 0)))
                add_tensor(part, ND_SUBGRAPH_OUTPUT, made);
        }
    }
    if (part->n_outputs == 0)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, model->path, "that part of '%s' hands nothing out",
                       model->path);
    return ND_OK;
}

static void nd_subgraph_deinit(struct nd_subgraph *part)
{
    ND_FREE_ALL(part->is_asked, part->has_node, part->has_tensor, part->end_of, part->inputs, part->outputs);
    *part = (struct nd_subgraph){0};
}

/* Writing a part of a model: a protobuf that borrows whatever it does not change. */

/* The description of a tensor at which the model is cut. */
struct made_value {
    Onnx__ValueInfoProto value;
    Onnx__TypeProto type;
    Onnx__TypeProto__Tensor tensor;
    Onnx__TensorShapeProto shape;
    Onnx__TensorShapeProto__Dimension dims[ND_MAX_RANK];
    Onnx__TensorShapeProto__Dimension *dim_list[ND_MAX_RANK];
};

struct writer {
    const struct nd_subgraph *part;
    const struct nd_model_cut *cut;
    Onnx__ModelProto model;
    Onnx__GraphProto graph;
    Onnx__NodeProto *nodes;    /* [n_nodes]: copies of those that get a name */
    struct made_value *values; /* [inputs + outputs] */
    size_t n_values;
    struct nd_external external; /* the files that are still needed; borrowed */
};

static enum nd_status allocate_of_subgraph_write(struct writer *writer, struct nd_error *err)
{
    const struct nd_subgraph *part = writer->part;
    const Onnx__GraphProto *proto = part->source->graph.proto;
    Onnx__GraphProto *graph = &writer->graph;
    writer->model = *part->source->proto;
    *graph = *proto;
    writer->model.graph = graph;
    writer->nodes = nd_calloc(part->source->graph.n_nodes, sizeof *writer->nodes);
    writer->values = nd_calloc(part->n_inputs + part->n_outputs, sizeof *writer->values);
    writer->external.files = nd_calloc(part->source->external.n, sizeof *writer->external.files);
    graph->node = nd_calloc(proto->n_node, sizeof(void *));
    graph->initializer = nd_calloc(proto->n_initializer, sizeof(void *));
    graph->sparse_initializer = nd_calloc(proto->n_sparse_initializer, sizeof(void *));
    graph->input = nd_calloc(proto->n_input + part->n_inputs, sizeof(void *));
    graph->output = nd_calloc(part->n_outputs, sizeof(void *));
    graph->value_info = nd_calloc(proto->n_value_info + proto->n_output, sizeof(void *));
    graph->quantization_annotation = nd_calloc(proto->n_quantization_annotation, sizeof(void *));
    graph->n_node = graph->n_initializer = graph->n_sparse_initializer = graph->n_input = 0;
    graph->n_output = graph->n_value_info = graph->n_quantization_annotation = 0;
    bool is_whole = writer->nodes != NULL && writer->values != NULL && writer->external.files != NULL &&
                    graph->node != NULL && graph->initializer != NULL && graph->sparse_initializer != NULL &&
                    graph->input != NULL && graph->output != NULL && graph->value_info != NULL &&
                    graph->quantization_annotation != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

static void deinit(struct writer *writer)
{
    ND_FREE_ALL(writer->nodes, writer->values, writer->external.files, writer->graph.node,
                writer->graph.initializer, writer->graph.sparse_initializer, writer->graph.input,
                writer->graph.output, writer->graph.value_info, writer->graph.quantization_annotation);
}

static void keep_nodes(struct writer *writer)
{
    const struct nd_graph *graph = &writer->part->source->graph;
    for (size_t i = 0; i < graph->n_nodes; i++) {
        if (!writer->part->has_node[i])
            continue;
        Onnx__NodeProto *node = graph->proto->node[i];
        if (nd_onnx_text(node->name)[0] == '\0') {
            /* The runtime reports nodes by name; packing does not write to it. */
            writer->nodes[i] = *node;
            writer->nodes[i].name = (char *)(uintptr_t)nd_graph_node_name(node);
            node = &writer->nodes[i];
        }
        writer->graph.node[writer->graph.n_node++] = node;
    }
}

static bool is_inside(const struct writer *writer, const char *name, size_t *tensor)
{
    *tensor = nd_names_find(&writer->part->source->graph.names, nd_onnx_text(name));
    return *tensor != ND_NO_INDEX && writer->part->has_tensor[*tensor];
}

static void keep_constants(struct writer *writer)
{
    const Onnx__GraphProto *proto = writer->part->source->graph.proto;
    Onnx__GraphProto *graph = &writer->graph;
    size_t tensor;
    for (size_t i = 0; i < proto->n_initializer; i++)
        if (is_inside(writer, proto->initializer[i]->name, &tensor))
            graph->initializer[graph->n_initializer++] = proto->initializer[i];
    for (size_t i = 0; i < proto->n_sparse_initializer; i++)
        if (is_inside(writer, proto->sparse_initializer[i]->values->name, &tensor))
            graph->sparse_initializer[graph->n_sparse_initializer++] = proto->sparse_initializer[i];
    for (size_t i = 0; i < proto->n_quantization_annotation; i++)
        if (is_inside(writer, proto->quantization_annotation[i]->tensor_name, &tensor))
            graph->quantization_annotation[graph->n_quantization_annotation++] =
                proto->quantization_annotation[i];
}

/* ---- ends ---- */

static const struct nd_tensor *find_known(const struct writer *writer, const char *name)
{
    for (size_t i = 0; i < writer->cut->n_known; i++)
        if (strcmp(writer->cut->known[i].onnx_name, name) == 0)
            return &writer->cut->known[i];
    return NULL;
}

static void fill_shape(struct made_value *value, const struct nd_shape *shape)
{
    onnx__tensor_shape_proto__init(&value->shape);
    for (int d = 0; d < shape->rank; d++) {
        onnx__tensor_shape_proto__dimension__init(&value->dims[d]);
        if (shape->dims[d] >= 0) {
            value->dims[d].value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
            value->dims[d].dim_value = shape->dims[d];
        }
        value->dim_list[d] = &value->dims[d];
    }
    value->shape.n_dim = (size_t)shape->rank;
    value->shape.dim = value->dim_list;
    value->tensor.shape = &value->shape;
}

static Onnx__ValueInfoProto *make_value(struct writer *writer, char *name, const struct nd_tensor *tensor)
{
    struct made_value *value = &writer->values[writer->n_values++];
    onnx__value_info_proto__init(&value->value);
    value->value.name = name;
    if (tensor == NULL || tensor->dtype == ND_DTYPE_NONE)
        return &value->value;
    onnx__type_proto__tensor__init(&value->tensor);
    value->tensor.has_elem_type = true;
    value->tensor.elem_type = (int32_t)tensor->dtype;
    if (tensor->shape.rank >= 0)
        fill_shape(value, &tensor->shape);
    onnx__type_proto__init(&value->type);
    value->type.value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    value->type.tensor_type = &value->tensor;
    value->value.type = &value->type;
    return &value->value;
}

/* What a run showed is better than what the model declares, which may be dynamic; a graph input or output stays
 * as it was. */
static Onnx__ValueInfoProto *describe(struct writer *writer, size_t index, bool has_name_of_tensor)
{
    const struct nd_model *model = writer->part->source;
    const struct nd_graph_tensor *value = &model->graph.tensors[index];
    const struct nd_tensor *tensor = find_known(writer, value->name);
    bool is_declared = value->value_info != NULL && nd_onnx_tensor_type(value->value_info) != NULL;
    /* Protobuf's lists hold pointers that may be written through; packing writes to nothing. */
    Onnx__ValueInfoProto *declared = (Onnx__ValueInfoProto *)(uintptr_t)value->value_info;
    if (is_declared && (value->input != ND_NO_INDEX || tensor == NULL || tensor->dtype == ND_DTYPE_NONE))
        return declared;
    if (tensor == NULL && has_name_of_tensor)
        tensor = &model->tensors[model->tensor_of_value[index]];
    return make_value(writer, (char *)(uintptr_t)value->name, tensor);
}

/* Whether the tensor is the very one that its tensor records, so that the tensor's type is its own. */
static bool is_recorded(const struct nd_model *model, size_t index)
{
    size_t tensor = model->tensor_of_value[index];
    return tensor != ND_NO_INDEX &&
           strcmp(model->tensors[tensor].onnx_name, model->graph.tensors[index].name) == 0;
}

static enum nd_status make_ends(struct writer *writer, struct nd_error *err)
{
    const struct nd_subgraph *part = writer->part;
    const struct nd_graph *graph = &part->source->graph;
    const Onnx__GraphProto *proto = graph->proto;
    /* Inputs of the model keep their order, and initializers that are listed as inputs stay listed. */
    for (size_t i = 0; i < proto->n_input; i++) {
        size_t tensor;
        if (is_inside(writer, proto->input[i]->name, &tensor))
            writer->graph.input[writer->graph.n_input++] = proto->input[i];
    }
    for (size_t i = 0; i < part->n_inputs; i++) {
        const struct nd_graph_tensor *tensor = &graph->tensors[part->inputs[i]];
        if (tensor->input != ND_NO_INDEX)
            continue;
        Onnx__ValueInfoProto *value =
            describe(writer, part->inputs[i], is_recorded(part->source, part->inputs[i]));
        if (nd_onnx_tensor_type(value) == NULL)
            return nd_fail(err, ND_E_MODEL_UNSUPPORTED, tensor->name,
                           "'%s' cannot be cut at '%s', whose type is not declared", part->source->path,
                           tensor->name);
        writer->graph.input[writer->graph.n_input++] = value;
    }
    for (size_t i = 0; i < part->n_outputs; i++)
        writer->graph.output[writer->graph.n_output++] =
            describe(writer, part->outputs[i], is_recorded(part->source, part->outputs[i]));
    for (size_t i = 0; i < proto->n_value_info + proto->n_output; i++) {
        Onnx__ValueInfoProto *value =
            i < proto->n_value_info ? proto->value_info[i] : proto->output[i - proto->n_value_info];
        size_t tensor;
        if (is_inside(writer, value->name, &tensor) && part->end_of[tensor] == ND_SUBGRAPH_INSIDE)
            writer->graph.value_info[writer->graph.n_value_info++] = value;
    }
    return ND_OK;
}

/* ---- external files ---- */

static enum nd_status note_location(const Onnx__TensorProto *tensor, void *context, struct nd_error *err)
{
    (void)err;
    struct writer *writer = context;
    const struct nd_external *all = &writer->part->source->external;
    for (size_t i = 0; nd_external_is(tensor) && i < tensor->n_external_data; i++) {
        const Onnx__StringStringEntryProto *entry = tensor->external_data[i];
        for (size_t f = 0; strcmp(nd_onnx_text(entry->key), "location") == 0 && f < all->n; f++)
            if (strcmp(all->files[f].location, nd_onnx_text(entry->value)) == 0)
                writer->external.files[f] = all->files[f];
    }
    return ND_OK;
}

/* Only files that some tensor of the part lies in; all of them where a node names a file by itself. */
static enum nd_status choose_files(struct writer *writer, struct nd_error *err)
{
    const struct nd_external *all = &writer->part->source->external;
    bool is_prepared = false;
    for (size_t i = 0; i < writer->graph.n_node; i++)
        is_prepared = is_prepared || nd_external_is_prepared(writer->graph.node[i]);
    enum nd_status status = nd_onnx_visit_tensors(&writer->model.base, note_location, writer, err);
    size_t n = 0;
    for (size_t f = 0; f < all->n; f++)
        if (is_prepared || writer->external.files[f].path != NULL)
            writer->external.files[n++] = all->files[f];
    writer->external.n = n;
    return status;
}

enum nd_status nd_model_write_subgraph(const struct nd_model *model, const struct nd_model_cut *cut,
                                       const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_subgraph_deinit) struct nd_subgraph part = {0};
    ND_CLEANUP(deinit) struct writer writer = {.part = &part, .cut = cut};
    ND_TRY(nd_subgraph_init(&part, model, cut, err));
    ND_TRY(allocate_of_subgraph_write(&writer, err));
    keep_nodes(&writer);
    keep_constants(&writer);
    ND_TRY(make_ends(&writer, err));
    ND_TRY(choose_files(&writer, err));
    return nd_rewrite_put(&writer.model, &writer.external, path, err);
}
