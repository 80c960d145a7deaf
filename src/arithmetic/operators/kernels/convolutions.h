/* The sums of convolutions, of groups of channels: of whole numbers of 16 bits, as products of matrices whose
 * columns are what the windows of some output positions read; and of one plane each. */
#pragma once

#include "arithmetic/operators/kernels/short_products.h"
#include "arithmetic/operators/window.h"

/* One group of one sample: out[n_out][w.n_out] += weight[n_out][n_in][w.n_kernel] * in[n_in][w.n_in]. */
struct nd_conv_group {
    const struct nd_window *w;
    size_t n_in, n_out; /* channels */
    const double *weight, *in;
    double *out;
    const int16_t *short_weight; /* the same, and `range` of the whole input; NULL: not that way */
    struct nd_short_range range;
};

/* The sums of whole numbers of 16 bits, one group after the other: exact in any order. */
struct nd_conv_shorts {
    int16_t *in, *pairs; /* of the group at hand, owned */
};
/* False: groups like this one are not worth it, have no short weights, or there is no memory. */
bool nd_conv_shorts_begin(struct nd_conv_shorts *shorts, const struct nd_conv_group *group);
void nd_conv_shorts_end(struct nd_conv_shorts *shorts);
void nd_conv_shorts_add(const struct nd_conv_shorts *shorts, const struct nd_conv_group *group);

/* Sums of positions from .. from + n - 1 of output channels of a group, from the first one on: rows of `sums`,
 * which lie so many elements apart. */
struct nd_sums_block {
    const double *sums;
    size_t first_channel, n_channels, from, n, row;
};
/* Input 0 as bytes, of which zero is 0, and who takes the sums. */
struct nd_byte_sums {
    const uint8_t *in; /* of the group */
    int zero;
    void (*take)(void *context, const struct nd_sums_block *block);
    void *context;
};
/* The same sums, of bytes, and block after block: group->in and out are not looked at, range.offset is 0.
 * False: no memory. */
bool nd_conv_shorts_each(const struct nd_conv_shorts *shorts, const struct nd_conv_group *group,
                         const struct nd_byte_sums *bytes);

/* Convolutions of one plane each: a group has one input channel. */
struct nd_conv_planes {
    const struct nd_window *w;
    size_t in_row;               /* of `room` */
    double *room;                /* a plane with its padding, which stays 0 */
    float *float_room;           /* the same, of nd_conv_planes_each; NULL until then */
    ptrdiff_t *offsets, *starts; /* of taps; of the parts of `room`, by phase of the strides */
};
/* False: not that way (three axes, cropped inputs, a kernel of one tap or of very many), or no memory. */
bool nd_conv_planes_begin(struct nd_conv_planes *planes, const struct nd_window *w);
void nd_conv_planes_end(struct nd_conv_planes *planes);
/* group->n_in is 1; out is written, not added to. The same bits as one tap after the other gives. */
void nd_conv_planes_run(const struct nd_conv_planes *planes, const struct nd_conv_group *group);
/* The same sums, of bytes, and one channel after the other (block.n_channels is 1, from 0; channels come in
 * order): group->in and out are not looked at. weights: those of the group; every sum is below 2^24. False: no
 * memory. */
bool nd_conv_planes_each(struct nd_conv_planes *planes, const struct nd_conv_group *group, const float *weights,
                         const struct nd_byte_sums *bytes);
