/* Files to another machine, by commands: so they are as safe from a link that breaks. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/phones/transport.h"

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
    char *quoted = nd_strbuf_take(&part);
    if (quoted == NULL)
        return NULL;
    nd_strbuf_printf(&command,
                     "p=%s.part$$; cat > \"$p\" || { rm -f \"$p\"; exit %d; }; "
                     "s=$(sha256sum < \"$p\") || { rm -f \"$p\"; exit %d; }; "
                     "[ \"${s%%%% *}\" = %s ] || { rm -f \"$p\"; exit %d; }; "
                     "chmod %s \"$p\" && mv -f \"$p\" %s",
                     quoted, EXIT_NO_ROOM, EXIT_NO_DIGEST, sha256, EXIT_WRONG_DIGEST,
                     is_executable ? "700" : "600", quoted);
    free(quoted);
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
    char *text = push_command(remote, sha256, is_executable);
    if (text == NULL)
        return nd_fail_memory(err);
    const struct nd_remote_command command = {.text = text,
                                              .stdin_path = local,
                                              .time_limit_s =
                                                  min_limit_s + (double)info.st_size / slowest_bytes_s};
    struct nd_remote_reply reply = {0};
    enum nd_status status = ND_OK;
    /* A link that breaks may end the file for the machine, which then holds a part of it. */
    for (int i = 0; i < N_PUSH_TRIES; i++) {
        nd_remote_reply_deinit(&reply);
        transport->traffic.bytes_sent += (uint64_t)info.st_size;
        status = nd_transport_run(transport, &command, &reply, err);
        if (status != ND_OK || reply.exit_code != EXIT_WRONG_DIGEST)
            break;
    }
    if (status == ND_OK && reply.exit_code != 0)
        status = fail_push(transport, local, &reply, err);
    nd_remote_reply_deinit(&reply);
    free(text);
    return status;
}
