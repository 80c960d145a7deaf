/* Copies of a float model with QuantizeLinear and DequantizeLinear put in. What a copy does not change it
 * borrows. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/graph/constants.h"
#include "model/rewrite/requantise_model.h"

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

static enum nd_status add_weight(struct nd_requantiser *r, const struct nd_quantised_tensor *item,
                                 size_t tensor, const struct nd_float_constant *weight, struct nd_error *err)
{
    char *qvalues_name, *after;
    int axis = item->has_axis ? item->quant->axis : reader_axis(&r->model->graph, tensor, weight->rank);
    enum nd_status status = find_axis(item, axis, weight->dims, weight->rank, &axis, err);
    if (status == ND_OK)
        status = nd_requantiser_new_name(r, item->tensor, "_quantized", &qvalues_name, err);
    if (status == ND_OK)
        status = nd_requantiser_new_name(r, item->tensor, after_suffix, &after, err);
    if (status != ND_OK)
        return status;
    size_t size_bytes;
    if (!nd_size_mul(weight->n, nd_dtype_size_bytes(item->dtype), &size_bytes))
        return nd_fail_memory(err);
    uint8_t *qvalues = nd_requantiser_keep(r, size_bytes + 1);
    if (qvalues == NULL)
        return nd_fail_memory(err);
    const struct nd_new_initializer initializer = {
        qvalues_name, (int32_t)item->dtype, weight->dims, weight->rank, qvalues, size_bytes};
    status = quantise_weight(item, weight, axis, qvalues, err);
    if (status == ND_OK)
        status = nd_requantiser_add_initializer(r, &initializer, err);
    const struct nd_new_node node = {"DequantizeLinear", qvalues_name, after, axis};
    if (status == ND_OK)
        status = nd_requantiser_add_parameters(r, item, err);
    if (status == ND_OK)
        status = nd_requantiser_add_node(r, item, &node, err);
    if (status == ND_OK)
        r->read_as[tensor] = after;
    return status;
}

/* ---- activations ---- */

static enum nd_status check_activation(const struct nd_requantiser *r, const struct nd_quantised_tensor *item,
                                       size_t tensor, struct nd_error *err)
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
static enum nd_status activation_axis(const struct nd_requantiser *r, const struct nd_quantised_tensor *item,
                                      size_t tensor, int *axis, struct nd_error *err)
{
    struct nd_shape shape;
    const Onnx__TypeProto__Tensor *type = nd_onnx_tensor_type(r->model->graph.tensors[tensor].value_info);
    *axis = -1;
    if (item->quant->n == 1)
        return ND_OK;
    enum nd_status status = nd_onnx_shape(type, item->tensor, &shape, err);
    if (status != ND_OK)
        return status;
    if (shape.rank < 0 || !item->has_axis)
        return nd_fail(err, ND_E_ENCODINGS_MISMATCH, item->tensor, "activation '%s' has %zu scales, and %s",
                       item->tensor, item->quant->n,
                       shape.rank < 0 ? "the model does not declare its shape" : "the file names no axis");
    return find_axis(item, item->quant->axis, shape.dims, (size_t)shape.rank, axis, err);
}

/* Inside, what reads the tensor reads its dequantised quantised values instead; a graph output, and what a
 * subgraph reads, keeps its name and what makes it writes another. */
static enum nd_status add_activation(struct nd_requantiser *r, const struct nd_quantised_tensor *item,
                                     size_t tensor, struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    bool keeps_name = graph->tensors[tensor].output != ND_NO_INDEX || is_read_by_a_subgraph(graph, tensor);
    char *qvalues = NULL, *other = NULL, *name = (char *)(uintptr_t)item->tensor;
    int axis = -1;
    enum nd_status status = check_activation(r, item, tensor, err);
    if (status == ND_OK)
        status = activation_axis(r, item, tensor, &axis, err);
    if (status == ND_OK)
        status = nd_requantiser_new_name(r, item->tensor, qvalues_suffix, &qvalues, err);
    if (status == ND_OK)
        status =
            nd_requantiser_new_name(r, item->tensor, keeps_name ? before_suffix : after_suffix, &other, err);
    if (status == ND_OK)
        status = nd_requantiser_add_parameters(r, item, err);
    const struct nd_new_node quantise = {"QuantizeLinear", keeps_name ? other : name, qvalues, axis};
    const struct nd_new_node dequantise = {"DequantizeLinear", qvalues, keeps_name ? name : other, axis};
    if (status == ND_OK)
        status = nd_requantiser_add_node(r, item, &quantise, err);
    if (status == ND_OK)
        status = nd_requantiser_add_node(r, item, &dequantise, err);
    if (status == ND_OK && keeps_name)
        r->made_as[tensor] = other;
    else if (status == ND_OK)
        r->read_as[tensor] = other;
    return status;
}

/* ---- the copy ---- */

static enum nd_status add_item(struct nd_requantiser *r, const struct nd_quantised_tensor *item, size_t tensor,
                               struct nd_error *err)
{
    struct nd_float_constant weight = {0};
    bool is_weight = false;
    enum nd_status status =
        nd_float_constant_read(&r->model->graph, tensor, r->model->path, &weight, &is_weight, err);
    if (status != ND_OK)
        return status;
    status = is_weight ? add_weight(r, item, tensor, &weight, err) : add_activation(r, item, tensor, err);
    free(weight.values);
    return status;
}

static enum nd_status check_model(const struct nd_model *model, struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t i = 0; i < graph->n_nodes; i++)
        if (graph->nodes[i].kind != ND_NODE_OTHER)
            return nd_fail(
                err, ND_E_MODEL_UNSUPPORTED, model->path,
                "'%s' is quantised already (node '%s' is a %s); encodings are applied to a float model",
                model->path, nd_graph_node_name(graph->nodes[i].proto), graph->nodes[i].proto->op_type);
    return ND_OK;
}

/* Which items belong to the tensors: parameters before all nodes, activations behind what makes them. */
static enum nd_status add_items(struct nd_requantiser *r, const struct nd_quantised_tensor *items, size_t n,
                                struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        size_t tensor = nd_names_find(&graph->names, items[i].tensor);
        if (tensor == ND_NO_INDEX)
            return nd_fail(err, ND_E_ENCODINGS_MISMATCH, items[i].tensor, "'%s' has no tensor '%s'",
                           r->model->path, items[i].tensor);
        if (r->read_as[tensor] != NULL || r->made_as[tensor] != NULL)
            return nd_fail(err, ND_E_ENCODINGS_MISMATCH, items[i].tensor, "tensor '%s' is given twice",
                           items[i].tensor);
        r->behind = graph->tensors[tensor].producer;
        status = add_item(r, &items[i], tensor, err);
    }
    return status;
}

enum nd_status nd_model_write_quantised(const struct nd_model *model, const struct nd_quantised_tensor *items,
                                        size_t n_items, const char *path, struct nd_error *err)
{
    struct nd_requantiser r = {.model = model};
    enum nd_status status = check_model(model, err);
    if (status == ND_OK)
        status = nd_requantiser_init(&r, n_items, err);
    if (status == ND_OK)
        status = add_items(&r, items, n_items, err);
    if (status == ND_OK)
        status = nd_requantiser_write(&r, path, err);
    nd_requantiser_deinit(&r);
    return status;
}
