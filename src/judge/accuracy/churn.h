/* On how many samples devices say something else, whatever is true. docs/science/statistics.md#churn. */
#ifndef ND_ACCURACY_CHURN_H
#define ND_ACCURACY_CHURN_H

#include <stddef.h>
#include <stdint.h>

#include "core/statistics/paired.h"
#include "core/statistics/proportion.h"
#include "npudiff/core/status.h"

struct nd_predictions {
    size_t n_devices, n_samples; /* n_samples < 2^32 */
    const int64_t *classes;      /* [n_devices * n_samples], device by device; -1: none, which equals only -1 */
    const int64_t *truth;        /* [n_samples], or NULL: not known. A prediction of -1 is wrong. */
};

struct nd_churn_pair {
    size_t ref, test; /* ref < test */
    struct nd_proportion differ;
    struct nd_paired table; /* zeroed without truth */
};

struct nd_churn {
    size_t n_devices, n_samples, n_pairs;
    struct nd_churn_pair *pairs; /* every pair, ordered by ref, then test */
    /* These two grow with the number of devices: never tell them without it. */
    struct nd_proportion any_differs; /* not all devices say the same */
    struct nd_proportion unstable;    /* one device is right and one is wrong; of 0 samples without truth */
    /* The mean over pairs of their shares; NaN and [0, 1] without pairs or samples. */
    double mean;
    struct nd_interval mean_interval;
    bool is_mean_bound; /* too few samples differ for the bootstrap: the interval follows from any_differs */
};

/* Each interval by itself is of this confidence, 0 < confidence < 1; the same seed gives the same bits. Fills
 * out; on failure (memory) out is untouched. Free with nd_churn_deinit. */
enum nd_status nd_churn_measure(const struct nd_predictions *in, double confidence, uint64_t seed,
                                struct nd_churn *out, struct nd_error *err);

/* Accepts a zeroed struct. */
void nd_churn_deinit(struct nd_churn *churn);

#endif
