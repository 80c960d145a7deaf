/* What one thread of the evaluation keeps of the sample at hand: evaluate.c, evaluate.c and evaluate.c. */
#pragma once

#include "explain/evaluate/evaluation.h"
#include "explain/evaluate/incremental.h"
#include "explain/evaluate/packed.h"
#include "explain/plan/replay.h"

struct nd_evaluator {
    struct nd_reader reader;
    struct nd_evaluation *evaluation;
    struct nd_array *float_inputs; /* [n_inputs of float_model]: views of the reader's inputs */
    struct nd_packed *reference;   /* [n_steps] quantised values (or floats) of the quantised reference */
    struct nd_array *substituted;  /* [n_edges] values of captures that stand for layers not evaluated */
    struct nd_array *error;        /* [n_steps] first the float reference, then q in steps; empty without */
    struct nd_packed *injected; /* [n_steps] the reference with the device's introduced error; for harm only */
    struct nd_array step;       /* the reference of one step, unpacked: of nd_reference_array */
    struct nd_incremental incremental; /* of evaluate.c; plan is NULL where it cannot be used */
    bool *is_below;                    /* [n_edges], of evaluate.c */
    size_t harmful;                    /* the step at hand in evaluate.c */
    double *counts;                /* [n_devices][ballot_n], of evaluate.c: quantised values of one output */
    size_t *voters;                /* [n_devices]: whose they are */
    size_t count_n;                /* elements of the largest output */
    struct nd_qvalue_tally *tally; /* [n_devices][n_steps] of this thread's samples */
    struct nd_layer_tally *layer_tally; /* [n_devices][n_steps] */
};

static inline struct nd_reference_sums *nd_reference_of(const struct nd_evaluator *w, size_t step)
{
    return nd_reference_sums_of(w->evaluation, w->reader.sample, step);
}

/* The reference of a step, which is known: until the next is asked for. */
static inline const struct nd_array *nd_reference_array(struct nd_evaluator *w, size_t step)
{
    double *x = w->step.x;
    w->step = w->reference[step].tensor_view;
    w->step.x = x;
    nd_unpack(&w->reference[step], x);
    return &w->step;
}

/* ---- evaluate.c ---- */

/* evaluate.c: what a layer's own mistakes do to the outputs. The quantised reference is run again with nothing
 * but that layer's introduced error put in. Layers are ranked by effect, and not by size.
 * docs/science/theory.md#harm. Some samples are enough, and a run for every layer is dear: `n_harm_samples` of
 * the options, evenly spaced. */
bool nd_is_output_effect_sample(const struct nd_plan *plan, size_t sample);
