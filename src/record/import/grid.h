/* Floats that stand for codes. Many tools dequantise what a device computed before they write it. Where every
 * float of a tensor is the real value of a code, the codes are what the device computed, and they are kept. */
#ifndef ND_FOREIGN_GRID_H
#define ND_FOREIGN_GRID_H

#include "npudiff/core/tensor.h"

struct nd_grid {
    enum nd_dtype codes; /* type of the codes: integers of at most 16 bits, else nothing is on the grid */
    const struct nd_quant *quant;
    struct nd_shape shape; /* of a sample: quant->axis counts in it */
};

/* Where a float is not on the grid. */
struct nd_grid_miss {
    size_t n;     /* how many are not */
    size_t first; /* the first of them, its value, and the real value next to it */
    double value, nearest;
};

/* Writes the codes of n values of type `dtype` (float16, bfloat16, float32 or float64) to codes, which may be
 * NULL. true: every value is finite, not -0, and the real of a code to within two roundings of float32 (of a
 * 16-bit type: to within one of its own). *miss (nullable) says what is not. Values of 16-bit types lie close
 * to some code by chance where codes are large: they are taken for codes only where the chance that all of n
 * random values are is below 2^-32. */
bool nd_grid_codes(const struct nd_grid *grid, enum nd_dtype dtype, const void *values, size_t n, void *codes,
                   struct nd_grid_miss *miss);

/* Numbers of any type that hold codes as they are (a float32 array of 0 ... 255). false where one is no code.
 */
bool nd_grid_whole_codes(enum nd_dtype codes_dtype, enum nd_dtype dtype, const void *values, size_t n,
                         void *codes, struct nd_grid_miss *miss);

/* Element i of an array as a double; of 64-bit integers the nearest. */
double nd_grid_value(enum nd_dtype dtype, const void *values, size_t i);

#endif
