/* Study: see the header. */
#include <math.h>

#include "core/items.h"
#include "core/processes/parallel.h"
#include "explain/evaluate/incremental.h"
#include "explain/plan/replay.h"
#include "explain/stages.h"
#include "npudiff/explain/explain.h"
#include "quantisation/study.h"

/* What would help: changes of one layer's quantisation, each made and measured, first at the tensor itself
 * (candidates.c) and then at the outputs. What does not help is not told of. */

enum { MAX_LAYERS = 6 }; /* for which remedies are looked for: chosen */
/* The least share of the effects of a layer for which remedies are looked for; the gain at the outputs that is
 * worth telling, in dB; what a layer has to have to be accused. All chosen. */
static const double min_share = 0.03, min_gain = 0.5, accused_share = 0.1, accused_gain = 1;
/* The least share of the samples that a remedy has to make better: chosen. */
static const double min_better = 0.75;
/* The gain at the last of the changed layers, fed alone, without which a gain at the outputs is luck; in dB, as
 * that of remedies whose gain there is known before. Chosen. */
static const double min_watched_gain = 0.5;

const char *nd_remedy_kind_name(enum nd_remedy_kind kind)
{
    static const char *const names[] = {[ND_REMEDY_RANGE] = "range",
                                        [ND_REMEDY_16_BITS] = "16-bits",
                                        [ND_REMEDY_WEIGHT_CHANNELS] = "weight-channels",
                                        [ND_REMEDY_WEIGHT_16_BITS] = "weight-16-bits",
                                        [ND_REMEDY_BIAS] = "bias",
                                        [ND_REMEDY_BIAS_SHIFT] = "bias-shift",
                                        [ND_REMEDY_EQUALISE] = "equalise"};
    return names[kind];
}

/* Kinds of which several are tried for a layer. */
static bool has_rivals(enum nd_remedy_kind kind)
{
    return kind == ND_REMEDY_RANGE || kind == ND_REMEDY_EQUALISE;
}

/* Of those the one that helps most; of the rest what helps. */
static bool is_told(const struct nd_search *search, size_t i)
{
    const struct nd_candidate *c = &search->candidates[i];
    if (c->n_changes == 0 || !(c->remedy.output_gain_db >= min_gain))
        return false;
    for (size_t k = 0; k < search->n && has_rivals(c->remedy.kind); k++) {
        const struct nd_candidate *other = &search->candidates[k];
        bool is_rival = k != i && other->step == c->step && other->remedy.kind == c->remedy.kind;
        double gain = other->remedy.output_gain_db;
        if (is_rival && (gain > c->remedy.output_gain_db || (gain == c->remedy.output_gain_db && k < i)))
            return false;
    }
    return true;
}

/* Takes the text over. */
static enum nd_status tell(struct nd_quantised_layer *layer, struct nd_candidate *c, struct nd_error *err)
{
    if (layer->remedies == NULL)
        layer->remedies = nd_calloc(ND_MAX_CANDIDATES, sizeof *layer->remedies);
    ND_TRY_MEMORY(layer->remedies != NULL, err);
    size_t at = layer->n_remedies++;
    for (; at > 0 && layer->remedies[at - 1].output_gain_db < c->remedy.output_gain_db; at--)
        layer->remedies[at] = layer->remedies[at - 1];
    layer->remedies[at] = c->remedy;
    c->remedy.text = NULL;
    return ND_OK;
}

static bool can_be_mended(enum nd_loss_cause cause)
{
    return cause != ND_LOSS_NONE && cause != ND_LOSS_ROUNDING && cause != ND_LOSS_WEIGHT_ROUNDING;
}

static enum nd_status try_candidates(struct nd_search *search, struct nd_error *err)
{
    struct nd_quantisation *out = search->study->out;
    ND_FREED struct nd_trial *trials = nd_calloc(search->n, sizeof *trials);
    ND_TRY_MEMORY(trials != NULL, err);
    for (size_t i = 0; i < search->n; i++)
        trials[i] = (struct nd_trial){.changes = search->candidates[i].changes,
                                      .n_changes = search->candidates[i].n_changes,
                                      .watched = search->candidates[i].watched};
    enum nd_status status = nd_run_trials(search->study, trials, search->n, err);
    for (size_t i = 0; i < search->n; i++) {
        double n_better = (double)trials[i].n_better;
        search->candidates[i].remedy.output_gain_db = trials[i].sqnr_db - out->output_sqnr_db;
        bool is_luck = n_better < min_better * (double)search->study->n_effect_samples; /* one sample's */
        if (trials[i].watched != SIZE_MAX) {
            search->candidates[i].remedy.own_gain_db = trials[i].watched_gain_db;
            is_luck = is_luck || !(trials[i].watched_gain_db >= min_watched_gain);
        }
        if (is_luck)
            search->candidates[i].n_changes = 0;
    }
    return status;
}

