/* The binomial distribution, the same bits on every machine. docs/science/statistics.md#numbers. */
#ifndef ND_STATS_BINOMIAL_H
#define ND_STATS_BINOMIAL_H

#include <stdint.h>

/* ln P(X = k), X ~ Bin(n, p), for k <= n <= 2^53, 0 < p < 1 and q = 1 - p (given apart: where p is near 1 the
 * caller knows q better). Absolute error below 1e-14 + 1e-15 |result|. */
double nd_binomial_log_pmf(uint64_t k, uint64_t n, double p, double q);

/* One-sided bounds of Clopper and Pearson of a probability of which k of n trials came true, each wrong with
 * probability at most alpha, 0 < alpha < 1: the p with P(X <= k) = alpha, and the one with P(X >= k) = alpha.
 * 1 and 0 where k is n, or 0, and where n is 0. Relative error below 1e-9; time grows with sqrt(n), up to a
 * tenth of a second at 1e9. */
double nd_binomial_upper(uint64_t k, uint64_t n, double alpha);
double nd_binomial_lower(uint64_t k, uint64_t n, double alpha);

#endif
