/* Boards and laptops, through the system's own ssh with the user's configuration and keys.
 *
 * A transport logs in once: the first command leaves ssh's master in the background (ControlMaster), and the
 * others are sessions of its connection. The master ends when the transport is closed. When npudiff is killed
 * it ends after a time without commands. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "devices/phones/transport.h"
#include "npudiff/core/parse.h"

static const double probe_limit_s = 20;
static const double control_limit_s = 5; /* of what ssh does on this machine alone */
enum { MASTER_IDLE_S = 30 };             /* chosen: longer than any pause between two commands of a capture */
enum { MASTER_SUFFIX_BYTES = 17 };       /* "." and 16 characters that ssh appends while it makes the socket */
static const char socket_name[] = "m";

/* "host:port" or "user@host:port"; what has more colons is an address of IPv6 or a URI of ssh's own. */
static const char *port_of(const char *address)
{
    const char *colon = strchr(address, ':');
    uint64_t port;
    bool is_port = colon != NULL && strchr(colon + 1, ':') == NULL && nd_parse_u64(colon + 1, &port) &&
                   port > 0 && port < 65536;
    return is_port ? colon + 1 : NULL;
}

/* The host without its port, and the arguments that say the port. */
static size_t put_port(const struct nd_transport *transport, const char **argv, size_t *n)
{
    const char *port = port_of(transport->address);
    if (port == NULL)
        return strlen(transport->address);
    argv[(*n)++] = "-p";
    argv[(*n)++] = port;
    return (size_t)(port - 1 - transport->address);
}

/* The login shell may be any: it gets one word for sh. scratch: host, command and the socket's option. */
static bool ssh_command(const struct nd_transport *transport, const char *text, bool has_stdin,
                        const char **argv, char **scratch)
{
    struct nd_strbuf words = {0};
    size_t n = 0, command_at, path_at;
    (void)has_stdin;
    argv[n++] = transport->tool;
    argv[n++] = "-T";
    argv[n++] = "-oBatchMode=yes";
    argv[n++] = "-oConnectTimeout=10";
    argv[n++] = "-oServerAliveInterval=5";
    argv[n++] = "-oServerAliveCountMax=3";
    nd_strbuf_append(&words, transport->address, put_port(transport, argv, &n));
    nd_strbuf_append(&words, "", 1);
    command_at = words.len;
    nd_strbuf_puts(&words, "exec sh -c ");
    nd_shell_quote(&words, text);
    nd_strbuf_append(&words, "", 1);
    path_at = words.len;
    if (transport->shared_folder != NULL) {
        nd_strbuf_printf(&words, "-oControlPath=%s/%s", transport->shared_folder, socket_name);
        nd_strbuf_append(&words, "", 1);
        nd_strbuf_printf(&words, "-oControlPersist=%d", MASTER_IDLE_S);
    }
    *scratch = nd_strbuf_take(&words);
    if (*scratch == NULL)
        return false;
    if (transport->shared_folder != NULL) {
        argv[n++] = "-oControlMaster=auto";
        argv[n++] = *scratch + path_at;
        argv[n++] = *scratch + path_at + strlen(*scratch + path_at) + 1;
    }
    argv[n++] = "--";
    argv[n++] = *scratch;
    argv[n++] = *scratch + command_at;
    argv[n] = NULL;
    return true;
}

/* ---- one connection ---- */

/* Runs ssh with one of its requests that need no other machine; what it printed, or NULL. */
static char *ask_ssh(const struct nd_transport *transport, const char *flag, const char *request,
                     const char *path_option)
{
    const char *argv[12];
    size_t n = 0;
    struct nd_process_end end = {0};
    struct nd_strbuf host = {0};
    argv[n++] = transport->tool;
    argv[n++] = flag;
    if (request != NULL)
        argv[n++] = request;
    if (path_option != NULL)
        argv[n++] = path_option;
    nd_strbuf_append(&host, transport->address, put_port(transport, argv, &n));
    ND_FREED char *name = nd_strbuf_take(&host);
    argv[n++] = "--";
    argv[n++] = name;
    argv[n] = NULL;
    char *out = NULL;
    if (name != NULL && nd_transport_tool(transport, argv, control_limit_s, &end, NULL) == ND_OK) {
        out = nd_strdup(end.out);
        nd_process_end_deinit(&end);
    }
    return out;
}

/* Whether ssh can listen on a socket in that folder: the path is neither too long nor of characters that mean
 * something to ssh, and the file system has sockets. Where it cannot, ssh ends and does not connect. */
