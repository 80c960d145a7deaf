/* What a pass gave, on its way into the spool: values, digests, repeats; and what of it an agent that goes on
 * takes up from the spool again. docs/reference/capture-format.md. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/chunk.h"
#include "devices/agent/agent.h"
#include "devices/agent/spool/spool.h"
#include "devices/agent/stop.h"

enum { N_SLOTS = 4 }; /* runs that may wait for the thread */

/* A run that waits for the thread. */
struct slot {
    size_t probe;
    size_t sample;
    size_t repeat;
    uint64_t latency_ns;
    void **data; /* per tensor */
};

/* What the thread keeps per tensor. */
struct tensor_state {
    enum nd_dtype dtype;
    struct nd_shape shape;
    size_t sample_bytes;
    struct nd_chunk_layout layout; /* for the probe in work */
    unsigned char *open_chunk;     /* samples of a chunk that is not whole yet */
    size_t n_open;                 /* samples in it */
    size_t n_acknowledged;         /* of those, stored as fragments already */
};

struct nd_store_thread {
    const struct nd_agent_job *job;
    struct nd_spool_writer *writer;
    size_t n_tensors;   /* of the pass */
    size_t *tensor_ids; /* their numbers in the job */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot slots[N_SLOTS]; /* a ring: n_waiting of them from first on */
    size_t first;
    size_t n_waiting;
    bool is_ending;
    bool has_shapes;
    enum nd_status status;
    struct nd_error error;
    /* the thread's own */
    struct tensor_state *tensors;
    struct nd_digest *digests;       /* of the run in work */
    struct nd_digest *first_digests; /* of repeat 0 of the sample in work */
    unsigned char *encoded;
    size_t encoded_bytes;
    size_t probe;  /* in work; SIZE_MAX before the first */
    size_t n_runs; /* of the sample in work */
    size_t n_complete;
    size_t n_acknowledged;
    uint64_t acknowledged_ns;
};

enum { ACK_INTERVAL_MS = 400 }; /* so that never more than half a second of work is lost */

static enum nd_status append(struct nd_store_thread *store, enum nd_record_kind kind, const uint64_t index[4],
                             const void *payload, size_t payload_bytes, struct nd_error *err)
{
    struct nd_record record = {.kind = kind, .payload = payload, .payload_bytes = payload_bytes};
    memcpy(record.index, index, sizeof record.index);
    return nd_spool_append(store->writer, &record, err);
}

/* Encodes one chunk's raw bytes (already padded to chunk_bytes) and appends it. */
static enum nd_status append_chunk(struct nd_store_thread *store, size_t tensor, size_t chunk, const void *raw,
                                   size_t n_bytes, struct nd_error *err)
{
    const struct nd_chunk_layout *layout = &store->tensors[tensor].layout;
    const uint64_t index[4] = {store->probe, store->tensor_ids[tensor], chunk};
    if (store->job->deflate_level == 0) /* a contiguous dataset has no padding */
        return append(store, ND_RECORD_CHUNK, index, raw, n_bytes, err);
    size_t needed = nd_chunk_bound(layout->chunk_bytes);
    if (needed > store->encoded_bytes) {
        free(store->encoded);
        store->encoded = malloc(needed);
        store->encoded_bytes = store->encoded != NULL ? needed : 0;
        ND_TRY_MEMORY(store->encoded != NULL, err);
    }
    size_t encoded_bytes = 0;
    ND_TRY(nd_chunk_encode(layout, raw, (int)store->job->deflate_level, store->encoded, &encoded_bytes, err));
    return append(store, ND_RECORD_CHUNK, index, store->encoded, encoded_bytes, err);
}

