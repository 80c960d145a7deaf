/* Which part of a device's error each layer makes itself, which part it inherits, and what is quantisation:
 * sums over the samples, in their order. */
#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/stages.h"

static void add_part(const struct nd_part_sums *from, struct nd_explained_part *to)
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

static void sum_unit(const struct nd_evaluation *evaluation, struct nd_explanation *out, size_t device,
                     size_t step)
{
    struct nd_explained_unit *unit = &out->devices[device].units[step];
    double n_harm = 0, n_harmed = 0, harm = 0;
    bool is_harm_known = unit->is_examined;
    for (size_t i = 0; i < evaluation->plan->n_samples; i++) {
        const struct nd_sums *s = nd_sums_of(evaluation, i, device, step);
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
    nd_explain_quality_of_step(evaluation, device, step, out);
}

/* The edges of the unit's inputs have been summed: they come before it. */
static double gain_of(const struct nd_plan *plan, const struct nd_explained_device *device, size_t step)
{
    const struct nd_model_unit *unit = nd_plan_unit(plan, step);
    double energy = 0;
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = plan->step_of_edge[unit->inputs[i]];
        if (input != SIZE_MAX && device->units[input].has_total)
            energy += device->units[input].total.energy * (double)device->units[input].n_codes;
    }
    const struct nd_explained_unit *out = &device->units[step];
    return energy > 0 && out->is_examined ? out->inherited.energy * (double)out->n_codes / energy : NAN;
}

static enum nd_status attribute_device(const struct nd_evaluation *evaluation, size_t d,
                                       struct nd_explanation *out, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    struct nd_explained_device *device = &out->devices[d];
    if (plan->sources[d].is_failed) {
        device->own_share = NAN;
        return nd_explain_bootstrap(NULL, 0, device, err);
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        sum_unit(evaluation, out, d, s);
        device->units[s].gain = gain_of(plan, device, s);
    }
    enum nd_status status = nd_explain_find_reused(plan, d, out, err);
    for (size_t s = 0; s < plan->n_steps; s++)
        device->n_examined += device->units[s].is_examined;
    device->n_not_examined = plan->n_steps - device->n_examined;
    return status == ND_OK ? nd_explain_quality_of_output(evaluation, d, out, err) : status;
}

enum nd_status nd_explain_attribute(const struct nd_evaluation *evaluation, struct nd_explanation *out,
                                    struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < plan->n_steps; s++)
        for (size_t i = 0; i < plan->n_samples; i++)
            out->steps[s].is_double |= nd_reference_sums_of(evaluation, i, s)->is_double;
    if (plan->n_samples > 0)
        status = nd_explain_conclude_vote(evaluation, out, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++)
        status = attribute_device(evaluation, d, out, err);
    return status;
}
