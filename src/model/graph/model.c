/* A model: its file is read and indexed, its layers are found, its inputs and outputs have shapes, and
 * dimensions that are only known when it is used can be set. docs/architecture.md#rooms. */
#include <assert.h>
#include <ctype.h>
#include <limits.h>
#include <stdio.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"

/* ---- which operators lie between DequantizeLinear and QuantizeLinear, and what such a layer reads ---- */

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
    ND_FREED bool *depends = nd_calloc(graph->n_tensors, sizeof *depends);
    if (layer_of_node == NULL || depends == NULL) {
        free(layer_of_node);
        return nd_fail_memory(err);
    }
    mark_dependent(graph, depends);
    for (size_t n = graph->n_nodes; n-- > 0;)
        layer_of_node[n] = assign(graph, n, depends, layer_of_node);
    *out = layer_of_node;
    return ND_OK;
}

/* Each layer's nodes in graph order, as lists: first[q] of the layer that node q ends, next[n] after node n. */
struct members {
    size_t *first;
    size_t *next;
};

static enum nd_status list_members(const struct nd_graph *graph, const size_t *layer_of_node,
                                   struct members *out, struct nd_error *err)
{
    out->first = nd_calloc(graph->n_nodes, sizeof *out->first);
    out->next = nd_calloc(graph->n_nodes, sizeof *out->next);
    ND_TRY_MEMORY(out->first != NULL && out->next != NULL, err);
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

/* Fills model->layers, and op_types of the tensors they make. */
static enum nd_status nd_layers_find(struct nd_model *model, const size_t *layer_of_node, struct nd_error *err)
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
    ND_FREE_ALL(builder.inputs, builder.seen_in, members.first, members.next);
    return status;
}

/* ---- inputs, outputs and their dimensions ---- */

typedef Onnx__TensorShapeProto__Dimension dimension;

