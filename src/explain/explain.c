/* The stages of an explanation, in order: plan, evaluate, attribute, identify, diagnose, conclude. stages.h
 * says what each reads and makes. */
#include "core/error.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "explain/execution/fallback.h"
#include "explain/exam/diagnose_layers.h"
#include "explain/findings/findings.h"
#include "explain/floats/judge_floats.h"
#include "explain/stages.h"
#include "explain/verdict/health.h"
#include "explain/evaluate/evaluation_part.h"

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

/* All samples; or what parts have of them. */
static enum nd_status evaluate(struct nd_evaluation *evaluation, const struct nd_explain_options *options,
                               struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    enum nd_status status = ND_OK;
    if (options->n_merge > 0)
        status = nd_evaluation_parts_load(evaluation, options->merge, options->n_merge, err);
    else if (plan->n_samples > 0 && nd_plan_has_codes(plan))
        status = nd_evaluate(evaluation, (struct nd_span){0, plan->n_samples}, options, err);
    if (status == ND_OK)
        nd_evaluate_finish(evaluation);
    return status;
}

/* What is said, of what was planned. */
static enum nd_status explain(struct nd_plan *plan, const struct nd_explain_options *options,
                              nd_explain_study study, struct nd_explanation *out, struct nd_error *err)
{
    struct nd_evaluation evaluation = {0};
    enum nd_status status = nd_explanation_begin(plan, out, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_plan_hold(plan, err);
    if (status == ND_OK && plan->n_samples > 0)
        status = nd_explain_examine_captures(plan, out->devices, err);
    if (status == ND_OK)
        status = nd_evaluation_init(&evaluation, plan, err);
    if (status == ND_OK)
        status = evaluate(&evaluation, options, err);
    if (status == ND_OK)
        status = conclude(&evaluation, options, out, err);
    nd_plan_release(plan); /* the study of quantisation reads no captures */
    if (status == ND_OK && !options->omits_quantisation)
        status = study(plan, &out->quantisation, err);
    nd_evaluation_deinit(&evaluation);
    return status;
}

/* Reads the options, and plans. deinit of the plan in any case. */
static enum nd_status begin(const struct nd_question *question, const struct nd_explain_options *options,
                            struct nd_explain_options *own, struct nd_plan *plan, struct nd_error *err)
{
    enum nd_status status = nd_options_read(own, sizeof *own, options, err);
    for (size_t c = 0; c < question->n_captures && status == ND_OK; c++)
        status = nd_capture_check_content(question->captures[c], err);
    return status == ND_OK ? nd_plan_make(plan, question, own, err) : status;
}

enum nd_status nd_explain_with(const struct nd_question *question, const struct nd_explain_options *options,
                               nd_explain_study study, struct nd_explanation **out, struct nd_error *err)
{
    struct nd_explain_options own = {.struct_size = sizeof own};
    struct nd_plan plan = {0};
    struct nd_explanation *explanation = NULL;
    enum nd_status status = begin(question, options, &own, &plan, err);
    if (status == ND_OK && (explanation = nd_calloc(1, sizeof *explanation)) == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        status = explain(&plan, &own, study, explanation, err);
    nd_plan_deinit(&plan);
    if (status == ND_OK)
        *out = explanation;
    else
        nd_explanation_destroy(&explanation);
    return status;
}

enum nd_status nd_explain_part(const struct nd_model *model, const struct nd_model *float_model,
                               const struct nd_capture *const *captures, size_t n_captures,
                               const struct nd_explain_options *options, char **out, struct nd_error *err)
{
    enum { MOST_PARTS = 65536 };
    const struct nd_question question = {model, float_model, captures, n_captures};
    struct nd_explain_options own = {.struct_size = sizeof own};
    struct nd_plan plan = {0};
    struct nd_evaluation evaluation = {0};
    enum nd_status status = begin(&question, options, &own, &plan, err);
    if (status == ND_OK && (own.part >= own.n_parts || own.n_parts > MOST_PARTS))
        status =
            nd_fail(err, ND_E_OPTION_VALUE, NULL, "there is no part %zu of %zu", own.part + 1, own.n_parts);
    if (status == ND_OK)
        status = nd_evaluation_init(&evaluation, &plan, err);
    if (status == ND_OK && plan.n_samples > 0 && nd_plan_has_codes(&plan))
        status = nd_evaluate(&evaluation, nd_part_span(plan.n_samples, own.part, own.n_parts), &own, err);
    if (status == ND_OK)
        status = nd_evaluation_part_format(&evaluation, own.part, own.n_parts, out, err);
    nd_evaluation_deinit(&evaluation);
    nd_plan_deinit(&plan);
    return status;
}
