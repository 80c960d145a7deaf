/* Changes of one layer's quantisation that could help, each with what it does to the tensor itself. */
#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/items.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "quantisation/study.h"

enum { BITS = 8, WIDE_BITS = 16 };
/* The part of the error that a kind of remedy has to be about, and the gain at the tensor that is worth a
 * trial, in dB: chosen. */
static const double min_part = 0.1, min_own_gain = 0.5;
/* Values that a range may give up: at the tensor their error is great, at the outputs it may be nothing. */
static const double outer_share = 1e-3;

/* A new one without changes; there is room for all that a layer has. */
static struct nd_candidate *add_candidate(struct nd_search *search, size_t step, enum nd_remedy_kind kind)
{
    struct nd_candidate *c = &search->candidates[search->n];
    *c = (struct nd_candidate){
        .step = step, .remedy = {.kind = kind, .low = NAN, .high = NAN}, .watched = SIZE_MAX};
    search->n++; /* there are ND_MAX_CANDIDATES for each layer, more than any has */
    return c;
}

static void nd_equalised_deinit(struct nd_equalised *equalised)
{
    ND_DEINIT_EACH(nd_array_deinit, equalised->values, equalised->n_values);
    free(equalised->changes);
    *equalised = (struct nd_equalised){0};
}

void nd_search_deinit(struct nd_search *search)
{
    for (size_t i = 0; search->candidates != NULL && i < search->n; i++) {
        free(search->candidates[i].remedy.text);
        for (size_t k = 0; k < ND_LOSS_CONSTANTS; k++)
            nd_array_deinit(&search->candidates[i].values[k]);
        nd_equalised_deinit(&search->candidates[i].equalised);
    }
    free(search->candidates);
}

/* ---- ranges ---- */

/* Operators after which a tensor has the quantised values of its input. */
static bool only_moves(const char *op_types)
{
    return ND_IS_ONE_OF(op_types, "Reshape", "Transpose", "Flatten", "Squeeze", "Unsqueeze", "MaxPool", "Slice",
                        "Split", "Gather", "Identity", "Expand", "Tile", "requantise", "DepthToSpace",
                        "SpaceToDepth");
}

/* The step, and what moves its quantised values on: they share a quantiser, and get the new one together. */
static void change_range(const struct nd_study *study, struct nd_candidate *c, const struct nd_fit *fit)
{
    c->changes[c->n_changes++] = (struct nd_change){.step = c->step, .is_range = true, .fit = *fit};
    for (size_t s = c->step + 1; s < study->plan->n_steps && c->n_changes < ND_MAX_TIED; s++) {
        const struct nd_explained_step *step = &study->plan->steps[s];
        bool is_tied = step->is_layer && only_moves(step->op_types) &&
                       nd_quant_is_same(&nd_plan_tensor(study->plan, s)->quant,
                                        &nd_plan_tensor(study->plan, c->step)->quant);
        bool is_fed = false;
        for (size_t i = 0; i < step->n_inputs && is_tied; i++)
            for (size_t k = 0; k < c->n_changes; k++)
                is_fed = is_fed || c->changes[k].step == step->inputs[i];
        if (is_tied && is_fed)
            c->changes[c->n_changes++] = (struct nd_change){.step = s, .is_range = true, .fit = *fit};
    }
}

static double gain_db(double before, double after)
{
    return after > 0 ? 10 * log10(before / after) : before > 0 ? HUGE_VAL : 0;
}

/* The range of the quantised values that this range gets; says it. */
static enum nd_status say_range(struct nd_candidate *c, const struct nd_fit *fit, const struct nd_fit *old,
                                const struct nd_value_facts *facts, struct nd_error *err)
{
    const struct nd_range range = nd_range_of_fit(fit), had = nd_range_of_fit(old);
    struct nd_strbuf text = {0};
    const char *verb = range.low >= had.low && range.high <= had.high   ? "narrow"
                       : range.low <= had.low && range.high >= had.high ? "widen"
                                                                        : "change";
    c->remedy.low = range.low;
    c->remedy.high = range.high;
    if (c->remedy.kind == ND_REMEDY_16_BITS)
        nd_strbuf_printf(&text, "16 bits for its output");
    else
        nd_strbuf_printf(&text, "%s its range to [%.3g, %.3g] (%s)", verb, range.low, range.high,
                         c->remedy.method);
    if (c->remedy.kind == ND_REMEDY_RANGE && facts->has_mask &&
        (facts->mask < range.low || facts->mask > range.high))
        nd_strbuf_printf(&text, ", which turns the constant %.3g into %.3g", facts->mask,
                         facts->mask < range.low ? range.low : range.high);
    c->remedy.text = nd_strbuf_take(&text);
    return c->remedy.text != NULL ? ND_OK : nd_fail_memory(err);
}

