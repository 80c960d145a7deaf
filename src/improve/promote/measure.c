/* Models on devices, and how near their outputs are to the float model's. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "compare/findings/output_noise.h"
#include "improve/promote/promote_job.h"
#include "record/sessions/capture_open.h"

/* One model on several devices. */
struct run {
    const struct nd_promote_job *job;
    const struct nd_model *model;
    const struct nd_device *const *devices;
    size_t n_devices;
    const char *stage;
    char **paths;                 /* [n_devices] */
    struct nd_capture **captures; /* [n_devices] */
    struct nd_error *failures;    /* [n_devices] of devices that failed: status ND_OK otherwise */
    size_t n_done;
};

/* A nd_device_task. */
static enum nd_status capture_one(void *context, size_t task, struct nd_error *err)
{
    struct run *run = context;
    const struct nd_promote_options *options = run->job->options;
    struct nd_capture_options how;
    nd_capture_options_init(&how);
    how.edges = "outputs";
    how.agent = options->agent;
    how.is_cancelled = options->is_cancelled;
    how.cancel_context = options->cancel_context;
    const struct nd_workload work = {run->model, run->devices[task], options->probes, options->n_probes};
    enum nd_status status =
        nd_capture_run_and_open(&work, run->paths[task], &how, &run->captures[task], &run->failures[task], err);
    return status == ND_OK ? nd_promote_tell(run->job, run->stage, ++run->n_done, run->n_devices, err) : status;
}

static void run_deinit(struct run *run)
{
    for (size_t d = 0; d < run->n_devices; d++) {
        if (run->captures != NULL)
            nd_capture_close(&run->captures[d]);
        if (run->paths != NULL && run->paths[d] != NULL)
            unlink(run->paths[d]);
        if (run->paths != NULL)
            free(run->paths[d]);
    }
    free(run->captures);
    free(run->failures);
    free(run->paths);
}

/* The captures, or what failed. */
static enum nd_status run_all(struct run *run, struct nd_error *err)
{
    size_t n = run->n_devices;
    run->paths = nd_calloc(n, sizeof *run->paths);
    run->captures = nd_calloc(n, sizeof(void *));
    run->failures = nd_calloc(n, sizeof *run->failures);
    if (run->paths == NULL || run->captures == NULL || run->failures == NULL)
        return nd_fail_memory(err);
    for (size_t d = 0; d < n; d++) {
        char name[64];
        snprintf(name, sizeof name, "%s%zu.h5", run->stage, d);
        run->paths[d] = nd_path_join(run->job->folder, name);
        if (run->paths[d] == NULL)
            return nd_fail_memory(err);
    }
    return nd_devices_run(run->devices, n, 1, capture_one, run, err);
}

/* Takes the captures over; a device that failed is an error here. */
static enum nd_status take_captures(struct run *run, struct nd_capture **out, struct nd_error *err)
{
    enum nd_status status = run_all(run, err);
    for (size_t d = 0; d < run->n_devices && status == ND_OK; d++) {
        if (run->failures[d].status != ND_OK) {
            status = nd_capture_pass_on(&run->failures[d], run->model, run->devices[d], err);
        } else {
            out[d] = run->captures[d];
            run->captures[d] = NULL;
        }
    }
    run_deinit(run);
    return status;
}

enum nd_status nd_promote_capture(struct nd_promote_job *job, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    struct nd_device reference;
    struct nd_error local = {0};
    err = err != NULL ? err : &local;
    enum nd_status status = nd_device_parse("float64", &reference, err);
    if (status != ND_OK)
        return status;
    const struct nd_device *const references[] = {&reference};
    struct run floats = {
        .job = job, .model = options->float_model, .devices = references, .n_devices = 1, .stage = "float"};
    status = take_captures(&floats, &job->floats, err);
    nd_device_deinit(&reference);
    job->captures = nd_calloc(options->n_devices, sizeof(void *));
    if (status == ND_OK && job->captures == NULL)
        return nd_fail_memory(err);
    struct run run = {.job = job,
                      .model = job->model,
                      .devices = options->devices,
                      .n_devices = options->n_devices,
                      .stage = "capture"};
    return status == ND_OK ? take_captures(&run, job->captures, err) : status;
}

/* ---- against the float model ---- */

static void count_right(const struct nd_comparison *comparison, size_t device, struct nd_measured *out)
{
    size_t edge = SIZE_MAX;
    for (size_t t = 0; t < comparison->n_top1; t++) {
        const struct nd_top1 *top1 = &comparison->top1[t];
        if (!top1->has_labels || !top1->devices[device].exists || (edge != SIZE_MAX && top1->edge != edge))
            continue;
        edge = top1->edge;
        out->n_labelled += top1->devices[device].n_samples;
        out->n_right += top1->devices[device].n_correct;
    }
}

enum nd_status nd_promote_measure(const struct nd_promote_job *job, struct nd_capture *const *captures,
                                  struct nd_measured *out, struct nd_error *err)
{
    size_t n = job->options->n_devices;
    const struct nd_capture **all = nd_calloc(n + 1, sizeof(void *));
    struct nd_comparison *comparison = NULL;
    struct nd_compare_options how = nd_compare_options_default();
    how.allow_different_models = true;
    how.edges = "outputs";
    how.n_worst = 0;
    how.n_threads = job->options->n_threads;
    how.is_cancelled = job->options->is_cancelled;
    how.cancel_context = job->options->cancel_context;
    if (all == NULL)
        return nd_fail_memory(err);
    all[0] = job->floats;
    for (size_t d = 0; d < n; d++)
        all[d + 1] = captures[d];
    enum nd_status status = nd_compare_captures(all, n + 1, &how, &comparison, err);
    for (size_t d = 0; d < n && status == ND_OK; d++) {
        out[d] = (struct nd_measured){.sqnr_db = nd_comparison_sqnr_db(comparison, d)};
        count_right(comparison, d + 1, &out[d]);
        if (isnan(out[d].sqnr_db))
            status = nd_fail(err, ND_E_PROMOTE_REFERENCE, nd_model_path(job->options->float_model),
                             "no output of '%s' can be compared with '%s'", nd_model_path(job->model),
                             nd_model_path(job->options->float_model));
    }
    nd_comparison_destroy(&comparison);
    free(all);
    return status;
}

enum nd_status nd_promote_run(const struct nd_promote_job *job, const struct nd_model *model,
                              struct nd_measured *out, char **reason, struct nd_error *err)
{
    const struct nd_promote_options *options = job->options;
    struct run run = {.job = job,
                      .model = model,
                      .devices = options->devices,
                      .n_devices = options->n_devices,
                      .stage = "verify"};
    enum nd_status status = run_all(&run, err);
    *reason = NULL;
    for (size_t d = 0; d < options->n_devices && status == ND_OK && *reason == NULL; d++)
        if (run.failures[d].status != ND_OK) {
            nd_error_context(&run.failures[d], "%s", options->devices[d]->label);
            *reason = nd_strdup(run.failures[d].message);
            status = *reason != NULL ? ND_OK : nd_fail_memory(err);
        }
    if (status == ND_OK && *reason == NULL)
        status = nd_promote_measure(job, run.captures, out, err);
    run_deinit(&run);
    return status;
}
