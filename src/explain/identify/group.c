/* Units of one kind, in which little may be seen of each. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/identify/identify_parts.h"

enum nd_status nd_identify_group(const struct nd_identify_tally *const *units, size_t n,
                                 struct nd_identify_result *out, struct nd_error *err)
{
    struct nd_identify_result *parts = nd_calloc(n + 1, sizeof *parts);
    struct nd_identify_tally *all = nd_calloc(1, sizeof *all);
    if (parts == NULL || all == NULL) {
        free(parts);
        free(all);
        return nd_fail_memory(err);
    }
    for (size_t u = 0; u < n; u++) {
        nd_identify_decide(units[u], &parts[u]);
        nd_identify_merge(units[u], all);
    }
    struct nd_identify_result both[2];
    nd_identify_combine(parts, n, &both[0]);
    nd_identify_decide(all, &both[1]);
    nd_identify_combine(both, 2, out);
    /* What was excluded is that of both; what was seen, that of one. */
    const struct nd_identify_result *once = &both[0];
    out->n = once->n;
    out->n_open = once->n_open;
    out->n_deciding = once->n_deciding;
    for (size_t p = 0; p < out->n_programs; p++) {
        out->n_wrong[p] = once->n_wrong[p];
        out->n_seen[p] = once->n_seen[p];
        out->cost[p] = once->cost[p];
        out->class_of[p] = once->class_of[p];
    }
    out->is_split = out->verdict == ND_IDENTIFY_NONE && once->is_split; /* together they have none, then */
    if (out->n_open < ND_IDENTIFY_LEAST)
        out->verdict = ND_IDENTIFY_TOO_FEW;
    free(parts);
    free(all);
    return ND_OK;
}
