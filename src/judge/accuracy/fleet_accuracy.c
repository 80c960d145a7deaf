/* Who is right on which labelled samples: accuracies of a fleet, how far devices disagree, and references that
 * are broken themselves. docs/science/statistics.md. */
#include "judge/accuracy/fleet_accuracy.h"

#include <assert.h>
#include <math.h>

#include "compare/findings/top1_classes.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/distributions.h"
#include "core/text/strbuf.h"

struct nd_patterns {
    size_t n;            /* distinct ones; 0 is always that of agreement of all, whether it occurs or not */
    size_t width;        /* n_devices, the reference, the quantised reference (0 where it is not given) */
    unsigned char *bits; /* [n * width], 0 or 1; all of pattern 0 are 0: in a difference it cancels */
    uint32_t *of_sample; /* [n_samples] */
    uint32_t *counts;    /* [n] */
};

/* A pattern, its sample behind it: [width] bits, then a uint32_t. */
static size_t row_bytes(size_t width)
{
    return width + sizeof(uint32_t);
}

static bool is_unanimous(const unsigned char *row, const struct nd_rights *in)
{
    size_t n_right = 0, n = in->n_devices + (in->reference != NULL) + (in->quantised != NULL);
    for (size_t i = 0; i < in->n_devices + 2; i++)
        n_right += row[i];
    return n_right == 0 || n_right == n;
}

static int compare_rows(const void *a, const void *b, void *width)
{
    return memcmp(a, b, *(const size_t *)width);
}

/* rows: those that are not unanimous. Room in out is for all of them. */
static void number(unsigned char *rows, size_t n_rows, struct nd_patterns *out)
{
    size_t stride = row_bytes(out->width), n = 1;
    qsort_r(rows, n_rows, stride, compare_rows, &out->width);
    for (size_t i = 0; i < n_rows; i++) {
        const unsigned char *row = rows + i * stride;
        if (i == 0 || memcmp(row, row - stride, out->width) != 0)
            memcpy(out->bits + n++ * out->width, row, out->width);
        uint32_t sample;
        memcpy(&sample, row + out->width, sizeof sample);
        out->of_sample[sample] = (uint32_t)(n - 1);
        out->counts[n - 1]++;
        out->counts[0]--;
    }
    out->n = n;
}

static void nd_patterns_deinit(struct nd_patterns *patterns)
{
    ND_FREE_ALL(patterns->bits, patterns->of_sample, patterns->counts);
    *patterns = (struct nd_patterns){0};
}

static enum nd_status nd_patterns_make(const struct nd_rights *in, struct nd_patterns *out,
                                       struct nd_error *err)
{
    struct nd_patterns made = {.width = in->n_devices + 2};
    size_t stride = row_bytes(made.width), n_rows = 0;
    ND_FREED unsigned char *rows = nd_calloc(in->n_samples + 1, stride);
    for (size_t i = 0; i < in->n_samples && rows != NULL; i++) {
        unsigned char *row = rows + n_rows * stride;
        uint32_t sample = (uint32_t)i;
        for (size_t d = 0; d < in->n_devices; d++)
            row[d] = in->devices[d * in->n_samples + i] != 0;
        row[in->n_devices] = in->reference != NULL && in->reference[i] != 0;
        row[in->n_devices + 1] = in->quantised != NULL && in->quantised[i] != 0;
        memcpy(row + made.width, &sample, sizeof sample);
        n_rows += !is_unanimous(row, in);
    }
    made.bits = nd_calloc(n_rows + 1, made.width);
    made.of_sample = nd_calloc(in->n_samples, sizeof *made.of_sample);
    made.counts = nd_calloc(n_rows + 1, sizeof *made.counts);
    enum nd_status status = ND_OK;
    if (rows == NULL || made.bits == NULL || made.of_sample == NULL || made.counts == NULL) {
        status = nd_fail_memory(err);
        nd_patterns_deinit(&made);
    } else {
        made.counts[0] = (uint32_t)in->n_samples;
        number(rows, n_rows, &made);
        *out = made;
    }
    return status;
}

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

