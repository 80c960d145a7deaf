/* The index of an HDF5 file: made in a confined child by libhdf5, sent, checked, and received. The parent
 * believes nothing that the child says. docs/architecture.md#confined. */
#include "capture/hdf5/index.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "capture/fetch/fetch.h"
#include "capture/hdf5/libhdf5.h"
#include "capture/hdf5/reading.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"

/* ---- links and attributes (in the child) ---- */

/* What the child walks through: each object is sent as it is found. */
struct walk {
    const struct nd_index *index;
    struct nd_reading_child *child;
};

/* The names of a group's links. Links other than hard ones are refused. */
struct nd_index_names {
    size_t n;
    size_t capacity;
    char **items;
};

static bool is_in_file(const struct nd_index *index, uint64_t offset, uint64_t n_bytes)
{
    return offset <= index->file_bytes && n_bytes <= index->file_bytes - offset;
}

struct attr_list {
    const struct nd_index_schema *schema;
    struct nd_index_object *object;
    size_t capacity;
    struct nd_error *err;
    enum nd_status status;
};

enum {
    MAX_LINKS = 1000000,
    MAX_ATTRS = 10000,
    MAX_ATTR_BYTES = 65536, /* what an object header can hold */
};

/* Bytes of a fixed-length string type as nd_hdf5_text_make makes them, else 0. */
static size_t nd_hdf5_text_bytes(hid_t type)
{
    if (H5Tget_class(type) != H5T_STRING || H5Tis_variable_str(type) != 0 ||
        H5Tget_strpad(type) != H5T_STR_NULLPAD || H5Tget_cset(type) != H5T_CSET_UTF8)
        return 0;
    return H5Tget_size(type);
}

static enum nd_status read_attr(hid_t id, const char *path, struct nd_index_attr *attr, struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t type = H5Aget_type(id), space = H5Aget_space(id);
    H5S_class_t space_class = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_ndims(space);
    hsize_t n[1] = {1};
    attr->dtype = nd_hdf5_type_dtype(type);
    size_t elem_bytes =
        attr->dtype != ND_DTYPE_NONE ? nd_dtype_size_bytes(attr->dtype) : nd_hdf5_text_bytes(type);
    attr->is_scalar = space_class == H5S_SCALAR;
    bool is_simple =
        attr->is_scalar || (space_class == H5S_SIMPLE && rank == 1 && attr->dtype != ND_DTYPE_NONE &&
                            H5Sget_simple_extent_dims(space, n, NULL) == 1);
    attr->n = n[0];
    if (elem_bytes == 0 || !is_simple)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path,
                       "attribute '%s' of '%s' is not a number, a list of numbers or fixed-length text",
                       attr->name, path);
    if (n[0] > MAX_ATTR_BYTES || elem_bytes > MAX_ATTR_BYTES || attr->n * elem_bytes > MAX_ATTR_BYTES)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' is larger than %d bytes",
                       attr->name, path, MAX_ATTR_BYTES);
    attr->n_bytes = attr->n * elem_bytes;
    attr->bytes = nd_calloc(attr->n_bytes + 1, 1);
    ND_TRY_MEMORY(attr->bytes != NULL, err);
    if (attr->n > 0 && H5Aread(id, type, attr->bytes) < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "attribute '%s' of '%s' cannot be read", attr->name,
                            path);
    return ND_OK;
}

