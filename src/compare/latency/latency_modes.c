/* Levels in time, then modes within them: docs/science/latency.md#levels to #verdict. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/random.h"
#include "compare/latency/latency.h"
#include "core/statistics/change.h"
#include "core/statistics/mixture.h"
#include "core/statistics/series.h"

enum { N_PEELS = 3 };
/* docs/science/latency.md#modes. */
static const double correlated = 0.3, strong_bic = 10, apart = 2, least_weight = 0.05;

/* What separates the runs, in the logarithms that are left after their level's median. */
struct parting {
    struct nd_mixture mixture;
    double tail_low, tail_high; /* outside: the tail */
};

/* ---- levels ---- */

static void take_logarithms(struct nd_timed *timed, const struct nd_latency_options *options, double tick)
{
    uint64_t state = options->seed;
    for (size_t i = 0; i < timed->n; i++) {
        /* Two halves make a triangle: its sums over the grid have no steps for a mode to sit on. */
        double jitter = tick > 0 ? (nd_splitmix_uniform(&state) - nd_splitmix_uniform(&state)) * tick : 0;
        timed->levels[i] = log(timed->us[i] + jitter);
    }
}

static double median_of(struct nd_timed *timed, const double *values, size_t from, size_t to)
{
    memcpy(timed->scratch, values + from, (to - from) * sizeof *values);
    return nd_series_median(timed->scratch, to - from);
}

/* The runs of level k: from changes[k - 1] up to changes[k]. */
static void level_bounds(const struct nd_change *changes, size_t n_changes, size_t n, size_t k, size_t *from,
                         size_t *to)
{
    *from = k > 0 ? changes[k - 1].at : 0;
    *to = k < n_changes ? changes[k].at : n;
}

static void remove_levels(struct nd_timed *timed, const struct nd_change *changes, struct nd_latency *out)
{
    double before = NAN;
    for (size_t k = 0; k <= out->n_changes; k++) {
        size_t from, to;
        level_bounds(changes, out->n_changes, timed->n, k, &from, &to);
        double median_us = median_of(timed, timed->us, from, to);
        double median = median_of(timed, timed->levels, from, to);
        for (size_t i = from; i < to; i++)
            timed->levels[i] -= median;
        if (k > 0)
            out->changes[k - 1] =
                (struct nd_latency_change){timed->index[from], before, median_us, changes[k - 1].p};
        before = median_us;
    }
}

/* Slow levels are those above the geometric middle of the slowest and the fastest. */
static void class_levels(const struct nd_timed *timed, const struct nd_latency *out, unsigned char *classes)
{
    double least = out->changes[0].before_us, most = least, level = least;
    for (size_t k = 0; k < out->n_changes; k++) {
        least = fmin(least, out->changes[k].after_us);
        most = fmax(most, out->changes[k].after_us);
    }
    for (size_t i = 0, k = 0; i < timed->n; i++) {
        if (k < out->n_changes && timed->index[i] == out->changes[k].run)
            level = out->changes[k++].after_us;
        classes[timed->index[i]] = level > sqrt(least * most) ? ND_RUN_SLOW : ND_RUN_FAST;
    }
}

/* ---- modes ---- */

/* Every n_thin-th run, sorted, into scratch; of very many an even choice of the sorted ones. */
static size_t choose_runs(struct nd_timed *timed, size_t n_thin)
{
    size_t n = 0;
    for (size_t i = 0; i < timed->n; i += n_thin)
        timed->scratch[n++] = timed->levels[i];
    nd_series_sort(timed->scratch, n);
    if (n <= ND_MIXTURE_MAX)
        return n;
    for (size_t i = 0; i < ND_MIXTURE_MAX; i++)
        timed->scratch[i] = timed->scratch[(size_t)((double)i * (double)(n - 1) / (ND_MIXTURE_MAX - 1))];
    return ND_MIXTURE_MAX;
}

static double minor_weight(const struct nd_mixture *m)
{
    return fmin(m->parts[0].weight, m->parts[1].weight);
}

static bool is_accepted(const struct nd_mixture *m)
{
    return m->delta_bic > strong_bic && m->ashman_d > apart && minor_weight(m) >= least_weight;
}

/* Sets apart what lies beyond the widest gap of the outer 5 % at either end. False: nothing does. */
static bool peel(const double *sorted, size_t n, struct parting *parting, size_t *from, size_t *to)
{
    size_t most = (size_t)(least_weight * (double)n), low = *from, high = *to;
    double gap_low = 0, gap_high = 0;
    for (size_t i = *from + 1; i <= most && i < *to; i++)
        if (sorted[i] - sorted[i - 1] > gap_low) {
            gap_low = sorted[i] - sorted[i - 1];
            low = i;
        }
    for (size_t i = *to - 1; n - i <= most && i > *from; i--)
        if (sorted[i] - sorted[i - 1] > gap_high) {
            gap_high = sorted[i] - sorted[i - 1];
            high = i;
        }
    if (gap_high >= gap_low && gap_high > 0) {
        parting->tail_high = (sorted[high - 1] + sorted[high]) / 2;
        *to = high;
    } else if (gap_low > 0) {
        parting->tail_low = (sorted[low - 1] + sorted[low]) / 2;
        *from = low;
    }
    return gap_high > 0 || gap_low > 0;
}

/* Fits the mixture. While neither one Gaussian explains the series nor two kinds of run that count, the runs
 * furthest out are set apart and the rest is fitted again. [*from, *to) of sorted is what was fitted at last.
 */
