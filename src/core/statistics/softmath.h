/* exp and ln in plain double arithmetic: the same bits on every machine, which a C library does not promise.
 * docs/reference/metrics.md#distributions. */
#ifndef ND_STATS_SOFTMATH_H
#define ND_STATS_SOFTMATH_H

/* e^x, x <= 709; 0 below -745. Relative error below 1e-15 where the result is normal. x must not be NaN. */
double nd_exp(double x);

/* ln x for a finite x > 0. Relative error below 1e-15. */
double nd_log(double x);

#endif
