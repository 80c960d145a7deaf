#include "judge/accuracy/spread.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "judge/accuracy/patterns.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/normal.h"
#include "core/statistics/resample.h"

/* Families of contrasts; the intervals of a family hold together. */
enum family { PAIRS, OWN, COMMON, QUANTISED, BEYOND, N_FAMILIES };

/* A contrast is a weighted sum of who is right, in [-1, 1] for every sample; contrasts of a family stand
 * together. */
struct work {
    const struct nd_rights *in;
    const struct nd_spread_options *options;
    struct nd_patterns patterns;
    size_t first[N_FAMILIES + 1], n_contrasts;
    double *values;   /* [n_contrasts * n_patterns] */
    double *means;    /* [n_contrasts], shrunk as by moments_of */
    double *errors;   /* [n_contrasts]: standard errors */
    uint32_t *counts; /* [n_patterns], of a draw */
    double *draws;    /* [N_FAMILIES * ND_DRAWS]: the largest |t| of each family */
    double critical[N_FAMILIES];
};

static size_t size_of_family(const struct nd_rights *in, enum family family)
{
    size_t n = in->n_devices;
    switch (family) {
    case PAIRS:
        return n * (n - 1) / 2;
    case OWN:
        return n;
    case COMMON:
        return in->reference != NULL;
    case QUANTISED:
        return in->reference != NULL && in->quantised != NULL;
    default:
        return in->quantised != NULL;
    }
}

/* The contrasts of one pattern, in the order of the families. */
static void fill_values(const struct work *w, size_t pattern)
{
    const struct nd_rights *in = w->in;
    const unsigned char *bits = w->patterns.bits + pattern * w->patterns.width;
    double *values = w->values + pattern;
    size_t n = in->n_devices, at = 0, step = w->patterns.n;
    double mean = 0, reference = bits[n], quantised = bits[n + 1];
    for (size_t d = 0; d < n; d++)
        mean += bits[d];
    mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        for (size_t j = i + 1; j < n; j++)
            values[step * at++] = (double)bits[j] - (double)bits[i];
    for (size_t d = 0; d < n; d++)
        values[step * at++] = (double)bits[d] - mean;
    if (in->reference != NULL)
        values[step * at++] = mean - reference;
    if (in->reference != NULL && in->quantised != NULL)
        values[step * at++] = quantised - reference;
    if (in->quantised != NULL)
        values[step * at++] = mean - quantised;
    assert(at == w->n_contrasts);
}

/* Mean and standard error of a contrast over samples by their patterns. As Bonett and Price for pairs: two
 * samples more, one +1 and one -1, so that what never happened is not taken for impossible. */
static void moments_of(const struct work *w, const uint32_t *counts, size_t contrast, double *mean,
                       double *error)
{
    double sum = 0, sum_squares = 2, n = (double)w->in->n_samples + 2;
    for (size_t p = 1; p < w->patterns.n; p++) {
        double value = w->values[contrast * w->patterns.n + p], count = counts[p];
        sum += count * value;
        sum_squares += count * value * value;
    }
    *mean = sum / n;
    *error = sqrt((sum_squares / n - *mean * *mean) / n);
}

static double largest_t(const struct work *w, enum family family)
{
    double largest = 0;
    for (size_t c = w->first[family]; c < w->first[family + 1]; c++) {
        double mean, error;
        moments_of(w, w->counts, c, &mean, &error);
        largest = fmax(largest, fabs(mean - w->means[c]) / error);
    }
    return largest;
}

static void draw(struct work *w)
{
    size_t n = w->in->n_samples;
    uint64_t state = w->options->seed;
    for (size_t d = 0; d < ND_DRAWS; d++) {
        for (size_t p = 0; p < w->patterns.n; p++)
            w->counts[p] = 0;
        for (size_t i = 0; i < n; i++)
            w->counts[w->patterns.of_sample[nd_splitmix_below(&state, n)]]++;
        for (enum family f = PAIRS; f < N_FAMILIES; f++)
            w->draws[f * ND_DRAWS + d] = largest_t(w, f);
    }
}

/* Whether some contrast of the family rests on few samples. */
static bool is_sparse(const struct work *w, enum family family)
{
    for (size_t c = w->first[family]; c < w->first[family + 1]; c++) {
        size_t n = 0;
        for (size_t p = 1; p < w->patterns.n; p++)
            n += w->values[c * w->patterns.n + p] != 0 ? w->patterns.counts[p] : 0;
        if (n < ND_FEW)
            return true;
    }
    return false;
}

/* By how many standard errors the intervals of a family reach out. */
static double critical_of(const struct work *w, enum family family)
{
    double alpha = 1 - w->options->confidence;
    size_t n = w->first[family + 1] - w->first[family];
    /* Where draws could not know, Bonferroni does. */
    double least = -nd_normal_quantile(alpha / 2 / (double)(n > 0 && is_sparse(w, family) ? n : 1));
    return fmax(least, nd_quantile(w->draws + family * ND_DRAWS, ND_DRAWS, w->options->confidence));
}

