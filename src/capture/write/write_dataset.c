#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/read/link_names.h"
#include "capture/write/write_internal.h"
#include "capture/hdf5/index.h"

enum nd_status nd_writer_make(struct nd_capture_writer *writer, const char *path, hid_t type,
                              const struct nd_writer_extent *extent, hid_t *out, struct nd_error *err)
{
    const struct nd_shape *shape = extent->shape, *chunk = extent->chunk;
    hsize_t dims[ND_MAX_RANK], max_dims[ND_MAX_RANK], chunk_dims[ND_MAX_RANK];
    size_t n_elems, n_bytes = 0;
    enum nd_status status = nd_shape_n_elems(shape, &n_elems, err);
    if (status == ND_OK && chunk == NULL && !nd_size_mul(n_elems, H5Tget_size(type), &n_bytes))
        status = nd_fail(err, ND_E_SIZE_OVERFLOW, path, "the size of '%s' does not fit", path);
    if (status == ND_OK)
        status = nd_writer_reserve(writer, n_bytes, err);
    if (status != ND_OK)
        return status;
    for (int i = 0; i < shape->rank; i++) {
        dims[i] = max_dims[i] = (hsize_t)shape->dims[i];
        chunk_dims[i] = chunk != NULL ? (hsize_t)chunk->dims[i] : 1;
        /* A capture that ended early keeps chunks that have room for more samples. */
        if (chunk_dims[i] > max_dims[i] && chunk != NULL)
            max_dims[i] = chunk_dims[i];
    }
    hid_t space = H5Screate_simple(shape->rank, dims, max_dims);
    hid_t creation = H5Pcreate(H5P_DATASET_CREATE), dataset = H5I_INVALID_HID;
    bool is_ready = space >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, false) >= 0 &&
                    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER) >= 0;
    if (is_ready && chunk != NULL)
        is_ready = H5Pset_chunk(creation, shape->rank, chunk_dims) >= 0 && H5Pset_shuffle(creation) >= 0 &&
                   H5Pset_deflate(creation, (unsigned)writer->level) >= 0;
    else if (is_ready)
        is_ready = H5Pset_layout(creation, H5D_CONTIGUOUS) >= 0 &&
                   H5Pset_alloc_time(creation, H5D_ALLOC_TIME_EARLY) >= 0;
    if (is_ready)
        dataset = H5Dcreate2(writer->file, path, type, space, H5P_DEFAULT, creation, H5P_DEFAULT);
    H5Pclose(creation);
    H5Sclose(space);
    if (dataset < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot create dataset '%s'", path);
    *out = dataset;
    return ND_OK;
}

enum nd_status nd_writer_put(struct nd_capture_writer *writer, char *path, enum nd_dtype dtype,
                             const struct nd_shape *shape, const void *data, struct nd_error *err)
{
    if (path == NULL)
        return nd_fail_memory(err);
    size_t n_bytes;
    hid_t type = nd_hdf5_type_make(dtype), dataset = H5I_INVALID_HID;
    enum nd_status status = nd_shape_size_bytes(shape, dtype, &n_bytes, err);
    if (status == ND_OK)
        status = nd_writer_make(writer, path, type, &(struct nd_writer_extent){.shape = shape}, &dataset, err);
    if (status == ND_OK && n_bytes > 0 && H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write '%s'", path);
    if (dataset >= 0 && H5Dclose(dataset) < 0 && status == ND_OK)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write '%s'", path);
    H5Tclose(type);
    free(path);
    return status;
}

void nd_writer_dataset_destroy(struct nd_capture_dataset **dataset_at)
{
    struct nd_capture_dataset *dataset = *dataset_at;
    if (dataset == NULL)
        return;
    if (dataset->id >= 0)
        H5Dclose(dataset->id);
    H5Tclose(dataset->type);
    H5Eclear2(H5E_DEFAULT);
    free(dataset->path);
    free(dataset->is_stored);
    free(dataset);
    *dataset_at = NULL;
}

void nd_capture_dataset_destroy(struct nd_capture_dataset **dataset)
{
    nd_hdf5_lock();
    nd_writer_dataset_destroy(dataset);
    nd_hdf5_unlock();
}

enum nd_status nd_writer_dataset_begin(struct nd_capture_writer *writer, const struct nd_writer_tensor *tensor,
                                       const struct nd_chunk_layout *layout, struct nd_capture_dataset **out,
                                       struct nd_error *err)
{
    enum nd_status status = ND_OK;
    char *group = nd_name_probe_path(tensor->probe, tensor->part, NULL);
    struct nd_capture_dataset *dataset = nd_calloc(1, sizeof *dataset);
    if (dataset == NULL || group == NULL) {
        free(dataset);
        free(group);
        return nd_fail_memory(err);
    }
    *dataset = (struct nd_capture_dataset){
        .writer = writer, .id = H5I_INVALID_HID, .layout = *layout, .level = writer->level};
    dataset->path = nd_name_probe_path(tensor->probe, tensor->part, tensor->name);
    dataset->is_stored = nd_calloc(layout->n_chunks, 1);
    dataset->type = nd_hdf5_type_make(tensor->dtype);
    if (dataset->path == NULL || dataset->is_stored == NULL)
        status = nd_fail_memory(err);
    else if (dataset->type < 0)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, dataset->path, "'%s' has no element type", dataset->path);
    if (status == ND_OK)
        status = nd_writer_group(writer, group, err);
    bool is_chunked = writer->level > 0 && layout->n_chunks > 0;
    const struct nd_writer_extent extent = {&layout->dataset, is_chunked ? &layout->chunk : NULL};
    if (status == ND_OK)
        status = nd_writer_make(writer, dataset->path, dataset->type, &extent, &dataset->id, err);
    if (status == ND_OK && nd_index_stored_dtype(tensor->dtype) != tensor->dtype)
        status = nd_writer_put_text(dataset->id, dataset->path, "dtype", nd_dtype_name(tensor->dtype), err);
    free(group);
    if (status == ND_OK)
        *out = dataset;
    else
        nd_writer_dataset_destroy(&dataset);
    return status;
}

