/* Copies of a model with other quantisers: the parts that they are made of, and copies of a float model with
 * QuantizeLinear and DequantizeLinear put in. What a copy does not change it borrows. */
#include "model/rewrite/requantise_model.h"

#include <math.h>
#include <stdio.h>

#include "core/items.h"
#include "core/tensors/scales.h"
#include "model/graph/constants.h"
#include "model/rewrite/put.h"

/* ---- the parts of a copy ---- */

static const char contrib_domain[] = "com.microsoft";

/* Protobufs are packed, not written to. */
static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text;
}

enum nd_status nd_requantiser_init(struct nd_model_requantiser *r, size_t n_items, struct nd_error *err)
{
    size_t n_nodes, n_initializers, n_tensors = r->model->graph.n_tensors;
    ND_TRY_MEMORY(nd_size_mul(n_items, 2, &n_nodes) && nd_size_mul(n_items, 3, &n_initializers), err);
    r->read_as = nd_calloc(n_tensors, sizeof *r->read_as);
    r->made_as = nd_calloc(n_tensors, sizeof *r->made_as);
    r->new_nodes = nd_calloc(n_nodes, sizeof(void *));
    r->new_behind = nd_calloc(n_nodes, sizeof *r->new_behind);
    r->new_initializers = nd_calloc(n_initializers, sizeof(void *));
    bool is_whole = r->read_as != NULL && r->made_as != NULL && r->new_nodes != NULL && r->new_behind != NULL &&
                    r->new_initializers != NULL;
    return is_whole ? ND_OK : nd_fail_memory(err);
}

void nd_requantiser_deinit(struct nd_model_requantiser *r)
{
    ND_FREE_ITEMS(r->kept, r->n_kept);
    ND_FREE_ALL(r->read_as, r->made_as, r->use_as, r->is_dropped, r->forgets, r->new_nodes, r->new_behind,
                r->new_initializers);
    *r = (struct nd_model_requantiser){0};
}

void *nd_requantiser_keep(struct nd_model_requantiser *r, size_t size_bytes)
{
    if (!nd_grow((void **)&r->kept, &r->kept_capacity, r->n_kept + 1, sizeof *r->kept))
        return NULL;
    void *block = nd_calloc(size_bytes, 1);
    if (block != NULL)
        r->kept[r->n_kept++] = block;
    return block;
}

static char *joined(struct nd_model_requantiser *r, const char *base, const char *suffix)
{
    size_t n = strlen(base) + strlen(suffix) + 1;
    char *name = nd_requantiser_keep(r, n);
    if (name != NULL)
        snprintf(name, n, "%s%s", base, suffix);
    return name;
}

/* ---- initializers ---- */

enum nd_status nd_requantiser_add_initializer(struct nd_model_requantiser *r,
                                              const struct nd_new_initializer *added, struct nd_error *err)
{
    Onnx__TensorProto *tensor = nd_requantiser_keep(r, sizeof *tensor);
    ND_TRY_MEMORY(tensor != NULL, err);
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

enum nd_status nd_requantiser_new_name(struct nd_model_requantiser *r, const char *tensor, const char *suffix,
                                       char **out, struct nd_error *err)
{
    char *name = joined(r, tensor, suffix);
    ND_TRY_MEMORY(name != NULL, err);
    if (nd_names_find(&r->model->graph.names, name) != ND_NO_INDEX)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, tensor,
                       "'%s': tensor '%s' cannot be quantised, as the name '%s' is taken", r->model->path,
                       tensor, name);
    *out = name;
    return ND_OK;
}

