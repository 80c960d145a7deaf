/* Repeats that differ from the first run: which of them are stored, and where. */
#include <stdlib.h>

#include "core/memory.h"
#include "capture/read/capture_internal.h"
#include "capture/read/link_names.h"

static int compare_rows(const void *a, const void *b)
{
    const struct nd_repeat_row *x = a, *y = b;
    if (x->sample != y->sample)
        return x->sample < y->sample ? -1 : 1;
    return x->repeat == y->repeat ? 0 : x->repeat < y->repeat ? -1 : 1;
}

const struct nd_repeat_row *nd_capture_repeat_row(const struct nd_probe_edge *edge, size_t sample,
                                                  size_t repeat)
{
    struct nd_repeat_row key = {.sample = (int64_t)sample, .repeat = (int64_t)repeat};
    if (edge->n_repeat_rows == 0)
        return NULL;
    return bsearch(&key, edge->repeat_rows, edge->n_repeat_rows, sizeof key, compare_rows);
}

const char *nd_probe_repeats_part(const struct nd_probe_data *data, bool is_index)
{
    if (data->n_reruns > 0)
        return is_index ? "rerun_index" : "reruns";
    return is_index ? "repeat_index" : "repeats";
}

enum nd_status nd_probe_load_repeat_rows(const struct nd_capture *capture, const struct nd_probe_data *data,
                                         size_t e, struct nd_error *err)
{
    const struct nd_capture_probe *probe = &data->probe;
    const struct nd_edge *edge = &capture->edges[e];
    struct nd_probe_edge *part = &data->edges[e];
    static const struct nd_wanted pairs = {ND_DTYPE_I64, {.rank = 2, .dims = {-1, 2}}, true};
    void *loaded = NULL;
    size_t n = 0;
    enum nd_status status = nd_capture_load_part(
        capture, nd_name_probe_path(probe->name, nd_probe_repeats_part(data, true), edge->name), &pairs,
        &loaded, &n, err);
    if (status != ND_OK)
        return status;
    const int64_t *index = loaded;
    part->repeat_rows = nd_calloc(n, sizeof *part->repeat_rows);
    if (part->repeat_rows == NULL) {
        free(loaded);
        return nd_fail_memory(err);
    }
    part->n_repeat_rows = n;
    for (size_t i = 0; i < n; i++) {
        part->repeat_rows[i] = (struct nd_repeat_row){index[2 * i], index[2 * i + 1], i};
        if (index[2 * i] < 0 || (uint64_t)index[2 * i] >= probe->n_samples || index[2 * i + 1] < 1 ||
            (data->n_reruns == 0 && (uint64_t)index[2 * i + 1] >= probe->n_repeats))
            status = nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name,
                             "probe '%s', edge '%s': a stored repeat is of sample %lld, repeat %lld",
                             probe->name, edge->name, (long long)index[2 * i], (long long)index[2 * i + 1]);
    }
    free(loaded);
    qsort(part->repeat_rows, n, sizeof *part->repeat_rows, compare_rows);
    for (size_t i = 1; i < n && status == ND_OK; i++)
        if (compare_rows(&part->repeat_rows[i - 1], &part->repeat_rows[i]) == 0)
            status = nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name,
                             "probe '%s', edge '%s': a repeat is stored twice", probe->name, edge->name);
    return status;
}

enum nd_status nd_probe_check_repeats(const struct nd_capture *capture, size_t p, size_t e,
                                      struct nd_error *err)
{
    const struct nd_capture_probe *probe = &capture->probes[p].probe;
    const struct nd_probe_edge *part = &capture->probes[p].edges[e];
    const char *name = capture->edges[e].name;
    if ((part->n_repeat_rows > 0) != (part->repeats != NULL) ||
        (part->repeats != NULL && part->outputs == NULL))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                       "probe '%s', edge '%s': repeats are stored without their index or without outputs",
                       probe->name, name);
    for (size_t i = 0; i < part->n_repeat_rows; i++)
        if ((size_t)part->repeat_rows[i].repeat >=
            nd_capture_n_runs(capture, p, e, (size_t)part->repeat_rows[i].sample))
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                           "probe '%s', edge '%s': repeat %lld of sample %lld is stored, but has no digest",
                           probe->name, name, (long long)part->repeat_rows[i].repeat,
                           (long long)part->repeat_rows[i].sample);
    /* (A rerun whose digest was damaged is found by whoever reads it.) */
    bool is_checked = part->outputs != NULL && capture->probes[p].n_reruns == 0 && probe->n_repeats > 1 &&
                      nd_capture_edge_digest(capture, p, e) == NULL;
    for (size_t s = 0; is_checked && s < probe->n_samples; s++)
        for (size_t r = 1, n = nd_capture_n_runs(capture, p, e, s); r < n; r++)
            if (!nd_digest_equal(nd_capture_digest(capture, p, e, s, 0),
                                 nd_capture_digest(capture, p, e, s, r)) &&
                nd_capture_repeat_row(part, s, r) == NULL)
                return nd_fail(err, ND_E_CAPTURE_SCHEMA, name,
                               "probe '%s', edge '%s': repeat %zu of sample %zu differs, but is not stored",
                               probe->name, name, r, s);
    return ND_OK;
}
