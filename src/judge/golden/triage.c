#include "judge/golden/triage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"

struct work {
    const struct nd_golden *store;
    const json_t *field;
    struct nd_triage found;
};

/* A bundle hides names; the entry is hidden the same way, and shows them. */
static enum nd_status compare_with(const struct work *work, const json_t *entry,
                                   struct nd_golden_difference *out, struct nd_error *err)
{
    json_t *hidden = work->found.is_bundle ? nd_record_hidden(entry) : NULL;
    if (work->found.is_bundle && hidden == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_record_compare(hidden != NULL ? hidden : entry, work->field, entry, out, err);
    json_decref(hidden);
    return status;
}

static enum nd_status find_standings(struct work *work, struct nd_error *err)
{
    struct nd_triage *found = &work->found;
    enum nd_status status = ND_OK;
    found->standings = nd_calloc(work->store->n, sizeof *found->standings);
    if (found->standings == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < work->store->n; i++) {
        struct nd_triage_standing next = {.index = i, .share = (double)NAN};
        status = compare_with(work, work->store->entries[i].json, &next.difference, err);
        if (status == ND_OK && nd_record_is_comparable(&next.difference))
            found->standings[found->n++] = next;
        else
            nd_record_difference_deinit(&next.difference);
    }
    return status;
}

static size_t first_of(const struct nd_golden_difference *d)
{
    return d->n_different > 0 ? d->different[0].index : SIZE_MAX;
}

/* Equal ones first, of them and of the others those of the field's chipset. Then most equal edges, then the
 * smaller share of differing codes where both are known, then the later first difference, then the newer entry.
 */
static int compare_standings(const void *a, const void *b)
{
    const struct nd_triage_standing *x = a, *y = b;
    const struct nd_golden_difference *p = &x->difference, *q = &y->difference;
    bool p_equal = nd_record_is_equal(p), q_equal = nd_record_is_equal(q);
    if (p_equal != q_equal)
        return p_equal ? -1 : 1;
    if (p->is_same_chipset != q->is_same_chipset)
        return p->is_same_chipset ? -1 : 1;
    if (p->n_equal != q->n_equal)
        return p->n_equal > q->n_equal ? -1 : 1;
    if (x->share != y->share && !isnan(x->share) && !isnan(y->share))
        return x->share < y->share ? -1 : 1;
    if (first_of(p) != first_of(q))
        return first_of(p) > first_of(q) ? -1 : 1;
    return x->index > y->index ? -1 : x->index < y->index;
}

static void sort(struct nd_triage *found)
{
    if (found->n > 0)
        qsort(found->standings, found->n, sizeof *found->standings, compare_standings);
    found->n_equal = 0;
    while (found->n_equal < found->n && nd_record_is_equal(&found->standings[found->n_equal].difference))
        found->n_equal++;
}

/* For those that stand nearest by chipset and digests, as far as both sides keep their tensors. An object that
 * is damaged or missing leaves the share unknown: the digests of its entry still count. */
static enum nd_status find_shares(struct work *work, const struct nd_capture *field, struct nd_error *err)
{
    enum { MAX_SHARES = 8 };
    struct nd_triage_standing *others = work->found.standings + work->found.n_equal;
    size_t n_others = work->found.n - work->found.n_equal, n = 0;
    while (n < n_others && others[n].difference.n_equal == others->difference.n_equal &&
           others[n].difference.is_same_chipset == others->difference.is_same_chipset)
        n++;
    bool is_known = field != NULL && n <= MAX_SHARES;
    for (size_t i = 0; field != NULL && i < n && i < MAX_SHARES; i++) {
        struct nd_capture *object = NULL;
        enum nd_status status =
            nd_store_open_object(work->store, &work->store->entries[others[i].index], &object, err);
        if (status == ND_OK)
            status = nd_field_share(object, field, &others[i].share, err);
        nd_capture_close(&object);
        if (status == ND_ERR_MEMORY)
            return status;
        if (status != ND_OK)
            others[i].share = (double)NAN;
        is_known = is_known && !isnan(others[i].share);
    }
    /* Shares order only where all of the nearest have one: else the order would not be one. */
    if (is_known)
        sort(&work->found);
    return ND_OK;
}

/* Whether what came from the field is known: equal to an entry of its own chipset, or where none of that
 * chipset was accepted to any. Equal to another chipset only, it is not what this chipset was accepted with. */
static bool is_known(const struct nd_triage *found)
{
    const struct nd_triage_standing *all = found->standings;
    bool has_own = found->n_equal < found->n && all[found->n_equal].difference.is_same_chipset;
    return found->n_equal > 0 && (all[0].difference.is_same_chipset || !has_own);
}

/* The standing that has more edges equal than the nearest, which is of the field's chipset; SIZE_MAX: none has.
 */
static size_t find_closer(const struct nd_triage *found)
{
    size_t closer = found->nearest;
    for (size_t i = found->nearest; i < found->n; i++)
        if (found->standings[i].difference.n_equal > found->standings[closer].difference.n_equal)
            closer = i;
    return closer != found->nearest ? closer : SIZE_MAX;
}

static enum nd_status conclude(struct work *work, struct nd_error *err)
{
    struct nd_triage *found = &work->found;
    bool is_met = is_known(found);
    enum nd_status status = ND_OK;
    found->verdict = is_met ? "known" : found->n > 0 ? "new" : "not comparable";
    found->exit_code = is_met ? ND_EXIT_SAME : found->n > 0 ? ND_EXIT_DIFFERS : ND_EXIT_NOT_COMPARABLE;
    if (!is_met && found->n_equal < found->n) {
        found->nearest = found->n_equal;
        found->closer = find_closer(found);
    }
    for (size_t i = 0; status == ND_OK && i < found->n; i++)
        if (i < found->n_equal || i == found->nearest || i == found->closer)
            status = nd_golden_entry(work->store, found->standings[i].index, &found->standings[i].entry, err);
    return status;
}

enum nd_status nd_triage(const struct nd_golden *store, const char *field, struct nd_triage *out,
                         struct nd_error *err)
{
    json_t *record = NULL;
    struct nd_capture *capture = NULL;
    enum nd_status status = nd_field_read(field, &record, &capture, err);
    if (status != ND_OK)
        return status;
    struct work work = {.store = store,
                        .field = record,
                        .found = {.is_bundle = capture == NULL,
                                  .chipset = nd_axes_chipset(json_object_get(record, "axes")),
                                  .failure = nd_record_failure(record),
                                  .nearest = SIZE_MAX,
                                  .closer = SIZE_MAX,
                                  .owner = record}};
    status = find_standings(&work, err);
    if (status == ND_OK) {
        sort(&work.found);
        status = find_shares(&work, capture, err);
        if (status == ND_OK)
            status = conclude(&work, err);
    }
    nd_capture_close(&capture);
    if (status == ND_OK)
        *out = work.found;
    else
        nd_triage_deinit(&work.found);
    return status;
}

void nd_triage_deinit(struct nd_triage *triage)
{
    for (size_t i = 0; i < triage->n; i++) {
        nd_golden_entry_deinit(&triage->standings[i].entry);
        nd_record_difference_deinit(&triage->standings[i].difference);
    }
    free(triage->standings);
    json_decref(triage->owner);
    *triage = (struct nd_triage){0};
}
