/* Equalise: see the header. */
#include "improve/align/equalise.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "improve/align/observed.h"

/* Of each fold: chosen. */
enum { MAX_SAMPLES = 8 };

/* Samples from..from + n - 1. The bytes are the user's. */
static enum nd_status view_part(const struct nd_probe *probe, size_t from, size_t n, struct nd_probe *out,
                                struct nd_error *err)
{
    *out = *probe;
    out->n_samples = n;
    out->labels = NULL;
    out->n_goals = 0;
    out->goals = NULL;
    out->inputs = nd_calloc(probe->n_inputs, sizeof *out->inputs);
    if (out->inputs == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        out->inputs[i] = probe->inputs[i];
        out->inputs[i].data = (unsigned char *)probe->inputs[i].data + from * probe->inputs[i].sample_bytes;
    }
    return ND_OK;
}

/* part 0: the samples that weights are rounded for; 1: those that the error is measured on. */
static enum nd_status fill_part(const struct nd_align_options *fit, size_t index, size_t part,
                                struct nd_align_fold *fold, struct nd_error *err)
{
    size_t n = 0;
    enum nd_status status = ND_OK;
    fold->probes[part] = nd_calloc(fit->n_probes, sizeof *fold->probes[part]);
    fold->views[part] = nd_calloc(fit->n_probes, sizeof *fold->views[part]);
    if (fold->probes[part] == NULL || fold->views[part] == NULL)
        return nd_fail_memory(err);
    for (size_t p = 0; p < fit->n_probes && status == ND_OK; p++) {
        size_t half = fit->probes[p]->n_samples / 2, is_second = index == part;
        size_t from = is_second ? half : 0, count = is_second ? fit->probes[p]->n_samples - half : half;
        if (count == 0)
            continue;
        status = view_part(fit->probes[p], from, count, &fold->probes[part][n], err);
        fold->views[part][n] = &fold->probes[part][n];
        n++;
    }
    *(part == 0 ? &fold->options.n_fit : &fold->options.n_probes) = n;
    return status;
}

/* ND_ERR_MEMORY. Call deinit in any case. */
static enum nd_status nd_align_folds_init(const struct nd_align_options *options, struct nd_align_folds *folds,
                                          struct nd_error *err)
{
    struct nd_align_options fit;
    enum nd_status status = ND_OK;
    *folds = (struct nd_align_folds){0};
    if (!nd_align_fit_options(options, &fit) || nd_align_n_samples(&fit) < ND_ALIGN_FOLDS)
        return ND_OK;
    for (size_t i = 0; i < ND_ALIGN_FOLDS; i++) {
        struct nd_align_fold *fold = &folds->items[i];
        fold->options = fit;
        fold->n_probes = fit.n_probes;
        for (size_t part = 0; part < 2 && status == ND_OK; part++)
            status = fill_part(&fit, i, part, fold, err);
        if (status != ND_OK)
            return status;
        fold->options.fit = fold->views[0];
        fold->options.probes = fold->views[1];
        fold->options.n_samples = MAX_SAMPLES;
        if (fold->options.n_fit == 0 || fold->options.n_probes == 0) {
            folds->n_samples = 0;
            return ND_OK;
        }
        folds->n_samples += nd_align_n_samples(&fold->options);
    }
    return ND_OK;
}

static void nd_align_folds_deinit(struct nd_align_folds *folds)
{
    for (size_t i = 0; i < ND_ALIGN_FOLDS; i++)
        for (size_t part = 0; part < 2; part++) {
            struct nd_align_fold *fold = &folds->items[i];
            for (size_t p = 0; fold->probes[part] != NULL && p < fold->n_probes; p++)
                free(fold->probes[part][p].inputs);
            free(fold->probes[part]);
            free(fold->views[part]);
        }
    *folds = (struct nd_align_folds){0};
}

static enum nd_status try_fold(const struct nd_align_job *job, const struct nd_align_fold *fold,
                               const struct nd_align_equalised *made, double *noises, struct nd_error *err)
{
    struct nd_alignment *scratch = nd_calloc(1, sizeof *scratch);
    struct nd_align_job own = *job;
    if (scratch == NULL)
        return nd_fail_memory(err);
    own.options = &fold->options;
    own.result = scratch;
    own.observed = NULL;
    own.aligned = own.read_again = NULL;
    own.model = made != NULL ? made->model : job->model;
    struct nd_align_plan plan = {.model = own.model,
                                 .float_model = own.options->float_model,
                                 .arithmetics = own.arithmetics,
                                 .n_arithmetics = own.n_arithmetics,
                                 .scaled = made != NULL ? made->scaled : NULL,
                                 .n_scaled = made != NULL ? made->n_scaled : 0};
    enum nd_status status = nd_align_observe(&own, &own.observed, err);
    plan.observed = own.observed;
    if (status == ND_OK)
        status = nd_align_plan_make(&plan, err);
    if (status == ND_OK)
        status = nd_align_write(&own, &plan, err);
    if (status == ND_OK)
        status = nd_align_accuracy_cost(&own, noises, err);
    nd_align_plan_deinit(&plan);
    nd_observed_destroy(&own.observed);
    nd_model_destroy(&own.read_again);
    nd_alignment_destroy(&scratch);
    return status;
}

/* noises [folds->n_samples]: at the outputs of the aligned model by the float model's signal, if that is what
 * is aligned (NULL: the job's). */
static enum nd_status nd_align_try(const struct nd_align_job *job, const struct nd_align_folds *folds,
                                   const struct nd_align_equalised *made, double *noises, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < ND_ALIGN_FOLDS && status == ND_OK; i++) {
        status = try_fold(job, &folds->items[i], made, noises, err);
        noises += nd_align_n_samples(&folds->items[i].options);
    }
    return status;
}

/* Pairs whose factors differ by less are left alone: half a bit, as in src/quantisation/candidates.c.
 */
static const double min_spread = 1.5;
/* What a trial has to gain at the outputs, and in which share of the samples, as a remedy of explain:
 * docs/reference/diagnoses.md. */
static const double min_gain_db = 0.5, min_share = 0.75;
/* Chosen: pairs that are tried one by one. */
enum { MAX_TRIED = 6 };

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
    return gain >= min_gain_db && (double)n_better >= min_share * (double)n;
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
        if (!is_done[p] && s->pairs.items[p].spread > min_spread &&
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
        is_on[p] = s->pairs.items[p].spread > min_spread;
    for (size_t i = 0; i < sizeof strengths / sizeof strengths[0] && status == ND_OK; i++)
        status = try(s, is_on, strengths[i], err);
    for (size_t i = 0; i < MAX_TRIED && status == ND_OK; i++) {
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
