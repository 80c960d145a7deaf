#include "devices/runtimes/runtime_store.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/devices/device.h"
#include "devices/runtimes/runtime_manifest.h"

static const char work_start[] = ".add.";

/* ---- opening ---- */

static enum nd_status take_lock(struct nd_runtime_store *store, struct nd_error *err)
{
    char *path = nd_path_join(store->root, ".lock");
    enum nd_status status = ND_OK;
    if (path == NULL)
        return nd_fail_memory(err);
    store->lock = open(path, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (store->lock < 0)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write in '%s': %s", store->root, strerror(errno));
    else if (flock(store->lock, LOCK_EX) != 0)
        status = errno == EINTR
                     ? nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request")
                     : nd_fail(err, ND_E_FILE_WRITE, path, "cannot lock '%s': %s", path, strerror(errno));
    free(path);
    return status;
}

static void remove_leftovers(const struct nd_runtime_store *store)
{
    DIR *dir = opendir(store->root);
    const struct dirent *entry;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (strncmp(entry->d_name, work_start, strlen(work_start)) == 0) {
            char *path = nd_path_join(store->root, entry->d_name);
            if (path != NULL)
                nd_dir_remove(path);
            free(path);
        }
    if (dir != NULL)
        closedir(dir);
}

enum nd_status nd_runtime_store_open(struct nd_runtime_store *out, struct nd_error *err)
{
    struct nd_runtime_store store = {.root = nd_runtimes_folder(), .lock = -1};
    struct nd_strbuf work = {0};
    enum nd_status status = store.root != NULL ? nd_dir_make(store.root, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = take_lock(&store, err);
    if (status == ND_OK) {
        remove_leftovers(&store);
        nd_strbuf_printf(&work, "%s/%sXXXXXX", store.root, work_start);
        store.work = nd_strbuf_take(&work);
        if (store.work == NULL) {
            status = nd_fail_memory(err);
        } else if (mkdtemp(store.work) == NULL) {
            status = nd_fail(err, ND_E_FILE_WRITE, store.root, "cannot write in '%s': %s", store.root,
                             strerror(errno));
            free(store.work);
            store.work = NULL;
        }
    }
    if (status == ND_OK)
        *out = store;
    else
        nd_runtime_store_close(&store);
    return status;
}

void nd_runtime_store_close(struct nd_runtime_store *store)
{
    if (store->root == NULL)
        return;
    for (size_t i = 0; i < store->n_puts; i++) {
        free(store->puts[i].place);
        free(store->puts[i].old);
    }
    if (store->work != NULL)
        nd_dir_remove(store->work);
    if (store->lock >= 0)
        close(store->lock);
    free(store->work);
    free(store->root);
    *store = (struct nd_runtime_store){0};
}

/* ---- names and places ---- */

enum nd_status nd_runtime_store_check_id(const char *id, struct nd_error *err)
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
static char *place_of(const struct nd_runtime_store *store, const char *id, const char *abi)
{
    bool is_plain = strcmp(abi, ND_ABI_DEFAULT) == 0;
    struct nd_strbuf path = {0};
    nd_strbuf_printf(&path, "%s/%s%s%s", store->root, id, is_plain ? "" : ".", is_plain ? "" : abi);
    return nd_strbuf_take(&path);
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

enum nd_status nd_runtime_store_may_put(const struct nd_runtime_store *store, const char *id, const char *abi,
                                        bool replace, struct nd_error *err)
{
    struct nd_runtime_list list;
    enum nd_status status = nd_runtimes_list(&list, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; status == ND_OK && i < list.n; i++)
        if (strcmp(list.items[i].id, id) == 0)
            status = check_one(&list.items[i], abi, replace, err);
    nd_runtimes_deinit(&list);
    /* A folder without a manifest is not in the list; it is not ours either. */
    char *place = place_of(store, id, abi), *manifest = NULL;
    if (place != NULL)
        manifest = nd_path_join(place, ND_RUNTIME_MANIFEST);
    if (status == ND_OK && manifest == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(place) && !nd_path_exists(manifest))
        status = nd_fail(err, ND_E_RUNTIME_EXISTS, id,
                         "'%s' is there and is no runtime; choose a different --id", place);
    free(manifest);
    free(place);
    return status;
}

/* ---- putting ---- */

static void take_back(struct nd_runtime_store *store)
{
    while (store->n_puts > 0) {
        struct nd_runtime_put *put = &store->puts[--store->n_puts];
        nd_dir_remove(put->place);
        if (put->old != NULL)
            (void)rename(put->old, put->place); /* best effort: there is nothing else to be done */
        free(put->place);
        free(put->old);
    }
}

enum nd_status nd_runtime_store_put(struct nd_runtime_store *store, const char *id, const char *abi,
                                    struct nd_error *err)
{
    struct nd_strbuf old_name = {0};
    nd_strbuf_printf(&old_name, "%s/old-%s", store->work, abi);
    struct nd_runtime_put put = {.place = place_of(store, id, abi), .old = nd_strbuf_take(&old_name)};
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
    free(put.place);
    free(put.old);
    take_back(store);
    return status;
}

/* ---- removing ---- */

static enum nd_status remove_one(const struct nd_runtime_store *store, const struct nd_runtime_info *info,
                                 json_t *removed, struct nd_error *err)
{
    char *away = nd_path_join(store->work, info->abi);
    enum nd_status status = away != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && rename(info->folder, away) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, info->folder, "cannot remove '%s': %s", info->folder,
                         strerror(errno));
    free(away);
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
    struct nd_runtime_store store = {0};
    json_t *names = json_array();
    enum nd_status status = nd_runtime_store_open(&store, err);
    if (status == ND_OK)
        status = remove_from(&store, id, abi, names, err);
    nd_runtime_store_close(&store);
    if (status == ND_OK) {
        *removed = nd_json_dumps(names, 0);
        status = *removed != NULL ? ND_OK : nd_fail_memory(err);
    }
    json_decref(names);
    return status;
}
