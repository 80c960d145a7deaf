#include <errno.h>
#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "devices/runtimes/runtime_adding.h"
#include "devices/runtimes/runtime_manifest.h"
#include "devices/runtimes/sdk.h"

static const char *const abis[ND_N_ABIS] = {"x86_64-linux", "aarch64-linux", "aarch64-android"};

static void note(struct nd_adding *adding, const char *fmt, ...) ND_PRINTF(2, 3);
static void note(struct nd_adding *adding, const char *fmt, ...)
{
    char text[1024];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    nd_tree_append(adding->notes, nd_json_string(text));
}

/* ---- what is there ---- */

/* Name and version of a wheel: the first "Name:" and "Version:" of its METADATA. */
static enum nd_status read_metadata(struct nd_adding *adding, const struct nd_runtime_source *source,
                                    size_t file, struct nd_error *err)
{
    char *text = NULL, *rest, name[64] = "", version[64] = "";
    enum nd_status status = nd_runtime_source_text(source, file, &text, err);
    if (status != ND_OK)
        return status;
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
    static const char metadata[] = ".dist-info/METADATA";
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct nd_runtime_source *source = &adding->sources[i];
        char hex[ND_SHA256_HEX_BYTES] = "";
        status = nd_runtime_source_open(paths[i], source, err);
        if (status != ND_OK)
            break;
        adding->n_sources++;
        if (source->zip != NULL)
            status = nd_sha256_file(paths[i], hex, err);
        nd_tree_append(adding->origin,
                       json_pack("{s:o, s:s}", "name", nd_json_string(nd_path_base(paths[i])), "sha256", hex));
        for (size_t f = 0; status == ND_OK && f < source->n; f++) {
            size_t length = strlen(source->files[f].name);
            if (length > strlen(metadata) &&
                strcmp(source->files[f].name + length - strlen(metadata), metadata) == 0)
                status = read_metadata(adding, source, f, err);
        }
        if (status == ND_OK)
            status = nd_adding_check(adding, err);
    }
    return status;
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
    enum nd_status status = ND_OK;
    if (backend != NULL)
        status = nd_elf_find_qnn_build(backend->path, &adding->build_id, err);
    if (status != ND_OK)
        return status;
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
    struct nd_runtime_info info;
    enum nd_status status = nd_runtime_find_abi(adding->id, abis[a], &info, err);
    json_int_t bytes = 0;
    if (status != ND_OK)
        return status;
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
    nd_runtime_info_deinit(&info);
    return ND_OK;
}

static enum nd_status choose(struct nd_adding *adding, struct nd_error *err)
{
    size_t n_useful = 0;
    enum nd_status status = nd_parts_find(&adding->parts, err);
    for (size_t a = 0; status == ND_OK && a < ND_N_ABIS; a++) {
        adding->picks[a].abi = abis[a];
        status = nd_pick_choose(&adding->parts, &adding->picks[a], err);
        if (status == ND_OK && has_anything(&adding->picks[a]))
            complete(adding, a);
        n_useful += adding->picks[a].n > 0 && has_anything(&adding->picks[a]);
    }
    if (status == ND_OK && n_useful == 0)
        status = fail_useless(adding, err);
    return status == ND_OK ? name_it(adding, err) : status;
}

static enum nd_status make_all(struct nd_adding *adding, struct nd_error *err)
{
    enum nd_status status = choose(adding, err);
    bool is_chosen[ND_N_ABIS] = {false};
    for (size_t a = 0; status == ND_OK && a < ND_N_ABIS; a++) {
        is_chosen[a] = adding->picks[a].n > 0 && has_anything(&adding->picks[a]);
        if (is_chosen[a])
            status = nd_runtime_store_may_put(&adding->store, adding->id, abis[a], adding->how->replace, err);
    }
    for (size_t a = 0; status == ND_OK && a < ND_N_ABIS; a++) {
        char *folder = is_chosen[a] ? nd_path_join(adding->store.work, abis[a]) : NULL;
        if (is_chosen[a])
            status = folder != NULL ? nd_adding_stage(adding, a, folder, err) : nd_fail_memory(err);
        free(folder);
    }
    for (size_t a = 0; status == ND_OK && a < ND_N_ABIS; a++)
        if (is_chosen[a])
            status = nd_runtime_store_put(&adding->store, adding->id, abis[a], err);
    for (size_t a = 0; status == ND_OK && a < ND_N_ABIS; a++)
        if (is_chosen[a])
            status = report_added(adding, a, err);
    return status;
}

enum nd_status nd_runtimes_add(const char *const *sources, size_t n_sources,
                               const struct nd_runtime_adding *how, char **report, struct nd_error *err)
{
    struct nd_runtime_adding own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, how, err);
    if (status != ND_OK)
        return status;
    how = &own;
    struct nd_adding adding = {
        .how = how, .origin = json_array(), .notes = json_array(), .added = json_array()};
    adding.sources = nd_calloc(n_sources, sizeof *adding.sources);
    status = adding.sources != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && how->id != NULL)
        status = nd_runtime_store_check_id(how->id, err);
    if (status == ND_OK)
        status = open_sources(&adding, sources, n_sources, err);
    if (status == ND_OK)
        status = nd_runtime_store_open(&adding.store, err);
    if (status == ND_OK)
        status = check_space(&adding, err);
    adding.parts = (struct nd_parts){.sources = adding.sources,
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
    for (size_t i = 0; i < adding.n_sources; i++)
        nd_runtime_source_close(&adding.sources[i]);
    free(adding.sources);
    free(adding.provider_version);
    free(adding.build_id);
    free(adding.id);
    json_decref(adding.origin);
    json_decref(adding.notes);
    json_decref(adding.added);
    return status;
}