/* Mean and standard error of a contrast over samples by their patterns. As Bonett and Accuracy cost for pairs:
 * two samples more, one +1 and one -1, so that what never happened is not taken for impossible. */
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
    ND_TRY(nd_patterns_make(w->in, &w->patterns, err));
    size_t n_values;
    ND_TRY_MEMORY(nd_size_mul(w->patterns.n, w->n_contrasts, &n_values), err);
    w->values = nd_calloc(n_values, sizeof *w->values);
    w->means = nd_calloc(w->n_contrasts, sizeof *w->means);
    w->errors = nd_calloc(w->n_contrasts, sizeof *w->errors);
    w->counts = nd_calloc(w->patterns.n, sizeof *w->counts);
    w->draws = nd_calloc((size_t)N_FAMILIES * ND_DRAWS, sizeof *w->draws);
    ND_TRY_MEMORY(w->values != NULL && w->means != NULL && w->errors != NULL && w->counts != NULL &&
                      w->draws != NULL,
                  err);
    for (size_t p = 0; p < w->patterns.n; p++)
        fill_values(w, p);
    for (size_t c = 0; c < w->n_contrasts; c++)
        moments_of(w, w->patterns.counts, c, &w->means[c], &w->errors[c]);
    return ND_OK;
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
    /* The largest |difference| of two devices: that of the best and the worst. */
    struct nd_estimate spread = {0, {0, 0}};
    for (size_t c = 0; c < w->first[PAIRS + 1]; c++) {
        struct nd_estimate pair = estimate_of(w, PAIRS, c);
        double low = fmax(pair.interval.low, -pair.interval.high);
        spread.value = fmax(spread.value, fabs(pair.value));
        spread.interval.low = fmax(spread.interval.low, low);
        spread.interval.high = fmax(spread.interval.high, fmax(pair.interval.high, -pair.interval.low));
    }
    out->spread = spread;
    if (out->spread.interval.low > options->least)
        out->kind = ND_SPREAD_UNEVEN;
    else if (out->spread.interval.high < options->margin)
        out->kind = ND_SPREAD_UNIFORM;
}

enum nd_status nd_spread_measure(const struct nd_rights *in, const struct nd_spread_options *options,
                                 struct nd_spread *out, struct nd_error *err)
{
    assert(in->n_samples < UINT32_MAX && options->confidence > 0 && options->confidence < 1);
    ND_CLEANUP(nd_spread_deinit)
    struct nd_spread made = {.n_devices = in->n_devices, .n_samples = in->n_samples};
    made.common = made.quantised = made.beyond = nothing_known(-1);
    made.spread = nothing_known(0);
    struct work w = {.in = in, .options = options};
    made.own = nd_calloc(in->n_devices, sizeof *made.own);
    ND_TRY_MEMORY(made.own != NULL, err);
    for (size_t d = 0; d < in->n_devices; d++)
        made.own[d] = nothing_known(-1);
    if (in->n_samples > 0 && in->n_devices > 0) {
        enum nd_status status = prepare(&w, err);
        if (status == ND_OK) {
            size_t n = w.in->n_samples;
            uint64_t state = w.options->seed;
            for (size_t d = 0; d < ND_DRAWS; d++) {
                for (size_t p = 0; p < w.patterns.n; p++)
                    w.counts[p] = 0;
                for (size_t i = 0; i < n; i++)
                    w.counts[w.patterns.of_sample[nd_splitmix_below(&state, n)]]++;
                for (enum family f = PAIRS; f < N_FAMILIES; f++)
                    w.draws[f * ND_DRAWS + d] = largest_t(&w, f);
            }
            for (enum family f = PAIRS; f < N_FAMILIES; f++)
                w.critical[f] = critical_of(&w, f);
            conclude(&w, &made);
        }
        nd_patterns_deinit(&w.patterns);
        ND_FREE_ALL(w.values, w.means, w.errors, w.counts, w.draws);
        ND_TRY(status);
    }
    return ND_GIVE(out, made);
}

void nd_spread_deinit(struct nd_spread *spread)
{
    free(spread->own);
    *spread = (struct nd_spread){0};
}

static int64_t class_of(const struct nd_predictions *in, size_t device, size_t sample)
{
    return in->classes[device * in->n_samples + sample];
}

static bool is_right(const struct nd_predictions *in, size_t device, size_t sample)
{
    int64_t class = class_of(in, device, sample);
    return class >= 0 && class == in->truth[sample];
}

static void count_truth(struct nd_paired *table, bool is_ref_right, bool is_test_right)
{
    table->both_right += is_ref_right && is_test_right;
    table->ref_only += is_ref_right && !is_test_right;
    table->test_only += !is_ref_right && is_test_right;
    table->both_wrong += !is_ref_right && !is_test_right;
}

