/* npudiff-agent JOB SPOOL: runs one job on one device in a process of its own, since providers crash, hang and
 * print. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/run.h"

/* The host tells a device that failed from a disk that is full by them. */
enum { EXIT_DEVICE_FAILED = 1, EXIT_USAGE = 2, EXIT_CANNOT_STORE = 3 };

static int fail(const struct nd_error *err, int code)
{
    fprintf(stderr, "npudiff-agent: %s [ND-%d]\n", err->message, err->id);
    return code;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        printf("npudiff-agent %s\n", nd_version());
        return 0;
    }
    if (argc != 3) {
        fprintf(stderr, "usage: npudiff-agent JOB SPOOL\n"
                        "Runs the job file and appends what the device produces to the new file SPOOL.\n"
                        "It is started by npudiff; JOB is written by it.\n");
        return EXIT_USAGE;
    }
    signal(SIGXFSZ, SIG_IGN);           /* a file size limit is an error to report, like a full disk */
    dup2(STDERR_FILENO, STDOUT_FILENO); /* providers print their stages on stdout */

    /* What libraries leave in the temporary folder (ONNX Runtime's telemetry: .ses) goes with the agent's own
     * folder. */
    char *here = getcwd(NULL, 0);
    if (here != NULL)
        setenv("TMPDIR", here, 1);
    free(here);
    setenv("ORT_DISABLE_TELEMETRY", "1", 1); /* the API call against it comes after the library has begun */

    struct nd_error err = {0};
    struct nd_job job = {0};
    if (nd_job_read(argv[1], &job, &err) != ND_OK)
        return fail(&err, EXIT_CANNOT_STORE);
    struct nd_spool_writer writer;
    enum nd_status status = nd_spool_writer_open(&writer, argv[2], &err);
    if (status == ND_OK) {
        status = nd_agent_run(&job, &writer, &err);
        enum nd_status closed = nd_spool_writer_close(&writer, status == ND_OK ? &err : NULL);
        status = status != ND_OK ? status : closed;
    }
    nd_job_deinit(&job);
    /* Anything else, such as memory that is out, is in the spool as the device's failure. */
    return status == ND_OK ? 0 : fail(&err, err.id == ND_E_FILE_WRITE ? EXIT_CANNOT_STORE : EXIT_DEVICE_FAILED);
}
