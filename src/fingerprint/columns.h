/* Questions about products whose columns differ: in their weights, in their scales, in their biases. A
 * convolution 1x1 with a row at each place along its width and a column in each output channel. */
#ifndef ND_FINGERPRINT_COLUMNS_H
#define ND_FINGERPRINT_COLUMNS_H

#include "fingerprint/trial.h"

/* Borrowed. */
struct nd_columns {
    size_t n_rows, n_terms, n_columns;
    const int16_t *weights; /* [n_columns][n_terms]: codes of uint8; of int8 with scales per column */
    float scale_x, scale_y;
    int64_t zero_x, zero_w, zero_y; /* zero_w is 0 with scales per column */
    const float *scales_w;
    size_t n_scales_w;   /* 1 or n_columns */
    const int32_t *bias; /* [n_columns], or NULL */
    const float *bias_scales;
    size_t n_bias_scales; /* 1 or n_columns */
};

/* The codes of x [n_terms][n_rows], in out->x [n_columns][n_rows]. As nd_trial_run. */
enum nd_status nd_columns_ask(struct nd_bench *bench, const struct nd_columns *columns, const uint8_t *x,
                              struct nd_trial_result *out, struct nd_error *err);

/* sums[c * n_rows + row] = the sum over terms of (x - zero_x) times w8[c][term]; sums is allocated by the
 * caller.
 */
void nd_columns_sum(const struct nd_columns *columns, const uint8_t *x, const double *w8, double *sums);

#endif
