/* One trial in one sample: the quantised reference is run again with the changes made. Tensors of a changed
 * range hold real values in the place of codes. */
#include "quantisation/trial_run.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "model/graph/loaded.h"
#include "explain/plan/reader.h"

enum nd_status nd_trial_worker_begin(struct nd_trial_worker *w, const struct nd_study *study,
                                     const size_t *outputs, size_t n_outputs, struct nd_error *err)
{
    const struct nd_model *model = study->plan->model;
    size_t n_edges = nd_model_n_edges(model);
    w->outputs = outputs;
    w->n_outputs = n_outputs;
    enum nd_status status = nd_loss_run_init(&w->run, study, err);
    if (status == ND_OK)
        status = nd_rerun_init(&w->cut, model, err);
    if (status == ND_OK && study->units != NULL)
        status = nd_ripple_init(&w->ripple, study->plan, study->units, err);
    w->is_given = nd_calloc(n_edges, sizeof *w->is_given);
    w->is_changed = nd_calloc(n_edges, sizeof *w->is_changed);
    w->is_real = nd_calloc(n_edges, sizeof *w->is_real);
    w->given = nd_calloc(n_edges, sizeof *w->given);
    w->replaced = nd_calloc(model->graph.n_tensors, sizeof *w->replaced);
    bool has_all = w->is_given != NULL && w->is_changed != NULL && w->is_real != NULL && w->given != NULL &&
                   w->replaced != NULL;
    return status != ND_OK ? status : has_all ? ND_OK : nd_fail_memory(err);
}

void nd_trial_worker_end(struct nd_trial_worker *w)
{
    if (w->ripple.plan != NULL)
        nd_ripple_deinit(&w->ripple);
    nd_packed_deinit(&w->packed_input);
    nd_loss_run_deinit(&w->run);
    nd_rerun_deinit(&w->cut);
    nd_array_deinit(&w->input);
    free(w->is_given);
    free(w->is_changed);
    free(w->is_real);
    free(w->given);
    free(w->replaced);
}

/* ---- the changed model ---- */

static const struct nd_change *range_of(const struct nd_trial_worker *w, size_t step)
{
    for (size_t i = 0; i < w->trial->n_changes; i++)
        if (w->trial->changes[i].is_range && w->trial->changes[i].step == step)
            return &w->trial->changes[i];
    return NULL;
}

static enum nd_status round_changed(void *context, const struct nd_exact_values *values, struct nd_array *codes,
                                    struct nd_error *err)
{
    (void)err;
    const struct nd_trial_worker *w = context;
    size_t step = w->run.study->plan->step_of_edge[values->edge];
    const struct nd_change *change = step != SIZE_MAX ? range_of(w, step) : NULL;
    if (change == NULL) {
        nd_round_half_even(values, codes);
        return ND_OK;
    }
    nd_reals_before(values, codes->x);
    nd_fit_apply_all(&change->fit, codes->x, values->n);
    codes->dtype = ND_DTYPE_F32;
    return ND_OK;
}

/* The error of what the changed model has there, against the float model; NaN where that is not known. */
static double noise_of(const struct nd_trial_worker *w, size_t step, const struct nd_array *values)
{
    const struct nd_plan *plan = w->run.study->plan;
    const struct nd_array *before = &w->run.values[step];
    const struct nd_quant *quant = &nd_plan_edge(plan, step)->quant;
    double noise = 0;
    if (before->n != values->n)
        return NAN;
    for (size_t i = 0; i < values->n; i++) {
        size_t c = quant->n > 1 ? nd_exact_channel(quant, &values->shape, i) : 0;
        double real = quant->n == 0 || w->is_real[plan->steps[step].edge]
                          ? values->x[i]
                          : (values->x[i] - (double)quant->zero_point[c]) * (double)quant->scale[c];
        noise += (real - before->x[i]) * (real - before->x[i]);
    }
    return noise;
}

static enum nd_status found_changed(void *context, size_t edge, const struct nd_array *values,
                                    enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    const struct nd_trial_worker *w = context;
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t o = 0; o < w->n_outputs; o++)
        if (plan->steps[w->outputs[o]].edge == edge)
            w->noise[o] = noise_of(w, w->outputs[o], values);
    return ND_OK;
}

/* The codes of an input of the model with its new quantiser, which no unit makes. */
static enum nd_status give_input(struct nd_trial_worker *w, const struct nd_change *change,
                                 struct nd_error *err)
{
    const struct nd_plan *plan = w->run.study->plan;
    size_t edge = plan->steps[change->step].edge;
    const struct nd_array *values = &w->run.values[change->step];
    enum nd_status status =
        nd_array_make_room(&w->input, ND_DTYPE_F32, &w->run.reference[change->step].husk.shape, err);
    for (size_t i = 0; i < w->input.n && status == ND_OK; i++)
        w->input.x[i] = nd_fit_apply(&change->fit, values->x[i]);
    w->given[edge] = w->input;
    w->cut.is_skipped[edge] = true;
    w->cut.is_ignored[edge] = false;
    return status;
}

