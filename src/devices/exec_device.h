/* exec:RUNNER[?key=value&...]: any program that speaks the runner's protocol as a device. */
#ifndef ND_DEVICE_EXEC_DEVICE_H
#define ND_DEVICE_EXEC_DEVICE_H

#include "npudiff/devices/device.h"

/* Reads such a URI. The name of a runner is looked for; what has a '/' is a path. ND_E_RUNNER_MISSING,
 * ND_E_RUNNER_START, ND_E_DEVICE_UNKNOWN: no name, or an option that is not of the form key=value. */
enum nd_status nd_exec_parse(const char *uri, struct nd_device *out, struct nd_error *err);

/* ND_E_DEVICE_OPTION for a URI that names a file, as the runner or in an option. */
enum nd_status nd_exec_check(const char *uri, struct nd_error *err);

/* Whether the URI is of this form. */
bool nd_exec_is_uri(const char *uri);

/* One option of the query. ND_E_DEVICE_UNKNOWN. */
enum nd_status nd_exec_apply_option(struct nd_device *device, const char *uri, const char *key,
                                    const char *value, struct nd_error *err);

#endif
