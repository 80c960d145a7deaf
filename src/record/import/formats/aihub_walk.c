/* Walks a dataset of AI Hub by libhdf5 and hands out its samples. Runs in the confined child. */
#include "record/import/imported.h"

#include <stdio.h>

#include "capture/hdf5/chunk_decode.h"
#include "capture/hdf5/index.h"
#include "capture/hdf5/libhdf5.h"
#include "core/items.h"

/* Datasets of strangers' HDF5 files as arrays: libhdf5 tells their type, shape and place, and reads no data;
 * chunks of any form are read and decoded here. All calls are made with nd_hdf5_lock held. */

struct nd_hdf5_array {
    const char *path, *what; /* as given to nd_hdf5_array_describe, borrowed */
    enum nd_dtype dtype;
    bool is_big_endian;
    struct nd_shape shape;
    size_t n_bytes;
};

enum { MAX_EXPANSION = 1032 }; /* deflate cannot do better */
/* Chosen. A chunk may go beyond its array, where that can grow; h5py's own are up to 1 MiB. */
enum { BASE_CHUNK_BYTES = 16 << 20 };

/* ---- what it is ---- */

/* h5py's bool is an enumeration of int8. */
static bool is_bool_type(hid_t type)
{
    signed char value = -1;
    return H5Tget_class(type) == H5T_ENUM && H5Tget_size(type) == 1 && H5Tget_nmembers(type) == 2 &&
           H5Tenum_valueof(type, "FALSE", &value) >= 0 && value == 0 &&
           H5Tenum_valueof(type, "TRUE", &value) >= 0 && value == 1;
}

static enum nd_dtype find_dtype(hid_t type, bool *is_big_endian)
{
    *is_big_endian = false;
    if (is_bool_type(type))
        return ND_DTYPE_BOOL;
    H5T_class_t type_class = H5Tget_class(type);
    if (type_class != H5T_INTEGER && type_class != H5T_FLOAT)
        return ND_DTYPE_NONE;
    ND_CLEANUP(nd_hdf5_close) hid_t little = H5Tcopy(type);
    *is_big_endian = H5Tget_size(type) > 1 && H5Tget_order(type) == H5T_ORDER_BE;
    return H5Tset_order(little, H5T_ORDER_LE) >= 0 ? nd_hdf5_type_dtype(little) : ND_DTYPE_NONE;
}

/* What the open dataset holds. path is the file, what the dataset in it ("'/data/0/batch_0'").
 * ND_E_IMPORT_TYPE: not numbers, or too many dimensions. */
static enum nd_status nd_hdf5_array_describe(hid_t dataset, const char *path, const char *what,
                                             struct nd_hdf5_array *out, struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hsize_t dims[ND_MAX_RANK] = {0};
    struct nd_hdf5_array made = {.path = path, .what = what};
    H5S_class_t space_class = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_ndims(space);
    made.dtype = find_dtype(type, &made.is_big_endian);
    if (made.dtype == ND_DTYPE_NONE)
        return nd_fail(err, ND_E_IMPORT_TYPE, path, "%s of '%s' does not hold numbers of 8 to 64 bits", what,
                       path);
    if ((space_class != H5S_SIMPLE && space_class != H5S_SCALAR) || rank < 0 || rank >= ND_MAX_RANK)
        return nd_fail(err, ND_E_IMPORT_TYPE, path, "%s of '%s' has %d dimensions; at most %d are stored", what,
                       path, rank, ND_MAX_RANK - 1);
    if (rank > 0 && H5Sget_simple_extent_dims(space, dims, NULL) != rank)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, path, "the shape of %s of '%s' cannot be read", what,
                            path);
    made.shape.rank = rank;
    for (int d = 0; d < rank; d++) /* beyond INT64_MAX it becomes negative and is refused below */
        made.shape.dims[d] = (int64_t)dims[d];
    ND_TRY(nd_shape_size_bytes(&made.shape, made.dtype, &made.n_bytes, err));
    *out = made;
    return ND_OK;
}

/* ---- its data ---- */

struct reading {
    hid_t dataset;
    struct nd_aihub_source *source;
    const struct nd_hdf5_array *array;
    size_t elem_bytes;
    unsigned char *out;
    /* Of a chunked dataset. */
    struct nd_shape chunk;
    size_t chunk_bytes;
    bool has_shuffle, has_deflate;
    unsigned shuffle_bit, deflate_bit;
    unsigned char *stored, *raw;
    size_t stored_capacity;
    struct nd_chunk_decoder decoder;
};

