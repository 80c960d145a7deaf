/* The stages of an explanation, in order: plan, evaluate, attribute, identify, diagnose, conclude. stages.h
 * says what each reads and makes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "capture/read/environment.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/text/strbuf.h"
#include "explain/evaluate/evaluation_part.h"
#include "explain/fallback/fallback.h"
#include "explain/findings/findings.h"
#include "explain/floats/judge_floats.h"
#include "explain/layer_diagnosis/diagnose_layers.h"
#include "explain/stages.h"
#include "explain/verdict/health.h"

/* ---- what the plan says ---- */

static enum nd_status describe_layers(const struct nd_plan *plan, size_t d, struct nd_explained_device *device,
                                      struct nd_error *err)
{
    device->layers = nd_calloc(plan->n_steps, sizeof *device->layers);
    ND_TRY_MEMORY(device->layers != NULL, err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_planned_layer *from = &plan->sources[d].layers[s];
        device->layers[s].is_examined = from->is_examined;
        device->layers[s].has_total = from->has_total;
        device->layers[s].why_not = from->why_not != NULL ? nd_strdup(from->why_not) : NULL;
        if (from->why_not != NULL && device->layers[s].why_not == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

/* Its name is that of no device before it. */
static enum nd_status name_device(const struct nd_capture *capture, struct nd_explained_device *devices,
                                  size_t d, struct nd_error *err)
{
    ND_FREED const char **before = nd_calloc(d + 1, sizeof *before);
    ND_TRY_MEMORY(before != NULL, err);
    for (size_t i = 0; i < d; i++)
        before[i] = devices[i].label;
    devices[d].label = nd_capture_unique_name(capture, before, d);
    devices[d].environment = nd_capture_environment(capture);
    return devices[d].label != NULL && devices[d].environment != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status describe_device(const struct nd_plan *plan, size_t d, struct nd_explained_device *device,
                                      struct nd_error *err)
{
    const struct nd_plan_source *source = &plan->sources[d];
    const char *uri = nd_capture_string(source->capture, "device", "uri");
    const char *chipset = nd_capture_string(source->capture, "device", "chipset");
    device->uri = nd_strdup(uri != NULL ? uri : "?");
    device->chipset = nd_strdup(chipset != NULL ? chipset : "");
    device->capture = nd_strdup(nd_capture_path(source->capture));
    ND_TRY_MEMORY(device->uri != NULL && device->chipset != NULL && device->capture != NULL, err);
    device->expected = nd_expectation_name(source->expectation);
    device->same_as = source->same_as;
    device->observer = source->observer;
    if (source->observer.differs != NULL) {
        device->observer.differs = nd_strdup(source->observer.differs);
        ND_TRY_MEMORY(device->observer.differs != NULL, err);
    }
    device->float_error = (double)NAN;
    if (plan->n_steps > 0)
        ND_TRY(describe_layers(plan, d, device, err));
    return source->is_failed ? nd_plan_failure(source->capture, &device->failure, err) : ND_OK;
}

static enum nd_status describe_steps(const struct nd_plan *plan, struct nd_explanation *out,
                                     struct nd_error *err)
{
    out->steps = nd_calloc(plan->n_steps, sizeof *out->steps);
    ND_TRY_MEMORY(out->steps != NULL, err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_explained_step *from = &plan->steps[s];
        struct nd_explained_step *step = &out->steps[out->n_steps++];
        *step = *from;
        step->name = nd_strdup(from->name);
        step->op_types = nd_strdup(from->op_types);
        step->inputs = nd_calloc(from->n_inputs + 1, sizeof *step->inputs);
        ND_TRY_MEMORY(step->name != NULL && step->op_types != NULL && step->inputs != NULL, err);
        for (size_t i = 0; i < from->n_inputs; i++)
            step->inputs[i] = from->inputs[i];
    }
    return ND_OK;
}

/* The option --probe that gives these inputs again: a built-in probe is its own source, others are files. */
static char *probe_option(const struct nd_plan *plan)
{
    size_t d = 0;
    while (d + 1 < plan->n_devices && plan->sources[d].is_failed)
        d++;
    const struct nd_capture_probe *probe = nd_capture_probe(plan->sources[d].capture, plan->sources[d].probe);
    size_t n = strlen(probe->name);
    bool is_built_in =
        strncmp(probe->source, probe->name, n) == 0 && (probe->source[n] == '\0' || probe->source[n] == ':');
    return nd_text("%s%s%s", is_built_in ? "" : probe->name, is_built_in ? "" : "=", probe->source);
}

/* Names of the model, the devices and the steps, and which layers are examined: what the plan says. out is
 * zeroed before. ND_ERR_MEMORY. */
static enum nd_status nd_explanation_begin(const struct nd_plan *plan, struct nd_explanation *out,
                                           struct nd_error *err)
{
    bool has_float = plan->float_model != NULL;
    out->devices = nd_calloc(plan->n_devices, sizeof *out->devices);
    out->model = nd_strdup(nd_model_path(plan->model));
    out->model_sha256 = nd_strdup(nd_model_sha256(plan->model));
    out->float_model = has_float ? nd_strdup(nd_model_path(plan->float_model)) : NULL;
    out->probe = plan->probe != NULL ? nd_strdup(plan->probe) : NULL;
    out->probe_source = plan->probe != NULL ? probe_option(plan) : NULL;
    if (out->devices == NULL || out->model == NULL || out->model_sha256 == NULL ||
        (has_float && out->float_model == NULL) ||
        (plan->probe != NULL && (out->probe == NULL || out->probe_source == NULL)))
        return nd_fail_memory(err);
    out->n_devices = plan->n_devices;
    out->n_samples = plan->n_samples;
    out->n_output_effect_samples = plan->n_output_effect_samples;
    ND_TRY(describe_steps(plan, out, err));
    for (size_t d = 0; d < plan->n_devices; d++)
        ND_TRY(describe_device(plan, d, &out->devices[d], err));
    for (size_t d = 0; d < out->n_devices; d++)
        ND_TRY(name_device(plan->sources[d].capture, out->devices, d, err));
    return ND_OK;
}

/* ---- freed ---- */

static void deinit_execution(struct nd_explained_execution *execution)
{
    for (size_t i = 0; i < execution->n_evidence; i++)
        free(execution->evidence[i].text);
    free(execution->evidence);
}

static void deinit_layer(struct nd_explained_layer *layer)
{
    for (size_t i = 0; i < layer->n_arithmetics; i++)
        free(layer->arithmetics[i]);
    ND_FREE_ALL(layer->arithmetics, layer->arithmetic, layer->judgement.fault.text, layer->judgement.evidence,
                layer->judgement.known_defect, layer->judgement.follows_text, layer->why_not);
    deinit_execution(&layer->execution);
}

static void deinit_device(struct nd_explained_device *device, size_t n_steps)
{
    for (size_t s = 0; device->layers != NULL && s < n_steps; s++)
        deinit_layer(&device->layers[s]);
    free(device->layers);
    for (size_t i = 0; i < device->n_findings; i++)
        free(device->findings[i].fault.text);
    free(device->findings);
    deinit_execution(&device->execution);
    ND_FREE_ALL(device->sources, device->faulty, device->unexplained, device->losses, device->arithmetic);
    for (size_t i = 0; i < device->n_arithmetics; i++)
        free(device->arithmetics[i]);
    ND_FREE_ALL(device->arithmetics, device->uri, device->label, device->environment, device->chipset,
                device->capture, device->failure, device->observer.differs);
}

static void deinit_difference(struct nd_explained_difference *difference)
{
    for (size_t i = 0; i < difference->n_because; i++)
        free(difference->because[i].op_types);
    ND_FREE_ALL(difference->because, difference->op_types);
}

void nd_quantisation_destroy(struct nd_quantisation **quantisation)
{
    struct nd_quantisation *q = *quantisation;
    if (q == NULL)
        return;
    for (size_t s = 0; q->layers != NULL && s < q->n_layers; s++) {
        ND_FREE_ALL(q->layers[s].cause_text, q->layers[s].constant_text);
        for (size_t i = 0; i < q->layers[s].n_remedies; i++)
            free(q->layers[s].remedies[i].text);
        free(q->layers[s].remedies);
    }
    ND_FREE_ALL(q->layers, q->equalised, q->ranked, q->whole, q);
    *quantisation = NULL;
}

void nd_explanation_destroy(struct nd_explanation **explanation)
{
    struct nd_explanation *e = *explanation;
    if (e == NULL)
        return;
    for (size_t d = 0; e->devices != NULL && d < e->n_devices; d++)
        deinit_device(&e->devices[d], e->n_steps);
    for (size_t s = 0; e->steps != NULL && s < e->n_steps; s++)
        ND_FREE_ALL(e->steps[s].name, e->steps[s].op_types, e->steps[s].inputs);
    for (size_t i = 0; i < e->n_differences; i++)
        deinit_difference(&e->differences[i]);
    free(e->differences);
    nd_quantisation_destroy(&e->quantisation);
    ND_FREE_ALL(e->devices, e->steps, e->model, e->model_sha256, e->float_model, e->probe, e->probe_source,
                e->majority.why_not, e);
    *explanation = NULL;
}

/* From the plan and the evaluation to what is said of the devices. */
static enum nd_status conclude(const struct nd_evaluation *evaluation, const struct nd_explain_options *options,
                               struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    ND_CLEANUP(nd_observed_arithmetics_deinit) struct nd_observed_arithmetics observations = {0};
    ND_FREED struct nd_fallback_floats *floats = nd_calloc(plan->n_devices * plan->n_steps + 1, sizeof *floats);
    const struct nd_explain_job job = {plan, evaluation, &observations, out, options->is_strict, floats};
    ND_TRY_MEMORY(floats != NULL, err);
    ND_TRY(nd_explain_mark_unevaluable(evaluation, out, err));
    ND_TRY(nd_explain_attribute(evaluation, out, err));
    ND_TRY(nd_explain_identify(evaluation, &observations, out, err));
    ND_TRY(nd_explain_trace(plan, out, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_find_differences(&job, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_diagnose(&job, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_judge_floats(&job, options, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_find_execution(&job, options->hides_placement, err));
    return nd_explain_find_health(&job, err);
}

/* All samples; or what parts have of them. */
static enum nd_status evaluate(struct nd_evaluation *evaluation, const struct nd_explain_options *options,
                               struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    if (options->n_merge > 0)
        ND_TRY(nd_evaluation_parts_load(evaluation, options->merge, options->n_merge, err));
    else if (plan->n_samples > 0 && nd_plan_has_qvalues(plan))
        ND_TRY(nd_evaluate(evaluation, (struct nd_sample_span){0, plan->n_samples}, options, err));
    nd_evaluate_finish(evaluation);
    return ND_OK;
}

/* What is said, of what was planned. */
static enum nd_status explain(struct nd_plan *plan, const struct nd_explain_options *options,
                              nd_explain_study study, struct nd_explanation *out, struct nd_error *err)
{
    ND_CLEANUP(nd_evaluation_deinit) struct nd_evaluation evaluation = {0};
    ND_TRY(nd_explanation_begin(plan, out, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_plan_hold(plan, err));
    if (plan->n_samples > 0)
        ND_TRY(nd_explain_examine_captures(plan, out->devices, err));
    ND_TRY(nd_evaluation_init(&evaluation, plan, err));
    ND_TRY(evaluate(&evaluation, options, err));
    ND_TRY(conclude(&evaluation, options, out, err));
    nd_plan_release(plan); /* the study of quantisation reads no captures */
    return options->omits_quantisation ? ND_OK : study(plan, &out->quantisation, err);
}

/* Reads the options, and plans. deinit of the plan in any case. */
static enum nd_status begin(const struct nd_question *question, const struct nd_explain_options *options,
                            struct nd_explain_options *own, struct nd_plan *plan, struct nd_error *err)
{
    ND_TRY(nd_options_read(own, sizeof *own, options, err));
    for (size_t c = 0; c < question->n_captures; c++)
        ND_TRY(nd_capture_check_content(question->captures[c], err));
    return nd_plan_make(plan, question, own, err);
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
    enum { MAX_PARTS = 65536 };
    const struct nd_question question = {model, float_model, captures, n_captures};
    struct nd_explain_options own = {.struct_size = sizeof own};
    ND_CLEANUP(nd_plan_deinit) struct nd_plan plan = {0};
    ND_CLEANUP(nd_evaluation_deinit) struct nd_evaluation evaluation = {0};
    ND_TRY(begin(&question, options, &own, &plan, err));
    if (own.part >= own.n_parts || own.n_parts > MAX_PARTS)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "there is no part %zu of %zu", own.part + 1, own.n_parts);
    ND_TRY(nd_evaluation_init(&evaluation, &plan, err));
    if (plan.n_samples > 0 && nd_plan_has_qvalues(&plan))
        ND_TRY(nd_evaluate(&evaluation, nd_part_span(plan.n_samples, own.part, own.n_parts), &own, err));
    return nd_evaluation_part_format(&evaluation, own.part, own.n_parts, out, err);
}
