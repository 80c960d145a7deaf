/* Doing one task of a campaign. Of the campaign only the model is loaded that the task is about. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/options.h"
#include "core/tensors/sha256.h"
#include "core/text/strbuf.h"
#include "judge/tasks/task.h"

enum {
    KEY_DIGITS = 16,        /* of a digest: chosen; 64 bits tell the tasks of any campaign apart */
    POLL_NS = 50 * 1000000, /* while a different process does the task */
};

void nd_task_format_key(const char digest[static 65], struct nd_strbuf *out)
{
    nd_strbuf_printf(out, "%s/%.*s", nd_version(), KEY_DIGITS, digest);
}

/* ---- one at a time ---- */

/* Waits for whoever does the same task. The lock goes with the process that holds it. */
static enum nd_status lock_task(const struct nd_qualification *q, const char *file, int *out,
                                struct nd_error *err)
{
    char digest[ND_SHA256_HEX_BYTES];
    struct nd_strbuf path = {0};
    nd_sha256_bytes(file, strlen(file), digest);
    nd_strbuf_printf(&path, "%s/.locks", q->folder);
    enum nd_status status = path.failed ? nd_fail_memory(err) : nd_dir_make(path.text, err);
    nd_strbuf_printf(&path, "/%.*s", KEY_DIGITS, digest);
    if (status == ND_OK && path.failed)
        status = nd_fail_memory(err);
    int fd = status == ND_OK ? open(path.text, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0666) : -1;
    if (status == ND_OK && fd < 0)
        status = nd_fail(err, ND_E_FILE_OPEN, path.text, "cannot open '%s': %s", path.text, strerror(errno));
    while (status == ND_OK && flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            break; /* a file system without locks: both do the task, and the last one's file stays */
        if (q->options->is_cancelled != NULL && q->options->is_cancelled(q->options->cancel_context))
            status = nd_fail(err, ND_E_CANCELLED, file, "stopped on request");
        nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
    }
    nd_strbuf_deinit(&path);
    if (status == ND_OK)
        *out = fd;
    else if (fd >= 0)
        close(fd);
    return status;
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

/* Leaves only that model in the campaign: it changes places with the first. */
static void keep_model(struct nd_campaign *campaign, size_t m)
{
    struct nd_campaign_model kept = campaign->models[m];
    campaign->models[m] = campaign->models[0];
    campaign->models[0] = kept;
    campaign->n_models = 1;
}

static enum nd_status find_task(struct nd_qualification *q, const struct nd_task_name *name,
                                struct nd_task_place *out, struct nd_error *err)
{
    struct nd_task_places places;
    enum nd_status status = nd_task_places_list(q, &places, err);
    if (status != ND_OK)
        return status;
    bool is_found = false;
    for (size_t i = 0; !is_found && i < places.n; i++)
        if (strcmp(places.files[i], name->file) == 0) {
            *out = places.items[i];
            is_found = true;
        }
    nd_task_places_deinit(&places);
    return is_found ? ND_OK
                    : nd_fail(err, ND_E_QUALIFY_TASK, name->file,
                              "'%s' is made by no task of '%s' ('npudiff qualify --plan' lists them)",
                              name->file, q->campaign.path);
}

/* Whether the plan was made by the same npudiff, of the same things. */
static enum nd_status check_key(const struct nd_qualification *q, const struct nd_task_place *place,
                                const struct nd_task_name *name, struct nd_error *err)
{
    char digest[65];
    struct nd_strbuf here = {0};
    if (name->key == NULL)
        return ND_OK;
    enum nd_status status = nd_task_key(q, place, digest, err);
    size_t n = strcspn(name->key, "/");
    if (status != ND_OK)
        return status;
    nd_task_format_key(digest, &here);
    if (here.failed)
        status = nd_fail_memory(err);
    else if (strlen(nd_version()) != n || strncmp(name->key, nd_version(), n) != 0)
        status = nd_fail(err, ND_E_QUALIFY_WORKER, name->file,
                         "the task '%s' is for npudiff %.*s; this is npudiff %s", name->file, (int)n, name->key,
                         nd_version());
    else if (strcmp(name->key, here.text) != 0)
        status = nd_fail(err, ND_E_QUALIFY_WORKER, name->file,
                         "the task '%s' has the key %s, and here it is %s: a model, a probe, a runtime or the "
                         "campaign is a different one than when the task was listed",
                         name->file, name->key, here.text);
    nd_strbuf_deinit(&here);
    return status;
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
    enum nd_status status = ND_OK;
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; status == ND_OK && c < q->models[m].n_cells; c++)
            status = nd_qualify_find_usable(&q->models[m].cells[c], err);
    return status;
}

