/* Levels in time, then modes within them: docs/science/latency.md#levels to #verdict. */
#include "compare/latency/latency.h"

#include <assert.h>
#include <math.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/series.h"

enum { N_PEELS = 3 };
/* docs/science/latency.md#modes. */
static const double correlated = 0.3, strong_bic = 10, apart = 2, min_weight = 0.05;

/* What separates the runs, in the logarithms that are left after their level's median. */
struct parting {
    struct nd_mixture mixture;
    double tail_low, tail_high; /* outside: the tail */
};

/* ---- levels ---- */

static double median_of(struct nd_timed *timed, const double *values, size_t from, size_t to)
{
    memcpy(timed->scratch, values + from, (to - from) * sizeof *values);
    return nd_series_median(timed->scratch, to - from);
}

/* The runs of level k: from changes[k - 1] up to changes[k]. */
static void level_bounds(const struct nd_level_change *changes, size_t n_changes, size_t n, size_t k,
                         size_t *from, size_t *to)
{
    *from = k > 0 ? changes[k - 1].at : 0;
    *to = k < n_changes ? changes[k].at : n;
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
    return m->delta_bic > strong_bic && m->ashman_d > apart && minor_weight(m) >= min_weight;
}

/* Sets apart what lies beyond the widest gap of the outer 5 % at either end. False: nothing does. */
static bool peel(const double *sorted, size_t n, struct parting *parting, size_t *from, size_t *to)
{
    size_t most = (size_t)(min_weight * (double)n), low = *from, high = *to;
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

static enum nd_status find_modes(struct nd_timed *timed, struct parting *parting, struct nd_latency *out,
                                 struct nd_error *err)
{
    size_t n = choose_runs(timed, out->n_thin), from = 0, to = n;
    if (n < ND_MIXTURE_MIN || !(timed->scratch[n - 1] - timed->scratch[0] > 1e-9))
        return ND_OK;
    ND_TRY(part_runs(timed->scratch, n, parting, &from, &to, err));
    ND_TRY(nd_series_dip(timed->scratch + from, to - from, &out->dip, err));
    out->dip_limit = nd_series_dip_limit(to - from);
    const struct nd_mixture *m = &parting->mixture;
    out->delta_bic = m->delta_bic;
    out->ashman_d = m->ashman_d;
    out->minor_weight = minor_weight(m);
    out->is_mixture = is_accepted(m);
    out->is_dip = out->dip > out->dip_limit;
    out->is_bimodal = out->is_mixture || (out->is_dip && out->minor_weight >= min_weight);
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
    if (out->slow == ND_SLOW_REGIME) {
        /* Slow levels are those above the geometric middle of the slowest and the fastest. */
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
    } else {
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
}

/* Fills the changes, modes, tail and slow of out, and the classes of timed runs. timed->n >= 1. */
static enum nd_status nd_latency_find_modes(struct nd_timed *timed, const struct nd_latency_options *options,
                                            unsigned char *classes, struct nd_latency *out,
                                            struct nd_error *err)
{
    struct nd_level_change items[ND_LATENCY_MAX_CHANGES];
    struct nd_changes changes = {.items = items, .most = ND_LATENCY_MAX_CHANGES};
    struct parting parting = {.tail_low = -INFINITY, .tail_high = INFINITY};
    uint64_t state = options->seed;
    for (size_t i = 0; i < timed->n; i++) {
        /* Two halves make a triangle: its sums over the grid have no steps for a mode to sit on. */
        double jitter =
            out->tick_us > 0 ? (nd_splitmix_uniform(&state) - nd_splitmix_uniform(&state)) * out->tick_us : 0;
        timed->levels[i] = log(timed->us[i] + jitter);
    }
    enum nd_status status = nd_change_find(timed->levels, timed->n, log1p(options->min_step), &changes, err);
    out->n_changes = changes.n;
    if (status != ND_OK)
        return status;
    double before = NAN;
    for (size_t k = 0; k <= out->n_changes; k++) {
        size_t from, to;
        level_bounds(items, out->n_changes, timed->n, k, &from, &to);
        double median_us = median_of(timed, timed->us, from, to);
        double median = median_of(timed, timed->levels, from, to);
        for (size_t i = from; i < to; i++)
            timed->levels[i] -= median;
        if (k > 0)
            out->changes[k - 1] =
                (struct nd_latency_change){timed->index[from], before, median_us, items[k - 1].p};
        before = median_us;
    }
    double phi = nd_series_autocorrelation(timed->levels, timed->n);
    out->level_autocorrelation = phi;
    if (phi > correlated)
        out->n_thin = (size_t)ceil(log(correlated) / log(fmin(phi, 0.99)));
    status = find_modes(timed, &parting, out, err);
    if (status == ND_OK)
        set_slow(timed, &parting, classes, out);
    return status;
}

/* The rule of detected warm-up (docs/science/latency.md#warm-up). */
enum { WARM_UP_PART = 10, WARM_UP_MAX = 50 };
static const double warm_up_deviations = 3, warm_up_min = 0.02;

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
    size_t most = n / WARM_UP_PART < WARM_UP_MAX ? n / WARM_UP_PART : WARM_UP_MAX, k = 1;
    memcpy(scratch, us + half, n_half * sizeof *us);
    double median = nd_series_median(scratch, n_half);
    for (size_t i = 0; i < n_half; i++)
        scratch[i] = fabs(us[half + i] - median);
    double usual = fmax(warm_up_deviations * 1.4826 * nd_series_median(scratch, n_half), warm_up_min * median);
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

static enum nd_status summarise(struct nd_timed *timed, const struct nd_latency_options *options,
                                struct nd_latency *out, struct nd_error *err)
{
    memcpy(timed->sorted, timed->us, timed->n * sizeof *timed->us);
    nd_series_sort(timed->sorted, timed->n);
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

/* Evidence that needs no number of runs, chosen: odds of 10^6 against chance. p of a change is corrected for
 * its places, that of the join is exact; a BIC difference is twice the logarithm of odds. Measured on shorter
 * series: docs/science/latency.md#verdict. */
static const double overwhelming_p = 1e-6, overwhelming_bic = 27.6;

/* Runs of the smaller mode: as many as a weight of 0.05 is of 200 runs. Fewer may be outliers of a tail. */
enum { MIN_MODE_RUNS = 10 };

static bool is_changed_for_sure(const struct nd_latency *l)
{
    for (size_t i = 0; i < l->n_changes; i++)
        if (l->changes[i].p < overwhelming_p)
            return true;
    return false;
}

void nd_latency_conclude(const struct nd_latency_options *options, struct nd_latency *out)
{
    /* A verdict needs min_runs recorded runs. Those that are set apart as warm-up count, as many as the
     * detection may set apart: a tenth, at least the first. */
    size_t n = out->n - out->n_not_recorded, most = n / WARM_UP_PART > 1 ? n / WARM_UP_PART : 1;
    bool is_enough = out->n_timed + (out->n_warm_up < most ? out->n_warm_up : most) >= options->min_runs;
    bool is_clear = out->is_mixture && out->delta_bic > overwhelming_bic && out->modes[0].n >= MIN_MODE_RUNS &&
                    out->modes[1].n >= MIN_MODE_RUNS;
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
    ND_TRY(gather(e->us, n, work, e->index, &n_kept, err));
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
    ND_TRY(summarise(&timed, options, out, err));
    return nd_latency_find_modes(&timed, options, e->classes, out, err);
}

/* nd_latency_examine that also says what each of the n runs is (classes[n], nullable). */
static enum nd_status nd_latency_classify(const double *us, size_t n, const struct nd_latency_options *options,
                                          unsigned char *classes, struct nd_latency *out, struct nd_error *err)
{
    struct nd_latency found;
    ND_TRY(check_options(options, n, err));
    set_unknown(&found, n);
    if (classes != NULL)
        memset(classes, ND_RUN_APART, n);
    ND_FREED double *work = nd_calloc(n, 4 * sizeof *work);
    ND_FREED size_t *index = nd_calloc(n, sizeof *index);
    ND_TRY_MEMORY(work != NULL && index != NULL, err);
    struct examined examined = {.us = us, .n = n, .classes = classes, .work = work, .index = index};
    ND_TRY(examine(&examined, options, &found, err));
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

/* Whether slow runs give other bits: docs/science/latency.md#other-bits. */

/* Of one sample and tensor; runs that give still more different results are no reference for anything. */
enum { MAX_DIGESTS = 64 };

struct table {
    size_t n_slow, n_slow_other, n_fast, n_fast_other;
};

static double log_choose(size_t n, size_t k)
{
    int sign;
    return lgamma_r((double)n + 1, &sign) - lgamma_r((double)k + 1, &sign) -
           lgamma_r((double)(n - k) + 1, &sign);
}

/* Fisher's exact test, one-sided: so many others or more among the slow runs, were they spread by chance. */
static double fisher(const struct table *t)
{
    size_t n_other = t->n_slow_other + t->n_fast_other, n = t->n_slow + t->n_fast;
    size_t most = n_other < t->n_slow ? n_other : t->n_slow;
    double p = 0, all = log_choose(n, t->n_slow);
    for (size_t k = t->n_slow_other; k <= most; k++)
        if (n_other - k <= t->n_fast)
            p += exp(log_choose(n_other, k) + log_choose(n - n_other, t->n_slow - k) - all);
    return fmin(p, 1);
}

struct join {
    const struct nd_capture *capture;
    size_t probe, n_samples, n_repeats;
    const unsigned char *classes; /* [n_samples * n_repeats] */
    unsigned char *others;        /* [n_samples * n_repeats]: another digest at any tensor */
};

/* The digest that most fast runs of the sample gave; false: it has no fast run. */
static bool find_reference(const struct join *j, size_t tensor, size_t sample, struct nd_digest *out)
{
    struct nd_digest digests[MAX_DIGESTS];
    size_t counts[MAX_DIGESTS], n = 0, best = 0;
    for (size_t r = 0; r < j->n_repeats; r++) {
        if (j->classes[sample * j->n_repeats + r] != ND_RUN_FAST)
            continue;
        struct nd_digest digest = nd_capture_digest(j->capture, j->probe, tensor, sample, r);
        size_t k = 0;
        while (k < n && !nd_digest_equal(digests[k], digest))
            k++;
        if (k == n && n < MAX_DIGESTS) {
            digests[n] = digest;
            counts[n++] = 0;
        }
        if (k < n)
            counts[k]++;
    }
    for (size_t k = 1; k < n; k++)
        if (counts[k] > counts[best])
            best = k;
    if (n > 0)
        *out = digests[best];
    return n > 0;
}

static void count(struct table *table, enum nd_run_class class, bool is_other)
{
    table->n_slow += class == ND_RUN_SLOW;
    table->n_slow_other += class == ND_RUN_SLOW && is_other;
    table->n_fast += class == ND_RUN_FAST;
    table->n_fast_other += class == ND_RUN_FAST && is_other;
}

static struct table join_tensor(const struct join *j, size_t tensor)
{
    struct table table = {0};
    for (size_t s = 0; s < j->n_samples; s++) {
        struct nd_digest reference;
        if (!find_reference(j, tensor, s, &reference))
            continue;
        for (size_t r = 0; r < j->n_repeats; r++) {
            size_t run = s * j->n_repeats + r;
            bool is_other = !nd_digest_equal(reference, nd_capture_digest(j->capture, j->probe, tensor, s, r));
            count(&table, j->classes[run], is_other);
            j->others[run] |= is_other;
        }
    }
    return table;
}

static bool has_fast_run(const struct join *j, size_t sample)
{
    for (size_t r = 0; r < j->n_repeats; r++)
        if (j->classes[sample * j->n_repeats + r] == ND_RUN_FAST)
            return true;
    return false;
}

static void join_all(const struct join *j, struct nd_latency_join *out)
{
    struct table all = {0};
    for (size_t e = 0; e < out->n_tensors; e++) {
        struct table table = join_tensor(j, e);
        bool is_tied =
            table.n_slow_other > 0 && fisher(&table) * (double)out->n_tensors < ND_LATENCY_JOIN_LEVEL;
        if (is_tied && out->n_tied++ == 0)
            out->first_tied = e;
    }
    for (size_t s = 0; s < j->n_samples; s++)
        for (size_t r = 0; r < j->n_repeats && has_fast_run(j, s); r++)
            count(&all, j->classes[s * j->n_repeats + r], j->others[s * j->n_repeats + r]);
    out->n_slow = all.n_slow;
    out->n_slow_other = all.n_slow_other;
    out->n_fast = all.n_fast;
    out->n_fast_other = all.n_fast_other;
    out->state = all.n_slow > 0 ? ND_JOIN_KNOWN : ND_JOIN_NO_SLOW;
    if (out->state == ND_JOIN_KNOWN)
        out->p = fisher(&all);
}

enum nd_status nd_latency_of_capture(const struct nd_capture *capture, size_t probe,
                                     const struct nd_latency_options *options, struct nd_latency *out,
                                     struct nd_error *err)
{
    struct nd_latency_options own;
    nd_latency_options_init(&own);
    struct nd_latency found;
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    options = &own;
    assert(probe < nd_capture_n_probes(capture));
    const struct nd_capture_probe *p = nd_capture_probe(capture, probe);
    size_t n = p->n_samples * p->n_repeats; /* the capture holds as many latencies */
    ND_FREED unsigned char *classes = nd_calloc(n, 2);
    enum nd_status status = classes != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_latency_classify(p->latency_us, n, options, classes, &found, err);
    if (status == ND_OK) {
        struct join join = {capture, probe, p->n_samples, p->n_repeats, classes, classes + n};
        found.join.n_tensors = nd_capture_n_tensors(capture);
        found.join.state = p->n_repeats < 2             ? ND_JOIN_NO_REPEATS
                           : found.slow == ND_SLOW_NONE ? ND_JOIN_NO_SLOW
                                                        : ND_JOIN_KNOWN;
        if (found.join.state == ND_JOIN_KNOWN)
            join_all(&join, &found.join);
        nd_latency_conclude(options, &found);
        *out = found;
    } else if (status != ND_ERR_MEMORY) {
        nd_error_context(err, "'%s', probe '%s'", nd_capture_path(capture), p->name);
    }
    return status;
}

/* Printed by tools/studies/score_latency, of 1000 series each. */
const struct nd_latency_rate *nd_latency_rule_rates(void)
{
    static const struct nd_latency_rate rates[] = {
        {"normal, CV 0.02", 30, 0},
        {"normal, CV 0.05", 30, 0.003},
        {"normal and exponential, 0.02 and 0.05", 30, 0.159},
        {"normal, CV 0.03, 2 % three times as long", 30, 0.448},
        {"normal, CV 0.02", 100, 0},
        {"normal, CV 0.05", 100, 0},
        {"normal and exponential, 0.02 and 0.05", 100, 0.019},
        {"normal, CV 0.03, 2 % three times as long", 100, 0.868},
        {"normal, CV 0.02", 200, 0},
        {"normal, CV 0.05", 200, 0},
        {"normal and exponential, 0.02 and 0.05", 200, 0.004},
        {"normal, CV 0.03, 2 % three times as long", 200, 0.982},
        {"normal, CV 0.02", 1000, 0},
        {"normal, CV 0.05", 1000, 0},
        {"normal and exponential, 0.02 and 0.05", 1000, 0},
        {"normal, CV 0.03, 2 % three times as long", 1000, 1},
        {NULL, 0, 0},
    };
    return rates;
}
