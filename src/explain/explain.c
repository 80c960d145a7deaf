/* The stages of an explanation, in order: plan, evaluate, attribute, identify, diagnose, conclude. stages.h
 * says what each reads and makes. */
#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "execution/fallback.h"
#include "explain/exam/diagnose_layers.h"
#include "explain/findings/findings.h"
#include "explain/floats/judge_floats.h"
#include "explain/stages.h"
#include "explain/verdict/health.h"
#include "quantisation/study.h"

/* From the plan and the evaluation to what is said of the devices. */
static enum nd_status conclude(const struct nd_evaluation *evaluation, const struct nd_explain_options *options,
                               struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_habits habits = {0};
    const struct nd_explain_job job = {plan, evaluation, &habits, out};
    enum nd_status status = nd_explain_settle(evaluation, out, err);
    if (status == ND_OK)
        status = nd_explain_attribute(evaluation, out, err);
    if (status == ND_OK)
        status = nd_explain_identify(evaluation, &habits, out, err);
    if (status == ND_OK)
        status = nd_explain_trace(plan, out, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_explain_find_differences(&job, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_explain_diagnose(&job, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_explain_judge_floats(&job, options, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_find_execution(evaluation, habits.unit_program, options->hides_placement, out, err);
    if (status == ND_OK)
        status = nd_explain_find_health(&job, err);
    nd_habits_deinit(&habits);
    return status;
}

/* What is said, of what was planned. */
static enum nd_status explain(const struct nd_plan *plan, const struct nd_explain_options *options,
                              struct nd_explanation *out, struct nd_error *err)
{
    struct nd_evaluation evaluation = {0};
    enum nd_status status = nd_explanation_begin(plan, out, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_explain_examine_captures(plan, out->devices, err);
    if (status == ND_OK)
        status = nd_evaluation_init(&evaluation, plan, err);
    if (status == ND_OK && plan->n_samples > 0 && nd_plan_has_codes(plan))
        status = nd_evaluate(&evaluation, options, err);
    if (status == ND_OK)
        status = conclude(&evaluation, options, out, err);
    if (status == ND_OK && !options->omits_quantisation)
        status = nd_study_quantisation(plan, &out->quantisation, err);
    nd_evaluation_deinit(&evaluation);
    return status;
}

enum nd_status nd_explain(const struct nd_model *model, const struct nd_model *float_model,
                          const struct nd_capture *const *captures, size_t n_captures,
                          const struct nd_explain_options *options, struct nd_explanation **out,
                          struct nd_error *err)
{
    const struct nd_question question = {model, float_model, captures, n_captures};
    struct nd_explain_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    for (size_t c = 0; c < n_captures && status == ND_OK; c++)
        status = nd_capture_check_content(captures[c], err);
    if (status != ND_OK)
        return status;
    struct nd_plan plan = {0};
    struct nd_explanation *explanation = nd_calloc(1, sizeof *explanation);
    status = explanation != NULL ? nd_plan_make(&plan, &question, &own, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = explain(&plan, &own, explanation, err);
    nd_plan_deinit(&plan);
    if (status == ND_OK)
        *out = explanation;
    else
        nd_explanation_destroy(&explanation);
    return status;
}
