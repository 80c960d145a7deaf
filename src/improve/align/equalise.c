/* Cross-layer equalisation: a model whose channels between two layers are smaller or larger, and the search for
 * pairs that lower the error of the outputs. docs/science/align.md#equalisation. */
#include "improve/align/align_stages.h"

#include <math.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/ops.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/plan/replay.h"
#include "model/graph/constants.h"

/* Pairs of layers between whose channels factors can be moved, and what lies between.
 * docs/science/align.md#equalisation. */

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
    ND_TRY(nd_quantisers_init(&quantisers, f->job->model, f->job->options->float_model, err));
    pairs->items = nd_calloc(pairs->n_products, sizeof *pairs->items);
    ND_TRY_MEMORY(pairs->items != NULL, err);
    for (size_t i = 0; i < pairs->n_products; i++) {
        struct nd_align_pair pair = find_pair(f->job->model, pairs, &quantisers, i);
        ND_FREED double *room = nd_calloc(3 * pair.n_channels, sizeof *room);
        size_t n = pair.n_between * pair.n_channels;
        if (pair.n_channels > 0) {
            pair.low = nd_calloc(n, sizeof *pair.low);
            pair.high = nd_calloc(n, sizeof *pair.high);
            pairs->items[pairs->n++] = pair;
            if (pair.low == NULL || pair.high == NULL || room == NULL)
                return nd_fail_memory(err);
            else
                find_spread(pairs, &pairs->items[pairs->n - 1], room);
        }
    }
    return ND_OK;
}

/* Pairs between whose layers nothing but Relu and LeakyRelu lies, and whose tensors nobody
 * else reads and no bound holds. Values are those of the model as it came on the samples that weights are
 * rounded for. Call deinit in any case. Errors as nd_exact_graph_create. */
static enum nd_status nd_align_pairs_find(const struct nd_align_job *job, struct nd_align_pairs *pairs,
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
    return pairs->n > 0 ? watch(&f, graph, inputs, err) : ND_OK;
}

/* Rounds over all pairs, of which neighbours pull at each other, at most; and the change of factors that ends
 * them: as src/quantisation/candidates.c. */
enum { MAX_ROUNDS = 32 };
static const double settled = 0.01;

static void nd_align_equalised_deinit(struct nd_align_equalised *equalised)
{
    ND_FREE_BOTH(equalised->scaled, equalised->n_scaled, .name, .values);
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
    ND_TRY_MEMORY(w->products != NULL && w->factors != NULL && w->is_changed != NULL && w->tensors != NULL &&
                      w->quants != NULL && w->qvalues != NULL && w->nodes != NULL,
                  err);
    for (size_t i = 0; i < n; i++) {
        struct nd_align_product *product = &w->products[i];
        *product = pairs->products[i];
        product->weights = copy_of(product->weights, product->n_weights);
        product->bias = copy_of(product->bias, product->n_bias);
        ND_TRY_MEMORY(product->weights != NULL && product->bias != NULL, err);
    }
    for (size_t p = 0; p < pairs->n; p++) {
        size_t n_channels = pairs->items[p].n_channels;
        w->factors[p] = nd_calloc(n_channels, sizeof **w->factors);
        ND_TRY_MEMORY(w->factors[p] != NULL, err);
        for (size_t c = 0; c < n_channels; c++)
            w->factors[p][c] = 1;
    }
    return ND_OK;
}

static void end(struct work *w)
{
    for (size_t i = 0; i < w->pairs->n_products; i++) {
        if (w->products != NULL)
            ND_FREE_ALL(w->products[i].weights, w->products[i].bias);
        for (size_t k = 0; k < 2; k++) {
            if (w->quants != NULL)
                nd_quant_deinit(&w->quants[2 * i + k]);
            if (w->qvalues != NULL)
                free(w->qvalues[2 * i + k]);
        }
    }
    for (size_t p = 0; w->factors != NULL && p < w->pairs->n; p++)
        free(w->factors[p]);
    ND_DEINIT_EACH(nd_quant_deinit, w->tensors, nd_model_n_tensors(w->model));
    ND_FREE_ALL(w->products, w->factors, w->is_changed, w->quants, w->qvalues, w->nodes);
}