static void clear(struct nd_trial_worker *w)
{
    const struct nd_model *model = w->run.study->plan->model;
    size_t n_edges = nd_model_n_edges(model);
    memset(w->is_given, 0, n_edges * sizeof *w->is_given);
    memset(w->is_changed, 0, n_edges * sizeof *w->is_changed);
    memset(w->is_real, 0, n_edges * sizeof *w->is_real);
    memset(w->replaced, 0, model->graph.n_tensors * sizeof *w->replaced);
}

/* Those of the trial at hand. */
static void make_changes(struct nd_trial_worker *w)
{
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t i = 0; i < w->trial->n_changes; i++) {
        const struct nd_change *change = &w->trial->changes[i];
        w->is_changed[plan->steps[change->step].edge] = true;
        w->is_real[plan->steps[change->step].edge] |= change->is_range;
        if (!change->is_range)
            w->replaced[change->tensor] = change->values;
    }
}

/* Gives the reference of all that does not depend on the changes. */
static enum nd_status prepare(struct nd_trial_worker *w, struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    const struct nd_plan *plan = study->plan;
    size_t n_edges = nd_model_n_edges(plan->model);
    clear(w);
    for (size_t s = 0; s < plan->n_steps; s++)
        w->is_given[plan->steps[s].edge] = w->run.reference[s].husk.shape.rank >= 0;
    make_changes(w);
    enum nd_status status = nd_rerun_make(&w->cut, plan->model, w->is_changed, w->is_given, NULL, err);
    for (size_t e = 0; e < n_edges; e++)
        w->given[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++)
        if (w->cut.is_skipped[plan->steps[s].edge])
            w->given[plan->steps[s].edge] = w->run.reference[s].husk;
    for (size_t i = 0; i < w->trial->n_changes && status == ND_OK; i++) {
        const struct nd_change *change = &w->trial->changes[i];
        if (change->is_range && study->float_input[change->step] != SIZE_MAX)
            status = give_input(w, change, err);
    }
    return status;
}

static void give_reference(void *context, size_t edge, double *out)
{
    const struct nd_trial_worker *w = context;
    nd_unpack(&w->run.reference[w->run.study->plan->step_of_edge[edge]], out);
}

static struct nd_exact_options options_of(const struct nd_trial_worker *w, nd_exact_give *give)
{
    bool is_pure = nd_exact_graph_is_pure(w->run.study->plan->graph);
    return (struct nd_exact_options){.struct_size = sizeof(struct nd_exact_options),
                                     .round = round_changed,
                                     .takes_quick = true,
                                     .given = w->given,
                                     .give = give,
                                     .is_skipped = w->cut.is_skipped,
                                     .is_ignored = is_pure ? w->cut.is_ignored : NULL,
                                     .replaced = w->replaced,
                                     .is_real = w->is_real,
                                     .missed = nd_exact_let_go};
}

/* The error of the model as it is. */
double nd_trial_worker_base_noise(struct nd_trial_worker *w, size_t step)
{
    const struct nd_array *values = &w->run.values[step];
    return nd_mean_square_between(values, nd_loss_real(&w->run, step)) * (double)values->n;
}

/* ---- by the units behind the changes ---- */

static void take_output(struct nd_trial_worker *w, size_t o, const struct nd_packed *packed)
{
    struct nd_array values = packed->husk;
    values.x = nd_tensor_room(values.n * sizeof *values.x);
    w->is_told[o] = values.x != NULL;
    if (values.x == NULL)
        return;
    nd_unpack(packed, values.x);
    w->noise[o] = noise_of(w, w->outputs[o], &values);
    free(values.x);
}

static void found_output(void *context, size_t step, const struct nd_packed *values)
{
    struct nd_trial_worker *w = context;
    for (size_t o = 0; o < w->n_outputs; o++)
        if (w->outputs[o] == step)
            take_output(w, o, values);
}

/* Packs what is given to a changed input of the model. False: there are several, or some step is not known. */
static enum nd_status find_start(struct nd_trial_worker *w, struct nd_ripple_change *change, bool *is_possible,
                                 struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    size_t n_inputs = 0;
    *is_possible = w->ripple.plan != NULL;
    for (size_t s = 0; s < study->plan->n_steps && *is_possible; s++)
        *is_possible = w->run.reference[s].husk.shape.rank >= 0;
    for (size_t i = 0; i < w->trial->n_changes && *is_possible; i++) {
        size_t step = w->trial->changes[i].step;
        if (study->float_input[step] == SIZE_MAX)
            continue;
        change->given_step = step;
        *is_possible = w->trial->changes[i].is_range && ++n_inputs == 1;
    }
    if (!*is_possible || n_inputs == 0)
        return ND_OK;
    change->given = &w->packed_input;
    return nd_pack(&w->input, &w->packed_input, err);
}

