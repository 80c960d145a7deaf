/* How much an edge differs from that of an entry: its digests only say that it does. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judge/store.h"
#include "npudiff/compare.h"

/* An edge over the probes on which it differs. */
struct magnitude {
    bool is_known;
    bool is_integer;
    bool has_errors; /* some difference is a number */
    uint64_t n_elems, n_differing, max_lsb;
    double max_abs; /* real units */
};

static bool is_listed(const json_t *names, const char *name)
{
    size_t i;
    const json_t *item;
    json_array_foreach(names, i, item)
    {
        if (strcmp(json_string_value(item), name) == 0)
            return true;
    }
    return false;
}

/* Unknown as soon as one of the probes is: the largest of the others would say too little. */
static struct magnitude measure(const struct nd_comparison *c, const char *edge, const json_t *probes)
{
    size_t e = 0;
    while (e < c->n_edges && strcmp(c->edges[e].name, edge) != 0)
        e++;
    struct magnitude found = {.is_known = e < c->n_edges};
    for (size_t p = 0; found.is_known && p < c->n_probes; p++) {
        if (!is_listed(probes, c->probes[p].name))
            continue;
        const struct nd_compared_part *part = &c->edges[e].pairs[0].probes[p];
        const struct nd_difference *d = &part->difference;
        found.is_known = part->coverage != ND_COVERAGE_NONE && d->has_values && !d->is_mixed;
        found.is_integer = d->is_integer;
        found.n_elems += d->n_elems;
        found.n_differing += d->n_differing;
        found.max_lsb = d->max_lsb > found.max_lsb ? d->max_lsb : found.max_lsb;
        found.has_errors = found.has_errors || d->has_errors;
        found.max_abs = d->has_errors ? fmax(found.max_abs, d->abs.max) : found.max_abs;
    }
    found.is_known = found.is_known && found.n_elems > 0;
    return found;
}

static json_t *real_of(double value)
{
    return isfinite(value) ? json_real(value) : json_string(isnan(value) ? "NaN" : "Infinity");
}

static bool put(json_t *edge, const struct magnitude *found)
{
    bool is_known = found->is_known;
    json_t *more = json_pack(
        "{s:o, s:o, s:o, s:o, s:o}", "elements",
        is_known ? json_integer((json_int_t)found->n_elems) : json_null(), "elements_differing",
        is_known ? json_integer((json_int_t)found->n_differing) : json_null(), "share",
        is_known ? json_real((double)found->n_differing / (double)found->n_elems) : json_null(), "max_lsb",
        is_known && found->is_integer ? json_integer((json_int_t)found->max_lsb) : json_null(), "max_abs",
        is_known && found->has_errors ? real_of(found->max_abs) : json_null());
    bool is_whole = more != NULL && json_object_update(edge, more) == 0;
    json_decref(more);
    return is_whole;
}

enum nd_status nd_store_measure(const struct nd_capture *ref, const struct nd_capture *test, json_t *comparison,
                                struct nd_error *err)
{
    const struct nd_capture *const sides[] = {ref, test};
    struct nd_comparison *compared = NULL;
    json_t *different = json_object_get(comparison, "different"), *edge;
    size_t i;
    bool is_whole = true;
    struct nd_compare_options options = nd_compare_options_default();
    options.n_worst = 0;
    /* What cannot be compared in numbers leaves them unknown; the digests still count. */
    if (ref != NULL && json_array_size(different) > 0 &&
        nd_compare_captures(sides, 2, &options, &compared, NULL) != ND_OK)
        compared = NULL;
    json_array_foreach(different, i, edge)
    {
        struct magnitude found = {0};
        if (compared != NULL)
            found = measure(compared, nd_record_text(edge, "name"), json_object_get(edge, "probes"));
        is_whole = is_whole && put(edge, &found);
    }
    nd_comparison_destroy(&compared);
    return is_whole ? ND_OK : nd_fail_memory(err);
}
