#include "devices/runtimes/runtime_manifest.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/text/strbuf.h"

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

json_t *nd_runtime_words(const char *text)
{
    json_t *words = json_array();
    while (text != NULL && *text != '\0') {
        size_t n = strcspn(text, " ");
        nd_tree_append(words, json_stringn(text, n));
        text += n + (text[n] == ' ');
    }
    return words;
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
    if (strncmp(at, what, strlen(what)) != 0 || strcmp(at + strlen(what), ".so") != 0)
        return 0;
    return arch;
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
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return nd_runtime_arch_of(name, "Stub") > 0 || nd_runtime_arch_of(name, "Skel") > 0 ||
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
    if (dir != NULL)
        closedir(dir);
    return is_whole;
}

/* The libraries beside `library`, and those that its wheel brought for it in "<folder>.libs". */
static bool add_beside(struct nd_runtime_info *info, size_t *capacity, const char *library)
{
    if (library == NULL)
        return true;
    struct nd_strbuf name = {0};
    char *folder = nd_path_dir(library);
    if (folder != NULL)
        nd_strbuf_printf(&name, "%s.libs", folder);
    char *libs = nd_strbuf_take(&name);
    bool is_whole = folder != NULL && libs != NULL && add_file(info, capacity, nd_strdup(library)) &&
                    add_folder(info, capacity, folder, false) && add_folder(info, capacity, libs, true);
    free(libs);
    free(folder);
    return is_whole;
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
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
        qsort(info->files, info->n_files, sizeof *info->files, by_text);
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

/* The library that the manifest calls `key`, as a full path; *gone is set when it names one that does not
 * exist. */
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
    json_array_foreach(files, i, item)
    {
        if (!json_is_string(item))
            return "files";
    }
    if (digests != NULL && !json_is_object(digests))
        return "sha256";
    json_object_foreach((json_t *)(uintptr_t)digests, path, item)
    {
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
    struct nd_strbuf why = {0};
    void *bytes = NULL;
    size_t n;
    enum nd_status status = nd_file_read(path, MAX_MANIFEST_BYTES, &bytes, &n, &own);
    if (status == ND_OK) {
        *out = parse(bytes, n, problem);
        free(bytes);
        return *out != NULL || *problem != NULL ? ND_OK : nd_fail_memory(err);
    }
    if (status == ND_ERR_MEMORY)
        return nd_fail_memory(err);
    if (nd_file_is_unopened(&own) && access(path, R_OK) == 0) {
        if (err != NULL)
            *err = own;
        return own.status;
    }
    nd_strbuf_printf(&why, "its manifest cannot be read: %s", own.message);
    *problem = nd_strbuf_take(&why);
    return *problem != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_runtime_manifest_load(const char *folder, json_t **out, char **problem, struct nd_error *err)
{
    char *path = nd_path_join(folder, ND_RUNTIME_MANIFEST);
    struct stat link;
    *out = NULL;
    *problem = NULL;
    if (path == NULL)
        return nd_fail_memory(err);
    enum nd_status status = lstat(path, &link) == 0 ? load(path, out, problem, err) : ND_OK;
    free(path);
    return status;
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

enum nd_status nd_runtime_manifest_read(struct nd_runtime_info *info, struct nd_error *err)
{
    json_t *manifest = NULL;
    char *problem = NULL;
    bool gone = false;
    enum nd_status status = nd_runtime_manifest_load(info->folder, &manifest, &problem, err);
    if (status != ND_OK)
        return status;
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
    if (!is_whole)
        return nd_fail_memory(err);
    cut_abi(info);
    if (!gone && (info->ort_library != NULL || info->net_run != NULL))
        return ND_OK;
    info->missing = nd_runtime_explain_missing(info->id, "a library of it is gone");
    return info->missing != NULL ? ND_OK : nd_fail_memory(err);
}
