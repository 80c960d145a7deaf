/* The golden store: its entries are read, shown, added and pruned, under a lock. docs/reference/store.md. */
#include "judge/golden/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"

/* ---- in a few words ---- */

static const json_t *axis_of(const json_t *record, enum nd_axis axis)
{
    return json_object_get(json_object_get(record, "axes"), nd_axis_name(axis));
}

/* The digest that `name` starts with when it is "<64 digits><suffix>", else false. */
static bool nd_store_digest_of(const char *name, const char *suffix, char hex[static ND_SHA256_HEX_BYTES])
{
    size_t n = ND_SHA256_HEX_BYTES - 1;
    if (strlen(name) != n + strlen(suffix) || strspn(name, "0123456789abcdef") < n ||
        strcmp(name + n, suffix) != 0)
        return false;
    memcpy(hex, name, n);
    hex[n] = '\0';
    return true;
}

/* "full", "digest", or "missing" when the object of a full entry is gone; NULL when memory is out. */
static const char *kept_of(const struct nd_golden *store, const json_t *entry)
{
    char hex[ND_SHA256_HEX_BYTES];
    if (!json_is_string(json_object_get(entry, "object")))
        return "digest";
    if (!nd_store_digest_of(nd_record_text(entry, "object"), "", hex))
        return "missing";
    ND_FREED char *path = nd_store_path(store, "objects", hex, ".h5");
    if (path == NULL)
        return NULL;
    bool exists = nd_path_exists(path);
    return exists ? "full" : "missing";
}

/* The entry in a few words. ND_ERR_MEMORY. */
static enum nd_status nd_store_describe(const struct nd_golden *store, const struct nd_store_entry *entry,
                                        struct nd_golden_entry *out, struct nd_error *err)
{
    const json_t *json = entry->json, *options = axis_of(json, ND_AXIS_OPTIONS);
    const char *kept = kept_of(store, json);
    ND_TRY_MEMORY(kept != NULL, err);
    *out = (struct nd_golden_entry){
        .label = nd_record_text(json, "label"),
        .date = nd_record_text(json, "date"),
        .chipset = nd_axes_chipset(json_object_get(json, "axes")),
        .sdk = nd_axes_sdk(json_object_get(json, "axes")),
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
    ND_FREED char *path = nd_store_path(store, "objects", hex, ".h5");
    ND_TRY_MEMORY(path != NULL, err);
    if (!nd_path_exists(path))
        return nd_fail(err, ND_E_STORE_ENTRY, path, "'%s' is missing, the capture of entry %.12s", path,
                       entry->id);
    else
        ND_TRY(nd_sha256_file(path, found, err));
    if (strcmp(found, hex) != 0)
        return nd_fail(err, ND_E_STORE_FORMAT, path,
                       "'%s' is damaged: the SHA-256 of its content is %.16s..., expected its name", path,
                       found);
    return nd_capture_open(path, out, err);
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
    ND_CLEANUP(nd_golden_plan_deinit)
    struct nd_golden_plan plan = {.entries = nd_calloc(store->n, sizeof *plan.entries)};
    ND_TRY_MEMORY(plan.entries != NULL, err);
    for (size_t i = 0; i < store->n; i++) {
        const json_t *json = store->entries[i].json;
        bool is_wanted = is_planned(json, model_sha256, runtime);
        plan.n_without_runtime += is_of_model(json, model_sha256) && !takes_runtime(json);
        for (size_t j = i + 1; is_wanted && j < store->n; j++) /* the newest of its chipset only */
            is_wanted =
                !is_planned(store->entries[j].json, model_sha256, runtime) ||
                !json_equal(axis_of(json, ND_AXIS_CHIPSET), axis_of(store->entries[j].json, ND_AXIS_CHIPSET));
        struct nd_golden_entry entry = {0};
        if (!is_wanted)
            continue;
        ND_TRY(nd_golden_entry(store, i, &entry, err));
        insert(&plan, &entry);
    }
    return ND_GIVE(out, plan);
}

void nd_golden_plan_deinit(struct nd_golden_plan *plan)
{
    ND_DEINIT_EACH(nd_golden_entry_deinit, plan->entries, plan->n);
    *plan = (struct nd_golden_plan){0};
}

/* ---- the store ---- */

char *nd_store_path(const struct nd_golden *store, const char *folder, const char *name, const char *suffix)
{
    struct nd_strbuf path = {0};
    nd_strbuf_printf(&path, "%s/%s/%s%s", store->path, folder, name, suffix);
    return nd_strbuf_take(&path);
}

/* ---- the lock ---- */

/* What is written and removed lies in the store, whoever made it. */
static enum nd_status check_folders(const char *path, struct nd_error *err)
{
    static const char *const folders[] = {"entries", "objects"};
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        struct stat info;
        ND_FREED char *folder = nd_path_join(path, folders[i]);
        ND_TRY_MEMORY(folder != NULL, err);
        if (lstat(folder, &info) == 0 && S_ISLNK(info.st_mode))
            return nd_fail(
                err, ND_E_FILE_WRITE, folder,
                "'%s' is a symbolic link: a golden store is only changed where its folders are its own",
                folder);
    }
    return ND_OK;
}

