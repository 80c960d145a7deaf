#include "devices/phones/fleet_file.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/strbuf.h"
#include "devices/phones/remote_uri.h"

#define COUNT(array) (sizeof(array) / sizeof(array)[0])

enum { MAX_CAPTURES = 1000 };
static const double default_lease_limit_s = 600; /* chosen */
static const double longest_lease_limit_s = 7 * 24 * 3600;
static const char variable[] = "NPUDIFF_FLEET";

/* The root as the file has it. */
struct raw_fleet {
    struct nd_fleet fleet;
    const yaml_node_t *hosts, *devices;
};

struct reading {
    struct nd_yaml yaml;
    struct nd_fleet *fleet;
    struct nd_error *err;
};

void nd_fleet_deinit(struct nd_fleet *fleet)
{
    for (size_t i = 0; i < fleet->n_hosts; i++)
        free(fleet->hosts[i].name);
    for (size_t i = 0; i < fleet->n_devices; i++) {
        free(fleet->devices[i].device);
        free(fleet->devices[i].host);
        nd_texts_deinit(&fleet->devices[i].labels);
    }
    free(fleet->hosts);
    free(fleet->devices);
    nd_texts_deinit(&fleet->lease);
    free(fleet->locks);
    free(fleet->path);
    *fleet = (struct nd_fleet){0};
}

/* ---- reading ---- */

static const struct nd_fleet_host *find_host(const struct nd_fleet *fleet, const char *name)
{
    for (size_t i = 0; name != NULL && i < fleet->n_hosts; i++)
        if (strcmp(fleet->hosts[i].name, name) == 0)
            return &fleet->hosts[i];
    return NULL;
}

static enum nd_status read_host(struct reading *r, const yaml_node_t *node)
{
    static const struct nd_yaml_key keys[] = {
        {"name", ND_YAML_TEXT, offsetof(struct nd_fleet_host, name), 0, 0, true},
        {"captures", ND_YAML_COUNT, offsetof(struct nd_fleet_host, captures), 1, MAX_CAPTURES, false},
    };
    static const struct nd_yaml_kind kind = {"a host", keys, COUNT(keys)};
    struct nd_fleet_host *host = &r->fleet->hosts[r->fleet->n_hosts];
    enum nd_status status = nd_yaml_map(&r->yaml, node, &kind, host, r->err);
    if (status == ND_OK && find_host(r->fleet, host->name) != NULL)
        status = nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "there is a second host '%s'", host->name);
    if (status == ND_OK)
        r->fleet->n_hosts++;
    else
        free(host->name);
    return status;
}

/* One machine and nothing that runs there: that follows the label. */
static enum nd_status check_uri(struct reading *r, const yaml_node_t *node, const char *uri)
{
    struct nd_remote_uri parts = {0};
    if (nd_uri_is_remote(uri)) {
        enum nd_status status = nd_remote_uri_parse(uri, &parts, r->err);
        if (status != ND_OK)
            return nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "%s",
                                r->err != NULL ? r->err->message : "");
    }
    bool is_one = parts.address != NULL && parts.rest[0] == '\0' &&
                  (parts.transport != ND_TRANSPORT_ADB ||
                   (nd_adb_serial_length(parts.address) > 0 && parts.address[0] != '*'));
    nd_remote_uri_deinit(&parts);
    if (is_one)
        return ND_OK;
    return nd_yaml_fail(
        &r->yaml, &node->start_mark, r->err,
        "'%s' is not one phone or board: write 'adb:SERIAL', 'adb:SERIAL@HOST:PORT' or 'ssh:HOST', "
        "and nothing after it",
        uri);
}

static enum nd_status check_labels(struct reading *r, const yaml_node_t *node, const struct nd_texts *labels)
{
    for (size_t i = 0; i < labels->n; i++)
        if (labels->items[i][strcspn(labels->items[i], "/?@, \t")] != '\0')
            return nd_yaml_fail(&r->yaml, &node->start_mark, r->err,
                                "the label '%s' holds one of '/', '?', '@', ',' or a blank", labels->items[i]);
    return ND_OK;
}

static enum nd_status read_device(struct reading *r, const yaml_node_t *node)
{
    static const struct nd_yaml_key keys[] = {
        {"device", ND_YAML_TEXT, offsetof(struct nd_fleet_device, device), 0, 0, true},
        {"host", ND_YAML_TEXT, offsetof(struct nd_fleet_device, host), 0, 0, false},
        {"labels", ND_YAML_TEXTS, offsetof(struct nd_fleet_device, labels), 0, 0, false},
    };
    static const struct nd_yaml_kind kind = {"a device", keys, COUNT(keys)};
    struct nd_fleet_device *device = &r->fleet->devices[r->fleet->n_devices++];
    enum nd_status status = nd_yaml_map(&r->yaml, node, &kind, device, r->err);
    if (status == ND_OK)
        status = check_uri(r, node, device->device);
    if (status == ND_OK)
        status = check_labels(r, node, &device->labels);
    if (status == ND_OK && device->host != NULL && find_host(r->fleet, device->host) == NULL)
        status =
            nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "there is no host '%s' in 'hosts'", device->host);
    for (size_t i = 0; status == ND_OK && i + 1 < r->fleet->n_devices; i++)
        if (strcmp(r->fleet->devices[i].device, device->device) == 0)
            status = nd_yaml_fail(&r->yaml, &node->start_mark, r->err, "there is a second device '%s'",
                                  device->device);
    return status;
}

/* The items of the list, each by read_item, into *items. */
static enum nd_status read_list(struct reading *r, const yaml_node_t *node, const char *what, void **items,
                                size_t item_bytes,
                                enum nd_status (*read_item)(struct reading *, const yaml_node_t *))
{
    size_t n = 0;
    enum nd_status status = nd_yaml_list(&r->yaml, node, what, &n, r->err);
    if (status == ND_OK && (*items = nd_calloc(n, item_bytes)) == NULL)
        status = nd_fail_memory(r->err);
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = read_item(r, nd_yaml_item(&r->yaml, node, i));
    return status;
}

