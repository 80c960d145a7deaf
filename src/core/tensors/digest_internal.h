/* The digest as each instruction set computes it: digest_template.c. */
#pragma once

#include "npudiff/core/tensor.h"

/* A state is aligned to 64 bytes. */
struct nd_digest_functions {
    size_t state_bytes;
    struct nd_digest (*of_bytes)(const void *data, size_t size_bytes);
    void (*reset)(void *state);
    void (*add)(void *state, const void *data, size_t size_bytes);
    struct nd_digest (*value)(const void *state);
};

extern const struct nd_digest_functions nd_digest_plain, nd_digest_avx2; /* avx2: where meson.build says so */

/* ---- nd_digest_bytes of bytes that come in pieces ---- */

struct nd_digest_stream;

/* NULL when out of memory. */
struct nd_digest_stream *nd_digest_stream_create(void);
void nd_digest_stream_destroy(struct nd_digest_stream **stream);

void nd_digest_stream_add(struct nd_digest_stream *stream, const void *data, size_t size_bytes);

/* Of all that was added so far. */
struct nd_digest nd_digest_stream_value(const struct nd_digest_stream *stream);
