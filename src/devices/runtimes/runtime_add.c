/* Adds and removes runtimes in their folder: one process at a time, and what comes in is whole. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "devices/runtimes/runtimes.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/devices/device.h"

enum { ND_N_ABIS = 3 };

/* Everything about one call. */
struct nd_adding {
    const struct nd_runtime_adding *how;
    struct nd_runtime_store store;
    struct nd_runtime_source *sources;
    size_t n_sources;
    struct nd_runtime_parts parts;
    struct nd_pick picks[ND_N_ABIS];
    struct nd_runtime_info with[ND_N_ABIS]; /* what --with gives an ABI; empty for none */
    char *provider_version;                 /* NULL: not known */
    char *build_id;
    char *id;
    json_t *origin, *notes, *added;
};

/* The texts of a list that spaces part ("v73 v75"), as a JSON array; empty for NULL. */
static json_t *nd_runtime_words(const char *text)
{
    json_t *words = json_array();
    while (text != NULL && *text != '\0') {
        size_t n = strcspn(text, " ");
        nd_tree_append(words, json_stringn(text, n));
        text += n + (text[n] == ' ');
    }
    return words;
}

/* ND_E_CANCELLED once the caller wants to stop. */
static enum nd_status nd_adding_check(const struct nd_adding *adding, struct nd_error *err)
{
    if (adding->how->is_cancelled != NULL && adding->how->is_cancelled(adding->how->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request");
    return ND_OK;
}

/* The place of a part in the runtime's folder: as in its source, so that what libraries find beside them stays
 * there. New memory. */
static char *place_of(const struct nd_part *part)
{
    json_auto_t *is_text = json_string(part->name);
    const char *name = is_text != NULL ? part->name : part->base;
    return nd_strdup(name);
}

/* Makes the folders that lead to the file. */
static enum nd_status make_parents(const char *path, struct nd_error *err)
{
    ND_FREED char *folder = nd_path_dir(path);
    return folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
}

/* Records a file that lies in the folder: in the manifest's lists. */
static enum nd_status record(json_t *manifest, const char *folder, const char *place, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    ND_FREED char *path = nd_path_join(folder, place);
    ND_TRY(path != NULL ? nd_sha256_file(path, hex, err) : nd_fail_memory(err));
    nd_tree_append(json_object_get(manifest, "files"), json_string(place));
    nd_tree_set(json_object_get(manifest, "sha256"), place, json_string(hex));
    return ND_OK;
}

static enum nd_status put_part(struct nd_adding *adding, const struct nd_part *part, const char *folder,
                               json_t *manifest, const char *key, struct nd_error *err)
{
    ND_FREED char *place = place_of(part), *path = place != NULL ? nd_path_join(folder, place) : NULL;
    ND_TRY(path != NULL ? make_parents(path, err) : nd_fail_memory(err));
    if (nd_path_exists(path))
        return nd_fail(err, ND_E_RUNTIME_SOURCE, place, "two sources have a file '%s'", place);
    if (part->is_extracted && link(part->path, path) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    else if (!part->is_extracted)
        ND_TRY(nd_runtime_source_extract(&adding->sources[part->source], part->file, path,
                                         adding->how->is_cancelled, adding->how->cancel_context, err));
    if (key != NULL && strcmp(key, "net_run") == 0 && chmod(path, 0755) != 0)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot make '%s' executable: %s", path, strerror(errno));
    ND_TRY(record(manifest, folder, place, err));
    if (key != NULL)
        nd_tree_set(manifest, key, json_string(place));
    return ND_OK;
}

/* A library of the runtime that --with names, into "with/". */
static enum nd_status put_with(struct nd_adding *adding, const char *library, const char *folder,
                               json_t *manifest, const char *key, struct nd_error *err)
{
    struct nd_runtime_source source = {0};
    ND_FREED char *dir = nd_path_dir(library), *place = nd_path_join("with", nd_path_base(library));
    ND_FREED char *path = place != NULL ? nd_path_join(folder, place) : NULL;
    struct nd_source_file file = {.name = (char *)nd_path_base(library)};
    struct stat info;
    ND_TRY(dir != NULL && path != NULL ? make_parents(path, err) : nd_fail_memory(err));
    if (stat(library, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, library, "cannot open '%s': %s", library, strerror(errno));
    file.size_bytes = (uint64_t)info.st_size;
    source = (struct nd_runtime_source){.path = dir, .n = 1, .files = &file};
    ND_TRY(nd_runtime_source_extract(&source, 0, path, adding->how->is_cancelled, adding->how->cancel_context,
                                     err));
    ND_TRY(record(manifest, folder, place, err));
    if (key != NULL)
        nd_tree_set(manifest, key, json_string(place));
    return ND_OK;
}

static enum nd_status put_borrowed(struct nd_adding *adding, size_t a, const char *folder, json_t *manifest,
                                   struct nd_error *err)
{
    const struct nd_pick *pick = &adding->picks[a];
    const struct nd_runtime_info *with = &adding->with[a];
    if (pick->ort == NULL && with->ort_library != NULL)
        ND_TRY(put_with(adding, with->ort_library, folder, manifest, "ort_library", err));
    for (size_t i = 0; pick->ort == NULL && i < with->n_files; i++)
        if (strcmp(nd_path_base(with->files[i]), "libonnxruntime_providers_shared.so") == 0)
            ND_TRY(put_with(adding, with->files[i], folder, manifest, NULL, err));
    if (pick->provider == NULL && pick->backend != NULL && with->provider_library != NULL)
        ND_TRY(put_with(adding, with->provider_library, folder, manifest, "provider_library", err));
    if (with->id != NULL)
        nd_tree_set(manifest, "with", json_string(with->id));
    return ND_OK;
}

static void set_versions(const struct nd_adding *adding, size_t a, json_t *manifest)
{
    const struct nd_pick *pick = &adding->picks[a];
    const struct nd_runtime_info *with = &adding->with[a];
    const char *ort = pick->ort != NULL ? pick->ort->facts.version : with->ort_version;
    const char *provider = pick->provider != NULL ? adding->provider_version : with->provider_version;
    if (pick->ort != NULL || with->ort_library != NULL)
        nd_tree_set(manifest, "onnxruntime", json_string(ort != NULL ? ort : "unknown"));
    else
        nd_tree_set(manifest, "onnxruntime", json_string("none"));
    if (json_object_get(manifest, "provider_library") != NULL)
        nd_tree_set(manifest, "onnxruntime_qnn", json_string(provider != NULL ? provider : "unknown"));
    if (pick->backend != NULL && adding->build_id != NULL)
        nd_tree_set(manifest, "build_id", json_string(adding->build_id));
}

/* Fills the folder of one ABI, manifest last. */
static enum nd_status nd_adding_stage(struct nd_adding *adding, size_t a, const char *folder,
                                      struct nd_error *err)
{
    const struct nd_pick *pick = &adding->picks[a];
    json_auto_t *manifest =
        json_pack("{s:s, s:s, s:s, s:O, s:[], s:{}}", "id", adding->id, "abi", adding->picks[a].abi, "made_by",
                  ND_RUNTIME_MADE_BY, "origin", adding->origin, "files", "sha256");
    ND_TRY(manifest != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err));
    for (size_t i = 0; i < pick->n; i++) {
        const struct nd_part *part = pick->files[i];
        const char *key = part == pick->ort        ? "ort_library"
                          : part == pick->provider ? "provider_library"
                          : part == pick->backend  ? "backend_library"
                          : part == pick->net_run  ? "net_run"
                                                   : NULL;
        ND_TRY(put_part(adding, part, folder, manifest, key, err));
        ND_TRY(nd_adding_check(adding, err));
    }
    ND_TRY(put_borrowed(adding, a, folder, manifest, err));
    set_versions(adding, a, manifest);
    ND_FREED char *path = nd_path_join(folder, ND_RUNTIME_MANIFEST),
                  *text = nd_json_dumps(manifest, JSON_INDENT(2));
    return path != NULL && text != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
}

static const char work_start[] = ".add.";

/* ---- opening ---- */

static enum nd_status take_lock(struct nd_runtime_store *store, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(store->root, ".lock");
    ND_TRY_MEMORY(path != NULL, err);
    store->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (store->lock < 0)
        return nd_fail(err, ND_E_FILE_WRITE, path, "cannot write in '%s': %s", store->root, strerror(errno));
    else if (flock(store->lock, LOCK_EX) != 0)
        ND_TRY(errno == EINTR
                   ? nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request")
                   : nd_fail(err, ND_E_FILE_WRITE, path, "cannot lock '%s': %s", path, strerror(errno)));
    return ND_OK;
}

static void remove_leftovers(const struct nd_runtime_store *store)
{
    DIR *dir = opendir(store->root);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, work_start, strlen(work_start)) == 0) {
            char *path = nd_path_join(store->root, entry->d_name);
            nd_dir_remove(path);
            free(path);
        }
    nd_dir_close(&dir);
}

enum nd_status nd_runtime_store_open(struct nd_runtime_store *out, struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_store_close)
    struct nd_runtime_store store = {.root = nd_runtimes_folder(), .lock = -1};
    ND_TRY(store.root != NULL ? nd_dir_make(store.root, err) : nd_fail_memory(err));
    ND_TRY(take_lock(&store, err));
    remove_leftovers(&store);
    ND_FREED char *work = nd_text("%s/%sXXXXXX", store.root, work_start);
    ND_TRY_MEMORY(work != NULL, err);
    if (mkdtemp(work) == NULL)
        return nd_fail(err, ND_E_FILE_WRITE, store.root, "cannot write in '%s': %s", store.root,
                       strerror(errno));
    (void)ND_GIVE(&store.work, work);
    return ND_GIVE(out, store); /* closing what has no root does nothing */
}

