/* Other programs: started, to die with this process; or run to their end, and what they print is read. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/processes/process.h"

pid_t nd_child_wait(pid_t pid, int *how, int options)
{
    pid_t got;
    while ((got = waitpid(pid, how, options)) < 0 && errno == EINTR)
        ;
    return got;
}

void nd_sigpipe_hold(struct nd_sigpipe *held)
{
    sigset_t pipe, waiting;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    sigpending(&waiting);
    held->was_waiting = sigismember(&waiting, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe, &held->before);
}

void nd_sigpipe_release(const struct nd_sigpipe *held)
{
    sigset_t pipe;
    int problem = errno;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    while (!held->was_waiting && sigtimedwait(&pipe, NULL, &(const struct timespec){0}) < 0 && errno == EINTR)
        ;
    pthread_sigmask(SIG_SETMASK, &held->before, NULL);
    errno = problem;
}

ssize_t nd_pipe_write(int fd, const struct iovec *parts, int n_parts)
{
    struct nd_sigpipe held;
    nd_sigpipe_hold(&held);
    ssize_t n = writev(fd, parts, n_parts);
    nd_sigpipe_release(&held);
    return n;
}

/* What this process was given by whoever started it, beyond the three, is not the child's. Ours close by
 * themselves; a kernel before 5.11 knows no such call, and leaves the others open. */
static void close_others(void)
{
#ifdef __NR_close_range
    const unsigned int on_exec = 1U << 2; /* CLOSE_RANGE_CLOEXEC, which older C libraries do not declare */
    syscall(__NR_close_range, STDERR_FILENO + 1, ~0U, on_exec);
#endif
}

/* In the child: only what is safe between fork and exec. */
static void become(const struct nd_child *child, pid_t host, int report_fd)
{
    const struct rlimit no_core = {0, 0};
    char *const *argv = (char *const *)(uintptr_t)child->argv;
    if (child->has_group)
        setpgid(0, 0);
    if (child->has_no_core)
        setrlimit(RLIMIT_CORE, &no_core);
    struct rlimit data; /* of this program's own work: not the child's */
    if (getrlimit(RLIMIT_DATA, &data) == 0 && data.rlim_cur != data.rlim_max) {
        data.rlim_cur = data.rlim_max;
        setrlimit(RLIMIT_DATA, &data);
    }
    signal(SIGPIPE, SIG_DFL);
    /* The host may have died before this was set. */
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != host)
        _exit(127);
    if ((child->folder == NULL || chdir(child->folder) == 0) && dup2(child->in, STDIN_FILENO) >= 0 &&
        dup2(child->out, STDOUT_FILENO) >= 0 && dup2(child->errors, STDERR_FILENO) >= 0) {
        close_others();
        if (child->uses_path)
            execvp(child->program, argv);
        else
            execv(child->program, argv);
    }
    int problem = errno;
    ssize_t written = write(report_fd, &problem, sizeof problem);
    (void)written;
    _exit(127);
}

/* A pipe that closes on exec tells whether the program could be run. */
int nd_child_start(const struct nd_child *child, pid_t *pid)
{
    int report[2] = {-1, -1};
    int problem = 0;
    if (pipe2(report, O_CLOEXEC) != 0)
        return errno;
    pid_t host = getpid();
    pid_t made = fork();
    if (made == 0)
        become(child, host, report[1]);
    if (made < 0)
        problem = errno;
    close(report[1]);
    ssize_t n = -1;
    while (made > 0 && (n = read(report[0], &problem, sizeof problem)) < 0 && errno == EINTR)
        ;
    close(report[0]);
    if (n == (ssize_t)sizeof problem)
        nd_child_wait(made, NULL, 0);
    if (problem != 0)
        return problem;
    if (child->has_group)
        setpgid(made, made); /* whichever of the two comes first; it fails after the exec, and then it was */
    *pid = made;
    return 0;
}

enum { READ_BYTES = 65536, WATCH_INTERVAL_MS = 50, MAX_LAST_READS = 256 };
static const size_t default_stdout_limit = 16u << 20;
static const size_t default_stderr_limit = 64u << 10;

/* One of the program's outputs. */
struct stream {
    int fd; /* -1: at its end */
    char *text;
    size_t n;
    size_t capacity;
    size_t limit;
    bool keeps_end; /* of too much the end; else it is cut at the limit */
    bool is_over;
};

