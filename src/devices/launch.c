/* Starts an agent on this machine, and watches a run by the spool that it writes. */
#include "devices/launch.h"
#include "core/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/processes/process.h"
#include "devices/agent/spool/job_file.h"

void nd_watch_begin(struct nd_watch *watch, const struct nd_capture_options *options, const char *label,
                    const char *spool, size_t samples_total, uint64_t begun_ns)
{
    uint64_t now = nd_clock_awake_ns();
    *watch = (struct nd_watch){.options = options,
                               .label = label,
                               .spool = spool,
                               .samples_total = samples_total,
                               .started_ns = now,
                               .begun_ns = begun_ns != 0 ? begun_ns : now,
                               .progress_ns = now,
                               .follower = {.fd = -1},
                               .stage = "load"};
}

void nd_watch_end(struct nd_watch *watch)
{
    nd_spool_follower_close(&watch->follower);
}

/* The stage shown follows from the kinds of record. */
void nd_watch_follow(struct nd_watch *watch)
{
    struct nd_record record;
    while (nd_spool_follow(&watch->follower, watch->spool, &record)) {
        watch->progress_ns = nd_clock_awake_ns();
        if (record.kind == ND_RECORD_ACK) {
            if (record.index[0] != watch->probe)
                watch->samples_before += watch->samples_probe;
            watch->probe = record.index[0];
            watch->samples_probe = record.index[1];
        } else if (record.kind == ND_RECORD_PASS) {
            watch->samples_before += watch->samples_probe;
            watch->samples_probe = 0;
            snprintf(watch->stage, sizeof watch->stage, "session");
        } else if (record.kind == ND_RECORD_NODE) {
            snprintf(watch->stage, sizeof watch->stage, "placement");
        } else if (record.kind == ND_RECORD_OUTPUT || record.kind == ND_RECORD_CHUNK) {
            snprintf(watch->stage, sizeof watch->stage, "run");
        }
    }
}

/* Below 0 where this process was stopped just before `ns` was read, and that was noted afterwards. */
static double seconds_since(uint64_t ns)
{
    return (double)(int64_t)(nd_clock_awake_ns() - ns) * 1e-9;
}

double nd_watch_elapsed_s(const struct nd_watch *watch)
{
    return seconds_since(watch->started_ns);
}

/* Whether any sample was acknowledged. */
static bool nd_watch_has_samples(const struct nd_watch *watch)
{
    return watch->samples_before + watch->samples_probe > 0;
}

bool nd_watch_is_cancelled(const struct nd_watch *watch)
{
    const struct nd_capture_options *options = watch->options;
    return options->is_cancelled != NULL && options->is_cancelled(options->cancel_context);
}

enum nd_status nd_watch_check(const struct nd_watch *watch, size_t resident_bytes, struct nd_error *err)
{
    const struct nd_capture_options *options = watch->options;
    const char *label = watch->label;
    if (nd_watch_is_cancelled(watch))
        return nd_fail(err, ND_E_CANCELLED, label, "device '%s' was stopped on request", label);
    if (options->time_limit_s > 0 && seconds_since(watch->begun_ns) > options->time_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label, "device '%s' was stopped after its time limit of %g s",
                       label, options->time_limit_s);
    if (options->stall_limit_s > 0 && seconds_since(watch->progress_ns) > options->stall_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label, "device '%s' was stopped: no progress for %g s", label,
                       options->stall_limit_s);
    if (options->session_limit_s > 0 && strcmp(watch->stage, "session") == 0 &&
        seconds_since(watch->progress_ns) > options->session_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label,
                       "device '%s' was stopped: its session did not come to be in %.3g s", label,
                       options->session_limit_s);
    if (options->memory_limit_bytes > 0 && resident_bytes > options->memory_limit_bytes)
        return nd_fail(err, ND_E_DEVICE_MEMORY, label,
                       "device '%s' was stopped: %zu MiB resident are over its limit of %zu MiB", label,
                       resident_bytes >> 20, options->memory_limit_bytes >> 20);
    return ND_OK;
}

void nd_watch_report(const struct nd_watch *watch)
{
    const struct nd_capture_options *options = watch->options;
    if (options->progress == NULL)
        return;
    const struct nd_capture_progress progress = {
        .device = watch->label,
        .stage = watch->stage,
        .samples_done = (size_t)(watch->samples_before + watch->samples_probe),
        .samples_total = watch->samples_total,
        .elapsed_s = nd_watch_elapsed_s(watch),
    };
    options->progress(options->progress_context, &progress);
}

