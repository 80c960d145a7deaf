/* The drivers of libhdf5 that npudiff brings. */
#pragma once

#include "capture/hdf5/libhdf5.h"

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
