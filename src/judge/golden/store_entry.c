/* Entries as they are shown, the captures that they keep, and what of them is captured again. */
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/golden/store.h"

/* ---- in a few words ---- */

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

enum nd_status nd_store_describe(const struct nd_golden *store, const struct nd_store_entry *entry,
                                 struct nd_golden_entry *out, struct nd_error *err)
{
    const json_t *json = entry->json, *options = axis_of(json, ND_AXIS_OPTIONS);
    const char *kept = kept_of(store, json);
    if (kept == NULL)
        return nd_fail_memory(err);
    *out = (struct nd_golden_entry){
        .label = nd_record_text(json, "label"),
        .date = nd_record_text(json, "date"),
        .chipset = nd_axes_chipset(json_object_get(json, "axes")),
        .sdk = nd_record_text(axis_of(json, ND_AXIS_SDK), "id"),
        .model = nd_record_text(json, "model_file"),
        .status = nd_record_text(json, "status"),
        .kept = kept,
        .accepted_by = nd_record_text(json, "accepted_by"),
        .note = nd_record_text(json, "note"),
        .n_probes = json_array_size(json_object_get(json, "probes")),
        .n_tensors = json_array_size(json_object_get(json, "edges")),
        .uri = nd_record_text(json, "uri"),
        .tensors = nd_record_text(options, "edges"),
        .has_prefixes = strcmp(nd_record_text(options, "edges_in"), "prefixes") == 0,
        .allows_fallback = strcmp(nd_record_text(options, "fallback_allowed"), "1") == 0,
        .owner = json_incref(entry->json),
    };
    memcpy(out->id, entry->id, sizeof out->id);
    return ND_OK;
}

void nd_golden_entry_deinit(struct nd_golden_entry *entry)
{
    json_decref(entry->owner);
    *entry = (struct nd_golden_entry){0};
}

enum nd_status nd_golden_entry(const struct nd_golden *store, size_t i, struct nd_golden_entry *out,
                               struct nd_error *err)
{
    return nd_store_describe(store, &store->entries[i], out, err);
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

/* ---- plan ---- */

static bool is_of_model(const json_t *entry, const char *model_sha256)
{
    return strcmp(nd_record_text(axis_of(entry, ND_AXIS_MODEL), "sha256"), model_sha256) == 0;
}

/* A URI names its runtime after '@'. In the items of an emulated device '@' stands before a channel. */
static bool takes_runtime(const json_t *entry)
{
    const char *uri = nd_record_text(entry, "uri");
    return strncmp(uri, "emu:", 4) != 0 && strchr(uri, '@') != NULL;
}

static bool is_planned(const json_t *entry, const char *model_sha256, const char *runtime)
{
    return is_of_model(entry, model_sha256) && takes_runtime(entry) &&
           strcmp(nd_record_text(axis_of(entry, ND_AXIS_SDK), "id"), runtime) != 0;
}

/* By chipset, whatever was accepted first. */
static void insert(struct nd_golden_plan *plan, const struct nd_golden_entry *entry)
{
    size_t at = plan->n++;
    for (; at > 0 && strcmp(plan->entries[at - 1].chipset, entry->chipset) > 0; at--)
        plan->entries[at] = plan->entries[at - 1];
    plan->entries[at] = *entry;
}

enum nd_status nd_golden_plan(const struct nd_golden *store, const char *model_sha256, const char *runtime,
                              struct nd_golden_plan *out, struct nd_error *err)
{
    struct nd_golden_plan plan = {.entries = nd_calloc(store->n, sizeof *plan.entries)};
    enum nd_status status = plan.entries != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < store->n; i++) {
        const json_t *json = store->entries[i].json;
        bool is_wanted = is_planned(json, model_sha256, runtime);
        plan.n_without_runtime += is_of_model(json, model_sha256) && !takes_runtime(json);
        for (size_t j = i + 1; is_wanted && j < store->n; j++) /* the newest of its chipset only */
            is_wanted =
                !is_planned(store->entries[j].json, model_sha256, runtime) ||
                !json_equal(axis_of(json, ND_AXIS_CHIPSET), axis_of(store->entries[j].json, ND_AXIS_CHIPSET));
        struct nd_golden_entry entry = {0};
        if (is_wanted && (status = nd_golden_entry(store, i, &entry, err)) == ND_OK)
            insert(&plan, &entry);
    }
    if (status == ND_OK)
        *out = plan;
    else
        nd_golden_plan_deinit(&plan);
    return status;
}

void nd_golden_plan_deinit(struct nd_golden_plan *plan)
{
    for (size_t i = 0; i < plan->n; i++)
        nd_golden_entry_deinit(&plan->entries[i]);
    free(plan->entries);
    *plan = (struct nd_golden_plan){0};
}

char *nd_store_path(const struct nd_golden *store, const char *folder, const char *name, const char *suffix)
{
    struct nd_strbuf path = {0};
    nd_strbuf_printf(&path, "%s/%s/%s%s", store->path, folder, name, suffix);
    return nd_strbuf_take(&path);
}

bool nd_store_digest_of(const char *name, const char *suffix, char hex[static ND_SHA256_HEX_BYTES])
{
    size_t n = ND_SHA256_HEX_BYTES - 1;
    if (strlen(name) != n + strlen(suffix) || strspn(name, "0123456789abcdef") < n ||
        strcmp(name + n, suffix) != 0)
        return false;
    memcpy(hex, name, n);
    hex[n] = '\0';
    return true;
}
