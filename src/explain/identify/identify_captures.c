/* Captures held against the table of programs: every probe is planned and read as nd_explain does it, and every
 * unit is worked out from the codes that the device itself had. */
#include "explain/identify/identification.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "explain/plan/reader.h"

enum { DEFAULT_SAMPLES = 32 };

/* Samples of one probe, which all are counted for one device. */
struct count {
    const struct nd_plan *plan;
    struct nd_identified_device *device;
};

/* What one thread counts. */
struct counter {
    struct nd_reader reader;
    const struct count *count;
    struct nd_identify_tally *tallies; /* [n_steps] */
    struct nd_unit_tally *as_whole;    /* [n_steps] */
    bool *is_double;                   /* [n_steps] */
};

/* ---- a sample ---- */

static bool is_counted(const struct count *count, size_t step)
{
    const struct nd_identified_unit *unit = &count->device->units[step];
    return unit->is_unit && !unit->is_changing && count->plan->sources[0].units[step].is_examined;
}

static enum nd_status round_unit(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                 struct nd_error *err)
{
    struct counter *c = context;
    struct nd_reader *r = &c->reader;
    size_t step = r->plan->step_of_edge[values->edge];
    const struct nd_identified_unit *unit = &c->count->device->units[step];
    const struct nd_array *given = &r->given[values->edge];
    nd_round_half_even(values, codes);
    if (!is_counted(c->count, step) || given->n != values->n)
        return ND_OK;
    const struct nd_identify_sample sample = {.values = values,
                                              .given = given->x,
                                              .key = c->count->device->n_samples + r->sample,
                                              .steps = unit->steps,
                                              .n_steps = unit->n_steps,
                                              .specified = unit->specified,
                                              .is_conv = unit->is_conv};
    if (r->trial.edge == values->edge)
        nd_unit_trial_count(&r->trial, given->x, codes->x, values->n, &c->as_whole[step]);
    c->is_double[step] = values->way == ND_EXACT_AS_DOUBLE;
    return nd_identify_unit(&c->tallies[step], &sample, err);
}

static enum nd_status run_sample(void *state, struct nd_error *err)
{
    struct counter *c = state;
    struct nd_reader *r = &c->reader;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_unit,
                                             .make = nd_reader_try_unit,
                                             .given = r->given,
                                             .missed = nd_exact_let_go};
    enum nd_status status = nd_reader_device(r, 0, err);
    nd_unit_trial_begin(&r->trial);
    return status == ND_OK ? nd_exact_graph_run(r->plan->graph, r->inputs, &options, NULL, c, err) : status;
}

static enum nd_status begin(void *state, void *context, struct nd_error *err)
{
    struct counter *c = state;
    size_t n = c->reader.plan->n_steps;
    c->count = context;
    c->tallies = nd_calloc(n, sizeof *c->tallies);
    c->as_whole = nd_calloc(n, sizeof *c->as_whole);
    c->is_double = nd_calloc(n, sizeof *c->is_double);
    return c->tallies != NULL && c->as_whole != NULL && c->is_double != NULL ? ND_OK : nd_fail_memory(err);
}

static void end(void *state, void *context)
{
    struct counter *c = state;
    const struct count *count = context;
    bool is_made = c->tallies != NULL && c->as_whole != NULL && c->is_double != NULL;
    for (size_t s = 0; s < count->device->n_units && is_made; s++) {
        struct nd_identified_unit *unit = &count->device->units[s];
        nd_identify_merge(&c->tallies[s], &unit->tally);
        nd_unit_tally_merge(&c->as_whole[s], &unit->as_whole);
        unit->is_double = unit->is_double || c->is_double[s];
    }
    free(c->tallies);
    free(c->as_whole);
    free(c->is_double);
}

/* ---- a probe ---- */

static enum nd_status make_unit(const struct nd_plan *plan, size_t step, struct nd_identified_unit *unit,
                                struct nd_error *err)
{
    const struct nd_explained_step *from = &plan->steps[step];
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
        nd_exact_accumulator_steps(plan->graph, from->edge, &unit->steps, &unit->n_steps, &none);
    if (unit->n_steps == 0)
        unit->specified = nd_specified_sum_of(plan->model, from->edge);
    return status == ND_ERR_MEMORY ? nd_fail_memory(err) : ND_OK; /* else it has no accumulator */
}

static enum nd_status make_units(const struct nd_plan *plan, struct nd_identified_device *device,
                                 struct nd_error *err)
{
    if (device->units != NULL)
        return ND_OK;
    device->units = nd_calloc(plan->n_steps, sizeof *device->units);
    if (device->units == NULL)
        return nd_fail_memory(err);
    device->n_units = plan->n_steps;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
        status = make_unit(plan, s, &device->units[s], err);
    return status;
}

/* Units that cannot be looked at in this probe. What changes from run to run has no one program: what was
 * counted in earlier probes is dropped. */
