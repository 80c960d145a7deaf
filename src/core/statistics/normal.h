/* The quantile of the normal distribution. docs/science/statistics.md#numbers. */
#ifndef ND_STATS_NORMAL_H
#define ND_STATS_NORMAL_H

/* The z with P(Z <= z) = p, 0 < p < 1. Relative error below 1e-14 (absolute where z is near 0); the same bits
 * on every machine. */
double nd_normal_quantile(double p);

/* The z of a two-sided interval of this confidence, 0 < confidence < 1. */
double nd_normal_of_confidence(double confidence);

#endif
