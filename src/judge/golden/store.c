#include "judge/golden/store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "core/text/strbuf.h"

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

/* ---- the lock ---- */

/* What is written and removed lies in the store, whoever made it. */
static enum nd_status check_folders(const char *path, struct nd_error *err)
{
    static const char *const folders[] = {"entries", "objects"};
    enum nd_status status = ND_OK;
    for (size_t i = 0; i < sizeof folders / sizeof *folders && status == ND_OK; i++) {
        struct stat info;
        char *folder = nd_path_join(path, folders[i]);
        if (folder == NULL)
            status = nd_fail_memory(err);
        else if (lstat(folder, &info) == 0 && S_ISLNK(info.st_mode))
            status =
                nd_fail(err, ND_E_FILE_WRITE, folder,
                        "'%s' is a symbolic link: a golden store is only changed where its folders are its own",
                        folder);
        free(folder);
    }
    return status;
}

enum nd_status nd_store_lock(const char *path, int *fd, struct nd_error *err)
{
    char *name = nd_path_join(path, "lock");
    if (name == NULL)
        return nd_fail_memory(err);
    enum nd_status status = check_folders(path, err);
    int lock = status != ND_OK ? -1 : open(name, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    int rc = status == ND_OK && lock < 0 ? -1 : 0;
    while (status == ND_OK && rc == 0 && (rc = flock(lock, LOCK_EX)) != 0 && errno == EINTR)
        rc = 0;
    if (rc != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, name, "cannot lock '%s': %s", name, strerror(errno));
    if (status != ND_OK && lock >= 0)
        close(lock);
    if (status == ND_OK)
        *fd = lock;
    free(name);
    return status;
}

void nd_store_unlock(int *fd)
{
    if (*fd >= 0)
        close(*fd); /* which releases it */
    *fd = -1;
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
        free(made.object);
        free(made.problem);
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
    char *path = nd_store_path(store, "entries", name, "");
    if (path == NULL)
        return nd_fail_memory(err);
    void *data = NULL;
    size_t n_bytes = 0;
    json_t *entry = NULL;
    struct nd_error reading = {0};
    enum nd_status status = ND_OK;
    const char *problem = NULL;
    if (nd_file_read(path, ND_STORE_MAX_ENTRY_BYTES, &data, &n_bytes, &reading) == ND_OK)
        problem = parse_entry(id, data, n_bytes, &entry, buf);
    else if (nd_path_exists(path)) /* else somebody pruned it just now */
        problem = reading.message;
    if (problem != NULL) {
        status = add_problem(store, name, problem, err);
    } else if (entry != NULL) {
        struct nd_store_entry *added = &store->entries[store->n++];
        memcpy(added->id, id, sizeof id);
        added->json = entry;
    }
    free(data);
    free(path);
    return status;
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
    for (size_t i = 0; i < store->n_problems; i++) {
        free(store->problems[i].object);
        free(store->problems[i].problem);
    }
    store->n_problems = 0;
}

static void free_entries(struct nd_store_entry *entries, size_t n)
{
    for (size_t i = 0; i < n; i++)
        json_decref(entries[i].json);
    free(entries);
}

enum nd_status nd_store_load(struct nd_golden *store, struct nd_error *err)
{
    char *path = nd_path_join(store->path, "entries");
    if (path == NULL)
        return nd_fail_memory(err);
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
    free(names);
    free(path);
    free_entries(known.entries, known.n); /* those that are gone */
    if (store->n > 0)
        qsort(store->entries, store->n, sizeof *store->entries, compare_entries);
    return status;
}

/* ---- opening ---- */

/* ND_ERR_NOT_FOUND without a message: there is no store.json. */
static enum nd_status check_version(const char *path, struct nd_error *err)
{
    char *name = nd_path_join(path, "store.json");
    if (name == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_ERR_NOT_FOUND;
    void *data = NULL;
    size_t n = 0;
    if (nd_path_exists(name))
        status = nd_file_read(name, 1 << 20, &data, &n, err);
    if (status == ND_OK) {
        json_t *root = json_loadb(data, n, 0, NULL);
        const json_t *version = json_object_get(root, "npudiff_store");
        if (!json_is_integer(version))
            status = nd_fail(err, ND_E_STORE_FORMAT, name,
                             "'%s' is damaged: expected a JSON object with the number 'npudiff_store'", name);
        else if (json_integer_value(version) != ND_STORE_VERSION)
            status = nd_fail(err, ND_E_STORE_VERSION, name,
                             "'%s' is of store format %" JSON_INTEGER_FORMAT ", expected format %d", name,
                             json_integer_value(version), (int)ND_STORE_VERSION);
        json_decref(root);
    }
    free(data);
    free(name);
    return status;
}

/* Whether a folder holds nothing but what making a store leaves: nobody's folder becomes a store by mistake. */
static bool is_unused(const char *path)
{
    struct dirent **names = NULL;
    int n = scandir(path, &names, NULL, NULL);
    bool is_free = n >= 0;
    for (int i = 0; i < n; i++) {
        const char *name = names[i]->d_name;
        is_free = is_free && (strcmp(name, ".") == 0 || strcmp(name, "..") == 0 || strcmp(name, "lock") == 0 ||
                              strncmp(name, "store.json", 10) == 0);
        free(names[i]);
    }
    free(names);
    return is_free;
}

static enum nd_status make_store(const char *path, struct nd_error *err)
{
    static const char text[] = "{\"npudiff_store\": 1}\n";
    enum nd_status status = nd_dir_make(path, err);
    if (status != ND_OK)
        return status;
    if (!is_unused(path))
        return nd_fail(err, ND_E_STORE_FORMAT, path,
                       "'%s' is no golden store: it holds other files, but no store.json", path);
    int lock = -1;
    char *name = nd_path_join(path, "store.json");
    if (name == NULL)
        return nd_fail_memory(err);
    status = nd_store_lock(path, &lock, err);
    if (status == ND_OK && !nd_path_exists(name)) /* else another writer was faster */
        status = nd_file_put(name, text, sizeof text - 1, err);
    nd_store_unlock(&lock);
    free(name);
    return status;
}

enum nd_status nd_golden_open(const char *path, bool create, struct nd_golden **out, struct nd_error *err)
{
    struct nd_golden *store = NULL;
    enum nd_status status = check_version(path, err);
    if (status == ND_ERR_NOT_FOUND && create) {
        status = make_store(path, err);
        if (status == ND_OK)
            status = check_version(path, err);
    } else if (status == ND_ERR_NOT_FOUND) {
        status = nd_fail(err, nd_path_exists(path) ? ND_E_STORE_FORMAT : ND_E_FILE_OPEN, path,
                         nd_path_exists(path) ? "'%s' is no golden store: it has no store.json"
                                              : "cannot open golden store '%s': it does not exist",
                         path);
    }
    if (status != ND_OK)
        return status;
    store = nd_calloc(1, sizeof *store);
    if (store != NULL)
        store->path = nd_strdup(path);
    status = store == NULL || store->path == NULL ? nd_fail_memory(err) : nd_store_load(store, err);
    if (status == ND_OK)
        *out = store;
    else
        nd_golden_close(&store);
    return status;
}

void nd_golden_close(struct nd_golden **store)
{
    if (*store == NULL)
        return;
    clear_problems(*store);
    free((*store)->problems);
    free_entries((*store)->entries, (*store)->n);
    free((*store)->path);
    free(*store);
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
