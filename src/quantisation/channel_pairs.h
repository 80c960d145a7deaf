/* Pairs of layers whose weights can be scaled against each other, channel by channel, without a change of what
 * the float model computes (cross-layer equalisation; M. Nagel et al., "Data-Free Quantization through Weight
 * Equalization and Bias Correction", 2019): Conv, ConvTranspose or Gemm, then operators that commute with a
 * positive factor of each channel, then another Conv, ConvTranspose or Gemm, which alone reads the tensor. The
 * weights of both have one scale. */
#ifndef ND_QUANTISATION_CHANNEL_PAIRS_H
#define ND_QUANTISATION_CHANNEL_PAIRS_H

#include "eval/eval_graph.h"

struct nd_study;

enum { ND_MOST_BETWEEN = 4 }; /* tensors between two layers: chosen */

/* Weights as n0 x n1 x inner, in groups along the first axis. One axis has channels of the outputs, the other
 * one those of the inputs within a group. */
struct nd_weight_axes {
    size_t n0, n1, inner, groups;
    bool is_first_out; /* the first axis is that of the outputs */
};

/* A step whose products are of weights that can be scaled. */
struct nd_pair_layer {
    size_t step;
    struct nd_exact_constant weights, bias;
    bool has_bias;
    const struct nd_array *before; /* the float model's weights */
    struct nd_weight_axes axes;
    size_t node, float_node; /* in both graphs */
};

/* A tensor between two layers; its channels are on axis 1. */
struct nd_between {
    size_t step;
    double bound_low, bound_high; /* of a Clip before it; infinite without one */
    double *low, *high;           /* [n_samples][n_channels] of the float model, owned */
};

struct nd_pair {
    struct nd_pair_layer first, second;
    size_t n_channels, n_between;
    struct nd_between between[ND_MOST_BETWEEN]; /* the first one is what the first layer makes */
};

/* The output or input channel of element i. */
size_t nd_weight_channel(const struct nd_weight_axes *axes, bool is_output, size_t i);
size_t nd_weight_channels(const struct nd_weight_axes *axes, bool is_output);

/* Fills study->pairs, in graph order. ND_ERR_MEMORY. */
enum nd_status nd_find_pairs(struct nd_study *study, struct nd_error *err);
void nd_pairs_deinit(struct nd_study *study);

/* Takes the least and the greatest value of each channel, if the step lies between two layers. Several samples
 * may be taken at once. values: of the float model. */
void nd_pairs_take(const struct nd_study *study, size_t step, size_t sample, const struct nd_array *values);

#endif
