/* The connection to a runner: its process, and frames there and back (docs/reference/runner.md). */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/memory.h"
#include "core/processes/process.h"
#include "devices/agent/runner/connection.h"

static const char magic[4] = {'N', 'D', 'R', '1'};

struct header {
    char magic[4];
    uint32_t json_bytes;
    uint64_t data_bytes;
};
_Static_assert(sizeof(struct header) == 16, "the header has no holes");

void nd_frame_deinit(struct nd_frame *frame)
{
    json_decref(frame->message);
    free(frame->data);
    *frame = (struct nd_frame){0};
}

struct source {
    int fd;
    uint64_t end_ns;
    bool is_late;
};

/* Waits until one of the files is ready. False when the time is over before. */
static bool wait_until(uint64_t end_ns, struct pollfd *wanted, nfds_t n_wanted)
{
    for (;;) {
        uint64_t now_ns = nd_clock_ns();
        uint64_t left_ms = end_ns > now_ns ? (end_ns - now_ns + 999999) / 1000000 : 0;
        int limit_ms = end_ns == ND_FRAME_NO_END ? -1 : left_ms < INT_MAX ? (int)left_ms : INT_MAX;
        int n = poll(wanted, n_wanted, limit_ms);
        if (n > 0 || (n < 0 && errno != EINTR))
            return true;
        if (n == 0 && nd_clock_ns() >= end_ns)
            return false;
    }
}

/* Waits for more to read. False when it does not come in time. */
static bool is_in_time(struct source *from)
{
    struct pollfd wanted = {.fd = from->fd, .events = POLLIN};
    from->is_late = from->end_ns != ND_FRAME_NO_END && !wait_until(from->end_ns, &wanted, 1);
    return !from->is_late;
}

/* How many of the bytes came before the other side was gone or the time was over. */
static size_t read_all(struct source *from, void *out, size_t n_bytes)
{
    size_t n_read = 0;
    while (n_read < n_bytes && is_in_time(from)) {
        ssize_t n = read(from->fd, (char *)out + n_read, n_bytes - n_read);
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
        n_read += n > 0 ? (size_t)n : 0;
    }
    return n_read;
}

/* What a part of a frame that is missing means. */
static enum nd_frame_end missing(const struct source *from)
{
    return from->is_late ? ND_FRAME_LATE : ND_FRAME_CLOSED;
}

/* The first bytes, as a person can read them. */
static void quote(const void *bytes, size_t n, char problem[ND_FRAME_PROBLEM_BYTES])
{
    const unsigned char *at = bytes;
    size_t i = 0;
    for (; i < n; i++)
        problem[i] = at[i] >= 0x20 && at[i] < 0x7f ? (char)at[i] : '.';
    problem[i] = '\0';
}

static enum nd_frame_end read_json(struct source *from, size_t n_bytes, struct nd_frame *frame,
                                   char problem[ND_FRAME_PROBLEM_BYTES])
{
    json_error_t where;
    ND_FREED char *text = malloc(n_bytes + 1);
    if (text == NULL)
        return ND_FRAME_MEMORY;
    enum nd_frame_end end = ND_FRAME_WHOLE;
    if (read_all(from, text, n_bytes) != n_bytes) {
        end = missing(from);
    } else if ((frame->message = json_loadb(text, n_bytes, JSON_REJECT_DUPLICATES, &where)) == NULL) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES, "%.150s", where.text);
        end = ND_FRAME_JSON;
    } else if (!json_is_object(frame->message)) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES, "it is not an object");
        end = ND_FRAME_JSON;
    }
    return end;
}

