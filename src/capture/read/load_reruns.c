/* Samples that were run again although every sample was asked for once: which, and with what digests. */
#include <assert.h>
#include <stdlib.h>

#include "capture/read/capture_internal.h"
#include "capture/read/link_names.h"

static bool is_made(struct nd_digest digest)
{
    return digest.low != 0 || digest.high != 0;
}

/* The digests of all edges in that rerun, or NULL. */
static const struct nd_digest *find_rerun(const struct nd_capture *capture, const struct nd_probe_data *data,
                                          size_t sample, size_t repeat)
{
    for (size_t i = 0; i < data->n_reruns; i++)
        if (data->reruns[i][0] == (int64_t)sample && data->reruns[i][1] == (int64_t)repeat)
            return data->rerun_digests + i * capture->n_edges;
    return NULL;
}

size_t nd_capture_n_runs(const struct nd_capture *capture, size_t probe, size_t edge, size_t sample)
{
    assert(probe < capture->n_probes && edge < capture->n_edges);
    const struct nd_probe_data *data = &capture->probes[probe];
    assert(sample < data->probe.n_samples);
    size_t n = data->probe.n_repeats;
    const struct nd_digest *digests;
    while (data->n_reruns > 0 && (digests = find_rerun(capture, data, sample, n)) != NULL &&
           is_made(digests[edge]))
        n++;
    return n;
}

struct nd_digest nd_capture_digest(const struct nd_capture *capture, size_t probe, size_t edge, size_t sample,
                                   size_t repeat)
{
    assert(probe < capture->n_probes && edge < capture->n_edges);
    const struct nd_probe_data *data = &capture->probes[probe];
    assert(sample < data->probe.n_samples);
    if (repeat < data->probe.n_repeats) {
        bool is_there = nd_probe_need_digests(capture, probe, edge, NULL) == ND_OK;
        return is_there ? data->edges[edge].digests[sample * data->probe.n_repeats + repeat]
                        : (struct nd_digest){0};
    }
    const struct nd_digest *digests = find_rerun(capture, data, sample, repeat);
    assert(digests != NULL);
    return digests[edge];
}

/* Each sample's reruns follow each other without a gap. */
static bool is_in_order(const struct nd_probe_data *data, size_t i)
{
    const int64_t *now = data->reruns[i], *last = i > 0 ? data->reruns[i - 1] : NULL;
    bool is_first = last == NULL || now[0] > last[0];
    if (now[0] < 0 || (uint64_t)now[0] >= data->probe.n_samples)
        return false;
    return is_first ? now[1] == 1 : now[0] == last[0] && now[1] == last[1] + 1;
}

enum nd_status nd_probe_load_reruns(const struct nd_capture *capture, struct nd_probe_data *data,
                                    struct nd_error *err)
{
    static const struct nd_wanted pairs = {ND_DTYPE_I64, {.rank = 2, .dims = {-1, 2}}, true};
    const char *name = data->probe.name;
    void *loaded[2] = {NULL, NULL};
    size_t n = 0;
    enum nd_status status = nd_capture_load_part(capture, nd_name_probe_path(name, "rerun_samples", NULL),
                                                 &pairs, &loaded[0], &n, err);
    const struct nd_wanted digests = {
        ND_DTYPE_U64, {.rank = 3, .dims = {(int64_t)n, (int64_t)capture->n_edges, 2}}, loaded[0] == NULL};
    if (status == ND_OK)
        status = nd_capture_load_part(capture, nd_name_probe_path(name, "rerun_digests", NULL), &digests,
                                      &loaded[1], NULL, err);
    data->reruns = loaded[0];
    data->rerun_digests = loaded[1];
    data->n_reruns = n;
    bool is_right = (loaded[0] != NULL) == (loaded[1] != NULL) && (n == 0 || data->probe.n_repeats == 1);
    for (size_t i = 0; status == ND_OK && is_right && i < n; i++)
        is_right = is_in_order(data, i);
    if (status == ND_OK && !is_right)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                       "probe '%s': the table of reruns names runs that cannot be, or lacks their digests",
                       name);
    return status;
}
