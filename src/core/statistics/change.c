/* Where the level of a series changes, by binary segmentation: docs/science/latency.md#levels. */
#include "core/statistics/series.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

/* Of a change, and where values are clipped first (docs/science/latency.md#levels). */
static const double level = 0.01, clip_deviations = 5;

struct stretch {
    size_t from, to;
};

struct search {
    const double *values;
    double *clipped; /* far values count as less far: an outlier is no change of level */
    double *sums;    /* [n + 1] of clipped values */
    double *scratch;
    size_t n;
    double log_step;
    struct nd_changes *changes;
};

static void clip(struct search *s)
{
    memcpy(s->scratch, s->values, s->n * sizeof *s->scratch);
    double median = nd_series_median(s->scratch, s->n);
    for (size_t i = 0; i < s->n; i++)
        s->scratch[i] = fabs(s->values[i] - median);
    double reach = clip_deviations * 1.4826 * nd_series_median(s->scratch, s->n);
    for (size_t i = 0; i < s->n; i++) {
        double away = s->values[i] - median;
        if (reach > 0 && fabs(away) > reach)
            away = copysign(reach, away);
        s->clipped[i] = away;
        s->sums[i + 1] = s->sums[i] + away;
    }
}

static double mean_of(const struct search *s, size_t from, size_t to)
{
    return (s->sums[to] - s->sums[from]) / (double)(to - from);
}

/* Where a step explains most of the stretch. */
static size_t best_place(const struct search *s, struct stretch part)
{
    double most = -1;
    size_t best = part.from;
    for (size_t k = part.from + ND_CHANGE_MIN_RUNS; k + ND_CHANGE_MIN_RUNS <= part.to; k++) {
        double a = (double)(k - part.from), b = (double)(part.to - k);
        double step = mean_of(s, k, part.to) - mean_of(s, part.from, k), gain = step * step * a * b;
        if (gain > most) {
            most = gain;
            best = k;
        }
    }
    return best;
}

/* p of a step at k, for the best of all places: residuals that remember the last one make means less certain,
 * by (1 + phi) / (1 - phi). */
static double p_of_step(const struct search *s, struct stretch part, size_t k)
{
    double n = (double)(part.to - part.from), square = 0, product = 0, last = 0;
    double before = mean_of(s, part.from, k), after = mean_of(s, k, part.to);
    for (size_t i = part.from; i < part.to; i++) {
        double residual = s->clipped[i] - (i < k ? before : after);
        square += residual * residual;
        product += i > part.from && i != k ? residual * last : 0;
        last = residual;
    }
    if (!(square > 0))
        return before < after || before > after ? 0 : 1;
    /* A short series looks less correlated than it is (Kendall 1954): by (1 + 3 phi) / n in each of the halves.
     */
    double phi = product / square;
    phi = fmin(fmax(phi + 2 * (1 + 3 * phi) / n, 0), 0.98);
    double variance = square / (n - 2) * (1 + phi) / (1 - phi);
    double t =
        fabs(after - before) / sqrt(variance * (1 / (double)(k - part.from) + 1 / (double)(part.to - k)));
    return fmin(1, erfc(t / sqrt(2.0)) * n);
}

static double median_of(const struct search *s, size_t from, size_t to)
{
    memcpy(s->scratch, s->values + from, (to - from) * sizeof *s->scratch);
    return nd_series_median(s->scratch, to - from);
}

/* Takes a change in this stretch, if there is one; false: none. */
static bool take(struct search *s, struct stretch part, size_t *at)
{
    if (part.to - part.from < 2 * ND_CHANGE_MIN_RUNS)
        return false;
    size_t k = best_place(s, part);
    double p = p_of_step(s, part, k);
    if (!(p < level) || fabs(median_of(s, k, part.to) - median_of(s, part.from, k)) < s->log_step)
        return false;
    s->changes->items[s->changes->n++] = (struct nd_level_change){k, p};
    *at = k;
    return true;
}

static int by_place(const void *a, const void *b)
{
    size_t x = ((const struct nd_level_change *)a)->at, y = ((const struct nd_level_change *)b)->at;
    return (x > y) - (x < y);
}

/* The whole first, then its halves, then theirs: what is kept when there are too many is the coarsest. Every
 * stretch that is split leaves two, so there are never more than 2 changes->most + 1. */
static enum nd_status segment(struct search *s, struct nd_error *err)
{
    ND_FREED struct stretch *queue = nd_calloc(2 * s->changes->most + 1, sizeof *queue);
    ND_TRY_MEMORY(queue != NULL, err);
    size_t n_queued = 1;
    queue[0] = (struct stretch){0, s->n};
    for (size_t i = 0; i < n_queued && s->changes->n < s->changes->most; i++) {
        size_t at;
        if (!take(s, queue[i], &at))
            continue;
        queue[n_queued++] = (struct stretch){queue[i].from, at};
        queue[n_queued++] = (struct stretch){at, queue[i].to};
    }
    return ND_OK;
}

/* Sorts the changes. While one was looked for, others may have blurred it: p is that among its neighbours, if
 * that is the smaller one. */
static void settle(struct search *s)
{
    struct nd_level_change *items = s->changes->items;
    size_t n = s->changes->n;
    if (n == 0)
        return;
    qsort(items, n, sizeof *items, by_place);
    for (size_t i = 0; i < n; i++) {
        struct stretch part = {i > 0 ? items[i - 1].at : 0, i + 1 < n ? items[i + 1].at : s->n};
        items[i].p = fmin(items[i].p, p_of_step(s, part, items[i].at));
    }
}

enum nd_status nd_change_find(const double *values, size_t n, double log_step, struct nd_changes *changes,
                              struct nd_error *err)
{
    changes->n = 0;
    ND_FREED double *work = nd_calloc(n + 1, 3 * sizeof *work);
    ND_TRY_MEMORY(work != NULL, err);
    struct search search = {.values = values,
                            .clipped = work,
                            .sums = work + n,
                            .scratch = work + 2 * n + 1,
                            .n = n,
                            .log_step = log_step,
                            .changes = changes};
    enum nd_status status = ND_OK;
    if (n >= 2 * (size_t)ND_CHANGE_MIN_RUNS) {
        clip(&search);
        status = segment(&search, err);
        settle(&search);
    }
    return status;
}
