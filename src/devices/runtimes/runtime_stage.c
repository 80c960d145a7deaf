#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/files/new_file.h"
#include "core/tensors/sha256.h"
#include "devices/runtimes/runtime_adding.h"
#include "devices/runtimes/runtime_manifest.h"

enum nd_status nd_adding_check(const struct nd_adding *adding, struct nd_error *err)
{
    if (adding->how->is_cancelled != NULL && adding->how->is_cancelled(adding->how->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "stopped on request");
    return ND_OK;
}

/* The place of a part in the runtime's folder: as in its source, so that what libraries find beside them stays
 * there. New memory. */
static char *place_of(const struct nd_part *part)
{
    json_t *is_text = json_string(part->name);
    const char *name = is_text != NULL ? part->name : part->base;
    char *place = nd_strdup(name);
    json_decref(is_text);
    return place;
}

/* Makes the folders that lead to the file. */
static enum nd_status make_parents(const char *path, struct nd_error *err)
{
    char *folder = nd_path_dir(path);
    enum nd_status status = folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    free(folder);
    return status;
}

/* Records a file that lies in the folder: in the manifest's lists. */
static enum nd_status record(json_t *manifest, const char *folder, const char *place, struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    char *path = nd_path_join(folder, place);
    enum nd_status status = path != NULL ? nd_sha256_file(path, hex, err) : nd_fail_memory(err);
    free(path);
    if (status != ND_OK)
        return status;
    nd_tree_append(json_object_get(manifest, "files"), json_string(place));
    nd_tree_set(json_object_get(manifest, "sha256"), place, json_string(hex));
    return ND_OK;
}

static enum nd_status put_part(struct nd_adding *adding, const struct nd_part *part, const char *folder,
                               json_t *manifest, const char *key, struct nd_error *err)
{
    char *place = place_of(part), *path = place != NULL ? nd_path_join(folder, place) : NULL;
    enum nd_status status = path != NULL ? make_parents(path, err) : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(path))
        status = nd_fail(err, ND_E_RUNTIME_SOURCE, place, "two sources have a file '%s'", place);
    if (status == ND_OK && part->is_extracted && link(part->path, path) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    else if (status == ND_OK && !part->is_extracted)
        status = nd_runtime_source_extract(&adding->sources[part->source], part->file, path,
                                           adding->how->is_cancelled, adding->how->cancel_context, err);
    if (status == ND_OK && key != NULL && strcmp(key, "net_run") == 0 && chmod(path, 0755) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot make '%s' executable: %s", path, strerror(errno));
    if (status == ND_OK)
        status = record(manifest, folder, place, err);
    if (status == ND_OK && key != NULL)
        nd_tree_set(manifest, key, json_string(place));
    free(path);
    free(place);
    return status;
}

/* A library of the runtime that --with names, into "with/". */
static enum nd_status put_with(struct nd_adding *adding, const char *library, const char *folder,
                               json_t *manifest, const char *key, struct nd_error *err)
{
    struct nd_runtime_source source = {0};
    char *dir = nd_path_dir(library), *place = nd_path_join("with", nd_path_base(library));
    char *path = place != NULL ? nd_path_join(folder, place) : NULL;
    struct nd_source_file file = {.name = (char *)nd_path_base(library)};
    struct stat info;
    enum nd_status status = dir != NULL && path != NULL ? make_parents(path, err) : nd_fail_memory(err);
    if (status == ND_OK && stat(library, &info) != 0)
        status = nd_fail(err, ND_E_FILE_OPEN, library, "cannot open '%s': %s", library, strerror(errno));
    if (status == ND_OK) {
        file.size_bytes = (uint64_t)info.st_size;
        source = (struct nd_runtime_source){.path = dir, .n = 1, .files = &file};
        status = nd_runtime_source_extract(&source, 0, path, adding->how->is_cancelled,
                                           adding->how->cancel_context, err);
    }
    if (status == ND_OK)
        status = record(manifest, folder, place, err);
    if (status == ND_OK && key != NULL)
        nd_tree_set(manifest, key, json_string(place));
    free(dir);
    free(place);
    free(path);
    return status;
}

static enum nd_status put_borrowed(struct nd_adding *adding, size_t a, const char *folder, json_t *manifest,
                                   struct nd_error *err)
{
    const struct nd_pick *pick = &adding->picks[a];
    const struct nd_runtime_info *with = &adding->with[a];
    enum nd_status status = ND_OK;
    if (pick->ort == NULL && with->ort_library != NULL)
        status = put_with(adding, with->ort_library, folder, manifest, "ort_library", err);
    for (size_t i = 0; status == ND_OK && pick->ort == NULL && i < with->n_files; i++)
        if (strcmp(nd_path_base(with->files[i]), "libonnxruntime_providers_shared.so") == 0)
            status = put_with(adding, with->files[i], folder, manifest, NULL, err);
    if (status == ND_OK && pick->provider == NULL && pick->backend != NULL && with->provider_library != NULL)
        status = put_with(adding, with->provider_library, folder, manifest, "provider_library", err);
    if (status == ND_OK && with->id != NULL)
        nd_tree_set(manifest, "with", json_string(with->id));
    return status;
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
enum nd_status nd_adding_stage(struct nd_adding *adding, size_t a, const char *folder, struct nd_error *err)
{
    const struct nd_pick *pick = &adding->picks[a];
    json_t *manifest =
        json_pack("{s:s, s:s, s:s, s:O, s:[], s:{}}", "id", adding->id, "abi", adding->picks[a].abi, "made_by",
                  ND_RUNTIME_MADE_BY, "origin", adding->origin, "files", "sha256");
    enum nd_status status = manifest != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < pick->n; i++) {
        const struct nd_part *part = pick->files[i];
        const char *key = part == pick->ort        ? "ort_library"
                          : part == pick->provider ? "provider_library"
                          : part == pick->backend  ? "backend_library"
                          : part == pick->net_run  ? "net_run"
                                                   : NULL;
        status = put_part(adding, part, folder, manifest, key, err);
        if (status == ND_OK)
            status = nd_adding_check(adding, err);
    }
    if (status == ND_OK)
        status = put_borrowed(adding, a, folder, manifest, err);
    if (status == ND_OK) {
        set_versions(adding, a, manifest);
        char *path = nd_path_join(folder, ND_RUNTIME_MANIFEST), *text = nd_json_dumps(manifest, JSON_INDENT(2));
        status =
            path != NULL && text != NULL ? nd_file_put(path, text, strlen(text), err) : nd_fail_memory(err);
        free(text);
        free(path);
    }
    json_decref(manifest);
    return status;
}
