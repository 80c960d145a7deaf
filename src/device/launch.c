#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "device/internal.h"
#include "spool/fields.h"

enum { EXIT_CANNOT_STORE = 3 }; /* of npudiff-agent */
static const long watch_interval_ns = 50L * 1000 * 1000;

/* Of the agents the one with the suffix, beside this one; NULL when there is none. Takes over `path`. */
static char *add_suffix(char *path, const char *suffix)
{
    struct nd_strbuf text = {0};
    nd_strbuf_printf(&text, "%s%s", path, suffix);
    char *made = nd_strbuf_take(&text);
    free(path);
    if (made != NULL && access(made, X_OK) == 0)
        return made;
    free(made);
    return NULL;
}

enum nd_status nd_agent_find(const char *wanted, bool is_exact, char **path, struct nd_error *err)
{
    static const char name[] = "npudiff-agent";
    const char *from_environment = getenv("NPUDIFF_AGENT");
    if (wanted == NULL && from_environment != NULL && from_environment[0] != '\0')
        wanted = from_environment;
    char self[4096];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *folder = nd_path_dir(self);
    /* Beside the program when installed; beside its folder in a build tree; for other programs, where it was
     * installed. */
    char *beside = folder != NULL ? nd_path_join(folder, name) : NULL;
    char *in_build = folder != NULL ? nd_path_join(folder, "../agent/npudiff-agent") : NULL;
    const char *candidates[] = {wanted, wanted == NULL ? beside : NULL, wanted == NULL ? in_build : NULL,
                                wanted == NULL ? ND_INSTALLED_AGENT : NULL};
    char *found = NULL;
    for (size_t i = 0; found == NULL && i < sizeof candidates / sizeof candidates[0]; i++)
        if (candidates[i] != NULL && access(candidates[i], X_OK) == 0)
            found = realpath(candidates[i], NULL);
    if (found != NULL && is_exact)
        found = add_suffix(found, "-exact");
    free(folder);
    free(beside);
    free(in_build);
    if (found == NULL)
        return nd_fail(err, ND_E_DEVICE_AGENT, wanted, "cannot find the agent '%s' to run devices with",
                       wanted != NULL ? wanted : name);
    *path = found;
    return ND_OK;
}

