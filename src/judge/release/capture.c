/* Which captures are what the campaign asks for (qualify_run.c makes those that are not), by the keys of
 * keyed.h. That of a machine that could not be reached is made again. */
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "judge/release/digest_cache.h"
#include "judge/campaign/keyed.h"
#include "judge/release/qualify.h"

/* Changes when a capture made before can no longer be used, whatever the version says. */
#define KEY_FORMAT "3"

/* ---- what a capture depends on ---- */

static enum nd_status put_file(struct nd_strbuf *key, struct nd_digest_cache *digests, const char *path,
                               struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    enum nd_status status = nd_digest_cache_find(digests, path, hex, err);
    if (status == ND_OK)
        nd_strbuf_printf(key, "file %s %s\n", nd_path_base(path), hex);
    return status;
}

/* All files of a folder by content; a folder that is not there has none. Files that cannot be looked at are an
 * error: without them every capture would seem to be one of a different runtime. */
static enum nd_status put_folder(struct nd_strbuf *key, struct nd_digest_cache *digests, const char *folder,
                                 struct nd_error *err)
{
    struct dirent **entries = NULL;
    enum nd_status status = ND_OK;
    int n = scandir(folder, &entries, NULL, alphasort);
    if (n < 0 && errno != ENOENT && errno != ENOTDIR)
        return nd_fail(err, ND_E_FILE_READ, folder, "cannot list '%s': %s", folder, strerror(errno));
    for (int i = 0; i < n; i++) {
        struct stat info;
        char *path = nd_path_join(folder, entries[i]->d_name);
        if (path == NULL && status == ND_OK)
            status = nd_fail_memory(err);
        if (status == ND_OK && stat(path, &info) == 0 && S_ISREG(info.st_mode))
            status = put_file(key, digests, path, err);
        free(path);
        free(entries[i]);
    }
    free(entries);
    return status;
}

/* A provider loads other libraries than those that are named: those beside its backend, and those that a Python
 * wheel keeps in the folder "<package>.libs" beside that of the package. */
static enum nd_status put_neighbours(struct nd_strbuf *key, struct nd_digest_cache *digests,
                                     const char *library, struct nd_error *err)
{
    struct nd_strbuf wheel = {0};
    char *folder = nd_path_dir(library);
    nd_strbuf_printf(&wheel, "%s.libs", folder != NULL ? folder : "");
    enum nd_status status = folder != NULL && !wheel.failed ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK)
        status = put_folder(key, digests, folder, err);
    if (status == ND_OK)
        status = put_folder(key, digests, wheel.text, err);
    nd_strbuf_deinit(&wheel);
    free(folder);
    return status;
}

/* Which of them another machine takes is seen when it is asked: all that it may be. */
static enum nd_status put_runtimes_elsewhere(struct nd_strbuf *key, struct nd_digest_cache *digests,
                                             const char *id, struct nd_error *err)
{
    struct nd_runtime_list list;
    enum nd_status status = nd_runtimes_list(&list, err);
    if (status != ND_OK)
        return status;
    for (size_t i = 0; i < list.n; i++) {
        const struct nd_runtime_info *info = &list.items[i];
        if (info->missing != NULL || (id[0] != '\0' && strcmp(info->id, id) != 0))
            continue;
        nd_strbuf_printf(key, "elsewhere %s %s %s %s\n", info->id, info->abi, info->ort_version,
                         info->provider_version);
        for (size_t f = 0; status == ND_OK && f < info->n_files; f++)
            if (nd_path_exists(info->files[f]))
                status = put_file(key, digests, info->files[f], err);
    }
    nd_runtimes_deinit(&list);
    return status;
}

static enum nd_status put_runtime(struct nd_strbuf *key, struct nd_digest_cache *digests,
                                  const struct nd_runtime_info *runtime, struct nd_error *err)
{
    if (runtime->ort_library == NULL)
        return put_runtimes_elsewhere(key, digests, runtime->id, err);
    const char *const libraries[] = {runtime->ort_library, runtime->provider_library, runtime->backend_library};
    enum nd_status status = ND_OK;
    nd_strbuf_printf(key, "runtime %s\n", runtime->id);
    for (size_t i = 0; status == ND_OK && i < 3; i++)
        if (libraries[i] != NULL && libraries[i][0] != '\0')
            status = put_file(key, digests, libraries[i], err);
    if (status == ND_OK && runtime->backend_library != NULL)
        status = put_neighbours(key, digests, runtime->backend_library, err);
    return status;
}

/* The same libraries are read once. */
struct runtime_keys {
    struct nd_digest_cache digests;
    size_t n, capacity;
    struct runtime_key {
        const char *id; /* borrowed */
        bool is_elsewhere;
        char *text;
    } * items;
};

