/* New scales and quantised values for a whole model, layer by layer in the order of the graph. */
#ifndef ND_ALIGN_ALIGN_PLAN_H
#define ND_ALIGN_ALIGN_PLAN_H

#include <stdbool.h>
#include <stddef.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp.h"
#include "improve/align/prove.h"
#include "model/graph/parts.h"

/* What a product has, and what may change. Scales of weights per channel, or one. */
struct nd_align_task {
    double scale_x, scale_y;
    const double *least; /* [n]: the least scale with which the channel's weights fit into 8 signed bits */
    size_t n;
    bool is_w_settled; /* calculated: least is their scale */
    bool is_y_settled;
    double n_rows; /* products that make one sum */
    double rms_x;  /* of the quantised values of x less their zero point */
};
/* scale_x scale_w[c] / scale_y = 2^-exponent[c], but for the rounding of float32, by which it is never more. */
struct nd_align_scales {
    float scale_y;
    float *scale_w;                      /* [n], of the caller */
    int *exponent;                       /* [n], of the caller */
    double output_factor, weight_factor; /* coarser by that; of the weights the root of the mean square */
};

/* One Conv, Gemm or MatMul with new scales: a copy of the layer, so that arithmetics can be asked about it
 * before it is written. */

struct nd_observed_layer;

enum { ND_ALIGN_OPERANDS = 3 }; /* x, weights, bias */

struct nd_align_layer {
    const struct nd_exact_layer *layer; /* of the model as it is; borrowed */
    /* The layer as it is to be. The values of x are borrowed, those of constants owned. */
    struct nd_exact_layer made;
    struct nd_linear_call call;
    struct nd_linear_input inputs[ND_ALIGN_OPERANDS];
    struct nd_quant quants[ND_ALIGN_OPERANDS], output;
    struct nd_array qvalues[ND_ALIGN_OPERANDS];
    double *bias; /* [quantised values[2].n] in real numbers, NULL: none */
    int *exponent;
    struct nd_align_scales scales;
    bool has_weights; /* constant ones; else only the output's scale changes */
    bool is_y_settled;
};

/* Takes the layer and chooses its scales. scale_x, scale_y and, of calculated weights, scale_w are those of the
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

/* bias_search.c: the bias, and the last float32 steps of the scales, with which all arithmetics give the same,
 * as far as they can be found. *n_left channels remain in which they do not. */
enum nd_status nd_align_find_bias(struct nd_align_layer *layer,
                                  const struct nd_layer_arithmetic *const *arithmetics, size_t n_arithmetics,
                                  size_t *n_left, struct nd_error *err);

struct nd_observed;

/* What is planned for one Conv, Gemm or MatMul. */
struct nd_align_step {
    bool is_planned;      /* else obstacle says why not */
    const char *obstacle; /* static */
    int exponent;         /* the multiplier is 2^-exponent; of several channels the greatest of them */
    bool has_exponents;   /* the channels' exponents are not all the same */
    double output_factor, weight_factor;
    bool has_weights;   /* constant ones */
    bool is_from_float; /* the weights are rounded anew from the float model's */
};

/* A float constant of which equalisation made others: name as nd_model_constant_name. Owned. */
struct nd_align_scaled {
    char *name;
    double *values;
    size_t n;
};

struct nd_align_plan {
    const struct nd_model *model, *float_model; /* float_model nullable */
    const struct nd_layer_arithmetic *const *arithmetics;
    size_t n_arithmetics;
    const bool *is_chosen; /* [n_edges] layers that may get new scales; all that a different one reads and makes
                              stays as it is. NULL: all may. Borrowed */
    const struct nd_observed *observed;   /* NULL: nothing was. Borrowed */
    const struct nd_align_scaled *scaled; /* [n_scaled] in the place of the float model's. Borrowed */
    size_t n_scaled;
    struct nd_quantisers quantisers;
    struct nd_align_step *steps; /* [n_edges], by the tensor that the layer makes */
    /* For nd_model_write_recoded. What the entries point to is owned, but for the quantisers' quants. */
    struct nd_recoded_node *nodes;
    size_t n_nodes, nodes_capacity;
    void **kept;
    size_t n_kept, kept_capacity;
};

/* Fills a plan whose first four fields are set. Layers that the evaluation does not reach have the obstacle
 * that says so. Call deinit in any case. Errors as nd_exact_graph_create. */
enum nd_status nd_align_plan_make(struct nd_align_plan *plan, struct nd_error *err);
void nd_align_plan_deinit(struct nd_align_plan *plan);

#endif
