/* How large the differences are: errors, the tolerance that they need, their energies.
 * docs/reference/metrics.md#errors, #worst and #signal. */
#include <math.h>
#include <string.h>

#include "compare/metrics/states.h"
#include "core/error.h"

static const struct nd_metric_field error_fields[] = {
    ND_STATE_FIELD(COUNT, nd_error_state, n_absolute),
    ND_STATE_FIELD(COUNT, nd_error_state, n_relative),
    ND_STATE_FIELD(COUNT, nd_error_state, n_undefined),
    ND_STATE_FIELD(COUNT, nd_error_state, n_above),
    ND_STATE_FIELD(COUNT, nd_error_state, n_below),
    ND_STATE_FIELD(REAL_MAX, nd_error_state, max_absolute),
    ND_STATE_FIELD(REAL_MAX, nd_error_state, max_relative),
    ND_STATE_FIELD(SUM, nd_error_state, sum_absolute),
    ND_STATE_FIELD(SUM, nd_error_state, sum_relative),
    ND_STATE_FIELD(SUM, nd_error_state, sum_signed),
    ND_STATE_FIELD(HISTOGRAM, nd_error_state, absolute),
    ND_STATE_FIELD(HISTOGRAM, nd_error_state, relative),
};

/* |d|, or |d| / |ref|; negative where that is not defined. */
static double size_of(const struct nd_pair_block *block, size_t i, bool is_relative)
{
    double ref = block->ref_clean[i], absolute = fabs(block->test_clean[i] - ref);
    if (!is_relative)
        return absolute;
    return ref != 0 ? absolute / fabs(ref) : absolute > 0 ? -1 : 0;
}

/* One by one: all that are measured, or those of slot 0. */
static void count_singly(struct nd_log_histogram *histogram, const struct nd_pair_block *block,
                         bool is_relative, bool only_low)
{
    const uint16_t *measured = nd_pair_block_measured(block);
    for (size_t k = 0; k < block->n_measured; k++) {
        double size = size_of(block, measured[k], is_relative);
        if (size >= 0 && (!only_low || size < ND_SLOT_FIRST))
            nd_log_histogram_add(histogram, size);
    }
}

/* By slots those that are measured, or where these are many all, since the others are 0. Slot 0 seldom has more
 * than these zeros. */
static void count_sizes(struct nd_log_histogram *histogram, const struct nd_pair_block *block, bool is_relative)
{
    enum { MANY = 16 }; /* one of so many; chosen: with a tenth that differs both ways take as long */
    const struct nd_error_values *values = block->errors;
    const struct nd_slots slots = {.slot = is_relative ? values->relative : values->absolute,
                                   .folders =
                                       is_relative ? values->relative_folders : values->absolute_folders};
    bool is_listed = block->n_measured * MANY < block->n;
    const uint16_t *list = is_listed ? nd_pair_block_measured(block) : NULL;
    size_t n = is_listed ? block->n_measured : block->n;
    uint64_t n_low, n_zero = n - block->n_measured + (is_relative ? values->n_undefined : 0);
    double max = is_relative ? values->max_relative : values->max_absolute;
    if (!(max < ND_SLOT_END) || !nd_log_histogram_add_slots(histogram, &slots, list, n, &n_low))
        count_singly(histogram, block, is_relative, false);
    else if (n_low != n_zero)
        count_singly(histogram, block, is_relative, true);
}

/* Of elements that do not differ every sum takes up a 0. Section 2 is about their order. */
static void update_error(struct nd_pair_state *state, const struct nd_pair_context *context,
                         const struct nd_pair_block *block)
{
    (void)context;
    struct nd_error_state *error = &state->error;
    const struct nd_error_values *values = block->errors;
    nd_exact_add(&error->sum_relative, values->sum_relative); /* rounded: its order is that of the elements */
    if (block->joint != NULL)
        return;
    count_sizes(&error->absolute, block, false);
    count_sizes(&error->relative, block, true);
    error->n_above += block->sums.n_above;
    error->n_below += block->sums.n_below;
    error->n_absolute += block->n_measured;
    error->n_relative += block->n_measured - values->n_undefined;
    error->n_undefined += values->n_undefined;
    if (block->n_measured > 0 && block->sums.max_abs > error->max_absolute)
        error->max_absolute = block->sums.max_abs;
    if (values->max_relative > 0 && values->max_relative > error->max_relative)
        error->max_relative = values->max_relative;
    nd_exact_add(&error->sum_absolute, block->sums.sum_abs);
    nd_exact_add(&error->sum_signed, block->sums.sum_signed);
}

