/* Every setting captured, and all of them compared with the device as it is. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "compare/findings/output_noise.h"
#include "record/sessions/capture_open.h"
#include "improve/sweep/sweep_job.h"
#include "npudiff/compare/latency.h"

struct run {
    struct nd_sweep_job *job;
    struct nd_capture **captures; /* [n_settings] */
    struct nd_capture *floats;
    size_t n_done;
};

/* ---- capturing ---- */

static enum nd_status tell(const struct nd_sweep_job *job, const char *stage, size_t n_done, size_t n_total,
                           struct nd_error *err)
{
    if (job->options->is_cancelled != NULL && job->options->is_cancelled(job->options->cancel_context))
        return nd_fail(err, ND_E_CANCELLED, NULL, "cancelled");
    if (job->options->progress != NULL)
        job->options->progress(job->options->progress_context, stage, n_done, n_total);
    return ND_OK;
}

/* A device that gives no values is no error: *failure says why, and *out stays NULL. */
static enum nd_status capture(const struct nd_sweep_job *job, const struct nd_workload *work, const char *name,
                              struct nd_capture **out, struct nd_error *failure, struct nd_error *err)
{
    struct nd_capture_options how;
    char *path = nd_path_join(job->folder, name);
    nd_capture_options_init(&how);
    how.n_repeats = job->options->n_repeats;
    how.agent = job->options->agent;
    how.is_cancelled = job->options->is_cancelled;
    how.cancel_context = job->options->cancel_context;
    enum nd_status status =
        path != NULL ? nd_capture_run_and_open(work, path, &how, out, failure, err) : nd_fail_memory(err);
    free(path);
    return status;
}

static enum nd_status capture_floats(struct run *run, struct nd_error *err)
{
    const struct nd_sweep_options *options = run->job->options;
    struct nd_device reference;
    struct nd_error failure = {0};
    if (options->float_model == NULL)
        return ND_OK;
    enum nd_status status = nd_device_parse("float64", &reference, err);
    if (status != ND_OK)
        return status;
    const struct nd_workload work = {options->float_model, &reference, options->probes, options->n_probes};
    status = capture(run->job, &work, "float.h5", &run->floats, &failure, err);
    if (status == ND_OK && run->floats == NULL)
        status = nd_capture_pass_on(&failure, options->float_model, &reference, err);
    nd_device_deinit(&reference);
    return status;
}

static enum nd_status capture_all(struct run *run, struct nd_error *err)
{
    struct nd_sweep_job *job = run->job;
    enum nd_status status = capture_floats(run, err);
    for (size_t i = 0; i < job->result->n_settings && status == ND_OK; i++) {
        struct nd_sweep_setting *setting = &job->result->settings[i];
        const struct nd_workload work = {job->model, &job->devices[i], job->options->probes,
                                         job->options->n_probes};
        struct nd_error failure = {0};
        char name[32];
        snprintf(name, sizeof name, "setting%zu.h5", i);
        status = tell(job, "capture", i, job->result->n_settings, err);
        if (status == ND_OK)
            status = capture(job, &work, name, &run->captures[i], &failure, err);
        if (status != ND_OK || run->captures[i] != NULL)
            continue;
        if (i == 0)
            return nd_capture_pass_on(&failure, job->model, &job->devices[0], err);
        setting->failure = nd_strdup(failure.message);
        job->result->n_failed++;
        status = setting->failure != NULL ? ND_OK : nd_fail_memory(err);
    }
    return status;
}

/* ---- comparing ---- */

/* Two captures at a time, so that names of tensors and labels never mix. */
static enum nd_status compare(const struct run *run, const struct nd_capture *ref,
                              const struct nd_capture *test, const char *edges, struct nd_comparison **out,
                              struct nd_error *err)
{
    const struct nd_capture *const both[] = {ref, test};
    struct nd_compare_options how = nd_compare_options_default();
    how.allow_different_models = true; /* the float model */
    how.edges = edges;
    how.n_worst = 0;
    how.n_threads = run->job->options->n_threads;
    how.is_cancelled = run->job->options->is_cancelled;
    how.cancel_context = run->job->options->cancel_context;
    return nd_compare_captures(both, 2, &how, out, err);
}

