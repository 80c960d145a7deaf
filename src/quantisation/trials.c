/* What the outputs would be if the model were quantised in a different way: the quantised reference is run
 * again with the changes made (trials.c). */
#include <math.h>

#include "core/items.h"
#include "core/processes/parallel.h"
#include "explain/evaluate/incremental.h"
#include "explain/plan/replay.h"
#include "model/graph/loaded.h"
#include "quantisation/study.h"

/* What trials.c has done by one thread: one trial in one sample. */

struct nd_trial_worker {
    struct nd_loss_run run;
    struct nd_rerun cut;
    bool *is_given, *is_changed, *is_real; /* [n_edges] of the model */
    struct nd_array *given;                /* [n_edges] views */
    struct nd_array *inputs;               /* [n_steps] quantised values of changed inputs, owned */
    const struct nd_array **replaced;      /* [n_tensors] */
    const size_t *outputs;                 /* [n_outputs] steps */
    size_t n_outputs;
    bool is_told[ND_LOSS_OUTPUTS];     /* of the outputs of the trial at hand */
    struct nd_incremental incremental; /* without a plan: the study has no layers */
    struct nd_packed packed_input;
    const struct nd_trial *trial; /* at hand */
    double *noise;                /* [n_outputs] of it */
    double watched;               /* error of its watched step, of the changed layers alone */
};

/* What the error that one layer introduces does to the outputs: the float model is run again with nothing but
 * that error put in. docs/science/theory.md#quantisation-by-layer */

/* ---- outputs ---- */

/* The steps that are outputs of the model and known: at most ND_LOSS_OUTPUTS. How many. */
static size_t nd_study_outputs(const struct nd_study *study, size_t *steps)
{
    size_t n = 0;
    for (size_t s = 0; s < study->plan->n_steps && n < ND_LOSS_OUTPUTS; s++)
        if (study->plan->steps[s].is_model_output && study->out->layers[s].is_known)
            steps[n++] = s;
    return n;
}

/* Error over signal of the outputs: for each output its own quotient, and the mean of these. Tables are
 * [n_samples][n_outputs]. */
static double nd_noise_to_signal(const double *noise, const double *signal, size_t n_samples, size_t n_outputs)
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
    bool *is_given, *is_changed, *is_input_changed; /* tensors and inputs of the float model */
    const struct effects *effects;
    double *noise; /* [n_outputs] of the step and sample at hand */
};

static enum nd_status begin(struct worker *w, const struct effects *effects, struct nd_error *err)
{
    const struct nd_model *model = effects->study->plan->float_model;
    w->effects = effects;
    ND_TRY(nd_loss_run_init(&w->run, effects->study, err));
    ND_TRY(nd_rerun_init(&w->cut, model, err));
    w->run.is_wanted = effects->is_wanted;
    w->is_given = nd_calloc(nd_model_n_tensors(model), sizeof *w->is_given);
    w->is_changed = nd_calloc(nd_model_n_tensors(model), sizeof *w->is_changed);
    w->is_input_changed = nd_calloc(nd_model_n_inputs(model), sizeof *w->is_input_changed);
    ND_TRY_MEMORY(w->is_given != NULL && w->is_changed != NULL && w->is_input_changed != NULL, err);
    return ND_OK;
}

static void end(struct worker *w)
{
    nd_loss_run_deinit(&w->run);
    nd_rerun_deinit(&w->cut);
    ND_FREE_ALL(w->is_given, w->is_changed, w->is_input_changed);
}

static enum nd_status found_output(void *context, size_t tensor, const struct nd_array *values,
                                   enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct worker *w = context;
    const struct effects *effects = w->effects;
    for (size_t o = 0; o < effects->n_outputs; o++) {
        const struct nd_array *before = &w->run.values[effects->outputs[o]];
        if (effects->study->float_tensor[effects->outputs[o]] == tensor && before->n == values->n)
            w->noise[o] = nd_mean_square_between(values, before) * (double)values->n;
    }
    return ND_OK;
}

