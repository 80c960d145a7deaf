#include "improve/align/equalise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "improve/align/observed.h"
#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"

/* Pairs whose factors differ by less are left alone: half a bit, as in src/quantisation/equalise_candidates.c.
 */
static const double least_spread = 1.5;
/* What a trial has to gain at the outputs, and in which share of the samples, as a remedy of explain:
 * docs/reference/diagnoses.md. */
static const double least_gain_db = 0.5, least_share = 0.75;
/* Chosen: pairs that are tried one by one. */
enum { MOST_TRIED = 6 };

struct search {
    struct nd_align_job *job;
    struct nd_align_pairs pairs;
    struct nd_align_folds folds;
    char *path; /* of the model that is tried */
    size_t n_trials;
    double *noises, *best; /* [folds.n_samples] of the trial, and of the best so far */
    bool *is_on;           /* [pairs.n] of the best, like the next two */
    double strength;
    size_t n_on;
};

static bool is_better(const struct search *s)
{
    static const double none = 1e-30; /* a model without an error can get no better */
    double gain = 0;
    size_t n = s->folds.n_samples, n_better = 0;
    for (size_t i = 0; i < n; i++) {
        gain += 10 * log10((s->best[i] + none) / (s->noises[i] + none)) / (double)n;
        n_better += s->noises[i] < s->best[i];
    }
    return gain >= least_gain_db && (double)n_better >= least_share * (double)n;
}

/* These pairs, and factors to that power: the best, if they are. */
static enum nd_status try(struct search *s, const bool *is_on, double strength, struct nd_error *err)
{
    struct nd_align_equalised made;
    enum nd_status status = nd_align_tell(s->job, "equalise", s->n_trials++, 0, err);
    if (status == ND_OK)
        status = nd_align_equalise(s->job->model, &s->pairs, is_on, strength, s->path, &made, err);
    if (status != ND_OK)
        return status;
    status = nd_align_try(s->job, &s->folds, &made, s->noises, err);
    nd_align_equalised_deinit(&made);
    if (status != ND_OK || !is_better(s))
        return status;
    memcpy(s->best, s->noises, s->folds.n_samples * sizeof *s->best);
    memcpy(s->is_on, is_on, s->pairs.n * sizeof *s->is_on);
    s->strength = strength;
    s->n_on = 0;
    for (size_t p = 0; p < s->pairs.n; p++)
        s->n_on += is_on[p];
    return ND_OK;
}

/* The pair with the next lower spread that is worth a trial; SIZE_MAX: none. */
static size_t next_pair(const struct search *s, const bool *is_done)
{
    size_t best = SIZE_MAX;
    for (size_t p = 0; p < s->pairs.n; p++)
        if (!is_done[p] && s->pairs.items[p].spread > least_spread &&
            (best == SIZE_MAX || s->pairs.items[p].spread > s->pairs.items[best].spread))
            best = p;
    return best;
}

/* All pairs, with whole factors and with their roots; then one after the other is added or taken away. */
static enum nd_status search(struct search *s, bool *is_on, bool *is_done, struct nd_error *err)
{
    static const double strengths[] = {1, 0.5};
    enum nd_status status = nd_align_try(s->job, &s->folds, NULL, s->best, err);
    for (size_t p = 0; p < s->pairs.n; p++)
        is_on[p] = s->pairs.items[p].spread > least_spread;
    for (size_t i = 0; i < sizeof strengths / sizeof strengths[0] && status == ND_OK; i++)
        status = try(s, is_on, strengths[i], err);
    for (size_t i = 0; i < MOST_TRIED && status == ND_OK; i++) {
        size_t pair = next_pair(s, is_done);
        if (pair == SIZE_MAX)
            return ND_OK;
        is_done[pair] = true;
        for (size_t p = 0; p < s->pairs.n; p++)
            is_on[p] = s->is_on[p] != (p == pair);
        status = try(s, is_on, s->strength, err);
    }
    return status;
}

/* The best becomes what is planned. */
static enum nd_status take_over(struct search *s, struct nd_error *err)
{
    struct nd_align_job *job = s->job;
    struct nd_align_equalised *made = nd_calloc(1, sizeof *made);
    if (made == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_align_equalise(job->model, &s->pairs, s->is_on, s->strength, s->path, made, err);
    if (status != ND_OK) {
        free(made);
        return status;
    }
    job->equalised = made;
    job->model = made->model;
    job->result->n_equalised = s->n_on;
    nd_observed_destroy(&job->observed);
    return nd_align_observe(job, &job->observed, err);
}

enum nd_status nd_align_equalise_best(struct nd_align_job *job, struct nd_error *err)
{
    struct search s = {.job = job, .strength = 1};
    bool *is_on = NULL, *is_done = NULL;
    if (job->options->float_model == NULL)
        return ND_OK;
    enum nd_status status = nd_align_folds_init(job->options, &s.folds, err);
    if (status == ND_OK && s.folds.n_samples > 0)
        status = nd_align_pairs_find(job, &s.pairs, err);
    size_t n = s.pairs.n;
    if (status == ND_OK && n > 0)
        status = nd_align_name_file(job, "equalised.onnx", &s.path, err);
    if (status == ND_OK && n > 0) {
        s.noises = nd_calloc(s.folds.n_samples, sizeof *s.noises);
        s.best = nd_calloc(s.folds.n_samples, sizeof *s.best);
        s.is_on = nd_calloc(n, sizeof *s.is_on);
        is_on = nd_calloc(n, sizeof *is_on);
        is_done = nd_calloc(n, sizeof *is_done);
        bool are_made =
            s.noises != NULL && s.best != NULL && s.is_on != NULL && is_on != NULL && is_done != NULL;
        status = are_made ? search(&s, is_on, is_done, err) : nd_fail_memory(err);
    }
    if (status == ND_OK && s.n_on > 0)
        status = take_over(&s, err);
    nd_align_pairs_deinit(&s.pairs);
    nd_align_folds_deinit(&s.folds);
    free(s.path);
    free(s.noises);
    free(s.best);
    free(s.is_on);
    free(is_on);
    free(is_done);
    return status;
}

enum nd_status nd_align_unequalise(struct nd_align_job *job, struct nd_error *err)
{
    if (job->equalised == NULL)
        return ND_OK;
    nd_align_equalised_destroy(&job->equalised);
    job->model = job->folded != NULL ? job->folded : job->original;
    job->result->n_equalised = 0;
    nd_observed_destroy(&job->observed);
    return nd_align_observe(job, &job->observed, err);
}
