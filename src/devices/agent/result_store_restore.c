#include <string.h>

#include "devices/agent/result_store_internal.h"

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
