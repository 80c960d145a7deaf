/* Encodings as they are built while a file is read. */
#pragma once

#include <jansson.h>

#include "core/error.h"
#include "core/text/strbuf.h"
#include "npudiff/core/tensor.h"
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

/* ---- qnn_DataType_t: QNN's types by number and name, and what they are here ---- */

struct nd_qnn_type {
    uint32_t number;
    const char *name; /* "QNN_DATATYPE_UFIXED_POINT_8" */
    enum nd_dtype dtype;
    bool is_fixed_point; /* quantised */
};

/* NULL: it is none of those that have a type here. */
const struct nd_qnn_type *nd_qnn_type_of(uint32_t number);

/* "QNN_DATATYPE_UNDEFINED" for those. */
const char *nd_qnn_type_name(uint32_t number);

/* By its number, or its name with or without "QNN_DATATYPE_". */
const struct nd_qnn_type *nd_qnn_type_read(const json_t *value);

/* The quantised type whose quantised values are of dtype. */
const struct nd_qnn_type *nd_qnn_type_quantised(enum nd_dtype dtype);
