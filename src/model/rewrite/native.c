/* The exposed copy is read back and edited in place: the protobuf then owns every text that changes. */
#include "model/rewrite/native.h"

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"
#include "model/rewrite/put.h"

/* Copies of a model whose outputs are chosen tensors. The copy borrows whatever it does not change. */

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

static bool is_float(const struct copy *copy, size_t tensor)
{
    return copy->as_floats != NULL && copy->as_floats[tensor];
}

static enum nd_status find_targets(struct copy *copy, const size_t *tensors, size_t n_tensors,
                                   struct nd_error *err)
{
    const struct nd_model *model = copy->source;
    if (n_tensors == 0)
        return nd_fail(err, ND_E_MODEL_NO_TENSOR, model->path, "no tensor of '%s' was asked for", model->path);
    for (size_t i = 0; i < n_tensors; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(model, tensors[i]);
        /* The tensor that shows the tensor. */
        struct nd_dequantised floats = {.tensor = copy->source->tensors[tensors[i]].onnx_name};
        if (is_float(copy, tensors[i]))
            nd_model_find_dequantised(copy->source, tensors[i], &floats);
        size_t value = nd_names_find(&copy->source->graph.names, floats.tensor);
        if (model->graph.tensors[value].producer == ND_NO_INDEX)
            return nd_fail(err, ND_E_OPTION_VALUE, tensor->name,
                           "tensor '%s' is an input of '%s' and cannot be an output as well", tensor->name,
                           model->path);
        if (copy->output_of[value] != 0)
            return nd_fail(err, ND_E_OPTION_VALUE, tensor->name, "tensor '%s' is asked for twice",
                           tensor->name);
        copy->output_of[value] = ++copy->n_targets;
        copy->targets[i] = value;
    }
    nd_graph_walk_back(&model->graph, copy->targets, copy->n_targets, copy->needed_nodes, copy->needed_tensors);
    return ND_OK;
}

static enum nd_status allocate(struct copy *copy, size_t n_tensors, struct nd_error *err)
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
    copy->targets = nd_calloc(n_tensors, sizeof *copy->targets);
    copy->nodes = nd_calloc(graph->n_nodes, sizeof *copy->nodes);
    copy->values = nd_calloc(n_tensors, sizeof *copy->values);
    copy->types = nd_calloc(n_tensors, sizeof *copy->types);
    copy->tensor_types = nd_calloc(n_tensors, sizeof *copy->tensor_types);
    copy->graph.node = nd_calloc(proto->n_node, sizeof(void *));
    copy->graph.initializer = nd_calloc(proto->n_initializer, sizeof(void *));
    copy->graph.sparse_initializer = nd_calloc(proto->n_sparse_initializer, sizeof(void *));
    copy->graph.input = nd_calloc(proto->n_input, sizeof(void *));
    copy->graph.output = nd_calloc(n_tensors, sizeof(void *));
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
    ND_FREE_ALL(copy->needed_nodes, copy->needed_tensors, copy->output_of, copy->targets, copy->nodes,
                copy->values, copy->types, copy->tensor_types, copy->graph.node, copy->graph.initializer,
                copy->graph.sparse_initializer, copy->graph.input, copy->graph.output, copy->graph.value_info);
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
static Onnx__ValueInfoProto *make_output(struct copy *copy, size_t position, size_t tensor)
{
    const struct nd_tensor *known = &copy->source->tensors[tensor];
    Onnx__ValueInfoProto *value = &copy->values[position];
    onnx__value_info_proto__init(value);
    enum nd_dtype dtype = is_float(copy, tensor) ? ND_DTYPE_F32 : known->dtype;
    value->name =
        (char *)(uintptr_t)copy->source->graph.tensors[copy->targets[position]].name; /* not written to */
    if (dtype == ND_DTYPE_NONE)
        return value;
    onnx__type_proto__tensor__init(&copy->tensor_types[position]);
    copy->tensor_types[position].has_elem_type = true;
    copy->tensor_types[position].elem_type = (int32_t)dtype;
    /* Quantised values have the shape that the float tensor declares. */
    if (copy->source->tensor_types[tensor] != NULL)
        copy->tensor_types[position].shape = copy->source->tensor_types[tensor]->shape;
    onnx__type_proto__init(&copy->types[position]);
    copy->types[position].value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
    copy->types[position].tensor_type = &copy->tensor_types[position];
    value->type = &copy->types[position];
    return value;
}

