/* A tensor in double precision: how every value of an evaluated graph is held. Whole numbers (quantised values,
 * indices, shapes) are doubles too; up to 2^53 that is exact. */
#pragma once

#include <string.h>

#include "npudiff/core/tensor.h"

struct nd_array {
    struct nd_shape shape;
    size_t n;            /* elements */
    enum nd_dtype dtype; /* what the graph calls it; values are doubles all the same */
    double *x;           /* [n] in C order, owned; NULL when n is 0 */
};

/* As many elements, and the same bits in each. */
static inline bool nd_array_is_same(const struct nd_array *a, const struct nd_array *b)
{
    return a->n == b->n && (a->n == 0 || memcmp(a->x, b->x, a->n * sizeof *a->x) == 0);
}

/* Room for a tensor of that shape, zeroed. A previous content of *array is freed. ND_ERR_FORMAT, ND_ERR_MEMORY.
 */
enum nd_status nd_array_make(struct nd_array *array, enum nd_dtype dtype, const struct nd_shape *shape,
                             struct nd_error *err);
/* The same with any values in it, for who writes them all. */
enum nd_status nd_array_make_room(struct nd_array *array, enum nd_dtype dtype, const struct nd_shape *shape,
                                  struct nd_error *err);
/* From stored elements (as nd_capture_read_outputs gives them: any dtype of enum nd_dtype) and back; rounding
 * on the way back is to nearest even, integers are clipped to the type. n elements. */
void nd_array_load(enum nd_dtype dtype, const void *bytes, size_t n, double *x);
void nd_array_store(enum nd_dtype dtype, const double *x, size_t n, void *bytes);
enum nd_status nd_array_copy(const struct nd_array *from, struct nd_array *to, struct nd_error *err);
/* Frees the elements and zeroes the struct; a zeroed one is accepted. */
void nd_array_deinit(struct nd_array *array);