static enum nd_status prepare(struct work *w, struct nd_error *err)
{
    for (enum family f = PAIRS; f < N_FAMILIES; f++)
        w->first[f + 1] = w->first[f] + size_of_family(w->in, f);
    w->n_contrasts = w->first[N_FAMILIES];
    enum nd_status status = nd_patterns_make(w->in, &w->patterns, err);
    if (status != ND_OK)
        return status;
    size_t n_values;
    if (!nd_size_mul(w->patterns.n, w->n_contrasts, &n_values))
        return nd_fail_memory(err);
    w->values = nd_calloc(n_values, sizeof *w->values);
    w->means = nd_calloc(w->n_contrasts, sizeof *w->means);
    w->errors = nd_calloc(w->n_contrasts, sizeof *w->errors);
    w->counts = nd_calloc(w->patterns.n, sizeof *w->counts);
    w->draws = nd_calloc((size_t)N_FAMILIES * ND_DRAWS, sizeof *w->draws);
    if (w->values == NULL || w->means == NULL || w->errors == NULL || w->counts == NULL || w->draws == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; p < w->patterns.n; p++)
        fill_values(w, p);
    for (size_t c = 0; c < w->n_contrasts; c++)
        moments_of(w, w->patterns.counts, c, &w->means[c], &w->errors[c]);
    return ND_OK;
}

static void deinit(struct work *w)
{
    nd_patterns_deinit(&w->patterns);
    free(w->values);
    free(w->means);
    free(w->errors);
    free(w->counts);
    free(w->draws);
}

/* The mean as it is, in the interval around the shrunk one. */
static struct nd_estimate estimate_of(const struct work *w, enum family family, size_t i)
{
    size_t c = w->first[family] + i;
    double n = (double)w->in->n_samples, reach = w->critical[family] * w->errors[c];
    return (struct nd_estimate){w->means[c] * (n + 2) / n,
                                {fmax(-1, w->means[c] - reach), fmin(1, w->means[c] + reach)}};
}

static struct nd_estimate nothing_known(double low)
{
    return (struct nd_estimate){NAN, {low, 1}};
}

/* The largest |difference| of two devices: that of the best and the worst. */
static struct nd_estimate spread_of(const struct work *w)
{
    struct nd_estimate spread = {0, {0, 0}};
    for (size_t c = 0; c < w->first[PAIRS + 1]; c++) {
        struct nd_estimate pair = estimate_of(w, PAIRS, c);
        double low = fmax(pair.interval.low, -pair.interval.high);
        spread.value = fmax(spread.value, fabs(pair.value));
        spread.interval.low = fmax(spread.interval.low, low);
        spread.interval.high = fmax(spread.interval.high, fmax(pair.interval.high, -pair.interval.low));
    }
    return spread;
}

/* But for those on which all agree. */
static uint64_t count_right(const struct work *w, size_t device)
{
    uint64_t n = 0;
    for (size_t p = 1; p < w->patterns.n; p++)
        n += (uint64_t)w->patterns.bits[p * w->patterns.width + device] * w->patterns.counts[p];
    return n;
}

static void conclude(const struct work *w, struct nd_spread *out)
{
    const struct nd_spread_options *options = w->options;
    for (size_t d = 0; d < out->n_devices; d++) {
        out->own[d] = estimate_of(w, OWN, d);
        if (count_right(w, d) > count_right(w, out->best))
            out->best = d;
        if (count_right(w, d) < count_right(w, out->worst))
            out->worst = d;
    }
    if (size_of_family(w->in, COMMON) > 0)
        out->common = estimate_of(w, COMMON, 0);
    if (size_of_family(w->in, QUANTISED) > 0)
        out->quantised = estimate_of(w, QUANTISED, 0);
    if (size_of_family(w->in, BEYOND) > 0)
        out->beyond = estimate_of(w, BEYOND, 0);
    if (out->n_devices < 2)
        return;
    out->spread = spread_of(w);
    if (out->spread.interval.low > options->least)
        out->kind = ND_SPREAD_UNEVEN;
    else if (out->spread.interval.high < options->margin)
        out->kind = ND_SPREAD_UNIFORM;
}

enum nd_status nd_spread_measure(const struct nd_rights *in, const struct nd_spread_options *options,
                                 struct nd_spread *out, struct nd_error *err)
{
    assert(in->n_samples < UINT32_MAX && options->confidence > 0 && options->confidence < 1);
    struct nd_spread made = {.n_devices = in->n_devices, .n_samples = in->n_samples};
    made.common = made.quantised = made.beyond = nothing_known(-1);
    made.spread = nothing_known(0);
    struct work w = {.in = in, .options = options};
    enum nd_status status = ND_OK;
    made.own = nd_calloc(in->n_devices, sizeof *made.own);
    if (made.own == NULL)
        return nd_fail_memory(err);
    for (size_t d = 0; d < in->n_devices; d++)
        made.own[d] = nothing_known(-1);
    if (in->n_samples > 0 && in->n_devices > 0) {
        status = prepare(&w, err);
        if (status == ND_OK) {
            draw(&w);
            for (enum family f = PAIRS; f < N_FAMILIES; f++)
                w.critical[f] = critical_of(&w, f);
            conclude(&w, &made);
        }
        deinit(&w);
    }
    if (status == ND_OK)
        *out = made;
    else
        nd_spread_deinit(&made);
    return status;
}

void nd_spread_deinit(struct nd_spread *spread)
{
    free(spread->own);
    *spread = (struct nd_spread){0};
}

const char *nd_spread_name(enum nd_spread_kind kind)
{
    static const char *const names[] = {"inconclusive", "uniform: quantisation", "uneven: NPU"};
    return names[kind];
}
