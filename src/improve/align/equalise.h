/* Cross-layer equalisation as a part of the plan: channels between two layers become smaller or larger, so that
 * both layers use the one scale of their weights well. docs/science/align.md#equalisation. */
#ifndef ND_ALIGN_EQUALISE_H
#define ND_ALIGN_EQUALISE_H

#include "explain/evaluate/channel_pairs.h"
#include "improve/align/align_stages.h"

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

/* equalise_pairs.c: pairs between whose layers nothing but Relu and LeakyRelu lies, and whose tensors nobody
 * else reads and no bound holds. Values are those of the model as it came on the samples that weights are
 * rounded for. Call deinit in any case. Errors as nd_exact_graph_create. */
enum nd_status nd_align_pairs_find(const struct nd_align_job *job, struct nd_align_pairs *pairs,
                                   struct nd_error *err);
void nd_align_pairs_deinit(struct nd_align_pairs *pairs);

/* The largest weight of each channel. */
void nd_align_channel_sizes(const struct nd_align_product *product, bool is_output, double *sizes);

/* The factors of one pair alone: sqrt((w1 / R1) / (w2 / R2)). sizes: [2 * n_channels]. */
void nd_align_pair_factors(const struct nd_align_pair *pair, const double *sizes, double *factors);

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
/* job->model is what it was before. A plan that was made of the equalised one can only be freed then. */
enum nd_status nd_align_unequalise(struct nd_align_job *job, struct nd_error *err);

#endif