static void nd_store_unlock(int *fd)
{
    if (*fd >= 0)
        close(*fd); /* which releases it */
    *fd = -1;
}

/* Waits until no other writer is at work; *fd is to be given to nd_store_unlock. */
static enum nd_status nd_store_lock(const char *path, int *fd, struct nd_error *err)
{
    ND_FREED char *name = nd_path_join(path, "lock");
    ND_TRY_MEMORY(name != NULL, err);
    ND_TRY(check_folders(path, err));
    ND_CLEANUP(nd_store_unlock) int lock = open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int rc = lock < 0 ? -1 : 0;
    while (rc == 0 && (rc = flock(lock, LOCK_EX)) != 0 && errno == EINTR)
        rc = 0;
    if (rc != 0)
        return nd_fail(err, ND_E_FILE_WRITE, name, "cannot lock '%s': %s", name, strerror(errno));
    *fd = lock;
    lock = -1;
    return ND_OK;
}

/* ---- entries ---- */

static enum nd_status add_problem(struct nd_golden *store, const char *name, const char *problem,
                                  struct nd_error *err)
{
    struct nd_strbuf object = {0};
    nd_strbuf_printf(&object, "entries/%s", name);
    struct nd_store_problem made = {.object = nd_strbuf_take(&object), .problem = nd_strdup(problem)};
    if (made.object == NULL || made.problem == NULL ||
        !nd_grow((void **)&store->problems, &store->problem_capacity, store->n_problems + 1,
                 sizeof *store->problems)) {
        ND_FREE_ALL(made.object, made.problem);
        return nd_fail_memory(err);
    }
    store->problems[store->n_problems++] = made;
    return ND_OK;
}

/* What is wrong with the bytes of an entry, or NULL and the entry itself. buf has room for a message. */
static const char *parse_entry(const char *id, const void *data, size_t n_bytes, json_t **out,
                               char buf[static 128])
{
    char hex[ND_SHA256_HEX_BYTES];
    nd_sha256_bytes(data, n_bytes, hex);
    if (strcmp(hex, id) != 0) {
        snprintf(buf, 128, "damaged: the SHA-256 of its content is %.16s..., expected its name", hex);
        return buf;
    }
    json_t *entry = json_loadb(data, n_bytes, JSON_REJECT_DUPLICATES, NULL);
    const json_t *version = json_object_get(entry, "npudiff_entry");
    const char *problem = NULL;
    if (!json_is_integer(version)) {
        problem = "no JSON object with the number 'npudiff_entry'";
    } else if (json_integer_value(version) != ND_STORE_VERSION) {
        snprintf(buf, 128, "of format %" JSON_INTEGER_FORMAT ", expected format %d",
                 json_integer_value(version), (int)ND_STORE_VERSION);
        problem = buf;
    } else {
        problem = nd_record_problem(entry);
    }
    if (problem == NULL)
        *out = entry;
    else
        json_decref(entry);
    return problem;
}

/* The entries of an earlier reading, by id. An entry never changes, because its name is the digest of its
 * content. */
struct known {
    struct nd_store_entry *entries;
    size_t n;
};

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct nd_store_entry *)a)->id, ((const struct nd_store_entry *)b)->id);
}

/* Moves the entry of this id from the known ones into the store. */
static bool keep_known(struct nd_golden *store, const struct known *known, const char *id)
{
    struct nd_store_entry wanted;
    memcpy(wanted.id, id, sizeof wanted.id);
    struct nd_store_entry *found =
        known->n > 0 ? bsearch(&wanted, known->entries, known->n, sizeof wanted, compare_ids) : NULL;
    if (found == NULL)
        return false;
    store->entries[store->n++] = *found;
    found->json = NULL;
    return true;
}

