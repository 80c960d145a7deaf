/* Exact values and how they are rounded once. The value before rounding is called v, in steps of the output:
 * v = real / scale. */
#pragma once

#include "npudiff/core/tensor.h"

/* An exact number: the sum of doubles of decreasing size that do not overlap. parts[0] has the sign of the
 * number and is within a unit in its last place of it; parts behind the last that is needed are 0. Infinities
 * and NaN are held in parts[0] alone. All operations expect magnitudes between 2^-900 and 2^900, far outside of
 * what products of four float32 and a quantised value can be, and the processor's usual rounding to nearest. */
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

/* Rules: what a device does between the exact value of a layer and its quantised value. Each is a formula
 * from v, in steps of the output, to a whole number, to which the zero point is added before clipping.
 *
 *     half-even ... to-zero   v rounded once (enum nd_rounding)
 *     double:N                v rounded to N fraction bits, half up, then that to a whole number, half away
 *                             from zero: fixed point multiplication with a rounding shift behind it (gemmlowp,
 *                             TOSA DOUBLE_ROUND). Differs from rounding once in 2^-(N+1) of all values
 *     float32                 v as a float32, rounded half to even */
enum nd_rounding_rule_kind {
    ND_ROUNDED_ONCE,
    ND_ROUNDED_TWICE,
    ND_ROUNDED_AS_FLOAT32,
};

struct nd_rounding_rule {
    enum nd_rounding_rule_kind kind;
    enum nd_rounding rounding; /* of ND_ROUNDED_ONCE */
    int n_bits;                /* of ND_ROUNDED_TWICE: 1 to ND_ROUNDING_RULE_MAX_BITS */
};

enum { ND_ROUNDING_RULE_MAX_BITS = 12, ND_ROUNDING_RULE_NAME_BYTES = 32 };

/* All of them, the commoner ones first. */
const struct nd_rounding_rule *nd_rounding_rules(size_t *n);

/* "half-even", "double:8", "float32". from_name is false for anything else. */
const char *nd_rounding_rule_name(const struct nd_rounding_rule *arithmetic,
                                  char buf[ND_ROUNDING_RULE_NAME_BYTES]);
bool nd_rounding_rule_from_name(const char *name, struct nd_rounding_rule *out);

/* The whole number; place is that of the ratio. */
double nd_rounding_rule_round(const struct nd_rounding_rule *arithmetic, const struct nd_ratio *ratio,
                              const struct nd_place *place);

/* The quantised value of the ratio, which is in steps of the output: rounded, zero_point added, within what
 * dtype holds. */
double nd_rounding_rule_qvalue(const struct nd_rounding_rule *arithmetic, const struct nd_ratio *ratio,
                               double zero_point, enum nd_dtype dtype);
