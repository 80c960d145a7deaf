/* Copies of a quantised model in which a BatchNormalization becomes part of the ConvTranspose before it. */

#include <math.h>

#include "core/memory.h"
#include "core/tensors/scales.h"
#include "model/graph/constants.h"
#include "model/rewrite/requantise_model.h"

/* A constant as real numbers. */
struct nd_fold_constant {
    double *x; /* owned */
    size_t n;
    const int64_t *dims;
    size_t rank;
};

/* What becomes one layer. */
struct nd_fold_chain {
    size_t norm, add, product; /* nodes; add may be ND_NO_INDEX */
    size_t between[4];         /* their quantisers */
    size_t n_between;
    struct nd_fold_constant weights;
    double *bias; /* [n_channels] of the new layer */
    size_t n_channels;
};

struct nd_folder {
    struct nd_model_requantiser r;
    size_t n_folded;
};

/* Quantised values of a new constant, and the DequantizeLinear that makes *after of them. */
struct coded {
    const char *suffix;
    enum nd_dtype dtype;
    const int64_t *dims;
    size_t rank;
    const struct nd_quant *quant;
    const void *qvalues;
    size_t size_bytes;
};

static enum nd_status add_coded(struct nd_model_requantiser *r, const char *base, const struct coded *coded,
                                char **after, struct nd_error *err)
{
    char *qvalues;
    ND_TRY(nd_requantiser_new_name(r, base, coded->suffix, after, err));
    ND_TRY(nd_requantiser_new_name(r, *after, "_quantized", &qvalues, err));
    const struct nd_quantised_tensor item = {.tensor = *after,
                                             .dtype = coded->dtype,
                                             .bits = (int)nd_dtype_size_bytes(coded->dtype) * 8,
                                             .is_signed = true,
                                             .quant = coded->quant};
    const struct nd_new_initializer initializer = {qvalues,     (int32_t)coded->dtype, coded->dims,
                                                   coded->rank, coded->qvalues,        coded->size_bytes};
    const struct nd_new_node node = {"DequantizeLinear", qvalues, *after, -1};
    ND_TRY(nd_requantiser_add_initializer(r, &initializer, err));
    ND_TRY(nd_requantiser_add_parameters(r, &item, err));
    return nd_requantiser_add_node(r, &item, &node, err);
}

/* Numbers that live as long as the copy. */
struct qvalues {
    struct nd_quant weights, bias;
    int8_t *of_weights;
    int32_t *of_bias;
    int64_t *n_channels;
};

static bool make_room(struct nd_model_requantiser *r, const struct nd_fold_chain *chain, struct qvalues *out)
{
    float *scales = nd_requantiser_keep(r, 2 * sizeof *scales);
    int64_t *zero_points = nd_requantiser_keep(r, 2 * sizeof *zero_points);
    out->of_weights = nd_requantiser_keep(r, chain->weights.n + 1);
    out->of_bias = nd_requantiser_keep(r, chain->n_channels * sizeof *out->of_bias);
    out->n_channels = nd_requantiser_keep(r, sizeof *out->n_channels);
    if (scales == NULL || zero_points == NULL || out->of_weights == NULL || out->of_bias == NULL ||
        out->n_channels == NULL)
        return false;
    *out->n_channels = (int64_t)chain->n_channels;
    out->weights = (struct nd_quant){.n = 1, .axis = -1, .scale = scales, .zero_point = zero_points};
    out->bias = (struct nd_quant){.n = 1, .axis = -1, .scale = scales + 1, .zero_point = zero_points + 1};
    return true;
}