void nd_runtime_store_close(struct nd_runtime_store *store)
{
    if (store->root == NULL)
        return;
    for (size_t i = 0; i < store->n_puts; i++)
        ND_FREE_ALL(store->puts[i].place, store->puts[i].old);
    nd_dir_remove(store->work);
    nd_fd_close(&store->lock);
    ND_FREE_ALL(store->work, store->root);
    *store = (struct nd_runtime_store){0};
}

/* ---- names and places ---- */

/* ND_E_RUNTIME_SOURCE for an id that cannot stand in a device's URI or in a file's name. */
static enum nd_status nd_runtime_store_check_id(const char *id, struct nd_error *err)
{
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
    const char *dot = strrchr(id, '.');
    size_t n = strlen(id);
    if (n == 0 || n > 64 || strspn(id, allowed) != n || id[0] == '.' || id[0] == '-')
        return nd_fail(err, ND_E_RUNTIME_SOURCE, id,
                       "'%.100s' cannot be a runtime's id: up to 64 letters, digits and '.', '_', '+', '-', "
                       "and none of '.' and '-' at the start",
                       id);
    if (dot != NULL && nd_abi_is_known(dot + 1))
        return nd_fail(err, ND_E_RUNTIME_SOURCE, id, "'%s' cannot be a runtime's id: '%s' is added by itself",
                       id, dot);
    return ND_OK;
}

