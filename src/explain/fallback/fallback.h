/* Where layers were computed: an NPU or not, from their values, without what the vendor's tools say.
 * docs/science/fallback.md has the formulas and what was measured. Weights are bits: base 2 logarithms of
 * likelihood ratios, positive for the NPU. */
#pragma once

#include "explain/evaluate/evaluation.h"
#include "explain/plan/replay.h"

struct nd_explain_job;

/* Fills `execution` of all devices that did not fail and of their layers, after they have been judged: what
 * their states and faults are is read, too. The plan has samples. ND_ERR_MEMORY. */
enum nd_status nd_find_execution(const struct nd_explain_job *job, bool hides_placement, struct nd_error *err);

#define ND_FALLBACK_DECISION 6.65 /* a hundred to one */
#define ND_FALLBACK_MAX 20.0      /* that one piece of evidence can weigh */

/* ---- fallback.c: quantised values and likelihoods ---- */

struct nd_fallback_counts {
    double n;      /* deciding quantised values */
    double n_off;  /* of them, not what round half to even gives */
    double n_far;  /* of those, not next to a tie */
    double spread; /* variance of n_off from sample to sample over that of independent quantised values, at
                      least 1 */
    bool is_wide;  /* quantised values of more than 8 bits */
    bool is_by_constant; /* an operator of two tensors, of which one is constant: each quantised value follows
                            from one quantised value */
};

/* How NPUs compute layers of a kind. */
struct nd_fallback_rates {
    double exact; /* chance that such a layer gives the quantised values of float arithmetic on an NPU, too */
    double off;   /* mean share of quantised values that are off where it does not */
    double other; /* chance that a CPU does not give the quantised values of plain float arithmetic */
};

/* From runs on a simulator: prior knowledge about operators, of which op_types names the first. */
struct nd_fallback_rates nd_fallback_rates_of(const char *op_types, const struct nd_fallback_counts *counts);

/* What is expected when n_siblings layers of the kind on the same run, or where is_same_unit the same layer on
 * other runs, are off in `off` of their quantised values. */
void nd_fallback_learn(struct nd_fallback_rates *rates, double off, size_t n_siblings, bool is_same_layer);

/* log2 P(counts | NPU) / P(counts | CPU), at most ND_FALLBACK_MAX either way; 0 without deciding quantised
 * values. */
double nd_fallback_weigh(const struct nd_fallback_counts *counts, const struct nd_fallback_rates *rates);

/* The same by quantised values on which an arithmetic that the device has elsewhere differs from exact
 * rounding: 0 where they are not nearly all the one's or the other's. */
double nd_fallback_weigh_arithmetic(uint64_t n_apart, uint64_t n_as_made, uint64_t n_as_exact, double spread);

/* ---- fallback.c ---- */

/* Floats of one step that are normal half precision numbers by size. */
struct nd_fallback_floats {
    size_t n, n_on_grid; /* a number of half precision, or the float next to one */
    size_t n_known;      /* of those on the grid, the layer's own value is known */
    size_t n_off;        /* of those, 3/4 step of half precision or more away from it */
};
/* Adds those of one sample, given[n]; own: what the layer's own inputs give, NULL where that is not known. */
void nd_fallback_count_floats(struct nd_fallback_floats *floats, const double *given, const double *own,
                              size_t n);

/* ---- evidence and verdicts (fallback_verdict.c) ---- */

/* weight > 0: for the NPU. Small weights (below a tenth of a bit) are not kept. */
ND_PRINTF(5, 6)
enum nd_status nd_fallback_add(struct nd_explained_execution *execution, const char *kind, double weight,
                               struct nd_error *err, const char *fmt, ...);
/* Sums up. */
void nd_fallback_conclude(struct nd_explained_execution *execution);

/* ---- what fallback.c and fallback.c share: the evidence of all devices, while it is collected ---- */

/* Of each kind of layers a list, in graph order: the layers of a run that tell what an NPU does in such a
 * layer. */
struct nd_fallback_kin {
    size_t kind;  /* the first step of this one's kind */
    size_t first; /* of that step: the first of the list; SIZE_MAX: it is empty */
    size_t next;  /* of a step in the list; SIZE_MAX: the last one */
};

struct nd_fallback {
    const struct nd_plan *plan;
    const struct nd_evaluation *evaluation;
    const size_t *layer_arithmetic; /* [n_devices] of nd_layer_arithmetics; SIZE_MAX: none */
    struct nd_explanation *out;
    bool hides_placement;
    size_t half_even;                        /* of nd_rounding_rules */
    struct nd_fallback_counts *counts;       /* [n_devices][n_steps] */
    const struct nd_fallback_floats *floats; /* [n_devices][n_steps] */
    struct nd_fallback_kin *kin;             /* [n_devices][n_steps] */
    double *alone;  /* [n_devices][n_steps] weight of the quantised values by what is known of the operator */
    double *values; /* [n_devices][n_steps] of quantised values, by all that is known, and floats */
};

static inline size_t nd_fallback_at(const struct nd_fallback *f, size_t device, size_t step)
{
    return device * f->plan->n_steps + step;
}

static inline struct nd_explained_execution *nd_fallback_execution_of(const struct nd_fallback *f,
                                                                      size_t device, size_t step)
{
    return &f->out->devices[device].layers[step].execution;
}

/* Inputs are given, and a runtime quantises them where it likes. */
static inline bool nd_fallback_is_judged(const struct nd_fallback *f, size_t device, size_t step)
{
    return !f->plan->sources[device].is_failed && !nd_plan_tensor(f->plan, step)->is_model_input;
}