/* A range that is tried already: to 2 % of its width. */
static bool is_tried(const struct nd_search *search, size_t step, const struct nd_fit *fit)
{
    const struct nd_range range = nd_range_of_fit(fit);
    double near = 0.02 * (range.high - range.low);
    for (size_t i = 0; i < search->n; i++) {
        const struct nd_remedy *other = &search->candidates[i].remedy;
        if (search->candidates[i].step == step && other->kind == ND_REMEDY_RANGE &&
            fabs(other->low - range.low) <= near && fabs(other->high - range.high) <= near)
            return true;
    }
    return false;
}

static enum nd_status try_range(struct nd_search *search, size_t step, const struct nd_value_facts *facts,
                                const struct nd_fit *fit, const char *method, struct nd_error *err)
{
    const struct nd_fit old = nd_fit_of_step(search->study, step);
    bool is_wide = fit->high_qvalue - fit->low_qvalue > old.high_qvalue - old.low_qvalue;
    size_t tail = (size_t)((double)facts->n * outer_share / 2), n = facts->n - 2 * tail;
    double own =
        gain_db(nd_fit_error(&old, facts->sorted, facts->n), nd_fit_error(fit, facts->sorted, facts->n));
    double inner =
        gain_db(nd_fit_error(&old, facts->sorted + tail, n), nd_fit_error(fit, facts->sorted + tail, n));
    if ((own < min_own_gain && inner < min_own_gain) || (!is_wide && is_tried(search, step, fit)))
        return ND_OK;
    struct nd_candidate *c = add_candidate(search, step, is_wide ? ND_REMEDY_16_BITS : ND_REMEDY_RANGE);
    c->remedy.method = is_wide ? NULL : method;
    c->remedy.own_gain_db = own;
    change_range(search->study, c, fit);
    return say_range(c, fit, &old, facts, err);
}

/* How far below the other values a mask may be put, so that a Softmax still takes it for nothing: e^-4 to
 * e^-16. The outputs decide. */
static enum nd_status try_masks(struct nd_search *search, size_t step, const struct nd_value_facts *facts,
                                struct nd_error *err)
{
    static const double distances[] = {4, 8, 16};
    const struct nd_fit old = nd_fit_of_step(search->study, step);
    for (size_t i = 0; i < sizeof distances / sizeof distances[0]; i++) {
        struct nd_range range = {facts->low, facts->high};
        if (facts->mask < facts->low)
            range.low -= distances[i];
        else
            range.high += distances[i];
        const struct nd_fit fit = nd_fit_range(range, old.low_qvalue, old.high_qvalue);
        ND_TRY(try_range(search, step, facts, &fit, "without the constant", err));
    }
    return ND_OK;
}

static enum nd_status try_wide(struct nd_search *search, size_t step, const struct nd_value_facts *facts,
                               struct nd_error *err)
{
    const struct nd_quantised_layer *layer = &search->study->out->layers[step];
    const struct nd_range range = {layer->value_low, layer->value_high};
    const struct nd_fit fit = nd_fit_range(range, 0, ldexp(1, WIDE_BITS) - 1);
    return try_range(search, step, facts, &fit, NULL, err);
}