/* Symmetric weights in -127 to 127. False: they are all zero, or a bias does not fit 32 bits. */
static bool make_qvalues(const struct nd_fold_chain *chain, float input_scale, struct qvalues *out)
{
    const double last = INT8_MAX;
    double largest = 0;
    for (size_t i = 0; i < chain->weights.n; i++)
        largest = fmax(largest, fabs(chain->weights.x[i]));
    float scale = out->weights.scale[0] = (float)(largest / last);
    float step = out->bias.scale[0] = input_scale * scale;
    for (size_t i = 0; i < chain->weights.n && scale > 0; i++)
        out->of_weights[i] = (int8_t)fmin(fmax(rint(chain->weights.x[i] / (double)scale), -last), last);
    for (size_t c = 0; c < chain->n_channels && step > 0; c++) {
        double qvalue = rint(chain->bias[c] / (double)step);
        if (!(fabs(qvalue) <= INT32_MAX))
            return false;
        out->of_bias[c] = (int32_t)qvalue;
    }
    return step > 0;
}

/* The ConvTranspose with the new constants, which makes what the BatchNormalization made. */
static enum nd_status add_product(struct nd_model_requantiser *r, const struct nd_fold_chain *chain,
                                  char *weights, char *bias, struct nd_error *err)
{
    const struct nd_graph *graph = &r->model->graph;
    Onnx__NodeProto *copy = nd_requantiser_keep(r, sizeof *copy);
    char **inputs = nd_requantiser_keep(r, 3 * sizeof *inputs);
    ND_TRY_MEMORY(copy != NULL && inputs != NULL, err);
    *copy = *graph->nodes[chain->product].proto;
    inputs[0] = copy->input[0];
    inputs[1] = weights;
    inputs[2] = bias;
    copy->input = inputs;
    copy->n_input = 3;
    copy->output = graph->nodes[chain->norm].proto->output;
    copy->n_output = 1;
    r->new_behind[r->n_new_nodes] = chain->norm;
    r->new_nodes[r->n_new_nodes++] = copy;
    return ND_OK;
}

/* Puts the new layer in the place of the chain; nothing, where a bias does not fit 32 bits. input_scale: of the
 * quantised values that the ConvTranspose reads. */
static enum nd_status nd_fold_layer(struct nd_folder *f, const struct nd_fold_chain *chain, float input_scale,
                                    struct nd_error *err)
{
    struct nd_model_requantiser *r = &f->r;
    const char *base = r->model->graph.nodes[chain->norm].proto->output[0];
    struct qvalues qvalues = {.of_bias = NULL};
    char *weights, *bias;
    ND_TRY_MEMORY(make_room(r, chain, &qvalues), err);
    if (!make_qvalues(chain, input_scale, &qvalues))
        return ND_OK;
    r->behind = chain->norm;
    const struct coded new_weights = {"_folded_weights",   ND_DTYPE_I8,      chain->weights.dims,
                                      chain->weights.rank, &qvalues.weights, qvalues.of_weights,
                                      chain->weights.n};
    const struct coded new_bias = {"_folded_bias",
                                   ND_DTYPE_I32,
                                   qvalues.n_channels,
                                   1,
                                   &qvalues.bias,
                                   qvalues.of_bias,
                                   chain->n_channels * sizeof *qvalues.of_bias};
    ND_TRY(add_coded(r, base, &new_weights, &weights, err));
    ND_TRY(add_coded(r, base, &new_bias, &bias, err));
    ND_TRY(add_product(r, chain, weights, bias, err));
    r->is_dropped[chain->norm] = r->is_dropped[chain->product] = true;
    if (chain->add != ND_NO_INDEX)
        r->is_dropped[chain->add] = true;
    for (size_t i = 0; i < chain->n_between; i++)
        r->is_dropped[chain->between[i]] = true;
    f->n_folded++;
    return ND_OK;
}

/* Inputs of BatchNormalization, and of ConvTranspose. */
enum { X, SCALE, SHIFT, MEAN, VARIANCE, N_NORM };
enum { WEIGHTS = 1, BIAS };

static bool is_a(const struct nd_graph *graph, size_t node, const char *op_type)
{
    return node != ND_NO_INDEX && graph->nodes[node].kind == ND_NODE_OTHER &&
           strcmp(nd_onnx_text(graph->nodes[node].proto->op_type), op_type) == 0;
}

/* ---- constants ---- */