static void add_error_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                           const struct nd_cell *cell)
{
    (void)context;
    struct nd_error_state *error = &state->error;
    double d = cell->test - cell->ref, absolute = fabs(d), size = fabs(cell->ref);
    error->n_absolute += cell->n;
    error->n_above += d > 0 ? cell->n : 0;
    error->n_below += d < 0 ? cell->n : 0;
    error->max_absolute = absolute > error->max_absolute ? absolute : error->max_absolute;
    nd_exact_add(&error->sum_absolute, absolute * (double)cell->n);
    nd_exact_add(&error->sum_signed, d * (double)cell->n);
    nd_log_histogram_add_many(&error->absolute, absolute, cell->n);
    if (size == 0) {
        error->n_undefined += cell->n;
        return;
    }
    error->n_relative += cell->n;
    error->max_relative = absolute / size > error->max_relative ? absolute / size : error->max_relative;
    nd_log_histogram_add_many(&error->relative, absolute / size, cell->n);
}

/* Of n elements, those in the histogram and equal ones. */
static struct nd_error_stats summarise(const struct nd_log_histogram *histogram, uint64_t n_counted, uint64_t n,
                                       double max, double sum, double unit)
{
    struct nd_error_stats stats = {0};
    if (n == 0)
        return stats;
    stats.max = max > 0 ? unit * max : 0;
    stats.mean = unit * (sum / (double)n);
    stats.median = unit * nd_log_histogram_quantile(histogram, 1, 2, n - n_counted);
    stats.p99 = unit * nd_log_histogram_quantile(histogram, 99, 100, n - n_counted);
    return stats;
}

/* Elements that are NaN on both sides, with equal bits: of all samples where these are known, else of those
 * that differ. They have no error. */
static uint64_t count_equal_nan(const struct nd_pair_state *state)
{
    const struct nd_numbers_state *numbers = &state->numbers;
    const struct nd_account_state *account = &state->account;
    uint64_t n_nan = numbers->n_samples > 0 ? numbers->n_ref_nan + numbers->n_test_nan
                                            : account->ref.n_nan + account->test.n_nan;
    return (n_nan - account->n_nan_mismatch) / 2 - account->n_nan_payload;
}

static enum nd_status finish_error(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                   struct nd_difference *out, struct nd_error *err)
{
    const struct nd_error_state *error = &state->error;
    ND_TRY_MEMORY(!error->absolute.failed && !error->relative.failed, err);
    double unit = fabs(context->ref.unit);
    uint64_t n = state->bits.n_elems - (state->bits.n_differing - error->n_absolute);
    out->has_errors = state->bits.n_elems == 0 || n > count_equal_nan(state);
    if (!out->has_errors) {
        out->abs = out->rel = (struct nd_error_stats){NAN, NAN, NAN, NAN};
        out->rmse = NAN;
        return ND_OK;
    }
    out->abs = summarise(&error->absolute, error->n_absolute, n, error->max_absolute,
                         nd_exact_round(&error->sum_absolute), unit);
    out->rel = summarise(&error->relative, error->n_relative, n - error->n_undefined, error->max_relative,
                         nd_exact_round(&error->sum_relative), 1);
    out->n_rel_undefined = error->n_undefined;
    /* A negative scale turns signs around. */
    bool is_turned = context->ref.unit < 0;
    out->n_above = is_turned ? error->n_below : error->n_above;
    out->n_below = is_turned ? error->n_above : error->n_below;
    out->share_above = n > 0 ? (double)out->n_above / (double)n : 0;
    out->share_below = n > 0 ? (double)out->n_below / (double)n : 0;
    out->signed_mean = n > 0 ? context->ref.unit * (nd_exact_round(&error->sum_signed) / (double)n) : 0;
    out->rmse = n > 0 ? unit * sqrt(nd_exact_round(&state->signal.sum_squares) / (double)n) : 0;
    return ND_OK;
}

const struct nd_metric nd_metric_error = {
    .name = "error",
    .offset = offsetof(struct nd_pair_state, error),
    ND_STATE_FIELDS(error_fields),
    .update = update_error,
    .add_cell = add_error_cell,
    .finish = finish_error,
};

/* What fails the gates, and the smallest tolerance under which nothing would. docs/reference/metrics.md#worst
 * and #gates. */

