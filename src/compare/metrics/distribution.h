/* One sample of a model output as probabilities. docs/reference/metrics.md#distributions. */
#ifndef ND_METRICS_DISTRIBUTION_H
#define ND_METRICS_DISTRIBUTION_H

#include "compare/metrics/states.h"

enum { ND_TOP_K = 5, ND_DISTRIBUTION_MAX = 1 << 20 };

struct nd_probabilities {
    size_t n;             /* >= 2 */
    const double *values; /* real values, borrowed */
    bool is_finite, is_probability;
    double sum, max, exp_sum; /* exp_sum: of e^(value - max) */
    size_t n_top;
    size_t top[ND_TOP_K];
};

/* n and values are given; the rest is worked out. */
void nd_probabilities_describe(struct nd_probabilities *probabilities);

/* One sample of both sides, of equal length. The same `values` on both sides: the sample is known to be equal.
 */
void nd_distribution_add(struct nd_distribution_state *state, const struct nd_probabilities *ref,
                         const struct nd_probabilities *test);

#endif
