/* A file that libhdf5 reads without opening anything: npudiff hands it the bytes. So the confined child can
 * give up opening files before libhdf5 begins. */
#ifndef ND_HDF5_READ_DRIVER_H
#define ND_HDF5_READ_DRIVER_H

#include "capture/hdf5/libhdf5.h"

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

#endif
