/* What is found in an index, and data read by its place in it: no libhdf5 here. */
#include <assert.h>
#include <errno.h>
#include <libdeflate.h>
#include <stdio.h>
#include <unistd.h>

#include "capture/fetch/fetch.h"
#include "capture/hdf5/chunk_decode.h"
#include "capture/hdf5/index.h"
#include "core/files/file.h"
#include "core/items.h"

void nd_index_object_deinit(struct nd_index_object *object)
{
    ND_FREE_BOTH(object->attrs, object->n_attrs, .name, .bytes);
    free(object->chunks);
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
    nd_fd_close(&index->fd);
    free(index);
    *index_at = NULL;
}

/* ---- stored chunks: shuffle and deflate. docs/reference/capture-format.md ---- */

void nd_chunk_decoder_deinit(struct nd_chunk_decoder *decoder)
{
    libdeflate_free_decompressor(decoder->inflater);
    free(decoder->shuffled);
    *decoder = (struct nd_chunk_decoder){0};
}

/* The planes of BLOCK elements at a time: a fixed count is what lets compilers use vectors. Elements are put
 * together as integers, little endian as everything here. */
enum { BLOCK = 32 };

static size_t unshuffle_2(const unsigned char *restrict in, size_t n, unsigned char *restrict out)
{
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        uint16_t elems[BLOCK];
        for (size_t k = 0; k < BLOCK; k++)
            elems[k] = (uint16_t)(in[i + k] | in[n + i + k] << 8);
        memcpy(out + 2 * i, elems, sizeof elems);
    }
    return i;
}

static size_t unshuffle_4(const unsigned char *restrict in, size_t n, unsigned char *restrict out)
{
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        uint32_t elems[BLOCK];
        for (size_t k = 0; k < BLOCK; k++)
            elems[k] = (uint32_t)in[i + k] | (uint32_t)in[n + i + k] << 8 | (uint32_t)in[2 * n + i + k] << 16 |
                       (uint32_t)in[3 * n + i + k] << 24;
        memcpy(out + 4 * i, elems, sizeof elems);
    }
    return i;
}

static size_t unshuffle_8(const unsigned char *restrict in, size_t n, unsigned char *restrict out)
{
    size_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK) {
        uint64_t elems[BLOCK];
        for (size_t k = 0; k < BLOCK; k++) {
            const unsigned char *at = in + i + k;
            uint32_t low =
                (uint32_t)at[0] | (uint32_t)at[n] << 8 | (uint32_t)at[2 * n] << 16 | (uint32_t)at[3 * n] << 24;
            uint32_t high = (uint32_t)at[4 * n] | (uint32_t)at[5 * n] << 8 | (uint32_t)at[6 * n] << 16 |
                            (uint32_t)at[7 * n] << 24;
            elems[k] = low | (uint64_t)high << 32;
        }
        memcpy(out + 8 * i, elems, sizeof elems);
    }
    return i;
}

void nd_unshuffle(const void *shuffled, size_t n_bytes, size_t elem_bytes, void *raw)
{
    const unsigned char *in = shuffled;
    unsigned char *out = raw;
    size_t n = n_bytes / elem_bytes, n_done = 0;
    if (elem_bytes == 2)
        n_done = unshuffle_2(in, n, out);
    else if (elem_bytes == 4)
        n_done = unshuffle_4(in, n, out);
    else if (elem_bytes == 8)
        n_done = unshuffle_8(in, n, out);
    for (size_t i = n_done; i < n; i++)
        for (size_t j = 0; j < elem_bytes; j++)
            out[i * elem_bytes + j] = in[j * n + i];
    if (n_bytes > n * elem_bytes)
        memcpy(out + n * elem_bytes, in + n * elem_bytes, n_bytes - n * elem_bytes);
}