/* One round of one pair. *moved: by how much its factors moved. */
static enum nd_status balance(struct work *w, size_t p, double *moved, struct nd_error *err)
{
    const struct nd_align_pair *pair = &w->pairs->items[p];
    size_t n = pair->n_channels;
    double *room = nd_calloc(3 * n, sizeof *room), *change = room + 2 * n;
    ND_TRY_MEMORY(room != NULL, err);
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
    ND_TRY_MEMORY(w->qvalues[2 * i] != NULL && w->qvalues[2 * i + 1] != NULL, err);
    ND_TRY(new_quant(most > 0 ? most / INT8_MAX : 1, product->dtype == ND_DTYPE_U8 ? 128 : 0, weights, err));
    ND_TRY(new_quant((double)(x->scale[0] * weights->scale[0]), 0, bias, err));
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
    for (size_t p = 0; p < w->pairs->n; p++)
        for (size_t b = 0; b < w->pairs->items[p].n_between && w->is_on[p]; b++)
            ND_TRY(fit_tensor(w, p, b, err));
    for (size_t i = 0; i < w->pairs->n_products; i++)
        if (w->is_changed[i])
            ND_TRY(recode(w, i, err));
    for (size_t n = 0; n < w->model->graph.n_nodes; n++) {
        size_t tensor = nd_quantiser_tensor(w->model, n);
        if (tensor != ND_NO_INDEX && w->tensors[tensor].n > 0)
            w->nodes[w->n_nodes++] = (struct nd_recoded_node){.node = n, .quant = &w->tensors[tensor]};
    }
    return ND_OK;
}

/* ---- the result ---- */

static enum nd_status add_scaled(struct nd_align_equalised *out, const struct nd_model *model, size_t node,
                                 double **values, size_t n, struct nd_error *err)
{
    char *name = nd_model_constant_name(&model->graph, node);
    ND_TRY_MEMORY(name != NULL, err);
    out->scaled[out->n_scaled++] = (struct nd_align_scaled){name, *values, n};
    *values = NULL;
    return ND_OK;
}

static enum nd_status hand_over(struct work *w, struct nd_align_equalised *out, struct nd_error *err)
{
    out->scaled = nd_calloc(2 * w->pairs->n_products, sizeof *out->scaled);
    ND_TRY_MEMORY(out->scaled != NULL, err);
    for (size_t i = 0; i < w->pairs->n_products; i++) {
        struct nd_align_product *product = &w->products[i];
        if (!w->is_changed[i])
            continue;
        ND_TRY(add_scaled(out, w->model, product->weights_node, &product->weights, product->n_weights, err));
        if (product->n_bias > 0)
            ND_TRY(add_scaled(out, w->model, product->bias_node, &product->bias, product->n_bias, err));
    }
    return ND_OK;
}

/* With the pairs is_on[n], and factors to the power of `strength`. path: where the model is written. */
static enum nd_status nd_align_equalise(const struct nd_model *model, const struct nd_align_pairs *pairs,
                                        const bool *is_on, double strength, const char *path,
                                        struct nd_align_equalised *out, struct nd_error *err)
{
    ND_CLEANUP(end) struct work w = {.model = model, .pairs = pairs, .is_on = is_on};
    ND_CLEANUP(nd_align_equalised_deinit) struct nd_align_equalised made = {0};
    double moved = HUGE_VAL;
    *out = made;
    ND_TRY(begin(&w, err));
    for (int round = 0; round < MAX_ROUNDS && moved > settled; round++) {
        moved = 0;
        for (size_t p = 0; p < pairs->n; p++)
            if (is_on[p])
                ND_TRY(balance(&w, p, &moved, err));
    }
    take_power(&w, strength);
    ND_TRY(recode_all(&w, err));
    ND_TRY(nd_model_write_recoded(model, w.nodes, w.n_nodes, path, err));
    ND_TRY(nd_model_load(path, &made.model, err));
    ND_TRY(hand_over(&w, &made, err));
    return ND_GIVE(out, made);
}

