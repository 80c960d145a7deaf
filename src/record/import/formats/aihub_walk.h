/* What libhdf5 finds in a dataset of AI Hub. */
#pragma once

#include "core/error.h"
#include "npudiff/core/tensor.h"

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

struct nd_aihub_source {
    const char *path;
    int fd; /* the file's */
    uint64_t file_bytes;
    uint64_t max_data_bytes; /* of all samples */
    uint64_t n_counted,      /* what the samples say that they hold; 0 at first */
        n_taken;             /* bytes of the file that are a sample's; 0 at first */
};

/* Visits all samples, tensor by tensor in their order, each from sample 0 on, in a confined process.
 * ND_E_IMPORT_FORMAT, ND_E_IMPORT_TYPE, ND_E_IMPORT_NOTHING, and what visit returns. */
enum nd_status nd_aihub_walk(struct nd_aihub_source *source, nd_aihub_visit visit, void *context,
                             struct nd_error *err);