static enum nd_status inflate_exactly(struct nd_chunk_decoder *decoder, const struct nd_stored_chunk *stored,
                                      void *raw, size_t chunk_bytes, struct nd_error *err)
{
    if (decoder->inflater == NULL && (decoder->inflater = libdeflate_alloc_decompressor()) == NULL)
        return nd_fail_memory(err);
    unsigned char nothing = 0;
    size_t n_read = 0, n_made = 0;
    enum libdeflate_result result = libdeflate_zlib_decompress_ex(
        decoder->inflater, stored->n_bytes > 0 ? stored->bytes : &nothing, stored->n_bytes,
        chunk_bytes > 0 ? raw : &nothing, chunk_bytes, &n_read, &n_made);
    if (result == LIBDEFLATE_INSUFFICIENT_SPACE)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk inflates to more than %zu bytes", chunk_bytes);
    if (result != LIBDEFLATE_SUCCESS)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk of %zu stored bytes is not a whole deflate stream",
                       stored->n_bytes);
    if (n_made != chunk_bytes)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk inflates to %zu bytes instead of %zu", n_made,
                       chunk_bytes);
    if (n_read != stored->n_bytes)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk has %zu bytes after its end",
                       stored->n_bytes - n_read);
    return ND_OK;
}

static bool make_room(struct nd_chunk_decoder *decoder, size_t n_bytes)
{
    if (decoder->shuffled_capacity >= n_bytes)
        return true;
    free(decoder->shuffled);
    decoder->shuffled = malloc(n_bytes);
    decoder->shuffled_capacity = decoder->shuffled != NULL ? n_bytes : 0;
    return decoder->shuffled != NULL;
}

enum nd_status nd_chunk_decode(struct nd_chunk_decoder *decoder, const struct nd_stored_chunk *stored,
                               void *raw, size_t chunk_bytes, struct nd_error *err)
{
    if (!stored->is_deflated && stored->n_bytes != chunk_bytes)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk has %zu bytes instead of %zu", stored->n_bytes,
                       chunk_bytes);
    bool is_moved = stored->is_shuffled && stored->elem_bytes > 1 && chunk_bytes > 0;
    if (!stored->is_deflated && is_moved)
        nd_unshuffle(stored->bytes, chunk_bytes, stored->elem_bytes, raw);
    else if (!stored->is_deflated && chunk_bytes > 0)
        memcpy(raw, stored->bytes, chunk_bytes);
    if (!stored->is_deflated)
        return ND_OK;
    if (!is_moved)
        return inflate_exactly(decoder, stored, raw, chunk_bytes, err);
    ND_TRY_MEMORY(make_room(decoder, chunk_bytes), err);
    ND_TRY(inflate_exactly(decoder, stored, decoder->shuffled, chunk_bytes, err));
    nd_unshuffle(decoder->shuffled, chunk_bytes, stored->elem_bytes, raw);
    return ND_OK;
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
    /* Paths that only start alike ("/a-b") lie between a group and what is inside it: "/a/" is searched. */
    *first = lower_bound(index, path, false);
    *end = lower_bound(index, path, true);
}

const struct nd_index_attr *nd_index_attr(const struct nd_index_object *object, const char *name)
{
    return nd_find_text(object->attrs, object->n_attrs, sizeof *object->attrs, name);
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
    bool is_byte = dtype == ND_DTYPE_BOOL || dtype == ND_DTYPE_F8E4M3FN || dtype == ND_DTYPE_F8E5M2 ||
                   dtype == ND_DTYPE_U4;
    return is_byte                  ? ND_DTYPE_U8
           : dtype == ND_DTYPE_BF16 ? ND_DTYPE_U16
           : dtype == ND_DTYPE_I4   ? ND_DTYPE_I8
                                    : dtype;
}

char *nd_index_type_name(enum nd_dtype dtype, size_t elem_bytes, char *buf, size_t buf_size)
{
    if (dtype != ND_DTYPE_NONE)
        snprintf(buf, buf_size, "%s", nd_dtype_name(dtype));
    else
        snprintf(buf, buf_size, "text[%zu]", elem_bytes);
    return buf;
}