enum nd_status nd_requantiser_add_parameters(struct nd_model_requantiser *r,
                                             const struct nd_quantised_tensor *item, struct nd_error *err)
{
    char *scale_name, *zero_name;
    size_t n = item->quant->n, size = nd_dtype_size_bytes(item->dtype);
    ND_TRY(nd_requantiser_new_name(r, item->tensor, "_scale", &scale_name, err));
    ND_TRY(nd_requantiser_new_name(r, item->tensor, "_zero_point", &zero_name, err));
    int64_t *dims = nd_requantiser_keep(r, sizeof *dims);
    uint8_t *scales = nd_requantiser_keep(r, n * sizeof(float)), *zeros = nd_requantiser_keep(r, n * size);
    ND_TRY_MEMORY(dims != NULL && scales != NULL && zeros != NULL, err);
    dims[0] = (int64_t)n;
    memcpy(scales, item->quant->scale, n * sizeof(float));
    for (size_t i = 0; i < n; i++)
        for (size_t b = 0; b < size; b++)
            zeros[i * size + b] = (uint8_t)((uint64_t)item->quant->zero_point[i] >> (8 * b));
    size_t rank = n > 1 ? 1 : 0;
    const struct nd_new_initializer added[] = {
        {scale_name, ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT, dims, rank, scales, n * sizeof(float)},
        {zero_name, (int32_t)item->dtype, dims, rank, zeros, n * size}};
    ND_TRY(nd_requantiser_add_initializer(r, &added[0], err));
    return nd_requantiser_add_initializer(r, &added[1], err);
}

/* ---- nodes ---- */

/* QuantizeLinear came with opset 10, its axis with 13, 16 bits with 21. */
static bool needs_contrib(const struct nd_model *model, const struct nd_quantised_tensor *item, int axis)
{
    bool is_wide = nd_dtype_size_bytes(item->dtype) == 2;
    return model->opset < (is_wide ? 21 : axis >= 0 ? 13 : 10);
}

static enum nd_status set_axis(struct nd_model_requantiser *r, Onnx__NodeProto *proto, int axis,
                               struct nd_error *err)
{
    Onnx__AttributeProto *attribute = nd_requantiser_keep(r, sizeof *attribute);
    Onnx__AttributeProto **list = nd_requantiser_keep(r, sizeof *list);
    ND_TRY_MEMORY(attribute != NULL && list != NULL, err);
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

enum nd_status nd_requantiser_add_node(struct nd_model_requantiser *r, const struct nd_quantised_tensor *item,
                                       const struct nd_new_node *node, struct nd_error *err)
{
    Onnx__NodeProto *proto = nd_requantiser_keep(r, sizeof *proto);
    char **inputs = nd_requantiser_keep(r, 3 * sizeof *inputs),
         **outputs = nd_requantiser_keep(r, sizeof *outputs);
    char *name = joined(r, item->tensor, node->op_type[0] == 'Q' ? "_QuantizeLinear" : "_DequantizeLinear");
    ND_TRY_MEMORY(proto != NULL && inputs != NULL && outputs != NULL && name != NULL, err);
    onnx__node_proto__init(proto);
    inputs[0] = text_of(node->input);
    inputs[1] = joined(r, item->tensor, "_scale");
    inputs[2] = joined(r, item->tensor, "_zero_point");
    outputs[0] = text_of(node->output);
    ND_TRY_MEMORY(inputs[1] != NULL && inputs[2] != NULL, err);
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
static Onnx__NodeProto *renamed(struct nd_model_requantiser *r, size_t index)
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
static bool is_still_read(const struct nd_model_requantiser *r, size_t tensor)
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
static bool is_superseded(const struct nd_model_requantiser *r, size_t index)
{
    if (r->is_dropped != NULL && r->is_dropped[index])
        return true;
    const struct nd_graph_node *node = &r->model->graph.nodes[index];
    size_t made = node->n_made == 1 ? r->model->graph.made[node->first_made] : ND_NO_INDEX;
    return made != ND_NO_INDEX && node->n_inputs == 0 && !is_still_read(r, made);
}

/* New nodes in front of all, then every old node with the new ones that belong behind it. */
static bool order_nodes(struct nd_model_requantiser *r, Onnx__GraphProto *graph)
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

static bool choose_sources(struct nd_model_requantiser *r, Onnx__GraphProto *graph)
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
static bool choose_declarations(struct nd_model_requantiser *r, Onnx__GraphProto *graph)
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

static bool import_contrib(struct nd_model_requantiser *r, Onnx__ModelProto *model)
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

enum nd_status nd_requantiser_write(struct nd_model_requantiser *r, const char *path, struct nd_error *err)
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

/* ---- a float model with quantisers ---- */

static const char qvalues_suffix[] = "_QuantizeLinear_Output";
static const char before_suffix[] = "_QuantizeLinear_Input";
static const char after_suffix[] = "_DequantizeLinear_Output";

/* ---- which tensor is what ---- */

static bool is_read_by_a_subgraph(const struct nd_graph *graph, size_t tensor)
{
    for (size_t i = 0; i < graph->n_nodes; i++)
        for (size_t u = graph->nodes[i].n_inputs; u < graph->nodes[i].n_uses; u++)
            if (graph->uses[graph->nodes[i].first_use + u] == tensor)
                return true;
    return false;
}

/* The axis along which AIMET gives the channels of a weight, by the operator that reads it. */
static int operator_axis(const Onnx__NodeProto *node, size_t rank)
{
    const char *op_type = nd_onnx_text(node->op_type);
    if (strcmp(op_type, "ConvTranspose") == 0)
        return 1;
    if (strcmp(op_type, "Gemm") == 0)
        return nd_onnx_attribute_i(node, "transB", 0) != 0 ? 0 : (int)rank - 1;
    if (strcmp(op_type, "MatMul") == 0)
        return (int)rank - 1;
    return strcmp(op_type, "Conv") == 0 || rank == 1 ? 0 : -1;
}

static int reader_axis(const struct nd_graph *graph, size_t tensor, size_t rank)
{
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    return t->n_readers > 0 ? operator_axis(graph->nodes[graph->readers[t->first_reader]].proto, rank) : -1;
}

/* Where the n scales of the item lie in a tensor of these dimensions. */
static enum nd_status find_axis(const struct nd_quantised_tensor *item, int axis, const int64_t *dims,
                                size_t rank, int *out, struct nd_error *err)
{
    *out = -1;
    if (item->quant->n == 1)
        return ND_OK;
    if (item->has_axis && axis < 0)
        axis += (int)rank;
    if (axis < 0 || (size_t)axis >= rank)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, item->tensor,
                       "tensor '%s' has %zu scales, and along which of its %zu dimensions is not known",
                       item->tensor, item->quant->n, rank);
    if (dims[axis] != (int64_t)item->quant->n)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, item->tensor,
                       "tensor '%s' has %lld channels (dimension %d), and its encoding has %zu scales",
                       item->tensor, (long long)dims[axis], axis, item->quant->n);
    *out = axis;
    return ND_OK;
}

