/* The tasks of a campaign: which there are, what they will take, and doing one. docs/reference/campaign.md. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <time.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "judge/tasks/task.h"

/* ---- the list ---- */

/* Takes over `file`, NULL when memory was out. There is room. */
static enum nd_status add(struct nd_task_places *places, const struct nd_task_place *place, char *file,
                          struct nd_error *err)
{
    ND_TRY_MEMORY(file != NULL, err);
    places->files[places->n] = file;
    places->items[places->n++] = *place;
    return ND_OK;
}

static enum nd_status add_comparisons(struct nd_qualification *q, size_t m, struct nd_task_places *places,
                                      struct nd_error *err)
{
    const struct nd_qualify_model *model = &q->models[m];
    for (size_t i = 0; i < model->n_comparisons; i++)
        ND_TRY(add(places, &(struct nd_task_place){ND_TASK_COMPARE, m, model->comparisons[i].ref, 0},
                   nd_qualify_comparison_file(model, model->comparisons[i].ref), err));
    return ND_OK;
}

/* The parts before the explanation that they become. */
static enum nd_status add_explanation(const struct nd_qualification *q, size_t m, struct nd_task_places *places,
                                      struct nd_error *err)
{
    size_t n_parts = nd_qualify_explain_parts(q);
    for (size_t part = 0; n_parts > 1 && part < n_parts; part++)
        ND_TRY(add(places, &(struct nd_task_place){ND_TASK_EXPLAIN_PART, m, SIZE_MAX, part},
                   nd_qualify_explanation_part_file(&q->models[m], part, n_parts), err));
    return add(places, &(struct nd_task_place){ND_TASK_EXPLAIN, m, SIZE_MAX, 0},
               nd_qualify_explanation_file(&q->models[m]), err);
}

static void nd_task_places_deinit(struct nd_task_places *places)
{
    for (size_t i = 0; i < places->n; i++)
        free(places->files[i]);
    ND_FREE_ALL(places->files, places->items);
    *places = (struct nd_task_places){0};
}

static enum nd_status nd_task_places_list(struct nd_qualification *q, struct nd_task_places *out,
                                          struct nd_error *err)
{
    ND_CLEANUP(nd_task_places_deinit) struct nd_task_places places = {0};
    size_t n = 1;
    for (size_t m = 0; m < q->campaign.n_models; m++) {
        ND_TRY(nd_qualify_list_comparisons(q, &q->models[m], err));
        n += q->models[m].n_cells + q->models[m].n_comparisons + nd_qualify_explain_parts(q) + 1;
    }
    places.items = nd_calloc(n, sizeof *places.items);
    places.files = nd_calloc(n, sizeof *places.files);
    ND_TRY_MEMORY(places.items != NULL && places.files != NULL, err);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            ND_TRY(add(&places, &(struct nd_task_place){ND_TASK_CAPTURE, m, c, 0},
                       nd_strdup(q->models[m].cells[c].relative), err));
    for (size_t m = 0; m < q->campaign.n_models; m++)
        ND_TRY(add_comparisons(q, m, &places, err));
    for (size_t m = 0; q->campaign.explain && m < q->campaign.n_models; m++)
        ND_TRY(add_explanation(q, m, &places, err));
    ND_TRY(add(&places, &(struct nd_task_place){ND_TASK_JUDGE, SIZE_MAX, SIZE_MAX, 0},
               nd_strdup(ND_TASK_RESULT), err));
    *out = places;
    places = (struct nd_task_places){0};
    return ND_OK;
}

/* ---- keys ---- */

static void put_cells(struct nd_strbuf *key, const struct nd_qualify_model *model)
{
    for (size_t c = 0; c < model->n_cells; c++)
        nd_strbuf_printf(key, "%s %s\n", model->cells[c].relative, model->cells[c].key);
}

/* The digest of what the task depends on, as far as it is known before the captures are there. Cells have keys.
 * Of a capture its own; of all others the keys of the captures, and of the one that judges the campaign's file.
 */
