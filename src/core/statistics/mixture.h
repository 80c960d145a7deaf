/* One kind of run or two: models of the logarithm of latency. */
#ifndef ND_STATS_MIXTURE_H
#define ND_STATS_MIXTURE_H

#include <stddef.h>

#include "core/error.h"

struct nd_gaussian {
    double weight, mean, deviation;
};

struct nd_mixture {
    struct nd_gaussian parts[2]; /* by mean */
    double log_likelihood;
    double delta_bic; /* of the better of one Gaussian and one shifted log-normal, less that of the mixture: > 0
                       * is for the mixture */
    double gaussian_bic; /* the same with one Gaussian only */
    double ashman_d;     /* distance of the means in deviations: sqrt(2) |m1 - m2| / sqrt(s1^2 + s2^2) */
    double boundary;     /* between the means, where both parts are equally likely */
};

enum { ND_MIXTURE_MIN = 10, ND_MIXTURE_MAX = 20000 };

/* Fits a sorted series of n logarithms, ND_MIXTURE_MIN <= n <= ND_MIXTURE_MAX and not all equal, by expectation
 * and maximisation from six fixed starts. ND_ERR_MEMORY. */
enum nd_status nd_mixture_fit(const double *sorted, size_t n, struct nd_mixture *out, struct nd_error *err);

#endif