/* ---- weights ---- */

/* AIMET rounds the quotient in float32, half to even; so does QuantizeLinear. */
static double qvalue_of(float value, float scale, int64_t zero_point, const struct nd_quantised_tensor *item)
{
    double low = item->is_signed ? -ldexp(1, item->bits - 1) : 0;
    double high = low + ldexp(1, item->bits) - 1;
    double qvalue = nearbyint((double)(value / scale)) + (double)zero_point;
    return qvalue < low ? low : qvalue > high ? high : qvalue;
}

static enum nd_status quantise_weight(const struct nd_quantised_tensor *item,
                                      const struct nd_float_constant *weight, int axis, uint8_t *qvalues,
                                      struct nd_error *err)
{
    size_t inner = 1, size = nd_dtype_size_bytes(item->dtype);
    for (size_t d = (size_t)(axis + 1); axis >= 0 && d < weight->rank; d++)
        inner *= (size_t)weight->dims[d];
    for (size_t i = 0; i < weight->n; i++) {
        size_t channel = axis >= 0 ? i / inner % item->quant->n : 0;
        if (isnan(weight->values[i]))
            return nd_fail(err, ND_E_ENCODINGS_MISMATCH, item->tensor,
                           "element %zu of '%s' is NaN and has no quantised value", i, item->tensor);
        int64_t qvalue = (int64_t)qvalue_of(weight->values[i], item->quant->scale[channel],
                                            item->quant->zero_point[channel], item);
        for (size_t b = 0; b < size; b++) /* ONNX is little-endian */
            qvalues[i * size + b] = (uint8_t)((uint64_t)qvalue >> (8 * b));
    }
    return ND_OK;
}

