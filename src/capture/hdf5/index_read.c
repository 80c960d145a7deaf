/* What is found in an index, and data read by its place in it: no libhdf5 here. */
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture/fetch/fetch.h"
#include "capture/hdf5/chunk_decode.h"
#include "capture/hdf5/index.h"
#include "core/memory.h"

void nd_index_object_deinit(struct nd_index_object *object)
{
    for (size_t a = 0; a < object->n_attrs; a++)
        ND_FREE_ALL(object->attrs[a].name, object->attrs[a].bytes);
    ND_FREE_ALL(object->attrs, object->chunks);
}

void nd_index_close(struct nd_index **index_at)
{
    struct nd_index *index = *index_at;
    if (index == NULL)
        return;
    for (size_t i = 0; i < index->n_objects; i++) {
        nd_index_object_deinit(&index->objects[i]);
        free(index->objects[i].path);
    }
    free(index->objects);
    nd_fetch_close(&index->fetch);
    if (index->fd >= 0)
        close(index->fd);
    free(index);
    *index_at = NULL;
}

static int compare_path(const void *key, const void *object)
{
    return strcmp(key, ((const struct nd_index_object *)object)->path);
}

const struct nd_index_object *nd_index_find(const struct nd_index *index, const char *path)
{
    return bsearch(path, index->objects, index->n_objects, sizeof *index->objects, compare_path);
}

/* The first object that is not before "<path>/", or with is_past the first behind all that begin so. Needs no
 * memory: there would be no way to say that there is none. */
