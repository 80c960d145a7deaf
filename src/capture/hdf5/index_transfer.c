#include "capture/hdf5/index_transfer.h"

#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "capture/hdf5/index_internal.h"

enum { MAX_ATTR_BYTES = 65536 }; /* what an object header can hold */

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
    uint64_t stored_bytes;
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
    enum nd_status status = nd_reading_send(child, &sent, sizeof sent, err);
    if (status == ND_OK)
        status = nd_reading_send(child, attr->name, sent.name_bytes, err);
    return status == ND_OK ? nd_reading_send(child, attr->bytes, attr->n_bytes, err) : status;
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
                                     .stored_bytes = object->stored_bytes,
                                     .offset = object->offset};
    enum nd_status status = nd_reading_send_record(child, err);
    if (status == ND_OK)
        status = nd_reading_send(child, &sent, sizeof sent, err);
    if (status == ND_OK)
        status = nd_reading_send(child, object->path, sent.path_bytes, err);
    for (size_t i = 0; status == ND_OK && i < object->n_attrs; i++)
        status = send_attr(&object->attrs[i], child, err);
    for (size_t i = 0; status == ND_OK && object->chunks != NULL && i < object->layout.n_chunks; i++)
        status = send_chunk(&object->chunks[i], child, err);
    return status;
}

enum nd_status nd_index_send(const struct nd_index *index, struct nd_reading_child *child, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < index->n_objects; i++)
        status = send_object(&index->objects[i], child, err);
    return status;
}

/* ---- receiving ---- */

static enum nd_status receive_attr(struct nd_index_attr *attr, struct nd_reading *reading, struct nd_error *err)
{
    struct sent_attr sent;
    size_t n_bytes;
    enum nd_status status = nd_reading_take(reading, &sent, sizeof sent, err);
    if (status != ND_OK)
        return status;
    enum nd_dtype dtype = (enum nd_dtype)sent.dtype;
    bool is_text = dtype == ND_DTYPE_NONE;
    if (sent.n_bytes > MAX_ATTR_BYTES || (is_text && sent.n != 1) ||
        (!is_text && (!nd_size_mul(sent.n, nd_dtype_size_bytes(dtype), &n_bytes) || n_bytes != sent.n_bytes)))
        return nd_reading_fail(reading, err);
    attr->dtype = dtype;
    attr->is_scalar = sent.is_scalar;
    attr->n = sent.n;
    attr->n_bytes = sent.n_bytes;
    status = nd_reading_take_text(reading, sent.name_bytes, &attr->name, err);
    if (status == ND_OK && (attr->bytes = nd_calloc(sent.n_bytes + 1, 1)) == NULL)
        status = nd_fail_memory(err);
    return status == ND_OK ? nd_reading_take(reading, attr->bytes, sent.n_bytes, err) : status;
}

static enum nd_status receive_attrs(struct nd_index_object *object, size_t n, struct nd_reading *reading,
                                    struct nd_error *err)
{
    size_t capacity = 0;
    enum nd_status status = ND_OK;
    while (status == ND_OK && object->n_attrs < n) {
        if (!nd_grow((void **)&object->attrs, &capacity, object->n_attrs + 1, sizeof *object->attrs))
            return nd_fail_memory(err);
        struct nd_index_attr *attr = &object->attrs[object->n_attrs++];
        *attr = (struct nd_index_attr){0};
        status = receive_attr(attr, reading, err);
    }
    return status;
}

static bool is_in_file(const struct nd_index *index, uint64_t offset, uint64_t n_bytes)
{
    return offset <= index->file_bytes && n_bytes <= index->file_bytes - offset;
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
    object->chunks = nd_calloc(n, sizeof *object->chunks);
    if (object->chunks == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t i = 0; status == ND_OK && i < n; i++) {
        struct sent_chunk taken;
        status = nd_reading_take(reading, &taken, sizeof taken, err);
        if (status == ND_OK && !is_in_file(index, taken.offset, taken.stored_bytes))
            status = nd_reading_fail(reading, err);
        if (status == ND_OK)
            object->chunks[i] = (struct nd_index_chunk){taken.offset, taken.stored_bytes,
                                                        taken.is_shuffled != 0, taken.is_deflated != 0};
    }
    return status;
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
        (object->dtype != ND_DTYPE_NONE && nd_dtype_size_bytes(object->dtype) != object->elem_bytes) ||
        nd_shape_n_elems(&object->shape, &n, NULL) != ND_OK ||
        !nd_size_mul(n, object->elem_bytes, &object->n_bytes))
        return nd_reading_fail(reading, err);
    object->stored_bytes = sent->stored_bytes;
    object->offset = sent->offset;
    if (sent->has_chunks)
        return receive_chunks(index, object, sent, reading, err);
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

enum nd_status nd_index_receive(struct nd_index *index, struct nd_reading *reading, struct nd_error *err)
{
    bool has_record = true;
    enum nd_status status = ND_OK;
    while (status == ND_OK && has_record) {
        status = nd_reading_next(reading, &has_record, err);
        if (status == ND_OK && has_record)
            status = receive_object(index, reading, err);
    }
    return status;
}
