/* Energies of the signal and of the difference. docs/reference/metrics.md#signal. */
#include <math.h>

#include "compare/metrics/states.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_signal_state, sum_squares), 0},
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_signal_state, sum_ref_signed), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_signal_state, n_test_only), 0},
};

/* What was added, or will be before the sum is looked at, is taken out: -value, but infinities do not cancel.
 */
static void take_out(struct nd_exact_sum *sum, double value)
{
    if (isfinite(value)) {
        nd_exact_add(sum, -value);
        return;
    }
    sum->n_nan -= isnan(value) != 0;
    sum->n_pos_inf -= value > 0;
    sum->n_neg_inf -= value < 0;
}

/* Takes the block's sum over its finite elements out of the side's, and puts in the one over the elements that
 * are finite on both sides. Both steps are exact. */
static void correct_side(struct nd_side_state *side, const struct nd_self_sums *all,
                         const struct nd_self_sums *both)
{
    take_out(&side->sum, all->sum);
    nd_exact_add(&side->sum, both->sum);
    take_out(&side->sum_squares, all->sum_squares);
    nd_exact_add(&side->sum_squares, both->sum_squares);
}

static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
                   const struct nd_pair_block *block)
{
    (void)context;
    if (block->joint != NULL)
        return;
    nd_exact_add(&state->signal.sum_squares, block->sums.sum_squares);
    nd_exact_add(&state->signal.sum_ref_signed, block->sums.sum_ref_signed);
    if (block->is_clean)
        return;
    state->signal.n_test_only += block->n_test_only;
    correct_side(&state->account.ref, &block->ref.block->sums, &block->ref_both);
    correct_side(&state->account.test, &block->test.block->sums, &block->test_both);
}

static void add_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                     const struct nd_cell *cell)
{
    (void)context;
    double d = cell->test - cell->ref, n = (double)cell->n; /* the products are below 2^53: exact */
    nd_exact_add(&state->signal.sum_squares, d * d * n);
    nd_exact_add(&state->signal.sum_ref_signed, cell->ref * d * n);
}

struct energies {
    double n, ref, test, difference, cross; /* n, S_r, S_t, S_d, C */
    double ref_sum, test_sum;               /* R, T */
};

static double within_one(double value)
{
    return value > 1 ? 1 : value < -1 ? -1 : value;
}

static double cosine_of(const struct energies *e)
{
    if (e->ref == 0 || e->test == 0)
        return e->ref == 0 && e->test == 0 ? 1 : 0;
    return within_one((e->ref + e->cross) / (sqrt(e->ref) * sqrt(e->test)));
}

/* Where squares overflowed there is no telling. */
static bool is_constant(double variance, double squares)
{
    return isfinite(squares) && variance <= 0x1p-40 * squares;
}

static void correlate(const struct energies *e, struct nd_difference *out)
{
    double ref_variance = e->ref - e->ref_sum * e->ref_sum / e->n;
    double test_variance = e->test - e->test_sum * e->test_sum / e->n;
    double covariance = e->ref + e->cross - e->ref_sum * e->test_sum / e->n;
    bool ref_varies = !is_constant(ref_variance, e->ref), test_varies = !is_constant(test_variance, e->test);
    out->pearson = ref_varies && test_varies
                       ? within_one(covariance / (sqrt(ref_variance) * sqrt(test_variance)))
                   : ref_varies || test_varies ? 0
                                               : 1;
    out->has_gain = ref_varies;
    if (!ref_varies)
        return;
    out->gain = covariance / ref_variance;
    out->offset = (e->test_sum - out->gain * e->ref_sum) / e->n;
}

/* Whether there is nothing to measure: samples differ, and no element of them is finite on both sides; or none
 * differs, and it is known that every element of them is NaN or infinite. */
static bool is_without_numbers(const struct nd_pair_state *state, double n)
{
    const struct nd_numbers_state *numbers = &state->numbers;
    if (state->account.ref.n_elems > 0)
        return n == 0;
    return numbers->n_elems > 0 && numbers->n_ref_nan + numbers->n_ref_inf == numbers->n_elems;
}

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    const struct nd_side_state *ref = &state->account.ref, *test = &state->account.test;
    struct energies e = {
        .n = (double)(ref->n_elems - ref->n_nan - ref->n_inf - state->signal.n_test_only),
        .ref = nd_exact_round(&ref->sum_squares),
        .test = nd_exact_round(&test->sum_squares),
        .difference = nd_exact_round(&state->signal.sum_squares),
        .cross = nd_exact_round(&state->signal.sum_ref_signed),
        .ref_sum = nd_exact_round(&ref->sum),
        .test_sum = nd_exact_round(&test->sum),
    };
    out->has_signal = !is_without_numbers(state, e.n);
    if (!out->has_signal) {
        out->sqnr_db = out->cosine = out->norm_ratio = out->pearson = out->gain = out->offset = NAN;
        return ND_OK;
    }
    out->sqnr_db = e.difference == 0 ? INFINITY : e.ref == 0 ? -INFINITY : 10 * log10(e.ref / e.difference);
    out->cosine = out->norm_ratio = out->pearson = out->gain = 1;
    out->has_gain = true;
    if (e.difference == 0 || e.n == 0)
        return ND_OK;
    out->cosine = cosine_of(&e);
    out->norm_ratio = e.ref > 0 ? sqrt(e.test / e.ref) : INFINITY; /* both 0: nothing would differ */
    correlate(&e, out);
    out->offset *= context->ref.unit;
    return ND_OK;
}

const struct nd_metric nd_metric_signal = {
    .name = "signal",
    .offset = offsetof(struct nd_pair_state, signal),
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .add_cell = add_cell,
    .finish = finish,
};
