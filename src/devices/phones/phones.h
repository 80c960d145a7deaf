/* Which phone a URI means: the serial that it names, the only one there is, or all of them. */
#ifndef ND_REMOTE_PHONES_H
#define ND_REMOTE_PHONES_H

#include "npudiff/devices/device.h"

/* Makes *address (in new memory, replaced) that of one machine, and sees that adb or ssh is there at all. The
 * machine itself is not asked. ND_E_TRANSPORT_TOOL; ND_E_DEVICE_UNKNOWN: there is none, there are several (the
 * message lists them), or the URI means all. */
enum nd_status nd_device_reach(const char *uri, enum nd_transport_kind transport, char **address,
                               struct nd_error *err);

#endif
