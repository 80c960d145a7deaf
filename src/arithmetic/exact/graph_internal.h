/* What the files of the evaluation share: graph_values.c keeps constants and runs nodes, graph_run.c takes a
 * sample through them, layer by layer, eval_graph.c prepares a model for that. */
#pragma once

#include <pthread.h>

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/linear_layer.h"
#include "arithmetic/operators/ops_shared.h"
#include "model/graph/constants.h"
#include "model/graph/loaded.h"

/* What a constant is multiplied by. */
struct nd_exact_scaling {
    struct nd_weight_axes axes;
    double *outputs, *inputs; /* as nd_weight_factors; owned */
};
/* By which channels of an operator's first input and of its output are larger than it knows. */
struct nd_exact_scaled_node {
    size_t n; /* 0: none */
    double *factors;
};

/* Which constants are in memory. */
struct nd_exact_store {
    pthread_mutex_t lock;
    size_t
        limit_bytes; /* of what is kept, beside constants that somebody holds: half of it doubles, and shorts */
    size_t kept_bytes;
    size_t *n_holders;       /* [n_tensors] */
    size_t *dequantiser;     /* [n_tensors]: of constants with packed weights the node that reads them, or
                                ND_NO_INDEX */
    struct nd_array *tables; /* [n_nodes]: values by quantised value; n = 0: none yet */
    size_t table_bytes;
};

struct nd_exact_graph {
    const struct nd_model *model;
    size_t *layer_of_node;      /* the QuantizeLinear into whose layer a node falls, or ND_NO_INDEX */
    bool is_pure;               /* nd_exact_graph_is_pure */
    struct nd_array *constants; /* [n_tensors]: rank < 0 where a tensor is none; x = NULL while it is let go */
    struct nd_array
        *packed_weights; /* [n_tensors]: of constants that products read: quantised values less zero point */
    double *largest;     /* [n_tensors]: of their magnitudes */
    int16_t **shorts;    /* [n_tensors]: packed weights for nd_op_shorts; NULL where they do not fit */
    struct nd_exact_store *store;
    struct nd_exact_scaling *scalings;         /* [n_tensors]; axes.n0 = 0: none */
    struct nd_exact_scaled_node *scaled_nodes; /* [n_nodes] */
    struct nd_node_quant *quants;              /* [n_nodes]: of Q and DQ nodes */
    size_t *last_use;                          /* [n_tensors]: the node after which nobody reads the tensor */
    size_t *first_done; /* [n_nodes]: the first tensor that nobody reads after it; ND_NO_INDEX: none */
    size_t *next_done;  /* [n_tensors]: and the one after that */
};

/* Constants that a run holds for the node at hand, and why one could not be read. */
struct nd_exact_holding {
    size_t *tensors, n, capacity;
    enum nd_status status;
    struct nd_error error;
};

/* One sample on its way. */
struct nd_exact_run {
    const struct nd_exact_graph *g;
    const struct nd_graph *graph;
    const struct nd_exact_options *options;
    struct nd_array *values; /* [n_tensors]: rank < 0 while not computed */
    bool *is_missed; /* [n_tensors]: tensors that could not be evaluated, and are not given; NULL: none */
    size_t depth;    /* of calls of nd_exact_run_node in each other */
    bool is_ended;   /* a callback returned an error: no layer's own fault */
    struct nd_exact_holding *decoded;
    nd_exact_found *found;
    void *context;
};

enum { ND_EXACT_MAX_OPERANDS = 256 };

/* Stands for a tensor that has no values. */
struct nd_array nd_exact_none(void);

/* Whether the node falls into no layer since it is the operator of several: all that it makes is read by their
 * QuantizeLinears alone, as of a Split. */
bool nd_exact_feeds_layers(const struct nd_exact_graph *g, size_t node);

/* ---- graph_values.c ---- */

