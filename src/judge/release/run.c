/* Making the captures that are missing. */
#include "judge/release/qualify.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "judge/tasks/task.h"

enum {
    MAX_CACHE_BYTES = 1 << 22,
    KEPT_BYTES = 1 << 20, /* of entries that nobody asked for now: chosen; thousands of files */
    SETTLE_S = 2,         /* chosen: the coarsest time stamps in use (FAT) step by 2 s */
};

static bool add(struct nd_digest_cache *cache, const char *key, const char *sha256, bool is_used)
{
    if (!nd_grow((void **)&cache->items, &cache->capacity, cache->n + 1, sizeof *cache->items))
        return false;
    struct nd_cached_digest *item = &cache->items[cache->n];
    *item = (struct nd_cached_digest){.key = nd_strdup(key), .is_used = is_used};
    if (item->key == NULL)
        return false;
    memcpy(item->sha256, sha256, ND_SHA256_HEX_BYTES - 1);
    cache->n++;
    return true;
}

static bool is_digest(const char *text)
{
    return strspn(text, "0123456789abcdef") == ND_SHA256_HEX_BYTES - 1;
}

/* One line for each file: 64 digits, a space, the key. Other lines are skipped. */
static bool parse(struct nd_digest_cache *cache, char *text)
{
    char *rest = text, *line;
    while ((line = strsep(&rest, "\n")) != NULL) {
        if (strlen(line) <= ND_SHA256_HEX_BYTES || line[ND_SHA256_HEX_BYTES - 1] != ' ')
            continue;
        line[ND_SHA256_HEX_BYTES - 1] = '\0';
        if (is_digest(line) && !add(cache, line + ND_SHA256_HEX_BYTES, line, false))
            return false;
    }
    return true;
}

enum nd_status nd_digest_cache_open(const char *path, struct nd_digest_cache *out, struct nd_error *err)
{
    struct nd_digest_cache cache = {.path = nd_strdup(path)};
    void *bytes = NULL;
    size_t n;
    bool is_whole = cache.path != NULL;
    if (is_whole && nd_path_exists(path) && nd_file_read(path, MAX_CACHE_BYTES, &bytes, &n, NULL) == ND_OK) {
        char *text = strndup(bytes, n);
        is_whole = text != NULL && parse(&cache, text);
        free(text);
    }
    free(bytes);
    if (!is_whole) {
        cache.has_changed = false;
        nd_digest_cache_close(&cache);
        return nd_fail_memory(err);
    }
    *out = cache;
    return ND_OK;
}

/* NULL when memory is out. */
static char *make_key(const char *file, const struct stat *info)
{
    return nd_text("%llu %llu %lld %lld.%09ld %lld.%09ld %s", (unsigned long long)info->st_dev,
                   (unsigned long long)info->st_ino, (long long)info->st_size, (long long)info->st_mtim.tv_sec,
                   info->st_mtim.tv_nsec, (long long)info->st_ctim.tv_sec, info->st_ctim.tv_nsec, file);
}

/* Whether a later change would show in the times. A clock that was set back says nothing. */
static bool has_settled(const struct stat *info)
{
    struct timespec now;
    return clock_gettime(CLOCK_REALTIME, &now) == 0 && info->st_ctim.tv_sec + SETTLE_S < now.tv_sec &&
           info->st_mtim.tv_sec + SETTLE_S < now.tv_sec;
}

