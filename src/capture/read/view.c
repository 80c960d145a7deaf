/* Ranges of stored tensors, read into memory that is kept from call to call. */
#include "capture/read/view.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "capture/read/capture_internal.h"

/* The rows of a tensor that are asked for. */
struct rows {
    const struct nd_index_object *object;
    size_t n_rows; /* that it has */
    size_t first, n;
};

static enum nd_status read_rows(const struct nd_capture *capture, struct rows rows, void *buf,
                                struct nd_error *err)
{
    const struct nd_index_object *object = rows.object;
    if (rows.first > rows.n_rows || rows.n > rows.n_rows - rows.first)
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, object->path,
                       "'%s': samples %zu to %zu were asked for of %zu in '%s'", capture->path, rows.first,
                       rows.first + rows.n, rows.n_rows, object->path);
    enum nd_status status = nd_index_read(capture->index, object, rows.first, rows.n, buf, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s'", capture->path);
    return status;
}

/* ND_ERR_NOT_FOUND: of this tensor only digests are stored. */
static enum nd_status nd_capture_fail_no_outputs(const struct nd_capture *capture, size_t probe, size_t tensor,
                                                 struct nd_error *err)
{
    return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, capture->tensors[tensor].name,
                   "'%s': of tensor '%s' of probe '%s' only digests are stored", capture->path,
                   capture->tensors[tensor].name, capture->probes[probe].probe.name);
}

enum nd_status nd_capture_read_outputs(const struct nd_probe_values *tensor, size_t first, size_t n, void *buf,
                                       struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    assert(tensor->probe < capture->n_probes && tensor->tensor < capture->n_tensors);
    const struct nd_probe_data *data = &capture->probes[tensor->probe];
    const struct nd_index_object *outputs = data->tensors[tensor->tensor].outputs;
    if (outputs == NULL)
        return nd_capture_fail_no_outputs(capture, tensor->probe, tensor->tensor, err);
    return read_rows(capture, (struct rows){outputs, data->probe.n_samples, first, n}, buf, err);
}

enum nd_status nd_capture_read_repeat(const struct nd_probe_values *tensor, size_t sample, size_t repeat,
                                      void *buf, struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    assert(tensor->probe < capture->n_probes && tensor->tensor < capture->n_tensors);
    const struct nd_probe_data *data = &capture->probes[tensor->probe];
    const struct nd_probe_tensor *part = &data->tensors[tensor->tensor];
    if (part->outputs == NULL)
        return nd_capture_fail_no_outputs(capture, tensor->probe, tensor->tensor, err);
    if (sample >= data->probe.n_samples ||
        repeat >= nd_capture_n_runs(capture, tensor->probe, tensor->tensor, sample))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, part->outputs->path,
                       "'%s': sample %zu, repeat %zu was asked for of %zu samples, but there was no such run",
                       capture->path, sample, repeat, data->probe.n_samples);
    const struct nd_repeat_row *row = nd_capture_repeat_row(part, sample, repeat);
    if (row == NULL) /* opening made sure that the digests are then equal */
        return nd_capture_read_outputs(tensor, sample, 1, buf, err);
    return read_rows(capture, (struct rows){part->repeats, part->n_repeat_rows, row->row, 1}, buf, err);
}

/* kind: "tensor" or "input". Of `where` only capture and probe count. */
static enum nd_status fail_damaged(const struct nd_probe_values *where, const char *kind, const char *name,
                                   size_t sample, struct nd_error *err)
{
    const struct nd_capture *capture = where->capture;
    return nd_fail(err, ND_E_CAPTURE_DIGEST, capture->path,
                   "'%s' is damaged: %s '%s', probe '%s', sample %zu is not what its digest was made of; "
                   "'npudiff verify' looks at everything",
                   capture->path, kind, name, capture->probes[where->probe].probe.name, sample);
}

