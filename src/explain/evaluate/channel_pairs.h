/* Pairs of layers whose weights can be scaled against each other, channel by channel, without a change of what
 * the float model computes (cross-layer equalisation; M. Nagel et al., "Data-Free Quantization through Weight
 * Equalization and Bias Correction", 2019): Conv, ConvTranspose or Gemm, then operators that commute with a
 * positive factor of each channel, then another Conv, ConvTranspose or Gemm, which alone reads the tensor. */
#pragma once

#include "explain/plan/plan.h"

enum { ND_MAX_BETWEEN = 4 }; /* tensors between two layers: chosen */

/* A step whose products are of weights that can be scaled. */
struct nd_pair_layer {
    size_t step;
    struct nd_exact_constant weights, bias;
    bool has_bias;
    const struct nd_array *before; /* the float model's weights */
    struct nd_weight_axes axes;
    size_t node, float_node;          /* in both graphs */
    size_t float_weights, float_bias; /* tensors of the float model; bias ND_NO_INDEX: none */
    bool is_free;                     /* both can be scaled (nd_exact_graph_scale) */
};

/* A tensor between two layers; its channels are on axis 1. */
struct nd_between {
    size_t step;
    double bound_low, bound_high; /* of a Clip before it; infinite without one */
    double *low, *high;           /* of who looks at the values: NULL at first */
};

struct nd_pair {
    struct nd_pair_layer first, second;
    size_t n_channels, n_between;
    size_t float_clips[ND_MAX_BETWEEN], n_float_clips; /* nodes of the float model with a bound between them */
    bool is_plain;                                     /* the float model has no quantiser between them */
    struct nd_between between[ND_MAX_BETWEEN];         /* the first one is what the first layer makes */
};

enum nd_pair_scales {
    ND_PAIR_ONE_SCALE,  /* weights of 8 bits with one scale */
    ND_PAIR_ANY_SCALES, /* weights of any type, also with a scale for each channel */
};

/* Whether the step has quantised values of one scale and at most 16 bits. */
bool nd_plan_has_range(const struct nd_plan *plan, size_t step);

/* The pairs in the order of their first layers: the caller frees *out. step_of_float[n_edges of the float
 * model]: which of its tensors are those of which step. plan: with a float model. ND_ERR_MEMORY. */
enum nd_status nd_find_pairs(const struct nd_plan *plan, const size_t *step_of_float,
                             enum nd_pair_scales scales, struct nd_pair **out, size_t *n, struct nd_error *err);