/* Gives the float model's values of all that does not depend on the step, and the step's with its error. */
static enum nd_status give_step(struct worker *w, size_t step, struct nd_error *err)
{
    const struct nd_study *study = w->effects->study;
    const struct nd_plan *plan = study->plan;
    size_t n_tensors = nd_model_n_tensors(plan->float_model), changed = study->float_tensor[step];
    memset(w->is_given, 0, n_tensors * sizeof *w->is_given);
    memset(w->is_changed, 0, n_tensors * sizeof *w->is_changed);
    for (size_t s = 0; s < plan->n_steps; s++)
        if (study->float_tensor[s] != SIZE_MAX && w->run.values[s].shape.rank >= 0)
            w->is_given[study->float_tensor[s]] = true;
    if (changed != SIZE_MAX)
        w->is_changed[changed] = true;
    for (size_t i = 0; i < study->n_float_inputs; i++)
        w->is_input_changed[i] = changed == SIZE_MAX && plan->float_inputs[i] == study->float_input[step];
    ND_TRY(nd_rerun_make(&w->cut, plan->float_model, w->is_changed, w->is_given, w->is_input_changed, err));
    if (changed != SIZE_MAX) {
        w->cut.is_skipped[changed] = true;
        w->cut.is_ignored[changed] = false;
    }
    for (size_t e = 0; e < n_tensors; e++)
        w->run.given[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t tensor = study->float_tensor[s];
        if (tensor != SIZE_MAX && w->cut.is_skipped[tensor])
            w->run.given[tensor] = s == step ? w->run.introduced[s] : w->run.values[s];
    }
    return ND_OK;
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
    ND_TRY(give_step(w, step, err));
    const struct nd_exact_options options = {.struct_size = sizeof options,
                                             .given = w->run.given,
                                             .is_skipped = w->cut.is_skipped,
                                             .is_ignored = w->cut.is_ignored,
                                             .missed = nd_exact_let_go};
    return nd_exact_graph_run(plan->float_graph, w->run.float_inputs, &options, found_output, w, err);
}

static enum nd_status measure_sample(void *context, size_t worker, size_t k, struct nd_error *err)
{
    struct effects *effects = context;
    struct worker *w = &effects->workers[worker];
    size_t n_outputs = effects->n_outputs, n_samples = effects->study->n_effect_samples;
    ND_TRY(w->effects == NULL ? begin(w, effects, err) : ND_OK);
    ND_TRY(nd_loss_run_sample(&w->run, nd_effect_sample(effects->study, k), true, err));
    for (size_t o = 0; o < n_outputs; o++) {
        const struct nd_array *values = &w->run.values[effects->outputs[o]];
        double n = (double)values->n;
        effects->signal[k * n_outputs + o] = nd_mean_square(values) * n;
        effects->base[k * n_outputs + o] =
            nd_mean_square_between(values, nd_loss_real(&w->run, effects->outputs[o])) * n;
    }
    for (size_t i = 0; i < effects->n_steps; i++) {
        w->noise = effects->noise + (i * n_samples + k) * n_outputs;
        ND_TRY(measure_step(w, effects->steps[i], err));
    }
    return ND_OK;
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
    ND_TRY_MEMORY(effects->is_wanted != NULL && effects->signal != NULL && effects->base != NULL &&
                      effects->noise != NULL && effects->workers != NULL,
                  err);
    for (size_t i = 0; i < effects->n_steps; i++)
        effects->is_wanted[effects->steps[i]] = true;
    return ND_OK;
}

enum nd_status nd_measure_effects(struct nd_study *study, const size_t *steps, size_t n_steps,
                                  struct nd_error *err)
{
    struct effects effects = {.study = study, .steps = steps, .n_steps = n_steps};
    effects.n_outputs = nd_study_outputs(study, effects.outputs);
    if (effects.n_outputs == 0 || study->n_effect_samples == 0)
        return ND_OK;
    struct nd_error introduced = {0};
    enum nd_status status = make_room(&effects, &introduced);
    if (status == ND_OK)
        status =
            nd_parallel_for(study->n_threads, study->n_effect_samples, measure_sample, &effects, &introduced);
    if (status == ND_OK)
        conclude(&effects);
    else if (err != NULL)
        *err = introduced;
    ND_DEINIT_EACH(end, effects.workers, study->n_threads);
    ND_FREE_ALL(effects.is_wanted, effects.signal, effects.base, effects.noise);
    return status;
}