/* ---- which pairs ---- */

/* Of each fold: chosen. */
enum { MAX_SAMPLES = 8 };

/* Samples from..from + n - 1. The bytes are the user's. */
static enum nd_status view_part(const struct nd_probe *probe, size_t from, size_t n, struct nd_probe *out,
                                struct nd_error *err)
{
    *out = *probe;
    out->n_samples = n;
    out->labels = NULL;
    out->n_goals = 0;
    out->goals = NULL;
    out->inputs = nd_calloc(probe->n_inputs, sizeof *out->inputs);
    ND_TRY_MEMORY(out->inputs != NULL, err);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        out->inputs[i] = probe->inputs[i];
        out->inputs[i].data = (unsigned char *)probe->inputs[i].data + from * probe->inputs[i].sample_bytes;
    }
    return ND_OK;
}

/* part 0: the samples that weights are rounded for; 1: those that the error is measured on. */
static enum nd_status fill_part(const struct nd_align_options *fit, size_t index, size_t part,
                                struct nd_align_fold *fold, struct nd_error *err)
{
    size_t n = 0;
    fold->probes[part] = nd_calloc(fit->n_probes, sizeof *fold->probes[part]);
    fold->views[part] = nd_calloc(fit->n_probes, sizeof *fold->views[part]);
    ND_TRY_MEMORY(fold->probes[part] != NULL && fold->views[part] != NULL, err);
    for (size_t p = 0; p < fit->n_probes; p++) {
        size_t half = fit->probes[p]->n_samples / 2, is_second = index == part;
        size_t from = is_second ? half : 0, count = is_second ? fit->probes[p]->n_samples - half : half;
        if (count == 0)
            continue;
        ND_TRY(view_part(fit->probes[p], from, count, &fold->probes[part][n], err));
        fold->views[part][n] = &fold->probes[part][n];
        n++;
    }
    *(part == 0 ? &fold->options.n_fit : &fold->options.n_probes) = n;
    return ND_OK;
}

/* ND_ERR_MEMORY. Call deinit in any case. */
static enum nd_status nd_align_folds_init(const struct nd_align_options *options, struct nd_align_folds *folds,
                                          struct nd_error *err)
{
    struct nd_align_options fit;
    *folds = (struct nd_align_folds){0};
    if (!nd_align_fit_options(options, &fit) || nd_align_n_samples(&fit) < ND_ALIGN_FOLDS)
        return ND_OK;
    for (size_t i = 0; i < ND_ALIGN_FOLDS; i++) {
        struct nd_align_fold *fold = &folds->items[i];
        fold->options = fit;
        fold->n_probes = fit.n_probes;
        for (size_t part = 0; part < 2; part++)
            ND_TRY(fill_part(&fit, i, part, fold, err));
        fold->options.fit = fold->views[0];
        fold->options.probes = fold->views[1];
        fold->options.n_samples = MAX_SAMPLES;
        if (fold->options.n_fit == 0 || fold->options.n_probes == 0) {
            folds->n_samples = 0;
            return ND_OK;
        }
        folds->n_samples += nd_align_n_samples(&fold->options);
    }
    return ND_OK;
}

static enum nd_status try_fold(const struct nd_align_job *job, const struct nd_align_fold *fold,
                               const struct nd_align_equalised *made, double *noises, struct nd_error *err)
{
    ND_CLEANUP(nd_alignment_destroy) struct nd_alignment *scratch = nd_calloc(1, sizeof *scratch);
    struct nd_align_job own = *job;
    ND_TRY_MEMORY(scratch != NULL, err);
    own.options = &fold->options;
    own.result = scratch;
    own.observed = NULL;
    own.aligned = own.read_again = NULL;
    own.model = made != NULL ? made->model : job->model;
    struct nd_align_plan plan = {.model = own.model,
                                 .float_model = own.options->float_model,
                                 .arithmetics = own.arithmetics,
                                 .n_arithmetics = own.n_arithmetics,
                                 .scaled = made != NULL ? made->scaled : NULL,
                                 .n_scaled = made != NULL ? made->n_scaled : 0};
    enum nd_status status = nd_align_observe(&own, &own.observed, err);
    plan.observed = own.observed;
    if (status == ND_OK)
        status = nd_align_plan_make(&plan, err);
    if (status == ND_OK)
        status = nd_align_write(&own, &plan, err);
    if (status == ND_OK)
        status = nd_align_accuracy_cost(&own, noises, err);
    nd_align_plan_deinit(&plan);
    nd_observed_destroy(&own.observed);
    nd_model_destroy(&own.read_again);
    return status;
}

