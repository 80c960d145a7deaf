#include "replay/evaluator.h"

#include <math.h>

#include "base/error.h"

/* Samples 0, n/k, 2n/k, ...: of a probe in order of classes some of each. */
bool nd_is_harm_sample(const struct nd_plan *plan, size_t sample)
{
    size_t k = plan->n_harm_samples, n = plan->n_samples;
    return sample * k / n != (sample + 1) * k / n;
}

static bool depends_on(const struct nd_plan *plan, const bool *is_below, size_t step)
{
    const struct nd_model_unit *unit = nd_unit_of_edge(plan->model, plan->steps[step].edge);
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = plan->step_of_edge[unit->inputs[i]];
        if (input != SIZE_MAX && is_below[unit->inputs[i]])
            return true;
    }
    return unit == NULL && !nd_model_edge(plan->model, plan->steps[step].edge)->is_model_input;
}

static bool has_reference(const struct nd_evaluator *w, size_t step)
{
    return !nd_reference_sums_of(w->evaluation, w->reader.sample, step)->is_missed;
}

/* Of what is given, only what something below reads is needed. */
static void ignore_unread(struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    bool *is_ignored = w->reader.is_ignored;
    for (size_t s = 0; s < plan->n_steps; s++)
        is_ignored[plan->steps[s].edge] = w->reader.is_skipped[plan->steps[s].edge];
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_model_unit *unit = nd_unit_of_edge(plan->model, plan->steps[s].edge);
        for (size_t i = 0; unit != NULL && w->is_below[plan->steps[s].edge] && i < unit->n_inputs; i++)
            is_ignored[unit->inputs[i]] = false;
    }
}

/* Gives the reference's codes of all that does not depend on the step, and the rest is computed. Whether an
 * output is among the rest; *is_known: whether every such output has a reference. */
static bool give_reference(struct nd_evaluator *w, size_t step, bool *is_known)
{
    const struct nd_plan *plan = w->reader.plan;
    bool reaches_output = false, *is_below = w->is_below;
    *is_known = true;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t edge = plan->steps[s].edge;
        is_below[edge] = s == step || (s > step && depends_on(plan, is_below, s));
        bool is_given = s == step || (!is_below[edge] && has_reference(w, s));
        w->reader.chain[edge] = is_given ? w->reference[s] : nd_no_array();
        w->reader.is_skipped[edge] = is_given;
        if (!plan->steps[s].is_model_output || !is_below[edge])
            continue;
        reaches_output = true;
        *is_known = *is_known && has_reference(w, s);
    }
    ignore_unread(w);
    return reaches_output;
}

static enum nd_status found_harmed(void *context, size_t edge, const struct nd_array *values,
                                   enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    struct nd_evaluator *w = context;
    const struct nd_plan *plan = w->reader.plan;
    size_t step = plan->step_of_edge[edge];
    if (step == w->harmful || !plan->steps[step].is_model_output || !has_reference(w, step))
        return ND_OK;
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, w->harmful);
    if (values->n != w->reference[step].n) {
        sums->is_harm_missed = true;
        return ND_OK;
    }
    for (size_t i = 0; i < values->n; i++) {
        double d = values->x[i] - w->reference[step].x[i];
        sums->n_harmed += d != 0;
        sums->harm_energy += d * d;
    }
    return ND_OK;
}

static enum nd_status missed_harmed(void *context, size_t edge, const struct nd_error *why,
                                    struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_edge[edge];
    if (w->reader.plan->steps[step].is_model_output && has_reference(w, step))
        nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, w->harmful)->is_harm_missed = true;
    return ND_OK;
}

/* reference + local error, within the type; the energy is known when the unit is itself an output. */
static void add_local_error(struct nd_evaluator *w, size_t step, struct nd_array *codes)
{
    const struct nd_plan *plan = w->reader.plan;
    size_t edge = plan->steps[step].edge;
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    double low, high;
    nd_code_range(w->reference[step].dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++) {
        double ref = w->reference[step].x[i];
        double code = ref + w->reader.given[edge].x[i] - w->own[step].x[i];
        codes->x[i] = fmin(fmax(code, low), high);
        double d = plan->steps[step].is_model_output ? codes->x[i] - ref : 0;
        sums->n_harmed += d != 0;
        sums->harm_energy += d * d;
    }
}

static enum nd_status measure_step(struct nd_evaluator *w, size_t step, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_exact_options options = {
        .struct_size = sizeof options,
        .given = w->reader.chain,
        .is_skipped = w->reader.is_skipped,
        .is_ignored = nd_exact_graph_is_pure(plan->graph) ? w->reader.is_ignored : NULL,
        .missed = missed_harmed};
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    sums->is_harm_missed = sums->is_missed || !has_reference(w, step);
    for (size_t s = 0; s < plan->n_steps; s++)
        if (plan->steps[s].is_model_output && has_reference(w, s))
            sums->n_harm_codes += w->reference[s].n;
    if (sums->is_harm_missed || sums->local.n_differing == 0)
        return ND_OK;
    bool is_known, reaches_output = give_reference(w, step, &is_known);
    sums->is_harm_missed = !is_known;
    /* The device's own codes of the sample are read again where they are needed: `own` is free now. */
    add_local_error(w, step, &w->own[step]);
    w->reader.chain[plan->steps[step].edge] = w->own[step];
    w->harmful = step;
    return reaches_output && is_known
               ? nd_exact_graph_run(plan->graph, w->reader.inputs, &options, found_harmed, w, err)
               : ND_OK;
}

enum nd_status nd_measure_harm(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
        if (plan->sources[w->reader.device].units[s].is_examined && plan->steps[s].is_unit)
            status = measure_step(w, s, err);
    return status;
}
