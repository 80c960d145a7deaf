/* Quantised values that wait for their use: one or two bytes for each, and not a double. */
#pragma once

#include "arithmetic/operators/array.h"

struct nd_packed {
    struct nd_array tensor_view; /* shape, n and dtype of the array; without elements */
    size_t width;                /* bytes of an element: 1 or 2 for quantised values of such types, else 8 */
    void *bytes;                 /* [n * width], owned; NULL while nothing was packed */
};

/* What `values` has; room of before is used again. Values that their type does not hold (fractions) stay
 * doubles. ND_ERR_MEMORY: nothing is packed. */
enum nd_status nd_pack(const struct nd_array *values, struct nd_packed *to, struct nd_error *err);
/* out[n]; something was packed. */
void nd_unpack(const struct nd_packed *packed, double *out);
/* Forgets the elements; a zeroed one is accepted. */
void nd_packed_deinit(struct nd_packed *packed);
/* Bytes that an element of the type takes. */
size_t nd_packed_width(enum nd_dtype dtype);
