#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "model/rewrite/put.h"
#include "model/rewrite/requantise_model.h"

static const char contrib_domain[] = "com.microsoft";

/* Protobufs are packed, not written to. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

enum nd_status nd_requantiser_init(struct nd_requantiser *r, size_t n_items, struct nd_error *err)
{
    size_t n_nodes, n_initializers, n_tensors = r->model->graph.n_tensors;
    if (!nd_size_mul(n_items, 2, &n_nodes) || !nd_size_mul(n_items, 3, &n_initializers))
        return nd_fail_memory(err);
    r->read_as = nd_calloc(n_tensors, sizeof *r->read_as);
    r->made_as = nd_calloc(n_tensors, sizeof *r->made_as);
    r->new_nodes = nd_calloc(n_nodes, sizeof(void *));
    r->new_behind = nd_calloc(n_nodes, sizeof *r->new_behind);
    r->new_initializers = nd_calloc(n_initializers, sizeof(void *));
    bool is_whole = r->read_as != NULL && r->made_as != NULL && r->new_nodes != NULL && r->new_behind != NULL &&
                    r->new_initializers != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

void nd_requantiser_deinit(struct nd_requantiser *r)
{
    for (size_t i = 0; i < r->n_kept; i++)
        free(r->kept[i]);
    free(r->kept);
    free(r->read_as);
    free(r->made_as);
    free(r->use_as);
    free(r->is_dropped);
    free(r->forgets);
    free(r->new_nodes);
    free(r->new_behind);
    free(r->new_initializers);
    *r = (struct nd_requantiser){0};
}

void *nd_requantiser_keep(struct nd_requantiser *r, size_t size_bytes)
{
    if (!nd_grow((void **)&r->kept, &r->kept_capacity, r->n_kept + 1, sizeof *r->kept))
        return NULL;
    void *block = nd_calloc(size_bytes, 1);
    if (block != NULL)
        r->kept[r->n_kept++] = block;
    return block;
}

static char *joined(struct nd_requantiser *r, const char *base, const char *suffix)
{
    size_t n = strlen(base) + strlen(suffix) + 1;
    char *name = nd_requantiser_keep(r, n);
    if (name != NULL)
        snprintf(name, n, "%s%s", base, suffix);
    return name;
}

/* ---- initializers ---- */

enum nd_status nd_requantiser_add_initializer(struct nd_requantiser *r, const struct nd_new_initializer *added,
                                              struct nd_error *err)
{
    Onnx__TensorProto *tensor = nd_requantiser_keep(r, sizeof *tensor);
    if (tensor == NULL)
        return nd_fail_memory(err);
    onnx__tensor_proto__init(tensor);
    tensor->name = text_of(added->name);
    tensor->has_data_type = true;
    tensor->data_type = added->elem_type;
    tensor->n_dims = added->rank;
    tensor->dims = (int64_t *)(uintptr_t)added->dims;
    tensor->has_raw_data = true;
    tensor->raw_data.data = (uint8_t *)(uintptr_t)added->data;
    tensor->raw_data.len = added->size_bytes;
    r->new_initializers[r->n_new_initializers++] = tensor;
    return ND_OK;
}

enum nd_status nd_requantiser_new_name(struct nd_requantiser *r, const char *tensor, const char *suffix,
                                       char **out, struct nd_error *err)
{
    char *name = joined(r, tensor, suffix);
    if (name == NULL)
        return nd_fail_memory(err);
    if (nd_names_find(&r->model->graph.names, name) != ND_NO_INDEX)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, tensor,
                       "'%s': tensor '%s' cannot be quantised, as the name '%s' is taken", r->model->path,
                       tensor, name);
    *out = name;
    return ND_OK;
}

