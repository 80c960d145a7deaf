/* Writes a model whose layers are scaled against each other. docs/science/align.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/ops.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "explain/plan/replay.h"
#include "improve/align/align_constants.h"
#include "improve/align/equalise.h"
#include "improve/align/observed.h"
#include "model/graph/constants.h"
#include "model/graph/loaded.h"

/* Rounds over all pairs, of which neighbours pull at each other, at most; and the change of factors that ends
 * them: as src/quantisation/equalise.c. */
enum { MAX_ROUNDS = 32 };
static const double settled = 0.01;

void nd_align_equalised_deinit(struct nd_align_equalised *equalised)
{
    for (size_t i = 0; i < equalised->n_scaled; i++) {
        free(equalised->scaled[i].name);
        free(equalised->scaled[i].values);
    }
    free(equalised->scaled);
    nd_model_destroy(&equalised->model);
    *equalised = (struct nd_align_equalised){0};
}

void nd_align_equalised_destroy(struct nd_align_equalised **equalised)
{
    if (*equalised != NULL)
        nd_align_equalised_deinit(*equalised);
    free(*equalised);
    *equalised = NULL;
}

/* ---- factors ---- */

/* The largest weight of each channel. */
static void nd_align_channel_sizes(const struct nd_align_product *product, bool is_output, double *sizes)
{
    memset(sizes, 0, nd_weight_channels(&product->axes, is_output) * sizeof *sizes);
    for (size_t i = 0; i < product->n_weights; i++) {
        double *size = &sizes[nd_weight_channel(&product->axes, is_output, i)];
        *size = fmax(*size, fabs(product->weights[i]));
    }
}

static double greatest(const double *values, size_t n)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, values[i]);
    return most;
}

/* The factors of one pair alone: sqrt((w1 / R1) / (w2 / R2)). sizes: [2 * n_channels]. */
static void nd_align_pair_factors(const struct nd_align_pair *pair, const double *sizes, double *factors)
{
    size_t n = pair->n_channels;
    const double *first = sizes, *second = sizes + n;
    double of_first = greatest(first, n), of_second = greatest(second, n);
    for (size_t c = 0; c < n; c++) /* a channel of zeros keeps its size */
        factors[c] = first[c] > 0 && second[c] > 0 ? sqrt(first[c] / of_first / (second[c] / of_second)) : 1;
}

static void scale(struct nd_align_product *product, bool is_output, const double *factors)
{
    for (size_t i = 0; i < product->n_weights; i++) {
        double factor = factors[nd_weight_channel(&product->axes, is_output, i)];
        product->weights[i] *= is_output ? 1 / factor : factor;
    }
    for (size_t c = 0; is_output && c < product->n_bias; c++)
        product->bias[c] /= factors[c];
}

/* ---- the work ---- */

struct work {
    const struct nd_model *model;
    const struct nd_align_pairs *pairs;
    const bool *is_on;
    struct nd_align_product *products; /* [n_products] scaled copies: weights and bias are owned */
    double **factors;                  /* [pairs->n][n_channels] */
    bool *is_changed;                  /* [n_products] */
    struct nd_quant *tensors;          /* [n_edges] new ones; n = 0: none */
    struct nd_quant *quants;           /* [2 * n_products] of weights and biases */
    double **qvalues;                  /* [2 * n_products] */
    struct nd_recoded_node *nodes;
    size_t n_nodes;
};

static double *copy_of(const double *values, size_t n)
{
    double *copy = nd_calloc(n + 1, sizeof *copy);
    if (copy != NULL && n > 0)
        memcpy(copy, values, n * sizeof *copy);
    return copy;
}

