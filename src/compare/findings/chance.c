/* Whether the reference itself is broken: docs/reference/metrics.md#top-1. */
#include "compare/findings/top1_classes.h"
#include "core/statistics/distributions.h"

/* Chosen: how sure each of both bounds is. */
static const double LEVEL = 0.01;

/* Chosen: so far above chance an accuracy may be that nobody would use. Too few samples exclude no such model.
 */
static const double USABLE = 0.2;

/* A score that chance explains, and so many samples that no usable model would have it. Fewer right than by
 * chance count, too: shifted labels. */
static bool is_chance(const struct nd_top1_device *device, double chance)
{
    double low = nd_binomial_lower(device->n_correct, device->n_samples, LEVEL);
    double high = nd_binomial_upper(device->n_correct, device->n_samples, LEVEL);
    return device->exists && device->n_samples > 0 && low <= chance && high <= chance + USABLE;
}

static bool is_row_of_chance(const struct nd_comparison *comparison, const struct nd_top1 *row)
{
    for (size_t c = 0; c < comparison->n_devices; c++)
        if (!is_chance(&row->devices[c], 1 / (double)row->n_classes))
            return false;
    return true;
}

/* An output whose labels reach into its upper half: else it may hold features, and no classes. */
static bool is_classified(const struct nd_top1 *row)
{
    return row->has_labels && row->n_classes >= 2 && row->max_label >= row->n_classes / 2;
}

void nd_chance_conclude(struct nd_comparison *comparison)
{
    comparison->broken_top1 = SIZE_MAX;
    for (size_t i = 0; i < comparison->n_top1; i++) {
        const struct nd_top1 *row = &comparison->top1[i];
        if (!is_classified(row))
            continue;
        /* One output that is right speaks for the reference, the labels and what was fed. */
        if (!is_row_of_chance(comparison, row)) {
            comparison->broken_top1 = SIZE_MAX;
            return;
        }
        if (comparison->broken_top1 == SIZE_MAX)
            comparison->broken_top1 = i;
    }
}
