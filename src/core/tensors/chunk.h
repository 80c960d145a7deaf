/* How a tensor [sample, dims...] is cut into chunks, and how a chunk is stored: HDF5's SHUFFLE then DEFLATE.
 *
 * The agent stores chunks in its spool in the very bytes that the capture will hold; hdf5/chunk_decode.h
 * reverses it. Encoding is a function of the bytes and the level alone. */
#pragma once

#include "npudiff/core/tensor.h"

/* The cut. Small samples share a chunk (chunk.dims[0] > 1, and then every other chunk dimension is whole); a
 * large sample has chunks of its own (chunk.dims[0] == 1) that are contiguous blocks of it in C order: chunk
 * dimensions are 1, ..., 1, c, whole, whole..., and only the c-axis may leave a partial last chunk, which is
 * stored padded with zeros. */
struct nd_chunk_layout {
    struct nd_shape dataset; /* [n_samples, dims...], rank + 1 */
    struct nd_shape chunk;   /* same rank */
    size_t elem_bytes;
    size_t sample_bytes;
    size_t chunk_bytes;       /* decoded */
    size_t samples_per_chunk; /* chunk.dims[0] */
    size_t chunks_per_sample; /* 1 when samples share chunks */
    size_t n_chunks;
};

/* Lays out n_samples (>= 1) of `sample` shape, aiming at 256 KiB a chunk. rank of sample must be < ND_MAX_RANK.
 * ND_ERR_FORMAT/MEMORY as nd_shape_size_bytes. Tensors with zero elements have n_chunks 0. */
enum nd_status nd_chunk_layout_make(const struct nd_shape *sample, enum nd_dtype dtype, size_t n_samples,
                                    struct nd_chunk_layout *out, struct nd_error *err);

/* The layout of a dataset found in a file. ND_ERR_FORMAT unless the chunk dimensions have the form described
 * above (the first one may exceed the dataset's, as nd_chunk_layout_shorten leaves it) and a chunk is at most 1
 * GiB. dataset->rank >= 1. */
enum nd_status nd_chunk_layout_from_dims(const struct nd_shape *dataset, const struct nd_shape *chunk,
                                         size_t elem_bytes, struct nd_chunk_layout *out, struct nd_error *err);

/* The same chunks for a dataset that ended early: n_samples (1 .. dataset.dims[0]) instead of dataset.dims[0].
 * The chunk dimensions stay, so that chunks encoded before stay valid; the last one may hold fewer samples than
 * it has room for. */
void nd_chunk_layout_shorten(struct nd_chunk_layout *layout, size_t n_samples);

/* Where chunk `index` (0 .. n_chunks-1, in C order of the chunk grid) lies. When samples share chunks: samples
 * [first_sample, first_sample + n_samples) whole. Otherwise: n_bytes of sample first_sample from byte
 * offset_bytes. */
struct nd_chunk_span {
    size_t first_sample;
    size_t n_samples;
    size_t offset_bytes;
    size_t n_bytes;             /* real bytes; the rest of chunk_bytes is zero padding at its end */
    int64_t start[ND_MAX_RANK]; /* element coordinates of its first element in the dataset */
};
void nd_chunk_span(const struct nd_chunk_layout *layout, size_t index, struct nd_chunk_span *out);

/* Worst-case size of an encoded chunk. */
size_t nd_chunk_bound(size_t chunk_bytes);

/* Shuffles and deflates one chunk, raw, into out (capacity nd_chunk_bound). level 1..9. */
enum nd_status nd_chunk_encode(const struct nd_chunk_layout *layout, const void *raw, int level, void *out,
                               size_t *out_bytes, struct nd_error *err);