/* The store has room for one more. */
static enum nd_status load_entry(struct nd_golden *store, const struct known *known, const char *name,
                                 struct nd_error *err)
{
    char id[ND_SHA256_HEX_BYTES], buf[128];
    if (strstr(name, ".tmp-") != NULL)
        return ND_OK; /* a writer is at work, or was killed: prune removes it */
    if (!nd_store_digest_of(name, ".json", id))
        return add_problem(store, name, "no name of an entry, expected <SHA-256>.json", err);
    if (keep_known(store, known, id))
        return ND_OK;
    store->n_read++;
    ND_FREED char *path = nd_store_path(store, "entries", name, "");
    ND_TRY_MEMORY(path != NULL, err);
    ND_FREED void *data = NULL;
    size_t n_bytes = 0;
    json_t *entry = NULL;
    struct nd_error reading = {0};
    const char *problem = NULL;
    if (nd_file_read(path, ND_STORE_MAX_ENTRY_BYTES, &data, &n_bytes, &reading) == ND_OK)
        problem = parse_entry(id, data, n_bytes, &entry, buf);
    else if (nd_path_exists(path)) /* else somebody pruned it just now */
        problem = reading.message;
    if (problem != NULL) {
        ND_TRY(add_problem(store, name, problem, err));
    } else if (entry != NULL) {
        struct nd_store_entry *added = &store->entries[store->n++];
        memcpy(added->id, id, sizeof id);
        added->json = entry;
    }
    return ND_OK;
}

static int compare_entries(const void *a, const void *b)
{
    const struct nd_store_entry *x = a, *y = b;
    int order = strcmp(nd_record_text(x->json, "date"), nd_record_text(y->json, "date"));
    if (order == 0)
        order = strcmp(nd_record_text(x->json, "label"), nd_record_text(y->json, "label"));
    return order != 0 ? order : strcmp(x->id, y->id);
}

static void clear_problems(struct nd_golden *store)
{
    for (size_t i = 0; i < store->n_problems; i++)
        ND_FREE_ALL(store->problems[i].object, store->problems[i].problem);
    store->n_problems = 0;
}

static void free_entries(struct nd_store_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_decref(entries[i].json);
    free(entries);
}

/* Looks what entries there are now, and reads those that are new: the name of an entry is the digest of its
 * content, so that one which was read before is the same. Damage is a problem of the store, not an error. */
static enum nd_status nd_store_load(struct nd_golden *store, struct nd_error *err)
{
    char *path = nd_path_join(store->path, "entries");
    ND_TRY_MEMORY(path != NULL, err);
    enum nd_status status = ND_OK;
    struct known known = {store->entries, store->n};
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, alphasort);
    if (n < 0 && errno != ENOENT) /* a store to which nothing was added yet */
        status = nd_fail(err, ND_E_FILE_READ, path, "cannot read folder '%s': %s", path, strerror(errno));
    if (known.n > 0)
        qsort(known.entries, known.n, sizeof *known.entries, compare_ids);
    clear_problems(store);
    store->n = 0;
    store->entries = nd_calloc(n > 0 ? (size_t)n : 0, sizeof *store->entries);
    if (status == ND_OK && store->entries == NULL)
        status = nd_fail_memory(err);
    for (int i = 0; i < n; i++) {
        bool is_dot = strcmp(names[i]->d_name, ".") == 0 || strcmp(names[i]->d_name, "..") == 0;
        if (status == ND_OK && !is_dot)
            status = load_entry(store, &known, names[i]->d_name, err);
        free(names[i]);
    }
    ND_FREE_ALL(names, path);
    free_entries(known.entries, known.n); /* those that are gone */
    if (store->n > 0)
        qsort(store->entries, store->n, sizeof *store->entries, compare_entries);
    return status;
}

/* ---- opening ---- */

/* ND_ERR_NOT_FOUND without a message: there is no store.json. */
static enum nd_status check_version(const char *path, struct nd_error *err)
{
    ND_FREED char *name = nd_path_join(path, "store.json");
    ND_TRY_MEMORY(name != NULL, err);
    ND_FREED void *data = NULL;
    size_t n = 0;
    if (!nd_path_exists(name))
        return ND_ERR_NOT_FOUND;
    ND_TRY(nd_file_read(name, 1 << 20, &data, &n, err));
    json_auto_t *root = json_loadb(data, n, 0, NULL);
    const json_t *version = json_object_get(root, "npudiff_store");
    if (!json_is_integer(version))
        return nd_fail(err, ND_E_STORE_FORMAT, name,
                       "'%s' is damaged: expected a JSON object with the number 'npudiff_store'", name);
    if (json_integer_value(version) != ND_STORE_VERSION)
        return nd_fail(err, ND_E_STORE_VERSION, name,
                       "'%s' is of store format %" JSON_INTEGER_FORMAT ", expected format %d", name,
                       json_integer_value(version), (int)ND_STORE_VERSION);
    return ND_OK;
}

