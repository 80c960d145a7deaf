/* Copies of a quantised model in which some tensors have 16 bits: which operators compute so, conversions at
 * their borders, and biases in steps of the new scales. docs/reference/commands.md#npudiff-promote. */
#include "model/rewrite/widen.h"

#include <math.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "model/graph/constants.h"
#include "model/rewrite/requantise_model.h"

/* 16-bit steps in one 8-bit step: then every 8-bit value is a 16-bit value, too. */
enum { ND_WIDE_STEPS = 256 };

struct nd_widener {
    struct nd_model_requantiser r;
    const struct nd_widening *what;
    struct nd_wide_parts parts;
};

/* What a new QuantizeLinear or DequantizeLinear is made of. */
struct nd_widener_part {
    const char *op_type, *input, *output;
    enum nd_dtype dtype;
    const struct nd_quant *quant;
    size_t behind; /* a node */
};

/* ---- what computes at 16 bits ---- */

static size_t first_input(const struct nd_graph *graph, size_t node)
{
    return graph->nodes[node].n_uses > 0 ? graph->uses[graph->nodes[node].first_use] : ND_NO_INDEX;
}

static bool is_operator(const struct nd_graph *graph, size_t node)
{
    return node != ND_NO_INDEX && graph->nodes[node].kind == ND_NODE_OTHER && graph->nodes[node].is_alive &&
           !graph->nodes[node].is_constant;
}

/* A QuantizeLinear or DequantizeLinear of an activation. */
static bool is_quantiser(const struct nd_graph *graph, size_t node, enum nd_node_kind kind)
{
    return graph->nodes[node].kind == kind && graph->nodes[node].is_alive && !graph->nodes[node].is_constant;
}

const char *nd_widening_obstacle(const struct nd_model *model, size_t tensor)
{
    const struct nd_graph *graph = &model->graph;
    const struct nd_tensor *e = nd_model_tensor(model, tensor);
    size_t qvalues = nd_names_find(&graph->names, e->onnx_name);
    if (e->quant.n != 1 || (e->dtype != ND_DTYPE_U8 && e->dtype != ND_DTYPE_I8))
        return "it has no 8-bit values of one scale";
    if (qvalues == ND_NO_INDEX || graph->tensors[qvalues].producer == ND_NO_INDEX ||
        !is_quantiser(graph, graph->tensors[qvalues].producer, ND_NODE_QUANTIZE))
        return "no QuantizeLinear makes it";
    if (graph->tensors[qvalues].output != ND_NO_INDEX)
        return "the model gives its quantised values out";
    for (size_t r = 0; r < graph->tensors[qvalues].n_readers; r++)
        if (graph->nodes[graph->readers[graph->tensors[qvalues].first_reader + r]].kind != ND_NODE_DEQUANTIZE)
            return "an operator reads its quantised values";
    return NULL;
}

/* ---- operators that share floats ---- */

static size_t root_of(size_t *parents, size_t node)
{
    while (parents[node] != node)
        node = parents[node] = parents[parents[node]];
    return node;
}

static void join_operators(const struct nd_graph *graph, size_t *parents)
{
    for (size_t n = 0; n < graph->n_nodes; n++) {
        for (size_t i = 0; i < graph->nodes[n].n_uses && is_operator(graph, n); i++) {
            size_t tensor = graph->uses[graph->nodes[n].first_use + i];
            size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
            if (is_operator(graph, producer))
                parents[root_of(parents, n)] = root_of(parents, producer);
        }
    }
}

/* Marks the roots of the operators that read the tensor. */
static void mark_readers(const struct nd_graph *graph, size_t tensor, size_t *parents, bool *is_wide)
{
    for (size_t r = 0; r < graph->tensors[tensor].n_readers; r++) {
        size_t node = graph->readers[graph->tensors[tensor].first_reader + r];
        if (is_operator(graph, node))
            is_wide[root_of(parents, node)] = true;
    }
}

