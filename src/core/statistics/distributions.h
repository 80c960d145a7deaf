/* exp and ln, the quantiles of the normal distribution and the binomial distribution: the same bits on every
 * machine, which a C library does not promise. docs/science/statistics.md#numbers. */
#pragma once

#include <stdint.h>

/* e^x, x <= 709; 0 below -745. Relative error below 1e-15 where the result is normal. x must not be NaN. */
double nd_exp(double x);

/* ln x for a finite x > 0. Relative error below 1e-15. */
double nd_log(double x);

/* ---- the quantile of the normal distribution. docs/science/statistics.md#numbers ---- */

/* The z with P(Z <= z) = p, 0 < p < 1. Relative error below 1e-14 (absolute where z is near 0); the same bits
 * on every machine. */
double nd_normal_quantile(double p);

/* The binomial distribution, the same bits on every machine. docs/science/statistics.md#numbers. */

/* ln P(X = k), X ~ Bin(n, p), for k <= n <= 2^53, 0 < p < 1 and q = 1 - p (given apart: where p is near 1 the
 * caller knows q better). Absolute error below 1e-14 + 1e-15 |result|. */
double nd_binomial_log_pmf(uint64_t k, uint64_t n, double p, double q);

/* One-sided bounds of Clopper and Pearson of a probability of which k of n trials came true, each wrong with
 * probability at most alpha, 0 < alpha < 1: the p with P(X <= k) = alpha, and the one with P(X >= k) = alpha.
 * 1 and 0 where k is n, or 0, and where n is 0. Relative error below 1e-9; time grows with sqrt(n), up to a
 * tenth of a second at 1e9. */
double nd_binomial_upper(uint64_t k, uint64_t n, double alpha);
double nd_binomial_lower(uint64_t k, uint64_t n, double alpha);
