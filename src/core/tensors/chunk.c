/* How a tensor is cut into chunks, and how a chunk is stored: HDF5's SHUFFLE, then DEFLATE (chunk.h). */
#include "core/tensors/chunk.h"

#if ND_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>

#include "core/memory.h"

enum { TARGET_BYTES = 256 * 1024, MAX_CHUNK_BYTES = 1 << 30 };

/* The number of chunks along a dimension, without the sum that could overflow in (a + b - 1) / b. */
static size_t n_blocks(int64_t dim, int64_t chunk)
{
    return (size_t)(dim / chunk) + (dim % chunk != 0 ? 1 : 0);
}

static void cut_shared(struct nd_chunk_layout *layout, size_t n_samples)
{
    size_t fit = TARGET_BYTES / layout->sample_bytes;
    layout->chunk.dims[0] = (int64_t)(fit < n_samples ? fit : n_samples);
    for (int i = 1; i < layout->dataset.rank; i++)
        layout->chunk.dims[i] = layout->dataset.dims[i];
}

/* The c-axis is the first one whose single step fits the target. */
static void cut_within_sample(struct nd_chunk_layout *layout)
{
    size_t inner_bytes = layout->sample_bytes;
    bool is_whole = false;
    layout->chunk.dims[0] = 1;
    for (int i = 1; i < layout->dataset.rank; i++) {
        int64_t dim = layout->dataset.dims[i];
        inner_bytes /= (size_t)dim;
        if (is_whole)
            layout->chunk.dims[i] = dim;
        else if (inner_bytes > TARGET_BYTES)
            layout->chunk.dims[i] = 1;
        else {
            int64_t fit = (int64_t)(TARGET_BYTES / inner_bytes);
            layout->chunk.dims[i] = fit < dim ? fit : dim;
            is_whole = true;
        }
    }
}

/* The counts that follow from dataset and chunk dimensions. */
static void derive(struct nd_chunk_layout *layout)
{
    layout->samples_per_chunk = (size_t)layout->chunk.dims[0];
    layout->chunks_per_sample = 1;
    layout->chunk_bytes = layout->elem_bytes * layout->samples_per_chunk;
    for (int i = 1; i < layout->dataset.rank; i++) {
        layout->chunks_per_sample *= n_blocks(layout->dataset.dims[i], layout->chunk.dims[i]);
        layout->chunk_bytes *= (size_t)layout->chunk.dims[i];
    }
    layout->n_chunks = n_blocks(layout->dataset.dims[0], layout->chunk.dims[0]) * layout->chunks_per_sample;
}

enum nd_status nd_chunk_layout_make(const struct nd_shape *sample, enum nd_dtype dtype, size_t n_samples,
                                    struct nd_chunk_layout *out, struct nd_error *err)
{
    if (sample->rank < 0 || sample->rank >= ND_MAX_RANK)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "a sample of rank %d; 0 to %d are accepted",
                       sample->rank, ND_MAX_RANK - 1);
    if (n_samples == 0 || n_samples > INT64_MAX)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "%zu samples cannot be laid out", n_samples);
    struct nd_chunk_layout layout = {.elem_bytes = nd_dtype_size_bytes(dtype)};
    layout.dataset.rank = layout.chunk.rank = sample->rank + 1;
    layout.dataset.dims[0] = (int64_t)n_samples;
    for (int i = 0; i < sample->rank; i++)
        layout.dataset.dims[i + 1] = sample->dims[i];
    size_t total_bytes;
    ND_TRY(nd_shape_size_bytes(sample, dtype, &layout.sample_bytes, err));
    ND_TRY(nd_shape_size_bytes(&layout.dataset, dtype, &total_bytes, err));
    if (layout.sample_bytes == 0) {
        /* Nothing is stored: no chunks, but the counts must stay divisors. */
        layout.chunk = layout.dataset;
        layout.samples_per_chunk = n_samples;
        layout.chunks_per_sample = 1;
    } else {
        if (layout.sample_bytes <= TARGET_BYTES)
            cut_shared(&layout, n_samples);
        else
            cut_within_sample(&layout);
        derive(&layout);
    }
    *out = layout;
    return ND_OK;
}

/* Whole samples share a chunk, or a chunk is a contiguous block of one: 1, ..., 1, c, whole, whole... */
static bool is_our_form(const struct nd_shape *dataset, const struct nd_shape *chunk)
{
    bool is_whole = true;
    if (chunk->rank != dataset->rank || chunk->dims[0] < 1)
        return false;
    for (int i = dataset->rank - 1; i >= 1; i--) {
        if (chunk->dims[i] < 1 || chunk->dims[i] > dataset->dims[i] || (!is_whole && chunk->dims[i] != 1))
            return false;
        is_whole = is_whole && chunk->dims[i] == dataset->dims[i];
    }
    return is_whole || chunk->dims[0] == 1;
}

