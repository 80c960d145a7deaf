#include "judge/triage.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* How an entry stands to what came from the field. */
struct standing {
    size_t entry;
    size_t n_equal, n_edges;
    size_t first; /* edge that differs first in graph order, SIZE_MAX: none */
    double share; /* of differing elements; NaN: not known */
    json_t *comparison;
};

struct triage {
    const struct nd_golden *store;
    const json_t *field;
    bool is_bundle;
    size_t n;
    struct standing *standings; /* comparable ones, nearest first */
};

/* A bundle hides names; the entry is hidden the same way, and shows them. */
static json_t *compare_with(const struct triage *triage, const json_t *entry)
{
    if (!triage->is_bundle)
        return nd_record_compare(entry, triage->field, entry);
    json_t *hidden = nd_record_hidden(entry);
    json_t *comparison = hidden != NULL ? nd_record_compare(hidden, triage->field, entry) : NULL;
    json_decref(hidden);
    return comparison;
}

static enum nd_status find_standings(struct triage *triage, struct nd_error *err)
{
    triage->standings = nd_calloc(triage->store->n, sizeof *triage->standings);
    if (triage->standings == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < triage->store->n; i++) {
        json_t *comparison = compare_with(triage, triage->store->entries[i].json);
        if (comparison == NULL)
            return nd_fail_memory(err);
        if (!nd_record_is_comparable(comparison)) {
            json_decref(comparison);
            continue;
        }
        const json_t *first = json_array_get(json_object_get(comparison, "different"), 0);
        triage->standings[triage->n++] = (struct standing){
            .entry = i,
            .n_equal = (size_t)json_integer_value(json_object_get(comparison, "n_equal")),
            .n_edges = (size_t)json_integer_value(json_object_get(comparison, "n_edges")),
            .first = first != NULL ? (size_t)json_integer_value(json_object_get(first, "index")) : SIZE_MAX,
            .share = (double)NAN,
            .comparison = comparison};
    }
    return ND_OK;
}

static bool is_of_chipset(const struct standing *standing)
{
    return json_is_true(json_object_get(standing->comparison, "same_chipset"));
}

/* Equal ones first, of them and of the others those of the field's chipset. Then most equal edges, then the
 * smaller share of differing codes where both are known, then the later first difference, then the newer entry.
 */
static int compare_standings(const void *a, const void *b)
{
    const struct standing *x = a, *y = b;
    bool x_equal = nd_record_is_equal(x->comparison), y_equal = nd_record_is_equal(y->comparison);
    if (x_equal != y_equal)
        return x_equal ? -1 : 1;
    if (is_of_chipset(x) != is_of_chipset(y))
        return is_of_chipset(x) ? -1 : 1;
    if (x->n_equal != y->n_equal)
        return x->n_equal > y->n_equal ? -1 : 1;
    if (x->share != y->share && !isnan(x->share) && !isnan(y->share))
        return x->share < y->share ? -1 : 1;
    if (x->first != y->first)
        return x->first > y->first ? -1 : 1;
    return x->entry > y->entry ? -1 : x->entry < y->entry;
}

static void sort(struct triage *triage)
{
    if (triage->n > 0)
        qsort(triage->standings, triage->n, sizeof *triage->standings, compare_standings);
}

/* The first that is not equal to what came from the field. */
static size_t n_equal_standings(const struct triage *triage)
{
    size_t n = 0;
    while (n < triage->n && nd_record_is_equal(triage->standings[n].comparison))
        n++;
    return n;
}

/* For those that stand nearest by chipset and digests, as far as both sides keep their tensors. An object that
 * is damaged or missing leaves the share unknown: the digests of its entry still count. */
static void find_shares(struct triage *triage, const struct nd_capture *field)
{
    enum { MAX_SHARES = 8 };
    size_t first = n_equal_standings(triage), n = 0;
    const struct standing *nearest = first < triage->n ? &triage->standings[first] : NULL;
    while (first + n < triage->n && triage->standings[first + n].n_equal == nearest->n_equal &&
           is_of_chipset(&triage->standings[first + n]) == is_of_chipset(nearest))
        n++;
    bool is_known = field != NULL && n <= MAX_SHARES;
    for (size_t i = first; field != NULL && i < first + n && i < first + MAX_SHARES; i++) {
        struct standing *standing = &triage->standings[i];
        struct nd_capture *object = NULL;
        if (nd_store_open_object(triage->store, &triage->store->entries[standing->entry], &object, NULL) ==
                ND_OK &&
            nd_field_share(object, field, &standing->share, NULL) != ND_OK)
            standing->share = (double)NAN;
        nd_capture_close(&object);
        is_known = is_known && !isnan(standing->share);
    }
    /* Shares order only where all of the nearest have one: else the order would not be one. */
    if (is_known)
        sort(triage);
}

