/* Captures and bundles from the field. docs/reference/store.md#bundles. */
#include <math.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/golden/store.h"

enum { ND_BUNDLE_VERSION = 1, ND_BUNDLE_MAX_BYTES = 16 << 20 };

/* ---- bundles ---- */

enum nd_status nd_bundle_make(const struct nd_capture *capture, char **text, struct nd_error *err)
{
    json_t *record = nd_record_of_capture(capture);
    json_t *hidden = record != NULL ? nd_record_hidden(record) : NULL;
    json_decref(record);
    bool is_whole =
        hidden != NULL && json_object_set_new(hidden, "npudiff_bundle", json_integer(ND_BUNDLE_VERSION)) == 0;
    char *dumped = is_whole ? json_dumps(hidden, JSON_INDENT(2)) : NULL;
    json_decref(hidden);
    ND_TRY_MEMORY(dumped != NULL, err);
    struct nd_strbuf out = {0};
    nd_strbuf_printf(&out, "%s\n", dumped);
    free(dumped);
    char *made = nd_strbuf_take(&out);
    ND_TRY_MEMORY(made != NULL, err);
    *text = made;
    return ND_OK;
}

static enum nd_status read_bundle(const char *path, json_t **record, struct nd_error *err)
{
    ND_FREED void *data = NULL;
    size_t n = 0;
    json_error_t where;
    ND_TRY(nd_file_read(path, ND_BUNDLE_MAX_BYTES, &data, &n, err));
    json_auto_t *bundle = json_loadb(data, n, JSON_REJECT_DUPLICATES, &where);
    const json_t *version = json_object_get(bundle, "npudiff_bundle");
    const char *problem = NULL;
    if (bundle == NULL)
        return nd_fail(err, ND_E_BUNDLE_FORMAT, path, "'%s' is damaged: line %d, column %d: %s", path,
                       where.line, where.column, where.text);
    if (!json_is_integer(version))
        return nd_fail(err, ND_E_BUNDLE_FORMAT, path,
                       "'%s' is no bundle: expected a JSON object with the number 'npudiff_bundle'", path);
    if (json_integer_value(version) != ND_BUNDLE_VERSION)
        return nd_fail(err, ND_E_BUNDLE_FORMAT, path,
                       "'%s' is of bundle format %" JSON_INTEGER_FORMAT ", expected format %d", path,
                       json_integer_value(version), (int)ND_BUNDLE_VERSION);
    if ((problem = nd_record_problem(bundle)) != NULL)
        return nd_fail(err, ND_E_BUNDLE_FORMAT, path, "'%s' is damaged: %s", path, problem);
    return ND_GIVE(record, bundle);
}

static bool starts_like_json(const char *path)
{
    char start[256] = ""; /* chosen: nobody writes as many blanks before an object */
    int fd;
    if (nd_file_open(path, &fd, NULL, NULL) != ND_OK)
        return false;
    ssize_t n = read(fd, start, sizeof start - 1);
    close(fd);
    return n > 0 && start[strspn(start, " \t\r\n")] == '{';
}

/* The record of a capture or a bundle; *capture is open, for the caller to close, when it was a capture. */
static enum nd_status nd_field_read(const char *path, json_t **record, struct nd_capture **capture,
                                    struct nd_error *err)
{
    ND_CLEANUP(nd_capture_close) struct nd_capture *opened = NULL;
    if (starts_like_json(path))
        return read_bundle(path, record, err);
    ND_TRY(nd_capture_open(path, &opened, err));
    *record = nd_record_of_capture(opened);
    return *record != NULL ? ND_GIVE(capture, opened) : nd_fail_memory(err);
}

/* ---- share of differing elements ---- */

struct counted {
    double n_elems, n_differing;
};

static size_t count_differing(const char *ref, const char *test, size_t n_bytes, size_t elem_bytes)
{
    size_t n = 0;
    for (size_t i = 0; i < n_bytes; i += elem_bytes)
        n += memcmp(ref + i, test + i, elem_bytes) != 0;
    return n;
}

/* One tensor of one probe, sample by sample; samples with equal digests are not read. */
static enum nd_status count_tensor(const struct nd_capture *const sides[2], const size_t probe[2],
                                   const size_t tensor[2], struct counted *counted, struct nd_error *err)
{
    const struct nd_tensor *ref = nd_capture_tensor(sides[0], tensor[0]),
                           *test = nd_capture_tensor(sides[1], tensor[1]);
    size_t n_ref = nd_capture_probe(sides[0], probe[0])->n_samples, n_bytes = 0;
    size_t n_test = nd_capture_probe(sides[1], probe[1])->n_samples;
    size_t n_samples = n_ref < n_test ? n_ref : n_test;
    ND_TRY(nd_shape_size_bytes(&ref->shape, ref->dtype, &n_bytes, err));
    size_t elem_bytes = nd_dtype_size_bytes(ref->dtype);
    if (n_bytes == 0 || elem_bytes == 0)
        return ND_OK;
    double n_elems = (double)(n_bytes / elem_bytes);
    counted->n_elems += n_elems * (double)n_samples;
    if (ref->dtype != test->dtype || !nd_shape_equal(&ref->shape, &test->shape)) {
        counted->n_differing += n_elems * (double)n_samples;
        return ND_OK;
    }
    ND_FREED char *a = nd_calloc(n_bytes, 1), *b = nd_calloc(n_bytes, 1); /* one sample of each */
    ND_TRY_MEMORY(a != NULL && b != NULL, err);
    for (size_t s = 0; s < n_samples; s++) {
        if (nd_digest_equal(nd_capture_digest(sides[0], probe[0], tensor[0], s, 0),
                            nd_capture_digest(sides[1], probe[1], tensor[1], s, 0)))
            continue;
        ND_TRY(
            nd_capture_read_verified(&(struct nd_probe_values){sides[0], probe[0], tensor[0]}, s, 1, a, err));
        ND_TRY(
            nd_capture_read_verified(&(struct nd_probe_values){sides[1], probe[1], tensor[1]}, s, 1, b, err));
        counted->n_differing += (double)count_differing(a, b, n_bytes, elem_bytes);
    }
    return ND_OK;
}