static enum nd_status read_file(void *context, uint64_t offset, void *buf, size_t n_bytes, struct nd_error *err)
{
    const struct nd_aihub_source *source = context;
    const struct nd_index file = {.fd = source->fd};
    return nd_index_read_at(&file, source->path, offset, buf, n_bytes, err);
}

/* No byte of the file is a value of two samples. */
static enum nd_status read_values(const struct reading *r, uint64_t offset, void *buf, size_t n_bytes,
                                  struct nd_error *err)
{
    struct nd_aihub_source *source = r->source;
    if (offset > source->file_bytes || n_bytes > source->file_bytes - offset)
        return nd_fail(err, ND_E_IMPORT_FORMAT, r->array->path, "the data of %s lies beyond the end of '%s'",
                       r->array->what, r->array->path);
    if (n_bytes > source->file_bytes - source->n_taken)
        return nd_fail(err, ND_E_IMPORT_FORMAT, r->array->path,
                       "%s of '%s' shares its data with other samples: together they are larger than the file",
                       r->array->what, r->array->path);
    source->n_taken += n_bytes;
    return read_file(source, offset, buf, n_bytes, err);
}

static enum nd_status read_contiguous(const struct reading *r, hid_t creation, struct nd_error *err)
{
    if (H5Pget_external_count(creation) != 0)
        return nd_fail(err, ND_E_IMPORT_FORMAT, r->array->path, "%s of '%s' keeps its data in a different file",
                       r->array->what, r->array->path);
    haddr_t offset = H5Dget_offset(r->dataset);
    if (offset == HADDR_UNDEF || H5Dget_storage_size(r->dataset) != r->array->n_bytes) {
        H5Eclear2(H5E_DEFAULT);
        return nd_fail(err, ND_E_IMPORT_FORMAT, r->array->path, "the data of %s of '%s' is missing",
                       r->array->what, r->array->path);
    }
    return read_values(r, offset, r->out, r->array->n_bytes, err);
}

static enum nd_status read_filters(struct reading *r, hid_t creation, struct nd_error *err)
{
    int n = H5Pget_nfilters(creation);
    for (int i = 0; i < n; i++) {
        unsigned flags, values[8] = {0};
        size_t n_values = sizeof values / sizeof values[0];
        H5Z_filter_t filter = H5Pget_filter2(creation, (unsigned)i, &flags, &n_values, values, 0, NULL, NULL);
        if (filter == H5Z_FILTER_SHUFFLE && i == 0 && n_values >= 1 && values[0] == r->elem_bytes) {
            r->has_shuffle = true;
            r->shuffle_bit = 1u << i;
        } else if (filter == H5Z_FILTER_DEFLATE && i == n - 1) {
            r->has_deflate = true;
            r->deflate_bit = 1u << i;
        } else {
            return nd_fail(err, ND_E_IMPORT_TYPE, r->array->path,
                           "%s of '%s' uses the HDF5 filter %d; only SHUFFLE before DEFLATE (gzip) is read",
                           r->array->what, r->array->path, (int)filter);
        }
    }
    return n >= 0 ? ND_OK
                  : nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, r->array->path,
                                 "the filters of %s of '%s' cannot be read", r->array->what, r->array->path);
}

/* The part of the decoded chunk that lies inside the array, row by row of the last dimension. */
static void scatter(const struct reading *r, const hsize_t start[])
{
    const struct nd_shape *shape = &r->array->shape, *chunk = &r->chunk;
    int last = shape->rank - 1;
    size_t n[ND_MAX_RANK], index[ND_MAX_RANK] = {0}, n_rows = 1;
    for (int d = 0; d <= last; d++) {
        size_t left = (size_t)shape->dims[d] - (size_t)start[d];
        n[d] = left < (size_t)chunk->dims[d] ? left : (size_t)chunk->dims[d];
        n_rows *= d < last ? n[d] : 1;
    }
    for (size_t row = 0; row < n_rows; row++) {
        size_t from = 0, to = 0;
        for (int d = 0; d <= last; d++) {
            from = from * (size_t)chunk->dims[d] + index[d];
            to = to * (size_t)shape->dims[d] + (size_t)start[d] + index[d];
        }
        memcpy(r->out + to * r->elem_bytes, r->raw + from * r->elem_bytes, n[last] * r->elem_bytes);
        for (int d = last - 1; d >= 0 && ++index[d] == n[d]; d--)
            index[d] = 0;
    }
}