enum nd_frame_end nd_frame_read(int fd, uint64_t end_ns, uint64_t max_data_bytes, struct nd_frame *frame,
                                char problem[ND_FRAME_PROBLEM_BYTES])
{
    struct header header;
    struct source from = {.fd = fd, .end_ns = end_ns};
    json_decref(frame->message);
    frame->message = NULL;
    frame->data_bytes = 0;
    size_t n = read_all(&from, &header, sizeof header.magic);
    if (n > 0 && memcmp(header.magic, magic, n) == 0)
        n += read_all(&from, &header.json_bytes, sizeof header - sizeof header.magic);
    else if (n > 0) {
        quote(&header, n, problem);
        return ND_FRAME_RUBBISH;
    }
    if (n < sizeof header)
        return missing(&from);
    uint32_t json_bytes = le32toh(header.json_bytes);
    uint64_t data_bytes = le64toh(header.data_bytes);
    if (json_bytes > ND_FRAME_MAX_JSON_BYTES || data_bytes > max_data_bytes) {
        snprintf(problem, ND_FRAME_PROBLEM_BYTES,
                 "%u bytes of JSON and %llu of data, where %u and %llu are the most", json_bytes,
                 (unsigned long long)data_bytes, (unsigned)ND_FRAME_MAX_JSON_BYTES,
                 (unsigned long long)max_data_bytes);
        return ND_FRAME_TOO_MUCH;
    }
    enum nd_frame_end end = read_json(&from, json_bytes, frame, problem);
    if (end != ND_FRAME_WHOLE)
        return end;
    if (!nd_grow((void **)&frame->data, &frame->capacity, (size_t)data_bytes, 1))
        return ND_FRAME_MEMORY;
    frame->data_bytes = (size_t)data_bytes;
    return read_all(&from, frame->data, frame->data_bytes) == frame->data_bytes ? ND_FRAME_WHOLE
                                                                                : missing(&from);
}

/* Chosen: a runner imports its libraries before it says hello, which takes the largest 15 s on a slow disk. */
static const uint64_t hello_limit_ns = UINT64_C(120) * 1000 * 1000 * 1000;
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
        pid_t pid = nd_child_wait(connection->pid, how, WNOHANG);
        if (pid != 0)
            return pid > 0;
        if (waited_ms >= limit_ms)
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 5L * 1000 * 1000}, NULL);
    }
}

static void close_pipes(struct nd_runner_connection *connection)
{
    nd_fd_close(&connection->to);
    nd_fd_close(&connection->from);
    connection->to = connection->from = -1;
}

static void kill_group(struct nd_runner_connection *connection, int *how)
{
    kill(-connection->pid, SIGKILL); /* with the programs that it has started */
    kill(connection->pid, SIGKILL);
    nd_child_wait(connection->pid, how, 0);
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
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' does not speak the protocol: where a frame should begin it wrote '%s'; is "
                       "it something that a library prints on standard output?",
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

/* A result names its sample and repeat: a second answer to one question would be taken for the next one's. */
static enum nd_status check_names(const struct nd_runner_connection *connection, const json_t *question,
                                  struct nd_error *err)
{
    static const char *const names[] = {"sample", "repeat"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const json_t *asked = json_object_get(question, names[i]),
                     *named = json_object_get(connection->frame.message, names[i]);
        if (asked != NULL && !json_is_integer(named))
            return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                           "runner '%s' sent a result without the whole number '%s'", connection->name,
                           names[i]);
        if (asked != NULL && !json_equal(asked, named))
            return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                           "runner '%s' sent a result of %s %lld where that of %s %lld was to come",
                           connection->name, names[i], (long long)json_integer_value(named), names[i],
                           (long long)json_integer_value(asked));
    }
    return ND_OK;
}

/* Reads a frame. *is_log: it is a line of a log, which was passed on. */
static enum nd_status read_one(struct nd_runner_connection *connection, uint64_t end_ns,
                               const struct nd_runner_question *question, bool *is_log, struct nd_error *err)
{
    char problem[ND_FRAME_PROBLEM_BYTES] = "";
    enum nd_frame_end end =
        nd_frame_read(connection->from, end_ns, question->max_data_bytes, &connection->frame, problem);
    if (end != ND_FRAME_WHOLE)
        return fail_frame(connection, end, problem, question->doing, err);
    const char *what = nd_runner_text(connection->frame.message, "message");
    *is_log = strcmp(what, "log") == 0;
    if (*is_log)
        pass_on(connection);
    return strcmp(what, "error") == 0 ? fail_report(connection, question->doing, err) : ND_OK;
}

/* Reads until something comes that is no line of a log. */
static enum nd_status receive(struct nd_runner_connection *connection, uint64_t end_ns,
                              const struct nd_runner_question *question, struct nd_error *err)
{
    bool is_log = true;
    while (is_log)
        ND_TRY(read_one(connection, end_ns, question, &is_log, err));
    const char *what = nd_runner_text(connection->frame.message, "message");
    if (strcmp(what, question->answer) == 0)
        return check_names(connection, question->message, err);
    return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                   "runner '%s' sent a message '%s' where '%s' was to come", connection->name, what,
                   question->answer);
}

