/* Runtimes and agents as they are installed: the folders of runtimes, their manifests, and the agents of this
 * machine and for others. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "devices/runtimes/runtimes.h"
#include "devices/runtimes/sdk.h"
#include "npudiff/core/parse.h"

static const char agent_name[] = "npudiff-agent";

/* Of the agents the one with the suffix, beside this one; NULL when there is none. Takes over `path`. */
static char *add_suffix(char *path, const char *suffix)
{
    char *made = nd_text("%s%s", path, suffix);
    free(path);
    if (made != NULL && access(made, X_OK) == 0)
        return made;
    free(made);
    return NULL;
}

/* The folder of the running program, in new memory; NULL when it cannot be told. */
static char *own_folder(void)
{
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    return nd_path_dir(self);
}

enum nd_status nd_agent_find(const char *wanted, const char *suffix, char **path, struct nd_error *err)
{
    const char *from_environment = getenv("NPUDIFF_AGENT");
    if (wanted == NULL && from_environment != NULL && from_environment[0] != '\0')
        wanted = from_environment;
    char *folder = own_folder();
    /* Beside the program when installed; beside its folder in a build tree; for other programs, where it was
     * installed. */
    char *beside = folder != NULL ? nd_path_join(folder, agent_name) : NULL;
    char *in_build = folder != NULL ? nd_path_join(folder, "../devices/agent/npudiff-agent") : NULL;
    char *of_lab = folder != NULL ? nd_path_join(folder, "../src/devices/agent/npudiff-agent") : NULL;
    const char *candidates[] = {wanted, wanted == NULL ? beside : NULL, wanted == NULL ? in_build : NULL,
                                wanted == NULL ? of_lab : NULL, wanted == NULL ? ND_INSTALLED_AGENT : NULL};
    char *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof candidates / sizeof candidates[0]; i++)
        if (candidates[i] != NULL && access(candidates[i], X_OK) == 0)
            found = realpath(candidates[i], NULL);
    if (found != NULL && suffix[0] != '\0')
        found = add_suffix(found, suffix);
    ND_FREE_ALL(folder, beside, in_build, of_lab);
    if (found == NULL)
        return nd_fail(err, ND_E_DEVICE_AGENT, wanted, "cannot find the agent '%s%s' to run devices with",
                       wanted != NULL ? wanted : agent_name, suffix);
    *path = found;
    return ND_OK;
}

/* <folder>/<between>/<abi>/npudiff-agent by its full path, where it is; else NULL. */
static char *find_under(const char *folder, const char *between, const char *abi)
{
    if (folder == NULL || folder[0] == '\0')
        return NULL;
    ND_FREED char *path = nd_text("%s%s/%s/%s", folder, between, abi, agent_name);
    return path != NULL && access(path, R_OK) == 0 ? realpath(path, NULL) : NULL;
}

enum nd_status nd_agent_find_abi(const char *wanted, const char *abi, char **path, struct nd_error *err)
{
    char *folder = own_folder(), *cached = nd_cache_folder("agents");
    char *found = find_under(getenv("NPUDIFF_AGENTS"), "", abi);
    /* Installed; in a build tree; made once for all. */
    if (found == NULL)
        found = find_under(folder, "/agents", abi);
    if (found == NULL)
        found = find_under(folder, "/../agents", abi);
    if (found == NULL)
        found = find_under(folder, "/../../agents", abi);
    if (found == NULL)
        found = find_under(cached, "", abi);
    ND_FREE_ALL(folder, cached);
    if (found != NULL) {
        *path = found;
        return ND_OK;
    }
    if (strcmp(abi, nd_abi_here()) == 0)
        return nd_agent_find(wanted, "", path, err);
    return nd_fail(err, ND_E_DEVICE_AGENT, abi,
                   "there is no npudiff-agent for %s; 'tools/build_agent %s' builds it, or $NPUDIFF_AGENTS "
                   "names the folder that holds '%s/%s'",
                   abi, abi, abi, agent_name);
}

/* ---- runtimes: see the header ---- */

static char *nd_runtime_explain_missing(const char *id, const char *why);

/* Far more than the names and digests of all files of a runtime take; chosen. */
enum { MAX_MANIFEST_BYTES = 16 << 20 };