enum nd_status nd_capture_read_inputs(const struct nd_probe_values *input, size_t first, size_t n, void *buf,
                                      struct nd_error *err)
{
    const struct nd_capture *capture = input->capture;
    assert(input->probe < capture->n_probes);
    const struct nd_probe_data *data = &capture->probes[input->probe];
    assert(input->tensor < data->probe.n_inputs);
    const struct rows rows = {data->inputs[input->tensor].object, data->probe.n_samples_expected, first, n};
    ND_TRY(read_rows(capture, rows, buf, err));
    size_t sample_bytes = rows.n_rows > 0 ? rows.object->n_bytes / rows.n_rows : 0;
    for (size_t i = 0; !capture->is_trusted && i < n; i++)
        if (!nd_digest_equal(nd_digest_bytes((const unsigned char *)buf + i * sample_bytes, sample_bytes),
                             data->inputs[input->tensor].digests[first + i]))
            return fail_damaged(&(struct nd_probe_values){capture, input->probe, 0}, "input",
                                data->probe.inputs[input->tensor].name, first + i, err);
    return ND_OK;
}

/* ---- held against digests ---- */

void nd_capture_trust(struct nd_capture *capture)
{
    capture->is_trusted = true;
}

static size_t sample_bytes_of(const struct nd_probe_values *tensor)
{
    const struct nd_index_object *object =
        tensor->capture->probes[tensor->probe].tensors[tensor->tensor].outputs;
    size_t n_rows = (size_t)object->shape.dims[0];
    return n_rows > 0 ? object->n_bytes / n_rows : 0;
}

static enum nd_status check_sample(const struct nd_probe_values *tensor, size_t sample, size_t repeat,
                                   const void *bytes, struct nd_error *err)
{
    const struct nd_capture *capture = tensor->capture;
    if (capture->is_trusted)
        return ND_OK;
    ND_TRY(nd_probe_need_digests(capture, tensor->probe, tensor->tensor, err));
    if (nd_digest_equal(nd_digest_bytes(bytes, sample_bytes_of(tensor)),
                        nd_capture_digest(capture, tensor->probe, tensor->tensor, sample, repeat)))
        return ND_OK;
    return nd_capture_fail_damaged(capture, tensor->probe, tensor->tensor, sample, err);
}

enum nd_status nd_capture_fail_damaged(const struct nd_capture *capture, size_t probe, size_t tensor,
                                       size_t sample, struct nd_error *err)
{
    return fail_damaged(&(struct nd_probe_values){capture, probe, tensor}, "tensor",
                        capture->tensors[tensor].name, sample, err);
}

enum nd_status nd_capture_read_verified(const struct nd_probe_values *tensor, size_t first, size_t n, void *buf,
                                        struct nd_error *err)
{
    enum nd_status status = nd_capture_read_outputs(tensor, first, n, buf, err);
    size_t sample_bytes = status == ND_OK ? sample_bytes_of(tensor) : 0;
    for (size_t i = 0; status == ND_OK && i < n; i++)
        status = check_sample(tensor, first + i, 0, (const unsigned char *)buf + i * sample_bytes, err);
    return status;
}

enum nd_status nd_capture_read_repeat_verified(const struct nd_probe_values *tensor, size_t sample,
                                               size_t repeat, void *buf, struct nd_error *err)
{
    ND_TRY(nd_capture_read_repeat(tensor, sample, repeat, buf, err));
    return check_sample(tensor, sample, repeat, buf, err);
}

void nd_view_scratch_deinit(struct nd_view_scratch *scratch)
{
    free(scratch->bytes);
    free(scratch->chunk);
    free(scratch->stored);
    nd_chunk_decoder_deinit(&scratch->decoder);
    *scratch = (struct nd_view_scratch){0};
}

/* Room for n_bytes; what was there is lost. */
static enum nd_status make_room(unsigned char **buf, size_t *capacity, size_t n_bytes, struct nd_error *err)
{
    if (*capacity >= n_bytes)
        return ND_OK;
    free(*buf);
    *buf = malloc(n_bytes);
    *capacity = *buf != NULL ? n_bytes : 0;
    return *buf != NULL ? ND_OK : nd_fail_memory(err);
}

