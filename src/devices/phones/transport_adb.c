/* Phones, through the platform's own adb: those of this machine, or of adb's server on a different one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "devices/phones/remote.h"
#include "devices/phones/transport.h"
#include "npudiff/core/parse.h"

static const double tool_limit_s = 15;
static const double probe_limit_s = 8;
static const char server_prefix[] = "tcp:"; /* of an address of adb's -L */

/* ---- which phones there are ---- */

const char *nd_adb_state_trouble(const char *state)
{
    static const struct {
        const char *state, *trouble;
    } known[] = {
        {"unauthorized", "it is unauthorised: unlock it and accept the dialog 'Allow USB debugging'"},
        {"authorizing", "it is still being authorised"},
        {"offline", "it is offline: plug it in again, or restart it"},
        {"no permissions", "no permissions for the USB device: a udev rule for it and the group plugdev help"},
        {"bootloader", "it is in its bootloader"},
        {"recovery", "it is in recovery"},
        {"sideload", "it is in sideload"},
        {"connecting", "it is still connecting"},
    };
    if (strcmp(state, "device") == 0)
        return NULL;
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (strncmp(state, known[i].state, strlen(known[i].state)) == 0)
            return known[i].trouble;
    return "adb does not say that it is a device";
}

void nd_adb_devices_deinit(struct nd_adb_devices *devices)
{
    for (size_t i = 0; i < devices->n; i++)
        ND_FREE_ALL(devices->items[i].serial, devices->items[i].state, devices->items[i].model);
    free(devices->items);
    *devices = (struct nd_adb_devices){0};
}

/* "SERIAL   STATE key:value...": a state may be of two words ("no permissions (...)"). */
static bool add_line(struct nd_adb_devices *devices, const char *line, size_t n)
{
    static const char model_key[] = " model:";
    ND_FREED char *copy = strndup(line, n);
    if (copy == NULL ||
        !nd_grow((void **)&devices->items, &devices->capacity, devices->n + 1, sizeof *devices->items)) {
        return false;
    }
    size_t n_serial = strcspn(copy, " \t");
    const char *state = copy + n_serial + strspn(copy + n_serial, " \t");
    const char *model = strstr(state, model_key);
    const char *word = strncmp(state, "no permissions", 14) == 0 ? "no permissions" : NULL;
    struct nd_adb_device *device = &devices->items[devices->n++];
    *device = (struct nd_adb_device){
        .serial = strndup(copy, n_serial),
        .state = word != NULL ? nd_strdup(word) : strndup(state, strcspn(state, " \t")),
        .model = model != NULL ? strndup(model + strlen(model_key), strcspn(model + strlen(model_key), " \t"))
                               : nd_strdup("")};
    return device->serial != NULL && device->state != NULL && device->model != NULL;
}

/* Lines such as "* daemon started successfully" and the heading are no devices. */
static bool parse_list(const char *text, struct nd_adb_devices *devices)
{
    bool is_whole = true;
    while (*text != '\0' && is_whole) {
        size_t n = strcspn(text, "\r\n");
        bool is_device = n > 0 && text[0] != '*' && strncmp(text, "List of", 7) != 0 &&
                         strncmp(text, "adb ", 4) != 0 && memchr(text, '\t', n) != memchr(text, ' ', n);
        if (is_device)
            is_whole = add_line(devices, text, n);
        text += n;
        text += strspn(text, "\r\n");
    }
    return is_whole;
}

/* Runs adb; says how to get it where it cannot be started. */
static enum nd_status run_adb(const struct nd_transport *adb, const char *const *argv,
                              struct nd_process_end *end, struct nd_error *err)
{
    struct nd_error why = {0};
    enum nd_status status = nd_transport_tool(adb, argv, tool_limit_s, end, &why);
    if (status != ND_OK && why.id == ND_E_PROCESS)
        return nd_fail(err, ND_E_TRANSPORT_TOOL, adb->tool,
                       "phones need adb, and '%s' cannot be started; install it (Debian: apt install adb; else "
                       "Google's platform-tools) or name it in $NPUDIFF_ADB",
                       adb->tool);
    if (status != ND_OK && err != NULL)
        *err = why;
    return status;
}

