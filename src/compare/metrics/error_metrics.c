/* Absolute and relative errors. docs/reference/metrics.md#errors. */
#include <math.h>

#include "compare/metrics/states.h"
#include "core/error.h"

static const struct nd_metric_field fields[] = {
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_error_state, n_absolute), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_error_state, n_relative), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_error_state, n_undefined), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_error_state, n_above), 0},
    {ND_METRIC_FIELD_COUNT, offsetof(struct nd_error_state, n_below), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_error_state, max_absolute), 0},
    {ND_METRIC_FIELD_REAL_MAX, offsetof(struct nd_error_state, max_relative), 0},
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_error_state, sum_absolute), 0},
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_error_state, sum_relative), 0},
    {ND_METRIC_FIELD_SUM, offsetof(struct nd_error_state, sum_signed), 0},
    {ND_METRIC_FIELD_HISTOGRAM, offsetof(struct nd_error_state, absolute), 0},
    {ND_METRIC_FIELD_HISTOGRAM, offsetof(struct nd_error_state, relative), 0},
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
static void update(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static void add_cell(struct nd_pair_state *state, const struct nd_pair_context *context,
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

static enum nd_status finish(const struct nd_pair_state *state, const struct nd_pair_context *context,
                             struct nd_difference *out, struct nd_error *err)
{
    const struct nd_error_state *error = &state->error;
    if (error->absolute.failed || error->relative.failed)
        return nd_fail_memory(err);
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
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .update = update,
    .add_cell = add_cell,
    .finish = finish,
};