bool nd_abi_is_known(const char *abi)
{
    return strcmp(abi, "x86_64-linux") == 0 || strcmp(abi, "aarch64-linux") == 0 ||
           strcmp(abi, "aarch64-android") == 0;
}

/* ---- JSON ---- */

json_t *nd_runtime_uses(const struct nd_runtime_info *info)
{
    json_t *uses = json_array();
    bool has_backend = info->backend_library != NULL;
    if (info->ort_library != NULL)
        nd_tree_append(uses, json_string("cpu"));
    if (info->ort_library != NULL && info->provider_library != NULL && has_backend)
        nd_tree_append(uses, json_string(strcmp(info->abi, ND_ABI_DEFAULT) == 0 ? "htp-sim" : "htp"));
    if (info->net_run != NULL && has_backend)
        nd_tree_append(uses, json_string("qnn-net-run"));
    return uses;
}

/* ---- what a name says ---- */

int nd_runtime_arch_of(const char *name, const char *what)
{
    static const char start[] = "libQnnHtpV";
    if (strncmp(name, start, strlen(start)) != 0)
        return 0;
    const char *at = name + strlen(start);
    int arch = 0;
    while (*at >= '0' && *at <= '9' && arch < 1000)
        arch = 10 * arch + (*at++ - '0');
    return strncmp(at, what, strlen(what)) != 0 || strcmp(at + strlen(what), ".so") != 0 ? 0 : arch;
}

bool nd_runtime_is_needed(const char *name)
{
    /* Measured with the dynamic linker's trace: a run on the simulator loads libQnnHtp.so, one that makes or
     * reads contexts libQnnSystem.so as well; libHtpPrepare.so, Gpu, Saver, Ir and Genie are never loaded.
     * Devices prepare with libQnnHtpPrepare.so. */
    static const char *const names[] = {"libQnnHtp.so",
                                        "libQnnSystem.so",
                                        "libQnnHtpPrepare.so",
                                        "libQnnHtpNetRunExtensions.so",
                                        "libonnxruntime_providers_qnn.so",
                                        "libonnxruntime_providers_shared.so"};
    return nd_find_text(names, sizeof names / sizeof names[0], sizeof names[0], name) != NULL ||
           nd_runtime_arch_of(name, "Stub") > 0 || nd_runtime_arch_of(name, "Skel") > 0 ||
           strncmp(name, "libc++", 6) == 0 || strncmp(name, "libunwind", 9) == 0;
}

/* ---- files ---- */

static bool set_string(char **at, const char *text)
{
    free(*at);
    *at = nd_strdup(text);
    return *at != NULL;
}

/* Takes path over. */
static bool add_file(struct nd_runtime_info *info, size_t *capacity, char *path)
{
    for (size_t i = 0; path != NULL && i < info->n_files; i++)
        if (strcmp(info->files[i], path) == 0) {
            free(path);
            return true;
        }
    if (path == NULL || !nd_grow((void **)&info->files, capacity, info->n_files + 1, sizeof *info->files)) {
        free(path);
        return false;
    }
    info->files[info->n_files++] = path;
    return true;
}

static bool is_library(const char *name)
{
    const char *so = strstr(name, ".so");
    return so != NULL && (so[3] == '\0' || so[3] == '.');
}

/* Of a folder with libraries: those that are needed, or all of them. */
static bool add_folder(struct nd_runtime_info *info, size_t *capacity, const char *folder, bool all)
{
    DIR *dir = opendir(folder);
    const struct dirent *entry;
    bool is_whole = true;
    while (is_whole && dir != NULL && (entry = readdir(dir)) != NULL)
        if (entry->d_name[0] != '.' && is_library(entry->d_name) &&
            (all || nd_runtime_is_needed(entry->d_name)))
            is_whole = add_file(info, capacity, nd_path_join(folder, entry->d_name));
    nd_dir_close(&dir);
    return is_whole;
}

/* The libraries beside `library`, and those that its wheel brought for it in "<folder>.libs". */
static bool add_beside(struct nd_runtime_info *info, size_t *capacity, const char *library)
{
    if (library == NULL)
        return true;
    ND_FREED char *folder = nd_path_dir(library);
    ND_FREED char *libs = folder != NULL ? nd_text("%s.libs", folder) : NULL;
    return folder != NULL && libs != NULL && add_file(info, capacity, nd_strdup(library)) &&
           add_folder(info, capacity, folder, false) && add_folder(info, capacity, libs, true);
}

