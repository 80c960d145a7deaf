/* Who may use a phone or board now: at most so many captures on one host, and the lab's own command, which
 * leases a device and releases it (docs/reference/fleet.md). A guard of its own releases it when this process
 * is killed. */
#ifndef ND_REMOTE_LEASE_H
#define ND_REMOTE_LEASE_H

#include <sys/types.h>

#include "devices/phones/phones.h"

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

#endif