enum nd_status nd_exact_store_init(struct nd_exact_graph *g, size_t limit_bytes, struct nd_error *err);
/* Frees the constants, too. */
void nd_exact_store_deinit(struct nd_exact_graph *g);
/* Takes over the model's initializers, and what nodes make of constants alone. */
enum nd_status nd_exact_load_constants(struct nd_exact_graph *g, struct nd_error *err);
/* Finds the constants that have packed weights, and makes them; they share the constants' values where zero
 * points are 0. */
enum nd_status nd_exact_prepare_packed_weights(struct nd_exact_graph *g, struct nd_error *err);
/* A constant that was read is given its factors. */
void nd_exact_apply_scaling(const struct nd_exact_graph *g, size_t tensor);

/* A run without options. Deinit in any case. */
enum nd_status nd_exact_run_init(struct nd_exact_run *run, const struct nd_exact_graph *g,
                                 struct nd_error *err);
void nd_exact_run_deinit(struct nd_exact_run *run);
/* Holds a constant for the run; false: it cannot be read. And releases all. */
bool nd_exact_run_holds(const struct nd_exact_run *run, size_t tensor);
void nd_exact_run_release(struct nd_exact_run *run);

/* Runs one node, and before it what its inputs need; a layer's inner operators are run only when the layer is
 * not linear. */
enum nd_status nd_exact_run_node(struct nd_exact_run *run, size_t node, struct nd_error *err);

/* The tensor's values, computed or constant; NULL while there are none, and where a constant cannot be read:
 * then run->decoded->status is not ND_OK. A constant is held until nd_exact_run_release. */
const struct nd_array *nd_exact_value(const struct nd_exact_run *run, size_t tensor);
/* Runs the node that makes the tensor, unless its values are there. */
enum nd_status nd_exact_ensure(struct nd_exact_run *run, size_t tensor, struct nd_error *err);

/* What options.replaced has for the tensor, or NULL. */
static inline const struct nd_array *nd_exact_replaced(const struct nd_exact_run *run, size_t tensor)
{
    bool has_any = run->options != NULL && run->options->replaced != NULL && tensor != ND_NO_INDEX;
    return has_any ? run->options->replaced[tensor] : NULL;
}

/* The operator of the node: the model's, or the one that options have in its place. */
static inline const Onnx__NodeProto *nd_exact_proto(const struct nd_exact_run *run, size_t node)
{
    bool is_changed =
        run->options != NULL && run->options->changed_proto != NULL && run->options->changed_node == node;
    return is_changed ? run->options->changed_proto : run->graph->nodes[node].proto;
}

/* Whether the tensor, a tensor or what stands for one, has real values in the place of quantised values. */
static inline bool nd_exact_is_real(const struct nd_exact_run *run, size_t value)
{
    size_t tensor = value != ND_NO_INDEX ? run->g->model->tensor_of_value[value] : ND_NO_INDEX;
    bool has_any = run->options != NULL && run->options->is_real != NULL && tensor != ND_NO_INDEX;
    return has_any && run->options->is_real[tensor];
}

/* ---- graph_run.c ---- */

/* A layer that reads quantised values only, as operators are called. */
struct nd_exact_call {
    struct nd_linear_call call;
    struct nd_linear_input inputs[ND_EXACT_MAX_OPERANDS];
    struct nd_linear_shared shared;
    bool is_known; /* all that it reads is there as quantised values or numbers */
    size_t node;   /* ND_NO_INDEX: requantise */
    size_t tensor; /* what the QuantizeLinear reads, past Relu and Clip, and past the Add of a bias */
    size_t bias;   /* of a MatMul that an Add follows: what that adds, the third input; else ND_NO_INDEX */
};
/* False: something that it reads is not there as quantised values. */
bool nd_exact_describe(const struct nd_exact_run *run, size_t quantize, struct nd_exact_call *layer);

/* Quantised values of a QuantizeLinear: of a layer by its exact values, of a graph input as ONNX has it. */
enum nd_status nd_exact_run_quantize(struct nd_exact_run *run, size_t node, struct nd_error *err);