/* Until the runner has the question it has nothing to say but lines of a log. */
static enum nd_status take_early(struct nd_runner_connection *connection, uint64_t end_ns,
                                 const struct nd_runner_question *question, struct nd_error *err)
{
    struct pollfd early = {.fd = connection->from, .events = POLLIN};
    while (poll(&early, 1, 0) > 0 && (early.revents & POLLIN) != 0) {
        bool is_log = false;
        ND_TRY(read_one(connection, end_ns, question, &is_log, err));
        if (!is_log)
            return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                           "runner '%s' sent a message '%s' that nobody asked for, before it was to %s",
                           connection->name, nd_runner_text(connection->frame.message, "message"),
                           question->doing);
    }
    return ND_OK;
}

/* Everything at once where the pipe has room: the runner wakes once. Uses up the list. A runner that ends says
 * perhaps why: that is read next. */
static enum nd_status write_all(struct nd_runner_connection *connection, uint64_t end_ns,
                                const struct nd_runner_question *question, struct iovec *parts, size_t n_parts,
                                struct nd_error *err)
{
    while (n_parts > 0) {
        ND_TRY(take_early(connection, end_ns, question, err));
        ssize_t n = nd_pipe_write(connection->to, parts, (int)(n_parts < IOV_MAX ? n_parts : IOV_MAX));
        if (n < 0 && errno == EAGAIN) {
            struct pollfd wanted[] = {{.fd = connection->to, .events = POLLOUT},
                                      {.fd = connection->from, .events = POLLIN}};
            if (!wait_until(end_ns, wanted, 2))
                return fail_frame(connection, ND_FRAME_LATE, "", question->doing, err);
        } else if (n < 0 && errno != EINTR) {
            return ND_OK;
        }
        for (; n_parts > 0 && n >= 0 && (size_t)n >= parts->iov_len; parts++, n_parts--)
            n -= (ssize_t)parts->iov_len;
        if (n_parts > 0 && n > 0) {
            parts->iov_base = (char *)parts->iov_base + n;
            parts->iov_len -= (size_t)n;
        }
    }
    return ND_OK;
}

enum nd_status nd_runner_ask(struct nd_runner_connection *connection, const struct nd_runner_question *question,
                             struct nd_error *err)
{
    uint64_t end_ns = nd_clock_ns() + (uint64_t)question->timeout_ms * 1000000;
    ND_FREED char *text = nd_json_dumps(question->message, JSON_COMPACT);
    ND_FREED struct iovec *all = nd_calloc(question->n_parts + 2, sizeof *all);
    struct header header;
    uint64_t data_bytes = 0;
    ND_TRY_MEMORY(text != NULL && all != NULL, err);
    end_ns = question->timeout_ms > 0 ? end_ns : ND_FRAME_NO_END;
    for (size_t i = 0; i < question->n_parts; i++) {
        data_bytes += question->parts[i].n_bytes;
        all[i + 2] = (struct iovec){(void *)(uintptr_t)question->parts[i].data, question->parts[i].n_bytes};
    }
    header = (struct header){.json_bytes = htole32((uint32_t)strlen(text)), .data_bytes = htole64(data_bytes)};
    memcpy(header.magic, magic, sizeof magic);
    all[0] = (struct iovec){&header, sizeof header};
    all[1] = (struct iovec){text, strlen(text)};
    ND_TRY(write_all(connection, end_ns, question, all, question->n_parts + 2, err));
    return receive(connection, end_ns, question, err);
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
        fcntl(to[1], F_SETFL, O_NONBLOCK); /* of this end: a runner that does not read delays nobody for ever */
        problem = nd_child_start(&child, &connection->pid);
    }
    nd_fd_close(&to[0]);
    nd_fd_close(&from[1]);
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
    const uint64_t end_ns = nd_clock_ns() + hello_limit_ns;
    connection->to = connection->from = -1;
    connection->name = nd_strdup(strncmp(base, prefix, strlen(prefix)) == 0 ? base + strlen(prefix) : base);
    ND_TRY_MEMORY(connection->name != NULL, err);
    ND_TRY(connect(connection, path, err));
    ND_TRY(receive(connection, end_ns, &hello, err));
    json_int_t version = json_integer_value(json_object_get(connection->frame.message, "protocol"));
    if (version != ND_RUNNER_PROTOCOL)
        return nd_fail(err, ND_E_RUNNER_PROTOCOL, connection->name,
                       "runner '%s' speaks version %lld of the protocol, and this npudiff speaks version %d%s",
                       connection->name, (long long)version, ND_RUNNER_PROTOCOL,
                       version == 1 ? ", in which a result names its sample and repeat "
                                      "(docs/reference/runner.md#versions)"
                                    : "");
    return ND_OK;
}