/* A sample that shares its chunk with others. */
static enum nd_status store_in_shared_chunk(struct nd_store_thread *store, size_t tensor,
                                            const struct slot *slot, struct nd_error *err)
{
    struct tensor_state *state = &store->tensors[tensor];
    size_t chunk = slot->sample / state->layout.samples_per_chunk;
    struct nd_chunk_span span;
    nd_chunk_span(&state->layout, chunk, &span);
    memcpy(state->open_chunk + state->n_open * state->sample_bytes, slot->data[tensor], state->sample_bytes);
    if (++state->n_open < span.n_samples)
        return ND_OK;
    memset(state->open_chunk + span.n_bytes, 0, state->layout.chunk_bytes - span.n_bytes);
    state->n_open = 0;
    state->n_acknowledged = 0;
    return append_chunk(store, tensor, chunk, state->open_chunk, span.n_bytes, err);
}

/* A large sample, which has chunks of its own. */
static enum nd_status store_in_own_chunks(struct nd_store_thread *store, size_t tensor, const struct slot *slot,
                                          struct nd_error *err)
{
    struct tensor_state *state = &store->tensors[tensor];
    for (size_t i = 0; i < state->layout.chunks_per_sample; i++) {
        size_t chunk = slot->sample * state->layout.chunks_per_sample + i;
        struct nd_chunk_span span;
        nd_chunk_span(&state->layout, chunk, &span);
        memcpy(state->open_chunk, (const unsigned char *)slot->data[tensor] + span.offset_bytes, span.n_bytes);
        memset(state->open_chunk + span.n_bytes, 0, state->layout.chunk_bytes - span.n_bytes);
        ND_TRY(append_chunk(store, tensor, chunk, state->open_chunk, span.n_bytes, err));
    }
    return ND_OK;
}

static enum nd_status store_tensor(struct nd_store_thread *store, size_t tensor, const struct slot *slot,
                                   struct nd_error *err)
{
    struct tensor_state *state = &store->tensors[tensor];
    if (store->job->store == ND_STORE_DIGEST || state->layout.n_chunks == 0)
        return ND_OK;
    if (slot->repeat > 0) {
        if (nd_digest_equal(store->digests[tensor], store->first_digests[tensor]))
            return ND_OK;
        const uint64_t index[4] = {slot->probe, store->tensor_ids[tensor], slot->sample, slot->repeat};
        return append(store, ND_RECORD_REPEAT, index, slot->data[tensor], state->sample_bytes, err);
    }
    return state->layout.samples_per_chunk > 1 ? store_in_shared_chunk(store, tensor, slot, err)
                                               : store_in_own_chunks(store, tensor, slot, err);
}

/* What is complete so far becomes durable: open chunks as fragments, the acknowledgement, then the sync. */
static enum nd_status acknowledge(struct nd_store_thread *store, struct nd_error *err)
{
    store->acknowledged_ns = nd_clock_ns();
    if (store->n_complete == store->n_acknowledged)
        return ND_OK;
    for (size_t e = 0; e < store->n_tensors; e++) {
        struct tensor_state *state = &store->tensors[e];
        if (state->n_open == state->n_acknowledged)
            continue;
        /* With repeats the newest open sample may not be complete yet: storing it early does no harm. */
        size_t in_chunk = store->n_complete - store->n_complete % state->layout.samples_per_chunk;
        size_t n = state->n_open - state->n_acknowledged;
        const uint64_t index[4] = {store->probe, store->tensor_ids[e], in_chunk + state->n_acknowledged, n};
        ND_TRY(append(store, ND_RECORD_FRAGMENT, index,
                      state->open_chunk + state->n_acknowledged * state->sample_bytes, n * state->sample_bytes,
                      err));
        state->n_acknowledged = state->n_open;
    }
    ND_TRY(append(store, ND_RECORD_ACK, (const uint64_t[4]){store->probe, store->n_complete}, NULL, 0, err));
    ND_TRY(nd_spool_sync(store->writer, err));
    store->n_acknowledged = store->n_complete;
    return ND_OK;
}

