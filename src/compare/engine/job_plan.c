/* From pairs of captures to jobs: which tensors are read, and which stand beside which.
 * docs/reference/metrics.md#alignment and #parts. */
#include "compare/engine/engine.h"

#include <math.h>

#include "capture/read/view.h"
#include "core/memory.h"
#include "core/tensors/digest_internal.h"

/* Work is handed out in pieces of about this size. A sample up to it is never split, so that what needs a whole
 * sample does not depend on how the file is laid out. */
enum { TILE_BYTES = 2 << 20 };

/* Of a sample that is split and lies in the file as it is, each piece is read twice, for its digest and for the
 * comparison: both tensors stay in a second cache of 1 MiB (chosen; measured on one processor,
 * docs/results/speed.md). */
enum { CACHED_BYTES = 256 << 10 };

/* Counting pairs of quantised values costs as much as some hundred thousand elements, and a MiB for each pair
 * and thread (chosen). */
enum { JOINT_ELEMS = 1 << 20, JOINT_PAIRS = 4 };

static size_t n_job_samples(const struct nd_compare_job *job)
{
    return job->end_sample - job->first_sample;
}

bool nd_job_is_equal(const struct nd_compare_job *job, size_t a, size_t b, size_t sample)
{
    if (a == b)
        return true;
    const struct nd_aligned_captures *al = job->alignment;
    return job->alike[a * job->n_streams + b] &&
           nd_aligned_is_equal(al, job->tensor, job->probe, job->streams[a].capture, job->streams[b].capture,
                               sample);
}

/* Whether the stream's samples are those of the capture too, so that one of them stands for both. */
static enum nd_status is_same_stream(const struct nd_compare_job *job, const struct nd_stream *stream,
                                     const struct nd_stream *wanted, bool *is_same, struct nd_error *err)
{
    const struct nd_aligned_captures *al = job->alignment;
    *is_same = stream->capture == wanted->capture && stream->is_real == wanted->is_real;
    if (stream->capture == wanted->capture || job->verify_digests || stream->is_real || wanted->is_real ||
        stream->n_samples != wanted->n_samples || stream->has_values != wanted->has_values)
        return ND_OK;
    ND_TRY(nd_align_is_alike(nd_aligned_tensor(al, job->tensor, stream->capture),
                             nd_aligned_tensor(al, job->tensor, wanted->capture), is_same, err));
    for (size_t s = 0; s < wanted->n_samples && *is_same; s++)
        *is_same = nd_aligned_is_equal(al, job->tensor, job->probe, stream->capture, wanted->capture, s);
    return ND_OK;
}

/* The steps of planning: an empty job (NULL: out of memory); its stream for a capture and its pair for pair p
 * of captures, each made when there is none yet; and, when all are there, sample counts, tiles and memory for
 * results. */
static enum nd_status nd_job_find_stream(struct nd_compare_job *job, size_t capture, bool is_real, size_t *out,
                                         struct nd_error *err)
{
    const struct nd_aligned_captures *al = job->alignment;
    const struct nd_tensor *tensor = nd_aligned_tensor(al, job->tensor, capture);
    struct nd_stream wanted = {.capture = capture,
                               .tensor = nd_aligned_values(al, job->tensor, job->probe, capture),
                               .n_samples = nd_aligned_probe(al, job->probe, capture)->n_samples};
    ND_TRY(nd_layout_make(tensor, &wanted.layout, err));
    wanted.is_real = is_real && !wanted.layout.is_float && !wanted.layout.is_real;
    if (wanted.is_real)
        nd_layout_make_real(&wanted.layout);
    wanted.has_values = nd_aligned_has_values(al, job->tensor, job->probe, capture);
    wanted.chunk_bytes = nd_capture_outputs_chunk_bytes(&wanted.tensor);
    bool is_found = false;
    for (size_t i = 0; i < job->n_streams && !is_found; i++) {
        ND_TRY(is_same_stream(job, &job->streams[i], &wanted, &is_found, err));
        *out = i;
    }
    if (is_found)
        return ND_OK;
    *out = job->n_streams;
    job->streams[job->n_streams++] = wanted; /* there is room for two of each capture */
    return ND_OK;
}

