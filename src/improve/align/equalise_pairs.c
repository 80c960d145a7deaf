/* Pairs of layers between whose channels factors can be moved, and what lies between.
 * docs/science/align.md#equalisation. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/operators/ops.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/words.h"
#include "explain/plan/replay.h"
#include "improve/align/align_stages.h"
#include "model/graph/loaded.h"

void nd_align_channel_sizes(const struct nd_align_product *product, bool is_output, double *sizes)
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

void nd_align_pair_factors(const struct nd_align_pair *pair, const double *sizes, double *factors)
{
    size_t n = pair->n_channels;
    const double *first = sizes, *second = sizes + n;
    double of_first = greatest(first, n), of_second = greatest(second, n);
    for (size_t c = 0; c < n; c++) /* a channel of zeros keeps its size */
        factors[c] = first[c] > 0 && second[c] > 0 ? sqrt(first[c] / of_first / (second[c] / of_second)) : 1;
}

enum { W = 1, B = 2 };

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
    ND_TRY(nd_align_find_floats(&f->floats, product->weights_node, &call->inputs[W], &product->weights, err));
    if (has_bias) {
        product->n_bias = call->inputs[B].values->n;
        ND_TRY(nd_align_find_floats(&f->floats, product->bias_node, &call->inputs[B], &product->bias, err));
    }
    return ND_OK;
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
    ND_FREE_ALL(product.weights, product.bias);
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
    return ND_IS_ONE_OF(op_types, "Conv", "Gemm", "Conv+Relu", "Gemm+Relu", "Relu", "LeakyRelu");
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
    if (!nd_align_fit_options(f->job->options, &fit))
        return ND_OK;
    own.options = &fit;
    size_t n = nd_align_n_samples(&fit);
    for (size_t i = 0; i < n && i < MAX_SAMPLES; i++) {
        size_t sample = i * n / (n < MAX_SAMPLES ? n : MAX_SAMPLES);
        nd_align_load_sample(&own, &sample, inputs);
        ND_TRY(nd_exact_graph_run(graph, inputs, &options, take, f, err));
    }
    return ND_OK;
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
    ND_CLEANUP(nd_quantisers_deinit) struct nd_quantisers quantisers = {0};
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
    return status;
}

enum nd_status nd_align_pairs_find(const struct nd_align_job *job, struct nd_align_pairs *pairs,
                                   struct nd_error *err)
{
    struct finder f = {
        .job = job, .floats = {.model = job->model, .float_model = job->options->float_model}, .pairs = pairs};
    ND_CLEANUP(nd_exact_graph_destroy) struct nd_exact_graph *graph = NULL;
    ND_CLEANUP(nd_inputs_destroy) struct nd_array *inputs = NULL;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .make = look, .missed = nd_exact_let_go};
    *pairs = (struct nd_align_pairs){0};
    ND_TRY(nd_inputs_create(job->model, &inputs, err));
    ND_TRY(nd_exact_graph_create(job->model, &graph, err));
    ND_TRY(nd_exact_graph_run(graph, inputs, &options, NULL, &f, err));
    ND_TRY(find_pairs(&f, err));
    if (pairs->n > 0)
        ND_TRY(watch(&f, graph, inputs, err));
    return ND_OK;
}
