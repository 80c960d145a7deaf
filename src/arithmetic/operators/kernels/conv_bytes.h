/* Convolution of quantised values of 8 bits by weights of as many: whole numbers, added up four products at a
 * time. No matrix of columns is made: four channels lie next to each other, in planes with their padding, so
 * that what one tap reads for windows next to each other lies next to each other, too. */
#pragma once

#include "arithmetic/operators/kernels/convolutions.h"

/* Weights less a shift for each output channel, so that they fit signed bytes, as the kernels take them. */
struct nd_byte_weights {
    struct nd_window w;
    size_t n_groups, n_in, n_out; /* channels of a group */
    int zero;                     /* of the input, as a byte */
    size_t n_planes, n_quads, n_tiles;
    int8_t *quads;  /* [n_groups][n_tiles][n_quads][ND_QUAD_ROWS][4]; a quad: a plane of four channels, a tap */
    int32_t *start; /* [n_groups][n_tiles][ND_QUAD_ROWS] what the zero point of the input takes away */
    int32_t *shift; /* the same: of the weights */
    bool is_shifted;      /* some shift is not 0 */
    size_t in_row, plane; /* quads of a row of a plane with its padding, and of a plane, all phases */
    ptrdiff_t *starts;    /* [phases of the strides] of a plane */
    ptrdiff_t *offsets;   /* [n_quads] from the first window's first tap in the first plane */
};

/* weights[n_groups][n_out][n_in][taps]: whole numbers. False: not that way (three axes, cropped inputs, weights
 * of a wider range, sums that 32 bits may not hold), or no memory; then there is nothing to end. */
bool nd_byte_weights_make(struct nd_byte_weights *out, const struct nd_conv_group *group, size_t n_groups,
                          int zero);
/* Accepts a zeroed one. */
void nd_byte_weights_end(struct nd_byte_weights *weights);
/* Of memory, at most, of the weights and of what a convolution takes. */
size_t nd_byte_weights_bytes(const struct nd_conv_group *group, size_t n_groups);

/* Room for the convolution of one sample. begin: false: no memory. */
struct nd_conv_bytes {
    const struct nd_byte_weights *weights;
    uint8_t *planes;
    int32_t *totals, *window_totals; /* of all channels of the planes; of the windows of a block */
    double *sums;                    /* of a tile: all columns, and those of windows */
    uint8_t *nothing;                /* a plane of channels that are not there, and a row of quads */
};
bool nd_conv_bytes_begin(struct nd_conv_bytes *room, const struct nd_byte_weights *weights);
void nd_conv_bytes_end(struct nd_conv_bytes *room);
/* The sums of (quantised value - zero) * weight of one group, tile after tile and block after block: a tile is
 * some output channels. bytes->zero is not looked at. */
void nd_conv_bytes_each(const struct nd_conv_bytes *room, size_t group, const struct nd_byte_sums *bytes);