static enum nd_status begin(struct work *w, struct nd_error *err)
{
    const struct nd_align_pairs *pairs = w->pairs;
    size_t n = pairs->n_products;
    w->products = nd_calloc(n, sizeof *w->products);
    w->factors = nd_calloc(pairs->n, sizeof *w->factors);
    w->is_changed = nd_calloc(n, sizeof *w->is_changed);
    w->tensors = nd_calloc(nd_model_n_tensors(w->model), sizeof *w->tensors);
    w->quants = nd_calloc(2 * n, sizeof *w->quants);
    w->qvalues = nd_calloc(2 * n, sizeof *w->qvalues);
    w->nodes = nd_calloc(2 * n + w->model->graph.n_nodes, sizeof *w->nodes);
    if (w->products == NULL || w->factors == NULL || w->is_changed == NULL || w->tensors == NULL ||
        w->quants == NULL || w->qvalues == NULL || w->nodes == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        struct nd_align_product *product = &w->products[i];
        *product = pairs->products[i];
        product->weights = copy_of(product->weights, product->n_weights);
        product->bias = copy_of(product->bias, product->n_bias);
        if (product->weights == NULL || product->bias == NULL)
            return nd_fail_memory(err);
    }
    for (size_t p = 0; p < pairs->n; p++) {
        size_t n_channels = pairs->items[p].n_channels;
        w->factors[p] = nd_calloc(n_channels, sizeof **w->factors);
        if (w->factors[p] == NULL)
            return nd_fail_memory(err);
        for (size_t c = 0; c < n_channels; c++)
            w->factors[p][c] = 1;
    }
    return ND_OK;
}

static void end(struct work *w)
{
    for (size_t i = 0; i < w->pairs->n_products; i++) {
        if (w->products != NULL) {
            free(w->products[i].weights);
            free(w->products[i].bias);
        }
        for (size_t k = 0; k < 2; k++) {
            if (w->quants != NULL)
                nd_quant_deinit(&w->quants[2 * i + k]);
            if (w->qvalues != NULL)
                free(w->qvalues[2 * i + k]);
        }
    }
    for (size_t p = 0; w->factors != NULL && p < w->pairs->n; p++)
        free(w->factors[p]);
    for (size_t e = 0; w->tensors != NULL && e < nd_model_n_tensors(w->model); e++)
        nd_quant_deinit(&w->tensors[e]);
    free(w->products);
    free(w->factors);
    free(w->is_changed);
    free(w->tensors);
    free(w->quants);
    free(w->qvalues);
    free(w->nodes);
}

/* One round of one pair. *moved: by how much its factors moved. */
static enum nd_status balance(struct work *w, size_t p, double *moved, struct nd_error *err)
{
    const struct nd_align_pair *pair = &w->pairs->items[p];
    size_t n = pair->n_channels;
    double *room = nd_calloc(3 * n, sizeof *room), *change = room + 2 * n;
    if (room == NULL)
        return nd_fail_memory(err);
    nd_align_channel_sizes(&w->products[pair->first], true, room);
    nd_align_channel_sizes(&w->products[pair->second], false, room + n);
    nd_align_pair_factors(pair, room, change);
    scale(&w->products[pair->first], true, change);
    scale(&w->products[pair->second], false, change);
    for (size_t c = 0; c < n; c++) {
        w->factors[p][c] *= change[c];
        *moved = fmax(*moved, fabs(log(change[c])));
    }
    free(room);
    return ND_OK;
}

/* From the factors that even out the weights to their power: the weights as they came are scaled by that. */
static void take_power(struct work *w, double strength)
{
    const struct nd_align_pairs *pairs = w->pairs;
    for (size_t i = 0; i < pairs->n_products; i++) {
        const struct nd_align_product *from = &pairs->products[i];
        memcpy(w->products[i].weights, from->weights, from->n_weights * sizeof *from->weights);
        if (from->n_bias > 0)
            memcpy(w->products[i].bias, from->bias, from->n_bias * sizeof *from->bias);
    }
    for (size_t p = 0; p < pairs->n; p++) {
        if (!w->is_on[p])
            continue;
        const struct nd_align_pair *pair = &pairs->items[p];
        for (size_t c = 0; c < pair->n_channels; c++)
            w->factors[p][c] = pow(w->factors[p][c], strength);
        scale(&w->products[pair->first], true, w->factors[p]);
        scale(&w->products[pair->second], false, w->factors[p]);
        w->is_changed[pair->first] = w->is_changed[pair->second] = true;
    }
}

/* ---- quantised anew ---- */

/* The range of the tensor becomes smaller or larger as its values do: what calibration gave up, or left free,
 * stays so. */
