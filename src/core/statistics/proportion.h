/* A probability and the interval of it that k of n trials leave. docs/science/statistics.md#proportions. */
#ifndef ND_STATS_PROPORTION_H
#define ND_STATS_PROPORTION_H

#include <stdint.h>

#include "npudiff/core/interval.h"

struct nd_proportion {
    uint64_t k, n;
    double share; /* k / n; NaN when n is 0 */
    struct nd_interval interval;
};

/* k <= n <= 1e9, 0 < confidence < 1; [0, 1] when n is 0. The interval of Clopper and Pearson covers the
 * probability at least as often as it says, whatever n: it is the one that is reported. Wilson's covers it so
 * often on average. Relative error of the ends below 1e-9. */
struct nd_interval nd_clopper_pearson(uint64_t k, uint64_t n, double confidence);
struct nd_interval nd_wilson(uint64_t k, uint64_t n, double confidence);

/* With the interval of Clopper and Pearson. */
struct nd_proportion nd_proportion_of(uint64_t k, uint64_t n, double confidence);

#endif