/* "<root>/<id>", or "<root>/<id>.<abi>" for other ABIs than the first. */
static char *place_of_of_runtime_store(const struct nd_runtime_store *store, const char *id, const char *abi)
{
    bool is_plain = strcmp(abi, ND_ABI_DEFAULT) == 0;
    return nd_text("%s/%s%s%s", store->root, id, is_plain ? "" : ".", is_plain ? "" : abi);
}

static enum nd_status check_one(const struct nd_runtime_info *info, const char *abi, bool replace,
                                struct nd_error *err)
{
    if (!nd_path_exists(info->folder) || strcmp(info->abi, abi) != 0)
        return ND_OK;
    if (!info->is_added)
        return nd_fail(err, ND_E_RUNTIME_EXISTS, info->id,
                       "runtime '%s' is there for %s, and 'npudiff runtimes add' did not make it; choose "
                       "another name with --id",
                       info->id, abi);
    if (!replace)
        return nd_fail(err, ND_E_RUNTIME_EXISTS, info->id,
                       "runtime '%s' is there for %s; --force overwrites it, --id gives it a different name",
                       info->id, abi);
    return ND_OK;
}

/* ND_E_RUNTIME_EXISTS when one of that id and ABI is there; with replace: that 'runtimes add' did not make. */
static enum nd_status nd_runtime_store_may_put(const struct nd_runtime_store *store, const char *id,
                                               const char *abi, bool replace, struct nd_error *err)
{
    ND_CLEANUP(nd_runtimes_deinit) struct nd_runtime_list list = {0};
    ND_TRY(nd_runtimes_list(&list, err));
    for (size_t i = 0; i < list.n; i++)
        if (strcmp(list.items[i].id, id) == 0)
            ND_TRY(check_one(&list.items[i], abi, replace, err));
    /* A folder without a manifest is not in the list; it is not ours either. */
    ND_FREED char *place = place_of_of_runtime_store(store, id, abi);
    ND_FREED char *manifest = place != NULL ? nd_path_join(place, ND_RUNTIME_MANIFEST) : NULL;
    ND_TRY_MEMORY(manifest != NULL, err);
    if (nd_path_exists(place) && !nd_path_exists(manifest))
        return nd_fail(err, ND_E_RUNTIME_EXISTS, id, "'%s' is there and is no runtime; choose a different --id",
                       place);
    return ND_OK;
}