static enum nd_status read_chunk(struct reading *r, const hsize_t start[], struct nd_error *err)
{
    unsigned mask = 0;
    haddr_t offset = HADDR_UNDEF;
    hsize_t n_stored = 0;
    if (H5Dget_chunk_info_by_coord(r->dataset, start, &mask, &offset, &n_stored) < 0 || offset == HADDR_UNDEF)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, r->array->path, "a chunk of %s of '%s' is missing",
                            r->array->what, r->array->path);
    bool is_deflated = r->has_deflate && (mask & r->deflate_bit) == 0;
    bool is_possible = is_deflated ? r->chunk_bytes / MAX_EXPANSION <= n_stored : r->chunk_bytes == n_stored;
    if (!is_possible || n_stored > r->source->file_bytes)
        return nd_fail(err, ND_E_IMPORT_FORMAT, r->array->path,
                       "a chunk of %s of '%s' cannot hold %zu bytes in %llu", r->array->what, r->array->path,
                       r->chunk_bytes, (unsigned long long)n_stored);
    ND_TRY_MEMORY(nd_grow((void **)&r->stored, &r->stored_capacity, (size_t)n_stored, 1), err);
    ND_TRY(read_values(r, offset, r->stored, (size_t)n_stored, err));
    const struct nd_stored_chunk stored = {.bytes = r->stored,
                                           .n_bytes = (size_t)n_stored,
                                           .elem_bytes = r->elem_bytes,
                                           .is_shuffled = r->has_shuffle && (mask & r->shuffle_bit) == 0,
                                           .is_deflated = is_deflated};
    enum nd_status status = nd_chunk_decode(&r->decoder, &stored, r->raw, r->chunk_bytes, err);
    if (status != ND_OK)
        nd_error_context(err, "%s of '%s'", r->array->what, r->array->path);
    else
        scatter(r, start);
    return status;
}

static enum nd_status read_chunks(struct reading *r, hid_t creation, struct nd_error *err)
{
    const struct nd_shape *shape = &r->array->shape;
    hsize_t dims[ND_MAX_RANK] = {0}, start[ND_MAX_RANK] = {0};
    ND_TRY(read_filters(r, creation, err));
    if (H5Pget_chunk(creation, ND_MAX_RANK, dims) != shape->rank)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, r->array->path,
                            "the chunks of %s of '%s' have another rank", r->array->what, r->array->path);
    r->chunk.rank = shape->rank;
    double n_chunks = 1;
    for (int d = 0; d < shape->rank; d++) {
        r->chunk.dims[d] = (int64_t)dims[d];
        n_chunks *= dims[d] > 0 ? (double)shape->dims[d] / (double)dims[d] : 0;
    }
    ND_TRY(nd_shape_size_bytes(&r->chunk, r->array->dtype, &r->chunk_bytes, err));
    size_t max_chunk_bytes = r->array->n_bytes > BASE_CHUNK_BYTES ? r->array->n_bytes : BASE_CHUNK_BYTES;
    if (r->chunk_bytes == 0 || r->chunk_bytes > max_chunk_bytes || n_chunks > (double)r->source->file_bytes)
        return nd_fail(err, ND_E_IMPORT_FORMAT, r->array->path, "%s of '%s' has chunks that cannot be",
                       r->array->what, r->array->path);
    r->raw = malloc(r->chunk_bytes);
    ND_TRY_MEMORY(r->raw != NULL, err);
    for (bool is_done = false; !is_done;) {
        ND_TRY(read_chunk(r, start, err));
        int d = shape->rank - 1;
        for (; d >= 0 && (start[d] += dims[d]) >= (hsize_t)shape->dims[d]; d--)
            start[d] = 0;
        is_done = d < 0;
    }
    return ND_OK;
}

static void swap_bytes(unsigned char *data, size_t n_bytes, size_t size)
{
    for (unsigned char *at = data; at < data + n_bytes; at += size)
        for (size_t a = 0, b = size - 1; a < b; a++, b--) {
            unsigned char kept = at[a];
            at[a] = at[b];
            at[b] = kept;
        }
}

/* Its n_bytes into out, little endian, C order. ND_E_IMPORT_FORMAT: data that is missing, outside of the file,
 * cannot be decoded or is smaller than it claims; a filter other than SHUFFLE and DEFLATE. */