/* One trial in one sample: the quantised reference is run again with the changes made. Tensors of a changed
 * range hold real values in the place of quantised values. */

/* outputs[n_outputs]: steps, borrowed. end in any case, also of a zeroed one. ND_ERR_MEMORY. */
static enum nd_status nd_trial_worker_begin(struct nd_trial_worker *w, const struct nd_study *study,
                                            const size_t *outputs, size_t n_outputs, struct nd_error *err)
{
    const struct nd_model *model = study->plan->model;
    size_t n_tensors = nd_model_n_tensors(model);
    w->outputs = outputs;
    w->n_outputs = n_outputs;
    ND_TRY(nd_loss_run_init(&w->run, study, err));
    ND_TRY(nd_rerun_init(&w->cut, model, err));
    if (study->layers != NULL)
        ND_TRY(nd_incremental_init(&w->incremental, study->plan, study->layers, err));
    w->is_given = nd_calloc(n_tensors, sizeof *w->is_given);
    w->is_changed = nd_calloc(n_tensors, sizeof *w->is_changed);
    w->is_real = nd_calloc(n_tensors, sizeof *w->is_real);
    w->given = nd_calloc(n_tensors, sizeof *w->given);
    w->replaced = nd_calloc(model->graph.n_tensors, sizeof *w->replaced);
    w->inputs = nd_calloc(study->plan->n_steps, sizeof *w->inputs);
    bool has_all = w->is_given != NULL && w->is_changed != NULL && w->is_real != NULL && w->given != NULL &&
                   w->replaced != NULL && w->inputs != NULL;
    return has_all ? ND_OK : nd_fail_memory(err);
}

/* outputs[n_outputs]: steps, borrowed. end in any case, also of a zeroed one. ND_ERR_MEMORY. */
static void nd_trial_worker_end(struct nd_trial_worker *w)
{
    if (w->incremental.plan != NULL)
        nd_incremental_deinit(&w->incremental);
    nd_packed_deinit(&w->packed_input);
    ND_DEINIT_EACH(nd_array_deinit, w->inputs, w->run.study->plan->n_steps);
    nd_loss_run_deinit(&w->run);
    nd_rerun_deinit(&w->cut);
    ND_FREE_ALL(w->is_given, w->is_changed, w->is_real, w->given, w->replaced);
}

/* ---- the changed model ---- */

static const struct nd_change *range_of(const struct nd_trial_worker *w, size_t step)
{
    for (size_t i = 0; i < w->trial->n_changes; i++)
        if (w->trial->changes[i].is_range && w->trial->changes[i].step == step)
            return &w->trial->changes[i];
    return NULL;
}

static void nd_fit_apply_all(const struct nd_fit *fit, double *x, size_t n)
{
    const struct nd_fit own = *fit;
    for (size_t i = 0; i < n; i++)
        x[i] = nd_fit_apply(&own, x[i]);
}

static enum nd_status round_changed(void *context, const struct nd_exact_values *values,
                                    struct nd_array *qvalues, struct nd_error *err)
{
    (void)err;
    const struct nd_trial_worker *w = context;
    size_t step = w->run.study->plan->step_of_tensor[values->tensor];
    const struct nd_change *change = step != SIZE_MAX ? range_of(w, step) : NULL;
    if (change == NULL) {
        nd_round_half_even(values, qvalues);
        return ND_OK;
    }
    nd_reals_before(values, qvalues->x);
    nd_fit_apply_all(&change->fit, qvalues->x, values->n);
    qvalues->dtype = ND_DTYPE_F32;
    return ND_OK;
}

/* The error of what the changed model has there, against the float model; NaN where that is not known. */
static double noise_of(const struct nd_trial_worker *w, size_t step, const struct nd_array *values)
{
    const struct nd_plan *plan = w->run.study->plan;
    const struct nd_array *before = &w->run.values[step];
    const struct nd_quant *quant = &nd_plan_tensor(plan, step)->quant;
    double noise = 0;
    if (before->n != values->n)
        return NAN;
    for (size_t i = 0; i < values->n; i++) {
        size_t c = quant->n > 1 ? nd_exact_channel(quant, &values->shape, i) : 0;
        double real = quant->n == 0 || w->is_real[plan->steps[step].tensor]
                          ? values->x[i]
                          : (values->x[i] - (double)quant->zero_point[c]) * (double)quant->scale[c];
        noise += (real - before->x[i]) * (real - before->x[i]);
    }
    return noise;
}