/* Without filters the chunks are only a way to deliver the data: a contiguous dataset takes them as blocks. */
static herr_t write_block(struct nd_capture_dataset *dataset, const struct nd_chunk_span *span,
                          const void *data)
{
    const struct nd_shape *shape = &dataset->layout.dataset, *chunk = &dataset->layout.chunk;
    hsize_t start[ND_MAX_RANK], count[ND_MAX_RANK];
    for (int i = 0; i < shape->rank; i++) {
        int64_t left = shape->dims[i] - span->start[i];
        start[i] = (hsize_t)span->start[i];
        count[i] = (hsize_t)(left < chunk->dims[i] ? left : chunk->dims[i]);
    }
    hid_t file_space = H5Dget_space(dataset->id);
    hid_t memory_space = H5Screate_simple(shape->rank, count, NULL);
    herr_t rc = -1;
    if (H5Sselect_hyperslab(file_space, H5S_SELECT_SET, start, NULL, count, NULL) >= 0)
        rc = H5Dwrite(dataset->id, dataset->type, memory_space, file_space, H5P_DEFAULT, data);
    H5Sclose(memory_space);
    H5Sclose(file_space);
    return rc;
}

static enum nd_status dataset_chunk(struct nd_capture_dataset *dataset, size_t index, const void *stored,
                                    size_t stored_bytes, struct nd_error *err)
{
    const char *path = dataset->path;
    if (index >= dataset->layout.n_chunks || dataset->is_stored[index] != 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' is not one that is missing", index,
                       path);
    struct nd_chunk_span span;
    nd_chunk_span(&dataset->layout, index, &span);
    if (dataset->level == 0 && stored_bytes != span.n_bytes)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' has %zu bytes instead of %zu", index,
                       path, stored_bytes, span.n_bytes);
    enum nd_status status = nd_writer_reserve(dataset->writer, dataset->level > 0 ? stored_bytes : 0, err);
    if (status != ND_OK)
        return status;
    herr_t rc;
    if (dataset->level == 0)
        rc = write_block(dataset, &span, stored);
    else {
        hsize_t start[ND_MAX_RANK];
        for (int i = 0; i < dataset->layout.dataset.rank; i++)
            start[i] = (hsize_t)span.start[i];
        rc = H5Dwrite_chunk(dataset->id, H5P_DEFAULT, 0, start, stored_bytes, stored);
    }
    if (rc < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write chunk %zu of '%s'", index, path);
    dataset->is_stored[index] = 1;
    dataset->n_stored++;
    return ND_OK;
}

enum nd_status nd_writer_dataset_end(struct nd_capture_dataset **dataset_at, struct nd_error *err)
{
    struct nd_capture_dataset *dataset = *dataset_at;
    enum nd_status status = ND_OK;
    if (dataset->n_stored != dataset->layout.n_chunks)
        status = nd_fail(err, ND_E_CAPTURE_SCHEMA, dataset->path, "'%s' has %zu of its %zu chunks",
                         dataset->path, dataset->n_stored, dataset->layout.n_chunks);
    if (H5Dclose(dataset->id) < 0 && status == ND_OK)
        status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, dataset->path, "cannot write '%s'", dataset->path);
    dataset->id = H5I_INVALID_HID;
    nd_writer_dataset_destroy(dataset_at);
    return status;
}

/* All chunks of a tensor that lies in memory. */
enum nd_status nd_writer_dataset_fill(struct nd_capture_dataset *dataset, const unsigned char *data,
                                      struct nd_error *err)
{
    const struct nd_chunk_layout *layout = &dataset->layout;
    enum nd_status status = ND_OK;
    unsigned char *padded = nd_calloc(layout->chunk_bytes, 1);
    unsigned char *stored = nd_calloc(nd_chunk_bound(layout->chunk_bytes), 1);
    if (padded == NULL || stored == NULL)
        status = nd_fail_memory(err);
    for (size_t i = 0; i < layout->n_chunks && status == ND_OK; i++) {
        struct nd_chunk_span span;
        nd_chunk_span(layout, i, &span);
        const unsigned char *raw = data + span.first_sample * layout->sample_bytes + span.offset_bytes;
        size_t stored_bytes = span.n_bytes;
        if (dataset->level > 0) {
            memcpy(padded, raw, span.n_bytes);
            memset(padded + span.n_bytes, 0, layout->chunk_bytes - span.n_bytes);
            status = nd_chunk_encode(layout, padded, dataset->level, stored, &stored_bytes, err);
        }
        if (status == ND_OK)
            status = dataset_chunk(dataset, i, dataset->level > 0 ? stored : raw, stored_bytes, err);
    }
    free(padded);
    free(stored);
    return status;
}

enum nd_status nd_capture_writer_chunk(struct nd_capture_dataset *dataset, size_t index, const void *stored,
                                       size_t stored_bytes, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = dataset_chunk(dataset, index, stored, stored_bytes, err);
    nd_hdf5_unlock();
    return status;
}

enum nd_status nd_capture_writer_outputs_end(struct nd_capture_dataset **dataset, struct nd_error *err)
{
    nd_hdf5_lock();
    enum nd_status status = nd_writer_dataset_end(dataset, err);
    nd_hdf5_unlock();
    return status;
}