static enum nd_status fit_tensor(struct work *w, size_t p, size_t b, struct nd_error *err)
{
    const struct nd_align_pair *pair = &w->pairs->items[p];
    const struct nd_tensor *tensor = nd_model_tensor(w->model, pair->between[b]);
    struct nd_quant *quant = &w->tensors[pair->between[b]];
    enum nd_status status = nd_quant_copy(&tensor->quant, quant, err);
    double low_qvalue, high_qvalue, had[2] = {0, 0}, has[2] = {0, 0};
    nd_qvalue_range(tensor->dtype, &low_qvalue, &high_qvalue);
    for (size_t c = 0; c < pair->n_channels; c++) {
        double low = pair->low[b * pair->n_channels + c], high = pair->high[b * pair->n_channels + c];
        had[0] = fmin(had[0], low);
        had[1] = fmax(had[1], high);
        has[0] = fmin(has[0], low / w->factors[p][c]);
        has[1] = fmax(has[1], high / w->factors[p][c]);
    }
    if (status != ND_OK || (had[0] == 0 && had[1] == 0))
        return status;
    double scale = (double)tensor->quant.scale[0], zero = (double)tensor->quant.zero_point[0];
    double of_low = had[0] < 0 ? has[0] / had[0] : has[1] / had[1],
           of_high = had[1] > 0 ? has[1] / had[1] : has[0] / had[0];
    double low = (low_qvalue - zero) * scale * of_low, high = (high_qvalue - zero) * scale * of_high;
    quant->scale[0] = (float)((high - low) / (high_qvalue - low_qvalue));
    quant->zero_point[0] = (int64_t)nearbyint(low_qvalue - low / ((high - low) / (high_qvalue - low_qvalue)));
    return ND_OK;
}

static enum nd_status new_quant(double scale, int64_t zero_point, struct nd_quant *out, struct nd_error *err)
{
    float value = (float)scale;
    return nd_quant_copy(&(struct nd_quant){.n = 1, .axis = -1, .scale = &value, .zero_point = &zero_point},
                         out, err);
}

static void round_all(double *qvalues, size_t n, const struct nd_quant *quant, enum nd_dtype dtype)
{
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    for (size_t i = 0; i < n; i++) {
        double qvalue = nearbyint(qvalues[i] / (double)quant->scale[0]) + (double)quant->zero_point[0];
        qvalues[i] = fmin(fmax(qvalue, low), high);
    }
}

/* Weights around 0, as the plan wants them; the bias in steps of the products. */
static enum nd_status recode(struct work *w, size_t i, struct nd_error *err)
{
    const struct nd_align_product *product = &w->products[i];
    struct nd_quant *weights = &w->quants[2 * i], *bias = &w->quants[2 * i + 1];
    const struct nd_quant *x = w->tensors[product->input].n > 0
                                   ? &w->tensors[product->input]
                                   : &nd_model_tensor(w->model, product->input)->quant;
    double most = 0;
    if (x->n != 1)
        return ND_OK;
    for (size_t k = 0; k < product->n_weights; k++)
        most = fmax(most, fabs(product->weights[k]));
    w->qvalues[2 * i] = copy_of(product->weights, product->n_weights);
    w->qvalues[2 * i + 1] = copy_of(product->bias, product->n_bias);
    if (w->qvalues[2 * i] == NULL || w->qvalues[2 * i + 1] == NULL)
        return nd_fail_memory(err);
    enum nd_status status =
        new_quant(most > 0 ? most / INT8_MAX : 1, product->dtype == ND_DTYPE_U8 ? 128 : 0, weights, err);
    if (status == ND_OK)
        status = new_quant((double)(x->scale[0] * weights->scale[0]), 0, bias, err);
    if (status != ND_OK)
        return status;
    round_all(w->qvalues[2 * i], product->n_weights, weights, product->dtype);
    w->nodes[w->n_nodes++] =
        (struct nd_recoded_node){product->weights_node, weights, w->qvalues[2 * i], product->n_weights};
    if (product->n_bias == 0)
        return ND_OK;
    round_all(w->qvalues[2 * i + 1], product->n_bias, bias, ND_DTYPE_I32);
    w->nodes[w->n_nodes++] =
        (struct nd_recoded_node){product->bias_node, bias, w->qvalues[2 * i + 1], product->n_bias};
    return ND_OK;
}