/* What the manifest lists, or what the rule finds; *gone is set when a listed one is not there. */
static bool find_files(struct nd_runtime_info *info, const json_t *manifest, bool *gone)
{
    const json_t *listed = json_object_get(manifest, "files");
    size_t capacity = 0;
    bool is_whole = true;
    for (size_t i = 0; is_whole && i < json_array_size(listed); i++) {
        const char *relative = json_string_value(json_array_get(listed, i));
        if (relative == NULL)
            continue;
        is_whole = add_file(info, &capacity, nd_path_join(info->folder, relative));
        if (is_whole && !nd_path_exists(info->files[info->n_files - 1]))
            *gone = true;
    }
    if (is_whole && !json_is_array(listed))
        is_whole = add_beside(info, &capacity, info->ort_library) &&
                   add_beside(info, &capacity, info->provider_library) &&
                   add_beside(info, &capacity, info->backend_library) &&
                   add_beside(info, &capacity, info->net_run);
    if (is_whole && info->n_files > 1)
        qsort(info->files, info->n_files, sizeof *info->files, nd_compare_texts);
    return is_whole;
}

/* The architectures of the skeletons among the files, which are sorted. */
static bool find_archs(struct nd_runtime_info *info)
{
    struct nd_strbuf text = {0};
    for (int arch = 1; arch < 1000; arch++)
        for (size_t i = 0; i < info->n_files; i++)
            if (nd_runtime_arch_of(nd_path_base(info->files[i]), "Skel") == arch) {
                nd_strbuf_printf(&text, "%sv%d", text.len > 0 ? " " : "", arch);
                break;
            }
    if (text.len == 0)
        return true;
    info->archs = nd_strbuf_take(&text);
    return info->archs != NULL;
}

/* ---- the manifest ---- */

/* The library that the manifest calls `key`, as a full path; *gone is set when that does not exist. */
static char *library_path(const json_t *manifest, const char *key, const char *folder, bool *gone)
{
    const char *relative = json_string_value(json_object_get(manifest, key));
    char *path = relative != NULL ? nd_path_join(folder, relative) : NULL;
    if (path == NULL || nd_path_exists(path))
        return path;
    *gone = true;
    free(path);
    return NULL;
}

/* A text of the manifest, or another one. */
static bool take_text(char **at, const json_t *manifest, const char *key, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(manifest, key));
    if (text == NULL)
        text = otherwise;
    return text == NULL || set_string(at, text);
}

static bool read_facts(struct nd_runtime_info *info, const json_t *manifest, bool *gone)
{
    const char *made_by = json_string_value(json_object_get(manifest, "made_by"));
    const char *abi = json_string_value(json_object_get(manifest, "abi"));
    info->is_added = made_by != NULL && strcmp(made_by, ND_RUNTIME_MADE_BY) == 0;
    info->ort_library = library_path(manifest, "ort_library", info->folder, gone);
    info->provider_library = library_path(manifest, "provider_library", info->folder, gone);
    info->backend_library = library_path(manifest, "backend_library", info->folder, gone);
    info->net_run = library_path(manifest, "net_run", info->folder, gone);
    bool has_provider = json_is_string(json_object_get(manifest, "provider_library"));
    /* A manifest that names no provider is of an ONNX Runtime alone, and says so by what it holds. */
    return set_string(&info->abi, abi != NULL ? abi : ND_ABI_DEFAULT) &&
           take_text(&info->ort_version, manifest, "onnxruntime", "unknown") &&
           take_text(&info->provider_version, manifest, "onnxruntime_qnn", has_provider ? "unknown" : "none") &&
           take_text(&info->build_id, manifest, "build_id", NULL) && find_files(info, manifest, gone) &&
           find_archs(info);
}

char *nd_runtimes_folder(void)
{
    const char *folder = getenv("NPUDIFF_RUNTIMES");
    if (folder != NULL && folder[0] != '\0') {
        /* An absolute path: agents, which load from there, work in folders of their own. */
        char *here = folder[0] != '/' ? getcwd(NULL, 0) : NULL;
        char *path = here != NULL ? nd_path_join(here, folder) : nd_strdup(folder);
        free(here);
        return path;
    }
    return nd_cache_folder("runtimes");
}

