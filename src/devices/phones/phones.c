/* Which phone a URI means: the serial that it names, the only one there is, or all of them; and the labels of
 * the fleet file (docs/reference/fleet.md). */
#include "devices/phones/fleet.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/items.h"
#include "core/processes/parallel.h"
#include "core/text/strbuf.h"
#include "devices/phones/remote.h"
#include "devices/phones/transport.h"

/* ---- labels ---- */

/* Whether the URI begins with a label: "@gen3", "@gen3/cpu". */
static bool nd_uri_is_label(const char *uri)
{
    return uri[0] == '@';
}

static bool has_label(const struct nd_fleet_device *device, const char *label, size_t n)
{
    for (size_t i = 0; i < device->labels.n; i++)
        if (strlen(device->labels.items[i]) == n && strncmp(device->labels.items[i], label, n) == 0)
            return true;
    return false;
}

static enum nd_status fail_label(const struct nd_fleet *fleet, const char *uri, struct nd_error *err)
{
    struct nd_strbuf list = {0};
    struct nd_texts seen = {0};
    if (fleet->path == NULL)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s' is a label of a fleet, and $%s names no file; see docs/reference/fleet.md",
                       uri, ND_FLEET_VARIABLE);
    for (size_t i = 0; i < fleet->n_devices; i++)
        for (size_t k = 0; k < fleet->devices[i].labels.n; k++) {
            const char *label = fleet->devices[i].labels.items[k];
            if (seen.n > 0 && nd_texts_match(&seen, label))
                continue;
            nd_strbuf_printf(&list, "%s'@%s'", list.len > 0 ? ", " : "", label);
            nd_texts_add(&seen, label);
        }
    nd_texts_deinit(&seen);
    ND_FREED char *text = nd_strbuf_take(&list);
    return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': the labels of '%s' are %s", uri, fleet->path,
                   text != NULL && text[0] != '\0' ? text : "none");
}

/* The URIs of the devices with that label, each with what follows the label, in the order of the file; as
 * nd_device_expand. ND_E_DEVICE_UNKNOWN: no device has it (the message lists the labels), or there is no file.
 */
static enum nd_status nd_fleet_expand(const char *uri, char ***out, size_t *n, struct nd_error *err)
{
    ND_CLEANUP(nd_fleet_deinit) struct nd_fleet fleet = {0};
    const char *label = uri + 1;
    size_t n_label = strcspn(label, "/?@"), n_found = 0;
    ND_TRY(nd_fleet_read(&fleet, err));
    char **uris = nd_calloc(fleet.n_devices, sizeof *uris);
    bool are_made = uris != NULL;
    for (size_t i = 0; are_made && i < fleet.n_devices; i++)
        if (has_label(&fleet.devices[i], label, n_label))
            are_made = (uris[n_found++] = nd_text("%s%s", fleet.devices[i].device, label + n_label)) != NULL;
    if (are_made && n_found > 0) {
        *out = uris;
        *n = n_found;
        return ND_OK;
    }
    nd_device_uris_free(uris, n_found);
    return are_made ? fail_label(&fleet, uri, err) : nd_fail_memory(err);
}

static const char *tool_name(enum nd_transport_kind transport)
{
    bool is_adb = transport == ND_TRANSPORT_ADB;
    const char *name = getenv(is_adb ? "NPUDIFF_ADB" : "NPUDIFF_SSH");
    if (name != NULL && name[0] != '\0')
        return name;
    return is_adb ? "adb" : "ssh";
}

/* ---- whether there is a tool ---- */

static bool is_on_path(const char *name)
{
    const char *at = getenv("PATH");
    bool is_there = false;
    while (!is_there && at != NULL) {
        size_t n = strcspn(at, ":");
        struct nd_strbuf path = {0};
        nd_strbuf_append(&path, n > 0 ? at : ".", n > 0 ? n : 1);
        nd_strbuf_printf(&path, "/%s", name);
        char *text = nd_strbuf_take(&path);
        is_there = text != NULL && access(text, X_OK) == 0;
        free(text);
        at = at[n] == ':' ? at + n + 1 : NULL;
    }
    return is_there;
}

static enum nd_status find_tool(const char *uri, enum nd_transport_kind transport, struct nd_error *err)
{
    const char *name = tool_name(transport);
    if (strchr(name, '/') != NULL ? access(name, X_OK) == 0 : is_on_path(name))
        return ND_OK;
    if (transport == ND_TRANSPORT_ADB)
        return nd_fail(err, ND_E_TRANSPORT_TOOL, uri,
                       "device '%s' needs adb, and there is no '%s'; install Android's platform tools (Debian, "
                       "Ubuntu: 'apt install adb') or set NPUDIFF_ADB",
                       uri, name);
    return nd_fail(err, ND_E_TRANSPORT_TOOL, uri,
                   "device '%s' needs ssh, and there is no '%s'; install OpenSSH's client (Debian, Ubuntu: "
                   "'apt install openssh-client') or set NPUDIFF_SSH",
                   uri, name);
}