static const struct nd_metric_field tolerance_fields[] = {
    ND_STATE_FIELD(COUNT, nd_tolerance_state, n_failing),
    ND_STATE_FIELD(REAL_MAX, nd_tolerance_state, atol),
    ND_STATE_FIELD(REAL_MAX, nd_tolerance_state, rtol),
};

/* The least double q with error <= q * size in double arithmetic. The product grows with q, and doubles of one
 * sign are ordered as their bits are. */
static double min_ratio(double error, double size)
{
    if (size == 0)
        return error > 0 ? INFINITY : 0;
    uint64_t low = 0, high;
    double ratio = INFINITY;
    memcpy(&high, &ratio, sizeof high); /* infinity * size is enough */
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        memcpy(&ratio, &middle, sizeof ratio);
        if (error <= ratio * size)
            high = middle;
        else
            low = middle + 1;
    }
    memcpy(&ratio, &high, sizeof ratio);
    return ratio;
}

static bool passes(const struct nd_gate_values *gate, uint64_t distance, double error, double size)
{
    if ((gate->has_lsb && distance > gate->lsb) || (gate->has_ulp && distance > gate->ulp))
        return false;
    return !gate->has_tolerance || error <= gate->atol + gate->rtol * size;
}

static uint64_t count_failing(const struct nd_gate_values *gate, double unit, const struct nd_pair_block *block)
{
    if (gate->bitwise)
        return block->n_differing;
    uint64_t n_failing = 0;
    const uint16_t *measured = nd_pair_block_measured(block);
    for (size_t k = 0; k < block->n_measured; k++) {
        size_t i = measured[k];
        double error = unit * fabs(block->test.x[i] - block->ref.x[i]), size = fabs(unit * block->ref.x[i]);
        n_failing += !passes(gate, block->distance != NULL ? block->distance[i] : 0, error, size);
    }
    for (size_t k = 0; k < block->n_unmeasured; k++) {
        size_t i = block->unmeasured[k];
        n_failing += !isnan(block->ref.x[i]) || !isnan(block->test.x[i]);
    }
    return n_failing;
}

/* False where the largest relative error is well below the tolerance. The tolerance is held against products
 * with the unit, each of which is off by at most 2^-53 of itself: with a whole d or a float's, and a float's
 * unit, none of them is subnormal that matters. */
static bool may_exceed(const struct nd_pair_context *context, const struct nd_pair_block *block, double rtol)
{
    const double margin = 1 - 0x1p-40;
    bool is_double = context->ref.kind == ND_ELEM_F64 || context->test.kind == ND_ELEM_F64 ||
                     context->is_mixed || context->ref.is_real || !isfinite(context->ref.unit);
    return is_double || block->errors->n_undefined > 0 || !(block->errors->max_relative < rtol * margin);
}

static void update_tolerance(struct nd_pair_state *state, const struct nd_pair_context *context,
                             const struct nd_pair_block *block)
{
    struct nd_tolerance_state *tolerance = &state->tolerance;
    double unit = fabs(context->ref.unit), rtol = tolerance->rtol > 0 ? tolerance->rtol : 0;
    if (block->joint != NULL)
        return;
    tolerance->n_failing += count_failing(&context->gate, unit, block);
    if (block->n_measured == 0)
        return;
    double largest =
        unit * block->sums.max_abs; /* rounding keeps the order: it is the largest of the products */
    tolerance->atol = largest > tolerance->atol ? largest : tolerance->atol;
    bool is_more = rtol < INFINITY && may_exceed(context, block, rtol) &&
                   context->kernels->exceeds(block->ref_clean, block->test_clean, block->n, unit, rtol);
    const uint16_t *measured = is_more ? nd_pair_block_measured(block) : NULL;
    for (size_t k = 0; k < block->n_measured && is_more; k++) {
        size_t i = measured[k];
        double error = unit * fabs(block->test.x[i] - block->ref.x[i]), size = fabs(unit * block->ref.x[i]);
        if (error >
            rtol * size) /* it needs more than all others so far (inf * 0 is no number: nothing needs more) */
            rtol = min_ratio(error, size);
    }
    tolerance->rtol = rtol;
}

static void add_tolerance_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
                               const struct nd_cell *cell)
{
    struct nd_tolerance_state *tolerance = &state->tolerance;
    double unit = fabs(context->ref.unit), d = fabs(cell->test - cell->ref);
    double error = unit * d, size = fabs(unit * cell->ref), rtol = tolerance->rtol > 0 ? tolerance->rtol : 0;
    if (context->gate.bitwise || !passes(&context->gate, (uint64_t)d, error, size))
        tolerance->n_failing += cell->n;
    tolerance->atol = error > tolerance->atol ? error : tolerance->atol;
    tolerance->rtol = error > rtol * size ? min_ratio(error, size) : rtol;
}

