/* The options of a device: those of its URI, and what its provider is always told. */
#ifndef ND_DEVICE_DEVICE_OPTIONS_H
#define ND_DEVICE_DEVICE_OPTIONS_H

#include "npudiff/devices/device.h"

/* Whether npudiff evaluates the device itself, without a runtime, by npudiff-agent-exact. */
bool nd_device_is_evaluated(enum nd_device_kind kind);

/* Which of the agents runs such a device: what follows "npudiff-agent" in its name. Static. */
const char *nd_device_agent_suffix(enum nd_device_kind kind);

/* Adds the option, or gives it another value where it stands. */
enum nd_status nd_device_set_option(struct nd_device *device, const char *key, const char *value,
                                    struct nd_error *err);

/* The options of a URI's query ("a=b&c=d", which is cut up). ND_E_DEVICE_UNKNOWN. */
enum nd_status nd_device_apply_query(struct nd_device *device, const char *uri, char *query,
                                     struct nd_error *err);

/* ND_E_DEVICE_OPTION when an option is not known to be harmless: it may name a file that is written, or a
 * library. */
enum nd_status nd_device_check_options(const struct nd_device *device, const char *uri, struct nd_error *err);

/* What the provider of an NPU is told unless the URI says otherwise, as far as runtime and chipset are known;
 * nothing for other devices. */
enum nd_status nd_device_default_options(struct nd_device *device, struct nd_error *err);

/* exec:RUNNER[?key=value&...]: any arithmetic that speaks the runner's protocol as a device. */

/* Reads such a URI. The name of a runner is looked for; what has a '/' is a path. ND_E_RUNNER_MISSING,
 * ND_E_RUNNER_START, ND_E_DEVICE_UNKNOWN: no name, or an option that is not of the form key=value. */
enum nd_status nd_exec_parse(const char *uri, struct nd_device *out, struct nd_error *err);

/* ND_E_DEVICE_OPTION for a URI that names a file, as the runner or in an option. */
enum nd_status nd_exec_check(const char *uri, struct nd_error *err);

/* Whether the URI is of this form. */
bool nd_exec_is_uri(const char *uri);

#endif
