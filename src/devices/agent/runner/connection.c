#include "devices/agent/runner/connection.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/processes/child.h"

/* Chosen: a runner imports its libraries before it says hello, which takes the largest known one 15 s on a slow
 * disk. */
static const int hello_limit_ms = 120 * 1000;
/* For a runner to end after its standard input was closed; then it is killed. Chosen. */
static const int end_limit_ms = 5000;
/* Tensors are larger than the 64 KiB that a pipe has by itself. What the system refuses is no loss. */
enum { PIPE_BYTES = 1 << 20 };

const char *nd_runner_text(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* ---- its end ---- */

/* Waits so long for it to end. Whether it has. */
static bool wait_for(struct nd_runner_connection *connection, int limit_ms, int *how)
{
    for (int waited_ms = 0;; waited_ms += 5) {
        pid_t pid = waitpid(connection->pid, how, WNOHANG);
        if (pid != 0 && !(pid < 0 && errno == EINTR))
            return pid > 0;
        if (waited_ms >= limit_ms)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 5L * 1000 * 1000}, NULL);
    }
}

static void close_pipes(struct nd_runner_connection *connection)
{
    if (connection->to >= 0)
        close(connection->to);
    if (connection->from >= 0)
        close(connection->from);
    connection->to = connection->from = -1;
}

static void kill_group(struct nd_runner_connection *connection, int *how)
{
    kill(-connection->pid, SIGKILL); /* with the programs that it has started */
    kill(connection->pid, SIGKILL);
    while (waitpid(connection->pid, how, 0) < 0 && errno == EINTR)
        ;
    connection->pid = 0;
}

void nd_runner_end(struct nd_runner_connection *connection)
{
    int how;
    close_pipes(connection);
    if (connection->pid > 0 && wait_for(connection, end_limit_ms, &how))
        kill(-connection->pid, SIGKILL); /* what it left running */
    else if (connection->pid > 0)
        kill_group(connection, &how);
    nd_frame_deinit(&connection->frame);
    free(connection->name);
    connection->name = NULL;
    connection->pid = 0;
}

enum nd_status nd_runner_leave(struct nd_runner_connection *connection, struct nd_error *err)
{
    int how = 0;
    close_pipes(connection);
    if (!wait_for(connection, end_limit_ms, &how)) {
        kill_group(connection, &how);
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' did not end within %d s after its standard input was closed",
                       connection->name, end_limit_ms / 1000);
    }
    connection->pid = 0;
    if (how != 0)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' did not end with exit code 0 when its standard input was closed",
                       connection->name);
    return ND_OK;
}

static enum nd_status fail_ended(struct nd_runner_connection *connection, const char *doing,
                                 struct nd_error *err)
{
    int how = 0;
    close_pipes(connection);
    if (!wait_for(connection, end_limit_ms, &how)) {
        kill_group(connection, &how);
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' closed its standard input or output while it was to %s", connection->name,
                       doing);
    }
    connection->pid = 0;
    if (WIFSIGNALED(how))
        return nd_fail(err, ND_E_DEVICE_CRASH, connection->name,
                       "runner '%s' was killed by signal %d (%s) while it was to %s", connection->name,
                       WTERMSIG(how), strsignal(WTERMSIG(how)), doing);
    return nd_fail(
        err, ND_E_DEVICE_CRASH, connection->name,
        "runner '%s' ended with exit code %d while it was to %s; the log 'stdout' has what it printed",
        connection->name, WEXITSTATUS(how), doing);
}

static enum nd_status fail_frame(struct nd_runner_connection *connection, enum nd_frame_end end,
                                 const char *problem, const char *doing, struct nd_error *err)
{
    switch (end) {
    case ND_FRAME_CLOSED:
        return fail_ended(connection, doing, err);
    case ND_FRAME_LATE:
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' did not answer in time while it was to %s", connection->name, doing);
    case ND_FRAME_RUBBISH:
        return nd_fail(
            err, ND_E_RUNNER_PROTOCOL, connection->name,
            "runner '%s' does not speak the protocol: where a frame should begin it wrote '%s'; is it "
            "something that a library prints on standard output?",
            connection->name, problem);
    case ND_FRAME_JSON:
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' sent a message that is not JSON: %s", connection->name, problem);
    case ND_FRAME_TOO_MUCH:
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' sends more than was asked for while it was to %s: %s", connection->name,
                       doing, problem);
    default:
        return nd_fail_memory(err);
    }
}

/* ---- what it says ---- */

static void pass_on(const struct nd_runner_connection *connection)
{
    const json_t *message = connection->frame.message;
    int severity = (int)json_integer_value(json_object_get(message, "severity"));
    severity = severity < 0 ? 0 : severity > 4 ? 4 : severity;
    if (connection->log != NULL && severity >= connection->log_severity)
        connection->log(connection->log_context, severity, connection->name, nd_runner_text(message, "text"));
}

