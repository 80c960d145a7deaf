/* Questions about products whose columns differ: in their weights, in their scales, in their biases. A
 * convolution 1x1 with a row at each place along its width and a column in each output channel. */
#ifndef ND_EXPERIMENT_COLUMNS_H
#define ND_EXPERIMENT_COLUMNS_H

#include "lab/experiment/experiment.h"

struct nd_columns {
    size_t n_rows, n_terms, n_columns;
    float scale_x, scale_y;
    int64_t zero_x, zero_w, zero_y;
    bool is_per_channel; /* scales are [n_columns], weights are of int8, and zero_w is 0; else [1], and uint8 */
    bool has_bias;
    uint8_t *x;       /* [n_terms][n_rows] */
    int16_t *weights; /* [n_columns][n_terms]: quantised values */
    float *scales_w;
    int32_t *bias; /* [n_columns] */
    float *bias_scales;
    const double *qvalues; /* [n_columns][n_rows]: the answer; NULL without one */
};

/* A question that is to be filled: zero_x is 128, the rest is 0. It belongs to the experiment; NULL: that does
 * not go on. */
struct nd_columns *nd_columns_make(struct nd_experiment *experiment, size_t n_rows, size_t n_terms,
                                   size_t n_columns);
/* Draws quantised values, weights, zero points and the scale of x. */
void nd_columns_draw(struct nd_columns *columns, uint64_t *seed);
/* Draws the scale of y, under which the sums of 64 such terms fill the quantised values. The scales of x and of
 * the first weights are given. */
void nd_columns_draw_step(struct nd_columns *columns, uint64_t *seed);
/* Whether the device answers. As nd_experiment_ask. */
bool nd_columns_ask(struct nd_experiment *experiment, struct nd_columns *columns);

/* sums[c * n_rows + row] = the sum over terms of (x - zero_x) times w8[c][term]; sums is allocated by the
 * caller.
 */
void nd_columns_sum(const struct nd_columns *columns, const double *w8, double *sums);

#endif
