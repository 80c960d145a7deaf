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

/* For ND_CLEANUP: closes an object of any kind but a file, and accepts one that was not opened. */
void nd_hdf5_close(hid_t *id);

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

/* The drivers of libhdf5 that npudiff brings. */

/* A file that libhdf5 writes, and whose writes never fail as far as libhdf5 knows: 1.10.8 crashes or loops at
 * the end of the process when one does. The first failure is kept for the writer, and what comes after it goes
 * aside, so that libhdf5 reads back what it wrote until the file is closed and thrown away. */
struct nd_write_page;
struct nd_write_target {
    int fd;    /* of the file, open for reading and writing; the caller's */
    int error; /* errno of the first write that failed, or 0 */
    struct nd_write_page
        *aside; /* what was written since, without values of datasets, which libhdf5 does not look at */
};

/* What to begin with, and what to end with when the file is closed. */
void nd_write_target_init(struct nd_write_target *target, int fd);
void nd_write_target_deinit(struct nd_write_target *target);

/* Makes files that are created or opened with this access list go to the target, which stays where it is as
 * long as they are open; their name is for messages only. Negative when libhdf5 refuses. Called with
 * nd_hdf5_lock held. */
herr_t nd_write_driver_set(hid_t access, struct nd_write_target *target);

/* A file that libhdf5 reads without opening anything: npudiff hands it the bytes. So the confined child can
 * give up opening files before libhdf5 begins. */
struct nd_read_source {
    /* Bytes [offset, offset + n_bytes), which lie in the file, into buf. */
    enum nd_status (*read)(void *context, uint64_t offset, void *buf, size_t n_bytes, struct nd_error *err);
    void *context;
    uint64_t file_bytes;
    /* The first failure of read; ND_OK: none. libhdf5's own message only says that there was one. */
    enum nd_status status;
    struct nd_error err;
};

/* Makes files that are opened with this access list come from the source, which stays where it is as long as
 * they are open; their name is for messages only. Negative when libhdf5 refuses. Called with nd_hdf5_lock held,
 * or where there is one thread. */
herr_t nd_read_driver_set(hid_t access, struct nd_read_source *source);