static void mark_around(const struct nd_model *model, const struct nd_wide_parts *parts, size_t *parents)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t source = first_input(graph, n);
        if (is_quantiser(graph, n, ND_NODE_QUANTIZE)) {
            size_t tensor = model->tensor_of_value[graph->made[graph->nodes[n].first_made]];
            size_t producer = graph->tensors[source].producer;
            if (tensor != ND_NO_INDEX && parts->is_wide_tensor[tensor] && is_operator(graph, producer))
                parts->is_wide_node[root_of(parents, producer)] = true;
        } else if (is_quantiser(graph, n, ND_NODE_DEQUANTIZE)) {
            size_t tensor = model->tensor_of_value[source];
            if (tensor != ND_NO_INDEX && parts->is_wide_tensor[tensor])
                mark_readers(graph, graph->made[graph->nodes[n].first_made], parents, parts->is_wide_node);
        }
    }
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t root = is_operator(graph, n) ? root_of(parents, n) : n;
        parts->is_wide_node[n] = is_operator(graph, n) && parts->is_wide_node[root];
    }
}

/* ---- borders ---- */

/* An 8-bit tensor that stays so. */
static bool is_narrow(const struct nd_model *model, const struct nd_wide_parts *parts, size_t tensor)
{
    const struct nd_tensor *e = tensor != ND_NO_INDEX ? nd_model_tensor(model, tensor) : NULL;
    return e != NULL && !parts->is_wide_tensor[tensor] && e->quant.n == 1 &&
           (e->dtype == ND_DTYPE_U8 || e->dtype == ND_DTYPE_I8);
}

static bool has_wide_reader(const struct nd_graph *graph, const struct nd_wide_parts *parts, size_t tensor)
{
    for (size_t r = 0; r < graph->tensors[tensor].n_readers; r++)
        if (parts->is_wide_node[graph->readers[graph->tensors[tensor].first_reader + r]])
            return true;
    return false;
}

static void mark_conversions(const struct nd_model *model, const struct nd_wide_parts *parts)
{
    const struct nd_graph *graph = &model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        size_t source = first_input(graph, n);
        if (is_quantiser(graph, n, ND_NODE_QUANTIZE)) {
            size_t producer = graph->tensors[source].producer;
            parts->is_converted[n] =
                is_narrow(model, parts, model->tensor_of_value[graph->made[graph->nodes[n].first_made]]) &&
                producer != ND_NO_INDEX && parts->is_wide_node[producer];
        } else if (is_quantiser(graph, n, ND_NODE_DEQUANTIZE)) {
            /* What was rounded to 16 bits before it became 8 is read as it was then. */
            size_t quantise = graph->tensors[source].producer;
            parts->is_converted[n] = is_narrow(model, parts, model->tensor_of_value[source]) &&
                                     has_wide_reader(graph, parts, graph->made[graph->nodes[n].first_made]) &&
                                     (quantise == ND_NO_INDEX || !parts->is_converted[quantise]);
        }
    }
}

enum nd_status nd_wide_parts_find(const struct nd_model *model, const struct nd_wide_tensor *tensors,
                                  size_t n_tensors, struct nd_wide_parts *out, struct nd_error *err)
{
    size_t n_nodes = model->graph.n_nodes, *parents = nd_calloc(n_nodes, sizeof *parents);
    out->is_wide_tensor = nd_calloc(model->n_tensors, sizeof *out->is_wide_tensor);
    out->is_wide_node = nd_calloc(n_nodes, sizeof *out->is_wide_node);
    out->is_converted = nd_calloc(n_nodes, sizeof *out->is_converted);
    bool has_all = parents != NULL && out->is_wide_tensor != NULL && out->is_wide_node != NULL &&
                   out->is_converted != NULL;
    for (size_t n = 0; n < n_nodes && has_all; n++)
        parents[n] = n;
    for (size_t i = 0; i < n_tensors && has_all; i++)
        out->is_wide_tensor[tensors[i].tensor] = true;
    if (has_all) {
        join_operators(&model->graph, parents);
        mark_around(model, out, parents);
        mark_conversions(model, out);
    }
    free(parents);
    return has_all ? ND_OK : nd_fail_memory(err);
}

