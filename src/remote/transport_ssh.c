/* Boards and laptops, through the system's own ssh with the user's configuration and keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "npudiff/parse.h"
#include "remote/transport.h"

static const double probe_limit_s = 20;

/* "host:port" or "user@host:port"; what has more colons is an address of IPv6 or a URI of ssh's own. */
static const char *port_of(const char *address)
{
    const char *colon = strchr(address, ':');
    uint64_t port;
    bool is_port = colon != NULL && strchr(colon + 1, ':') == NULL && nd_parse_u64(colon + 1, &port) &&
                   port > 0 && port < 65536;
    return is_port ? colon + 1 : NULL;
}

/* The login shell may be any: what it gets is one word for sh. scratch: host and command. */
static bool ssh_command(const struct nd_transport *transport, const char *text, bool has_stdin,
                        const char **argv, char **scratch)
{
    const char *port = port_of(transport->address);
    size_t n_host = port != NULL ? (size_t)(port - 1 - transport->address) : strlen(transport->address);
    struct nd_strbuf words = {0};
    size_t n = 0;
    (void)has_stdin;
    nd_strbuf_append(&words, transport->address, n_host);
    nd_strbuf_append(&words, "", 1);
    nd_strbuf_puts(&words, "exec sh -c ");
    nd_shell_quote(&words, text);
    *scratch = nd_strbuf_take(&words);
    if (*scratch == NULL)
        return false;
    argv[n++] = transport->tool;
    argv[n++] = "-T";
    argv[n++] = "-oBatchMode=yes";
    argv[n++] = "-oConnectTimeout=10";
    argv[n++] = "-oServerAliveInterval=5";
    argv[n++] = "-oServerAliveCountMax=3";
    if (port != NULL) {
        argv[n++] = "-p";
        argv[n++] = port;
    }
    argv[n++] = "--";
    argv[n++] = *scratch;
    argv[n++] = *scratch + n_host + 1;
    argv[n] = NULL;
    return true;
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
    struct nd_remote_reply reply = {0};
    struct nd_error why = {0};
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
    nd_remote_reply_deinit(&reply);
    return status;
}

const struct nd_transport_ops nd_transport_ssh = {
    .name = "ssh", .command = ssh_command, .connect = ssh_connect};