static enum nd_status add_weight(struct nd_model_requantiser *r, const struct nd_quantised_tensor *item,
                                 size_t tensor, const struct nd_float_constant *weight, struct nd_error *err)
{
    char *qvalues_name, *after;
    int axis = item->has_axis ? item->quant->axis : reader_axis(&r->model->graph, tensor, weight->rank);
    ND_TRY(find_axis(item, axis, weight->dims, weight->rank, &axis, err));
    ND_TRY(nd_requantiser_new_name(r, item->tensor, "_quantized", &qvalues_name, err));
    ND_TRY(nd_requantiser_new_name(r, item->tensor, after_suffix, &after, err));
    size_t size_bytes;
    ND_TRY_MEMORY(nd_size_mul(weight->n, nd_dtype_size_bytes(item->dtype), &size_bytes), err);
    uint8_t *qvalues = nd_requantiser_keep(r, size_bytes + 1);
    ND_TRY_MEMORY(qvalues != NULL, err);
    const struct nd_new_initializer initializer = {
        qvalues_name, (int32_t)item->dtype, weight->dims, weight->rank, qvalues, size_bytes};
    ND_TRY(quantise_weight(item, weight, axis, qvalues, err));
    ND_TRY(nd_requantiser_add_initializer(r, &initializer, err));
    const struct nd_new_node node = {"DequantizeLinear", qvalues_name, after, axis};
    ND_TRY(nd_requantiser_add_parameters(r, item, err));
    ND_TRY(nd_requantiser_add_node(r, item, &node, err));
    r->read_as[tensor] = after;
    return ND_OK;
}

/* ---- activations ---- */

static enum nd_status check_activation(const struct nd_model_requantiser *r,
                                       const struct nd_quantised_tensor *item, size_t tensor,
                                       struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(graph->tensors[tensor].value_info);
    bool is_input = graph->tensors[tensor].producer == ND_NO_INDEX;
    if (type != NULL && type->has_elem_type && type->elem_type != ONNX__TENSOR_PROTO__DATA_TYPE__FLOAT)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, item->tensor,
                       "tensor '%s' is %s, and only float32 is quantised", item->tensor,
                       nd_dtype_name((enum nd_dtype)type->elem_type));
    if (item->bits != 8 && item->bits != 16)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, item->tensor,
                       "activation '%s' has %d bits, and QuantizeLinear is written for 8 and 16", item->tensor,
                       item->bits);
    if (is_input && (graph->tensors[tensor].output != ND_NO_INDEX || is_read_by_a_subgraph(graph, tensor)))
        return nd_fail(
            err, ND_E_MODEL_UNSUPPORTED, item->tensor,
            "graph input '%s' is also a graph output or read by a subgraph, and cannot be quantised there",
            item->tensor);
    return ND_OK;
}

/* The dimension of an activation's channels has to be declared when it has several scales. */
static enum nd_status activation_axis(const struct nd_model_requantiser *r,
                                      const struct nd_quantised_tensor *item, size_t tensor, int *axis,
                                      struct nd_error *err)
{
    struct nd_shape shape;
    const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(r->model->graph.tensors[tensor].value_info);
    *axis = -1;
    if (item->quant->n == 1)
        return ND_OK;
    ND_TRY(nd_onnx_shape(type, item->tensor, &shape, err));
    if (shape.rank < 0 || !item->has_axis)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, item->tensor, "activation '%s' has %zu scales, and %s",
                       item->tensor, item->quant->n,
                       shape.rank < 0 ? "the model does not declare its shape" : "the file names no axis");
    return find_axis(item, item->quant->axis, shape.dims, (size_t)shape.rank, axis, err);
}

/* Inside, what reads the tensor reads its dequantised quantised values instead; a graph output, and what a
 * subgraph reads, keeps its name and what makes it writes another. */
