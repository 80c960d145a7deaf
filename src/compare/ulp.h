/* Floats as bits: ordered integers, classes and exact values. METRICS.md sections 3 and 5. */
#ifndef ND_COMPARE_ULP_H
#define ND_COMPARE_ULP_H

#include "npudiff/tensor.h"

/* One float type: where its bits are. */
struct nd_float_format {
    enum nd_dtype dtype;
    int exponent_bits;
    int fraction_bits;
};

/* The format of a float dtype (nd_dtype_is_float), NULL for others. Static storage. */
const struct nd_float_format *nd_float_format(enum nd_dtype dtype);

bool nd_float_is_nan(const struct nd_float_format *format, uint64_t bits);
bool nd_float_is_inf(const struct nd_float_format *format, uint64_t bits);

/* The value as a double: exact for every format. */
double nd_float_value(const struct nd_float_format *format, uint64_t bits);

/* How many floats lie between two values that are not NaN, one end counted: 0 for equal values, also for +0 and
 * -0. */
uint64_t nd_float_distance_ulp(const struct nd_float_format *format, uint64_t a, uint64_t b);

#endif
