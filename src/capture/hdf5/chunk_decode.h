/* Decoding a stored chunk: HDF5's DEFLATE and SHUFFLE reversed, without libhdf5.
 *
 * The other half of spool/chunk.h. It is here because the agent, which only encodes, does without libdeflate.
 */
#pragma once

#include "npudiff/core/tensor.h"

struct libdeflate_decompressor;

/* What decoding keeps from call to call. Zeroed to begin with; used by one thread at a time. */
struct nd_chunk_decoder {
    struct libdeflate_decompressor *inflater;
    unsigned char *shuffled;
    size_t shuffled_capacity;
};

/* Frees what it keeps and zeroes it. */
void nd_chunk_decoder_deinit(struct nd_chunk_decoder *decoder);

/* A chunk as it lies in a file, and the filters it went through (HDF5's filter mask may switch one off). */
struct nd_stored_chunk {
    const void *bytes;
    size_t n_bytes;
    size_t elem_bytes;
    bool is_shuffled;
    bool is_deflated;
};

/* Exactly chunk_bytes into raw, from exactly one whole zlib stream whose checksum holds; else ND_ERR_FORMAT,
 * and raw holds anything. Never reads or writes out of bounds whatever the input. ND_ERR_MEMORY. */
enum nd_status nd_chunk_decode(struct nd_chunk_decoder *decoder, const struct nd_stored_chunk *stored,
                               void *raw, size_t chunk_bytes, struct nd_error *err);

/* HDF5's SHUFFLE reversed: byte j of every element, then byte j + 1 of every element; a rest smaller than an
 * element stays. The two do not overlap. */
void nd_unshuffle(const void *shuffled, size_t n_bytes, size_t elem_bytes, void *raw);