static enum nd_status found_changed(void *context, size_t tensor, const struct nd_array *values,
                                    enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    const struct nd_trial_worker *w = context;
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t o = 0; o < w->n_outputs; o++)
        if (plan->steps[w->outputs[o]].tensor == tensor)
            w->noise[o] = noise_of(w, w->outputs[o], values);
    return ND_OK;
}

/* The quantised values of an input of the model with its new quantiser, which no layer makes. */
static enum nd_status give_input(struct nd_trial_worker *w, const struct nd_change *change,
                                 struct nd_error *err)
{
    const struct nd_plan *plan = w->run.study->plan;
    size_t tensor = plan->steps[change->step].tensor;
    const struct nd_array *values = &w->run.values[change->step];
    struct nd_array *input = &w->inputs[change->step];
    ND_TRY(nd_array_make_room(input, ND_DTYPE_F32, &w->run.reference[change->step].tensor_view.shape, err));
    for (size_t i = 0; i < input->n; i++)
        input->x[i] = nd_fit_apply(&change->fit, values->x[i]);
    w->given[tensor] = *input;
    w->cut.is_skipped[tensor] = true;
    w->cut.is_ignored[tensor] = false;
    return ND_OK;
}

static void clear(struct nd_trial_worker *w)
{
    const struct nd_model *model = w->run.study->plan->model;
    size_t n_tensors = nd_model_n_tensors(model);
    memset(w->is_given, 0, n_tensors * sizeof *w->is_given);
    memset(w->is_changed, 0, n_tensors * sizeof *w->is_changed);
    memset(w->is_real, 0, n_tensors * sizeof *w->is_real);
    memset(w->replaced, 0, model->graph.n_tensors * sizeof *w->replaced);
}

/* Those of the trial at hand. */
static void make_changes(struct nd_trial_worker *w)
{
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t i = 0; i < w->trial->n_changes; i++) {
        const struct nd_change *change = &w->trial->changes[i];
        w->is_changed[plan->steps[change->step].tensor] = true;
        w->is_real[plan->steps[change->step].tensor] |= change->is_range;
        if (!change->is_range)
            w->replaced[change->tensor] = change->values;
    }
}

/* Gives the reference of all that does not depend on the changes. */
static enum nd_status prepare(struct nd_trial_worker *w, struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    const struct nd_plan *plan = study->plan;
    size_t n_tensors = nd_model_n_tensors(plan->model);
    clear(w);
    for (size_t s = 0; s < plan->n_steps; s++)
        w->is_given[plan->steps[s].tensor] = w->run.reference[s].tensor_view.shape.rank >= 0;
    make_changes(w);
    enum nd_status status = nd_rerun_make(&w->cut, plan->model, w->is_changed, w->is_given, NULL, err);
    for (size_t e = 0; e < n_tensors; e++)
        w->given[e] = nd_no_array();
    for (size_t s = 0; s < plan->n_steps; s++)
        if (w->cut.is_skipped[plan->steps[s].tensor])
            w->given[plan->steps[s].tensor] = w->run.reference[s].tensor_view;
    for (size_t i = 0; i < w->trial->n_changes && status == ND_OK; i++) {
        const struct nd_change *change = &w->trial->changes[i];
        if (change->is_range && study->float_input[change->step] != SIZE_MAX)
            status = give_input(w, change, err);
    }
    return status;
}

