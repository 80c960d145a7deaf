/* Repeats that differ from the first run: which of them are stored, and where. */
#include <stdlib.h>

#include "base/memory.h"
#include "capture/capture_internal.h"
#include "capture/link_names.h"

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

enum nd_status nd_probe_load_repeat_rows(const struct nd_capture *capture, const struct nd_capture_probe *probe,
                                         const struct nd_edge *edge, struct nd_probe_edge *part,
                                         struct nd_error *err)
{
    static const struct nd_wanted pairs = {ND_DTYPE_I64, {.rank = 2, .dims = {-1, 2}}, true};
    void *loaded = NULL;
    size_t n = 0;
    enum nd_status status = nd_capture_load_part(
        capture, nd_name_probe_path(probe->name, "repeat_index", edge->name), &pairs, &loaded, &n, err);
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
            (uint64_t)index[2 * i + 1] >= probe->n_repeats)
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

enum nd_status nd_probe_check_repeats(const struct nd_capture_probe *probe, const struct nd_edge *edge,
                                      const struct nd_probe_edge *part, struct nd_error *err)
{
    if ((part->n_repeat_rows > 0) != (part->repeats != NULL) ||
        (part->repeats != NULL && part->outputs == NULL))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name,
                       "probe '%s', edge '%s': repeats are stored without their index or without outputs",
                       probe->name, edge->name);
    for (size_t s = 0; part->outputs != NULL && s < probe->n_samples; s++)
        for (size_t r = 1; r < probe->n_repeats; r++)
            if (!nd_digest_equal(part->digests[s * probe->n_repeats],
                                 part->digests[s * probe->n_repeats + r]) &&
                nd_capture_repeat_row(part, s, r) == NULL)
                return nd_fail(err, ND_E_CAPTURE_SCHEMA, edge->name,
                               "probe '%s', edge '%s': repeat %zu of sample %zu differs, but is not stored",
                               probe->name, edge->name, r, s);
    return ND_OK;
}
