#include "compare/latency/latency.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/options.h"
#include "core/statistics/series.h"

/* The rule of detected warm-up (docs/science/latency.md#warm-up). */
enum { WARM_UP_PART = 10, WARM_UP_MOST = 50 };
static const double warm_up_deviations = 3, warm_up_least = 0.02;

void nd_latency_options_init_sized(struct nd_latency_options *options, size_t struct_size)
{
    const struct nd_latency_options own = {.n_warm_up = ND_LATENCY_DETECT,
                                           .min_runs = ND_LATENCY_MIN_RUNS,
                                           .healthy_cv = 0.05,
                                           .suspect_cv = 0.15,
                                           .min_step = 0.02,
                                           .seed = 1};
    nd_options_write(options, struct_size, &own, sizeof own);
}

const char *nd_latency_verdict_name(enum nd_latency_verdict verdict)
{
    static const char *const names[] = {"too few", "unimodal", "two modes", "regimes in time", "not steady"};
    return names[verdict];
}

static enum nd_status check_options(const struct nd_latency_options *o, size_t n, struct nd_error *err)
{
    if (n > ND_LATENCY_MAX_RUNS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "%zu latencies are more than %d", n, ND_LATENCY_MAX_RUNS);
    if (o->min_runs < 2)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "a verdict on latencies needs at least 2 runs");
    if (!(o->healthy_cv > 0) || !(o->suspect_cv >= o->healthy_cv) || !(o->min_step >= 0))
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL,
                       "a healthy CV of %g, a suspect one of %g and a step of %g contradict each other",
                       o->healthy_cv, o->suspect_cv, o->min_step);
    return ND_OK;
}

static void set_unknown(struct nd_latency *out, size_t n)
{
    *out = (struct nd_latency){.n = n, .n_thin = 1};
    double *const numbers[] = {&out->first_us,
                               &out->warm_up_median_us,
                               &out->mean_us,
                               &out->median_us,
                               &out->min_us,
                               &out->max_us,
                               &out->mad_us,
                               &out->p50_us,
                               &out->p90_us,
                               &out->p99_us,
                               &out->cv,
                               &out->cv_low,
                               &out->cv_high,
                               &out->autocorrelation,
                               &out->level_autocorrelation,
                               &out->delta_bic,
                               &out->ashman_d,
                               &out->minor_weight,
                               &out->dip,
                               &out->dip_limit,
                               &out->join.p};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        *numbers[i] = NAN;
    out->join.first_tied = SIZE_MAX;
}

/* Keeps what was recorded. */
static enum nd_status gather(const double *us, size_t n, double *kept, size_t *index, size_t *n_kept,
                             struct nd_error *err)
{
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (isnan(us[i]))
            continue;
        if (!(us[i] > 0) || isinf(us[i]))
            return nd_fail(err, ND_E_LATENCY_VALUE, NULL, "run %zu: a latency of %g microseconds", i, us[i]);
        kept[k] = us[i];
        index[k++] = i;
    }
    *n_kept = k;
    return ND_OK;
}

/* ---- warm-up ---- */

static size_t detect_warm_up(const double *us, size_t n, double *scratch)
{
    size_t half = n / 2, n_half = n - half;
    size_t most = n / WARM_UP_PART < WARM_UP_MOST ? n / WARM_UP_PART : WARM_UP_MOST, k = 1;
    memcpy(scratch, us + half, n_half * sizeof *us);
    double median = nd_series_median(scratch, n_half);
    for (size_t i = 0; i < n_half; i++)
        scratch[i] = fabs(us[half + i] - median);
    double usual =
        fmax(warm_up_deviations * 1.4826 * nd_series_median(scratch, n_half), warm_up_least * median);
    while (k < most && us[k] - median > usual)
        k++;
    return k;
}

static void set_warm_up(const struct nd_latency_options *options, const double *us, size_t n, double *scratch,
                        struct nd_latency *out)
{
    out->first_us = us[0];
    out->n_warm_up = options->n_warm_up == ND_LATENCY_DETECT ? detect_warm_up(us, n, scratch)
                     : options->n_warm_up < n                ? options->n_warm_up
                                                             : n;
    memcpy(scratch, us, out->n_warm_up * sizeof *us);
    if (out->n_warm_up > 0)
        out->warm_up_median_us = nd_series_median(scratch, out->n_warm_up);
    out->n_timed = n - out->n_warm_up;
}

/* ---- summary ---- */

static void set_quantiles(const struct nd_timed *timed, struct nd_latency *out)
{
    const double *sorted = timed->sorted;
    double sum = 0;
    for (size_t i = 0; i < timed->n; i++)
        sum += sorted[i];
    out->mean_us = sum / (double)timed->n;
    out->min_us = sorted[0];
    out->max_us = sorted[timed->n - 1];
    out->p50_us = out->median_us = nd_series_quantile(sorted, timed->n, 0.5);
    out->p90_us = nd_series_quantile(sorted, timed->n, 0.9);
    out->p99_us = nd_series_quantile(sorted, timed->n, 0.99);
    for (size_t i = 0; i < timed->n; i++)
        timed->scratch[i] = fabs(sorted[i] - out->median_us);
    out->mad_us = nd_series_median(timed->scratch, timed->n);
}