static enum nd_status fail_report(const struct nd_runner_connection *connection, const char *doing,
                                  struct nd_error *err)
{
    const json_t *message = connection->frame.message;
    const char *stage = nd_runner_text(message, "stage"), *operator= nd_runner_text(message, "operator");
    const char *object = operator[0] != '\0' ? operator: connection->name;
    return nd_fail(err, ND_E_RUNNER_REPORT, object, "runner '%s' could not %s (stage '%s'%s%s): %s",
                   connection->name, doing, stage, operator[0] != '\0' ? ", operator " : "", operator,
                   nd_said(nd_runner_text(message, "text")));
}

/* Reads until something comes that is no line of a log. limit_ms: for all that; 0: none. */
static enum nd_status receive(struct nd_runner_connection *connection, int limit_ms,
                              const struct nd_runner_question *question, struct nd_error *err)
{
    char problem[ND_FRAME_PROBLEM_BYTES] = "";
    uint64_t end_ns = limit_ms > 0 ? nd_clock_ns() + (uint64_t)limit_ms * 1000000 : ND_FRAME_NO_END;
    for (;;) {
        enum nd_frame_end end =
            nd_frame_read(connection->from, end_ns, question->max_data_bytes, &connection->frame, problem);
        if (end != ND_FRAME_WHOLE)
            return fail_frame(connection, end, problem, question->doing, err);
        const char *what = nd_runner_text(connection->frame.message, "message");
        if (strcmp(what, question->answer) == 0)
            return ND_OK;
        if (strcmp(what, "error") == 0)
            return fail_report(connection, question->doing, err);
        if (strcmp(what, "log") != 0)
            return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                           "runner '%s' sent a message '%s' where '%s' was to come", connection->name, what,
                           question->answer);
        pass_on(connection);
    }
}

enum nd_status nd_runner_ask(struct nd_runner_connection *connection, const struct nd_runner_question *question,
                             struct nd_error *err)
{
    enum nd_frame_end end =
        nd_frame_write(connection->to, question->message, question->parts, question->n_parts);
    /* A runner that ends says perhaps why: that is read first. */
    if (end == ND_FRAME_MEMORY)
        return nd_fail_memory(err);
    return receive(connection, question->timeout_ms, question, err);
}

/* ---- its beginning ---- */

static enum nd_status connect(struct nd_runner_connection *connection, const char *path, struct nd_error *err)
{
    const char *const argv[] = {path, NULL};
    int to[2] = {-1, -1}, from[2] = {-1, -1};
    int errors = connection->is_quiet ? open("/dev/null", O_WRONLY | O_CLOEXEC) : STDERR_FILENO;
    int problem = errors < 0 || pipe2(to, O_CLOEXEC) != 0 || pipe2(from, O_CLOEXEC) != 0 ? errno : 0;
    const struct nd_child child = {.program = path,
                                   .argv = argv,
                                   .folder = connection->folder,
                                   .in = to[0],
                                   .out = from[1],
                                   .errors = errors,
                                   .has_group = true,
                                   .has_no_core = true};
    if (problem == 0) {
        fcntl(to[1], F_SETPIPE_SZ, PIPE_BYTES);
        fcntl(from[0], F_SETPIPE_SZ, PIPE_BYTES);
        signal(SIGPIPE, SIG_IGN); /* a runner that is gone is an error of a write */
        problem = nd_child_start(&child, &connection->pid);
    }
    if (to[0] >= 0)
        close(to[0]);
    if (from[1] >= 0)
        close(from[1]);
    if (connection->is_quiet && errors >= 0)
        close(errors);
    connection->to = to[1];
    connection->from = from[0];
    if (problem == 0)
        return ND_OK;
    close_pipes(connection);
    connection->pid = 0;
    return nd_fail(err, ND_E_RUNNER_START, path, "runner '%s' cannot be started: '%s': %s", connection->name,
                   path,
                   problem == ENOENT ? "the file or the interpreter that its first line names is missing"
                                     : strerror(problem));
}

enum nd_status nd_runner_start(struct nd_runner_connection *connection, const char *path, struct nd_error *err)
{
    static const char prefix[] = "npudiff-runner-";
    const char *base = nd_path_base(path);
    const struct nd_runner_question hello = {.answer = "hello", .doing = "say hello"};
    connection->to = connection->from = -1;
    connection->name = nd_strdup(strncmp(base, prefix, strlen(prefix)) == 0 ? base + strlen(prefix) : base);
    if (connection->name == NULL)
        return nd_fail_memory(err);
    enum nd_status status = connect(connection, path, err);
    if (status == ND_OK)
        status = receive(connection, hello_limit_ms, &hello, err);
    if (status != ND_OK)
        return status;
    json_int_t version = json_integer_value(json_object_get(connection->frame.message, "protocol"));
    if (version != ND_RUNNER_PROTOCOL)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' speaks version %lld of the protocol, and this npudiff speaks version %d",
                       connection->name, (long long)version, ND_RUNNER_PROTOCOL);
    return ND_OK;
}