enum nd_status nd_chunk_layout_from_dims(const struct nd_shape *dataset, const struct nd_shape *chunk,
                                         size_t elem_bytes, struct nd_chunk_layout *out, struct nd_error *err)
{
    size_t n, chunk_bytes, total_bytes;
    struct nd_shape sample = {.rank = dataset->rank - 1};
    if (!is_our_form(dataset, chunk))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL,
                       "the dataset is cut into chunks that are not blocks of samples");
    memcpy(sample.dims, dataset->dims + 1, (size_t)sample.rank * sizeof sample.dims[0]);
    struct nd_chunk_layout layout = {.dataset = *dataset, .chunk = *chunk, .elem_bytes = elem_bytes};
    ND_TRY(nd_shape_n_elems(dataset, &n, err));
    if (n == 0 || !nd_size_mul(n, elem_bytes, &total_bytes))
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL, "a chunked dataset of %zu elements", n);
    ND_TRY(nd_shape_n_elems(chunk, &n, err));
    if (!nd_size_mul(n, elem_bytes, &chunk_bytes) || chunk_bytes > MAX_CHUNK_BYTES)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, NULL,
                       "a chunk of %zu elements of %zu bytes; at most %d bytes are accepted", n, elem_bytes,
                       MAX_CHUNK_BYTES);
    ND_TRY(nd_shape_n_elems(&sample, &n, err));
    layout.sample_bytes = n * elem_bytes;
    derive(&layout);
    *out = layout;
    return ND_OK;
}

void nd_chunk_layout_shorten(struct nd_chunk_layout *layout, size_t n_samples)
{
    layout->dataset.dims[0] = (int64_t)n_samples;
    if (layout->n_chunks > 0)
        derive(layout);
}

void nd_chunk_span(const struct nd_chunk_layout *layout, size_t index, struct nd_chunk_span *out)
{
    struct nd_chunk_span span = {.n_bytes = layout->elem_bytes};
    size_t stride_bytes = layout->elem_bytes;
    for (int i = layout->dataset.rank - 1; i >= 0; i--) {
        int64_t dim = layout->dataset.dims[i], chunk = layout->chunk.dims[i];
        size_t blocks = n_blocks(dim, chunk);
        span.start[i] = (int64_t)(index % blocks) * chunk;
        index /= blocks;
        int64_t left = dim - span.start[i];
        size_t n = (size_t)(left < chunk ? left : chunk);
        if (i == 0) {
            span.first_sample = (size_t)span.start[0];
            span.n_samples = n;
        } else {
            span.offset_bytes += (size_t)span.start[i] * stride_bytes;
            stride_bytes *= (size_t)dim;
        }
        span.n_bytes *= n;
    }
    *out = span;
}

#if ND_HAVE_LIBDEFLATE
size_t nd_chunk_bound(size_t chunk_bytes)
{
    return libdeflate_zlib_compress_bound(NULL, chunk_bytes);
}

static enum nd_status deflate_bytes(const void *source, size_t n_bytes, int level, void *out, size_t *out_bytes,
                                    struct nd_error *err)
{
    struct libdeflate_compressor *compressor = libdeflate_alloc_compressor(level);
    ND_TRY_MEMORY(compressor != NULL, err);
    size_t size = libdeflate_zlib_compress(compressor, source, n_bytes, out, nd_chunk_bound(n_bytes));
    libdeflate_free_compressor(compressor);
    if (size == 0)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk of %zu bytes cannot be deflated at level %d",
                       n_bytes, level);
    *out_bytes = size;
    return ND_OK;
}
#else
size_t nd_chunk_bound(size_t chunk_bytes)
{
    return compressBound(chunk_bytes);
}

static enum nd_status deflate_bytes(const void *source, size_t n_bytes, int level, void *out, size_t *out_bytes,
                                    struct nd_error *err)
{
    uLongf size = compressBound(n_bytes);
    int rc = compress2(out, &size, source, n_bytes, level);
    if (rc == Z_MEM_ERROR)
        return nd_fail_memory(err);
    if (rc != Z_OK)
        return nd_fail(err, ND_E_CHUNK_CODEC, NULL, "a chunk of %zu bytes cannot be deflated at level %d (%d)",
                       n_bytes, level, rc);
    *out_bytes = size;
    return ND_OK;
}
#endif

/* HDF5's SHUFFLE: byte j of every element, then byte j + 1 of every element; a rest below an element stays. */
static void shuffle(const unsigned char *raw, size_t n_bytes, size_t elem_bytes, unsigned char *out)
{
    size_t n = n_bytes / elem_bytes;
    for (size_t j = 0; j < elem_bytes; j++)
        for (size_t i = 0; i < n; i++)
            out[j * n + i] = raw[i * elem_bytes + j];
    memcpy(out + n * elem_bytes, raw + n * elem_bytes, n_bytes - n * elem_bytes);
}

enum nd_status nd_chunk_encode(const struct nd_chunk_layout *layout, const void *raw, int level, void *out,
                               size_t *out_bytes, struct nd_error *err)
{
    size_t chunk_bytes = layout->chunk_bytes, elem_bytes = layout->elem_bytes;
    ND_FREED unsigned char *shuffled = NULL;
    if (elem_bytes > 1 && chunk_bytes > 0) {
        shuffled = malloc(chunk_bytes);
        ND_TRY_MEMORY(shuffled != NULL, err);
        shuffle(raw, chunk_bytes, elem_bytes, shuffled);
    }
    static const unsigned char nothing;
    const void *source = shuffled != NULL ? shuffled : chunk_bytes > 0 ? raw : &nothing;
    return deflate_bytes(source, chunk_bytes, level, out, out_bytes, err);
}
