/* The plan of an explanation: what is asked of which captures, and what of the model can be worked out.
 * nd_plan_make fills it once from the model and the captures; every later stage reads it only. A step is an
 * tensor that the model computes (npudiff/explain.h).
 *
 *     plan.c         which captures and samples, whether they can be explained together, the graphs
 *     plan_steps.c   the steps, and what each device has of them
 *     equalised.c    pairs of layers that were scaled against each other, and the float model like them
 *     plan.c        layers that cannot be evaluated, and whose values stand for theirs
 *     plan.c  how much of it is held at once
 *     carried.c      tensors that a device lacks, worked out from those before them
 *     held.c         tensors of captures that are decoded once for all stages
 *     plan.c     whether making intermediates visible changed the outputs */
#pragma once

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/trials/alternatives.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/known/expectation.h"
#include "npudiff/explain/explain.h"

/* One step on one device, before anything is evaluated. */
struct nd_planned_layer {
    bool is_examined; /* its inputs and its values were captured, and it can be evaluated */
    char *why_not;    /* NULL when is_examined */
    bool has_total;   /* its quantised values were captured, and there is a reference */
};

/* A capture and where it keeps things. */
struct nd_plan_source {
    const struct nd_capture *capture;
    bool is_failed;
    enum nd_expectation expectation;
    size_t same_as;  /* the first device whose quantised values are the same, in every step; the device itself,
                        else */
    size_t probe;    /* of the capture */
    size_t *tensors; /* [n_steps] of the capture, or SIZE_MAX: nothing that can be read in place */
    size_t *sample_bytes;    /* [n_steps] */
    unsigned char **carried; /* [n_steps] all samples of a tensor that was not captured; NULL: not worked out */
    struct nd_planned_layer *layers; /* [n_steps] */
    struct nd_explained_observer observer;
};

/* What is asked: all is borrowed by the plan. */
struct nd_question {
    const struct nd_model *model, *float_model; /* float_model is nullable */
    const struct nd_capture *const *captures;
    size_t n_captures;
};

/* Samples that follow each other. */
struct nd_sample_span {
    size_t first, n;
};

struct nd_plan {
    const struct nd_model *model, *float_model;
    struct nd_exact_graph *graph, *float_graph;
    char *probe;                         /* its name; NULL: all captures failed */
    size_t *inputs;                      /* [n_inputs of model]: which input of the probe */
    size_t *float_inputs;                /* [n_inputs of float_model]: which input of model */
    size_t *step_of_tensor;              /* [n_edges of model] or SIZE_MAX: a tensor that is not computed */
    struct nd_names step_of_name;        /* by the names of model's tensors */
    size_t *step_of_float;               /* [n_edges of float_model] or SIZE_MAX */
    struct nd_explained_step *steps;     /* [n_steps]; is_double is not known yet */
    struct nd_shape *shapes;             /* [n_steps] */
    struct nd_equalised_pair *equalised; /* [n_equalised], whose factors float_graph has: equalised.c */
    size_t n_equalised;
    char **not_covered; /* [n_steps] why the step cannot be evaluated, whatever it reads; NULL: it can */
    struct nd_alternatives alternatives;
    size_t n_steps, n_devices, n_samples, n_output_effect_samples;
    size_t leader;           /* the device whose inputs are read: that of the first capture that did not fail */
    double memory_bytes;     /* that are asked for */
    size_t block, n_threads; /* samples that are read at once, and by how many threads: plan.c */
    struct nd_plan_source *sources; /* [n_devices] */
    bool reads_singly; /* one sample of one device at a time, but for what several devices are asked together */
    double decoded_bytes;    /* that held.c may take */
    size_t n_decoded;        /* the first samples, which are */
    unsigned char **decoded; /* [n_devices * n_steps] of nd_plan_hold; NULL where nothing is held */
};

/* Reads what captures say of themselves, and digests; no values but those that plan.c compares. n_samples
 * is 0 when all captures failed: then there is nothing to evaluate. Errors are those of nd_explain. deinit
 * accepts a zeroed plan and one that was only begun. */
enum nd_status nd_plan_make(struct nd_plan *plan, const struct nd_question *question,
                            const struct nd_explain_options *options, struct nd_error *err);
void nd_plan_deinit(struct nd_plan *plan);

