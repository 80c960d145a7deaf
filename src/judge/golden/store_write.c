#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "core/text/options.h"
#include "core/text/strbuf.h"
#include "core/text/utc.h"
#include "judge/golden/store.h"

/* ---- adding ---- */

/* Everything but the object. NULL: out of memory. */
static json_t *make_entry(const struct nd_capture *capture, const struct nd_golden_acceptance *how)
{
    char date[32];
    if (!nd_utc_now(ND_UTC_TIME, date, sizeof date))
        snprintf(date, sizeof date, "1900-01-00T00:00:00Z"); /* no date that a calendar has */
    json_t *entry = nd_record_of_capture(capture);
    json_t *more =
        json_pack("{s:i, s:o, s:o, s:o, s:s, s:o, s:o, s:n}", "npudiff_entry", (int)ND_STORE_VERSION, "label",
                  nd_json_string(nd_capture_string(capture, "device", "label")), "note",
                  nd_json_string(how->note), "accepted_by", nd_json_string(how->accepted_by), "date", date,
                  "uri", nd_json_string(nd_capture_string(capture, "device", "uri")), "model_file",
                  nd_json_string(nd_capture_string(capture, "model", "file")), "object");
    if (entry == NULL || more == NULL || json_object_update(entry, more) != 0) {
        json_decref(entry);
        entry = NULL;
    }
    json_decref(more);
    return entry;
}

static enum nd_status verify(const struct nd_capture *capture, struct nd_error *err)
{
    struct nd_capture_verification found;
    enum nd_status status = nd_capture_verify(capture, &found, err);
    if (status != ND_OK || (found.n_wrong == 0 && found.content_matches))
        return status;
    const char *path = nd_capture_path(capture);
    return nd_fail(err, ND_E_CAPTURE_DIGEST, path, "'%s' is damaged and is not accepted: %s", path,
                   found.n_wrong > 0 ? found.first_wrong : "its content digest does not match");
}

static enum nd_status copy_bytes(const char *from, const struct nd_new_file *to, struct nd_error *err)
{
    int in;
    enum nd_status status = nd_file_open(from, &in, NULL, err);
    if (status != ND_OK)
        return status;
    status = nd_file_copy(in, from, to->fd, to->temporary, err);
    close(in);
    return status;
}

/* The copy of a capture, under the SHA-256 of its bytes, which *hex gets. */
static enum nd_status put_object(const struct nd_golden *store, const char *capture,
                                 char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    char copied[ND_SHA256_HEX_BYTES];
    struct nd_new_file copy = nd_new_file_none();
    enum nd_status status = nd_sha256_file(capture, hex, err);
    if (status != ND_OK)
        return status;
    char *final = nd_store_path(store, "objects", hex, ".h5");
    if (final == NULL) {
        status = nd_fail_memory(err);
    } else if (!nd_path_exists(final)) {
        status = nd_new_file_create(final, true, &copy, err);
        if (status == ND_OK)
            status = copy_bytes(capture, &copy, err);
        if (status == ND_OK)
            status = nd_sha256_file(copy.temporary, copied, err);
        if (status == ND_OK && strcmp(copied, hex) != 0)
            status = nd_fail(err, ND_E_CAPTURE_CHANGED, capture, "'%s' was changed while it was being copied",
                             capture);
        if (status == ND_OK)
            status = nd_new_file_commit(&copy, err);
        nd_new_file_discard(&copy);
    }
    free(final);
    return status;
}

static enum nd_status put_entry(const struct nd_golden *store, const json_t *entry,
                                char id[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    struct nd_strbuf text = {0};
    char *compact = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS), *path = NULL;
    if (compact != NULL)
        nd_strbuf_printf(&text, "%s\n", compact);
    if (compact != NULL && !text.failed) {
        nd_sha256_bytes(text.text, text.len, id);
        path = nd_store_path(store, "entries", id, ".json");
    }
    enum nd_status status = path != NULL ? nd_file_put(path, text.text, text.len, err) : nd_fail_memory(err);
    nd_strbuf_deinit(&text);
    free(compact);
    free(path);
    return status;
}