static herr_t keep_attr(hid_t id, const char *name, const H5A_info_t *info, void *data)
{
    (void)info;
    struct attr_list *list = data;
    struct nd_index_object *object = list->object;
    if (!object->is_group && !list->schema->has_attr(name))
        return 0;
    if (object->n_attrs >= MAX_ATTRS) {
        list->status = nd_fail(list->err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' has more than %d attributes",
                               object->path, MAX_ATTRS);
        return -1;
    }
    if (!nd_grow((void **)&object->attrs, &list->capacity, object->n_attrs + 1, sizeof *object->attrs)) {
        list->status = nd_fail_memory(list->err);
        return -1;
    }
    struct nd_index_attr *attr = &object->attrs[object->n_attrs++];
    *attr = (struct nd_index_attr){.name = nd_strdup(name)};
    ND_CLEANUP(nd_hdf5_close) hid_t opened = H5Aopen(id, name, H5P_DEFAULT);
    if (attr->name == NULL)
        list->status = nd_fail_memory(list->err);
    else if (opened < 0)
        list->status = nd_hdf5_fail(list->err, ND_E_CAPTURE_SCHEMA, object->path,
                                    "attribute '%s' of '%s' cannot be opened", name, object->path);
    else
        list->status = read_attr(opened, object->path, attr, list->err);
    return list->status == ND_OK ? 0 : -1;
}

static int compare_attrs(const void *a, const void *b)
{
    return strcmp(((const struct nd_index_attr *)a)->name, ((const struct nd_index_attr *)b)->name);
}

/* The attributes of an open object; of datasets only those that the schema knows. */
static enum nd_status nd_index_add_attrs(const struct nd_index *index, struct nd_index_object *object, hid_t id,
                                         struct nd_error *err)
{
    struct attr_list list = {.schema = index->schema, .object = object, .err = err};
    herr_t rc = H5Aiterate2(id, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, keep_attr, &list);
    if (list.status == ND_OK && rc < 0)
        list.status = nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                                   "the attributes of '%s' cannot be read", object->path);
    if (list.status != ND_OK)
        return list.status;
    if (object->n_attrs > 1)
        qsort(object->attrs, object->n_attrs, sizeof *object->attrs, compare_attrs);
    for (size_t i = 1; i < object->n_attrs; i++)
        if (strcmp(object->attrs[i - 1].name, object->attrs[i].name) == 0)
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' has the attribute '%s' twice",
                           object->path, object->attrs[i].name);
    return ND_OK;
}

struct link_list {
    struct nd_index_names *names;
    const char *path;
    struct nd_error *err;
    enum nd_status status;
};

static herr_t keep_link(hid_t group, const char *name, const H5L_info_t *info, void *data)
{
    (void)group;
    struct link_list *list = data;
    struct nd_index_names *names = list->names;
    if (info->type != H5L_TYPE_HARD)
        list->status = nd_fail(list->err, ND_E_CAPTURE_SCHEMA, list->path,
                               "link '%s' in '%s' is a soft or external link; only hard links are accepted",
                               name, list->path);
    else if (names->n >= MAX_LINKS)
        list->status = nd_fail(list->err, ND_E_CAPTURE_SCHEMA, list->path, "'%s' has more than %d objects",
                               list->path, MAX_LINKS);
    else if (!nd_grow((void **)&names->items, &names->capacity, names->n + 1, sizeof *names->items) ||
             (names->items[names->n] = nd_strdup(name)) == NULL)
        list->status = nd_fail_memory(list->err);
    else
        names->n++;
    return list->status == ND_OK ? 0 : -1;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static enum nd_status nd_index_list_links(hid_t group, const char *path, struct nd_index_names *out,
                                          struct nd_error *err)
{
    struct link_list list = {.names = out, .path = path, .err = err};
    herr_t rc = H5Literate(group, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, keep_link, &list);
    if (list.status == ND_OK && rc < 0)
        list.status = nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "the links of '%s' cannot be read", path);
    if (list.status != ND_OK)
        return list.status;
    if (out->n > 1)
        qsort(out->items, out->n, sizeof *out->items, compare_names);
    for (size_t i = 0; i < out->n; i++)
        if (out->items[i][0] == '\0' || strchr(out->items[i], '/') != NULL ||
            (i > 0 && strcmp(out->items[i - 1], out->items[i]) == 0))
            return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' has a link with an impossible name, '%s'",
                           path, out->items[i]);
    return ND_OK;
}

static void nd_index_names_deinit(struct nd_index_names *names)
{
    ND_FREE_ITEMS(names->items, names->n);
    *names = (struct nd_index_names){0};
}

