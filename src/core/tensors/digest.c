/* Digests of tensors, by the code for this CPU (digest_template.c). */

#include "core/memory.h"
#include "core/tensors/digest_internal.h"

static const struct nd_digest_functions *functions(void)
{
#ifdef ND_HAVE_DIGEST_AVX2
    if (__builtin_cpu_supports("avx2"))
        return &nd_digest_avx2;
#endif
    return &nd_digest_plain;
}

struct nd_digest nd_digest_bytes(const void *data, size_t size_bytes)
{
    return functions()->of_bytes(data, size_bytes);
}

bool nd_digest_equal(struct nd_digest a, struct nd_digest b)
{
    return a.low == b.low && a.high == b.high;
}

struct nd_digest_stream {
    const struct nd_digest_functions *functions;
    void *state; /* aligned to 64 bytes, which is why nd_tensor_alloc makes it */
};

struct nd_digest_stream *nd_digest_stream_create(void)
{
    struct nd_digest_stream *stream = nd_calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    stream->functions = functions();
    stream->state = nd_tensor_alloc(stream->functions->state_bytes);
    if (stream->state == NULL)
        nd_digest_stream_destroy(&stream);
    else
        stream->functions->reset(stream->state);
    return stream;
}

void nd_digest_stream_destroy(struct nd_digest_stream **stream)
{
    if (*stream != NULL)
        free((*stream)->state);
    free(*stream);
    *stream = NULL;
}

void nd_digest_stream_add(struct nd_digest_stream *stream, const void *data, size_t size_bytes)
{
    stream->functions->add(stream->state, data, size_bytes);
}

struct nd_digest nd_digest_stream_value(const struct nd_digest_stream *stream)
{
    return stream->functions->value(stream->state);
}
