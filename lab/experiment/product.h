/* Products of a device: rows of quantised values, or of floats, by constant weights, as MatMul, Gemm and Conv
 * have them.
 */
#ifndef ND_EXPERIMENT_PRODUCT_H
#define ND_EXPERIMENT_PRODUCT_H

#include "lab/experiment/experiment.h"
#include "lab/experiment/threshold_sweep.h"

enum nd_linear_form { ND_FORM_MATMUL, ND_FORM_GEMM, ND_FORM_CONV };

/* Borrowed. A convolution is 1x1 and has its terms in channels, its rows along the width. */
struct nd_product {
    enum nd_linear_form form;
    enum nd_dtype
        dtype; /* of rows and products: ND_DTYPE_U8 or _U16; _F32: weights are floats, without scales */
    bool has_fed_weights; /* they are an input of the model */
    size_t n_rows, n_terms, n_columns;
    const void
        *weights; /* [n_terms][n_columns]: quantised values of uint8, or floats; of these n_columns is 1 */
    float scale_x, scale_w, scale_y;
    int64_t zero_x, zero_w, zero_y;
};

/* The products of x [n_samples][n_rows][n_terms]: [n_samples][n_rows][n_columns]. As nd_experiment_ask. */
const double *nd_product_ask(struct nd_experiment *experiment, const struct nd_product *product,
                             const double *x, size_t n_samples);

/* ---- threshold sweep ---- */

/* A sum of products, as large as it may be, has 8 terms of weight 127 for its coarse part and one of weight 1
 * for the fine part: what the quantised values of the terms are, less their zero point. |sum| <= 8 * 127 * 127.
 */
enum { ND_SPREAD_LARGE = 127, ND_SPREAD_TERMS = 9 };
void nd_spread(int64_t sum, int64_t out[ND_SPREAD_TERMS]);
/* The weights of those terms. */
extern const uint8_t nd_spread_weights[ND_SPREAD_TERMS];

/* Asks for the quantised values of the accumulators first .. first + n - 1, n a multiple of
 * ND_THRESHOLD_SWEEP_ROWS, under a multiplier and zero point; all of *staircase but the quantised values is
 * given. Of ND_DTYPE_U16 these are accumulators in units of 2^8. Whether there are quantised values. */
enum { ND_THRESHOLD_SWEEP_ROWS = 4096 };
bool nd_threshold_sweep_ask(struct nd_experiment *experiment, enum nd_linear_form form, enum nd_dtype dtype,
                            struct nd_threshold_sweep *threshold_sweep);

#endif