enum nd_status nd_digest_cache_find(struct nd_digest_cache *cache, const char *file,
                                    char hex[static ND_SHA256_HEX_BYTES], struct nd_error *err)
{
    struct stat info;
    if (stat(file, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, file, "cannot open '%s': %s", file, strerror(errno));
    ND_FREED char *key = make_key(file, &info);
    ND_TRY_MEMORY(key != NULL, err);
    for (size_t i = 0; i < cache->n; i++)
        if (strcmp(cache->items[i].key, key) == 0) {
            cache->items[i].is_used = true;
            memcpy(hex, cache->items[i].sha256, ND_SHA256_HEX_BYTES);
            return ND_OK;
        }
    bool can_be_kept = has_settled(&info) && strchr(file, '\n') == NULL;
    enum nd_status status = nd_sha256_file(file, hex, err);
    cache->n_read += status == ND_OK;
    if (status == ND_OK && can_be_kept) {
        status = add(cache, key, hex, true) ? ND_OK : nd_fail_memory(err);
        cache->has_changed = true;
    }
    return status;
}

static void put_items(struct nd_strbuf *text, const struct nd_digest_cache *cache, bool are_used,
                      size_t max_bytes)
{
    for (size_t i = 0; i < cache->n && text->len < max_bytes; i++)
        if (cache->items[i].is_used == are_used)
            nd_strbuf_printf(text, "%s %s\n", cache->items[i].sha256, cache->items[i].key);
}

void nd_digest_cache_close(struct nd_digest_cache *cache)
{
    if (cache->has_changed) {
        /* Those that were asked for first. Of the others as many as fit: several machines may share the folder,
         * each with files of its own, and each task of a campaign asks for a few only. */
        ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
        put_items(&text, cache, true, SIZE_MAX);
        put_items(&text, cache, false, KEPT_BYTES);
        if (!text.failed && text.len <= MAX_CACHE_BYTES)
            nd_file_put(cache->path, text.text != NULL ? text.text : "", text.len, NULL);
    }
    for (size_t i = 0; i < cache->n; i++)
        free(cache->items[i].key);
    ND_FREE_ALL(cache->items, cache->path);
    *cache = (struct nd_digest_cache){0};
}

/* Which captures are what the campaign asks for (nd_qualify_capture makes those that are not), by the keys of
 * keyed.h. That of a machine that could not be reached is made again. */

/* Changes when a capture made before can no longer be used, whatever the version says. */
#define KEY_FORMAT "3"

/* ---- what a capture depends on ---- */

static enum nd_status put_file(struct nd_strbuf *key, struct nd_digest_cache *digests, const char *path,
                               struct nd_error *err)
{
    char hex[ND_SHA256_HEX_BYTES];
    ND_TRY(nd_digest_cache_find(digests, path, hex, err));
    nd_strbuf_printf(key, "file %s %s\n", nd_path_base(path), hex);
    return ND_OK;
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
        ND_FREE_ALL(path, entries[i]);
    }
    free(entries);
    return status;
}

/* A provider loads other libraries than those that are named: those beside its backend, and those that a Python
 * wheel keeps in the folder "<package>.libs" beside that of the package. */
static enum nd_status put_neighbours(struct nd_strbuf *key, struct nd_digest_cache *digests,
                                     const char *library, struct nd_error *err)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf wheel = {0};
    ND_FREED char *folder = nd_path_dir(library);
    nd_strbuf_printf(&wheel, "%s.libs", folder != NULL ? folder : "");
    ND_TRY_MEMORY(folder != NULL && !wheel.failed, err);
    ND_TRY(put_folder(key, digests, folder, err));
    return put_folder(key, digests, wheel.text, err);
}

/* Which of them another machine takes is seen when it is asked: all that it may be. */
static enum nd_status put_runtimes_elsewhere(struct nd_strbuf *key, struct nd_digest_cache *digests,
                                             const char *id, struct nd_error *err)
{
    ND_CLEANUP(nd_runtimes_deinit) struct nd_runtime_list list = {0};
    ND_TRY(nd_runtimes_list(&list, err));
    for (size_t i = 0; i < list.n; i++) {
        const struct nd_runtime_info *info = &list.items[i];
        if (info->missing != NULL || (id[0] != '\0' && strcmp(info->id, id) != 0))
            continue;
        nd_strbuf_printf(key, "elsewhere %s %s %s %s\n", info->id, info->abi, info->ort_version,
                         info->provider_version);
        for (size_t f = 0; f < info->n_files; f++)
            if (nd_path_exists(info->files[f]))
                ND_TRY(put_file(key, digests, info->files[f], err));
    }
    return ND_OK;
}

