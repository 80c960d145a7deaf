/* What would help: changes of one layer's quantisation, each made and measured, first at the tensor itself
 * (candidates.c) and then at the outputs. What does not help is not told of. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "quantisation/study.h"

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

bool nd_trial_overlaps(const struct nd_trial *trial, const struct nd_change *changes, size_t n_changes)
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
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < search->n; i++)
        are_told[i] = is_told(search, i);
    for (size_t i = 0; i < search->n && status == ND_OK; i++)
        if (are_told[i])
            status = tell(&out->layers[search->candidates[i].step], &search->candidates[i], err);
    for (size_t i = 0; i < out->n_ranked; i++) {
        struct nd_quantised_layer *layer = &out->layers[out->ranked[i]];
        bool is_worth_it = layer->effect_share >= accused_share && layer->n_remedies > 0 &&
                           layer->remedies[0].output_gain_db >= accused_gain;
        layer->is_accused = layer->cause == ND_LOSS_NOT_FINITE || (can_be_mended(layer->cause) && is_worth_it);
    }
    return status;
}

enum nd_status nd_find_remedies(struct nd_study *study, struct nd_error *err)
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