/* Cuts the tensors into chunks for that probe, none of them begun. */
static enum nd_status nd_store_begin_probe(struct nd_store_thread *store, size_t probe, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    store->probe = probe;
    store->n_complete = 0;
    store->n_acknowledged = 0;
    for (size_t e = 0; status == ND_OK && e < store->n_tensors; e++) {
        struct tensor_state *state = &store->tensors[e];
        status = nd_chunk_layout_make(&state->shape, state->dtype, store->job->probes[probe].n_samples,
                                      &state->layout, err);
        free(state->open_chunk);
        state->open_chunk = status == ND_OK ? nd_tensor_alloc(state->layout.chunk_bytes) : NULL;
        state->n_open = 0;
        state->n_acknowledged = 0;
        if (status == ND_OK && state->open_chunk == NULL)
            status = nd_fail_memory(err);
    }
    return status;
}

static enum nd_status announce_outputs(struct nd_store_thread *store, struct nd_error *err)
{
    for (size_t e = 0; e < store->n_tensors; e++) {
        char dims[256];
        struct nd_strbuf fields = {0};
        nd_fields_add_u64(&fields, "dtype", (uint64_t)store->tensors[e].dtype);
        nd_fields_add(&fields, "dims", nd_shape_format(&store->tensors[e].shape, dims, sizeof dims));
        ND_TRY(nd_fields_append(store->writer, ND_RECORD_OUTPUT, (uint64_t[]){store->tensor_ids[e]}, 1, &fields,
                                err));
    }
    return ND_OK;
}

/* How often the sample in work is run, as far as its runs until now say. */
static size_t count_runs(const struct nd_store_thread *store, const struct slot *slot)
{
    size_t n_bytes = store->n_tensors * sizeof *store->digests;
    if (slot->repeat > 1)
        return store->n_runs;
    bool differs = slot->repeat == 1 && memcmp(store->digests, store->first_digests, n_bytes) != 0;
    return nd_job_n_runs(store->job, slot->probe, slot->sample, differs);
}

static enum nd_status process(struct nd_store_thread *store, const struct slot *slot, struct nd_error *err)
{
    if (store->probe == SIZE_MAX)
        ND_TRY(announce_outputs(store, err));
    if (store->probe != slot->probe)
        ND_TRY(nd_store_begin_probe(store, slot->probe, err));
    for (size_t e = 0; e < store->n_tensors; e++) {
        store->digests[e] = nd_digest_bytes(slot->data[e], store->tensors[e].sample_bytes);
        ND_TRY(store_tensor(store, e, slot, err));
    }
    ND_TRY(append(store, ND_RECORD_SAMPLE,
                  (const uint64_t[4]){slot->probe, slot->sample, slot->repeat, slot->latency_ns},
                  store->digests, store->n_tensors * sizeof *store->digests, err));
    if (slot->repeat == 0)
        memcpy(store->first_digests, store->digests, store->n_tensors * sizeof *store->digests);
    store->n_runs = count_runs(store, slot);
    if (slot->repeat + 1 == store->n_runs)
        store->n_complete = slot->sample + 1;
    bool is_last = store->n_complete == store->job->probes[slot->probe].n_samples;
    bool is_due = nd_clock_ns() - store->acknowledged_ns >= (uint64_t)ACK_INTERVAL_MS * 1000000u;
    bool is_first = store->n_acknowledged == 0 && store->n_complete > 0; /* a disk may fill before it is due */
    bool is_stop = nd_stop_is_at_sample(slot->probe, store->n_complete);
    if (is_first || is_last || is_due || is_stop)
        ND_TRY(acknowledge(store, err));
    if (is_stop)
        nd_stop();
    return ND_OK;
}

/* Waits for a run to store, but no longer than until complete samples must be acknowledged. False when it is
 * time to end. */