static void count_pair(const struct nd_predictions *in, struct nd_prediction_changes_pair *pair,
                       double confidence, double *n_pairs_differing)
{
    uint64_t n_differ = 0;
    for (size_t i = 0; i < in->n_samples; i++) {
        bool differs = class_of(in, pair->ref, i) != class_of(in, pair->test, i);
        n_differ += differs;
        n_pairs_differing[i] += differs;
        if (in->truth != NULL)
            count_truth(&pair->table, is_right(in, pair->ref, i), is_right(in, pair->test, i));
    }
    pair->differ = nd_proportion_of(n_differ, in->n_samples, confidence);
}

static uint64_t count_unstable(const struct nd_predictions *in)
{
    uint64_t n = 0;
    for (size_t i = 0; i < in->n_samples && in->truth != NULL; i++) {
        size_t n_right = 0;
        for (size_t d = 0; d < in->n_devices; d++)
            n_right += is_right(in, d, i);
        n += n_right > 0 && n_right < in->n_devices;
    }
    return n;
}

static void mean_of(const double *n_pairs_differing, double confidence, uint64_t seed, double *draws,
                    struct nd_prediction_changes *changes)
{
    changes->mean = NAN;
    changes->mean_interval = (struct nd_interval){0, 1};
    size_t n = changes->n_samples;
    double size = (double)n * (double)changes->n_pairs, sum = 0;
    if (size == 0)
        return;
    for (size_t i = 0; i < n; i++)
        sum += n_pairs_differing[i];
    changes->mean = sum / size;
    changes->is_mean_bound = changes->any_differs.k < ND_FEW;
    if (changes->is_mean_bound) {
        /* Every sample that differs does so in at least n_devices - 1 pairs (one device against the rest). */
        changes->mean_interval =
            (struct nd_interval){changes->any_differs.interval.low * 2 / (double)changes->n_devices,
                                 changes->any_differs.interval.high};
        return;
    }
    for (size_t d = 0; d < ND_DRAWS; d++) {
        double drawn = 0;
        for (size_t i = 0; i < n; i++)
            drawn += n_pairs_differing[nd_splitmix_below(&seed, n)];
        draws[d] = drawn / size;
    }
    changes->mean_interval = nd_percentiles(draws, ND_DRAWS, confidence);
}

enum nd_status nd_prediction_changes_measure(const struct nd_predictions *in, double confidence, uint64_t seed,
                                             struct nd_prediction_changes *out, struct nd_error *err)
{
    assert(in->n_samples <= UINT32_MAX);
    struct nd_prediction_changes changes = {.n_devices = in->n_devices, .n_samples = in->n_samples};
    size_t n_ordered = 0;
    if (in->n_devices > 0 && !nd_size_mul(in->n_devices, in->n_devices - 1, &n_ordered))
        return nd_fail_memory(err);
    changes.n_pairs = n_ordered / 2;
    ND_FREED double *n_pairs_differing = nd_calloc(in->n_samples, sizeof *n_pairs_differing),
                    *draws = nd_calloc(ND_DRAWS, sizeof *draws);
    changes.pairs = nd_calloc(changes.n_pairs, sizeof *changes.pairs);
    enum nd_status status = ND_OK;
    if (n_pairs_differing == NULL || draws == NULL || changes.pairs == NULL) {
        status = nd_fail_memory(err);
        nd_prediction_changes_deinit(&changes);
    } else {
        size_t n_differ = 0, at = 0;
        for (size_t ref = 0; ref < in->n_devices; ref++)
            for (size_t test = ref + 1; test < in->n_devices; test++) {
                changes.pairs[at] = (struct nd_prediction_changes_pair){.ref = ref, .test = test};
                count_pair(in, &changes.pairs[at++], confidence, n_pairs_differing);
            }
        for (size_t i = 0; i < in->n_samples; i++)
            n_differ += n_pairs_differing[i] > 0;
        changes.any_differs = nd_proportion_of(n_differ, in->n_samples, confidence);
        changes.unstable =
            nd_proportion_of(count_unstable(in), in->truth != NULL ? in->n_samples : 0, confidence);
        mean_of(n_pairs_differing, confidence, seed, draws, &changes);
        *out = changes;
    }
    return status;
}

void nd_prediction_changes_deinit(struct nd_prediction_changes *changes)
{
    free(changes->pairs);
    *changes = (struct nd_prediction_changes){0};
}