static enum nd_status put_runtime(struct nd_strbuf *key, struct nd_digest_cache *digests,
                                  const struct nd_runtime_info *runtime, struct nd_error *err)
{
    if (runtime->ort_library == NULL)
        return put_runtimes_elsewhere(key, digests, runtime->id, err);
    const char *const libraries[] = {runtime->ort_library, runtime->provider_library, runtime->backend_library};
    nd_strbuf_printf(key, "runtime %s\n", runtime->id);
    for (size_t i = 0; i < 3; i++)
        if (libraries[i] != NULL && libraries[i][0] != '\0')
            ND_TRY(put_file(key, digests, libraries[i], err));
    if (runtime->backend_library != NULL)
        ND_TRY(put_neighbours(key, digests, runtime->backend_library, err));
    return ND_OK;
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
    ND_TRY_MEMORY(nd_grow((void **)&keys->items, &keys->capacity, keys->n + 1, sizeof *keys->items), err);
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    ND_TRY(put_runtime(&text, &keys->digests, runtime, err));
    char *taken = nd_strbuf_take(&text);
    ND_TRY_MEMORY(taken != NULL, err);
    keys->items[keys->n++] =
        (struct runtime_key){.id = runtime->id, .is_elsewhere = runtime->ort_library == NULL, .text = taken};
    *out = taken;
    return ND_OK;
}

static enum nd_status make_key_of_capture(const struct nd_qualification *q,
                                          const struct nd_qualify_model *model, struct nd_qualify_cell *cell,
                                          const char *probes, struct runtime_keys *runtimes,
                                          struct nd_error *err)
{
    struct nd_strbuf key = {0};
    const char *runtime = NULL;
    ND_TRY(find_runtime_key(runtimes, &cell->device.runtime, &runtime, err));
    nd_strbuf_printf(&key, "npudiff %s " KEY_FORMAT "\nmodel %s\ndevice %s\noptimisation %s\nthreads %d\n",
                     nd_version(), nd_model_sha256(cell->model), cell->device.uri,
                     cell->device.optimisation != NULL ? cell->device.optimisation : "",
                     cell->device.n_threads);
    for (size_t i = 0; i < model->campaign->dims.n; i++)
        nd_strbuf_printf(&key, "dim %s\n", model->campaign->dims.items[i]);
    nd_strbuf_printf(&key, "edges %s\nrepeats %zu\nfallback %d\n%s%s", cell->tensors, q->campaign.n_repeats,
                     cell->allow_fallback, probes, runtime);
    size_t n_bytes = key.len;
    ND_FREED char *text = nd_strbuf_take(&key);
    ND_TRY_MEMORY(text != NULL, err);
    nd_sha256_bytes(text, n_bytes, cell->key);
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
        for (size_t p = 0; p < q->models[m].n_probes; p++) {
            /* Captures do not depend on target tensors, but the result does. */
            const struct nd_probe *probe = q->models[m].probes[p];
            for (size_t i = 0; i < probe->n_goals; i++) {
                const struct nd_probe_goal *goal = &probe->goals[i];
                struct nd_digest digest =
                    nd_digest_bytes(goal->values, goal->n_samples * goal->n_elems * sizeof *goal->values);
                nd_strbuf_printf(&key, "target %s %s %016llx%016llx\n", probe->name, goal->output,
                                 (unsigned long long)digest.high, (unsigned long long)digest.low);
            }
        }
    for (size_t r = 0; r < q->campaign.policy.n; r++)
        nd_strbuf_printf(&key, "%d\n", nd_policy_has_expired(&q->campaign.policy.rules[r], q->today));
    size_t n_bytes = key.len;
    ND_FREED char *text = nd_strbuf_take(&key);
    q->key[0] = '\0'; /* without memory nothing is found again: harmless */
    if (text != NULL)
        nd_sha256_bytes(text, n_bytes, q->key);
}

static void deinit_runtimes(struct runtime_keys *runtimes)
{
    ND_FREE_EACH(runtimes->items, runtimes->n, .text);
    nd_digest_cache_close(&runtimes->digests);
}