static void choose_outputs(struct copy *copy, const size_t *tensors)
{
    const struct nd_graph *graph = &copy->source->graph;
    const Onnx__GraphProto *proto = graph->proto;
    for (size_t i = 0; i < copy->n_targets; i++)
        copy->graph.output[copy->graph.n_output++] = make_output(copy, i, tensors[i]);
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

enum nd_status nd_model_write_shown(const struct nd_model *model, const size_t *tensors, size_t n_tensors,
                                    const bool *as_floats, const char *path, struct nd_error *err)
{
    ND_CLEANUP(copy_deinit) struct copy copy = {.source = model, .as_floats = as_floats};
    ND_TRY(allocate(&copy, n_tensors, err));
    ND_TRY(find_targets(&copy, tensors, n_tensors, err));
    keep_nodes(&copy);
    keep_sources(&copy);
    choose_outputs(&copy, tensors);
    return nd_rewrite_put(&copy.model, &model->external, path, err);
}

enum nd_status nd_model_write_exposed(const struct nd_model *model, const size_t *tensors, size_t n_tensors,
                                      const char *path, struct nd_error *err)
{
    return nd_model_write_shown(model, tensors, n_tensors, NULL, path, err);
}

bool nd_model_needs_copy(const struct nd_model *model)
{
    bool is_named = true;
    for (size_t i = 0; i < model->graph.n_nodes; i++)
        is_named = is_named && nd_onnx_text(model->graph.proto->node[i]->name)[0] != '\0';
    return model->has_set_dims || !is_named;
}

enum nd_status nd_model_write_whole(const struct nd_model *model, const char *path, struct nd_error *err)
{
    ND_CLEANUP(copy_deinit) struct copy copy = {.source = model};
    ND_TRY(allocate(&copy, 0, err));
    memset(copy.needed_nodes, true, model->graph.n_nodes * sizeof *copy.needed_nodes);
    keep_nodes(&copy);
    Onnx__GraphProto graph = *model->graph.proto;
    graph.node = copy.graph.node;
    copy.model.graph = &graph;
    return nd_rewrite_put(&copy.model, &model->external, path, err);
}

static const size_t max_model_bytes = (size_t)2 << 30;

char *nd_native_name(const char *name)
{
    struct nd_strbuf text = {0};
    if (name[0] == '\0' || (name[0] >= '0' && name[0] <= '9'))
        nd_strbuf_puts(&text, "_");
    for (const char *at = name; *at != '\0'; at++) {
        bool is_plain = (*at >= 'a' && *at <= 'z') || (*at >= 'A' && *at <= 'Z') || (*at >= '0' && *at <= '9');
        nd_strbuf_append(&text, is_plain ? at : "_", 1);
    }
    return nd_strbuf_take(&text);
}

static void free_ends(struct nd_native_end *ends, size_t n)
{
    ND_FREE_BOTH(ends, n, .tensor, .name);
}

void nd_native_deinit(struct nd_native *native)
{
    free_ends(native->inputs, native->n_inputs);
    free_ends(native->outputs, native->n_outputs);
    *native = (struct nd_native){0};
}

static enum nd_status add_end(struct nd_native_end *ends, size_t *n, size_t index, const char *tensor,
                              struct nd_error *err)
{
    ends[*n] =
        (struct nd_native_end){.index = index, .tensor = nd_strdup(tensor), .name = nd_native_name(tensor)};
    const struct nd_native_end *end = &ends[(*n)++];
    return end->tensor != NULL && end->name != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- walking over names ---- */

/* Everything in a graph that names a tensor, subgraphs included. */
typedef void visit_text(void *context, char **text);

static void visit_texts(char **texts, size_t n, visit_text *visit, void *context)
{
    for (size_t i = 0; i < n; i++)
        visit(context, &texts[i]);
}

static void visit_values(Onnx__ValueInfoProto **values, size_t n, visit_text *visit, void *context)
{
    for (size_t i = 0; i < n; i++)
        visit(context, &values[i]->name);
}

static void visit_graph(Onnx__GraphProto *graph, visit_text *visit, void *context)
{
    visit_values(graph->input, graph->n_input, visit, context);
    visit_values(graph->output, graph->n_output, visit, context);
    visit_values(graph->value_info, graph->n_value_info, visit, context);
    for (size_t i = 0; i < graph->n_initializer; i++)
        visit(context, &graph->initializer[i]->name);
    for (size_t i = 0; i < graph->n_sparse_initializer; i++)
        visit(context, &graph->sparse_initializer[i]->values->name);
    for (size_t i = 0; i < graph->n_quantization_annotation; i++)
        visit(context, &graph->quantization_annotation[i]->tensor_name);
    for (size_t i = 0; i < graph->n_node; i++) {
        Onnx__NodeProto *node = graph->node[i];
        visit_texts(node->input, node->n_input, visit, context);
        visit_texts(node->output, node->n_output, visit, context);
        for (size_t a = 0; a < node->n_attribute; a++) {
            if (node->attribute[a]->g != NULL)
                visit_graph(node->attribute[a]->g, visit, context);
            for (size_t g = 0; g < node->attribute[a]->n_graphs; g++)
                visit_graph(node->attribute[a]->graphs[g], visit, context);
        }
    }
}

struct count {
    const char *name;
    size_t n;
};

static void count_text(void *context, char **text)
{
    struct count *count = context;
    count->n += strcmp(nd_onnx_text(*text), count->name) == 0;
}

static size_t count_name(Onnx__GraphProto *graph, const char *name)
{
    struct count count = {.name = name};
    visit_graph(graph, count_text, &count);
    return count.n;
}

struct renaming {
    const char *from;
    const char *to;
    bool has_failed;
};

static void rename_text(void *context, char **text)
{
    struct renaming *renaming = context;
    if (strcmp(nd_onnx_text(*text), renaming->from) != 0)
        return;
    char *copy = nd_strdup(renaming->to);
    if (copy == NULL) {
        renaming->has_failed = true;
        return;
    }
    free(*text); /* libprotobuf-c allocates by malloc unless told otherwise */
    *text = copy;
}

static enum nd_status rename_all(Onnx__GraphProto *graph, const char *from, const char *to,
                                 struct nd_error *err)
{
    struct renaming renaming = {.from = from, .to = to};
    if (strcmp(from, to) != 0)
        visit_graph(graph, rename_text, &renaming);
    return renaming.has_failed ? nd_fail_memory(err) : ND_OK;
}

/* ---- inputs ---- */

/* The only reader of the input, when that is a QuantizeLinear that quantises it; else NULL. */
static const Onnx__NodeProto *only_quantiser(Onnx__GraphProto *graph, const char *input, size_t *index)
{
    const Onnx__NodeProto *found = NULL;
    for (size_t i = 0; i < graph->n_node; i++) {
        const Onnx__NodeProto *node = graph->node[i];
        if (node->n_input > 1 && strcmp(nd_onnx_text(node->input[0]), input) == 0 &&
            strcmp(nd_onnx_text(node->op_type), "QuantizeLinear") == 0 && node->n_output == 1) {
            found = node;
            *index = i;
        }
    }
    /* Its own description and that one use; a value_info may repeat a description. */
    size_t n_described = 0;
    for (size_t i = 0; i < graph->n_value_info; i++)
        n_described += strcmp(nd_onnx_text(graph->value_info[i]->name), input) == 0;
    return found != NULL && count_name(graph, input) == 2 + n_described ? found : NULL;
}

static void remove_value(Onnx__ValueInfoProto **values, size_t *n, size_t index)
{
    onnx__value_info_proto__free_unpacked(values[index], NULL);
    --*n;
    memmove(&values[index], &values[index + 1], (*n - index) * sizeof(struct Onnx__ValueInfoProto *));
}

static void remove_description(Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = graph->n_value_info; i-- > 0;)
        if (strcmp(nd_onnx_text(graph->value_info[i]->name), name) == 0)
            remove_value(graph->value_info, &graph->n_value_info, i);
}

static size_t find_input(const Onnx__GraphProto *graph, const char *name)
{
    for (size_t i = 0; i < graph->n_input; i++)
        if (strcmp(nd_onnx_text(graph->input[i]->name), name) == 0)
            return i;
    return SIZE_MAX;
}

static enum nd_dtype qvalues_of(const struct nd_model *model, const char *tensor)
{
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (strcmp(nd_model_tensor(model, e)->onnx_name, tensor) == 0)
            return nd_model_tensor(model, e)->dtype;
    return ND_DTYPE_NONE;
}

/* Makes input i of the model one of quantised values where it can be, and drops it where nothing reads it. */
static enum nd_status strip_input(const struct nd_model *model, size_t i, Onnx__GraphProto *graph,
                                  struct nd_native *out, struct nd_error *err)
{
    const char *name = nd_model_input(model, i)->name;
    size_t at = find_input(graph, name), node = 0;
    if (at == SIZE_MAX)
        return ND_OK;
    const Onnx__NodeProto *quantiser = only_quantiser(graph, name, &node);
    enum nd_dtype qvalues =
        quantiser != NULL ? qvalues_of(model, nd_onnx_text(quantiser->output[0])) : ND_DTYPE_NONE;
    if (qvalues != ND_DTYPE_NONE) {
        char *tensor = nd_strdup(quantiser->output[0]);
        ND_TRY_MEMORY(tensor != NULL, err);
        onnx__node_proto__free_unpacked(graph->node[node], NULL);
        graph->n_node--;
        memmove(&graph->node[node], &graph->node[node + 1], (graph->n_node - node) * sizeof *graph->node);
        remove_description(graph, tensor);
        enum nd_status status = rename_all(graph, name, tensor, err);
        graph->input[at]->type->tensor_type->elem_type = (int32_t)qvalues;
        if (status == ND_OK)
            status = add_end(out->inputs, &out->n_inputs, i, tensor, err);
        free(tensor);
        return status;
    }
    if (count_name(graph, name) == 1) {
        remove_value(graph->input, &graph->n_input, at);
        return ND_OK;
    }
    return add_end(out->inputs, &out->n_inputs, i, name, err);
}

/* ---- names ---- */

static const struct nd_native_end *end_at(const struct nd_native *native, size_t i)
{
    return i < native->n_inputs ? &native->inputs[i] : &native->outputs[i - native->n_inputs];
}

static enum nd_status check_names(const struct nd_model *model, const struct nd_native *native,
                                  struct nd_error *err)
{
    size_t n = native->n_inputs + native->n_outputs;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < i; k++) {
            const struct nd_native_end *a = end_at(native, k), *b = end_at(native, i);
            if (strcmp(a->name, b->name) == 0)
                return nd_fail(err, ND_E_PREPARE_NAMES, b->tensor,
                               "tensors '%s' and '%s' of '%s' would both be called '%s' on the device: record "
                               "one of them at a time",
                               a->tensor, b->tensor, nd_model_path(model), a->name);
        }
    return ND_OK;
}