/* ---- reading it ---- */

/* The first member of a type that it must not have, or NULL. */
static const char *find_wrong_member(const json_t *manifest)
{
    static const char *const texts[] = {"made_by",  "abi",         "onnxruntime",      "onnxruntime_qnn",
                                        "build_id", "ort_library", "provider_library", "backend_library",
                                        "net_run"};
    const json_t *files = json_object_get(manifest, "files"), *digests = json_object_get(manifest, "sha256"),
                 *item;
    const char *path;
    size_t i;
    for (i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        item = json_object_get(manifest, texts[i]);
        if (item != NULL && !json_is_string(item))
            return texts[i];
    }
    if (files != NULL && !json_is_array(files))
        return "files";
    json_array_foreach(files, i, item) {
        if (!json_is_string(item))
            return "files";
    }
    if (digests != NULL && !json_is_object(digests))
        return "sha256";
    json_object_foreach((json_t *)(uintptr_t)digests, path, item) {
        if (!json_is_string(item))
            return "sha256";
    }
    return NULL;
}

/* The object that the bytes hold. NULL: *problem says why not, or memory is out and *problem is NULL. */
static json_t *parse(const void *bytes, size_t n, char **problem)
{
    struct nd_strbuf why = {0};
    json_error_t where;
    json_t *manifest = json_loadb(bytes, n, 0, &where);
    const char *wrong = find_wrong_member(manifest);
    if (manifest == NULL && json_error_code(&where) == json_error_out_of_memory)
        return NULL;
    if (manifest == NULL)
        nd_strbuf_printf(&why, "its manifest " ND_RUNTIME_MANIFEST " is damaged: line %d, %s", where.line,
                         where.text);
    else if (!json_is_object(manifest))
        nd_strbuf_puts(&why, "its manifest " ND_RUNTIME_MANIFEST " is damaged: it is no JSON object");
    else if (wrong != NULL)
        nd_strbuf_printf(&why, "its manifest " ND_RUNTIME_MANIFEST " is damaged: '%s' has a wrong type", wrong);
    else
        return manifest;
    *problem = nd_strbuf_take(&why);
    json_decref(manifest);
    return NULL;
}