/* A name has a letter: tools write "?" on every axis that is open, and they are not the same dimension. */
static bool is_named(const dimension *dim)
{
    if (dim->value_case != ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
        return false;
    const char *name = nd_onnx_text(dim->dim_param);
    while (*name != '\0' && (unsigned char)*name < 128 && !isalpha((unsigned char)*name))
        name++;
    return *name != '\0';
}

static enum nd_status fill_shape(struct nd_model_io *io, const Onnx__ValueInfoProto *value,
                                 struct nd_error *err)
{
    const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(value);
    enum nd_status status = nd_onnx_shape(type, io->name, &io->shape, err);
    for (int i = 0; status == ND_OK && i < io->shape.rank; i++)
        io->dim_params[i] = is_named(type->shape->dim[i]) ? type->shape->dim[i]->dim_param : NULL;
    return status;
}

static void fill_io(const struct nd_model *model, const Onnx__ValueInfoProto *value, struct nd_model_io *io)
{
    const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(value);
    *io = (struct nd_model_io){.name = nd_onnx_text(value->name), .shape = {.rank = -1}};
    io->dtype = type != NULL && type->has_elem_type ? nd_onnx_dtype(type->elem_type) : ND_DTYPE_NONE;
    size_t tensor = model->tensor_of_value[nd_names_find(&model->graph.names, io->name)];
    if (tensor != ND_NO_INDEX && model->tensors[tensor].quant.n > 0) {
        io->quant = &model->tensors[tensor].quant;
        io->quant_dtype = model->tensors[tensor].dtype;
    }
}

/* Fills inputs and outputs from the protobuf and the tensors. */
static enum nd_status nd_model_find_io(struct nd_model *model, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    model->inputs = nd_calloc(graph->proto->n_input, sizeof *model->inputs);
    model->outputs = nd_calloc(graph->proto->n_output, sizeof *model->outputs);
    ND_TRY_MEMORY(model->inputs != NULL && model->outputs != NULL, err);
    for (size_t i = 0; i < graph->proto->n_input; i++) {
        const Onnx__ValueInfoProto *value = graph->proto->input[i];
        if (graph->tensors[nd_names_find(&graph->names, value->name)].is_constant)
            continue;
        if (nd_onnx_tensor_type(value) == NULL)
            return nd_fail(err, ND_E_MODEL_UNSUPPORTED, value->name, "graph input '%s' is not a tensor",
                           value->name);
        fill_io(model, value, &model->inputs[model->n_inputs++]);
    }
    for (size_t i = 0; i < graph->proto->n_output; i++) {
        const Onnx__ValueInfoProto *value = graph->proto->output[i];
        size_t tensor = model->tensor_of_value[nd_names_find(&graph->names, value->name)];
        if (tensor != ND_NO_INDEX)
            model->tensors[tensor].is_model_output = true;
        fill_io(model, value, &model->outputs[model->n_outputs++]);
    }
    return ND_OK;
}

/* An axis from the end is counted from the front once the rank is known, and has as many scales as elements. */
static enum nd_status check_axis(struct nd_tensor *tensor, const struct nd_shape *shape, struct nd_error *err)
{
    if (tensor->quant.n <= 1 || shape->rank < 0)
        return ND_OK;
    int axis = tensor->quant.axis < 0 ? tensor->quant.axis + shape->rank : tensor->quant.axis;
    if (axis < 0 || axis >= shape->rank)
        return nd_fail(err, ND_E_MODEL_GRAPH, tensor->onnx_name,
                       "tensor '%s' is quantised along axis %d of %d dimensions", tensor->onnx_name,
                       tensor->quant.axis, shape->rank);
    if (shape->dims[axis] >= 0 && (uint64_t)shape->dims[axis] != tensor->quant.n)
        return nd_fail(err, ND_E_MODEL_GRAPH, tensor->onnx_name,
                       "tensor '%s' has %zu scales for the %lld elements of axis %d", tensor->onnx_name,
                       tensor->quant.n, (long long)shape->dims[axis], axis);
    tensor->quant.axis = axis;
    return ND_OK;
}

/* Reads all shapes anew from the protobuf, after loading and after a dimension was set. ND_E_MODEL_GRAPH where
 * the quantisation of a tensor contradicts its shape. */
static enum nd_status nd_model_refresh_shapes(struct nd_model *model, struct nd_error *err)
{
    size_t n_inputs = 0;
    for (size_t i = 0; i < model->graph.proto->n_input; i++) {
        const Onnx__ValueInfoProto *value = model->graph.proto->input[i];
        if (n_inputs < model->n_inputs && strcmp(model->inputs[n_inputs].name, value->name) == 0)
            ND_TRY(fill_shape(&model->inputs[n_inputs++], value, err));
    }
    for (size_t i = 0; i < model->n_outputs; i++)
        ND_TRY(fill_shape(&model->outputs[i], model->graph.proto->output[i], err));
    for (size_t i = 0; i < model->n_tensors; i++) {
        struct nd_tensor *tensor = &model->tensors[i];
        struct nd_shape shape;
        ND_TRY(nd_onnx_shape(model->tensor_types[i], tensor->onnx_name, &shape, err));
        ND_TRY(check_axis(tensor, &shape, err));
        for (int d = 0; d < shape.rank; d++)
            if (shape.dims[d] < 0)
                shape.rank = -1; /* a run will tell */
        tensor->shape = shape;
    }
    return ND_OK;
}

/* The name under which a dynamic dimension of an input is set: its own, or "input:axis". */
static void label_of(const struct nd_model_io *input, int axis, struct nd_strbuf *out)
{
    if (input->dim_params[axis] != NULL)
        nd_strbuf_puts(out, input->dim_params[axis]);
    else
        nd_strbuf_printf(out, "%s:%d", input->name, axis);
}

/* Whether an earlier dynamic dimension of the inputs has the same name. */
static bool is_repeated(const struct nd_model *model, size_t input, int axis)
{
    const char *name = model->inputs[input].dim_params[axis];
    for (size_t i = 0; name != NULL && i <= input; i++)
        for (int d = 0; d < (i < input ? model->inputs[i].shape.rank : axis); d++)
            if (model->inputs[i].shape.dims[d] < 0 && model->inputs[i].dim_params[d] != NULL &&
                strcmp(model->inputs[i].dim_params[d], name) == 0)
                return true;
    return false;
}

/* Every dynamic dimension once, in the given spelling with a space before each. sizes: of all dimensions of all
 * inputs, 0 where nothing says one; or NULL. */
static char *list_dynamic(const struct nd_model *model, const char *before, const char *after,
                          const struct nd_shape *sizes)
{
    struct nd_strbuf list = {0};
    for (size_t i = 0; i < model->n_inputs; i++)
        for (int d = 0; d < model->inputs[i].shape.rank; d++) {
            if (model->inputs[i].shape.dims[d] >= 0 || is_repeated(model, i, d))
                continue;
            nd_strbuf_printf(&list, "%s%s", list.len > 0 ? " " : "", before);
            label_of(&model->inputs[i], d, &list);
            nd_strbuf_puts(&list, after);
            if (sizes != NULL)
                nd_strbuf_printf(&list, "%lld", (long long)(sizes[i].dims[d] > 0 ? sizes[i].dims[d] : 1));
        }
    return nd_strbuf_take(&list);
}

static dimension *input_dimension(const struct nd_model *model, const char *input, int axis)
{
    const struct nd_graph_tensor *tensor = &model->graph.tensors[nd_names_find(&model->graph.names, input)];
    return model->graph.proto->input[tensor->input]->type->tensor_type->shape->dim[axis];
}

/* The "input:axis" dimension of that name, or NULL. */
static dimension *find_unnamed(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < model->n_inputs; i++)
        for (int d = 0; d < model->inputs[i].shape.rank; d++) {
            const struct nd_model_io *input = &model->inputs[i];
            size_t n = strlen(input->name);
            char axis[16];
            snprintf(axis, sizeof axis, ":%d", d);
            if (input->shape.dims[d] < 0 && input->dim_params[d] == NULL &&
                strncmp(input->name, name, n) == 0 && strcmp(name + n, axis) == 0)
                return input_dimension(model, input->name, d);
        }
    return NULL;
}

