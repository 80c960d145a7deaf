/* The user's own list of phones and boards, $NPUDIFF_FLEET (docs/reference/fleet.md): labels, how many captures
 * run on a host at once, and the command that leases a device. A campaign may come from a stranger, so it
 * cannot name one. */
#ifndef ND_REMOTE_FLEET_FILE_H
#define ND_REMOTE_FLEET_FILE_H

#include "core/documents/yaml_map.h"
#include "npudiff/devices/device.h"

struct nd_fleet_host {
    char *name;
    size_t captures; /* at once; 0: no limit */
};

struct nd_fleet_device {
    char *device; /* "adb:R5@lab7:5037", "ssh:board" */
    char *host;   /* the name of one of the hosts; NULL: none */
    struct nd_texts labels;
};

/* Zeroed is empty: no file. */
struct nd_fleet {
    char *path;
    size_t n_hosts, n_devices;
    struct nd_fleet_host *hosts;
    struct nd_fleet_device *devices;
    char *locks;           /* the folder of the hosts' lock files; NULL: one of the user's on this machine */
    struct nd_texts lease; /* the command; none: n is 0 */
    double lease_limit_s;
};

/* Reads $NPUDIFF_FLEET; without that variable *out is empty. ND_E_FLEET: file, line, column and what was
 * expected; ND_ERR_IO. The caller frees *out with nd_fleet_deinit. */
enum nd_status nd_fleet_read(struct nd_fleet *out, struct nd_error *err);
void nd_fleet_deinit(struct nd_fleet *fleet);

/* The device of that address, and its host; NULL: it is in no list, or on no host. */
const struct nd_fleet_device *nd_fleet_find(const struct nd_fleet *fleet, enum nd_transport_kind transport,
                                            const char *address);
const struct nd_fleet_host *nd_fleet_host_of(const struct nd_fleet *fleet,
                                             const struct nd_fleet_device *device);

/* Whether the URI begins with a label: "@gen3", "@gen3/cpu". */
bool nd_uri_is_label(const char *uri);

/* The URIs of the devices with that label, each with what follows the label, in the order of the file; as
 * nd_device_expand. ND_E_DEVICE_UNKNOWN: no device has it (the message lists the labels), or there is no file.
 */
enum nd_status nd_fleet_expand(const char *uri, char ***out, size_t *n, struct nd_error *err);

#endif
