/* Making the captures that are missing. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "judge/tasks/task.h"

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
    va_list args;
    const struct nd_qualify_options *options = work->q->options;
    if (options->say == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
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
    options.edges = cell->edges;
    options.n_repeats = work->q->campaign.n_repeats;
    options.allow_fallback = cell->allow_fallback;
    options.replace = true;
    /* qnn-net-run starts over. */
    options.resume = is_elsewhere && cell->device.way == ND_REMOTE_AGENT && !asked->force;
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
    if (status == ND_OK && !outcome.has_failed)
        nd_took_write_capture(work->q, model, cell, since);
    if (status == ND_OK)
        say(work, "captured '%s' on %s%s%s", model->campaign->name, cell->label,
            outcome.has_failed ? ": failed: " : "", outcome.has_failed ? outcome.failure.message : "");
    else
        nd_error_context(err, "model '%s' on %s", model->campaign->name, cell->label);
    return status;
}

static enum nd_status make_folders(const struct nd_qualification *q, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++) {
        char *folder = nd_path_dir(q->models[m].cells[0].path);
        status = folder != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
        free(folder);
    }
    return status;
}

/* The cells that are not fresh. */
static enum nd_status collect(struct work *work, struct nd_error *err)
{
    size_t n_cells = 0;
    for (size_t m = 0; m < work->q->campaign.n_models; m++)
        n_cells += work->q->models[m].n_cells;
    work->tasks = nd_calloc(n_cells, sizeof *work->tasks);
    work->devices = nd_calloc(n_cells, sizeof *work->devices);
    if (work->tasks == NULL || work->devices == NULL)
        return nd_fail_memory(err);
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
    free(work.devices);
    free(work.tasks);
    q->n_captured = work.n;
    return status;
}