static enum nd_status read_root(struct reading *r)
{
    static const struct nd_yaml_key keys[] = {
        {"devices", ND_YAML_NODE, offsetof(struct raw_fleet, devices), 0, 0, true},
        {"hosts", ND_YAML_NODE, offsetof(struct raw_fleet, hosts), 0, 0, false},
        {"locks", ND_YAML_TEXT, offsetof(struct raw_fleet, fleet.locks), 0, 0, false},
        {"lease", ND_YAML_TEXTS, offsetof(struct raw_fleet, fleet.lease), 0, 0, false},
        {"lease-limit", ND_YAML_REAL, offsetof(struct raw_fleet, fleet.lease_limit_s), 1, longest_lease_limit_s,
         false},
    };
    const struct nd_yaml_kind kind = {"the fleet", keys, COUNT(keys)};
    struct raw_fleet raw = {.fleet.lease_limit_s = default_lease_limit_s};
    enum nd_status status = nd_yaml_map(&r->yaml, nd_yaml_root(&r->yaml), &kind, &raw, r->err);
    r->fleet->locks = raw.fleet.locks;
    r->fleet->lease = raw.fleet.lease;
    r->fleet->lease_limit_s = raw.fleet.lease_limit_s;
    if (status == ND_OK && raw.hosts != NULL)
        status =
            read_list(r, raw.hosts, "'hosts'", (void **)&r->fleet->hosts, sizeof *r->fleet->hosts, read_host);
    if (status == ND_OK)
        status = read_list(r, raw.devices, "'devices'", (void **)&r->fleet->devices, sizeof *r->fleet->devices,
                           read_device);
    return status;
}

enum nd_status nd_fleet_read(struct nd_fleet *out, struct nd_error *err)
{
    struct nd_fleet fleet = {0};
    struct nd_error why = {0};
    struct reading r = {.fleet = &fleet, .err = &why};
    const char *path = getenv(variable);
    *out = fleet;
    if (path == NULL || path[0] == '\0')
        return ND_OK;
    if ((fleet.path = nd_strdup(path)) == NULL)
        return nd_fail_memory(err);
    const struct nd_yaml_file file = {.path = fleet.path, .what = "a fleet", .error = ND_E_FLEET};
    enum nd_status status = nd_yaml_read(&r.yaml, &file, &why);
    if (status == ND_OK)
        status = read_root(&r);
    nd_yaml_deinit(&r.yaml);
    if (status == ND_OK) {
        *out = fleet;
        return ND_OK;
    }
    nd_fleet_deinit(&fleet);
    if (err != NULL)
        *err = why;
    return status;
}

/* ---- looking up ---- */

const struct nd_fleet_device *nd_fleet_find(const struct nd_fleet *fleet, enum nd_transport_kind transport,
                                            const char *address)
{
    const char *name = nd_transport_name(transport);
    size_t n = strlen(name);
    for (size_t i = 0; i < fleet->n_devices; i++) {
        const char *device = fleet->devices[i].device;
        if (strncmp(device, name, n) == 0 && device[n] == ':' && strcmp(device + n + 1, address) == 0)
            return &fleet->devices[i];
    }
    return NULL;
}

const struct nd_fleet_host *nd_fleet_host_of(const struct nd_fleet *fleet, const struct nd_fleet_device *device)
{
    return device != NULL ? find_host(fleet, device->host) : NULL;
}

/* ---- labels ---- */

bool nd_uri_is_label(const char *uri)
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
                       uri, variable);
    for (size_t i = 0; i < fleet->n_devices; i++)
        for (size_t k = 0; k < fleet->devices[i].labels.n; k++) {
            const char *label = fleet->devices[i].labels.items[k];
            if (seen.n > 0 && nd_texts_match(&seen, label))
                continue;
            nd_strbuf_printf(&list, "%s'@%s'", list.len > 0 ? ", " : "", label);
            nd_texts_add(&seen, label);
        }
    nd_texts_deinit(&seen);
    char *text = nd_strbuf_take(&list);
    enum nd_status status = nd_fail(err, ND_E_DEVICE_UNKNOWN, uri, "device '%s': the labels of '%s' are %s",
                                    uri, fleet->path, text != NULL && text[0] != '\0' ? text : "none");
    free(text);
    return status;
}

enum nd_status nd_fleet_expand(const char *uri, char ***out, size_t *n, struct nd_error *err)
{
    struct nd_fleet fleet = {0};
    const char *label = uri + 1;
    size_t n_label = strcspn(label, "/?@"), n_found = 0;
    char **uris = NULL;
    enum nd_status status = nd_fleet_read(&fleet, err);
    if (status != ND_OK)
        return status;
    if (fleet.n_devices > 0 && (uris = nd_calloc(fleet.n_devices, sizeof *uris)) == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; status == ND_OK && i < fleet.n_devices; i++) {
        struct nd_strbuf text = {0};
        if (!has_label(&fleet.devices[i], label, n_label))
            continue;
        nd_strbuf_printf(&text, "%s%s", fleet.devices[i].device, label + n_label);
        if ((uris[n_found++] = nd_strbuf_take(&text)) == NULL)
            status = nd_fail_memory(err);
    }
    if (status == ND_OK && n_found == 0)
        status = fail_label(&fleet, uri, err);
    nd_fleet_deinit(&fleet);
    if (status == ND_OK) {
        *out = uris;
        *n = n_found;
    } else {
        nd_device_uris_free(uris, n_found);
    }
    return status;
}
