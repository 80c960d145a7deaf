/* Small functions over series of doubles, and what latencies are examined by: the coefficient of variation, the
 * timer's tick, and the dip of Hartigan and Hartigan. docs/science/latency.md. */
#include <assert.h>
#include <math.h>
#include <stdint.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/series.h"

/* Where the level of a series changes, by binary segmentation: docs/science/latency.md#levels. */

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
    /* A short series looks less correlated than it is (Kendall 1954): by (1 + 3 phi) / n in each half. */
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
    if (n >= 2 * (size_t)ND_CHANGE_MIN_RUNS) {
        clip(&search);
        ND_TRY(segment(&search, err));
        settle(&search);
    }
    return ND_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS, N_PASSES = 3 };

/* Of doubles: fewer are compared. */
enum { N_LONG_PASSES = 6, MIN_BY_DIGIT = 1 << 10 };

/* Bits that are in the order of the doubles; 0 and -0 are equal. */
static uint64_t long_key_of(double x)
{
    uint64_t bits;
    x += 0.0; /* makes of -0 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 != 0 ? ~bits : bits | UINT64_C(1) << 63;
}

static size_t long_digit_of(double x, int pass)
{
    return long_key_of(x) >> pass * DIGIT_BITS & (N_DIGITS - 1);
}

/* A stable sort, as by comparing. Digits that all values share cost only the counting. counts is zero. */
static void sort_by_digits(double *values, size_t n, double *scratch, size_t (*counts)[N_DIGITS])
{
    double *from = values, *to = scratch;
    for (size_t i = 0; i < n; i++)
        for (int pass = 0; pass < N_LONG_PASSES; pass++)
            counts[pass][long_digit_of(values[i], pass)]++;
    for (int pass = 0; pass < N_LONG_PASSES; pass++) {
        size_t first = 0, *at = counts[pass];
        if (at[long_digit_of(values[0], pass)] == n)
            continue;
        for (size_t d = 0; d < N_DIGITS; d++) {
            size_t count = at[d];
            at[d] = first;
            first += count;
        }
        for (size_t i = 0; i < n; i++)
            to[at[long_digit_of(from[i], pass)]++] = from[i];
        double *kept = from;
        from = to;
        to = kept;
    }
    if (from != values)
        memcpy(values, from, n * sizeof *values);
}

/* Both ways give the same order. */
void nd_series_sort(double *values, size_t n)
{
    ND_FREED double *scratch = n >= MIN_BY_DIGIT ? malloc(n * sizeof *scratch) : NULL;
    size_t(*counts)[N_DIGITS] = scratch != NULL ? calloc(N_LONG_PASSES, sizeof *counts) : NULL;
    if (counts != NULL)
        sort_by_digits(values, n, scratch, counts);
    else if (n > 1)
        qsort(values, n, sizeof *values, by_value);
    free(counts);
}

/* Bits that are in the order of the floats. */
static uint32_t key_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 != 0 ? ~bits : bits | UINT32_C(1) << 31;
}

/* In order of one digit, and otherwise as they were. */
static void sort_by_digit(const float *from, size_t n, int shift, float *to)
{
    size_t counts[N_DIGITS] = {0}, first = 0;
    for (size_t i = 0; i < n; i++)
        counts[key_of(from[i]) >> shift & (N_DIGITS - 1)]++;
    for (size_t d = 0; d < N_DIGITS; d++) {
        size_t count = counts[d];
        counts[d] = first;
        first += count;
    }
    for (size_t i = 0; i < n; i++)
        to[counts[key_of(from[i]) >> shift & (N_DIGITS - 1)]++] = from[i];
}

void nd_series_sort_floats(float *values, size_t n, float *scratch)
{
    float *from = values, *to = scratch;
    for (size_t i = 0; i < n; i++)
        values[i] += 0.0F; /* makes of -0 0 */
    for (int pass = 0; pass < N_PASSES; pass++) {
        sort_by_digit(from, n, pass * DIGIT_BITS, to);
        float *kept = from;
        from = to;
        to = kept;
    }
    memcpy(values, from, n * sizeof *values); /* an odd number of passes */
}

