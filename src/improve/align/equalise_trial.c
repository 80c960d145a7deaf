#include <stdlib.h>

#include "improve/align/equalise.h"
#include "improve/align/observed.h"
#include "core/error.h"
#include "core/memory.h"

/* Of each fold: chosen. */
enum { MOST_SAMPLES = 8 };

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

enum nd_status nd_align_folds_init(const struct nd_align_options *options, struct nd_align_folds *folds,
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
        fold->options.n_samples = MOST_SAMPLES;
        if (fold->options.n_fit == 0 || fold->options.n_probes == 0) {
            folds->n_samples = 0;
            return ND_OK;
        }
        folds->n_samples += nd_align_n_samples(&fold->options);
    }
    return ND_OK;
}

void nd_align_folds_deinit(struct nd_align_folds *folds)
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
                                 .programs = own.programs,
                                 .n_programs = own.n_programs,
                                 .scaled = made != NULL ? made->scaled : NULL,
                                 .n_scaled = made != NULL ? made->n_scaled : 0};
    enum nd_status status = nd_align_observe(&own, &own.observed, err);
    plan.observed = own.observed;
    if (status == ND_OK)
        status = nd_align_plan_make(&plan, err);
    if (status == ND_OK)
        status = nd_align_write(&own, &plan, err);
    if (status == ND_OK)
        status = nd_align_price(&own, noises, err);
    nd_align_plan_deinit(&plan);
    nd_observed_destroy(&own.observed);
    nd_model_destroy(&own.read_again);
    nd_alignment_destroy(&scratch);
    return status;
}

enum nd_status nd_align_try(const struct nd_align_job *job, const struct nd_align_folds *folds,
                            const struct nd_align_equalised *made, double *noises, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < ND_ALIGN_FOLDS && status == ND_OK; i++) {
        status = try_fold(job, &folds->items[i], made, noises, err);
        noises += nd_align_n_samples(&folds->items[i].options);
    }
    return status;
}