/* Whether one of the changes is about a tensor that one of the trial changes. */
static bool nd_trial_overlaps(const struct nd_trial *trial, const struct nd_change *changes, size_t n_changes)
{
    for (size_t i = 0; i < trial->n_changes; i++)
        for (size_t k = 0; k < n_changes; k++) {
            const struct nd_change *a = &trial->changes[i], *b = &changes[k];
            if (a->is_range == b->is_range && (a->is_range ? a->step == b->step : a->tensor == b->tensor))
                return true;
        }
    return false;
}

/* The candidate with the greatest gain of those whose layers have none, and that does not undo others. */
static const struct nd_candidate *next_best(const struct nd_search *search, const bool *is_mended,
                                            const struct nd_trial *trial)
{
    const struct nd_candidate *best = NULL;
    for (size_t i = 0; i < search->n; i++) {
        const struct nd_candidate *c = &search->candidates[i];
        if (is_told(search, i) && !is_mended[c->step] && !nd_trial_overlaps(trial, c->changes, c->n_changes) &&
            (best == NULL || c->remedy.output_gain_db > best->remedy.output_gain_db))
            best = c;
    }
    return best;
}

/* The best remedy of each layer, all at once. */
static enum nd_status try_together(struct nd_search *search, struct nd_error *err)
{
    struct nd_quantisation *out = search->study->out;
    struct nd_change changes[MAX_LAYERS * ND_MAX_TIED];
    struct nd_trial trial = {.changes = changes, .watched = SIZE_MAX};
    bool *is_mended = nd_calloc(out->n_layers, sizeof *is_mended);
    ND_TRY_MEMORY(is_mended != NULL, err);
    for (const struct nd_candidate *c; (c = next_best(search, is_mended, &trial)) != NULL;) {
        is_mended[c->step] = true;
        memcpy(changes + trial.n_changes, c->changes, c->n_changes * sizeof *changes);
        trial.n_changes += c->n_changes;
    }
    free(is_mended);
    if (trial.n_changes == 0)
        return ND_OK;
    enum nd_status status = nd_run_trials(search->study, &trial, 1, err);
    out->mended_sqnr_db = trial.sqnr_db;
    return status;
}

static enum nd_status conclude(struct nd_search *search, struct nd_error *err)
{
    struct nd_quantisation *out = search->study->out;
    bool are_told[MAX_LAYERS * ND_MAX_CANDIDATES];
    for (size_t i = 0; i < search->n; i++)
        are_told[i] = is_told(search, i);
    for (size_t i = 0; i < search->n; i++)
        if (are_told[i])
            ND_TRY(tell(&out->layers[search->candidates[i].step], &search->candidates[i], err));
    for (size_t i = 0; i < out->n_ranked; i++) {
        struct nd_quantised_layer *layer = &out->layers[out->ranked[i]];
        bool is_worth_it = layer->effect_share >= accused_share && layer->n_remedies > 0 &&
                           layer->remedies[0].output_gain_db >= accused_gain;
        layer->is_accused = layer->cause == ND_LOSS_NOT_FINITE || (can_be_mended(layer->cause) && is_worth_it);
    }
    return ND_OK;
}

/* Remedies of the layers that matter most, measured at the outputs, and which layers are accused. */
static enum nd_status nd_find_remedies(struct nd_study *study, struct nd_error *err)
{
    const struct nd_quantisation *out = study->out;
    ND_CLEANUP(nd_search_deinit)
    struct nd_search search = {study, nd_calloc(MAX_LAYERS * ND_MAX_CANDIDATES, sizeof *search.candidates), 0};
    ND_TRY_MEMORY(search.candidates != NULL, err);
    for (size_t i = 0; i < out->n_ranked && i < MAX_LAYERS; i++)
        if (out->layers[out->ranked[i]].effect_share >= min_share)
            ND_TRY(nd_find_candidates(&search, out->ranked[i], err));
    if (search.n > 0)
        ND_TRY(try_candidates(&search, err));
    ND_TRY(try_together(&search, err));
    return conclude(&search, err);
}

/* What a study holds at a time, so that it stays within its memory. */

