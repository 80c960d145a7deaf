/* What is counted before anything is averaged: elements that differ, values that are no numbers, roundings of
 * quantised values. docs/reference/metrics.md#elements, #accounting and #mixed-types. */
#include <math.h>

#include "compare/metrics/states.h"

static const struct nd_metric_field account_fields[] = {
    ND_STATE_FIELD(COUNT, nd_account_state, n_nan_mismatch),
    ND_STATE_FIELD(COUNT, nd_account_state, n_nan_payload),
    ND_STATE_FIELD(COUNT, nd_account_state, n_inf_mismatch),
    ND_STATE_FIELD(COUNT, nd_account_state, n_zero_sign),
    ND_STATE_FIELD(COUNT, nd_account_state, n_saturation_mismatch),
};

static const struct nd_metric_field side_fields[] = {
    ND_STATE_FIELD(COUNT, nd_side_state, n_elems),         ND_STATE_FIELD(COUNT, nd_side_state, n_nan),
    ND_STATE_FIELD(COUNT, nd_side_state, n_inf),           ND_STATE_FIELD(COUNT, nd_side_state, n_zero),
    ND_STATE_FIELD(COUNT, nd_side_state, n_subnormal),     ND_STATE_FIELD(COUNT, nd_side_state, n_saturated),
    ND_STATE_FIELD(COUNT, nd_side_state, n_stuck_samples), ND_STATE_FIELD(REAL_MIN, nd_side_state, min),
    ND_STATE_FIELD(REAL_MAX, nd_side_state, max),          ND_STATE_FIELD(SUM, nd_side_state, sum),
    ND_STATE_FIELD(SUM, nd_side_state, sum_squares),
};
enum { N_SIDE_FIELDS = sizeof side_fields / sizeof side_fields[0] };

const struct nd_metric nd_metric_side_ref = {.name = "ref",
                                             .offset = offsetof(struct nd_pair_state, account.ref),
                                             .fields = side_fields,
                                             .n_fields = N_SIDE_FIELDS};
const struct nd_metric nd_metric_side_test = {.name = "test",
                                              .offset = offsetof(struct nd_pair_state, account.test),
                                              .fields = side_fields,
                                              .n_fields = N_SIDE_FIELDS};

void nd_side_init(struct nd_side_state *side)
{
    *side = (struct nd_side_state){0};
    nd_fields_init(side_fields, N_SIDE_FIELDS, side);
}

void nd_side_add_block(struct nd_side_state *side, const struct nd_side_block *block, size_t n)
{
    side->n_elems += n;
    side->n_nan += block->n_nan;
    side->n_inf += block->n_inf;
    side->n_zero += block->n_zero;
    side->n_subnormal += block->n_subnormal;
    side->n_saturated += block->n_saturated;
    side->min = block->sums.min < side->min ? block->sums.min : side->min;
    side->max = block->sums.max > side->max ? block->sums.max : side->max;
    nd_exact_add(&side->sum, block->sums.sum);
    nd_exact_add(&side->sum_squares, block->sums.sum_squares);
}

void nd_side_merge(struct nd_side_state *side, const struct nd_side_state *other)
{
    nd_fields_merge(side_fields, N_SIDE_FIELDS, side, other, NULL); /* these kinds cannot fail */
}

/* Whether x, of the element at flat index `index`, is at an end of the range of its type (floats: or beyond).
 */
static bool is_saturated(const struct nd_layout *layout, size_t index, double x)
{
    if (layout->is_float)
        return fabs(x) >= layout->high;
    if (!layout->is_real)
        return x == layout->low - layout->zero || x == layout->high - layout->zero;
    size_t channel = index / layout->inner % layout->n_channels;
    double scale = (double)layout->scale[channel], zero = (double)layout->zero_point[channel];
    return x == scale * (layout->low - zero) || x == scale * (layout->high - zero);
}

/* Of the elements whose difference is a number: the others have a line of their own. */
static uint64_t count_saturation(const struct nd_pair_context *context, const struct nd_pair_block *block)
{
    const struct nd_layout *layout = &context->ref;
    const uint16_t *measured = nd_pair_block_measured(block);
    uint64_t n = 0;
    if (layout->is_real || context->is_mixed) {
        for (size_t k = 0; k < block->n_measured; k++) {
            size_t i = measured[k];
            n += is_saturated(layout, block->first + i, block->ref.x[i]) !=
                 is_saturated(&context->test, block->first + i, block->test.x[i]);
        }
        return n;
    }
    double low = layout->low - layout->zero, high = layout->high - layout->zero;
    for (size_t k = 0; k < block->n_measured; k++) {
        double r = block->ref.x[measured[k]], t = block->test.x[measured[k]];
        n += ((r == low) | (r == high)) != ((t == low) | (t == high));
    }
    return n;
}

