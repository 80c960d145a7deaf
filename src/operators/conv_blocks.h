/* Convolution as products of matrices: what the windows of some output positions read becomes the columns of a
 * matrix, block by block. */
#ifndef ND_OPERATORS_CONV_BLOCKS_H
#define ND_OPERATORS_CONV_BLOCKS_H

#include "operators/window.h"

/* One group of one sample: out[n_out][w.n_out] += weight[n_out][n_in][w.n_kernel] * in[n_in][w.n_in]. */
struct nd_conv_group {
    const struct nd_window *w;
    size_t n_in, n_out; /* channels */
    const double *weight, *in;
    double *out;
};

/* Room for one matrix of columns; the caller frees it. NULL: no memory. */
double *nd_conv_blocks_room(void);
/* Adds in order of channels and taps, as one tap after the other would: the same bits. Weights must be finite,
 * since padding is multiplied, too. */
void nd_conv_blocks_add(const struct nd_conv_group *group, double *room);

#endif