/* A record: a struct sent_object, the path, the attributes (each a struct sent_attr, its name, its bytes), and
 * the chunks. Both processes run one program, so structs mean the same in both. Every member is 8 bytes wide:
 * no struct has padding, whose bytes nothing sets. */
struct sent_object {
    uint64_t path_bytes;
    uint64_t n_attrs;
    uint64_t is_group;
    uint64_t has_chunks;
    uint64_t dtype;
    uint64_t elem_bytes;
    struct nd_sent_shape shape;
    struct nd_sent_shape chunk;
    uint64_t offset;
};

struct sent_attr {
    uint64_t name_bytes;
    uint64_t dtype;
    uint64_t is_scalar;
    uint64_t n;
    uint64_t n_bytes;
};

struct sent_chunk {
    uint64_t offset;
    uint64_t stored_bytes;
    uint64_t is_shuffled;
    uint64_t is_deflated;
};

/* ---- sending ---- */

static enum nd_status send_attr(const struct nd_index_attr *attr, struct nd_reading_child *child,
                                struct nd_error *err)
{
    const struct sent_attr sent = {.name_bytes = strlen(attr->name),
                                   .dtype = (uint64_t)attr->dtype,
                                   .is_scalar = attr->is_scalar,
                                   .n = attr->n,
                                   .n_bytes = attr->n_bytes};
    ND_TRY(nd_reading_send(child, &sent, sizeof sent, err));
    ND_TRY(nd_reading_send(child, attr->name, sent.name_bytes, err));
    return nd_reading_send(child, attr->bytes, attr->n_bytes, err);
}

static enum nd_status send_chunk(const struct nd_index_chunk *chunk, struct nd_reading_child *child,
                                 struct nd_error *err)
{
    const struct sent_chunk sent = {.offset = chunk->offset,
                                    .stored_bytes = chunk->stored_bytes,
                                    .is_shuffled = chunk->is_shuffled,
                                    .is_deflated = chunk->is_deflated};
    return nd_reading_send(child, &sent, sizeof sent, err);
}

static enum nd_status send_object(const struct nd_index_object *object, struct nd_reading_child *child,
                                  struct nd_error *err)
{
    const struct sent_object sent = {.path_bytes = strlen(object->path),
                                     .n_attrs = object->n_attrs,
                                     .is_group = object->is_group,
                                     .has_chunks = object->chunks != NULL,
                                     .dtype = (uint64_t)object->dtype,
                                     .elem_bytes = object->elem_bytes,
                                     .shape = nd_sent_shape(&object->shape),
                                     .chunk = nd_sent_shape(&object->layout.chunk),
                                     .offset = object->offset};
    ND_TRY(nd_reading_send_record(child, err));
    ND_TRY(nd_reading_send(child, &sent, sizeof sent, err));
    ND_TRY(nd_reading_send(child, object->path, sent.path_bytes, err));
    for (size_t i = 0; i < object->n_attrs; i++)
        ND_TRY(send_attr(&object->attrs[i], child, err));
    for (size_t i = 0; object->chunks != NULL && i < object->layout.n_chunks; i++)
        ND_TRY(send_chunk(&object->chunks[i], child, err));
    return ND_OK;
}

/* ---- receiving ---- */

/* Deflate cannot do better than 1032:1; a little more is granted for its header. */
enum { MAX_EXPANSION = 1032, EXPANSION_SLACK = 1024 };

/* Whether a stored chunk can be so many bytes when it is decoded. */
static bool is_chunk_possible(const struct nd_index_chunk *chunk, size_t chunk_bytes)
{
    return chunk->is_deflated
               ? chunk_bytes / MAX_EXPANSION <= chunk->stored_bytes + EXPANSION_SLACK / MAX_EXPANSION
               : chunk_bytes == chunk->stored_bytes;
}