static enum nd_status nd_task_key(const struct nd_qualification *q, const struct nd_task_place *place,
                                  char key[static 65], struct nd_error *err)
{
    struct nd_strbuf text = {0};
    if (place->kind == ND_TASK_CAPTURE) {
        memcpy(key, q->models[place->model].cells[place->cell].key, 65);
        return ND_OK;
    }
    nd_strbuf_printf(&text, "npudiff %s\n%s\n", nd_version(), nd_task_kind_name(place->kind));
    if (place->kind == ND_TASK_JUDGE) {
        nd_strbuf_printf(&text, "campaign %s\n", q->campaign.sha256);
        for (size_t m = 0; m < q->campaign.n_models; m++)
            put_cells(&text, &q->models[m]);
    } else {
        const struct nd_qualify_model *model = &q->models[place->model];
        nd_strbuf_printf(&text, "reference %s\n",
                         place->cell != SIZE_MAX ? model->cells[place->cell].label : q->campaign.reference);
        put_cells(&text, model);
        if (place->kind == ND_TASK_EXPLAIN_PART)
            nd_strbuf_printf(&text, "part %zu of %zu\n", place->part, nd_qualify_explain_parts(q));
    }
    size_t n_bytes = text.len;
    ND_FREED char *taken = nd_strbuf_take(&text);
    ND_TRY_MEMORY(taken != NULL, err);
    nd_sha256_bytes(taken, n_bytes, key);
    return ND_OK;
}

/* What a task will take: from what the same took before, or one that is alike, or from measured defaults. */

/* ---- what is known ---- */

/* How far two numbers of runs are apart, as a factor: 1 and more. */
static double distance(uint64_t a, uint64_t b)
{
    double ratio = ((double)a + 1) / ((double)b + 1);
    return ratio > 1 ? ratio : 1 / ratio;
}

/* Whether a says more of the task than b: the very same device, else one of its kind; then the nearest number
 * of runs, then the slower. */
static bool is_better(const struct nd_took *a, const struct nd_took *b, const struct nd_task_size *size)
{
    bool is_same[2] = {strcmp(a->uri, size->uri) == 0, strcmp(b->uri, size->uri) == 0};
    double apart[2] = {distance(a->n_runs, size->n_runs), distance(b->n_runs, size->n_runs)};
    if (is_same[0] != is_same[1])
        return is_same[0];
    return apart[0] != apart[1] ? apart[0] < apart[1] : a->seconds > b->seconds;
}

static const struct nd_took *find(const struct nd_task_size *size, enum nd_task_kind kind,
                                  const struct nd_took_list *known)
{
    const struct nd_took *best = NULL;
    for (size_t i = 0; i < known->n; i++) {
        const struct nd_took *took = &known->items[i];
        if (took->kind == kind && strcmp(took->model, size->model) == 0 &&
            strcmp(took->device, size->device) == 0 && (best == NULL || is_better(took, best, size)))
            best = took;
    }
    return best;
}

/* ---- defaults ----
 *
 * seconds = start_s + per_value_s * (values of all tensors of the model over all runs); bytes = start_bytes +
 * those of the recorded values. Processor seconds of `tools/studies/cluster --costs` on four small models,
 * 2026-11-23: docs/results/cluster.md#defaults. Memory is several times what these models took: chosen. */

enum { START_BYTES = 45000 }; /* of a capture without values: the same study */

static const struct costs {
    enum nd_task_kind kind;
    const char *device; /* "" stands for every one that has no line of its own */
    double start_s, per_value_s;
    uint64_t memory_bytes;
} defaults[] = {
    {ND_TASK_CAPTURE, "cpu", 0.09, 3e-8, 256 << 20},     {ND_TASK_CAPTURE, "htp-sim", 0.35, 1e-6, 512 << 20},
    {ND_TASK_CAPTURE, "exact", 0.03, 4.5e-8, 256 << 20}, {ND_TASK_CAPTURE, "emu", 0.03, 1.1e-7, 256 << 20},
    {ND_TASK_CAPTURE, "", 0.03, 1.1e-7, 256 << 20}, /* not measured: as emulated */
    {ND_TASK_COMPARE, "", 0.04, 1e-8, 512 << 20},        {ND_TASK_EXPLAIN, "", 0.03, 1e-7, 512 << 20},
    {ND_TASK_EXPLAIN_PART, "", 0.03, 1e-7, 512 << 20},   {ND_TASK_JUDGE, "", 0.03, 3e-8, 256 << 20},
};