void nd_wide_parts_deinit(struct nd_wide_parts *parts)
{
    ND_FREE_ALL(parts->is_wide_tensor, parts->is_wide_node, parts->is_converted);
    *parts = (struct nd_wide_parts){0};
}

static enum nd_status nd_widener_biases(struct nd_widener *w, struct nd_quant *const *channels,
                                        struct nd_error *err);

/* A name that lives as long as the copy. */
static enum nd_status nd_widener_name(struct nd_widener *w, const char *tensor, const char *suffix,
                                      const char **out, struct nd_error *err)
{
    char *name = NULL;
    enum nd_status status = nd_requantiser_new_name(&w->r, tensor, suffix, &name, err);
    *out = name;
    return status;
}

/* A quantiser that lives as long as the copy; NULL: out of memory. */
static struct nd_quant *nd_widener_quant(struct nd_widener *w, size_t n, int axis)
{
    struct nd_quant *quant = nd_requantiser_keep(&w->r, sizeof *quant);
    float *scale = nd_requantiser_keep(&w->r, n * sizeof *scale);
    int64_t *zero = nd_requantiser_keep(&w->r, n * sizeof *zero);
    if (quant == NULL || scale == NULL || zero == NULL)
        return NULL;
    *quant = (struct nd_quant){.n = n, .axis = axis, .scale = scale, .zero_point = zero};
    return quant;
}

/* Its scale, its zero point and its own name begin with the name of what it makes. */
static enum nd_status nd_widener_add(struct nd_widener *w, const struct nd_widener_part *part,
                                     struct nd_error *err)
{
    const char *base;
    ND_TRY(nd_widener_name(w, part->output, "_promoted", &base, err));
    const struct nd_quantised_tensor item = {.tensor = base,
                                             .dtype = part->dtype,
                                             .bits = (int)nd_dtype_size_bytes(part->dtype) * 8,
                                             .is_signed = nd_dtype_is_signed_integer(part->dtype),
                                             .quant = part->quant};
    const struct nd_new_node node = {part->op_type, part->input, part->output,
                                     part->quant->n > 1 ? part->quant->axis : -1};
    w->r.behind = part->behind;
    ND_TRY(nd_requantiser_add_parameters(&w->r, &item, err));
    return nd_requantiser_add_node(&w->r, &item, &node, err);
}

/* ---- tensors of 16 bits ---- */

/* Another QuantizeLinear and other DequantizeLinears in the place of those that the tensor has. */
static enum nd_status widen_tensor(struct nd_widener *w, const struct nd_wide_tensor *wide,
                                   struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    const struct nd_tensor *tensor = nd_model_tensor(w->r.model, wide->tensor);
    const char *obstacle = nd_widening_obstacle(w->r.model, wide->tensor);
    struct nd_quant *quant = nd_widener_quant(w, 1, -1);
    if (obstacle != NULL)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, tensor->name, "tensor '%s' cannot have 16 bits: %s",
                       tensor->name, obstacle);
    ND_TRY_MEMORY(quant != NULL, err);
    quant->scale[0] = wide->scale;
    quant->zero_point[0] = wide->zero_point;
    size_t qvalues = nd_names_find(&graph->names, tensor->onnx_name),
           quantise = graph->tensors[qvalues].producer;
    const struct nd_widener_part first = {"QuantizeLinear",
                                          graph->tensors[nd_graph_used(graph, quantise, 0)].name,
                                          tensor->onnx_name,
                                          ND_DTYPE_U16,
                                          quant,
                                          quantise};
    enum nd_status status = nd_widener_add(w, &first, err);
    w->r.is_dropped[quantise] = true;
    w->r.forgets[qvalues] = true;
    for (size_t i = 0; i < graph->tensors[qvalues].n_readers && status == ND_OK; i++) {
        size_t node = graph->readers[graph->tensors[qvalues].first_reader + i];
        const struct nd_widener_part next = {"DequantizeLinear",
                                             tensor->onnx_name,
                                             graph->tensors[nd_graph_made(graph, node, 0)].name,
                                             ND_DTYPE_U16,
                                             quant,
                                             node};
        w->r.is_dropped[node] = true;
        status = nd_widener_add(w, &next, err);
    }
    return status;
}