/* ---- putting ---- */

static void take_back(struct nd_runtime_store *store)
{
    while (store->n_puts > 0) {
        struct nd_runtime_put *put = &store->puts[--store->n_puts];
        nd_dir_remove(put->place);
        if (put->old != NULL)
            (void)rename(put->old, put->place); /* best effort: there is nothing else to be done */
        ND_FREE_ALL(put->place, put->old);
    }
}

enum nd_status nd_runtime_store_put(struct nd_runtime_store *store, const char *id, const char *abi,
                                    struct nd_error *err)
{
    struct nd_strbuf old_name = {0};
    nd_strbuf_printf(&old_name, "%s/old-%s", store->work, abi);
    struct nd_runtime_put put = {.place = place_of_of_runtime_store(store, id, abi),
                                 .old = nd_strbuf_take(&old_name)};
    char *made = nd_path_join(store->work, abi);
    enum nd_status status = ND_OK;
    if (put.place == NULL || put.old == NULL || made == NULL || store->n_puts == ND_RUNTIME_STORE_MAX_PUTS) {
        status = nd_fail_memory(err);
    } else {
        if (rename(put.place, put.old) != 0) {
            free(put.old);
            put.old = NULL;
        }
        if (rename(made, put.place) != 0) {
            status =
                nd_fail(err, ND_E_FILE_WRITE, put.place, "cannot create '%s': %s", put.place, strerror(errno));
            if (put.old != NULL)
                (void)rename(put.old, put.place);
        }
    }
    free(made);
    if (status == ND_OK) {
        store->puts[store->n_puts++] = put;
        return ND_OK;
    }
    ND_FREE_ALL(put.place, put.old);
    take_back(store);
    return status;
}

/* ---- removing ---- */

static enum nd_status remove_one(const struct nd_runtime_store *store, const struct nd_runtime_info *info,
                                 json_t *removed, struct nd_error *err)
{
    ND_FREED char *away = nd_path_join(store->work, info->abi);
    enum nd_status status = away != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && rename(info->folder, away) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, info->folder, "cannot remove '%s': %s", info->folder,
                         strerror(errno));
    nd_tree_append(removed, nd_json_string(info->folder));
    return status;
}

