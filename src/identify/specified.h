/* Layers that are no products, and have a sum and a multiplier in the specifications of TensorFlow Lite and of
 * TOSA all the same: means and LeakyRelu (arith/fixed_point.h). */
#ifndef ND_IDENTIFY_SPECIFIED_H
#define ND_IDENTIFY_SPECIFIED_H

#include "npudiff/model.h"

/* sum * step is the real value. step 0: the layer is none of these. */
struct nd_specified_sum {
    double step;       /* the scale of the input, over n_averaged of a mean */
    double n_averaged; /* of a mean: how many numbers; 0: none */
    double slope;      /* of a LeakyRelu: alpha; 0: none */
};

/* Of the layer that makes the edge: a GlobalAveragePool, a ReduceMean or a LeakyRelu of one quantised tensor
 * with one scale, whose shapes are known. */
struct nd_specified_sum nd_specified_sum_of(const struct nd_model *model, size_t edge);

#endif
