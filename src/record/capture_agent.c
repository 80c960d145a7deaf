#include "record/capture_agent.h"
#include "device/device_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/strbuf.h"
#include "record/pass_plan.h"
#include "remote/remote.h"
#include "spool/record_fields.h"

void nd_capture_report_stage(const struct nd_capture_job *capture, const char *stage, double elapsed_s)
{
    if (capture->options->progress == NULL)
        return;
    const struct nd_capture_progress progress = {.device = capture->device->label,
                                                 .stage = stage,
                                                 .samples_total = nd_capture_job_n_samples(capture),
                                                 .elapsed_s = elapsed_s};
    capture->options->progress(capture->options->progress_context, &progress);
}

/* ---- one run of the agent ---- */

static enum nd_status run_here(const struct nd_capture_job *capture, const struct nd_job *job,
                               const char *folder, const struct nd_capture_options *options,
                               struct nd_agent_exit *exit, struct nd_error *err)
{
    char *agent = NULL;
    char *job_path = nd_path_join(folder, "job.nds");
    enum nd_status status = job_path != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    if (status == ND_OK)
        status = nd_job_write(job, job_path, err);
    if (status == ND_OK)
        status = nd_agent_find(options->agent, nd_device_is_evaluated(capture->device->kind), &agent, err);
    if (status == ND_OK) {
        const struct nd_agent_start start = {
            .agent = agent,
            .folder = folder,
            .options = options,
            .label = capture->device->label,
            .begun_ns = capture->begun_ns,
            .samples_total = job->n_probes > 0 ? nd_capture_job_n_samples(capture) * job->n_passes : 0,
        };
        status = nd_agent_launch(&start, exit, err);
    }
    free(agent);
    free(job_path);
    return status;
}

static enum nd_status run_job(const struct nd_capture_job *capture, const struct nd_job *job,
                              const char *folder, const struct nd_capture_options *options,
                              struct nd_agent_exit *exit, struct nd_error *err)
{
    if (capture->remote == NULL)
        return run_here(capture, job, folder, options, exit, err);
    const struct nd_remote_run run = {
        .job = job,
        .device = capture->device,
        .model = capture->model,
        .folder = folder,
        .options = options,
        .begun_ns = capture->begun_ns,
        .samples_total = job->n_probes > 0 ? nd_capture_job_n_samples(capture) * job->n_passes : 0,
        .is_trial = job->n_probes == 0,
    };
    return nd_remote_run(capture->remote, &run, exit, err);
}

/* ---- placement ---- */

static enum nd_status add_fallen(const struct nd_job *job, const struct nd_record *record,
                                 struct nd_fallen *fallen, struct nd_error *err)
{
    char *provider = nd_fields_get(record, "provider");
    char *name = nd_fields_get(record, "name");
    enum nd_status status = provider != NULL && name != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && strcmp(provider, job->provider_name) != 0 && !nd_job_is_io_node(job, name)) {
        char **grown = realloc(fallen->names, (fallen->n + 1) * sizeof *grown);
        if (grown == NULL) {
            status = nd_fail_memory(err);
        } else {
            fallen->names = grown;
            grown[fallen->n++] = name;
            name = NULL;
        }
    }
    free(provider);
    free(name);
    return status;
}

/* The nodes that a run placed elsewhere than on its provider, from its spool; none when it died before it began
 * one. */
static enum nd_status read_fallen(const struct nd_job *job, const char *folder, struct nd_fallen *out,
                                  struct nd_error *err)
{
    struct nd_fallen fallen = {0};
    struct nd_spool_reader reader = {0};
    struct nd_record record;
    char *spool = nd_path_join(folder, "spool.nds");
    enum nd_status status = spool != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(spool))
        status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && nd_spool_next(&reader, &record))
        if (record.kind == ND_RECORD_NODE)
            status = add_fallen(job, &record, &fallen, err);
    nd_spool_reader_close(&reader);
    free(spool);
    if (status == ND_OK)
        *out = fallen;
    else
        nd_fallen_deinit(&fallen);
    return status;
}

