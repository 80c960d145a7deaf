/* The stages of nd_align. Each fills its part of the result. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/htp/htp.h"
#include "arithmetic/operators/array.h"
#include "explain/evaluate/channel_pairs.h"
#include "model/graph/loaded.h"
#include "model/graph/parts.h"
#include "npudiff/improve/align.h"

/* ---- which tensors have one scale, and which scale each of them is to have ---- */

/* Tensors that must have the same scale and zero point: what an operator reads and makes that only moves values
 * or chooses among them, where the two have it in the model; and where they have not, as the inputs of a
 * Concat, but can have a common one. */
struct nd_quantiser {
    struct nd_quant quant; /* as planned; n is 0 for tensors without one scale. Owned */
    float old_scale;
    int64_t old_zero_point;
    bool is_settled; /* nobody may change it any more */
};

struct nd_quantisers {
    struct nd_quantiser *items; /* [n_edges], by of_edge */
    size_t *of_tensor;          /* [n_edges] */
    size_t n_tensors;
};

/* Settled from the start: quantised values that the model takes in or hands out, quantised values that somebody
 * reads without a DequantizeLinear of the same scale, and ranges that stand for a Clip that a quantiser left
 * out: float_model, nullable, has the Clip, or the range is 0 to 6. Call deinit in any case. ND_ERR_MEMORY, and
 * as nd_node_quant_read. */
enum nd_status nd_quantisers_init(struct nd_quantisers *q, const struct nd_model *model,
                                  const struct nd_model *float_model, struct nd_error *err);
void nd_quantisers_deinit(struct nd_quantisers *q);

/* The tensor whose quantised values the node, a QuantizeLinear or DequantizeLinear, makes or reads;
 * ND_NO_INDEX: none, or a constant's. */
size_t nd_quantiser_tensor(const struct nd_model *model, size_t node);

struct nd_quantiser *nd_quantiser_of(const struct nd_quantisers *q, size_t tensor);

/* New scales and quantised values for a whole model, layer by layer in the order of the graph. */

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

/* ---- the job, and its stages in their order ---- */

enum { ND_ALIGN_MAX_ARITHMETICS = 8 };

struct nd_align_equalised;

struct nd_align_job {
    const struct nd_align_options *options;
    const struct nd_model *original; /* as it came */
    const struct nd_model
        *model;              /* the same, or with BatchNormalization folded, or equalised: what is planned */
    struct nd_model *folded; /* the latter, for who owns it */
    struct nd_align_equalised *equalised; /* from which the model is, if not NULL. Owned */
    const struct nd_model *aligned;       /* as it was written and read again */
    struct nd_model *read_again;          /* the same, for who owns it */
    const struct nd_layer_arithmetic *arithmetics[ND_ALIGN_MAX_ARITHMETICS];
    size_t n_arithmetics;
    struct nd_alignment *result;
    size_t *layer_of_tensor;      /* [n_edges], SIZE_MAX where no layer makes the tensor */
    struct nd_observed *observed; /* NULL: no inputs */
    char *folder;                 /* for what nobody keeps */
};

/* align_job.c. names NULL and n 0: the usual two. The layers are those of the model, without a state. */
enum nd_status nd_align_find_arithmetics(struct nd_align_job *job, const char *const *names, size_t n,
                                         struct nd_error *err);
enum nd_status nd_align_make_layers(struct nd_align_job *job, const struct nd_model *model,
                                    struct nd_error *err);

/* The model with BatchNormalization folded becomes what is planned, if there is something to fold. */
enum nd_status nd_align_fold(struct nd_align_job *job, struct nd_error *err);
/* Conv, ConvTranspose, Gemm or MatMul, with what follows. */
bool nd_align_is_product(const char *op_types);
/* A file in the job's folder. The caller frees *path. */
enum nd_status nd_align_name_file(struct nd_align_job *job, const char *name, char **path,
                                  struct nd_error *err);
/* Writes what is planned into the job's folder and reads it again. */
enum nd_status nd_align_write(struct nd_align_job *job, const struct nd_align_plan *plan, struct nd_error *err);
/* How many samples the accuracy cost is taken from; and the inputs of one, arrays of the model's inputs. */
size_t nd_align_n_samples(const struct nd_align_options *options);
const struct nd_probe *nd_align_load_sample(const struct nd_align_job *job, size_t *sample,
                                            struct nd_array *inputs);

/* align.c: values that differ between the first arithmetic and the others, on the first samples. */
struct nd_align_contrast {
    size_t n_values, n_different; /* of the model's outputs */
    size_t n_tensors, n_tensors_different;
};

/* prove.c: state, reason and proof of each layer of the aligned model. */
enum nd_status nd_align_prove(struct nd_align_job *job, struct nd_error *err);
/* accuracy_cost.c: outputs, and the classes of labelled samples. noises [nd_align_n_samples], nullable: of each
 * sample the error of the aligned model by its signal, of the output that has most. */
