/* What the outputs would be if the model were quantised in a different way: the quantised reference is run
 * again with the changes made (trial_run.c). */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/processes/parallel.h"
#include "quantisation/trial_run.h"
#include "explain/plan/reader.h"

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
    enum nd_status status =
        w->outputs == NULL ? nd_trial_worker_begin(w, all->study, all->outputs, all->n_outputs, err) : ND_OK;
    w->run.takes_outputs = !all->watches; /* what is changed is fed with the quantised reference */
    if (status == ND_OK)
        status = nd_loss_run_sample(&w->run, nd_effect_sample(all->study, k), false, err);
    for (size_t o = 0; o < all->n_outputs && status == ND_OK; o++) {
        const struct nd_array *values = &w->run.values[all->outputs[o]];
        all->signal[k * all->n_outputs + o] = nd_mean_square(values) * (double)values->n;
        all->base[k * all->n_outputs + o] = nd_trial_worker_base_noise(w, all->outputs[o]);
    }
    for (size_t i = 0; i < all->n_trials && status == ND_OK; i++) {
        w->trial = &all->trials[i];
        w->noise = all->noise + (i * n_samples + k) * all->n_outputs;
        status = nd_trial_worker_run(w, err);
        if (status == ND_OK && w->trial->watched != SIZE_MAX)
            status = nd_trial_worker_watch(w, &all->watched_base[i * n_samples + k],
                                           &all->watched[i * n_samples + k], err);
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
        nd_trial_worker_end(&all.workers[i]);
    free(all.signal);
    free(all.base);
    free(all.noise);
    free(all.watched_base);
    free(all.watched);
    free(all.workers);
    return status;
}