static void give_reference(void *context, size_t tensor, double *out)
{
    const struct nd_trial_worker *w = context;
    nd_unpack(&w->run.reference[w->run.study->plan->step_of_tensor[tensor]], out);
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
static double nd_trial_worker_base_noise(struct nd_trial_worker *w, size_t step)
{
    const struct nd_array *values = &w->run.values[step];
    return nd_mean_square_between(values, nd_loss_real(&w->run, step)) * (double)values->n;
}

/* ---- by the layers behind the changes ---- */

static void take_output(struct nd_trial_worker *w, size_t o, const struct nd_packed *packed)
{
    struct nd_array values = packed->tensor_view;
    values.x = nd_tensor_room(values.n * sizeof *values.x);
    w->is_told[o] = values.x != NULL;
    if (values.x == NULL)
        return;
    nd_unpack(packed, values.x);
    w->noise[o] = noise_of(w, w->outputs[o], &values);
    free(values.x);
}

static void found_output_of_trial_run(void *context, size_t step, const struct nd_packed *values)
{
    struct nd_trial_worker *w = context;
    for (size_t o = 0; o < w->n_outputs; o++)
        if (w->outputs[o] == step)
            take_output(w, o, values);
}

/* Packs what is given to a changed input of the model. False: there are several, or some step is not known. */
static enum nd_status find_start(struct nd_trial_worker *w, struct nd_incremental_change *change,
                                 bool *is_possible, struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    size_t n_inputs = 0;
    *is_possible = w->incremental.plan != NULL;
    for (size_t s = 0; s < study->plan->n_steps && *is_possible; s++)
        *is_possible = w->run.reference[s].tensor_view.shape.rank >= 0;
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
    return nd_pack(&w->inputs[change->given_step], &w->packed_input, err);
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
    struct nd_incremental_change change = {.is_changed = w->is_changed,
                                           .given_step = SIZE_MAX,
                                           .options = &alone,
                                           .context = w,
                                           .found = found_output_of_trial_run};
    bool is_possible;
    *is_done = false;
    memset(w->is_told, 0, sizeof w->is_told);
    enum nd_status status = find_start(w, &change, &is_possible, err);
    if (status == ND_OK && is_possible)
        status = nd_incremental_changes(&w->incremental, w->run.reference, &change, is_done, err);
    for (size_t o = 0; o < w->n_outputs && status == ND_OK && *is_done; o++) {
        size_t tensor = plan->steps[w->outputs[o]].tensor;
        bool is_same = w->cut.is_skipped[tensor] && !w->is_changed[tensor];
        if (!is_same && !w->is_told[o])
            take_output(w, o, &w->run.reference[w->outputs[o]]);
        if (!is_same && !w->is_told[o])
            status = nd_fail_memory(err);
    }
    return status;
}

/* worker->trial in the sample of worker->run, which was run: fills noise. Errors as of nd_exact_graph_run. */
static enum nd_status nd_trial_worker_run(struct nd_trial_worker *w, struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    bool is_done = false;
    ND_TRY(prepare(w, err));
    const struct nd_exact_options options = options_of(w, give_reference);
    ND_TRY(follow_changes(w, &options, &is_done, err));
    /* An output that depends on a change and is not found has no error that is known. */
    for (size_t o = 0; o < w->n_outputs; o++) {
        size_t tensor = study->plan->steps[w->outputs[o]].tensor;
        bool is_same = w->cut.is_skipped[tensor] && !w->is_changed[tensor];
        if (is_same || !is_done)
            w->noise[o] = is_same ? nd_trial_worker_base_noise(w, w->outputs[o]) : NAN;
    }
    if (is_done)
        return ND_OK;
    return nd_exact_graph_run(study->plan->graph, nd_study_inputs(study, w->run.sample), &options,
                              found_changed, w, err);
}

/* ---- the changed layers alone ---- */

static enum nd_status found_watched(void *context, size_t tensor, const struct nd_array *values,
                                    enum nd_exact_method method, struct nd_error *err)
{
    (void)method;
    (void)err;
    struct nd_trial_worker *w = context;
    if (w->run.study->plan->steps[w->trial->watched].tensor == tensor)
        w->watched = noise_of(w, w->trial->watched, values);
    return ND_OK;
}

/* What is given and read by a changed layer is not ignored. */
static void read_inputs(struct nd_trial_worker *w)
{
    const struct nd_plan *plan = w->run.study->plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        const struct nd_model_layer *layer = nd_plan_layer(plan, s);
        for (size_t i = 0; layer != NULL && w->is_changed[plan->steps[s].tensor] && i < layer->n_inputs; i++)
            if (w->cut.is_skipped[layer->inputs[i]])
                w->cut.is_ignored[layer->inputs[i]] = false;
    }
}