static enum nd_status work(struct nd_qualification *q, const struct nd_task_place *place, bool *is_made,
                           struct nd_qualify_result *out, struct nd_error *err)
{
    enum nd_status status = take_captures(q, err);
    if (status != ND_OK)
        return status;
    if (place->kind == ND_TASK_JUDGE) {
        status = nd_qualify_end_result(q, out, err);
        *is_made = status == ND_OK && !out->is_cached;
        return status;
    }
    struct nd_qualify_model *model = &q->models[0];
    status = nd_qualify_open(q, err);
    if (status == ND_OK && place->kind == ND_TASK_COMPARE)
        return nd_qualify_write_comparison(q, model, place->cell, is_made, err);
    if (status == ND_OK && place->kind == ND_TASK_EXPLAIN_PART)
        return nd_qualify_write_explanation_part(q, model, place->part, is_made, err);
    return status == ND_OK ? nd_qualify_write_explanation(q, model, is_made, err) : status;
}

/* For the next estimate. */
static void note(const struct nd_qualification *q, const struct nd_task_place *place, const char *file,
                 uint64_t since)
{
    struct nd_task_size size;
    nd_task_measure(q, place, &size);
    struct nd_took took = {
        .kind = place->kind, .n_runs = size.n_runs, .seconds = (double)(nd_clock_ns() - since) / 1e9};
    char *path = nd_path_join(q->folder, file);
    memcpy(took.model, size.model, strlen(size.model) + 1);
    if (path != NULL)
        nd_took_write(path, &took);
    free(path);
}

static enum nd_status do_task(struct nd_qualification *q, const struct nd_task_name *name,
                              struct nd_qualify_result *out, struct nd_error *err)
{
    int folder_lock = -1, task_lock = -1;
    bool is_made = false;
    uint64_t since = nd_clock_ns();
    struct nd_task_place place;
    enum nd_status status = nd_qualify_plan(q, err);
    if (status == ND_OK)
        status = find_task(q, name, &place, err);
    if (status == ND_OK)
        status = nd_dir_make(q->folder, err);
    if (status == ND_OK)
        status = nd_qualify_lock(q->folder, true, &folder_lock, err);
    if (status == ND_OK)
        status = nd_qualify_make_keys(q, err);
    if (status == ND_OK)
        status = check_key(q, &place, name, err);
    if (status == ND_OK)
        status = lock_task(q, name->file, &task_lock, err);
    if (status == ND_OK && place.kind == ND_TASK_CAPTURE)
        status = capture_one(q, &q->models[0].cells[place.cell], err);
    else if (status == ND_OK)
        status = work(q, &place, &is_made, out, err);
    if (status == ND_OK && is_made)
        note(q, &place, name->file, since);
    out->n_captured = q->n_captured;
    if (task_lock >= 0)
        close(task_lock);
    if (folder_lock >= 0)
        close(folder_lock);
    return status;
}

enum nd_status nd_campaign_task(const char *campaign, const struct nd_task_name *name,
                                const struct nd_qualify_options *options, struct nd_qualify_result *out,
                                struct nd_error *err)
{
    struct nd_qualify_options own = {.struct_size = sizeof own};
    struct nd_qualification q;
    struct nd_qualify_result result = {0};
    struct nd_error why = {0};
    err = err != NULL ? err : &why;
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status == ND_OK)
        status = nd_qualify_begin(campaign, &own, &q, err);
    if (status != ND_OK)
        return status;
    size_t n_models = q.campaign.n_models, m = find_model(&q.campaign, name->file);
    if (m != SIZE_MAX) {
        keep_model(&q.campaign, m);
        q.is_one_model = true;
    }
    status = do_task(&q, name, &result, err);
    nd_qualify_plan_deinit(&q);
    q.campaign.n_models = n_models;
    nd_campaign_deinit(&q.campaign);
    result.folder = q.folder;
    if (status == ND_OK)
        *out = result;
    else
        nd_qualify_result_deinit(&result);
    return status;
}