static enum nd_status remove_from(const struct nd_runtime_store *store, const char *id, const char *abi,
                                  json_t *removed, struct nd_error *err)
{
    struct nd_runtime_list list;
    bool is_foreign = false;
    enum nd_status status = nd_runtimes_list(&list, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; status == ND_OK && i < list.n; i++) {
        const struct nd_runtime_info *info = &list.items[i];
        if (strcmp(info->id, id) != 0 || (abi != NULL && strcmp(info->abi, abi) != 0))
            continue;
        is_foreign |= !info->is_added && nd_path_exists(info->folder);
        if (info->is_added)
            status = remove_one(store, info, removed, err);
    }
    nd_runtimes_deinit(&list);
    if (status != ND_OK || json_array_size(removed) > 0)
        return status;
    if (is_foreign)
        return nd_fail(err, ND_E_RUNTIME_EXISTS, id,
                       "runtime '%s' was not made by 'npudiff runtimes add', which is what can be removed", id);
    return nd_fail(err, ND_E_RUNTIME_MISSING, id, "there is no runtime '%s'%s%s", id,
                   abi != NULL ? " for " : "", abi != NULL ? abi : "");
}

enum nd_status nd_runtimes_remove(const char *id, const char *abi, char **removed, struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_store_close) struct nd_runtime_store store = {0};
    json_auto_t *names = json_array();
    ND_TRY(nd_runtime_store_open(&store, err));
    ND_TRY(remove_from(&store, id, abi, names, err));
    *removed = nd_json_dumps(names, 0);
    return *removed != NULL ? ND_OK : nd_fail_memory(err);
}

static const char *const abis[ND_N_ABIS] = {"x86_64-linux", "aarch64-linux", "aarch64-android"};

static void note(struct nd_adding *adding, const char *fmt, ...) ND_PRINTF(2, 3);
static void note(struct nd_adding *adding, const char *fmt, ...)
{
    char text[1024];
    ND_PRINT_ARGUMENTS(text, fmt);
    nd_tree_append(adding->notes, nd_json_string(text));
}

/* ---- what is there ---- */

/* Name and version of a wheel: the first "Name:" and "Version:" of its METADATA. */
static enum nd_status read_metadata(struct nd_adding *adding, const struct nd_runtime_source *source,
                                    size_t file, struct nd_error *err)
{
    char *text = NULL, *rest, name[64] = "", version[64] = "";
    ND_TRY(nd_runtime_source_text(source, file, &text, err));
    for (char *line = strtok_r(text, "\r\n", &rest); line != NULL; line = strtok_r(NULL, "\r\n", &rest)) {
        if (name[0] == '\0')
            sscanf(line, "Name: %63s", name);
        if (version[0] == '\0')
            sscanf(line, "Version: %63s", version);
    }
    free(text);
    if (strcmp(name, "onnxruntime-qnn") != 0 && strcmp(name, "onnxruntime_qnn") != 0)
        return ND_OK;
    free(adding->provider_version);
    adding->provider_version = nd_strdup(version);
    return adding->provider_version != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status open_sources(struct nd_adding *adding, const char *const *paths, size_t n,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < n; i++) {
        struct nd_runtime_source *source = &adding->sources[i];
        char hex[ND_SHA256_HEX_BYTES] = "";
        ND_TRY(nd_runtime_source_open(paths[i], source, err));
        adding->n_sources++;
        if (source->zip != NULL)
            ND_TRY(nd_sha256_file(paths[i], hex, err));
        nd_tree_append(adding->origin,
                       json_pack("{s:o, s:s}", "name", nd_json_string(nd_path_base(paths[i])), "sha256", hex));
        for (size_t f = 0; f < source->n; f++)
            if (nd_stem_bytes(source->files[f].name, ".dist-info/METADATA") > 0)
                ND_TRY(read_metadata(adding, source, f, err));
        ND_TRY(nd_adding_check(adding, err));
    }
    return ND_OK;
}

