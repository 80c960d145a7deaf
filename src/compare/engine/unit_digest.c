/* What is read, held against the digests that the captures state. docs/reference/metrics.md#elements. */
#include <pthread.h>
#include <stdlib.h>

#include "core/tensors/digest_stream.h"
#include "core/error.h"
#include "core/memory.h"
#include "compare/engine/unit_internal.h"

/* Of one stream and sample. */
struct part_digest {
    struct nd_digest_stream *stream; /* from the first part to the last */
    size_t n_added;                  /* parts */
};

struct nd_job_digests {
    pthread_mutex_t lock;
    pthread_cond_t turn; /* a part was added, or a unit has failed */
    bool has_failed;
    size_t n; /* streams times samples */
    struct part_digest *of;
};

struct nd_job_digests *nd_job_digests_create(const struct nd_job *job)
{
    struct nd_job_digests *digests = nd_calloc(1, sizeof *digests);
    size_t n;
    if (digests == NULL || !nd_size_mul(job->n_streams, job->end_sample - job->first_sample, &n) ||
        (digests->of = nd_calloc(n, sizeof *digests->of)) == NULL) {
        free(digests);
        return NULL;
    }
    digests->n = n;
    pthread_mutex_init(&digests->lock, NULL);
    pthread_cond_init(&digests->turn, NULL);
    return digests;
}

void nd_job_digests_destroy(struct nd_job_digests **digests)
{
    struct nd_job_digests *d = *digests;
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->n; i++)
        nd_digest_stream_destroy(&d->of[i].stream);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->turn);
    free(d->of);
    free(d);
    *digests = NULL;
}

void nd_job_digests_fail(struct nd_job_digests *digests)
{
    if (digests == NULL)
        return;
    pthread_mutex_lock(&digests->lock);
    digests->has_failed = true;
    pthread_cond_broadcast(&digests->turn);
    pthread_mutex_unlock(&digests->lock);
}

/* Waits for the parts before this one; false when they will not come, as their unit has failed and says why. */
static bool wait_for_turn(struct nd_job_digests *digests, const struct part_digest *of, size_t part)
{
    pthread_mutex_lock(&digests->lock);
    while (of->n_added != part && !digests->has_failed)
        pthread_cond_wait(&digests->turn, &digests->lock);
    bool has_turn = of->n_added == part;
    pthread_mutex_unlock(&digests->lock);
    return has_turn;
}

/* Adds this unit's part of a sample. *is_whole: it was the last, and *digest is that of the sample. */
static enum nd_status add_part(struct nd_job *job, struct part_digest *of, size_t part,
                               const unsigned char *bytes, size_t n_bytes, struct nd_digest *digest,
                               bool *is_whole, struct nd_error *err)
{
    struct nd_job_digests *digests = job->digests;
    *is_whole = false;
    if (!wait_for_turn(digests, of, part))
        return ND_OK;
    if (of->stream == NULL && (of->stream = nd_digest_stream_create()) == NULL)
        return nd_fail_memory(err);
    nd_digest_stream_add(of->stream, bytes, n_bytes);
    if (part + 1 == job->units_per_sample) {
        *digest = nd_digest_stream_value(of->stream);
        *is_whole = true;
        nd_digest_stream_destroy(&of->stream);
    }
    pthread_mutex_lock(&digests->lock);
    of->n_added++;
    pthread_cond_broadcast(&digests->turn);
    pthread_mutex_unlock(&digests->lock);
    return ND_OK;
}

enum nd_status nd_unit_check_digests(const struct nd_worker *w, struct nd_job *job,
                                     const struct nd_unit_range *range, size_t sample, struct nd_error *err)
{
    size_t n_samples = job->end_sample - job->first_sample;
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < job->n_streams && status == ND_OK; i++) {
        if (!w->is_needed[i] || w->same[i] != i)
            continue;
        const struct nd_stream *s = &job->streams[i];
        const unsigned char *bytes = nd_unit_bytes(w, job, range, i, sample, range->first);
        size_t n_bytes = (range->end - range->first) * s->layout.elem_bytes;
        struct nd_digest digest;
        bool is_whole = job->units_per_sample == 1;
        if (is_whole)
            digest = nd_digest_bytes(bytes, n_bytes);
        else
            status = add_part(job, &job->digests->of[i * n_samples + sample - job->first_sample],
                              range->first / job->unit_elems, bytes, n_bytes, &digest, &is_whole, err);
        if (status == ND_OK && is_whole &&
            !nd_digest_equal(digest,
                             nd_aligned_digest(job->alignment, job->edge, job->probe, s->capture, sample)))
            status = nd_capture_fail_damaged(s->tensor.capture, s->tensor.probe, s->tensor.edge, sample, err);
    }
    return status;
}
