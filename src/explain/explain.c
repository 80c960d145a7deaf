#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "explain/evidence.h"
#include "explain/fallback.h"
#include "explain/findings.h"
#include "explain/health.h"

/* Without codes there is nothing to work out: captures of a float model, or of outputs in floats only. */
static bool has_codes(const struct nd_explain_job *job)
{
    for (size_t d = 0; d < job->n_devices; d++)
        for (size_t s = 0; s < job->n_steps && !job->sources[d].is_failed; s++)
            if (job->out->devices[d].units[s].has_total || job->out->devices[d].units[s].is_examined)
                return true;
    return false;
}

enum nd_status nd_explain(const struct nd_model *model, const struct nd_model *float_model,
                          const struct nd_capture *const *captures, size_t n_captures,
                          const struct nd_explain_options *options, struct nd_explanation **out,
                          struct nd_error *err)
{
    struct nd_explain_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    struct nd_explain_job job = {.model = model, .float_model = float_model, .n_devices = n_captures};
    job.out = nd_calloc(1, sizeof *job.out);
    status = job.out != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t c = 0; c < n_captures && status == ND_OK; c++)
        status = nd_capture_check_content(captures[c], err);
    if (status == ND_OK)
        status = nd_explain_plan(&job, captures, options, err);
    if (status == ND_OK && job.n_samples > 0)
        status = nd_explain_examine_captures(&job, err);
    if (status == ND_OK && job.n_samples > 0 && has_codes(&job))
        status = nd_explain_run(&job, options, err);
    if (status == ND_OK)
        status = nd_explain_conclude(&job, err);
    if (status == ND_OK && job.n_samples > 0)
        status = nd_explain_diagnose(&job, err);
    if (status == ND_OK && job.n_samples > 0)
        status = nd_explain_find_execution(&job, options->hides_placement, err);
    if (status == ND_OK)
        status = nd_explain_find_health(&job, err);
    nd_explain_job_deinit(&job);
    if (status == ND_OK)
        *out = job.out;
    else
        nd_explanation_destroy(&job.out);
    return status;
}

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
    }
    for (size_t i = 0; i < e->n_differences; i++)
        deinit_difference(&e->differences[i]);
    free(e->differences);
    free(e->devices);
    free(e->steps);
    free(e->model);
    free(e->model_sha256);
    free(e->float_model);
    free(e->probe);
    free(e->vote.why_not);
    free(e);
    *explanation = NULL;
}
