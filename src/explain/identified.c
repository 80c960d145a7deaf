/* Captures held against the table of programs: every probe is planned and read as nd_explain does it, and every
 * unit is worked out from the codes that the device itself had. */
#include "explain/identified.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/parallel.h"
#include "explain/worker.h"

enum { DEFAULT_SAMPLES = 32 };

/* What one thread counts. */
struct counter {
    struct nd_explain_worker worker;
    const struct team *team;
    struct nd_identify_tally *tallies; /* [n_steps] */
    bool *is_double;                   /* [n_steps] */
};

struct team {
    struct nd_explain_job *job;
    const struct nd_identified_device *device;
    struct counter *counters;
};

/* ---- a sample ---- */

static bool is_counted(const struct team *team, size_t step)
{
    const struct nd_identified_unit *unit = &team->device->units[step];
    return unit->is_unit && !unit->is_changing && team->job->out->devices[0].units[step].is_examined;
}

static enum nd_status round_unit(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                 struct nd_error *err)
{
    struct counter *c = context;
    size_t step = c->team->job->step_of_edge[values->edge];
    const struct nd_identified_unit *unit = &c->team->device->units[step];
    const struct nd_array *given = &c->worker.given[values->edge];
    for (size_t i = 0; i < values->n; i++) {
        size_t channel = nd_exact_channel(values->quant, values->shape, i);
        codes->x[i] = nd_code_of_ratio(&values->v[i], (double)values->quant->zero_point[channel], values->dtype,
                                       ND_ROUND_HALF_EVEN);
    }
    if (!is_counted(c->team, step) || given->n != values->n)
        return ND_OK;
    const struct nd_identify_sample sample = {.values = values,
                                              .given = given->x,
                                              .key = c->team->device->n_samples + c->worker.sample,
                                              .steps = unit->steps,
                                              .n_steps = unit->n_steps,
                                              .is_conv = unit->is_conv};
    if (c->worker.trial.edge == values->edge)
        nd_explain_trial_count(&c->worker.trial, given->x, codes->x, values->n, &c->worker.unit_tally[step]);
    c->is_double[step] = values->way == ND_EXACT_AS_DOUBLE;
    return nd_identify_unit(&c->tallies[step], &sample, err);
}

/* What programs of whole units make of it, before its exact values are rounded. */
static enum nd_status try_unit(void *context, const struct nd_exact_unit *unit, struct nd_array *codes,
                               bool *is_made, struct nd_error *err)
{
    (void)codes;
    struct counter *c = context;
    *is_made = false;
    return nd_explain_trial_run(&c->worker.trial, unit, &c->worker.given[unit->edge], err);
}

static enum nd_status make_counter(struct counter *c, struct nd_explain_job *job, struct nd_error *err)
{
    enum nd_status status = nd_explain_worker_init(&c->worker, job, err);
    c->tallies = nd_calloc(job->n_steps, sizeof *c->tallies);
    c->is_double = nd_calloc(job->n_steps, sizeof *c->is_double);
    if (status == ND_OK && (c->tallies == NULL || c->is_double == NULL))
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status count_block(void *context, size_t index, size_t task, struct nd_error *err)
{
    struct team *team = context;
    struct counter *c = &team->counters[index];
    struct nd_explain_worker *w = &c->worker;
    size_t first = task * ND_EXPLAIN_BLOCK, n = team->job->n_samples - first;
    n = n < ND_EXPLAIN_BLOCK ? n : ND_EXPLAIN_BLOCK;
    c->team = team;
    enum nd_status status = w->is_made ? ND_OK : make_counter(c, team->job, err);
    if (status == ND_OK)
        status = nd_explain_read_block(w, first, n, err);
    for (size_t i = 0; i < n && status == ND_OK; i++) {
        w->sample = first + i;
        w->in_block = i;
        nd_explain_load_inputs(w);
        status = nd_explain_load_device(w, err);
        nd_explain_trial_begin(&w->trial);
        const struct nd_exact_options options = {.struct_size = sizeof options,
                                                 .round = round_unit,
                                                 .make = try_unit,
                                                 .given = w->given,
                                                 .missed = nd_explain_let_go};
        if (status == ND_OK)
            status = nd_exact_graph_run(team->job->graph, w->inputs, &options, NULL, c, err);
    }
    return status;
}

/* ---- a probe ---- */

static enum nd_status make_unit(const struct nd_explain_job *job, size_t step, struct nd_identified_unit *unit,
                                struct nd_error *err)
{
    const struct nd_explained_step *from = &job->out->steps[step];
    struct nd_error none = {0};
    unit->is_unit = from->is_unit;
    if (!unit->is_unit)
        return ND_OK;
    unit->name = nd_strdup(from->name);
    unit->op_types = nd_strdup(from->op_types);
    if (unit->name == NULL || unit->op_types == NULL)
        return nd_fail_memory(err);
    unit->is_conv = strstr(unit->op_types, "Conv") != NULL;
    enum nd_status status =
        nd_exact_accumulator_steps(job->graph, from->edge, &unit->steps, &unit->n_steps, &none);
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK; /* else it has no accumulator */
}

static enum nd_status make_units(const struct nd_explain_job *job, struct nd_identified_device *device,
                                 struct nd_error *err)
{
    if (device->units != NULL)
        return ND_OK;
    device->units = nd_calloc(job->n_steps, sizeof *device->units);
    if (device->units == NULL)
        return nd_fail_memory(err);
    device->n_units = job->n_steps;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++)
        status = make_unit(job, s, &device->units[s], err);
    return status;
}