/* Room for everything that archives are unpacked to, and for what is copied from folders. */
static enum nd_status check_space(const struct nd_adding *adding, struct nd_error *err)
{
    struct statvfs disk;
    uint64_t needed = 0;
    for (size_t s = 0; s < adding->n_sources; s++)
        for (size_t f = 0; f < adding->sources[s].n; f++)
            if (strstr(adding->sources[s].files[f].name, ".so") != NULL)
                needed += adding->sources[s].files[f].size_bytes;
    if (statvfs(adding->store.root, &disk) != 0)
        return ND_OK; /* not known; writing will tell */
    uint64_t available = (uint64_t)disk.f_bavail * disk.f_frsize;
    if (needed <= available)
        return ND_OK;
    return nd_fail(err, ND_E_FILE_WRITE, adding->store.root,
                   "no space in '%s': up to %llu MiB are needed, %llu MiB are there", adding->store.root,
                   (unsigned long long)(needed >> 20), (unsigned long long)(available >> 20));
}

/* ---- what it makes ---- */

static bool has_anything(const struct nd_pick *pick)
{
    return pick->ort != NULL || pick->provider != NULL || pick->backend != NULL || pick->net_run != NULL;
}

/* Nothing is usable: says what is there instead. */
static enum nd_status fail_useless(const struct nd_adding *adding, struct nd_error *err)
{
    const char *path = adding->sources[0].path;
    const struct nd_part *foreign = NULL;
    for (size_t i = 0; i < adding->parts.n; i++)
        if (adding->parts.items[i].facts.abi == NULL)
            foreign = &adding->parts.items[i];
    for (size_t a = 0; a < ND_N_ABIS; a++)
        if (has_anything(&adding->picks[a]))
            return nd_fail(err, ND_E_RUNTIME_SOURCE, path,
                           "'%s' has the %s for %s, but no ONNX Runtime: give its wheel as well, or --with "
                           "RUNTIME",
                           path, adding->picks[a].provider != NULL ? "QNN provider" : "QNN libraries", abis[a]);
    if (foreign != NULL)
        return nd_fail(
            err, ND_E_RUNTIME_SOURCE, path,
            "'%s' has nothing for x86_64-linux, aarch64-linux or aarch64-android: its '%s' is for %s", path,
            foreign->name, foreign->facts.machine);
    return nd_fail(
        err, ND_E_RUNTIME_SOURCE, path, "'%s' has no ONNX Runtime, QNN provider or qnn-net-run%s", path,
        adding->parts.has_windows ? ": its libraries are for Windows"
                                  : (adding->parts.has_macos ? ": its libraries are for macOS" : ""));
}

/* Gives the ABI what --with has and it lacks; without a use it is dropped. */
static void complete(struct nd_adding *adding, size_t a)
{
    struct nd_pick *pick = &adding->picks[a];
    struct nd_runtime_info *with = &adding->with[a];
    if (adding->how->with != NULL && (pick->ort == NULL || (pick->provider == NULL && pick->backend != NULL))) {
        struct nd_error why = {0};
        if (nd_runtime_find_abi(adding->how->with, abis[a], with, &why) != ND_OK)
            note(adding, "%s: %s", abis[a], why.message);
        else if (with->provider_library == NULL && pick->provider == NULL)
            note(adding, "%s: runtime '%s' has no QNN provider to give", abis[a], with->id);
    }
    bool has_ort = pick->ort != NULL || with->ort_library != NULL;
    bool has_provider = pick->provider != NULL || with->provider_library != NULL;
    if (!has_ort && pick->net_run == NULL) {
        if (pick->n > 0)
            note(adding, "%s: not added, since it has no ONNX Runtime and no qnn-net-run", abis[a]);
        pick->n = 0;
    } else if (!has_ort) {
        note(adding,
             "%s: without ONNX Runtime it is for qnn-net-run alone; --with RUNTIME takes the ONNX Runtime and "
             "the provider of another runtime",
             abis[a]);
    } else if (pick->backend == NULL) {
        note(adding, "%s: without the QNN libraries it is for the CPU alone", abis[a]);
    } else if (!has_provider) {
        note(adding, "%s: without libonnxruntime_providers_qnn.so it is for the CPU%s alone", abis[a],
             pick->net_run != NULL ? " and qnn-net-run" : "");
    }
    if (pick->n > 0 && pick->passed_over != NULL)
        note(adding, "%s: '%s' was passed over for '%s'; name its folder instead to have it", abis[a],
             pick->passed_over, pick->backend->name);
}

