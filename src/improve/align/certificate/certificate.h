/* What writing and checking certificates have in common. docs/reference/certificate.md. */
#pragma once

#include <jansson.h>

#include "core/tensors/sha256.h"
#include "improve/align/align_stages.h"
#include "npudiff/improve/certificate.h"

struct nd_certificate {
    char *path;
    json_t *root; /* an object of the right kind and format */
};

enum { ND_CERTIFICATE_DIGEST_BYTES = 33 }; /* 32 hexadecimal digits and a NUL */

/* A digest of what the arithmetic makes of the model. Every layer that it covers reads quantised
 * values that are drawn from a fixed seed, so that no other layer has a part in it. An arithmetic that is
 * mended in a later version of npudiff, and that matters to this model, has another digest. */
enum nd_status nd_align_behaviour(const struct nd_model *model, const struct nd_layer_arithmetic *arithmetic,
                                  char digits[static ND_CERTIFICATE_DIGEST_BYTES], struct nd_error *err);

/* Of all values of all inputs, and of the labels. ND_ERR_MEMORY. */
enum nd_status nd_certificate_probe_digest(const struct nd_probe *probe,
                                           char digits[static ND_CERTIFICATE_DIGEST_BYTES],
                                           struct nd_error *err);