enum nd_status nd_qualify_make_keys(struct nd_qualification *q, struct nd_error *err)
{
    ND_CLEANUP(deinit_runtimes) struct runtime_keys runtimes = {0};
    ND_FREED char *cache = nd_path_join(q->folder, ".digests");
    ND_TRY(cache != NULL ? nd_digest_cache_open(cache, &runtimes.digests, err) : nd_fail_memory(err));
    for (size_t m = 0; m < q->campaign.n_models; m++) {
        struct nd_qualify_model *model = &q->models[m];
        struct nd_strbuf buf = {0};
        for (size_t p = 0; p < model->n_probes; p++) {
            const struct nd_probe *probe = model->probes[p];
            nd_strbuf_printf(&buf, "probe %s %zu\n", probe->name, probe->n_samples);
            for (size_t i = 0; i < probe->n_inputs; i++) {
                const struct nd_probe_input *input = &probe->inputs[i];
                char shape[256];
                struct nd_digest digest = nd_digest_bytes(input->data, input->sample_bytes * probe->n_samples);
                nd_strbuf_printf(&buf, "input %s %s %s %016llx%016llx\n", input->name,
                                 nd_dtype_name(input->dtype),
                                 nd_shape_format(&input->shape, shape, sizeof shape),
                                 (unsigned long long)digest.high, (unsigned long long)digest.low);
            }
            if (probe->labels != NULL) {
                struct nd_digest digest =
                    nd_digest_bytes(probe->labels, probe->n_samples * sizeof *probe->labels);
                nd_strbuf_printf(&buf, "labels %016llx%016llx\n", (unsigned long long)digest.high,
                                 (unsigned long long)digest.low);
            }
        }
        ND_FREED char *probes = nd_strbuf_take(&buf);
        ND_TRY_MEMORY(probes != NULL, err);
        for (size_t c = 0; c < model->n_cells; c++)
            ND_TRY(make_key_of_capture(q, model, &model->cells[c], probes, &runtimes, err));
    }
    return ND_OK;
}

enum nd_status nd_qualify_check_fresh(struct nd_qualification *q, struct nd_error *err)
{
    ND_TRY(nd_qualify_make_keys(q, err));
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            ND_TRY(nd_qualify_look(q, &q->models[m].cells[c], err));
    return ND_OK;
}

/* Writes beside a capture what it is, and fills cell->sha256. Not is_final: it is captured again the next time.
 */
static enum nd_status nd_qualify_write_key(struct nd_qualify_cell *cell, bool is_final, struct nd_error *err)
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
    cell->failure = nd_text("%s%s%s", stage != NULL ? stage : "", stage != NULL ? ": " : "",
                            message != NULL ? message : "the capture is not complete");
    return cell->failure != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_qualify_open(struct nd_qualification *q, struct nd_error *err)
{
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++) {
            struct nd_qualify_cell *cell = &q->models[m].cells[c];
            ND_TRY(nd_capture_open(cell->path, &cell->capture, err));
            ND_TRY(note_failure(cell, err));
            ND_TRY(nd_qualify_note_fallback(q, &q->models[m], cell, err));
        }
    return ND_OK;
}

struct work {
    struct nd_qualification *q;
    pthread_mutex_t lock; /* of what is said */
    size_t n;
    struct task {
        const struct nd_qualify_model *model;
        struct nd_qualify_cell *cell;
        struct work *work;
    } * tasks;
    const struct nd_device **devices; /* [n], of the tasks */
};

static void say(struct work *work, const char *fmt, ...) ND_PRINTF(2, 3);

static void say(struct work *work, const char *fmt, ...)
{
    char text[1024];
    const struct nd_qualify_options *options = work->q->options;
    if (options->say == NULL)
        return;
    ND_PRINT_ARGUMENTS(text, fmt);
    pthread_mutex_lock(&work->lock);
    options->say(options->say_context, text);
    pthread_mutex_unlock(&work->lock);
}

static void tell_progress(const struct task *task, const struct nd_capture_progress *state)
{
    char label[256];
    const struct work *work = task->work;
    const struct nd_qualify_options *options = work->q->options;
    bool has_models = work->q->campaign.n_models > 1,
         is_run = state != NULL && strcmp(state->stage, "run") == 0;
    if (options->progress == NULL)
        return;
    snprintf(label, sizeof label, "%s%s%s", has_models ? task->model->campaign->name : "",
             has_models ? " on " : "", task->cell->label);
    options->progress(options->progress_context,
                      &(struct nd_qualify_progress){.index = (size_t)(task - work->tasks),
                                                    .n = work->n,
                                                    .label = label,
                                                    .stage = state != NULL ? state->stage : "",
                                                    .done = is_run ? state->samples_done : 0,
                                                    .total = is_run ? state->samples_total : 0,
                                                    .is_done = state == NULL});
}

static void show_capture(void *context, const struct nd_capture_progress *state)
{
    tell_progress(context, state);
}