/* adb and its server, which begin every command line. */
static size_t put_adb(const struct nd_transport *adb, const char **argv)
{
    size_t n = 0;
    argv[n++] = adb->tool;
    if (adb->server != NULL) {
        argv[n++] = "-L";
        argv[n++] = adb->server;
    }
    return n;
}

/* adb's last line says why: "adb: cannot connect to daemon at tcp:lab7:5037: Connection refused". */
static enum nd_status fail_list(const struct nd_transport *adb, const struct nd_process_end *end,
                                struct nd_error *err)
{
    char line[300];
    nd_transport_last_line(end->errors, line, sizeof line);
    if (end->timed_out)
        snprintf(line, sizeof line, "no answer within %g s", tool_limit_s);
    if (adb->server != NULL)
        return nd_fail(err, ND_E_DEVICE_CONNECT, adb->server, "cannot reach adb's server at '%s': %s",
                       adb->server + strlen(server_prefix), line[0] != '\0' ? line : "adb does not say why");
    return nd_fail(err, ND_E_TRANSPORT_TOOL, adb->tool, "'%s devices' %s: %.300s", adb->tool,
                   end->timed_out ? "does not answer" : "failed",
                   end->errors[0] != '\0' ? end->errors : "its server cannot be started");
}

static enum nd_status list_with(const struct nd_transport *adb, struct nd_adb_devices *out,
                                struct nd_error *err)
{
    const char *argv[8];
    size_t n = put_adb(adb, argv);
    argv[n++] = "devices";
    argv[n++] = "-l";
    argv[n] = NULL;
    ND_CLEANUP(nd_process_end_deinit) struct nd_process_end end = {0};
    ND_CLEANUP(nd_adb_devices_deinit) struct nd_adb_devices devices = {0};
    ND_TRY(run_adb(adb, argv, &end, err));
    if (end.exit_code != 0)
        return fail_list(adb, &end, err);
    ND_TRY_MEMORY(parse_list(end.out, &devices), err);
    return ND_GIVE(out, devices);
}

char *nd_adb_name_server(const char *server)
{
    return nd_text("%s%s", server_prefix, server);
}

enum nd_status nd_adb_devices_list(const char *server, struct nd_adb_devices *out, struct nd_error *err)
{
    const char *wanted = getenv("NPUDIFF_ADB");
    struct nd_transport adb = {.ops = &nd_transport_adb,
                               .tool =
                                   (char *)(uintptr_t)(wanted != NULL && wanted[0] != '\0' ? wanted : "adb"),
                               .address = (char *)(uintptr_t) ""};
    if (server != NULL && (adb.server = nd_adb_name_server(server)) == NULL)
        return nd_fail_memory(err);
    enum nd_status status = list_with(&adb, out, err);
    free(adb.server);
    return status;
}

/* ---- the transport ---- */

static bool adb_command(const struct nd_transport *transport, const char *text, bool has_stdin,
                        const char **argv, char **scratch)
{
    size_t n = put_adb(transport, argv);
    *scratch = NULL;
    argv[n++] = "-s";
    argv[n++] = transport->serial;
    argv[n++] = "shell";
    argv[n++] = "-T";
    if (!has_stdin)
        argv[n++] = "-n";
    argv[n++] = text;
    argv[n] = NULL;
    return true;
}

/* Whether a command gets through. */
static enum nd_status probe(struct nd_transport *transport, struct nd_error *err)
{
    const struct nd_remote_command command = {.text = "true", .time_limit_s = probe_limit_s};
    struct nd_remote_reply reply = {0};
    struct nd_error why = {0};
    enum nd_status status = nd_transport_run_once(transport, &command, &reply, &why);
    nd_remote_reply_deinit(&reply);
    if (status == ND_OK)
        return ND_OK;
    return nd_fail(err, why.id == ND_E_LINK_LOST ? ND_E_DEVICE_CONNECT : (enum nd_error_id)why.id,
                   transport->address, "%s", why.message);
}

/* "adb disconnect SERIAL", "adb connect SERIAL". */
static enum nd_status run_with_serial(struct nd_transport *transport, const char *what,
                                      struct nd_process_end *end, struct nd_error *err)
{
    const char *argv[8];
    size_t n = put_adb(transport, argv);
    argv[n++] = what;
    argv[n++] = transport->serial;
    argv[n] = NULL;
    return run_adb(transport, argv, end, err);
}