static enum nd_status count_probe(const struct nd_capture *const sides[2], const size_t probe[2],
                                  struct counted *counted, struct nd_error *err)
{
    for (size_t e = 0; e < nd_capture_n_tensors(sides[0]); e++) {
        size_t tensor[2] = {e, nd_capture_find_tensor(sides[1], nd_capture_tensor(sides[0], e)->name)};
        if (tensor[1] != SIZE_MAX && nd_capture_tensor(sides[0], e)->shape.rank >= 0 &&
            nd_capture_has_outputs(sides[0], probe[0], e) &&
            nd_capture_has_outputs(sides[1], probe[1], tensor[1]))
            ND_TRY(count_tensor(sides, probe, tensor, counted, err));
    }
    return ND_OK;
}

/* Share of differing elements over all tensors and common probes of two captures that keep their tensors; NaN
 * where nothing can be compared. Tensors of other types or sizes differ in all elements. */
static enum nd_status nd_field_share(const struct nd_capture *ref, const struct nd_capture *test, double *out,
                                     struct nd_error *err)
{
    const struct nd_capture *const sides[2] = {ref, test};
    struct counted counted = {0};
    for (size_t p = 0; p < nd_capture_n_probes(ref); p++) {
        size_t probe[2] = {p, nd_capture_find_probe(test, nd_capture_probe(ref, p)->name)};
        if (probe[1] != SIZE_MAX)
            ND_TRY(count_probe(sides, probe, &counted, err));
    }
    *out = counted.n_elems > 0 ? counted.n_differing / counted.n_elems : (double)NAN;
    return ND_OK;
}

struct work {
    const struct nd_golden *store;
    const json_t *field;
    struct nd_triage found;
};

/* A bundle hides names; the entry is hidden the same way, and shows them. */
static enum nd_status compare_with(const struct work *work, const json_t *entry,
                                   struct nd_golden_difference *out, struct nd_error *err)
{
    json_auto_t *hidden = work->found.is_bundle ? nd_record_hidden(entry) : NULL;
    ND_TRY_MEMORY(!work->found.is_bundle || hidden != NULL, err);
    return nd_record_compare(hidden != NULL ? hidden : entry, work->field, entry, out, err);
}

static enum nd_status find_standings(struct work *work, struct nd_error *err)
{
    struct nd_triage *found = &work->found;
    found->standings = nd_calloc(work->store->n, sizeof *found->standings);
    ND_TRY_MEMORY(found->standings != NULL, err);
    for (size_t i = 0; i < work->store->n; i++) {
        struct nd_triage_standing next = {.index = i, .share = (double)NAN};
        enum nd_status status = compare_with(work, work->store->entries[i].json, &next.difference, err);
        if (status == ND_OK && nd_record_is_comparable(&next.difference))
            found->standings[found->n++] = next;
        else
            nd_record_difference_deinit(&next.difference);
        ND_TRY(status);
    }
    return ND_OK;
}

static size_t first_of(const struct nd_golden_difference *d)
{
    return d->n_different > 0 ? d->different[0].index : SIZE_MAX;
}

/* Equal ones first, of them and of the others those of the field's chipset. Then most equal tensors, then the
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

static enum nd_status conclude(struct work *work, struct nd_error *err)
{
    struct nd_triage *found = &work->found;
    bool is_met = is_known(found);
    found->verdict = is_met ? "known" : found->n > 0 ? "new" : "not comparable";
    found->exit_code = is_met ? ND_EXIT_SAME : found->n > 0 ? ND_EXIT_DIFFERS : ND_EXIT_NOT_COMPARABLE;
    if (!is_met && found->n_equal < found->n) {
        found->nearest = found->n_equal;
        /* The standing that has more tensors equal than the nearest, which is of the field's chipset; SIZE_MAX:
         * none has. */
        size_t closer = found->nearest;
        for (size_t i = found->nearest; i < found->n; i++)
            if (found->standings[i].difference.n_equal > found->standings[closer].difference.n_equal)
                closer = i;
        found->closer = closer != found->nearest ? closer : SIZE_MAX;
    }
    for (size_t i = 0; i < found->n; i++)
        if (i < found->n_equal || i == found->nearest || i == found->closer)
            ND_TRY(nd_golden_entry(work->store, found->standings[i].index, &found->standings[i].entry, err));
    return ND_OK;
}

enum nd_status nd_triage(const struct nd_golden *store, const char *field, struct nd_triage *out,
                         struct nd_error *err)
{
    json_t *record = NULL;
    ND_CLEANUP(nd_capture_close) struct nd_capture *capture = NULL;
    ND_TRY(nd_field_read(field, &record, &capture, err));
    struct work work = {.store = store,
                        .field = record,
                        .found = {.is_bundle = capture == NULL,
                                  .chipset = nd_axes_chipset(json_object_get(record, "axes")),
                                  .failure = nd_record_failure(record),
                                  .nearest = SIZE_MAX,
                                  .closer = SIZE_MAX,
                                  .owner = record}};
    enum nd_status status = find_standings(&work, err);
    if (status == ND_OK) {
        sort(&work.found);
        status = find_shares(&work, capture, err);
    }
    if (status == ND_OK)
        status = conclude(&work, err);
    if (status == ND_OK)
        return ND_GIVE(out, work.found);
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
