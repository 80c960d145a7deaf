/* Why a layer introduces its error: from the parts of the error, the range of its quantised values, the values
 * of the float model, and its constants. docs/reference/diagnoses.md#quantisation has the criteria. */
#include <math.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "quantisation/study.h"

/* All chosen. The part of what is introduced that names the cause. */
static const double main_part = 0.5;
/* Up to this share of the range is wasted: two bits of eight. */
static const double wasted_below = 0.25;
/* What all values span at least of a range that outliers stretch; less: the range is not these values'. */
static const double stretched_from = 0.5;
/* The share of the range that lies on the empty side of zero, and how far values may reach there. */
static const double empty_side = 0.4, empty_reach = 0.02;
/* Steps that a mask leaves to the other values. */
static const double mask_steps = 16;

const char *nd_loss_cause_name(enum nd_loss_cause cause)
{
    static const char *const names[] = {[ND_LOSS_NONE] = "none",
                                        [ND_LOSS_ROUNDING] = "rounding",
                                        [ND_LOSS_OUTLIERS] = "outliers",
                                        [ND_LOSS_MASK] = "mask",
                                        [ND_LOSS_RANGE] = "range",
                                        [ND_LOSS_ZERO_POINT] = "zero-point",
                                        [ND_LOSS_CLIPPING] = "clipping",
                                        [ND_LOSS_WEIGHT_ROUNDING] = "weight-rounding",
                                        [ND_LOSS_WEIGHT_CHANNELS] = "weight-channels",
                                        [ND_LOSS_BIAS] = "bias",
                                        [ND_LOSS_NOT_FINITE] = "not-finite"};
    return names[cause];
}

/* ---- constants ---- */

/* What the layer's constants say, beyond what the layer keeps of it. */
struct constants {
    double signal, noise;       /* of weights */
    double bias_step;           /* the largest scale of a bias */
    size_t n_bias, n_bias_ends; /* quantised values of biases, and those at an end of their type */
    const char *not_finite;     /* the name of a constant whose scale is infinite or not a number, or NULL */
};

static void look_at_bias(const struct nd_exact_constant *constant, const struct nd_array *before,
                         struct constants *found, struct nd_quantised_layer *layer)
{
    double low, high;
    layer->bias_error = sqrt(nd_mean_square_between(constant->real, before));
    if (constant->qvalues == NULL)
        return;
    nd_qvalue_range(constant->dtype, &low, &high);
    for (size_t i = 0; i < constant->quant->n; i++)
        found->bias_step = fmax(found->bias_step, (double)constant->quant->scale[i]);
    found->n_bias = constant->qvalues->n;
    for (size_t i = 0; i < constant->qvalues->n; i++)
        found->n_bias_ends += constant->qvalues->x[i] <= low || constant->qvalues->x[i] >= high;
}

/* As quantisers give to a mask constant of minus infinity. */
static bool has_finite_scales(const struct nd_exact_constant *constant)
{
    for (size_t i = 0; constant->quant != NULL && i < constant->quant->n; i++)
        if (!isfinite(constant->quant->scale[i]))
            return false;
    return true;
}

/* Both are held. */
static enum nd_status look_at_weights(const struct nd_exact_constant *constant, const struct nd_array *before,
                                      struct constants *found, struct nd_quantised_layer *layer,
                                      struct nd_error *err)
{
    double ratio;
    int axis = constant->channel_axis;
    found->signal += nd_mean_square(before) * (double)before->n;
    found->noise += nd_mean_square_between(constant->real, before) * (double)before->n;
    if (constant->quant == NULL || constant->quant->n != 1 || axis < 0)
        return ND_OK;
    if (nd_channels_ratio(before, axis, &ratio, err) != ND_OK)
        return ND_ERR_MEMORY;
    layer->weight_ratio = isnan(layer->weight_ratio) ? ratio : fmax(layer->weight_ratio, ratio);
    return ND_OK;
}

