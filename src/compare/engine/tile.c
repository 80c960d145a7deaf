/* One piece of a job, by one thread: reads it, checks it and compares it. docs/reference/metrics.md#elements,
 * #sums, #distributions and #top-1. */
#include "compare/engine/engine.h"

#include "capture/read/view.h"
#include "compare/metrics/layout.h"
#include "core/memory.h"
#include "core/tensors/digest_internal.h"

/* Of several blocks at once, or of one. */
enum level { IN_GROUP, IN_BLOCK };

/* What a worker knows of one stream. */
struct stream_work {
    struct nd_view_scratch view;
    size_t first, end;          /* samples of the tile that are read */
    const unsigned char *bytes; /* of them */
    bool is_needed;             /* for the sample at hand */
    size_t same;                /* the first stream that is equal to it in the sample at hand */
    size_t equal_in[2];         /* indexed by enum level: the first stream that is equal to it there */
    bool is_loaded;             /* of the block at hand: x holds the values */
    double x[ND_BLOCK];
    struct nd_side_block side_block;
    struct nd_side_state side; /* of the sample at hand */
    struct nd_probabilities probabilities;
    double *reals; /* of one sample of an output; owned */
};

struct nd_worker {
    size_t index, n_streams, n_pairs;
    struct stream_work *of; /* [n_streams] */
    size_t *wanted;         /* indexed by 0 .. n_wanted - 1: pairs to compare in the sample at hand */
    size_t n_wanted;
    struct nd_view_scratch verify[2];
    size_t reals_capacity;
    struct nd_block_scratch scratch;
};

/* Elements [first, end) of samples [first_sample, end_sample); more than one sample only when they are whole.
 */
struct nd_tile_range {
    size_t first_sample, end_sample, first, end;
};

/* Elements from `first` of the sample, of a stream that is read for it. */
static const unsigned char *tile_bytes(const struct nd_worker *w, const struct nd_compare_job *job,
                                       const struct nd_tile_range *range, size_t stream, size_t sample,
                                       size_t first)
{
    size_t same = w->of[stream].same;
    const struct nd_layout *layout = &job->streams[same].layout;
    return w->of[same].bytes + (sample - w->of[same].first) * layout->sample_bytes +
           (first - range->first) * layout->elem_bytes;
}

/* What is no number in a sample, or in the part of it that is here; of a model output also its largest value.
 */
static void find_best(struct nd_worker *w, struct nd_compare_job *job, const struct nd_tile_range *range,
                      size_t sample)
{
    size_t n_samples = job->end_sample - job->first_sample;
    for (size_t i = 0; i < job->n_streams; i++) {
        const struct nd_stream *s = &job->streams[i];
        if (!s->is_scanned || !w->of[i].is_needed)
            continue;
        struct nd_best best = {.index = -1, .specials = {w->of[i].side.n_nan, w->of[i].side.n_inf}};
        if (job->is_output) {
            best.specials = (struct nd_specials){0};
            nd_best_offer(&best, &s->layout, job->kernels, tile_bytes(w, job, range, i, sample, range->first),
                          range->first, range->end - range->first);
        }
        pthread_mutex_lock(&job->lock);
        nd_best_merge(&job->best[i * n_samples + sample - job->first_sample], &best);
        pthread_mutex_unlock(&job->lock);
    }
}

static enum nd_status load_reals(struct nd_worker *w, const struct nd_compare_job *job,
                                 const struct nd_tile_range *range, size_t stream, size_t sample,
                                 struct nd_error *err)
{
    const struct nd_layout *layout = &job->streams[stream].layout;
    const unsigned char *bytes = tile_bytes(w, job, range, stream, sample, 0);
    if (w->of[stream].reals == NULL &&
        (w->of[stream].reals = nd_calloc(w->reals_capacity, sizeof(double))) == NULL)
        return nd_fail_memory(err);
    double *reals = w->of[stream].reals;
    for (size_t first = 0; first < job->n_elems; first += ND_BLOCK) {
        size_t left = job->n_elems - first, n = left < ND_BLOCK ? left : ND_BLOCK;
        nd_layout_load(layout, job->kernels, bytes + first * layout->elem_bytes, first, n, reals + first);
        for (size_t i = first; i < first + n; i++)
            reals[i] *= layout->unit;
    }
    w->of[stream].probabilities = (struct nd_probabilities){.n = job->n_elems, .values = reals};
    nd_probabilities_describe(&w->of[stream].probabilities);
    return ND_OK;
}