enum { SEED = 20240229 };

enum nd_status nd_top1_read(const struct nd_capture *capture, size_t probe, size_t tensor, int64_t **classes,
                            struct nd_error *err)
{
    size_t n = nd_capture_probe(capture, probe)->n_samples;
    struct nd_layout layout;
    const struct nd_kernels *kernels;
    if (!nd_capture_has_outputs(capture, probe, tensor))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, nd_capture_path(capture), "only digests of '%s' are stored",
                       nd_capture_tensor(capture, tensor)->name);
    ND_TRY(nd_layout_make(nd_capture_tensor(capture, tensor), &layout, err));
    ND_TRY(nd_kernels_choose(NULL, &kernels, err));
    ND_FREED unsigned char *sample = nd_tensor_alloc(layout.sample_bytes);
    ND_FREED int64_t *found = nd_calloc(n, sizeof *found);
    ND_TRY_MEMORY(sample != NULL && found != NULL, err);
    for (size_t i = 0; i < n; i++) {
        struct nd_best best = {.index = -1};
        ND_TRY(nd_capture_read_verified(&(struct nd_probe_values){capture, probe, tensor}, i, 1, sample, err));
        nd_best_offer(&best, &layout, kernels, sample, 0, layout.n_elems);
        found[i] = best.index;
    }
    return ND_GIVE(classes, found);
}

void nd_paired_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                     struct nd_paired *out, uint64_t *n_changed_wrong)
{
    *out = (struct nd_paired){0};
    *n_changed_wrong = 0;
    for (size_t i = 0; i < n; i++) {
        if (labels[i] < 0)
            continue;
        bool is_ref_right = ref[i] == labels[i], is_test_right = test[i] == labels[i];
        if (is_ref_right)
            (*(is_test_right ? &out->both_right : &out->ref_only))++;
        else
            (*(is_test_right ? &out->test_only : &out->both_wrong))++;
        *n_changed_wrong += !is_ref_right && !is_test_right && ref[i] != test[i];
    }
}

/* Samples that have a label, one after the other. */
static size_t pack(const int64_t *labels, const int64_t *from, size_t n, int64_t *to)
{
    size_t n_packed = 0;
    for (size_t i = 0; i < n; i++)
        if (labels[i] >= 0)
            to[n_packed++] = from[i];
    return n_packed;
}

static void fill_rights(const int64_t *labels, const int64_t *classes, size_t n, unsigned char *rights)
{
    for (size_t i = 0; i < n; i++)
        if (labels[i] >= 0)
            *rights++ = classes[i] == labels[i];
}

static enum nd_status measure_spread(struct nd_accuracy_study *study, size_t n_labelled, double confidence,
                                     double margin, struct nd_error *err)
{
    ND_FREED unsigned char *rights = nd_calloc((study->n_devices + 2) * n_labelled, 1);
    ND_TRY_MEMORY(rights != NULL, err);
    unsigned char *reference = rights + study->n_devices * n_labelled, *quantised = reference + n_labelled;
    for (size_t d = 0; d < study->n_devices; d++)
        fill_rights(study->labels, study->classes[d], study->n_samples, rights + d * n_labelled);
    if (study->reference != NULL)
        fill_rights(study->labels, study->reference, study->n_samples, reference);
    if (study->quantised != NULL)
        fill_rights(study->labels, study->quantised, study->n_samples, quantised);
    const struct nd_rights in = {.n_devices = study->n_devices,
                                 .n_samples = n_labelled,
                                 .devices = rights,
                                 .reference = study->reference != NULL ? reference : NULL,
                                 .quantised = study->quantised != NULL ? quantised : NULL};
    const struct nd_spread_options options = {.confidence = confidence, .margin = margin, .seed = SEED};
    return nd_spread_measure(&in, &options, &study->spread, err);
}

enum nd_status nd_accuracy_study_measure(struct nd_accuracy_study *study, double confidence, double margin,
                                         struct nd_error *err)
{
    size_t n = study->n_samples, n_labelled = 0;
    for (size_t i = 0; i < n; i++)
        n_labelled += study->labels[i] >= 0;
    ND_FREED int64_t *classes = nd_calloc((study->n_devices + 1) * n_labelled, sizeof *classes);
    ND_TRY_MEMORY(classes != NULL, err);
    for (size_t d = 0; d < study->n_devices; d++)
        pack(study->labels, study->classes[d], n, classes + d * n_labelled);
    int64_t *truth = classes + study->n_devices * n_labelled;
    pack(study->labels, study->labels, n, truth);
    const struct nd_predictions in = {
        .n_devices = study->n_devices, .n_samples = n_labelled, .classes = classes, .truth = truth};
    ND_TRY(nd_prediction_changes_measure(&in, confidence, SEED, &study->changes, err));
    return measure_spread(study, n_labelled, confidence, margin, err);
}