static enum nd_status look_at_constants(const struct nd_study *study, size_t step, struct constants *found,
                                        struct nd_error *err)
{
    struct nd_quantised_layer *layer = &study->out->layers[step];
    struct nd_exact_constant all[ND_LOSS_CONSTANTS];
    size_t n =
        nd_exact_layer_constants(study->plan->graph, study->plan->steps[step].tensor, all, ND_LOSS_CONSTANTS);
    enum nd_status status = ND_OK;
    *found = (struct constants){0};
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        if (!has_finite_scales(&all[i])) {
            found->not_finite = all[i].name;
            continue;
        }
        const struct nd_array *before = nd_exact_constant_before(study->plan->float_graph, &all[i]);
        if (before == NULL)
            continue;
        status = nd_pair_hold(study->plan, &all[i], before, err);
        if (status != ND_OK)
            break;
        if (all[i].is_bias)
            look_at_bias(&all[i], before, found, layer);
        else
            status = look_at_weights(&all[i], before, found, layer, err);
        nd_pair_release(study->plan, &all[i], before);
    }
    if (found->signal > 0)
        layer->weight_sqnr_db = 10 * log10(found->signal / found->noise);
    return status;
}

static enum nd_loss_cause constant_cause(const struct nd_quantised_layer *layer)
{
    if (layer->bias_error * layer->bias_error >= main_part * layer->constants)
        return ND_LOSS_BIAS;
    return layer->weight_ratio >= ND_CHANNELS_APART ? ND_LOSS_WEIGHT_CHANNELS : ND_LOSS_WEIGHT_ROUNDING;
}

/* ---- the range of the output ---- */

/* Asked before the parts of the error: the rounding of a constant of -3.4e38 is larger than any of them, and
 * means nothing to what reads it. */
static bool is_stretched_by_mask(const struct nd_study *study, size_t step, const struct nd_value_facts *facts)
{
    if (!facts->has_mask || facts->n == 0 || !nd_plan_has_range(study->plan, step))
        return false;
    const struct nd_fit fit = nd_fit_of_step(study, step);
    return facts->high - facts->low < mask_steps * fit.scale;
}

static enum nd_loss_cause range_cause(const struct nd_quantised_layer *layer)
{
    double width = layer->range_high - layer->range_low;
    double low = fmin(layer->value_low, 0), high = fmax(layer->value_high, 0);
    bool is_below_empty = low > -empty_reach * width && layer->range_low < -empty_side * width;
    bool is_above_empty = high < empty_reach * width && layer->range_high > empty_side * width;
    if (layer->clipping > layer->rounding)
        return ND_LOSS_CLIPPING;
    if (layer->used_share <= wasted_below)
        return high - low >= stretched_from * width ? ND_LOSS_OUTLIERS : ND_LOSS_RANGE;
    return is_below_empty || is_above_empty ? ND_LOSS_ZERO_POINT : ND_LOSS_ROUNDING;
}

static void look_at_range(const struct nd_study *study, size_t step, const struct nd_value_facts *facts)
{
    struct nd_quantised_layer *layer = &study->out->layers[step];
    if (facts->n == 0)
        return;
    layer->central_low = facts->central_low;
    layer->central_high = facts->central_high;
    layer->mask = facts->mask;
    layer->mask_share = facts->mask_share;
    if (!nd_plan_has_range(study->plan, step))
        return;
    const struct nd_fit fit = nd_fit_of_step(study, step);
    const struct nd_range range = nd_range_of_fit(&fit);
    layer->range_low = range.low;
    layer->range_high = range.high;
    layer->used_share = fmin((facts->central_high - facts->central_low) / (range.high - range.low), 1);
}

/* ---- in words ---- */