/* ---- borders ---- */

/* The 8-bit tensor of a quantiser. */
static const struct nd_tensor *tensor_of(const struct nd_widener *w, size_t node)
{
    const struct nd_model *model = w->r.model;
    size_t tensor = model->graph.nodes[node].kind == ND_NODE_QUANTIZE ? nd_graph_made(&model->graph, node, 0)
                                                                      : nd_graph_used(&model->graph, node, 0);
    return nd_model_tensor(model, model->tensor_of_value[tensor]);
}

/* input rounded to 16 bits with the range of the tensor, behind the node; what is made of it, is called
 * "<tensor>_wide". */
static enum nd_status convert(struct nd_widener *w, const struct nd_tensor *tensor, const char *input,
                              const char *value, size_t behind, struct nd_error *err)
{
    const char *qvalues, *after;
    struct nd_quant *quant = nd_widener_quant(w, 1, -1);
    ND_TRY_MEMORY(quant != NULL, err);
    ND_TRY(nd_widener_name(w, value, "_wide_codes", &qvalues, err));
    ND_TRY(nd_widener_name(w, value, "_wide", &after, err));
    enum nd_dtype dtype = tensor->dtype == ND_DTYPE_I8 ? ND_DTYPE_I16 : ND_DTYPE_U16;
    quant->scale[0] = tensor->quant.scale[0] / ND_WIDE_STEPS;
    quant->zero_point[0] = tensor->quant.zero_point[0] * ND_WIDE_STEPS;
    const struct nd_widener_part quantise = {"QuantizeLinear", input, qvalues, dtype, quant, behind};
    const struct nd_widener_part dequantise = {"DequantizeLinear", qvalues, after, dtype, quant, behind};
    ND_TRY(nd_widener_add(w, &quantise, err));
    return nd_widener_add(w, &dequantise, err);
}

/* The operators of 16 bits read "<by>_wide" in the place of the tensor. */
static enum nd_status read_wide(struct nd_widener *w, size_t tensor, const char *by, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    const char *name;
    enum nd_status status = nd_widener_name(w, by, "_wide", &name, err);
    for (size_t i = 0; i < graph->tensors[tensor].n_readers && status == ND_OK; i++) {
        size_t node = graph->readers[graph->tensors[tensor].first_reader + i];
        for (size_t u = 0; u < graph->nodes[node].n_inputs && w->parts.is_wide_node[node]; u++)
            if (nd_graph_used(graph, node, u) == tensor)
                w->r.use_as[graph->nodes[node].first_use + u] = name;
    }
    return status;
}

/* Before an 8-bit QuantizeLinear: the operator gives 16 bits, and other operators of 16 bits read these. */
static enum nd_status convert_output(struct nd_widener *w, size_t quantise, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    size_t before = nd_graph_used(graph, quantise, 0), qvalues = nd_graph_made(graph, quantise, 0);
    const char *name = graph->tensors[qvalues].name, *wide;
    ND_TRY(convert(w, tensor_of(w, quantise), graph->tensors[before].name, name,
                   graph->tensors[before].producer, err));
    ND_TRY(nd_widener_name(w, name, "_wide", &wide, err));
    w->r.use_as[graph->nodes[quantise].first_use] = wide;
    for (size_t i = 0; i < graph->tensors[qvalues].n_readers; i++) {
        size_t node = graph->readers[graph->tensors[qvalues].first_reader + i];
        if (graph->nodes[node].kind == ND_NODE_DEQUANTIZE)
            ND_TRY(read_wide(w, nd_graph_made(graph, node, 0), name, err));
    }
    return ND_OK;
}