static enum nd_status nd_job_add_pair(struct nd_compare_job *job, const struct nd_job_options *options,
                                      size_t p, size_t n_common, bool is_mixed, struct nd_error *err)
{
    const struct nd_compared_pair *captures = &options->pairs[p];
    size_t ref, test;
    ND_TRY(nd_job_find_stream(job, captures->ref, is_mixed, &ref, err));
    ND_TRY(nd_job_find_stream(job, captures->test, is_mixed, &test, err));
    for (size_t i = 0; i < job->n_pairs; i++)
        if (job->pairs[i].ref == ref && job->pairs[i].test == test) {
            job->pair_of[p] = i;
            return ND_OK;
        }
    struct nd_compare_job_pair *pair = &job->pairs[job->n_pairs];
    *pair = (struct nd_compare_job_pair){
        .ref = ref,
        .test = test,
        .n_common = n_common,
        .has_values = job->streams[ref].has_values && job->streams[test].has_values,
        .first_differing = SIZE_MAX,
    };
    ND_TRY(nd_pair_context_make(nd_aligned_tensor(job->alignment, job->tensor, captures->ref),
                                nd_aligned_tensor(job->alignment, job->tensor, captures->test),
                                options->compare, options->kernels, &pair->context, err));
    job->pair_of[p] = job->n_pairs++;
    return ND_OK;
}

/* What digests say about the pair's samples. Those of mixed pairs say nothing: they are counted when read. */
static enum nd_status count_samples(struct nd_compare_job *job, struct nd_compare_job_pair *pair,
                                    struct nd_error *err)
{
    pair->seen = nd_calloc(n_job_samples(job), sizeof *pair->seen);
    ND_TRY_MEMORY(pair->seen != NULL, err);
    size_t end = pair->n_common < job->end_sample ? pair->n_common : job->end_sample;
    for (size_t s = job->first_sample; s < end; s++) {
        bool differs =
            pair->context.is_mixed ? !pair->has_values : !nd_job_is_equal(job, pair->ref, pair->test, s);
        nd_bits_add_sample(&pair->state->bits, job->n_elems, differs, pair->has_values, job->probe, s);
        if (differs && pair->first_differing == SIZE_MAX)
            pair->first_differing = s;
    }
    return ND_OK;
}

static size_t round_up(size_t n, size_t step)
{
    return (n + step - 1) / step * step;
}

void nd_cut_samples(const struct nd_aligned_captures *alignment, size_t probe,
                    const struct nd_compare_options *options, size_t *first, size_t *end)
{
    size_t n = 0;
    for (size_t c = 0; c < alignment->n_captures; c++) {
        const struct nd_capture_probe *described = nd_aligned_probe(alignment, probe, c);
        n = described != NULL && described->n_samples > n ? described->n_samples : n;
    }
    *first = 0;
    *end = n;
    if (options->cut != ND_CUT_SAMPLES)
        return;
    *first = (size_t)((unsigned __int128)n * options->part / options->n_parts);
    *end = (size_t)((unsigned __int128)n * (options->part + 1) / options->n_parts);
}

