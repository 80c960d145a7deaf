#include "compare/engine/deliver.h"

#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "compare/engine/part.h"
#include "compare/metrics/joint.h"

enum nd_status nd_delivery_init(struct nd_delivery *delivery, struct nd_job *const *jobs, size_t n_jobs,
                                struct nd_error *err)
{
    struct nd_comparison *comparison = delivery->comparison;
    delivery->edges = nd_calloc(comparison->n_edges, sizeof *delivery->edges);
    delivery->rows.n_captures = delivery->alignment->n_captures;
    if (delivery->edges == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_jobs; i++)
        delivery->edges[jobs[i]->edge].n_jobs_left++;
    enum nd_status status = ND_OK;
    for (size_t e = 0; e < comparison->n_edges; e++) {
        const struct nd_compared_edge *edge = &comparison->edges[e];
        size_t n_elems;
        if (!edge->is_model_output || edge->shape.rank < 1 ||
            nd_shape_n_elems(&edge->shape, &n_elems, NULL) != ND_OK || n_elems < 2)
            continue;
        for (size_t p = 0; p < comparison->n_probes && status == ND_OK; p++) {
            size_t first, end;
            nd_cut_samples(delivery->alignment, p, delivery->options, &first, &end);
            status = nd_output_rows_add(&delivery->rows, e, p, first, end, err);
        }
    }
    return status;
}

static void free_totals(struct nd_edge_work *work, size_t n_pairs)
{
    for (size_t p = 0; work->totals != NULL && p < n_pairs; p++)
        nd_pair_state_destroy(&work->totals[p]);
    free(work->totals);
    free(work->contexts);
    *work = (struct nd_edge_work){0};
}

void nd_delivery_deinit(struct nd_delivery *delivery)
{
    for (size_t e = 0; delivery->edges != NULL && e < delivery->comparison->n_edges; e++)
        free_totals(&delivery->edges[e], delivery->comparison->n_pairs);
    free(delivery->edges);
    nd_output_rows_deinit(&delivery->rows);
}

/* What the workers found, into the state that knows the samples. */
static enum nd_status gather(struct nd_job *job, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t w = 0; w < job->n_workers; w++) {
        if (job->states[w] == NULL)
            continue;
        for (size_t p = 0; p < job->n_pairs; p++) {
            if (job->states[w][p] != NULL)
                nd_joint_settle(job->states[w][p], &job->pairs[p].context);
            if (status == ND_OK && job->states[w][p] != NULL)
                status = nd_pair_state_merge(job->pairs[p].state, job->states[w][p], err);
            nd_pair_state_destroy(&job->states[w][p]);
        }
        free(job->states[w]);
        job->states[w] = NULL;
    }
    return status;
}

static uint64_t count_stuck(const struct nd_job *job, const struct nd_job_pair *pair, size_t stream)
{
    size_t n_samples = job->end_sample - job->first_sample;
    uint64_t n = 0;
    for (size_t i = 0; i < n_samples; i++) {
        const struct nd_span *span = &job->spans[stream * n_samples + i];
        n += (pair->context.is_mixed || atomic_load(&pair->seen[i])) && !span->has_others &&
             span->min == span->max;
    }
    return n;
}

/* What is no number, in all samples of a pair of which both sides were read. Codes are numbers. */
static void count_numbers(const struct nd_job *job, const struct nd_job_pair *pair)
{
    size_t n_samples = job->end_sample - job->first_sample;
    size_t n_common = pair->n_common < job->end_sample ? pair->n_common : job->end_sample;
    const size_t sides[2] = {pair->ref, pair->test};
    static const struct nd_specials none = {0};
    bool has_floats = false;
    for (size_t i = 0; i < 2; i++) {
        const struct nd_stream *stream = &job->streams[sides[i]];
        has_floats = has_floats || stream->layout.is_float;
        if (stream->layout.is_float && !stream->is_scanned)
            return;
    }
    for (size_t s = job->first_sample; s < n_common && pair->has_values && has_floats; s++) {
        const struct nd_specials *specials[2];
        for (size_t i = 0; i < 2; i++)
            specials[i] = job->streams[sides[i]].layout.is_float
                              ? &job->best[sides[i] * n_samples + s - job->first_sample].specials
                              : &none;
        nd_numbers_add_sample(&pair->state->numbers, job->n_elems, specials[0], specials[1]);
    }
}

/* What only whole samples tell. */
static void count_whole_samples(struct nd_job *job)
{
    for (size_t p = 0; p < job->n_pairs; p++) {
        struct nd_job_pair *pair = &job->pairs[p];
        if (job->best != NULL)
            count_numbers(job, pair);
        if (job->spans != NULL) {
            pair->state->account.ref.n_stuck_samples += count_stuck(job, pair, pair->ref);
            pair->state->account.test.n_stuck_samples += count_stuck(job, pair, pair->test);
        }
        /* Parts that are merged counted them when they were made, and nothing is seen now. */
        bool is_counted = pair->context.is_mixed && pair->seen != NULL;
        for (size_t i = 0; is_counted && i < job->end_sample - job->first_sample; i++)
            pair->state->bits.n_samples_differing += atomic_load(&pair->seen[i]);
    }
}