/* Fills seconds, bytes, memory_bytes and source. */
static void nd_task_estimate(const struct nd_task_size *size, const struct nd_took_list *known,
                             struct nd_task *task)
{
    const struct nd_took *took = find(size, task->kind, known);
    size_t i = 0;
    while (defaults[i].kind != task->kind ||
           (defaults[i].device[0] != '\0' && strcmp(defaults[i].device, size->device) != 0))
        i++; /* each kind ends with a line for every device */
    const struct costs *costs = &defaults[i];
    task->n_runs = (size_t)size->n_runs;
    if (took != NULL) {
        double scale = (double)size->n_runs / (double)took->n_runs;
        double start = took->seconds < costs->start_s ? took->seconds : costs->start_s;
        task->seconds = start + (took->seconds - start) * scale;
        uint64_t start_bytes = took->bytes < START_BYTES ? took->bytes : START_BYTES;
        task->bytes = start_bytes + (uint64_t)((double)(took->bytes - start_bytes) * scale);
        task->memory_bytes = took->memory_bytes;
        task->source = took->file;
        return;
    }
    task->seconds = costs->start_s + costs->per_value_s * (double)size->work;
    task->bytes = task->kind == ND_TASK_CAPTURE ? START_BYTES + size->raw_bytes : 0;
    task->memory_bytes = costs->memory_bytes;
    task->source = "default";
}

/* Doing one task of a campaign. Of the campaign only the model is loaded that the task is about. */

enum {
    KEY_DIGITS = 16,        /* of a digest: chosen; 64 bits tell the tasks of any campaign apart */
    POLL_NS = 50 * 1000000, /* while a different process does the task */
};

/* Appends the key as a plan shows it: "<version>/<digits>". */
static void nd_task_format_key(const char digest[static 65], struct nd_strbuf *out)
{
    nd_strbuf_printf(out, "%s/%.*s", nd_version(), KEY_DIGITS, digest);
}

/* ---- one at a time ---- */

/* Waits for whoever does the same task. The lock goes with the process that holds it. */
static enum nd_status lock_task(const struct nd_qualification *q, const char *file, int *out,
                                struct nd_error *err)
{
    char digest[ND_SHA256_HEX_BYTES];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf path = {0};
    nd_sha256_bytes(file, strlen(file), digest);
    nd_strbuf_printf(&path, "%s/.locks", q->folder);
    ND_TRY(path.failed ? nd_fail_memory(err) : nd_dir_make(path.text, err));
    nd_strbuf_printf(&path, "/%.*s", KEY_DIGITS, digest);
    ND_TRY_MEMORY(!path.failed, err);
    ND_CLEANUP(nd_qualify_unlock) int fd = open(path.text, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666);
    if (fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path.text, "cannot open '%s': %s", path.text, strerror(errno));
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            break; /* a file system without locks: both do the task, and the last one's file stays */
        if (q->options->is_cancelled != NULL && q->options->is_cancelled(q->options->cancel_context))
            return nd_fail(err, ND_E_CANCELLED, file, "stopped on request");
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    *out = fd;
    fd = -1;
    return ND_OK;
}

/* ---- which task ---- */

/* The model of the campaign whose files are in "<folder>/<name>/"; SIZE_MAX: none. */
static size_t find_model(const struct nd_campaign *campaign, const char *file)
{
    const char *name = strchr(file, '/');
    size_t n = name != NULL ? strcspn(name + 1, "/") : 0;
    for (size_t m = 0; name != NULL && m < campaign->n_models; m++)
        if (strlen(campaign->models[m].name) == n && strncmp(campaign->models[m].name, name + 1, n) == 0)
            return m;
    return SIZE_MAX;
}

static enum nd_status find_task(struct nd_qualification *q, const struct nd_task_name *name,
                                struct nd_task_place *out, struct nd_error *err)
{
    ND_CLEANUP(nd_task_places_deinit) struct nd_task_places places = {0};
    ND_TRY(nd_task_places_list(q, &places, err));
    for (size_t i = 0; i < places.n; i++)
        if (strcmp(places.files[i], name->file) == 0) {
            *out = places.items[i];
            return ND_OK;
        }
    return nd_fail(err, ND_E_QUALIFY_TASK, name->file,
                   "'%s' is made by no task of '%s' ('npudiff qualify --plan' lists them)", name->file,
                   q->campaign.path);
}

