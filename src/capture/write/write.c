/* The file of a capture while it is written, with its attributes, tables and logs; committed at once.
 * docs/reference/capture-format.md. */
#include "capture/write/write.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "capture/hdf5/index.h"
#include "capture/read/capture_internal.h"
#include "capture/read/schema.h"
#include "capture/write/write_internal.h"
#include "core/memory.h"

/* ---- room, groups, datasets and attributes ---- */

/* Metadata that libhdf5 may add between two reservations, and how much is reserved at once while there is
 * plenty. */
enum { RESERVE_SLACK = 256 * 1024, RESERVE_STEP = 16 * 1024 * 1024 };

/* 0 or an errno. Where the file system cannot reserve, zeros are written: the file is longer for a while. */
static int reserve_range(int fd, uint64_t from, uint64_t to)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY && to > limit.rlim_cur)
        return EFBIG;
    if (fallocate(fd, FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) == 0)
        return 0;
    if (errno != EOPNOTSUPP && errno != ENOSYS)
        return errno;
    return posix_fallocate(fd, (off_t)from, (off_t)(to - from));
}

/* libhdf5 does not hear of writes that fail. */
static enum nd_status check_written(const struct nd_capture_writer *writer, struct nd_error *err)
{
    if (writer->target.error == 0)
        return ND_OK;
    return nd_fail(err, ND_E_FILE_WRITE, writer->place.temporary, "cannot write '%s': %s",
                   writer->place.temporary, strerror(writer->target.error));
}

enum nd_status nd_writer_reserve(struct nd_capture_writer *writer, size_t n_bytes, struct nd_error *err)
{
    hsize_t used = 0;
    enum nd_status written = check_written(writer, err);
    if (written != ND_OK)
        return written;
    if (writer->file >= 0 && H5Fget_filesize(writer->file, &used) < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, writer->place.temporary, "cannot tell the size of '%s'",
                            writer->place.temporary);
    uint64_t needed;
    if (__builtin_add_overflow((uint64_t)used, (uint64_t)n_bytes + RESERVE_SLACK, &needed) ||
        needed > INT64_MAX - RESERVE_STEP)
        return nd_fail(err, ND_E_SIZE_OVERFLOW, writer->place.temporary, "'%s' would become too large",
                       writer->place.temporary);
    if (needed <= writer->reserved_bytes)
        return ND_OK;
    uint64_t wanted = needed + RESERVE_STEP;
    int error = reserve_range(writer->place.fd, writer->reserved_bytes, wanted);
    if (error != 0) {
        wanted = needed;
        error = reserve_range(writer->place.fd, writer->reserved_bytes, wanted);
    }
    if (error != 0)
        return nd_fail(err, ND_E_FILE_WRITE, writer->place.temporary, "cannot write '%s': %s",
                       writer->place.temporary, strerror(error));
    writer->reserved_bytes = wanted;
    return ND_OK;
}

enum nd_status nd_writer_group(struct nd_capture_writer *writer, const char *path, struct nd_error *err)
{
    ND_TRY(nd_writer_reserve(writer, 0, err));
    ND_FREED char *partial = nd_strdup(path);
    ND_CLEANUP(nd_hdf5_close) hid_t creation = H5Pcreate(H5P_GROUP_CREATE);
    if (partial == NULL || creation < 0 || H5Pset_obj_track_times(creation, false) < 0)
        return nd_fail_memory(err);
    for (char *at = partial + 1, kept = '/'; kept != '\0'; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        kept = *at;
        *at = '\0';
        htri_t exists = H5Lexists(writer->file, partial, H5P_DEFAULT);
        hid_t group = H5I_INVALID_HID;
        if (exists == 0)
            group = H5Gcreate2(writer->file, partial, H5P_DEFAULT, creation, H5P_DEFAULT);
        if (exists < 0 || (exists == 0 && (group < 0 || H5Gclose(group) < 0)))
            return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, partial, "cannot create group '%s'", partial);
        *at = kept;
    }
    return ND_OK;
}