const int64_t *nd_accuracy_study_classes(const struct nd_accuracy_study *study, size_t device)
{
    for (size_t d = 0; d < study->n_devices; d++)
        if (study->devices[d] == device)
            return study->classes[d];
    return NULL;
}

void nd_accuracy_study_deinit(struct nd_accuracy_study *study)
{
    for (size_t d = 0; study->classes != NULL && d < study->n_devices; d++)
        free(study->classes[d]);
    ND_FREE_ALL(study->classes, study->devices, study->quantised, study->reference);
    nd_prediction_changes_deinit(&study->changes);
    nd_spread_deinit(&study->spread);
    *study = (struct nd_accuracy_study){0};
}

/* ---- references that are broken ---- */

/* What the outputs of one probe come to. */
struct found {
    const char *probe;
    const int64_t *labels; /* or NULL */
    size_t n_samples;
    const char *classifier;     /* the first output that can have classes, or NULL */
    size_t n_labelled, n_right; /* n_right over all such outputs */
    const char *nan;            /* the first float output without any number, or NULL */
};

static bool has_number(const int64_t *classes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (classes[i] >= 0)
            return true;
    return false;
}

static enum nd_status look_at(const struct nd_capture *capture, size_t probe, size_t e, struct found *found,
                              struct nd_error *err)
{
    const struct nd_tensor *tensor = nd_capture_tensor(capture, e);
    size_t n_elems = 0;
    ND_FREED int64_t *classes = NULL;
    bool is_float = nd_dtype_is_float(tensor->dtype);
    if (!tensor->is_model_output || !nd_capture_has_outputs(capture, probe, e) || tensor->shape.rank < 0 ||
        nd_shape_n_elems(&tensor->shape, &n_elems, NULL) != ND_OK || n_elems == 0 ||
        (!is_float && (found->labels == NULL || n_elems < 2)))
        return ND_OK;
    ND_TRY(nd_top1_read(capture, probe, e, &classes, err));
    if (is_float && found->nan == NULL && found->n_samples > 0 && !has_number(classes, found->n_samples))
        found->nan = tensor->name;
    if (found->labels != NULL && n_elems >= 2) {
        found->classifier = found->classifier != NULL ? found->classifier : tensor->name;
        found->n_labelled = 0;
        for (size_t i = 0; i < found->n_samples; i++) {
            found->n_labelled += found->labels[i] >= 0;
            found->n_right += found->labels[i] >= 0 && classes[i] == found->labels[i];
        }
    }
    return ND_OK;
}

/* NULL where the probe says nothing against the capture. */
static enum nd_status tell(const struct found *found, char **why, struct nd_error *err)
{
    struct nd_strbuf text = {0};
    if (found->nan != NULL)
        nd_strbuf_printf(&text, "every value of '%s' with '%s' is NaN", found->nan, found->probe);
    else if (found->classifier != NULL && found->n_right == 0 && found->n_labelled >= ND_BROKEN_MIN_SAMPLES)
        nd_strbuf_printf(&text,
                         "not one of the %zu labelled samples of '%s' is right at '%s': the inputs, the labels "
                         "or the run are wrong",
                         found->n_labelled, found->probe, found->classifier);
    if (text.len == 0 && !text.failed)
        return ND_OK;
    *why = nd_strbuf_take(&text);
    return *why != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_broken_find(const struct nd_capture *capture, char **why, struct nd_error *err)
{
    *why = NULL;
    for (size_t p = 0; *why == NULL && p < nd_capture_n_probes(capture); p++) {
        const struct nd_capture_probe *probe = nd_capture_probe(capture, p);
        struct found found = {.probe = probe->name, .labels = probe->labels, .n_samples = probe->n_samples};
        for (size_t e = 0; e < nd_capture_n_tensors(capture); e++)
            ND_TRY(look_at(capture, p, e, &found, err));
        ND_TRY(tell(&found, why, err));
    }
    return ND_OK;
}