/* What is as it was is not evaluated again. *is_done false: this way is not possible. */
static enum nd_status follow_changes(struct nd_trial_worker *w, const struct nd_exact_options *options,
                                     bool *is_done, struct nd_error *err)
{
    const struct nd_plan *plan = w->run.study->plan;
    const struct nd_exact_options alone = {.struct_size = sizeof alone,
                                           .round = options->round,
                                           .takes_quick = options->takes_quick,
                                           .replaced = options->replaced,
                                           .is_real = options->is_real};
    struct nd_ripple_change change = {.is_changed = w->is_changed,
                                      .given_step = SIZE_MAX,
                                      .options = &alone,
                                      .context = w,
                                      .found = found_output};
    bool is_possible;
    *is_done = false;
    memset(w->is_told, 0, sizeof w->is_told);
    enum nd_status status = find_start(w, &change, &is_possible, err);
    if (status == ND_OK && is_possible)
        status = nd_ripple_changes(&w->ripple, w->run.reference, &change, is_done, err);
    for (size_t o = 0; o < w->n_outputs && status == ND_OK && *is_done; o++) {
        size_t edge = plan->steps[w->outputs[o]].edge;
        bool is_same = w->cut.is_skipped[edge] && !w->is_changed[edge];
        if (!is_same && !w->is_told[o])
            take_output(w, o, &w->run.reference[w->outputs[o]]);
        if (!is_same && !w->is_told[o])
            status = nd_fail_memory(err);
    }
    return status;
}

enum nd_status nd_trial_worker_run(struct nd_trial_worker *w, struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    bool is_done = false;
    enum nd_status status = prepare(w, err);
    const struct nd_exact_options options = options_of(w, give_reference);
    if (status == ND_OK)
        status = follow_changes(w, &options, &is_done, err);
    /* An output that depends on a change and is not found has no error that is known. */
    for (size_t o = 0; o < w->n_outputs && status == ND_OK; o++) {
        size_t edge = study->plan->steps[w->outputs[o]].edge;
        bool is_same = w->cut.is_skipped[edge] && !w->is_changed[edge];
        if (is_same || !is_done)
            w->noise[o] = is_same ? nd_trial_worker_base_noise(w, w->outputs[o]) : NAN;
    }
    if (status != ND_OK || is_done)
        return status;
    return nd_exact_graph_run(study->plan->graph, nd_study_inputs(study, w->run.sample), &options,
                              found_changed, w, err);
}

/* ---- the changed layers alone ---- */

static enum nd_status found_watched(void *context, size_t edge, const struct nd_array *values,
                                    enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    struct nd_trial_worker *w = context;
    if (w->run.study->plan->steps[w->trial->watched].edge == edge)
        w->watched = noise_of(w, w->trial->watched, values);
    return ND_OK;
}

/* What is given and read by a changed layer is not ignored. */
static void read_inputs(struct nd_trial_worker *w)
{
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_model_unit *unit = nd_plan_unit(plan, s);
        for (size_t i = 0; unit != NULL && w->is_changed[plan->steps[s].edge] && i < unit->n_inputs; i++)
            if (w->cut.is_skipped[unit->inputs[i]])
                w->cut.is_ignored[unit->inputs[i]] = false;
    }
}

/* The layers of the trial, fed with the float model's values; the trial at hand may leave them as they are. */
static enum nd_status run_alone(struct nd_trial_worker *w, const struct nd_trial *of, double *noise,
                                struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    const struct nd_plan *plan = study->plan;
    size_t n_edges = nd_model_n_edges(plan->model);
    clear(w);
    for (size_t i = 0; i < of->n_changes; i++)
        w->is_changed[plan->steps[of->changes[i].step].edge] = true;
    for (size_t e = 0; e < n_edges; e++) {
        w->given[e] = nd_no_array();
        w->cut.is_skipped[e] = false;
        w->cut.is_ignored[e] = !w->is_changed[e];
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t edge = plan->steps[s].edge;
        if (w->is_changed[edge] || w->run.values[s].shape.rank < 0)
            continue;
        w->given[edge] = w->run.values[s];
        w->is_real[edge] = w->cut.is_skipped[edge] = true;
    }
    read_inputs(w);
    make_changes(w);
    const struct nd_exact_options options = options_of(w, NULL);
    w->watched = NAN;
    enum nd_status status =
        nd_exact_graph_run(plan->graph, nd_study_inputs(study, w->run.sample), &options, found_watched, w, err);
    *noise = w->watched;
    return status;
}

/* The error of the watched step without and with the changes. */
enum nd_status nd_trial_worker_watch(struct nd_trial_worker *w, double *without, double *with,
                                     struct nd_error *err)
{
    const struct nd_trial *trial = w->trial, none = {.watched = trial->watched};
    w->trial = &none;
    enum nd_status status = run_alone(w, trial, without, err);
    w->trial = trial;
    return status == ND_OK ? run_alone(w, trial, with, err) : status;
}
