/* Another machine: the ways to it (transport_adb.c, transport_ssh.c) under one interface, and files to it by
 * commands: so they are as safe from a link that breaks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/phones/transport.h"

static const double open_limit_s = 3; /* how long a machine that is not there is waited for at first */

/* ---- sh on this machine ---- */

static bool sh_command(const struct nd_transport *transport, const char *text, bool has_stdin,
                       const char **argv, char **scratch)
{
    (void)has_stdin;
    *scratch = NULL;
    argv[0] = transport->tool;
    argv[1] = "-c";
    argv[2] = text;
    argv[3] = NULL;
    return true;
}

static enum nd_status sh_connect(struct nd_transport *transport, bool *is_final, struct nd_error *err)
{
    (void)transport;
    (void)err;
    *is_final = true;
    return ND_OK;
}

static const struct nd_transport_ops nd_transport_sh = {
    .name = "sh", .command = sh_command, .connect = sh_connect};

/* ---- a link that comes back ---- */

static double seconds_since(uint64_t ns)
{
    return (double)(nd_clock_ns() - ns) * 1e-9;
}

/* False when the caller does not want to wait any more. */
static bool wait_s(const struct nd_transport *transport, double seconds)
{
    uint64_t begun = nd_clock_ns();
    while (seconds_since(begun) < seconds) {
        if (transport->is_cancelled != NULL && transport->is_cancelled(transport->cancel_context))
            return false;
        nanosleep(&(struct timespec){.tv_nsec = 20L * 1000 * 1000}, NULL);
    }
    return true;
}

/* Tries to reach the machine until limit_s are over; *why is what the last try said. */
static enum nd_status connect_within(struct nd_transport *transport, double limit_s, bool heeds_final,
                                     struct nd_error *why)
{
    uint64_t begun = nd_clock_ns();
    double pause_s = 0.1;
    for (;;) {
        bool is_final = false;
        enum nd_status status = transport->ops->connect(transport, &is_final, why);
        if (status == ND_OK || why->id != ND_E_DEVICE_CONNECT)
            return status;
        if ((is_final && heeds_final) || seconds_since(begun) + pause_s > limit_s)
            return status;
        if (!wait_s(transport, pause_s))
            return nd_transport_fail_cancelled(transport, why);
        pause_s = pause_s < 1.5 ? pause_s * 1.6 : 2;
    }
}

enum nd_status nd_transport_reconnect(struct nd_transport *transport, struct nd_error *err)
{
    struct nd_error why = {0};
    enum nd_status status = ND_ERR_DEVICE;
    transport->traffic.n_lost++;
    if (transport->link_limit_s > 0)
        status = connect_within(transport, transport->link_limit_s, false, &why);
    if (status == ND_OK)
        return ND_OK;
    if (why.id == ND_E_CANCELLED || why.status == ND_ERR_MEMORY)
        return nd_fail(err, (enum nd_error_id)why.id, why.object, "%s", why.message);
    return nd_fail(err, ND_E_LINK_LOST, transport->address,
                   "the link to '%s:%s' was lost and did not come back within %g s%s%s", transport->ops->name,
                   transport->address, transport->link_limit_s, why.id != 0 ? ": " : "", why.message);
}

enum nd_status nd_transport_run(struct nd_transport *transport, const struct nd_remote_command *command,
                                struct nd_remote_reply *reply, struct nd_error *err)
{
    struct nd_error local = {0};
    uint64_t lost_ns = 0;
    for (;;) {
        enum nd_status status = nd_transport_run_once(transport, command, reply, &local);
        if (status == ND_OK)
            return ND_OK;
        nd_remote_reply_deinit(reply);
        if (local.id == ND_E_LINK_LOST && (lost_ns == 0 || seconds_since(lost_ns) < transport->link_limit_s)) {
            lost_ns = lost_ns != 0 ? lost_ns : nd_clock_ns();
            status = nd_transport_reconnect(transport, &local);
        }
        if (status != ND_OK) {
            if (err != NULL)
                *err = local;
            return status;
        }
    }
}

enum nd_status nd_transport_shell(struct nd_transport *transport, const char *text,
                                  struct nd_remote_reply *reply, struct nd_error *err)
{
    struct nd_remote_reply made = {0};
    char line[300];
    const struct nd_remote_command command = {.text = text};
    enum nd_status status = nd_transport_run(transport, &command, &made, err);
    if (status == ND_OK && made.exit_code != 0) {
        nd_transport_last_line(made.errors, line, sizeof line);
        status = nd_fail(err, ND_E_DEVICE_COMMAND, transport->address,
                         made.is_truncated ? "a command on '%s:%s' did not stop printing%s%s"
                                           : "a command on '%s:%s' failed%s%s",
                         transport->ops->name, transport->address, line[0] != '\0' ? ": " : "", line);
    }
    if (status == ND_OK && reply != NULL)
        *reply = made;
    else
        nd_remote_reply_deinit(&made);
    return status;
}

/* ---- opening ---- */

static bool make_nonce(char nonce[40])
{
    unsigned char bytes[8];
    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    int n = snprintf(nonce, 40, "npudiff-");
    for (size_t i = 0; i < sizeof bytes; i++)
        n += snprintf(nonce + n, 40 - (size_t)n, "%02x", bytes[i]);
    return true;
}

