/* Qnn_DataType_t: QNN's types by number and name, and what they are here. */
#pragma once

#include <jansson.h>

#include "npudiff/core/tensor.h"

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