static enum nd_status nd_hdf5_array_read(hid_t dataset, struct nd_aihub_source *source,
                                         const struct nd_hdf5_array *array, void *out, struct nd_error *err)
{
    struct reading r = {.dataset = dataset,
                        .source = source,
                        .array = array,
                        .elem_bytes = nd_dtype_size_bytes(array->dtype),
                        .out = out};
    if (array->n_bytes == 0)
        return ND_OK;
    hid_t creation = H5Dget_create_plist(dataset);
    H5D_layout_t layout = H5Pget_layout(creation);
    enum nd_status status =
        layout == H5D_CONTIGUOUS ? read_contiguous(&r, creation, err)
        : layout == H5D_CHUNKED && array->shape.rank > 0
            ? read_chunks(&r, creation, err)
            : nd_fail(err, ND_E_IMPORT_TYPE, array->path, "%s of '%s' is neither contiguous nor chunked",
                      array->what, array->path);
    H5Pclose(creation);
    ND_FREE_ALL(r.stored, r.raw);
    nd_chunk_decoder_deinit(&r.decoder);
    if (status == ND_OK && array->is_big_endian)
        swap_bytes(out, array->n_bytes, r.elem_bytes);
    return status;
}

enum {
    MAX_TENSORS = 100000,
    MAX_SAMPLES = 10000000,
    MAX_NAME_BYTES = 65536,
};

struct aihub {
    const char *path;
    struct nd_aihub_source *source;
    nd_aihub_visit visit;
    void *context;
    hid_t data; /* the group /data */
};

/* One sub-group of /data. */
struct entry {
    char *group; /* its link's name */
    char *name;
    int64_t order; /* -1: none */
    int64_t n_samples;
};

struct entries {
    size_t n;
    size_t capacity;
    struct entry *items;
};

/* ---- attributes ---- */

/* An attribute of one value of that class. */
struct single {
    hid_t attr;
    hid_t type;
    bool is_right;
};

static void open_single(struct single *single, hid_t group, const char *key, H5T_class_t class)
{
    hid_t attr = H5Aopen(group, key, H5P_DEFAULT);
    hid_t type = attr >= 0 ? H5Aget_type(attr) : H5I_INVALID_HID;
    ND_CLEANUP(nd_hdf5_close) hid_t space = attr >= 0 ? H5Aget_space(attr) : H5I_INVALID_HID;
    bool is_right = attr >= 0 && H5Tget_class(type) == class && H5Sget_simple_extent_npoints(space) == 1;
    *single = (struct single){attr, type, is_right};
}

static void close_single(struct single *single)
{
    H5Eclear2(H5E_DEFAULT);
    nd_hdf5_close(&single->type);
    nd_hdf5_close(&single->attr);
}

static enum nd_status read_integer(const struct aihub *hub, hid_t group, const char *what, const char *key,
                                   int64_t *out, struct nd_error *err)
{
    struct single single;
    open_single(&single, group, key, H5T_INTEGER);
    bool is_one = single.is_right && H5Aread(single.attr, H5T_NATIVE_INT64, out) >= 0;
    close_single(&single);
    return is_one ? ND_OK
                  : nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' has no whole number '%s'", what,
                            hub->path, key);
}

/* Text of fixed or of variable length, in new memory; NULL when it is none. */
static char *read_attr_text(hid_t attr, hid_t type)
{
    char *text = NULL;
    if (H5Tis_variable_str(type) > 0) {
        char *stored = NULL;
        if (H5Aread(attr, type, &stored) >= 0 && stored != NULL)
            text = nd_strdup(stored);
        if (stored != NULL)
            H5free_memory(stored);
        return text;
    }
    size_t n = H5Tget_size(type);
    text = n > 0 && n <= MAX_NAME_BYTES ? nd_calloc(n + 1, 1) : NULL;
    if (text != NULL && H5Aread(attr, type, text) < 0) {
        free(text);
        return NULL;
    }
    return text;
}

static enum nd_status read_name(const struct aihub *hub, hid_t group, const char *what, char **out,
                                struct nd_error *err)
{
    struct single single;
    open_single(&single, group, "name", H5T_STRING);
    char *text = single.is_right ? read_attr_text(single.attr, single.type) : NULL;
    close_single(&single);
    if (text == NULL)
        return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' has no text 'name'", what, hub->path);
    *out = text;
    return ND_OK;
}

