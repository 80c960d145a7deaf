/* The table of programs: everything a device may do between the exact value of one element of a layer and its
 * quantised value, by families. An arithmetic gives a quantised value, or two quantised values
 * and the probability of the second.
 *
 *     family        arithmetics                                        works on
 *     rounding      half-even .. to-zero                            v
 *     double        double:1 .. double:12                           v
 *     multiplier    multiplier:BITS..., multiplier-fp16, -bf16      a, M
 *     fixed-point   gemmlowp, tosa-single, tosa-double              a, M
 *     granule       granule:BITS..., fold-zero..., of the HTP       a, M, z
 *     accumulator   saturate:BITS, wrap:BITS, drop-bits:N           a, M
 *     float         float32, value-fp16, value-bf16, float-execution, unrounded-inputs    v, scale
 *     stochastic    stochastic, stochastic-equal, stochastic-bits:N v
 *
 * with v the exact value in steps of the output, a the integer accumulator, v = a M, z the zero point. Layers
 * without an accumulator (Add, Mul, pooling) have v alone: what works on a and M is not applicable to them.
 *
 *     multiplier-fp16, -bf16   M as that float, rounded half to even; multiplier:10 but for subnormals
 *     drop-bits:N              the last N bits of a are cleared (floor)
 *     value-fp16, -bf16        v as that float, then rounded half to even
 *     float-execution          v scale as a float32, over scale in float32, rounded half to even: an
 *                              operator that ran in floats and was quantised behind it
 *     unrounded-inputs         the layer read what its producers had before these were requantised, rounded
 *                              half to even: fused. Needs a v of its own
 *     stochastic               up with the probability of the fraction; :SEED is what emulated devices draw
 *                              from
 *     stochastic-equal         up with probability 1/2
 *     stochastic-bits:N        up with the fraction cut behind N bits: N random bits are added
 *
 * The names are those of arithmetics (arithmetic/exact/linear/rounding.h) and of requantisation by parts
 * (requantise.h). */
#pragma once

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/exact/linear/rounding.h"

enum { ND_ARITHMETIC_NAME_BYTES = ND_REQUANTISE_NAME_BYTES, ND_ARITHMETIC_MAX = 96 };

struct nd_arithmetic_family;

/* One arithmetic. */
struct nd_arithmetic {
    const struct nd_arithmetic_family *family;
    struct nd_rounding_rule value;   /* of rounding, double, float32 */
    struct nd_requantise requantise; /* of those that work on a */
    int kind;                        /* of a family's own */
    int n_bits;
};

/* What elements of one channel share. multiplier 0: there is no accumulator. */
struct nd_arithmetic_scaling {
    double multiplier;
    double zero, low, high; /* zero point and range of the quantised values */
    double scale;           /* of the output */
    /* What has a sum for the family fixed-point alone: */
    double
        n_averaged; /* a mean of so many: a is their sum, and multiplier is of that; 1: a product; 0: neither */
    double slope;   /* a LeakyRelu: the multiplier of a < 0 is slope times the other; 0: none */
};
/* An arithmetic made ready for it. */
struct nd_arithmetic_ready {
    const struct nd_arithmetic *arithmetic;
    struct nd_arithmetic_scaling scaling;
    struct nd_requantise_ready requantiser;
    struct nd_fixed_multiplier below; /* of a < 0, with a slope */
    double dropped;                   /* what a is cut to a multiple of; 0: nothing */
};
struct nd_arithmetic_element {
    const struct nd_ratio *v;
    struct nd_place place; /* of v */
    double a;
    const struct nd_ratio *fused; /* v when inputs were not requantised, or NULL */
};
/* quantised value, or with probability p the other one. */
struct nd_arithmetic_outcome {
    double qvalue, other, p;
};

/* Every arithmetic once, half-even first, the commoner ones of equals before the others; *n <=
 * ND_ARITHMETIC_MAX. Static. */
const struct nd_arithmetic *nd_arithmetics(size_t *n);

/* from_name reads every arithmetic of the table, and any that a family can spell: every requantisation by
 * parts, stochastic-bits:1 to 16, "stochastic:SEED" (the seed is not kept). False for anything else. */
const char *nd_arithmetic_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES]);
bool nd_arithmetic_from_name(const char *name, struct nd_arithmetic *out);
bool nd_arithmetic_is_same(const struct nd_arithmetic *a, const struct nd_arithmetic *b);
bool nd_arithmetic_needs_accumulator(const struct nd_arithmetic *arithmetic);
/* Whether it multiplies an accumulator by an integer, as integer processors do: a multiplier of some bits, or
 * the fixed point of gemmlowp and TOSA. */
bool nd_arithmetic_is_of_integers(const struct nd_arithmetic *arithmetic);
bool nd_arithmetic_is_stochastic(const struct nd_arithmetic *arithmetic);
/* Whether it needs the value with unrounded inputs. */
bool nd_arithmetic_needs_fused(const struct nd_arithmetic *arithmetic);

/* The accumulator and the multiplier of an element, given v, the scale of the output and what a step of the
 * accumulator is worth (nd_exact_accumulator_steps). A bias whose scale is not quite that is rounded half to
 * even. */
double nd_arithmetic_accumulator(const struct nd_ratio *v, double scale, const struct nd_wide *step);
double nd_arithmetic_multiplier(double scale, const struct nd_wide *step);

/* False: not applicable to layers with such elements (no accumulator, or no value with unrounded inputs). */
bool nd_arithmetic_prepare(const struct nd_arithmetic *arithmetic, const struct nd_arithmetic_scaling *scaling,
                           bool has_fused, struct nd_arithmetic_ready *out);
struct nd_arithmetic_outcome nd_arithmetic_run(const struct nd_arithmetic_ready *ready,
                                               const struct nd_arithmetic_element *element);
