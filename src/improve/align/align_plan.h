/* New scales and codes for a whole model, layer by layer in the order of the graph. */
#ifndef ND_ALIGN_ALIGN_PLAN_H
#define ND_ALIGN_ALIGN_PLAN_H

#include "improve/align/quantisers.h"
#include "arithmetic/htp/htp.h"
#include "model/graph/parts.h"

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
    const struct nd_unit_program *const *programs;
    size_t n_programs;
    const bool *is_chosen; /* [n_edges] layers that may get new scales; all that a different one reads and makes
                              stays as it is. NULL: all may. Borrowed */
    const struct nd_observed *observed;   /* NULL: nothing was. Borrowed */
    const struct nd_align_scaled *scaled; /* [n_scaled] in the place of the float model's. Borrowed */
    size_t n_scaled;
    struct nd_quantisers quantisers;
    struct nd_align_step *steps; /* [n_edges], by the edge that the layer makes */
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