enum nd_status nd_requantiser_add_parameters(struct nd_requantiser *r, const struct nd_quantised_tensor *item,
                                             struct nd_error *err)
{
    char *scale_name, *zero_name;
    size_t n = item->quant->n, size = nd_dtype_size_bytes(item->dtype);
    enum nd_status status = nd_requantiser_new_name(r, item->tensor, "_scale", &scale_name, err);
    if (status == ND_OK)
        status = nd_requantiser_new_name(r, item->tensor, "_zero_point", &zero_name, err);
    if (status != ND_OK)
        return status;
    int64_t *dims = nd_requantiser_keep(r, sizeof *dims);
    uint8_t *scales = nd_requantiser_keep(r, n * sizeof(float)), *zeros = nd_requantiser_keep(r, n * size);
    if (dims == NULL || scales == NULL || zeros == NULL)
        return nd_fail_memory(err);
    dims[0] = (int64_t)n;
    memcpy(scales, item->quant->scale, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < size; b++)
            zeros[i * size + b] = (uint8_t)((uint64_t)item->quant->zero_point[i] >> (8 * b));
    size_t rank = n > 1 ? 1 : 0;
    const struct nd_new_initializer added[] = {
        {scale_name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank, scales, n * sizeof(float)},
        {zero_name, (int32_t)item->dtype, dims, rank, zeros, n * size}};
    status = nd_requantiser_add_initializer(r, &added[0], err);
    return status == ND_OK ? nd_requantiser_add_initializer(r, &added[1], err) : status;
}

/* ---- nodes ---- */

/* QuantizeLinear came with opset 10, its axis with 13, 16 bits with 21. */
static bool needs_contrib(const struct nd_model *model, const struct nd_quantised_tensor *item, int axis)
{
    bool is_wide = nd_dtype_size_bytes(item->dtype) == 2;
    return model->opset < (is_wide ? 21 : axis >= 0 ? 13 : 10);
}

static enum nd_status set_axis(struct nd_requantiser *r, Onnx__NodeProto *proto, int axis, struct nd_error *err)
{
    Onnx__AttributeProto *attribute = nd_requantiser_keep(r, sizeof *attribute);
    Onnx__AttributeProto **list = nd_requantiser_keep(r, sizeof *list);
    if (attribute == NULL || list == NULL)
        return nd_fail_memory(err);
    onnx__attribute_proto__init(attribute);
    attribute->name = text_of("axis");
    attribute->has_type = true;
    attribute->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
    attribute->has_i = true;
    attribute->i = axis;
    list[0] = attribute;
    proto->attribute = list;
    proto->n_attribute = 1;
    return ND_OK;
}

enum nd_status nd_requantiser_add_node(struct nd_requantiser *r, const struct nd_quantised_tensor *item,
                                       const struct nd_new_node *node, struct nd_error *err)
{
    Onnx__NodeProto *proto = nd_requantiser_keep(r, sizeof *proto);
    char **inputs = nd_requantiser_keep(r, 3 * sizeof *inputs),
         **outputs = nd_requantiser_keep(r, sizeof *outputs);
    char *name = joined(r, item->tensor, node->op_type[0] == 'Q' ? "_QuantizeLinear" : "_DequantizeLinear");
    if (proto == NULL || inputs == NULL || outputs == NULL || name == NULL)
        return nd_fail_memory(err);
    onnx__node_proto__init(proto);
    inputs[0] = text_of(node->input);
    inputs[1] = joined(r, item->tensor, "_scale");
    inputs[2] = joined(r, item->tensor, "_zero_point");
    outputs[0] = text_of(node->output);
    if (inputs[1] == NULL || inputs[2] == NULL)
        return nd_fail_memory(err);
    proto->name = name;
    proto->op_type = text_of(node->op_type);
    proto->input = inputs;
    proto->n_input = 3;
    proto->output = outputs;
    proto->n_output = 1;
    if (needs_contrib(r->model, item, node->axis)) {
        proto->domain = text_of(contrib_domain);
        r->needs_contrib = true;
    }
    r->new_behind[r->n_new_nodes] = r->behind;
    r->new_nodes[r->n_new_nodes++] = proto;
    return node->axis >= 0 ? set_axis(r, proto, node->axis, err) : ND_OK;
}

