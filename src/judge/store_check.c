#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "judge/broken.h"
#include "judge/store.h"

/* ---- reports ---- */

enum nd_status nd_store_report(const struct nd_golden *store, json_t *report, char **json, struct nd_error *err)
{
    char *text = NULL;
    struct nd_strbuf out = {0};
    if (report != NULL && (store == NULL || json_object_set(report, "problems", store->problems) == 0))
        text = json_dumps(report, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(report);
    if (text != NULL)
        nd_strbuf_printf(&out, "%s\n", text);
    free(text);
    text = out.len > 0 ? nd_strbuf_take(&out) : NULL;
    if (text == NULL)
        return nd_fail_memory(err);
    *json = text;
    return ND_OK;
}

static const json_t *axis_of(const json_t *record, enum nd_axis axis)
{
    return json_object_get(json_object_get(record, "axes"), nd_axis_name(axis));
}

/* "full", "digest", or "missing" when the object of a full entry is gone; NULL when memory is out. */
static const char *kept_of(const struct nd_golden *store, const json_t *entry)
{
    char hex[ND_SHA256_HEX_BYTES];
    if (!json_is_string(json_object_get(entry, "object")))
        return "digest";
    if (!nd_store_digest_of(nd_record_text(entry, "object"), "", hex))
        return "missing";
    char *path = nd_store_path(store, "objects", hex, ".h5");
    if (path == NULL)
        return NULL;
    bool exists = nd_path_exists(path);
    free(path);
    return exists ? "full" : "missing";
}

json_t *nd_store_describe(const struct nd_golden *store, const struct nd_store_entry *entry)
{
    const json_t *json = entry->json;
    return json_pack(
        "{s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I}", "id", entry->id, "label",
        nd_record_text(json, "label"), "date", nd_record_text(json, "date"), "chipset",
        nd_axes_chipset(json_object_get(json, "axes")), "sdk", nd_record_text(axis_of(json, ND_AXIS_SDK), "id"),
        "model", nd_record_text(json, "model_file"), "status", nd_record_text(json, "status"), "store",
        kept_of(store, json), "accepted_by", nd_record_text(json, "accepted_by"), "note",
        nd_record_text(json, "note"), "probes", (json_int_t)json_array_size(json_object_get(json, "probes")),
        "edges", (json_int_t)json_array_size(json_object_get(json, "edges")));
}

enum nd_status nd_golden_list(const struct nd_golden *store, char **json, struct nd_error *err)
{
    json_t *rows = json_array();
    bool is_whole = rows != NULL;
    for (size_t i = 0; i < store->n; i++)
        is_whole = is_whole && json_array_append_new(rows, nd_store_describe(store, &store->entries[i])) == 0;
    json_t *report = is_whole ? json_pack("{s:O}", "entries", rows) : NULL;
    json_decref(rows);
    return nd_store_report(store, report, json, err);
}

/* ---- objects ---- */

enum nd_status nd_store_open_object(const struct nd_golden *store, const struct nd_store_entry *entry,
                                    struct nd_capture **out, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES], found[ND_SHA256_HEX_BYTES];
    const char *object = nd_record_text(entry->json, "object");
    if (!nd_store_digest_of(object, "", hex))
        return nd_fail(err, ND_E_STORE_ENTRY, entry->id, "entry %.12s keeps digests only", entry->id);
    char *path = nd_store_path(store, "objects", hex, ".h5");
    if (path == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    if (!nd_path_exists(path))
        status = nd_fail(err, ND_E_STORE_ENTRY, path, "'%s' is missing, the capture of entry %.12s", path,
                         entry->id);
    else
        status = nd_sha256_file(path, found, err);
    if (status == ND_OK && strcmp(found, hex) != 0)
        status =
            nd_fail(err, ND_E_STORE_FORMAT, path,
                    "'%s' is damaged: the SHA-256 of its content is %.16s..., expected its name", path, found);
    if (status == ND_OK)
        status = nd_capture_open(path, out, err);
    free(path);
    return status;
}

enum nd_status nd_golden_open_capture(const struct nd_golden *store, const char *id, struct nd_capture **out,
                                      struct nd_error *err)
{
    for (size_t i = 0; i < store->n; i++)
        if (strcmp(store->entries[i].id, id) == 0)
            return nd_store_open_object(store, &store->entries[i], out, err);
    return nd_fail(err, ND_E_STORE_ENTRY, id, "the store has no entry %.12s", id);
}

/* ---- check ---- */

struct candidate {
    size_t entry; /* SIZE_MAX: none */
    size_t n_axes, weight;
    bool is_equal;
    json_t *comparison;
};

/* Of two entries that differ in as many axes, the one whose difference is asked about more rarely stands
 * nearer: the question is what a new SDK changed on this chipset, not what this chipset does otherwise. */
static size_t weigh(const json_t *axes)
{
    static const char *const by_weight[] = {"host", "sdk", "options", "probes", "chipset"};
    size_t i, weight = 0;
    const json_t *name;
    json_array_foreach(axes, i, name)
    {
        for (size_t w = 0; w < sizeof by_weight / sizeof by_weight[0]; w++)
            if (strcmp(json_string_value(name), by_weight[w]) == 0)
                weight += (size_t)1 << (2 * w);
    }
    return weight;
}

static size_t n_equal_of(const struct candidate *candidate)
{
    return (size_t)json_integer_value(json_object_get(candidate->comparison, "n_equal"));
}

static bool has_axis(const struct candidate *candidate, enum nd_axis axis)
{
    size_t i;
    const json_t *name;
    json_array_foreach(json_object_get(candidate->comparison, "axes"), i, name)
    {
        if (strcmp(json_string_value(name), nd_axis_name(axis)) == 0)
            return true;
    }
    return false;
}

/* The edge in graph order on which they part, SIZE_MAX when on none. */
static size_t first_of(const struct candidate *candidate)
{
    const json_t *first = json_array_get(json_object_get(candidate->comparison, "different"), 0);
    return first != NULL ? (size_t)json_integer_value(json_object_get(first, "index")) : SIZE_MAX;
}

static bool is_of_chipset(const struct candidate *candidate)
{
    return json_is_true(json_object_get(candidate->comparison, "same_chipset"));
}

/* Whether a, which is not older than b, stands nearer. An entry of the very chipset stands before those of
 * others, whatever they compute: a chip that computes like another one is a finding. No other chipset is the
 * one before another: that which computes most alike is taken. Of several that were accepted for exactly these
 * axes one that is equal. Else the newer. */
static bool is_nearer(const struct candidate *a, const struct candidate *b)
{
    if (b->entry == SIZE_MAX)
        return true;
    if (is_of_chipset(a) != is_of_chipset(b))
        return is_of_chipset(a);
    if (a->n_axes != b->n_axes)
        return a->n_axes < b->n_axes;
    if (a->weight != b->weight)
        return a->weight < b->weight;
    if (has_axis(a, ND_AXIS_CHIPSET) && n_equal_of(a) != n_equal_of(b))
        return n_equal_of(a) > n_equal_of(b);
    if (has_axis(a, ND_AXIS_CHIPSET) && first_of(a) != first_of(b))
        return first_of(a) > first_of(b);
    return a->n_axes > 0 || a->is_equal || !b->is_equal;
}

static enum nd_status find_nearest(const struct nd_golden *store, const json_t *record,
                                   struct candidate *nearest, struct nd_error *err)
{
    *nearest = (struct candidate){.entry = SIZE_MAX};
    for (size_t i = 0; i < store->n; i++) {
        const json_t *ref = store->entries[i].json;
        struct candidate next = {.entry = i, .comparison = nd_record_compare(ref, record, ref)};
        if (next.comparison == NULL)
            return nd_fail_memory(err);
        const json_t *axes = json_object_get(next.comparison, "axes");
        next.n_axes = json_array_size(axes);
        next.weight = weigh(axes);
        next.is_equal = nd_record_is_equal(next.comparison);
        if (nd_record_is_comparable(next.comparison) && is_nearer(&next, nearest)) {
            json_decref(nearest->comparison);
            *nearest = next;
        } else {
            json_decref(next.comparison);
        }
    }
    return ND_OK;
}

static bool has_failed(const json_t *record)
{
    return strcmp(nd_record_text(record, "status"), "failed") == 0;
}

/* The axes that can be why edges differ: only probes with the same inputs were compared, and so other probes
 * are no reason while there is another. New reference, NULL when memory is out. */
static json_t *suspects_of(const json_t *comparison)
{
    const json_t *axes = json_object_get(comparison, "axes");
    json_t *suspects = json_array(), *name;
    size_t i;
    json_array_foreach(axes, i, name)
    {
        bool is_probes = strcmp(json_string_value(name), nd_axis_name(ND_AXIS_PROBES)) == 0;
        if ((!is_probes || json_array_size(axes) == 1) && json_array_append(suspects, name) != 0) {
            json_decref(suspects);
            return NULL;
        }
    }
    return suspects;
}

/* {"verdict", "blamed", "first"} and all of the comparison. */
static json_t *make_verdict(const json_t *comparison, const json_t *test, bool blame, enum nd_exit *exit_code)
{
    json_t *suspects = suspects_of(comparison);
    size_t n_axes = json_array_size(suspects);
    const char *verdict = "differs";
    *exit_code = ND_EXIT_DIFFERS;
    if (!nd_record_is_comparable(comparison)) {
        verdict = "not comparable";
        *exit_code = ND_EXIT_NOT_COMPARABLE;
    } else if (nd_record_is_equal(comparison)) {
        verdict = "same";
        *exit_code = ND_EXIT_SAME;
    } else if (has_failed(test) && !json_is_true(json_object_get(comparison, "same_end"))) {
        verdict = "failed";
        *exit_code = ND_EXIT_DEVICE_FAILED;
    } else if (n_axes > 1 && !blame) {
        verdict = "inconclusive";
        *exit_code = ND_EXIT_INCONCLUSIVE;
    }
    bool is_blamed = *exit_code == ND_EXIT_DIFFERS || *exit_code == ND_EXIT_DEVICE_FAILED;
    if (!is_blamed || (n_axes > 1 && !blame))
        json_array_clear(suspects);
    json_t *first = json_array_get(json_object_get(comparison, "different"), 0);
    json_t *report = json_pack("{s:s, s:o, s:O?, s:O}", "verdict", verdict, "blamed", suspects, "first", first,
                               "failure", json_object_get(test, "failure"));
    if (report == NULL || json_object_update(report, (json_t *)(uintptr_t)comparison) != 0) {
        json_decref(report);
        return NULL;
    }
    return report;
}

/* The capture that an entry keeps, if it does; NULL is no error: its digests still count. */
static struct nd_capture *open_kept(const struct nd_golden *store, size_t entry)
{
    struct nd_capture *kept = NULL;
    if (nd_store_open_object(store, &store->entries[entry], &kept, NULL) != ND_OK)
        return NULL;
    return kept;
}

/* Why the capture cannot be right goes into the report; *is_broken: it cannot. A capture that is not kept, or
 * whose values cannot be read here, is judged by its digests alone. False: out of memory. */
static bool put_broken(const struct nd_capture *capture, json_t *report, const char *key, bool *is_broken)
{
    char *why = NULL;
    *is_broken = capture != NULL && nd_broken_find(capture, &why, NULL) == ND_OK && why != NULL;
    bool is_whole = json_object_set_new(report, key, *is_broken ? nd_axes_text(why) : json_null()) == 0;
    free(why);
    return is_whole;
}

static bool call_reference_broken(json_t *report, enum nd_exit *code)
{
    *code = ND_EXIT_NOT_COMPARABLE;
    return json_object_set_new(report, "verdict", json_string("reference broken")) == 0;
}

/* Two captures that are equal and cannot be right are not the same for whoever asks: both were made with the
 * same broken inputs, labels or runtime. False: out of memory. */
static bool note_broken(const struct nd_capture *capture, json_t *report, enum nd_exit *code)
{
    bool is_broken, is_whole = put_broken(*code == ND_EXIT_SAME ? capture : NULL, report, "broken", &is_broken);
    return is_whole && (!is_broken || call_reference_broken(report, code));
}

/* Of two entries each may be broken: what is equal to a broken one, or differs from it, is no measure. Where
 * they are equal one that is kept speaks for both. False: out of memory. */
static bool note_both_broken(struct nd_capture *const kept[2], json_t *report, enum nd_exit *code)
{
    bool is_same = *code == ND_EXIT_SAME, is_ref_broken, is_test_broken;
    const struct nd_capture *ref = is_same && kept[0] == NULL ? kept[1] : kept[0];
    const struct nd_capture *test = is_same && kept[1] == NULL ? kept[0] : kept[1];
    bool is_judged = is_same || *code == ND_EXIT_DIFFERS;
    if (!put_broken(is_judged ? ref : NULL, report, "broken", &is_ref_broken) ||
        !put_broken(is_judged ? test : NULL, report, "test_broken", &is_test_broken))
        return false;
    return !is_ref_broken || call_reference_broken(report, code);
}

/* The report on a capture whose nearest entry is found; NULL when memory is out. */
static json_t *tell_check(const struct nd_golden *store, const struct candidate *nearest, const json_t *record,
                          const struct nd_capture *capture, bool blame, enum nd_exit *code)
{
    if (nearest->entry == SIZE_MAX)
        return json_pack("{s:s, s:n}", "verdict", "not comparable", "entry");
    struct nd_capture *kept = open_kept(store, nearest->entry);
    json_t *report = NULL;
    if (nd_store_measure(kept, capture, nearest->comparison, NULL) == ND_OK)
        report = make_verdict(nearest->comparison, record, blame, code);
    nd_capture_close(&kept);
    if (report != NULL &&
        (!note_broken(capture, report, code) ||
         json_object_set_new(report, "entry", nd_store_describe(store, &store->entries[nearest->entry])) !=
             0)) {
        json_decref(report);
        report = NULL;
    }
    return report;
}

enum nd_status nd_golden_check(const struct nd_golden *store, const char *capture, bool blame, char **json,
                               enum nd_exit *exit_code, struct nd_error *err)
{
    struct nd_capture *opened = NULL;
    struct candidate nearest = {.entry = SIZE_MAX};
    enum nd_exit code = ND_EXIT_NOT_COMPARABLE;
    enum nd_status status = nd_capture_open(capture, &opened, err);
    if (status != ND_OK)
        return status;
    json_t *record = nd_record_of_capture(opened), *report = NULL;
    status = record != NULL ? find_nearest(store, record, &nearest, err) : nd_fail_memory(err);
    if (status == ND_OK) {
        report = tell_check(store, &nearest, record, opened, blame, &code);
        if (report == NULL || json_object_set_new(report, "capture", nd_axes_text(capture)) != 0)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK) {
        status = nd_store_report(store, report, json, err);
        report = NULL;
    }
    json_decref(report);
    json_decref(nearest.comparison);
    json_decref(record);
    nd_capture_close(&opened);
    if (status == ND_OK)
        *exit_code = code;
    return status;
}

/* ---- diff ---- */

/* A whole label, else the start of a name or of a label. */
static enum nd_status find_entry(const struct nd_golden *store, const char *wanted, size_t *out,
                                 struct nd_error *err)
{
    for (int by_prefix = 0; by_prefix < 2; by_prefix++) {
        size_t n_found = 0;
        for (size_t i = 0; i < store->n; i++) {
            const char *label = nd_record_text(store->entries[i].json, "label");
            size_t n = strlen(wanted);
            bool fits = by_prefix
                            ? strncmp(store->entries[i].id, wanted, n) == 0 || strncmp(label, wanted, n) == 0
                            : strcmp(label, wanted) == 0;
            if (fits)
                *out = i;
            n_found += fits;
        }
        if (n_found == 1)
            return ND_OK;
        if (n_found > 1)
            return nd_fail(err, ND_E_STORE_ENTRY, wanted, "'%s' fits %zu entries; expected one ('%s')", wanted,
                           n_found, "npudiff golden list");
    }
    return nd_fail(err, ND_E_STORE_ENTRY, wanted, "no name or label of an entry starts with '%s'", wanted);
}

enum nd_status nd_golden_diff(const struct nd_golden *store, const char *ref, const char *test, char **json,
                              enum nd_exit *exit_code, struct nd_error *err)
{
    size_t a = 0, b = 0;
    enum nd_exit code = ND_EXIT_TROUBLE;
    enum nd_status status = find_entry(store, ref, &a, err);
    if (status == ND_OK)
        status = find_entry(store, test, &b, err);
    if (status != ND_OK)
        return status;
    const json_t *left = store->entries[a].json, *right = store->entries[b].json;
    json_t *comparison = nd_record_compare(left, right, left);
    struct nd_capture *kept[] = {open_kept(store, a), open_kept(store, b)};
    status = comparison != NULL ? nd_store_measure(kept[1] != NULL ? kept[0] : NULL, kept[1], comparison, err)
                                : nd_fail_memory(err);
    json_t *report = status == ND_OK ? make_verdict(comparison, right, true, &code) : NULL;
    json_decref(comparison);
    bool is_whole = report == NULL || note_both_broken(kept, report, &code);
    nd_capture_close(&kept[0]);
    nd_capture_close(&kept[1]);
    if (report != NULL &&
        (!is_whole || json_object_set_new(report, "entry", nd_store_describe(store, &store->entries[a])) != 0 ||
         json_object_set_new(report, "test", nd_store_describe(store, &store->entries[b])) != 0)) {
        json_decref(report);
        report = NULL;
    }
    status = nd_store_report(store, report, json, err);
    if (status == ND_OK) /* both were accepted, failed or not */
        *exit_code = code == ND_EXIT_DEVICE_FAILED ? ND_EXIT_DIFFERS : code;
    return status;
}

/* ---- plan ---- */

static bool is_planned(const json_t *entry, const char *model_sha256, const char *runtime)
{
    return strcmp(nd_record_text(axis_of(entry, ND_AXIS_MODEL), "sha256"), model_sha256) == 0 &&
           strcmp(nd_record_text(axis_of(entry, ND_AXIS_SDK), "id"), runtime) != 0 &&
           strchr(nd_record_text(entry, "uri"), '@') != NULL;
}

static json_t *make_cell(const struct nd_golden *store, size_t i)
{
    const json_t *entry = store->entries[i].json, *options = axis_of(entry, ND_AXIS_OPTIONS);
    json_t *cell = nd_store_describe(store, &store->entries[i]);
    json_t *more = json_pack("{s:s, s:s, s:b, s:b}", "uri", nd_record_text(entry, "uri"), "record",
                             nd_record_text(options, "edges"), "prefixes",
                             strcmp(nd_record_text(options, "edges_in"), "prefixes") == 0, "fallback_allowed",
                             strcmp(nd_record_text(options, "fallback_allowed"), "1") == 0);
    if (cell == NULL || more == NULL || json_object_update(cell, more) != 0) {
        json_decref(cell);
        cell = NULL;
    }
    json_decref(more);
    return cell;
}

/* By chipset, whatever was accepted first. False: out of memory. */
static bool insert_cell(json_t *cells, json_t *cell)
{
    size_t at = 0;
    while (at < json_array_size(cells) &&
           strcmp(nd_record_text(json_array_get(cells, at), "chipset"), nd_record_text(cell, "chipset")) <= 0)
        at++;
    return json_array_insert_new(cells, at, cell) == 0;
}

enum nd_status nd_golden_plan(const struct nd_golden *store, const char *model_sha256, const char *runtime,
                              char **json, struct nd_error *err)
{
    json_t *cells = json_array();
    bool is_whole = cells != NULL;
    for (size_t i = 0; is_whole && i < store->n; i++) {
        bool is_wanted = is_planned(store->entries[i].json, model_sha256, runtime);
        for (size_t j = i + 1; is_wanted && j < store->n; j++) /* the newest of its chipset only */
            is_wanted = !is_planned(store->entries[j].json, model_sha256, runtime) ||
                        !json_equal(axis_of(store->entries[i].json, ND_AXIS_CHIPSET),
                                    axis_of(store->entries[j].json, ND_AXIS_CHIPSET));
        if (is_wanted)
            is_whole = insert_cell(cells, make_cell(store, i));
    }
    json_t *report = is_whole ? json_pack("{s:O}", "cells", cells) : NULL;
    json_decref(cells);
    return nd_store_report(store, report, json, err);
}
