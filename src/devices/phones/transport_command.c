/* One command on another machine: how it is framed, so that what broke off is told from what failed. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/phones/transport.h"

static const double command_limit_s = 30;
static const size_t default_stdout_limit = 1u << 20;
enum { MAX_GREETING = 64 << 10 };

void nd_shell_quote(struct nd_strbuf *command, const char *text)
{
    nd_strbuf_puts(command, "'");
    for (const char *at = text; *at != '\0';) {
        size_t n = strcspn(at, "'");
        nd_strbuf_append(command, at, n);
        at += n;
        if (*at == '\'') {
            nd_strbuf_puts(command, "'\\''");
            at++;
        }
    }
    nd_strbuf_puts(command, "'");
}

void nd_remote_reply_deinit(struct nd_remote_reply *reply)
{
    ND_FREE_ALL(reply->out, reply->errors);
    *reply = (struct nd_remote_reply){0};
}

enum nd_status nd_transport_fail_cancelled(const struct nd_transport *transport, struct nd_error *err)
{
    return nd_fail(err, ND_E_CANCELLED, transport->address, "device '%s:%s' was stopped on request",
                   transport->ops->name, transport->address);
}

enum nd_status nd_transport_tool(const struct nd_transport *transport, const char *const *argv,
                                 double time_limit_s, struct nd_process_end *end, struct nd_error *err)
{
    const struct nd_process process = {.argv = argv,
                                       .time_limit_s = time_limit_s,
                                       .is_cancelled = transport->is_cancelled,
                                       .cancel_context = transport->cancel_context,
                                       .keeps_group = true};
    enum nd_status status = nd_process_run(&process, end, err);
    if (status == ND_OK && end->is_cancelled) {
        nd_process_end_deinit(end);
        return nd_transport_fail_cancelled(transport, err);
    }
    return status;
}

void nd_transport_last_line(const char *text, char *line, size_t size)
{
    nd_last_line(text, strlen(text), line, size);
    /* It ends up on a terminal, which is not another machine's to steer. */
    for (char *at = line; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == 0x7f)
            *at = ' ';
}

/* Cuts the trailer off standard error. False when it is not there: then the command did not come to its end. */
static bool cut_trailer(const struct nd_transport *transport, char *errors, int *exit_code)
{
    char *found = NULL, *end = NULL;
    for (char *at = errors; (at = strstr(at, transport->nonce)) != NULL; at++)
        found = at;
    if (found == NULL)
        return false;
    long code = strtol(found + strlen(transport->nonce), &end, 10);
    if (end == found + strlen(transport->nonce) || *end != '\n')
        return false;
    *exit_code = (int)code;
    if (found > errors && found[-1] == '\n')
        found--;
    *found = '\0';
    return true;
}

/* Cuts off what was printed before the command began, with the mark. False when it did not begin. */
static bool cut_greeting(const struct nd_transport *transport, struct nd_process_end *end)
{
    size_t n = strlen(transport->nonce);
    const char *found = memmem(end->out, end->out_bytes, transport->nonce, n);
    bool has_begun = found != NULL && found + n < end->out + end->out_bytes; /* a newline follows */
    size_t skipped = has_begun ? (size_t)(found - end->out) + n + 1 : end->out_bytes;
    end->out_bytes -= skipped;
    memmove(end->out, end->out + skipped, end->out_bytes + 1);
    return has_begun;
}

/* The command between its mark and its trailer. */
static char *frame_command(const struct nd_transport *transport, const char *text)
{
    return nd_text("echo %s; ( %s ); r=$?; printf '\\n%s %%d\\n' $r >&2; exit $r", transport->nonce, text,
                   transport->nonce);
}

static size_t limit_of(const struct nd_remote_command *command)
{
    return command->stdout_limit_bytes > 0 ? command->stdout_limit_bytes : default_stdout_limit;
}

static enum nd_status run_process(struct nd_transport *transport, const struct nd_remote_command *command,
                                  struct nd_process_end *end, struct nd_error *err)
{
    const char *argv[ND_TRANSPORT_MAX_ARGV];
    ND_FREED char *scratch = NULL;
    ND_FREED char *text = frame_command(transport, command->text);
    ND_TRY_MEMORY(text != NULL &&
                      transport->ops->command(transport, text, command->stdin_path != NULL, argv, &scratch),
                  err);
    const struct nd_process process = {
        .argv = argv,
        .stdin_path = command->stdin_path,
        .stdout_limit_bytes = limit_of(command) + MAX_GREETING,
        .time_limit_s = command->time_limit_s > 0 ? command->time_limit_s : command_limit_s,
        .is_cancelled = transport->is_cancelled,
        .cancel_context = transport->cancel_context,
    };
    enum nd_status status = nd_process_run(&process, end, err);
    if (status != ND_OK && err != NULL && err->id == ND_E_PROCESS)
        status = nd_fail(err, ND_E_TRANSPORT_TOOL, argv[0], "%s", err->message);
    return status;
}

static enum nd_status fail_lost(const struct nd_transport *transport, const struct nd_process_end *end,
                                struct nd_error *err)
{
    char line[200];
    nd_transport_last_line(end->errors, line, sizeof line);
    if (end->timed_out)
        snprintf(line, sizeof line, "no answer in time");
    return nd_fail(err, ND_E_LINK_LOST, transport->address, "the link to '%s:%s' was lost%s%s%s",
                   transport->ops->name, transport->address, line[0] != '\0' ? " (" : "", line,
                   line[0] != '\0' ? ")" : "");
}

enum nd_status nd_transport_run_once(struct nd_transport *transport, const struct nd_remote_command *command,
                                     struct nd_remote_reply *reply, struct nd_error *err)
{
    struct nd_process_end end = {0};
    int exit_code = -1;
    *reply = (struct nd_remote_reply){0};
    enum nd_status status = run_process(transport, command, &end, err);
    if (status != ND_OK)
        return status;
    transport->traffic.n_commands++;
    transport->traffic.bytes_received += end.out_bytes;
    bool is_whole = cut_greeting(transport, &end);
    is_whole = cut_trailer(transport, end.errors, &exit_code) && is_whole;
    if (end.out_bytes > limit_of(command)) {
        end.is_truncated = true;
        end.out_bytes = limit_of(command);
        end.out[end.out_bytes] = '\0';
    }
    if (end.is_cancelled)
        status = nd_transport_fail_cancelled(transport, err);
    else if (!end.is_truncated && (!is_whole || end.exit_code != exit_code))
        /* Only the tool's own exit code tells that standard output came to its end, too. */
        status = fail_lost(transport, &end, err);
    if (status != ND_OK && (err == NULL || err->id == ND_E_CANCELLED)) {
        nd_process_end_deinit(&end);
        return status;
    }
    *reply = (struct nd_remote_reply){.exit_code = status == ND_OK && !end.is_truncated ? exit_code : -1,
                                      .is_truncated = end.is_truncated,
                                      .out = end.out,
                                      .out_bytes = end.out_bytes,
                                      .errors = end.errors};
    return status;
}