static enum nd_status try_ranges(struct nd_search *search, size_t step, const struct nd_value_facts *facts,
                                 struct nd_error *err)
{
    const struct nd_study *study = search->study;
    const struct nd_quantised_layer *layer = &study->out->layers[step];
    const struct nd_fit old = nd_fit_of_step(study, step);
    bool is_narrow = nd_dtype_size_bytes(nd_plan_tensor(study->plan, step)->dtype) == 1;
    enum nd_status status = facts->has_mask ? try_masks(search, step, facts, err) : ND_OK;
    for (int m = 0; m < ND_N_CALIBRATIONS && status == ND_OK; m++) {
        struct nd_range range =
            nd_calibrate((enum nd_calibration)m, facts->sorted, facts->n, old.high_qvalue - old.low_qvalue + 1);
        if (m == ND_CALIBRATE_MIN_MAX && !facts->has_mask) /* of all values, not only of those that were kept */
            range = (struct nd_range){layer->value_low, layer->value_high};
        const struct nd_fit fit = nd_fit_range(range, old.low_qvalue, old.high_qvalue);
        status = try_range(search, step, facts, &fit, nd_calibration_name((enum nd_calibration)m), err);
    }
    return status == ND_OK && is_narrow ? try_wide(search, step, facts, err) : status;
}

/* ---- constants ---- */

static void change_constant(struct nd_candidate *c, const struct nd_exact_constant *constant)
{
    c->changes[c->n_changes] =
        (struct nd_change){.step = c->step, .tensor = constant->tensor, .values = &c->values[c->n_changes]};
    c->n_changes++;
}

/* Which constants a remedy is about. */
static bool concerns(enum nd_remedy_kind kind, const struct nd_exact_constant *constant)
{
    bool is_bias = constant->is_bias;
    bool is_narrow = constant->quant != NULL && nd_dtype_size_bytes(constant->dtype) == 1;
    if (kind == ND_REMEDY_BIAS)
        return is_bias && constant->quant != NULL;
    if (kind == ND_REMEDY_WEIGHT_CHANNELS)
        return !is_bias && is_narrow && constant->quant->n == 1 && constant->channel_axis >= 0;
    return !is_bias && is_narrow;
}

/* 32-bit quantised values in steps of the products of the layer; the bias itself where it has no products. */
static enum nd_status quantise_bias(const struct nd_study *study, const struct nd_array *before, size_t step,
                                    struct nd_array *out, struct nd_error *err)
{
    ND_FREED struct nd_wide *steps = NULL;
    size_t n = 0;
    struct nd_error ignored = {0};
    enum nd_status status = nd_array_copy(before, out, err);
    bool has_steps =
        status == ND_OK && nd_exact_accumulator_steps(study->plan->graph, study->plan->steps[step].tensor,
                                                      &steps, &n, &ignored) == ND_OK;
    for (size_t i = 0; i < before->n && has_steps && n > 0; i++) {
        double scale = steps[i % n].parts[0];
        out->x[i] = fmin(fmax(rint(before->x[i] / scale), -0x1p31), 0x1p31 - 1) * scale;
    }
    return status;
}

static enum nd_status make_values(const struct nd_study *study, const struct nd_candidate *c,
                                  const struct nd_exact_constant *constant, const struct nd_array *before,
                                  struct nd_array *out, struct nd_error *err)
{
    if (c->remedy.kind == ND_REMEDY_BIAS)
        return quantise_bias(study, before, c->step, out, err);
    bool has_channels = c->remedy.kind == ND_REMEDY_WEIGHT_CHANNELS || constant->quant->n > 1;
    return nd_weights_quantised(before, has_channels ? constant->channel_axis : -1,
                                c->remedy.kind == ND_REMEDY_WEIGHT_16_BITS ? WIDE_BITS : BITS, out, err);
}

static enum nd_status try_constants(struct nd_search *search, size_t step, enum nd_remedy_kind kind,
                                    struct nd_error *err)
{
    static const char *const texts[] = {[ND_REMEDY_WEIGHT_CHANNELS] =
                                            "8-bit weights with one scale for each channel",
                                        [ND_REMEDY_WEIGHT_16_BITS] = "16-bit weights",
                                        [ND_REMEDY_BIAS] = "32-bit biases in steps of the products"};
    const struct nd_study *study = search->study;
    struct nd_exact_constant all[ND_LOSS_CONSTANTS];
    size_t n =
        nd_exact_layer_constants(study->plan->graph, study->plan->steps[step].tensor, all, ND_LOSS_CONSTANTS);
    struct nd_candidate *c = add_candidate(search, step, kind);
    double before_mean_square = 0, after_mean_square = 0;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        const struct nd_array *before =
            concerns(kind, &all[i]) ? nd_exact_constant_before(study->plan->float_graph, &all[i]) : NULL;
        if (before == NULL)
            continue;
        struct nd_array *values = &c->values[c->n_changes];
        status = nd_pair_hold(study->plan, &all[i], before, err);
        if (status != ND_OK)
            break;
        status = make_values(study, c, &all[i], before, values, err);
        if (status == ND_OK) {
            before_mean_square += nd_mean_square_between(all[i].real, before) * (double)before->n;
            after_mean_square += nd_mean_square_between(values, before) * (double)before->n;
            change_constant(c, &all[i]);
        }
        nd_pair_release(study->plan, &all[i], before);
    }
    c->remedy.own_gain_db = gain_db(before_mean_square, after_mean_square);
    c->remedy.text = status == ND_OK ? nd_strdup(texts[kind]) : NULL;
    if (status == ND_OK && c->remedy.text == NULL)
        status = nd_fail_memory(err);
    if (c->remedy.own_gain_db < min_own_gain) /* also where nothing is concerned */
        c->n_changes = 0;
    return status;
}

