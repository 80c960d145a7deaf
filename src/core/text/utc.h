/* The time as captures, stores and policies state it: UTC, or what SOURCE_DATE_EPOCH says. */
#ifndef ND_BASE_UTC_H
#define ND_BASE_UTC_H

#include <stdbool.h>
#include <stddef.h>

/* As ISO 8601 writes a time: 20 bytes and a NUL. */
#define ND_UTC_TIME "%Y-%m-%dT%H:%M:%SZ"

/* Writes it as strftime does. False where the time is none that a calendar has, or does not fit; out is then
 * not to be used. */
bool nd_utc_now(const char *format, char *out, size_t size);

/* Whether SOURCE_DATE_EPOCH is set: then nothing that differs between two equal runs is stored. */
bool nd_is_reproducible(void);

#endif
