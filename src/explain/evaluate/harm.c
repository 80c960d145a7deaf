#include "explain/evaluate/evaluator.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/linear/rounding.h"

/* Samples 0, n/k, 2n/k, ...: of a probe in order of classes some of each. */
bool nd_is_harm_sample(const struct nd_plan *plan, size_t sample)
{
    size_t k = plan->n_harm_samples, n = plan->n_samples;
    return sample * k / n != (sample + 1) * k / n;
}

static bool depends_on(const struct nd_plan *plan, const bool *is_below, size_t step)
{
    const struct nd_model_unit *unit = nd_model_unit_of_edge(plan->model, plan->steps[step].edge);
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
        const struct nd_model_unit *unit = nd_model_unit_of_edge(plan->model, plan->steps[s].edge);
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
        w->reader.chain[edge] = is_given ? w->reference[s].husk : nd_no_array();
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
    if (values->n != w->reference[step].husk.n) {
        sums->is_harm_missed = true;
        return ND_OK;
    }
    const struct nd_array *reference = nd_reference_array(w, step);
    for (size_t i = 0; i < values->n; i++) {
        double d = values->x[i] - reference->x[i];
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

/* reference + local error, within the type. */
enum nd_status nd_inject_error(struct nd_evaluator *w, size_t step, const struct nd_array *own,
                               struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_planned_unit *unit = &plan->sources[w->reader.device].units[step];
    const struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    double low, high;
    if (!plan->steps[step].is_unit || !unit->is_examined || sums->local.n_differing == 0 ||
        !has_reference(w, step))
        return ND_OK;
    const struct nd_array *codes = nd_reference_array(w, step),
                          *given = nd_reader_given(&w->reader, plan->steps[step].edge);
    nd_code_range(codes->dtype, &low, &high);
    for (size_t i = 0; i < codes->n; i++)
        codes->x[i] = nd_within(codes->x[i] + given->x[i] - own->x[i], low, high);
    return nd_pack(codes, &w->injected[step], err);
}

static void give_chain(void *context, size_t edge, double *out)
{
    const struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_edge[edge];
    nd_unpack(step == w->harmful ? &w->injected[step] : &w->reference[step], out);
}

/* What the local error of an output is to the outputs. */
static enum nd_status add_own_harm(struct nd_evaluator *w, size_t step, struct nd_sums *sums,
                                   struct nd_error *err)
{
    const struct nd_array *reference = nd_reference_array(w, step);
    double *codes = nd_calloc(reference->n, sizeof *codes);
    if (codes == NULL)
        return nd_fail_memory(err);
    nd_unpack(&w->injected[step], codes);
    for (size_t i = 0; i < reference->n; i++) {
        double d = codes[i] - reference->x[i];
        sums->n_harmed += d != 0;
        sums->harm_energy += d * d;
    }
    free(codes);
    return ND_OK;
}

/* Whether every step has a reference that was evaluated: then a run has all that it reads. */
static bool has_all_references(const struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    bool has_all = w->ripple.plan != NULL;
    for (size_t s = 0; s < plan->n_steps && has_all; s++)
        has_all = has_reference(w, s) && plan->steps[s].taken_from == SIZE_MAX;
    return has_all;
}

static enum nd_status follow_ripple(struct nd_evaluator *w, size_t step, struct nd_sums *sums, bool *is_done,
                                    struct nd_error *err)
{
    struct nd_ripple_sums found;
    enum nd_status status =
        nd_ripple_run(&w->ripple, w->reference, step, &w->injected[step], &found, is_done, err);
    if (status == ND_OK && *is_done) {
        sums->n_harmed += found.n_changed;
        sums->harm_energy += found.energy;
    }
    return status;
}

/* What the changed values are a share of. */
static uint64_t count_output_codes(const struct nd_evaluator *w)
{
    const struct nd_plan *plan = w->reader.plan;
    uint64_t n = 0;
    for (size_t s = 0; s < plan->n_steps; s++)
        if (plan->steps[s].is_model_output && has_reference(w, s))
            n += w->reference[s].husk.n;
    return n;
}

static enum nd_status measure_step(struct nd_evaluator *w, size_t step, bool has_all, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_exact_options options = {
        .struct_size = sizeof options,
        .given = w->reader.chain,
        .give = give_chain,
        .is_skipped = w->reader.is_skipped,
        .is_ignored = nd_exact_graph_is_pure(plan->graph) ? w->reader.is_ignored : NULL,
        .missed = missed_harmed};
    struct nd_sums *sums = nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step);
    sums->is_harm_missed = sums->is_missed || !has_reference(w, step);
    if (sums->is_harm_missed || sums->local.n_differing == 0)
        return ND_OK;
    w->harmful = step;
    enum nd_status status = plan->steps[step].is_model_output ? add_own_harm(w, step, sums, err) : ND_OK;
    bool is_done = false;
    if (status == ND_OK && has_all)
        status = follow_ripple(w, step, sums, &is_done, err);
    if (status != ND_OK || is_done)
        return status;
    bool is_known, reaches_output = give_reference(w, step, &is_known);
    sums->is_harm_missed = !is_known;
    return reaches_output && is_known
               ? nd_exact_graph_run(plan->graph, w->reader.inputs, &options, found_harmed, w, err)
               : ND_OK;
}

enum nd_status nd_measure_harm(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    enum nd_status status = ND_OK;
    bool has_all = has_all_references(w);
    uint64_t n_codes = count_output_codes(w);
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
        if (plan->sources[w->reader.device].units[s].is_examined && plan->steps[s].is_unit) {
            nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, s)->n_harm_codes += n_codes;
            status = measure_step(w, s, has_all, err);
        }
    return status;
}
