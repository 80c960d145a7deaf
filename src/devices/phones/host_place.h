/* The places of a host of the fleet file: at most `captures` captures run on its devices at once, in all
 * processes that lock in the same folder. A place is a lock file; the kernel frees it when its process ends, in
 * whatever way. */
#ifndef ND_REMOTE_HOST_PLACE_H
#define ND_REMOTE_HOST_PLACE_H

#include "devices/phones/fleet_file.h"

/* Takes a free place without waiting; *is_taken false: there is none now. The folder is fleet->locks, or one of
 * the user's on this machine. ND_E_LEASE: it cannot be made, written or locked in. */
enum nd_status nd_host_place_take(const struct nd_fleet *fleet, const struct nd_fleet_host *host,
                                  bool *is_taken, int *place, struct nd_error *err);
void nd_host_place_leave(int place);

#endif