/* The layer that makes the step's tensor, or NULL. */
static inline const struct nd_model_layer *nd_plan_layer(const struct nd_plan *plan, size_t step)
{
    return nd_model_layer_of_tensor(plan->model, plan->steps[step].tensor);
}
static inline const struct nd_tensor *nd_plan_tensor(const struct nd_plan *plan, size_t step)
{
    return nd_model_tensor(plan->model, plan->steps[step].tensor);
}
/* Whether any capture has quantised values that can be worked out. None: a float model, or outputs in floats
 * only. */
bool nd_plan_has_qvalues(const struct nd_plan *plan);
/* Whether the device is evaluated by itself: it did not fail, and no device before it has the same quantised
 * values. */
bool nd_plan_is_worked_out(const struct nd_plan *plan, size_t device);
/* Whether the step has quantised values with a scale. Whole numbers without one, such as indices, are the
 * operator's or not: floats/judge_floats.c has them. */
static inline bool nd_plan_is_of_qvalues(const struct nd_plan *plan, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    return nd_dtype_is_of_qvalues(tensor->dtype) && tensor->quant.n > 0;
}
/* Whether the device's values of the step can be read: captured, or carried. */
static inline bool nd_plan_has(const struct nd_plan *plan, size_t device, size_t step)
{
    const struct nd_plan_source *source = &plan->sources[device];
    return source->tensors[step] != SIZE_MAX || source->carried[step] != NULL;
}
/* Whether the layer reads a tensor that is carried: then it can be right, but its values accuse nobody. */
bool nd_plan_reads_carried(const struct nd_plan *plan, size_t device, size_t step);
/* Whether the step's quantised values have more than 8 bits. */
bool nd_plan_is_wide(const struct nd_plan *plan, size_t step);

/* Whether any sample of the step came out otherwise when it was run again; whether no input of its layer did.
 */
bool nd_plan_differs_by_run(const struct nd_plan *plan, size_t device, size_t step);
bool nd_plan_inputs_repeat(const struct nd_plan *plan, size_t device, size_t step);

/* What a capture of a failed device says of it. The caller frees *out. ND_ERR_MEMORY. */
enum nd_status nd_plan_failure(const struct nd_capture *capture, char **out, struct nd_error *err);

/* ---- the parts of nd_plan_make ---- */

/* Fills `equalised`, and scales the constants of float_graph like these pairs: before the float model is run.
 * ND_ERR_MEMORY, or what reading constants gives. */
enum nd_status nd_plan_follow_equalised(struct nd_plan *plan, struct nd_error *err);
/* Which step can be examined on that device, and why others cannot. */
enum nd_status nd_plan_match_device(struct nd_plan *plan, size_t device, struct nd_error *err);
/* Fills `carried` of a plan that is made, and what can be examined by it. ND_ERR_MEMORY, and the errors of
 * nd_capture_read_verified. */
enum nd_status nd_plan_carry(struct nd_plan *plan, struct nd_error *err);
enum nd_status nd_plan_match_carried(struct nd_plan *plan, size_t device, struct nd_error *err);
/* Fills has_total of every device's steps: after nd_plan_take_over. */
void nd_plan_find_totals(struct nd_plan *plan);
/* One part of n of the memory. */
static inline size_t nd_plan_share(const struct nd_plan *plan, size_t n)
{
    return (size_t)(plan->memory_bytes / (double)n);
}

/* Fills `observer` of the devices: by the witnesses, runs of the untouched model, that are given for one, else
 * by what its capture says. ND_E_COMPARE_NOTHING: a witness is of none of the devices. */
enum nd_status nd_plan_observe(struct nd_plan *plan, const struct nd_capture *const *witnesses,
                               size_t n_witnesses, struct nd_error *err);

/* ---- replay.c ---- */

/* Decodes the first samples of tensors of the captures, as many as held_bytes has room for, on all threads.
 * Until then, and once they are released, every read goes to the captures. ND_ERR_MEMORY, and the errors of
 * nd_capture_read_verified. */
enum nd_status nd_plan_hold(struct nd_plan *plan, struct nd_error *err);
void nd_plan_release(struct nd_plan *plan);
/* Whether the quantised values of all devices are needed at the same time: where they vote, or stand for the
 * reference. */
static inline bool nd_plan_reads_together(const struct nd_plan *plan, size_t step)
{
    return plan->steps[step].is_model_output || plan->steps[step].substituted_from != SIZE_MAX;
}
/* The bytes of n samples of a step that the device has. Threads may read at the same time. */
struct nd_plan_values {
    size_t device, step;
};
enum nd_status nd_plan_read(const struct nd_plan *plan, const struct nd_plan_values *tensor, size_t first,
                            size_t n, void *out, struct nd_error *err);
