/* Exact values and how they are rounded once. The value before rounding is called v, in steps of the output:
 * v = real / scale. */
#ifndef ND_EVAL_ROUNDING_H
#define ND_EVAL_ROUNDING_H

#include "npudiff/core/tensor.h"

/* An exact number: the sum of doubles of decreasing size that do not overlap. parts[0] has the sign of the
 * number and is within a unit in its last place of it; parts behind the last that is needed are 0.
 * Infinities and NaN are held in parts[0] alone. All operations expect magnitudes between 2^-900 and 2^900, far
 * outside of what products of four float32 and a quantised value can be, and the processor's usual rounding to
 * nearest. */
enum { ND_WIDE_PARTS = 3 };
struct nd_wide {
    double parts[ND_WIDE_PARTS];
};

struct nd_wide nd_wide_from(double value);
struct nd_wide nd_wide_product(double a, double b); /* exact */
/* Exact while the result has at most 159 bits, else cut behind them. */
struct nd_wide nd_wide_add(struct nd_wide a, struct nd_wide b);
struct nd_wide nd_wide_scale(struct nd_wide a, double factor);
struct nd_wide nd_wide_negate(struct nd_wide a);
int nd_wide_sign(struct nd_wide a);                      /* -1, 0, 1; 0 for NaN */
int nd_wide_compare(struct nd_wide a, struct nd_wide b); /* the sign of a - b */

/* v = numerator / denominator, the denominator positive; 0 is allowed and makes v infinite, or NaN for 0 / 0,
 * as floats do. Wide because of Div: quantised value times scale times scale is up to 65 bits. */
struct nd_ratio {
    struct nd_wide numerator;
    struct nd_wide denominator;
};
struct nd_ratio nd_ratio_of(double numerator, double denominator);
/* 0 / 0, or a NaN that an operator made: the square root of a negative number, say. */
bool nd_ratio_is_nan(const struct nd_ratio *ratio);
/* The nearest double, ties to even. */
double nd_ratio_value(const struct nd_ratio *ratio);

enum nd_rounding {
    ND_ROUND_HALF_EVEN,
    ND_ROUND_HALF_AWAY,
    ND_ROUND_HALF_UP,
    ND_ROUND_HALF_DOWN,
    ND_ROUND_FLOOR,
    ND_ROUND_CEIL,
    ND_ROUND_TO_ZERO,
};
/* "half-even", "half-away", "half-up" (toward +inf), "half-down" (toward -inf), "floor", "ceil", "to-zero". */
const char *nd_rounding_name(enum nd_rounding rounding);
bool nd_rounding_from_name(const char *name, enum nd_rounding *out);

/* Where v lies: floor <= v < floor + 1. Of NaN it is 0, and beyond +-2^52 that bound itself. */
struct nd_place {
    double floor;
    double fraction; /* v - floor, to within |v| 2^-50 */
    bool is_whole;   /* v = floor, exactly */
    int half;        /* the sign of v - (floor + 1/2), exactly */
};
struct nd_place nd_place_of(const struct nd_ratio *ratio);
double nd_round_place(const struct nd_place *place, enum nd_rounding rounding);

/* The whole number that v is rounded to, exactly, ties included; below -2^52 it is -2^52, above 2^52 it is
 * 2^52. NaN gives 0; 0 is never negative. */
double nd_round_ratio(const struct nd_ratio *ratio, enum nd_rounding rounding);
double nd_round_value(double v, enum nd_rounding rounding);

/* x within low and high, and low of NaN: what fmin(fmax(x, low), high) gives, without a call for each. */
static inline double nd_within(double x, double low, double high)
{
    double above = x > low ? x : low;
    return above < high ? above : high;
}

/* The least and the largest quantised value of an integer type of at most 32 bits, 4-bit ones included; other
 * types are asserted. */
void nd_qvalue_range(enum nd_dtype dtype, double *low, double *high);

/* round(v) + zero_point, clipped to the type. NaN, of which ONNX's specification says nothing, gives the least
 * quantised value, as ONNX Runtime's CPU provider has it on x86-64 (tools/studies/hold_exact). */
double nd_qvalue_of_ratio(const struct nd_ratio *ratio, double zero_point, enum nd_dtype dtype,
                          enum nd_rounding rounding);

#endif
