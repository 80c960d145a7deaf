/* Differences of codes and other integers in steps (LSB). docs/reference/metrics.md#steps. */
#include <math.h>
#include <string.h>

#include "metrics/states.h"

static const struct nd_field fields[] = {
    {ND_FIELD_COUNT, offsetof(struct nd_steps_state, histogram), ND_LSB_BUCKETS},
    {ND_FIELD_COUNT, offsetof(struct nd_steps_state, tail), 2 * ND_LSB_TAIL},
    {ND_FIELD_MAX, offsetof(struct nd_steps_state, max), 0},
    {ND_FIELD_SUM, offsetof(struct nd_steps_state, sum), 0},
    {ND_FIELD_SUM, offsetof(struct nd_steps_state, sum_signed), 0},
};

static bool applies(const struct nd_pair_context *context)
{
    return !context->ref.is_float && !context->is_mixed;
}

/* Whole numbers below 2^53 have no rounding to fear; larger ones go in two halves. */
static void add_exactly(struct nd_exact_sum *sum, uint64_t steps, double sign)
{
    nd_exact_add(sum, sign * (double)(steps >> 32) * 0x1p32);
    nd_exact_add(sum, sign * (double)(steps & UINT32_MAX));
}

/* distance: 4 or more; bucket k holds 2^(k + 2) up to 2^(k + 3) - 1. */
static void add_to_tail(struct nd_steps_state *steps, uint64_t distance, bool is_above)
{
    size_t bucket = 0;
    while (bucket + 1 < ND_LSB_TAIL && distance >> (bucket + 3) != 0)
        bucket++;
    steps->tail[is_above][bucket]++;
}

/* Types of up to 32 bits: x is the code less its zero point, d and the sums of a block are whole numbers below
 * 2^53, and so exact. */
static void add_narrow(struct nd_steps_state *steps, const struct nd_pair_block *block)
{
    for (size_t k = 0; k < block->n_differing; k++) {
        size_t i = block->differing[k];
        double d = block->test.x[i] - block->ref.x[i];
        steps->histogram[4 + (int)(d < -4 ? -4 : d > 4 ? 4 : d)]++;
        if (d <= -4 || d >= 4)
            add_to_tail(steps, (uint64_t)fabs(d), d > 0);
    }
    uint64_t max = (uint64_t)block->sums.max_abs;
    steps->max = max > steps->max ? max : steps->max;
    nd_exact_add(&steps->sum, block->sums.sum_abs);
    nd_exact_add(&steps->sum_signed, block->sums.sum_signed);
}

static void add_bits(struct nd_steps_state *steps, const struct nd_layout *layout,
                     const struct nd_pair_block *block)
{
    for (size_t k = 0; k < block->n_differing; k++) {
        size_t i = block->differing[k];
        uint64_t distance = block->distance[i];
        bool is_negative = nd_layout_is_less(layout, block->test.bytes, block->ref.bytes, i);
        size_t bucket = distance > 3 ? 4 : (size_t)distance;
        steps->histogram[is_negative ? 4 - bucket : 4 + bucket]++;
        if (bucket == 4)
            add_to_tail(steps, distance, !is_negative);
        steps->max = distance > steps->max ? distance : steps->max;
        add_exactly(&steps->sum, distance, 1);
        add_exactly(&steps->sum_signed, distance, is_negative ? -1 : 1);
    }
}

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block)
{
    const struct nd_layout *layout = &context->ref;
    if (!applies(context))
        return;
    if (layout->elem_bytes < 8 && !layout->is_real && fabs(layout->zero) <= 0x1p31)
        add_narrow(&state->steps, block);
    else
        add_bits(&state->steps, layout, block);
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    if (!applies(context))
        return ND_OK;
    const struct nd_steps_state *steps = &state->steps;
    double n = (double)state->bits.n_elems;
    out->is_integer = true;
    memcpy(out->lsb_histogram, steps->histogram, sizeof out->lsb_histogram);
    out->lsb_histogram[4] = state->bits.n_elems - state->bits.n_differing;
    memcpy(out->lsb_tail, steps->tail, sizeof out->lsb_tail);
    out->max_lsb = steps->max;
    out->mean_lsb = n > 0 ? nd_exact_round(&steps->sum) / n : 0;
    out->signed_mean_lsb = n > 0 ? nd_exact_round(&steps->sum_signed) / n : 0;
    return ND_OK;
}

const struct nd_metric nd_metric_steps = {
    .name = "steps",
    .offset = offsetof(struct nd_pair_state, steps),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .finish = finish,
};
