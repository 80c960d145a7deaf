/* The index of an HDF5 file: every object that a schema knows, with its type, shape, attributes and place in
 * the file.
 *
 * index.c is the only reader that calls libhdf5. It does so in a confined child with a limit of time
 * (reading.h), and calls nothing that reads data. What it finds is checked against the size of the file
 * before it is believed; data is then read by nd_index_read without libhdf5. Objects that the schema does
 * not know are left out. Immutable once made: any thread may read. */
#pragma once

#include <time.h>

#include "core/tensors/chunk.h"

struct nd_index_attr {
    char *name;
    enum nd_dtype dtype; /* ND_DTYPE_NONE: text */
    bool is_scalar;
    size_t n; /* elements */
    size_t n_bytes;
    unsigned char *bytes; /* as stored, little endian; a NUL follows */
};

struct nd_index_chunk {
    uint64_t offset;
    uint64_t stored_bytes;
    bool is_shuffled;
    bool is_deflated;
};

struct nd_index_object {
    char *path;
    bool is_group;
    size_t n_attrs;
    struct nd_index_attr *attrs; /* sorted by name */
    /* Datasets only. */
    enum nd_dtype dtype; /* as stored, see nd_index_stored_dtype; ND_DTYPE_NONE: text */
    size_t elem_bytes;   /* of a number, or the length of the strings */
    struct nd_shape shape;
    size_t n_bytes;                /* of the whole, decoded */
    uint64_t stored_bytes;         /* of the whole, in the file */
    uint64_t offset;               /* contiguous */
    struct nd_index_chunk *chunks; /* chunked: layout.n_chunks of them; else NULL */
    struct nd_chunk_layout layout;
};

enum nd_index_kind { ND_INDEX_UNKNOWN, ND_INDEX_GROUP, ND_INDEX_DATASET };

/* What the index takes of a file. They are called in the confined child, and once more in its parent. */
struct nd_index_schema {
    /* What the object at this path must be. ND_INDEX_UNKNOWN: it is left out, with all that is in it. */
    enum nd_index_kind (*kind_of)(const char *path);
    /* Whether an attribute of that name of a dataset is taken. Those of groups are all taken. */
    bool (*has_attr)(const char *name);
    /* Looks at the root's attributes before anything else is read. */
    enum nd_status (*check_root)(const struct nd_index_object *root, struct nd_error *err);
};

struct nd_index {
    const struct nd_index_schema *schema;
    struct nd_fetch *fetch; /* of a file on a server (fetch/fetch.h); else NULL, and: */
    int fd;
    struct timespec modified; /* when the file was opened */
    uint64_t file_bytes;
    uint64_t serial; /* of all that this process opens, no two have the same */
    size_t n_objects;
    size_t capacity;
    struct nd_index_object *objects; /* sorted by path, bytewise */
};

/* path may be a name that nd_fetch_is_url knows. ND_ERR_IO, ND_ERR_FORMAT (not HDF5, truncated, against the
 * schema), ND_ERR_MEMORY, and what schema->check_root returns. schema outlives the index. ND_E_FILE_TIME:
 * libhdf5 did not return within the limit. Of a file on a server also what nd_fetch_open fails with. The caller
 * frees *out. */
enum nd_status nd_index_open(const char *path, const struct nd_index_schema *schema, struct nd_index **out,
                             struct nd_error *err);
void nd_index_close(struct nd_index **index);

/* Frees what an object holds, but for its path. */
void nd_index_object_deinit(struct nd_index_object *object);

/* The object at `path`, or NULL. */
const struct nd_index_object *nd_index_find(const struct nd_index *index, const char *path);

/* Objects directly inside the group at `path` are in [*first, *end) together with everything below them;
 * nd_index_is_child tells the direct ones. */
void nd_index_range(const struct nd_index *index, const char *path, size_t *first, size_t *end);

/* The attribute, or NULL. */
const struct nd_index_attr *nd_index_attr(const struct nd_index_object *object, const char *name);

/* Rows [first, first + n) along the first dimension into buf. The range must lie inside the dataset (asserted);
 * a scalar has one row. ND_ERR_FORMAT: a chunk cannot be decoded or the file has become shorter; ND_ERR_IO: it
 * cannot be read. */
enum nd_status nd_index_read(const struct nd_index *index, const struct nd_index_object *object, size_t first,
                             size_t n, void *buf, struct nd_error *err);

/* Bytes [offset, offset + n_bytes) of the file, by plain reads or from its server. path is the object's, for
 * the message. ND_ERR_FORMAT: the file has become shorter; ND_ERR_IO: it cannot be read. */
enum nd_status nd_index_read_at(const struct nd_index *index, const char *path, uint64_t offset, void *buf,
                                size_t n_bytes, struct nd_error *err);

/* The type as which tensors of this one are stored: itself, unless HDF5 has none such and the attribute `dtype`
 * says what the bytes are (uint16 for bfloat16, int8 for int4, uint8 for bool, uint4 and 8-bit floats). */
enum nd_dtype nd_index_stored_dtype(enum nd_dtype dtype);

/* "uint8", "text[12]": the type as docs/reference/capture-format.md and the digest spell it. Returns buf. */
char *nd_index_type_name(enum nd_dtype dtype, size_t elem_bytes, char *buf, size_t buf_size);
