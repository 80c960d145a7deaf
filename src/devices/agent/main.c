/* npudiff-agent [--resume] JOB SPOOL: runs one job on one device in a process of its own, since providers
 * crash, hang and print. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/processes/process.h"
#include "devices/agent/agent.h"
#include "devices/agent/confine.h"
#include "devices/agent/runtime/runtime.h"
#include "devices/agent/spool/job_file.h"

/* The host tells a device that failed from a disk that is full by them. */

static int fail(const struct nd_error *err, int code)
{
    fprintf(stderr, "npudiff-agent: %s [ND-%d]\n", err->message, err->id);
    return code;
}

static enum nd_status open_spool(const struct nd_agent_job *job, const char *path, bool is_resuming,
                                 struct nd_spool_writer *writer, struct nd_resume *resume, struct nd_error *err)
{
    if (is_resuming)
        return nd_resume_open(job, path, writer, resume, err);
    resume->is_fresh = true;
    return nd_spool_writer_open(writer, path, err);
}

static int run(const char *job_path, const char *spool_path, bool is_resuming)
{
    struct nd_error err = {0};
    struct nd_agent_job job = {0};
    struct nd_resume resume = {0};
    struct nd_spool_writer writer;
    if (nd_job_read(job_path, &job, &err) != ND_OK)
        return fail(&err, ND_AGENT_CANNOT_STORE);
    enum nd_status status = open_spool(&job, spool_path, is_resuming, &writer, &resume, &err);
    if (status == ND_OK && !resume.has_ended) {
        nd_agent_confine(&job, nd_runtime_starts_program()); /* before there is foreign code */
        status = nd_agent_run(&job, &resume, &writer, &err);
        enum nd_status closed = nd_spool_writer_close(&writer, status == ND_OK ? &err : NULL);
        status = status != ND_OK ? status : closed;
    }
    nd_resume_close(&resume);
    nd_job_deinit(&job);
    if (status == ND_OK)
        return 0;
    /* Anything else, such as memory that is out, is in the spool as the device's failure. */
    return fail(&err, err.id == ND_E_FILE_WRITE     ? ND_AGENT_CANNOT_STORE
                      : err.id == ND_E_SPOOL_RESUME ? ND_AGENT_CANNOT_RESUME
                                                    : ND_AGENT_DEVICE_FAILED);
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("npudiff-agent %s\n", nd_version());
        return 0;
    }
    bool is_resuming = argc == 4 && strcmp(argv[1], "--resume") == 0;
    if (argc != 3 && !is_resuming) {
        fprintf(
            stderr,
            "usage: npudiff-agent [--resume] JOB SPOOL\n"
            "Runs the job file and appends what the device produces to the new file SPOOL. With --resume it\n"
            "continues after what an interrupted agent had acknowledged in SPOOL, and starts over\n"
            "where that is nothing. It is started by npudiff; JOB is written by it.\n"
            "Exit codes: 0 done, 1 the device failed, 2 usage, 3 the spool cannot be written or the job not\n"
            "read, 4 the spool is of another job, damaged, or still being written.\n");
        return ND_AGENT_USAGE;
    }
    signal(SIGXFSZ, SIG_IGN);           /* a file size limit is an error to report, like a full disk */
    dup2(STDERR_FILENO, STDOUT_FILENO); /* providers print their stages on stdout */

    /* What libraries leave in the temporary folder (ONNX Runtime: .ses) goes with the agent's own folder. */
    char *here = getcwd(NULL, 0);
    if (here != NULL)
        setenv("TMPDIR", here, 1);
    free(here);
    setenv("ORT_DISABLE_TELEMETRY", "1", 1); /* the API call against it comes after the library has begun */

    nd_process_tree_keep();
    int exit_code = run(argv[argc - 2], argv[argc - 1], is_resuming);
    nd_process_tree_kill(getpid()); /* what a runner has left */
    return exit_code;
}