/* Whether a folder holds nothing but what making a store leaves: nobody's folder becomes a store by mistake. */
static bool is_unused(const char *path)
{
    ND_FREED struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, NULL);
    bool is_free = n >= 0;
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        is_free = is_free && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock") == 0 ||
                              strncmp(name, "store.json", 10) == 0);
        free(names[i]);
    }
    return is_free;
}

static enum nd_status make_store(const char *path, struct nd_error *err)
{
    static const char text[] = "{\"npudiff_store\": 1}\n";
    ND_TRY(nd_dir_make(path, err));
    if (!is_unused(path))
        return nd_fail(err, ND_E_STORE_FORMAT, path,
                       "'%s' is no golden store: it holds other files, but no store.json", path);
    ND_CLEANUP(nd_store_unlock) int lock = -1;
    ND_FREED char *name = nd_path_join(path, "store.json");
    ND_TRY_MEMORY(name != NULL, err);
    enum nd_status status = nd_store_lock(path, &lock, err);
    if (status == ND_OK && !nd_path_exists(name)) /* else another writer was faster */
        status = nd_file_put(name, text, sizeof text - 1, err);
    return status;
}

enum nd_status nd_golden_open(const char *path, bool create, struct nd_golden **out, struct nd_error *err)
{
    ND_CLEANUP(nd_golden_close) struct nd_golden *store = NULL;
    enum nd_status status = check_version(path, err);
    if (status == ND_ERR_NOT_FOUND && create) {
        ND_TRY(make_store(path, err));
        status = check_version(path, err);
    } else if (status == ND_ERR_NOT_FOUND) {
        status = nd_fail(err, nd_path_exists(path) ? ND_E_STORE_FORMAT : ND_E_FILE_OPEN, path,
                         nd_path_exists(path) ? "'%s' is no golden store: it has no store.json"
                                              : "cannot open golden store '%s': it does not exist",
                         path);
    }
    ND_TRY(status);
    store = nd_calloc(1, sizeof *store);
    ND_TRY_MEMORY(store != NULL && (store->path = nd_strdup(path)) != NULL, err);
    ND_TRY(nd_store_load(store, err));
    return ND_GIVE(out, store);
}

void nd_golden_close(struct nd_golden **store)
{
    if (*store == NULL)
        return;
    clear_problems(*store);
    free((*store)->problems);
    free_entries((*store)->entries, (*store)->n);
    ND_FREE_ALL((*store)->path, *store);
    *store = NULL;
}

size_t nd_golden_n_entries(const struct nd_golden *store)
{
    return store->n;
}

size_t nd_golden_n_problems(const struct nd_golden *store)
{
    return store->n_problems;
}

struct nd_golden_problem nd_golden_problem(const struct nd_golden *store, size_t i)
{
    return (struct nd_golden_problem){.object = store->problems[i].object,
                                      .problem = store->problems[i].problem};
}

/* ---- adding ---- */

/* Everything but the object. NULL: out of memory. */
static json_t *make_entry(const struct nd_capture *capture, const struct nd_golden_acceptance *how)
{
    char date[32];
    if (!nd_utc_now(ND_UTC_TIME, date, sizeof date))
        snprintf(date, sizeof date, "1900-01-00T00:00:00Z"); /* no date that a calendar has */
    json_t *entry = nd_record_of_capture(capture);
    json_auto_t *more =
        json_pack("{s:i, s:o, s:o, s:o, s:s, s:o, s:o, s:n}", "npudiff_entry", (int)ND_STORE_VERSION, "label",
                  nd_json_string(nd_capture_string(capture, "device", "label")), "note",
                  nd_json_string(how->note), "accepted_by", nd_json_string(how->accepted_by), "date", date,
                  "uri", nd_json_string(nd_capture_string(capture, "device", "uri")), "model_file",
                  nd_json_string(nd_capture_string(capture, "model", "file")), "object");
    if (entry == NULL || more == NULL || json_object_update(entry, more) != 0) {
        json_decref(entry);
        entry = NULL;
    }
    return entry;
}