static enum nd_status finish_tolerance(const struct nd_pair_state *state, const struct nd_pair_context *context,
                                       struct nd_difference *out, struct nd_error *err)
{
    (void)err;
    const struct nd_tolerance_state *tolerance = &state->tolerance;
    out->n_failing = tolerance->n_failing;
    out->tolerance = (struct nd_tolerance){
        .is_possible = state->account.n_nan_mismatch + state->account.n_inf_mismatch == 0,
        .has_lsb = !context->ref.is_float && !context->is_mixed,
        .has_ulp = context->ulp_format != NULL &&
                   (!context->is_mixed || context->ref.is_float == context->test.is_float),
        .lsb = state->steps.max,
        .ulp = state->ulp.max,
        .atol = tolerance->atol > 0 ? tolerance->atol : 0,
        .rtol = tolerance->rtol > 0 ? tolerance->rtol : 0,
    };
    return ND_OK;
}

static const struct nd_measure tolerance_measures[] = {
    ND_MEASURE(n_failing, VALUES, COUNT, .name = "failing"),
};

const struct nd_metric nd_metric_tolerance = {
    .name = "tolerance",
    .offset = offsetof(struct nd_pair_state, tolerance),
    ND_STATE_FIELDS(tolerance_fields),
    .update = update_tolerance,
    .add_cell = add_tolerance_cell,
    .finish = finish_tolerance,
    ND_MEASURES(tolerance_measures),
};

/* Energies of the signal and of the difference. docs/reference/metrics.md#signal. */

static const struct nd_metric_field signal_fields[] = {
    ND_STATE_FIELD(SUM, nd_signal_state, sum_squares),
    ND_STATE_FIELD(SUM, nd_signal_state, sum_ref_signed),
    ND_STATE_FIELD(COUNT, nd_signal_state, n_test_only),
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

static void update_signal(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static void add_signal_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static enum nd_status finish_signal(const struct nd_pair_state *state, const struct nd_pair_context *context,
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

static const struct nd_measure signal_measures[] = {
    ND_MEASURE(sqnr_db, SIGNAL, REAL, .name = "sqnr_db", .option = "sqnr", .title = "SQNR in dB",
               .column = "SQNR dB", .is_of_differing = true),
    ND_MEASURE(cosine, SIGNAL, NEAR_ONE, .name = "cosine", .option = "cosine", .title = "cosine",
               .column = "cosine", .is_symmetric = true, .is_of_differing = true),
    ND_MEASURE(norm_ratio, SIGNAL, NEAR_ONE, .name = "norm_ratio", .option = "norm_ratio",
               .title = "norm of the test / norm of the reference", .column = "norm ratio",
               .is_of_differing = true),
    ND_MEASURE(pearson, SIGNAL, NEAR_ONE, .name = "pearson", .option = "pearson",
               .title = "Pearson correlation", .column = "Pearson", .is_symmetric = true,
               .is_of_differing = true),
    ND_MEASURE(gain, GAIN, REAL, .name = "gain"),
    ND_MEASURE(offset, GAIN, REAL, .name = "offset"),
    ND_MEASURE(abs.median, ERRORS, REAL, .column = "median |e|"),
    ND_MEASURE(abs.p99, ERRORS, REAL, .column = "p99 |e|"),
    ND_MEASURE(abs.max, ERRORS, REAL, .name = "max_abs", .option = "max_abs",
               .title = "largest |error| in real units", .column = "max |e|", .is_symmetric = true),
    ND_MEASURE(abs.mean, ERRORS, REAL, .name = "mean_abs"),
    ND_MEASURE(signed_mean, ERRORS, REAL, .name = "signed_mean"),
    ND_MEASURE(share_above, ERRORS, REAL, .name = "share_above"),
    ND_MEASURE(share_below, ERRORS, REAL, .name = "share_below"),
    ND_MEASURE(rmse, ERRORS, REAL, .name = "rmse", .option = "rmse", .title = "RMSE in real units",
               .is_symmetric = true),
};

const struct nd_metric nd_metric_signal = {
    .name = "signal",
    .offset = offsetof(struct nd_pair_state, signal),
    ND_STATE_FIELDS(signal_fields),
    .update = update_signal,
    .add_cell = add_signal_cell,
    .finish = finish_signal,
    ND_MEASURES(signal_measures),
};