static enum nd_status run_task(void *context, size_t i, struct nd_error *err)
{
    struct work *work = context;
    const struct task *task = &work->tasks[i];
    struct nd_qualify_cell *cell = task->cell;
    const struct nd_qualify_model *model = task->model;
    bool is_elsewhere = cell->device.transport != ND_TRANSPORT_NONE;
    const struct nd_qualify_options *asked = work->q->options;
    struct nd_capture_options options;
    struct nd_capture_outcome outcome = {0};
    nd_capture_options_init(&options);
    options.tensors = cell->tensors;
    options.n_repeats = work->q->campaign.n_repeats;
    options.allow_fallback = cell->allow_fallback;
    options.replace = true;
    /* qnn-net-run starts over. */
    options.resume = is_elsewhere && cell->device.method == ND_REMOTE_AGENT && !asked->force;
    options.is_cancelled = asked->is_cancelled;
    options.cancel_context = asked->cancel_context;
    options.progress = show_capture;
    options.progress_context = &work->tasks[i];
    uint64_t since = nd_clock_ns();
    say(work, "capturing '%s' on %s", model->campaign->name, cell->label);
    const struct nd_workload workload = {cell->model, &cell->device, cell->probes, model->n_probes};
    enum nd_status status = nd_capture_run(&workload, cell->path, &options, &outcome, err);
    tell_progress(task, NULL);
    /* A phone that was not there may be there the next time: that is asked again. */
    if (status == ND_OK)
        status = nd_qualify_write_key(cell, !is_elsewhere || !outcome.has_failed, err);
    if (status == ND_OK && !outcome.has_failed) {
        /* For a capture of a cell that began at nd_clock_ns() == since. */
        const struct nd_qualification *q = work->q;
        const struct nd_task_place place = {ND_TASK_CAPTURE, (size_t)(model - q->models),
                                            (size_t)(cell - model->cells), 0};
        struct nd_task_size size;
        nd_task_measure(q, &place, &size);
        struct nd_took took = {
            .kind = ND_TASK_CAPTURE, .n_runs = size.n_runs, .seconds = (double)(nd_clock_ns() - since) / 1e9};
        snprintf(took.model, sizeof took.model, "%s", size.model);
        snprintf(took.device, sizeof took.device, "%s", size.device);
        snprintf(took.uri, sizeof took.uri, "%s", size.uri);
        nd_took_write(cell->path, &took);
    }
    if (status == ND_OK)
        say(work, "captured '%s' on %s%s%s", model->campaign->name, cell->label,
            outcome.has_failed ? ": failed: " : "", outcome.has_failed ? outcome.failure.message : "");
    else
        nd_error_context(err, "model '%s' on %s", model->campaign->name, cell->label);
    return status;
}

static enum nd_status make_folders(const struct nd_qualification *q, struct nd_error *err)
{
    for (size_t m = 0; m < q->campaign.n_models; m++) {
        ND_FREED char *folder = nd_path_dir(q->models[m].cells[0].path);
        ND_TRY(folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err));
    }
    return ND_OK;
}

/* The cells that are not fresh. */
static enum nd_status collect(struct work *work, struct nd_error *err)
{
    size_t n_cells = 0;
    for (size_t m = 0; m < work->q->campaign.n_models; m++)
        n_cells += work->q->models[m].n_cells;
    work->tasks = nd_calloc(n_cells, sizeof *work->tasks);
    work->devices = nd_calloc(n_cells, sizeof *work->devices);
    ND_TRY_MEMORY(work->tasks != NULL && work->devices != NULL, err);
    for (size_t m = 0; m < work->q->campaign.n_models; m++)
        for (size_t c = 0; c < work->q->models[m].n_cells; c++) {
            struct nd_qualify_cell *cell = &work->q->models[m].cells[c];
            if (cell->is_fresh)
                continue;
            work->devices[work->n] = &cell->device;
            work->tasks[work->n++] = (struct task){.model = &work->q->models[m], .cell = cell, .work = work};
        }
    return ND_OK;
}

enum nd_status nd_qualify_capture(struct nd_qualification *q, struct nd_error *err)
{
    struct work work = {.q = q, .lock = PTHREAD_MUTEX_INITIALIZER};
    enum nd_status status = collect(&work, err);
    if (status == ND_OK)
        status = make_folders(q, err);
    if (status == ND_OK)
        status = nd_devices_run(work.devices, work.n, q->options->n_jobs, run_task, &work, err);
    pthread_mutex_destroy(&work.lock);
    ND_FREE_ALL(work.devices, work.tasks);
    q->n_captured = work.n;
    return status;
}
