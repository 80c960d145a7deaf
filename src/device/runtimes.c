#include <dirent.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "device/internal.h"

/* The runtimes that tools/setup can install; tools/runtimes/<id>.txt pins their wheels. */
static const struct {
    const char *id;
    const char *ort_version;
    const char *provider_version;
} known[] = {
    {"qairt-2.51.0", "1.31.1", "2.7.0"},  {"qairt-2.50.40", "1.29.0", "2.6.0"},
    {"qairt-2.49.40", "1.27.0", "2.5.0"}, {"qairt-2.48.40", "1.26.0", "2.4.0"},
    {"qairt-2.47.0", "1.24.4", "2.3.0"},
};
enum { N_KNOWN = sizeof known / sizeof known[0] };

static const char manifest_name[] = "runtime.json"; /* written by tools/setup when the folder is complete */

/* An absolute path: agents, which load from there, work in folders of their own. */
static char *runtimes_folder(void)
{
    const char *folder = getenv("NPUDIFF_RUNTIMES");
    if (folder != NULL && folder[0] != '\0') {
        char *here = folder[0] != '/' ? getcwd(NULL, 0) : NULL;
        char *path = here != NULL ? nd_path_join(here, folder) : nd_strdup(folder);
        free(here);
        return path;
    }
    const char *cache = getenv("XDG_CACHE_HOME");
    if (cache != NULL && cache[0] == '/')
        return nd_path_join(cache, "npudiff/runtimes");
    const char *home = getenv("HOME");
    return nd_path_join(home != NULL && home[0] != '\0' ? home : "/", ".cache/npudiff/runtimes");
}

static char *explain_missing(const char *id, const char *why)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, why);
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(known[i].id, id) == 0) /* what somebody else put there, tools/setup cannot mend */
            nd_strbuf_printf(&text, "; install it with 'tools/setup --runtime %s'", id);
    return nd_strbuf_take(&text);
}

/* The library that the manifest calls `key`, as a full path; NULL when it does not name one that exists. */
static char *library_path(const json_t *manifest, const char *key, const char *folder)
{
    const char *relative = json_string_value(json_object_get(manifest, key));
    if (relative == NULL)
        return NULL;
    char *path = nd_path_join(folder, relative);
    if (path != NULL && nd_path_exists(path))
        return path;
    free(path);
    return NULL;
}

static bool set_string(char **at, const char *text)
{
    free(*at);
    *at = nd_strdup(text);
    return *at != NULL;
}

/* Completes info from its folder's manifest, or says in info->missing why it cannot be used. */
static bool inspect(struct nd_runtime_info *info)
{
    char *path = nd_path_join(info->folder, manifest_name);
    if (path == NULL)
        return false;
    json_error_t problem;
    json_t *manifest = json_load_file(path, 0, &problem);
    bool is_there = nd_path_exists(info->folder);
    free(path);
    if (manifest == NULL) {
        info->missing = explain_missing(info->id, is_there ? "installed only in part" : "not installed");
        return info->missing != NULL;
    }
    info->ort_library = library_path(manifest, "ort_library", info->folder);
    info->provider_library = library_path(manifest, "provider_library", info->folder);
    info->backend_library = library_path(manifest, "backend_library", info->folder);
    const char *ort = json_string_value(json_object_get(manifest, "onnxruntime"));
    const char *provider = json_string_value(json_object_get(manifest, "onnxruntime_qnn"));
    bool is_copied = set_string(&info->ort_version, ort != NULL ? ort : "unknown") &&
                     set_string(&info->provider_version, provider != NULL ? provider : "unknown");
    json_decref(manifest);
    if (info->ort_library == NULL || info->provider_library == NULL || info->backend_library == NULL) {
        info->missing = explain_missing(info->id, "a library of it is gone");
        return info->missing != NULL;
    }
    return is_copied;
}

static void free_info(struct nd_runtime_info *info)
{
    free(info->id);
    free(info->ort_version);
    free(info->provider_version);
    free(info->folder);
    free(info->ort_library);
    free(info->provider_library);
    free(info->backend_library);
    free(info->missing);
    *info = (struct nd_runtime_info){0};
}

