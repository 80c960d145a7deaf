#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "capture/assemble.h"
#include "device/capture_job.h"
#include "device/internal.h"
#include "device/plan.h"
#include "device/provenance.h"
#include "spool/fields.h"

void nd_capture_options_init(struct nd_capture_options *options)
{
    *options = (struct nd_capture_options){
        .struct_size = sizeof *options,
        .n_repeats = 1,
        .deflate_level = 1,
        .log_severity = 2,
        .time_limit_s = 3600,
        .stall_limit_s = 600,
        .memory_limit_bytes = (size_t)8 << 30,
    };
}

static void report_stage(const struct nd_capture_job *capture, const char *stage, double elapsed_s)
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

static enum nd_status run_job(const struct nd_capture_job *capture, const struct nd_job *job,
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
};

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
        if (status == ND_OK)
            status = read_fallen(&trial, folder, fallen, err);
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

/* Cuts the capture into passes in which every node stays on its provider; *is_cut is false where that is not
 * possible. */
static enum nd_status cut_into_passes(struct nd_capture_job *capture, bool *is_cut, struct nd_error *err)
{
    struct trial_context trials = {.capture = capture};
    size_t n_passes = 1;
    enum nd_status status = nd_plan_passes(capture->model, capture->selected, capture->n_edges, try_placement,
                                           &trials, capture->pass_of_edge, &n_passes, err);
    bool *with_checks = nd_calloc(n_passes, sizeof *with_checks);
    if (status == ND_OK && with_checks == NULL)
        status = nd_fail_memory(err);
    if (status == ND_OK && n_passes > 1)
        status = choose_checks(&trials, n_passes, with_checks, err);
    if (status == ND_OK && n_passes > 1)
        status = nd_capture_job_set_passes(capture, n_passes, with_checks, err);
    *is_cut = n_passes > 1;
    free(with_checks);
    return status;
}

/* Runs in one pass; where exposing the edges moved nodes off the NPU, again in several. *folder is the run that
 * counts. */
static enum nd_status run_all(struct nd_capture_job *capture, char **folder, struct nd_agent_exit *exit,
                              struct nd_error *err)
{
    struct nd_fallen fallen = {0};
    bool is_cut = false;
    bool can_be_cut = capture->device->kind == ND_DEVICE_HTP_SIM && !capture->options->allow_fallback &&
                      !nd_capture_job_is_untouched(capture) && !capture->options->prefixes;
    *folder = nd_path_join(capture->folder, "run");
    enum nd_status status = *folder != NULL
                                ? run_job(capture, &capture->job, *folder, capture->options, exit, err)
                                : nd_fail_memory(err);
    if (status == ND_OK && can_be_cut)
        status = read_fallen(&capture->job, *folder, &fallen, err);
    if (status == ND_OK && fallen.n > 0) {
        report_stage(capture, "placement", exit->elapsed_s);
        status = cut_into_passes(capture, &is_cut, err);
    }
    nd_fallen_deinit(&fallen);
    if (status != ND_OK || !is_cut)
        return status;
    free(*folder);
    *folder = nd_path_join(capture->folder, "run-in-passes");
    return *folder != NULL ? run_job(capture, &capture->job, *folder, capture->options, exit, err)
                           : nd_fail_memory(err);
}

/* ---- which prefix failed ---- */

/* The edge that a pass records alone. */
static const struct nd_edge *edge_of_prefix(const struct nd_capture_job *capture, size_t pass)
{
    for (size_t e = 0; e < capture->n_edges; e++)
        if (capture->pass_of_edge[e] == pass)
            return &capture->edges[e];
    return NULL;
}

/* Of a capture of prefixes whose agent failed: the edge whose session was in work. *edge is NULL where there is
 * none such. */