void nd_watch_describe_death(const char *label, int exit_code, int signal, struct nd_error *error)
{
    if (signal != 0)
        nd_fail(error, ND_E_DEVICE_CRASH, label, "the agent of device '%s' was killed by signal %d (%s)", label,
                signal, strsignal(signal));
    else
        nd_fail(error, ND_E_DEVICE_CRASH, label, "the agent of device '%s' ended early with exit code %d",
                label, exit_code);
}

static const long watch_interval_ns = 50L * 1000 * 1000;
/* What the file of printed text may take on the disk. Chosen: eight times what is kept, so that its beginning
 * is seldom given back. */
static const long long max_printed_bytes = 8LL * ND_KEPT_PRINTED_BYTES;

/* What the agent prints goes into stdout.txt, which stays open as *log_fd. */
static enum nd_status start_agent(const struct nd_agent_start *start, pid_t *pid, int *log_fd,
                                  struct nd_error *err)
{
    static const char *const fresh[] = {"npudiff-agent", "job.nds", "spool.nds", NULL};
    static const char *const resuming[] = {"npudiff-agent", "--resume", "job.nds", "spool.nds", NULL};
    ND_FREED char *log_path = nd_path_join(start->folder, "stdout.txt");
    ND_TRY_MEMORY(log_path != NULL, err);
    *log_fd = nd_file_open_regular(log_path, O_WRONLY | O_CREAT | O_APPEND);
    int null_fd = *log_fd >= 0 ? open("/dev/null", O_RDONLY | O_CLOEXEC) : -1;
    int problem = null_fd < 0 ? errno : 0;
    const struct nd_child agent = {.program = start->agent,
                                   .argv = start->is_resuming ? resuming : fresh,
                                   .folder = start->folder,
                                   .in = null_fd,
                                   .out = *log_fd,
                                   .errors = *log_fd,
                                   .has_no_core = true};
    if (problem == 0)
        problem = nd_child_start(&agent, pid);
    if (problem != 0 && *log_fd >= 0)
        close(*log_fd);
    nd_fd_close(&null_fd);
    return problem == 0 ? ND_OK
                        : nd_fail(err, ND_E_DEVICE_AGENT, start->agent, "cannot start '%s': %s", start->agent,
                                  strerror(problem));
}

static size_t own_resident_bytes(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%ld/statm", (long)pid);
    FILE *file = fopen(path, "re");
    unsigned long total = 0, resident = 0;
    if (file == NULL)
        return 0;
    int n = fscanf(file, "%lu %lu", &total, &resident);
    fclose(file);
    return n == 2 ? resident * (size_t)sysconf(_SC_PAGESIZE) : 0;
}

static void add_resident(void *context, pid_t pid)
{
    size_t *n_bytes = context;
    *n_bytes += own_resident_bytes(pid);
}

/* Of the agent and what it has started: a runner, with its own programs. */
static size_t resident_bytes(pid_t agent)
{
    size_t n_bytes = own_resident_bytes(agent);
    nd_process_tree_visit(agent, add_resident, &n_bytes);
    return n_bytes;
}

/* Whoever prints without end must not fill the disk: the beginning of the file becomes a hole, and its end is
 * kept. Where the file system has no holes the run ends. */
static enum nd_status limit_printed(const struct nd_agent_start *start, int log_fd, struct nd_error *err)
{
    struct stat info;
    if (fstat(log_fd, &info) != 0 || (long long)info.st_blocks * 512 <= max_printed_bytes ||
        fallocate(log_fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                  info.st_size - ND_KEPT_PRINTED_BYTES) == 0)
        return ND_OK;
    return nd_fail(err, ND_E_DEVICE_PRINTS, start->label,
                   "device '%s' was stopped: what it prints is over the limit of %lld MiB", start->label,
                   max_printed_bytes >> 20);
}

/* The limits of the capture; an agent that is over one is killed. A stop of this process counts for none,
 * whatever it was at: it is noted last before the clock is read. */
static enum nd_status keep_to_limits(const struct nd_agent_start *start, const struct nd_watch *watch,
                                     pid_t agent, int log_fd, uint64_t *turn_ns, struct nd_error *err)
{
    size_t resident = start->options->memory_limit_bytes > 0 ? resident_bytes(agent) : 0;
    nd_clock_turn(turn_ns);
    enum nd_status status = nd_watch_check(watch, resident, err);
    if (status == ND_OK)
        status = limit_printed(start, log_fd, err);
    if (status != ND_OK) {
        kill(agent, SIGSTOP); /* so that it does not say how its runner ended */
        nd_process_tree_kill(agent);
        kill(agent, SIGKILL);
    }
    return status;
}