enum nd_status nd_writer_make(struct nd_capture_writer *writer, const char *path, hid_t type,
                              const struct nd_writer_extent *extent, hid_t *out, struct nd_error *err)
{
    const struct nd_shape *shape = extent->shape, *chunk = extent->chunk;
    hsize_t dims[ND_MAX_RANK], max_dims[ND_MAX_RANK], chunk_dims[ND_MAX_RANK];
    size_t n_elems, n_bytes = 0;
    ND_TRY(nd_shape_n_elems(shape, &n_elems, err));
    if (chunk == NULL && !nd_size_mul(n_elems, H5Tget_size(type), &n_bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, path, "the size of '%s' does not fit", path);
    ND_TRY(nd_writer_reserve(writer, n_bytes, err));
    for (int i = 0; i < shape->rank; i++) {
        dims[i] = max_dims[i] = (hsize_t)shape->dims[i];
        chunk_dims[i] = chunk != NULL ? (hsize_t)chunk->dims[i] : 1;
        /* A capture that ended early keeps chunks that have room for more samples. */
        if (chunk_dims[i] > max_dims[i] && chunk != NULL)
            max_dims[i] = chunk_dims[i];
    }
    ND_CLEANUP(nd_hdf5_close) hid_t space = H5Screate_simple(shape->rank, dims, max_dims);
    ND_CLEANUP(nd_hdf5_close) hid_t creation = H5Pcreate(H5P_DATASET_CREATE);
    hid_t dataset = H5I_INVALID_HID;
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
    if (dataset < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot create dataset '%s'", path);
    *out = dataset;
    return ND_OK;
}

/* Makes a dataset and writes all of it; data NULL: it has no elements. */
static enum nd_status write_whole(struct nd_capture_writer *writer, const char *path, hid_t type,
                                  const struct nd_shape *shape, const void *data, struct nd_error *err)
{
    hid_t dataset = H5I_INVALID_HID;
    ND_TRY(nd_writer_make(writer, path, type, &(struct nd_writer_extent){.shape = shape}, &dataset, err));
    bool is_written = data == NULL || H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0;
    if (is_written && H5Dclose(dataset) >= 0)
        return ND_OK;
    enum nd_status status = nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write '%s'", path);
    if (!is_written)
        H5Dclose(dataset);
    return status;
}

enum nd_status nd_writer_put(struct nd_capture_writer *writer, char *path, enum nd_dtype dtype,
                             const struct nd_shape *shape, const void *data, struct nd_error *err)
{
    ND_FREED char *owned = path;
    ND_TRY_MEMORY(owned != NULL, err);
    size_t n_bytes;
    ND_TRY(nd_shape_size_bytes(shape, dtype, &n_bytes, err));
    ND_CLEANUP(nd_hdf5_close) hid_t type = nd_hdf5_type_make(dtype);
    return write_whole(writer, path, type, shape, n_bytes > 0 ? data : NULL, err);
}

/* An attribute lies in an object header, whose messages are shorter than 64 KiB. */
enum { MAX_ATTR_BYTES = 60000 };

enum nd_status nd_writer_put_attr(hid_t object, const char *path, const struct nd_writer_attr *attr,
                                  struct nd_error *err)
{
    const hsize_t dims[1] = {attr->n};
    bool is_text = attr->dtype == ND_DTYPE_NONE;
    size_t n_bytes = is_text ? attr->n : attr->n * nd_dtype_size_bytes(attr->dtype);
    if (n_bytes > MAX_ATTR_BYTES)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' has %zu bytes; at most %d fit",
                       attr->key, path, n_bytes, MAX_ATTR_BYTES);
    ND_CLEANUP(nd_hdf5_close)
    hid_t type = is_text ? nd_hdf5_text_make(attr->n > 0 ? attr->n : 1) : nd_hdf5_type_make(attr->dtype);
    ND_CLEANUP(nd_hdf5_close)
    hid_t space = attr->is_scalar ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, dims, NULL);
    hid_t made = H5Acreate2(object, attr->key, type, space, H5P_DEFAULT, H5P_DEFAULT);
    herr_t rc = made >= 0 ? H5Awrite(made, type, attr->data) : -1;
    if (made >= 0 && H5Aclose(made) < 0)
        rc = -1;
    if (rc < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot write attribute '%s' of '%s'", attr->key,
                            path);
    return ND_OK;
}