static enum nd_status part_runs(const double *sorted, size_t n, struct parting *parting, size_t *from,
                                size_t *to, struct nd_error *err)
{
    struct nd_mixture *m = &parting->mixture;
    *from = 0;
    *to = n;
    enum nd_status status = nd_mixture_fit(sorted, n, m, err);
    for (int i = 0; i < N_PEELS && status == ND_OK && m->gaussian_bic > strong_bic && !is_accepted(m); i++) {
        if (!peel(sorted, n, parting, from, to) || *to - *from < ND_MIXTURE_MIN ||
            sorted[*from] >= sorted[*to - 1])
            return ND_OK;
        status = nd_mixture_fit(sorted + *from, *to - *from, m, err);
    }
    return status;
}

static void judge_modes(const struct parting *parting, struct nd_latency *out)
{
    const struct nd_mixture *m = &parting->mixture;
    out->delta_bic = m->delta_bic;
    out->ashman_d = m->ashman_d;
    out->minor_weight = minor_weight(m);
    out->is_mixture = is_accepted(m);
    out->is_dip = out->dip > out->dip_limit;
    out->is_bimodal = out->is_mixture || (out->is_dip && out->minor_weight >= least_weight);
}

/* Counts and medians of both modes and of the tail. */
static void describe_modes(struct nd_timed *timed, const struct parting *parting, struct nd_latency *out)
{
    for (size_t i = 0; i < timed->n; i++)
        out->n_tail += timed->levels[i] < parting->tail_low || timed->levels[i] > parting->tail_high;
    for (size_t mode = 0; out->is_bimodal && mode < 2; mode++) {
        size_t n = 0;
        for (size_t i = 0; i < timed->n; i++) {
            double y = timed->levels[i];
            if (y >= parting->tail_low && y <= parting->tail_high &&
                (y > parting->mixture.boundary) == (mode == 1))
                timed->scratch[n++] = timed->us[i];
        }
        out->modes[mode] = (struct nd_latency_mode){n > 0 ? nd_series_median(timed->scratch, n) : NAN,
                                                    parting->mixture.parts[mode].weight, n};
    }
}

static void class_modes(const struct nd_timed *timed, const struct parting *parting,
                        const struct nd_latency *out, unsigned char *classes)
{
    for (size_t i = 0; i < timed->n; i++) {
        double y = timed->levels[i];
        bool is_tail = y < parting->tail_low || y > parting->tail_high;
        enum nd_run_class class = y > parting->mixture.boundary ? ND_RUN_SLOW : ND_RUN_FAST;
        if (!out->is_bimodal)
            class = y > parting->tail_high ? ND_RUN_SLOW : ND_RUN_FAST;
        else if (is_tail)
            class = ND_RUN_APART;
        classes[timed->index[i]] = (unsigned char)class;
    }
}

static enum nd_status find_modes(struct nd_timed *timed, struct parting *parting, struct nd_latency *out,
                                 struct nd_error *err)
{
    size_t n = choose_runs(timed, out->n_thin), from = 0, to = n;
    if (n < ND_MIXTURE_MIN || !(timed->scratch[n - 1] - timed->scratch[0] > 1e-9))
        return ND_OK;
    enum nd_status status = part_runs(timed->scratch, n, parting, &from, &to, err);
    if (status == ND_OK)
        status = nd_series_dip(timed->scratch + from, to - from, &out->dip, err);
    if (status != ND_OK)
        return status;
    out->dip_limit = nd_series_dip_limit(to - from);
    judge_modes(parting, out);
    describe_modes(timed, parting, out);
    return ND_OK;
}

static void set_slow(const struct nd_timed *timed, const struct parting *parting, unsigned char *classes,
                     struct nd_latency *out)
{
    bool has_high_tail = false;
    for (size_t i = 0; i < timed->n; i++)
        has_high_tail |= timed->levels[i] > parting->tail_high;
    out->slow = out->is_bimodal      ? ND_SLOW_MODE
                : out->n_changes > 0 ? ND_SLOW_REGIME
                : has_high_tail      ? ND_SLOW_TAIL
                                     : ND_SLOW_NONE;
    if (classes == NULL)
        return;
    if (out->slow == ND_SLOW_REGIME)
        class_levels(timed, out, classes);
    else
        class_modes(timed, parting, out, classes);
}

enum nd_status nd_latency_find_modes(struct nd_timed *timed, const struct nd_latency_options *options,
                                     unsigned char *classes, struct nd_latency *out, struct nd_error *err)
{
    struct nd_change items[ND_LATENCY_MAX_CHANGES];
    struct nd_changes changes = {.items = items, .most = ND_LATENCY_MAX_CHANGES};
    struct parting parting = {.tail_low = -INFINITY, .tail_high = INFINITY};
    take_logarithms(timed, options, out->tick_us);
    enum nd_status status = nd_change_find(timed->levels, timed->n, log1p(options->min_step), &changes, err);
    out->n_changes = changes.n;
    if (status != ND_OK)
        return status;
    remove_levels(timed, items, out);
    double phi = nd_series_autocorrelation(timed->levels, timed->n);
    out->level_autocorrelation = phi;
    if (phi > correlated)
        out->n_thin = (size_t)ceil(log(correlated) / log(fmin(phi, 0.99)));
    status = find_modes(timed, &parting, out, err);
    if (status == ND_OK)
        set_slow(timed, &parting, classes, out);
    return status;
}
