/* What fallback.c and fallback.c share: the evidence of all devices, while it is collected. */
#pragma once

#include "explain/fallback/fallback.h"

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