/* noises [folds->n_samples]: at the outputs of the aligned model by the float model's signal, if that is what
 * is aligned (NULL: the job's). */
static enum nd_status nd_align_try(const struct nd_align_job *job, const struct nd_align_folds *folds,
                                   const struct nd_align_equalised *made, double *noises, struct nd_error *err)
{
    for (size_t i = 0; i < ND_ALIGN_FOLDS; i++) {
        ND_TRY(try_fold(job, &folds->items[i], made, noises, err));
        noises += nd_align_n_samples(&folds->items[i].options);
    }
    return ND_OK;
}

/* Pairs whose factors differ by less are left alone: half a bit, as in src/quantisation/candidates.c. */
static const double min_spread = 1.5;
/* What a trial has to gain at the outputs, and in which share of the samples, as a remedy of explain:
 * docs/reference/diagnoses.md. */
static const double min_gain_db = 0.5, min_share = 0.75;
/* Chosen: pairs that are tried one by one. */
enum { MAX_TRIED = 6 };

struct search {
    struct nd_align_job *job;
    struct nd_align_pairs pairs;
    struct nd_align_folds folds;
    char *path; /* of the model that is tried */
    size_t n_trials;
    double *noises, *best; /* [folds.n_samples] of the trial, and of the best so far */
    bool *is_on;           /* [pairs.n] of the best, like the next two */
    double strength;
    size_t n_on;
};

static bool is_better(const struct search *s)
{
    static const double none = 1e-30; /* a model without an error can get no better */
    double gain = 0;
    size_t n = s->folds.n_samples, n_better = 0;
    for (size_t i = 0; i < n; i++) {
        gain += 10 * log10((s->best[i] + none) / (s->noises[i] + none)) / (double)n;
        n_better += s->noises[i] < s->best[i];
    }
    return gain >= min_gain_db && (double)n_better >= min_share * (double)n;
}

/* These pairs, and factors to that power: the best, if they are. */
static enum nd_status try(struct search *s, const bool *is_on, double strength, struct nd_error *err)
{
    struct nd_align_equalised made;
    ND_TRY(nd_align_tell(s->job, "equalise", s->n_trials++, 0, err));
    ND_TRY(nd_align_equalise(s->job->model, &s->pairs, is_on, strength, s->path, &made, err));
    enum nd_status status = nd_align_try(s->job, &s->folds, &made, s->noises, err);
    nd_align_equalised_deinit(&made);
    if (status != ND_OK || !is_better(s))
        return status;
    memcpy(s->best, s->noises, s->folds.n_samples * sizeof *s->best);
    memcpy(s->is_on, is_on, s->pairs.n * sizeof *s->is_on);
    s->strength = strength;
    s->n_on = 0;
    for (size_t p = 0; p < s->pairs.n; p++)
        s->n_on += is_on[p];
    return ND_OK;
}

/* The pair with the next lower spread that is worth a trial; SIZE_MAX: none. */
static size_t next_pair(const struct search *s, const bool *is_done)
{
    size_t best = SIZE_MAX;
    for (size_t p = 0; p < s->pairs.n; p++)
        if (!is_done[p] && s->pairs.items[p].spread > min_spread &&
            (best == SIZE_MAX || s->pairs.items[p].spread > s->pairs.items[best].spread))
            best = p;
    return best;
}