static void update_account(struct nd_pair_state *state, const struct nd_pair_context *context,
                           const struct nd_pair_block *block)
{
    struct nd_account_state *account = &state->account;
    for (size_t k = 0; k < block->n_unmeasured; k++) {
        size_t i = block->unmeasured[k];
        bool ref_nan = isnan(block->ref.x[i]), test_nan = isnan(block->test.x[i]);
        account->n_nan_payload += ref_nan && test_nan;
        account->n_nan_mismatch += ref_nan != test_nan;
        account->n_inf_mismatch += !ref_nan && !test_nan;
    }
    if (context->ref.is_float && !context->is_mixed && block->ref.block->n_zero > 0 &&
        block->test.block->n_zero > 0) {
        const uint16_t *measured = nd_pair_block_measured(block);
        for (size_t k = 0; k < block->n_measured; k++) {
            size_t i = measured[k];
            account->n_zero_sign += block->ref.x[i] == 0 && block->test.x[i] == 0;
        }
    }
    if (block->joint != NULL || block->ref.block->n_saturated + block->test.block->n_saturated == 0)
        return;
    account->n_saturation_mismatch += count_saturation(context, block);
}

static void add_account_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                             const struct nd_cell *cell)
{
    if (is_saturated(&context->ref, 0, cell->ref) != is_saturated(&context->test, 0, cell->test))
        state->account.n_saturation_mismatch += cell->n;
}

static struct nd_side describe(const struct nd_side_state *state, double unit)
{
    struct nd_side side = {.n_elems = state->n_elems,
                           .n_nan = state->n_nan,
                           .n_inf = state->n_inf,
                           .n_zero = state->n_zero,
                           .n_subnormal = state->n_subnormal,
                           .n_saturated = state->n_saturated,
                           .n_stuck_samples = state->n_stuck_samples,
                           .min = NAN,
                           .max = NAN};
    if (state->min <= state->max) {
        side.min = unit * (unit < 0 ? state->max : state->min) + 0.0;
        side.max = unit * (unit < 0 ? state->min : state->max) + 0.0;
    }
    return side;
}

static enum nd_status finish_account(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                     struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    const struct nd_account_state *account = &state->account;
    out->n_nan_mismatch = account->n_nan_mismatch;
    out->n_nan_payload = account->n_nan_payload;
    out->n_inf_mismatch = account->n_inf_mismatch;
    out->n_zero_sign = account->n_zero_sign;
    out->n_saturation_mismatch = account->n_saturation_mismatch;
    out->ref_side = describe(&account->ref, context->ref.unit);
    out->test_side = describe(&account->test, context->test.unit);
    return ND_OK;
}

static const struct nd_measure account_measures[] = {
    ND_MEASURE(n_nan_mismatch, VALUES, COUNT, .name = "nan_mismatch"),
    ND_MEASURE(n_nan_payload, VALUES, COUNT, .name = "nan_payload"),
    ND_MEASURE(n_inf_mismatch, VALUES, COUNT, .name = "inf_mismatch"),
    ND_MEASURE(n_zero_sign, VALUES, COUNT, .name = "zero_sign"),
    ND_MEASURE(n_saturation_mismatch, VALUES, COUNT, .name = "saturation_mismatch"),
};

const struct nd_metric nd_metric_account = {
    .name = "account",
    .offset = offsetof(struct nd_pair_state, account),
    ND_STATE_FIELDS(account_fields),
    .update = update_account,
    .add_cell = add_account_cell,
    .finish = finish_account,
    ND_MEASURES(account_measures),
};

/* Which elements differ at all. docs/reference/metrics.md#elements and #bits. */

static const struct nd_metric_field bits_fields[] = {
    ND_STATE_FIELD(COUNT, nd_bits_state, n_samples),
    ND_STATE_FIELD(COUNT, nd_bits_state, n_samples_differing),
    ND_STATE_FIELD(COUNT, nd_bits_state, n_samples_unread),
    ND_STATE_FIELD(COUNT, nd_bits_state, n_elems),
    ND_STATE_FIELD(COUNT, nd_bits_state, n_differing),
    ND_STATE_FIELD(FIRST, nd_bits_state, first),
};