/* The entry that says the same of a capture, with an object where one is wanted; n when there is none. */
static size_t find_equal(const struct nd_golden *store, const json_t *entry, bool wants_object, bool *is_whole)
{
    char wanted[ND_SHA256_HEX_BYTES], found[ND_SHA256_HEX_BYTES];
    *is_whole = nd_record_identity(entry, wanted);
    for (size_t i = 0; *is_whole && i < store->n; i++) {
        const json_t *other = store->entries[i].json;
        *is_whole = nd_record_identity(other, found);
        if (*is_whole && strcmp(found, wanted) == 0 &&
            (!wants_object || json_is_string(json_object_get(other, "object"))))
            return i;
    }
    return store->n;
}

/* Under the lock. Fills added->is_new and the id of the entry, new or not. */
static enum nd_status add_locked(struct nd_golden *store, const char *capture,
                                 const struct nd_golden_acceptance *how, json_t *entry,
                                 struct nd_golden_added *added, struct nd_error *err)
{
    bool is_whole = true;
    char object[ND_SHA256_HEX_BYTES];
    char *entries = nd_path_join(store->path, "entries"), *objects = nd_path_join(store->path, "objects");
    enum nd_status status =
        entries != NULL && objects != NULL ? nd_dir_make(entries, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_dir_make(objects, err);
    free(entries);
    free(objects);
    if (status == ND_OK)
        status = nd_store_load(store, err);
    if (status != ND_OK)
        return status;
    size_t equal = find_equal(store, entry, !how->digest_only, &is_whole);
    if (!is_whole)
        return nd_fail_memory(err);
    added->is_new = equal == store->n;
    if (!added->is_new) {
        memcpy(added->entry.id, store->entries[equal].id, ND_SHA256_HEX_BYTES);
        return ND_OK;
    }
    if (!how->digest_only) {
        status = put_object(store, capture, object, err);
        if (status == ND_OK && json_object_set_new(entry, "object", json_string(object)) != 0)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK)
        status = put_entry(store, entry, added->entry.id, err);
    return status == ND_OK ? nd_store_load(store, err) : status;
}

static const struct nd_store_entry *entry_by_id(const struct nd_golden *store, const char *id)
{
    for (size_t i = 0; i < store->n; i++)
        if (strcmp(store->entries[i].id, id) == 0)
            return &store->entries[i];
    return NULL;
}

enum nd_status nd_golden_add(struct nd_golden *store, const char *capture,
                             const struct nd_golden_acceptance *how, struct nd_golden_added *out,
                             struct nd_error *err)
{
    struct nd_golden_acceptance own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, how, err);
    if (status != ND_OK)
        return status;
    how = &own;
    struct nd_capture *opened = NULL;
    json_t *entry = NULL;
    int lock = -1;
    struct nd_golden_added added = {.capture = capture};
    status = nd_capture_open(capture, &opened, err);
    if (status == ND_OK)
        status = verify(opened, err);
    if (status == ND_OK && (entry = make_entry(opened, how)) == NULL)
        status = nd_fail_memory(err);
    nd_capture_close(&opened);
    if (status == ND_OK)
        status = nd_store_lock(store->path, &lock, err);
    if (status == ND_OK)
        status = add_locked(store, capture, how, entry, &added, err);
    if (status == ND_OK) {
        const struct nd_store_entry *made = entry_by_id(store, added.entry.id);
        status = made != NULL ? nd_store_describe(store, made, &added.entry, err) : nd_fail_memory(err);
    }
    nd_store_unlock(&lock);
    json_decref(entry);
    if (status == ND_OK)
        *out = added;
    return status;
}

/* ---- pruning ---- */

struct pruning {
    const struct nd_golden *store;
    struct nd_golden_pruning found;
    bool *is_kept; /* [store->n] */
    enum nd_status status;
};

void nd_golden_pruning_deinit(struct nd_golden_pruning *pruning)
{
    for (int part = 0; part < ND_GOLDEN_N_PARTS; part++) {
        for (size_t i = 0; i < pruning->removed[part].n; i++)
            free(pruning->removed[part].names[i]);
        free(pruning->removed[part].names);
    }
    *pruning = (struct nd_golden_pruning){0};
}

static bool note_removed(struct nd_golden_removed *removed, const char *name)
{
    if (!nd_grow((void **)&removed->names, &removed->capacity, removed->n + 1, sizeof *removed->names))
        return false;
    char *copy = nd_strdup(name);
    if (copy != NULL)
        removed->names[removed->n++] = copy;
    return copy != NULL;
}