static void put_range_words(struct nd_strbuf *text, const struct nd_quantised_layer *layer)
{
    switch (layer->cause) {
    case ND_LOSS_OUTLIERS:
        nd_strbuf_printf(text, "outliers: 99.9%% of its values use %.3g%% of its range [%.3g, %.3g]",
                         100 * layer->used_share, layer->range_low, layer->range_high);
        break;
    case ND_LOSS_MASK:
        nd_strbuf_printf(text,
                         "a constant far off, %.3g (%.2g%% of its values), stretches its range: the other "
                         "values, %.3g to %.3g, have less than %.0f steps",
                         layer->mask, 100 * layer->mask_share, layer->central_low, layer->central_high,
                         mask_steps);
        break;
    case ND_LOSS_RANGE:
        nd_strbuf_printf(text, "its range [%.3g, %.3g] is far wider than its values, %.3g to %.3g",
                         layer->range_low, layer->range_high, layer->value_low, layer->value_high);
        break;
    case ND_LOSS_ZERO_POINT:
        nd_strbuf_printf(text, "its zero point wastes a side: range [%.3g, %.3g] for values from %.3g to %.3g",
                         layer->range_low, layer->range_high, layer->value_low, layer->value_high);
        break;
    case ND_LOSS_CLIPPING:
        if (layer->clipped_share == 0) {
            nd_strbuf_printf(text,
                             "clipping: its inputs are so far off that its values leave its range [%.3g, "
                             "%.3g]; those of the float model do not",
                             layer->range_low, layer->range_high);
            break;
        }
        nd_strbuf_printf(text,
                         "clipping: %.2g%% of its values, which reach from %.3g to %.3g, lie outside of its "
                         "range [%.3g, %.3g]",
                         100 * layer->clipped_share, layer->value_low, layer->value_high, layer->range_low,
                         layer->range_high);
        break;
    default:
        nd_strbuf_printf(text, "the rounding of its output");
        if (!isnan(layer->used_share))
            nd_strbuf_printf(text, "; 99.9%% of its values use %.3g%% of its range", 100 * layer->used_share);
    }
}

static enum nd_status say_cause(struct nd_quantised_layer *layer, const struct constants *found,
                                struct nd_error *err)
{
    struct nd_strbuf text = {0};
    switch (layer->cause) {
    case ND_LOSS_NONE:
        return ND_OK;
    case ND_LOSS_WEIGHT_CHANNELS:
        nd_strbuf_printf(&text,
                         "one scale for all channels of its weights: the largest channel is %.3g times as "
                         "large as a quarter of the others (SQNR of the weights %.3g dB)",
                         layer->weight_ratio, layer->weight_sqnr_db);
        break;
    case ND_LOSS_WEIGHT_ROUNDING:
        nd_strbuf_printf(&text, "the rounding of its weights");
        if (!isnan(layer->weight_sqnr_db))
            nd_strbuf_printf(&text, " (SQNR of the weights %.3g dB)", layer->weight_sqnr_db);
        break;
    case ND_LOSS_BIAS:
        nd_strbuf_printf(&text, "its biases are off by %.3g (root mean square)", layer->bias_error);
        if (found->n_bias_ends > 0)
            nd_strbuf_printf(&text, ": %zu of %zu are clipped", found->n_bias_ends, found->n_bias);
        else if (found->bias_step > 0)
            nd_strbuf_printf(&text, ": their steps are %.3g", found->bias_step);
        break;
    case ND_LOSS_NOT_FINITE:
        nd_strbuf_printf(&text,
                         "its constant '%s' has an infinite scale, as quantisers give to minus infinity: what "
                         "the layer gives is no number, and nothing after it means anything. Give that "
                         "constant a finite value before the model is quantised",
                         found->not_finite);
        break;
    default:
        put_range_words(&text, layer);
    }
    layer->cause_text = nd_strbuf_take(&text);
    return layer->cause_text != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_find_cause(const struct nd_study *study, size_t step, const struct nd_value_facts *facts,
                             struct nd_error *err)
{
    struct nd_quantised_layer *layer = &study->out->layers[step];
    struct constants found;
    look_at_range(study, step, facts);
    ND_TRY(look_at_constants(study, step, &found, err));
    double parts = layer->rounding + layer->clipping + layer->constants;
    if (found.not_finite != NULL) {
        layer->cause = ND_LOSS_NOT_FINITE;
    } else if (!(layer->introduced > 0) || !(parts > 0)) {
        layer->cause = ND_LOSS_NONE;
    } else if (is_stretched_by_mask(study, step, facts)) {
        layer->cause = ND_LOSS_MASK;
    } else if (layer->constants >= main_part * parts) {
        layer->cause = constant_cause(layer);
    } else if (nd_plan_has_range(study->plan, step) && facts->n > 0) {
        layer->cause = range_cause(layer);
    } else {
        layer->cause = ND_LOSS_ROUNDING;
    }
    return say_cause(layer, &found, err);
}
