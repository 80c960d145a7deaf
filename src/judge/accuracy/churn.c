#include "judge/accuracy/churn.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/resample.h"

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

static void count_pair(const struct nd_predictions *in, struct nd_churn_pair *pair, double confidence,
                       double *n_pairs_differing)
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

/* Every sample that differs does so in at least n_devices - 1 pairs (one device against the rest). */
static struct nd_interval bound_of_mean(const struct nd_churn *churn)
{
    return (struct nd_interval){churn->any_differs.interval.low * 2 / (double)churn->n_devices,
                                churn->any_differs.interval.high};
}

static void mean_of(const double *n_pairs_differing, double confidence, uint64_t seed, double *draws,
                    struct nd_churn *churn)
{
    churn->mean = NAN;
    churn->mean_interval = (struct nd_interval){0, 1};
    size_t n = churn->n_samples;
    double size = (double)n * (double)churn->n_pairs, sum = 0;
    if (size == 0)
        return;
    for (size_t i = 0; i < n; i++)
        sum += n_pairs_differing[i];
    churn->mean = sum / size;
    churn->is_mean_bound = churn->any_differs.k < ND_FEW;
    if (churn->is_mean_bound) {
        churn->mean_interval = bound_of_mean(churn);
        return;
    }
    for (size_t d = 0; d < ND_DRAWS; d++) {
        double drawn = 0;
        for (size_t i = 0; i < n; i++)
            drawn += n_pairs_differing[nd_splitmix_below(&seed, n)];
        draws[d] = drawn / size;
    }
    churn->mean_interval = nd_percentiles(draws, ND_DRAWS, confidence);
}

static void measure(const struct nd_predictions *in, double confidence, double *n_pairs_differing,
                    struct nd_churn *churn)
{
    size_t n_differ = 0, at = 0;
    for (size_t ref = 0; ref < in->n_devices; ref++)
        for (size_t test = ref + 1; test < in->n_devices; test++) {
            churn->pairs[at] = (struct nd_churn_pair){.ref = ref, .test = test};
            count_pair(in, &churn->pairs[at++], confidence, n_pairs_differing);
        }
    for (size_t i = 0; i < in->n_samples; i++)
        n_differ += n_pairs_differing[i] > 0;
    churn->any_differs = nd_proportion_of(n_differ, in->n_samples, confidence);
    churn->unstable = nd_proportion_of(count_unstable(in), in->truth != NULL ? in->n_samples : 0, confidence);
}

enum nd_status nd_churn_measure(const struct nd_predictions *in, double confidence, uint64_t seed,
                                struct nd_churn *out, struct nd_error *err)
{
    assert(in->n_samples <= UINT32_MAX);
    struct nd_churn churn = {.n_devices = in->n_devices, .n_samples = in->n_samples};
    size_t n_ordered = 0;
    if (in->n_devices > 0 && !nd_size_mul(in->n_devices, in->n_devices - 1, &n_ordered))
        return nd_fail_memory(err);
    churn.n_pairs = n_ordered / 2;
    double *n_pairs_differing = nd_calloc(in->n_samples, sizeof *n_pairs_differing),
           *draws = nd_calloc(ND_DRAWS, sizeof *draws);
    churn.pairs = nd_calloc(churn.n_pairs, sizeof *churn.pairs);
    enum nd_status status = ND_OK;
    if (n_pairs_differing == NULL || draws == NULL || churn.pairs == NULL) {
        status = nd_fail_memory(err);
        nd_churn_deinit(&churn);
    } else {
        measure(in, confidence, n_pairs_differing, &churn);
        mean_of(n_pairs_differing, confidence, seed, draws, &churn);
        *out = churn;
    }
    free(n_pairs_differing);
    free(draws);
    return status;
}

void nd_churn_deinit(struct nd_churn *churn)
{
    free(churn->pairs);
    *churn = (struct nd_churn){0};
}
