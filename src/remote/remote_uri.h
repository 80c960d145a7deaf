/* Devices on other machines, as a URI names them:
 *
 *     adb:[SERIAL][/agent|/qnn-net-run][/DEVICE]      ssh:HOST[/agent|/qnn-net-run][/DEVICE]
 *
 * DEVICE is what runs there, with its own @RUNTIME and ?options; "htp" unless it is given, and then these may
 * follow what is before ("adb:SERIAL?vtcm_mb=4"). An '@' before the first '/' belongs to the host of ssh
 * ("ssh:root@board"), and begins a runtime for adb. No SERIAL: the only phone there is; "*": every phone. */
#ifndef ND_REMOTE_REMOTE_URI_H
#define ND_REMOTE_REMOTE_URI_H

#include "npudiff/device.h"

struct nd_remote_uri {
    enum nd_transport_kind transport;
    char *address; /* "" for the only phone, "*" for all */
    enum nd_remote_way way;
    char *rest;   /* the URI behind the address: "", "/agent/cpu", "?vtcm_mb=4" */
    char *device; /* "htp", "cpu@qairt-2.51.0?threads=2" */
};

/* Whether it begins with "adb:" or "ssh:". */
bool nd_uri_is_remote(const char *uri);

/* "adb", "ssh"; "agent", "qnn-net-run". Static storage. */
const char *nd_transport_name(enum nd_transport_kind transport);
const char *nd_remote_way_name(enum nd_remote_way way);

/* Splits it; what is in its parts is not looked at but for what no address can be. ND_E_DEVICE_UNKNOWN. The
 * caller frees *out with nd_remote_uri_deinit. */
enum nd_status nd_remote_uri_parse(const char *uri, struct nd_remote_uri *out, struct nd_error *err);
void nd_remote_uri_deinit(struct nd_remote_uri *uri);

#endif
