#include <stdlib.h>

#include "capture/hdf5/index_internal.h"
#include "core/memory.h"

/* Deflate cannot do better than 1032:1; a little more is granted for its header. */
enum { MAX_EXPANSION = 1032, EXPANSION_SLACK = 1024 };

/* Which filters a chunk went through, and the bit that switches each one off for a single chunk. */
struct pipeline {
    bool has_shuffle;
    bool has_deflate;
    unsigned shuffle_bit;
    unsigned deflate_bit;
};

static enum nd_status read_pipeline(hid_t creation, const struct nd_index_object *object, struct pipeline *out,
                                    struct nd_error *err)
{
    struct pipeline pipeline = {0};
    int n = H5Pget_nfilters(creation);
    for (int i = 0; i < n; i++) {
        unsigned flags, values[8] = {0};
        size_t n_values = sizeof values / sizeof values[0];
        H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &n_values, values, 0, NULL, NULL);
        if (filter == H5Z_FILTER_SHUFFLE && i == 0 && n_values >= 1 && values[0] == object->elem_bytes) {
            pipeline.has_shuffle = true;
            pipeline.shuffle_bit = 1u << i;
        } else if (filter == H5Z_FILTER_DEFLATE && i == n - 1) {
            pipeline.has_deflate = true;
            pipeline.deflate_bit = 1u << i;
        } else {
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                           "'%s' uses filter %d at place %d; only SHUFFLE before DEFLATE is accepted",
                           object->path, (int)filter, i);
        }
    }
    if (n < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "the filters of '%s' cannot be read",
                            object->path);
    *out = pipeline;
    return ND_OK;
}

static bool is_in_file(const struct nd_index *index, uint64_t offset, uint64_t n_bytes)
{
    return offset <= index->file_bytes && n_bytes <= index->file_bytes - offset;
}

static enum nd_status place_contiguous(const struct nd_index *index, hid_t dataset, hid_t creation,
                                       struct nd_index_object *object, struct nd_error *err)
{
    if (H5Pget_external_count(creation) != 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' keeps its data in a different file",
                       object->path);
    if (object->n_bytes == 0)
        return ND_OK;
    haddr_t offset = H5Dget_offset(dataset);
    if (offset == HADDR_UNDEF || H5Dget_storage_size(dataset) != object->n_bytes) {
        H5Eclear2(H5E_DEFAULT);
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "the data of '%s' is missing", object->path);
    }
    if (!is_in_file(index, offset, object->n_bytes))
        return nd_fail(err, ND_E_CAPTURE_TRUNCATED, object->path,
                       "the data of '%s' lies beyond the end of the file", object->path);
    object->offset = offset;
    object->stored_bytes = object->n_bytes;
    return ND_OK;
}

static enum nd_status place_chunk(const struct nd_index *index, hid_t dataset, const struct pipeline *pipeline,
                                  struct nd_index_object *object, size_t i, struct nd_error *err)
{
    const char *path = object->path;
    struct nd_index_chunk *chunk = &object->chunks[i];
    struct nd_chunk_span span;
    hsize_t start[ND_MAX_RANK], stored_bytes = 0;
    unsigned mask = 0;
    haddr_t offset = HADDR_UNDEF;
    nd_chunk_span(&object->layout, i, &span);
    for (int d = 0; d < object->shape.rank; d++)
        start[d] = (hsize_t)span.start[d];
    if (H5Dget_chunk_info_by_coord(dataset, start, &mask, &offset, &stored_bytes) < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' cannot be found", i, path);
    if (offset == HADDR_UNDEF)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' is missing", i, path);
    /* A reader finds chunks by another way than this list, through keys with parts that the list does not show.
     */
    hsize_t read_bytes = 0;
    if (H5Dget_chunk_storage_size(dataset, start, &read_bytes) < 0 || read_bytes != stored_bytes)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' is listed, but not found", i,
                            path);
    if (!is_in_file(index, offset, stored_bytes))
        return nd_fail(err, ND_E_CAPTURE_TRUNCATED, path, "chunk %zu of '%s' lies beyond the end of the file",
                       i, path);
    *chunk = (struct nd_index_chunk){
        .offset = offset,
        .stored_bytes = stored_bytes,
        .is_shuffled = pipeline->has_shuffle && (mask & pipeline->shuffle_bit) == 0,
        .is_deflated = pipeline->has_deflate && (mask & pipeline->deflate_bit) == 0,
    };
    size_t chunk_bytes = object->layout.chunk_bytes;
    bool is_possible = chunk->is_deflated
                           ? chunk_bytes / MAX_EXPANSION <= stored_bytes + EXPANSION_SLACK / MAX_EXPANSION
                           : chunk_bytes == stored_bytes;
    if (!is_possible)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' cannot hold %zu bytes in %llu", i,
                       path, chunk_bytes, (unsigned long long)stored_bytes);
    object->stored_bytes += stored_bytes;
    return ND_OK;
}

