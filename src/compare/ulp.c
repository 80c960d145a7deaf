#include "compare/ulp.h"

#include <math.h>
#include <string.h>

static const struct nd_float_format formats[] = {
    {ND_DTYPE_F16, 5, 10},
    {ND_DTYPE_BF16, 8, 7},
    {ND_DTYPE_F32, 8, 23},
    {ND_DTYPE_F64, 11, 52},
};

const struct nd_float_format *nd_float_format(enum nd_dtype dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

static uint64_t sign_bit(const struct nd_float_format *format)
{
    return (uint64_t)1 << (format->exponent_bits + format->fraction_bits);
}

static uint64_t magnitude(const struct nd_float_format *format, uint64_t bits)
{
    return bits & (sign_bit(format) - 1);
}

static uint64_t inf_magnitude(const struct nd_float_format *format)
{
    return (((uint64_t)1 << format->exponent_bits) - 1) << format->fraction_bits;
}

bool nd_float_is_nan(const struct nd_float_format *format, uint64_t bits)
{
    return magnitude(format, bits) > inf_magnitude(format);
}

bool nd_float_is_inf(const struct nd_float_format *format, uint64_t bits)
{
    return magnitude(format, bits) == inf_magnitude(format);
}

static double value_f32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

static double value_f16(const struct nd_float_format *format, uint64_t bits)
{
    uint64_t fraction = bits & 0x3ff, exponent = bits >> 10 & 0x1f;
    double value;
    if (exponent == 0x1f)
        value = fraction != 0 ? NAN : INFINITY;
    else if (exponent == 0)
        value = ldexp((double)fraction, -24);
    else
        value = ldexp((double)(fraction | 0x400), (int)exponent - 25);
    return bits & sign_bit(format) ? -value : value;
}

double nd_float_value(const struct nd_float_format *format, uint64_t bits)
{
    double value;
    switch (format->dtype) {
    case ND_DTYPE_F16:
        return value_f16(format, bits);
    case ND_DTYPE_BF16:
        return value_f32((uint32_t)(bits << 16));
    case ND_DTYPE_F32:
        return value_f32((uint32_t)bits);
    default:
        memcpy(&value, &bits, sizeof value);
        return value;
    }
}

uint64_t nd_float_distance_ulp(const struct nd_float_format *format, uint64_t a, uint64_t b)
{
    uint64_t mag_a = magnitude(format, a), mag_b = magnitude(format, b);
    bool is_same_sign = ((a ^ b) & sign_bit(format)) == 0;
    if (!is_same_sign)
        return mag_a + mag_b; /* both at most 2^63 - 1: fits */
    return mag_a > mag_b ? mag_a - mag_b : mag_b - mag_a;
}
