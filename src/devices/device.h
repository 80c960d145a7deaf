/* Devices: their options, and what of one on another machine can be said only when the machine has been asked.
 */
#ifndef ND_DEVICES_DEVICE_H
#define ND_DEVICES_DEVICE_H

#include "devices/phones/device_facts.h"
#include "npudiff/devices/device.h"

/* A device on another machine as it can be run there: with the runtime of the machine's ABI (of way
 * ND_REMOTE_QNN_NET_RUN that of this machine, which prepares the model), the chipset, the provider's options
 * and the URI that follow; a copy. libraries are paths on this machine. ND_E_DEVICE_CONNECT: the machine is not
 * what the URI asks for (ND_ERR_DEVICE); ND_E_RUNTIME_MISSING. The caller frees *out with nd_device_deinit. */
enum nd_status nd_device_resolve(const struct nd_device *device, const struct nd_device_facts *device_facts,
                                 struct nd_device *out, struct nd_error *err);

/* Whether npudiff evaluates the device itself, without a runtime, by npudiff-agent-exact. */
bool nd_device_is_evaluated(enum nd_device_kind kind);

#endif