/* A new object at the end of the index, or NULL (out of memory, err says so). Moves the others in memory. */
static struct nd_index_object *nd_index_add(struct nd_index *index, const char *path, bool is_group,
                                            struct nd_error *err)
{
    if (!nd_grow((void **)&index->objects, &index->capacity, index->n_objects + 1, sizeof *index->objects)) {
        nd_fail_memory(err);
        return NULL;
    }
    struct nd_index_object *object = &index->objects[index->n_objects];
    *object = (struct nd_index_object){.path = nd_strdup(path), .is_group = is_group};
    if (object->path == NULL) {
        nd_fail_memory(err);
        return NULL;
    }
    index->n_objects++;
    return object;
}

static enum nd_status receive_attr(struct nd_index_attr *attr, struct nd_reading *reading, struct nd_error *err)
{
    struct sent_attr sent;
    size_t n_bytes;
    ND_TRY(nd_reading_take(reading, &sent, sizeof sent, err));
    enum nd_dtype dtype = (enum nd_dtype)sent.dtype;
    bool is_text = dtype == ND_DTYPE_NONE;
    if (sent.n_bytes > MAX_ATTR_BYTES || nd_index_stored_dtype(dtype) != dtype ||
        ((is_text || sent.is_scalar) && sent.n != 1) ||
        (!is_text && (!nd_size_mul(sent.n, nd_dtype_size_bytes(dtype), &n_bytes) || n_bytes != sent.n_bytes)))
        return nd_reading_fail(reading, err);
    attr->dtype = dtype;
    attr->is_scalar = sent.is_scalar != 0;
    attr->n = sent.n;
    attr->n_bytes = sent.n_bytes;
    ND_TRY(nd_reading_take_text(reading, sent.name_bytes, &attr->name, err));
    ND_TRY_MEMORY((attr->bytes = nd_calloc(sent.n_bytes + 1, 1)) != NULL, err);
    return nd_reading_take(reading, attr->bytes, sent.n_bytes, err);
}

static enum nd_status receive_attrs(struct nd_index_object *object, size_t n, struct nd_reading *reading,
                                    struct nd_error *err)
{
    size_t capacity = 0;
    while (object->n_attrs < n) {
        ND_TRY_MEMORY(nd_grow((void **)&object->attrs, &capacity, object->n_attrs + 1, sizeof *object->attrs),
                      err);
        struct nd_index_attr *attr = &object->attrs[object->n_attrs++];
        *attr = (struct nd_index_attr){0};
        ND_TRY(receive_attr(attr, reading, err));
        if (object->n_attrs > 1 && strcmp(attr[-1].name, attr->name) >= 0)
            return nd_reading_fail(reading, err);
    }
    return ND_OK;
}

static enum nd_status receive_chunks(const struct nd_index *index, struct nd_index_object *object,
                                     const struct sent_object *sent, struct nd_reading *reading,
                                     struct nd_error *err)
{
    struct nd_shape chunk;
    nd_shape_from_sent(&sent->chunk, &chunk);
    if (chunk.rank != object->shape.rank ||
        nd_chunk_layout_from_dims(&object->shape, &chunk, object->elem_bytes, &object->layout, NULL) != ND_OK ||
        object->layout.n_chunks > index->file_bytes)
        return nd_reading_fail(reading, err);
    size_t n = object->layout.n_chunks;
    ND_TRY(nd_reading_expect(reading, n * sizeof(struct sent_chunk), err));
    object->chunks = nd_calloc(n, sizeof *object->chunks);
    ND_TRY_MEMORY(object->chunks != NULL, err);
    for (size_t i = 0; i < n; i++) {
        struct sent_chunk taken;
        ND_TRY(nd_reading_take(reading, &taken, sizeof taken, err));
        object->chunks[i] = (struct nd_index_chunk){taken.offset, taken.stored_bytes, taken.is_shuffled != 0,
                                                    taken.is_deflated != 0};
        if (!is_in_file(index, taken.offset, taken.stored_bytes) ||
            !is_chunk_possible(&object->chunks[i], object->layout.chunk_bytes))
            return nd_reading_fail(reading, err);
        object->stored_bytes += taken.stored_bytes;
    }
    return ND_OK;
}

