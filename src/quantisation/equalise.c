/* Cross-layer equalisation of a pair: factors, and what the outputs say of them. */
#include "quantisation/study.h"

#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/memory.h"

/* Rounds over all pairs, of which neighbours pull at each other, at most: chosen. */
enum { MAX_ROUNDS = 32 };
/* The rounds end when no factor changes by more than this share: chosen. */
static const double settled = 0.01;
/* A channel whose greatest value is within this share of the bound of a Clip may be clipped by other inputs.
 * Chosen. */
static const double clear_of_bound = 0.9;

/* ---- weights of one scale ---- */

/* The quantiser of one scale that covers the weights, from the least to the greatest, or as far on both sides.
 */
static struct nd_fit fit_weights(enum nd_dtype dtype, const struct nd_array *weights, bool is_symmetric)
{
    double low_qvalue, high_qvalue;
    struct nd_range range = {0, 0};
    nd_qvalue_range(dtype, &low_qvalue, &high_qvalue);
    for (size_t i = 0; i < weights->n; i++) {
        range.low = fmin(range.low, weights->x[i]);
        range.high = fmax(range.high, weights->x[i]);
    }
    if (is_symmetric) {
        range.high = fmax(-range.low, range.high);
        range.low = -range.high;
        low_qvalue += low_qvalue < 0; /* -127 to 127 */
    }
    return nd_fit_range(range, low_qvalue, high_qvalue);
}

/* Whether weights were quantised symmetrically: what gives more nearly the scale that they have. */
static bool is_symmetric(const struct nd_exact_constant *constant, const struct nd_array *before)
{
    double scale = (double)constant->quant->scale[0];
    double off = fabs(log(fit_weights(constant->dtype, before, false).scale / scale));
    return fabs(log(fit_weights(constant->dtype, before, true).scale / scale)) <= off;
}

/* ---- what is scaled ---- */

/* A layer of one pair or two, and its weights as they are scaled. */
struct scaled {
    const struct nd_pair_layer *layer;
    struct nd_array *weights, *bias; /* in nd_equalised.values; NULL: the biases stay */
    bool is_symmetric;
};

struct work {
    const struct nd_study *study;
    const size_t *pairs;
    size_t n;               /* pairs */
    double **factors;       /* [n][n_channels of the pair] */
    struct scaled *layers;  /* [n_layers] */
    size_t *first, *second; /* [n] of layers */
    size_t n_layers;
    struct nd_equalised *out;
};

static const struct nd_pair *pair_of(const struct work *w, size_t i)
{
    return &w->study->pairs[w->pairs[i]];
}

/* Of a constant that may have been let go. */
static enum nd_status copy_constant(const struct nd_exact_graph *graph, const struct nd_array *constant,
                                    struct nd_array *out, struct nd_error *err)
{
    ND_TRY(nd_exact_hold(graph, constant, err));
    enum nd_status status = nd_array_copy(constant, out, err);
    nd_exact_release(graph, constant);
    return status;
}

static enum nd_status add_layer(struct work *w, const struct nd_pair_layer *layer, size_t *at,
                                struct nd_error *err)
{
    for (*at = 0; *at < w->n_layers; (*at)++)
        if (w->layers[*at].layer->step == layer->step)
            return ND_OK;
    struct nd_array *copy = &w->out->values[w->out->n_values];
    ND_TRY(copy_constant(w->study->plan->float_graph, layer->before, copy, err));
    w->out->n_values++;
    w->layers[w->n_layers++] =
        (struct scaled){.layer = layer, .weights = copy, .is_symmetric = is_symmetric(&layer->weights, copy)};
    return ND_OK;
}

static enum nd_status add_bias(struct work *w, struct scaled *layer, struct nd_error *err)
{
    struct nd_array *copy = &w->out->values[w->out->n_values];
    if (!layer->layer->has_bias || layer->bias != NULL)
        return ND_OK;
    /* With the error that its quantised values have: they are a different remedy's. */
    ND_TRY(copy_constant(w->study->plan->graph, layer->layer->bias.real, copy, err));
    w->out->n_values++;
    layer->bias = copy;
    return ND_OK;
}