/* Tiles begin at chunks where that is possible, so that few chunks are decoded twice. */
static void cut_tiles(struct nd_compare_job *job)
{
    size_t sample_bytes = 0, chunk_elems = 0;
    for (size_t i = 0; i < job->n_streams; i++) {
        const struct nd_stream *s = &job->streams[i];
        size_t elems = s->chunk_bytes / s->layout.elem_bytes;
        sample_bytes = s->layout.sample_bytes > sample_bytes ? s->layout.sample_bytes : sample_bytes;
        chunk_elems = elems > chunk_elems ? elems : chunk_elems;
    }
    job->tiles_per_sample = job->samples_per_tile = 1;
    job->tile_elems = job->n_elems;
    if (sample_bytes == 0 || n_job_samples(job) == 0)
        return;
    if (sample_bytes <= TILE_BYTES || (job->is_output && job->n_elems <= ND_OUTPUT_WHOLE)) {
        size_t per_chunk = chunk_elems > job->n_elems ? chunk_elems / job->n_elems : 1;
        job->samples_per_tile =
            round_up(TILE_BYTES / sample_bytes > 0 ? TILE_BYTES / sample_bytes : 1, per_chunk);
    } else {
        size_t elem_bytes = sample_bytes / job->n_elems, wanted = TILE_BYTES / elem_bytes;
        size_t step = chunk_elems % ND_BLOCK == 0 && chunk_elems > 0 ? chunk_elems : ND_BLOCK;
        if (chunk_elems == 0) /* contiguous */
            wanted = CACHED_BYTES / elem_bytes;
        else if (step == chunk_elems) /* the fewer chunks, the likelier are all of them stored alike */
            wanted /= 2;
        else if (step == ND_BLOCK && wanted < 4 * chunk_elems)
            wanted = 4 * chunk_elems;
        job->tile_elems = round_up(wanted, step);
        job->tiles_per_sample = (job->n_elems + job->tile_elems - 1) / job->tile_elems;
    }
    /* The first tile begins at a multiple of samples_per_unit, wherever the part begins. */
    size_t first = job->first_sample / job->samples_per_tile, end = job->end_sample;
    job->n_tiles =
        (round_up(end, job->samples_per_tile) / job->samples_per_tile - first) * job->tiles_per_sample;
}

static bool must_read(const struct nd_compare_job *job)
{
    for (size_t i = 0; i < job->n_pairs; i++) {
        const struct nd_compare_job_pair *pair = &job->pairs[i];
        if (pair->has_values &&
            (pair->first_differing != SIZE_MAX || pair->context.is_mixed || job->verify_digests))
            return true;
    }
    return job->is_scanned;
}

/* NULL when out of memory. */
static struct nd_job_digests *create_digests(const struct nd_compare_job *job)
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

static void destroy_digests(struct nd_job_digests **digests)
{
    struct nd_job_digests *d = *digests;
    if (d == NULL)
        return;
    for (size_t i = 0; i < d->n; i++)
        nd_digest_stream_destroy(&d->of[i].stream);
    pthread_mutex_destroy(&d->lock);
    pthread_cond_destroy(&d->turn);
    ND_FREE_ALL(d->of, d);
    *digests = NULL;
}

static enum nd_status nd_job_prepare(struct nd_compare_job *job, const struct nd_compare_options *options,
                                     struct nd_error *err)
{
    nd_cut_samples(job->alignment, job->probe, options, &job->first_sample, &job->end_sample);
    size_t n_samples = n_job_samples(job), n_cells;
    job->alike = nd_calloc(job->n_streams * job->n_streams, sizeof *job->alike);
    ND_TRY_MEMORY(job->alike != NULL && nd_size_mul(job->n_streams, n_samples, &n_cells), err);
    enum nd_status status = ND_OK;
    for (size_t a = 0; a < job->n_streams && status == ND_OK; a++)
        for (size_t b = 0; b < job->n_streams && status == ND_OK; b++) {
            bool is_alike = false;
            if (job->streams[a].is_real == job->streams[b].is_real)
                status = nd_align_is_alike(
                    nd_aligned_tensor(job->alignment, job->tensor, job->streams[a].capture),
                    nd_aligned_tensor(job->alignment, job->tensor, job->streams[b].capture), &is_alike, err);
            job->alike[a * job->n_streams + b] = is_alike;
        }
    for (size_t i = 0; i < job->n_pairs && status == ND_OK; i++) {
        job->pairs[i].state = nd_pair_state_create(&job->pairs[i].context, err);
        status = job->pairs[i].state == NULL ? ND_ERR_MEMORY
                 : options->merge != NULL    ? ND_OK
                                             : count_samples(job, &job->pairs[i], err);
    }
    if (status != ND_OK || options->merge != NULL || !must_read(job))
        return status;
    cut_tiles(job);
    for (size_t i = 0; i < job->n_pairs; i++)
        job->pairs[i].context.may_join = job->n_pairs <= JOINT_PAIRS && job->n_elems > 0 &&
                                         n_samples >= JOINT_ELEMS / job->n_elems &&
                                         nd_joint_fits(&job->pairs[i].context);
    if (job->is_scanned)
        job->best = nd_calloc(n_cells, sizeof *job->best);
    if (job->tiles_per_sample > 1)
        job->spans = nd_calloc(n_cells, sizeof *job->spans);
    if (job->tiles_per_sample > 1 && !job->trust_digests)
        job->digests = create_digests(job);
    if ((job->is_scanned && job->best == NULL) || (job->tiles_per_sample > 1 && job->spans == NULL) ||
        (job->tiles_per_sample > 1 && !job->trust_digests && job->digests == NULL))
        return nd_fail_memory(err);
    for (size_t i = 0; i < n_cells && job->best != NULL; i++)
        job->best[i].index = -1;
    for (size_t i = 0; i < n_cells && job->spans != NULL; i++)
        job->spans[i] = (struct nd_value_span){.min = INFINITY, .max = -INFINITY};
    atomic_store(&job->n_tiles_left, job->n_tiles);
    return ND_OK;
}