static enum nd_status recode_all(struct work *w, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < w->pairs->n; p++)
        for (size_t b = 0; b < w->pairs->items[p].n_between && w->is_on[p] && status == ND_OK; b++)
            status = fit_tensor(w, p, b, err);
    for (size_t i = 0; i < w->pairs->n_products && status == ND_OK; i++)
        if (w->is_changed[i])
            status = recode(w, i, err);
    for (size_t n = 0; n < w->model->graph.n_nodes && status == ND_OK; n++) {
        size_t tensor = nd_quantiser_tensor(w->model, n);
        if (tensor != ND_NO_INDEX && w->tensors[tensor].n > 0)
            w->nodes[w->n_nodes++] = (struct nd_recoded_node){.node = n, .quant = &w->tensors[tensor]};
    }
    return status;
}

/* ---- the result ---- */

static enum nd_status add_scaled(struct nd_align_equalised *out, const struct nd_model *model, size_t node,
                                 double **values, size_t n, struct nd_error *err)
{
    char *name = nd_model_constant_name(&model->graph, node);
    if (name == NULL)
        return nd_fail_memory(err);
    out->scaled[out->n_scaled++] = (struct nd_align_scaled){name, *values, n};
    *values = NULL;
    return ND_OK;
}

static enum nd_status hand_over(struct work *w, struct nd_align_equalised *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    out->scaled = nd_calloc(2 * w->pairs->n_products, sizeof *out->scaled);
    if (out->scaled == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < w->pairs->n_products && status == ND_OK; i++) {
        struct nd_align_product *product = &w->products[i];
        if (!w->is_changed[i])
            continue;
        status = add_scaled(out, w->model, product->weights_node, &product->weights, product->n_weights, err);
        if (status == ND_OK && product->n_bias > 0)
            status = add_scaled(out, w->model, product->bias_node, &product->bias, product->n_bias, err);
    }
    return status;
}

enum nd_status nd_align_equalise(const struct nd_model *model, const struct nd_align_pairs *pairs,
                                 const bool *is_on, double strength, const char *path,
                                 struct nd_align_equalised *out, struct nd_error *err)
{
    struct work w = {.model = model, .pairs = pairs, .is_on = is_on};
    double moved = HUGE_VAL;
    *out = (struct nd_align_equalised){0};
    enum nd_status status = begin(&w, err);
    for (int round = 0; round < MAX_ROUNDS && moved > settled && status == ND_OK; round++) {
        moved = 0;
        for (size_t p = 0; p < pairs->n && status == ND_OK; p++)
            if (is_on[p])
                status = balance(&w, p, &moved, err);
    }
    if (status == ND_OK) {
        take_power(&w, strength);
        status = recode_all(&w, err);
    }
    if (status == ND_OK)
        status = nd_model_write_recoded(model, w.nodes, w.n_nodes, path, err);
    if (status == ND_OK)
        status = nd_model_load(path, &out->model, err);
    if (status == ND_OK)
        status = hand_over(&w, out, err);
    end(&w);
    if (status != ND_OK)
        nd_align_equalised_deinit(out);
    return status;
}

enum { W = 1, B = 2 };

void nd_align_pairs_deinit(struct nd_align_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n_products; i++) {
        free(pairs->products[i].weights);
        free(pairs->products[i].bias);
    }
    for (size_t i = 0; i < pairs->n; i++) {
        free(pairs->items[i].low);
        free(pairs->items[i].high);
    }
    free(pairs->products);
    free(pairs->items);
    *pairs = (struct nd_align_pairs){0};
}

/* ---- layers ---- */

struct finder {
    const struct nd_align_job *job;
    struct nd_align_plan floats; /* model and float_model only: where constants are looked for */
    struct nd_align_pairs *pairs;
};