static enum nd_status begin(struct work *w, struct nd_error *err)
{
    size_t n_changes = 0;
    for (size_t i = 0; i < w->n; i++)
        n_changes += 4 + pair_of(w, i)->n_between;
    w->factors = nd_calloc(w->n, sizeof *w->factors);
    w->layers = nd_calloc(2 * w->n, sizeof *w->layers);
    w->first = nd_calloc(w->n, sizeof *w->first);
    w->second = nd_calloc(w->n, sizeof *w->second);
    w->out->values = nd_calloc(4 * w->n, sizeof *w->out->values);
    w->out->changes = nd_calloc(n_changes, sizeof *w->out->changes);
    ND_TRY_MEMORY(w->factors != NULL && w->layers != NULL && w->first != NULL && w->second != NULL &&
                      w->out->values != NULL && w->out->changes != NULL,
                  err);
    for (size_t i = 0; i < w->n; i++) {
        ND_TRY(add_layer(w, &pair_of(w, i)->first, &w->first[i], err));
        ND_TRY(add_layer(w, &pair_of(w, i)->second, &w->second[i], err));
        ND_TRY(add_bias(w, &w->layers[w->first[i]], err));
        w->factors[i] = nd_calloc(pair_of(w, i)->n_channels, sizeof **w->factors);
        ND_TRY_MEMORY(w->factors[i] != NULL, err);
        for (size_t c = 0; c < pair_of(w, i)->n_channels; c++)
            w->factors[i][c] = 1;
    }
    return ND_OK;
}

static void end(struct work *w)
{
    for (size_t i = 0; i < w->n && w->factors != NULL; i++)
        free(w->factors[i]);
    ND_FREE_ALL(w->factors, w->layers, w->first, w->second);
}

/* ---- factors ---- */

/* The least and the greatest value of the float model in a channel, of all samples. */
static struct nd_range reach_of(const struct nd_study *study, const struct nd_pair *pair, size_t between,
                                size_t channel)
{
    struct nd_range reach = {HUGE_VAL, -HUGE_VAL};
    for (size_t k = 0; k < study->n_samples; k++) {
        reach.low = fmin(reach.low, pair->between[between].low[k * pair->n_channels + channel]);
        reach.high = fmax(reach.high, pair->between[between].high[k * pair->n_channels + channel]);
    }
    return reach;
}

/* The least factor with which the channel stays clear of the bounds of Clips. */
static double min_factor(const struct nd_study *study, const struct nd_pair *pair, size_t channel)
{
    double least = 0;
    for (size_t i = 0; i < pair->n_between; i++) {
        struct nd_range reach = reach_of(study, pair, i, channel);
        least = fmax(least, reach.high / (clear_of_bound * pair->between[i].bound_high));
        least = fmax(least, reach.low / (clear_of_bound * pair->between[i].bound_low));
    }
    return least;
}

/* By channel of a pair. */
struct room {
    size_t n;
    double *first, *second; /* the largest weights */
    double *least;          /* factors */
    double *change;         /* of the factors, in this round */
};

/* sizes[channels]: the largest magnitudes. */
static void measure(const struct scaled *layer, bool is_output, double *sizes, size_t n)
{
    memset(sizes, 0, n * sizeof *sizes);
    size_t inner = layer->layer->axes.inner;
    for (size_t first = 0; first < layer->weights->n; first += inner) {
        double *size = &sizes[nd_weight_channel(&layer->layer->axes, is_output, first)];
        for (size_t i = first; i < first + inner; i++)
            *size = fabs(layer->weights->x[i]) > *size ? fabs(layer->weights->x[i]) : *size;
    }
}

static void scale(struct nd_array *weights, const struct nd_weight_axes *axes, bool is_output,
                  const double *factors)
{
    for (size_t first = 0; first < weights->n; first += axes->inner) {
        double factor = factors[nd_weight_channel(axes, is_output, first)];
        for (size_t i = first; i < first + axes->inner; i++)
            weights->x[i] = is_output ? weights->x[i] / factor : weights->x[i] * factor;
    }
}

/* What the others are scaled to: the largest channel of those that keep their size, since a Clip cuts them off
 * (least[c] > 1), or of all where there are none. So the scales of both tensors of weights stay as far apart as
 * they are, which matters to the channels that keep their size, and to the bounds of Clips. */
static double size_of_kept(const double *sizes, const double *least, size_t n)
{
    double kept = 0, all = 0;
    for (size_t c = 0; c < n; c++) {
        all = fmax(all, sizes[c]);
        if (least[c] > 1)
            kept = fmax(kept, sizes[c]);
    }
    return kept > 0 ? kept : all;
}

/* Factors with which a channel has the same part of the scale of both layers. *moved: by how much they moved.
 */
static void find_factors(const struct room *room, double *factors, double *moved)
{
    double of_first = size_of_kept(room->first, room->least, room->n);
    double of_second = size_of_kept(room->second, room->least, room->n);
    for (size_t c = 0; c < room->n; c++) {
        double first = room->first[c] / of_first, second = room->second[c] / of_second;
        double wanted = first > 0 && second > 0 ? factors[c] * sqrt(first / second) : factors[c];
        wanted = room->least[c] > 1 ? 1 : fmax(wanted, room->least[c]);
        room->change[c] = wanted / factors[c];
        factors[c] = wanted;
        *moved = fmax(*moved, fabs(log(room->change[c])));
    }
}

