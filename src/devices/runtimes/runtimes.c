#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"
#include "devices/runtimes/runtime_manifest.h"
#include "devices/runtimes/sdk.h"

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

const char *nd_abi_here(void)
{
#if defined(__aarch64__) && defined(__ANDROID__)
    return "aarch64-android";
#elif defined(__aarch64__)
    return "aarch64-linux";
#else
    return "x86_64-linux";
#endif
}

char *nd_runtime_explain_missing(const char *id, const char *why)
{
    struct nd_strbuf text = {0};
    nd_strbuf_puts(&text, why);
    for (size_t i = 0; i < N_KNOWN; i++)
        if (strcmp(known[i].id, id) == 0) /* what somebody else put there, tools/setup cannot mend */
            nd_strbuf_printf(&text, "; install it with 'tools/setup --runtime %s'", id);
    return nd_strbuf_take(&text);
}

/* ---- the list ---- */

void nd_runtime_info_deinit(struct nd_runtime_info *info)
{
    free(info->id);
    free(info->ort_version);
    free(info->provider_version);
    free(info->folder);
    free(info->ort_library);
    free(info->provider_library);
    free(info->backend_library);
    free(info->net_run);
    free(info->missing);
    free(info->abi);
    free(info->build_id);
    free(info->archs);
    for (size_t i = 0; i < info->n_files; i++)
        free(info->files[i]);
    free(info->files);
    *info = (struct nd_runtime_info){0};
}

/* The list in the making, and the folder that it is of. */
struct listing {
    struct nd_runtime_list list;
    size_t capacity;
    char *root;
};

static bool is_listed(const struct nd_runtime_list *list, const struct nd_runtime_info *info)
{
    for (size_t i = 0; i < list->n; i++)
        if (strcmp(list->items[i].id, info->id) == 0 && strcmp(list->items[i].abi, info->abi) == 0)
            return true;
    return false;
}

/* The folder `name` of the runtimes' folder, unless its runtime is in the list for its ABI. */
static enum nd_status add(struct listing *listing, const char *name, const char *ort, const char *provider,
                          struct nd_error *err)
{
    struct nd_runtime_list *list = &listing->list;
    struct nd_runtime_info info = {.id = nd_strdup(name),
                                   .ort_version = nd_strdup(ort),
                                   .provider_version = nd_strdup(provider),
                                   .folder = nd_path_join(listing->root, name)};
    bool is_whole =
        info.id != NULL && info.ort_version != NULL && info.provider_version != NULL && info.folder != NULL;
    enum nd_status status = is_whole ? nd_runtime_manifest_read(&info, err) : nd_fail_memory(err);
    bool is_new = status == ND_OK && !is_listed(list, &info);
    if (is_new && !nd_grow((void **)&list->items, &listing->capacity, list->n + 1, sizeof *list->items)) {
        status = nd_fail_memory(err);
        is_new = false;
    }
    if (is_new)
        list->items[list->n++] = info;
    else
        nd_runtime_info_deinit(&info);
    return status;
}

/* By version; of one version x86-64 comes last by name and is wanted first. */
static int newest_first(const void *a, const void *b)
{
    const struct nd_runtime_info *left = a, *right = b;
    int order = strverscmp(right->id, left->id);
    return order != 0 ? order : strcmp(right->abi, left->abi);
}

/* Others that somebody put there count as well, when they carry a manifest. */
static enum nd_status add_others(struct listing *listing, struct nd_error *err)
{
    DIR *dir = opendir(listing->root);
    const struct dirent *entry;
    if (dir == NULL && access(listing->root, R_OK | X_OK) == 0)
        return nd_fail(err, ND_E_FILE_OPEN, listing->root, "cannot open '%s': %s", listing->root,
                       strerror(errno));
    enum nd_status status = ND_OK;
    while (status == ND_OK && dir != NULL && (entry = readdir(dir)) != NULL) {
        struct nd_strbuf relative = {0};
        nd_strbuf_printf(&relative, "%s/" ND_RUNTIME_MANIFEST, entry->d_name);
        char *name = nd_strbuf_take(&relative);
        char *manifest = name != NULL ? nd_path_join(listing->root, name) : NULL;
        if (manifest == NULL)
            status = nd_fail_memory(err);
        else if (entry->d_name[0] != '.' && nd_path_exists(manifest))
            status = add(listing, entry->d_name, "unknown", "unknown", err);
        free(manifest);
        free(name);
    }
    if (dir != NULL)
        closedir(dir);
    return status;
}

