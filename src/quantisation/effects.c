/* What the error that one layer introduces does to the outputs: the float model is run again with nothing but
 * that error put in. docs/science/theory.md#quantisation-by-layer */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "quantisation/study.h"
#include "explain/plan/reader.h"

/* ---- outputs ---- */

size_t nd_study_outputs(const struct nd_study *study, size_t *steps, size_t capacity)
{
    size_t n = 0;
    for (size_t s = 0; s < study->plan->n_steps && n < capacity; s++)
        if (study->plan->steps[s].is_model_output && study->out->layers[s].is_known)
            steps[n++] = s;
    return n;
}

double nd_noise_to_signal(const double *noise, const double *signal, size_t n_samples, size_t n_outputs)
{
    double sum = 0, n = 0;
    for (size_t o = 0; o < n_outputs; o++) {
        double error = 0, whole = 0;
        for (size_t k = 0; k < n_samples; k++) {
            error += noise[k * n_outputs + o];
            whole += signal[k * n_outputs + o];
        }
        if (whole > 0) {
            sum += error / whole;
            n++;
        }
    }
    return n > 0 ? sum / n : NAN;
}

size_t nd_effect_sample(const struct nd_study *study, size_t k)
{
    return k * study->n_samples / study->n_effect_samples;
}

/* ---- one sample ---- */

struct effects {
    struct nd_study *study;
    const size_t *steps; /* [n_steps] whose effect is measured */
    size_t n_steps;
    bool *is_wanted; /* [n_steps of the plan] the same */
    size_t outputs[ND_LOSS_OUTPUTS], n_outputs;
    /* [n_effect_samples][n_outputs], and noise of each step after each other; base: of the whole model. */
    double *signal, *base, *noise;
    struct worker *workers;
};

struct worker {
    struct nd_loss_run run;
    struct nd_rerun cut;
    bool *is_given, *is_changed, *is_input_changed; /* edges and inputs of the float model */
    const struct effects *effects;
    double *noise; /* [n_outputs] of the step and sample at hand */
};

static enum nd_status begin(struct worker *w, const struct effects *effects, struct nd_error *err)
{
    const struct nd_model *model = effects->study->plan->float_model;
    w->effects = effects;
    enum nd_status status = nd_loss_run_init(&w->run, effects->study, err);
    if (status == ND_OK)
        status = nd_rerun_init(&w->cut, model, err);
    w->run.is_wanted = effects->is_wanted;
    w->is_given = nd_calloc(nd_model_n_edges(model), sizeof *w->is_given);
    w->is_changed = nd_calloc(nd_model_n_edges(model), sizeof *w->is_changed);
    w->is_input_changed = nd_calloc(nd_model_n_inputs(model), sizeof *w->is_input_changed);
    bool has_all = w->is_given != NULL && w->is_changed != NULL && w->is_input_changed != NULL;
    return status != ND_OK ? status : has_all ? ND_OK : nd_fail_memory(err);
}

static void end(struct worker *w)
{
    nd_loss_run_deinit(&w->run);
    nd_rerun_deinit(&w->cut);
    free(w->is_given);
    free(w->is_changed);
    free(w->is_input_changed);
}

static enum nd_status found_output(void *context, size_t edge, const struct nd_array *values,
                                   enum nd_exact_way way, struct nd_error *err)
{
    (void)way;
    (void)err;
    struct worker *w = context;
    const struct effects *effects = w->effects;
    for (size_t o = 0; o < effects->n_outputs; o++) {
        const struct nd_array *before = &w->run.values[effects->outputs[o]];
        if (effects->study->float_edge[effects->outputs[o]] == edge && before->n == values->n)
            w->noise[o] = nd_mean_square_between(values, before) * (double)values->n;
    }
    return ND_OK;
}

/* Gives the float model's values of all that does not depend on the step, and the step's with its error. */
static enum nd_status give(struct worker *w, size_t step, struct nd_error *err)
{
    const struct nd_study *study = w->effects->study;
    const struct nd_plan *plan = study->plan;
    size_t n_edges = nd_model_n_edges(plan->float_model), changed = study->float_edge[step];
    memset(w->is_given, 0, n_edges * sizeof *w->is_given);
    memset(w->is_changed, 0, n_edges * sizeof *w->is_changed);
    for (size_t s = 0; s < plan->n_steps; s++)
        if (study->float_edge[s] != SIZE_MAX && w->run.values[s].shape.rank >= 0)
            w->is_given[study->float_edge[s]] = true;
    if (changed != SIZE_MAX)
        w->is_changed[changed] = true;
    for (size_t i = 0; i < study->n_float_inputs; i++)
        w->is_input_changed[i] = changed == SIZE_MAX && plan->float_inputs[i] == study->float_input[step];
    enum nd_status status =
        nd_rerun_make(&w->cut, plan->float_model, w->is_changed, w->is_given, w->is_input_changed, err);
    if (changed != SIZE_MAX) {
        w->cut.is_skipped[changed] = true;
        w->cut.is_ignored[changed] = false;
    }
    for (size_t e = 0; e < n_edges; e++)
        w->run.given[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t edge = study->float_edge[s];
        if (edge != SIZE_MAX && w->cut.is_skipped[edge])
            w->run.given[edge] = s == step ? w->run.introduced[s] : w->run.values[s];
    }
    return status;
}