static enum nd_status find_runtime_key(struct runtime_keys *keys, const struct nd_runtime_info *runtime,
                                       const char **out, struct nd_error *err)
{
    for (size_t i = 0; i < keys->n; i++)
        if (strcmp(keys->items[i].id, runtime->id) == 0 &&
            keys->items[i].is_elsewhere == (runtime->ort_library == NULL)) {
            *out = keys->items[i].text;
            return ND_OK;
        }
    if (!nd_grow((void **)&keys->items, &keys->capacity, keys->n + 1, sizeof *keys->items))
        return nd_fail_memory(err);
    struct nd_strbuf text = {0};
    enum nd_status status = put_runtime(&text, &keys->digests, runtime, err);
    char *taken = nd_strbuf_take(&text);
    if (status == ND_OK && taken == NULL)
        status = nd_fail_memory(err);
    if (status != ND_OK) {
        free(taken);
        return status;
    }
    keys->items[keys->n++] =
        (struct runtime_key){.id = runtime->id, .is_elsewhere = runtime->ort_library == NULL, .text = taken};
    *out = taken;
    return ND_OK;
}

static void put_probe(struct nd_strbuf *key, const struct nd_probe *probe)
{
    nd_strbuf_printf(key, "probe %s %zu\n", probe->name, probe->n_samples);
    for (size_t i = 0; i < probe->n_inputs; i++) {
        const struct nd_probe_input *input = &probe->inputs[i];
        char shape[256];
        struct nd_digest digest = nd_digest_bytes(input->data, input->sample_bytes * probe->n_samples);
        nd_strbuf_printf(key, "input %s %s %s %016llx%016llx\n", input->name, nd_dtype_name(input->dtype),
                         nd_shape_format(&input->shape, shape, sizeof shape), (unsigned long long)digest.high,
                         (unsigned long long)digest.low);
    }
    if (probe->labels != NULL) {
        struct nd_digest digest = nd_digest_bytes(probe->labels, probe->n_samples * sizeof *probe->labels);
        nd_strbuf_printf(key, "labels %016llx%016llx\n", (unsigned long long)digest.high,
                         (unsigned long long)digest.low);
    }
}

static enum nd_status make_key(const struct nd_qualification *q, const struct nd_qualify_model *model,
                               struct nd_qualify_cell *cell, const char *probes, struct runtime_keys *runtimes,
                               struct nd_error *err)
{
    struct nd_strbuf key = {0};
    const char *runtime = NULL;
    enum nd_status status = find_runtime_key(runtimes, &cell->device.runtime, &runtime, err);
    if (status != ND_OK)
        return status;
    nd_strbuf_printf(&key, "npudiff %s " KEY_FORMAT "\nmodel %s\ndevice %s\noptimisation %s\nthreads %d\n",
                     nd_version(), nd_model_sha256(cell->model), cell->device.uri,
                     cell->device.optimisation != NULL ? cell->device.optimisation : "",
                     cell->device.n_threads);
    for (size_t i = 0; i < model->campaign->dims.n; i++)
        nd_strbuf_printf(&key, "dim %s\n", model->campaign->dims.items[i]);
    nd_strbuf_printf(&key, "edges %s\nrepeats %zu\nfallback %d\n%s%s", cell->edges, q->campaign.n_repeats,
                     cell->allow_fallback, probes, runtime);
    size_t n_bytes = key.len;
    char *text = nd_strbuf_take(&key);
    if (text == NULL)
        return nd_fail_memory(err);
    nd_sha256_bytes(text, n_bytes, cell->key);
    free(text);
    return ND_OK;
}

/* ---- what is there ---- */

static enum nd_status look(struct nd_qualify_cell *cell, struct nd_keyed *found, struct nd_error *err)
{
    enum nd_status status = nd_keyed_look(cell->path, cell->key, found, err);
    memcpy(cell->sha256, found->sha256, sizeof found->sha256);
    return status;
}

enum nd_status nd_qualify_look(const struct nd_qualification *q, struct nd_qualify_cell *cell,
                               struct nd_error *err)
{
    struct nd_keyed found = {0};
    enum nd_status status = q->options->force ? ND_OK : look(cell, &found, err);
    cell->is_fresh = found.is_final;
    return status;
}

enum nd_status nd_qualify_find_usable(struct nd_qualify_cell *cell, struct nd_error *err)
{
    struct nd_keyed found;
    enum nd_status status = look(cell, &found, err);
    cell->is_fresh = found.is_final;
    if (status == ND_OK && !found.is_current)
        status =
            nd_fail(err, ND_E_QUALIFY_NEEDS, cell->path,
                    "'%s' is not there, or not what the campaign asks for; its task comes first", cell->path);
    return status;
}