static enum nd_status receive_dataset(const struct nd_index *index, struct nd_index_object *object,
                                      const struct sent_object *sent, struct nd_reading *reading,
                                      struct nd_error *err)
{
    size_t n = 0;
    object->dtype = (enum nd_dtype)sent->dtype;
    object->elem_bytes = sent->elem_bytes;
    nd_shape_from_sent(&sent->shape, &object->shape);
    if (object->shape.rank < 1 || object->elem_bytes == 0 ||
        nd_index_stored_dtype(object->dtype) != object->dtype ||
        (object->dtype == ND_DTYPE_NONE && sent->has_chunks) ||
        (object->dtype != ND_DTYPE_NONE && nd_dtype_size_bytes(object->dtype) != object->elem_bytes) ||
        nd_shape_n_elems(&object->shape, &n, NULL) != ND_OK ||
        !nd_size_mul(n, object->elem_bytes, &object->n_bytes))
        return nd_reading_fail(reading, err);
    object->offset = sent->offset;
    if (sent->has_chunks)
        return receive_chunks(index, object, sent, reading, err);
    object->stored_bytes = object->n_bytes;
    return is_in_file(index, sent->offset, object->n_bytes) ? ND_OK : nd_reading_fail(reading, err);
}

static enum nd_status receive_object(struct nd_index *index, struct nd_reading *reading, struct nd_error *err)
{
    struct sent_object sent;
    char *path = NULL;
    enum nd_status status = nd_reading_take(reading, &sent, sizeof sent, err);
    if (status == ND_OK)
        status = nd_reading_take_text(reading, sent.path_bytes, &path, err);
    struct nd_index_object *object =
        status == ND_OK ? nd_index_add(index, path, sent.is_group != 0, err) : NULL;
    free(path);
    if (object == NULL)
        return status != ND_OK ? status : ND_ERR_MEMORY;
    status = receive_attrs(object, sent.n_attrs, reading, err);
    return status == ND_OK && sent.is_group == 0 ? receive_dataset(index, object, &sent, reading, err) : status;
}

static int compare_objects(const void *a, const void *b)
{
    return strcmp(((const struct nd_index_object *)a)->path, ((const struct nd_index_object *)b)->path);
}

/* Whether object i is what the schema wants there, in a group that is there, and there once. */
static bool is_in_place(const struct nd_index *index, size_t i)
{
    const struct nd_index_object *object = &index->objects[i];
    if (i == 0)
        return strcmp(object->path, "/") == 0 && object->is_group;
    const char *slash = strrchr(object->path, '/');
    if (strcmp(object[-1].path, object->path) == 0 || slash == NULL || slash[1] == '\0' ||
        index->schema->kind_of(object->path) != (object->is_group ? ND_INDEX_GROUP : ND_INDEX_DATASET))
        return false;
    for (size_t a = 0; a < object->n_attrs && !object->is_group; a++)
        if (!index->schema->has_attr(object->attrs[a].name))
            return false;
    ND_FREED char *group = strndup(object->path, slash > object->path ? (size_t)(slash - object->path) : 1);
    const struct nd_index_object *found = group != NULL ? nd_index_find(index, group) : NULL;
    return found != NULL && found->is_group;
}

/* In the parent: takes the objects that come, until the end, and sorts them. index->file_bytes is set before.
 * What no file of that size and schema holds is reading->damaged: the file may have taken the child over. */
static enum nd_status nd_index_receive(struct nd_index *index, struct nd_reading *reading, struct nd_error *err)
{
    bool has_record = true;
    while (has_record) {
        ND_TRY(nd_reading_next(reading, &has_record, err));
        if (has_record)
            ND_TRY(receive_object(index, reading, err));
    }
    if (index->n_objects == 0)
        return nd_reading_fail(reading, err);
    qsort(index->objects, index->n_objects, sizeof *index->objects, compare_objects);
    for (size_t i = 0; i < index->n_objects; i++)
        if (!is_in_place(index, i))
            return nd_reading_fail(reading, err);
    return index->schema->check_root(&index->objects[0], err);
}

