/* What a product by constants gives when these are not the model's, or are read in another way: a bias that was
 * lost, weights whose scale or zero point is another one, kernels in another order, a matrix transposed, scales
 * along another axis. */
#pragma once

#include "arithmetic/exact/float_node.h"
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
    ND_CONSTANTS_ZERO_POINT_MOVED, /* the same without a clip: their zero point is that much lower */
    ND_CONSTANTS_ZERO_POINT_TAKEN, /* it is the quantised value after that share of all: the first, or the
                                      middle */
    ND_CONSTANTS_SIGN_FLIPPED,     /* the highest bit of each quantised value is the other one */
    ND_CONSTANTS_OTHER_TYPE,       /* bits with a sign are read without one, or the reverse */
    ND_CONSTANTS_NIBBLES_SWAPPED,  /* of 4 bits: each pair along a row is the other way round */
    ND_CONSTANTS_ROWS_APART,       /* rows are read as if they began further apart in memory, or less so */
    ND_CONSTANTS_GROUP_REPEATED, /* the first `read` terms of each output are read for all groups of as many */
    ND_CONSTANTS_TERMS_LOST,     /* a part of the terms of each sum is left out, or it alone is summed */
    ND_CONSTANTS_BOUNDS_LOST,    /* of any layer: the Relu or Clip that is its end is left out */
    ND_CONSTANTS_QVALUES_COPIED, /* of any layer: its inputs are read with the encoding of its output */
    ND_CONSTANTS_SCALES_AXIS,    /* their scales are taken along another axis of the same length */
    ND_CONSTANTS_MATRIX_TRANSPOSED, /* of a Gemm or MatMul: the bytes are read in the other order */
    ND_CONSTANTS_KERNEL_TRANSPOSED, /* rows of each kernel are its columns */
    ND_CONSTANTS_KERNEL_TURNED,     /* each kernel is turned by 180 degrees */
};

struct nd_changed_constants {
    enum nd_constants_kind kind;
    size_t channel; /* of the output; SIZE_MAX: all */
    double amount;
    /* Of rows: those of an output each, or as the model stores them; in memory each takes a multiple of
     * `stored` values, and is read as a multiple of `read`, and `apart` more. */
    bool is_as_stored;
    size_t stored, read;
    int apart;
    /* Of terms: the part is the first (1) or the last (-1) of `read` equal ones, or what is left of whole
     * multiples of `read` (0). */
    int part;
    bool is_alone; /* the part is all that is summed; of a zero point: channel 0 has its own */
    const struct nd_coded_weights
        *coded; /* of weights that nd_layer_coded_weights found; NULL: the layer's own */
};

/* Changes without a number that the values must tell, the simplest first. How many. */
enum { ND_CONSTANTS_MAX_LISTED = 128 };
size_t nd_list_changed_constants(struct nd_changed_constants out[ND_CONSTANTS_MAX_LISTED]);

/* Weights of a layer whose values are floats: quantised values, where they are known or can be told, and what
 * makes floats of them, element by element. */
struct nd_coded_weights {
    struct nd_array qvalues;      /* of weights that are no quantised values: floats */
    double *scales, *zero_points; /* [n]; NULL: 1 and 0 */
};

/* Those of a constant that the node reads as its weights. Where the model has them as floats alone, blocks
 * along the terms of a sum that are whole multiples of a step, of 4 or 8 bits, tell. graph: holds the constant;
 * n = 0: the node is no product by a constant. ND_ERR_MEMORY; deinit in any case. */
enum nd_status nd_find_coded_weights(const struct nd_exact_graph *graph, const struct nd_float_node *node,
                                     struct nd_coded_weights *out, struct nd_error *err);
/* The same of a layer whose weights have scales for blocks: n = 0 where a quantisation of the layer's has them.
 */
enum nd_status nd_layer_coded_weights(const struct nd_exact_graph *graph, const struct nd_exact_layer *layer,
                                      struct nd_coded_weights *out, struct nd_error *err);
void nd_coded_weights_deinit(struct nd_coded_weights *weights);

/* The weights (*input 1), or the bias (*input 2), so. NaN where nobody knows what is read. n = 0: the change
 * does not fit, or changes nothing. The caller frees *reals. ND_ERR_MEMORY. */
enum nd_status nd_change_reals(const struct nd_float_node *node, const struct nd_coded_weights *weights,
                               const struct nd_changed_constants *change, size_t *input, struct nd_array *reals,
                               struct nd_error *err);

/* The quantised values of the layer so, by layer_arithmetic (NULL, or where it does not cover that: the exact
 * values, rounded by `usual`). qvalues->n is 0 where the change does not fit the layer (one channel's weights
 * of a ConvTranspose in groups, no bias, kernels that are not square), or changes no constant. NaN where nobody
 * knows what is read. The caller frees
 * *qvalues. ND_ERR_MEMORY; what cannot be evaluated is no error. */
enum nd_status nd_layer_changed(const struct nd_exact_layer *layer,
                                const struct nd_layer_arithmetic *layer_arithmetic,
                                const struct nd_rounding_rule *usual, const struct nd_changed_constants *change,
                                struct nd_array *qvalues, struct nd_error *err);

/* "its bias of channel 3 is lost: the values fit a bias of 0": of a change that fits the layer. */
enum { ND_CONSTANTS_TEXT_BYTES = 160 };
void nd_layer_changed_text(const struct nd_exact_layer *layer, const struct nd_changed_constants *change,
                           char text[ND_CONSTANTS_TEXT_BYTES]);
void nd_change_reals_text(const struct nd_float_node *node, const struct nd_coded_weights *weights,
                          const struct nd_changed_constants *change, char text[ND_CONSTANTS_TEXT_BYTES]);

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
