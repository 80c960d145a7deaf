/* RECORD of a wheel: a line "PATH,sha256=DIGEST,SIZE" for each of its files. */
#ifndef ND_SDK_WHEEL_RECORD_H
#define ND_SDK_WHEEL_RECORD_H

#include "devices/runtimes/runtime_source.h"

/* The first file from `from` on that is "FOLDER.dist-info/<name>", such as RECORD; SIZE_MAX: there is none. */
size_t nd_wheel_find(const struct nd_runtime_source *source, const char *name, size_t from);

/* Gives the files their digests. Lines about files that are not there are passed over. ND_E_RUNTIME_SOURCE: a
 * line that is none, or two of one file. text is used up. */
enum nd_status nd_wheel_read_record(struct nd_runtime_source *source, char *text, struct nd_error *err);

/* ND_E_RUNTIME_SOURCE when file i does not have the digest (as hexadecimal digits) that RECORD says, or RECORD
 * says none. */
enum nd_status nd_wheel_check(const struct nd_runtime_source *source, size_t i, const char *hex,
                              struct nd_error *err);

#endif