enum nd_status nd_writer_put_text(hid_t object, const char *path, const char *key, const char *text,
                                  struct nd_error *err)
{
    struct nd_writer_attr attr = {.key = key, .is_scalar = true, .n = strlen(text), .data = text};
    return nd_writer_put_attr(object, path, &attr, err);
}

enum nd_status nd_writer_put_i64(hid_t object, const char *path, const char *key, int64_t value,
                                 struct nd_error *err)
{
    struct nd_writer_attr attr = {.key = key, .dtype = ND_DTYPE_I64, .is_scalar = true, .n = 1, .data = &value};
    return nd_writer_put_attr(object, path, &attr, err);
}

static bool is_reserved(const struct nd_attr *attr)
{
    static const char *const keys[] = {"npudiff_format", "npudiff_version", "status", "content_digest"};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++)
        if (attr->group[0] == '\0' && strcmp(attr->key, keys[i]) == 0)
            return true;
    return false;
}

static enum nd_status put_public_attr(struct nd_capture_writer *writer, const char *path,
                                      const struct nd_attr *attr, struct nd_error *err)
{
    ND_TRY(nd_writer_reserve(writer, MAX_ATTR_BYTES, err));
    if (path[1] != '\0')
        ND_TRY(nd_writer_group(writer, path, err));
    ND_CLEANUP(nd_hdf5_close) hid_t group = H5Gopen2(writer->file, path, H5P_DEFAULT);
    if (group < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "cannot open group '%s'", path);
    bool is_whole_number = attr->type == ND_ATTR_I64;
    struct nd_writer_attr made = {.key = attr->key,
                                  .dtype = is_whole_number ? ND_DTYPE_I64 : ND_DTYPE_F64,
                                  .is_scalar = true,
                                  .n = 1,
                                  .data = is_whole_number ? (const void *)&attr->i64 : &attr->f64};
    if (attr->type == ND_ATTR_STRING) {
        made.dtype = ND_DTYPE_NONE;
        made.data = attr->string != NULL ? attr->string : "";
        made.n = strlen(made.data);
    }
    return H5Aexists(group, attr->key) <= 0 ? nd_writer_put_attr(group, path, &made, err)
                                            : nd_fail(err, ND_E_CAPTURE_SCHEMA, path,
                                                      "attribute '%s' of '%s' is given twice", attr->key, path);
}

enum nd_status nd_capture_writer_attr(struct nd_capture_writer *writer, const struct nd_attr *attr,
                                      struct nd_error *err)
{
    if (is_reserved(attr))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, "/", "attribute '%s' of '/' is written by the capture itself",
                       attr->key);
    char path[64];
    if (snprintf(path, sizeof path, "/%s", attr->group) >= (int)sizeof path)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, attr->group, "no group '%s' in a capture", attr->group);
    ND_HDF5_LOCKED;
    return put_public_attr(writer, path, attr, err);
}

/* ---- tables ---- */

static const char *text_cell(const struct nd_stored_column *column, size_t i)
{
    const char *text;
    memcpy(&text, nd_stored_cell(column, i), sizeof text);
    return text != NULL ? text : "";
}