double nd_series_quantile(const double *sorted, size_t n, double q)
{
    assert(n > 0 && q >= 0 && q <= 1);
    double at = q * (double)(n - 1), below = floor(at);
    size_t i = (size_t)below;
    return i + 1 < n ? sorted[i] + (at - below) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

static void swap(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* Reorders values so that values[k] is what sorting would put there, and nothing before it is greater (Hoare's
 * selection; where the pivots are bad for long, sorting). */
static void select_place(double *values, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    for (int round = 0; low < high; round++) {
        if (round == 100) {
            nd_series_sort(values + low, high - low + 1);
            return;
        }
        double pivot = values[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i >= j)
                break;
            swap(&values[i++], &values[j--]);
        }
        /* low .. j is not above the pivot, the rest is not below it. */
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
}

double nd_series_median(double *values, size_t n)
{
    assert(n > 0);
    size_t k = (n - 1) / 2;
    select_place(values, n, k);
    if (n % 2 == 1)
        return values[k];
    double above = values[k + 1];
    for (size_t i = k + 2; i < n; i++)
        above = values[i] < above ? values[i] : above;
    return values[k] + 0.5 * (above - values[k]); /* as nd_series_quantile */
}

double nd_series_autocorrelation(const double *values, size_t n)
{
    double sum = 0, square = 0, product = 0;
    if (n < 3)
        return 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        square += (values[i] - mean) * (values[i] - mean);
        product += i > 0 ? (values[i] - mean) * (values[i - 1] - mean) : 0;
    }
    /* What is left of a constant series is rounding. */
    return sqrt(square / (double)n) > 1e-12 * fabs(mean) && square > 0 ? product / square : 0;
}

/* A coarser grid would be a strange timer, and two values far apart are no grid
 * (docs/science/latency.md#modes). */
static const double coarsest_tick = 0.25;

double nd_series_tick(const double *sorted, size_t n)
{
    double tick = INFINITY;
    size_t n_equal = 0;
    for (size_t i = 1; i < n; i++) {
        double step = sorted[i] - sorted[i - 1];
        n_equal += step <= 0;
        /* What a conversion of units rounds is no step. */
        if (step > 1e-12 * sorted[i] && step < tick)
            tick = step;
    }
    if (n_equal == 0 || !(tick < coarsest_tick * sorted[n / 2]))
        return 0;
    for (size_t i = 0; i < n; i++) {
        double steps = sorted[i] / tick;
        /* Past 2^22 ticks the tick is not known well enough to tell. */
        if (steps > 0x1p22 || fabs(steps - nearbyint(steps)) > 0.01)
            return 0;
    }
    return tick;
}

/* The 99 % points of sqrt(n) times the dip of uniform series (tools/studies/score_latency dip); between them
 * linear in 1 / sqrt(n). */
double nd_series_dip_limit(size_t n)
{
    static const struct {
        double n, scaled;
    } points[] = {{10, 0.5078},  {20, 0.5376},   {50, 0.5741},   {100, 0.5906},  {200, 0.6059},
                  {500, 0.6170}, {1000, 0.6191}, {5000, 0.6241}, {20000, 0.6263}};
    const size_t last = sizeof points / sizeof *points - 1;
    double size = (double)n, scaled = size <= points[0].n ? points[0].scaled : points[last].scaled;
    for (size_t i = 0; i < last; i++)
        if (size >= points[i].n && size <= points[i + 1].n) {
            double a = 1 / sqrt(points[i].n), b = 1 / sqrt(points[i + 1].n), at = 1 / sqrt(size);
            scaled = points[i].scaled + (points[i + 1].scaled - points[i].scaled) * (at - a) / (b - a);
        }
    return scaled / sqrt(size);
}

enum { N_MOMENTS = 4 };

/* The normal quantile, and the autocorrelation from which blocks are drawn (docs/science/latency.md#summary).
 */
static const double z_95 = 1.959963984540054, correlated = 0.3;

size_t nd_series_block(double autocorrelation, size_t n)
{
    return autocorrelation > correlated ? (size_t)ceil(2 * cbrt((double)n)) : 1;
}

/* The CV and the standard error of its logarithm, from sums of powers 1 to 4 of (x - pivot) / pivot. */
struct estimate {
    double cv, log_se;
};

/* docs/science/latency.md#summary: by the delta method, with central moments of the relative values. */
static struct estimate estimate_of(const double sums[static N_MOMENTS], double n)
{
    double a = sums[0] / n, b = sums[1] / n, c = sums[2] / n, d = sums[3] / n;
    double mean = 1 + a, m2 = b - a * a, m3 = c - 3 * a * b + 2 * a * a * a;
    double m4 = d - 4 * a * c + 6 * a * a * b - 3 * a * a * a * a;
    if (!(m2 > 0))
        return (struct estimate){0, 0};
    double variance = (m4 / (m2 * m2) - 1) / 4 + m2 / (mean * mean) - m3 / (m2 * mean);
    return (struct estimate){sqrt(m2 * n / (n - 1)) / mean, sqrt(fmax(variance, 0) / n)};
}

static void add_powers(double sums[static N_MOMENTS], double value)
{
    double square = value * value;
    sums[0] += value;
    sums[1] += square;
    sums[2] += square * value;
    sums[3] += square * square;
}

/* A series of n values that is drawn in circular blocks. */
struct blocks {
    const double *values;
    size_t n, size;
};

/* One draw of as many values as there are. */
static struct estimate draw(const struct blocks *blocks, uint64_t *state)
{
    size_t n = blocks->n;
    double sums[N_MOMENTS] = {0};
    for (size_t taken = 0; taken < n;) {
        /* Unbiased enough: n is far below 2^32. */
        size_t at = nd_splitmix_below(state, n);
        for (size_t k = 0; k < blocks->size && taken < n; k++, taken++) {
            add_powers(sums, blocks->values[at]);
            at = at + 1 < n ? at + 1 : 0;
        }
    }
    return estimate_of(sums, (double)n);
}

/* The interval around out->cv, whose standard error is log_se. */
static enum nd_status bootstrap(const struct blocks *blocks, uint64_t seed, double log_se,
                                struct nd_series_cv *out, struct nd_error *err)
{
    ND_FREED double *t = nd_calloc(ND_CV_DRAWS, sizeof *t);
    ND_TRY_MEMORY(t != NULL, err);
    size_t n_draws = 0;
    for (size_t i = 0; i < ND_CV_DRAWS; i++) {
        struct estimate drawn = draw(blocks, &seed);
        if (drawn.cv > 0 && drawn.log_se > 0)
            t[n_draws++] = log(drawn.cv / out->cv) / drawn.log_se;
    }
    nd_series_sort(t, n_draws);
    /* The tails change sides: a draw above its centre says that the centre may be above the truth. */
    double high = n_draws > 0 ? nd_series_quantile(t, n_draws, 0.025) : NAN;
    double low = n_draws > 0 ? nd_series_quantile(t, n_draws, 0.975) : NAN;
    out->low = out->cv * exp(-low * log_se);
    out->high = out->cv * exp(-high * log_se);
    return ND_OK;
}

enum nd_status nd_series_cv(const double *values, size_t n, size_t block, uint64_t seed,
                            struct nd_series_cv *out, struct nd_error *err)
{
    double sum = 0, sums[N_MOMENTS] = {0};
    *out = (struct nd_series_cv){NAN, NAN, NAN};
    if (n < 2)
        return ND_OK;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    double pivot = sum / (double)n;
    ND_FREED double *relative = nd_calloc(n, sizeof *relative);
    ND_TRY_MEMORY(relative != NULL, err);
    for (size_t i = 0; i < n; i++) {
        relative[i] = (values[i] - pivot) / pivot;
        add_powers(sums, relative[i]);
    }
    struct estimate centre = estimate_of(sums, (double)n);
    /* What is left of a constant series is rounding. */
    if (centre.cv < 1e-12)
        centre.cv = 0;
    *out = (struct nd_series_cv){centre.cv, 0, 0};
    if (centre.cv > 0 && n < ND_CV_MAX_DRAWN) {
        ND_TRY(bootstrap(&(struct blocks){relative, n, block}, seed, centre.log_se, out, err));
    } else if (centre.cv > 0) {
        double wide = z_95 * centre.log_se * sqrt((double)block);
        *out = (struct nd_series_cv){centre.cv, centre.cv * exp(-wide), centre.cv * exp(wide)};
    }
    return ND_OK;
}

/* ---- KEEP ---- */

/* Hartigan and Hartigan (1985), "The dip test of unimodality", with the geometry of Applied Statistics AS 217
 * and the corrections known since. Distances are counted in steps of the distribution function; positions are
 * indices of the sorted series. */

struct dip_work {
    const double *x;
    size_t n;
    size_t *below;    /* [j]: the knot before j of the convex minorant of points 0 .. j */
    size_t *above;    /* [j]: the knot after j of the concave majorant of points j .. n - 1 */
    size_t *minorant; /* knots of the minorant within [low, high], from high down */
    size_t *majorant; /* knots of the majorant within [low, high], from low up */
    size_t n_minorant, n_majorant;
};

static double steps(size_t from, size_t to)
{
    return (double)to - (double)from;
}

static void find_below(struct dip_work *w)
{
    const double *x = w->x;
    w->below[0] = 0;
    for (size_t j = 1; j < w->n; j++) {
        size_t a = j - 1;
        while (a != 0 && (x[j] - x[a]) * steps(w->below[a], a) >= (x[a] - x[w->below[a]]) * steps(a, j))
            a = w->below[a];
        w->below[j] = a;
    }
}

static void find_above(struct dip_work *w)
{
    const double *x = w->x;
    size_t last = w->n - 1;
    w->above[last] = last;
    for (size_t k = last; k-- > 0;) {
        size_t a = k + 1;
        while (a != last && (x[k] - x[a]) * steps(w->above[a], a) >= (x[a] - x[w->above[a]]) * steps(a, k))
            a = w->above[a];
        w->above[k] = a;
    }
}

static void collect_knots(struct dip_work *w, size_t low, size_t high)
{
    size_t n = 0;
    w->minorant[n++] = high;
    while (w->minorant[n - 1] > low) {
        w->minorant[n] = w->below[w->minorant[n - 1]];
        n++;
    }
    w->n_minorant = n;
    n = 0;
    w->majorant[n++] = low;
    while (w->majorant[n - 1] < high) {
        w->majorant[n] = w->above[w->majorant[n - 1]];
        n++;
    }
    w->n_majorant = n;
}

/* The largest distance between minorant and majorant, and the knots where it is. */
static double widest(const struct dip_work *w, size_t *at_minorant, size_t *at_majorant)
{
    const double *x = w->x;
    double d = 0;
    size_t ix = w->n_minorant - 2, iv = 1;
    *at_minorant = w->n_minorant - 1;
    *at_majorant = w->n_majorant - 1;
    if (w->n_minorant == 2 && w->n_majorant == 2)
        return 1;
    do {
        size_t g = w->minorant[ix], l = w->majorant[iv];
        if (g > l) {
            size_t g1 = w->minorant[ix + 1];
            double dx = steps(g1, l) + 1 - (x[l] - x[g1]) * steps(g1, g) / (x[g] - x[g1]);
            iv++;
            if (dx >= d) {
                d = dx;
                *at_minorant = ix + 1;
                *at_majorant = iv - 1;
            }
        } else {
            size_t l1 = w->majorant[iv - 1];
            double dx = (x[g] - x[l1]) * steps(l1, l) / (x[l] - x[l1]) - (steps(l1, g) - 1);
            bool is_first = ix == 0;
            if (dx >= d) {
                d = dx;
                *at_minorant = ix;
                *at_majorant = iv;
            }
            ix -= is_first ? 0 : 1;
        }
        if (iv > w->n_majorant - 1)
            iv = w->n_majorant - 1;
    } while (w->minorant[ix] != w->majorant[iv]);
    return d;
}

/* How far the distribution function leaves the chord from point `from` to point `to`, on one side. */
static double sag(const double *x, size_t from, size_t to, bool is_above)
{
    double most = 1;
    if (to - from < 2 || x[to] <= x[from])
        return most;
    double slope = steps(from, to) / (x[to] - x[from]);
    for (size_t i = from; i <= to; i++) {
        double chord = (x[i] - x[from]) * slope;
        double t = is_above ? steps(from, i) + 1 - chord : chord - (steps(from, i) - 1);
        most = t > most ? t : most;
    }
    return most;
}

static double dip_steps(struct dip_work *w)
{
    size_t low = 0, high = w->n - 1, g, l;
    double dip = 1;
    for (;;) {
        collect_knots(w, low, high);
        double d = widest(w, &g, &l);
        if (d < dip)
            return dip;
        double most = 0;
        for (size_t j = g; j + 1 < w->n_minorant; j++)
            most = fmax(most, sag(w->x, w->minorant[j + 1], w->minorant[j], true));
        for (size_t j = l; j + 1 < w->n_majorant; j++)
            most = fmax(most, sag(w->x, w->majorant[j], w->majorant[j + 1], false));
        dip = fmax(dip, most);
        if (low == w->minorant[g] && high == w->majorant[l])
            return dip;
        low = w->minorant[g];
        high = w->majorant[l];
    }
}

enum nd_status nd_series_dip(const double *sorted, size_t n, double *dip, struct nd_error *err)
{
    if (n < 4 || sorted[0] >= sorted[n - 1]) {
        *dip = 0.5 / (double)n;
        return ND_OK;
    }
    ND_FREED size_t *knots = nd_calloc(n, 4 * sizeof *knots);
    ND_TRY_MEMORY(knots != NULL, err);
    struct dip_work work = {.x = sorted,
                            .n = n,
                            .below = knots,
                            .above = knots + n,
                            .minorant = knots + 2 * n,
                            .majorant = knots + 3 * n};
    find_below(&work);
    find_above(&work);
    *dip = dip_steps(&work) / (2 * (double)n);
    return ND_OK;
}