static void remove_file(struct pruning *pruning, enum nd_golden_part part, const char *folder, const char *name,
                        struct nd_error *err)
{
    char *path = nd_store_path(pruning->store, folder, name, "");
    if (path == NULL || !note_removed(&pruning->found.removed[part], name))
        pruning->status = nd_fail_memory(err);
    else if (!pruning->found.dry_run && unlink(path) != 0 && errno != ENOENT)
        pruning->status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot remove '%s': %s", path, strerror(errno));
    free(path);
}

static void choose_entries(struct pruning *pruning, size_t keep)
{
    const struct nd_golden *store = pruning->store;
    for (size_t i = 0; i < store->n; i++) {
        size_t n_newer = 0;
        for (size_t j = i + 1; keep > 0 && n_newer < keep && j < store->n; j++)
            n_newer += json_equal(json_object_get(store->entries[i].json, "axes"),
                                  json_object_get(store->entries[j].json, "axes")) != 0;
        pruning->is_kept[i] = keep == 0 || n_newer < keep;
    }
}

static void remove_entries(struct pruning *pruning, struct nd_error *err)
{
    for (size_t i = 0; pruning->status == ND_OK && i < pruning->store->n; i++) {
        char name[ND_SHA256_HEX_BYTES + 8];
        if (pruning->is_kept[i])
            continue;
        snprintf(name, sizeof name, "%s.json", pruning->store->entries[i].id);
        remove_file(pruning, ND_GOLDEN_ENTRIES, "entries", name, err);
    }
}

static bool is_named(const struct pruning *pruning, const char *object)
{
    for (size_t i = 0; i < pruning->store->n; i++)
        if (pruning->is_kept[i] &&
            strcmp(nd_record_text(pruning->store->entries[i].json, "object"), object) == 0)
            return true;
    return false;
}

/* Leftovers of a folder, and of "objects" what no entry names, unless an entry that cannot be read might. */
static void remove_from(struct pruning *pruning, const char *folder, bool with_objects, struct nd_error *err)
{
    struct dirent **names = NULL;
    char *path = nd_path_join(pruning->store->path, folder);
    int n = path != NULL ? scandir(path, &names, NULL, alphasort) : -1;
    if (path == NULL)
        pruning->status = nd_fail_memory(err);
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        char hex[ND_SHA256_HEX_BYTES];
        if (pruning->status == ND_OK && nd_file_is_temporary(name))
            remove_file(pruning, ND_GOLDEN_LEFTOVERS, folder, name, err);
        else if (pruning->status == ND_OK && with_objects && nd_store_digest_of(name, ".h5", hex) &&
                 !is_named(pruning, hex))
            remove_file(pruning, ND_GOLDEN_OBJECTS, folder, name, err);
        free(names[i]);
    }
    free(names);
    free(path);
}

static enum nd_status prune_locked(struct pruning *pruning, size_t keep, struct nd_error *err)
{
    choose_entries(pruning, keep);
    remove_entries(pruning, err);
    if (pruning->status == ND_OK)
        remove_from(pruning, ".", false, err);
    if (pruning->status == ND_OK)
        remove_from(pruning, "entries", false, err);
    if (pruning->status == ND_OK)
        remove_from(pruning, "objects", pruning->store->n_problems == 0, err);
    for (size_t i = 0; i < pruning->store->n; i++)
        pruning->found.n_kept += pruning->is_kept[i];
    return pruning->status;
}

enum nd_status nd_golden_prune(struct nd_golden *store, size_t keep, bool dry_run,
                               struct nd_golden_pruning *out, struct nd_error *err)
{
    struct pruning pruning = {.store = store, .found.dry_run = dry_run};
    int lock = -1;
    enum nd_status status = nd_store_lock(store->path, &lock, err);
    if (status == ND_OK)
        status = nd_store_load(store, err);
    if (status == ND_OK) {
        pruning.is_kept = nd_calloc(store->n, sizeof *pruning.is_kept);
        status = pruning.is_kept != NULL ? prune_locked(&pruning, keep, err) : nd_fail_memory(err);
    }
    if (status == ND_OK && !dry_run)
        status = nd_store_load(store, err);
    nd_store_unlock(&lock);
    free(pruning.is_kept);
    if (status == ND_OK)
        *out = pruning.found;
    else
        nd_golden_pruning_deinit(&pruning.found);
    return status;
}