static enum nd_status put_texts(struct nd_capture_writer *writer, const struct nd_stored_column *column,
                                struct nd_error *err)
{
    size_t width = 1, n_bytes = 0;
    for (size_t i = 0; i < column->n; i++) {
        size_t length = strlen(text_cell(column, i));
        width = length > width ? length : width;
    }
    ND_FREED char *texts = nd_size_mul(column->n, width, &n_bytes) ? nd_calloc(n_bytes, 1) : NULL;
    ND_TRY_MEMORY(texts != NULL, err);
    for (size_t i = 0; i < column->n; i++) {
        const char *text = text_cell(column, i);
        memcpy(texts + i * width, text, strlen(text));
    }
    ND_CLEANUP(nd_hdf5_close) hid_t type = nd_hdf5_text_make(width);
    return write_whole(writer, column->path, type, &column->shape, column->n > 0 ? texts : NULL, err);
}

static enum nd_status put_numbers(struct nd_capture_writer *writer, const struct nd_stored_column *column,
                                  struct nd_error *err)
{
    bool is_wanted = !column->column->is_optional;
    ND_FREED char *numbers = nd_calloc(column->n, column->cell_bytes);
    ND_TRY_MEMORY(numbers != NULL, err);
    for (size_t i = 0; i < column->n; i++)
        memcpy(numbers + i * column->cell_bytes, nd_stored_cell(column, i), column->cell_bytes);
    for (size_t k = 0; k < column->n * column->cell_bytes && !is_wanted; k++)
        is_wanted = numbers[k] != 0;
    if (!is_wanted)
        return ND_OK;
    return nd_writer_put(writer, nd_strdup(column->path), column->column->dtype, &column->shape, numbers, err);
}

static enum nd_status put_column(void *writer, const struct nd_stored_column *column, struct nd_error *err)
{
    return (column->column->dtype == ND_DTYPE_NONE ? put_texts : put_numbers)(writer, column, err);
}

/* The columns of a table of n rows, which nobody writes to. */
static enum nd_status put_table(struct nd_capture_writer *writer, const struct nd_stored_table *table,
                                const void *rows, size_t n, struct nd_error *err)
{
    ND_TRY(nd_writer_group(writer, table->path, err));
    return nd_stored_table_visit(table, (void *)(uintptr_t)rows, n, put_column, writer, err);
}

/* The row only shows the tensor's texts; nobody writes to them. */
static struct nd_tensor_row row_of(const struct nd_tensor *tensor, const char *provider)
{
    struct nd_tensor_row row = {
        .name = tensor->name,
        .onnx_name = tensor->onnx_name,
        .op_types = tensor->op_types,
        .node = tensor->node,
        .provider = (char *)(uintptr_t)provider,
        .dtype = (char *)(uintptr_t)nd_dtype_name(tensor->dtype),
        .rank = tensor->shape.rank,
        .is_model_input = tensor->is_model_input,
        .is_model_output = tensor->is_model_output,
        .quant_n = (int64_t)tensor->quant.n,
        .quant_axis = tensor->quant.n > 0 ? tensor->quant.axis : -1,
    };
    for (int d = 0; d < tensor->shape.rank && d < ND_MAX_RANK; d++)
        row.dims[d] = tensor->shape.dims[d];
    return row;
}

static enum nd_status put_tensors(struct nd_capture_writer *writer, const struct nd_tensor *tensors,
                                  const char *const *providers, size_t n, struct nd_error *err)
{
    size_t n_scales = 0;
    for (size_t i = 0; i < n; i++)
        n_scales += tensors[i].quant.n;
    ND_FREED struct nd_tensor_row *rows = nd_calloc(n, sizeof *rows);
    ND_FREED struct nd_scale_row *scales = nd_calloc(n_scales, sizeof *scales);
    ND_TRY_MEMORY(rows != NULL && scales != NULL, err);
    for (size_t i = 0, at = 0; i < n; i++) {
        rows[i] = row_of(&tensors[i], providers[i]);
        for (size_t q = 0; q < tensors[i].quant.n; q++, at++)
            scales[at] = (struct nd_scale_row){tensors[i].quant.scale[q], tensors[i].quant.zero_point[q]};
    }
    ND_TRY(put_table(writer, &nd_tensor_table, rows, n, err));
    ND_TRY(put_table(writer, &nd_scale_table, scales, n_scales, err));
    ND_TRY(put_table(writer, &nd_dims_table, rows, n, err));
    writer->has_tensors = true;
    writer->n_tensors = n;
    return ND_OK;
}

