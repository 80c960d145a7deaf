#define XXH_INLINE_ALL
#include <stdlib.h>
#include <xxhash.h>

#include "base/digest_stream.h"
#include "base/memory.h"

struct nd_digest nd_digest_bytes(const void *data, size_t size_bytes)
{
    XXH128_hash_t hash = XXH3_128bits(data, size_bytes);
    return (struct nd_digest){.low = hash.low64, .high = hash.high64};
}

bool nd_digest_equal(struct nd_digest a, struct nd_digest b)
{
    return a.low == b.low && a.high == b.high;
}

struct nd_digest_stream {
    XXH3_state_t state; /* aligned to 64 bytes, which is why nd_tensor_alloc makes it */
};

struct nd_digest_stream *nd_digest_stream_create(void)
{
    struct nd_digest_stream *stream = nd_tensor_alloc(sizeof *stream);
    if (stream != NULL)
        XXH3_128bits_reset(&stream->state);
    return stream;
}

void nd_digest_stream_destroy(struct nd_digest_stream **stream)
{
    free(*stream);
    *stream = NULL;
}

void nd_digest_stream_add(struct nd_digest_stream *stream, const void *data, size_t size_bytes)
{
    XXH3_128bits_update(&stream->state, data, size_bytes);
}

struct nd_digest nd_digest_stream_value(const struct nd_digest_stream *stream)
{
    XXH128_hash_t hash = XXH3_128bits_digest(&stream->state);
    return (struct nd_digest){.low = hash.low64, .high = hash.high64};
}
