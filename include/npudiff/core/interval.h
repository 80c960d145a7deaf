/* An interval of confidence. The header of whatever gives one says which.
 *
 * Stability: unstable. Until version 1.0 every minor version may change what is declared here; programs
 * that use it are compiled again. */
#ifndef NPUDIFF_CORE_INTERVAL_H
#define NPUDIFF_CORE_INTERVAL_H

#ifdef __cplusplus
extern "C" {
#endif

/* 95 % by percentiles of 2000 bootstrap draws over samples; NaN with fewer than two samples. */
struct nd_interval {
    double low, high;
};

#ifdef __cplusplus
}
#endif
#endif