/* ---- one dataset (in the child) ---- */

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
    if (!is_chunk_possible(chunk, chunk_bytes))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "chunk %zu of '%s' cannot hold %zu bytes in %llu", i,
                       path, chunk_bytes, (unsigned long long)stored_bytes);
    return ND_OK;
}

static enum nd_status place_chunks(const struct nd_index *index, hid_t dataset, hid_t creation,
                                   struct nd_index_object *object, struct nd_error *err)
{
    struct nd_shape chunk = {.rank = object->shape.rank};
    struct pipeline pipeline = {0};
    hsize_t dims[ND_MAX_RANK] = {0};
    ND_TRY(read_pipeline(creation, object, &pipeline, err));
    if (object->dtype == ND_DTYPE_NONE || object->shape.rank < 1)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' is chunked; only tensors may be",
                       object->path);
    if (H5Pget_chunk(creation, ND_MAX_RANK, dims) != object->shape.rank)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "the chunks of '%s' have another rank",
                            object->path);
    for (int i = 0; i < chunk.rank; i++)
        chunk.dims[i] = (int64_t)dims[i];
    enum nd_status status =
        nd_chunk_layout_from_dims(&object->shape, &chunk, object->elem_bytes, &object->layout, err);
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
    ND_TRY_MEMORY(object->chunks != NULL, err);
    for (size_t i = 0; i < object->layout.n_chunks && status == ND_OK; i++)
        status = place_chunk(index, dataset, &pipeline, object, i, err);
    return status;
}

static enum nd_status describe(hid_t dataset, struct nd_index_object *object, struct nd_error *err)
{
    ND_CLEANUP(nd_hdf5_close) hid_t type = H5Dget_type(dataset), space = H5Dget_space(dataset);
    hsize_t dims[ND_MAX_RANK] = {0};
    H5S_class_t space_class = H5Sget_simple_extent_type(space);
    int rank = H5Sget_simple_extent_ndims(space);
    object->dtype = nd_hdf5_type_dtype(type);
    object->elem_bytes =
        object->dtype != ND_DTYPE_NONE ? nd_dtype_size_bytes(object->dtype) : nd_hdf5_text_bytes(type);
    object->shape.rank = 0;
    if (object->elem_bytes == 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path,
                       "'%s' has a type that is neither a number nor fixed-length UTF-8 text", object->path);
    if (space_class != H5S_SIMPLE || rank < 1 || rank > ND_MAX_RANK ||
        H5Sget_simple_extent_dims(space, dims, NULL) != rank)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' has rank %d; 1 to %d are accepted",
                       object->path, rank, ND_MAX_RANK);
    object->shape.rank = rank;
    for (int i = 0; i < rank; i++) /* beyond INT64_MAX it becomes negative and is refused below */
        object->shape.dims[i] = (int64_t)dims[i];
    size_t n = 0;
    ND_TRY(nd_shape_n_elems(&object->shape, &n, err));
    if (!nd_size_mul(n, object->elem_bytes, &object->n_bytes))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, object->path, "the size of '%s' does not fit", object->path);
    return ND_OK;
}

/* The dataset that is open as `dataset`: its type, shape, attributes and place. */
static enum nd_status look_at_dataset(const struct nd_index *index, hid_t dataset,
                                      struct nd_index_object *object, struct nd_error *err)
{
    ND_TRY(describe(dataset, object, err));
    ND_TRY(nd_index_add_attrs(index, object, dataset, err));
    ND_CLEANUP(nd_hdf5_close) hid_t creation = H5Dget_create_plist(dataset);
    H5D_layout_t layout = H5Pget_layout(creation);
    if (layout == H5D_CONTIGUOUS)
        return place_contiguous(index, dataset, creation, object, err);
    if (layout == H5D_CHUNKED)
        return place_chunks(index, dataset, creation, object, err);
    return nd_fail(err, ND_E_CAPTURE_SCHEMA, object->path, "'%s' is neither contiguous nor chunked",
                   object->path);
}

