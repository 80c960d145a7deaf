/* Looking at ranges of stored tensors: they are read, and decoded where that is needed, into memory that is
 * kept from call to call.
 *
 * Nothing is mapped: of a mapped file that somebody else shortens, touching a page beyond the new end raises
 * SIGBUS, which a library must not handle for its program. Reading says that the file ends too soon. It is not
 * slower: 128 MiB take 14 ms, where touching as much of a map, page by page, takes 21 ms (Linux 6.18;
 * docs/results/speed.md). Somebody who writes into the file changes what views show: nd_capture_check_unchanged
 * tells, after the last view, whether that happened. */
#pragma once

#include "capture/hdf5/chunk_decode.h"
#include "capture/hdf5/index.h"
#include "npudiff/capture/capture.h"

/* Memory that views are made in, kept from call to call. Zeroed to begin with; one per thread and view that is
 * in use at a time. May go from capture to capture. */
struct nd_view_scratch {
    unsigned char *bytes; /* a range that is not decoded, or over several chunks */
    size_t bytes_capacity;
    unsigned char *chunk; /* one decoded chunk: */
    size_t chunk_capacity;
    uint64_t chunk_serial; /* of which file (0: none), */
    const void *chunk_object;
    size_t chunk_index;
    unsigned char *stored; /* a chunk as it lies in the file */
    size_t stored_capacity;
    struct nd_chunk_decoder decoder;
};

/* Frees what it holds and zeroes it. */
void nd_view_scratch_deinit(struct nd_view_scratch *scratch);

/* Bytes [first_byte, first_byte + n_bytes) of the outputs (of the first repeat) of all samples in C order:
 * sample s starts at s times the sample's size. *out points into scratch and is valid until the next call with
 * it; of a range in one chunk that has to be decoded, the decoded chunk is kept, so that the next range in it
 * costs nothing. *out need not be aligned to anything, and is not NULL when n_bytes is 0.
 *
 * Scratch takes at most n_bytes, two chunks and a stored chunk. Threads may view at the same time with a
 * scratch each. ND_ERR_NOT_FOUND: only digests are stored, or the range is outside; ND_ERR_FORMAT: a chunk
 * cannot be decoded, or the file has become shorter; ND_ERR_IO, ND_ERR_MEMORY. */
enum nd_status nd_capture_view_outputs(const struct nd_probe_values *tensor, size_t first_byte, size_t n_bytes,
                                       struct nd_view_scratch *scratch, const unsigned char **out,
                                       struct nd_error *err);

/* Where everything lies in the file; borrowed. */
const struct nd_index *nd_capture_index(const struct nd_capture *capture);

/* The error (ND_E_CAPTURE_DIGEST) of a sample whose bytes do not have the digest that the capture states. */
enum nd_status nd_capture_fail_damaged(const struct nd_capture *capture, size_t probe, size_t tensor,
                                       size_t sample, struct nd_error *err);

/* Bytes in C order that one stored chunk of these outputs covers (of the last one of a sample, or of all, less
 * may be real): whole samples, or a part of one. 0 where they are contiguous, empty or not stored. For cutting
 * work so that no chunk is decoded twice. */
size_t nd_capture_outputs_chunk_bytes(const struct nd_probe_values *tensor);

/* True when the same range of these two outputs is known to be equal without decoding it: both have the same
 * shape, element size and chunks, and all chunks that overlap the range are deflated, filtered alike and equal
 * as they are stored. False means nothing (so for data that is not deflated: comparing it is as fast). Whether
 * the chunks can be decoded is not looked at. A range that is outside is not alike. What was viewed with the
 * scratches, which are two, stays valid. */
bool nd_capture_is_stored_alike(const struct nd_probe_values *a, const struct nd_probe_values *b,
                                size_t first_byte, size_t n_bytes, struct nd_view_scratch *scratch_a,
                                struct nd_view_scratch *scratch_b);

/* ND_ERR_IO (ND_E_CAPTURE_CHANGED) when the file has another size or modification time than when it was opened:
 * what was read may be a mixture. A change that keeps both, as within one tick of the clock, is not seen. */
enum nd_status nd_capture_check_unchanged(const struct nd_capture *capture, struct nd_error *err);