static double kept_bytes(const struct nd_exact_graph *graph)
{
    return graph != NULL ? (double)nd_exact_graph_kept_bytes(graph) : 0;
}

/* Constants, and the values that are kept of all samples. */
static double fixed_bytes(const struct nd_study *study)
{
    double bytes = kept_bytes(study->plan->graph) + kept_bytes(study->plan->float_graph);
    for (size_t s = 0; s < study->plan->n_steps; s++)
        bytes += (double)study->values[s].n * (double)(sizeof(float) + sizeof(float));
    return bytes;
}

/* How many threads there are, and what is kept, by the memory of the plan. Results do not depend on it.
 * ND_ERR_MEMORY. */
static enum nd_status study_take_memory(struct nd_study *study, struct nd_error *err)
{
    /* Arrays of the step at hand, as doubles of the largest step. Measured: PP-OCR recognition W8A8 took 7 of
     * them, 2026-11-23. */
    enum { OF_LARGEST = 8 };
    /* The part of the memory for libraries and gaps between arrays: chosen. */
    static const double not_counted = 1.0 / 8;
    const struct nd_plan *plan = study->plan;
    double floats = 0, qvalues = 0, largest = 0,
           left = plan->memory_bytes * (1 - not_counted) - fixed_bytes(study);
    size_t n = plan->n_threads < study->n_samples ? plan->n_threads : study->n_samples;
    for (size_t s = 0; s < plan->n_steps; s++) {
        size_t n_elems = 0;
        if (nd_shape_n_elems(&plan->shapes[s], &n_elems, NULL) != ND_OK)
            continue;
        floats += (double)n_elems * sizeof(double);
        qvalues += (double)(n_elems * nd_packed_width(nd_plan_tensor(plan, s)->dtype));
        largest = fmax(largest, (double)n_elems * sizeof(double));
    }
    double of_thread = floats + OF_LARGEST * largest, of_all = (double)study->n_samples * qvalues;
    while (n > 1 && (double)n * (of_thread + qvalues) > left)
        n--;
    study->n_threads = n;
    /* The references of all samples are worth four runs, what was rounded is worth one. */
    bool keeps = (double)n * of_thread + of_all <= left;
    left -= (double)n * of_thread + (keeps ? of_all : (double)n * qvalues);
    study->holds_before = (double)n * floats <= left || !nd_exact_graph_is_pure(plan->graph);
    if (!keeps)
        return ND_OK;
    study->references = nd_calloc(study->n_samples * plan->n_steps, sizeof *study->references);
    study->has_reference = nd_calloc(study->n_samples, sizeof *study->has_reference);
    ND_TRY_MEMORY(study->references != NULL && study->has_reference != NULL, err);
    for (size_t i = 0; i < study->n_samples * plan->n_steps; i++)
        study->references[i].tensor_view = nd_no_array();
    return ND_OK;
}

/* ---- what both models have ---- */

static size_t model_input(const struct nd_plan *plan, size_t step)
{
    const struct nd_tensor *tensor = nd_plan_tensor(plan, step);
    for (size_t i = 0; i < nd_model_n_inputs(plan->model) && !plan->steps[step].is_layer; i++) {
        const struct nd_model_io *io = nd_model_input(plan->model, i);
        if (strcmp(io->name, tensor->name) == 0 && nd_dtype_is_float(io->dtype) && tensor->quant.n > 0)
            return i;
    }
    return SIZE_MAX;
}

/* By name, as the plan matches tensors that have a scale; here those that stay floats, too. Whether they have
 * as many elements is seen when both are there. */
static void match_steps(struct nd_study *study)
{
    const struct nd_plan *plan = study->plan;
    size_t n_tensors = nd_model_n_tensors(plan->float_model);
    for (size_t s = 0; s < plan->n_steps; s++) {
        study->float_tensor[s] = SIZE_MAX;
        study->float_input[s] = model_input(plan, s);
    }
    for (size_t e = 0; e < n_tensors; e++) {
        study->step_of_float[e] = plan->step_of_float[e];
        size_t named = nd_names_find(&plan->step_of_name, nd_model_tensor(plan->float_model, e)->name);
        if (study->step_of_float[e] == SIZE_MAX && named != SIZE_MAX &&
            nd_plan_tensor(plan, named)->quant.n == 0 && nd_dtype_is_float(nd_plan_tensor(plan, named)->dtype))
            study->step_of_float[e] = named;
        if (study->step_of_float[e] != SIZE_MAX)
            study->float_tensor[study->step_of_float[e]] = e;
    }
}