static enum nd_status put_nodes(struct nd_capture_writer *writer, const struct nd_capture_node *nodes, size_t n,
                                struct nd_error *err)
{
    writer->has_nodes = true;
    return put_table(writer, &nd_node_table, nodes, n, err);
}

/* Writes the tables that were not given, empty. */
static enum nd_status nd_writer_put_missing_tables(struct nd_capture_writer *writer, struct nd_error *err)
{
    ND_TRY(writer->has_tensors ? ND_OK : put_tensors(writer, NULL, NULL, 0, err));
    return writer->has_nodes ? ND_OK : put_nodes(writer, NULL, 0, err);
}

enum nd_status nd_capture_writer_tensors(struct nd_capture_writer *writer, const struct nd_tensor *tensors,
                                         const char *const *providers, size_t n_tensors, struct nd_error *err)
{
    ND_HDF5_LOCKED;
    return put_tensors(writer, tensors, providers, n_tensors, err);
}

enum nd_status nd_capture_writer_nodes(struct nd_capture_writer *writer, const struct nd_capture_node *nodes,
                                       size_t n_nodes, struct nd_error *err)
{
    ND_HDF5_LOCKED;
    return put_nodes(writer, nodes, n_nodes, err);
}

enum nd_status nd_capture_writer_findings(struct nd_capture_writer *writer,
                                          const struct nd_capture_finding *rows, size_t n_rows,
                                          struct nd_error *err)
{
    ND_HDF5_LOCKED;
    return put_table(writer, &nd_finding_table, rows, n_rows, err);
}

enum nd_status nd_capture_writer_log(struct nd_capture_writer *writer, const char *name, const char *text,
                                     size_t text_bytes, struct nd_error *err)
{
    struct nd_shape shape = {.rank = 1, .dims = {(int64_t)text_bytes}};
    ND_HDF5_LOCKED;
    ND_TRY(nd_writer_group(writer, "/logs", err));
    return nd_writer_put(writer, nd_name_path("/logs", name), ND_DTYPE_U8, &shape, text, err);
}

/* ---- the file ---- */

/* Written first with zeros so that commit only overwrites bytes in place and the file's structure stays. */
static const char no_digest[] = "00000000000000000000000000000000";

/* libhdf5 takes places for metadata out of blocks of this size, and may leave the last one unused. Who reads a
 * capture on a server fetches few large blocks sooner than many small ones. A block is at most 1/1024 of the
 * bytes of the values (chosen: so much may stay unused; deflated they have less), and of 64 KiB at most, from
 * which on little is gained: of two equal captures of the ViT (55 MB, 64 tensors) 2.24 % was read with blocks
 * of 2 KiB, 1.44 % with 8 KiB, 1.14 % with 16 KiB, 0.93 % with 64 KiB (2026-11-24). */
enum { MIN_METADATA_BLOCK = 2048 /* libhdf5's own */, MAX_METADATA_BLOCK = 64 << 10, METADATA_SHARE = 1024 };

static hsize_t metadata_block(uint64_t value_bytes)
{
    hsize_t n_bytes = MIN_METADATA_BLOCK;
    while (n_bytes < MAX_METADATA_BLOCK && 2 * n_bytes <= value_bytes / METADATA_SHARE)
        n_bytes *= 2;
    return n_bytes;
}

static hid_t make_access(struct nd_capture_writer *writer)
{
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access >= 0 && (nd_write_driver_set(access, &writer->target) < 0 ||
                        H5Pset_meta_block_size(access, metadata_block(writer->value_bytes)) < 0 ||
                        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0 ||
                        H5Pset_libver_bounds(access, H5F_LIBVER_EARLIEST, H5F_LIBVER_LATEST) < 0)) {
        H5Pclose(access);
        return H5I_INVALID_HID;
    }
    return access;
}