/* out->n is 0 where the tensor is no constant of floats, as it is or behind a DequantizeLinear. */
static enum nd_status read_constant(const struct nd_model *model, size_t tensor, struct nd_fold_constant *out,
                                    struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    struct nd_node_quant quant = {0};
    size_t producer = tensor != ND_NO_INDEX ? graph->tensors[tensor].producer : ND_NO_INDEX;
    bool is_coded = producer != ND_NO_INDEX && graph->nodes[producer].kind == ND_NODE_DEQUANTIZE &&
                    graph->nodes[producer].is_constant;
    size_t source = is_coded ? nd_graph_used(graph, producer, 0) : tensor;
    const Onnx__TensorProto *proto = source != ND_NO_INDEX ? nd_graph_constant(graph, source) : NULL;
    if (proto == NULL)
        return ND_OK;
    enum nd_status status = is_coded ? nd_node_quant_read(graph, producer, model->path, &quant, err) : ND_OK;
    if (status == ND_OK && (!is_coded || quant.quant.n > 0))
        status = nd_constant_numbers(graph, source, model->path, &out->x, &out->n, err);
    for (size_t i = 0; is_coded && i < out->n; i++) {
        /* The scale of the element, whose channel is along the axis of the quantiser. */
        size_t inner = 1;
        int64_t axis = quant.quant.axis + (quant.quant.axis < 0 ? (int64_t)proto->n_dims : 0);
        for (size_t d = (size_t)axis + 1; quant.quant.n > 1 && d < proto->n_dims; d++)
            inner *= (size_t)proto->dims[d];
        size_t s = i / inner % quant.quant.n;
        out->x[i] = (out->x[i] - (double)quant.quant.zero_point[s]) * (double)quant.quant.scale[s];
    }
    out->dims = proto->dims;
    out->rank = proto->n_dims;
    nd_quant_deinit(&quant.quant);
    return status;
}

/* values[n_channels] of a constant with one number, or one a channel, before n_spatial dimensions of 1. */
static bool spread(const struct nd_fold_constant *constant, size_t n_channels, size_t n_spatial, double *values)
{
    bool fits = constant->n == 1 || (constant->n == n_channels && constant->rank > n_spatial &&
                                     constant->dims[constant->rank - n_spatial - 1] == (int64_t)n_channels);
    for (size_t c = 0; fits && c < n_channels; c++)
        values[c] = constant->x[constant->n > 1 ? c : 0];
    return fits;
}

/* ---- what is folded ---- */

/* The node that makes what the node reads at the slot, through one QuantizeLinear and one DequantizeLinear, of
 * which nobody else reads anything; ND_NO_INDEX: there is none. */
static size_t maker(const struct nd_graph *graph, size_t node, size_t slot, struct nd_fold_chain *chain)
{
    size_t tensor = nd_graph_used(graph, node, slot);
    static const enum nd_node_kind kinds[] = {ND_NODE_DEQUANTIZE, ND_NODE_QUANTIZE, ND_NODE_OTHER};
    for (size_t i = 0; i < 3; i++) {
        const struct nd_graph_tensor *t = tensor != ND_NO_INDEX ? &graph->tensors[tensor] : NULL;
        if (t == NULL || t->n_readers != 1 || t->output != ND_NO_INDEX || t->producer == ND_NO_INDEX ||
            graph->nodes[t->producer].kind != kinds[i] || graph->nodes[t->producer].is_constant)
            return ND_NO_INDEX;
        node = t->producer;
        if (i < 2)
            chain->between[chain->n_between++] = node;
        tensor = nd_graph_used(graph, node, 0);
    }
    return node;
}