static enum nd_status convert_all(struct nd_widener *w, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        if (!w->parts.is_converted[n])
            continue;
        size_t made = nd_graph_made(graph, n, 0);
        const char *name = graph->tensors[made].name;
        if (graph->nodes[n].kind == ND_NODE_QUANTIZE) {
            ND_TRY(convert_output(w, n, err));
        } else {
            ND_TRY(convert(w, tensor_of(w, n), name, name, n, err));
            ND_TRY(read_wide(w, made, name, err));
        }
    }
    return ND_OK;
}

/* ---- weights with a scale for each channel ---- */

/* Signed quantised values around 0, as NPUs want them: -127 to 127. A channel of zeros has any scale. */
static void fill_channels(const struct nd_channel_weights *weights, size_t n, size_t inner,
                          struct nd_quant *quant, uint8_t *qvalues)
{
    const double last = INT8_MAX;
    for (size_t i = 0; i < n; i++) {
        float *scale = &quant->scale[i / inner % quant->n];
        *scale = fmaxf(*scale, (float)(fabs(weights->values[i]) / last));
    }
    for (size_t c = 0; c < quant->n; c++)
        quant->scale[c] = quant->scale[c] > 0 ? quant->scale[c] : 1;
    for (size_t i = 0; i < n; i++) {
        double qvalue = rint(weights->values[i] / (double)quant->scale[i / inner % quant->n]);
        qvalues[i] = (uint8_t)(int8_t)fmin(fmax(qvalue, -last), last);
    }
}

static enum nd_status split_channels(struct nd_widener *w, const struct nd_channel_weights *weights,
                                     struct nd_quant **out, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    const char *tensor = graph->tensors[weights->tensor].name, *name;
    size_t node = graph->tensors[weights->tensor].producer, n, inner = 1, old;
    if (node == ND_NO_INDEX || graph->nodes[node].kind != ND_NODE_DEQUANTIZE || !graph->nodes[node].is_constant)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, tensor, "weights '%s' have no constant quantised values",
                       tensor);
    ND_TRY(nd_shape_n_elems(weights->shape, &n, err));
    ND_TRY(nd_widener_name(w, tensor, "_channels", &name, err));
    for (int d = weights->axis + 1; d < weights->shape->rank; d++)
        inner *= (size_t)weights->shape->dims[d];
    *out = nd_widener_quant(w, (size_t)weights->shape->dims[weights->axis], weights->axis);
    uint8_t *qvalues = nd_requantiser_keep(&w->r, n + 1);
    ND_TRY_MEMORY(*out != NULL && qvalues != NULL, err);
    fill_channels(weights, n, inner, *out, qvalues);
    const struct nd_new_initializer initializer = {
        name, (int32_t)ND_DTYPE_I8, weights->shape->dims, (size_t)weights->shape->rank, qvalues, n};
    const struct nd_widener_part part = {"DequantizeLinear", name, tensor, ND_DTYPE_I8, *out, node};
    old = nd_graph_used(graph, node, 0);
    w->r.is_dropped[node] = true;
    if (graph->tensors[old].n_readers == 1)
        w->r.read_as[old] = graph->tensors[old].name; /* so that the old quantised values go */
    ND_TRY(nd_requantiser_add_initializer(&w->r, &initializer, err));
    return nd_widener_add(w, &part, err);
}

/* ---- the copy ---- */

static enum nd_status widen(struct nd_widener *w, struct nd_quant **channels, struct nd_error *err)
{
    for (size_t i = 0; i < w->what->n_tensors; i++)
        ND_TRY(widen_tensor(w, &w->what->tensors[i], err));
    ND_TRY(convert_all(w, err));
    for (size_t i = 0; i < w->what->n_weights; i++)
        ND_TRY(split_channels(w, &w->what->weights[i], &channels[i], err));
    return nd_widener_biases(w, channels, err);
}