/* Versions and, where none was wished for, the id. */
static enum nd_status name_it(struct nd_adding *adding, struct nd_error *err)
{
    const struct nd_part *backend = NULL, *ort = NULL;
    struct nd_strbuf id = {0};
    for (size_t a = 0; a < ND_N_ABIS; a++) {
        if (adding->picks[a].n == 0)
            continue;
        backend = adding->picks[a].backend != NULL ? adding->picks[a].backend : backend;
        ort = adding->picks[a].ort != NULL ? adding->picks[a].ort : ort;
    }
    bool has_ort = ort != NULL || adding->how->with != NULL;
    if (backend != NULL)
        ND_TRY(nd_elf_find_qnn_build(backend->path, &adding->build_id, err));
    if (adding->how->id != NULL) {
        nd_strbuf_puts(&id, adding->how->id);
    } else if (adding->build_id != NULL) { /* "v2.51.0.260929181845": all but the v and the last number */
        const char *last = strrchr(adding->build_id, '.');
        nd_strbuf_puts(&id, has_ort ? "qairt-" : "qnn-");
        nd_strbuf_append(&id, adding->build_id + 1, (size_t)(last - adding->build_id) - 1);
    } else if (ort != NULL && ort->facts.version != NULL && backend == NULL) {
        nd_strbuf_printf(&id, "ort-%s", ort->facts.version);
    } else {
        return nd_fail(err, ND_E_RUNTIME_SOURCE, adding->sources[0].path,
                       "the libraries of '%s' do not say their version; name the runtime with --id",
                       adding->sources[0].path);
    }
    adding->id = nd_strbuf_take(&id);
    return adding->id != NULL ? nd_runtime_store_check_id(adding->id, err) : nd_fail_memory(err);
}

/* ---- the call ---- */

static enum nd_status report_added(struct nd_adding *adding, size_t a, struct nd_error *err)
{
    ND_CLEANUP(nd_runtime_info_deinit) struct nd_runtime_info info = {0};
    ND_TRY(nd_runtime_find_abi(adding->id, abis[a], &info, err));
    json_int_t bytes = 0;
    for (size_t i = 0; i < info.n_files; i++) {
        struct stat file;
        bytes += stat(info.files[i], &file) == 0 ? (json_int_t)file.st_size : 0;
    }
    nd_tree_append(adding->added,
                   json_pack("{s:s, s:s, s:o, s:s, s:s, s:s?, s:o, s:o, s:I, s:I}", "runtime", info.id, "abi",
                             info.abi, "folder", nd_json_string(info.folder), "onnxruntime", info.ort_version,
                             "onnxruntime_qnn", info.provider_version, "build_id", info.build_id, "archs",
                             nd_runtime_words(info.archs), "uses", nd_runtime_uses(&info), "files",
                             (json_int_t)info.n_files, "bytes", bytes));
    return ND_OK;
}