void nd_bits_add_sample(struct nd_bits_state *state, size_t n_elems, bool differs, bool is_read, size_t probe,
                        size_t sample)
{
    state->n_samples++;
    state->n_elems += n_elems;
    if (!differs)
        return;
    state->n_samples_differing++;
    if (is_read)
        return;
    state->n_samples_unread++;
    nd_first_note(&state->first, (struct nd_first){.is_set = true, .probe = probe, .sample = sample});
}

static void update_bits(struct nd_pair_state *state, const struct nd_pair_context *context,
                        const struct nd_pair_block *block)
{
    (void)context;
    state->bits.n_differing += block->n_differing;
    nd_first_note(&state->bits.first, (struct nd_first){.is_set = true,
                                                        .has_index = true,
                                                        .probe = block->probe,
                                                        .sample = block->sample,
                                                        .index = block->first + block->first_differing});
}

static enum nd_status finish_bits(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                  struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    (void)err;
    const struct nd_bits_state *bits = &state->bits;
    out->n_differing = bits->n_differing;
    out->share = bits->n_elems > 0 ? (double)bits->n_differing / (double)bits->n_elems : 0;
    return ND_OK;
}

static const struct nd_measure bits_measures[] = {
    ND_MEASURE(n_differing, VALUES, COUNT, .name = "differing", .option = "differing",
               .title = "differing elements", .is_symmetric = true),
    ND_MEASURE(share, VALUES, SHARE, .name = "share", .option = "share", .title = "share of differing elements",
               .is_symmetric = true),
};

const struct nd_metric nd_metric_bits = {
    .name = "bits",
    .offset = offsetof(struct nd_pair_state, bits),
    ND_STATE_FIELDS(bits_fields),
    .update = update_bits,
    .finish = finish_bits,
    ND_MEASURES(bits_measures),
};

/* Values that are no numbers, over all samples of what was read whole. docs/reference/metrics.md#accounting.
 * Samples are added by engine.c. */

static const struct nd_metric_field numbers_fields[] = {
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_elems),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_ref_nan),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_test_nan),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_ref_inf),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_test_inf),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_samples),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_samples_ref_nan),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_samples_test_nan),
    ND_STATE_FIELD(COUNT, nd_numbers_state, n_samples_both_nan),
};

static enum nd_status finish_numbers(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                     struct nd_difference *out, struct nd_error *err)
{
    (void)context;
    (void)err;
    const struct nd_numbers_state *numbers = &state->numbers;
    out->numbers = (struct nd_numbers){
        .is_known = numbers->n_samples > 0,
        .n_elems = numbers->n_elems,
        .n_ref_nan = numbers->n_ref_nan,
        .n_test_nan = numbers->n_test_nan,
        .n_ref_inf = numbers->n_ref_inf,
        .n_test_inf = numbers->n_test_inf,
        .n_samples = numbers->n_samples,
        .n_samples_ref_nan = numbers->n_samples_ref_nan,
        .n_samples_test_nan = numbers->n_samples_test_nan,
        .n_samples_both_nan = numbers->n_samples_both_nan,
    };
    return ND_OK;
}

const struct nd_metric nd_metric_numbers = {
    .name = "numbers",
    .offset = offsetof(struct nd_pair_state, numbers),
    ND_STATE_FIELDS(numbers_fields),
    .finish = finish_numbers,
};

/* What is only the rounding of quantised value to float. docs/reference/metrics.md#mixed-types. */

static const struct nd_metric_field dequantised_fields[] = {
    ND_STATE_FIELD(COUNT, nd_dequantised_elements, n),
    ND_STATE_FIELD(REAL_MAX, nd_dequantised_elements, max_steps),
};

void nd_dequantised_note(struct nd_pair_state *state, const struct nd_pair_block *block)
{
    struct nd_dequantised_elements *sum = &state->dequantised;
    sum->n += block->dequantised.n;
    if (block->dequantised.n > 0 && block->dequantised.max_steps > sum->max_steps)
        sum->max_steps = block->dequantised.max_steps;
}

static enum nd_status finish_dequantised(const struct nd_pair_state *state,
                                         const struct nd_pair_context *context, struct nd_difference *out,
                                         struct nd_error *err)
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
    ND_STATE_FIELDS(dequantised_fields),
    .finish = finish_dequantised,
};