static struct nd_compare_job *nd_job_create(const struct nd_aligned_captures *alignment, size_t tensor,
                                            size_t probe, const struct nd_job_options *options,
                                            const struct nd_shape *shape)
{
    struct nd_compare_job *job = nd_calloc(1, sizeof *job);
    if (job == NULL)
        return NULL;
    job->alignment = alignment;
    job->kernels = options->kernels;
    job->tensor = tensor;
    job->probe = probe;
    job->shape = *shape;
    job->verify_digests = options->compare->verify_digests;
    job->trust_digests = options->compare->trust_digests;
    job->n_workers = options->n_workers;
    pthread_mutex_init(&job->lock, NULL);
    job->streams = nd_calloc(2 * alignment->n_captures, sizeof *job->streams);
    job->pairs = nd_calloc(options->n_pairs, sizeof *job->pairs);
    job->pair_of = nd_calloc(options->n_pairs, sizeof *job->pair_of);
    job->stream_of = nd_calloc(alignment->n_captures, sizeof *job->stream_of);
    job->states = nd_calloc(options->n_workers, sizeof *job->states);
    if (job->streams == NULL || job->pairs == NULL || job->pair_of == NULL || job->stream_of == NULL ||
        job->states == NULL)
        nd_job_destroy(&job);
    for (size_t p = 0; job != NULL && p < options->n_pairs; p++)
        job->pair_of[p] = SIZE_MAX;
    for (size_t c = 0; job != NULL && c < alignment->n_captures; c++)
        job->stream_of[c] = SIZE_MAX;
    return job;
}

void nd_job_destroy(struct nd_compare_job **job)
{
    struct nd_compare_job *j = *job;
    if (j == NULL)
        return;
    for (size_t w = 0; j->states != NULL && w < j->n_workers; w++) {
        for (size_t i = 0; j->states[w] != NULL && i < j->n_pairs; i++)
            nd_pair_state_destroy(&j->states[w][i]);
        free(j->states[w]);
    }
    for (size_t i = 0; j->pairs != NULL && i < j->n_pairs; i++) {
        free(j->pairs[i].seen);
        nd_pair_state_destroy(&j->pairs[i].state);
    }
    ND_FREE_ALL(j->states, j->streams, j->pairs, j->pair_of, j->stream_of, j->alike, j->best, j->spans);
    destroy_digests(&j->digests);
    pthread_mutex_destroy(&j->lock);
    free(j);
    *job = NULL;
}

/* What planning one tensor and probe works with. */
struct plan {
    const struct nd_aligned_captures *alignment;
    const struct nd_job_options *options;
    size_t tensor, probe;
    bool is_output, is_scanned;
    struct nd_compare_job ***jobs;
    size_t *n_jobs, *capacity;
    size_t first_job; /* of this tensor and probe */
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
    ND_TRY(nd_align_samples(plan->alignment, plan->probe, captures->ref, captures->test, n_common,
                            &part->reason, err));
    part->coverage = *n_common == 0         ? ND_COVERAGE_NONE
                     : part->reason != NULL ? ND_COVERAGE_PART
                                            : ND_COVERAGE_FULL;
    if (*n_common == 0 && part->reason == NULL)
        return nd_text_set(&part->reason, err, "probe '%s' has no samples",
                           plan->alignment->probe_names[plan->probe]);
    return ND_OK;
}