enum nd_status nd_align_accuracy_cost(struct nd_align_job *job, double *noises, struct nd_error *err);
/* align_job.c: runs the aligned model on the devices, and corrects the states by what was seen. */
enum nd_status nd_align_verify(struct nd_align_job *job, struct nd_error *err);
/* certificate.c: of what was found. The aligned model is in result->output. */
enum nd_status nd_align_certify(const struct nd_align_job *job, struct nd_error *err);

enum nd_status nd_align_tell(const struct nd_align_job *job, const char *stage, size_t n_done, size_t n_total,
                             struct nd_error *err);

size_t nd_align_node_of(const struct nd_graph *graph, const Onnx__NodeProto *proto);

/* The DequantizeLinear of input i; ND_NO_INDEX: none. *is_shared: others read what it makes. */
size_t nd_align_dequantizer_of(const struct nd_graph *graph, size_t node, size_t i, bool *is_shared);

/* The operand as the float model has it, [n] values, owned by the caller; *out stays NULL where it has none
 * that fits. ND_ERR_MEMORY. */
enum nd_status nd_align_find_floats(const struct nd_align_plan *plan, size_t dequantizer,
                                    const struct nd_linear_input *input, double **out, struct nd_error *err);

/* ---- what layers multiply their weights with, of real inputs ---- */

/* Some rows of one Conv, Gemm or MatMul with constant weights, in real numbers: each is multiplied with every
 * column of weights of its group. */
struct nd_observed_layer {
    size_t n_groups, n_columns, n_terms; /* columns and terms of one group */
    size_t n_rows, n_room;
    float *rows; /* [n_groups][n_room][n_terms], owned; NULL: nothing is known of the layer */
    /* Where weight t of column c of all groups is in the layer's weights: c * column_step + t * term_step. */
    size_t column_step, term_step;
    uint64_t state; /* of the choice of rows */
};

struct nd_observed {
    size_t n_tensors;
    struct nd_observed_layer *layers; /* [n_edges], by the tensor that the layer makes */
};

/* The same options with the samples that weights are rounded for in the place of those of the accuracy cost;
 * false: there are none. */
bool nd_align_fit_options(const struct nd_align_options *options, struct nd_align_options *out);

/* Runs the model as it came on some samples: those of options->fit, else of the first probe. Without either
 * *out stays NULL. Errors as nd_exact_graph_create. */
enum nd_status nd_align_observe(const struct nd_align_job *job, struct nd_observed **out, struct nd_error *err);
void nd_observed_destroy(struct nd_observed **observed);

/* Cross-layer equalisation as a part of the plan: channels between two layers become smaller or larger, so that
 * both layers use the one scale of their weights well. docs/science/align.md#equalisation. */

/* A Conv or Gemm with one scale for its weights, which the float model has. */
struct nd_align_product {
    size_t tensor, input;           /* tensors that it makes and reads */
    size_t weights_node, bias_node; /* DequantizeLinear; bias ND_NO_INDEX: none */
    enum nd_dtype dtype;            /* of the weights' quantised values */
    struct nd_weight_axes axes;
    double *weights, *bias; /* the float model's; bias NULL: none. Owned */
    size_t n_weights, n_bias;
};

/* Two of them, and the tensors between. */
struct nd_align_pair {
    size_t first, second;                      /* of the products */
    size_t between[ND_MAX_BETWEEN], n_between; /* tensors */
    size_t n_channels;
    double *low,
        *high;     /* [n_between * n_channels] of the samples: the least and the greatest value, and 0. Owned */
    double spread; /* the largest factor by the least, if nothing else is equalised */
};

struct nd_align_pairs {
    struct nd_align_product *products;
    size_t n_products, products_capacity;
    struct nd_align_pair *items;
    size_t n;
};

/* A model that was equalised: quantised anew by one scale for each tensor, and its weights before that. */
struct nd_align_equalised {
    struct nd_model *model;
    struct nd_align_scaled *scaled;
    size_t n_scaled;
};
void nd_align_equalised_destroy(struct nd_align_equalised **equalised); /* allocated; NULL is accepted */

/* equalise.c: half of the samples for weights to be rounded for, the other half for the error; and the
 * other way round. */
enum { ND_ALIGN_FOLDS = 2 };
struct nd_align_fold {
    struct nd_align_options options;
    struct nd_probe *probes[2]; /* [n of the options' probes], and inputs of each: views of the user's. Owned */
    const struct nd_probe **views[2];
    size_t n_probes;
};
struct nd_align_folds {
    struct nd_align_fold items[ND_ALIGN_FOLDS];
    size_t n_samples; /* that the error is measured on, of all folds; 0: there are not enough of them */
};

/* equalise.c: equalises what lowers the error at the outputs, as it is measured; job->model is the model that
 * it led to, or stays. */
enum nd_status nd_align_equalise_best(struct nd_align_job *job, struct nd_error *err);
