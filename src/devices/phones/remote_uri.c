/* Reads the URIs of devices on other machines: docs/reference/devices.md. */
#include "devices/phones/remote.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

static const struct {
    enum nd_transport_kind kind;
    const char *name, *what;
} transports[] = {{ND_TRANSPORT_ADB, "adb", "serial"}, {ND_TRANSPORT_SSH, "ssh", "host"}};

static const char *const methods[] = {[ND_REMOTE_AGENT] = "agent", [ND_REMOTE_QNN_NET_RUN] = "qnn-net-run"};

const char *nd_transport_name(enum nd_transport_kind transport)
{
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++)
        if (transports[i].kind == transport)
            return transports[i].name;
    return "none";
}

const char *nd_remote_method_name(enum nd_remote_method method)
{
    return (size_t)method < sizeof methods / sizeof methods[0] ? methods[method] : "unknown";
}

/* Which of the transports the URI begins with; SIZE_MAX for none. */
static size_t find_transport(const char *uri)
{
    for (size_t i = 0; i < sizeof transports / sizeof transports[0]; i++) {
        size_t n = strlen(transports[i].name);
        if (strncmp(uri, transports[i].name, n) == 0 && uri[n] == ':')
            return i;
    }
    return SIZE_MAX;
}

bool nd_uri_is_remote(const char *uri)
{
    return find_transport(uri) != SIZE_MAX;
}

static char *copy_bytes(const char *at, size_t n)
{
    struct nd_strbuf buf = {0};
    nd_strbuf_append(&buf, at, n);
    return nd_strbuf_take(&buf);
}

size_t nd_adb_serial_length(const char *address)
{
    return strcspn(address, "@");
}

const char *nd_adb_server(const char *address)
{
    const char *at = strchr(address, '@');
    return at != NULL ? at + 1 : NULL;
}

/* The address of adb is the serial, and with it a server, which has a port: what has none is a runtime. */
static size_t adb_address_length(const char *address)
{
    size_t n = strcspn(address, "/?@");
    if (address[n] != '@')
        return n;
    size_t n_server = strcspn(address + n + 1, "/?@");
    return memchr(address + n + 1, ':', n_server) != NULL ? n + 1 + n_server : n;
}

enum nd_status nd_adb_check_server(const char *uri, const char *server, struct nd_error *err)
{
    const char *colon = strrchr(server, ':');
    uint64_t port;
    if (colon == NULL || colon == server || server[0] == '-' || !nd_parse_u64(colon + 1, &port) || port == 0 ||
        port > 65535)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': adb's server is written HOST:PORT, with a port from 1 to 65535, such as "
                       "'lab7:5037'",
                       uri);
    return ND_OK;
}

/* Nothing that a command line could take for something else than a name. */
static enum nd_status check_address(const char *uri, size_t transport, const char *address,
                                    struct nd_error *err)
{
    const char *what = transports[transport].what;
    bool is_ssh = transports[transport].kind == ND_TRANSPORT_SSH;
    if (is_ssh && (address[0] == '\0' || strcmp(address, "*") == 0))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': ssh:HOST names one host, as 'ssh' takes it",
                       uri);
    if (address[0] == '-')
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': a %s does not begin with '-'", uri, what);
    for (const char *at = address; *at != '\0'; at++)
        if ((unsigned char)*at <= ' ' || *at == 127)
            return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': a %s holds no blanks", uri, what);
    size_t n_name = is_ssh ? strlen(address) : nd_adb_serial_length(address);
    if (memchr(address, '*', n_name) != NULL && n_name != 1)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': '*' stands for all phones, or not at all, in a serial", uri);
    if (!is_ssh && nd_adb_server(address) != NULL)
        return nd_adb_check_server(uri, nd_adb_server(address), err);
    return ND_OK;
}

/* What follows the address: [/WAY][/DEVICE], or the tail of a device that is not named. */
static enum nd_status parse_rest(const char *uri, struct nd_remote_uri *out, struct nd_error *err)
{
    const char *at = out->rest;
    struct nd_strbuf device = {0};
    if (*at == '/') {
        for (size_t w = 0; w < sizeof methods / sizeof methods[0]; w++) {
            size_t n = strlen(methods[w]);
            if (strncmp(at + 1, methods[w], n) == 0 && strchr("/?@", at[1 + n]) != NULL) {
                out->method = (enum nd_remote_method)w;
                at += 1 + n;
                break;
            }
        }
    }
    if (*at != '/')
        nd_strbuf_puts(&device, "htp");
    else
        at++;
    nd_strbuf_puts(&device, at);
    out->device = nd_strbuf_take(&device);
    ND_TRY_MEMORY(out->device != NULL, err);
    if (out->device[0] == '\0')
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s' ends with '/'; behind it goes what runs there, such as 'htp' or 'cpu'",
                       uri);
    return ND_OK;
}

enum nd_status nd_remote_uri_parse(const char *uri, struct nd_remote_uri *out, struct nd_error *err)
{
    size_t transport = find_transport(uri);
    if (transport == SIZE_MAX)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s' is not on another machine", uri);
    const char *address = uri + strlen(transports[transport].name) + 1;
    size_t n =
        transports[transport].kind == ND_TRANSPORT_ADB ? adb_address_length(address) : strcspn(address, "/?");
    ND_CLEANUP(nd_remote_uri_deinit)
    struct nd_remote_uri parsed = {.transport = transports[transport].kind,
                                   .address = copy_bytes(address, n),
                                   .rest = nd_strdup(address + n)};
    ND_TRY(parsed.address != NULL && parsed.rest != NULL ? check_address(uri, transport, parsed.address, err)
                                                         : nd_fail_memory(err));
    ND_TRY(parse_rest(uri, &parsed, err));
    return ND_GIVE(out, parsed);
}

void nd_remote_uri_deinit(struct nd_remote_uri *uri)
{
    ND_FREE_ALL(uri->address, uri->rest, uri->device);
    *uri = (struct nd_remote_uri){0};
}