/* Whether the plan was made by the same npudiff, of the same things. */
static enum nd_status check_key(const struct nd_qualification *q, const struct nd_task_place *place,
                                const struct nd_task_name *name, struct nd_error *err)
{
    char digest[65];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf here = {0};
    if (name->key == NULL)
        return ND_OK;
    ND_TRY(nd_task_key(q, place, digest, err));
    size_t n = strcspn(name->key, "/");
    nd_task_format_key(digest, &here);
    if (here.failed)
        return nd_fail_memory(err);
    else if (strlen(nd_version()) != n || strncmp(name->key, nd_version(), n) != 0)
        return nd_fail(err, ND_E_QUALIFY_WORKER, name->file,
                       "the task '%s' is for npudiff %.*s; this is npudiff %s", name->file, (int)n, name->key,
                       nd_version());
    else if (strcmp(name->key, here.text) != 0)
        return nd_fail(err, ND_E_QUALIFY_WORKER, name->file,
                       "the task '%s' has the key %s, and here it is %s: a model, a probe, a runtime or the "
                       "campaign is a different one than when the task was listed",
                       name->file, name->key, here.text);
    return ND_OK;
}

/* ---- doing it ---- */

static enum nd_status capture_one(struct nd_qualification *q, struct nd_qualify_cell *wanted,
                                  struct nd_error *err)
{
    enum nd_status status = nd_qualify_look(q, wanted, err);
    for (size_t c = 0; c < q->models[0].n_cells; c++)
        if (&q->models[0].cells[c] != wanted)
            q->models[0].cells[c].is_fresh = true; /* not asked for */
    return status == ND_OK ? nd_qualify_capture(q, err) : status;
}

/* Opens the captures that other tasks made. */
static enum nd_status take_captures(struct nd_qualification *q, struct nd_error *err)
{
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            ND_TRY(nd_qualify_find_usable(&q->models[m].cells[c], err));
    return ND_OK;
}

static enum nd_status work(struct nd_qualification *q, const struct nd_task_place *place, bool *is_made,
                           struct nd_qualify_result *out, struct nd_error *err)
{
    ND_TRY(take_captures(q, err));
    if (place->kind == ND_TASK_JUDGE) {
        ND_TRY(nd_qualify_end_result(q, out, err));
        *is_made = !out->is_cached;
        return ND_OK;
    }
    struct nd_qualify_model *model = &q->models[0];
    ND_TRY(nd_qualify_open(q, err));
    if (place->kind == ND_TASK_COMPARE)
        return nd_qualify_write_comparison(q, model, place->cell, is_made, err);
    if (place->kind == ND_TASK_EXPLAIN_PART)
        return nd_qualify_write_explanation_part(q, model, place->part, is_made, err);
    return nd_qualify_write_explanation(q, model, is_made, err);
}

static enum nd_status do_task(struct nd_qualification *q, const struct nd_task_name *name,
                              struct nd_qualify_result *out, struct nd_error *err)
{
    ND_CLEANUP(nd_qualify_unlock) int folder_lock = -1, task_lock = -1;
    bool is_made = false;
    uint64_t since = nd_clock_ns();
    struct nd_task_place place;
    ND_TRY(nd_qualify_plan(q, err));
    ND_TRY(find_task(q, name, &place, err));
    ND_TRY(nd_dir_make(q->folder, err));
    ND_TRY(nd_qualify_lock(q->folder, true, &folder_lock, err));
    ND_TRY(nd_qualify_make_keys(q, err));
    ND_TRY(check_key(q, &place, name, err));
    ND_TRY(lock_task(q, name->file, &task_lock, err));
    ND_TRY(place.kind == ND_TASK_CAPTURE ? capture_one(q, &q->models[0].cells[place.cell], err)
                                         : work(q, &place, &is_made, out, err));
    out->n_captured = q->n_captured;
    if (is_made) {
        /* For the next estimate. */
        struct nd_task_size size;
        nd_task_measure(q, &place, &size);
        struct nd_took took = {
            .kind = place.kind, .n_runs = size.n_runs, .seconds = (double)(nd_clock_ns() - since) / 1e9};
        ND_FREED char *path = nd_path_join(q->folder, name->file);
        memcpy(took.model, size.model, strlen(size.model) + 1);
        if (path != NULL)
            nd_took_write(path, &took);
    }
    return ND_OK;
}