static bool find_axes(const struct nd_linear_call *call, struct nd_weight_axes *axes)
{
    const struct nd_op_call op = {.node = call->node, .opset = call->opset};
    const struct nd_shape *shape = &call->inputs[W].values->shape;
    bool is_gemm = strcmp(nd_onnx_text(call->node->op_type), "Gemm") == 0;
    int64_t groups = is_gemm ? 1 : nd_op_i(&op, "group", 1);
    if (shape->rank < 2 || groups < 1 ||
        (is_gemm &&
         (nd_op_i(&op, "transA", 0) != 0 || nd_op_f(&op, "alpha", 1) != 1 || nd_op_f(&op, "beta", 1) != 1)))
        return false;
    *axes = (struct nd_weight_axes){.n0 = (size_t)shape->dims[0],
                                    .n1 = (size_t)shape->dims[1],
                                    .inner = 1,
                                    .groups = (size_t)groups,
                                    .is_first_out = !is_gemm || nd_op_i(&op, "transB", 0) != 0};
    for (int d = 2; d < shape->rank; d++)
        axes->inner *= (size_t)shape->dims[d];
    return axes->n0 % axes->groups == 0 && axes->n0 * axes->n1 * axes->inner > 0;
}

/* Whether the operand is a constant with one scale, and its DequantizeLinear is read here only. */
static bool find_operand(const struct finder *f, const struct nd_exact_layer *layer, size_t node, size_t i,
                         size_t *dequantizer)
{
    const struct nd_linear_input *input = &layer->call->inputs[i];
    bool is_shared = false;
    if (layer->origins[i] != ND_EXACT_FROM_CONSTANT || input->values == NULL || input->quant == NULL ||
        input->quant->n != 1)
        return false;
    *dequantizer = nd_align_dequantizer_of(&f->job->model->graph, node, i, &is_shared);
    return *dequantizer != ND_NO_INDEX && !is_shared;
}

static enum nd_status find_product(const struct finder *f, const struct nd_exact_layer *layer,
                                   struct nd_align_product *product, struct nd_error *err)
{
    const struct nd_linear_call *call = layer->call;
    size_t node = nd_align_node_of(&f->job->model->graph, call->node);
    bool has_bias = call->n_inputs > B && call->inputs[B].values != NULL;
    *product = (struct nd_align_product){
        .tensor = layer->tensor, .input = layer->input_tensors[0], .bias_node = ND_NO_INDEX};
    if (product->input == SIZE_MAX || nd_model_tensor(f->job->model, product->input)->quant.n != 1 ||
        !find_operand(f, layer, node, W, &product->weights_node) ||
        nd_dtype_size_bytes(call->inputs[W].values->dtype) != 1 || !find_axes(call, &product->axes) ||
        (has_bias && (!find_operand(f, layer, node, B, &product->bias_node) ||
                      call->inputs[B].values->dtype != ND_DTYPE_I32 ||
                      call->inputs[B].values->n != nd_weight_channels(&product->axes, true))))
        return ND_OK;
    product->dtype = call->inputs[W].values->dtype;
    product->n_weights = call->inputs[W].values->n;
    enum nd_status status =
        nd_align_find_floats(&f->floats, product->weights_node, &call->inputs[W], &product->weights, err);
    if (status == ND_OK && has_bias) {
        product->n_bias = call->inputs[B].values->n;
        status = nd_align_find_floats(&f->floats, product->bias_node, &call->inputs[B], &product->bias, err);
    }
    return status;
}

/* A nd_exact_make that makes nothing. */
static enum nd_status look(void *context, const struct nd_exact_layer *layer, struct nd_array *qvalues,
                           bool *is_made, struct nd_error *err)
{
    struct finder *f = context;
    struct nd_align_pairs *pairs = f->pairs;
    const char *op_type = layer->call->node != NULL ? nd_onnx_text(layer->call->node->op_type) : "";
    struct nd_align_product product;
    (void)qvalues;
    *is_made = false;
    if ((strcmp(op_type, "Conv") != 0 && strcmp(op_type, "Gemm") != 0) || layer->call->n_inputs <= W)
        return ND_OK;
    enum nd_status status = find_product(f, layer, &product, err);
    bool is_known = product.weights != NULL && (product.n_bias == 0 || product.bias != NULL);
    if (status == ND_OK && is_known &&
        !nd_grow((void **)&pairs->products, &pairs->products_capacity, pairs->n_products + 1,
                 sizeof *pairs->products))
        status = nd_fail_memory(err);
    if (status == ND_OK && is_known) {
        pairs->products[pairs->n_products++] = product;
        return ND_OK;
    }
    free(product.weights);
    free(product.bias);
    return status;
}

/* ---- pairs ---- */

