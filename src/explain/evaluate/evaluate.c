/* One sample: the references once, then the model on every device's own codes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "arithmetic/exact/linear/rounding.h"
#include "explain/evaluate/evaluator.h"

/* ---- the references ---- */

/* False: the edge changes its shape from sample to sample. */
static bool keep(const struct nd_array *values, struct nd_array *to)
{
    if (values->n != to->n)
        return false;
    if (values->n > 0)
        memcpy(to->x, values->x, values->n * sizeof *values->x);
    return true;
}

/* The same of codes, with the shape and type that the edge has in the plan. */
static enum nd_status keep_packed(const struct nd_array *values, struct nd_packed *to, bool *is_kept,
                                  struct nd_error *err)
{
    struct nd_array view = to->husk;
    *is_kept = values->n == to->husk.n;
    view.x = values->x;
    return *is_kept ? nd_pack(&view, to, err) : ND_OK;
}

static enum nd_status found_reference(void *context, size_t edge, const struct nd_array *values,
                                      enum nd_exact_way way, struct nd_error *err)
{
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_edge[edge];
    struct nd_reference_sums *sums = nd_reference_of(w, step);
    bool is_kept;
    /* The quantisation of an input is ONNX's own operator, whatever way it takes. */
    sums->is_double = way == ND_EXACT_AS_DOUBLE && w->reader.plan->steps[step].is_unit;
    enum nd_status status = keep_packed(values, &w->reference[step], &is_kept, err);
    sums->is_missed = !is_kept;
    return status;
}

/* What is taken from a capture goes on as if it had been computed. */
static enum nd_status missed_reference(void *context, size_t edge, const struct nd_error *why,
                                       struct nd_error *err)
{
    (void)why;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_edge[edge];
    bool is_kept = false;
    enum nd_status status = ND_OK;
    if (w->reader.plan->steps[step].taken_from != SIZE_MAX)
        status = keep_packed(&w->taken[edge], &w->reference[step], &is_kept, err);
    nd_reference_of(w, step)->is_missed = !is_kept;
    return status;
}

static enum nd_status found_float(void *context, size_t edge, const struct nd_array *values,
                                  enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_float[edge];
    if (step != SIZE_MAX)
        nd_reference_of(w, step)->is_float_missed = !keep(values, &w->error[step]);
    return ND_OK;
}

static enum nd_status missed_float(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_evaluator *w = context;
    size_t step = w->reader.plan->step_of_float[edge];
    if (step != SIZE_MAX)
        nd_reference_of(w, step)->is_float_missed = true;
    return ND_OK;
}

static enum nd_status run_references(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    const struct nd_exact_options options = {
        .struct_size = sizeof options, .given = w->taken, .missed = missed_reference};
    const struct nd_exact_options of_floats = {.struct_size = sizeof options, .missed = missed_float};
    nd_taken_load(&w->reader, w->taken);
    enum nd_status status =
        nd_exact_graph_run(plan->graph, w->reader.inputs, &options, found_reference, w, err);
    if (status == ND_OK && plan->float_graph != NULL)
        status = nd_exact_graph_run(plan->float_graph, w->float_inputs, &of_floats, found_float, w, err);
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++)
        if (plan->steps[s].has_float && !nd_reference_of(w, s)->is_missed &&
            !nd_reference_of(w, s)->is_float_missed)
            nd_take_error(w, s);
    return status;
}

/* ---- a device ---- */

/* The quantised reference's rounding; and which programs would have given what the device has. */
static enum nd_status round_device(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                   struct nd_error *err)
{
    (void)err;
    struct nd_evaluator *w = context;
    struct nd_reader *r = &w->reader;
    size_t step = r->plan->step_of_edge[values->edge], at = r->device * r->plan->n_steps + step;
    const struct nd_array *given = nd_reader_given(r, values->edge);
    nd_round_half_even(values, codes);
    if (!r->plan->sources[r->device].units[step].is_examined || given->n != values->n)
        return ND_OK;
    nd_code_tally_add(&w->tally[at], values, given->x);
    if (r->trial.edge == values->edge)
        nd_unit_trial_count(&r->trial, given->x, codes->x, values->n, &w->unit_tally[at]);
    return ND_OK;
}

static void give_device(void *context, size_t edge, double *out)
{
    const struct nd_evaluator *w = context;
    nd_reader_give(&w->reader, edge, out);
}

