/* Devices on other machines, as a URI names them:
 *
 *     adb:[SERIAL][@SERVER:PORT][/agent|/qnn-net-run][/DEVICE]      ssh:HOST[/agent|/qnn-net-run][/DEVICE]
 *
 * DEVICE is what runs there, with its own @RUNTIME and ?options; "htp" unless it is given, and then these may
 * follow what is before ("adb:SERIAL?vtcm_mb=4"). An '@' before the first '/' belongs to the host of ssh
 * ("ssh:root@board"). For adb it begins a server when a ':' follows before the next '/', '?' or '@', else a
 * runtime: a runtime's id has no ':'. No SERIAL: the only phone there is; "*": every phone. */
#ifndef ND_REMOTE_REMOTE_URI_H
#define ND_REMOTE_REMOTE_URI_H

#include "npudiff/devices/device.h"

struct nd_remote_uri {
    enum nd_transport_kind transport;
    char *
        address; /* "" for the only phone, "*" for all; of adb with its server: "R5@lab7:5037", "*@lab7:5037" */
    enum nd_remote_method method;
    char *rest;   /* the URI behind the address: "", "/agent/cpu", "?vtcm_mb=4" */
    char *device; /* "htp", "cpu@qairt-2.51.0?threads=2" */
};

/* Whether it begins with "adb:" or "ssh:". */
bool nd_uri_is_remote(const char *uri);

/* Where the serial of an address of adb ends: at its '@', or at its end. */
size_t nd_adb_serial_length(const char *address);

/* The server of such an address, "lab7:5037"; NULL: adb's own default. Points into the address. */
const char *nd_adb_server(const char *address);

/* ND_E_DEVICE_UNKNOWN: it is no "HOST:PORT"; uri is what the message names. */
enum nd_status nd_adb_check_server(const char *uri, const char *server, struct nd_error *err);

/* "adb", "ssh"; "agent", "qnn-net-run". Static storage. */
const char *nd_transport_name(enum nd_transport_kind transport);
const char *nd_remote_method_name(enum nd_remote_method method);

/* Splits it; what is in its parts is not looked at but for what no address can be. ND_E_DEVICE_UNKNOWN. The
 * caller frees *out with nd_remote_uri_deinit. */
enum nd_status nd_remote_uri_parse(const char *uri, struct nd_remote_uri *out, struct nd_error *err);
void nd_remote_uri_deinit(struct nd_remote_uri *uri);

#endif
