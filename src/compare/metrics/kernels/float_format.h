/* Float types: their ranges, and rounding a double to one of them. docs/reference/metrics.md#ulp. */
#ifndef ND_METRICS_FLOAT_FORMAT_H
#define ND_METRICS_FLOAT_FORMAT_H

#include "npudiff/core/tensor.h"

struct nd_float_format {
    enum nd_dtype dtype;
    int exponent_bits;
    int fraction_bits;
    double max; /* the largest finite value */
};

/* The format of a float dtype (nd_dtype_is_float), NULL for others. Static storage. */
const struct nd_float_format *nd_float_format(enum nd_dtype dtype);

double nd_float_max(const struct nd_float_format *format);

/* The least positive normal value. */
double nd_float_min_normal(const struct nd_float_format *format);

/* How many floats of the format the two values are apart once they are rounded to it; neither may be NaN. */
uint64_t nd_float_distance_in(const struct nd_float_format *format, double a, double b);

#endif
