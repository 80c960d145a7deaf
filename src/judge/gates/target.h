/* How far outputs are from a target tensor, and whether one device is farther than another: for models that do
 * not classify. docs/science/statistics.md#targets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "judge/accuracy/fleet_accuracy.h"

/* Of one sample on one device. */
struct nd_target_sums {
    uint64_t n_elems;    /* that were taken */
    uint64_t n_left_out; /* where value or target are not finite */
    double abs_error, sq_error, sq_target;
};

/* Sums over the n elements of a sample, one after the other: relative error of a sum below n 2^-52. Elements
 * with a NaN or an infinity on either side are counted and left out. */
struct nd_target_sums nd_target_sums_of(const double *values, const double *target, size_t n);

struct nd_target_metrics {
    struct nd_estimate mean_error; /* mean absolute error, over the elements of all samples */
    struct nd_estimate sqnr_db; /* 10 log10 of the energy of the target by that of the error; inf: no error */
};

struct nd_target_comparison {
    struct nd_target_metrics ref, test;
    /* The test less the reference, drawn in pairs. Of two devices without any error 0 dB. */
    struct nd_target_metrics difference;
};

/* ref and test: [n_samples] each, n_samples < 2^32, of the same samples and targets. A statistic without
 * elements is NaN; intervals (percentiles, 0 < confidence < 1) are NaN below two samples. The same seed gives
 * the same bits. Fails for want of memory only, out untouched. */
enum nd_status nd_target_compare(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                                 size_t n_samples, const struct nd_spread_options *options,
                                 struct nd_target_comparison *out, struct nd_error *err);