/* The part of the range that one chunk holds. */
struct piece {
    size_t chunk;
    size_t in_chunk; /* first byte, counted in the decoded chunk */
    size_t in_range; /* the same byte, counted from the start of the range */
    size_t n_bytes;
};

/* First byte of a chunk in C order, and its real bytes. */
static size_t chunk_start(const struct nd_chunk_layout *layout, size_t chunk, size_t *n_bytes)
{
    struct nd_chunk_span span;
    nd_chunk_span(layout, chunk, &span);
    *n_bytes = span.n_bytes;
    return span.first_sample * layout->sample_bytes + span.offset_bytes;
}

/* Chunks are in C order and leave no gap, but need not have equal sizes. */
static size_t find_chunk(const struct nd_chunk_layout *layout, size_t byte)
{
    size_t low = 0, high = layout->n_chunks, n_bytes;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (chunk_start(layout, middle, &n_bytes) <= byte)
            low = middle;
        else
            high = middle;
    }
    return low;
}

static struct piece find_piece(const struct nd_chunk_layout *layout, size_t chunk, size_t first_byte,
                               size_t n_bytes)
{
    size_t real_bytes, start = chunk_start(layout, chunk, &real_bytes);
    struct piece piece = {.chunk = chunk};
    if (start < first_byte)
        piece.in_chunk = first_byte - start;
    else
        piece.in_range = start - first_byte;
    size_t n_chunk = real_bytes - piece.in_chunk, n_range = n_bytes - piece.in_range;
    piece.n_bytes = n_chunk < n_range ? n_chunk : n_range;
    return piece;
}

/* What a view is made of. */
struct source {
    const struct nd_index *index;
    const struct nd_index_object *object;
    struct nd_view_scratch *scratch;
};

static bool is_plain(const struct source *source, size_t chunk)
{
    const struct nd_index_chunk *stored = &source->object->chunks[chunk];
    return !stored->is_deflated && (!stored->is_shuffled || source->object->elem_bytes == 1);
}

/* A chunk as it lies in the file, in scratch->stored. */
static enum nd_status read_stored(const struct source *source, size_t i, struct nd_error *err)
{
    const struct nd_index_chunk *chunk = &source->object->chunks[i];
    struct nd_view_scratch *scratch = source->scratch;
    ND_TRY(make_room(&scratch->stored, &scratch->stored_capacity, chunk->stored_bytes, err));
    return nd_index_read_at(source->index, source->object->path, chunk->offset, scratch->stored,
                            chunk->stored_bytes, err);
}

static enum nd_status decode(const struct source *source, size_t i, unsigned char *raw, struct nd_error *err)
{
    const struct nd_index_object *object = source->object;
    const struct nd_index_chunk *chunk = &object->chunks[i];
    struct nd_view_scratch *scratch = source->scratch;
    ND_TRY(read_stored(source, i, err));
    const struct nd_stored_chunk stored = {.bytes = scratch->stored,
                                           .n_bytes = chunk->stored_bytes,
                                           .elem_bytes = object->elem_bytes,
                                           .is_shuffled = chunk->is_shuffled,
                                           .is_deflated = chunk->is_deflated};
    enum nd_status status = nd_chunk_decode(&scratch->decoder, &stored, raw, object->layout.chunk_bytes, err);
    if (status != ND_OK)
        nd_error_context(err, "chunk %zu of '%s'", i, object->path);
    return status;
}