static void find_nodes(const struct nd_graph *graph, size_t norm, struct nd_fold_chain *chain)
{
    chain->norm = norm;
    chain->add = chain->product = ND_NO_INDEX;
    size_t before = maker(graph, norm, X, chain);
    for (size_t slot = 0; slot < 2 && is_a(graph, before, "Add"); slot++) {
        size_t tensor = nd_graph_used(graph, before, slot);
        if (tensor == ND_NO_INDEX || graph->tensors[tensor].is_constant)
            continue;
        chain->add = before;
        before = maker(graph, before, slot, chain);
    }
    if (is_a(graph, before, "ConvTranspose") &&
        nd_onnx_attribute_i(graph->nodes[before].proto, "group", 1) == 1)
        chain->product = before;
}

/* Adds the constant that a node reads to the bias; false: it is of another form. */
static enum nd_status add_constant(const struct nd_model *model, size_t tensor, struct nd_fold_chain *chain,
                                   size_t n_spatial, bool *is_known, struct nd_error *err)
{
    struct nd_fold_constant constant = {0};
    ND_FREED double *values = nd_calloc(chain->n_channels, sizeof *values);
    enum nd_status status = values != NULL ? read_constant(model, tensor, &constant, err) : nd_fail_memory(err);
    if (status == ND_OK)
        *is_known = constant.n > 0 && spread(&constant, chain->n_channels, n_spatial, values);
    for (size_t c = 0; status == ND_OK && *is_known && c < chain->n_channels; c++)
        chain->bias[c] += values[c];
    free(constant.x);
    return status;
}

/* The weights and the bias times what the BatchNormalization multiplies with, and its shift. */
static enum nd_status apply_norm(const struct nd_model *model, struct nd_fold_chain *chain, bool *is_known,
                                 struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    struct nd_fold_constant norm[N_NORM] = {{.x = NULL}};
    double epsilon = (double)nd_onnx_attribute_f(graph->nodes[chain->norm].proto, "epsilon", 1e-5F);
    size_t inner = chain->weights.n / (size_t)chain->weights.dims[0] / chain->n_channels;
    enum nd_status status = ND_OK;
    for (size_t i = SCALE; i < N_NORM && status == ND_OK; i++) {
        status = read_constant(model, nd_graph_used(graph, chain->norm, i), &norm[i], err);
        *is_known = *is_known && norm[i].n == chain->n_channels;
    }
    for (size_t c = 0; status == ND_OK && *is_known && c < chain->n_channels; c++) {
        double factor = norm[SCALE].x[c] / sqrt(norm[VARIANCE].x[c] + epsilon);
        chain->bias[c] = (chain->bias[c] - norm[MEAN].x[c]) * factor + norm[SHIFT].x[c];
        *is_known = isfinite(factor) && isfinite(chain->bias[c]);
        for (size_t i = 0; i < (size_t)chain->weights.dims[0]; i++)
            for (size_t k = 0; k < inner; k++)
                chain->weights.x[(i * chain->n_channels + c) * inner + k] *= factor;
    }
    for (size_t i = SCALE; i < N_NORM; i++)
        free(norm[i].x);
    return status;
}

/* *is_known false: something is no constant, or of another form. */
static enum nd_status read_chain(const struct nd_model *model, struct nd_fold_chain *chain, bool *is_known,
                                 struct nd_error *err)
{
    const struct nd_graph *graph = &model->graph;
    struct nd_fold_constant *weights = &chain->weights;
    enum nd_status status = read_constant(model, nd_graph_used(graph, chain->product, WEIGHTS), weights, err);
    *is_known = status == ND_OK && weights->n > 0 && weights->rank > 2;
    if (status != ND_OK || !*is_known)
        return status;
    chain->n_channels = (size_t)weights->dims[1];
    chain->bias = nd_calloc(chain->n_channels, sizeof *chain->bias);
    ND_TRY_MEMORY(chain->bias != NULL, err);
    if (nd_graph_used(graph, chain->product, BIAS) != ND_NO_INDEX)
        status = add_constant(model, nd_graph_used(graph, chain->product, BIAS), chain, 0, is_known, err);
    for (size_t slot = 0; slot < 2 && chain->add != ND_NO_INDEX && status == ND_OK && *is_known; slot++)
        if (graph->tensors[nd_graph_used(graph, chain->add, slot)].is_constant)
            status = add_constant(model, nd_graph_used(graph, chain->add, slot), chain, weights->rank - 2,
                                  is_known, err);
    return status == ND_OK && *is_known ? apply_norm(model, chain, is_known, err) : status;
}