static enum nd_status place_chunks(const struct nd_index *index, hid_t dataset, hid_t creation,
                                   struct nd_index_object *object, struct nd_error *err)
{
    struct nd_shape chunk = {.rank = object->shape.rank};
    struct pipeline pipeline = {0};
    hsize_t dims[ND_MAX_RANK] = {0};
    enum nd_status status = read_pipeline(creation, object, &pipeline, err);
    if (status != ND_OK)
        return status;
    if (object->dtype == ND_DTYPE_NONE || object->shape.rank < 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' is chunked; only tensors may be",
                       object->path);
    if (H5Pget_chunk(creation, ND_MAX_RANK, dims) != object->shape.rank)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "the chunks of '%s' have another rank",
                            object->path);
    for (int i = 0; i < chunk.rank; i++)
        chunk.dims[i] = (int64_t)dims[i];
    status = nd_chunk_layout_from_dims(&object->shape, &chunk, object->elem_bytes, &object->layout, err);
    if (status != ND_OK) {
        nd_error_context(err, "'%s'", object->path);
        return status;
    }
    /* Every chunk takes a byte at least: a count that cannot be true must not decide how much is allocated. */
    if (object->layout.n_chunks > index->file_bytes)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "the file is too small for the %zu chunks of '%s'", object->layout.n_chunks,
                       object->path);
    object->chunks = nd_calloc(object->layout.n_chunks, sizeof *object->chunks);
    if (object->chunks == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < object->layout.n_chunks && status == ND_OK; i++)
        status = place_chunk(index, dataset, &pipeline, object, i, err);
    return status;
}

static enum nd_status describe(hid_t dataset, struct nd_index_object *object, struct nd_error *err)
{
    hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hsize_t dims[ND_MAX_RANK] = {0};
    enum nd_status status = ND_OK;
    H5S_class_t space_class = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_ndims(space);
    object->dtype = nd_hdf5_type_dtype(type);
    object->elem_bytes =
        object->dtype != ND_DTYPE_NONE ? nd_dtype_size_bytes(object->dtype) : nd_hdf5_text_bytes(type);
    if (object->elem_bytes == 0)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                         "'%s' has a type that is neither a number nor fixed-length UTF-8 text", object->path);
    else if (space_class != H5S_SIMPLE || rank < 1 || rank > ND_MAX_RANK ||
             H5Sget_simple_extent_dims(space, dims, NULL) != rank)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' has rank %d; 1 to %d are accepted",
                         object->path, rank, ND_MAX_RANK);
    object->shape.rank = status == ND_OK ? rank : 0;
    for (int i = 0; i < object->shape.rank; i++) /* beyond INT64_MAX it becomes negative and is refused below */
        object->shape.dims[i] = (int64_t)dims[i];
    size_t n = 0;
    if (status == ND_OK)
        status = nd_shape_n_elems(&object->shape, &n, err);
    if (status == ND_OK && !nd_size_mul(n, object->elem_bytes, &object->n_bytes))
        status = nd_fail(err, ND_E_SIZE_OVERFLOW, object->path, "the size of '%s' does not fit", object->path);
    H5Sclose(space);
    H5Tclose(type);
    return status;
}

enum nd_status nd_index_add_dataset(struct nd_index *index, hid_t dataset, const char *path,
                                    struct nd_error *err)
{
    struct nd_index_object *object = nd_index_add(index, path, false, err);
    if (object == NULL)
        return ND_ERR_MEMORY;
    enum nd_status status = describe(dataset, object, err);
    if (status == ND_OK)
        status = nd_index_add_attrs(index, object, dataset, err);
    if (status != ND_OK)
        return status;
    hid_t creation = H5Dget_create_plist(dataset);
    H5D_layout_t layout = H5Pget_layout(creation);
    if (layout == H5D_CONTIGUOUS)
        status = place_contiguous(index, dataset, creation, object, err);
    else if (layout == H5D_CHUNKED)
        status = place_chunks(index, dataset, creation, object, err);
    else
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is neither contiguous nor chunked", path);
    H5Pclose(creation);
    return status;
}