static enum nd_status note_units(const struct nd_plan *plan, struct nd_identified_device *device,
                                 struct nd_error *err)
{
    for (size_t s = 0; s < device->n_units; s++) {
        struct nd_identified_unit *unit = &device->units[s];
        const struct nd_planned_unit *found = &plan->sources[0].units[s];
        if (!unit->is_unit)
            continue;
        if (nd_plan_differs_by_run(plan, 0, s)) {
            unit->has_fed = unit->has_fed || !nd_plan_inputs_repeat(plan, 0, s);
            unit->is_changing = true;
            unit->tally = (struct nd_identify_tally){0};
            unit->as_whole = (struct nd_unit_tally){.n = {0}};
        }
        if (found->is_examined || unit->why_not != NULL)
            continue;
        unit->why_not = nd_strdup(found->why_not);
        if (unit->why_not == NULL)
            return nd_fail_memory(err);
    }
    return ND_OK;
}

static enum nd_status count_probe(const struct nd_plan *plan, struct nd_identified_device *device,
                                  struct nd_error *err)
{
    struct count count = {plan, device};
    const struct nd_replay replay = {.plan = plan,
                                     .span = {0, plan->n_samples},
                                     .state_bytes = sizeof(struct counter),
                                     .context = &count,
                                     .begin = begin,
                                     .run = run_sample,
                                     .end = end};
    return nd_replay_run(&replay, err);
}

static enum nd_status describe(const struct nd_capture *capture, struct nd_identified_device *device,
                               struct nd_error *err)
{
    const char *uri = nd_capture_string(capture, "device", "uri");
    const char *chipset = nd_capture_string(capture, "device", "chipset");
    if (device->uri != NULL)
        return ND_OK;
    device->uri = nd_strdup(uri != NULL ? uri : "?");
    device->chipset = nd_strdup(chipset != NULL ? chipset : "");
    device->capture = nd_strdup(nd_capture_path(capture));
    if (device->uri == NULL || device->chipset == NULL || device->capture == NULL)
        return nd_fail_memory(err);
    return nd_capture_state(capture) == ND_CAPTURE_FAILED ? nd_plan_failure(capture, &device->failure, err)
                                                          : ND_OK;
}

static enum nd_status add_probe(const struct nd_plan *plan, struct nd_identified_device *device,
                                struct nd_error *err)
{
    char *name = nd_strdup(plan->probe);
    if (name == NULL)
        return nd_fail_memory(err);
    device->probes[device->n_probes++] = (struct nd_identified_probe){name, plan->n_samples};
    device->n_samples += plan->n_samples;
    return ND_OK;
}

/* name NULL: one that plan.c finds, or says why there is none. */
static enum nd_status identify_probe(const struct nd_model *model, const struct nd_capture *capture,
                                     const char *name, const struct nd_identify_options *options,
                                     struct nd_identified_device *device, struct nd_error *err)
{
    const struct nd_question question = {model, NULL, &capture, 1};
    const struct nd_explain_options asked = {.struct_size = sizeof asked,
                                             .probe = name,
                                             .n_threads = options->n_threads,
                                             .n_samples =
                                                 options->n_samples > 0 ? options->n_samples : DEFAULT_SAMPLES};
    struct nd_plan plan = {0};
    enum nd_status status = nd_plan_make(&plan, &question, &asked, err);
    if (status == ND_OK)
        status = describe(capture, device, err);
    if (status == ND_OK && device->failure == NULL) {
        status = make_units(&plan, device, err);
        if (status == ND_OK)
            status = note_units(&plan, device, err);
        if (status == ND_OK)
            status = count_probe(&plan, device, err);
        if (status == ND_OK)
            status = add_probe(&plan, device, err);
    }
    nd_plan_deinit(&plan);
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
    return status == ND_OK && device->failure == NULL ? nd_identify_answer(device, err) : status;
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
        free(device->units[s].answer);
    }
    free(device->units);
    free(device->types);
    free(device->answer);
    free(device->uri);
    free(device->chipset);
    free(device->capture);
    free(device->failure);
}

void nd_identification_destroy(struct nd_identification **identification)
{
    struct nd_identification *all = *identification;
    if (all == NULL)
        return;
    for (size_t d = 0; d < all->n_devices; d++)
        deinit_device(&all->devices[d]);
    free(all->devices);
    free(all);
    *identification = NULL;
}

enum nd_status nd_identify_captures(const struct nd_model *model, const struct nd_capture *const *captures,
                                    size_t n_captures, const struct nd_identify_options *options,
                                    struct nd_identification **out, struct nd_error *err)
{
    struct nd_identify_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    struct nd_identification *all = nd_calloc(1, sizeof *all);
    if (all == NULL)
        return nd_fail_memory(err);
    all->devices = nd_calloc(n_captures, sizeof *all->devices);
    status = all->devices != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t d = 0; d < n_captures && status == ND_OK; d++)
        status = identify_capture(model, captures[d], &own, &all->devices[all->n_devices++], err);
    if (status == ND_OK)
        *out = all;
    else
        nd_identification_destroy(&all);
    return status;
}
