/* The explanation as an object: what it says before anything is evaluated, and how it is freed. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "capture/read/environment.h"
#include "explain/stages.h"

enum nd_status nd_explain_add_finding(struct nd_explained_device *device, size_t step, const char *kind,
                                      double amount, char *text, struct nd_error *err)
{
    struct nd_explained_finding *grown =
        text != NULL ? realloc(device->findings, (device->n_findings + 1) * sizeof *grown) : NULL;
    if (grown == NULL) {
        free(text);
        return nd_fail_memory(err);
    }
    device->findings = grown;
    grown[device->n_findings++] = (struct nd_explained_finding){
        .step = step,
        .fault = {.kind = kind, .text = text, .channel = SIZE_MAX, .amount = amount, .explained = (double)NAN}};
    return ND_OK;
}

/* ---- what the plan says ---- */

static enum nd_status describe_units(const struct nd_plan *plan, size_t d, struct nd_explained_device *device,
                                     struct nd_error *err)
{
    device->units = nd_calloc(plan->n_steps, sizeof *device->units);
    if (device->units == NULL)
        return nd_fail_memory(err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_planned_unit *from = &plan->sources[d].units[s];
        device->units[s].is_examined = from->is_examined;
        device->units[s].has_total = from->has_total;
        device->units[s].why_not = from->why_not != NULL ? nd_strdup(from->why_not) : NULL;
        if (from->why_not != NULL && device->units[s].why_not == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

/* Its name is that of no device before it. */
static enum nd_status name_device(const struct nd_capture *capture, struct nd_explained_device *devices,
                                  size_t d, struct nd_error *err)
{
    const char **before = nd_calloc(d + 1, sizeof *before);
    if (before == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < d; i++)
        before[i] = devices[i].label;
    devices[d].label = nd_capture_unique_name(capture, before, d);
    devices[d].environment = nd_capture_environment(capture);
    free(before);
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
    if (device->uri == NULL || device->chipset == NULL || device->capture == NULL)
        return nd_fail_memory(err);
    device->expected = nd_expectation_name(source->expectation);
    device->same_as = source->same_as;
    device->observer = source->observer;
    device->float_error = (double)NAN;
    enum nd_status status = plan->n_steps > 0 ? describe_units(plan, d, device, err) : ND_OK;
    return status == ND_OK && source->is_failed ? nd_plan_failure(source->capture, &device->failure, err)
                                                : status;
}

static enum nd_status describe_steps(const struct nd_plan *plan, struct nd_explanation *out,
                                     struct nd_error *err)
{
    out->steps = nd_calloc(plan->n_steps, sizeof *out->steps);
    if (out->steps == NULL)
        return nd_fail_memory(err);
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_explained_step *from = &plan->steps[s];
        struct nd_explained_step *step = &out->steps[out->n_steps++];
        *step = *from;
        step->name = nd_strdup(from->name);
        step->op_types = nd_strdup(from->op_types);
        step->inputs = nd_calloc(from->n_inputs + 1, sizeof *step->inputs);
        if (step->name == NULL || step->op_types == NULL || step->inputs == NULL)
            return nd_fail_memory(err);
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
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s%s", is_built_in ? "" : probe->name, is_built_in ? "" : "=", probe->source);
    return nd_strbuf_take(&text);
}

enum nd_status nd_explanation_begin(const struct nd_plan *plan, struct nd_explanation *out,
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
    out->n_harm_samples = plan->n_harm_samples;
    enum nd_status status = describe_steps(plan, out, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = describe_device(plan, d, &out->devices[d], err);
    for (size_t d = 0; d < out->n_devices && status == ND_OK; d++)
        status = name_device(plan->sources[d].capture, out->devices, d, err);
    return status;
}

/* ---- freed ---- */

static void deinit_execution(struct nd_explained_execution *execution)
{
    for (size_t i = 0; i < execution->n_evidence; i++)
        free(execution->evidence[i].text);
    free(execution->evidence);
}

static void deinit_unit(struct nd_explained_unit *unit)
{
    for (size_t i = 0; i < unit->n_programs; i++)
        free(unit->programs[i]);
    free(unit->programs);
    free(unit->program);
    free(unit->fault.text);
    free(unit->evidence);
    free(unit->known_defect);
    free(unit->follows_text);
    free(unit->why_not);
    deinit_execution(&unit->execution);
}

static void deinit_device(struct nd_explained_device *device, size_t n_steps)
{
    for (size_t s = 0; device->units != NULL && s < n_steps; s++)
        deinit_unit(&device->units[s]);
    free(device->units);
    for (size_t i = 0; i < device->n_findings; i++)
        free(device->findings[i].fault.text);
    free(device->findings);
    deinit_execution(&device->execution);
    free(device->sources);
    free(device->faulty);
    free(device->unexplained);
    free(device->losses);
    free(device->program);
    for (size_t i = 0; i < device->n_programs; i++)
        free(device->programs[i]);
    free(device->programs);
    free(device->uri);
    free(device->label);
    free(device->environment);
    free(device->chipset);
    free(device->capture);
    free(device->failure);
}

static void deinit_difference(struct nd_explained_difference *difference)
{
    for (size_t i = 0; i < difference->n_because; i++)
        free(difference->because[i].op_types);
    free(difference->because);
    free(difference->op_types);
}

void nd_quantisation_destroy(struct nd_quantisation **quantisation)
{
    struct nd_quantisation *q = *quantisation;
    if (q == NULL)
        return;
    for (size_t s = 0; q->layers != NULL && s < q->n_layers; s++) {
        free(q->layers[s].cause_text);
        for (size_t i = 0; i < q->layers[s].n_remedies; i++)
            free(q->layers[s].remedies[i].text);
        free(q->layers[s].remedies);
    }
    free(q->layers);
    free(q->equalised);
    free(q->ranked);
    free(q->whole);
    free(q);
    *quantisation = NULL;
}

void nd_explanation_destroy(struct nd_explanation **explanation)
{
    struct nd_explanation *e = *explanation;
    if (e == NULL)
        return;
    for (size_t d = 0; e->devices != NULL && d < e->n_devices; d++)
        deinit_device(&e->devices[d], e->n_steps);
    for (size_t s = 0; e->steps != NULL && s < e->n_steps; s++) {
        free(e->steps[s].name);
        free(e->steps[s].op_types);
        free(e->steps[s].inputs);
    }
    for (size_t i = 0; i < e->n_differences; i++)
        deinit_difference(&e->differences[i]);
    free(e->differences);
    nd_quantisation_destroy(&e->quantisation);
    free(e->devices);
    free(e->steps);
    free(e->model);
    free(e->model_sha256);
    free(e->float_model);
    free(e->probe);
    free(e->probe_source);
    free(e->vote.why_not);
    free(e);
    *explanation = NULL;
}
