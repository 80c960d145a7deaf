/* What a comparison says about the devices themselves. */
#ifndef ND_COMPARE_DEVICES_H
#define ND_COMPARE_DEVICES_H

#include "compare/matching/matching.h"

/* Fills *device from the attributes of a capture; unknown texts become "". ND_ERR_MEMORY. */
enum nd_status nd_device_describe(const struct nd_capture *capture, struct nd_compared_device *device,
                                  struct nd_error *err);

/* Gives devices of one label a number behind it ("cpu", "cpu#2"). */
enum nd_status nd_devices_number_labels(struct nd_compared_device *devices, size_t n, struct nd_error *err);

/* Fills configured_as and configuration. ND_ERR_MEMORY. */
enum nd_status nd_devices_describe_configuration(const struct nd_matching *alignment,
                                                 struct nd_compared_device *devices, struct nd_error *err);

/* Whether an edge was computed by the CPU provider on a device that says that it is something else than a CPU
 * or a reference. Model inputs are expected there. */
bool nd_device_fell_back(const struct nd_compared_device *device, const struct nd_edge *edge,
                         const char *provider);

void nd_compared_device_deinit(struct nd_compared_device *device);

#endif