static enum nd_status verify(const struct nd_capture *capture, struct nd_error *err)
{
    struct nd_capture_verification found = {.struct_size = sizeof found};
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
    ND_TRY(nd_file_open(from, &in, NULL, err));
    enum nd_status status = nd_file_copy(in, from, to->fd, to->temporary, err);
    close(in);
    return status;
}

/* The copy of a capture, under the SHA-256 of its bytes, which *hex gets. */
static enum nd_status put_object(const struct nd_golden *store, const char *capture,
                                 char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    char copied[ND_SHA256_HEX_BYTES];
    ND_CLEANUP(nd_new_file_discard) struct nd_new_file copy = nd_new_file_none();
    ND_TRY(nd_sha256_file(capture, hex, err));
    ND_FREED char *final = nd_store_path(store, "objects", hex, ".h5");
    ND_TRY_MEMORY(final != NULL, err);
    if (nd_path_exists(final))
        return ND_OK;
    ND_TRY(nd_new_file_create(final, true, &copy, err));
    ND_TRY(copy_bytes(capture, &copy, err));
    ND_TRY(nd_sha256_file(copy.temporary, copied, err));
    if (strcmp(copied, hex) != 0)
        return nd_fail(err, ND_E_CAPTURE_CHANGED, capture, "'%s' was changed while it was being copied",
                       capture);
    return nd_new_file_commit(&copy, err);
}