static enum nd_status read_differences(const struct nd_comparison *comparison, struct nd_sweep_setting *setting,
                                       struct nd_error *err)
{
    double n_values = 0, n_differing = 0;
    for (size_t e = 0; e < comparison->n_edges; e++) {
        const struct nd_compared_edge *edge = &comparison->edges[e];
        const struct nd_difference *difference = &edge->pairs[0].total.difference;
        if (edge->pairs[0].total.coverage == ND_COVERAGE_NONE)
            continue;
        bool differs = difference->n_samples_differing > 0;
        setting->n_tensors++;
        setting->n_different += differs;
        if (differs && setting->first == NULL) {
            setting->first = nd_strdup(edge->name);
            if (setting->first == NULL)
                return nd_fail_memory(err);
        }
        if (!edge->is_model_output)
            continue;
        n_values += (double)difference->n_elems;
        n_differing += (double)difference->n_differing;
        setting->output_lsb =
            difference->max_lsb > setting->output_lsb ? difference->max_lsb : setting->output_lsb;
    }
    setting->output_share = n_values > 0 ? n_differing / n_values : 0;
    return ND_OK;
}

/* Of the first output with classes. device: 1, the test, or 0. */
static void read_classes(const struct nd_comparison *comparison, size_t device,
                         struct nd_sweep_setting *setting)
{
    for (size_t t = 0; t < comparison->n_top1 && comparison->top1[t].edge == comparison->top1[0].edge; t++) {
        const struct nd_top1 *top1 = &comparison->top1[t];
        if (top1->devices[device].exists && top1->has_labels) {
            setting->n_labelled += top1->devices[device].n_samples;
            setting->n_right += top1->devices[device].n_correct;
        }
        if (device == 1 && top1->pairs[0].exists)
            setting->n_changed += top1->pairs[0].n_samples - top1->pairs[0].n_agree;
    }
}

static enum nd_status hold_against_floats(const struct run *run, size_t i, struct nd_error *err)
{
    struct nd_comparison *comparison = NULL;
    if (run->floats == NULL)
        return ND_OK;
    enum nd_status status = compare(run, run->floats, run->captures[i], "outputs", &comparison, err);
    if (status == ND_OK)
        run->job->result->settings[i].sqnr_db = nd_comparison_sqnr_db(comparison, 0);
    nd_comparison_destroy(&comparison);
    return status;
}

static enum nd_status read_setting(const struct run *run, size_t i, struct nd_error *err)
{
    struct nd_sweep *result = run->job->result;
    struct nd_sweep_setting *setting = &result->settings[i];
    struct nd_latency latency;
    struct nd_comparison *comparison = NULL;
    if (setting->failure != NULL)
        return ND_OK;
    /* The device as it is beside itself: for its tensors and classes. */
    enum nd_status status = compare(run, run->captures[0], run->captures[i], NULL, &comparison, err);
    if (status == ND_OK)
        status = read_differences(comparison, setting, err);
    if (status == ND_OK)
        read_classes(comparison, 1, setting);
    if (status == ND_OK && i == 0) {
        result->environment = nd_strdup(comparison->devices[0].environment);
        status = result->environment != NULL ? ND_OK : nd_fail_memory(err);
    }
    nd_comparison_destroy(&comparison);
    result->n_changing += setting->n_different > 0;
    if (status == ND_OK)
        status = nd_latency_of_capture(run->captures[i], 0, NULL, &latency, err);
    if (status != ND_OK)
        return status;
    setting->median_us = latency.n_timed > 0 ? latency.median_us : latency.first_us;
    return hold_against_floats(run, i, err);
}

enum nd_status nd_sweep_run(struct nd_sweep_job *job, struct nd_error *err)
{
    struct run run = {.job = job, .captures = nd_calloc(job->result->n_settings, sizeof(void *))};
    enum nd_status status = run.captures != NULL ? capture_all(&run, err) : nd_fail_memory(err);
    for (size_t i = 0; i < job->result->n_settings && status == ND_OK; i++) {
        status = tell(job, "compare", i, job->result->n_settings, err);
        if (status == ND_OK)
            status = read_setting(&run, i, err);
    }
    for (size_t i = 0; i < job->result->n_settings && run.captures != NULL; i++)
        nd_capture_close(&run.captures[i]);
    nd_capture_close(&run.floats);
    free(run.captures);
    return status;
}