struct run {
    const struct nd_process *process;
    pid_t pid;
    int wait_status;
    bool has_ended;
    bool is_unknown; /* how it ended */
    bool is_killed;
    uint64_t started_ns;
    struct stream streams[2]; /* standard output, standard error */
};

/* ---- starting ---- */

static enum nd_status fail_start(const struct nd_process *process, int problem, struct nd_error *err)
{
    return nd_fail(err, ND_E_PROCESS, process->argv[0], "cannot start '%s': %s", process->argv[0],
                   strerror(problem));
}

static enum nd_status start(struct run *run, struct nd_error *err)
{
    const char *stdin_path = run->process->stdin_path != NULL ? run->process->stdin_path : "/dev/null";
    int out[2] = {-1, -1}, errors[2] = {-1, -1};
    enum nd_status status = ND_OK;
    int in = open(stdin_path, O_RDONLY | O_CLOEXEC);
    if (in < 0)
        status = nd_fail(err, ND_E_FILE_OPEN, stdin_path, "cannot open '%s': %s", stdin_path, strerror(errno));
    else if (pipe2(out, O_CLOEXEC) != 0 || pipe2(errors, O_CLOEXEC) != 0)
        status = fail_start(run->process, errno, err);
    const struct nd_child child = {.program = run->process->argv[0],
                                   .argv = run->process->argv,
                                   .in = in,
                                   .out = out[1],
                                   .errors = errors[1],
                                   .uses_path = true,
                                   .has_group = true};
    int problem = status == ND_OK ? nd_child_start(&child, &run->pid) : 0;
    if (problem != 0)
        status = fail_start(run->process, problem, err);
    nd_fd_close(&in);
    nd_fd_close(&out[1]);
    nd_fd_close(&errors[1]);
    if (status != ND_OK) {
        nd_fd_close(&out[0]);
        nd_fd_close(&errors[0]);
        return status;
    }
    run->streams[0].fd = out[0];
    run->streams[1].fd = errors[0];
    /* A server that the program leaves behind may hold the other end open for ever. */
    fcntl(out[0], F_SETFL, O_NONBLOCK);
    fcntl(errors[0], F_SETFL, O_NONBLOCK);
    return ND_OK;
}

/* ---- reading ---- */

/* Keeps what fits; *has_read says whether anything came. */
static enum nd_status take(struct stream *stream, bool *has_read, struct nd_error *err)
{
    ND_TRY_MEMORY(nd_grow((void **)&stream->text, &stream->capacity, stream->n + READ_BYTES + 1, 1), err);
    ssize_t got = read(stream->fd, stream->text + stream->n, READ_BYTES);
    if (got < 0 && (errno == EAGAIN || errno == EINTR))
        return ND_OK;
    if (got <= 0) {
        nd_fd_close(&stream->fd);
        return ND_OK;
    }
    *has_read = true;
    stream->n += (size_t)got;
    if (stream->n <= stream->limit)
        return ND_OK;
    stream->is_over = true;
    if (!stream->keeps_end) {
        stream->n = stream->limit;
    } else if (stream->n > 2 * stream->limit) {
        memmove(stream->text, stream->text + stream->n - stream->limit, stream->limit);
        stream->n = stream->limit;
    }
    return ND_OK;
}

static enum nd_status take_both(struct run *run, bool *has_read, struct nd_error *err)
{
    struct pollfd polled[2];
    *has_read = false;
    for (int i = 0; i < 2; i++)
        polled[i] = (struct pollfd){.fd = run->streams[i].fd, .events = POLLIN};
    bool are_closed = run->streams[0].fd < 0 && run->streams[1].fd < 0;
    /* With both closed the end is near. */
    int wait_ms = run->has_ended ? 0 : (are_closed ? 1 : WATCH_INTERVAL_MS);
    if (poll(polled, 2, wait_ms) < 0)
        return ND_OK;
    for (int i = 0; i < 2; i++)
        if (polled[i].fd >= 0 && polled[i].revents != 0)
            ND_TRY(take(&run->streams[i], has_read, err));
    return ND_OK;
}

/* ---- watching ---- */

static void kill_program(struct run *run)
{
    if (run->is_killed || run->has_ended)
        return;
    run->is_killed = true;
    kill(run->process->keeps_group ? run->pid : -run->pid, SIGKILL);
}