static enum nd_status summarise(struct nd_timed *timed, const struct nd_latency_options *options,
                                struct nd_latency *out, struct nd_error *err)
{
    memcpy(timed->sorted, timed->us, timed->n * sizeof *timed->us);
    nd_series_sort(timed->sorted, timed->n);
    set_quantiles(timed, out);
    out->tick_us = nd_series_tick(timed->sorted, timed->n);
    out->autocorrelation = nd_series_autocorrelation(timed->us, timed->n);
    struct nd_series_cv cv;
    size_t block = nd_series_block(out->autocorrelation, timed->n);
    enum nd_status status = nd_series_cv(timed->us, timed->n, block, options->seed, &cv, err);
    out->cv = cv.cv;
    out->cv_low = cv.low;
    out->cv_high = cv.high;
    return status;
}

/* A verdict needs min_runs recorded runs. Those that are set apart as warm-up count, as many as the detection
 * may set apart: a tenth, at least the first. */
static bool has_enough(const struct nd_latency_options *options, const struct nd_latency *l)
{
    size_t n = l->n - l->n_not_recorded, most = n / WARM_UP_PART > 1 ? n / WARM_UP_PART : 1;
    return l->n_timed + (l->n_warm_up < most ? l->n_warm_up : most) >= options->min_runs;
}

/* Evidence that needs no number of runs, chosen: odds of 10^6 against chance. p of a change is corrected for
 * its places, that of the join is exact; a BIC difference is twice the logarithm of odds. Measured on shorter
 * series: docs/science/latency.md#verdict. */
static const double overwhelming_p = 1e-6, overwhelming_bic = 27.6;

/* Runs of the smaller mode: as many as a weight of 0.05 is of 200 runs. Fewer may be outliers of a tail. */
enum { LEAST_MODE_RUNS = 10 };

static bool is_changed_for_sure(const struct nd_latency *l)
{
    for (size_t i = 0; i < l->n_changes; i++)
        if (l->changes[i].p < overwhelming_p)
            return true;
    return false;
}

void nd_latency_conclude(const struct nd_latency_options *options, struct nd_latency *out)
{
    bool is_enough = has_enough(options, out);
    bool is_clear = out->is_mixture && out->delta_bic > overwhelming_bic &&
                    out->modes[0].n >= LEAST_MODE_RUNS && out->modes[1].n >= LEAST_MODE_RUNS;
    bool is_bimodal = out->is_bimodal && (is_enough || is_clear);
    bool is_changed = is_enough ? out->n_changes > 0 : is_changed_for_sure(out);
    double join_level = is_enough ? ND_LATENCY_JOIN_LEVEL : overwhelming_p;
    out->verdict = is_bimodal                           ? ND_LATENCY_TWO_MODES
                   : is_changed                         ? ND_LATENCY_REGIMES
                   : !is_enough                         ? ND_LATENCY_TOO_FEW
                   : out->cv_high > options->suspect_cv ? ND_LATENCY_NOT_STEADY
                                                        : ND_LATENCY_UNIMODAL;
    out->is_suspect =
        out->verdict > ND_LATENCY_UNIMODAL || (out->join.state == ND_JOIN_KNOWN && out->join.p < join_level);
}

struct examined {
    const double *us; /* [n] */
    size_t n;
    double *work;           /* [4 * n] */
    size_t *index;          /* [n] */
    unsigned char *classes; /* [n], or NULL */
};

static enum nd_status examine(const struct examined *e, const struct nd_latency_options *options,
                              struct nd_latency *out, struct nd_error *err)
{
    size_t n = e->n, n_kept = 0;
    double *work = e->work;
    enum nd_status status = gather(e->us, n, work, e->index, &n_kept, err);
    if (status != ND_OK)
        return status;
    out->n_not_recorded = n - n_kept;
    if (n_kept > 0)
        set_warm_up(options, work, n_kept, work + n, out);
    if (out->n_timed == 0)
        return ND_OK;
    struct nd_timed timed = {.us = work + out->n_warm_up,
                             .index = e->index + out->n_warm_up,
                             .n = out->n_timed,
                             .sorted = work + n,
                             .levels = work + 2 * n,
                             .scratch = work + 3 * n};
    status = summarise(&timed, options, out, err);
    if (status == ND_OK)
        status = nd_latency_find_modes(&timed, options, e->classes, out, err);
    return status;
}

enum nd_status nd_latency_classify(const double *us, size_t n, const struct nd_latency_options *options,
                                   unsigned char *classes, struct nd_latency *out, struct nd_error *err)
{
    struct nd_latency found;
    enum nd_status status = check_options(options, n, err);
    if (status != ND_OK)
        return status;
    set_unknown(&found, n);
    if (classes != NULL)
        memset(classes, ND_RUN_APART, n);
    struct examined examined = {.us = us, .n = n, .classes = classes};
    examined.work = nd_calloc(n, 4 * sizeof *examined.work);
    examined.index = nd_calloc(n, sizeof *examined.index);
    status = examined.work != NULL && examined.index != NULL ? examine(&examined, options, &found, err)
                                                             : nd_fail_memory(err);
    free(examined.work);
    free(examined.index);
    if (status != ND_OK)
        return status;
    nd_latency_conclude(options, &found);
    *out = found;
    return ND_OK;
}

enum nd_status nd_latency_examine(const double *us, size_t n, const struct nd_latency_options *options,
                                  struct nd_latency *out, struct nd_error *err)
{
    struct nd_latency_options own;
    nd_latency_options_init(&own);
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    return status == ND_OK ? nd_latency_classify(us, n, &own, NULL, out, err) : status;
}