/* ---- phones ---- */

void nd_phones_free(struct nd_phone *phones, size_t n)
{
    for (size_t i = 0; phones != NULL && i < n; i++)
        ND_FREE_ALL(phones[i].serial, phones[i].state, phones[i].model, phones[i].soc);
    free(phones);
}

/* What a shell prints first, as a name: letters, digits and a few marks. New memory; NULL without memory. */
static char *take_name(const char *text)
{
    struct nd_strbuf name = {0};
    for (size_t i = 0; i < 63 && text[i] != '\0' && strchr("\r\n", text[i]) == NULL; i++)
        if ((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'A' && text[i] <= 'Z') ||
            (text[i] >= 'a' && text[i] <= 'z') || strchr("-_. +", text[i]) != NULL)
            nd_strbuf_append(&name, &text[i], 1);
    return nd_strbuf_take(&name);
}

struct asking {
    struct nd_phone *phones;
    const char *server; /* NULL: adb's own default */
};

static enum nd_status ask_chipset(void *context, size_t worker, size_t i, struct nd_error *err)
{
    (void)worker;
    const struct asking *asking = context;
    struct nd_phone *phone = &asking->phones[i];
    if (phone->trouble != NULL)
        return ND_OK;
    static const char question[] =
        "getprop ro.soc.model 2>/dev/null || cat /sys/devices/soc0/machine 2>/dev/null";
    struct nd_transport adb = {.tool = (char *)(uintptr_t)tool_name(ND_TRANSPORT_ADB), .serial = phone->serial};
    const char *argv[ND_TRANSPORT_MAX_ARGV];
    char *scratch = NULL;
    if (asking->server != NULL && (adb.server = nd_adb_name_server(asking->server)) == NULL)
        return nd_fail_memory(err);
    nd_transport_adb.command(&adb, question, false, argv, &scratch);
    const struct nd_process process = {
        .argv = argv, .stdout_limit_bytes = 4096, .time_limit_s = 4, .keeps_group = true};
    struct nd_process_end end = {0};
    enum nd_status status = nd_process_run(&process, &end, NULL);
    free(adb.server);
    if (status != ND_OK)
        return ND_OK; /* a phone that does not say it is listed without it */
    char *soc = take_name(end.out);
    nd_process_end_deinit(&end);
    ND_TRY_MEMORY(soc != NULL, err);
    free(phone->soc);
    phone->soc = soc;
    phone->chipset = nd_chipset_find(soc);
    return ND_OK;
}

enum nd_status nd_phones_list(const char *server, bool with_chipsets, struct nd_phone **out, size_t *n,
                              struct nd_error *err)
{
    enum { MAX_AT_ONCE = 16 };
    ND_CLEANUP(nd_adb_devices_deinit) struct nd_adb_devices devices = {0};
    if (server != NULL)
        ND_TRY(nd_adb_check_server(server, server, err));
    ND_TRY(nd_adb_devices_list(server, &devices, err));
    struct nd_phone *phones = nd_calloc(devices.n, sizeof *phones);
    enum nd_status status = phones != NULL ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < devices.n; i++) {
        const struct nd_adb_device *device = &devices.items[i];
        phones[i] = (struct nd_phone){.serial = nd_strdup(device->serial),
                                      .state = nd_strdup(device->state),
                                      .model = nd_strdup(device->model != NULL ? device->model : ""),
                                      .soc = nd_strdup(""),
                                      .trouble = nd_adb_state_trouble(device->state)};
        if (phones[i].serial == NULL || phones[i].state == NULL || phones[i].model == NULL ||
            phones[i].soc == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK && devices.n > 0)
        qsort(phones, devices.n, sizeof *phones, nd_compare_texts);
    struct asking asking = {phones, server};
    if (status == ND_OK && devices.n > 0 && with_chipsets)
        status = nd_parallel_for(devices.n < MAX_AT_ONCE ? devices.n : MAX_AT_ONCE, devices.n, ask_chipset,
                                 &asking, err);
    if (status != ND_OK) {
        nd_phones_free(phones, devices.n);
        return status;
    }
    *out = phones;
    *n = devices.n;
    return ND_OK;
}

/* ---- which one ---- */