static enum nd_status add_activation(struct nd_model_requantiser *r, const struct nd_quantised_tensor *item,
                                     size_t tensor, struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    bool keeps_name = graph->tensors[tensor].output != ND_NO_INDEX || is_read_by_a_subgraph(graph, tensor);
    char *qvalues = NULL, *other = NULL, *name = (char *)(uintptr_t)item->tensor;
    int axis = -1;
    ND_TRY(check_activation(r, item, tensor, err));
    ND_TRY(activation_axis(r, item, tensor, &axis, err));
    ND_TRY(nd_requantiser_new_name(r, item->tensor, qvalues_suffix, &qvalues, err));
    ND_TRY(nd_requantiser_new_name(r, item->tensor, keeps_name ? before_suffix : after_suffix, &other, err));
    ND_TRY(nd_requantiser_add_parameters(r, item, err));
    const struct nd_new_node quantise = {"QuantizeLinear", keeps_name ? other : name, qvalues, axis};
    const struct nd_new_node dequantise = {"DequantizeLinear", qvalues, keeps_name ? name : other, axis};
    ND_TRY(nd_requantiser_add_node(r, item, &quantise, err));
    ND_TRY(nd_requantiser_add_node(r, item, &dequantise, err));
    if (keeps_name)
        r->made_as[tensor] = other;
    else
        r->read_as[tensor] = other;
    return ND_OK;
}

/* ---- the copy ---- */

static enum nd_status add_item(struct nd_model_requantiser *r, const struct nd_quantised_tensor *item,
                               size_t tensor, struct nd_error *err)
{
    struct nd_float_constant weight = {0};
    bool is_weight = false;
    ND_TRY(nd_float_constant_read(&r->model->graph, tensor, r->model->path, &weight, &is_weight, err));
    enum nd_status status =
        is_weight ? add_weight(r, item, tensor, &weight, err) : add_activation(r, item, tensor, err);
    free(weight.values);
    return status;
}

/* Which items belong to the tensors: parameters before all nodes, activations behind what makes them. */
static enum nd_status add_items(struct nd_model_requantiser *r, const struct nd_quantised_tensor *items,
                                size_t n, struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    for (size_t i = 0; i < n; i++) {
        size_t tensor = nd_names_find(&graph->names, items[i].tensor);
        if (tensor == ND_NO_INDEX)
            return nd_fail(err, ND_E_ENCODINGS_MISMATCH, items[i].tensor, "'%s' has no tensor '%s'",
                           r->model->path, items[i].tensor);
        if (r->read_as[tensor] != NULL || r->made_as[tensor] != NULL)
            return nd_fail(err, ND_E_ENCODINGS_MISMATCH, items[i].tensor, "tensor '%s' is given twice",
                           items[i].tensor);
        r->behind = graph->tensors[tensor].producer;
        ND_TRY(add_item(r, &items[i], tensor, err));
    }
    return ND_OK;
}

enum nd_status nd_model_write_quantised(const struct nd_model *model, const struct nd_quantised_tensor *items,
                                        size_t n_items, const char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_requantiser_deinit) struct nd_model_requantiser r = {.model = model};
    const struct nd_graph *graph = &model->graph;
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].kind != ND_NODE_OTHER)
            return nd_fail(
                err, ND_E_MODEL_UNSUPPORTED, model->path,
                "'%s' is quantised already (node '%s' is a %s); encodings are applied to a float model",
                model->path, nd_graph_node_name(graph->nodes[i].proto), graph->nodes[i].proto->op_type);
    ND_TRY(nd_requantiser_init(&r, n_items, err));
    ND_TRY(add_items(&r, items, n_items, err));
    return nd_requantiser_write(&r, path, err);
}

/* ---- new parameters of quantisers and constants ---- */

enum { SLOTS = 3 }; /* a node reads quantised values or floats, a scale, a zero point */

struct recoder {
    struct nd_model_requantiser r;
    const struct nd_recoded_node *nodes;
    size_t n_nodes;
    const struct nd_recoded_node **of_node; /* [graph.n_nodes], NULL: it stays */
};

