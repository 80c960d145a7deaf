/* What a layer gives when the scales of its weights are taken along another axis than theirs: a backend counts
 * channels along one axis of the weights, and the model's scales belong to another of the same length. */
#ifndef ND_ARITH_OTHER_AXIS_H
#define ND_ARITH_OTHER_AXIS_H

#include "arithmetic/exact/rounding_rule.h"
#include "arithmetic/htp/htp.h"

/* The quantised values of the layer so, worked out in doubles and rounded by `usual`; *own is the axis of the
 * scales, *other the one that was taken. codes->n is 0 where the layer is no Conv, ConvTranspose, Gemm or
 * MatMul with constant weights that have a scale for each place along an axis, or where no other axis is as
 * long. The caller frees *quantised values. ND_ERR_MEMORY; what cannot be evaluated is no error. */
enum nd_status nd_layer_other_axis(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                   struct nd_array *qvalues, int *own, int *other, struct nd_error *err);

#endif
