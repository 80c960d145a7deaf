/* From pairs of captures to jobs. */
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/memory.h"
#include "compare/engine/format_text.h"
#include "compare/engine/job.h"

/* What planning one edge and probe works with. */
struct plan {
    const struct nd_matching *alignment;
    const struct nd_job_options *options;
    size_t edge, probe;
    bool is_output, is_scanned;
    struct nd_job ***jobs;
    size_t *n_jobs, *capacity;
    size_t first_job; /* of this edge and probe */
};

/* Which samples of the probe the pair has; the reason of what is missing goes to its part. */
static enum nd_status cover(const struct plan *plan, const struct nd_compared_pair *captures,
                            bool is_meaningful, const char *reason, struct nd_compared_part *part,
                            size_t *n_common, struct nd_error *err)
{
    *n_common = 0;
    if (!is_meaningful) {
        part->coverage = ND_COVERAGE_NONE;
        return nd_text_set(&part->reason, err, "%s", reason);
    }
    enum nd_status status = nd_align_samples(plan->alignment, plan->probe, captures->ref, captures->test,
                                             n_common, &part->reason, err);
    if (status != ND_OK)
        return status;
    part->coverage = *n_common == 0         ? ND_COVERAGE_NONE
                     : part->reason != NULL ? ND_COVERAGE_PART
                                            : ND_COVERAGE_FULL;
    if (*n_common == 0 && part->reason == NULL)
        return nd_text_set(&part->reason, err, "probe '%s' has no samples",
                           plan->alignment->probe_names[plan->probe]);
    return ND_OK;
}

/* The job of this edge and probe for tensors of that shape; made when there is none yet. */
static enum nd_status find_job(struct plan *plan, const struct nd_shape *shape, struct nd_job **out,
                               struct nd_error *err)
{
    for (size_t i = plan->first_job; i < *plan->n_jobs; i++)
        if (nd_shape_equal(&(*plan->jobs)[i]->shape, shape)) {
            *out = (*plan->jobs)[i];
            return ND_OK;
        }
    if (!nd_grow((void **)plan->jobs, plan->capacity, *plan->n_jobs + 1, sizeof **plan->jobs))
        return nd_fail_memory(err);
    struct nd_job *job = nd_job_create(plan->alignment, plan->edge, plan->probe, plan->options, shape);
    if (job == NULL)
        return nd_fail_memory(err);
    (*plan->jobs)[(*plan->n_jobs)++] = job;
    *out = job;
    enum nd_status status = nd_shape_n_elems(shape, &job->n_elems, err);
    job->is_scanned = plan->is_scanned && job->n_elems >= 1;
    job->is_output = plan->is_output && shape->rank >= 1 && job->n_elems >= 2;
    return status;
}

static enum nd_status add_pair(struct plan *plan, size_t p, size_t n_common, bool is_mixed,
                               struct nd_error *err)
{
    const struct nd_edge *ref = nd_aligned_edge(plan->alignment, plan->edge, plan->options->pairs[p].ref);
    struct nd_job *job;
    enum nd_status status = find_job(plan, &ref->shape, &job, err);
    return status == ND_OK ? nd_job_add_pair(job, plan->options, p, n_common, is_mixed, err) : status;
}

/* Outputs are looked at on every device that has them, whether or not there is anything beside them. */
static enum nd_status add_scanned(struct plan *plan, size_t capture, struct nd_error *err)
{
    const struct nd_matching *a = plan->alignment;
    const struct nd_edge *edge = nd_aligned_edge(a, plan->edge, capture);
    const struct nd_capture_probe *probe = nd_aligned_probe(a, plan->probe, capture);
    if (edge == NULL || probe == NULL || probe->n_samples == 0 || edge->dtype == ND_DTYPE_NONE ||
        edge->shape.rank < 0 || !nd_aligned_has_values(a, plan->edge, plan->probe, capture))
        return ND_OK;
    struct nd_job *job;
    enum nd_status status = find_job(plan, &edge->shape, &job, err);
    if (status != ND_OK || !job->is_scanned)
        return status;
    size_t stream;
    status = nd_job_find_stream(job, capture, false, &stream, err);
    if (status != ND_OK)
        return status;
    job->streams[stream].is_scanned = true;
    job->stream_of[capture] = stream;
    return ND_OK;
}

enum nd_status nd_jobs_plan(const struct nd_matching *alignment, size_t edge, size_t probe,
                            const struct nd_job_options *options, struct nd_compared_edge *compared,
                            const bool *is_mixed, struct nd_job ***jobs, size_t *n_jobs, size_t *capacity,
                            struct nd_error *err)
{
    struct plan plan = {.alignment = alignment,
                        .options = options,
                        .edge = edge,
                        .probe = probe,
                        .is_output = compared->is_model_output,
                        .is_scanned = compared->is_model_output ||
                                      (!options->has_outputs && nd_dtype_is_float(compared->dtype)),
                        .jobs = jobs,
                        .n_jobs = n_jobs,
                        .capacity = capacity,
                        .first_job = *n_jobs};
    const struct nd_compare_options *compare = options->compare;
    bool is_elsewhere = compare->cut == ND_CUT_TENSORS && edge % compare->n_parts != compare->part;
    enum nd_status status = ND_OK;
    for (size_t p = 0; p < options->n_pairs && status == ND_OK; p++) {
        struct nd_compared_pair *pair = &compared->pairs[p];
        size_t n_common = 0;
        status = cover(&plan, pair, pair->total.reason == NULL, pair->total.reason, &pair->probes[probe],
                       &n_common, err);
        if (status == ND_OK && n_common > 0 && !is_elsewhere)
            status = add_pair(&plan, p, n_common, is_mixed[p], err);
    }
    for (size_t c = 0; c < alignment->n_captures && status == ND_OK && plan.is_scanned && !is_elsewhere; c++)
        status = add_scanned(&plan, c, err);
    for (size_t i = plan.first_job; i < *n_jobs && status == ND_OK; i++)
        status = nd_job_prepare((*jobs)[i], compare, err);
    return status;
}
