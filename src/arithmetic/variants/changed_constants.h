/* What a product by constants gives when these are not the model's, or are read in another way: a bias that was
 * lost, weights whose scale or zero point is another one, kernels in another order, a matrix transposed, scales
 * along another axis. */
#ifndef ND_ARITH_CHANGED_CONSTANTS_H
#define ND_ARITH_CHANGED_CONSTANTS_H

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/htp/htp.h"

enum nd_constants_kind {
    ND_CONSTANTS_AS_THEY_ARE,
    ND_CONSTANTS_BIAS_LOST,       /* the bias is 0 */
    ND_CONSTANTS_BIAS_NEGATED,    /* it has the other sign */
    ND_CONSTANTS_WEIGHTS_SCALED,  /* their scale is `amount` times as large; those of bias stay */
    ND_CONSTANTS_WEIGHTS_RECODED, /* quantised value - zero point is `amount` times as large, rounded, halves to
                                     even */
    ND_CONSTANTS_WEIGHTS_MOVED,   /* quantised values are `amount` higher, clipped to their type */
    ND_CONSTANTS_ZERO_POINT_MOVED,  /* the same without a clip: their zero point is that much lower */
    ND_CONSTANTS_KERNEL_TRANSPOSED, /* rows of each kernel are its columns */
    ND_CONSTANTS_KERNEL_TURNED,     /* each kernel is turned by 180 degrees */
};

struct nd_changed_constants {
    enum nd_constants_kind kind;
    size_t channel; /* of the output; SIZE_MAX: all */
    double amount;
};

/* The quantised values of the layer so, by layer_arithmetic (NULL, or where it does not cover that: the exact
 * values, rounded by `usual`). qvalues->n is 0 where the change does not fit the layer (one channel's weights
 * of a ConvTranspose in groups, no bias, kernels that are not square), or changes no constant. The caller frees
 * *qvalues. ND_ERR_MEMORY; what cannot be evaluated is no error. */
enum nd_status nd_layer_changed(const struct nd_exact_layer *layer,
                                const struct nd_layer_arithmetic *layer_arithmetic,
                                const struct nd_rounding_rule *usual, const struct nd_changed_constants *change,
                                struct nd_array *qvalues, struct nd_error *err);

/* The exact values of a Conv, ConvTranspose, Gemm or MatMul of one tensor by constants, in steps of the output
 * and without its zero point and bounds. */
struct nd_product_parts {
    struct nd_array products; /* without the bias */
    struct nd_array
        moved; /* what is added to them where all quantised values of weights are `shift` higher, clipped */
    size_t n_channels; /* element i is of channel i / n_inner % n_channels */
    size_t n_inner;
    double low, high; /* quantised values of the output at which the type, or a bound, cuts off */
};

/* shift 0: one higher, without a clip. products.n is 0 of other layers, and where there are no exact values.
 * ND_ERR_MEMORY; deinit in any case. */
enum nd_status nd_layer_product_parts(const struct nd_exact_layer *layer, double shift,
                                      struct nd_product_parts *out, struct nd_error *err);
void nd_product_parts_deinit(struct nd_product_parts *parts);

/* A converter wrote the matrix of a Gemm or MatMul transposed, and its shape says nothing of it (square ones,
 * above all). The quantised values of the layer so, by layer_arithmetic (NULL: the exact values, rounded by
 * `usual`). qvalues->n is 0 where the layer is no Gemm or MatMul with a constant matrix of weights, or where
 * transposing it changes nothing. The caller frees *qvalues. ND_ERR_MEMORY; what cannot be evaluated is no
 * error. */
enum nd_status nd_layer_transposed(const struct nd_exact_layer *layer,
                                   const struct nd_layer_arithmetic *layer_arithmetic,
                                   const struct nd_rounding_rule *usual, struct nd_array *qvalues,
                                   struct nd_error *err);

/* A backend counts channels along one axis of the weights, and the model's scales belong to another of the same
 * length. The quantised values of the layer so, worked out in doubles and rounded by `usual`; *own is the axis
 * of the scales, *other the one that was taken. qvalues->n is 0 where the layer is no Conv, ConvTranspose, Gemm
 * or MatMul with constant weights that have a scale for each place along an axis, or where no other axis is as
 * long. The caller frees *qvalues. ND_ERR_MEMORY; what cannot be evaluated is no error. */
enum nd_status nd_layer_other_axis(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                   struct nd_array *qvalues, int *own, int *other, struct nd_error *err);

#endif