/* Captures do not depend on target tensors, but the result does. */
static void put_goals(struct nd_strbuf *key, const struct nd_probe *probe)
{
    for (size_t i = 0; i < probe->n_goals; i++) {
        const struct nd_probe_goal *goal = &probe->goals[i];
        struct nd_digest digest =
            nd_digest_bytes(goal->values, goal->n_samples * goal->n_elems * sizeof *goal->values);
        nd_strbuf_printf(key, "target %s %s %016llx%016llx\n", probe->name, goal->output,
                         (unsigned long long)digest.high, (unsigned long long)digest.low);
    }
}

void nd_qualify_make_key(struct nd_qualification *q)
{
    struct nd_strbuf key = {0};
    nd_strbuf_printf(&key, "npudiff %s " KEY_FORMAT "\ncampaign %s %s\n", nd_version(), q->campaign.name,
                     q->campaign.sha256);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            nd_strbuf_printf(&key, "%s %s %s\n", q->models[m].cells[c].relative, q->models[m].cells[c].key,
                             q->models[m].cells[c].sha256);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t p = 0; p < q->models[m].n_probes; p++)
            put_goals(&key, q->models[m].probes[p]);
    for (size_t r = 0; r < q->campaign.policy.n; r++)
        nd_strbuf_printf(&key, "%d\n", nd_policy_has_expired(&q->campaign.policy.rules[r], q->today));
    size_t n_bytes = key.len;
    char *text = nd_strbuf_take(&key);
    q->key[0] = '\0'; /* without memory nothing is found again: harmless */
    if (text != NULL)
        nd_sha256_bytes(text, n_bytes, q->key);
    free(text);
}

enum nd_status nd_qualify_make_keys(struct nd_qualification *q, struct nd_error *err)
{
    struct runtime_keys runtimes = {0};
    char *cache = nd_path_join(q->folder, ".digests");
    enum nd_status status =
        cache != NULL ? nd_digest_cache_open(cache, &runtimes.digests, err) : nd_fail_memory(err);
    free(cache);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++) {
        struct nd_qualify_model *model = &q->models[m];
        struct nd_strbuf buf = {0};
        for (size_t p = 0; p < model->n_probes; p++)
            put_probe(&buf, model->probes[p]);
        char *probes = nd_strbuf_take(&buf);
        if (probes == NULL)
            status = nd_fail_memory(err);
        for (size_t c = 0; status == ND_OK && c < model->n_cells; c++) {
            struct nd_qualify_cell *cell = &model->cells[c];
            status = make_key(q, model, cell, probes, &runtimes, err);
        }
        free(probes);
    }
    for (size_t i = 0; i < runtimes.n; i++)
        free(runtimes.items[i].text);
    free(runtimes.items);
    nd_digest_cache_close(&runtimes.digests);
    return status;
}

enum nd_status nd_qualify_check_fresh(struct nd_qualification *q, struct nd_error *err)
{
    enum nd_status status = nd_qualify_make_keys(q, err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        for (size_t c = 0; status == ND_OK && c < q->models[m].n_cells; c++)
            status = nd_qualify_look(q, &q->models[m].cells[c], err);
    return status;
}

enum nd_status nd_qualify_write_key(struct nd_qualify_cell *cell, bool is_final, struct nd_error *err)
{
    enum nd_status status = nd_sha256_file(cell->path, cell->sha256, err);
    return status == ND_OK ? nd_keyed_write(cell->path, cell->key, cell->sha256, is_final, err) : status;
}

/* ---- opening ---- */

static enum nd_status note_failure(struct nd_qualify_cell *cell, struct nd_error *err)
{
    if (nd_capture_state(cell->capture) == ND_CAPTURE_COMPLETE)
        return ND_OK;
    const char *stage = nd_capture_string(cell->capture, "failure", "stage");
    const char *message = nd_capture_string(cell->capture, "failure", "message");
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s%s", stage != NULL ? stage : "", stage != NULL ? ": " : "",
                     message != NULL ? message : "the capture is not complete");
    cell->failure = nd_strbuf_take(&text);
    return cell->failure != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_qualify_open(struct nd_qualification *q, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        for (size_t c = 0; status == ND_OK && c < q->models[m].n_cells; c++) {
            struct nd_qualify_cell *cell = &q->models[m].cells[c];
            status = nd_capture_open(cell->path, &cell->capture, err);
            if (status == ND_OK)
                status = note_failure(cell, err);
            if (status == ND_OK)
                status = nd_qualify_note_fallback(q, &q->models[m], cell, err);
        }
    return status;
}
