/* The writer's parts: write.c (file, attributes, tables, logs, commit), write_tensors.c
 * (probes). Everything here is called with nd_hdf5_lock held. */
#pragma once

#include "capture/hdf5/libhdf5.h"
#include "capture/read/schema.h"
#include "capture/write/write.h"
#include "core/files/file.h"

struct nd_capture_writer {
    struct nd_new_file place;
    struct nd_write_target target; /* writes into it */
    hid_t file;
    int level;               /* of deflate; 0: contiguous */
    uint64_t value_bytes;    /* that will be stored; 0: unknown */
    uint64_t reserved_bytes; /* of the file, from its start */
    int64_t n_probes;
    size_t n_tensors;
    bool has_tensors;
    bool has_nodes;
};

/* Sees to it that the file can grow by n_bytes of data and some metadata, so that a full disk is noticed before
 * much is written. ND_ERR_IO when there is no room, or an earlier write has failed. */
enum nd_status nd_writer_reserve(struct nd_capture_writer *writer, size_t n_bytes, struct nd_error *err);

/* Makes the group and its missing parents. */
enum nd_status nd_writer_group(struct nd_capture_writer *writer, const char *path, struct nd_error *err);

/* An attribute of `object`: n elements, or a scalar when is_scalar. data as the type is stored. */
struct nd_writer_attr {
    const char *key;
    enum nd_dtype dtype; /* ND_DTYPE_NONE: data is text */
    bool is_scalar;
    size_t n;
    const void *data;
};
enum nd_status nd_writer_put_attr(hid_t object, const char *path, const struct nd_writer_attr *attr,
                                  struct nd_error *err);
enum nd_status nd_writer_put_text(hid_t object, const char *path, const char *key, const char *text,
                                  struct nd_error *err);
enum nd_status nd_writer_put_i64(hid_t object, const char *path, const char *key, int64_t value,
                                 struct nd_error *err);

struct nd_writer_extent {
    const struct nd_shape *shape;
    const struct nd_shape *chunk; /* NULL: contiguous, space reserved at once, never filled */
};

/* A new dataset that is open. The caller closes it. type is kept by the caller. */
enum nd_status nd_writer_make(struct nd_capture_writer *writer, const char *path, hid_t type,
                              const struct nd_writer_extent *extent, hid_t *out, struct nd_error *err);

/* A whole contiguous dataset; path is freed (NULL: out of memory). */
enum nd_status nd_writer_put(struct nd_capture_writer *writer, char *path, enum nd_dtype dtype,
                             const struct nd_shape *shape, const void *data, struct nd_error *err);

/* A tensor that is being written, chunk by chunk. */
struct nd_capture_dataset {
    struct nd_capture_writer *writer;
    hid_t id;
    hid_t type;
    char *path;
    struct nd_chunk_layout layout;
    int level;          /* the writer's when it was begun */
    uint8_t *is_stored; /* per chunk */
    size_t n_stored;
};

/* The dataset /probes/<probe>/<part>/<name>. */
struct nd_writer_tensor {
    const char *probe;
    const char *part; /* "inputs", "outputs" or "repeats" */
    const char *name;
    enum nd_dtype dtype;
};