enum nd_status nd_runtimes_list(struct nd_runtime_list *out, struct nd_error *err)
{
    struct listing listing = {.root = nd_runtimes_folder()};
    enum nd_status status = listing.root != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < N_KNOWN; i++)
        status = add(&listing, known[i].id, known[i].ort_version, known[i].provider_version, err);
    if (status == ND_OK)
        status = add_others(&listing, err);
    free(listing.root);
    if (status != ND_OK) {
        nd_runtimes_deinit(&listing.list);
        return status;
    }
    if (listing.list.n > 1)
        qsort(listing.list.items, listing.list.n, sizeof *listing.list.items, newest_first);
    *out = listing.list;
    return ND_OK;
}

void nd_runtimes_deinit(struct nd_runtime_list *list)
{
    for (size_t i = 0; i < list->n; i++)
        nd_runtime_info_deinit(&list->items[i]);
    free(list->items);
    *list = (struct nd_runtime_list){0};
}

/* ---- one of them ---- */

/* The newest that can be used: by default only one of ours, what else lies there is for who asks for it by
 * name; but other machines have none of ours unless somebody added it. */
static struct nd_runtime_info *newest_for(const struct nd_runtime_list *list, const char *abi)
{
    struct nd_runtime_info *other = NULL;
    for (size_t i = 0; i < list->n; i++) {
        struct nd_runtime_info *info = &list->items[i];
        if (strcmp(info->abi, abi) != 0 || info->missing != NULL || info->ort_library == NULL)
            continue;
        if (strncmp(info->id, "qairt-", 6) == 0)
            return info;
        if (other == NULL)
            other = info;
    }
    return strcmp(abi, nd_abi_here()) != 0 ? other : NULL;
}

enum nd_status nd_runtime_fail_unknown(const struct nd_runtime_list *list, const char *id, struct nd_error *err)
{
    char meant[ND_DID_YOU_MEAN_BYTES];
    return nd_fail(
        err, ND_E_RUNTIME_MISSING, id, "there is no runtime '%s'; 'npudiff runtimes' lists all%s", id,
        nd_did_you_mean(id, list->n > 0 ? &list->items[0].id : NULL, list->n, sizeof list->items[0], meant));
}

/* That id is not there for that ABI: what is. */
static enum nd_status fail_other_abi(const struct nd_runtime_list *list, const char *id, const char *abi,
                                     struct nd_error *err)
{
    struct nd_strbuf others = {0};
    bool is_known = false;
    for (size_t i = 0; i < list->n; i++) {
        if (strcmp(list->items[i].id, id) != 0)
            continue;
        is_known = true;
        if (list->items[i].missing == NULL)
            nd_strbuf_printf(&others, "%s%s", others.len > 0 ? ", " : "", list->items[i].abi);
    }
    char *names = nd_strbuf_take(&others);
    enum nd_status status = ND_ERR_MEMORY;
    if (names == NULL)
        status = nd_fail_memory(err);
    else if (!is_known)
        status = nd_runtime_fail_unknown(list, id, err);
    else
        status = nd_fail(err, ND_E_RUNTIME_MISSING, id,
                         "runtime '%s' is not installed for %s%s%s; add its libraries with 'npudiff runtimes "
                         "add WHEEL...'",
                         id, abi, names[0] != '\0' ? ", only for " : "", names);
    free(names);
    return status;
}

