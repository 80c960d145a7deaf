/* Reporting a failure: nd_fail where it is found, nd_error_context on the way up. */
#pragma once

#include "npudiff/core/error_ids.h"

/* Fills err (nullable) and returns the status that belongs to id, so that a caller can write
 * `return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open '%s': %s", path, strerror(errno));`.
 * object is nullable. */
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