struct trial_context {
    const struct nd_capture_job *capture;
    unsigned int n_trials;
    struct nd_fallen own; /* nodes that fall when nothing but the outputs is recorded: looking is not why */
};

/* Keeps in `fallen` only the nodes that fell because tensors were recorded. */
static void remove_own(struct nd_fallen *fallen, const struct nd_fallen *own)
{
    size_t n = 0;
    for (size_t i = 0; i < fallen->n; i++) {
        if (nd_fallen_has(own, fallen->names[i]))
            free(fallen->names[i]);
        else
            fallen->names[n++] = fallen->names[i];
    }
    fallen->n = n;
}

/* nd_placement_trial: a session of its own, without samples. */
static enum nd_status try_placement(void *context, const size_t *edges, size_t n_edges,
                                    struct nd_fallen *fallen, struct nd_error *err)
{
    struct trial_context *trials = context;
    const struct nd_capture_job *capture = trials->capture;
    struct nd_agent_exit exit = {0};
    struct nd_job trial;
    char name[32];
    snprintf(name, sizeof name, "trial%u", trials->n_trials++);
    char *folder = nd_path_join(capture->folder, name);
    if (folder == NULL)
        return nd_fail_memory(err);
    enum nd_status status = nd_capture_job_trial(capture, edges, n_edges, &trial, err);
    if (status == ND_OK) {
        struct nd_capture_options quiet = *capture->options;
        quiet.progress = NULL; /* many short sessions are one stage to whoever watches */
        status = run_job(capture, &trial, folder, &quiet, &exit, err);
        /* A trial that never came to run tells nothing. */
        if (status == ND_OK && capture->remote != NULL && (exit.stage != NULL || exit.can_resume))
            status = nd_fail(err, (enum nd_error_id)exit.error.id, exit.error.object, "%s", exit.error.message);
        if (status == ND_OK)
            status = read_fallen(&trial, folder, fallen, err);
        if (status == ND_OK)
            remove_own(fallen, &trials->own);
        nd_capture_job_free_trial(&trial);
    }
    nd_dir_remove(folder);
    free(folder);
    return status;
}

/* Which later passes can expose the model's outputs a second time without moving a node. */
static enum nd_status choose_checks(struct trial_context *trials, size_t n_passes, bool *with_checks,
                                    struct nd_error *err)
{
    const struct nd_capture_job *capture = trials->capture;
    enum nd_status status = ND_OK;
    size_t *exposed = nd_calloc(capture->n_edges, sizeof *exposed);
    if (exposed == NULL)
        return nd_fail_memory(err);
    for (size_t p = 1; status == ND_OK && p < n_passes; p++) {
        size_t n = 0;
        struct nd_fallen fallen = {0};
        for (size_t e = 0; e < capture->n_edges; e++)
            if (capture->pass_of_edge[e] == p ||
                (capture->pass_of_edge[e] == 0 && capture->edges[e].is_model_output))
                exposed[n++] = capture->selected[e];
        status = try_placement(trials, exposed, n, &fallen, err);
        with_checks[p] = fallen.n == 0;
        nd_fallen_deinit(&fallen);
    }
    free(exposed);
    return status;
}

/* Which nodes the device leaves to the CPU when nothing but the model's outputs is recorded. */
static enum nd_status find_own(struct trial_context *trials, struct nd_error *err)
{
    const struct nd_model *model = trials->capture->model;
    struct nd_fallen own = {0};
    size_t n = 0;
    size_t *outputs = nd_calloc(nd_model_n_edges(model), sizeof *outputs);
    if (outputs == NULL)
        return nd_fail_memory(err);
    for (size_t e = 0; e < nd_model_n_edges(model); e++)
        if (nd_model_edge(model, e)->is_model_output)
            outputs[n++] = e;
    enum nd_status status = try_placement(trials, outputs, n, &own, err);
    free(outputs);
    if (status == ND_OK)
        trials->own = own;
    return status;
}

/* Cuts the capture into passes in which recording moves no node; *is_cut is false where that is not possible.
 */
