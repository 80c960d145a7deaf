/* Layers that are no sums of products, and have a sum and a multiplier in the specifications of TensorFlow Lite
 * and of TOSA all the same: means, LeakyRelu and Mul (arithmetic/arithmetics/requantise.h). */
#pragma once

#include "npudiff/model/model.h"

/* sum * step is the real value. step 0: the layer is none of these. */
struct nd_specified_sum {
    double step;       /* the product of the inputs' scales, over n_averaged */
    double n_averaged; /* of a mean: how many numbers; 1 of a product of two; 0: neither */
    double slope;      /* of a LeakyRelu: alpha; 0: none */
};

/* Of the layer that makes the tensor: a GlobalAveragePool, a ReduceMean or a LeakyRelu of one quantised tensor,
 * or a Mul of two, with one scale each, whose shapes are known. */
struct nd_specified_sum nd_specified_sum_of(const struct nd_model *model, size_t tensor);
