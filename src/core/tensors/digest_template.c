/* The digest of one instruction set. Meson compiles this file once for each, with ND_DIGEST_ISA and the flags
 * of that set, since xxhash picks its loops when it is compiled. The digest is the same. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/tensors/digest_internal.h"

#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)

static struct nd_digest digest_of(XXH128_hash_t hash)
{
    return (struct nd_digest){.low = hash.low64, .high = hash.high64};
}

static struct nd_digest of_bytes(const void *data, size_t size_bytes)
{
    return digest_of(XXH3_128bits(data, size_bytes));
}

static void reset(void *state)
{
    XXH3_128bits_reset(state);
}

static void add(void *state, const void *data, size_t size_bytes)
{
    XXH3_128bits_update(state, data, size_bytes);
}

static struct nd_digest value(const void *state)
{
    return digest_of(XXH3_128bits_digest(state));
}

const struct nd_digest_functions JOIN(nd_digest_, ND_DIGEST_ISA) = {
    .state_bytes = sizeof(XXH3_state_t), .of_bytes = of_bytes, .reset = reset, .add = add, .value = value};