static size_t lower_bound(const struct nd_index *index, const char *path, bool is_past)
{
    size_t n = strlen(path);
    size_t low = 0, high = index->n_objects;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const char *at = index->objects[middle].path;
        int order = strncmp(at, path, n);
        if (order == 0)
            order = (int)(unsigned char)at[n] - '/';
        if (order < 0 || (is_past && order == 0))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void nd_index_range(const struct nd_index *index, const char *path, size_t *first, size_t *end)
{
    *first = *end = 0;
    const struct nd_index_object *group = nd_index_find(index, path);
    if (group == NULL)
        return;
    /* Paths that only start alike ("/a-b" beside "/a") lie between a group and what is inside it: "/a/" is
     * searched. */
    *first = lower_bound(index, path, false);
    *end = lower_bound(index, path, true);
}

bool nd_index_is_child(const struct nd_index_object *object, const char *path)
{
    size_t n = strlen(path);
    return strncmp(object->path, path, n) == 0 && object->path[n] == '/' &&
           strchr(object->path + n + 1, '/') == NULL;
}

const struct nd_index_attr *nd_index_attr(const struct nd_index_object *object, const char *name)
{
    for (size_t i = 0; i < object->n_attrs; i++)
        if (strcmp(object->attrs[i].name, name) == 0)
            return &object->attrs[i];
    return NULL;
}

enum nd_status nd_index_read_at(const struct nd_index *index, const char *path, uint64_t offset, void *buf,
                                size_t n_bytes, struct nd_error *err)
{
    char *at = buf;
    if (index->fetch != NULL)
        return nd_fetch_read(index->fetch, offset, buf, n_bytes, err);
    while (n_bytes > 0) {
        ssize_t n = pread(index->fd, at, n_bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return nd_fail(err, ND_E_FILE_READ, path, "cannot read '%s': %s", path, strerror(errno));
        if (n == 0)
            return nd_fail(err, ND_E_CAPTURE_TRUNCATED, path, "the file ends inside '%s'", path);
        at += n;
        offset += (uint64_t)n;
        n_bytes -= (size_t)n;
    }
    return ND_OK;
}

/* Buffers of one call. */
struct scratch {
    unsigned char *stored;
    size_t stored_capacity;
    unsigned char *raw;
    struct nd_chunk_decoder decoder;
};

static enum nd_status decode_chunk(const struct nd_index *index, const struct nd_index_object *object, size_t i,
                                   struct scratch *scratch, void *raw, struct nd_error *err)
{
    const struct nd_index_chunk *chunk = &object->chunks[i];
    ND_TRY_MEMORY(nd_grow((void **)&scratch->stored, &scratch->stored_capacity, chunk->stored_bytes, 1), err);
    enum nd_status status =
        nd_index_read_at(index, object->path, chunk->offset, scratch->stored, chunk->stored_bytes, err);
    if (status != ND_OK)
        return status;
    const struct nd_stored_chunk stored = {.bytes = scratch->stored,
                                           .n_bytes = chunk->stored_bytes,
                                           .elem_bytes = object->elem_bytes,
                                           .is_shuffled = chunk->is_shuffled,
                                           .is_deflated = chunk->is_deflated};
    status = nd_chunk_decode(&scratch->decoder, &stored, raw, object->layout.chunk_bytes, err);
    if (status != ND_OK)
        nd_error_context(err, "chunk %zu of '%s'", i, object->path);
    return status;
}

/* Rows [first, first + n) of a chunked dataset, and where they go. */
struct rows {
    const struct nd_index_object *object;
    size_t first, n;
    unsigned char *buf;
};

/* The part of chunk i that lies in the rows, to its place. */
static enum nd_status read_chunk(const struct nd_index *index, const struct rows *rows, size_t i,
                                 struct scratch *scratch, struct nd_error *err)
{
    const struct nd_index_object *object = rows->object;
    const struct nd_chunk_layout *layout = &object->layout;
    size_t first = rows->first, end = rows->first + rows->n;
    struct nd_chunk_span span;
    nd_chunk_span(layout, i, &span);
    size_t skipped = span.first_sample < first ? first - span.first_sample : 0;
    if (span.first_sample + span.n_samples < end)
        end = span.first_sample + span.n_samples;
    unsigned char *to =
        rows->buf + (span.first_sample + skipped - first) * layout->sample_bytes + span.offset_bytes;
    size_t n_bytes = layout->chunks_per_sample > 1 || layout->samples_per_chunk == 1
                         ? span.n_bytes
                         : (end - span.first_sample - skipped) * layout->sample_bytes;
    if (n_bytes == layout->chunk_bytes)
        return decode_chunk(index, object, i, scratch, to, err);
    if (scratch->raw == NULL && (scratch->raw = nd_calloc(layout->chunk_bytes, 1)) == NULL)
        return nd_fail_memory(err);
    ND_TRY(decode_chunk(index, object, i, scratch, scratch->raw, err));
    memcpy(to, scratch->raw + skipped * layout->sample_bytes, n_bytes);
    return ND_OK;
}

enum nd_status nd_index_read(const struct nd_index *index, const struct nd_index_object *object, size_t first,
                             size_t n, void *buf, struct nd_error *err)
{
    size_t n_rows = (size_t)object->shape.dims[0];
    assert(first <= n_rows && n <= n_rows - first);
    if (object->n_bytes == 0 || n == 0)
        return ND_OK;
    size_t row_bytes = object->n_bytes / n_rows;
    if (object->chunks == NULL)
        return nd_index_read_at(index, object->path, object->offset + first * row_bytes, buf, n * row_bytes,
                                err);
    const struct nd_chunk_layout *layout = &object->layout;
    size_t first_chunk = first / layout->samples_per_chunk * layout->chunks_per_sample;
    size_t end_chunk = ((first + n - 1) / layout->samples_per_chunk + 1) * layout->chunks_per_sample;
    const struct rows rows = {object, first, n, buf};
    struct scratch scratch = {0};
    enum nd_status status = ND_OK;
    for (size_t i = first_chunk; i < end_chunk && status == ND_OK; i++)
        status = read_chunk(index, &rows, i, &scratch, err);
    free(scratch.stored);
    free(scratch.raw);
    nd_chunk_decoder_deinit(&scratch.decoder);
    return status;
}

enum nd_dtype nd_index_stored_dtype(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_BF16:
        return ND_DTYPE_U16;
    case ND_DTYPE_BOOL:
    case ND_DTYPE_F8E4M3FN:
    case ND_DTYPE_F8E5M2:
    case ND_DTYPE_U4:
        return ND_DTYPE_U8;
    case ND_DTYPE_I4:
        return ND_DTYPE_I8;
    default:
        return dtype;
    }
}

char *nd_index_type_name(enum nd_dtype dtype, size_t elem_bytes, char *buf, size_t buf_size)
{
    if (dtype != ND_DTYPE_NONE)
        snprintf(buf, buf_size, "%s", nd_dtype_name(dtype));
    else
        snprintf(buf, buf_size, "text[%zu]", elem_bytes);
    return buf;
}
