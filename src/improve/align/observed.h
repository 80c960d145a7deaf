/* What layers multiply their weights with, of real inputs. */
#ifndef ND_ALIGN_OBSERVED_H
#define ND_ALIGN_OBSERVED_H

#include "improve/align/align_stages.h"

/* Some rows of one Conv, Gemm or MatMul with constant weights, in real numbers: each is multiplied with every
 * column of weights of its group. */
struct nd_observed_layer {
    size_t n_groups, n_columns, n_terms; /* columns and terms of one group */
    size_t n_rows, n_room;
    float *rows; /* [n_groups][n_room][n_terms], owned; NULL: nothing is known of the layer */
    /* Where weight t of column c of all groups is among the layer's weights: c * column_step + t * term_step.
     */
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

#endif