static void fix_dimension(dimension *dim, int64_t n)
{
    if (dim->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM)
        free(dim->dim_param);
    dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    dim->dim_value = n;
}

/* Fixes the named dimension wherever these values have it. */
static size_t fix_named(Onnx__ValueInfoProto *const *values, size_t n_values, const char *name, int64_t n)
{
    size_t n_fixed = 0;
    for (size_t i = 0; i < n_values; i++) {
        const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(values[i]);
        for (size_t d = 0; type != NULL && type->shape != NULL && d < type->shape->n_dim; d++)
            if (is_named(type->shape->dim[d]) && strcmp(type->shape->dim[d]->dim_param, name) == 0) {
                fix_dimension(type->shape->dim[d], n);
                n_fixed++;
            }
    }
    return n_fixed;
}

static enum nd_status fail_no_dim(const struct nd_model *model, const char *name, struct nd_error *err)
{
    ND_FREED char *list = list_dynamic(model, "'", "'", NULL);
    ND_TRY_MEMORY(list != NULL, err);
    return nd_fail(err, ND_E_MODEL_NO_DIM, name, "no input of '%s' has a dynamic dimension '%s': %s%s",
                   model->path, name, list[0] != '\0' ? "there are " : "all are fixed", list);
}

enum nd_status nd_model_set_dim(struct nd_model *model, const char *name, int64_t n, struct nd_error *err)
{
    if (n < 1)
        return nd_fail(err, ND_E_OPTION_VALUE, name, "dimension '%s' must be at least 1, not %lld", name,
                       (long long)n);
    /* The caller's text may be the model's own, which goes away here. */
    ND_FREED char *own_name = nd_strdup(name);
    ND_TRY_MEMORY(own_name != NULL, err);
    const Onnx__GraphProto *graph = model->graph.proto;
    model->has_set_dims = true;
    size_t n_fixed = fix_named(graph->input, graph->n_input, own_name, n);
    dimension *unnamed = n_fixed == 0 ? find_unnamed(model, own_name) : NULL;
    if (unnamed != NULL)
        fix_dimension(unnamed, n);
    if (n_fixed > 0) {
        fix_named(graph->output, graph->n_output, own_name, n);
        fix_named(graph->value_info, graph->n_value_info, own_name, n);
    }
    return n_fixed > 0 || unnamed != NULL ? nd_model_refresh_shapes(model, err)
                                          : fail_no_dim(model, own_name, err);
}

