/* How much an edge differs from that of an entry: its digests only say that it does. */
#include <math.h>
#include <string.h>

#include "judge/golden/store.h"
#include "npudiff/compare/compare.h"

static bool is_listed(const struct nd_golden_edge *edge, const char *probe)
{
    for (size_t i = 0; i < edge->n_probes; i++)
        if (strcmp(edge->probes[i], probe) == 0)
            return true;
    return false;
}

/* Unknown as soon as one of the probes is: the largest of the others would say too little. */
static void measure(const struct nd_comparison *c, struct nd_golden_edge *edge)
{
    size_t e = 0;
    while (e < c->n_edges && strcmp(c->edges[e].name, edge->name) != 0)
        e++;
    edge->is_known = e < c->n_edges;
    for (size_t p = 0; edge->is_known && p < c->n_probes; p++) {
        if (!is_listed(edge, c->probes[p].name))
            continue;
        const struct nd_compared_part *part = &c->edges[e].pairs[0].probes[p];
        const struct nd_difference *d = &part->difference;
        edge->is_known = part->coverage != ND_COVERAGE_NONE && d->has_values && !d->is_mixed;
        edge->has_lsb = d->is_integer;
        edge->n_elems += d->n_elems;
        edge->n_differing += d->n_differing;
        edge->max_lsb = d->max_lsb > edge->max_lsb ? d->max_lsb : edge->max_lsb;
        edge->has_error = edge->has_error || d->has_errors;
        edge->max_abs = d->has_errors ? fmax(edge->max_abs, d->abs.max) : edge->max_abs;
    }
    edge->is_known = edge->is_known && edge->n_elems > 0;
}

enum nd_status nd_store_measure(const struct nd_capture *ref, const struct nd_capture *test,
                                struct nd_golden_difference *difference, struct nd_error *err)
{
    const struct nd_capture *const sides[] = {ref, test};
    struct nd_comparison *compared = NULL;
    struct nd_compare_options options = nd_compare_options_default();
    options.n_worst = 0;
    if (ref == NULL || difference->n_different == 0)
        return ND_OK;
    enum nd_status status = nd_compare_captures(sides, 2, &options, &compared, err);
    /* What cannot be compared in numbers leaves them unknown; the digests still count. */
    if (status != ND_OK)
        return status == ND_ERR_MEMORY ? status : ND_OK;
    for (size_t i = 0; i < difference->n_different; i++)
        measure(compared, &difference->different[i]);
    nd_comparison_destroy(&compared);
    return ND_OK;
}
