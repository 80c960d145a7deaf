/* Making the captures that are missing: on several machines at once, each one device after the other. */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/parallel.h"
#include "judge/qualify.h"

struct work {
    struct nd_qualification *q;
    pthread_mutex_t lock;   /* of what is said */
    pthread_mutex_t choice; /* of the tasks, and has_failed */
    size_t n;
    struct task {
        const struct nd_qualify_model *model;
        struct nd_qualify_cell *cell;
        bool is_begun;
    } * tasks;
    bool has_failed; /* then nothing more is begun */
    size_t n_lanes;
    size_t *machines; /* [n_lanes]: whose tasks a lane runs, one after the other */
};
enum { MAX_LANES = 256 };
static const size_t this_machine = SIZE_MAX;

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

static enum nd_status run_task(struct work *work, const struct task *task, struct nd_error *err)
{
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
    say(work, "capturing '%s' on %s", model->campaign->name, cell->label);
    enum nd_status status = nd_capture_run(cell->model, &cell->device, cell->probes, model->n_probes,
                                           cell->path, &options, &outcome, err);
    /* A phone that was not there may be there the next time: that is asked again. */
    if (status == ND_OK)
        status = nd_qualify_write_key(cell, !is_elsewhere || !outcome.has_failed, err);
    if (status == ND_OK)
        say(work, "captured '%s' on %s%s%s", model->campaign->name, cell->label,
            outcome.has_failed ? ": failed: " : "", outcome.has_failed ? outcome.failure.message : "");
    else
        nd_error_context(err, "model '%s' on %s", model->campaign->name, cell->label);
    return status;
}

/* ---- lanes ---- */

/* Which machine a task runs on: the first task that runs there stands for it. */
static size_t machine_of(const struct work *work, size_t task)
{
    const struct nd_device *device = &work->tasks[task].cell->device;
    size_t first = 0;
    if (device->transport == ND_TRANSPORT_NONE)
        return this_machine;
    while (work->tasks[first].cell->device.transport != device->transport ||
           strcmp(work->tasks[first].cell->device.address, device->address) != 0)
        first++;
    return first;
}

/* Every other machine has a lane of its own, this one as many as were asked for. Beyond MAX_LANES machines
 * share nothing but wait for no lane: the last ones are run when a worker is free. */
static enum nd_status make_lanes(struct work *work, struct nd_error *err)
{
    size_t n_here = 0, n_jobs = work->q->options->n_jobs > 0 ? work->q->options->n_jobs : 1;
    work->machines = nd_calloc(work->n, sizeof *work->machines);
    if (work->machines == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < work->n; i++) {
        size_t machine = machine_of(work, i);
        if (machine == this_machine ? n_here++ < n_jobs : machine == i)
            work->machines[work->n_lanes++] = machine;
    }
    return ND_OK;
}

/* The next task of the machine that nobody has begun; NULL when there is none. */
static struct task *begin_next(struct work *work, size_t machine)
{
    struct task *next = NULL;
    pthread_mutex_lock(&work->choice);
    for (size_t i = 0; next == NULL && !work->has_failed && i < work->n; i++)
        if (!work->tasks[i].is_begun && machine_of(work, i) == machine)
            next = &work->tasks[i];
    if (next != NULL)
        next->is_begun = true;
    pthread_mutex_unlock(&work->choice);
    return next;
}

static enum nd_status run_lane(void *context, size_t worker, size_t lane, struct nd_error *err)
{
    (void)worker;
    struct work *work = context;
    const struct task *task;
    enum nd_status status = ND_OK;
    while (status == ND_OK && (task = begin_next(work, work->machines[lane])) != NULL)
        status = run_task(work, task, err);
    if (status != ND_OK) {
        pthread_mutex_lock(&work->choice);
        work->has_failed = true;
        pthread_mutex_unlock(&work->choice);
    }
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

enum nd_status nd_qualify_capture(struct nd_qualification *q, struct nd_error *err)
{
    struct work work = {.q = q};
    size_t n_cells = 0;
    for (size_t m = 0; m < q->campaign.n_models; m++)
        n_cells += q->models[m].n_cells;
    work.tasks = nd_calloc(n_cells, sizeof *work.tasks);
    if (work.tasks == NULL)
        return nd_fail_memory(err);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t c = 0; c < q->models[m].n_cells; c++)
            if (!q->models[m].cells[c].is_fresh)
                work.tasks[work.n++] = (struct task){.model = &q->models[m], .cell = &q->models[m].cells[c]};
    pthread_mutex_init(&work.lock, NULL);
    pthread_mutex_init(&work.choice, NULL);
    enum nd_status status = make_folders(q, err);
    if (status == ND_OK)
        status = make_lanes(&work, err);
    if (status == ND_OK && work.n > 0)
        status = nd_parallel_for(work.n_lanes < MAX_LANES ? work.n_lanes : MAX_LANES, work.n_lanes, run_lane,
                                 &work, err);
    pthread_mutex_destroy(&work.choice);
    pthread_mutex_destroy(&work.lock);
    free(work.machines);
    free(work.tasks);
    q->n_captured = work.n;
    if (status == ND_OK)
        nd_qualify_make_key(q);
    return status;
}