enum nd_status nd_campaign_task(const char *campaign, const struct nd_task_name *name,
                                const struct nd_qualify_options *options, struct nd_qualify_result *out,
                                struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    struct nd_qualification q;
    ND_CLEANUP(nd_qualify_result_deinit) struct nd_qualify_result result = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why;
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    ND_TRY(nd_qualify_begin(campaign, &own, &q, err));
    size_t n_models = q.campaign.n_models, m = find_model(&q.campaign, name->file);
    if (m != SIZE_MAX) {
        /* Leaves only that model in the campaign: it changes places with the first. */
        struct nd_campaign_model kept = q.campaign.models[m];
        q.campaign.models[m] = q.campaign.models[0];
        q.campaign.models[0] = kept;
        q.campaign.n_models = 1;
        q.is_one_model = true;
    }
    enum nd_status status = do_task(&q, name, &result, err);
    nd_qualify_plan_deinit(&q);
    q.campaign.n_models = n_models;
    nd_campaign_deinit(&q.campaign);
    result.folder = q.folder;
    return status == ND_OK ? ND_GIVE(out, result) : status;
}

void nd_plan_of_campaign_deinit(struct nd_plan_of_campaign *plan)
{
    nd_arena_destroy(plan->owner);
    *plan = (struct nd_plan_of_campaign){0};
}

/* ---- what comes before what ---- */

/* A comparison needs the captures of its model, an explanation and its parts these and the comparison with the
 * campaign's reference, an explanation also its parts, the verdict everything else. */
static bool is_needed(const struct nd_qualification *q, const struct nd_task_place *before,
                      const struct nd_task_place *after)
{
    bool is_of_model = after->kind == ND_TASK_JUDGE || before->model == after->model;
    if (before->kind >= after->kind || !is_of_model)
        return false;
    if (before->kind == ND_TASK_EXPLAIN_PART)
        return after->kind == ND_TASK_EXPLAIN;
    if (before->kind != ND_TASK_COMPARE || after->kind == ND_TASK_JUDGE)
        return true;
    return before->cell == nd_qualify_find_cell(&q->models[before->model], q->n_devices, q->campaign.reference);
}

/* ---- one task ---- */

static enum nd_status find_done(struct nd_qualification *q, const struct nd_task_place *place, bool *out,
                                struct nd_error *err)
{
    struct nd_qualify_model *model = place->model != SIZE_MAX ? &q->models[place->model] : NULL;
    enum nd_status status = ND_OK;
    char *part;
    *out = false;
    switch (place->kind) {
    case ND_TASK_CAPTURE:
        *out = model->cells[place->cell].is_fresh;
        break;
    case ND_TASK_COMPARE:
        return nd_qualify_has_file(q, model, nd_qualify_comparison_file(model, place->cell), out, err);
    case ND_TASK_EXPLAIN_PART: /* nobody needs it when its explanation is there */
        part = nd_qualify_explanation_part_file(model, place->part, nd_qualify_explain_parts(q));
        status = nd_qualify_has_file(q, model, part, out, err);
        if (status != ND_OK || *out)
            return status;
        return nd_qualify_has_file(q, model, nd_qualify_explanation_file(model), out, err);
    case ND_TASK_EXPLAIN:
        return nd_qualify_has_file(q, model, nd_qualify_explanation_file(model), out, err);
    case ND_TASK_JUDGE:
        break;
    }
    return status;
}

static enum nd_status fill_task(struct nd_qualification *q, const struct nd_task_place *place,
                                const struct nd_took_list *known, struct nd_task *task, struct nd_arena *arena,
                                struct nd_error *err)
{
    char digest[65];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf key = {0};
    struct nd_task_size size;
    const struct nd_qualify_model *model = place->model != SIZE_MAX ? &q->models[place->model] : NULL;
    const struct nd_qualify_cell *cell = place->cell != SIZE_MAX ? &model->cells[place->cell] : NULL;
    ND_TRY(nd_task_key(q, place, digest, err));
    nd_task_format_key(digest, &key);
    task->kind = place->kind;
    task->key = nd_arena_text(arena, key.text);
    task->model = nd_arena_text(arena, model != NULL ? model->campaign->name : "");
    task->device = nd_arena_text(arena, cell != NULL ? cell->label : "");
    task->kind_of_device = task->address = "";
    if (place->kind == ND_TASK_CAPTURE) {
        task->kind_of_device = nd_device_kind_name(cell->device.kind);
        task->transport = cell->device.transport;
        task->address = nd_arena_text(arena, cell->device.address);
    }
    enum nd_status status = key.failed ? nd_fail_memory(err) : find_done(q, place, &task->is_done, err);
    nd_task_measure(q, place, &size);
    nd_task_estimate(&size, known, task);
    task->source = nd_arena_text(arena, task->source);
    return status;
}