static enum nd_status find_failed_prefix(const struct nd_capture_job *capture, const char *folder,
                                         const struct nd_agent_exit *exit, const struct nd_edge **edge,
                                         struct nd_error *err)
{
    struct nd_spool_reader reader = {0};
    struct nd_record record;
    size_t pass = SIZE_MAX;
    *edge = NULL;
    if (!capture->options->prefixes || exit->error.id == 0)
        return ND_OK;
    char *spool = nd_path_join(folder, "spool.nds");
    enum nd_status status = spool != NULL ? ND_OK : nd_fail_memory(err);
    if (status == ND_OK && nd_path_exists(spool))
        status = nd_spool_reader_open(&reader, spool, err);
    while (status == ND_OK && nd_spool_next(&reader, &record)) {
        if (record.kind == ND_RECORD_PASS)
            pass = (size_t)record.index[0];
        else if (record.kind == ND_RECORD_END)
            pass = SIZE_MAX; /* it died after its work */
    }
    nd_spool_reader_close(&reader);
    free(spool);
    if (status == ND_OK)
        *edge = edge_of_prefix(capture, pass);
    return status;
}

/* ---- the capture ---- */

static enum nd_status collect_provenance(const struct nd_capture_job *capture, const struct nd_edge *failed,
                                         struct nd_provenance *out, struct nd_error *err)
{
    enum nd_status status = nd_provenance_collect(capture->device, capture->model, capture->options,
                                                  capture->job.n_passes, out, err);
    return status == ND_OK && failed != NULL ? nd_provenance_add_failed_edge(out, failed->name, err) : status;
}

static enum nd_status assemble(const struct nd_capture_job *capture, const char *folder,
                               const struct nd_agent_exit *exit, const char *path, struct nd_assembled *out,
                               struct nd_error *err)
{
    const struct nd_edge *failed = NULL;
    struct nd_provenance provenance = {0};
    char *spool_path = nd_path_join(folder, "spool.nds");
    char *stdout_path = nd_path_join(folder, "stdout.txt");
    const struct nd_edge **edges = nd_calloc(capture->n_edges, sizeof *edges);
    enum nd_status status = spool_path != NULL && stdout_path != NULL && edges != NULL
                                ? find_failed_prefix(capture, folder, exit, &failed, err)
                                : nd_fail_memory(err);
    if (status == ND_OK)
        status = collect_provenance(capture, failed, &provenance, err);
    for (size_t i = 0; edges != NULL && i < capture->n_edges; i++)
        edges[i] = &capture->edges[i];
    const struct nd_assembly assembly = {
        .spool_path = spool_path,
        .stdout_path = stdout_path,
        .path = path,
        .replace = capture->options->replace,
        .attrs = provenance.attrs,
        .n_attrs = provenance.n,
        .edges = edges,
        .pass_of_edge = capture->pass_of_edge,
        .n_edges = capture->n_edges,
        .n_passes = capture->job.n_passes,
        .probes = capture->probes,
        .n_probes = capture->n_probes,
        .n_repeats = (size_t)capture->job.n_repeats,
        .deflate_level = capture->options->deflate_level,
        .store_digests_only = capture->options->store_digests_only,
        .model = capture->model,
        .death = exit->error.id != 0 ? &exit->error : NULL,
        .is_reproducible = nd_provenance_is_reproducible(),
    };
    if (status == ND_OK)
        status = nd_capture_assemble(&assembly, out, err);
    if (status == ND_OK && failed != NULL)
        nd_error_context(&out->failure, "edge '%s'", failed->name);
    nd_provenance_deinit(&provenance);
    free(edges);
    free(spool_path);
    free(stdout_path);
    return status;
}