static bool can_listen(const char *folder)
{
    static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._+-";
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int n = snprintf(address.sun_path, sizeof address.sun_path, "%s/%s", folder, socket_name);
    if (n < 0 || (size_t)n + MASTER_SUFFIX_BYTES >= sizeof address.sun_path || folder[0] != '/' ||
        strspn(folder, plain) != strlen(folder))
        return false;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool is_bound = fd >= 0 && bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    nd_fd_close(&fd);
    unlink(address.sun_path);
    return is_bound;
}

/* A connection that the user's configuration shares is left to it: maybe only a person can open it. */
static bool is_shared_already(const struct nd_transport *transport)
{
    ND_FREED char *settings = ask_ssh(transport, "-G", NULL, NULL);
    const char *path = settings != NULL ? strstr(settings, "\ncontrolpath ") : NULL;
    return path != NULL && strncmp(path, "\ncontrolpath none\n", 18) != 0;
}

/* Where it cannot be had, each command logs in. */
static void share(struct nd_transport *transport)
{
    char *folder = NULL;
    if (is_shared_already(transport) || nd_dir_make_temporary(&folder, NULL) != ND_OK)
        return;
    if (can_listen(folder)) {
        transport->shared_folder = folder;
        return;
    }
    nd_dir_remove(folder);
    free(folder);
}

static void end_master(const struct nd_transport *transport)
{
    ND_FREED char *text = nd_text("-oControlPath=%s/%s", transport->shared_folder, socket_name);
    if (text != NULL)
        free(ask_ssh(transport, "-O", "exit", text));
}

static void ssh_leave(struct nd_transport *transport)
{
    if (transport->shared_folder == NULL)
        return;
    end_master(transport);
    nd_dir_remove(transport->shared_folder);
}

/* What does not get better by waiting. */
static const char *final_trouble(const char *errors)
{
    static const char *const known[][2] = {
        {"Permission denied", "it does not let this user in: a key that needs no password is needed "
                              "(ssh-copy-id, ssh-agent)"},
        {"Host key verification failed", "its host key is not known: connect once by hand with ssh"},
        {"REMOTE HOST IDENTIFICATION HAS CHANGED", "its host key has changed"},
        {"Could not resolve hostname", "there is no such host"},
        {"Bad configuration option", "ssh's configuration is wrong"},
        {"Too many authentication failures", "it does not let this user in: too many keys were offered"},
        {"not found", "it has no sh"},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strstr(errors, known[i][0]) != NULL)
            return known[i][1];
    return NULL;
}

static enum nd_status ssh_connect(struct nd_transport *transport, bool *is_final, struct nd_error *err)
{
    const struct nd_remote_command command = {.text = "true", .time_limit_s = probe_limit_s};
    ND_CLEANUP(nd_remote_reply_deinit) struct nd_remote_reply reply = {0};
    struct nd_error why = {0};
    if (transport->traffic.n_commands == 0 && transport->shared_folder == NULL)
        share(transport);
    else if (transport->shared_folder != NULL)
        end_master(transport); /* nobody may answer on its connection any more */
    enum nd_status status = nd_transport_run_once(transport, &command, &reply, &why);
    const char *trouble = reply.errors != NULL ? final_trouble(reply.errors) : NULL;
    char line[200] = "";
    *is_final = trouble != NULL;
    if (trouble != NULL)
        nd_transport_last_line(reply.errors, line, sizeof line);
    if (why.id == ND_E_TRANSPORT_TOOL)
        status = nd_fail(err, ND_E_TRANSPORT_TOOL, transport->tool,
                         "devices over ssh need ssh, and '%s' cannot be started; install it (Debian: apt "
                         "install openssh-client) or name it in $NPUDIFF_SSH",
                         transport->tool);
    else if (status != ND_OK && why.id == ND_E_LINK_LOST && trouble != NULL)
        status = nd_fail(err, ND_E_DEVICE_CONNECT, transport->address, "cannot reach '%s': %s (%s)",
                         transport->address, trouble, line);
    else if (status != ND_OK)
        status = nd_fail(err, why.id == ND_E_LINK_LOST ? ND_E_DEVICE_CONNECT : (enum nd_error_id)why.id,
                         transport->address, "%s", why.message);
    return status;
}

const struct nd_transport_ops nd_transport_ssh = {
    .name = "ssh", .command = ssh_command, .connect = ssh_connect, .leave = ssh_leave};