/* Whether a sample is used where effects and gains are measured. */
static bool is_judged(const struct nd_study *study, size_t k)
{
    for (size_t i = 0; i < study->n_effect_samples; i++)
        if (nd_effect_sample(study, i) == k)
            return true;
    return false;
}

/* The mean error of a channel of the constants: of samples in which the gain is not measured, if any. */
static double shift_of(const struct nd_study *study, size_t step, size_t channel)
{
    const struct nd_loss_channels *channels = &study->channels[step];
    bool has_others = study->n_samples > study->n_effect_samples;
    double sum = 0, n = 0;
    for (size_t k = 0; k < study->n_samples; k++) {
        if (has_others && is_judged(study, k))
            continue;
        sum += channels->shift[k * channels->n + channel];
        n += (double)study->sums[k * study->plan->n_steps + step].n / (double)channels->n;
    }
    return n > 0 ? sum / n : 0;
}

/* Biases that take back what the rounding of the weights adds on average: it costs nothing on the device. */
static enum nd_status try_shift(struct nd_search *search, size_t step, struct nd_error *err)
{
    const struct nd_study *study = search->study;
    const struct nd_loss_channels *channels = &study->channels[step];
    struct nd_exact_constant all[ND_LOSS_CONSTANTS];
    size_t n =
        nd_exact_layer_constants(study->plan->graph, study->plan->steps[step].tensor, all, ND_LOSS_CONSTANTS);
    double mean_square = 0, constants = study->out->layers[step].constants;
    size_t bias = 0;
    while (bias < n && !(all[bias].is_bias && all[bias].real->n == channels->n))
        bias++;
    if (bias == n || channels->n == 0)
        return ND_OK;
    for (size_t c = 0; c < channels->n; c++)
        mean_square += shift_of(study, step, c) * shift_of(study, step, c) / (double)channels->n;
    double own = gain_db(constants, fmax(constants - mean_square, 0));
    if (own < min_own_gain)
        return ND_OK;
    struct nd_candidate *candidate = add_candidate(search, step, ND_REMEDY_BIAS_SHIFT);
    ND_TRY(nd_pair_hold(study->plan, &all[bias], NULL, err));
    enum nd_status status = nd_array_copy(all[bias].real, &candidate->values[0], err);
    nd_pair_release(study->plan, &all[bias], NULL);
    for (size_t c = 0; c < channels->n && status == ND_OK; c++)
        candidate->values[0].x[c] -= shift_of(study, step, c);
    if (status != ND_OK)
        return status;
    change_constant(candidate, &all[bias]);
    candidate->remedy.own_gain_db = own;
    candidate->remedy.text = nd_strdup("biases that take back the mean error of its weights");
    return candidate->remedy.text != NULL ? ND_OK : nd_fail_memory(err);
}

/* ---- cross-layer equalisation of a pair: factors, and what the outputs say of them ---- */

/* Rounds over all pairs, of which neighbours pull at each other, at most: chosen. */
enum { MAX_ROUNDS = 32 };
/* The rounds end when no factor changes by more than this share: chosen. */
static const double settled = 0.01;
/* A channel whose greatest value is within this share of a Clip's bound may be clipped by others: chosen. */
static const double clear_of_bound = 0.9;

/* ---- weights of one scale ---- */