/* ---- room and inputs ---- */

static enum nd_status read_input(struct nd_study *study, size_t k, size_t i, struct nd_error *err)
{
    const struct nd_plan *plan = study->plan;
    const struct nd_plan_source *leader = &plan->sources[plan->leader];
    const struct nd_model_io *io = nd_model_input(plan->model, i);
    const struct nd_probe_values tensor = {leader->capture, leader->probe, plan->inputs[i]};
    struct nd_array *input = &study->inputs[k * study->n_inputs + i];
    size_t size_bytes;
    ND_TRY(nd_shape_size_bytes(&io->shape, io->dtype, &size_bytes, err));
    ND_TRY(nd_array_make(input, io->dtype, &io->shape, err));
    ND_FREED void *raw = nd_tensor_alloc(size_bytes);
    ND_TRY_MEMORY(raw != NULL, err);
    ND_TRY(nd_capture_read_inputs(&tensor, study->samples[k], 1, raw, err));
    nd_array_load(io->dtype, raw, input->n, input->x);
    return ND_OK;
}

/* All steps and samples together keep so many values at most: 2^23 floats are 32 MB, and as much for the
 * errors; of one step and sample no fewer and no more than: chosen. */
enum { KEPT_IN_ALL = 1 << 23, KEPT_MIN = 512, KEPT_MAX = 1 << 15 };

static enum nd_status make_values(struct nd_study *study, struct nd_error *err)
{
    size_t kept = KEPT_IN_ALL / (study->plan->n_steps * study->n_samples);
    kept = kept > KEPT_MAX ? KEPT_MAX : kept < KEPT_MIN ? KEPT_MIN : kept;
    for (size_t s = 0; s < study->plan->n_steps; s++) {
        struct nd_loss_values *values = &study->values[s];
        size_t n = 0;
        if (!nd_is_matched(study, s) || nd_shape_n_elems(&study->plan->shapes[s], &n, NULL) != ND_OK)
            continue;
        values->n_per_sample = n < kept ? n : kept;
        values->n = values->n_per_sample * study->n_samples;
        values->values = nd_calloc(values->n, sizeof *values->values);
        values->errors = nd_calloc(values->n, sizeof *values->errors);
        ND_TRY_MEMORY(values->values != NULL && values->errors != NULL, err);
        for (size_t i = 0; i < values->n; i++)
            values->values[i] = NAN;
    }
    return ND_OK;
}

/* The last axis of a product of matrices, axis 1 of a convolution. */
static enum nd_status make_channels(struct nd_study *study, size_t step, struct nd_error *err)
{
    struct nd_exact_constant constants[ND_LOSS_CONSTANTS];
    const struct nd_shape *shape = &study->plan->shapes[step];
    struct nd_loss_channels *channels = &study->channels[step];
    size_t n = nd_exact_layer_constants(study->plan->graph, study->plan->steps[step].tensor, constants,
                                        ND_LOSS_CONSTANTS),
           n_elements = 0;
    bool has_weights = false;
    for (size_t i = 0; i < n; i++)
        has_weights = has_weights || constants[i].channel_axis >= 0;
    if (!has_weights || shape->rank < 2 || nd_shape_n_elems(shape, &n_elements, NULL) != ND_OK ||
        n_elements == 0)
        return ND_OK;
    int axis = shape->rank > 2 && constants[0].real->shape.rank > 2 ? 1 : shape->rank - 1;
    channels->n_inner = 1;
    for (int d = axis + 1; d < shape->rank; d++)
        channels->n_inner *= (size_t)shape->dims[d];
    channels->n = (size_t)shape->dims[axis];
    channels->shift = nd_calloc(study->n_samples * channels->n, sizeof *channels->shift);
    return channels->shift != NULL ? ND_OK : nd_fail_memory(err);
}

/* Fills study->pairs, in graph order, with room for low and high: [n_samples][n_channels] of the float model.
 * ND_ERR_MEMORY. */
static enum nd_status nd_pairs_init(struct nd_study *study, struct nd_error *err)
{
    ND_TRY(nd_find_pairs(study->plan, study->step_of_float, ND_PAIR_ONE_SCALE, &study->pairs, &study->n_pairs,
                         err));
    for (size_t p = 0; p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++) {
            struct nd_between *between = &study->pairs[p].between[i];
            between->low = nd_calloc(study->n_samples * study->pairs[p].n_channels, sizeof(double));
            between->high = nd_calloc(study->n_samples * study->pairs[p].n_channels, sizeof(double));
            ND_TRY_MEMORY(between->low != NULL && between->high != NULL, err);
        }
    return ND_OK;
}