/* A path at which there is a manifest. */
static enum nd_status load(const char *path, json_t **out, char **problem, struct nd_error *err)
{
    struct nd_error own = {0};
    void *bytes = NULL;
    size_t n;
    enum nd_status status = nd_file_read(path, MAX_MANIFEST_BYTES, &bytes, &n, &own);
    if (status == ND_OK) {
        *out = parse(bytes, n, problem);
        free(bytes);
        return *out != NULL || *problem != NULL ? ND_OK : nd_fail_memory(err);
    }
    ND_TRY_MEMORY(status != ND_ERR_MEMORY, err);
    if (nd_file_is_unopened(&own) && access(path, R_OK) == 0) {
        if (err != NULL)
            *err = own;
        return own.status;
    }
    *problem = nd_text("its manifest cannot be read: %s", own.message);
    return *problem != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_runtime_manifest_load(const char *folder, json_t **out, char **problem, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(folder, ND_RUNTIME_MANIFEST);
    struct stat link;
    *out = NULL;
    *problem = NULL;
    ND_TRY_MEMORY(path != NULL, err);
    return lstat(path, &link) == 0 ? load(path, out, problem, err) : ND_OK;
}

/* The ABI that the folder's name ends with. */
static const char *abi_of_name(const char *name)
{
    const char *dot = strrchr(name, '.');
    return dot != NULL && nd_abi_is_known(dot + 1) ? dot + 1 : ND_ABI_DEFAULT;
}

/* The id is the folder's name without the ABI behind it. */
static void cut_abi(struct nd_runtime_info *info)
{
    size_t n_id = strlen(info->id), n_abi = strlen(info->abi);
    if (n_id > n_abi + 1 && info->id[n_id - n_abi - 1] == '.' &&
        strcmp(info->id + n_id - n_abi, info->abi) == 0)
        info->id[n_id - n_abi - 1] = '\0';
}

/* Fills what the manifest in info->folder says into info, whose id is the folder's name before. Without a
 * manifest that can be used, or with a library gone, info->missing says so. Errors: as above. */
static enum nd_status nd_runtime_manifest_read(struct nd_runtime_info *info, struct nd_error *err)
{
    json_t *manifest = NULL;
    char *problem = NULL;
    bool gone = false;
    ND_TRY(nd_runtime_manifest_load(info->folder, &manifest, &problem, err));
    if (manifest == NULL) {
        const char *why = nd_path_exists(info->folder) ? "installed only in part" : "not installed";
        bool is_set = set_string(&info->abi, abi_of_name(info->id));
        if (is_set)
            cut_abi(info);
        info->missing = nd_runtime_explain_missing(info->id, problem != NULL ? problem : why);
        free(problem);
        return is_set && info->missing != NULL ? ND_OK : nd_fail_memory(err);
    }
    bool is_whole = read_facts(info, manifest, &gone);
    json_decref(manifest);
    ND_TRY_MEMORY(is_whole, err);
    cut_abi(info);
    if (!gone && (info->ort_library != NULL || info->net_run != NULL))
        return ND_OK;
    info->missing = nd_runtime_explain_missing(info->id, "a library of it is gone");
    return info->missing != NULL ? ND_OK : nd_fail_memory(err);
}

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

/* Adds to a reason of info->missing how tools/setup mends it, for the runtimes that it knows. New memory. */
static char *nd_runtime_explain_missing(const char *id, const char *why)
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
    ND_FREE_ALL(info->id, info->ort_version, info->provider_version, info->folder, info->ort_library,
                info->provider_library, info->backend_library, info->net_run, info->missing, info->abi,
                info->build_id, info->archs);
    ND_FREE_ITEMS(info->files, info->n_files);
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
    ND_CLEANUP(nd_dir_close) DIR *dir = opendir(listing->root);
    const struct dirent *entry;
    if (dir == NULL && access(listing->root, R_OK | X_OK) == 0)
        return nd_fail(err, ND_E_FILE_OPEN, listing->root, "cannot open '%s': %s", listing->root,
                       strerror(errno));
    while (dir != NULL && (entry = readdir(dir)) != NULL) {
        ND_FREED char *name = nd_text("%s/" ND_RUNTIME_MANIFEST, entry->d_name);
        ND_FREED char *manifest = name != NULL ? nd_path_join(listing->root, name) : NULL;
        ND_TRY_MEMORY(manifest != NULL, err);
        if (entry->d_name[0] != '.' && nd_path_exists(manifest))
            ND_TRY(add(listing, entry->d_name, "unknown", "unknown", err));
    }
    return ND_OK;
}

enum nd_status nd_runtimes_list(struct nd_runtime_list *out, struct nd_error *err)
{
    struct listing listing = {.root = nd_runtimes_folder()};
    enum nd_status status = listing.root != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < N_KNOWN; i++)
        status = add(&listing, known[i].id, known[i].ort_version, known[i].provider_version, err);
    if (status == ND_OK)
        status = add_others(&listing, err);
    listing.list.folder = listing.root;
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
    ND_DEINIT_EACH(nd_runtime_info_deinit, list->items, list->n);
    free(list->folder);
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
    ND_FREED char *names = nd_strbuf_take(&others);
    enum nd_status status = ND_ERR_MEMORY;
    if (names == NULL)
        status = nd_fail_memory(err);
    else if (!is_known)
        status = nd_runtime_fail_unknown(list, id, err);
    else
        status = nd_fail(
            err, ND_E_RUNTIME_MISSING, id,
            "runtime '%s' is not installed for %s%s%s; add its libraries with 'npudiff runtimes add WHEEL...'",
            id, abi, names[0] != '\0' ? ", only for " : "", names);
    return status;
}

static enum nd_status fail_none(const char *abi, struct nd_error *err)
{
    ND_FREED char *folder = nd_runtimes_folder();
    if (strcmp(abi, nd_abi_here()) == 0 && strcmp(abi, ND_ABI_DEFAULT) == 0)
        return nd_fail(err, ND_E_RUNTIME_MISSING, NULL,
                       "no runtime is installed in '%s'; install one with 'tools/setup'",
                       folder != NULL ? folder : "?");
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
        return nd_fail(
            err, ND_E_RUNTIME_MISSING, info->id,
            "runtime '%s' (%s) has no qnn-net-run; it comes with a QAIRT SDK ('npudiff runtimes add FOLDER')",
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