/* Another tensor inside that has the name makes way. */
static enum nd_status clear_name(Onnx__GraphProto *graph, const char *name, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (unsigned int k = 0; count_name(graph, name) > 0; k++) {
        char *other = nd_text("%s_inside%u", name, k);
        ND_TRY_MEMORY(other != NULL, err);
        bool is_free = count_name(graph, other) == 0;
        if (is_free)
            status = rename_all(graph, name, other, err);
        free(other);
        if (is_free)
            break;
    }
    return status;
}

static enum nd_status rename_ends(Onnx__GraphProto *graph, const struct nd_native *native, struct nd_error *err)
{
    for (size_t i = 0; i < native->n_inputs + native->n_outputs; i++) {
        const struct nd_native_end *end = end_at(native, i);
        if (strcmp(end->tensor, end->name) == 0)
            continue;
        ND_TRY(clear_name(graph, end->name, err)); /* no other end has it: check_names */
        ND_TRY(rename_all(graph, end->tensor, end->name, err));
    }
    return ND_OK;
}

/* ---- the copy ---- */

static enum nd_status list_outputs(const struct nd_model *model, const size_t *tensors, size_t n_tensors,
                                   struct nd_native *out, struct nd_error *err)
{
    for (size_t i = 0; i < n_tensors; i++)
        ND_TRY(add_end(out->outputs, &out->n_outputs, tensors[i], nd_model_tensor(model, tensors[i])->onnx_name,
                       err));
    return ND_OK;
}

