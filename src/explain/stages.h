/* The stages of an explanation, in the order in which explain.c calls them. Each reads what the stages before
 * it have made, and adds to the explanation:
 *
 *     plan/plan.h             plan: the captures, the steps of the model, what of them can be worked out
 *     findings/findings.h     labels: what captures say wrongly of their tensors, whatever is evaluated
 *     evaluate/evaluation.h   evaluate: every layer from its own inputs; sums and tallies
 *     attribute.c             attribute: which part of the error is a layer's own, passed on, quantisation
 *     judge_layers.c          identify: which arithmetic each device has, and which layers do not follow it
 *     explain.c               trace: where differences begin
 *     layer_diagnosis/layer_diagnosis.h  diagnose: layers that do not follow are looked at once more
 *     floats/judge_floats.c   floats: the layers of a model without quantisation, evaluated and judged
 *     explain/fallback/fallback.h    execution: where layers ran
 *     verdict/health.h        conclude: the verdict of each device */
#pragma once

#include "explain/evaluate/evaluation.h"
#include "explain/layers/device_arithmetics.h"

/* What the stages up to `identify` have made, for those that follow: they read it, and write to `out` alone. */
struct nd_explain_job {
    const struct nd_plan *plan;
    const struct nd_evaluation *evaluation;
    const struct nd_observed_arithmetics *observations;
    struct nd_explanation *out;
    bool is_strict;                    /* as nd_explain_options has it */
    struct nd_fallback_floats *floats; /* [n_devices][n_steps] of the stage `floats`, for `execution` */
};

static inline const struct nd_observed_arithmetic *nd_observed_arithmetic_of(const struct nd_explain_job *job,
                                                                             size_t device, size_t step)
{
    return &job->observations->layers[device * job->plan->n_steps + step];
}

/* ---- explain.c ---- */

/* Adds a finding on a tensor of the device: kind is static; text is taken over, NULL means that there was no
 * memory for it. ND_ERR_MEMORY. */
enum nd_status nd_explain_add_finding(struct nd_explained_device *device, size_t step, const char *kind,
                                      double amount, char *text, struct nd_error *err);

/* ---- attribute ---- */

/* attribute.c: fills vote, and of the devices all sums of their layers, output and own_share. The explanation
 * is settled. ND_ERR_MEMORY. */
enum nd_status nd_explain_attribute(const struct nd_evaluation *evaluation, struct nd_explanation *out,
                                    struct nd_error *err);

/* Sums of one sample at the outputs, and the intervals that they give. The draws depend on n only. */
struct nd_explain_energies {
    uint64_t n_qvalues;
    double quantisation, divergence, interaction;
    double common, own; /* what own_share is made of */
};

/* ---- identify ---- */

/* judge_layers.c: finds the arithmetics of the devices, fills observed arithmetics (zeroed before), and of the
 * explanation what it says of programs: `program`, `programs`, n_unexplained, is_within_step, losses ...
 * ND_ERR_MEMORY; nd_observed_arithmetics_deinit in any case. */
enum nd_status nd_explain_identify(const struct nd_evaluation *evaluation,
                                   struct nd_observed_arithmetics *observations, struct nd_explanation *out,
                                   struct nd_error *err);
void nd_observed_arithmetics_deinit(struct nd_observed_arithmetics *observations);

/* attribute.c: why devices with arithmetics of layers differ. */
enum nd_status nd_explain_find_differences(const struct nd_explain_job *job, struct nd_error *err);

/* ---- explain.c ---- */

/* The study of what the quantisation of the planned model costs: NULL in *out where there is no float model. */
typedef enum nd_status (*nd_explain_study)(const struct nd_plan *plan, struct nd_quantisation **out,
                                           struct nd_error *err);
/* nd_explain with this study, which is a later wing's (src/quantisation/study.c). */
enum nd_status nd_explain_with(const struct nd_question *question, const struct nd_explain_options *options,
                               nd_explain_study study, struct nd_explanation **out, struct nd_error *err);

void nd_quantisation_destroy(struct nd_quantisation **quantisation);