/* The nodes in which libhdf5 keeps the places of chunks have room for twice this; 32, its own, makes each node
 * 3 kB, of which a tensor of 2 MB uses an eighth. Chosen: with 4, two equal captures of the ViT of 30 MB are
 * read by 0.91 % instead of 1.78 %, with 8 by 1.04 % (2026-11-24), and the files are smaller. */
enum { HALF_CHUNK_NODE = 4 };

static enum nd_status create_file(struct nd_capture_writer *writer, struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t access = make_access(writer);
    ND_CLEANUP(nd_hdf5_close) hid_t creation = H5Pcreate(H5P_FILE_CREATE);
    /* We made the file a moment ago under a name that nobody could guess; only that one is ever truncated. */
    if (access >= 0 && creation >= 0 && H5Pset_obj_track_times(creation, false) >= 0 &&
        H5Pset_istore_k(creation, HALF_CHUNK_NODE) >= 0)
        writer->file = H5Fcreate(writer->place.temporary, H5F_ACC_TRUNC, creation, access);
    if (writer->file < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, writer->place.temporary, "cannot create '%s'",
                            writer->place.temporary);
    writer->reserved_bytes = 0; /* creating has cut the file */
    ND_TRY(nd_writer_reserve(writer, 0, err));
    ND_TRY(nd_writer_put_i64(writer->file, "/", "npudiff_format", ND_CAPTURE_FORMAT, err));
    ND_TRY(nd_writer_put_text(writer->file, "/", "npudiff_version", nd_version(), err));
    ND_TRY(nd_writer_put_text(writer->file, "/", "content_digest", no_digest, err));
    return nd_writer_group(writer, "/probes", err);
}

void nd_capture_writer_destroy(struct nd_capture_writer **writer_at)
{
    struct nd_capture_writer *writer = *writer_at;
    if (writer == NULL)
        return;
    if (writer->file >= 0) {
        nd_hdf5_lock();
        H5Fclose(writer->file);
        H5Eclear2(H5E_DEFAULT);
        nd_hdf5_unlock();
    }
    nd_write_target_deinit(&writer->target);
    nd_new_file_discard(&writer->place);
    free(writer);
    *writer_at = NULL;
}

enum nd_status nd_capture_writer_create_large(const char *final_path, bool replace, uint64_t value_bytes,
                                              struct nd_capture_writer **out, struct nd_error *err)
{
    ND_CLEANUP(nd_capture_writer_destroy) struct nd_capture_writer *writer = nd_calloc(1, sizeof *writer);
    ND_TRY_MEMORY(writer != NULL, err);
    *writer = (struct nd_capture_writer){.file = H5I_INVALID_HID, .value_bytes = value_bytes};
    enum nd_status status = nd_new_file_create(final_path, replace, &writer->place, err);
    nd_write_target_init(&writer->target, writer->place.fd);
    if (status == ND_OK) {
        nd_hdf5_lock();
        status = nd_writer_reserve(writer, 0, err);
        if (status == ND_OK)
            status = create_file(writer, err);
        nd_hdf5_unlock();
    }
    return status == ND_OK ? ND_GIVE(out, writer) : status;
}

enum nd_status nd_capture_writer_create(const char *final_path, bool replace, struct nd_capture_writer **out,
                                        struct nd_error *err)
{
    return nd_capture_writer_create_large(final_path, replace, 0, out, err);
}

void nd_capture_writer_level(struct nd_capture_writer *writer, int level)
{
    writer->level = level;
}