/* The chunk in scratch->chunk, unless it is there already. */
static enum nd_status keep_chunk(const struct source *source, size_t chunk, struct nd_error *err)
{
    struct nd_view_scratch *scratch = source->scratch;
    if (scratch->chunk_serial == source->index->serial && scratch->chunk_object == source->object &&
        scratch->chunk_index == chunk)
        return ND_OK;
    scratch->chunk_serial = 0;
    ND_TRY(make_room(&scratch->chunk, &scratch->chunk_capacity, source->object->layout.chunk_bytes, err));
    ND_TRY(decode(source, chunk, scratch->chunk, err));
    scratch->chunk_serial = source->index->serial;
    scratch->chunk_object = source->object;
    scratch->chunk_index = chunk;
    return ND_OK;
}

/* All of a range that lies in one chunk. */
static enum nd_status view_piece(const struct source *source, const struct piece *piece,
                                 const unsigned char **out, struct nd_error *err)
{
    ND_TRY(keep_chunk(source, piece->chunk, err));
    *out = source->scratch->chunk + piece->in_chunk;
    return ND_OK;
}

/* A part of the file, in scratch->bytes. */
static enum nd_status view_plain(const struct source *source, uint64_t offset, size_t n_bytes,
                                 const unsigned char **out, struct nd_error *err)
{
    struct nd_view_scratch *scratch = source->scratch;
    ND_TRY(make_room(&scratch->bytes, &scratch->bytes_capacity, n_bytes, err));
    *out = scratch->bytes;
    return nd_index_read_at(source->index, source->object->path, offset, scratch->bytes, n_bytes, err);
}

/* Ranges over several chunks are put together in scratch->bytes. */
static enum nd_status gather(const struct source *source, size_t first_chunk, size_t first_byte, size_t n_bytes,
                             struct nd_error *err)
{
    const struct nd_chunk_layout *layout = &source->object->layout;
    struct nd_view_scratch *scratch = source->scratch;
    ND_TRY(make_room(&scratch->bytes, &scratch->bytes_capacity, n_bytes, err));
    size_t n_done = 0;
    for (size_t i = first_chunk; n_done < n_bytes; i++) {
        const struct piece piece = find_piece(layout, i, first_byte, n_bytes);
        const unsigned char *part = NULL;
        if (piece.n_bytes == layout->chunk_bytes)
            ND_TRY(decode(source, i, scratch->bytes + piece.in_range, err));
        else
            ND_TRY(view_piece(source, &piece, &part, err));
        if (part != NULL)
            memcpy(scratch->bytes + piece.in_range, part, piece.n_bytes);
        n_done = piece.in_range + piece.n_bytes;
    }
    return ND_OK;
}

static enum nd_status view_chunks(const struct source *source, size_t first_byte, size_t n_bytes,
                                  const unsigned char **out, struct nd_error *err)
{
    size_t chunk = find_chunk(&source->object->layout, first_byte);
    const struct piece piece = find_piece(&source->object->layout, chunk, first_byte, n_bytes);
    if (piece.n_bytes == n_bytes && is_plain(source, chunk))
        return view_plain(source, source->object->chunks[chunk].offset + piece.in_chunk, n_bytes, out, err);
    if (piece.n_bytes == n_bytes)
        return view_piece(source, &piece, out, err);
    ND_TRY(gather(source, chunk, first_byte, n_bytes, err));
    *out = source->scratch->bytes;
    return ND_OK;
}

static const struct nd_index_object *find_outputs(const struct nd_probe_values *tensor)
{
    assert(tensor->probe < tensor->capture->n_probes && tensor->tensor < tensor->capture->n_tensors);
    return tensor->capture->probes[tensor->probe].tensors[tensor->tensor].outputs;
}

static bool is_inside(const struct nd_index_object *object, size_t first_byte, size_t n_bytes)
{
    return first_byte <= object->n_bytes && n_bytes <= object->n_bytes - first_byte;
}