static enum nd_status compare_distributions(struct nd_worker *w, struct nd_compare_job *job,
                                            const struct nd_tile_range *range, size_t sample,
                                            struct nd_error *err)
{
    if (w->reals_capacity < job->n_elems) {
        for (size_t i = 0; i < w->n_streams; i++) {
            free(w->of[i].reals);
            w->of[i].reals = NULL;
        }
        w->reals_capacity = job->n_elems;
    }
    for (size_t i = 0; i < job->n_streams; i++)
        if (w->of[i].is_needed && w->of[i].same == i)
            ND_TRY(load_reals(w, job, range, i, sample, err));
    for (size_t p = 0; p < job->n_pairs; p++) {
        const struct nd_compare_job_pair *pair = &job->pairs[p];
        if (pair->has_values && sample < pair->n_common && w->of[pair->ref].is_needed &&
            w->of[pair->test].is_needed)
            nd_distribution_add(&job->states[w->index][p]->distribution,
                                &w->of[w->of[pair->ref].same].probabilities,
                                &w->of[w->of[pair->test].same].probabilities);
    }
    return ND_OK;
}

/* One sample of a model output, whose streams are marked as needed. */
static enum nd_status nd_tile_outputs(struct nd_worker *w, struct nd_compare_job *job,
                                      const struct nd_tile_range *range, size_t sample, struct nd_error *err)
{
    find_best(w, job, range, sample);
    bool is_whole = job->is_output && job->tiles_per_sample == 1 && job->n_elems <= ND_OUTPUT_WHOLE;
    return is_whole ? compare_distributions(w, job, range, sample, err) : ND_OK;
}

/* What is read, held against the digests that the captures state. docs/reference/metrics.md#elements. */

/* A tile has failed: none waits for it any more. NULL is ignored. */
static void nd_job_digests_fail(struct nd_job_digests *digests)
{
    if (digests == NULL)
        return;
    pthread_mutex_lock(&digests->lock);
    digests->has_failed = true;
    pthread_cond_broadcast(&digests->turn);
    pthread_mutex_unlock(&digests->lock);
}

/* Waits for the parts before this one; false when they will not come, as their tile has failed and says why. */
static bool wait_for_turn(struct nd_job_digests *digests, const struct nd_part_digest *of, size_t part)
{
    pthread_mutex_lock(&digests->lock);
    while (of->n_added != part && !digests->has_failed)
        pthread_cond_wait(&digests->turn, &digests->lock);
    bool has_turn = of->n_added == part;
    pthread_mutex_unlock(&digests->lock);
    return has_turn;
}

