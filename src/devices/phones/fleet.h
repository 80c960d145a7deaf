/* The user's own list of phones and boards, $NPUDIFF_FLEET: labels, how many captures run on a host at once,
 * and the command that leases a device. A campaign may come from a stranger, so it cannot name one. And who may
 * use one now: at most so many captures on one host, and the lab's own command, which leases a device and
 * releases it (docs/reference/fleet.md). A guard of its own releases it when this process is killed. */
#pragma once

#include <sys/types.h>

#include "core/documents/yaml_map.h"
#include "npudiff/devices/device.h"

#define ND_FLEET_VARIABLE "NPUDIFF_FLEET"

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

/* Zeroed is none. */
struct nd_lease {
    bool has_place; /* false: the host has no limit */
    int place;
    pid_t guard; /* the process group of the guard; 0: there is no command */
    int hold;    /* closed, it tells the guard to release */
    int said;    /* what the guard and the command print */
};

/* Waits for a place on the device's host, then runs the command. A device that the fleet does not list has
 * neither. ND_E_LEASE: the command refuses, or takes longer than the fleet allows; ND_E_CANCELLED; errors of
 * nd_fleet_read. */
enum nd_status nd_lease_take(const struct nd_device *device, const struct nd_capture_options *options,
                             struct nd_lease *out, struct nd_error *err);

/* Releases the device and its place; waits for the command, a minute at most. */
void nd_lease_end(struct nd_lease *lease);

/* ---- which phone a URI means: the serial that it names, the only one there is, or all of them ---- */

/* Makes *address (in new memory, replaced) that of one machine, and sees that adb or ssh is there at all. The
 * machine itself is not asked. ND_E_TRANSPORT_TOOL; ND_E_DEVICE_UNKNOWN: there is none, there are several (the
 * message lists them), or the URI means all. */
enum nd_status nd_device_reach(const char *uri, enum nd_transport_kind transport, char **address,
                               struct nd_error *err);