/* Closes the file and says so when the last bytes did not reach the disk. */
static enum nd_status close_checked(struct nd_capture_writer *writer, struct nd_error *err)
{
    hsize_t n_bytes = 0;
    /* Flushing first: a close that fails half-way leaves no id to abandon properly. */
    if (H5Fflush(writer->file, H5F_SCOPE_LOCAL) < 0 || H5Fget_filesize(writer->file, &n_bytes) < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, writer->place.temporary, "cannot write '%s'",
                            writer->place.temporary);
    herr_t rc = H5Fclose(writer->file);
    writer->file = H5I_INVALID_HID;
    if (rc < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, writer->place.temporary, "cannot close '%s'",
                            writer->place.temporary);
    ND_TRY(check_written(writer, err));
    if (ftruncate(writer->place.fd, (off_t)n_bytes) != 0) /* gives back what was reserved and not used */
        return nd_fail(err, ND_E_FILE_WRITE, writer->place.temporary, "cannot write '%s': %s",
                       writer->place.temporary, strerror(errno));
    return ND_OK;
}

static enum nd_status finish_content(struct nd_capture_writer *writer, enum nd_capture_status state,
                                     struct nd_error *err)
{
    ND_HDF5_LOCKED;
    ND_TRY(nd_writer_put_missing_tables(writer, err));
    ND_TRY(nd_writer_put_text(writer->file, "/", "status", nd_capture_state_name(state), err));
    return close_checked(writer, err);
}

/* What is stated of the digests of each tensor, in the place that is reserved for it. */
static herr_t store_tensor_digests(struct nd_capture_writer *writer, const struct nd_capture *capture, size_t p)
{
    const struct nd_probe_data *data = &capture->probes[p];
    if (data->tensor_digests == NULL)
        return 0;
    ND_FREED char *path = nd_name_probe_path(data->probe.name, ND_TENSOR_DIGESTS, NULL);
    for (size_t e = 0; e < capture->n_tensors; e++)
        data->tensor_digests[e] = nd_capture_make_tensor_digest(capture, p, e);
    ND_CLEANUP(nd_hdf5_close) hid_t type = nd_hdf5_type_make(ND_DTYPE_U64);
    hid_t dataset = path != NULL ? H5Dopen2(writer->file, path, H5P_DEFAULT) : H5I_INVALID_HID;
    if (dataset < 0)
        return -1;
    herr_t rc = H5Dwrite(dataset, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data->tensor_digests);
    return H5Dclose(dataset) < 0 ? -1 : rc;
}

static enum nd_status store_digests(struct nd_capture_writer *writer, const struct nd_capture *capture,
                                    const char *digest, struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t type = nd_hdf5_text_make(sizeof no_digest - 1);
    ND_CLEANUP(nd_hdf5_close) hid_t access = make_access(writer);
    hid_t attr = H5I_INVALID_HID;
    if (access >= 0)
        writer->file = H5Fopen(writer->place.temporary, H5F_ACC_RDWR, access);
    if (writer->file >= 0)
        attr = H5Aopen(writer->file, "content_digest", H5P_DEFAULT);
    herr_t rc = attr >= 0 ? H5Awrite(attr, type, digest) : -1;
    for (size_t p = 0; rc >= 0 && p < capture->n_probes; p++)
        rc = store_tensor_digests(writer, capture, p);
    if ((attr >= 0 && H5Aclose(attr) < 0) || rc < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, writer->place.temporary, "cannot write the digests of '%s'",
                            writer->place.temporary);
    return close_checked(writer, err);
}

enum nd_status nd_capture_writer_commit(struct nd_capture_writer *writer, enum nd_capture_status state,
                                        struct nd_error *err)
{
    struct nd_capture *capture = NULL;
    char digest[ND_CONTENT_DIGEST_BYTES];
    enum nd_status status = finish_content(writer, state, err);
    /* Read back by the very quantised value that will read it later: a capture that breaks the schema is never
     * published.
     */
    if (status == ND_OK)
        status = nd_capture_open_unchecked(writer->place.temporary, &capture, err);
    if (status == ND_OK)
        status = nd_content_digest(capture->index, NULL, digest, err);
    if (status == ND_OK) {
        nd_hdf5_lock();
        status = store_digests(writer, capture, digest, err);
        nd_hdf5_unlock();
    }
    nd_capture_close(&capture);
    return status == ND_OK ? nd_new_file_commit(&writer->place, err) : status;
}