/* The constant itself, past Identity nodes and, of quantised values, a QuantizeLinear of a constant; NULL:
 * there is none. */
static const Onnx__TensorProto *constant_of(const struct nd_graph *graph, size_t tensor)
{
    while (tensor != ND_NO_INDEX && nd_graph_constant(graph, tensor) == NULL) {
        size_t producer = graph->tensors[tensor].producer;
        if (producer == ND_NO_INDEX || !graph->nodes[producer].is_constant ||
            (strcmp(graph->nodes[producer].proto->op_type, "Identity") != 0 &&
             graph->nodes[producer].kind != ND_NODE_QUANTIZE))
            return NULL;
        tensor = nd_graph_used(graph, producer, 0);
    }
    return tensor != ND_NO_INDEX ? nd_graph_constant(graph, tensor) : NULL;
}

static bool is_replaced(const struct recoder *c, size_t node, size_t slot)
{
    return c->of_node[node] != NULL && (slot > 0 || c->of_node[node]->qvalues != NULL);
}

/* Whether everybody who reads the tensor reads the same new values in the copy. */
static bool is_taken_over(const struct recoder *c, size_t tensor, const struct nd_quant *quant, size_t slot)
{
    const struct nd_graph *graph = &c->r.model->graph;
    const struct nd_graph_tensor *t = &graph->tensors[tensor];
    if (t->output != ND_NO_INDEX)
        return false;
    for (size_t r = 0; r < t->n_readers; r++) {
        size_t node = graph->readers[t->first_reader + r];
        for (size_t u = 0; u < graph->nodes[node].n_uses; u++)
            if (graph->uses[graph->nodes[node].first_use + u] == tensor &&
                (u != slot || !is_replaced(c, node, u) || c->of_node[node]->quant != quant))
                return false;
    }
    return true;
}

/* The name that the new constant of this slot has; a node before may have made it already (*is_made). */
static enum nd_status name_of(struct recoder *c, const struct nd_recoded_node *item, size_t slot,
                              const char **out, bool *is_made, struct nd_error *err)
{
    const struct nd_graph *graph = &c->r.model->graph;
    size_t tensor = nd_graph_used(graph, item->node, slot);
    const char *old = graph->tensors[tensor].name;
    *is_made = false;
    for (const struct nd_recoded_node *other = c->nodes; slot > 0 && other < item; other++)
        if (other->quant == item->quant && nd_graph_used(graph, other->node, slot) != ND_NO_INDEX) {
            *out = c->r.use_as[graph->nodes[other->node].first_use + slot];
            *is_made = *out != NULL;
            return ND_OK;
        }
    if (is_taken_over(c, tensor, item->quant, slot)) {
        c->r.read_as[tensor] = old; /* so that the old one goes */
        *out = old;
        return ND_OK;
    }
    for (size_t i = 1;; i++) {
        char suffix[48];
        snprintf(suffix, sizeof suffix, i > 1 ? "_aligned%zu" : "_aligned", i);
        char *name = NULL;
        bool is_free = true;
        enum nd_status status = nd_requantiser_new_name(&c->r, old, suffix, &name, err);
        if (status == ND_ERR_UNSUPPORTED) /* the model has that one */
            continue;
        if (status != ND_OK)
            return status;
        for (size_t k = 0; k < c->r.n_new_initializers && is_free; k++)
            is_free = strcmp(c->r.new_initializers[k]->name, name) != 0;
        *out = name;
        if (is_free)
            return ND_OK;
    }
}

static void store(const double *qvalues, size_t n, size_t size, uint8_t *bytes)
{
    for (size_t i = 0; i < n; i++) /* ONNX is little-endian */
        for (size_t b = 0; b < size; b++)
            bytes[i * size + b] = (uint8_t)((uint64_t)(int64_t)qvalues[i] >> (8 * b));
}

