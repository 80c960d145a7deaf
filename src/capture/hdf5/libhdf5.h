/* What the writing and the reading side need of libhdf5: the lock, its errors, and the types of the schema. */
#pragma once

#include <stdbool.h>

#include <hdf5.h>
#include <stdarg.h>

#include "core/memory.h"
#include "npudiff/core/tensor.h"

/* libhdf5 as distributions ship it is not thread safe: every call is made between these two. Not recursive.
 * While held, libhdf5 does not print its errors; the program's own setting is restored. */
void nd_hdf5_lock(void);
void nd_hdf5_unlock(void);

static inline void nd_hdf5_leave(const char *is_held)
{
    (void)is_held;
    nd_hdf5_unlock();
}

/* The lock is held from here to the end of the function, after what was declared below it is cleaned up. */
#define ND_HDF5_LOCKED __attribute__((unused)) ND_CLEANUP(nd_hdf5_leave) char hdf5_is_held = (nd_hdf5_lock(), 1)

/* nd_fail with ": " and the innermost message of libhdf5's error stack appended; empties that stack. */
enum nd_status nd_hdf5_fail(struct nd_error *err, enum nd_error_id id, const char *object, const char *fmt, ...)
    ND_PRINTF(4, 5);

/* True when a message of libhdf5's error stack contains `text`. */
bool nd_hdf5_error_mentions(const char *text);

/* Types as they are stored (nd_index_stored_dtype), little endian. The caller closes the new id;
 * H5I_INVALID_HID for ND_DTYPE_NONE. */
hid_t nd_hdf5_type_make(enum nd_dtype dtype);
/* A fixed-length UTF-8 string, NUL-padded. The caller closes it. n_bytes >= 1. */
hid_t nd_hdf5_text_make(size_t n_bytes);

/* The stored type that `type` is, else ND_DTYPE_NONE (never one that an attribute tells). */
enum nd_dtype nd_hdf5_type_dtype(hid_t type);