/* The same in steps, for who asks for other remedies: plan with a float model and samples. deinit accepts a
 * zeroed one and one that was only begun. rank fills the layers, their effects and their order. */
static enum nd_status nd_study_init(struct nd_study *study, const struct nd_plan *plan, struct nd_error *err)
{
    *study = (struct nd_study){.plan = plan,
                               .n_inputs = nd_model_n_inputs(plan->model),
                               .n_float_inputs = nd_model_n_inputs(plan->float_model)};
    study->n_samples = plan->n_samples < ND_LOSS_SAMPLES ? plan->n_samples : ND_LOSS_SAMPLES;
    study->n_effect_samples =
        plan->n_output_effect_samples < ND_EFFECT_SAMPLES ? plan->n_output_effect_samples : ND_EFFECT_SAMPLES;
    for (size_t k = 0; k < study->n_samples; k++)
        study->samples[k] = k * plan->n_samples / study->n_samples;
    study->inputs = nd_calloc(study->n_samples * study->n_inputs, sizeof *study->inputs);
    study->float_tensor = nd_calloc(plan->n_steps, sizeof *study->float_tensor);
    study->float_input = nd_calloc(plan->n_steps, sizeof *study->float_input);
    study->step_of_float = nd_calloc(nd_model_n_tensors(plan->float_model), sizeof *study->step_of_float);
    study->sums = nd_calloc(study->n_samples * plan->n_steps, sizeof *study->sums);
    study->outputs = nd_calloc(study->n_samples * plan->n_steps, sizeof *study->outputs);
    study->values = nd_calloc(plan->n_steps, sizeof *study->values);
    study->channels = nd_calloc(plan->n_steps, sizeof *study->channels);
    study->flats = nd_calloc(plan->n_steps, sizeof *study->flats);
    study->out = nd_calloc(1, sizeof *study->out);
    ND_TRY_MEMORY(study->inputs != NULL && study->float_tensor != NULL && study->float_input != NULL &&
                      study->step_of_float != NULL && study->sums != NULL && study->outputs != NULL &&
                      study->values != NULL && study->channels != NULL && study->flats != NULL &&
                      study->out != NULL,
                  err);
    match_steps(study);
    study->out->layers = nd_calloc(plan->n_steps, sizeof *study->out->layers);
    study->out->ranked = nd_calloc(plan->n_steps, sizeof *study->out->ranked);
    ND_TRY_MEMORY(study->out->layers != NULL && study->out->ranked != NULL, err);
    ND_TRY(make_values(study, err));
    for (size_t s = 0; s < plan->n_steps; s++)
        if (nd_is_matched(study, s)) {
            ND_TRY(make_channels(study, s, err));
            ND_TRY(nd_flat_channels_init(study, s, err));
        }
    ND_TRY(study_take_memory(study, err));
    if (study->n_effect_samples > 0)
        ND_TRY(nd_incremental_find_layers(plan, &study->layers, err));
    ND_TRY(nd_pairs_init(study, err));
    for (size_t k = 0; k < study->n_samples; k++)
        for (size_t i = 0; i < study->n_inputs; i++)
            ND_TRY(read_input(study, k, i, err));
    return ND_OK;
}

static void nd_study_deinit(struct nd_study *study)
{
    for (size_t i = 0; study->inputs != NULL && i < study->n_samples * study->n_inputs; i++)
        nd_array_deinit(&study->inputs[i]);
    for (size_t s = 0; study->values != NULL && s < study->plan->n_steps; s++)
        ND_FREE_ALL(study->values[s].values, study->values[s].errors);
    ND_FREE_ALL(study->inputs, study->float_tensor, study->float_input, study->step_of_float, study->sums);
    ND_DEINIT_EACH(nd_array_deinit, study->outputs, study->n_samples * study->plan->n_steps);
    ND_DEINIT_EACH(nd_packed_deinit, study->references, study->n_samples * study->plan->n_steps);
    free(study->has_reference);
    for (size_t s = 0; study->channels != NULL && s < study->plan->n_steps; s++)
        free(study->channels[s].shift);
    for (size_t s = 0; study->flats != NULL && s < study->plan->n_steps; s++)
        free(study->flats[s].flat);
    free(study->channels);
    free(study->flats);
    for (size_t p = 0; study->pairs != NULL && p < study->n_pairs; p++)
        for (size_t i = 0; i < study->pairs[p].n_between; i++)
            ND_FREE_ALL(study->pairs[p].between[i].low, study->pairs[p].between[i].high);
    free(study->pairs);
    nd_byte_layers_destroy(&study->layers);
    free(study->values);
    nd_quantisation_destroy(&study->out);
}