static bool add(struct nd_runtime_list *list, size_t *capacity, const char *root, const char *id,
                const char *ort, const char *provider)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].id, id) == 0)
            return true;
    if (!nd_grow((void **)&list->items, capacity, list->n + 1, sizeof *list->items))
        return false;
    struct nd_runtime_info *info = &list->items[list->n++];
    *info = (struct nd_runtime_info){.id = nd_strdup(id),
                                     .ort_version = nd_strdup(ort),
                                     .provider_version = nd_strdup(provider),
                                     .folder = nd_path_join(root, id)};
    return info->id != NULL && info->ort_version != NULL && info->provider_version != NULL &&
           info->folder != NULL && inspect(info);
}

static int newest_first(const void *a, const void *b)
{
    return strverscmp(((const struct nd_runtime_info *)b)->id, ((const struct nd_runtime_info *)a)->id);
}

enum nd_status nd_runtimes_list(struct nd_runtime_list *out, struct nd_error *err)
{
    struct nd_runtime_list list = {0};
    size_t capacity = 0;
    char *root = runtimes_folder();
    bool is_whole = root != NULL;
    for (size_t i = 0; is_whole && i < N_KNOWN; i++)
        is_whole = add(&list, &capacity, root, known[i].id, known[i].ort_version, known[i].provider_version);
    /* Others that somebody put there count as well, when they carry a manifest. */
    DIR *dir = is_whole ? opendir(root) : NULL;
    const struct dirent *entry;
    while (dir != NULL && is_whole && (entry = readdir(dir)) != NULL) {
        struct nd_strbuf relative = {0};
        nd_strbuf_printf(&relative, "%s/%s", entry->d_name, manifest_name);
        char *name = nd_strbuf_take(&relative);
        char *manifest = name != NULL ? nd_path_join(root, name) : NULL;
        if (manifest != NULL && entry->d_name[0] != '.' && nd_path_exists(manifest))
            is_whole = add(&list, &capacity, root, entry->d_name, "unknown", "unknown");
        free(manifest);
        free(name);
    }
    if (dir != NULL)
        closedir(dir);
    free(root);
    if (!is_whole) {
        nd_runtimes_deinit(&list);
        return nd_fail_memory(err);
    }
    qsort(list.items, list.n, sizeof *list.items, newest_first);
    *out = list;
    return ND_OK;
}

void nd_runtimes_deinit(struct nd_runtime_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        free_info(&list->items[i]);
    free(list->items);
    *list = (struct nd_runtime_list){0};
}

enum nd_status nd_runtime_find(const char *id, struct nd_runtime_info *out, struct nd_error *err)
{
    struct nd_runtime_list list;
    enum nd_status status = nd_runtimes_list(&list, err);
    if (status != ND_OK)
        return status;
    struct nd_runtime_info *found = NULL, *newest = NULL;
    for (size_t i = 0; i < list.n; i++) {
        /* By default only one of ours: what else lies there is for who asks for it by name. */
        bool is_ours = strncmp(list.items[i].id, "qairt-", 6) == 0;
        if (newest == NULL && is_ours && list.items[i].missing == NULL)
            newest = &list.items[i];
        if (id != NULL && strcmp(list.items[i].id, id) == 0)
            found = &list.items[i];
    }
    if (id == NULL)
        found = newest;
    if (id == NULL && found == NULL) {
        status =
            nd_fail(err, ND_E_RUNTIME_MISSING, NULL, "no runtime is installed; install one with 'tools/setup'");
    } else if (found == NULL) {
        status = nd_fail(err, ND_E_RUNTIME_MISSING, id,
                         "there is no runtime '%s'; 'npudiff runtimes' lists those there are", id);
    } else if (found->missing != NULL) {
        status = nd_fail(err, ND_E_RUNTIME_MISSING, id, "runtime '%s' cannot be used: %s", id, found->missing);
    } else {
        *out = *found;
        *found = (struct nd_runtime_info){0}; /* moved */
    }
    nd_runtimes_deinit(&list);
    return status;
}

void nd_runtime_info_deinit(struct nd_runtime_info *info)
{
    free_info(info);
}
