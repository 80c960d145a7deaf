/* One run of a job of a capture, here or on another machine, and the run of the untouched model beside a
 * capture (docs/science/theory.md#observer). */
#include <stdio.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/agent/spool/spool.h"
#include "devices/launch.h"
#include "devices/phones/remote.h"
#include "record/sessions/assemble_outputs.h"
#include "record/sessions/capture_run.h"
#include "record/sessions/untouched.h"

static size_t samples_of(const struct nd_capture_job *capture, const struct nd_agent_job *job)
{
    return job->n_probes > 0 ? nd_capture_job_n_samples(capture) * job->n_passes : 0;
}

bool nd_job_run_has_samples(const char *folder, bool cuts)
{
    struct nd_spool_kept kept = {0};
    ND_FREED char *spool = nd_path_join(folder, "spool.nds");
    return spool != NULL && nd_spool_keep(spool, &kept, NULL) == ND_OK && kept.size_bytes > 0 &&
           (!cuts || truncate(spool, (off_t)kept.size_bytes) == 0);
}

static enum nd_status write_job(const struct nd_agent_job *job, const char *folder, struct nd_error *err)
{
    ND_FREED char *path = nd_path_join(folder, "job.nds");
    ND_TRY(path != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err));
    unlink(path);
    return nd_job_write(job, path, err);
}

/* The agent's last line, without its name. */
static void read_reason(const char *folder, char *reason, size_t size)
{
    static const char name[] = "npudiff-agent: ";
    char line[256] = "";
    ND_FREED char *path = nd_path_join(folder, "stdout.txt");
    if (path != NULL)
        nd_file_last_line(path, line, sizeof line);
    bool has_name = strncmp(line, name, sizeof name - 1) == 0;
    snprintf(reason, size, "%s", nd_said(has_name ? line + sizeof name - 1 : line));
}

/* Which of the agents runs such a device: what follows "npudiff-agent" in its name. Static. */
static const char *nd_device_agent_suffix(enum nd_device_kind kind)
{
    return nd_device_is_evaluated(kind) ? "-exact" : kind == ND_DEVICE_EXEC ? "-exec" : "";
}

static enum nd_status run_here(const struct nd_capture_job *capture, const struct nd_agent_job *job,
                               const char *folder, const struct nd_capture_options *options,
                               struct nd_agent_exit *exit, struct nd_error *err)
{
    char *agent = NULL, anew[sizeof exit->anew] = "";
    bool is_resuming = options->resume && job == &capture->job && nd_job_run_has_samples(folder, true);
    enum nd_status status =
        nd_agent_find(options->agent, nd_device_agent_suffix(capture->device->kind), &agent, err);
    for (bool again = true; status == ND_OK && again;) {
        if (!is_resuming)
            nd_dir_remove(folder);
        status = write_job(job, folder, err);
        if (status != ND_OK)
            break;
        const struct nd_agent_start start = {
            .agent = agent,
            .folder = folder,
            .options = options,
            .label = capture->device->label,
            .is_resuming = is_resuming,
            .begun_ns = capture->begun_ns,
            .samples_total = samples_of(capture, job),
        };
        status = nd_agent_launch(&start, exit, err);
        again = status == ND_OK && exit->cannot_resume;
        if (again)
            read_reason(folder, anew, sizeof anew);
        is_resuming = false;
    }
    if (status == ND_OK)
        memcpy(exit->anew, anew, sizeof anew);
    free(agent);
    return status;
}

enum nd_status nd_job_run(const struct nd_capture_job *capture, const struct nd_agent_job *job,
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
        .samples_total = samples_of(capture, job),
        .is_trial = job != &capture->job,
    };
    return nd_remote_run(capture->remote, &run, exit, err);
}

/* ---- the untouched model ---- */

/* Of each probe so many samples, the first ones, run untouched. Chosen: what a runtime fuses it fuses in every
 * sample (6 of 6 in the network that showed it), and on the simulator a run of all 700 samples of a digit
 * classifier took 2.1 times the processor time of the capture without it. */
enum { MAX_SAMPLES = 32 };

static enum nd_status assemble(const struct nd_capture_job *job, const char *folder,
                               const struct nd_agent_exit *exit, struct nd_capture_job *capture,
                               struct nd_error *err)
{
    struct nd_assembled assembled = {0};
    ND_FREED char *spool = nd_path_join(folder, "spool.nds"), *path = nd_path_join(job->folder, "untouched.h5");
    ND_FREED const struct nd_tensor **tensors = nd_calloc(job->n_tensors, sizeof *tensors);
    ND_TRY_MEMORY(spool != NULL && path != NULL && tensors != NULL, err);
    for (size_t i = 0; i < job->n_tensors; i++)
        tensors[i] = &job->tensors[i];
    const struct nd_assembly assembly = {.spool_path = spool,
                                         .path = path,
                                         .replace = true,
                                         .tensors = tensors,
                                         .pass_of_tensor = job->pass_of_tensor,
                                         .n_tensors = job->n_tensors,
                                         .n_passes = 1,
                                         .probes = job->probes,
                                         .n_probes = job->n_probes,
                                         .n_repeats = (size_t)job->job.n_repeats,
                                         .has_reruns = job->options->n_repeats == 0,
                                         .deflate_level = job->options->deflate_level,
                                         .model = job->model,
                                         .death = exit->error.id != 0 ? &exit->error : NULL,
                                         .death_stage = exit->stage,
                                         .is_reproducible = true};
    ND_TRY(nd_capture_assemble(&assembly, &assembled, err));
    bool is_whole = assembled.state == ND_CAPTURE_COMPLETE;
    char **to = is_whole ? &capture->untouched : &capture->untouched_why;
    *to = nd_strdup(is_whole ? path : assembled.failure.message);
    return *to != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_untouched_run(struct nd_capture_job *capture, double time_share, char **folder,
                                struct nd_agent_exit *exit, struct nd_error *err)
{
    struct nd_capture_options options = *capture->options;
    options.tensors = "none";
    options.prefixes = options.profile = options.resume = false;
    options.progress = NULL; /* it would count the samples twice */
    options.time_limit_s *= time_share;
    ND_FREED char *own = nd_path_join(capture->folder, "untouched");
    ND_FREED struct nd_probe *first = nd_calloc(capture->n_probes, sizeof *first);
    ND_FREED const struct nd_probe **probes = nd_calloc(capture->n_probes, sizeof *probes);
    *folder = own != NULL ? nd_path_join(own, "run") : NULL;
    ND_TRY_MEMORY(*folder != NULL && first != NULL && probes != NULL, err);
    for (size_t p = 0; p < capture->n_probes; p++) {
        first[p] = *capture->probes[p];
        first[p].n_samples = first[p].n_samples < MAX_SAMPLES ? first[p].n_samples : MAX_SAMPLES;
        probes[p] = &first[p];
    }
    struct nd_capture_job job = {.model = capture->model,
                                 .device = capture->device,
                                 .probes = probes,
                                 .n_probes = capture->n_probes,
                                 .options = &options,
                                 .begun_ns = capture->begun_ns,
                                 .folder = own,
                                 .remote = capture->remote};
    enum nd_status status = nd_dir_make(own, err);
    if (status == ND_OK)
        status = nd_capture_job_init(&job, err);
    if (status == ND_OK)
        status = nd_job_run(capture, &job.job, *folder, &options, exit, err);
    if (status == ND_OK)
        status = assemble(&job, *folder, exit, capture, err);
    capture->n_untouched = 1;
    nd_capture_job_deinit(&job);
    return status;
}
