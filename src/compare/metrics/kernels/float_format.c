/* Float types: their ranges, and how many of their values apart two numbers are. docs/reference/metrics.md#ulp.
 */
#include "compare/metrics/kernels/float_format.h"

#include <float.h>
#include <math.h>
#include <string.h>

static const struct nd_float_format formats[] = {
    {ND_DTYPE_F8E4M3FN, 4, 3, 448},    {ND_DTYPE_F8E5M2, 5, 2, 57344}, {ND_DTYPE_F16, 5, 10, 65504},
    {ND_DTYPE_BF16, 8, 7, 0x1.fep127}, {ND_DTYPE_F32, 8, 23, FLT_MAX}, {ND_DTYPE_F64, 11, 52, DBL_MAX},
};

const struct nd_float_format *nd_float_format(enum nd_dtype dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

double nd_float_max(const struct nd_float_format *format)
{
    return format->max;
}

static int min_exponent(const struct nd_float_format *format)
{
    return 2 - (1 << (format->exponent_bits - 1));
}

double nd_float_min_normal(const struct nd_float_format *format)
{
    return ldexp(1, min_exponent(format));
}

/* Of a finite value >= 0. The fraction is made whole by scaling with a power of two, which is exact, and
 * rounded once; a carry into the next exponent comes out right by itself. */
static int64_t magnitude_of(const struct nd_float_format *format, double value)
{
    int exponent, least = min_exponent(format);
    frexp(value, &exponent); /* value = f * 2^exponent, f in [0.5, 1) */
    exponent = value == 0 || exponent - 1 < least ? least : exponent - 1;
    double whole = nearbyint(ldexp(value, format->fraction_bits - exponent));
    return ((int64_t)(exponent - least) << format->fraction_bits) + (int64_t)whole;
}

/* The ordered integer of `value` rounded to the format (nearest, ties to even): neighbouring floats differ by
 * 1, both zeros are 0, and what is beyond the largest finite value is one more than that. value is not NaN. */
static int64_t ordered(const struct nd_float_format *format, double value)
{
    int64_t magnitude;
    if (format->dtype == ND_DTYPE_F64) {
        double positive = fabs(value);
        memcpy(&magnitude, &positive, sizeof magnitude);
    } else {
        int64_t beyond = magnitude_of(format, format->max) + 1;
        magnitude = isinf(value) ? beyond : magnitude_of(format, fabs(value));
        magnitude = magnitude < beyond ? magnitude : beyond;
    }
    return value < 0 ? -magnitude : magnitude;
}

uint64_t nd_float_distance_in(const struct nd_float_format *format, double a, double b)
{
    int64_t x = ordered(format, a), y = ordered(format, b);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}