static enum nd_status cut_into_passes(struct nd_capture_job *capture, struct trial_context *trials,
                                      bool *is_cut, struct nd_error *err)
{
    size_t n_passes = 1;
    const struct nd_recording recording = {capture->model, capture->selected, capture->n_edges, try_placement,
                                           trials};
    enum nd_status status = nd_plan_passes(&recording, capture->pass_of_edge, &n_passes, err);
    bool *with_checks = nd_calloc(n_passes, sizeof *with_checks);
    if (status == ND_OK && with_checks == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK && n_passes > 1)
        status = choose_checks(trials, n_passes, with_checks, err);
    if (status == ND_OK && n_passes > 1)
        status = nd_capture_job_set_passes(capture, n_passes, with_checks, err);
    *is_cut = n_passes > 1;
    free(with_checks);
    return status;
}

/* The names, one a line, for the capture. */
static enum nd_status note_moved(struct nd_capture_job *capture, const struct nd_fallen *moved,
                                 struct nd_error *err)
{
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < moved->n; i++)
        nd_strbuf_printf(&text, "%s%s", i > 0 ? "\n" : "", moved->names[i]);
    capture->moved = nd_strbuf_take(&text);
    return capture->moved != NULL ? ND_OK : nd_fail_memory(err);
}

/* Nodes fell in the session that records everything: makes the job one in which looking moves nothing, where
 * that is possible. *again says whether that job, or one that is allowed to fall back, is to be run. */
static enum nd_status plan_after_fallback(struct nd_capture_job *capture, struct nd_fallen *fallen, bool *again,
                                          struct nd_error *err)
{
    struct trial_context trials = {.capture = capture};
    bool is_cut = false, may_fall = capture->options->allow_fallback;
    enum nd_status status = may_fall ? find_own(&trials, err) : ND_OK;
    remove_own(fallen, &trials.own);
    if (status == ND_OK && fallen->n > 0)
        status = cut_into_passes(capture, &trials, &is_cut, err);
    if (status == ND_OK && fallen->n > 0 && !is_cut && may_fall)
        status = note_moved(capture, fallen, err);
    capture->job.is_fallback_allowed = may_fall;
    *again = is_cut || may_fall;
    nd_fallen_deinit(&trials.own);
    return status;
}

/* Runs in one pass; where exposing the edges moved nodes off the NPU, again in several. Leave to fall back is
 * leave for what the model itself does on the device: what falls because it is recorded is recorded apart in
 * either case. *folder is the run that counts. */
static enum nd_status run_all(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                              struct nd_error *err)
{
    struct nd_fallen fallen = {0};
    bool again = false;
    bool can_be_cut = nd_device_is_npu(capture->device->kind) && !nd_capture_job_is_untouched(capture) &&
                      !capture->options->prefixes;
    if (can_be_cut)
        capture->job.is_fallback_allowed = false; /* then it stops before it runs a sample */
    *folder = nd_path_join(capture->folder, "run");
    enum nd_status status = *folder != NULL
                                ? run_job(capture, &capture->job, *folder, capture->options, exit, err)
                                : nd_fail_memory(err);
    if (status == ND_OK && can_be_cut)
        status = read_fallen(&capture->job, *folder, &fallen, err);
    if (status == ND_OK && fallen.n > 0) {
        nd_capture_report_stage(capture, "placement", exit->elapsed_s);
        status = plan_after_fallback(capture, &fallen, &again, err);
    }
    nd_fallen_deinit(&fallen);
    if (status != ND_OK || !again)
        return status;
    free(*folder);
    *folder = nd_path_join(capture->folder, "run-again");
    return *folder != NULL ? run_job(capture, &capture->job, *folder, capture->options, exit, err)
                           : nd_fail_memory(err);
}

enum nd_status nd_capture_run_agent(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                                    struct nd_error *err)
{
    struct nd_error why = {0};
    enum nd_status status = run_all(capture, folder, exit, &why);
    /* Placement that cannot be tried on a machine elsewhere is that machine's failure. */
    if (status != ND_OK && capture->remote != NULL && *folder != NULL && nd_remote_is_of_device(&why)) {
        exit->error = why;
        exit->can_resume = why.id == ND_E_LINK_LOST;
        return ND_OK;
    }
    if (status != ND_OK && err != NULL)
        *err = why;
    return status;
}
