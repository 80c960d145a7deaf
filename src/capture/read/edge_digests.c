/* One digest for all digests of a tensor, so that who compares equal captures need not read these
 * (docs/reference/capture-format.md#edge-digests). */
#include <assert.h>
#include <stdlib.h>

#include "core/memory.h"
#include "capture/read/capture_internal.h"
#include "capture/read/link_names.h"

static const struct nd_digest not_stated = {0};

enum nd_status nd_probe_load_edge_digests(const struct nd_capture *capture, struct nd_probe_data *data,
                                          struct nd_error *err)
{
    const struct nd_wanted wanted = {
        ND_DTYPE_U64, {.rank = 2, .dims = {(int64_t)capture->n_edges, 2}}, .is_optional = true};
    void *loaded = NULL;
    enum nd_status status = nd_capture_load_part(
        capture, nd_name_probe_path(data->probe.name, ND_EDGE_DIGESTS, NULL), &wanted, &loaded, NULL, err);
    data->edge_digests = loaded;
    return status;
}

const struct nd_digest *nd_capture_edge_digest(const struct nd_capture *capture, size_t probe, size_t edge)
{
    assert(probe < capture->n_probes && edge < capture->n_edges);
    const struct nd_digest *all = capture->probes[probe].edge_digests;
    return all != NULL && !nd_digest_equal(all[edge], not_stated) ? &all[edge] : NULL;
}

static struct nd_digest digest_of(const struct nd_probe_data *data, const struct nd_digest *digests)
{
    return nd_digest_bytes(digests, data->probe.n_samples * data->probe.n_repeats * sizeof *digests);
}

struct nd_digest nd_capture_make_edge_digest(const struct nd_capture *capture, size_t p, size_t e)
{
    const struct nd_probe_data *data = &capture->probes[p];
    bool are_all_equal = true;
    for (size_t s = 0; s < data->probe.n_samples; s++) {
        struct nd_digest first = nd_capture_digest(capture, p, e, s, 0);
        are_all_equal = are_all_equal && nd_digest_equal(first, nd_capture_digest(capture, p, e, 0, 0));
        for (size_t r = 1, n = nd_capture_n_runs(capture, p, e, s); r < n; r++)
            if (!nd_digest_equal(first, nd_capture_digest(capture, p, e, s, r)))
                return not_stated;
    }
    return are_all_equal ? not_stated : digest_of(data, data->edges[e].digests);
}

bool nd_capture_are_edge_digests_right(const struct nd_capture *capture)
{
    for (size_t p = 0; p < capture->n_probes; p++)
        for (size_t e = 0; e < capture->n_edges; e++) {
            const struct nd_digest *stated = nd_capture_edge_digest(capture, p, e);
            if (stated != NULL && !nd_digest_equal(*stated, nd_capture_make_edge_digest(capture, p, e)))
                return false;
        }
    return true;
}

/* ---- digests that are read when they are first asked for ---- */

static enum nd_status load(const struct nd_capture *capture, const struct nd_probe_data *data, size_t edge,
                           struct nd_digest **out, struct nd_error *err)
{
    const struct nd_index_object *object = data->edges[edge].digests_object;
    struct nd_digest *loaded = nd_calloc(object->n_bytes, 1);
    if (loaded == NULL)
        return nd_fail_memory(err);
    enum nd_status status =
        nd_index_read(capture->index, object, 0, (size_t)object->shape.dims[0], loaded, err);
    if (status == ND_OK && !capture->is_trusted &&
        !nd_digest_equal(digest_of(data, loaded), data->edge_digests[edge]))
        status =
            nd_fail(err, ND_E_CAPTURE_DIGEST, capture->path,
                    "'%s' is damaged: '%s' is not what its digest was made of", capture->path, object->path);
    if (status == ND_OK)
        *out = loaded;
    else
        free(loaded);
    return status;
}

enum nd_status nd_probe_need_digests(const struct nd_capture *capture, size_t probe, size_t edge,
                                     struct nd_error *err)
{
    const struct nd_probe_data *data = &capture->probes[probe];
    struct nd_probe_edge *part = &data->edges[edge];
    if (atomic_load_explicit(&part->digests, memory_order_acquire) != NULL || part->digests_object == NULL)
        return ND_OK;
    struct nd_deferred *deferred = capture->deferred;
    struct nd_digest *loaded = NULL;
    pthread_mutex_lock(&deferred->lock);
    if (deferred->status == ND_OK && atomic_load_explicit(&part->digests, memory_order_relaxed) == NULL) {
        deferred->status = load(capture, data, edge, &loaded, &deferred->err);
        atomic_store_explicit(&part->digests, loaded, memory_order_release);
    }
    enum nd_status status = loaded != NULL || part->digests != NULL ? ND_OK : deferred->status;
    if (status != ND_OK && err != NULL)
        *err = deferred->err;
    pthread_mutex_unlock(&deferred->lock);
    return status;
}

enum nd_status nd_capture_check_deferred(const struct nd_capture *capture, struct nd_error *err)
{
    struct nd_deferred *deferred = capture->deferred;
    if (deferred == NULL)
        return ND_OK;
    pthread_mutex_lock(&deferred->lock);
    enum nd_status status = deferred->status;
    if (status != ND_OK && err != NULL)
        *err = deferred->err;
    pthread_mutex_unlock(&deferred->lock);
    return status;
}