static bool wait_for_slot(struct nd_store_thread *store)
{
    uint64_t until_ns = store->acknowledged_ns + (uint64_t)ACK_INTERVAL_MS * 1000000u;
    const struct timespec until = {.tv_sec = (time_t)(until_ns / 1000000000u),
                                   .tv_nsec = (long)(until_ns % 1000000000u)};
    bool is_late = false;
    while (store->n_waiting == 0 && !store->is_ending && !is_late) {
        if (store->n_complete > store->n_acknowledged)
            is_late = pthread_cond_timedwait(&store->changed, &store->lock, &until) != 0;
        else
            pthread_cond_wait(&store->changed, &store->lock);
    }
    return store->n_waiting > 0 || !store->is_ending;
}

static void *run_thread(void *context)
{
    struct nd_store_thread *store = context;
    struct nd_error err = {0};
    enum nd_status status = ND_OK;
    pthread_mutex_lock(&store->lock);
    while (status == ND_OK && wait_for_slot(store)) {
        bool has_slot = store->n_waiting > 0;
        pthread_mutex_unlock(&store->lock);
        status = has_slot ? process(store, &store->slots[store->first], &err) : acknowledge(store, &err);
        pthread_mutex_lock(&store->lock);
        if (has_slot) {
            store->first = (store->first + 1) % N_SLOTS;
            store->n_waiting--;
            pthread_cond_broadcast(&store->changed);
        }
    }
    if (status == ND_OK && store->probe != SIZE_MAX)
        status = acknowledge(store, &err);
    store->status = status;
    store->error = err;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    return NULL;
}

static void destroy(struct nd_store_thread *store)
{
    for (size_t s = 0; s < N_SLOTS; s++) {
        ND_FREE_ITEMS(store->slots[s].data, store->n_tensors);
    }
    ND_FREE_EACH(store->tensors, store->n_tensors, .open_chunk);
    ND_FREE_ALL(store->tensor_ids, store->digests, store->first_digests, store->encoded);
    pthread_cond_destroy(&store->changed);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* The tensors of the pass; false when memory is out. */
static bool choose_tensors(struct nd_store_thread *store, size_t pass)
{
    store->tensor_ids = nd_calloc(store->job->n_tensors, sizeof *store->tensor_ids);
    for (size_t e = 0; store->tensor_ids != NULL && e < store->job->n_tensors; e++)
        if (store->job->tensors[e].pass == pass)
            store->tensor_ids[store->n_tensors++] = e;
    return store->tensor_ids != NULL;
}

enum nd_status nd_store_start(const struct nd_agent_job *job, size_t pass, struct nd_spool_writer *writer,
                              struct nd_store_thread **out, struct nd_error *err)
{
    struct nd_store_thread *store = nd_calloc(1, sizeof *store);
    ND_TRY_MEMORY(store != NULL, err);
    store->job = job;
    store->writer = writer;
    store->probe = SIZE_MAX;
    store->acknowledged_ns = nd_clock_ns();
    pthread_condattr_t monotonic; /* the clock of nd_clock_ns, which nobody sets */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&store->lock, NULL);
    pthread_cond_init(&store->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    bool is_whole = choose_tensors(store, pass);
    store->tensors = nd_calloc(store->n_tensors, sizeof *store->tensors);
    store->digests = nd_calloc(store->n_tensors, sizeof *store->digests);
    store->first_digests = nd_calloc(store->n_tensors, sizeof *store->first_digests);
    is_whole = is_whole && store->tensors != NULL && store->digests != NULL && store->first_digests != NULL;
    for (size_t s = 0; s < N_SLOTS; s++) {
        store->slots[s].data = nd_calloc(store->n_tensors, sizeof *store->slots[s].data);
        is_whole = is_whole && store->slots[s].data != NULL;
    }
    if (!is_whole || pthread_create(&store->thread, NULL, run_thread, store) != 0) {
        destroy(store);
        return nd_fail_memory(err);
    }
    *out = store;
    return ND_OK;
}

static const char *output_name(const struct nd_store_thread *store, size_t tensor)
{
    return store->job->tensors[store->tensor_ids[tensor]].output;
}

/* Fixes what a tensor (of the pass) is and makes the buffers for it. Once per tensor. */
static enum nd_status nd_store_set_shape(struct nd_store_thread *store, size_t tensor, enum nd_dtype dtype,
                                         const struct nd_shape *shape, struct nd_error *err)
{
    struct tensor_state *state = &store->tensors[tensor];
    if (shape->rank >= ND_MAX_RANK)
        return nd_fail(err, ND_E_DEVICE_OUTPUT, output_name(store, tensor),
                       "output '%s' has rank %d; at most %d can be stored", output_name(store, tensor),
                       shape->rank, ND_MAX_RANK - 1);
    ND_TRY(nd_shape_size_bytes(shape, dtype, &state->sample_bytes, err));
    state->dtype = dtype;
    state->shape = *shape;
    for (size_t s = 0; s < N_SLOTS; s++)
        ND_TRY_MEMORY((store->slots[s].data[tensor] = nd_tensor_alloc(state->sample_bytes)) != NULL, err);
    return ND_OK;
}

/* The first run says what each tensor is; buffers follow from that. */
static enum nd_status learn_shapes(struct nd_store_thread *store, const struct nd_store_run *run,
                                   struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; status == ND_OK && e < store->n_tensors; e++)
        status = nd_store_set_shape(store, e, run->views[e]->dtype, &run->views[e]->shape, err);
    store->has_shapes = status == ND_OK;
    return status;
}