static enum nd_status refuse_choice(const char *uri, const char *address, const struct nd_phone *phones,
                                    size_t n, const struct nd_phone *usable, struct nd_error *err)
{
    const char *server = nd_adb_server(address);
    const char *at = server != NULL ? server - 1 : "";
    /* "R5CX10ABCDE, emulator-5554 (offline)" */
    struct nd_strbuf text = {0};
    for (size_t i = 0; i < n; i++) {
        nd_strbuf_printf(&text, "%s%s", i > 0 ? ", " : "", phones[i].serial);
        if (phones[i].trouble != NULL)
            nd_strbuf_printf(&text, " (%s)", phones[i].state);
    }
    ND_FREED char *list = nd_strbuf_take(&text);
    ND_TRY_MEMORY(list != NULL, err);
    if (n == 0)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri,
                       "device '%s': no phone is attached ('adb devices' lists none)", uri);
    if (usable == NULL)
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': no phone can be used: %s; %s", uri, list,
                       phones[0].trouble);
    return nd_fail(
        err, ND_E_DEVICE_UNKNOWN, uri,
        "device '%s': there are several phones: %s; name one, as in 'adb:%s%s', or all with 'adb:*%s'", uri,
        list, usable->serial, at, at);
}

static enum nd_status find_only_phone(const char *uri, char **address, struct nd_error *err)
{
    struct nd_phone *phones = NULL;
    const struct nd_phone *usable = NULL;
    const char *server = nd_adb_server(*address);
    size_t n = 0, n_usable = 0;
    char *found = NULL;
    ND_TRY(nd_phones_list(server, false, &phones, &n, err));
    for (size_t i = 0; i < n; i++)
        if (phones[i].trouble == NULL && n_usable++ == 0)
            usable = &phones[i];
    if (n_usable == 1) /* "SERIAL" or "SERIAL@SERVER" */
        found = nd_text("%s%s%s", usable->serial, server != NULL ? "@" : "", server != NULL ? server : "");
    enum nd_status status = n_usable != 1   ? refuse_choice(uri, *address, phones, n, usable, err)
                            : found == NULL ? nd_fail_memory(err)
                                            : ND_OK;
    nd_phones_free(phones, n);
    ND_TRY(status);
    free(*address);
    *address = found;
    return ND_OK;
}

/* Of ssh it has been refused. */
static bool is_all(const char *address)
{
    return address[0] == '*' && nd_adb_serial_length(address) == 1;
}

enum nd_status nd_device_reach(const char *uri, enum nd_transport_kind transport, char **address,
                               struct nd_error *err)
{
    ND_TRY(find_tool(uri, transport, err));
    if (is_all(*address))
        return nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s' stands for all phones; here one is needed",
                       uri);
    bool is_only = transport == ND_TRANSPORT_ADB && nd_adb_serial_length(*address) == 0;
    return is_only ? find_only_phone(uri, address, err) : ND_OK;
}

/* ---- all of them ---- */

void nd_device_uris_free(char **uris, size_t n)
{
    ND_FREE_ITEMS(uris, n);
}

static enum nd_status expand_phones(const char *uri, const struct nd_remote_uri *parts, char ***out, size_t *n,
                                    struct nd_error *err)
{
    struct nd_phone *phones = NULL;
    const char *server = nd_adb_server(parts->address);
    size_t n_phones = 0;
    ND_TRY(find_tool(uri, ND_TRANSPORT_ADB, err));
    ND_TRY(nd_phones_list(server, false, &phones, &n_phones, err));
    char **uris = nd_calloc(n_phones, sizeof *uris);
    bool are_made = uris != NULL;
    for (size_t i = 0; are_made && i < n_phones; i++) {
        uris[i] = nd_text("adb:%s%s%s%s", phones[i].serial, server != NULL ? "@" : "",
                          server != NULL ? server : "", parts->rest);
        are_made = uris[i] != NULL;
    }
    nd_phones_free(phones, n_phones);
    if (are_made && n_phones > 0) {
        *out = uris;
        *n = n_phones;
        return ND_OK;
    }
    nd_device_uris_free(uris, n_phones);
    return are_made ? refuse_choice(uri, parts->address, NULL, 0, NULL, err) : nd_fail_memory(err);
}

static enum nd_status take_alone(const char *uri, char ***out, struct nd_error *err)
{
    char **uris = nd_calloc(1, sizeof *uris);
    if (uris != NULL)
        uris[0] = nd_strdup(uri);
    if (uris == NULL || uris[0] == NULL) {
        free(uris);
        return nd_fail_memory(err);
    }
    *out = uris;
    return ND_OK;
}

enum nd_status nd_device_expand(const char *uri, char ***out, size_t *n, struct nd_error *err)
{
    ND_CLEANUP(nd_remote_uri_deinit) struct nd_remote_uri parts = {0};
    if (nd_uri_is_label(uri))
        return nd_fleet_expand(uri, out, n, err);
    if (nd_uri_is_remote(uri))
        ND_TRY(nd_remote_uri_parse(uri, &parts, err));
    if (parts.address != NULL && is_all(parts.address)) {
        ND_TRY(expand_phones(uri, &parts, out, n, err));
    } else {
        ND_TRY(take_alone(uri, out, err));
        *n = 1;
    }
    return ND_OK;
}