static enum nd_status read_entry(const struct aihub *hub, struct entry *entry, struct nd_error *err)
{
    char what[300];
    snprintf(what, sizeof what, "'/data/%.250s'", entry->group);
    ND_CLEANUP(nd_hdf5_close) hid_t group = H5Gopen2(hub->data, entry->group, H5P_DEFAULT);
    if (group < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' is no group", what, hub->path);
    ND_TRY(read_name(hub, group, what, &entry->name, err));
    ND_TRY(read_integer(hub, group, what, "batch_count", &entry->n_samples, err));
    entry->order = -1;
    if (H5Aexists(group, "order") > 0)
        ND_TRY(read_integer(hub, group, what, "order", &entry->order, err));
    if (entry->n_samples < 1 || entry->n_samples > MAX_SAMPLES)
        return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path, "%s of '%s' has a batch_count of %lld", what,
                       hub->path, (long long)entry->n_samples);
    return ND_OK;
}

/* ---- the groups of /data ---- */

struct listing {
    struct entries *entries;
    const struct aihub *hub;
    struct nd_error *err;
    enum nd_status status;
};

static herr_t keep_link(hid_t group, const char *name, const H5L_info_t *info, void *context)
{
    (void)group;
    struct listing *listing = context;
    struct entries *entries = listing->entries;
    if (info->type != H5L_TYPE_HARD || entries->n >= MAX_TENSORS)
        listing->status =
            nd_fail(listing->err, ND_E_IMPORT_FORMAT, listing->hub->path,
                    info->type != H5L_TYPE_HARD ? "'/data/%.250s' of '%s' is a soft or external link"
                                                : "'/data' has too many groups ('%.250s' of '%s')",
                    name, listing->hub->path);
    else if (!nd_grow((void **)&entries->items, &entries->capacity, entries->n + 1, sizeof *entries->items) ||
             (entries->items[entries->n] = (struct entry){.group = nd_strdup(name)}).group == NULL)
        listing->status = nd_fail_memory(listing->err);
    else
        entries->n++;
    return listing->status == ND_OK ? 0 : -1;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* All have a place or none has one; places count from 0. */
static enum nd_status sort_entries(const struct aihub *hub, struct entries *entries, struct nd_error *err)
{
    size_t n_ordered = 0;
    for (size_t i = 0; i < entries->n; i++)
        n_ordered += entries->items[i].order >= 0;
    if (n_ordered == 0)
        return ND_OK;
    qsort(entries->items, entries->n, sizeof *entries->items, compare_entries);
    for (size_t i = 0; i < entries->n; i++)
        if (entries->items[i].order != (int64_t)i)
            return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                           "the attributes 'order' in '%s' do not count from 0 to %zu: there is no %zu",
                           hub->path, entries->n - 1, i);
    return ND_OK;
}

static enum nd_status list_entries(const struct aihub *hub, struct entries *entries, struct nd_error *err)
{
    struct listing listing = {.entries = entries, .hub = hub, .err = err};
    herr_t rc = H5Literate(hub->data, H5_INDEX_NAME, H5_ITER_INC, NULL, keep_link, &listing);
    if (listing.status == ND_OK && rc < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "the groups of '/data' in '%s' cannot be read",
                            hub->path);
    ND_TRY(listing.status);
    for (size_t i = 0; i < entries->n; i++)
        ND_TRY(read_entry(hub, &entries->items[i], err));
    if (entries->n == 0)
        return nd_fail(err, ND_E_IMPORT_NOTHING, hub->path, "'/data' of '%s' is empty", hub->path);
    return sort_entries(hub, entries, err);
}

/* ---- data ---- */

/* One sample, open. */
struct sample {
    const char *name;
    size_t number;
    hid_t dataset;
    struct nd_hdf5_array array;
};

typedef enum nd_status sample_work(const struct aihub *hub, const struct sample *sample, struct nd_error *err);

/* Before the first is read, so that a file that holds too much costs nothing. */
static enum nd_status count_sample(const struct aihub *hub, const struct sample *sample, struct nd_error *err)
{
    struct nd_aihub_source *source = hub->source;
    uint64_t stored = H5Dget_storage_size(sample->dataset), left = source->file_bytes - source->n_stored;
    source->n_stored += stored < left ? stored : left;
    uint64_t most = ND_AIHUB_BASE_BYTES + ND_AIHUB_BYTES_PER_STORED * source->n_stored;
    if (sample->array.n_bytes > most - source->n_counted)
        return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                       "'%s' is too small to hold the %zu bytes of %s: of samples with %llu stored bytes at "
                       "most %llu MiB of values are read (as .npz all are)",
                       hub->path, sample->array.n_bytes, sample->array.what,
                       (unsigned long long)source->n_stored, (unsigned long long)most >> 20);
    source->n_counted += sample->array.n_bytes;
    return ND_OK;
}

