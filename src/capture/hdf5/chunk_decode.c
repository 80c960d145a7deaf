/* Decodes a stored chunk: shuffle and deflate. docs/reference/capture-format.md. */
#include "capture/hdf5/chunk_decode.h"

#include <stdlib.h>
#include <string.h>

#include <libdeflate.h>

#include "core/error.h"

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