/* ---- the copy ---- */

/* The node with the tensors under the names that they have in the copy. */
static Onnx__NodeProto *renamed(struct nd_requantiser *r, size_t index)
{
    const struct nd_graph_node *node = &r->model->graph.nodes[index];
    const size_t *uses = &r->model->graph.uses[node->first_use],
                 *made = &r->model->graph.made[node->first_made];
    Onnx__NodeProto *copy = nd_requantiser_keep(r, sizeof *copy);
    char **inputs = nd_requantiser_keep(r, node->n_inputs * sizeof *inputs);
    char **outputs = nd_requantiser_keep(r, node->n_made * sizeof *outputs);
    if (copy == NULL || inputs == NULL || outputs == NULL)
        return NULL;
    *copy = *node->proto;
    for (size_t i = 0; i < node->n_inputs; i++) {
        const char *name = uses[i] != ND_NO_INDEX ? r->read_as[uses[i]] : NULL;
        if (r->use_as != NULL && r->use_as[node->first_use + i] != NULL)
            name = r->use_as[node->first_use + i];
        inputs[i] = name != NULL ? text_of(name) : node->proto->input[i];
    }
    for (size_t i = 0; i < node->n_made; i++) {
        const char *name = made[i] != ND_NO_INDEX ? r->made_as[made[i]] : NULL;
        outputs[i] = name != NULL ? text_of(name) : node->proto->output[i];
    }
    copy->input = inputs;
    copy->output = outputs;
    return copy;
}

/* A weight that is only read as quantised values goes. */
static bool is_still_read(const struct nd_requantiser *r, size_t tensor)
{
    const struct nd_graph_tensor *t = &r->model->graph.tensors[tensor];
    if (r->read_as[tensor] == NULL || t->output != ND_NO_INDEX)
        return true;
    for (size_t i = 0; i < r->model->graph.n_nodes; i++) {
        const struct nd_graph_node *node = &r->model->graph.nodes[i];
        for (size_t u = node->n_inputs; u < node->n_uses; u++)
            if (r->model->graph.uses[node->first_use + u] == tensor)
                return true;
    }
    return false;
}

/* A node that is dropped, or a Constant node whose weight is only read as quantised values. */
static bool is_superseded(const struct nd_requantiser *r, size_t index)
{
    if (r->is_dropped != NULL && r->is_dropped[index])
        return true;
    const struct nd_graph_node *node = &r->model->graph.nodes[index];
    size_t made = node->n_made == 1 ? r->model->graph.made[node->first_made] : ND_NO_INDEX;
    return made != ND_NO_INDEX && node->n_inputs == 0 && !is_still_read(r, made);
}

/* New nodes in front of all, then every old node with the new ones that belong behind it. */
static bool order_nodes(struct nd_requantiser *r, Onnx__GraphProto *graph)
{
    size_t n = 0, n_old = r->model->graph.n_nodes;
    size_t *first = nd_requantiser_keep(r, (n_old + 2) * sizeof *first);
    size_t *order = nd_requantiser_keep(r, r->n_new_nodes * sizeof *order);
    graph->node = nd_requantiser_keep(r, (n_old + r->n_new_nodes) * sizeof(void *));
    if (first == NULL || order == NULL || graph->node == NULL)
        return false;
    /* Place 0 is in front of all, place i + 1 behind node i: ND_NO_INDEX + 1 is 0. */
    for (size_t i = 0; i < r->n_new_nodes; i++)
        first[r->new_behind[i] + 1]++;
    for (size_t place = 0, at = 0; place <= n_old; place++) {
        size_t n_here = first[place];
        first[place] = at;
        at += n_here;
    }
    for (size_t i = 0; i < r->n_new_nodes; i++)
        order[first[r->new_behind[i] + 1]++] = i;
    for (size_t place = 0, at = 0; place <= n_old; place++) {
        Onnx__NodeProto *old = place > 0 ? renamed(r, place - 1) : NULL;
        if (place > 0 && old == NULL)
            return false;
        if (old != NULL && !is_superseded(r, place - 1))
            graph->node[n++] = old;
        for (; at < first[place]; at++)
            graph->node[n++] = r->new_nodes[order[at]];
    }
    graph->n_node = n;
    return true;
}