enum nd_status nd_model_check_static(const struct nd_model *model, struct nd_error *err)
{
    return nd_model_check_static_for(model, NULL, err);
}

enum nd_status nd_model_check_static_for(const struct nd_model *model, const struct nd_shape *sizes,
                                         struct nd_error *err)
{
    for (size_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].shape.rank < 0)
            return nd_fail(err, ND_E_MODEL_DYNAMIC, model->inputs[i].name,
                           "input '%s' of '%s' declares no shape: give it one in the model",
                           model->inputs[i].name, model->path);
    ND_FREED struct nd_shape *unknown = nd_calloc(model->n_inputs, sizeof *unknown);
    ND_FREED char *list =
        unknown != NULL ? list_dynamic(model, "--dim ", "=", sizes != NULL ? sizes : unknown) : NULL;
    ND_TRY_MEMORY(list != NULL, err);
    if (list[0] != '\0')
        return nd_fail(err, ND_E_MODEL_DYNAMIC, model->path,
                       "'%s' has inputs with dynamic dimensions: give their sizes, for instance %s",
                       model->path, list);
    return ND_OK;
}

/* Protobuf's own limit, so no ONNX file is larger. */
static const size_t max_file_bytes = INT_MAX;

static enum nd_status read_file(struct nd_model *model, struct nd_error *err)
{
    ND_FREED void *bytes = NULL;
    size_t n = 0;
    ND_TRY(nd_file_read(model->path, max_file_bytes, &bytes, &n, err));
    ND_TRY(nd_onnx_decode(model->path, bytes, n, &model->proto, err));
    nd_sha256_bytes(bytes, n, model->sha256);
    return ND_OK;
}

/* Puts the digests of external files into the model's. */
static enum nd_status mix_external(struct nd_model *model, struct nd_error *err)
{
    if (model->external.n == 0)
        return ND_OK;
    struct nd_strbuf list = {0};
    nd_strbuf_printf(&list, "%s\n", model->sha256);
    for (size_t i = 0; i < model->external.n; i++)
        nd_strbuf_printf(&list, "%s %s\n", model->external.files[i].location, model->external.files[i].sha256);
    size_t n = list.len;
    ND_FREED char *text = nd_strbuf_take(&list);
    ND_TRY_MEMORY(text != NULL, err);
    nd_sha256_bytes(text, n, model->sha256);
    return ND_OK;
}

static int64_t default_opset(const Onnx__ModelProto *proto)
{
    for (size_t i = 0; i < proto->n_opset_import; i++)
        if (nd_onnx_domain(proto->opset_import[i]->domain)[0] == '\0')
            return proto->opset_import[i]->version;
    return 0;
}

/* Whether the node quantises an input of the graph. */
static bool quantises_input(const struct nd_graph *graph, const struct nd_graph_node *node)
{
    size_t source = node->n_inputs > 0 ? graph->uses[node->first_use] : ND_NO_INDEX;
    return node->kind == ND_NODE_QUANTIZE && source != ND_NO_INDEX &&
           graph->tensors[source].input != ND_NO_INDEX && !graph->tensors[source].is_constant;
}

/* Operators that hand on the values of their first input, at most in another shape or order. */
static bool hands_on(const Onnx__NodeProto *node)
{
    return ND_IS_ONE_OF(node->op_type, "Identity", "Transpose", "Reshape", "Squeeze", "Unsqueeze", "Flatten") &&
           nd_onnx_domain(node->domain)[0] == '\0';
}