static enum nd_status give_sample(const struct aihub *hub, const struct sample *sample, struct nd_error *err)
{
    const struct nd_hdf5_array *array = &sample->array;
    ND_FREED void *data = nd_tensor_alloc(array->n_bytes);
    ND_TRY_MEMORY(data != NULL, err);
    ND_TRY(nd_hdf5_array_read(sample->dataset, hub->source, array, data, err));
    const struct nd_aihub_sample found = {sample->name, array->what, sample->number, array->dtype,
                                          array->shape, data,        array->n_bytes};
    return hub->visit(hub->context, &found, err);
}

static enum nd_status with_sample(const struct aihub *hub, const struct entry *entry, size_t number,
                                  sample_work *work, struct nd_error *err)
{
    char what[320], path[300];
    snprintf(path, sizeof path, "%.250s/batch_%zu", entry->group, number);
    snprintf(what, sizeof what, "'/data/%s'", path);
    struct sample sample = {entry->name, number, H5Dopen2(hub->data, path, H5P_DEFAULT), {0}};
    if (sample.dataset < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "'%s' has no %s, although batch_count is %lld",
                            hub->path, what, (long long)entry->n_samples);
    enum nd_status status = nd_hdf5_array_describe(sample.dataset, hub->path, what, &sample.array, err);
    if (status == ND_OK)
        status = work(hub, &sample, err);
    H5Dclose(sample.dataset);
    return status;
}

static enum nd_status with_samples(const struct aihub *hub, const struct entries *entries, sample_work *work,
                                   struct nd_error *err)
{
    for (size_t i = 0; i < entries->n; i++)
        for (size_t k = 0; k < (size_t)entries->items[i].n_samples; k++)
            ND_TRY(with_sample(hub, &entries->items[i], k, work, err));
    return ND_OK;
}

static enum nd_status check_names(const struct aihub *hub, const struct entries *entries, struct nd_error *err)
{
    for (size_t i = 0; i < entries->n; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(entries->items[i].name, entries->items[k].name) == 0)
                return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                               "'/data/%.250s' of '%s' is the second tensor '%s'", entries->items[i].group,
                               hub->path, entries->items[i].name);
    return ND_OK;
}

static enum nd_status give_entries(struct aihub *hub, hid_t file, struct nd_error *err)
{
    struct entries entries = {0};
    if (H5Lexists(file, "data", H5P_DEFAULT) <= 0)
        return nd_fail(err, ND_E_IMPORT_FORMAT, hub->path,
                       "'%s' is no dataset of AI Hub: it has no group '/data'", hub->path);
    hub->data = H5Gopen2(file, "data", H5P_DEFAULT);
    if (hub->data < 0)
        return nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, hub->path, "'/data' of '%s' is no group", hub->path);
    enum nd_status status = list_entries(hub, &entries, err);
    if (status == ND_OK)
        status = check_names(hub, &entries, err);
    if (status == ND_OK)
        status = with_samples(hub, &entries, count_sample, err);
    if (status == ND_OK)
        status = with_samples(hub, &entries, give_sample, err);
    ND_FREE_BOTH(entries.items, entries.n, .group, .name);
    H5Gclose(hub->data);
    return status;
}

static enum nd_status open_file(const char *path, struct nd_read_source *source, hid_t *file,
                                struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access < 0 || nd_read_driver_set(access, source) < 0 ||
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "libhdf5 cannot be set up");
    *file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (*file < 0)
        return nd_hdf5_error_mentions("file signature not found")
                   ? nd_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is not an HDF5 file", path)
                   : nd_hdf5_fail(err, ND_E_IMPORT_FORMAT, path, "'%s' is not a readable HDF5 file", path);
    return ND_OK;
}

enum nd_status nd_aihub_walk(struct nd_aihub_source *source, nd_aihub_visit visit, void *context,
                             struct nd_error *err)
{
    struct aihub hub = {.path = source->path, .source = source, .visit = visit, .context = context};
    struct nd_read_source bytes = {.read = read_file, .context = source, .file_bytes = source->file_bytes};
    hid_t file = H5I_INVALID_HID;
    enum nd_status status = open_file(source->path, &bytes, &file, err);
    if (status == ND_OK)
        status = give_entries(&hub, file, err);
    if (file >= 0)
        H5Fclose(file);
    H5Eclear2(H5E_DEFAULT);
    return status;
}