/* ---- all of the file (in the child) ---- */

static enum nd_status walk_group(const struct walk *walk, hid_t group, char *path, struct nd_error *err);

/* path is borrowed. */
static enum nd_status walk_dataset(const struct walk *walk, hid_t dataset, char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_index_object_deinit) struct nd_index_object object = {.path = path};
    ND_TRY(look_at_dataset(walk->index, dataset, &object, err));
    return send_object(&object, walk->child, err);
}

static enum nd_status walk_child(const struct walk *walk, hid_t group, const char *name, char *path,
                                 struct nd_error *err)
{
    enum nd_index_kind wanted = walk->index->schema->kind_of(path);
    if (wanted == ND_INDEX_UNKNOWN)
        return ND_OK;
    ND_CLEANUP(nd_hdf5_close) hid_t child = H5Oopen(group, name, H5P_DEFAULT);
    if (child < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' cannot be opened", path);
    if (H5Iget_type(child) != (wanted == ND_INDEX_GROUP ? H5I_GROUP : H5I_DATASET))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "'%s' is not a %s", path,
                       wanted == ND_INDEX_GROUP ? "group" : "dataset");
    return (wanted == ND_INDEX_GROUP ? walk_group : walk_dataset)(walk, child, path, err);
}

static enum nd_status walk_group(const struct walk *walk, hid_t group, char *path, struct nd_error *err)
{
    ND_CLEANUP(nd_index_object_deinit) struct nd_index_object object = {.path = path, .is_group = true};
    ND_TRY(nd_index_add_attrs(walk->index, &object, group, err));
    if (path[1] == '\0')
        ND_TRY(walk->index->schema->check_root(&object, err));
    ND_TRY(send_object(&object, walk->child, err));
    ND_CLEANUP(nd_index_names_deinit) struct nd_index_names names = {0};
    ND_TRY(nd_index_list_links(group, path, &names, err));
    for (size_t i = 0; i < names.n; i++) {
        ND_FREED char *child_path = nd_text("%s/%s", path[1] != '\0' ? path : "", names.items[i]);
        ND_TRY_MEMORY(child_path != NULL, err);
        ND_TRY(walk_child(walk, group, names.items[i], child_path, err));
    }
    return ND_OK;
}

static enum nd_status open_file(const char *path, struct nd_read_source *source, hid_t *file,
                                struct nd_error *err)
{
    hsize_t user_block = 0;
    ND_CLEANUP(nd_hdf5_close) hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    if (access < 0 || nd_read_driver_set(access, source) < 0 ||
        H5Pset_fclose_degree(access, H5F_CLOSE_STRONG) < 0)
        return nd_hdf5_fail(err, ND_E_CAPTURE_HDF5, path, "libhdf5 cannot be set up");
    *file = H5Fopen(path, H5F_ACC_RDONLY, access);
    if (*file < 0) {
        bool is_cut = nd_hdf5_error_mentions("truncated file");
        return nd_hdf5_error_mentions("file signature not found")
                   ? nd_fail(err, ND_E_CAPTURE_FORMAT, path, "not an HDF5 file")
                   : nd_hdf5_fail(err, is_cut ? ND_E_CAPTURE_TRUNCATED : ND_E_CAPTURE_FORMAT, path, "%s",
                                  is_cut ? "the file is cut off" : "not a readable HDF5 file");
    }
    ND_CLEANUP(nd_hdf5_close) hid_t creation = H5Fget_create_plist(*file);
    if (H5Pget_userblock(creation, &user_block) < 0 || user_block != 0)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, path, "the file starts with a user block");
    return ND_OK;
}

/* Where the confined child has bytes from. */
struct origin {
    struct nd_index *index;
    struct nd_reading_child *child;
};