static bool choose_sources(struct nd_requantiser *r, Onnx__GraphProto *graph)
{
    const Onnx__GraphProto *old = r->model->proto->graph;
    graph->initializer = nd_requantiser_keep(r, (old->n_initializer + r->n_new_initializers) * sizeof(void *));
    graph->input = nd_requantiser_keep(r, old->n_input * sizeof(void *));
    if (graph->initializer == NULL || graph->input == NULL)
        return false;
    graph->n_initializer = graph->n_input = 0;
    for (size_t i = 0; i < old->n_initializer; i++)
        if (is_still_read(r, nd_names_find(&r->model->graph.names, old->initializer[i]->name)))
            graph->initializer[graph->n_initializer++] = old->initializer[i];
    for (size_t i = 0; i < r->n_new_initializers; i++)
        graph->initializer[graph->n_initializer++] = r->new_initializers[i];
    for (size_t i = 0; i < old->n_input; i++) {
        size_t tensor = nd_names_find(&r->model->graph.names, old->input[i]->name);
        if (!r->model->graph.tensors[tensor].is_constant || is_still_read(r, tensor))
            graph->input[graph->n_input++] = old->input[i];
    }
    return true;
}

/* What the model declares of the tensors inside, but for those of another type. */
static bool choose_declarations(struct nd_requantiser *r, Onnx__GraphProto *graph)
{
    const Onnx__GraphProto *old = r->model->proto->graph;
    if (r->forgets == NULL)
        return true;
    graph->value_info = nd_requantiser_keep(r, old->n_value_info * sizeof(void *) + 1);
    graph->n_value_info = 0;
    for (size_t i = 0; i < old->n_value_info && graph->value_info != NULL; i++) {
        size_t tensor = nd_names_find(&r->model->graph.names, nd_onnx_text(old->value_info[i]->name));
        if (tensor == ND_NO_INDEX || !r->forgets[tensor])
            graph->value_info[graph->n_value_info++] = old->value_info[i];
    }
    return graph->value_info != NULL;
}

static bool import_contrib(struct nd_requantiser *r, Onnx__ModelProto *model)
{
    const Onnx__ModelProto *old = r->model->proto;
    for (size_t i = 0; i < old->n_opset_import; i++)
        if (strcmp(nd_onnx_text(old->opset_import[i]->domain), contrib_domain) == 0)
            return true;
    model->opset_import = nd_requantiser_keep(r, (old->n_opset_import + 1) * sizeof(void *));
    Onnx__OperatorSetIdProto *set = nd_requantiser_keep(r, sizeof *set);
    if (model->opset_import == NULL || set == NULL)
        return false;
    onnx__operator_set_id_proto__init(set);
    set->domain = text_of(contrib_domain);
    set->has_version = true;
    set->version = 1;
    memcpy(model->opset_import, old->opset_import, old->n_opset_import * sizeof(void *));
    model->opset_import[model->n_opset_import++] = set;
    return true;
}

enum nd_status nd_requantiser_write(struct nd_requantiser *r, const char *path, struct nd_error *err)
{
    Onnx__ModelProto model = *r->model->proto;
    Onnx__GraphProto graph = *r->model->proto->graph;
    model.graph = &graph;
    if (model.ir_version < 4)
        model.ir_version = 4; /* the first in which an initializer need not be a graph input */
    bool is_whole = order_nodes(r, &graph) && choose_sources(r, &graph) && choose_declarations(r, &graph) &&
                    (!r->needs_contrib || import_contrib(r, &model));
    return is_whole ? nd_rewrite_put(&model, &r->model->external, path, err) : nd_fail_memory(err);
}