static enum nd_status found_device(void *context, size_t edge, const struct nd_array *values,
                                   enum nd_exact_way way, struct nd_error *err)
{
    struct nd_evaluator *w = context;
    const struct nd_plan *plan = w->reader.plan;
    size_t step = plan->step_of_edge[edge];
    const struct nd_planned_unit *unit = &plan->sources[w->reader.device].units[step];
    if (!unit->has_total && !unit->is_examined)
        return ND_OK;
    if (nd_reference_of(w, step)->is_missed) /* nobody else has said it */
        nd_reference_of(w, step)->is_double = way == ND_EXACT_AS_DOUBLE && plan->steps[step].is_unit;
    bool is_kept = values->n == w->reference[step].husk.n;
    nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, step)->is_missed = !is_kept;
    if (!is_kept)
        return ND_OK;
    nd_add_unit(w, step, values);
    return nd_is_harm_sample(plan, w->reader.sample) ? nd_inject_error(w, step, values, err) : ND_OK;
}

static enum nd_status missed_device(void *context, size_t edge, const struct nd_error *why,
                                    struct nd_error *err)
{
    (void)why;
    (void)err;
    struct nd_evaluator *w = context;
    nd_sums_of(w->evaluation, w->reader.sample, w->reader.device, w->reader.plan->step_of_edge[edge])
        ->is_missed = true;
    return ND_OK;
}

static enum nd_status run_device(struct nd_evaluator *w, size_t device, struct nd_error *err)
{
    struct nd_reader *r = &w->reader;
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .round = round_device,
                                             .takes_quick = true,
                                             .make = nd_reader_try_unit,
                                             .given = r->given,
                                             .give = give_device,
                                             .missed = missed_device};
    enum nd_status status = nd_reader_device(r, device, err);
    nd_unit_trial_begin(&r->trial);
    if (status == ND_OK)
        status = nd_exact_graph_run(r->plan->graph, r->inputs, &options, found_device, w, err);
    return status;
}

/* Where chipsets share a lineage, one of them is worked out. */
static enum nd_status run_sample(void *state, struct nd_error *err)
{
    struct nd_evaluator *w = state;
    const struct nd_plan *plan = w->reader.plan;
    enum nd_status status = run_references(w, err);
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++) {
        if (!nd_plan_is_worked_out(plan, d))
            continue;
        status = run_device(w, d, err);
        if (status == ND_OK && nd_is_harm_sample(plan, w->reader.sample))
            status = nd_measure_harm(w, err);
    }
    if (status == ND_OK)
        nd_count_ballots(w);
    return status;
}

/* ---- a thread ---- */

static enum nd_status make_steps(struct nd_evaluator *w, struct nd_error *err)
{
    const struct nd_plan *plan = w->reader.plan;
    enum nd_status status = ND_OK;
    size_t most = 0;
    for (size_t s = 0; s < plan->n_steps && status == ND_OK; s++) {
        struct nd_array *husk = &w->reference[s].husk;
        *husk = (struct nd_array){.shape = plan->shapes[s], .dtype = nd_plan_edge(plan, s)->dtype};
        status = nd_shape_n_elems(&husk->shape, &husk->n, err);
        w->injected[s].husk = *husk;
        if (status == ND_OK && plan->steps[s].has_float)
            status = nd_array_make_room(&w->error[s], ND_DTYPE_F64, &plan->shapes[s], err);
        most = husk->n > most ? husk->n : most;
        if (plan->steps[s].is_model_output && husk->n > w->ballot_n)
            w->ballot_n = husk->n;
    }
    if (status != ND_OK)
        return status;
    w->step.x = nd_tensor_room(most * sizeof *w->step.x);
    return w->step.x != NULL ? nd_reader_be_lazy(&w->reader, err) : nd_fail_memory(err);
}

static enum nd_status make_ballots(struct nd_evaluator *w, struct nd_error *err)
{
    size_t n;
    if (!nd_size_mul(w->ballot_n, w->reader.plan->n_devices, &n))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "an output is too large");
    w->ballots = nd_calloc(n, sizeof *w->ballots);
    return w->ballots != NULL || n == 0 ? ND_OK : nd_fail_memory(err);
}

