/* Devices on other machines: what of them can be said when their URI is read, and what only when the machine
 * has been asked. */
#ifndef ND_DEVICE_RESOLVE_H
#define ND_DEVICE_RESOLVE_H

#include "npudiff/devices/device.h"
#include "devices/phones/identity.h"

/* Whether a device of this kind and way can run elsewhere. ND_E_DEVICE_UNKNOWN. */
enum nd_status nd_device_suits_elsewhere(const struct nd_device *device, const char *uri, struct nd_error *err);

/* The chipset of `htp` on this machine, unless the URI names one: from /sys/devices/soc0. ND_E_DEVICE_UNKNOWN
 * on a machine that cannot have that NPU, or does not say which. */
enum nd_status nd_device_find_own_npu(struct nd_device *device, const char *uri, struct nd_error *err);

/* Names the runtime of a device whose ABI is not known yet: its id ("" for the newest that the machine can
 * run), and nothing else. ND_E_RUNTIME_MISSING: no ABI has one of that id. */
enum nd_status nd_runtime_name(const char *id, struct nd_runtime_info *out, struct nd_error *err);

/* Makes the canonical URI, of runtime and chipset as far as they are known. query: what follows '?', or NULL.
 */
enum nd_status nd_device_name(struct nd_device *device, const char *query, struct nd_error *err);

/* A device on another machine as it can be run there: with the runtime of the machine's ABI (of way
 * ND_REMOTE_QNN_NET_RUN that of this machine, which prepares the model), the chipset, the provider's options
 * and the URI that follow; a copy. libraries are paths on this machine. ND_E_DEVICE_CONNECT: the machine is not
 * what the URI asks for (ND_ERR_DEVICE); ND_E_RUNTIME_MISSING. The caller frees *out with nd_device_deinit. */
enum nd_status nd_device_resolve(const struct nd_device *device, const struct nd_identity *identity,
                                 struct nd_device *out, struct nd_error *err);

#endif
