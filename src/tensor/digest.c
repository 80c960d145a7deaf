#define XXH_INLINE_ALL
#include <xxhash.h>

#include "npudiff/tensor.h"

struct nd_digest nd_digest_bytes(const void *data, size_t size_bytes)
{
    XXH128_hash_t hash = XXH3_128bits(data, size_bytes);
    return (struct nd_digest){.low = hash.low64, .high = hash.high64};
}

bool nd_digest_equal(struct nd_digest a, struct nd_digest b)
{
    return a.low == b.low && a.high == b.high;
}