/* ---- sums ---- */

static enum nd_status add_up(struct nd_plan_of_campaign *plan, struct nd_error *err)
{
    ND_FREED double *ends = nd_calloc(plan->n, sizeof *ends);
    ND_TRY_MEMORY(ends != NULL, err);
    for (size_t i = 0; i < plan->n; i++) {
        const struct nd_task *task = &plan->tasks[i];
        double begin = 0, left = task->is_done ? 0 : task->seconds;
        plan->n_done += task->is_done;
        plan->n_measured += strcmp(task->source, "default") != 0;
        plan->seconds += task->seconds;
        plan->seconds_left += left;
        plan->bytes += task->bytes;
        plan->bytes_left += task->is_done ? 0 : task->bytes;
        if (task->memory_bytes > plan->memory_bytes)
            plan->memory_bytes = task->memory_bytes;
        for (size_t k = 0; k < task->n_needs; k++)
            begin = ends[task->needs[k]] > begin ? ends[task->needs[k]] : begin;
        ends[i] = begin + left;
        plan->longest_s = ends[i] > plan->longest_s ? ends[i] : plan->longest_s;
    }
    return ND_OK;
}

static enum nd_status make(const char *campaign, const char *const *from, size_t n_from,
                           struct nd_qualification *q, struct nd_plan_of_campaign *plan, struct nd_error *err)
{
    ND_CLEANUP(nd_took_list_deinit) struct nd_took_list known = {0};
    ND_TRY(nd_qualify_plan(q, err));
    ND_TRY(nd_dir_make(q->folder, err)); /* for the digests of runtimes, which are read once */
    ND_TRY(nd_qualify_check_fresh(q, err));
    ND_TRY(nd_took_read_folder(q->folder, &known, err));
    for (size_t i = 0; i < n_from; i++)
        ND_TRY(nd_took_read_folder(from[i], &known, err));
    ND_TRY_MEMORY((plan->owner = nd_arena_create()) != NULL, err);
    ND_CLEANUP(nd_task_places_deinit) struct nd_task_places places = {0};
    ND_TRY(nd_task_places_list(q, &places, err));
    plan->campaign = nd_arena_text(plan->owner, q->campaign.name);
    plan->path = nd_arena_text(plan->owner, campaign);
    plan->folder = nd_arena_text(plan->owner, q->folder);
    plan->version = nd_version();
    plan->n_explain_parts = nd_qualify_explain_parts(q);
    plan->tasks = nd_arena_calloc(plan->owner, places.n, sizeof *plan->tasks);
    for (size_t i = 0; plan->tasks != NULL && i < places.n; i++) {
        struct nd_task *task = &plan->tasks[plan->n++];
        task->file = nd_arena_text(plan->owner, places.files[i]);
        const struct nd_task_place *place = &places.items[i];
        size_t n = 0;
        for (size_t k = 0; place->kind != ND_TASK_CAPTURE && k < i; k++)
            n += is_needed(q, &places.items[k], place);
        size_t *needs = n > 0 ? nd_arena_calloc(plan->owner, n, sizeof *needs) : NULL;
        for (size_t k = 0; needs != NULL && k < i; k++)
            if (is_needed(q, &places.items[k], place))
                needs[task->n_needs++] = k;
        task->needs = needs;
        ND_TRY(fill_task(q, &places.items[i], &known, task, plan->owner, err));
    }
    ND_TRY_MEMORY(!nd_arena_has_failed(plan->owner), err);
    return add_up(plan, err);
}

enum nd_status nd_campaign_plan(const char *campaign, const char *const *from, size_t n_from,
                                const struct nd_qualify_options *options, struct nd_plan_of_campaign *out,
                                struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    struct nd_qualification q;
    ND_CLEANUP(nd_plan_of_campaign_deinit) struct nd_plan_of_campaign plan = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why;
    ND_TRY(nd_options_read(&own, sizeof own, options, err));
    ND_TRY(nd_qualify_begin(campaign, &own, &q, err));
    enum nd_status status = make(campaign, from, n_from, &q, &plan, err);
    nd_qualify_plan_deinit(&q);
    nd_campaign_deinit(&q.campaign);
    free(q.folder);
    return status == ND_OK ? ND_GIVE(out, plan) : status;
}