/* Marks the DequantizeLinear whose floats become an output of the graph, and the nodes between them. */
static void mark_end(const struct nd_graph *graph, size_t output, bool *is_end)
{
    size_t node = graph->tensors[output].producer;
    while (node != ND_NO_INDEX && !is_end[node] && !graph->nodes[node].is_constant) {
        bool is_last = graph->nodes[node].kind == ND_NODE_DEQUANTIZE;
        if (!is_last && (!hands_on(graph->nodes[node].proto) || graph->nodes[node].n_inputs == 0))
            return;
        is_end[node] = true;
        size_t source = nd_graph_used(graph, node, 0);
        node = is_last || source == ND_NO_INDEX ? ND_NO_INDEX : graph->tensors[source].producer;
    }
}

static enum nd_status list_nodes(struct nd_model *model, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    model->nodes = nd_calloc(graph->n_nodes, sizeof *model->nodes);
    ND_FREED bool *is_end = nd_calloc(graph->n_nodes, sizeof *is_end);
    ND_TRY_MEMORY(model->nodes != NULL && is_end != NULL, err);
    for (size_t t = 0; t < graph->n_tensors; t++)
        if (graph->tensors[t].output != ND_NO_INDEX)
            mark_end(graph, t, is_end);
    for (size_t i = 0; i < graph->n_nodes; i++) {
        const Onnx__NodeProto *proto = graph->nodes[i].proto;
        bool is_end_quantiser = is_end[i] && graph->nodes[i].kind == ND_NODE_DEQUANTIZE;
        model->nodes[i] = (struct nd_model_node){
            .name = nd_graph_node_name(proto),
            .op_type = proto->op_type,
            .domain = nd_onnx_domain(proto->domain),
            .has_own_name = nd_onnx_text(proto->name)[0] != '\0',
            .is_io_quantisation = is_end_quantiser || quantises_input(graph, &graph->nodes[i])};
    }
    return ND_OK;
}

static enum nd_status analyse(struct nd_model *model, struct nd_error *err)
{
    ND_FREED size_t *layer_of_node = NULL;
    ND_TRY(nd_onnx_check_names(&model->proto->base, err));
    ND_TRY(nd_graph_order(model->proto->graph, err));
    ND_TRY(nd_graph_join_quantisers(model->proto->graph, err));
    ND_TRY(nd_graph_init(&model->graph, model->proto->graph, err));
    ND_TRY(nd_external_init(&model->external, model->proto, model->path, err));
    ND_TRY(mix_external(model, err));
    ND_TRY(list_nodes(model, err));
    ND_TRY(nd_layers_assign(&model->graph, &layer_of_node, err));
    ND_TRY(nd_tensors_find(model, layer_of_node, err));
    ND_TRY(nd_layers_find(model, layer_of_node, err));
    ND_TRY(nd_model_find_io(model, err));
    return nd_model_refresh_shapes(model, err);
}

enum nd_status nd_model_load(const char *path, struct nd_model **out, struct nd_error *err)
{
    ND_CLEANUP(nd_model_destroy) struct nd_model *model = nd_calloc(1, sizeof *model);
    ND_TRY_MEMORY(model != NULL, err);
    model->path = nd_strdup(path);
    ND_TRY_MEMORY(model->path != NULL, err);
    ND_TRY(read_file(model, err));
    enum nd_status status = analyse(model, err);
    if (status != ND_OK) {
        nd_error_context(err, "reading '%s'", path);
        return status;
    }
    model->opset = default_opset(model->proto);
    return ND_GIVE(out, model);
}

void nd_model_destroy(struct nd_model **handle)
{
    struct nd_model *model = *handle;
    if (model == NULL)
        return;
    for (size_t i = 0; i < model->n_layers; i++)
        free((void *)(uintptr_t)model->layers[i].inputs);
    ND_DEINIT_EACH(nd_tensor_deinit, model->tensors, model->n_tensors);
    ND_FREE_ALL(model->layers, model->layer_of_tensor, model->tensor_types, model->tensor_of_value,
                model->inputs, model->outputs, model->nodes);
    nd_external_deinit(&model->external);
    struct nd_graph *graph = &model->graph;
    nd_names_deinit(&graph->names);
    ND_FREE_ALL(graph->tensors, graph->nodes, graph->uses, graph->made, graph->readers);
    *graph = (struct nd_graph){0};
    onnx__model_proto__free_unpacked(model->proto, NULL);
    ND_FREE_ALL(model->path, model);
    *handle = NULL;
}