/* The layers of the trial, fed with the float model's values; the trial at hand may leave them as they are. */
static enum nd_status run_alone(struct nd_trial_worker *w, const struct nd_trial *of, double *noise,
                                struct nd_error *err)
{
    const struct nd_study *study = w->run.study;
    const struct nd_plan *plan = study->plan;
    size_t n_tensors = nd_model_n_tensors(plan->model);
    clear(w);
    for (size_t i = 0; i < of->n_changes; i++)
        w->is_changed[plan->steps[of->changes[i].step].tensor] = true;
    for (size_t e = 0; e < n_tensors; e++) {
        w->given[e] = nd_no_array();
        w->cut.is_skipped[e] = false;
        w->cut.is_ignored[e] = !w->is_changed[e];
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t tensor = plan->steps[s].tensor;
        if (w->is_changed[tensor] || w->run.values[s].shape.rank < 0)
            continue;
        w->given[tensor] = w->run.values[s];
        w->is_real[tensor] = w->cut.is_skipped[tensor] = true;
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
static enum nd_status nd_trial_worker_watch(struct nd_trial_worker *w, double *without, double *with,
                                            struct nd_error *err)
{
    const struct nd_trial *trial = w->trial, none = {.watched = trial->watched};
    w->trial = &none;
    enum nd_status status = run_alone(w, trial, without, err);
    w->trial = trial;
    return status == ND_OK ? run_alone(w, trial, with, err) : status;
}

struct trials {
    struct nd_study *study;
    struct nd_trial *trials;
    size_t n_trials;
    size_t outputs[ND_LOSS_OUTPUTS], n_outputs;
    /* [n_effect_samples][n_outputs]; noise of each trial after each other; base: of the model as it is. */
    double *signal, *base, *noise;
    double *watched_base, *watched; /* [n_trials][n_effect_samples] of the watched steps, without and with it */
    bool watches;                   /* one of them has a watched step */
    struct nd_trial_worker *workers;
};

static enum nd_status run_sample(void *context, size_t worker, size_t k, struct nd_error *err)
{
    struct trials *all = context;
    struct nd_trial_worker *w = &all->workers[worker];
    size_t n_samples = all->study->n_effect_samples;
    ND_TRY(w->outputs == NULL ? nd_trial_worker_begin(w, all->study, all->outputs, all->n_outputs, err)
                              : ND_OK);
    w->run.takes_outputs = !all->watches; /* what is changed is fed with the quantised reference */
    ND_TRY(nd_loss_run_sample(&w->run, nd_effect_sample(all->study, k), false, err));
    for (size_t o = 0; o < all->n_outputs; o++) {
        const struct nd_array *values = &w->run.values[all->outputs[o]];
        all->signal[k * all->n_outputs + o] = nd_mean_square(values) * (double)values->n;
        all->base[k * all->n_outputs + o] = nd_trial_worker_base_noise(w, all->outputs[o]);
    }
    for (size_t i = 0; i < all->n_trials; i++) {
        w->trial = &all->trials[i];
        w->noise = all->noise + (i * n_samples + k) * all->n_outputs;
        ND_TRY(nd_trial_worker_run(w, err));
        if (w->trial->watched != SIZE_MAX)
            ND_TRY(nd_trial_worker_watch(w, &all->watched_base[i * n_samples + k],
                                         &all->watched[i * n_samples + k], err));
    }
    return ND_OK;
}

static void conclude_of_trials(const struct trials *all, size_t i)
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
    all.n_outputs = nd_study_outputs(study, all.outputs);
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
    struct nd_error introduced = {0};
    bool has_all = all.signal != NULL && all.base != NULL && all.noise != NULL && all.watched_base != NULL &&
                   all.watched != NULL && all.workers != NULL;
    enum nd_status status = has_all ? ND_OK : nd_fail_memory(&introduced);
    if (status == ND_OK)
        status = nd_parallel_for(study->n_threads, study->n_effect_samples, run_sample, &all, &introduced);
    if (status != ND_OK && err != NULL)
        *err = introduced;
    for (size_t i = 0; i < n_trials && status == ND_OK; i++)
        conclude_of_trials(&all, i);
    ND_DEINIT_EACH(nd_trial_worker_end, all.workers, study->n_threads);
    ND_FREE_ALL(all.signal, all.base, all.noise, all.watched_base, all.watched);
    return status;
}
