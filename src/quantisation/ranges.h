/* Quantisers of one scale for given values: which range to take, and what error they make. */
#ifndef ND_QUANTISATION_RANGES_H
#define ND_QUANTISATION_RANGES_H

#include <stddef.h>

/* A quantiser: quantised value = round(x / scale) + zero, clipped to low_code .. high_code. */
struct nd_fit {
    double scale, zero, low_qvalue, high_qvalue;
};

struct nd_range {
    double low, high;
};

/* The quantiser whose quantised values cover the range, and zero with it, as ONNX Runtime's calibration makes
 * it. */
struct nd_fit nd_fit_range(struct nd_range range, double low_qvalue, double high_qvalue);
/* What its quantised values stand for. */
struct nd_range nd_range_of_fit(const struct nd_fit *fit);
/* x after quantising and dequantising. */
double nd_fit_apply(const struct nd_fit *fit, double x);
/* The same of x[n], in place. */
void nd_fit_apply_all(const struct nd_fit *fit, double *x, size_t n);
/* Mean square of the error; 0 for n = 0. */
double nd_fit_error(const struct nd_fit *fit, const float *values, size_t n);

enum nd_calibration {
    ND_CALIBRATE_MIN_MAX,
    ND_CALIBRATE_PERCENTILE_9999,
    ND_CALIBRATE_PERCENTILE_999,
    ND_CALIBRATE_ENTROPY,
    ND_CALIBRATE_MSE,
    ND_N_CALIBRATIONS,
};
const char *nd_calibration_name(enum nd_calibration calibration);

/* Of n > 0 sorted values. codes: how many the type has. */
struct nd_range nd_calibrate(enum nd_calibration calibration, const float *sorted, size_t n, double qvalues);

#endif
