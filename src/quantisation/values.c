/* What the float values of a tensor look like. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/statistics/series.h"
#include "quantisation/study.h"

/* A group of values at one end is far off when the gap before it is so many times as wide as the rest: chosen.
 * A Softmax does not care how far below the others a mask lies; a quantiser does. */
static const double far_gap = 20;
/* Far values are a mask when they are at least this share of all, and outliers when they are fewer: chosen. */
static const double mask_min_share = 1e-3;
enum { mask_min_values = 64 }; /* of fewer values nothing is said */
/* Values of a mask differ by at most this part of their size (scores are added to it): chosen. */
static const double mask_spread = 0.05;
/* The share of the values that is called central, as calibration by percentile does. */
static const double central_share = 0.999;

/* Sorted, without what is not a number. out and scratch: [values->n]. */
static size_t sort_known(const struct nd_loss_values *values, float *out, float *scratch)
{
    size_t n = 0;
    for (size_t i = 0; i < values->n; i++)
        if (!isnan(values->values[i]))
            out[n++] = values->values[i];
    nd_series_sort_floats(out, n, scratch);
    return n;
}

/* rest: the least and the greatest of the other values. */
static bool is_mask(const float *group, size_t n_group, size_t n, double gap, struct nd_range rest)
{
    double first = (double)group[0], last = (double)group[n_group - 1], width = rest.high - rest.low;
    double size = fmin(fabs(first), fabs(last)), rest_size = fmax(fabs(rest.low), fabs(rest.high));
    return n >= mask_min_values && width > 0 && gap >= far_gap * width && size >= far_gap * rest_size &&
           (double)n_group >= mask_min_share * (double)n &&
           last - first <= mask_spread * fmax(fabs(first), fabs(last));
}

/* Takes a mask constant away from one end: the group beyond the widest gap. */
static void part_mask(const float *sorted, size_t n, struct nd_value_facts *facts, size_t *first, size_t *count)
{
    size_t at = 0;
    double widest = 0;
    *first = 0;
    *count = n;
    for (size_t i = 0; i + 1 < n; i++) {
        double gap = (double)sorted[i + 1] - (double)sorted[i];
        if (gap > widest) {
            widest = gap;
            at = i;
        }
    }
    size_t n_low = at + 1;
    struct nd_range below = {(double)sorted[0], (double)sorted[at]};
    struct nd_range above = {(double)sorted[n_low < n ? n_low : n - 1], (double)sorted[n - 1]};
    if (n_low < n && is_mask(sorted, n_low, n, widest, above)) {
        facts->mask = (double)sorted[0];
        facts->mask_share = (double)n_low / (double)n;
        *first = n_low;
        *count = n - n_low;
    } else if (n_low < n && is_mask(sorted + n_low, n - n_low, n, widest, below)) {
        facts->mask = (double)sorted[n - 1];
        facts->mask_share = (double)(n - n_low) / (double)n;
        *count = n_low;
    } else {
        return;
    }
    facts->has_mask = true;
}

/* Of the values without the mask. */
static double noise_to_signal(const struct nd_loss_values *values, const struct nd_value_facts *facts)
{
    double sum = 0, sum_squares = 0, noise = 0, n = 0;
    for (size_t i = 0; i < values->n; i++) {
        double x = (double)values->values[i], e = (double)values->errors[i];
        if (isnan(x) || x < facts->low || x > facts->high)
            continue;
        n++;
        sum += x;
        sum_squares += x * x;
        noise += e * e;
    }
    double variance = n > 0 ? sum_squares / n - sum / n * (sum / n) : NAN;
    return variance > 0 ? noise / n / variance : n > 0 && noise > 0 ? HUGE_VAL : 0;
}

enum nd_status nd_loss_value_facts(const struct nd_loss_values *values, struct nd_value_facts *facts,
                                   struct nd_error *err)
{
    *facts = (struct nd_value_facts){.mask = NAN, .noise_to_signal = NAN};
    facts->sorted = nd_calloc(values->n, sizeof *facts->sorted);
    float *scratch = nd_calloc(values->n, sizeof *scratch);
    size_t n = 0, first = 0;
    if (facts->sorted != NULL && scratch != NULL)
        n = sort_known(values, facts->sorted, scratch);
    bool has_all = facts->sorted != NULL && scratch != NULL;
    free(scratch);
    ND_TRY_MEMORY(has_all, err);
    if (n == 0)
        return ND_OK;
    part_mask(facts->sorted, n, facts, &first, &facts->n);
    memmove(facts->sorted, facts->sorted + first, facts->n * sizeof *facts->sorted);
    facts->low = (double)facts->sorted[0];
    facts->high = (double)facts->sorted[facts->n - 1];
    facts->central_low = nd_value_quantile(facts->sorted, facts->n, (1 - central_share) / 2);
    facts->central_high = nd_value_quantile(facts->sorted, facts->n, (1 + central_share) / 2);
    facts->noise_to_signal = noise_to_signal(values, facts);
    return ND_OK;
}

void nd_value_facts_deinit(struct nd_value_facts *facts)
{
    free(facts->sorted);
    *facts = (struct nd_value_facts){0};
}
