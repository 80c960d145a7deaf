/* Copies of a quantised model in which some tensors have 16 bits, and some weights a scale for each channel.
 *
 * An operator computes with activations of one width. So what reads or makes a tensor of 16 bits computes at 16
 * bits as a whole: its other 8-bit inputs are converted before it, and its other 8-bit outputs after it. */
#pragma once

#include "model/graph/loaded.h"

/* A tensor that gets uint16 quantised values. */
struct nd_wide_tensor {
    size_t tensor;
    float scale;
    int64_t zero_point;
};

/* Constant weights that get int8 quantised values, and a scale for each channel. */
struct nd_channel_weights {
    size_t tensor; /* that the operators read: what its DequantizeLinear makes */
    int axis;      /* of the channels, from 0 */
    const struct nd_shape *shape;
    const double *values; /* in C order: they are rounded to the nearest quantised value */
};

struct nd_widening {
    const struct nd_wide_tensor *tensors;
    size_t n_tensors;
    const struct nd_channel_weights *weights;
    size_t n_weights;
};

/* Why the tensor cannot get other quantised values (static); NULL: it can. Such a tensor is made by a
 * QuantizeLinear from outside, has one scale and 8 bits, and only DequantizeLinear nodes read it. */
const char *nd_widening_obstacle(const struct nd_model *model, size_t tensor);

/* What computes at 16 bits in the copy, and where it is converted. */
struct nd_wide_parts {
    bool *is_wide_tensor; /* [n_edges] the given ones */
    bool *is_wide_node;   /* [n_nodes] operators that read or make one, and what they share floats with */
    /* [n_nodes] a DequantizeLinear whose result is converted to 16 bits for some that read it; a QuantizeLinear
     * before which what it reads is rounded to 16 bits. */
    bool *is_converted;
};
/* deinit accepts a zeroed one. ND_ERR_MEMORY. */
enum nd_status nd_wide_parts_find(const struct nd_model *model, const struct nd_wide_tensor *tensors,
                                  size_t n_tensors, struct nd_wide_parts *out, struct nd_error *err);
void nd_wide_parts_deinit(struct nd_wide_parts *parts);

/* Writes the copy. Conversions keep the range of the tensor: scale / 256, zero point * 256, which loses
 * nothing. Biases of products whose scales change are rounded anew to the product of the new scales. Tensors
 * keep their names. External data is placed as by nd_model_write_exposed. ND_ERR_UNSUPPORTED: a tensor with an
 * obstacle, weights whose quantised values are no constant, a bias that 32 bits do not hold in its new steps, a
 * name that is taken; ND_ERR_IO; ND_ERR_MEMORY. Nothing is left behind then. */
enum nd_status nd_model_write_widened(const struct nd_model *model, const struct nd_widening *widening,
                                      const char *path, struct nd_error *err);