/* The quantiser of one scale that covers the weights, from least to greatest, or as far on both sides. */
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
    ND_FREE_ITEMS(w->factors, w->n);
    ND_FREE_ALL(w->layers, w->first, w->second);
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

/* Factors that give a channel the same part of the scale of both layers. *moved: by how much they moved. */
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

/* pairs[n]: of study->pairs, in their order. deinit in any case, also of a zeroed one. ND_ERR_MEMORY. */
static enum nd_status nd_equalise(const struct nd_study *study, const size_t *pairs, size_t n,
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

/* Cross-layer equalisation of the pairs of one layer, and of the whole model. */

/* Factors that differ by less gain nothing that is worth a trial: half a bit. Chosen. */
static const double min_spread = 1.5;

/* Whether values of all tensors that the pair scales are known. */
static bool is_known(const struct nd_study *study, const struct nd_pair *pair)
{
    for (size_t i = 0; i < pair->n_between; i++)
        if (!study->out->layers[pair->between[i].step].is_known)
            return false;
    return study->out->layers[pair->second.step].is_known;
}

static enum nd_status say(struct nd_candidate *c, const struct nd_study *study, const size_t *pairs, size_t n,
                          struct nd_error *err)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, "cross-layer equalisation with ");
    for (size_t i = 0; i < n; i++) {
        const struct nd_pair *pair = &study->pairs[pairs[i]];
        size_t other = pair->first.step == c->step ? pair->second.step : pair->first.step;
        c->remedy.partners[c->remedy.n_partners++] = other;
        nd_strbuf_printf(&text, "%s'%s'", i > 0 ? " and " : "", study->plan->steps[other].name);
    }
    nd_strbuf_printf(&text, " (channels divided by %.2g to %.2g)", c->equalised.least, c->equalised.most);
    c->remedy.text = nd_strbuf_take(&text);
    return c->remedy.text != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status try_pairs(struct nd_search *search, size_t step, const size_t *pairs, size_t n,
                                struct nd_error *err)
{
    const struct nd_study *study = search->study;
    struct nd_equalised equalised;
    enum nd_status status = nd_equalise(study, pairs, n, &equalised, err);
    bool is_worth_it = equalised.most > min_spread * equalised.least;
    if (status != ND_OK || !is_worth_it || equalised.n_changes > ND_MAX_TIED) {
        nd_equalised_deinit(&equalised);
        return status;
    }
    struct nd_candidate *c = add_candidate(search, step, ND_REMEDY_EQUALISE);
    c->equalised = equalised;
    c->n_changes = equalised.n_changes;
    c->watched = study->pairs[pairs[n - 1]].second.step;
    memcpy(c->changes, equalised.changes, equalised.n_changes * sizeof *equalised.changes);
    return say(c, study, pairs, n, err);
}

/* Adds the equalisations of the layer with the one before it, with the one after it, and with both. */
static enum nd_status try_equalising(struct nd_search *search, size_t step, struct nd_error *err)
{
    const struct nd_study *study = search->study;
    size_t found[2], n = 0;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < study->n_pairs && n < 2; p++) {
        const struct nd_pair *pair = &study->pairs[p];
        if ((pair->first.step == step || pair->second.step == step) && is_known(study, pair))
            found[n++] = p;
    }
    for (size_t i = 0; i < n && status == ND_OK; i++)
        status = try_pairs(search, step, &found[i], 1, err);
    return n == 2 && status == ND_OK ? try_pairs(search, step, found, n, err) : status;
}

enum nd_status nd_find_candidates(struct nd_search *search, size_t step, struct nd_error *err)
{
    const struct nd_quantised_layer *layer = &search->study->out->layers[step];
    double parts = layer->rounding + layer->clipping + layer->constants;
    bool is_of_constants = layer->constants >= min_part * parts;
    for (int kind = ND_REMEDY_WEIGHT_CHANNELS; kind <= ND_REMEDY_BIAS && is_of_constants; kind++)
        ND_TRY(try_constants(search, step, (enum nd_remedy_kind)kind, err));
    if (is_of_constants)
        ND_TRY(try_shift(search, step, err));
    ND_TRY(try_equalising(search, step, err)); /* about weights, and about the tensor between the layers */
    bool is_of_range = layer->cause == ND_LOSS_MASK || layer->rounding + layer->clipping >= min_part * parts;
    if (!is_of_range || !nd_plan_has_range(search->study->plan, step))
        return ND_OK;
    ND_CLEANUP(nd_value_facts_deinit) struct nd_value_facts facts = {0};
    ND_TRY(nd_loss_value_facts(&search->study->values[step], &facts, err));
    return facts.n > 0 ? try_ranges(search, step, &facts, err) : ND_OK;
}

