/* What libhdf5 finds in a dataset of AI Hub. */
#ifndef ND_IMPORT_AIHUB_WALK_H
#define ND_IMPORT_AIHUB_WALK_H

#include "base/error.h"
#include "npudiff/tensor.h"

/* One sample of one tensor, borrowed for the call. */
struct nd_aihub_sample {
    const char *name;
    const char *what; /* "'/data/0/batch_1'" */
    size_t sample;
    enum nd_dtype dtype;
    struct nd_shape shape;
    const void *data;
    size_t n_bytes;
};

typedef enum nd_status (*nd_aihub_visit)(void *context, const struct nd_aihub_sample *sample,
                                         struct nd_error *err);

/* Visits all samples, tensor by tensor in their order, each from sample 0 on. fd is the file's. Confines the
 * process once the file is open; to be called with nd_hdf5_lock held. ND_E_IMPORT_FORMAT, ND_E_IMPORT_TYPE,
 * ND_E_IMPORT_NOTHING, and what visit returns. */
enum nd_status nd_aihub_walk(const char *path, int fd, nd_aihub_visit visit, void *context,
                             struct nd_error *err);

#endif