/* All pairs, with whole factors and with their roots; then one after the other is added or taken away. */
static enum nd_status search(struct search *s, bool *is_on, bool *is_done, struct nd_error *err)
{
    static const double strengths[] = {1, 0.5};
    ND_TRY(nd_align_try(s->job, &s->folds, NULL, s->best, err));
    for (size_t p = 0; p < s->pairs.n; p++)
        is_on[p] = s->pairs.items[p].spread > min_spread;
    for (size_t i = 0; i < sizeof strengths / sizeof strengths[0]; i++)
        ND_TRY(try(s, is_on, strengths[i], err));
    for (size_t i = 0; i < MAX_TRIED; i++) {
        size_t pair = next_pair(s, is_done);
        if (pair == SIZE_MAX)
            return ND_OK;
        is_done[pair] = true;
        for (size_t p = 0; p < s->pairs.n; p++)
            is_on[p] = s->is_on[p] != (p == pair);
        ND_TRY(try(s, is_on, s->strength, err));
    }
    return ND_OK;
}

/* The best becomes what is planned. */
static enum nd_status take_over(struct search *s, struct nd_error *err)
{
    struct nd_align_job *job = s->job;
    struct nd_align_equalised *made = nd_calloc(1, sizeof *made);
    ND_TRY_MEMORY(made != NULL, err);
    enum nd_status status = nd_align_equalise(job->model, &s->pairs, s->is_on, s->strength, s->path, made, err);
    if (status != ND_OK) {
        free(made);
        return status;
    }
    job->equalised = made;
    job->model = made->model;
    job->result->n_equalised = s->n_on;
    nd_observed_destroy(&job->observed);
    return nd_align_observe(job, &job->observed, err);
}

static void nd_align_pairs_deinit(struct nd_align_pairs *pairs)
{
    for (size_t i = 0; i < pairs->n_products; i++)
        ND_FREE_ALL(pairs->products[i].weights, pairs->products[i].bias);
    for (size_t i = 0; i < pairs->n; i++) {
        ND_FREE_ALL(pairs->items[i].low, pairs->items[i].high);
    }
    ND_FREE_ALL(pairs->products, pairs->items);
    *pairs = (struct nd_align_pairs){0};
}

enum nd_status nd_align_equalise_best(struct nd_align_job *job, struct nd_error *err)
{
    struct search s = {.job = job, .strength = 1};
    ND_FREED bool *is_on = NULL, *is_done = NULL;
    if (job->options->float_model == NULL)
        return ND_OK;
    enum nd_status status = nd_align_folds_init(job->options, &s.folds, err);
    if (status == ND_OK && s.folds.n_samples > 0)
        status = nd_align_pairs_find(job, &s.pairs, err);
    size_t n = s.pairs.n;
    if (status == ND_OK && n > 0)
        status = nd_align_name_file(job, "equalised.onnx", &s.path, err);
    if (status == ND_OK && n > 0) {
        s.noises = nd_calloc(s.folds.n_samples, sizeof *s.noises);
        s.best = nd_calloc(s.folds.n_samples, sizeof *s.best);
        s.is_on = nd_calloc(n, sizeof *s.is_on);
        is_on = nd_calloc(n, sizeof *is_on);
        is_done = nd_calloc(n, sizeof *is_done);
        bool are_made =
            s.noises != NULL && s.best != NULL && s.is_on != NULL && is_on != NULL && is_done != NULL;
        status = are_made ? search(&s, is_on, is_done, err) : nd_fail_memory(err);
    }
    if (status == ND_OK && s.n_on > 0)
        status = take_over(&s, err);
    nd_align_pairs_deinit(&s.pairs);
    struct nd_align_folds *folds = &s.folds;
    for (size_t i = 0; i < ND_ALIGN_FOLDS; i++)
        for (size_t part = 0; part < 2; part++) {
            struct nd_align_fold *fold = &folds->items[i];
            ND_FREE_EACH(fold->probes[part], fold->n_probes, .inputs);
            free(fold->views[part]);
        }
    *folds = (struct nd_align_folds){0};
    ND_FREE_ALL(s.path, s.noises, s.best, s.is_on);
    return status;
}
