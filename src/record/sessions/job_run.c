#include "record/sessions/job_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/files/file.h"
#include "devices/device_options.h"
#include "devices/phones/remote.h"
#include "devices/agent/spool/spool.h"

static size_t samples_of(const struct nd_capture_job *capture, const struct nd_job *job)
{
    return job->n_probes > 0 ? nd_capture_job_n_samples(capture) * job->n_passes : 0;
}

bool nd_job_run_has_samples(const char *folder, bool cuts)
{
    struct nd_spool_kept kept = {0};
    char *spool = nd_path_join(folder, "spool.nds");
    bool has = spool != NULL && nd_spool_keep(spool, &kept, NULL) == ND_OK && kept.size_bytes > 0 &&
               (!cuts || truncate(spool, (off_t)kept.size_bytes) == 0);
    free(spool);
    return has;
}

static enum nd_status write_job(const struct nd_job *job, const char *folder, struct nd_error *err)
{
    char *path = nd_path_join(folder, "job.nds");
    enum nd_status status = path != NULL ? nd_dir_make(folder, err) : nd_fail_memory(err);
    if (status == ND_OK)
        unlink(path);
    if (status == ND_OK)
        status = nd_job_write(job, path, err);
    free(path);
    return status;
}

/* The agent's last line, without its name. */
static void read_reason(const char *folder, char *reason, size_t size)
{
    static const char name[] = "npudiff-agent: ";
    char line[256] = "";
    char *path = nd_path_join(folder, "stdout.txt");
    if (path != NULL)
        nd_file_last_line(path, line, sizeof line);
    bool has_name = strncmp(line, name, sizeof name - 1) == 0;
    snprintf(reason, size, "%s", nd_said(has_name ? line + sizeof name - 1 : line));
    free(path);
}

static enum nd_status run_here(const struct nd_capture_job *capture, const struct nd_job *job,
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

enum nd_status nd_job_run(const struct nd_capture_job *capture, const struct nd_job *job, const char *folder,
                          const struct nd_capture_options *options, struct nd_agent_exit *exit,
                          struct nd_error *err)
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