/* How an agent ended. */
struct ending {
    bool is_known; /* not where SIGCHLD is ignored: the system waits for children then */
    int wait_status;
    enum nd_status limits; /* other than ND_OK: it was stopped at a limit */
};

static bool has_code(const struct ending *ending, int code)
{
    return ending->limits == ND_OK && WIFEXITED(ending->wait_status) &&
           WEXITSTATUS(ending->wait_status) == code;
}

/* Waits for its end, and stops it at its limits; *error says at which. */
static struct ending await(const struct nd_agent_start *start, struct nd_watch *watch, pid_t agent, int log_fd,
                           struct nd_error *error)
{
    struct ending ending = {.limits = ND_OK};
    uint64_t turn_ns = 0;
    for (;;) {
        nd_clock_turn(&turn_ns);
        pid_t pid = nd_child_wait(agent, &ending.wait_status, WNOHANG);
        ending.is_known = pid >= 0;
        nd_watch_follow(watch);
        nd_watch_report(watch);
        if (pid != 0)
            return ending;
        if (ending.limits == ND_OK)
            ending.limits = keep_to_limits(start, watch, agent, log_fd, &turn_ns, error);
        nanosleep(&(struct timespec){.tv_nsec = ending.limits == ND_OK ? watch_interval_ns : 1000000L}, NULL);
    }
}

/* What the watch makes of the ending. */
static void describe(const struct nd_agent_start *start, const struct nd_watch *watch,
                     const struct ending *ending, struct nd_agent_exit *exit)
{
    int status = ending->wait_status;
    if (ending->limits == ND_OK && status != 0)
        nd_watch_describe_death(start->label, WEXITSTATUS(status), WIFSIGNALED(status) ? WTERMSIG(status) : 0,
                                &exit->error);
    exit->elapsed_s = nd_watch_elapsed_s(watch);
    exit->can_resume =
        start->options->is_resumable && has_code(ending, ND_AGENT_CANNOT_STORE) && nd_watch_has_samples(watch);
    exit->cannot_resume = start->is_resuming && has_code(ending, ND_AGENT_CANNOT_RESUME);
}

/* An ending that is no outcome of the device. */
static enum nd_status check(const struct nd_agent_start *start, const struct ending *ending, bool is_cancelled,
                            struct nd_agent_exit *exit, struct nd_error *err)
{
    if (is_cancelled)
        return nd_fail(err, ND_E_CANCELLED, start->label, "device '%s' was stopped on request", start->label);
    if (has_code(ending, ND_AGENT_CANNOT_STORE)) {
        nd_fail(exit->can_resume ? &exit->error : err, ND_E_FILE_WRITE, start->folder,
                "the agent of device '%s' cannot store its results in '%s': is the disk full?%s", start->label,
                start->folder,
                exit->can_resume
                    ? " The samples before are kept; '--resume' continues after them when there is room"
                    : "");
        if (!exit->can_resume)
            return ND_ERR_IO;
    }
    if (ending->limits == ND_OK && !ending->is_known)
        return nd_fail(err, ND_E_PROCESS_END, start->label,
                       "how the agent of device '%s' ended cannot be told, since this process ignores the "
                       "signal SIGCHLD",
                       start->label);
    return ND_OK;
}

enum nd_status nd_agent_launch(const struct nd_agent_start *start, struct nd_agent_exit *exit,
                               struct nd_error *err)
{
    struct nd_watch watch;
    pid_t agent = 0;
    int log_fd = -1;
    char *spool = nd_path_join(start->folder, "spool.nds");
    ND_TRY_MEMORY(spool != NULL, err);
    enum nd_status status = start_agent(start, &agent, &log_fd, err);
    if (status != ND_OK) {
        free(spool);
        return status;
    }
    struct nd_agent_exit ended = {0};
    nd_watch_begin(&watch, start->options, start->label, spool, start->samples_total, start->begun_ns);
    struct ending ending = await(start, &watch, agent, log_fd, &ended.error);
    describe(start, &watch, &ending, &ended);
    nd_watch_end(&watch);
    close(log_fd);
    free(spool);
    /* An interrupt from the terminal reaches the agent, too, maybe before is_cancelled is looked at. */
    bool is_cancelled =
        ended.error.id == ND_E_CANCELLED || (ending.wait_status != 0 && nd_watch_is_cancelled(&watch));
    status = check(start, &ending, is_cancelled, &ended, err);
    if (status == ND_OK)
        *exit = ended;
    return status;
}