static enum nd_status put_entry(const struct nd_golden *store, const json_t *entry,
                                char id[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    ND_FREED char *compact = json_dumps(entry, JSON_COMPACT | JSON_SORT_KEYS), *path = NULL;
    if (compact != NULL)
        nd_strbuf_printf(&text, "%s\n", compact);
    if (compact != NULL && !text.failed) {
        nd_sha256_bytes(text.text, text.len, id);
        path = nd_store_path(store, "entries", id, ".json");
    }
    return path != NULL ? nd_file_put(path, text.text, text.len, err) : nd_fail_memory(err);
}

/* SHA-256 of the record's canonical text: the same for two captures that are equal in all that matters. False:
 * out of memory. */
static bool nd_record_device_facts(const json_t *record, char hex[static ND_SHA256_HEX_BYTES])
{
    static const char *const parts[] = {"axes", "status", "failure", "probes", "edges"};
    json_t *plain = json_object();
    bool is_whole = plain != NULL;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        is_whole = is_whole && json_object_set(plain, parts[i], json_object_get(record, parts[i])) == 0;
    ND_FREED char *text = is_whole ? json_dumps(plain, JSON_COMPACT | JSON_SORT_KEYS) : NULL;
    json_decref(plain);
    if (text == NULL)
        return false;
    nd_sha256_bytes(text, strlen(text), hex);
    return true;
}

/* The entry that says the same of a capture, with an object where one is wanted; n when there is none. */
static size_t find_equal(const struct nd_golden *store, const json_t *entry, bool wants_object, bool *is_whole)
{
    char wanted[ND_SHA256_HEX_BYTES], found[ND_SHA256_HEX_BYTES];
    *is_whole = nd_record_device_facts(entry, wanted);
    for (size_t i = 0; *is_whole && i < store->n; i++) {
        const json_t *other = store->entries[i].json;
        *is_whole = nd_record_device_facts(other, found);
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
    ND_FREED char *entries = nd_path_join(store->path, "entries"),
                  *objects = nd_path_join(store->path, "objects");
    ND_TRY_MEMORY(entries != NULL && objects != NULL, err);
    ND_TRY(nd_dir_make(entries, err));
    ND_TRY(nd_dir_make(objects, err));
    ND_TRY(nd_store_load(store, err));
    size_t equal = find_equal(store, entry, !how->digest_only, &is_whole);
    ND_TRY_MEMORY(is_whole, err);
    added->is_new = equal == store->n;
    if (!added->is_new) {
        memcpy(added->entry.id, store->entries[equal].id, ND_SHA256_HEX_BYTES);
        return ND_OK;
    }
    if (!how->digest_only) {
        ND_TRY(put_object(store, capture, object, err));
        ND_TRY_MEMORY(json_object_set_new(entry, "object", json_string(object)) == 0, err);
    }
    ND_TRY(put_entry(store, entry, added->entry.id, err));
    return nd_store_load(store, err);
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
    ND_TRY(nd_options_read(&own, sizeof own, how, err));
    how = &own;
    ND_CLEANUP(nd_capture_close) struct nd_capture *opened = NULL;
    ND_CLEANUP(nd_store_unlock) int lock = -1;
    struct nd_golden_added added = {.capture = capture};
    ND_TRY(nd_capture_open(capture, &opened, err));
    ND_TRY(verify(opened, err));
    json_auto_t *entry = make_entry(opened, how);
    ND_TRY_MEMORY(entry != NULL, err);
    nd_capture_close(&opened);
    ND_TRY(nd_store_lock(store->path, &lock, err));
    ND_TRY(add_locked(store, capture, how, entry, &added, err));
    const struct nd_store_entry *made = entry_by_id(store, added.entry.id);
    ND_TRY_MEMORY(made != NULL, err);
    ND_TRY(nd_store_describe(store, made, &added.entry, err));
    *out = added;
    return ND_OK;
}

/* ---- pruning ---- */

struct pruning {
    const struct nd_golden *store;
    struct nd_golden_pruning found;
    bool *is_kept; /* [store->n] */
};

static void deinit_pruning(struct pruning *pruning)
{
    nd_golden_pruning_deinit(&pruning->found);
    free(pruning->is_kept);
}

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

static enum nd_status remove_file(struct pruning *pruning, enum nd_golden_part part, const char *folder,
                                  const char *name, struct nd_error *err)
{
    ND_FREED char *path = nd_store_path(pruning->store, folder, name, "");
    ND_TRY_MEMORY(path != NULL && note_removed(&pruning->found.removed[part], name), err);
    if (!pruning->found.dry_run && unlink(path) != 0 && errno != ENOENT)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot remove '%s': %s", path, strerror(errno));
    return ND_OK;
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
static enum nd_status remove_from(struct pruning *pruning, const char *folder, bool with_objects,
                                  struct nd_error *err)
{
    ND_FREED struct dirent **names = NULL;
    ND_FREED char *path = nd_path_join(pruning->store->path, folder);
    ND_TRY_MEMORY(path != NULL, err);
    int n = scandir(path, &names, NULL, alphasort);
    enum nd_status status = ND_OK;
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        char hex[ND_SHA256_HEX_BYTES];
        if (status == ND_OK && nd_file_is_temporary(name))
            status = remove_file(pruning, ND_GOLDEN_LEFTOVERS, folder, name, err);
        else if (status == ND_OK && with_objects && nd_store_digest_of(name, ".h5", hex) &&
                 !is_named(pruning, hex))
            status = remove_file(pruning, ND_GOLDEN_OBJECTS, folder, name, err);
        free(names[i]);
    }
    return status;
}

static enum nd_status prune_locked(struct pruning *pruning, size_t keep, struct nd_error *err)
{
    const struct nd_golden *store = pruning->store;
    for (size_t i = 0; i < store->n; i++) {
        size_t n_newer = 0;
        for (size_t j = i + 1; keep > 0 && n_newer < keep && j < store->n; j++)
            n_newer += json_equal(json_object_get(store->entries[i].json, "axes"),
                                  json_object_get(store->entries[j].json, "axes")) != 0;
        pruning->is_kept[i] = keep == 0 || n_newer < keep;
    }
    for (size_t i = 0; i < store->n; i++) {
        char name[ND_SHA256_HEX_BYTES + 8];
        pruning->found.n_kept += pruning->is_kept[i];
        if (pruning->is_kept[i])
            continue;
        snprintf(name, sizeof name, "%s.json", store->entries[i].id);
        ND_TRY(remove_file(pruning, ND_GOLDEN_ENTRIES, "entries", name, err));
    }
    ND_TRY(remove_from(pruning, ".", false, err));
    ND_TRY(remove_from(pruning, "entries", false, err));
    return remove_from(pruning, "objects", store->n_problems == 0, err);
}

enum nd_status nd_golden_prune(struct nd_golden *store, size_t keep, bool dry_run,
                               struct nd_golden_pruning *out, struct nd_error *err)
{
    ND_CLEANUP(deinit_pruning) struct pruning pruning = {.store = store, .found.dry_run = dry_run};
    ND_CLEANUP(nd_store_unlock) int lock = -1;
    ND_TRY(nd_store_lock(store->path, &lock, err));
    ND_TRY(nd_store_load(store, err));
    pruning.is_kept = nd_calloc(store->n, sizeof *pruning.is_kept);
    ND_TRY_MEMORY(pruning.is_kept != NULL, err);
    ND_TRY(prune_locked(&pruning, keep, err));
    if (!dry_run)
        ND_TRY(nd_store_load(store, err));
    return ND_GIVE(out, pruning.found);
}