/* Whether the values are quantised values with one scale that may change, read once, and by a layer. */
static bool is_free(const struct nd_model *model, const struct nd_quantisers *q, size_t tensor)
{
    const struct nd_tensor *e = nd_model_tensor(model, tensor);
    const struct nd_graph *graph = &model->graph;
    if (e->quant.n != 1 || e->is_model_output || nd_quantiser_of(q, tensor)->is_settled)
        return false;
    for (size_t other = 0; other < nd_model_n_tensors(model); other++)
        if (other != tensor && nd_quantiser_of(q, other) == nd_quantiser_of(q, tensor))
            return false;
    size_t value = nd_names_find(&graph->names, e->onnx_name);
    if (value == ND_NO_INDEX || graph->tensors[value].n_readers != 1 ||
        graph->tensors[value].output != ND_NO_INDEX)
        return false;
    const struct nd_graph_node *reader = &graph->nodes[graph->readers[graph->tensors[value].first_reader]];
    size_t reals = reader->kind == ND_NODE_DEQUANTIZE ? graph->made[reader->first_made] : ND_NO_INDEX;
    return reals != ND_NO_INDEX && graph->tensors[reals].n_readers == 1 &&
           graph->tensors[reals].output == ND_NO_INDEX;
}

static const struct nd_model_layer *reader_of(const struct nd_model *model, size_t tensor)
{
    for (size_t u = 0; u < nd_model_n_layers(model); u++) {
        const struct nd_model_layer *layer = nd_model_layer(model, u);
        for (size_t i = 0; i < layer->n_inputs; i++)
            if (layer->inputs[i] == tensor)
                return layer;
    }
    return NULL;
}

static size_t product_of(const struct nd_align_pairs *pairs, size_t tensor)
{
    size_t i = 0;
    while (i < pairs->n_products && pairs->products[i].tensor != tensor)
        i++;
    return i;
}

/* A factor of each channel passes through it. */
static bool commutes(const char *op_types)
{
    static const char *const names[] = {"Conv", "Gemm", "Conv+Relu", "Gemm+Relu", "Relu", "LeakyRelu"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(op_types, names[i]) == 0)
            return true;
    return false;
}

/* The pair whose first layer this is; n_channels 0: none. */
static struct nd_align_pair find_pair(const struct nd_model *model, const struct nd_align_pairs *pairs,
                                      const struct nd_quantisers *q, size_t first)
{
    struct nd_align_pair pair = {.first = first};
    const struct nd_align_product *from = &pairs->products[first];
    const struct nd_model_layer *layer = nd_model_layer_of_tensor(model, from->tensor);
    while (layer != NULL && commutes(layer->op_types) && pair.n_between < ND_MAX_BETWEEN &&
           is_free(model, q, layer->tensor)) {
        pair.between[pair.n_between++] = layer->tensor;
        size_t read = layer->tensor;
        layer = reader_of(model, read);
        size_t second = layer != NULL ? product_of(pairs, layer->tensor) : pairs->n_products;
        if (second == pairs->n_products)
            continue;
        const struct nd_align_product *to = &pairs->products[second];
        size_t n = nd_weight_channels(&from->axes, true);
        pair.second = second;
        pair.n_channels = to->input == read && nd_weight_channels(&to->axes, false) == n ? n : 0;
        return pair;
    }
    return pair;
}

/* ---- what is between ---- */

/* Told of the values of all tensors. */
static enum nd_status take(void *context, size_t tensor, const struct nd_array *values,
                           enum nd_exact_method method, struct nd_error *err)
{
    const struct finder *f = context;
    const struct nd_quant *quant = &nd_model_tensor(f->job->model, tensor)->quant;
    (void)method;
    (void)err;
    for (size_t p = 0; p < f->pairs->n; p++) {
        struct nd_align_pair *pair = &f->pairs->items[p];
        for (size_t b = 0; b < pair->n_between; b++) {
            if (pair->between[b] != tensor || values->shape.rank < 2 ||
                (size_t)values->shape.dims[1] != pair->n_channels)
                continue;
            size_t inner = 1;
            for (int d = 2; d < values->shape.rank; d++)
                inner *= (size_t)values->shape.dims[d];
            for (size_t i = 0; i < values->n; i++) {
                size_t c = b * pair->n_channels + i / inner % pair->n_channels;
                double real = (values->x[i] - (double)quant->zero_point[0]) * (double)quant->scale[0];
                pair->low[c] = fmin(pair->low[c], real);
                pair->high[c] = fmax(pair->high[c], real);
            }
        }
    }
    return ND_OK;
}