/* Units that cannot be looked at in this probe. What changes from run to run has no one program: what was
 * counted in earlier probes is dropped. */
static enum nd_status note_units(const struct nd_explain_job *job, struct nd_identified_device *device,
                                 struct nd_error *err)
{
    for (size_t s = 0; s < device->n_units; s++) {
        struct nd_identified_unit *unit = &device->units[s];
        const struct nd_explained_unit *found = &job->out->devices[0].units[s];
        if (!unit->is_unit)
            continue;
        if (nd_explain_differs_by_run(job, 0, s)) {
            unit->has_fed = unit->has_fed || !nd_explain_inputs_repeat(job, 0, s);
            unit->is_changing = true;
            unit->tally = (struct nd_identify_tally){0};
            unit->as_whole = (struct nd_explain_unit_tally){.n = {0}};
        }
        if (found->is_examined || unit->why_not != NULL)
            continue;
        unit->why_not = nd_strdup(found->why_not);
        if (unit->why_not == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

static enum nd_status count_probe(struct nd_explain_job *job, size_t n_threads,
                                  struct nd_identified_device *device, struct nd_error *err)
{
    size_t n_workers = n_threads > 0 ? n_threads : nd_parallel_n_threads();
    size_t n_blocks = (job->n_samples + ND_EXPLAIN_BLOCK - 1) / ND_EXPLAIN_BLOCK;
    struct team team = {.job = job, .device = device, .counters = nd_calloc(n_workers, sizeof *team.counters)};
    struct nd_error local = {0};
    if (team.counters == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_parallel_for(n_workers, n_blocks, count_block, &team, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; i < n_workers; i++) {
        struct counter *c = &team.counters[i];
        for (size_t s = 0; s < device->n_units && c->tallies != NULL && c->worker.unit_tally != NULL; s++) {
            nd_identify_merge(&c->tallies[s], &device->units[s].tally);
            nd_explain_unit_tally_merge(&c->worker.unit_tally[s], &device->units[s].as_whole);
            device->units[s].is_double = device->units[s].is_double || c->is_double[s];
        }
        if (c->worker.is_made)
            nd_explain_worker_deinit(&c->worker);
        free(c->tallies);
        free(c->is_double);
    }
    free(team.counters);
    return status;
}

static enum nd_status describe(const struct nd_explained_device *from, struct nd_identified_device *device,
                               struct nd_error *err)
{
    if (device->uri != NULL)
        return ND_OK;
    device->uri = nd_strdup(from->uri);
    device->chipset = nd_strdup(from->chipset);
    device->capture = nd_strdup(from->capture);
    device->failure = from->failure != NULL ? nd_strdup(from->failure) : NULL;
    bool is_made = device->uri != NULL && device->chipset != NULL && device->capture != NULL &&
                   (device->failure != NULL || from->failure == NULL);
    return is_made ? ND_OK : nd_fail_memory(err);
}

static enum nd_status add_probe(const struct nd_explain_job *job, struct nd_identified_device *device,
                                struct nd_error *err)
{
    char *name = nd_strdup(job->out->probe);
    if (name == NULL)
        return nd_fail_memory(err);
    device->probes[device->n_probes++] = (struct nd_identified_probe){name, job->n_samples};
    device->n_samples += job->n_samples;
    return ND_OK;
}

/* name NULL: one that plan.c finds, or says why there is none. */
static enum nd_status identify_probe(const struct nd_model *model, const struct nd_capture *capture,
                                     const char *name, const struct nd_identify_options *options,
                                     struct nd_identified_device *device, struct nd_error *err)
{
    struct nd_explain_job job = {.model = model, .n_devices = 1};
    const struct nd_explain_options plan = {.struct_size = sizeof plan,
                                            .probe = name,
                                            .n_samples =
                                                options->n_samples > 0 ? options->n_samples : DEFAULT_SAMPLES};
    job.out = nd_calloc(1, sizeof *job.out);
    enum nd_status status = job.out != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_explain_plan(&job, &capture, &plan, err);
    if (status == ND_OK)
        status = describe(&job.out->devices[0], device, err);
    if (status == ND_OK && device->failure == NULL) {
        status = make_units(&job, device, err);
        if (status == ND_OK)
            status = note_units(&job, device, err);
        if (status == ND_OK)
            status = count_probe(&job, options->n_threads, device, err);
        if (status == ND_OK)
            status = add_probe(&job, device, err);
    }
    nd_explain_job_deinit(&job);
    nd_explanation_destroy(&job.out);
    return status;
}

/* ---- a capture ---- */

static enum nd_status identify_capture(const struct nd_model *model, const struct nd_capture *capture,
                                       const struct nd_identify_options *options,
                                       struct nd_identified_device *device, struct nd_error *err)
{
    size_t n = nd_capture_n_probes(capture);
    bool is_failed = nd_capture_state(capture) == ND_CAPTURE_FAILED;
    enum nd_status status = ND_OK;
    device->probes = nd_calloc(n + 1, sizeof *device->probes);
    if (device->probes == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; p < n && options->probe == NULL && !is_failed && status == ND_OK; p++)
        if (nd_capture_probe(capture, p)->n_samples > 0)
            status = identify_probe(model, capture, nd_capture_probe(capture, p)->name, options, device, err);
    if (status == ND_OK && device->uri == NULL)
        status = identify_probe(model, capture, options->probe, options, device, err);
    return status;
}

static void deinit_device(struct nd_identified_device *device)
{
    for (size_t p = 0; p < device->n_probes; p++)
        free(device->probes[p].name);
    free(device->probes);
    for (size_t s = 0; s < device->n_units; s++) {
        free(device->units[s].name);
        free(device->units[s].op_types);
        free(device->units[s].why_not);
        free(device->units[s].steps);
    }
    free(device->units);
    free(device->uri);
    free(device->chipset);
    free(device->capture);
    free(device->failure);
}

enum nd_status nd_identify_captures(const struct nd_model *model, const struct nd_capture *const *captures,
                                    size_t n_captures, const struct nd_identify_options *options, char **json,
                                    struct nd_error *err)
{
    struct nd_identify_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    options = &own;
    json_t *devices = json_array();
    status = devices != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = 0; d < n_captures && status == ND_OK; d++) {
        struct nd_identified_device device = {0};
        status = identify_capture(model, captures[d], options, &device, err);
        if (status == ND_OK && json_array_append_new(devices, nd_identified_json(&device)) != 0)
            status = nd_fail_memory(err);
        deinit_device(&device);
    }
    json_t *all = status == ND_OK ? json_pack("{s:O}", "devices", devices) : NULL;
    char *text = all != NULL ? json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(17)) : NULL;
    if (status == ND_OK && text == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK)
        *json = text;
    json_decref(all);
    json_decref(devices);
    return status;
}