/* In the child: only what is safe between fork and exec. */
static void become_agent(const struct nd_agent_start *start, char *const argv[], pid_t host, int log_fd,
                         int report_fd)
{
    const struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    /* An agent without its host has no purpose. The host may have died before this was set. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != host)
        _exit(127);
    int null_fd = open("/dev/null", O_RDONLY);
    if (chdir(start->folder) == 0 && null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
        dup2(log_fd, STDOUT_FILENO) >= 0 && dup2(log_fd, STDERR_FILENO) >= 0)
        execv(start->agent, argv);
    int problem = errno;
    ssize_t written = write(report_fd, &problem, sizeof problem);
    (void)written;
    _exit(127);
}

/* Starts the agent; a pipe that closes on exec tells whether that worked. */
static enum nd_status spawn(const struct nd_agent_start *start, pid_t *pid, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    int pipe_fd[2] = {-1, -1};
    int problem = 0;
    char *log_path = nd_path_join(start->folder, "stdout.txt");
    int log_fd = log_path != NULL ? open(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600) : -1;
    char *const argv[] = {(char *)"npudiff-agent", (char *)"job.nds", (char *)"spool.nds", NULL};
    if (log_fd < 0 || pipe2(pipe_fd, O_CLOEXEC) != 0) {
        status = nd_fail(err, ND_E_DEVICE_AGENT, start->agent, "cannot start '%s': %s", start->agent,
                         strerror(errno));
        goto out;
    }
    pid_t host = getpid();
    pid_t child = fork();
    if (child == 0)
        become_agent(start, argv, host, log_fd, pipe_fd[1]);
    if (child > 0) {
        close(pipe_fd[1]);
        pipe_fd[1] = -1;
        ssize_t n;
        while ((n = read(pipe_fd[0], &problem, sizeof problem)) < 0 && errno == EINTR)
            ;
        if (n == (ssize_t)sizeof problem)
            waitpid(child, NULL, 0);
    } else {
        problem = errno;
    }
    if (problem != 0)
        status = nd_fail(err, ND_E_DEVICE_AGENT, start->agent, "cannot start '%s': %s", start->agent,
                         strerror(problem));
    else
        *pid = child;
out:
    for (int i = 0; i < 2; i++)
        if (pipe_fd[i] >= 0)
            close(pipe_fd[i]);
    if (log_fd >= 0)
        close(log_fd);
    free(log_path);
    return status;
}

static size_t resident_bytes(pid_t pid)
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

/* What the host knows of a running agent. */
struct watch {
    const struct nd_agent_start *start;
    pid_t pid;
    uint64_t started_ns;
    uint64_t begun_ns;       /* of the capture */
    uint64_t progress_ns;    /* of the last sign of life */
    uint64_t samples_before; /* of probes and passes that are finished */
    uint64_t samples_probe;  /* acknowledged of the probe in work */
    uint64_t probe;
    struct nd_spool_follower follower;
    char *spool;
    char stage[32];
};

/* Takes in what the agent has appended since the last look. The stage shown follows from the kinds of record.
 */
static void follow(struct watch *watch)
{
    struct nd_record record;
    while (nd_spool_follow(&watch->follower, watch->spool, &record)) {
        watch->progress_ns = nd_clock_ns();
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

static double seconds_since(uint64_t ns)
{
    return (double)(nd_clock_ns() - ns) * 1e-9;
}

static bool is_cancelled(const struct nd_capture_options *options)
{
    return options->is_cancelled != NULL && options->is_cancelled(options->cancel_context);
}

/* ND_OK while the agent keeps to its limits. */
static enum nd_status check_limits(const struct watch *watch, struct nd_error *err)
{
    const struct nd_capture_options *options = watch->start->options;
    const char *label = watch->start->label;
    if (is_cancelled(options))
        return nd_fail(err, ND_E_CANCELLED, label, "device '%s' was stopped on request", label);
    if (options->time_limit_s > 0 && seconds_since(watch->begun_ns) > options->time_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label, "device '%s' was stopped after its time limit of %g s",
                       label, options->time_limit_s);
    if (options->stall_limit_s > 0 && seconds_since(watch->progress_ns) > options->stall_limit_s)
        return nd_fail(err, ND_E_DEVICE_TIME, label, "device '%s' was stopped: no progress for %g s", label,
                       options->stall_limit_s);
    size_t resident = options->memory_limit_bytes > 0 ? resident_bytes(watch->pid) : 0;
    if (resident > options->memory_limit_bytes)
        return nd_fail(err, ND_E_DEVICE_MEMORY, label,
                       "device '%s' was stopped: %zu MiB resident are over its limit of %zu MiB", label,
                       resident >> 20, options->memory_limit_bytes >> 20);
    return ND_OK;
}

static void report(const struct watch *watch)
{
    const struct nd_capture_options *options = watch->start->options;
    if (options->progress == NULL)
        return;
    const struct nd_capture_progress progress = {
        .device = watch->start->label,
        .stage = watch->stage,
        .samples_done = (size_t)(watch->samples_before + watch->samples_probe),
        .samples_total = watch->start->samples_total,
        .elapsed_s = seconds_since(watch->started_ns),
    };
    options->progress(options->progress_context, &progress);
}

static void describe_death(const struct nd_agent_start *start, int wait_status, struct nd_error *error)
{
    if (WIFSIGNALED(wait_status)) {
        int number = WTERMSIG(wait_status);
        nd_fail(error, ND_E_DEVICE_CRASH, start->label, "the agent of device '%s' was killed by signal %d (%s)",
                start->label, number, strsignal(number));
    } else {
        nd_fail(error, ND_E_DEVICE_CRASH, start->label,
                "the agent of device '%s' ended early with exit code %d", start->label,
                WEXITSTATUS(wait_status));
    }
}

enum nd_status nd_agent_launch(const struct nd_agent_start *start, struct nd_agent_exit *exit,
                               struct nd_error *err)
{
    struct watch watch = {.start = start, .follower = {.fd = -1}, .stage = "load"};
    watch.spool = nd_path_join(start->folder, "spool.nds");
    if (watch.spool == NULL)
        return nd_fail_memory(err);
    enum nd_status status = spawn(start, &watch.pid, err);
    if (status != ND_OK) {
        free(watch.spool);
        return status;
    }
    struct nd_agent_exit ended = {0};
    watch.started_ns = nd_clock_ns();
    watch.progress_ns = watch.started_ns;
    watch.begun_ns = start->begun_ns != 0 ? start->begun_ns : watch.started_ns;
    int wait_status = 0;
    enum nd_status limits = ND_OK;
    for (;;) {
        pid_t pid = waitpid(watch.pid, &wait_status, WNOHANG);
        follow(&watch);
        report(&watch);
        if (pid != 0 && !(pid < 0 && errno == EINTR))
            break;
        if (limits == ND_OK && (limits = check_limits(&watch, &ended.error)) != ND_OK)
            kill(watch.pid, SIGKILL);
        nanosleep(&(struct timespec){.tv_nsec = limits == ND_OK ? watch_interval_ns : 1000000L}, NULL);
    }
    if (limits == ND_OK && wait_status != 0)
        describe_death(start, wait_status, &ended.error);
    ended.elapsed_s = seconds_since(watch.started_ns);
    nd_spool_follower_close(&watch.follower);
    free(watch.spool);
    /* An interrupt from the terminal reaches the agent too, which may be faster than the look at is_cancelled.
     */
    if (ended.error.id == ND_E_CANCELLED || (wait_status != 0 && is_cancelled(start->options)))
        return nd_fail(err, ND_E_CANCELLED, start->label, "device '%s' was stopped on request", start->label);
    if (limits == ND_OK && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == EXIT_CANNOT_STORE)
        return nd_fail(err, ND_E_FILE_WRITE, start->folder,
                       "the agent of device '%s' cannot store its results in '%s': is the disk full?",
                       start->label, start->folder);
    *exit = ended;
    return ND_OK;
}