/* ---- the stages ---- */

/* Sums of the samples, in their order. */
static void sum_up(struct nd_study *study, size_t step)
{
    struct nd_quantised_layer *layer = &study->out->layers[step];
    double n = 0, n_clipped = 0;
    *layer = (struct nd_quantised_layer){.is_known = study->n_samples > 0,
                                         .effect_db = NAN,
                                         .effect_share = NAN,
                                         .range_low = NAN,
                                         .range_high = NAN,
                                         .value_low = HUGE_VAL,
                                         .value_high = -HUGE_VAL,
                                         .central_low = NAN,
                                         .central_high = NAN,
                                         .used_share = NAN,
                                         .mask = NAN,
                                         .weight_ratio = NAN,
                                         .weight_sqnr_db = NAN};
    for (size_t k = 0; k < study->n_samples; k++) {
        const struct nd_loss_sums *sums = &study->sums[k * study->plan->n_steps + step];
        layer->is_known = layer->is_known && sums->is_known;
        layer->signal += sums->signal;
        layer->total += sums->total;
        layer->introduced += sums->introduced;
        layer->passed_on += sums->passed_on;
        layer->rounding += sums->rounding;
        layer->clipping += sums->clipping;
        layer->constants += sums->constants;
        layer->value_low = fmin(layer->value_low, sums->low);
        layer->value_high = fmax(layer->value_high, sums->high);
        n += (double)sums->n;
        n_clipped += (double)sums->n_clipped;
    }
    layer->sqnr_db = 10 * log10(layer->signal / layer->total);
    layer->introduced_sqnr_db = 10 * log10(layer->signal / layer->introduced);
    double *const means[] = {&layer->signal,   &layer->total,    &layer->introduced, &layer->passed_on,
                             &layer->rounding, &layer->clipping, &layer->constants};
    for (size_t i = 0; i < sizeof means / sizeof means[0]; i++)
        *means[i] = layer->is_known ? *means[i] / n : NAN;
    layer->clipped_share = n > 0 ? n_clipped / n : 0;
}

/* Of all layers that introduce an error, those with the most against the spread of their values. */
static size_t choose_layers(const struct nd_study *study, double *noise, size_t *steps)
{
    size_t n = 0;
    while (n < ND_LOSS_LAYERS) {
        size_t worst = SIZE_MAX;
        for (size_t s = 0; s < study->plan->n_steps; s++)
            if (noise[s] > 0 && (worst == SIZE_MAX || noise[s] > noise[worst]))
                worst = s;
        if (worst == SIZE_MAX)
            break;
        noise[worst] = 0;
        steps[n++] = worst;
    }
    return n;
}

/* noise[n_steps]: error introduced over variance. */
static enum nd_status find_causes(struct nd_study *study, double *noise, struct nd_error *err)
{
    for (size_t s = 0; s < study->plan->n_steps; s++) {
        ND_CLEANUP(nd_value_facts_deinit) struct nd_value_facts facts = {0};
        sum_up(study, s);
        if (!study->out->layers[s].is_known)
            continue;
        ND_TRY(nd_loss_value_facts(&study->values[s], &facts, err));
        noise[s] = study->out->layers[s].introduced > 0 ? facts.noise_to_signal : 0;
        ND_TRY(nd_find_cause(study, s, &facts, err));
        ND_TRY(nd_flat_channels_say(study, s, err));
        if (study->out->layers[s].cause == ND_LOSS_NOT_FINITE)
            noise[s] = HUGE_VAL; /* first of all */
    }
    return ND_OK;
}

/* By effect; but the effect of no numbers cannot be measured. */
static double weight_of(const struct nd_quantised_layer *layer)
{
    return layer->cause == ND_LOSS_NOT_FINITE ? HUGE_VAL : layer->effect_share;
}

static void rank(struct nd_quantisation *out, const size_t *steps, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        double weight = weight_of(&out->layers[steps[i]]);
        if (isnan(weight))
            continue;
        size_t at = out->n_ranked++;
        for (; at > 0 && weight_of(&out->layers[out->ranked[at - 1]]) < weight; at--)
            out->ranked[at] = out->ranked[at - 1];
        out->ranked[at] = steps[i];
    }
}

