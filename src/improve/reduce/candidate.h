/* Writing NumPy's .npz, which src/record/probes reads back. */
#ifndef ND_REDUCE_NPZ_WRITE_H
#define ND_REDUCE_NPZ_WRITE_H

#include <stdbool.h>
#include <stddef.h>

#include "core/error.h"
#include "npudiff/core/tensor.h"

struct nd_npz_array {
    const char *name;
    enum nd_dtype dtype;
    struct nd_shape shape; /* of one sample */
    size_t n_samples;      /* the array's shape is [n_samples] + shape */
    const void *data;      /* C order, little endian */
    size_t size_bytes;
};

/* Creates path, which must not exist, with the arrays stored as they are. The same arrays give the same bytes.
 * ND_ERR_UNSUPPORTED for a type that NumPy lacks; ND_ERR_IO; ND_ERR_MEMORY. */
enum nd_status nd_npz_write(const char *path, const struct nd_npz_array *arrays, size_t n_arrays,
                            struct nd_error *err);

#endif