static enum nd_status watch(struct finder *f, const struct nd_exact_graph *graph, struct nd_array *inputs,
                            struct nd_error *err)
{
    enum { MAX_SAMPLES = 8 }; /* as weights are rounded for: observed.c */
    const struct nd_exact_options options = {.struct_size = sizeof options, .missed = nd_exact_let_go};
    struct nd_align_options fit;
    struct nd_align_job own = *f->job;
    enum nd_status status = ND_OK;
    if (!nd_align_fit_options(f->job->options, &fit))
        return ND_OK;
    own.options = &fit;
    size_t n = nd_align_n_samples(&fit);
    for (size_t i = 0; i < n && i < MAX_SAMPLES && status == ND_OK; i++) {
        size_t sample = i * n / (n < MAX_SAMPLES ? n : MAX_SAMPLES);
        nd_align_load_sample(&own, &sample, inputs);
        status = nd_exact_graph_run(graph, inputs, &options, take, f, err);
    }
    return status;
}

static void find_spread(const struct nd_align_pairs *pairs, struct nd_align_pair *pair, double *room)
{
    double least = HUGE_VAL, most = 0, *factors = room + 2 * pair->n_channels;
    nd_align_channel_sizes(&pairs->products[pair->first], true, room);
    nd_align_channel_sizes(&pairs->products[pair->second], false, room + pair->n_channels);
    nd_align_pair_factors(pair, room, factors);
    for (size_t c = 0; c < pair->n_channels; c++) {
        least = fmin(least, factors[c]);
        most = fmax(most, factors[c]);
    }
    pair->spread = most / least;
}

static enum nd_status find_pairs(struct finder *f, struct nd_error *err)
{
    struct nd_align_pairs *pairs = f->pairs;
    struct nd_quantisers quantisers;
    enum nd_status status = nd_quantisers_init(&quantisers, f->job->model, f->job->options->float_model, err);
    pairs->items = nd_calloc(pairs->n_products, sizeof *pairs->items);
    if (status == ND_OK && pairs->items == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < pairs->n_products && status == ND_OK; i++) {
        struct nd_align_pair pair = find_pair(f->job->model, pairs, &quantisers, i);
        double *room = nd_calloc(3 * pair.n_channels, sizeof *room);
        size_t n = pair.n_between * pair.n_channels;
        if (pair.n_channels > 0) {
            pair.low = nd_calloc(n, sizeof *pair.low);
            pair.high = nd_calloc(n, sizeof *pair.high);
            pairs->items[pairs->n++] = pair;
            if (pair.low == NULL || pair.high == NULL || room == NULL)
                status = nd_fail_memory(err);
            else
                find_spread(pairs, &pairs->items[pairs->n - 1], room);
        }
        free(room);
    }
    nd_quantisers_deinit(&quantisers);
    return status;
}

enum nd_status nd_align_pairs_find(const struct nd_align_job *job, struct nd_align_pairs *pairs,
                                   struct nd_error *err)
{
    struct finder f = {
        .job = job, .floats = {.model = job->model, .float_model = job->options->float_model}, .pairs = pairs};
    struct nd_exact_graph *graph = NULL;
    struct nd_array *inputs;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = look, .missed = nd_exact_let_go};
    *pairs = (struct nd_align_pairs){0};
    enum nd_status status = nd_inputs_create(job->model, &inputs, err);
    if (status == ND_OK)
        status = nd_exact_graph_create(job->model, &graph, err);
    if (status == ND_OK)
        status = nd_exact_graph_run(graph, inputs, &options, NULL, &f, err);
    if (status == ND_OK)
        status = find_pairs(&f, err);
    if (status == ND_OK && pairs->n > 0)
        status = watch(&f, graph, inputs, err);
    nd_exact_graph_destroy(&graph);
    nd_inputs_destroy(job->model, &inputs);
    return status;
}