struct team {
    struct nd_study *study;
    struct nd_loss_run *runs; /* one for each worker */
};

static enum nd_status measure_sample(void *context, size_t worker, size_t task, struct nd_error *err)
{
    struct team *team = context;
    struct nd_loss_run *run = &team->runs[worker];
    if (run->study == NULL)
        ND_TRY(nd_loss_run_init(run, team->study, err));
    run->sums = team->study->sums + task * team->study->plan->n_steps;
    ND_TRY(nd_loss_run_sample(run, task, true, err));
    const struct nd_plan *plan = team->study->plan;
    for (size_t s = 0; s < plan->n_steps; s++)
        if (plan->steps[s].is_model_output && run->values[s].shape.rank >= 0)
            ND_TRY(nd_array_copy(&run->values[s], &team->study->outputs[run->sample * plan->n_steps + s], err));
    return ND_OK;
}

/* Through all samples: sums and values. */
static enum nd_status nd_measure_losses(struct nd_study *study, struct nd_error *err)
{
    struct team team = {study, nd_calloc(study->n_threads, sizeof *team.runs)};
    ND_TRY_MEMORY(team.runs != NULL, err);
    struct nd_error introduced = {0};
    enum nd_status status =
        nd_parallel_for(study->n_threads, study->n_samples, measure_sample, &team, &introduced);
    if (status != ND_OK && err != NULL)
        *err = introduced;
    ND_DEINIT_EACH(nd_loss_run_deinit, team.runs, study->n_threads);
    return status;
}

/* The same in steps, for who asks for other remedies: plan with a float model and samples. deinit accepts a
 * zeroed one and one that was only begun. rank fills the layers, their effects and their order. */
static enum nd_status nd_study_rank(struct nd_study *study, struct nd_error *err)
{
    size_t steps[ND_LOSS_LAYERS];
    ND_FREED double *noise = nd_calloc(study->plan->n_steps, sizeof *noise);
    struct nd_quantisation *out = study->out;
    out->n_samples = study->n_samples;
    out->n_effect_samples = study->n_effect_samples;
    out->n_layers = study->plan->n_steps;
    out->output_sqnr_db = out->mended_sqnr_db = NAN;
    ND_TRY_MEMORY(noise != NULL, err);
    ND_TRY(nd_measure_losses(study, err));
    ND_TRY(find_causes(study, noise, err));
    size_t n = choose_layers(study, noise, steps);
    if (study->n_effect_samples > 0)
        ND_TRY(nd_measure_effects(study, steps, n, err));
    rank(out, steps, n);
    return ND_OK;
}

/* Of the plan, whose steps the layers are. */
static enum nd_status copy_equalised(const struct nd_plan *plan, struct nd_quantisation *out,
                                     struct nd_error *err)
{
    out->equalised = nd_calloc(plan->n_equalised, sizeof *out->equalised);
    ND_TRY_MEMORY(out->equalised != NULL, err);
    for (size_t i = 0; i < plan->n_equalised; i++)
        out->equalised[out->n_equalised++] = plan->equalised[i];
    return ND_OK;
}

static enum nd_status run_study(struct nd_study *study, struct nd_error *err)
{
    ND_TRY(nd_study_rank(study, err));
    ND_TRY(nd_find_remedies(study, err));
    return study->out->n_ranked > 0 ? nd_find_whole_remedies(study, err) : ND_OK;
}

/* *out is a new nd_quantisation with n_steps layers, or NULL where there is no float model or no sample. The
 * float model has been matched with the steps by the plan. ND_ERR_MEMORY, or what reading inputs gives. */
static enum nd_status study_quantisation(const struct nd_plan *plan, struct nd_quantisation **out,
                                         struct nd_error *err)
{
    ND_CLEANUP(nd_study_deinit) struct nd_study study = {0};
    *out = NULL;
    if (plan->float_graph == NULL || plan->n_samples == 0)
        return ND_OK;
    ND_TRY(nd_study_init(&study, plan, err));
    ND_TRY(copy_equalised(plan, study.out, err));
    ND_TRY(run_study(&study, err));
    *out = study.out;
    study.out = NULL;
    return ND_OK;
}

