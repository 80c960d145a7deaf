/* Which tensors that a file has as floats are quantised values. */
#ifndef ND_FOREIGN_MATCH_QVALUES_H
#define ND_FOREIGN_MATCH_QVALUES_H

#include "npudiff/core/tensor.h"
#include "record/import/map.h"

/* Floats that stand for quantised values. Many tools dequantise what a device computed before they write it.
 * Where every float of a tensor is the real value of a quantised value, the quantised values are what the
 * device computed, and they are kept. */

struct nd_grid {
    enum nd_dtype qvalues; /* type of the codes: integers of at most 16 bits, else nothing is on the grid */
    const struct nd_quant *quant;
    struct nd_shape shape; /* of a sample: quant->axis counts in it */
};

/* Where a float is not on the grid. */
struct nd_grid_miss {
    size_t n;     /* how many are not */
    size_t first; /* the first of them, its value, and the real value next to it */
    double value, nearest;
};

/* Writes the quantised values of n values of type `dtype` (float16, bfloat16, float32 or float64) to quantised
 * values, which may be NULL. true: every value is finite, not -0, and the real of a quantised value to within
 * two roundings of float32 (of a 16-bit type: to within one of its own). *miss (nullable) says what is not.
 * Values of 16-bit types lie close to some quantised value by chance where quantised values are large: they are
 * taken for quantised values only where the chance that all of n random values are is below 2^-32. */
bool nd_grid_qvalues(const struct nd_grid *grid, enum nd_dtype dtype, const void *values, size_t n,
                     void *qvalues, struct nd_grid_miss *miss);

/* Element i of an array as a double; of 64-bit integers the nearest. */
double nd_grid_value(enum nd_dtype dtype, const void *values, size_t i);

#endif