static enum nd_status begin(void *state, void *context, struct nd_error *err)
{
    struct nd_evaluator *w = state;
    const struct nd_plan *plan = w->reader.plan;
    size_t n_units = plan->n_devices * plan->n_steps;
    size_t n_float = plan->float_model != NULL ? nd_model_n_inputs(plan->float_model) : 0;
    w->evaluation = context;
    w->float_inputs = nd_calloc(n_float, sizeof *w->float_inputs);
    w->reference = nd_calloc(plan->n_steps, sizeof *w->reference);
    w->error = nd_calloc(plan->n_steps, sizeof *w->error);
    w->injected = nd_calloc(plan->n_steps, sizeof *w->injected);
    w->is_below = nd_calloc(nd_model_n_edges(plan->model), sizeof *w->is_below);
    w->voters = nd_calloc(plan->n_devices, sizeof *w->voters);
    w->tally = nd_calloc(n_units, sizeof *w->tally);
    w->unit_tally = nd_calloc(n_units, sizeof *w->unit_tally);
    if (w->float_inputs == NULL || w->reference == NULL || w->error == NULL || w->injected == NULL ||
        w->is_below == NULL || w->voters == NULL || w->tally == NULL || w->unit_tally == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_float; i++)
        w->float_inputs[i] = w->reader.inputs[plan->float_inputs[i]];
    enum nd_status status = make_steps(w, err);
    if (status == ND_OK && w->evaluation->units != NULL)
        status = nd_ripple_init(&w->ripple, plan, w->evaluation->units, err);
    if (status == ND_OK)
        status = nd_taken_make(plan, &w->taken, err);
    return status == ND_OK ? make_ballots(w, err) : status;
}

/* Its tallies go into the whole. */
static void end(void *state, void *context)
{
    struct nd_evaluator *w = state;
    struct nd_evaluation *evaluation = context;
    const struct nd_plan *plan = evaluation->plan;
    for (size_t k = 0; k < plan->n_devices * plan->n_steps && w->tally != NULL && w->unit_tally != NULL; k++) {
        nd_code_tally_merge(&w->tally[k], &evaluation->tally[k]);
        nd_unit_tally_merge(&w->unit_tally[k], &evaluation->unit_tally[k]);
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        if (w->reference != NULL)
            nd_packed_deinit(&w->reference[s]);
        if (w->injected != NULL)
            nd_packed_deinit(&w->injected[s]);
        if (w->error != NULL)
            nd_array_deinit(&w->error[s]);
    }
    nd_ripple_deinit(&w->ripple);
    nd_taken_free(plan, &w->taken);
    free(w->float_inputs);
    free(w->reference);
    free(w->error);
    free(w->injected);
    nd_array_deinit(&w->step);
    free(w->is_below);
    free(w->ballots);
    free(w->voters);
    free(w->tally);
    free(w->unit_tally);
}

/* ---- all of it ---- */

/* What was worked out for another capture with the same codes. */
static void share_results(struct nd_evaluation *evaluation, size_t device)
{
    const struct nd_plan *plan = evaluation->plan;
    size_t from = plan->sources[device].same_as, n = plan->n_steps;
    if (from == device)
        return;
    memcpy(evaluation->tally + device * n, evaluation->tally + from * n, n * sizeof *evaluation->tally);
    memcpy(evaluation->unit_tally + device * n, evaluation->unit_tally + from * n,
           n * sizeof *evaluation->unit_tally);
    for (size_t i = 0; i < plan->n_samples; i++)
        memcpy(nd_sums_of(evaluation, i, device, 0), nd_sums_of(evaluation, i, from, 0),
               n * sizeof *evaluation->sums);
}

enum nd_status nd_evaluate(struct nd_evaluation *evaluation, struct nd_span span,
                           const struct nd_explain_options *options, struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    const struct nd_replay replay = {.plan = plan,
                                     .span = span,
                                     .state_bytes = sizeof(struct nd_evaluator),
                                     .context = evaluation,
                                     .begin = begin,
                                     .run = run_sample,
                                     .end = end,
                                     .progress = options->progress,
                                     .progress_context = options->progress_context,
                                     .is_cancelled = options->is_cancelled,
                                     .cancel_context = options->cancel_context};
    enum nd_status status =
        plan->n_harm_samples > 0 ? nd_ripple_find_units(plan, &evaluation->units, err) : ND_OK;
    if (status == ND_OK)
        status = nd_replay_run(&replay, err);
    nd_byte_units_destroy(&evaluation->units);
    return status;
}

void nd_evaluate_finish(struct nd_evaluation *evaluation)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t k = 0; k < plan->n_devices * plan->n_steps; k++)
        nd_code_tally_finish(&evaluation->tally[k]);
    for (size_t d = 0; d < plan->n_devices; d++)
        share_results(evaluation, d);
}
