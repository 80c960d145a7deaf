#include "core/statistics/proportion.h"

#include <assert.h>
#include <math.h>

#include "core/statistics/binomial.h"
#include "core/statistics/normal.h"

struct nd_interval nd_clopper_pearson(uint64_t k, uint64_t n, double confidence)
{
    assert(k <= n && confidence > 0 && confidence < 1);
    double alpha = (1 - confidence) / 2;
    return (struct nd_interval){nd_binomial_lower(k, n, alpha), nd_binomial_upper(k, n, alpha)};
}

/* The lower end; the upper one is 1 less that of the failures, and then near 1 or far from 0. It is
 * p^2 n / (middle + half width) of the quadratic p and its root: no cancellation for small k. */
static double wilson_lower(double k, double n, double z)
{
    double middle = k + z * z / 2, half = z * sqrt(k * (n - k) / n + z * z / 4);
    return k * k / n / (middle + half);
}

static double wilson_upper(double k, double n, double z)
{
    double middle = k + z * z / 2, half = z * sqrt(k * (n - k) / n + z * z / 4);
    return (middle + half) / (n + z * z);
}

struct nd_interval nd_wilson(uint64_t k, uint64_t n, double confidence)
{
    assert(k <= n && confidence > 0 && confidence < 1);
    if (n == 0)
        return (struct nd_interval){0, 1};
    double z = nd_normal_of_confidence(confidence), successes = (double)k, size = (double)n;
    return (struct nd_interval){wilson_lower(successes, size, z),
                                k == n ? 1 : wilson_upper(successes, size, z)};
}

struct nd_proportion nd_proportion_of(uint64_t k, uint64_t n, double confidence)
{
    return (struct nd_proportion){k, n, n > 0 ? (double)k / (double)n : NAN,
                                  nd_clopper_pearson(k, n, confidence)};
}
