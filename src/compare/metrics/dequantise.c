/* What is only the rounding of quantised value to float. docs/reference/metrics.md#mixed-types. */
#include "compare/metrics/dequantise.h"

#include <math.h>

#include "compare/metrics/kernels/float_format.h"
#include "compare/metrics/states.h"

/* A formula: c * s - z * s with a rounded scale has at most five roundings, of s, of the products (with that of
 * s) and of the result, each of at most u times what is rounded: u |s| (2 |c| + 2 |z| + |c - z|) and terms of
 * u^2. Twice the sum of the three covers them; (c - z) * s, whose difference is exact, has one rounding. */
static const double ROUNDINGS = 2;

/* Below the normal numbers a rounding is half of the least number instead: two products and their difference.
 */
static const double TINY_ROUNDINGS = 1.5;

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_dequantised, n), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_dequantised, max_steps), 0},
};

/* Whether value is one of the format: a whole number of its steps at that size. */
static bool is_of_format(const struct nd_float_format *format, double value)
{
    int exponent, bits = format->fraction_bits + 1, least;
    frexp(nd_float_min_normal(format), &least);
    frexp(value, &exponent);
    double scaled = ldexp(fabs(value), bits - (exponent > least ? exponent : least));
    return fabs(value) <= nd_float_max(format) && scaled == floor(scaled);
}

/* One quantised value and the float beside it. */
struct dequantised {
    double qvalue, zero, scale, value;
};

static bool is_within_roundings(const struct nd_float_format *format, const struct dequantised *d)
{
    double unit = ldexp(1, -format->fraction_bits - 1), scale = fabs(d->scale);
    double tiny = ldexp(nd_float_min_normal(format), -format->fraction_bits);
    double error = fabs(d->value - d->scale * (d->qvalue - d->zero));
    double bound = ROUNDINGS * unit * scale * (fabs(d->qvalue) + fabs(d->zero) + fabs(d->qvalue - d->zero));
    /* Beyond half a step it may as well be another quantised value. */
    return error <= bound + TINY_ROUNDINGS * tiny && error < 0.5 * scale;
}

/* stored: the type of the float. It may have been computed in a narrower one, of which all its values then are.
 */
static bool is_dequantised(const struct nd_float_format *stored, const struct dequantised *d)
{
    static const enum nd_dtype narrower[] = {ND_DTYPE_F32, ND_DTYPE_F16};
    if (nd_float_distance_in(stored, d->scale * (d->qvalue - d->zero), d->value) == 0 ||
        is_within_roundings(stored, d))
        return true;
    for (size_t i = 0; i < sizeof narrower / sizeof narrower[0]; i++) {
        const struct nd_float_format *format = nd_float_format(narrower[i]);
        if (format->fraction_bits < stored->fraction_bits && is_of_format(format, d->value) &&
            is_within_roundings(format, d))
            return true;
    }
    return false;
}

void nd_dequantise_mask(const struct nd_pair_context *context, const struct nd_pair_block *block, uint8_t *mask,
                        struct nd_dequantised *out)
{
    bool is_ref_qvalue = !context->ref.is_float;
    const struct nd_layout *layout = is_ref_qvalue ? &context->ref : &context->test;
    const struct nd_layout *other = is_ref_qvalue ? &context->test : &context->ref;
    const struct nd_side_view *qvalues = is_ref_qvalue ? &block->ref : &block->test;
    const struct nd_side_view *floats = is_ref_qvalue ? &block->test : &block->ref;
    double x[ND_BLOCK];
    *out = (struct nd_dequantised){.max_steps = -INFINITY};
    if (layout->is_float || layout->n_channels == 0 || !other->is_float)
        return;
    context->kernels->load[layout->kind](qvalues->bytes, block->n, 0, x);
    for (size_t i = 0; i < block->n; i++) {
        size_t channel = (block->first + i) / layout->inner % layout->n_channels;
        struct dequantised d = {.qvalue = x[i],
                                .zero = (double)layout->zero_point[channel],
                                .scale = (double)layout->scale[channel],
                                .value = floats->x[i]};
        if (!mask[i] || !isfinite(d.value) || !is_dequantised(context->ulp_format, &d))
            continue;
        double steps = fabs((d.value - d.scale * (d.qvalue - d.zero)) / d.scale);
        mask[i] = 0;
        out->n++;
        out->max_steps = steps > out->max_steps ? steps : out->max_steps;
    }
}

void nd_dequantised_note(struct nd_pair_state *state, const struct nd_pair_block *block)
{
    struct nd_dequantised *sum = &state->dequantised;
    sum->n += block->dequantised.n;
    if (block->dequantised.n > 0 && block->dequantised.max_steps > sum->max_steps)
        sum->max_steps = block->dequantised.max_steps;
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    (void)err;
    out->n_dequantised = state->dequantised.n;
    out->dequantised_steps = state->dequantised.n > 0 ? state->dequantised.max_steps : 0;
    return ND_OK;
}

const struct nd_metric nd_metric_dequantised = {
    .name = "dequantised",
    .offset = offsetof(struct nd_pair_state, dequantised),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .finish = finish,
};
