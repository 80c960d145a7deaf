/* The evaluation: every layer of the model worked out again, exactly, from the inputs that it had on each
 * device. What goes in is a plan; what comes out are sums over the quantised values of each sample, and tallies
 * of the arithmetic that gives them. Several threads fill it (evaluate.c) in any order; all that is concluded
 * from it goes through it in order of samples. */
#pragma once

#include "arithmetic/trials/layer_trial.h"
#include "explain/evaluate/incremental.h"
#include "explain/evaluate/packed.h"
#include "explain/evaluate/qvalue_tally.h"
#include "explain/plan/plan.h"
#include "explain/plan/replay.h"

/* Sums over the quantised values of one step of one sample. */
struct nd_part_sums {
    uint64_t n_differing;
    double max, sum, squares;
};

struct nd_sums {
    uint64_t n_qvalues, n_violations;
    bool is_missed; /* it could not be evaluated from the device's quantised values, or changed its shape */
    bool is_output_effect_missed; /* nor could what its introduced error does to the outputs */
    struct nd_part_sums introduced, passed_on, total;
    double q_times_d;
    double clipped_divergence; /* of elements that no quantised value stands for */
    /* What the layer's introduced error alone does to the model's outputs, in the samples in which it is
     * measured. */
    uint64_t n_output_effect_qvalues, n_harmed;
    double output_effect_squares;
    double own_squares; /* of outputs: the device less the majority of the groups of identical devices */
};

/* What the references say of one step and sample, whatever the device. */
struct nd_reference_sums {
    double signal, quantisation;
    uint64_t n_clipped; /* elements that no quantised value stands for, and their part of the quantisation */
    double clipped_quantisation;
    bool is_double;
    bool is_missed, is_float_missed; /* there is no reference, or no float reference */
    /* Of outputs, from evaluate.c: quantised values on which groups of identical devices differ, by how many
     * tally the plurality won there, and the mean squared error of the error of the majority against the float
     * reference, and against the quantised one. */
    uint64_t n_voted, n_split;
    double margin, common_error, common_divergence;
};

struct nd_byte_layers;

struct nd_evaluation {
    const struct nd_plan *plan;
    struct nd_byte_layers *layers; /* while it is filled, and effects are measured; NULL: the graph has none */
    struct nd_sums *sums;          /* [n_samples][n_devices][n_steps] */
    struct nd_reference_sums *reference; /* [n_samples][n_steps] */
    struct nd_qvalue_tally *tally;       /* [n_devices][n_steps] */
    struct nd_layer_tally *layer_tally;  /* [n_devices][n_steps] */
};

/* Makes room: all zero, which is what stands there when nothing is evaluated. The plan is borrowed. deinit
 * accepts a zeroed one. ND_ERR_MEMORY. */
enum nd_status nd_evaluation_init(struct nd_evaluation *evaluation, const struct nd_plan *plan,
                                  struct nd_error *err);
void nd_evaluation_deinit(struct nd_evaluation *evaluation);

/* Fills what it has of these samples. Of options: progress and is_cancelled. Errors are those of reading
 * captures and of nd_exact_graph_run. */
enum nd_status nd_evaluate(struct nd_evaluation *evaluation, struct nd_sample_span span,
                           const struct nd_explain_options *options, struct nd_error *err);
/* Once all samples are there: completes the tallies, and what captures with the same quantised values share. */
void nd_evaluate_finish(struct nd_evaluation *evaluation);

/* One place of it. */
struct nd_sums *nd_sums_of(const struct nd_evaluation *evaluation, size_t sample, size_t device, size_t step);
struct nd_reference_sums *nd_reference_sums_of(const struct nd_evaluation *evaluation, size_t sample,
                                               size_t step);
/* And of its tallies. */
const struct nd_qvalue_tally *nd_tally_of(const struct nd_evaluation *evaluation, size_t device, size_t step);
const struct nd_layer_tally *nd_layer_tally_of(const struct nd_evaluation *evaluation, size_t device,
                                               size_t step);

/* ---- what one thread of the evaluation keeps of the sample at hand: evaluate.c, evaluate.c and evaluate.c
 * ---- */

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
