/* A file that libhdf5 writes, and whose writes never fail as far as libhdf5 knows: 1.10.8 crashes or loops at
 * the end of the process when one does. The first failure is kept for the writer, and what comes after it goes
 * aside, so that libhdf5 reads back what it wrote until the file is closed and thrown away. */
#ifndef ND_HDF5_WRITE_DRIVER_H
#define ND_HDF5_WRITE_DRIVER_H

#include "capture/hdf5/libhdf5.h"

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

#endif