static enum nd_status fail_none(const char *abi, struct nd_error *err)
{
    if (strcmp(abi, nd_abi_here()) == 0 && strcmp(abi, ND_ABI_DEFAULT) == 0)
        return nd_fail(err, ND_E_RUNTIME_MISSING, NULL,
                       "no runtime is installed; install one with 'tools/setup'");
    return nd_fail(err, ND_E_RUNTIME_MISSING, NULL,
                   "no runtime for %s is installed; add one with 'npudiff runtimes add WHEEL...'", abi);
}

enum nd_status nd_runtime_find_abi(const char *id, const char *abi, struct nd_runtime_info *out,
                                   struct nd_error *err)
{
    struct nd_runtime_list list;
    enum nd_status status = nd_runtimes_list(&list, err);
    if (status != ND_OK)
        return status;
    struct nd_runtime_info *found = id == NULL ? newest_for(&list, abi) : NULL;
    for (size_t i = 0; id != NULL && i < list.n; i++)
        if (strcmp(list.items[i].id, id) == 0 && strcmp(list.items[i].abi, abi) == 0)
            found = &list.items[i];
    if (id == NULL && found == NULL) {
        status = fail_none(abi, err);
    } else if (found == NULL) {
        status = fail_other_abi(&list, id, abi, err);
    } else if (found->missing != NULL) {
        status = nd_fail(err, ND_E_RUNTIME_MISSING, id, "runtime '%s' cannot be used: %s", id, found->missing);
    } else {
        *out = *found;
        *found = (struct nd_runtime_info){0}; /* moved */
    }
    nd_runtimes_deinit(&list);
    return status;
}

enum nd_status nd_runtime_find(const char *id, struct nd_runtime_info *out, struct nd_error *err)
{
    return nd_runtime_find_abi(id, nd_abi_here(), out, err);
}

enum nd_status nd_runtime_require(const struct nd_runtime_info *info, enum nd_runtime_need need,
                                  struct nd_error *err)
{
    bool is_for_agent = need != ND_RUNTIME_FOR_NET_RUN;
    if (is_for_agent && info->ort_library == NULL)
        return nd_fail(err, ND_E_RUNTIME_MISSING, info->id,
                       "runtime '%s' (%s) has no ONNX Runtime: it is for qnn-net-run alone; 'npudiff runtimes "
                       "add' with --with RUNTIME gives it one",
                       info->id, info->abi);
    if (need == ND_RUNTIME_FOR_NPU && (info->provider_library == NULL || info->backend_library == NULL))
        return nd_fail(err, ND_E_RUNTIME_MISSING, info->id,
                       "runtime '%s' (%s) has no QNN provider: it is for the CPU alone; add the wheel of "
                       "onnxruntime-qnn as well ('npudiff runtimes add WHEEL...')",
                       info->id, info->abi);
    if (!is_for_agent && (info->net_run == NULL || info->backend_library == NULL))
        return nd_fail(err, ND_E_RUNTIME_MISSING, info->id,
                       "runtime '%s' (%s) has no qnn-net-run; it comes with a QAIRT SDK ('npudiff runtimes add "
                       "FOLDER')",
                       info->id, info->abi);
    return ND_OK;
}

bool nd_runtime_file_serves(const char *path, const char *arch, enum nd_runtime_need need)
{
    const char *name = nd_path_base(path);
    bool is_ort = strncmp(name, "libonnxruntime", 14) == 0;
    if (need == ND_RUNTIME_FOR_NET_RUN
            ? is_ort
            : strcmp(name, "qnn-net-run") == 0 || strcmp(name, "libQnnHtpNetRunExtensions.so") == 0)
        return false;
    if (need == ND_RUNTIME_FOR_CPU &&
        (strncmp(name, "libQnn", 6) == 0 || strstr(name, "_providers_qnn") != NULL))
        return false;
    int of_skeleton = nd_runtime_arch_of(name, "Skel"), of_stub = nd_runtime_arch_of(name, "Stub");
    int of = of_skeleton > 0 ? of_skeleton : of_stub;
    return of == 0 || arch == NULL || atoi(arch + 1) == of;
}