static enum nd_status choose(struct nd_adding *adding, struct nd_error *err)
{
    size_t n_useful = 0;
    ND_TRY(nd_parts_find(&adding->parts, err));
    for (size_t a = 0; a < ND_N_ABIS; a++) {
        adding->picks[a].abi = abis[a];
        ND_TRY(nd_pick_choose(&adding->parts, &adding->picks[a], err));
        if (has_anything(&adding->picks[a]))
            complete(adding, a);
        n_useful += adding->picks[a].n > 0 && has_anything(&adding->picks[a]);
    }
    return n_useful > 0 ? name_it(adding, err) : fail_useless(adding, err);
}

static enum nd_status make_all(struct nd_adding *adding, struct nd_error *err)
{
    ND_TRY(choose(adding, err));
    bool is_chosen[ND_N_ABIS] = {false};
    for (size_t a = 0; a < ND_N_ABIS; a++) {
        is_chosen[a] = adding->picks[a].n > 0 && has_anything(&adding->picks[a]);
        if (is_chosen[a])
            ND_TRY(nd_runtime_store_may_put(&adding->store, adding->id, abis[a], adding->how->replace, err));
    }
    for (size_t a = 0; a < ND_N_ABIS; a++) {
        ND_FREED char *folder = is_chosen[a] ? nd_path_join(adding->store.work, abis[a]) : NULL;
        if (is_chosen[a])
            ND_TRY(folder != NULL ? nd_adding_stage(adding, a, folder, err) : nd_fail_memory(err));
    }
    for (size_t a = 0; a < ND_N_ABIS; a++)
        if (is_chosen[a])
            ND_TRY(nd_runtime_store_put(&adding->store, adding->id, abis[a], err));
    for (size_t a = 0; a < ND_N_ABIS; a++)
        if (is_chosen[a])
            ND_TRY(report_added(adding, a, err));
    return ND_OK;
}

static void nd_pick_deinit(struct nd_pick *pick)
{
    free(pick->files);
    pick->files = NULL;
    pick->n = 0;
}

enum nd_status nd_runtimes_add(const char *const *sources, size_t n_sources,
                               const struct nd_runtime_adding *how, char **report, struct nd_error *err)
{
    struct nd_runtime_adding own = {.struct_size = sizeof own};
    ND_TRY(nd_options_read(&own, sizeof own, how, err));
    how = &own;
    struct nd_adding adding = {
        .how = how, .origin = json_array(), .notes = json_array(), .added = json_array()};
    adding.sources = nd_calloc(n_sources, sizeof *adding.sources);
    enum nd_status status = adding.sources != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && how->id != NULL)
        status = nd_runtime_store_check_id(how->id, err);
    if (status == ND_OK)
        status = open_sources(&adding, sources, n_sources, err);
    if (status == ND_OK)
        status = nd_runtime_store_open(&adding.store, err);
    if (status == ND_OK)
        status = check_space(&adding, err);
    adding.parts = (struct nd_runtime_parts){.sources = adding.sources,
                                             .n_sources = adding.n_sources,
                                             .folder = adding.store.work,
                                             .is_cancelled = how->is_cancelled,
                                             .cancel_context = how->cancel_context};
    if (status == ND_OK)
        status = make_all(&adding, err);
    nd_runtime_store_close(&adding.store);
    if (status == ND_OK) {
        json_t *root = json_pack("{s:O, s:O}", "added", adding.added, "notes", adding.notes);
        *report = nd_json_dumps(root, JSON_INDENT(2));
        json_decref(root);
        status = *report != NULL ? ND_OK : nd_fail_memory(err);
    }
    for (size_t a = 0; a < ND_N_ABIS; a++) {
        nd_pick_deinit(&adding.picks[a]);
        nd_runtime_info_deinit(&adding.with[a]);
    }
    nd_parts_deinit(&adding.parts);
    ND_DEINIT_EACH(nd_runtime_source_close, adding.sources, adding.n_sources);
    ND_FREE_ALL(adding.provider_version, adding.build_id, adding.id);
    json_decref(adding.origin);
    json_decref(adding.notes);
    json_decref(adding.added);
    return status;
}