/* One round of one pair. */
static enum nd_status balance(struct work *w, size_t i, double *moved, struct nd_error *err)
{
    const struct nd_pair *pair = pair_of(w, i);
    struct scaled *first = &w->layers[w->first[i]], *second = &w->layers[w->second[i]];
    size_t n = pair->n_channels;
    ND_FREED double *all = nd_calloc(4 * n, sizeof *all);
    ND_TRY_MEMORY(all != NULL, err);
    const struct room room = {
        .n = n, .first = all, .second = all + n, .least = all + 2 * n, .change = all + 3 * n};
    measure(first, true, room.first, n);
    measure(second, false, room.second, n);
    for (size_t c = 0; c < n; c++)
        room.least[c] = min_factor(w->study, pair, c);
    find_factors(&room, w->factors[i], moved);
    scale(first->weights, &first->layer->axes, true, room.change);
    for (size_t c = 0; c < n && first->bias != NULL; c++)
        first->bias->x[c] /= room.change[c];
    scale(second->weights, &second->layer->axes, false, room.change);
    return ND_OK;
}

/* ---- quantised again ---- */

/* The range of the tensor becomes smaller or larger as its values do: what calibration gave up, or left free,
 * stays so. */
static struct nd_fit fit_between(const struct work *w, size_t i, size_t between)
{
    const struct nd_pair *pair = pair_of(w, i);
    const struct nd_fit old = nd_fit_of_step(w->study, pair->between[between].step);
    struct nd_range had = {0, 0}, has = {0, 0}, range = nd_range_of_fit(&old);
    for (size_t c = 0; c < pair->n_channels; c++) {
        struct nd_range reach = reach_of(w->study, pair, between, c);
        reach.low = fmax(reach.low, range.low);
        reach.high = fmin(reach.high, range.high);
        had.low = fmin(had.low, reach.low);
        had.high = fmax(had.high, reach.high);
        has.low = fmin(has.low, reach.low / w->factors[i][c]);
        has.high = fmax(has.high, reach.high / w->factors[i][c]);
    }
    double of_low = had.low < 0 ? has.low / had.low : 0, of_high = had.high > 0 ? has.high / had.high : 0;
    range.low *= had.low < 0 ? of_low : of_high;
    range.high *= had.high > 0 ? of_high : of_low;
    return nd_fit_range(range, old.low_qvalue, old.high_qvalue);
}

static void conclude(struct work *w)
{
    struct nd_equalised *out = w->out;
    for (size_t l = 0; l < w->n_layers; l++) {
        const struct scaled *scaled = &w->layers[l];
        const struct nd_array *weights = scaled->weights;
        const struct nd_fit fit = fit_weights(scaled->layer->weights.dtype, weights, scaled->is_symmetric);
        for (size_t i = 0; i < weights->n; i++)
            weights->x[i] = nd_fit_apply(&fit, weights->x[i]);
        out->changes[out->n_changes++] = (struct nd_change){
            .step = scaled->layer->step, .tensor = scaled->layer->weights.tensor, .values = scaled->weights};
        if (scaled->bias != NULL)
            out->changes[out->n_changes++] = (struct nd_change){
                .step = scaled->layer->step, .tensor = scaled->layer->bias.tensor, .values = scaled->bias};
    }
    for (size_t i = 0; i < w->n; i++) {
        const struct nd_pair *pair = pair_of(w, i);
        for (size_t k = 0; k < pair->n_between; k++)
            out->changes[out->n_changes++] = (struct nd_change){
                .step = pair->between[k].step, .is_range = true, .fit = fit_between(w, i, k)};
        for (size_t c = 0; c < pair->n_channels; c++) {
            out->least = fmin(out->least, w->factors[i][c]);
            out->most = fmax(out->most, w->factors[i][c]);
        }
    }
    out->n_layers = w->n_layers;
}

enum nd_status nd_equalise(const struct nd_study *study, const size_t *pairs, size_t n,
                           struct nd_equalised *out, struct nd_error *err)
{
    ND_CLEANUP(end) struct work w = {.study = study, .pairs = pairs, .n = n, .out = out};
    *out = (struct nd_equalised){.least = HUGE_VAL, .most = 0};
    ND_TRY(begin(&w, err));
    double moved = HUGE_VAL;
    for (int round = 0; round < MAX_ROUNDS && moved > settled; round++) {
        moved = 0;
        for (size_t i = 0; i < n; i++)
            ND_TRY(balance(&w, i, &moved, err));
    }
    conclude(&w);
    return ND_OK;
}
