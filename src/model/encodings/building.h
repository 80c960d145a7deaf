/* Encodings as they are built while a file is read. */
#pragma once

#include <jansson.h>

#include "core/error.h"
#include "core/text/strbuf.h"
#include "npudiff/model/encodings.h"

struct nd_encodings {
    char *path;
    char *source;
    struct nd_encoding *items;
    size_t n, capacity;
    struct nd_names names; /* of items, each allocated apart */
};

/* One affine encoding as a file states it, in the ONNX convention already. */
struct nd_stated {
    const char *name;
    enum nd_encoding_role role;
    int bits;
    bool is_signed;
    bool is_symmetric;
    bool has_axis;
    int axis;
    size_t n;
    const double *scales;
    const double *zero_points;
};

/* Adds it after checking it. ND_E_ENCODINGS_FORMAT naming file and tensor. */
enum nd_status nd_encodings_add(struct nd_encodings *encodings, const struct nd_stated *stated,
                                struct nd_error *err);

/* Adds one that is listed only. */
enum nd_status nd_encodings_add_unhandled(struct nd_encodings *encodings, const char *name,
                                          enum nd_encoding_role role, const char *why, struct nd_error *err);

/* ---- JSON ---- */

/* An object of the file, and the tensor that it describes. */
struct nd_described {
    const struct nd_encodings *encodings;
    const char *tensor; /* for messages; nullable */
    const json_t *object;
};

enum nd_status nd_encodings_read_qnn(struct nd_encodings *encodings, const json_t *root, struct nd_error *err);
