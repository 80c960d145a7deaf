/* What the examination of latencies is made of: small functions over series of doubles, without state. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/error.h"

/* Sorts in increasing order; there is no NaN. */
void nd_series_sort(double *values, size_t n);
/* Of floats, none NaN, digit by digit of their bits: many values in a few passes. scratch[n]. 0 is never
 * negative behind it. */
void nd_series_sort_floats(float *values, size_t n, float *scratch);

/* Quantile q of a sorted series, n > 0: between the order statistics around q (n - 1), linearly (Hyndman and
 * Fan's definition 7). */
double nd_series_quantile(const double *sorted, size_t n, double q);

/* Median; reorders values. n > 0. */
double nd_series_median(double *values, size_t n);

/* Autocorrelation at lag 1 with the mean of the whole series; 0 where the series is constant or n < 3. */
double nd_series_autocorrelation(const double *values, size_t n);

/* The timer's tick: the smallest difference of a sorted series, provided that some values coincide, all are
 * whole numbers of ticks, and it is less than a quarter of the median; else 0. */
double nd_series_tick(const double *sorted, size_t n);

/* Hartigan and Hartigan's dip of a sorted series: the greatest distance between its distribution function and
 * the nearest unimodal one. Within [1 / (2 n), 1 / 4]; n > 0. ND_ERR_MEMORY. */
enum nd_status nd_series_dip(const double *sorted, size_t n, double *dip, struct nd_error *err);

/* The dip that 1 % of uniform series of n values exceed (the unimodal distribution with the largest dip). */
double nd_series_dip_limit(size_t n);

/* The coefficient of variation and its 95 % interval: bootstrap of the studentised logarithm in circular blocks
 * of `block` runs, 2000 draws; from ND_CV_MAX_DRAWN values on the normal one of the logarithm instead. NaN
 * where n < 2, [0, 0] where all values are equal. */
enum { ND_CV_DRAWS = 2000, ND_CV_MAX_DRAWN = 10000 };
struct nd_series_cv {
    double cv, low, high;
};

/* The block for such a series: runs that resemble their neighbours are drawn with them, others one by one. */
size_t nd_series_block(double autocorrelation, size_t n);

enum nd_status nd_series_cv(const double *values, size_t n, size_t block, uint64_t seed,
                            struct nd_series_cv *out, struct nd_error *err);

/* ---- points in time where the level of a series changes: binary segmentation ---- */

enum { ND_CHANGE_MIN_RUNS = 20 }; /* of every level */

struct nd_level_change {
    size_t at; /* the first of the new level */
    double p;
};

/* Room for changes, and how many were found. */
struct nd_changes {
    struct nd_level_change *items;
    size_t most; /* for which there is room */
    size_t n;
};

/* Finds at most changes->most changes of a series of logarithms, in increasing order of `at`. A change has
 * p < 0.01 and moves the level by log_step or more. docs/science/latency.md#modes. values is not changed.
 * ND_ERR_MEMORY. */
enum nd_status nd_change_find(const double *values, size_t n, double log_step, struct nd_changes *changes,
                              struct nd_error *err);

/* ---- one kind of run or two: models of the logarithm of latency ---- */

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
