/* What is looked for in model outputs: the largest value, and what they say as probabilities.
 * docs/reference/metrics.md#distributions and #top-1. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "compare/engine/unit_internal.h"

/* What is no number in a sample, or in the part of it that is here; of a model output also its largest value.
 */
static void find_best(struct nd_worker *w, struct nd_job *job, const struct nd_unit_range *range, size_t sample)
{
    size_t n_samples = job->end_sample - job->first_sample;
    for (size_t i = 0; i < job->n_streams; i++) {
        const struct nd_stream *s = &job->streams[i];
        if (!s->is_scanned || !w->is_needed[i])
            continue;
        struct nd_best best = {.index = -1, .specials = {w->sides[i].n_nan, w->sides[i].n_inf}};
        if (job->is_output) {
            best.specials = (struct nd_specials){0};
            nd_best_offer(&best, &s->layout, job->kernels,
                          nd_unit_bytes(w, job, range, i, sample, range->first), range->first,
                          range->end - range->first);
        }
        pthread_mutex_lock(&job->lock);
        nd_best_merge(&job->best[i * n_samples + sample - job->first_sample], &best);
        pthread_mutex_unlock(&job->lock);
    }
}

static enum nd_status load_reals(struct nd_worker *w, const struct nd_job *job,
                                 const struct nd_unit_range *range, size_t stream, size_t sample,
                                 struct nd_error *err)
{
    const struct nd_layout *layout = &job->streams[stream].layout;
    const unsigned char *bytes = nd_unit_bytes(w, job, range, stream, sample, 0);
    if (w->reals[stream] == NULL && (w->reals[stream] = nd_calloc(w->reals_capacity, sizeof(double))) == NULL)
        return nd_fail_memory(err);
    double *reals = w->reals[stream];
    for (size_t first = 0; first < job->n_elems; first += ND_BLOCK) {
        size_t left = job->n_elems - first, n = left < ND_BLOCK ? left : ND_BLOCK;
        nd_layout_load(layout, job->kernels, bytes + first * layout->elem_bytes, first, n, reals + first);
        for (size_t i = first; i < first + n; i++)
            reals[i] *= layout->unit;
    }
    w->probabilities[stream] = (struct nd_probabilities){.n = job->n_elems, .values = reals};
    nd_probabilities_describe(&w->probabilities[stream]);
    return ND_OK;
}

static enum nd_status compare_distributions(struct nd_worker *w, struct nd_job *job,
                                            const struct nd_unit_range *range, size_t sample,
                                            struct nd_error *err)
{
    if (w->reals_capacity < job->n_elems) {
        for (size_t i = 0; i < w->n_streams; i++) {
            free(w->reals[i]);
            w->reals[i] = NULL;
        }
        w->reals_capacity = job->n_elems;
    }
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < job->n_streams && status == ND_OK; i++)
        if (w->is_needed[i] && w->same[i] == i)
            status = load_reals(w, job, range, i, sample, err);
    for (size_t p = 0; p < job->n_pairs && status == ND_OK; p++) {
        const struct nd_job_pair *pair = &job->pairs[p];
        if (pair->has_values && sample < pair->n_common && w->is_needed[pair->ref] && w->is_needed[pair->test])
            nd_distribution_add(&job->states[w->index][p]->distribution, &w->probabilities[w->same[pair->ref]],
                                &w->probabilities[w->same[pair->test]]);
    }
    return status;
}

enum nd_status nd_unit_outputs(struct nd_worker *w, struct nd_job *job, const struct nd_unit_range *range,
                               size_t sample, struct nd_error *err)
{
    find_best(w, job, range, sample);
    bool is_whole = job->is_output && job->units_per_sample == 1 && job->n_elems <= ND_OUTPUT_WHOLE;
    return is_whole ? compare_distributions(w, job, range, sample, err) : ND_OK;
}