static enum nd_status check_shapes(const struct nd_store_thread *store, const struct nd_store_run *run,
                                   struct nd_error *err)
{
    for (size_t e = 0; e < store->n_tensors; e++) {
        const struct nd_output_view *view = run->views[e];
        if (view->dtype != store->tensors[e].dtype || !nd_shape_equal(&view->shape, &store->tensors[e].shape))
            return nd_fail(err, ND_E_DEVICE_OUTPUT, output_name(store, e),
                           "output '%s' changed its type or shape between two runs", output_name(store, e));
    }
    return ND_OK;
}

enum nd_status nd_store_put(struct nd_store_thread *store, const struct nd_store_run *run, struct nd_error *err)
{
    ND_TRY(store->has_shapes ? check_shapes(store, run, err) : learn_shapes(store, run, err));
    pthread_mutex_lock(&store->lock);
    while (store->n_waiting == N_SLOTS && store->status == ND_OK)
        pthread_cond_wait(&store->changed, &store->lock);
    enum nd_status status = store->status;
    if (status != ND_OK && err != NULL)
        *err = store->error;
    struct slot *slot = &store->slots[(store->first + store->n_waiting) % N_SLOTS];
    pthread_mutex_unlock(&store->lock);
    if (status != ND_OK)
        return status;
    /* The slot is not the thread's before n_waiting counts it. */
    slot->probe = run->probe;
    slot->sample = run->sample;
    slot->repeat = run->repeat;
    slot->latency_ns = run->latency_ns;
    for (size_t e = 0; e < store->n_tensors; e++)
        if (run->views[e]->size_bytes > 0)
            memcpy(slot->data[e], run->views[e]->data, run->views[e]->size_bytes);
    pthread_mutex_lock(&store->lock);
    store->n_waiting++;
    pthread_cond_broadcast(&store->changed);
    pthread_mutex_unlock(&store->lock);
    return ND_OK;
}

enum nd_status nd_store_n_runs(struct nd_store_thread *store, size_t *n, struct nd_error *err)
{
    pthread_mutex_lock(&store->lock);
    while (store->n_waiting > 0 && store->status == ND_OK)
        pthread_cond_wait(&store->changed, &store->lock);
    enum nd_status status = store->status;
    *n = store->n_runs;
    if (status != ND_OK && err != NULL)
        *err = store->error;
    pthread_mutex_unlock(&store->lock);
    return status;
}

