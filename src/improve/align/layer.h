/* One Conv, Gemm or MatMul with new scales: a copy of the unit, so that programs can be asked about it before
 * it is written. */
#ifndef ND_ALIGN_LAYER_H
#define ND_ALIGN_LAYER_H

#include "improve/align/power_scales.h"
#include "arithmetic/htp/htp.h"
#include "arithmetic/exact/linear/linear_unit.h"

struct nd_observed_layer;

enum { ND_ALIGN_OPERANDS = 3 }; /* x, weights, bias */

struct nd_align_layer {
    const struct nd_exact_unit *unit; /* of the model as it is; borrowed */
    /* The unit as it is to be. The values of x are borrowed, those of constants owned. */
    struct nd_exact_unit made;
    struct nd_linear_call call;
    struct nd_linear_input inputs[ND_ALIGN_OPERANDS];
    struct nd_quant quants[ND_ALIGN_OPERANDS], output;
    struct nd_array codes[ND_ALIGN_OPERANDS];
    double *bias; /* [codes[2].n] in real numbers, NULL: none */
    int *exponent;
    struct nd_align_scales scales;
    bool has_weights; /* constant ones; else only the output's scale changes */
    bool is_y_settled;
};

/* Takes the unit and chooses its scales. scale_x, scale_y and, of calculated weights, scale_w are those of the
 * inputs and the output by now; *obstacle, static, says why it cannot be done, and is NULL when it can.
 * float_weights, or NULL: the weights before they were quantised, in the same order. Call deinit in any case.
 * ND_ERR_MEMORY. */
struct nd_align_now {
    float scale_x, scale_w, scale_y;
    int64_t zero_x, zero_w, zero_y;
    bool is_y_settled;
    const double *float_weights, *float_bias;
    const struct nd_observed_layer *seen; /* NULL: weights are rounded to the nearest, each for itself */
};
enum nd_status nd_align_layer_init(struct nd_align_layer *layer, const struct nd_exact_unit *unit,
                                   const struct nd_align_now *now, const char **obstacle, struct nd_error *err);
void nd_align_layer_deinit(struct nd_align_layer *layer);

/* bias_search.c: the bias, and the last float32 steps of the scales, with which all programs give the same, as
 * far as they can be found. *n_left channels remain in which they do not. */
enum nd_status nd_align_find_bias(struct nd_align_layer *layer, const struct nd_unit_program *const *programs,
                                  size_t n_programs, size_t *n_left, struct nd_error *err);

/* round_weights.c: rounds the layer's weights anew so that its output has the least error on what was seen, and
 * corrects the bias by what they add on average. reals are the weights before they were quantised.
 * ND_ERR_MEMORY. */
enum nd_status nd_align_round(struct nd_align_layer *layer, const double *reals,
                              const struct nd_observed_layer *seen, struct nd_error *err);
/* The root of the mean square of what was seen; with a bias around the mean of each term. */
double nd_align_rms(const struct nd_observed_layer *seen, bool has_bias);

/* Codes of real numbers, half to even and clipped; by channel where quant has several scales. */
void nd_align_quantise(const double *reals, const struct nd_quant *quant, struct nd_array *codes);

#endif
