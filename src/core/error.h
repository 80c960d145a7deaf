/* Reporting a failure: nd_fail where it is found, nd_error_context on the way up. */
#pragma once

#include <stddef.h>

#include "npudiff/core/error_ids.h"

/* Fills err (nullable) and returns the status that belongs to id, so that a caller can write `return
 * nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));`. object is nullable. */
enum nd_status nd_fail(struct nd_error *err, enum nd_error_id id, const char *object, const char *fmt, ...)
    ND_PRINTF(4, 5);

/* nd_fail for a failed allocation. */
enum nd_status nd_fail_memory(struct nd_error *err);

/* What somebody else said of a failure, for the end of a message; "it says nothing" where the text has no
 * character that is seen. NULL counts as "". */
const char *nd_said(const char *text);

/* Puts "<context>: " in front of the message; keeps id, status and object. No-op when err is NULL. */
void nd_error_context(struct nd_error *err, const char *fmt, ...) ND_PRINTF(2, 3);

/* Returns from the function that it stands in when `call` fails: for a function that returns enum nd_status and
 * has nothing to free there. `ND_TRY(nd_file_read(path, max_bytes, &bytes, &n, err));` */
#define ND_TRY(call)                                                                                           \
    do {                                                                                                       \
        const enum nd_status tried_ = (call);                                                                  \
        if (tried_ != ND_OK)                                                                                   \
            return tried_;                                                                                     \
    } while (0)

/* The same for memory: nd_fail_memory(err) unless it was made. `ND_TRY_MEMORY(path != NULL, err);` */
#define ND_TRY_MEMORY(is_made, err) ND_TRY((is_made) ? ND_OK : nd_fail_memory(err))

/* ---- options structs of callers that were compiled against another version of the public headers. The first
 * member of such a struct is `size_t struct_size`: the size that the caller knows. New members are only added
 * at the end, after the old end of the struct (never into padding), and zero in them means what the library did
 * before they existed. npudiff/npudiff.h states these rules for callers; tools/abi checks them ---- */

/* Copies what the caller gave over `own`, our struct of own_bytes, which holds the defaults before the call. A
 * shorter struct leaves the defaults in the members that it lacks; a longer one is accepted while the bytes
 * after ours are zero. given NULL: `own` keeps the defaults. own's struct_size is own_bytes afterwards.
 *
 * ND_E_OPTION_STRUCT: struct_size is smaller than itself: the caller did not set it. ND_E_OPTION_NEWER: a
 * member that this version does not know is set. `own` is then unchanged. */
enum nd_status nd_options_read(void *own, size_t own_bytes, const void *given, struct nd_error *err);

/* Fills the caller's struct of given_bytes from `own`, our struct of own_bytes that holds the defaults: a
 * shorter one gets the start, in a longer one the rest is zero. Its struct_size becomes given_bytes. */
void nd_options_write(void *given, size_t given_bytes, const void *own, size_t own_bytes);