/* What would stop the writing at the end is found before anything runs. */
static enum nd_status check_target(const char *path, bool replace, struct nd_error *err)
{
    struct stat info;
    bool is_there = stat(path, &info) == 0;
    if (is_there && S_ISDIR(info.st_mode))
        return nd_fail(err, ND_E_FILE_EXISTS, path, "'%s' is a folder", path);
    if (is_there && !replace)
        return nd_fail(err, ND_E_FILE_EXISTS, path, "'%s' exists already", path);
    char *folder = nd_path_dir(path);
    if (folder == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    if (access(folder, W_OK) != 0)
        status = nd_fail(err, ND_E_FILE_WRITE, path, "cannot write '%s': %s", path, strerror(errno));
    free(folder);
    return status;
}

static enum nd_status check_request(const struct nd_model *model, const struct nd_probe *const *probes,
                                    size_t n_probes, const char *path, const struct nd_capture_options *options,
                                    struct nd_error *err)
{
    for (size_t i = 0; i < n_probes; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(probes[i]->name, probes[k]->name) == 0)
                return nd_fail(err, ND_E_OPTION_CONFLICT, probes[i]->name,
                               "two probes are called '%s' ('%s' and '%s')", probes[i]->name, probes[k]->source,
                               probes[i]->source);
    if (options->struct_size != sizeof *options)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "the options are of another version of the library");
    if (options->prefixes && options->edges != NULL && strcmp(options->edges, "none") == 0)
        return nd_fail(err, ND_E_OPTION_CONFLICT, NULL,
                       "prefixes cut the model behind each edge, and edges 'none' leave it untouched");
    if (options->deflate_level < 0 || options->deflate_level > 9)
        return nd_fail(err, ND_E_OPTION_VALUE, NULL, "the deflate level is %d; 0 to 9 are possible",
                       options->deflate_level);
    enum nd_status status = check_target(path, options->replace, err);
    return status == ND_OK ? nd_model_check_static(model, err) : status;
}

/* A temporary folder by its full path: the agent works in another folder than the host. */
static enum nd_status make_folder(char **out, struct nd_error *err)
{
    char *folder = NULL;
    enum nd_status status = nd_dir_make_temporary(&folder, err);
    if (status != ND_OK)
        return status;
    *out = realpath(folder, NULL);
    if (*out == NULL) {
        status = nd_fail(err, ND_E_FILE_OPEN, folder, "cannot find '%s': %s", folder, strerror(errno));
        nd_dir_remove(folder);
    }
    free(folder);
    return status;
}

enum nd_status nd_capture_run(const struct nd_model *model, const struct nd_device *device,
                              const struct nd_probe *const *probes, size_t n_probes, const char *path,
                              const struct nd_capture_options *options, struct nd_capture_outcome *outcome,
                              struct nd_error *err)
{
    struct nd_capture_job capture = {.model = model,
                                     .device = device,
                                     .probes = probes,
                                     .n_probes = n_probes,
                                     .options = options,
                                     .begun_ns = nd_clock_ns()};
    struct nd_agent_exit exit = {0};
    struct nd_assembled assembled = {0};
    char *folder = NULL, *run_folder = NULL;
    enum nd_status status = check_request(model, probes, n_probes, path, options, err);
    if (status == ND_OK)
        status = make_folder(&folder, err);
    capture.folder = folder;
    if (status == ND_OK)
        status = nd_capture_job_init(&capture, err);
    if (status == ND_OK)
        status = run_all(&capture, &run_folder, &exit, err);
    if (status == ND_OK) {
        report_stage(&capture, "write", exit.elapsed_s);
        status = assemble(&capture, run_folder, &exit, path, &assembled, err);
    }
    if (status == ND_OK) {
        *outcome = (struct nd_capture_outcome){.has_failed = assembled.state != ND_CAPTURE_COMPLETE,
                                               .samples_done = assembled.samples_done,
                                               .samples_total = nd_capture_job_n_samples(&capture),
                                               .failure = assembled.failure};
        snprintf(outcome->stage, sizeof outcome->stage, "%s", assembled.stage);
    }
    nd_capture_job_deinit(&capture);
    if (folder != NULL)
        nd_dir_remove(folder);
    free(folder);
    free(run_folder);
    return status;
}