enum nd_status nd_model_write_widened(const struct nd_model *model, const struct nd_widening *widening,
                                      const char *path, struct nd_error *err)
{
    struct nd_widener w = {.r = {.model = model}, .what = widening};
    const struct nd_graph *graph = &model->graph;
    /* A node has at most a conversion, which is two nodes, or is replaced by one. */
    enum nd_status status = nd_requantiser_init(&w.r, 2 * graph->n_nodes + 1, err);
    ND_FREED struct nd_quant **channels = nd_calloc(widening->n_weights + 1, sizeof *channels);
    w.r.use_as = nd_calloc(graph->n_uses, sizeof *w.r.use_as);
    w.r.is_dropped = nd_calloc(graph->n_nodes, sizeof *w.r.is_dropped);
    w.r.forgets = nd_calloc(graph->n_tensors, sizeof *w.r.forgets);
    if (status == ND_OK &&
        (channels == NULL || w.r.use_as == NULL || w.r.is_dropped == NULL || w.r.forgets == NULL))
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_wide_parts_find(model, widening->tensors, widening->n_tensors, &w.parts, err);
    if (status == ND_OK)
        status = widen(&w, channels, err);
    if (status == ND_OK)
        status = nd_requantiser_write(&w.r, path, err);
    nd_wide_parts_deinit(&w.parts);
    nd_requantiser_deinit(&w.r);
    return status;
}

static const double int32_low = -0x1p31, int32_high = 0x1p31 - 1;

static const struct nd_channel_weights *weights_of(const struct nd_widener *w, size_t tensor)
{
    for (size_t i = 0; i < w->what->n_weights; i++)
        if (w->what->weights[i].tensor == tensor)
            return &w->what->weights[i];
    return NULL;
}

/* The scales of what an operator reads at a slot, in the copy; *is_new: others than in the model. quant.n = 0:
 * none is known. The caller frees the arrays. */
static enum nd_status read_scales(struct nd_widener *w, struct nd_quant *const *channels, size_t node,
                                  size_t slot, struct nd_quant *out, bool *is_new, struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    size_t value = nd_graph_used(graph, node, slot);
    size_t dequantise = value != ND_NO_INDEX ? graph->tensors[value].producer : ND_NO_INDEX;
    struct nd_node_quant read = {0};
    if (dequantise == ND_NO_INDEX || graph->nodes[dequantise].kind != ND_NODE_DEQUANTIZE)
        return ND_OK;
    const struct nd_channel_weights *weights = weights_of(w, value);
    if (weights != NULL) {
        *is_new = true;
        return nd_quant_copy(channels[weights - w->what->weights], out, err);
    }
    enum nd_status status = nd_node_quant_read(graph, dequantise, w->r.model->path, &read, err);
    size_t tensor = w->r.model->tensor_of_value[nd_graph_used(graph, dequantise, 0)];
    *out = read.quant;
    if (status != ND_OK || tensor == ND_NO_INDEX || out->n != 1)
        return status;
    for (size_t i = 0; i < w->what->n_tensors; i++)
        if (w->what->tensors[i].tensor == tensor) {
            *is_new = true;
            out->scale[0] = w->what->tensors[i].scale;
        }
    if (w->r.use_as[graph->nodes[node].first_use + slot] != NULL) { /* it reads what was converted */
        *is_new = true;
        out->scale[0] /= ND_WIDE_STEPS;
    }
    return ND_OK;
}