enum nd_status nd_store_finish(struct nd_store_thread **store, struct nd_error *err)
{
    struct nd_store_thread *dead = *store;
    if (dead == NULL)
        return ND_OK;
    pthread_mutex_lock(&dead->lock);
    dead->is_ending = true;
    pthread_cond_broadcast(&dead->changed);
    pthread_mutex_unlock(&dead->lock);
    pthread_join(dead->thread, NULL);
    enum nd_status status = dead->status;
    if (status != ND_OK && err != NULL)
        *err = dead->error;
    destroy(dead);
    *store = NULL;
    return status;
}

/* The samples of a chunk that was not whole yet. */
static enum nd_status restore_open_chunk(struct nd_store_thread *store, size_t tensor,
                                         const struct nd_store_past *past, struct nd_error *err)
{
    struct tensor_state *state = &store->tensors[tensor];
    const struct nd_store_past_tensor *stored = &past->tensors[store->tensor_ids[tensor]];
    const char *name = store->job->tensors[store->tensor_ids[tensor]].output;
    size_t n_stored = past->sample + 1, n = state->layout.samples_per_chunk, filled = 0;
    if (store->job->store == ND_STORE_DIGEST || state->layout.n_chunks == 0 || n == 1)
        return ND_OK;
    /* The last chunk of a probe is whole with its last sample, however few it holds. */
    size_t n_open = n_stored == store->job->probes[past->probe].n_samples ? 0 : n_stored % n;
    size_t first = n_stored - n_open;
    for (size_t i = 0; i < stored->n_fragments; i++) {
        const struct nd_store_fragment *fragment = &stored->fragments[i];
        if (fragment->first != first + filled || fragment->n > n_open - filled ||
            fragment->n_bytes != fragment->n * state->sample_bytes)
            return nd_fail(err, ND_E_SPOOL_RESUME, name, "the spool's samples of '%s' have a gap at sample %zu",
                           name, first + filled);
        memcpy(state->open_chunk + filled * state->sample_bytes, fragment->bytes, fragment->n_bytes);
        filled += fragment->n;
    }
    if (filled != n_open)
        return nd_fail(err, ND_E_SPOOL_RESUME, name,
                       "the spool acknowledges sample %zu of '%s' but lacks its data", first + filled, name);
    state->n_open = n_open;
    state->n_acknowledged = n_open;
    return ND_OK;
}

static enum nd_status restore(struct nd_store_thread *store, const struct nd_store_past *past,
                              struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t e = 0; status == ND_OK && e < store->n_tensors; e++) {
        const struct nd_store_past_tensor *stored = &past->tensors[store->tensor_ids[e]];
        const char *name = store->job->tensors[store->tensor_ids[e]].output;
        status = stored->is_known ? nd_store_set_shape(store, e, stored->dtype, &stored->shape, err)
                                  : nd_fail(err, ND_E_SPOOL_RESUME, name,
                                            "the spool does not say what output '%s' is", name);
    }
    store->has_shapes = status == ND_OK;
    if (status == ND_OK)
        status = nd_store_begin_probe(store, past->probe, err);
    for (size_t e = 0; status == ND_OK && e < store->n_tensors; e++)
        status = restore_open_chunk(store, e, past, err);
    if (status != ND_OK)
        return status;
    if (store->n_tensors > 0)
        memcpy(store->first_digests, past->first_digests, store->n_tensors * sizeof *store->first_digests);
    store->n_complete = past->sample + (past->repeat + 1 == past->n_runs ? 1 : 0);
    store->n_acknowledged = store->n_complete;
    store->n_runs = past->n_runs;
    return ND_OK;
}

/* The thread, which waits for a first run, reads all this only after it has had the lock. */
enum nd_status nd_store_restore(struct nd_store_thread *store, const struct nd_store_past *past,
                                struct nd_error *err)
{
    pthread_mutex_lock(&store->lock);
    enum nd_status status = restore(store, past, err);
    pthread_mutex_unlock(&store->lock);
    return status;
}
