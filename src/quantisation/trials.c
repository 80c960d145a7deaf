/* What the outputs would be if the model were quantised in a different way: the quantised reference is run
 * again with the changes made. Tensors of a changed range hold real values in the place of codes. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "model/loaded.h"
#include "quantisation/study.h"
#include "replay/reader.h"

struct trials {
    struct nd_study *study;
    struct nd_trial *trials;
    size_t n_trials;
    size_t outputs[ND_LOSS_OUTPUTS], n_outputs;
    /* [n_effect_samples][n_outputs]; noise of each trial after each other; base: of the model as it is. */
    double *signal, *base, *noise;
    double *watched_base, *watched; /* [n_trials][n_effect_samples] of the watched steps, without and with it */
    bool watches;                   /* one of them has a watched step */
    struct worker *workers;
};

struct worker {
    struct nd_loss_run run;
    struct nd_rerun cut;
    bool *is_given, *is_changed, *is_real; /* [n_edges] of the model */
    struct nd_array *given;                /* [n_edges] views */
    struct nd_array input;                 /* codes of a changed input, owned */
    const struct nd_array **replaced;      /* [n_tensors] */
    const struct trials *all;
    const struct nd_trial *trial; /* at hand */
    double *noise;                /* [n_outputs] of it */
    double watched;               /* error of its watched step, of the changed layers alone */
};

static enum nd_status begin(struct worker *w, const struct trials *all, struct nd_error *err)
{
    const struct nd_model *model = all->study->plan->model;
    size_t n_edges = nd_model_n_edges(model);
    w->all = all;
    enum nd_status status = nd_loss_run_init(&w->run, all->study, err);
    if (status == ND_OK)
        status = nd_rerun_init(&w->cut, model, err);
    w->is_given = nd_calloc(n_edges, sizeof *w->is_given);
    w->is_changed = nd_calloc(n_edges, sizeof *w->is_changed);
    w->is_real = nd_calloc(n_edges, sizeof *w->is_real);
    w->given = nd_calloc(n_edges, sizeof *w->given);
    w->replaced = nd_calloc(model->graph.n_tensors, sizeof *w->replaced);
    bool has_all = w->is_given != NULL && w->is_changed != NULL && w->is_real != NULL && w->given != NULL &&
                   w->replaced != NULL;
    return status != ND_OK ? status : has_all ? ND_OK : nd_fail_memory(err);
}

static void end(struct worker *w)
{
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

static const struct nd_change *range_of(const struct worker *w, size_t step)
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
    const struct worker *w = context;
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
static double noise_of(const struct worker *w, size_t step, const struct nd_array *values)
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
    const struct worker *w = context;
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t o = 0; o < w->all->n_outputs; o++)
        if (plan->steps[w->all->outputs[o]].edge == edge)
            w->noise[o] = noise_of(w, w->all->outputs[o], values);
    return ND_OK;
}

/* The codes of an input of the model with its new quantiser, which no unit makes. */
static enum nd_status give_input(struct worker *w, const struct nd_change *change, struct nd_error *err)
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

static void clear(struct worker *w)
{
    const struct nd_model *model = w->run.study->plan->model;
    size_t n_edges = nd_model_n_edges(model);
    memset(w->is_given, 0, n_edges * sizeof *w->is_given);
    memset(w->is_changed, 0, n_edges * sizeof *w->is_changed);
    memset(w->is_real, 0, n_edges * sizeof *w->is_real);
    memset(w->replaced, 0, model->graph.n_tensors * sizeof *w->replaced);
}

/* Those of the trial at hand. */
static void make_changes(struct worker *w)
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
static enum nd_status prepare(struct worker *w, struct nd_error *err)
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
    const struct worker *w = context;
    nd_unpack(&w->run.reference[w->run.study->plan->step_of_edge[edge]], out);
}

static struct nd_exact_options options_of(const struct worker *w, nd_exact_give *give)
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
static double base_noise(struct worker *w, size_t step)
{
    const struct nd_array *values = &w->run.values[step];
    return nd_mean_square_between(values, nd_loss_real(&w->run, step)) * (double)values->n;
}

static enum nd_status run_trial(struct worker *w, struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    enum nd_status status = prepare(w, err);
    /* An output that depends on a change and is not found has no error that is known. */
    for (size_t o = 0; o < w->all->n_outputs && status == ND_OK; o++) {
        size_t step = w->all->outputs[o];
        bool is_same =
            w->cut.is_skipped[study->plan->steps[step].edge] && !w->is_changed[study->plan->steps[step].edge];
        w->noise[o] = is_same ? base_noise(w, step) : NAN;
    }
    const struct nd_exact_options options = options_of(w, give_reference);
    return status == ND_OK ? nd_exact_graph_run(study->plan->graph, nd_study_inputs(study, w->run.sample),
                                                &options, found_changed, w, err)
                           : status;
}

/* ---- the changed layers alone ---- */

