/* Integer arithmetic as TensorFlow Lite's kernels and TOSA specify it: the multiplier M = q 2^(e - 31), q of 31
 * bits and without a sign, times an accumulator a of 32 bits.
 *
 *     gemmlowp        a q 2^(max(e,0) - 31) rounded to a whole number, half up; that times 2^min(e,0) rounded
 * half away from zero: MultiplyByQuantizedMultiplier of TensorFlow Lite (without TFLITE_SINGLE_ROUNDING), which
 * is gemmlowp's SaturatingRoundingDoublingHighMul and RoundingDivideByPOT tosa-single     a q 2^(e - 31)
 * rounded once, half up: RESCALE of TOSA with SINGLE_ROUND tosa-double     the same, but of e < 0 with 2^(e-1)
 * added before where a is not negative, else taken off: RESCALE of TOSA with DOUBLE_ROUND */
#ifndef ND_ARITH_FIXED_POINT_H
#define ND_ARITH_FIXED_POINT_H

#include <stdbool.h>
#include <stddef.h>

enum nd_fixed_point {
    ND_FIXED_NONE,
    ND_FIXED_GEMMLOWP,
    ND_FIXED_TOSA_SINGLE,
    ND_FIXED_TOSA_DOUBLE,
    ND_FIXED_N
};

/* M = q 2^(e - 31). */
struct nd_fixed_multiplier {
    double q;
    int e;
};

/* M > 0 and finite; q is rounded half away from zero. */
struct nd_fixed_multiplier nd_fixed_multiplier(double multiplier);
/* Of a mean of n numbers whose sum is multiplied by M: TensorFlow Lite divides the q of M n by n, and cuts
 * (QuantizedMeanOrSum of its reference kernels); TOSA rounds that of M itself. */
struct nd_fixed_multiplier nd_fixed_multiplier_of_mean(enum nd_fixed_point kind, double multiplier, double n);

/* The whole number that a becomes; 0 where the specification says nothing: a shift or a number that is too
 * large. kind is not ND_FIXED_NONE. */
double nd_fixed_run(enum nd_fixed_point kind, const struct nd_fixed_multiplier *multiplier, double a);

const char *nd_fixed_name(enum nd_fixed_point kind); /* "" of none. Static */
bool nd_fixed_from_name(const char *name, enum nd_fixed_point *out);

#endif
