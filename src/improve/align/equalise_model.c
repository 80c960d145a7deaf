#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "improve/align/equalise.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/tensors/scales.h"
#include "arithmetic/exact/linear/rounding.h"
#include "model/graph/constants.h"
#include "model/graph/loaded.h"

/* Rounds over all pairs, of which neighbours pull at each other, at most; and the change of factors that ends
 * them: as src/quantisation/equalise.c. */
enum { MOST_ROUNDS = 32 };
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
    struct nd_quant *edges;            /* [n_edges] new ones; n = 0: none */
    struct nd_quant *quants;           /* [2 * n_products] of weights and biases */
    double **codes;                    /* [2 * n_products] */
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
    w->edges = nd_calloc(nd_model_n_edges(w->model), sizeof *w->edges);
    w->quants = nd_calloc(2 * n, sizeof *w->quants);
    w->codes = nd_calloc(2 * n, sizeof *w->codes);
    w->nodes = nd_calloc(2 * n + w->model->graph.n_nodes, sizeof *w->nodes);
    if (w->products == NULL || w->factors == NULL || w->is_changed == NULL || w->edges == NULL ||
        w->quants == NULL || w->codes == NULL || w->nodes == NULL)
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
            if (w->codes != NULL)
                free(w->codes[2 * i + k]);
        }
    }
    for (size_t p = 0; w->factors != NULL && p < w->pairs->n; p++)
        free(w->factors[p]);
    for (size_t e = 0; w->edges != NULL && e < nd_model_n_edges(w->model); e++)
        nd_quant_deinit(&w->edges[e]);
    free(w->products);
    free(w->factors);
    free(w->is_changed);
    free(w->edges);
    free(w->quants);
    free(w->codes);
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
static enum nd_status fit_edge(struct work *w, size_t p, size_t b, struct nd_error *err)
{
    const struct nd_align_pair *pair = &w->pairs->items[p];
    const struct nd_edge *edge = nd_model_edge(w->model, pair->between[b]);
    struct nd_quant *quant = &w->edges[pair->between[b]];
    enum nd_status status = nd_quant_copy(&edge->quant, quant, err);
    double low_code, high_code, had[2] = {0, 0}, has[2] = {0, 0};
    nd_code_range(edge->dtype, &low_code, &high_code);
    for (size_t c = 0; c < pair->n_channels; c++) {
        double low = pair->low[b * pair->n_channels + c], high = pair->high[b * pair->n_channels + c];
        had[0] = fmin(had[0], low);
        had[1] = fmax(had[1], high);
        has[0] = fmin(has[0], low / w->factors[p][c]);
        has[1] = fmax(has[1], high / w->factors[p][c]);
    }
    if (status != ND_OK || (had[0] == 0 && had[1] == 0))
        return status;
    double scale = (double)edge->quant.scale[0], zero = (double)edge->quant.zero_point[0];
    double of_low = had[0] < 0 ? has[0] / had[0] : has[1] / had[1],
           of_high = had[1] > 0 ? has[1] / had[1] : has[0] / had[0];
    double low = (low_code - zero) * scale * of_low, high = (high_code - zero) * scale * of_high;
    quant->scale[0] = (float)((high - low) / (high_code - low_code));
    quant->zero_point[0] = (int64_t)nearbyint(low_code - low / ((high - low) / (high_code - low_code)));
    return ND_OK;
}

static enum nd_status new_quant(double scale, int64_t zero_point, struct nd_quant *out, struct nd_error *err)
{
    float value = (float)scale;
    return nd_quant_copy(&(struct nd_quant){.n = 1, .axis = -1, .scale = &value, .zero_point = &zero_point},
                         out, err);
}

static void round_all(double *codes, size_t n, const struct nd_quant *quant, enum nd_dtype dtype)
{
    double low, high;
    nd_code_range(dtype, &low, &high);
    for (size_t i = 0; i < n; i++) {
        double code = nearbyint(codes[i] / (double)quant->scale[0]) + (double)quant->zero_point[0];
        codes[i] = fmin(fmax(code, low), high);
    }
}

/* Weights around 0, as the plan wants them; the bias in steps of the products. */
static enum nd_status recode(struct work *w, size_t i, struct nd_error *err)
{
    const struct nd_align_product *product = &w->products[i];
    struct nd_quant *weights = &w->quants[2 * i], *bias = &w->quants[2 * i + 1];
    const struct nd_quant *x = w->edges[product->input].n > 0 ? &w->edges[product->input]
                                                              : &nd_model_edge(w->model, product->input)->quant;
    double most = 0;
    if (x->n != 1)
        return ND_OK;
    for (size_t k = 0; k < product->n_weights; k++)
        most = fmax(most, fabs(product->weights[k]));
    w->codes[2 * i] = copy_of(product->weights, product->n_weights);
    w->codes[2 * i + 1] = copy_of(product->bias, product->n_bias);
    if (w->codes[2 * i] == NULL || w->codes[2 * i + 1] == NULL)
        return nd_fail_memory(err);
    enum nd_status status =
        new_quant(most > 0 ? most / INT8_MAX : 1, product->dtype == ND_DTYPE_U8 ? 128 : 0, weights, err);
    if (status == ND_OK)
        status = new_quant((double)(x->scale[0] * weights->scale[0]), 0, bias, err);
    if (status != ND_OK)
        return status;
    round_all(w->codes[2 * i], product->n_weights, weights, product->dtype);
    w->nodes[w->n_nodes++] =
        (struct nd_recoded_node){product->weights_node, weights, w->codes[2 * i], product->n_weights};
    if (product->n_bias == 0)
        return ND_OK;
    round_all(w->codes[2 * i + 1], product->n_bias, bias, ND_DTYPE_I32);
    w->nodes[w->n_nodes++] =
        (struct nd_recoded_node){product->bias_node, bias, w->codes[2 * i + 1], product->n_bias};
    return ND_OK;
}

static enum nd_status recode_all(struct work *w, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < w->pairs->n; p++)
        for (size_t b = 0; b < w->pairs->items[p].n_between && w->is_on[p] && status == ND_OK; b++)
            status = fit_edge(w, p, b, err);
    for (size_t i = 0; i < w->pairs->n_products && status == ND_OK; i++)
        if (w->is_changed[i])
            status = recode(w, i, err);
    for (size_t n = 0; n < w->model->graph.n_nodes && status == ND_OK; n++) {
        size_t edge = nd_quantiser_edge(w->model, n);
        if (edge != ND_NO_INDEX && w->edges[edge].n > 0)
            w->nodes[w->n_nodes++] = (struct nd_recoded_node){.node = n, .quant = &w->edges[edge]};
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
    for (int round = 0; round < MOST_ROUNDS && moved > settled && status == ND_OK; round++) {
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
