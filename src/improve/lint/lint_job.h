/* What all rules of lint read, and where they put what they find. */
#pragma once

#include "model/graph/constants.h"
#include "model/graph/infer.h"
#include "npudiff/improve/lint.h"

struct nd_lint_job {
    const struct nd_model *model;
    const struct nd_graph *graph;
    struct nd_node_quant *quants;    /* [n_nodes]: of quantisers, else zeroed */
    size_t *layer_of;                /* [n_nodes]: nd_layers_assign */
    struct nd_tensor_info *infos;    /* [n_tensors] */
    const struct nd_lint_rule *rule; /* that is being applied */
    struct nd_lint *result;
    size_t findings_capacity;
    /* What the copy has otherwise. The quantised values of the entries are owned; the quants are in kept. */
    struct nd_recoded_node *changes;
    size_t n_changes, changes_capacity;
    struct nd_quant **kept; /* quantisers that have the same new parameters share one, and so its constants */
    size_t n_kept, kept_capacity;
};

/* A rule looks at one live node and adds what it finds. */
typedef enum nd_status nd_lint_look(struct nd_lint_job *job, size_t node, struct nd_error *err);

nd_lint_look nd_lint_bias_scale, nd_lint_bias_overflow, nd_lint_batch_norm; /* lint_bias.c */

/* ---- looking ---- */

bool nd_lint_is_one_of(const struct nd_lint_job *job, size_t node, const char *const *op_types);
#define ND_LINT_IS(job, node, ...) nd_lint_is_one_of(job, node, (const char *const[]){__VA_ARGS__, NULL})

/* The tensor that the node reads or makes at that place; ND_NO_INDEX: none. */
size_t nd_lint_input(const struct nd_lint_job *job, size_t node, size_t slot);
size_t nd_lint_output(const struct nd_lint_job *job, size_t node);

/* The DequantizeLinear that makes what the node reads there; ND_NO_INDEX: something else makes it. */
size_t nd_lint_dequantise(const struct nd_lint_job *job, size_t node, size_t slot);

/* The QuantizeLinear that reads what the node makes, past Relu and Clip of its layer; ND_NO_INDEX: none. */
size_t nd_lint_quantise(const struct nd_lint_job *job, size_t node);

/* Scales and zero points of a quantiser; NULL for ND_NO_INDEX, where they are no constants, and where a scale
 * is not finite and positive. The second: NULL where there are several, too. */
const struct nd_quant *nd_lint_quant(const struct nd_lint_job *job, size_t quantiser);
const struct nd_quant *nd_lint_one(const struct nd_lint_job *job, size_t quantiser);

/* The type of the quantised values of a quantiser; ND_DTYPE_NONE: not known, or 4 bits. */
enum nd_dtype nd_lint_dtype(const struct nd_lint_job *job, size_t quantiser);

/* The numbers of the constant at that place; *n is 0 where it is none. The caller frees *values. */
enum nd_status nd_lint_numbers(const struct nd_lint_job *job, size_t node, size_t slot, double **values,
                               size_t *n, struct nd_error *err);

/* ---- telling ---- */

struct nd_lint_at {
    size_t node;
    double effect_lsb; /* NaN: not known */
};

/* Adds a finding of the rule that is applied. *out, nullable, is valid until the next finding. */
ND_PRINTF(5, 6)
enum nd_status nd_lint_find(struct nd_lint_job *job, const struct nd_lint_at *at, struct nd_lint_finding **out,
                            struct nd_error *err, const char *fmt, ...);

/* Says what the copy will have in another way, or why nothing is changed. */
ND_PRINTF(3, 4)
enum nd_status nd_lint_say_change(struct nd_lint_finding *finding, struct nd_error *err, const char *fmt, ...);
ND_PRINTF(3, 4)
enum nd_status nd_lint_say_obstacle(struct nd_lint_finding *finding, struct nd_error *err, const char *fmt,
                                    ...);

/* ---- mending ---- */

/* Notes a new encoding for the quantised values that the QuantizeLinear makes, for all that read them, and for
 * what operators that only move values make of them. *obstacle, static: why nothing is noted; NULL: it is. */
enum nd_status nd_lint_change_tensor(struct nd_lint_job *job, size_t quantise, const struct nd_quant *quant,
                                     const char **obstacle, struct nd_error *err);

/* Notes new parameters of the DequantizeLinear of a constant, and n quantised values of the constant, which it
 * takes over.
 */
enum nd_status nd_lint_change_constant(struct nd_lint_job *job, size_t dequantise, const struct nd_quant *quant,
                                       double *qvalues, size_t n, struct nd_error *err);