/* The bias of the node in steps of x times weights. */
static enum nd_status recode_bias(struct nd_widener *w, size_t node, const struct nd_quant *x,
                                  const struct nd_quant *weights, struct nd_error *err)
{
    enum { BIAS = 2 };
    const struct nd_graph *graph = &w->r.model->graph;
    size_t bias = nd_graph_used(graph, node, BIAS), dequantise = graph->tensors[bias].producer, n = 0;
    const char *node_name = nd_graph_node_name(graph->nodes[node].proto), *name;
    const char *after = graph->tensors[bias].name; /* the new one has it where nobody else reads the old one */
    struct nd_node_quant old = {0};
    ND_FREED double *qvalues = NULL;
    ND_TRY(nd_node_quant_read(graph, dequantise, w->r.model->path, &old, err));
    ND_CLEANUP(nd_quant_deinit) struct nd_quant steps = old.quant;
    ND_TRY(
        nd_constant_numbers(graph, nd_graph_used(graph, dequantise, 0), w->r.model->path, &qvalues, &n, err));
    struct nd_quant *quant = nd_widener_quant(w, weights->n, 0);
    int32_t *bytes = nd_requantiser_keep(&w->r, n * sizeof *bytes + 1);
    int64_t *dims = nd_requantiser_keep(&w->r, sizeof *dims);
    ND_TRY_MEMORY(quant != NULL && bytes != NULL && dims != NULL, err);
    bool fits = n > 0 && steps.n > 0 && (weights->n == 1 || weights->n == n);
    for (size_t i = 0; fits && i < n; i++) {
        size_t c = i % weights->n, o = i % steps.n;
        quant->scale[c] = x->scale[0] * weights->scale[c];
        double real = (qvalues[i] - (double)steps.zero_point[o]) * (double)steps.scale[o];
        double qvalue = rint(real / (double)quant->scale[c]);
        fits = qvalue >= int32_low && qvalue <= int32_high;
        bytes[i] = fits ? (int32_t)qvalue : 0;
    }
    if (!fits)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, node_name,
                       "the bias of '%s' does not fit 32 bits in its new steps", node_name);
    bool is_alone = graph->tensors[bias].n_readers == 1;
    ND_TRY(nd_widener_name(w, node_name, "_bias_codes", &name, err));
    if (!is_alone)
        ND_TRY(nd_widener_name(w, node_name, "_bias", &after, err));
    dims[0] = (int64_t)n;
    const struct nd_new_initializer initializer = {name,  (int32_t)ND_DTYPE_I32, dims, 1,
                                                   bytes, n * sizeof *bytes};
    const struct nd_widener_part part = {"DequantizeLinear", name, after, ND_DTYPE_I32, quant, dequantise};
    w->r.use_as[graph->nodes[node].first_use + BIAS] = after;
    w->r.is_dropped[dequantise] = is_alone;
    ND_TRY(nd_requantiser_add_initializer(&w->r, &initializer, err));
    return nd_widener_add(w, &part, err);
}

/* An int32 bias that is added to the products of the node. */
static bool has_bias(const struct nd_graph *graph, size_t node)
{
    size_t bias = nd_graph_used(graph, node, 2);
    size_t producer = bias != ND_NO_INDEX ? graph->tensors[bias].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        !graph->nodes[producer].is_constant)
        return false;
    return ND_IS_ONE_OF(graph->nodes[node].proto->op_type, "Conv", "ConvTranspose", "Gemm");
}

/* The biases of products whose scales are others in the copy, after all else was changed. channels: the
 * quantisers of what->weights. */
static enum nd_status nd_widener_biases(struct nd_widener *w, struct nd_quant *const *channels,
                                        struct nd_error *err)
{
    const struct nd_graph *graph = &w->r.model->graph;
    for (size_t n = 0; n < graph->n_nodes; n++) {
        ND_CLEANUP(nd_quant_deinit) struct nd_quant x = {0}, weights = {0};
        bool is_new = false;
        if (!graph->nodes[n].is_alive || !has_bias(graph, n))
            continue;
        ND_TRY(read_scales(w, channels, n, 0, &x, &is_new, err));
        ND_TRY(read_scales(w, channels, n, 1, &weights, &is_new, err));
        if (is_new && x.n == 1 && weights.n > 0)
            ND_TRY(recode_bias(w, n, &x, &weights, err));
    }
    return ND_OK;
}