enum nd_status nd_deliver_check(const struct nd_job *job, struct nd_error *err)
{
    const struct nd_matching *a = job->alignment;
    for (size_t p = 0; p < job->n_pairs; p++) {
        const struct nd_job_pair *pair = &job->pairs[p];
        size_t end = pair->n_common < job->end_sample ? pair->n_common : job->end_sample;
        for (size_t s = job->first_sample; s < end && pair->has_values && !pair->context.is_mixed; s++)
            if (!atomic_load(&pair->seen[s - job->first_sample]) &&
                !nd_job_is_equal(job, pair->ref, pair->test, s))
                return nd_fail(
                    err, ND_E_CAPTURE_DIGEST, a->edge_names[job->edge],
                    "edge '%s', probe '%s', sample %zu: the digests in '%s' and '%s' differ, but the "
                    "data does not",
                    a->edge_names[job->edge], a->probe_names[job->probe], s,
                    nd_capture_path(job->streams[pair->ref].tensor.capture),
                    nd_capture_path(job->streams[pair->test].tensor.capture));
    }
    return ND_OK;
}

static enum nd_status add_total(struct nd_edge_work *work, size_t n_pairs, size_t p,
                                const struct nd_job_pair *pair, struct nd_error *err)
{
    if (work->totals == NULL) {
        work->totals = nd_calloc(n_pairs, sizeof *work->totals);
        work->contexts = nd_calloc(n_pairs, sizeof *work->contexts);
    }
    if (work->totals == NULL || work->contexts == NULL)
        return nd_fail_memory(err);
    work->contexts[p] = &pair->context;
    if (work->totals[p] == NULL && (work->totals[p] = nd_pair_state_create(&pair->context, err)) == NULL)
        return ND_ERR_MEMORY;
    return nd_pair_state_merge(work->totals[p], pair->state, err);
}

static enum nd_status deliver_pair(struct nd_delivery *delivery, struct nd_job *job, size_t p,
                                   struct nd_error *err)
{
    struct nd_comparison *comparison = delivery->comparison;
    struct nd_job_pair *pair = &job->pairs[job->pair_of[p]];
    struct nd_compared_part *part = &comparison->edges[job->edge].pairs[p].probes[job->probe];
    if (comparison->cut != ND_CUT_NONE) {
        part->state = nd_pair_state_format(pair->state);
        if (part->state == NULL)
            return nd_fail_memory(err);
    }
    enum nd_status status = nd_pair_state_finish(pair->state, &pair->context, &part->difference, err);
    return status == ND_OK ? add_total(&delivery->edges[job->edge], comparison->n_pairs, p, pair, err) : status;
}

static enum nd_status finish_edge(struct nd_delivery *delivery, size_t e, struct nd_error *err)
{
    struct nd_edge_work *work = &delivery->edges[e];
    struct nd_compared_edge *edge = &delivery->comparison->edges[e];
    size_t n_pairs = delivery->comparison->n_pairs;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < n_pairs && work->totals != NULL && status == ND_OK; p++)
        if (work->totals[p] != NULL)
            status =
                nd_pair_state_finish(work->totals[p], work->contexts[p], &edge->pairs[p].total.difference, err);
    free_totals(work, n_pairs);
    return status;
}

static struct nd_output_row *find_row(struct nd_output_rows *rows, size_t edge, size_t probe)
{
    for (size_t i = 0; i < rows->n; i++)
        if (rows->rows[i].edge == edge && rows->rows[i].probe == probe)
            return &rows->rows[i];
    return NULL;
}

static enum nd_status deliver_classes(struct nd_delivery *delivery, const struct nd_job *job,
                                      struct nd_error *err)
{
    struct nd_output_row *row = find_row(&delivery->rows, job->edge, job->probe);
    size_t n_samples = job->end_sample - job->first_sample;
    for (size_t c = 0; row != NULL && job->best != NULL && c < delivery->alignment->n_captures; c++) {
        if (job->stream_of[c] == SIZE_MAX)
            continue;
        row->classes[c] = nd_calloc(n_samples, sizeof *row->classes[c]);
        if (row->classes[c] == NULL)
            return nd_fail_memory(err);
        for (size_t s = 0; s < n_samples; s++)
            row->classes[c][s] = job->best[job->stream_of[c] * n_samples + s].index;
    }
    return ND_OK;
}

enum nd_status nd_deliver(struct nd_delivery *delivery, struct nd_job *job, struct nd_error *err)
{
    size_t n_pairs = delivery->comparison->n_pairs;
    enum nd_status status = gather(job, err);
    if (status == ND_OK)
        count_whole_samples(job);
    if (status == ND_OK && delivery->options->merge != NULL)
        status = nd_parts_load(delivery->options->merge, job, n_pairs, err);
    for (size_t p = 0; p < n_pairs && status == ND_OK; p++)
        if (job->pair_of[p] != SIZE_MAX)
            status = deliver_pair(delivery, job, p, err);
    if (status == ND_OK)
        status = deliver_classes(delivery, job, err);
    for (size_t i = 0; i < job->n_pairs; i++)
        nd_pair_state_destroy(&job->pairs[i].state);
    if (status == ND_OK && --delivery->edges[job->edge].n_jobs_left == 0)
        status = finish_edge(delivery, job->edge, err);
    return status;
}
