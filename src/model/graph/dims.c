/* Inputs and outputs, their shapes, and dimensions that are only known when the model is used. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "model/graph/loaded.h"

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
    size_t edge = model->tensor_edge[nd_names_find(&model->graph.names, io->name)];
    if (edge != ND_NO_INDEX && model->edges[edge].quant.n > 0) {
        io->quant = &model->edges[edge].quant;
        io->quant_dtype = model->edges[edge].dtype;
    }
}

enum nd_status nd_model_find_io(struct nd_model *model, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    model->inputs = nd_calloc(graph->proto->n_input, sizeof *model->inputs);
    model->outputs = nd_calloc(graph->proto->n_output, sizeof *model->outputs);
    if (model->inputs == NULL || model->outputs == NULL)
        return nd_fail_memory(err);
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
        size_t edge = model->tensor_edge[nd_names_find(&graph->names, value->name)];
        if (edge != ND_NO_INDEX)
            model->edges[edge].is_model_output = true;
        fill_io(model, value, &model->outputs[model->n_outputs++]);
    }
    return ND_OK;
}

/* An axis counted from the end is counted from the front once the rank is known, and has as many scales as
 * elements. */
static enum nd_status check_axis(struct nd_edge *edge, const struct nd_shape *shape, struct nd_error *err)
{
    if (edge->quant.n <= 1 || shape->rank < 0)
        return ND_OK;
    int axis = edge->quant.axis < 0 ? edge->quant.axis + shape->rank : edge->quant.axis;
    if (axis < 0 || axis >= shape->rank)
        return nd_fail(err, ND_E_MODEL_GRAPH, edge->onnx_name,
                       "tensor '%s' is quantised along axis %d of %d dimensions", edge->onnx_name,
                       edge->quant.axis, shape->rank);
    if (shape->dims[axis] >= 0 && (uint64_t)shape->dims[axis] != edge->quant.n)
        return nd_fail(err, ND_E_MODEL_GRAPH, edge->onnx_name,
                       "tensor '%s' has %zu scales for the %lld elements of axis %d", edge->onnx_name,
                       edge->quant.n, (long long)shape->dims[axis], axis);
    edge->quant.axis = axis;
    return ND_OK;
}

enum nd_status nd_model_refresh_shapes(struct nd_model *model, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    size_t n_inputs = 0;
    for (size_t i = 0; i < model->graph.proto->n_input && status == ND_OK; i++) {
        const Onnx__ValueInfoProto *value = model->graph.proto->input[i];
        if (n_inputs < model->n_inputs && strcmp(model->inputs[n_inputs].name, value->name) == 0)
            status = fill_shape(&model->inputs[n_inputs++], value, err);
    }
    for (size_t i = 0; i < model->n_outputs && status == ND_OK; i++)
        status = fill_shape(&model->outputs[i], model->graph.proto->output[i], err);
    for (size_t i = 0; i < model->n_edges && status == ND_OK; i++) {
        struct nd_edge *edge = &model->edges[i];
        struct nd_shape shape;
        status = nd_onnx_shape(model->edge_types[i], edge->onnx_name, &shape, err);
        if (status == ND_OK)
            status = check_axis(edge, &shape, err);
        for (int d = 0; status == ND_OK && d < shape.rank; d++)
            if (shape.dims[d] < 0)
                shape.rank = -1; /* a run will tell */
        if (status == ND_OK)
            edge->shape = shape;
    }
    return status;
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

/* Every dynamic dimension once, in the given spelling with a space before each. */
static char *list_dynamic(const struct nd_model *model, const char *before, const char *after)
{
    struct nd_strbuf list = {0};
    for (size_t i = 0; i < model->n_inputs; i++)
        for (int d = 0; d < model->inputs[i].shape.rank; d++) {
            if (model->inputs[i].shape.dims[d] >= 0 || is_repeated(model, i, d))
                continue;
            nd_strbuf_printf(&list, "%s%s", list.len > 0 ? " " : "", before);
            label_of(&model->inputs[i], d, &list);
            nd_strbuf_puts(&list, after);
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
    char *list = list_dynamic(model, "'", "'");
    if (list == NULL)
        return nd_fail_memory(err);
    enum nd_status status =
        nd_fail(err, ND_E_MODEL_NO_DIM, name, "no input of '%s' has a dynamic dimension '%s': %s%s",
                model->path, name, list[0] != '\0' ? "there are " : "all are fixed", list);
    free(list);
    return status;
}

enum nd_status nd_model_set_dim(struct nd_model *model, const char *name, int64_t n, struct nd_error *err)
{
    if (n < 1)
        return nd_fail(err, ND_E_OPTION_VALUE, name, "dimension '%s' must be at least 1, not %lld", name,
                       (long long)n);
    /* The caller's text may be the model's own, which goes away here. */
    char *own_name = nd_strdup(name);
    if (own_name == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
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
    status = n_fixed > 0 || unnamed != NULL ? nd_model_refresh_shapes(model, err)
                                            : fail_no_dim(model, own_name, err);
    free(own_name);
    return status;
}

enum nd_status nd_model_check_static(const struct nd_model *model, struct nd_error *err)
{
    for (size_t i = 0; i < model->n_inputs; i++)
        if (model->inputs[i].shape.rank < 0)
            return nd_fail(err, ND_E_MODEL_DYNAMIC, model->inputs[i].name,
                           "input '%s' of '%s' declares no shape: give it one in the model",
                           model->inputs[i].name, model->path);
    char *list = list_dynamic(model, "--dim ", "=1");
    if (list == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    if (list[0] != '\0')
        status = nd_fail(err, ND_E_MODEL_DYNAMIC, model->path,
                         "'%s' has inputs with dynamic dimensions: give their sizes, for instance %s",
                         model->path, list);
    free(list);
    return status;
}