/* ---- the copy ---- */

static enum nd_status fold_one(struct nd_folder *f, size_t norm, struct nd_error *err)
{
    const struct nd_model *model = f->r.model;
    const struct nd_graph *graph = &model->graph;
    struct nd_fold_chain chain = {.n_between = 0};
    struct nd_node_quant input = {0};
    bool is_known = true;
    find_nodes(graph, norm, &chain);
    size_t x = chain.product != ND_NO_INDEX ? nd_graph_used(graph, chain.product, X) : ND_NO_INDEX;
    size_t producer = x != ND_NO_INDEX ? graph->tensors[x].producer : ND_NO_INDEX;
    if (producer == ND_NO_INDEX || graph->nodes[producer].kind != ND_NODE_DEQUANTIZE ||
        graph->nodes[norm].n_made != 1)
        return ND_OK;
    enum nd_status status = nd_node_quant_read(graph, producer, model->path, &input, err);
    if (status == ND_OK && input.quant.n == 1)
        status = read_chain(model, &chain, &is_known, err);
    if (status == ND_OK && input.quant.n == 1 && is_known)
        status = nd_fold_layer(f, &chain, input.quant.scale[0], err);
    nd_quant_deinit(&input.quant);
    ND_FREE_ALL(chain.weights.x, chain.bias);
    return status;
}

/* Constants, and what dequantises them, that only nodes read which the copy lacks. Backwards, as what a node
 * reads comes before it. */
static void drop_constants(struct nd_model_requantiser *r)
{
    const struct nd_graph *graph = &r->model->graph;
    for (size_t n = graph->n_nodes; n-- > 0;) {
        for (size_t i = 0; r->is_dropped[n] && i < graph->nodes[n].n_inputs; i++) {
            size_t tensor = nd_graph_used(graph, n, i);
            if (tensor == ND_NO_INDEX || !graph->tensors[tensor].is_constant)
                continue;
            const struct nd_graph_tensor *t = &graph->tensors[tensor];
            bool is_read = t->output != ND_NO_INDEX;
            for (size_t k = 0; k < t->n_readers; k++)
                is_read = is_read || !r->is_dropped[graph->readers[t->first_reader + k]];
            if (is_read)
                continue;
            r->read_as[tensor] = t->name;
            if (t->producer != ND_NO_INDEX && graph->nodes[t->producer].n_made == 1)
                r->is_dropped[t->producer] = true;
        }
    }
}

enum nd_status nd_model_write_folded(const struct nd_model *model, const char *path, size_t *n_folded,
                                     struct nd_error *err)
{
    struct nd_folder f = {.r = {.model = model}};
    const struct nd_graph *graph = &model->graph;
    size_t n = 0;
    for (size_t i = 0; i < graph->n_nodes; i++)
        n += graph->nodes[i].is_alive && is_a(graph, i, "BatchNormalization");
    /* Each has three new nodes and six new constants. */
    enum nd_status status = n > 0 ? nd_requantiser_init(&f.r, 2 * n, err) : ND_OK;
    f.r.is_dropped = n > 0 ? nd_calloc(graph->n_nodes, sizeof *f.r.is_dropped) : NULL;
    if (status == ND_OK && n > 0 && f.r.is_dropped == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; n > 0 && i < graph->n_nodes && status == ND_OK; i++)
        if (graph->nodes[i].is_alive && is_a(graph, i, "BatchNormalization"))
            status = fold_one(&f, i, err);
    if (status == ND_OK && f.n_folded > 0) {
        drop_constants(&f.r);
        status = nd_requantiser_write(&f.r, path, err);
    }
    *n_folded = status == ND_OK ? f.n_folded : 0;
    nd_requantiser_deinit(&f.r);
    return status;
}
