/* What must be counted before anything is averaged. docs/reference/metrics.md#accounting. */
#include <math.h>

#include "compare/metrics/account.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_account_state, n_nan_mismatch), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_account_state, n_nan_payload), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_account_state, n_inf_mismatch), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_account_state, n_zero_sign), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_account_state, n_saturation_mismatch), 0},
};

static const struct nd_metric_field side_fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_elems), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_nan), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_inf), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_zero), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_subnormal), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_saturated), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_side_state, n_stuck_samples), 0},
    {ND_METRIC_FIELD_REAL_MIN, offsetof(struct nd_side_state, min), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_side_state, max), 0},
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_side_state, sum), 0},
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_side_state, sum_squares), 0},
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

/* Of the elements whose difference is a number: the others have a line of their own. */
static uint64_t count_saturation(const struct nd_pair_context *context, const struct nd_pair_block *block)
{
    const struct nd_layout *layout = &context->ref;
    const uint16_t *measured = nd_pair_block_measured(block);
    uint64_t n = 0;
    if (layout->is_real || context->is_mixed) {
        for (size_t k = 0; k < block->n_measured; k++) {
            size_t i = measured[k];
            n += nd_layout_is_saturated(layout, block->first + i, block->ref.x[i]) !=
                 nd_layout_is_saturated(&context->test, block->first + i, block->test.x[i]);
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

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static void add_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                     const struct nd_cell *cell)
{
    if (nd_layout_is_saturated(&context->ref, 0, cell->ref) !=
        nd_layout_is_saturated(&context->test, 0, cell->test))
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

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
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

const struct nd_metric nd_metric_account = {
    .name = "account",
    .offset = offsetof(struct nd_pair_state, account),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .add_cell = add_cell,
    .finish = finish,
};