/* Of all layers whose effect is known. */
static enum nd_status find_candidates(struct nd_promotions *p, struct nd_error *err)
{
    static const enum nd_remedy_kind kinds[] = {ND_REMEDY_WEIGHT_CHANNELS, ND_REMEDY_16_BITS};
    const struct nd_quantisation *out = p->study.out;
    size_t n_kinds = sizeof kinds / sizeof kinds[0];
    p->search =
        (struct nd_search){&p->study, nd_calloc(out->n_ranked * n_kinds + 1, sizeof *p->search.candidates), 0};
    enum nd_status status = p->search.candidates != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t s = 0; s < out->n_layers; s++)
        for (size_t i = 0; i < out->n_ranked; i++)
            for (size_t k = 0; k < n_kinds && out->ranked[i] == s && status == ND_OK; k++)
                status = nd_find_candidate(&p->search, s, kinds[k], err);
    return status;
}

static enum nd_status list_candidates(struct nd_promotions *p, struct nd_error *err)
{
    p->items = nd_calloc(p->search.n + 1, sizeof *p->items);
    ND_TRY_MEMORY(p->items != NULL, err);
    for (size_t i = 0; i < p->search.n; i++) {
        const struct nd_candidate *c = &p->search.candidates[i];
        if (c->n_changes > 0)
            p->items[p->n++] = (struct nd_promotion){
                c->step, c->remedy.kind, p->study.out->layers[c->step].effect_share, c->changes, c->n_changes};
    }
    return ND_OK;
}

enum nd_status nd_promotions_find(const struct nd_plan *plan, struct nd_promotions **out, struct nd_error *err)
{
    ND_CLEANUP(nd_promotions_destroy) struct nd_promotions *p = nd_calloc(1, sizeof *p);
    ND_TRY_MEMORY(p != NULL, err);
    ND_TRY(nd_study_init(&p->study, plan, err));
    ND_TRY(nd_study_rank(&p->study, err));
    ND_TRY(find_candidates(p, err));
    ND_TRY(list_candidates(p, err));
    return ND_GIVE(out, p);
}

void nd_promotions_destroy(struct nd_promotions **promotions)
{
    struct nd_promotions *p = *promotions;
    if (p == NULL)
        return;
    nd_search_deinit(&p->search);
    nd_study_deinit(&p->study);
    ND_FREE_ALL(p->items, p);
    *promotions = NULL;
}

/* The changes of those that were kept, and behind them those of item i: 0 where both change the same. */
static size_t join(const struct nd_promotions *p, const size_t *kept, size_t n_kept, size_t i,
                   struct nd_change *changes)
{
    const struct nd_promotion *item = &p->items[i];
    size_t n = 0;
    for (size_t k = 0; k < n_kept; k++) {
        memcpy(changes + n, p->items[kept[k]].changes, p->items[kept[k]].n_changes * sizeof *changes);
        n += p->items[kept[k]].n_changes;
    }
    const struct nd_trial trial = {.changes = changes, .n_changes = n};
    if (nd_trial_overlaps(&trial, item->changes, item->n_changes))
        return 0;
    memcpy(changes + n, item->changes, item->n_changes * sizeof *changes);
    return n + item->n_changes;
}

enum nd_status nd_promotions_try(struct nd_promotions *p, const size_t *kept, size_t n_kept, double *sqnr_db,
                                 struct nd_error *err)
{
    size_t n_max = (n_kept + 1) * ND_MAX_TIED;
    ND_FREED struct nd_change *changes = nd_calloc(p->n * n_max + 1, sizeof *changes);
    ND_FREED struct nd_trial *trials = nd_calloc(p->n + 1, sizeof *trials);
    ND_TRY_MEMORY(changes != NULL && trials != NULL, err);
    for (size_t i = 0; i < p->n; i++)
        trials[i] = (struct nd_trial){.changes = changes + i * n_max,
                                      .n_changes = join(p, kept, n_kept, i, changes + i * n_max),
                                      .watched = SIZE_MAX};
    ND_TRY(nd_run_trials(&p->study, trials, p->n, err));
    for (size_t i = 0; i < p->n; i++)
        sqnr_db[i] = trials[i].n_changes > 0 ? trials[i].sqnr_db : (double)NAN;
    return ND_OK;
}

/* nd_explain, as arithmetics call it: what each device does (src/explain/explain.c), and what the quantisation
 * costs. */

enum nd_status nd_explain(const struct nd_model *model, const struct nd_model *float_model,
                          const struct nd_capture *const *captures, size_t n_captures,
                          const struct nd_explain_options *options, struct nd_explanation **out,
                          struct nd_error *err)
{
    const struct nd_question question = {model, float_model, captures, n_captures};
    return nd_explain_with(&question, options, study_quantisation, out, err);
}
