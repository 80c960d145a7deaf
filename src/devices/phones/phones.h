/* Which phone a URI means: the serial that it names, the only one there is, or all of them. */
#ifndef ND_REMOTE_PHONES_H
#define ND_REMOTE_PHONES_H

#include "core/documents/yaml_map.h"
#include "npudiff/devices/device.h"

/* The user's own list of phones and boards, $NPUDIFF_FLEET (docs/reference/fleet.md): labels, how many captures
 * run on a host at once, and the command that leases a device. A campaign may come from a stranger, so it
 * cannot name one. */

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

/* Makes *address (in new memory, replaced) that of one machine, and sees that adb or ssh is there at all. The
 * machine itself is not asked. ND_E_TRANSPORT_TOOL; ND_E_DEVICE_UNKNOWN: there is none, there are several (the
 * message lists them), or the URI means all. */
enum nd_status nd_device_reach(const char *uri, enum nd_transport_kind transport, char **address,
                               struct nd_error *err);

#endif
