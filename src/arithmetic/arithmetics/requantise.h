/* Arithmetics from an integer accumulator to a quantised value, by their parts. With a = the sum of products of
 * quantised values less their zero points (and of what is added to it), M = s_x s_w / s_y, and z the output's
 * zero point:
 *
 *     c = M with few bits                         (multiplier_bits, multiplier_rounding)
 *     step = 2^e, e = floor(-log2 M) - granule_bits, at least 0 where the granule is whole; 1 without a granule
 *     b = round(z / M), of float32 or not, where the zero point is folded into the accumulator, else 0
 *     A = step (floor((a + b) / step) + h), h = 1/2 with half a granule, else 0
 *     q = clip(round(c A) + z), the quantised value, without z where it is folded
 *
 * Before that the accumulator may saturate or wrap at a width. What single and double rounding of exact values
 * is (rounding.h) has its parts here, too: exact multiplier, no granule.
 *
 * Or, in the place of all parts: q = clip(round(M a) + z) as enum nd_fixed_point below has it. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "arithmetic/exact/linear/rounding.h"

/* Integer arithmetic as TensorFlow Lite's kernels and TOSA specify it: the multiplier M = q 2^(e - 31), q of 31
 * bits and without a sign, times an accumulator a of 32 bits.
 *
 *     gemmlowp        a q 2^(max(e,0) - 31) rounded to a whole number, half up; that times 2^min(e,0) rounded
 *                     half away from zero: MultiplyByQuantizedMultiplier of TensorFlow Lite (without
 *                     TFLITE_SINGLE_ROUNDING), which is gemmlowp's SaturatingRoundingDoublingHighMul and
 *                     RoundingDivideByPOT
 *     tosa-single     a q 2^(e - 31) rounded once, half up: RESCALE of TOSA with SINGLE_ROUND
 *     tosa-double     the same, but of e < 0 with 2^(e-1) added before where a is not negative, else taken
 *                     off: RESCALE of TOSA with DOUBLE_ROUND */
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

enum { ND_MULTIPLIER_EXACT = 0, ND_MULTIPLIER_MAX_BITS = 23, ND_REQUANTISE_NAME_BYTES = 96 };

struct nd_requantise {
    int multiplier_bits; /* behind the leading one: 1 .. 23 (float32); ND_MULTIPLIER_EXACT: M as it is */
    enum nd_rounding multiplier_rounding; /* half-even, half-up, floor */
    bool has_granule;
    int granule_bits;      /* 0 .. 15 */
    bool is_granule_whole; /* e is at least 0 */
    bool has_half_granule; /* only with a granule */
    bool folds_zero;
    enum nd_rounding fold_rounding; /* of z / M where it is folded */
    bool is_fold_f32;               /* z / M is first rounded to float32 */
    enum nd_rounding rounding;      /* of c A */
    int accumulator_bits;           /* 16 .. 32, signed; 0: wide enough */
    bool wraps;                     /* else it saturates */
    enum nd_fixed_point fixed;      /* not ND_FIXED_NONE: all else is as in a zeroed arithmetic */
};

/* "multiplier:11+granule:3+half+rounding:half-up": parts joined by '+', those that are absent left out:
 *     multiplier:BITS[:ROUNDING]  granule:BITS  granule-whole:BITS  half  fold-zero[:ROUNDING]  fold-f32
 *     rounding:ROUNDING  saturate:BITS  wrap:BITS
 * or one of gemmlowp, tosa-single and tosa-double alone.
 *
 * from_name is false for anything else, and for a part that is there twice. */
const char *nd_requantise_name(const struct nd_requantise *arithmetic, char buf[ND_REQUANTISE_NAME_BYTES]);
bool nd_requantise_from_name(const char *name, struct nd_requantise *out);

/* An arithmetic made ready for one multiplier and zero point. */
struct nd_requantise_ready {
    double c, step, half, fold, zero;
    double least, greatest, modulus; /* of the accumulator; modulus 0: it saturates */
    enum nd_rounding rounding;
    enum nd_fixed_point fixed;
    struct nd_fixed_multiplier multiplier; /* of that */
};

/* multiplier > 0 and finite. Exact where |a| < 2^28 and the multiplier has 24 bits. */
struct nd_requantise_ready nd_requantise_prepare(const struct nd_requantise *arithmetic, double multiplier,
                                                 double zero_point);
/* The quantised value for the accumulator a, a whole number, clipped to low .. high. */
double nd_requantise_qvalue(const struct nd_requantise_ready *requantiser, double a, double low, double high);

/* The number that the arithmetic multiplies the accumulator with, in steps of 2^e. */
double nd_multiplier_round(double multiplier, int n_bits, enum nd_rounding rounding);
/* floor(-log2 M), exactly. */
int nd_multiplier_log(double multiplier);