/* A mask at a distance of 16 from the other values: e^-16 is nothing to a Softmax. */
static enum nd_status try_one_mask(struct nd_search *search, size_t step, const struct nd_value_facts *facts,
                                   struct nd_error *err)
{
    const struct nd_fit old = nd_fit_of_step(search->study, step);
    double below = facts->mask < facts->low ? 16 : 0;
    const struct nd_range range = {facts->low - below, facts->high + 16 - below};
    const struct nd_fit fit = nd_fit_range(range, old.low_qvalue, old.high_qvalue);
    return try_range(search, step, facts, &fit, "without the constant", err);
}

enum nd_status nd_find_candidate(struct nd_search *search, size_t step, enum nd_remedy_kind kind,
                                 struct nd_error *err)
{
    const struct nd_study *study = search->study;
    if (kind == ND_REMEDY_WEIGHT_CHANNELS)
        return try_constants(search, step, kind, err);
    if (!nd_plan_has_range(study->plan, step) ||
        nd_dtype_size_bytes(nd_plan_tensor(study->plan, step)->dtype) > 1)
        return ND_OK;
    if (kind == ND_REMEDY_RANGE && isnan(study->out->layers[step].mask))
        return ND_OK;
    ND_CLEANUP(nd_value_facts_deinit) struct nd_value_facts facts = {0};
    enum nd_status status = nd_loss_value_facts(&study->values[step], &facts, err);
    if (status == ND_OK && facts.n > 0 && kind == ND_REMEDY_16_BITS)
        status = try_wide(search, step, &facts, err);
    else if (status == ND_OK && facts.has_mask && kind == ND_REMEDY_RANGE)
        status = try_one_mask(search, step, &facts, err);
    return status;
}

/* Of all pairs of the model. */
static enum nd_status equalise_all(const struct nd_study *study, struct nd_equalised *out, struct nd_error *err)
{
    size_t n = 0;
    ND_FREED size_t *pairs = nd_calloc(study->n_pairs, sizeof *pairs);
    *out = (struct nd_equalised){0};
    ND_TRY_MEMORY(pairs != NULL, err);
    for (size_t p = 0; p < study->n_pairs; p++)
        if (is_known(study, &study->pairs[p]))
            pairs[n++] = p;
    return n > 0 ? nd_equalise(study, pairs, n, out, err) : ND_OK;
}

/* Remedies of the model as a whole: one kind of change in all layers that it concerns. Layers that share a
 * cause hide each other: no single one of them gives the accuracy back. */

/* What is tried, and the least gain at the outputs that is worth telling, in dB: chosen. */
static const struct {
    enum nd_remedy_kind kind;
    const char *text;
} kinds[] = {{ND_REMEDY_RANGE, "ranges without mask constants"},
             {ND_REMEDY_WEIGHT_CHANNELS, "8-bit weights with one scale for each channel"},
             {ND_REMEDY_16_BITS, "16-bit outputs"},
             {ND_REMEDY_EQUALISE, "cross-layer equalisation"}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };
static const double min_gain = 0.5;

/* The changes of all candidates: a new array. NULL: out of memory. */
static struct nd_change *join(const struct nd_search *search, size_t *n_changes, size_t *n_layers)
{
    struct nd_change *changes = nd_calloc(search->n * ND_MAX_TIED, sizeof *changes);
    *n_changes = *n_layers = 0;
    for (size_t i = 0; i < search->n && changes != NULL; i++) {
        const struct nd_candidate *c = &search->candidates[i];
        *n_layers += c->n_changes > 0;
        for (size_t k = 0; k < c->n_changes; k++)
            changes[(*n_changes)++] = c->changes[k];
    }
    return changes;
}