static json_t *tell_standing(const struct triage *triage, const struct standing *standing)
{
    json_t *row = nd_store_describe(triage->store, &triage->store->entries[standing->entry]);
    json_t *more =
        json_pack("{s:b, s:I, s:I, s:o, s:O?, s:O, s:O, s:O, s:O}", "same_chipset", is_of_chipset(standing),
                  "n_equal", (json_int_t)standing->n_equal, "n_edges", (json_int_t)standing->n_edges, "share",
                  isnan(standing->share) ? json_null() : json_real(standing->share), "first",
                  json_array_get(json_object_get(standing->comparison, "different"), 0), "axes",
                  json_object_get(standing->comparison, "axes"), "missing",
                  json_object_get(standing->comparison, "missing"), "extra",
                  json_object_get(standing->comparison, "extra"), "compared_probes",
                  json_object_get(standing->comparison, "probes"));
    if (row == NULL || more == NULL || json_object_update(row, more) != 0) {
        json_decref(row);
        row = NULL;
    }
    json_decref(more);
    return row;
}

/* Whether what came from the field is known: equal to an entry of its own chipset, or where none of that
 * chipset was accepted to any. Equal to another chipset only, it is not what this chipset was accepted with. */
static bool is_known(const struct triage *triage, size_t n_equal)
{
    bool has_own = n_equal < triage->n && is_of_chipset(&triage->standings[n_equal]);
    return n_equal > 0 && (is_of_chipset(&triage->standings[0]) || !has_own);
}

/* The entry that has more edges equal than the nearest, which is of the field's chipset; NULL: none has. */
static const struct standing *find_closer(const struct triage *triage, const struct standing *nearest)
{
    const struct standing *closer = nearest;
    for (size_t i = (size_t)(nearest - triage->standings); i < triage->n; i++)
        if (triage->standings[i].n_equal > closer->n_equal)
            closer = &triage->standings[i];
    return closer != nearest ? closer : NULL;
}

static json_t *tell(const struct triage *triage, const char *field, enum nd_exit *exit_code)
{
    size_t n_equal = n_equal_standings(triage);
    bool is_met = is_known(triage, n_equal), is_whole = true;
    json_t *equal = json_array(), *nearest = NULL, *closer = NULL;
    for (size_t i = 0; i < n_equal; i++)
        is_whole = is_whole && json_array_append_new(equal, tell_standing(triage, &triage->standings[i])) == 0;
    if (!is_met && n_equal < triage->n) {
        const struct standing *other = find_closer(triage, &triage->standings[n_equal]);
        nearest = tell_standing(triage, &triage->standings[n_equal]);
        closer = other != NULL ? tell_standing(triage, other) : NULL;
        is_whole = is_whole && nearest != NULL && (other == NULL || closer != NULL);
    }
    *exit_code = is_met ? ND_EXIT_SAME : triage->n > 0 ? ND_EXIT_DIFFERS : ND_EXIT_NOT_COMPARABLE;
    const char *verdict = is_met ? "known" : triage->n > 0 ? "new" : "not comparable";
    json_t *report =
        is_whole ? json_pack("{s:o, s:b, s:s, s:s, s:O, s:O?, s:O?, s:I, s:O}", "field", nd_axes_text(field),
                             "is_bundle", triage->is_bundle, "verdict", verdict, "chipset",
                             nd_axes_chipset(json_object_get(triage->field, "axes")), "equal", equal, "nearest",
                             nearest, "closer", closer, "n_comparable", (json_int_t)triage->n, "failure",
                             json_object_get(triage->field, "failure"))
                 : NULL;
    json_decref(closer);
    json_decref(nearest);
    json_decref(equal);
    return report;
}

enum nd_status nd_triage(const struct nd_golden *store, const char *field, char **json, enum nd_exit *exit_code,
                         struct nd_error *err)
{
    json_t *record = NULL;
    struct nd_capture *capture = NULL;
    enum nd_exit code = ND_EXIT_TROUBLE;
    enum nd_status status = nd_field_read(field, &record, &capture, err);
    if (status != ND_OK)
        return status;
    struct triage triage = {.store = store, .field = record, .is_bundle = capture == NULL};
    status = find_standings(&triage, err);
    if (status == ND_OK) {
        sort(&triage);
        find_shares(&triage, capture);
        status = nd_store_report(store, tell(&triage, field, &code), json, err);
    }
    for (size_t i = 0; i < triage.n; i++)
        json_decref(triage.standings[i].comparison);
    free(triage.standings);
    nd_capture_close(&capture);
    json_decref(record);
    if (status == ND_OK)
        *exit_code = code;
    return status;
}
