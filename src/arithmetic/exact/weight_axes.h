/* The axes of weights on which channels lie, and factors of these channels. */
#ifndef ND_EVAL_WEIGHT_AXES_H
#define ND_EVAL_WEIGHT_AXES_H

#include <stdbool.h>
#include <stddef.h>

/* Weights as n0 x n1 x inner, in groups along the first axis. One axis has channels of the outputs, the other
 * one those of the inputs within a group. */
struct nd_weight_axes {
    size_t n0, n1, inner, groups;
    bool is_first_out; /* the first axis is that of the outputs */
};

/* The output or input channel of element i, and how many there are. */
size_t nd_weight_channel(const struct nd_weight_axes *axes, bool is_output, size_t i);
size_t nd_weight_channels(const struct nd_weight_axes *axes, bool is_output);

/* What weights are multiplied by: NULL is 1 everywhere. Borrowed. */
struct nd_weight_factors {
    const double *outputs, *inputs; /* [nd_weight_channels(true)], [nd_weight_channels(false)] */
};
/* x[n0 * n1 * inner]. */
void nd_weights_scale(const struct nd_weight_axes *axes, const struct nd_weight_factors *factors, double *x);

#endif
