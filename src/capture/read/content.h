/* The content digest of a capture: XXH3-128 over the canonical stream that
 * docs/reference/capture-format.md#content-digest defines. */
#ifndef ND_CAPTURE_CONTENT_H
#define ND_CAPTURE_CONTENT_H

#include "capture/hdf5/index.h"

enum { ND_CONTENT_DIGEST_BYTES = 33 };

/* 32 hexadecimal digits and a NUL. Reads every dataset but the tensors, which their digests stand for, and but
 * those of which `known` (one per object; nullable, as are its elements) has the digest already. */
enum nd_status nd_content_digest(const struct nd_index *index, const struct nd_digest *const *known,
                                 char hex[static ND_CONTENT_DIGEST_BYTES], struct nd_error *err);

#endif