static enum nd_status pack(const Onnx__ModelProto *proto, const char *path, struct nd_error *err)
{
    size_t n = onnx__model_proto__get_packed_size(proto);
    ND_FREED uint8_t *bytes = nd_calloc(n, 1);
    ND_TRY_MEMORY(bytes != NULL, err);
    onnx__model_proto__pack(proto, bytes);
    return nd_file_put(path, bytes, n, err);
}

static void free_proto(Onnx__ModelProto **proto)
{
    onnx__model_proto__free_unpacked(*proto, NULL);
}

enum nd_status nd_model_write_native(const struct nd_model *model, const size_t *tensors, size_t n_tensors,
                                     const char *path, struct nd_native *out, struct nd_error *err)
{
    ND_CLEANUP(nd_native_deinit)
    struct nd_native native = {.inputs = nd_calloc(nd_model_n_inputs(model), sizeof *native.inputs),
                               .outputs = nd_calloc(n_tensors, sizeof *native.outputs)};
    ND_CLEANUP(free_proto) Onnx__ModelProto *proto = NULL;
    ND_FREED void *bytes = NULL;
    size_t n_bytes = 0;
    ND_TRY_MEMORY(native.inputs != NULL && native.outputs != NULL, err);
    ND_TRY(nd_model_write_exposed(model, tensors, n_tensors, path, err));
    ND_TRY(nd_file_read(path, max_model_bytes, &bytes, &n_bytes, err));
    ND_TRY(nd_onnx_decode(path, bytes, n_bytes, &proto, err));
    for (size_t i = 0; i < nd_model_n_inputs(model); i++)
        ND_TRY(strip_input(model, i, proto->graph, &native, err));
    /* What only the removed nodes read. */
    Onnx__GraphProto *graph = proto->graph;
    for (size_t i = graph->n_initializer; i-- > 0;) {
        if (count_name(graph, nd_onnx_text(graph->initializer[i]->name)) > 1)
            continue;
        onnx__tensor_proto__free_unpacked(graph->initializer[i], NULL);
        graph->n_initializer--;
        memmove(&graph->initializer[i], &graph->initializer[i + 1],
                (graph->n_initializer - i) * sizeof *graph->initializer);
    }
    ND_TRY(list_outputs(model, tensors, n_tensors, &native, err));
    ND_TRY(check_names(model, &native, err));
    ND_TRY(rename_ends(proto->graph, &native, err));
    ND_TRY(pack(proto, path, err));
    return ND_GIVE(out, native);
}