static const char *tool_of(enum nd_transport_kind kind)
{
    static const struct {
        const char *variable, *name;
    } tools[] = {[ND_TRANSPORT_NONE] = {"", "sh"},
                 [ND_TRANSPORT_ADB] = {"NPUDIFF_ADB", "adb"},
                 [ND_TRANSPORT_SSH] = {"NPUDIFF_SSH", "ssh"}};
    const char *wanted = getenv(tools[kind].variable);
    return wanted != NULL && wanted[0] != '\0' ? wanted : tools[kind].name;
}

enum nd_status nd_transport_open(enum nd_transport_kind kind, const char *address,
                                 const struct nd_capture_options *options, struct nd_transport **out,
                                 struct nd_error *err)
{
    static const struct nd_transport_ops *const ops[] = {[ND_TRANSPORT_NONE] = &nd_transport_sh,
                                                         [ND_TRANSPORT_ADB] = &nd_transport_adb,
                                                         [ND_TRANSPORT_SSH] = &nd_transport_ssh};
    struct nd_error why = {0};
    struct nd_transport *transport = nd_calloc(1, sizeof *transport);
    ND_TRY_MEMORY(transport != NULL, err);
    transport->ops = ops[kind];
    transport->tool = nd_strdup(tool_of(kind));
    transport->address = nd_strdup(address != NULL ? address : "this machine");
    transport->link_limit_s = options->link_limit_s;
    transport->is_cancelled = options->is_cancelled;
    transport->cancel_context = options->cancel_context;
    enum nd_status status =
        transport->tool != NULL && transport->address != NULL && make_nonce(transport->nonce)
            ? connect_within(transport, open_limit_s, true, &why)
            : nd_fail_memory(&why);
    if (status == ND_OK) {
        *out = transport;
        return ND_OK;
    }
    if (err != NULL)
        *err = why;
    nd_transport_close(&transport);
    return status;
}

void nd_transport_close(struct nd_transport **transport)
{
    if (*transport == NULL)
        return;
    (*transport)->is_cancelled = NULL; /* whoever stops the run must not stop its end */
    if ((*transport)->ops->leave != NULL)
        (*transport)->ops->leave(*transport);
    ND_FREE_ALL((*transport)->tool, (*transport)->address, (*transport)->shared_folder, *transport);
    *transport = NULL;
}

static const double min_limit_s = 60;
static const double slowest_bytes_s = 250e3; /* of a link that still counts as one */
enum { N_PUSH_TRIES = 3 };
enum { EXIT_NO_ROOM = 92, EXIT_NO_DIGEST = 93, EXIT_WRONG_DIGEST = 94 }; /* of the command that pushes */

/* Others may send the same file at the same time, and a command whose link is lost may still be there: each
 * writes to a name of its own. */
static char *push_command(const char *remote, const char *sha256, bool is_executable)
{
    struct nd_strbuf part = {0}, command = {0};
    nd_shell_quote(&part, remote);
    ND_FREED char *quoted = nd_strbuf_take(&part);
    if (quoted == NULL)
        return NULL;
    nd_strbuf_printf(
        &command,
        "p=%s.part$$; cat > \"$p\" || { rm -f \"$p\"; exit %d; }; s=$(sha256sum < \"$p\") || { rm -f \"$p\"; "
        "exit %d; }; [ \"${s%%%% *}\" = %s ] || { rm -f \"$p\"; exit %d; }; chmod %s \"$p\" && mv -f \"$p\" %s",
        quoted, EXIT_NO_ROOM, EXIT_NO_DIGEST, sha256, EXIT_WRONG_DIGEST, is_executable ? "700" : "600", quoted);
    return nd_strbuf_take(&command);
}

static enum nd_status fail_push(const struct nd_transport *transport, const char *local,
                                const struct nd_remote_reply *reply, struct nd_error *err)
{
    char line[300];
    nd_transport_last_line(reply->errors, line, sizeof line);
    if (reply->exit_code == EXIT_WRONG_DIGEST)
        snprintf(line, sizeof line, "it did not arrive as it was sent");
    return nd_fail(err, ND_E_DEVICE_PUSH, local, "cannot put '%s' on '%s:%s': %s", nd_path_base(local),
                   transport->ops->name, transport->address, line);
}

enum nd_status nd_transport_push(struct nd_transport *transport, const char *local, const char *sha256,
                                 const char *remote, bool is_executable, struct nd_error *err)
{
    struct stat info;
    if (stat(local, &info) != 0)
        return nd_fail(err, ND_E_FILE_OPEN, local, "cannot open '%s': %s", local, strerror(errno));
    ND_FREED char *text = push_command(remote, sha256, is_executable);
    ND_TRY_MEMORY(text != NULL, err);
    const struct nd_remote_command command = {.text = text,
                                              .stdin_path = local,
                                              .time_limit_s =
                                                  min_limit_s + (double)info.st_size / slowest_bytes_s};
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    /* A link that breaks may end the file for the machine, which then holds a part of it. */
    for (int i = 0; i < N_PUSH_TRIES; i++) {
        nd_remote_reply_deinit(&reply);
        transport->traffic.bytes_sent += (uint64_t)info.st_size;
        ND_TRY(nd_transport_run(transport, &command, &reply, err));
        if (reply.exit_code != EXIT_WRONG_DIGEST)
            break;
    }
    return reply.exit_code != 0 ? fail_push(transport, local, &reply, err) : ND_OK;
}