static enum nd_status read_origin(void *context, uint64_t offset, void *buf, size_t n_bytes,
                                  struct nd_error *err)
{
    const struct origin *origin = context;
    if (origin->index->fetch != NULL)
        return nd_reading_ask(origin->child, offset, buf, n_bytes, err);
    return nd_index_read_at(origin->index, origin->child->path, offset, buf, n_bytes, err);
}

/* What the confined child does: libhdf5 sees the file here and nowhere else, and opens nothing. */
static enum nd_status build(void *context, struct nd_reading_child *child, struct nd_error *err)
{
    struct nd_index *index = context;
    struct origin origin = {index, child};
    struct nd_read_source source = {.read = read_origin, .context = &origin, .file_bytes = index->file_bytes};
    hid_t file = H5I_INVALID_HID, root = H5I_INVALID_HID;
    enum nd_status status = open_file(child->path, &source, &file, err);
    if (status == ND_OK) {
        root = H5Gopen2(file, "/", H5P_DEFAULT);
        status = root >= 0
                     ? walk_group(&(struct walk){index, child}, root, (char[]){"/"}, err)
                     : nd_hdf5_fail(err, ND_E_CAPTURE_FORMAT, child->path, "the root group cannot be opened");
    }
    if (source.status != ND_OK) { /* whatever libhdf5 made of it */
        *err = source.err;
        return source.status;
    }
    return status;
}

/* What the system says about the path, before libhdf5 says less about it. */
static enum nd_status open_readable(const char *path, struct nd_index *index, struct nd_error *err)
{
    struct stat info;
    index->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (index->fd < 0 && errno == EMFILE)
        return nd_file_fail_open(path, errno, err);
    if (index->fd < 0)
        return nd_fail(err, ND_E_FILE_OPEN, path, "cannot open: %s", strerror(errno));
    if (fstat(index->fd, &info) != 0)
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return nd_fail(err, ND_E_FILE_READ, path, "cannot read: it is not a regular file");
    if (info.st_size == 0)
        return nd_fail(err, ND_E_CAPTURE_FORMAT, path, "the file is empty");
    index->file_bytes = (uint64_t)info.st_size;
    index->modified = info.st_mtim;
    return ND_OK;
}

static enum nd_status open_on_server(const char *url, struct nd_index *index, struct nd_error *err)
{
    index->fd = -1;
    ND_TRY(nd_fetch_open(url, &index->fetch, err));
    index->file_bytes = nd_fetch_bytes(index->fetch);
    return ND_OK;
}

static enum nd_status fetch(void *context, uint64_t offset, void *buf, size_t n_bytes, struct nd_error *err)
{
    return nd_fetch_read(context, offset, buf, n_bytes, err);
}

static enum nd_status fill(const char *path, struct nd_index *index, struct nd_error *err)
{
    ND_CLEANUP(nd_reading_end)
    struct nd_reading reading = {.path = path,
                                 .file_bytes = index->file_bytes,
                                 .damaged = ND_E_CAPTURE_FORMAT,
                                 .fd = index->fetch == NULL ? &index->fd : NULL,
                                 .fetch = index->fetch != NULL ? fetch : NULL,
                                 .fetch_context = index->fetch};
    ND_TRY(nd_reading_begin(&reading, build, index, err));
    return nd_index_receive(index, &reading, err);
}

enum nd_status nd_index_open(const char *path, const struct nd_index_schema *schema, struct nd_index **out,
                             struct nd_error *err)
{
    ND_CLEANUP(nd_index_close) struct nd_index *index = nd_calloc(1, sizeof *index);
    ND_TRY_MEMORY(index != NULL, err);
    static atomic_uint_fast64_t n_opened;
    index->schema = schema;
    index->serial = atomic_fetch_add(&n_opened, 1) + 1;
    ND_TRY(nd_fetch_is_url(path) ? open_on_server(path, index, err) : open_readable(path, index, err));
    ND_TRY(fill(path, index, err));
    return ND_GIVE(out, index);
}