static void check_limits(struct run *run, struct nd_process_end *end)
{
    const struct nd_process *process = run->process;
    if (run->is_killed)
        return;
    if (run->streams[0].is_over)
        end->is_truncated = true;
    else if (process->time_limit_s > 0 &&
             (double)(nd_clock_awake_ns() - run->started_ns) * 1e-9 > process->time_limit_s)
        end->timed_out = true;
    else if (process->is_cancelled != NULL && process->is_cancelled(process->cancel_context))
        end->is_cancelled = true;
    if (end->is_truncated || end->timed_out || end->is_cancelled)
        kill_program(run);
}

static enum nd_status watch(struct run *run, struct nd_process_end *end, struct nd_error *err)
{
    bool has_read = true;
    int n_last = 0;
    uint64_t turn_ns = 0;
    enum nd_status status = ND_OK;
    /* What it printed before its end is in the pipes by then: read until nothing more comes, or what comes is
     * more than pipes hold, and of a program that it left running. */
    while (!run->has_ended || (has_read && status == ND_OK && n_last++ < MAX_LAST_READS)) {
        nd_clock_turn(&turn_ns);
        if (status == ND_OK)
            status = take_both(run, &has_read, err);
        nd_clock_turn(&turn_ns);
        if (status != ND_OK)
            kill_program(run);
        check_limits(run, end);
        if (!run->has_ended) {
            pid_t got = nd_child_wait(run->pid, &run->wait_status, run->is_killed ? 0 : WNOHANG);
            /* SIGCHLD is ignored: the system waits for children. */
            run->is_unknown = got < 0 && errno == ECHILD;
            if (got == run->pid || run->is_unknown) {
                run->has_ended = true;
                has_read = true; /* once more */
            }
        }
    }
    return status;
}

/* The text for the caller, at most limit bytes of it; never NULL but without memory. */
static char *hand_over(struct stream *stream, size_t *n)
{
    size_t skipped = stream->n > stream->limit ? stream->n - stream->limit : 0;
    *n = stream->n - skipped;
    char *text = stream->text != NULL ? stream->text : nd_calloc(1, 1);
    stream->text = NULL;
    if (text != NULL && skipped > 0)
        memmove(text, text + skipped, *n);
    if (text != NULL)
        text[*n] = '\0';
    return text;
}

enum nd_status nd_process_run(const struct nd_process *process, struct nd_process_end *end,
                              struct nd_error *err)
{
    ND_CLEANUP(nd_process_end_deinit) struct nd_process_end made = {.exit_code = -1};
    struct run run = {.process = process, .started_ns = nd_clock_awake_ns()};
    run.streams[0] = (struct stream){.fd = -1,
                                     .limit = process->stdout_limit_bytes > 0 ? process->stdout_limit_bytes
                                                                              : default_stdout_limit};
    run.streams[1] = (struct stream){.fd = -1,
                                     .limit = process->stderr_limit_bytes > 0 ? process->stderr_limit_bytes
                                                                              : default_stderr_limit,
                                     .keeps_end = true};
    ND_TRY(start(&run, err));
    enum nd_status status = watch(&run, &made, err);
    if (status == ND_OK && run.is_unknown && !run.is_killed)
        status = nd_fail(err, ND_E_PROCESS_END, process->argv[0],
                         "how '%s' ended cannot be told, since this process ignores the signal SIGCHLD",
                         process->argv[0]);
    if (run.is_unknown)
        made.signal = SIGKILL; /* of this process */
    else if (WIFEXITED(run.wait_status))
        made.exit_code = WEXITSTATUS(run.wait_status);
    else
        made.signal = WTERMSIG(run.wait_status);
    if (status == ND_OK) {
        made.out = hand_over(&run.streams[0], &made.out_bytes);
        made.errors = hand_over(&run.streams[1], &made.errors_bytes);
        if (made.out == NULL || made.errors == NULL)
            status = nd_fail_memory(err);
    }
    for (int i = 0; i < 2; i++) {
        nd_fd_close(&run.streams[i].fd);
        free(run.streams[i].text);
    }
    return status == ND_OK ? ND_GIVE(end, made) : status;
}

void nd_process_end_deinit(struct nd_process_end *end)
{
    ND_FREE_ALL(end->out, end->errors);
    *end = (struct nd_process_end){0};
}