/* The step's error alone. run.introduced becomes the float values with the error. */
static enum nd_status measure_step(struct worker *w, size_t step, struct nd_error *err)
{
    const struct nd_study *study = w->effects->study;
    const struct nd_plan *plan = study->plan;
    struct nd_array *introduced = &w->run.introduced[step];
    const struct nd_array *values = &w->run.values[step];
    if (introduced->shape.rank < 0 || introduced->n != values->n) {
        w->noise[0] = NAN;
        return ND_OK;
    }
    for (size_t o = 0; o < w->effects->n_outputs; o++)
        if (w->effects->outputs[o] == step)
            w->noise[o] = nd_mean_square(introduced) * (double)introduced->n;
    for (size_t i = 0; i < introduced->n; i++)
        introduced->x[i] += values->x[i];
    introduced->shape = values->shape;
    const struct nd_array *inputs = nd_study_inputs(study, w->run.sample);
    for (size_t i = 0; i < study->n_float_inputs; i++) {
        bool is_it = study->float_input[step] == plan->float_inputs[i];
        w->run.float_inputs[i] = is_it ? *introduced : inputs[plan->float_inputs[i]];
    }
    enum nd_status status = give(w, step, err);
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .given = w->run.given,
                                             .is_skipped = w->cut.is_skipped,
                                             .is_ignored = w->cut.is_ignored,
                                             .missed = nd_exact_let_go};
    return status == ND_OK
               ? nd_exact_graph_run(plan->float_graph, w->run.float_inputs, &options, found_output, w, err)
               : status;
}

static enum nd_status measure_sample(void *context, size_t worker, size_t k, struct nd_error *err)
{
    struct effects *effects = context;
    struct worker *w = &effects->workers[worker];
    size_t n_outputs = effects->n_outputs, n_samples = effects->study->n_effect_samples;
    enum nd_status status = w->effects == NULL ? begin(w, effects, err) : ND_OK;
    if (status == ND_OK)
        status = nd_loss_run_sample(&w->run, nd_effect_sample(effects->study, k), true, err);
    for (size_t o = 0; o < n_outputs && status == ND_OK; o++) {
        const struct nd_array *values = &w->run.values[effects->outputs[o]];
        double n = (double)values->n;
        effects->signal[k * n_outputs + o] = nd_mean_square(values) * n;
        effects->base[k * n_outputs + o] =
            nd_mean_square_between(values, nd_loss_real(&w->run, effects->outputs[o])) * n;
    }
    for (size_t i = 0; i < effects->n_steps && status == ND_OK; i++) {
        w->noise = effects->noise + (i * n_samples + k) * n_outputs;
        status = measure_step(w, effects->steps[i], err);
    }
    return status;
}

/* ---- all samples ---- */

static void conclude(struct effects *effects)
{
    struct nd_study *study = effects->study;
    size_t n = study->n_effect_samples * effects->n_outputs;
    double sum = 0;
    study->out->output_sqnr_db = -10 * log10(nd_noise_to_signal(effects->base, effects->signal,
                                                                study->n_effect_samples, effects->n_outputs));
    for (size_t i = 0; i < effects->n_steps; i++) {
        struct nd_quantised_layer *layer = &study->out->layers[effects->steps[i]];
        layer->effect_share = nd_noise_to_signal(effects->noise + i * n, effects->signal,
                                                 study->n_effect_samples, effects->n_outputs);
        layer->effect_db = -10 * log10(layer->effect_share);
        sum += isnan(layer->effect_share) ? 0 : layer->effect_share;
    }
    for (size_t i = 0; i < effects->n_steps; i++)
        study->out->layers[effects->steps[i]].effect_share /= sum; /* NaN where none has an effect */
}

static enum nd_status make_room(struct effects *effects, struct nd_error *err)
{
    const struct nd_study *study = effects->study;
    size_t n = study->n_effect_samples * effects->n_outputs;
    effects->is_wanted = nd_calloc(study->plan->n_steps, sizeof *effects->is_wanted);
    effects->signal = nd_calloc(n, sizeof *effects->signal);
    effects->base = nd_calloc(n, sizeof *effects->base);
    effects->noise = nd_calloc(n * (effects->n_steps + 1), sizeof *effects->noise);
    effects->workers = nd_calloc(study->n_threads, sizeof *effects->workers);
    if (effects->is_wanted == NULL || effects->signal == NULL || effects->base == NULL ||
        effects->noise == NULL || effects->workers == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < effects->n_steps; i++)
        effects->is_wanted[effects->steps[i]] = true;
    return ND_OK;
}

enum nd_status nd_measure_effects(struct nd_study *study, const size_t *steps, size_t n_steps,
                                  struct nd_error *err)
{
    struct effects effects = {.study = study, .steps = steps, .n_steps = n_steps};
    effects.n_outputs = nd_study_outputs(study, effects.outputs, ND_LOSS_OUTPUTS);
    if (effects.n_outputs == 0 || study->n_effect_samples == 0)
        return ND_OK;
    struct nd_error local = {0};
    enum nd_status status = make_room(&effects, &local);
    if (status == ND_OK)
        status = nd_parallel_for(study->n_threads, study->n_effect_samples, measure_sample, &effects, &local);
    if (status == ND_OK)
        conclude(&effects);
    else if (err != NULL)
        *err = local;
    for (size_t i = 0; i < study->n_threads && effects.workers != NULL; i++)
        end(&effects.workers[i]);
    free(effects.is_wanted);
    free(effects.signal);
    free(effects.base);
    free(effects.noise);
    free(effects.workers);
    return status;
}