/* The bytes of what the node reads at that slot from now on. */
static void fill(const struct nd_recoded_node *item, size_t slot, size_t size, uint8_t *bytes)
{
    if (slot == 0) {
        store(item->qvalues, item->n_qvalues, size, bytes);
        return;
    }
    for (size_t i = 0; i < item->quant->n; i++) {
        double zero = (double)item->quant->zero_point[i];
        if (slot == 1)
            memcpy(bytes + i * sizeof(float), &item->quant->scale[i], sizeof(float));
        else
            store(&zero, 1, size, bytes + i * size);
    }
}

/* The new constant has the type and the shape of the old one. */
static enum nd_status replace(struct recoder *c, const struct nd_recoded_node *item, size_t slot,
                              struct nd_error *err)
{
    const struct nd_graph *graph = &c->r.model->graph;
    const char *node_name = nd_graph_node_name(graph->nodes[item->node].proto), *name = NULL;
    size_t n = slot == 0 ? item->n_qvalues : item->quant->n, n_old = 0;
    const Onnx__TensorProto *old = constant_of(graph, nd_graph_used(graph, item->node, slot));
    struct nd_node_quant quant = {0};
    bool is_made;
    if (old == NULL || !nd_onnx_n_elems(old, &n_old) || n_old != n)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, node_name,
                       "'%s': the parameters of node '%s' cannot be changed, as they are no constant of %zu "
                       "elements",
                       c->r.model->path, node_name, n);
    ND_TRY(nd_node_quant_read(graph, item->node, c->r.model->path, &quant, err));
    enum nd_dtype dtype = slot == 1 ? ND_DTYPE_F32 : quant.dtype;
    nd_quant_deinit(&quant.quant);
    if (slot == 0 && dtype == ND_DTYPE_NONE) /* no zero point: the quantised values say their type */
        dtype = nd_onnx_dtype(old->data_type);
    if (slot == 1 && nd_onnx_dtype(old->data_type) != dtype)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, node_name, "'%s': the scale of node '%s' is no float32",
                       c->r.model->path, node_name);
    ND_TRY(name_of(c, item, slot, &name, &is_made, err));
    c->r.use_as[graph->nodes[item->node].first_use + slot] = name;
    if (is_made)
        return ND_OK;
    size_t size = nd_dtype_size_bytes(dtype), bytes;
    uint8_t *data = nd_size_mul(n, size, &bytes) ? nd_requantiser_keep(&c->r, bytes + 1) : NULL;
    ND_TRY_MEMORY(data != NULL, err);
    fill(item, slot, size, data);
    const struct nd_new_initializer added = {name, (int32_t)dtype, old->dims, old->n_dims, data, bytes};
    return nd_requantiser_add_initializer(&c->r, &added, err);
}

static enum nd_status replace_all(struct recoder *c, struct nd_error *err)
{
    const struct nd_graph *graph = &c->r.model->graph;
    for (size_t i = 0; i < c->n_nodes; i++)
        c->of_node[c->nodes[i].node] = &c->nodes[i];
    for (size_t i = 0; i < c->n_nodes; i++)
        for (size_t slot = 0; slot < SLOTS; slot++)
            if (nd_graph_used(graph, c->nodes[i].node, slot) != ND_NO_INDEX &&
                is_replaced(c, c->nodes[i].node, slot))
                ND_TRY(replace(c, &c->nodes[i], slot, err));
    return ND_OK;
}

enum nd_status nd_model_write_recoded(const struct nd_model *model, const struct nd_recoded_node *nodes,
                                      size_t n_nodes, const char *path, struct nd_error *err)
{
    struct recoder c = {.r = {.model = model}, .nodes = nodes, .n_nodes = n_nodes};
    enum nd_status status = nd_requantiser_init(&c.r, n_nodes, err);
    c.of_node = nd_calloc(model->graph.n_nodes, sizeof *c.of_node);
    c.r.use_as = nd_calloc(model->graph.n_uses, sizeof *c.r.use_as);
    if (status == ND_OK && (c.of_node == NULL || c.r.use_as == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = replace_all(&c, err);
    if (status == ND_OK)
        status = nd_requantiser_write(&c.r, path, err);
    free(c.of_node);
    nd_requantiser_deinit(&c.r);
    return status;
}