/* The job of this tensor and probe for tensors of that shape; made when there is none yet. */
static enum nd_status find_job(struct plan *plan, const struct nd_shape *shape, struct nd_compare_job **out,
                               struct nd_error *err)
{
    for (size_t i = plan->first_job; i < *plan->n_jobs; i++)
        if (nd_shape_equal(&(*plan->jobs)[i]->shape, shape)) {
            *out = (*plan->jobs)[i];
            return ND_OK;
        }
    ND_TRY_MEMORY(nd_grow((void **)plan->jobs, plan->capacity, *plan->n_jobs + 1, sizeof **plan->jobs), err);
    struct nd_compare_job *job =
        nd_job_create(plan->alignment, plan->tensor, plan->probe, plan->options, shape);
    ND_TRY_MEMORY(job != NULL, err);
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
    const struct nd_tensor *ref = nd_aligned_tensor(plan->alignment, plan->tensor, plan->options->pairs[p].ref);
    struct nd_compare_job *job;
    ND_TRY(find_job(plan, &ref->shape, &job, err));
    return nd_job_add_pair(job, plan->options, p, n_common, is_mixed, err);
}

/* Outputs are looked at on every device that has them, whether or not there is anything beside them. */
static enum nd_status add_scanned(struct plan *plan, size_t capture, struct nd_error *err)
{
    const struct nd_aligned_captures *a = plan->alignment;
    const struct nd_tensor *tensor = nd_aligned_tensor(a, plan->tensor, capture);
    const struct nd_capture_probe *probe = nd_aligned_probe(a, plan->probe, capture);
    if (tensor == NULL || probe == NULL || probe->n_samples == 0 || tensor->dtype == ND_DTYPE_NONE ||
        tensor->shape.rank < 0 || !nd_aligned_has_values(a, plan->tensor, plan->probe, capture))
        return ND_OK;
    struct nd_compare_job *job;
    ND_TRY(find_job(plan, &tensor->shape, &job, err));
    if (!job->is_scanned)
        return ND_OK;
    size_t stream;
    ND_TRY(nd_job_find_stream(job, capture, false, &stream, err));
    job->streams[stream].is_scanned = true;
    job->stream_of[capture] = stream;
    return ND_OK;
}

enum nd_status nd_jobs_plan(const struct nd_aligned_captures *alignment, size_t tensor, size_t probe,
                            const struct nd_job_options *options, struct nd_compared_tensor *compared,
                            const bool *is_mixed, struct nd_compare_job ***jobs, size_t *n_jobs,
                            size_t *capacity, struct nd_error *err)
{
    struct plan plan = {.alignment = alignment,
                        .options = options,
                        .tensor = tensor,
                        .probe = probe,
                        .is_output = compared->is_model_output,
                        .is_scanned = compared->is_model_output ||
                                      (!options->has_outputs && nd_dtype_is_float(compared->dtype)),
                        .jobs = jobs,
                        .n_jobs = n_jobs,
                        .capacity = capacity,
                        .first_job = *n_jobs};
    const struct nd_compare_options *compare = options->compare;
    bool is_elsewhere = compare->cut == ND_CUT_TENSORS && tensor % compare->n_parts != compare->part;
    for (size_t p = 0; p < options->n_pairs; p++) {
        struct nd_compared_pair *pair = &compared->pairs[p];
        size_t n_common = 0;
        ND_TRY(cover(&plan, pair, pair->total.reason == NULL, pair->total.reason, &pair->probes[probe],
                     &n_common, err));
        if (n_common > 0 && !is_elsewhere)
            ND_TRY(add_pair(&plan, p, n_common, is_mixed[p], err));
    }
    for (size_t c = 0; c < alignment->n_captures && plan.is_scanned && !is_elsewhere; c++)
        ND_TRY(add_scanned(&plan, c, err));
    for (size_t i = plan.first_job; i < *n_jobs; i++)
        ND_TRY(nd_job_prepare((*jobs)[i], compare, err));
    return ND_OK;
}