enum nd_status nd_capture_view_outputs(const struct nd_probe_values *tensor, size_t first_byte, size_t n_bytes,
                                       struct nd_view_scratch *scratch, const unsigned char **out,
                                       struct nd_error *err)
{
    static const unsigned char nothing;
    const struct nd_capture *capture = tensor->capture;
    const struct source source = {capture->index, find_outputs(tensor), scratch};
    if (source.object == NULL)
        return nd_capture_fail_no_outputs(capture, tensor->probe, tensor->tensor, err);
    if (!is_inside(source.object, first_byte, n_bytes))
        return nd_fail(err, ND_E_CAPTURE_NO_OBJECT, source.object->path,
                       "'%s': %zu bytes from byte %zu were asked for of %zu in '%s'", capture->path, n_bytes,
                       first_byte, source.object->n_bytes, source.object->path);
    if (n_bytes == 0) {
        *out = &nothing;
        return ND_OK;
    }
    enum nd_status status = source.object->chunks == NULL
                                ? view_plain(&source, source.object->offset + first_byte, n_bytes, out, err)
                                : view_chunks(&source, first_byte, n_bytes, out, err);
    if (status != ND_OK)
        nd_error_context(err, "'%s'", capture->path);
    return status;
}

size_t nd_capture_outputs_chunk_bytes(const struct nd_probe_values *tensor)
{
    const struct nd_index_object *object = find_outputs(tensor);
    return object != NULL && object->chunks != NULL ? object->layout.chunk_bytes : 0;
}

/* Of a chunk that cannot be read nothing is known: reading its values will say why. */
static bool is_chunk_alike(const struct source *a, const struct source *b, size_t i)
{
    const struct nd_index_chunk *of_a = &a->object->chunks[i], *of_b = &b->object->chunks[i];
    return of_a->is_deflated && of_b->is_deflated && of_a->is_shuffled == of_b->is_shuffled &&
           of_a->stored_bytes == of_b->stored_bytes && read_stored(a, i, NULL) == ND_OK &&
           read_stored(b, i, NULL) == ND_OK &&
           memcmp(a->scratch->stored, b->scratch->stored, of_a->stored_bytes) == 0;
}

bool nd_capture_is_stored_alike(const struct nd_probe_values *a, const struct nd_probe_values *b,
                                size_t first_byte, size_t n_bytes, struct nd_view_scratch *scratch_a,
                                struct nd_view_scratch *scratch_b)
{
    const struct source x = {a->capture->index, find_outputs(a), scratch_a};
    const struct source y = {b->capture->index, find_outputs(b), scratch_b};
    if (x.object == NULL || y.object == NULL || x.object->chunks == NULL || y.object->chunks == NULL ||
        x.object->elem_bytes != y.object->elem_bytes || !nd_shape_equal(&x.object->shape, &y.object->shape) ||
        !nd_shape_equal(&x.object->layout.chunk, &y.object->layout.chunk) ||
        !is_inside(x.object, first_byte, n_bytes) || n_bytes == 0)
        return false;
    size_t end = find_chunk(&x.object->layout, first_byte + n_bytes - 1) + 1;
    for (size_t i = find_chunk(&x.object->layout, first_byte); i < end; i++)
        if (!is_chunk_alike(&x, &y, i))
            return false;
    return true;
}

enum nd_status nd_capture_check_unchanged(const struct nd_capture *capture, struct nd_error *err)
{
    const struct nd_index *index = capture->index;
    struct stat now;
    ND_TRY(nd_capture_check_deferred(capture, err));
    if (index->fetch != NULL) /* every answer of its server was of the version that was opened */
        return ND_OK;
    if (fstat(index->fd, &now) != 0)
        return nd_fail(err, ND_E_FILE_READ, capture->path, "cannot read '%s': %s", capture->path,
                       strerror(errno));
    if ((uint64_t)now.st_size != index->file_bytes || now.st_mtim.tv_sec != index->modified.tv_sec ||
        now.st_mtim.tv_nsec != index->modified.tv_nsec)
        return nd_fail(err, ND_E_CAPTURE_CHANGED, capture->path, "'%s' was changed while it was being read",
                       capture->path);
    return ND_OK;
}

const struct nd_index *nd_capture_index(const struct nd_capture *capture)
{
    return capture->index;
}
