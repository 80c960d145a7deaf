/* nd_digest_bytes of bytes that come in pieces. */
#ifndef ND_BASE_DIGEST_STREAM_H
#define ND_BASE_DIGEST_STREAM_H

#include "npudiff/core/tensor.h"

struct nd_digest_stream;

/* NULL when out of memory. */
struct nd_digest_stream *nd_digest_stream_create(void);
void nd_digest_stream_destroy(struct nd_digest_stream **stream);

void nd_digest_stream_add(struct nd_digest_stream *stream, const void *data, size_t size_bytes);

/* Of all that was added so far. */
struct nd_digest nd_digest_stream_value(const struct nd_digest_stream *stream);

#endif