static void tell(struct nd_quantisation *out, const struct nd_whole_remedy *remedy)
{
    size_t at = out->n_whole++;
    for (; at > 0 && out->whole[at - 1].output_gain_db < remedy->output_gain_db; at--)
        out->whole[at] = out->whole[at - 1];
    out->whole[at] = *remedy;
}

/* One kind of change while it is tried. */
struct attempt {
    struct nd_search search;
    struct nd_equalised equalised;
    struct nd_change *changes; /* of the search */
    size_t n_changes;
    struct nd_whole_remedy remedy;
};

static enum nd_status find_changes(struct nd_study *study, size_t kind, struct attempt *attempt,
                                   struct nd_error *err)
{
    size_t n_steps = study->plan->n_steps;
    attempt->search = (struct nd_search){study, nd_calloc(n_steps, sizeof *attempt->search.candidates), 0};
    attempt->remedy = (struct nd_whole_remedy){.kind = kinds[kind].kind, .text = kinds[kind].text};
    ND_TRY(attempt->search.candidates != NULL ? ND_OK : nd_fail_memory(err));
    for (size_t s = 0; s < n_steps; s++)
        if (study->out->layers[s].is_known)
            ND_TRY(nd_find_candidate(&attempt->search, s, kinds[kind].kind, err));
    attempt->changes = join(&attempt->search, &attempt->n_changes, &attempt->remedy.n_layers);
    return attempt->changes != NULL ? ND_OK : nd_fail_memory(err);
}

/* Of all pairs of layers, which move each other: not layer by layer. */
static enum nd_status equalise(struct nd_study *study, size_t kind, struct attempt *attempt,
                               struct nd_error *err)
{
    enum nd_status status = equalise_all(study, &attempt->equalised, err);
    attempt->remedy = (struct nd_whole_remedy){
        .kind = kinds[kind].kind, .text = kinds[kind].text, .n_layers = attempt->equalised.n_layers};
    attempt->n_changes = attempt->equalised.n_changes;
    return status;
}

static const struct nd_change *changes_of(const struct attempt *attempt)
{
    return attempt->changes != NULL ? attempt->changes : attempt->equalised.changes;
}

/* Whether it is more than what layers say of themselves: more than one layer, or than one pair. */
static bool is_of_many(const struct attempt *attempt)
{
    return attempt->remedy.n_layers > (attempt->remedy.kind == ND_REMEDY_EQUALISE ? 2 : 1);
}

/* All kinds in one run of the samples. */
static enum nd_status try_all(struct nd_study *study, struct attempt *attempts, struct nd_error *err)
{
    struct nd_trial trials[N_KINDS];
    size_t n = 0;
    for (size_t kind = 0; kind < N_KINDS; kind++)
        if (is_of_many(&attempts[kind]))
            trials[n++] = (struct nd_trial){.changes = changes_of(&attempts[kind]),
                                            .n_changes = attempts[kind].n_changes,
                                            .watched = SIZE_MAX};
    enum nd_status status = nd_run_trials(study, trials, n, err);
    n = 0;
    for (size_t kind = 0; kind < N_KINDS && status == ND_OK; kind++) {
        struct nd_whole_remedy *remedy = &attempts[kind].remedy;
        if (!is_of_many(&attempts[kind]))
            continue;
        remedy->output_gain_db = trials[n++].sqnr_db - study->out->output_sqnr_db;
        if (remedy->output_gain_db >= min_gain)
            tell(study->out, remedy);
    }
    return status;
}

enum nd_status nd_find_whole_remedies(struct nd_study *study, struct nd_error *err)
{
    struct attempt attempts[N_KINDS] = {0};
    study->out->whole = nd_calloc(N_KINDS, sizeof *study->out->whole);
    enum nd_status status = study->out->whole != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t kind = 0; kind < N_KINDS && status == ND_OK; kind++)
        status = kinds[kind].kind == ND_REMEDY_EQUALISE ? equalise(study, kind, &attempts[kind], err)
                                                        : find_changes(study, kind, &attempts[kind], err);
    if (status == ND_OK)
        status = try_all(study, attempts, err);
    for (size_t kind = 0; kind < N_KINDS; kind++) {
        free(attempts[kind].changes);
        nd_equalised_deinit(&attempts[kind].equalised);
        nd_search_deinit(&attempts[kind].search);
    }
    return status;
}
