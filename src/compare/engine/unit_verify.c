/* Reading what digests say is equal. docs/reference/metrics.md#elements. */
#include <string.h>

#include "core/error.h"
#include "compare/engine/unit_internal.h"

static enum nd_status fail_verification(const struct nd_job *job, size_t a, size_t b, size_t sample,
                                        struct nd_error *err)
{
    const struct nd_matching *al = job->alignment;
    return nd_fail(
        err, ND_E_CAPTURE_DIGEST, al->edge_names[job->edge],
        "edge '%s', probe '%s', sample %zu: the digests in '%s' and '%s' are equal, but the data is not",
        al->edge_names[job->edge], al->probe_names[job->probe], sample,
        nd_capture_path(job->streams[a].tensor.capture), nd_capture_path(job->streams[b].tensor.capture));
}

/* The stream before i that sample `sample` of it should be equal to, or i. */
static size_t first_equal(const struct nd_job *job, size_t i, size_t sample)
{
    for (size_t k = 0; k < i; k++)
        if (job->streams[k].has_values && sample < job->streams[k].n_samples &&
            nd_job_is_equal(job, k, i, sample))
            return k;
    return i;
}

/* Where the stored bytes are equal nothing needs to be inflated. */
static enum nd_status verify_sample(struct nd_worker *w, const struct nd_job *job,
                                    const struct nd_unit_range *range, size_t a, size_t b, size_t sample,
                                    struct nd_error *err)
{
    const struct nd_stream *x = &job->streams[a], *y = &job->streams[b];
    const struct nd_layout *layout = &x->layout;
    size_t first_byte = sample * layout->sample_bytes + range->first * layout->elem_bytes;
    size_t n_bytes = (range->end - range->first) * layout->elem_bytes;
    const unsigned char *ref, *test;
    if (nd_capture_is_stored_alike(&x->tensor, &y->tensor, first_byte, n_bytes))
        return ND_OK;
    enum nd_status status = nd_stream_view(x, first_byte, n_bytes, &w->verify[0], &ref, err);
    if (status == ND_OK)
        status = nd_stream_view(y, first_byte, n_bytes, &w->verify[1], &test, err);
    if (status == ND_OK && memcmp(ref, test, n_bytes) != 0)
        status = fail_verification(job, a, b, sample, err);
    return status;
}

enum nd_status nd_unit_verify(struct nd_worker *w, const struct nd_job *job, const struct nd_unit_range *range,
                              struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 1; i < job->n_streams; i++)
        for (size_t s = range->first_sample; s < range->end_sample && status == ND_OK; s++) {
            if (!job->streams[i].has_values || s >= job->streams[i].n_samples)
                continue;
            size_t equal = first_equal(job, i, s);
            if (equal != i)
                status = verify_sample(w, job, range, equal, i, s, err);
        }
    return status;
}