/* A fresh connection: that of before may be one that nobody answers on any more. */
static enum nd_status connect_network(struct nd_transport *transport, struct nd_error *err)
{
    struct nd_process_end end = {0};
    enum nd_status status = run_with_serial(transport, "disconnect", &end, err);
    if (status == ND_OK) {
        nd_process_end_deinit(&end);
        status = run_with_serial(transport, "connect", &end, err);
    }
    if (status != ND_OK)
        return status;
    bool is_there = end.exit_code == 0 && strstr(end.out, "connected to") != NULL;
    if (!is_there) {
        end.out[strcspn(end.out, "\r\n")] = '\0';
        status = nd_fail(err, ND_E_DEVICE_CONNECT, transport->address, "cannot reach the phone '%s': %s",
                         transport->address, end.timed_out ? "adb connect does not end" : end.out);
    }
    nd_process_end_deinit(&end);
    return status == ND_OK ? probe(transport, err) : status;
}

static enum nd_status fail_missing(const struct nd_transport *transport, const struct nd_adb_devices *devices,
                                   struct nd_error *err)
{
    struct nd_strbuf names = {0};
    for (size_t i = 0; i < devices->n; i++)
        nd_strbuf_printf(&names, "%s%s", i > 0 ? ", " : "", devices->items[i].serial);
    ND_FREED char *list = nd_strbuf_take(&names);
    return nd_fail(err, ND_E_DEVICE_CONNECT, transport->address, "there is no phone '%s'; adb knows %s",
                   transport->address, list == NULL || list[0] == '\0' ? "of none" : list);
}

/* Serial and server, of the address. */
static enum nd_status split_address(struct nd_transport *transport, struct nd_error *err)
{
    const char *server = nd_adb_server(transport->address);
    if (transport->serial != NULL)
        return ND_OK;
    transport->serial = strndup(transport->address, nd_adb_serial_length(transport->address));
    transport->server = server != NULL ? nd_adb_name_server(server) : NULL;
    return transport->serial != NULL && (server == NULL || transport->server != NULL) ? ND_OK
                                                                                      : nd_fail_memory(err);
}

static void adb_leave(struct nd_transport *transport)
{
    ND_FREE_ALL(transport->serial, transport->server);
}

static enum nd_status adb_connect(struct nd_transport *transport, bool *is_final, struct nd_error *err)
{
    struct nd_adb_devices devices = {0};
    const struct nd_adb_device *found = NULL;
    *is_final = false;
    enum nd_status status = split_address(transport, err);
    if (status == ND_OK)
        status = list_with(transport, &devices, err);
    if (status != ND_OK)
        return status;
    /* "host:port", which adb reaches over TCP. */
    const char *colon = strrchr(transport->serial, ':');
    uint64_t port;
    bool by_network = colon != NULL && nd_parse_u64(colon + 1, &port) && port > 0 && port < 65536;
    for (size_t i = 0; i < devices.n; i++)
        if (strcmp(devices.items[i].serial, transport->serial) == 0)
            found = &devices.items[i];
    const char *trouble = found != NULL ? nd_adb_state_trouble(found->state) : NULL;
    if (found != NULL && trouble == NULL)
        status = probe(transport, err);
    else
        status = nd_fail(err, ND_E_DEVICE_CONNECT, transport->address, "phone '%s' cannot be used: %s",
                         transport->address, trouble != NULL ? trouble : "it is not there");
    bool is_refused = found != NULL && (strcmp(found->state, "unauthorized") == 0 ||
                                        strcmp(found->state, "no permissions") == 0);
    if (status != ND_OK && by_network && !is_refused) {
        status = connect_network(transport, err);
    } else if (status != ND_OK) {
        *is_final = is_refused || found == NULL;
        if (found == NULL)
            status = fail_missing(transport, &devices, err);
    }
    nd_adb_devices_deinit(&devices);
    return status;
}

const struct nd_transport_ops nd_transport_adb = {
    .name = "adb", .command = adb_command, .connect = adb_connect, .leave = adb_leave};