/* ---- what it tells of itself ---- */

const char *nd_model_path(const struct nd_model *model)
{
    return model->path;
}

const char *nd_model_sha256(const struct nd_model *model)
{
    return model->sha256;
}

size_t nd_model_n_external(const struct nd_model *model)
{
    return model->external.n;
}

const char *nd_model_external(const struct nd_model *model, size_t i)
{
    assert(i < model->external.n);
    return model->external.files[i].location;
}

const char *nd_model_graph_name(const struct nd_model *model)
{
    return nd_onnx_text(model->proto->graph->name);
}

int64_t nd_model_opset(const struct nd_model *model)
{
    return model->opset;
}

size_t nd_model_n_inputs(const struct nd_model *model)
{
    return model->n_inputs;
}

const struct nd_model_io *nd_model_input(const struct nd_model *model, size_t i)
{
    assert(i < model->n_inputs);
    return &model->inputs[i];
}

size_t nd_model_n_outputs(const struct nd_model *model)
{
    return model->n_outputs;
}

const struct nd_model_io *nd_model_output(const struct nd_model *model, size_t i)
{
    assert(i < model->n_outputs);
    return &model->outputs[i];
}

size_t nd_model_output_tensor(const struct nd_model *model, size_t output)
{
    return model->tensor_of_value[nd_names_find(&model->graph.names, nd_model_output(model, output)->name)];
}

size_t nd_model_n_nodes(const struct nd_model *model)
{
    return model->graph.n_nodes;
}

const struct nd_model_node *nd_model_node(const struct nd_model *model, size_t i)
{
    assert(i < model->graph.n_nodes);
    return &model->nodes[i];
}

size_t nd_model_n_tensors(const struct nd_model *model)
{
    return model->n_tensors;
}

const struct nd_tensor *nd_model_tensor(const struct nd_model *model, size_t i)
{
    assert(i < model->n_tensors);
    return &model->tensors[i];
}

const struct nd_model_node *nd_model_tensor_operator(const struct nd_model *model, size_t i)
{
    const struct nd_graph *graph = &model->graph;
    size_t qvalues = nd_names_find(&graph->names, nd_model_tensor(model, i)->onnx_name);
    size_t quantizer = qvalues != ND_NO_INDEX ? graph->tensors[qvalues].producer : ND_NO_INDEX;
    if (quantizer == ND_NO_INDEX || graph->nodes[quantizer].kind != ND_NODE_QUANTIZE)
        return NULL;
    size_t input = graph->uses[graph->nodes[quantizer].first_use];
    size_t last = input != ND_NO_INDEX ? graph->tensors[input].producer : ND_NO_INDEX;
    return last != ND_NO_INDEX ? &model->nodes[last] : NULL;
}

const struct nd_model_layer *nd_model_layer_of_tensor(const struct nd_model *model, size_t tensor)
{
    assert(tensor < model->n_tensors);
    size_t layer = model->layer_of_tensor[tensor];
    return layer != ND_NO_INDEX ? &model->layers[layer] : NULL;
}

size_t nd_model_n_qoperators(const struct nd_model *model, const char **first)
{
    size_t n_found = 0;
    *first = "";
    for (size_t n = 0; n < model->graph.n_nodes; n++) {
        const char *op_type = nd_onnx_text(model->graph.nodes[n].proto->op_type);
        if (nd_onnx_is_qoperator(op_type) && n_found++ == 0)
            *first = op_type;
    }
    return n_found;
}

size_t nd_model_n_layers(const struct nd_model *model)
{
    return model->n_layers;
}

const struct nd_model_layer *nd_model_layer(const struct nd_model *model, size_t i)
{
    assert(i < model->n_layers);
    return &model->layers[i];
}