static enum nd_status found_watched(void *context, size_t edge, const struct nd_array *values,
                                    enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    struct worker *w = context;
    if (w->run.study->plan->steps[w->trial->watched].edge == edge)
        w->watched = noise_of(w, w->trial->watched, values);
    return ND_OK;
}

/* What is given and read by a changed layer is not ignored. */
static void read_inputs(struct worker *w)
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
static enum nd_status run_alone(struct worker *w, const struct nd_trial *of, double *noise,
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
static enum nd_status watch(struct worker *w, double *without, double *with, struct nd_error *err)
{
    const struct nd_trial *trial = w->trial, none = {.watched = trial->watched};
    w->trial = &none;
    enum nd_status status = run_alone(w, trial, without, err);
    w->trial = trial;
    return status == ND_OK ? run_alone(w, trial, with, err) : status;
}

static enum nd_status run_sample(void *context, size_t worker, size_t k, struct nd_error *err)
{
    struct trials *all = context;
    struct worker *w = &all->workers[worker];
    size_t n_samples = all->study->n_effect_samples;
    enum nd_status status = w->all == NULL ? begin(w, all, err) : ND_OK;
    w->run.takes_outputs = !all->watches; /* what is changed is fed with the quantised reference */
    if (status == ND_OK)
        status = nd_loss_run_sample(&w->run, nd_effect_sample(all->study, k), false, err);
    for (size_t o = 0; o < all->n_outputs && status == ND_OK; o++) {
        const struct nd_array *values = &w->run.values[all->outputs[o]];
        all->signal[k * all->n_outputs + o] = nd_mean_square(values) * (double)values->n;
        all->base[k * all->n_outputs + o] = base_noise(w, all->outputs[o]);
    }
    for (size_t i = 0; i < all->n_trials && status == ND_OK; i++) {
        w->trial = &all->trials[i];
        w->noise = all->noise + (i * n_samples + k) * all->n_outputs;
        status = run_trial(w, err);
        if (status == ND_OK && w->trial->watched != SIZE_MAX)
            status = watch(w, &all->watched_base[i * n_samples + k], &all->watched[i * n_samples + k], err);
    }
    return status;
}

static void conclude(const struct trials *all, size_t i)
{
    size_t n_samples = all->study->n_effect_samples, n_outputs = all->n_outputs;
    const double *noise = all->noise + i * n_samples * n_outputs;
    struct nd_trial *trial = &all->trials[i];
    double had = 0, has = 0;
    trial->sqnr_db = -10 * log10(nd_noise_to_signal(noise, all->signal, n_samples, n_outputs));
    for (size_t k = 0; k < n_samples; k++) {
        size_t at = k * n_outputs;
        trial->n_better += nd_noise_to_signal(noise + at, all->signal + at, 1, n_outputs) <
                           nd_noise_to_signal(all->base + at, all->signal + at, 1, n_outputs);
        had += all->watched_base[i * n_samples + k];
        has += all->watched[i * n_samples + k];
    }
    trial->watched_gain_db = 10 * log10(had / has);
}

enum nd_status nd_run_trials(struct nd_study *study, struct nd_trial *trials, size_t n_trials,
                             struct nd_error *err)
{
    struct trials all = {.study = study, .trials = trials, .n_trials = n_trials};
    all.n_outputs = nd_study_outputs(study, all.outputs, ND_LOSS_OUTPUTS);
    size_t n = study->n_effect_samples * all.n_outputs;
    for (size_t i = 0; i < n_trials; i++) {
        trials[i].sqnr_db = trials[i].watched_gain_db = NAN;
        trials[i].n_better = 0;
        all.watches = all.watches || trials[i].watched != SIZE_MAX;
    }
    if (n == 0 || n_trials == 0)
        return ND_OK;
    all.signal = nd_calloc(n, sizeof *all.signal);
    all.base = nd_calloc(n, sizeof *all.base);
    all.noise = nd_calloc(n * n_trials, sizeof *all.noise);
    all.watched_base = nd_calloc(study->n_effect_samples * n_trials, sizeof *all.watched_base);
    all.watched = nd_calloc(study->n_effect_samples * n_trials, sizeof *all.watched);
    all.workers = nd_calloc(study->n_threads, sizeof *all.workers);
    struct nd_error local = {0};
    bool has_all = all.signal != NULL && all.base != NULL && all.noise != NULL && all.watched_base != NULL &&
                   all.watched != NULL && all.workers != NULL;
    enum nd_status status = has_all ? ND_OK : nd_fail_memory(&local);
    if (status == ND_OK)
        status = nd_parallel_for(study->n_threads, study->n_effect_samples, run_sample, &all, &local);
    if (status != ND_OK && err != NULL)
        *err = local;
    for (size_t i = 0; i < n_trials && status == ND_OK; i++)
        conclude(&all, i);
    for (size_t i = 0; i < study->n_threads && all.workers != NULL; i++)
        end(&all.workers[i]);
    free(all.signal);
    free(all.base);
    free(all.noise);
    free(all.watched_base);
    free(all.watched);
    free(all.workers);
    return status;
}
