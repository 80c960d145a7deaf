/* Datasets of strangers' HDF5 files as arrays: libhdf5 tells their type, shape and place, and reads no data;
 * chunks of any form are read and decoded here. All calls are made with nd_hdf5_lock held. */
#ifndef ND_IMPORT_HDF5_ARRAY_H
#define ND_IMPORT_HDF5_ARRAY_H

#include "capture/hdf5/libhdf5.h"

struct nd_hdf5_array {
    const char *path, *what; /* as given to nd_hdf5_array_describe, borrowed */
    enum nd_dtype dtype;
    bool is_big_endian;
    struct nd_shape shape;
    size_t n_bytes;
};

/* What the open dataset holds. path is the file, what the dataset in it ("'/data/0/batch_0'").
 * ND_E_IMPORT_TYPE: not numbers, or too many dimensions. */
enum nd_status nd_hdf5_array_describe(hid_t dataset, const char *path, const char *what,
                                      struct nd_hdf5_array *out, struct nd_error *err);

/* Its n_bytes into out, little endian, C order; fd is the file's. ND_E_IMPORT_FORMAT: data that is missing,
 * outside of the file, cannot be decoded or is smaller than it claims; a filter other than SHUFFLE and DEFLATE.
 */
enum nd_status nd_hdf5_array_read(hid_t dataset, int fd, const struct nd_hdf5_array *array, void *out,
                                  struct nd_error *err);

#endif
