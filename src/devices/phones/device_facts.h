/* What a machine that is reached over adb or ssh says of itself: which phone or board it is, what it runs, how
 * warm it is, and what its system logged meanwhile.
 *
 * Everything is read by one command before the run and one after it. What does not come, or makes no sense, is
 * left out: an unknown fact stays unknown, and a device that says nothing of itself can still be captured.
 * Texts are cut and cleaned, whatever the device prints: valid UTF-8 without control characters. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "capture/read/environment.h"

struct nd_transport;

struct nd_device_facts {
    const struct nd_chipset *chipset; /* the SoC of the machine; NULL: not said, or not in the table */
    char *soc;                        /* as the machine calls it ("SM8650"); NULL: not said */
    char *abi;      /* "aarch64-android", "aarch64-linux", "x86_64-linux"; NULL: none that is known */
    char *said_abi; /* as the machine calls it ("arm64-v8a"); "" when it does not say */
    bool is_android;
    int64_t clock_s;            /* the machine's own clock when it was read; 0: unknown */
    struct nd_attr_list facts;  /* attributes of /device that stay: phone, firmware, ... */
    struct nd_attr_list warmth; /* those that change: battery and temperatures, before and after */
    char *logcat; /* NUL-terminated, of the time between reading and finishing; NULL where there is none */
    size_t logcat_bytes;
};

/* Asks the machine who it is, and for battery and temperatures before the run. ND_E_LINK_LOST and whatever else
 * the transport fails with; ND_ERR_MEMORY. A machine without getprop, dumpsys or /sys is no error. The caller
 * frees *out with nd_device_facts_deinit, on success only. */
enum nd_status nd_device_facts_read(struct nd_transport *transport, struct nd_device_facts *out,
                                    struct nd_error *err);

/* Adds battery and temperatures after the run, and logcat since nd_device_facts_read. As it fails, the identity
 * stays what it was: the run is worth keeping without it, so that the caller may ignore the status. */
enum nd_status nd_device_facts_finish(struct nd_transport *transport, struct nd_device_facts *device_facts,
                                      struct nd_error *err);
void nd_device_facts_deinit(struct nd_device_facts *device_facts);

/* ---- the parts, without a device (and for tests) ---- */

/* The commands of the two questions; in their answers a line "<marker> NAME" begins each part. marker: letters,
 * digits and '-', unlike anything that a device prints. since_s: the device's clock from which logcat counts.
 * In new memory; NULL without memory. */
char *nd_device_facts_question(const char *marker);
char *nd_device_facts_question_after(const char *marker, int64_t since_s);

/* What nd_device_facts_read and nd_device_facts_finish make of an answer of n bytes, whatever they are. Only
 * ND_ERR_MEMORY. */
enum nd_status nd_device_facts_parse(const char *marker, const char *answer, size_t n,
                                     struct nd_device_facts *out, struct nd_error *err);
enum nd_status nd_device_facts_parse_after(const char *marker, const char *answer, size_t n,
                                           struct nd_device_facts *device_facts, struct nd_error *err);

/* Reading what a machine printed of itself: parts, lines and names in bytes that may be anything. */

/* A piece of an answer, borrowed. {NULL, 0} is empty. */
struct nd_text_piece {
    const char *text;
    size_t n;
};

/* A copy of at most max_bytes as text: bytes that are no UTF-8 become '?', control characters ' ', and blanks
 * at the ends go. NULL when out of memory; "" when nothing is left. */
char *nd_piece_copy(struct nd_text_piece piece, size_t max_bytes);