/* Adds this layer's part of a sample. *is_whole: it was the last, and *digest is that of the sample. */
static enum nd_status add_part(struct nd_compare_job *job, struct nd_part_digest *of, size_t part,
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
    if (part + 1 == job->tiles_per_sample) {
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

/* Holds what is read of the sample that is marked against the digests that the captures state:
 * ND_E_CAPTURE_DIGEST when a capture is damaged. */
static enum nd_status nd_tile_check_digests(const struct nd_worker *w, struct nd_compare_job *job,
                                            const struct nd_tile_range *range, size_t sample,
                                            struct nd_error *err)
{
    size_t n_samples = job->end_sample - job->first_sample;
    for (size_t i = 0; i < job->n_streams; i++) {
        if (!w->of[i].is_needed || w->of[i].same != i)
            continue;
        const struct nd_stream *s = &job->streams[i];
        const unsigned char *bytes = tile_bytes(w, job, range, i, sample, range->first);
        size_t n_bytes = (range->end - range->first) * s->layout.elem_bytes;
        struct nd_digest digest;
        bool is_whole = job->tiles_per_sample == 1;
        if (is_whole)
            digest = nd_digest_bytes(bytes, n_bytes);
        else
            ND_TRY(add_part(job, &job->digests->of[i * n_samples + sample - job->first_sample],
                            range->first / job->tile_elems, bytes, n_bytes, &digest, &is_whole, err));
        if (is_whole && !nd_digest_equal(digest, nd_aligned_digest(job->alignment, job->tensor, job->probe,
                                                                   s->capture, sample)))
            ND_TRY(nd_capture_fail_damaged(s->tensor.capture, s->tensor.probe, s->tensor.tensor, sample, err));
    }
    return ND_OK;
}

/* Reading what digests say is equal. docs/reference/metrics.md#elements. */

static enum nd_status fail_verification(const struct nd_compare_job *job, size_t a, size_t b, size_t sample,
                                        struct nd_error *err)
{
    const struct nd_aligned_captures *al = job->alignment;
    return nd_fail(
        err, ND_E_CAPTURE_DIGEST, al->tensor_names[job->tensor],
        "tensor '%s', probe '%s', sample %zu: the digests in '%s' and '%s' are equal, but the data is not",
        al->tensor_names[job->tensor], al->probe_names[job->probe], sample,
        nd_capture_path(job->streams[a].tensor.capture), nd_capture_path(job->streams[b].tensor.capture));
}

/* The stream before i that sample `sample` of it should be equal to, or i. */
static size_t first_equal(const struct nd_compare_job *job, size_t i, size_t sample)
{
    for (size_t k = 0; k < i; k++)
        if (job->streams[k].has_values && sample < job->streams[k].n_samples &&
            nd_job_is_equal(job, k, i, sample))
            return k;
    return i;
}

/* Bytes of a stream's tensor, as nd_capture_view_outputs. */
static enum nd_status nd_stream_view(const struct nd_stream *stream, size_t first_byte, size_t n_bytes,
                                     struct nd_view_scratch *scratch, const unsigned char **out,
                                     struct nd_error *err)
{
    enum nd_status status = nd_capture_view_outputs(&stream->tensor, first_byte, n_bytes, scratch, out, err);
    if (status != ND_OK)
        nd_error_context(err, "reading '%s'", nd_capture_path(stream->tensor.capture));
    return status;
}

/* Where the stored bytes are equal nothing needs to be inflated. */
static enum nd_status verify_sample(struct nd_worker *w, const struct nd_compare_job *job,
                                    const struct nd_tile_range *range, size_t a, size_t b, size_t sample,
                                    struct nd_error *err)
{
    const struct nd_stream *x = &job->streams[a], *y = &job->streams[b];
    const struct nd_layout *layout = &x->layout;
    size_t first_byte = sample * layout->sample_bytes + range->first * layout->elem_bytes;
    size_t n_bytes = (range->end - range->first) * layout->elem_bytes;
    const unsigned char *ref, *test;
    if (nd_capture_is_stored_alike(&x->tensor, &y->tensor, first_byte, n_bytes, &w->verify[0], &w->verify[1]))
        return ND_OK;
    ND_TRY(nd_stream_view(x, first_byte, n_bytes, &w->verify[0], &ref, err));
    ND_TRY(nd_stream_view(y, first_byte, n_bytes, &w->verify[1], &test, err));
    if (memcmp(ref, test, n_bytes) != 0)
        return fail_verification(job, a, b, sample, err);
    return ND_OK;
}

/* Reads what digests say is equal: ND_E_CAPTURE_DIGEST when it is not. */
static enum nd_status nd_tile_verify(struct nd_worker *w, const struct nd_compare_job *job,
                                     const struct nd_tile_range *range, struct nd_error *err)
{
    for (size_t i = 1; i < job->n_streams; i++)
        for (size_t s = range->first_sample; s < range->end_sample; s++) {
            if (!job->streams[i].has_values || s >= job->streams[i].n_samples)
                continue;
            size_t equal = first_equal(job, i, s);
            if (equal != i)
                ND_TRY(verify_sample(w, job, range, equal, i, s, err));
        }
    return ND_OK;
}

struct nd_worker *nd_worker_create(size_t index, size_t n_streams, size_t n_pairs, struct nd_error *err)
{
    struct nd_worker *w = nd_calloc(1, sizeof *w);
    if (w == NULL) {
        nd_fail_memory(err);
        return NULL;
    }
    w->index = index;
    w->n_streams = n_streams;
    w->n_pairs = n_pairs;
    w->wanted = nd_calloc(n_pairs, sizeof *w->wanted);
    w->of = nd_calloc(n_streams, sizeof *w->of);
    if (w->wanted == NULL || w->of == NULL) {
        nd_worker_destroy(&w);
        nd_fail_memory(err);
    }
    return w;
}

void nd_worker_destroy(struct nd_worker **worker)
{
    struct nd_worker *w = *worker;
    if (w == NULL)
        return;
    for (size_t i = 0; w->of != NULL && i < w->n_streams; i++) {
        nd_view_scratch_deinit(&w->of[i].view);
        free(w->of[i].reals);
    }
    nd_view_scratch_deinit(&w->verify[0]);
    nd_view_scratch_deinit(&w->verify[1]);
    ND_FREE_ALL(w->wanted, w->of, w);
    *worker = NULL;
}

static struct nd_tile_range range_of(const struct nd_compare_job *job, size_t tile)
{
    size_t group = job->first_sample / job->samples_per_tile + tile / job->tiles_per_sample;
    size_t part = tile % job->tiles_per_sample;
    struct nd_tile_range range = {.first_sample = group * job->samples_per_tile,
                                  .first = part * job->tile_elems};
    range.end_sample = range.first_sample + job->samples_per_tile;
    range.end = range.first + job->tile_elems;
    if (range.first_sample < job->first_sample)
        range.first_sample = job->first_sample;
    if (range.end_sample > job->end_sample)
        range.end_sample = job->end_sample;
    if (range.end > job->n_elems)
        range.end = job->n_elems;
    return range;
}

static bool is_wanted(const struct nd_compare_job *job, const struct nd_compare_job_pair *pair, size_t sample)
{
    return pair->has_values && sample < pair->n_common &&
           (pair->context.is_mixed || !nd_job_is_equal(job, pair->ref, pair->test, sample));
}

static void need(struct nd_worker *w, const struct nd_compare_job *job, size_t stream, size_t sample)
{
    size_t same = stream;
    for (size_t i = 0; i < stream && same == stream; i++)
        if (job->streams[i].has_values && sample < job->streams[i].n_samples &&
            nd_job_is_equal(job, i, stream, sample))
            same = i;
    w->of[stream].same = same;
    w->of[stream].is_needed = w->of[same].is_needed = true;
    w->of[same].same = same;
}

/* Which streams are read for this sample. */
static void mark_sample(struct nd_worker *w, const struct nd_compare_job *job, size_t sample)
{
    for (size_t i = 0; i < job->n_streams; i++) {
        w->of[i].is_needed = false;
        w->of[i].same = i;
    }
    w->n_wanted = 0;
    for (size_t p = 0; p < job->n_pairs; p++)
        if (is_wanted(job, &job->pairs[p], sample)) {
            w->wanted[w->n_wanted++] = p;
            need(w, job, job->pairs[p].ref, sample);
            need(w, job, job->pairs[p].test, sample);
        }
    for (size_t i = 0; i < job->n_streams && job->is_scanned; i++)
        if (job->streams[i].is_scanned && sample < job->streams[i].n_samples)
            need(w, job, i, sample);
}

static enum nd_status view_stream(struct nd_worker *w, const struct nd_compare_job *job,
                                  const struct nd_tile_range *range, size_t i, struct nd_error *err)
{
    const struct nd_stream *s = &job->streams[i];
    size_t first_byte = w->of[i].first * s->layout.sample_bytes + range->first * s->layout.elem_bytes;
    size_t n_bytes = (w->of[i].end - w->of[i].first - 1) * s->layout.sample_bytes +
                     (range->end - range->first) * s->layout.elem_bytes;
    for (size_t k = 0; k < i; k++) {
        const struct nd_stream *other = &job->streams[k];
        if (w->of[k].bytes != NULL && w->of[k].first == w->of[i].first && w->of[k].end == w->of[i].end &&
            job->alike[k * job->n_streams + i] &&
            nd_capture_is_stored_alike(&other->tensor, &s->tensor, first_byte, n_bytes, &w->of[k].view,
                                       &w->of[i].view)) {
            w->of[i].bytes = w->of[k].bytes;
            return ND_OK;
        }
    }
    return nd_stream_view(s, first_byte, n_bytes, &w->of[i].view, &w->of[i].bytes, err);
}

static enum nd_status view_all(struct nd_worker *w, const struct nd_compare_job *job,
                               const struct nd_tile_range *range, struct nd_error *err)
{
    for (size_t i = 0; i < job->n_streams; i++) {
        w->of[i].first = w->of[i].end = 0;
        w->of[i].bytes = NULL;
    }
    for (size_t sample = range->first_sample; sample < range->end_sample; sample++) {
        mark_sample(w, job, sample);
        for (size_t i = 0; i < job->n_streams; i++)
            if (w->of[i].is_needed && w->of[i].same == i) {
                w->of[i].first = w->of[i].end == 0 ? sample : w->of[i].first;
                w->of[i].end = sample + 1;
            }
    }
    for (size_t i = 0; i < job->n_streams; i++)
        if (w->of[i].end > 0)
            ND_TRY(view_stream(w, job, range, i, err));
    return ND_OK;
}

/* The first stream that holds the same n elements: of streams that are equal in the sample that is known, else
 * bytes are compared with those of the streams that stand for themselves. */
static size_t find_equal(const struct nd_worker *w, const struct nd_compare_job *job,
                         const struct nd_tile_range *range, size_t i, size_t sample, size_t first, size_t n,
                         enum level level)
{
    if (w->of[i].same != i)
        return w->of[w->of[i].same].equal_in[level];
    const unsigned char *bytes = tile_bytes(w, job, range, i, sample, first);
    size_t n_bytes = n * job->streams[i].layout.elem_bytes;
    for (size_t k = 0; k < i; k++) {
        if (!w->of[k].is_needed || w->of[k].equal_in[level] != k || !job->alike[k * job->n_streams + i])
            continue;
        const unsigned char *other = tile_bytes(w, job, range, k, sample, first);
        if (bytes == other || memcmp(bytes, other, n_bytes) == 0)
            return k;
    }
    return i;
}

enum { GROUP_ELEMS = 16 * ND_BLOCK };

/* Blocks that are equal share what is known of one side. */
static void load_block(struct nd_worker *w, const struct nd_compare_job *job, const struct nd_tile_range *range,
                       size_t sample, size_t first, size_t n)
{
    for (size_t i = 0; i < job->n_streams; i++) {
        if (!w->of[i].is_needed)
            continue;
        w->of[i].equal_in[IN_BLOCK] = w->of[i].equal_in[IN_GROUP] != i
                                          ? w->of[w->of[i].equal_in[IN_GROUP]].equal_in[IN_BLOCK]
                                          : find_equal(w, job, range, i, sample, first, n, IN_BLOCK);
        if (w->of[i].equal_in[IN_BLOCK] == i) {
            const struct nd_layout *layout = &job->streams[i].layout;
            const unsigned char *bytes = tile_bytes(w, job, range, i, sample, first);
            nd_side_block_make(layout, job->kernels, bytes, first, n, w->of[i].x, &w->of[i].is_loaded,
                               &w->of[i].side_block);
        }
        nd_side_add_block(&w->of[i].side, &w->of[w->of[i].equal_in[IN_BLOCK]].side_block, n);
    }
}

static struct nd_side_view view_side(struct nd_worker *w, const struct nd_compare_job *job,
                                     const struct nd_tile_range *range, size_t stream,
                                     const struct nd_pair_block *block)
{
    size_t rep = w->of[stream].equal_in[IN_BLOCK];
    const unsigned char *bytes = tile_bytes(w, job, range, stream, block->sample, block->first);
    if (!w->of[rep].is_loaded && block->joint != NULL)
        return (struct nd_side_view){bytes, NULL, &w->of[rep].side_block};
    if (!w->of[rep].is_loaded)
        nd_layout_load(&job->streams[rep].layout, job->kernels, bytes, block->first, block->n, w->of[rep].x);
    w->of[rep].is_loaded = true;
    return (struct nd_side_view){bytes, w->of[rep].x, &w->of[rep].side_block};
}

static void compare_block(struct nd_worker *w, struct nd_compare_job *job, const struct nd_tile_range *range,
                          size_t sample, size_t first, size_t n)
{
    load_block(w, job, range, sample, first, n);
    for (size_t k = 0; k < w->n_wanted; k++) {
        struct nd_compare_job_pair *pair = &job->pairs[w->wanted[k]];
        if (w->of[pair->ref].equal_in[IN_BLOCK] == w->of[pair->test].equal_in[IN_BLOCK])
            continue;
        struct nd_pair_block block = {.probe = job->probe, .sample = sample, .first = first, .n = n};
        struct nd_pair_state *state = job->states[w->index][w->wanted[k]];
        block.joint = nd_joint_of(state, &pair->context);
        block.ref = view_side(w, job, range, pair->ref, &block);
        block.test = view_side(w, job, range, pair->test, &block);
        size_t n_differing = nd_pair_block_make(&pair->context, &w->scratch, &block);
        nd_dequantised_note(state, &block);
        if (n_differing == 0)
            continue;
        nd_pair_state_update(state, &pair->context, &block);
        atomic_store_explicit(&pair->seen[sample - job->first_sample], 1, memory_order_relaxed);
    }
}

/* A sample is stuck when all its elements have one value; of a split one that is known when all its parts are.
 */
static void note_span(struct nd_worker *w, struct nd_compare_job *job, size_t stream, size_t sample)
{
    struct nd_side_state *side = &w->of[stream].side;
    bool has_others = side->n_nan + side->n_inf > 0;
    if (job->spans == NULL) {
        side->n_stuck_samples = !has_others && job->n_elems > 1 && side->min == side->max;
        return;
    }
    pthread_mutex_lock(&job->lock);
    struct nd_value_span *span =
        &job->spans[stream * (job->end_sample - job->first_sample) + sample - job->first_sample];
    span->min = side->min < span->min ? side->min : span->min;
    span->max = side->max > span->max ? side->max : span->max;
    span->has_others = span->has_others || has_others;
    pthread_mutex_unlock(&job->lock);
}

/* Samples of so many elements are never split, of whatever type they are. */
enum { MAX_PERMUTED = 1 << 18 };

static void look_for_permutation(struct nd_worker *w, struct nd_compare_job *job,
                                 const struct nd_tile_range *range, size_t p, size_t sample)
{
    const struct nd_compare_job_pair *pair = &job->pairs[p];
    const struct nd_layout *layout = &pair->context.ref;
    if (sample != pair->first_differing || job->n_elems > MAX_PERMUTED || pair->context.is_mixed)
        return;
    uint64_t number =
        nd_permutation_find(&layout->shape, layout->elem_bytes, tile_bytes(w, job, range, pair->ref, sample, 0),
                            tile_bytes(w, job, range, pair->test, sample, 0));
    nd_first_note(&job->states[w->index][p]->structure.permutation,
                  (struct nd_first){.is_set = true, .probe = job->probe, .sample = sample, .note = number});
}

static enum nd_status compare_sample(struct nd_worker *w, struct nd_compare_job *job,
                                     const struct nd_tile_range *range, size_t sample, struct nd_error *err)
{
    mark_sample(w, job, sample);
    ND_TRY(job->trust_digests ? ND_OK : nd_tile_check_digests(w, job, range, sample, err));
    for (size_t i = 0; i < job->n_streams; i++)
        if (w->of[i].is_needed)
            nd_side_init(&w->of[i].side);
    for (size_t first = range->first; first < range->end; first += ND_BLOCK) {
        size_t left = range->end - first;
        if ((first - range->first) % GROUP_ELEMS == 0) {
            /* Most blocks are equal: several are compared at once, which also reads each file in longer runs.
             */
            size_t n = left < GROUP_ELEMS ? left : GROUP_ELEMS;
            for (size_t i = 0; i < job->n_streams; i++)
                if (w->of[i].is_needed)
                    w->of[i].equal_in[IN_GROUP] = find_equal(w, job, range, i, sample, first, n, IN_GROUP);
        }
        compare_block(w, job, range, sample, first, left < ND_BLOCK ? left : ND_BLOCK);
    }
    for (size_t i = 0; i < job->n_streams; i++)
        if (w->of[i].is_needed)
            note_span(w, job, i, sample);
    for (size_t k = 0; k < w->n_wanted; k++) {
        size_t p = w->wanted[k];
        nd_side_merge(&job->states[w->index][p]->account.ref, &w->of[job->pairs[p].ref].side);
        nd_side_merge(&job->states[w->index][p]->account.test, &w->of[job->pairs[p].test].side);
        look_for_permutation(w, job, range, p, sample);
    }
    return ND_OK;
}

static enum nd_status make_states(const struct nd_worker *w, struct nd_compare_job *job, struct nd_error *err)
{
    if (job->states[w->index] != NULL)
        return ND_OK;
    struct nd_pair_state **states = nd_calloc(job->n_pairs, sizeof(struct nd_pair_state *));
    ND_TRY_MEMORY(states != NULL, err);
    job->states[w->index] = states;
    for (size_t p = 0; p < job->n_pairs; p++) {
        states[p] = nd_pair_state_create(&job->pairs[p].context, err);
        if (states[p] == NULL)
            return ND_ERR_MEMORY;
    }
    return ND_OK;
}

enum nd_status nd_tile_run(struct nd_worker *worker, struct nd_compare_job *job, size_t tile,
                           struct nd_error *err)
{
    struct nd_tile_range range = range_of(job, tile);
    enum nd_status status = make_states(worker, job, err);
    if (status == ND_OK)
        status = view_all(worker, job, &range, err);
    if (status == ND_OK && job->verify_digests)
        status = nd_tile_verify(worker, job, &range, err);
    for (size_t sample = range.first_sample; sample < range.end_sample && status == ND_OK; sample++) {
        status = compare_sample(worker, job, &range, sample, err);
        if (status == ND_OK && job->is_scanned)
            status = nd_tile_outputs(worker, job, &range, sample, err);
    }
    if (status != ND_OK)
        nd_job_digests_fail(job->digests);
    return status;
}
