#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "explain/vote.h"

static void add_part(const struct nd_explain_part_sums *from, struct nd_explained_part *to)
{
    to->n_differing += from->n_differing;
    to->max = fmax(to->max, from->max);
    to->mean += from->sum;
    to->energy += from->energy;
}

static void finish_part(struct nd_explained_part *part, uint64_t n, bool is_known)
{
    part->mean = is_known && n > 0 ? part->mean / (double)n : NAN;
    part->energy = is_known && n > 0 ? part->energy / (double)n : NAN;
    part->max = is_known ? part->max : NAN;
}

/* One rounding of a value in double precision next to a tie may fall either way; and a device in float32 that
 * does what it does everywhere is as good as it can be. */
static bool is_within_step(const struct nd_explained_step *step, const struct nd_explained_unit *unit,
                           const struct nd_explain_habit *habit)
{
    if (unit->local.n_differing > 0 && habit->program != SIZE_MAX && nd_explain_is_plain(habit->program))
        return habit->follows && unit->local.max <= 1;
    return step->is_double && unit->local.n_differing > 0 && unit->local.max <= 1 &&
           (double)unit->local.n_differing < 0.01 * (double)unit->n_codes;
}

static void sum_unit(const struct nd_explain_job *job, size_t device, size_t step)
{
    struct nd_explained_unit *unit = &job->out->devices[device].units[step];
    double n_harm = 0, n_harmed = 0, harm = 0;
    bool is_harm_known = unit->is_examined;
    for (size_t i = 0; i < job->n_samples; i++) {
        const struct nd_explain_sums *s = &job->sums[(i * job->n_devices + device) * job->n_steps + step];
        unit->n_codes += s->n_codes;
        unit->n_violations += s->n_violations;
        add_part(&s->local, &unit->local);
        add_part(&s->inherited, &unit->inherited);
        add_part(&s->total, &unit->total);
        n_harm += (double)s->n_harm_codes;
        n_harmed += (double)s->n_harmed;
        harm += s->harm_energy;
        is_harm_known = is_harm_known && !s->is_harm_missed;
    }
    unit->harm = is_harm_known && n_harm > 0 ? harm / n_harm : NAN;
    unit->harmed_share = is_harm_known && n_harm > 0 ? n_harmed / n_harm : NAN;
    finish_part(&unit->local, unit->n_codes, unit->is_examined);
    finish_part(&unit->inherited, unit->n_codes, unit->is_examined && unit->has_total);
    finish_part(&unit->total, unit->n_codes, unit->has_total);
    unit->explained_fraction = NAN;
    nd_explain_quality_of_step(job, device, step, &unit->quality);
}

/* The edges of the unit's inputs have been summed: they come before it. */
static double gain_of(const struct nd_explain_job *job, const struct nd_explained_device *device, size_t step)
{
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, job->out->steps[step].edge);
    double energy = 0;
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        if (input != SIZE_MAX && device->units[input].has_total)
            energy += device->units[input].total.energy * (double)device->units[input].n_codes;
    }
    const struct nd_explained_unit *out = &device->units[step];
    return energy > 0 && out->is_examined ? out->inherited.energy * (double)out->n_codes / energy : NAN;
}

static bool has_local(const struct nd_explained_unit *unit)
{
    return unit->is_examined && unit->local.n_differing > 0 && !unit->is_within_step;
}

/* Whether something that the step depends on has local mismatches; is_below[] of earlier steps says it of
 * those. What floats between units are made of is not known: it may be everything before them. */
static bool has_ancestor(const struct nd_explain_job *job, const struct nd_explained_device *device,
                         const bool *is_below, size_t step)
{
    const struct nd_explained_step *s = &job->out->steps[step];
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, s->edge);
    bool is_input = nd_model_edge(job->model, s->edge)->is_model_input;
    bool found = false;
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        found = found || (input != SIZE_MAX && (is_below[input] || has_local(&device->units[input])));
    }
    for (size_t i = 0; unit == NULL && !is_input && i < step; i++)
        found = found || has_local(&device->units[i]);
    return found;
}

static enum nd_status find_sources(const struct nd_explain_job *job, struct nd_explained_device *device,
                                   struct nd_error *err)
{
    bool *is_below = nd_calloc(job->n_steps, sizeof *is_below);
    device->sources = nd_calloc(job->n_steps, sizeof *device->sources);
    if (is_below == NULL || device->sources == NULL) {
        free(is_below);
        return nd_fail_memory(err);
    }
    for (size_t s = 0; s < job->n_steps; s++) {
        is_below[s] = has_ancestor(job, device, is_below, s);
        device->units[s].is_source = has_local(&device->units[s]) && !is_below[s];
        if (device->units[s].is_source)
            device->sources[device->n_sources++] = s;
    }
    free(is_below);
    return ND_OK;
}

static enum nd_verdict verdict_of(const struct nd_explained_device *device, size_t n_steps)
{
    bool is_within = false;
    for (size_t s = 0; s < n_steps; s++)
        is_within = is_within || device->units[s].is_within_step;
    if (device->n_sources > 0)
        return ND_VERDICT_DIFFERS;
    if (device->n_examined == 0 || device->n_not_examined > 0)
        return ND_VERDICT_INCONCLUSIVE;
    return is_within ? ND_VERDICT_WITHIN : ND_VERDICT_SAME;
}

static enum nd_status conclude_device(struct nd_explain_job *job, size_t d, struct nd_error *err)
{
    struct nd_explained_device *device = &job->out->devices[d];
    if (job->sources[d].is_failed) {
        device->verdict = ND_VERDICT_FAILED;
        device->own_share = NAN;
        return nd_explain_bootstrap(NULL, 0, device, err);
    }
    for (size_t s = 0; s < job->n_steps; s++) {
        sum_unit(job, d, s);
        device->units[s].gain = gain_of(job, device, s);
    }
    enum nd_status status = nd_explain_find_reused(job, d, err);
    for (size_t s = 0; s < job->n_steps; s++)
        device->n_examined += device->units[s].is_examined;
    device->n_not_examined = job->n_steps - device->n_examined;
    if (status == ND_OK)
        status = nd_explain_judge(job, d, err);
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++)
        device->units[s].is_within_step =
            device->units[s].is_examined &&
            is_within_step(&job->out->steps[s], &device->units[s], &job->habits[d * job->n_steps + s]);
    if (status == ND_OK)
        status = find_sources(job, device, err);
    if (status == ND_OK)
        status = nd_explain_quality_of_output(job, d, err);
    device->verdict = verdict_of(device, job->n_steps);
    return status;
}

enum nd_status nd_explain_conclude(struct nd_explain_job *job, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps; s++)
        for (size_t i = 0; i < job->n_samples; i++)
            job->out->steps[s].is_double |= job->reference[i * job->n_steps + s].is_double;
    if (job->n_samples > 0)
        status = nd_explain_conclude_vote(job, err);
    for (size_t d = 0; d < job->n_devices && status == ND_OK; d++) {
        status = conclude_device(job, d, err);
        if (job->out->devices[d].verdict > job->out->verdict)
            job->out->verdict = job->out->devices[d].verdict;
    }
    if (status == ND_OK && job->n_samples > 0)
        status = nd_explain_find_differences(job, err);
    return status;
}
