/* Arithmetics from a real number to a quantised value, for operators that make one number of each: what v / s
 * is calculated in, how that is rounded, and whether the zero point is added before.
 *
 *     exact                    v / s
 *     float32-quotient         F(F(v) / s)             F: to float32, half to even
 *     float32-reciprocal       F(F(v) F(1 / s))
 *     half-quotient            H(F(F(v) / s))          H: to half precision
 *     half-reciprocal          H(F(F(v) F(1 / s)))
 *     half-value               F(H(v) / s)
 *     bfloat16-quotient        B(F(F(v) / s))          B: to bfloat16
 *
 * quantised value = clip(round(that) + z), or clip(round(F(that + z))), of the exact one without F. */
#ifndef ND_FINGERPRINT_SCALAR_H
#define ND_FINGERPRINT_SCALAR_H

#include "arithmetic/exact/linear/rounding.h"
#include "core/error.h"
#include "lab/experiment/experiment.h"

enum nd_scalar_value {
    ND_SCALAR_EXACT,
    ND_SCALAR_FLOAT32_QUOTIENT,
    ND_SCALAR_FLOAT32_RECIPROCAL,
    ND_SCALAR_HALF_QUOTIENT,
    ND_SCALAR_HALF_RECIPROCAL,
    ND_SCALAR_HALF_VALUE,
    ND_SCALAR_BFLOAT16_QUOTIENT,
    ND_N_SCALAR_VALUES,
};

struct nd_scalar_arithmetic {
    enum nd_scalar_value value;
    enum nd_rounding rounding;
    bool has_zero_inside;
};

/* "value:float32-reciprocal+rounding:half-even", "...+zero-inside". */
enum { ND_SCALAR_NAME_BYTES = 80 };
const char *nd_scalar_name(const struct nd_scalar_arithmetic *arithmetic, char buf[ND_SCALAR_NAME_BYTES]);

/* Quantised values that belong to values under one scale and zero point. Borrowed. */
struct nd_scalar_sample {
    float scale;
    double zero, low, high;
    size_t n;
    const double *values, *qvalues;
    /* The values where quantised values were dequantised to float32 before: for all arithmetics but the exact
     * ones. NULL: values. */
    const double *float_values;
};

/* What the program starts from: an element of values or of float_values. */
double nd_scalar_value_of(const struct nd_scalar_arithmetic *arithmetic, const struct nd_scalar_sample *sample,
                          size_t i);
double nd_scalar_qvalue(const struct nd_scalar_arithmetic *arithmetic, const struct nd_scalar_sample *sample,
                        double value);

enum { ND_SCALAR_ARITHMETICS = ND_N_SCALAR_VALUES * (ND_ROUND_TO_ZERO + 1) * 2 };
struct nd_scalar_findings {
    uint64_t n_qvalues; /* of finite values: the others are not judged */
    size_t n_arithmetics;
    struct nd_scalar_arithmetic
        arithmetics[ND_SCALAR_ARITHMETICS]; /* not excluded: they give every quantised value */
    /* Of those that are excluded the one that gives most; of equals, the first. */
    struct nd_scalar_arithmetic nearest;
    uint64_t n_nearest_wrong;
    /* Against the correctly rounded value: exact, half even. */
    uint64_t n_off;
    double largest_off, sum_off; /* device less correct: the largest magnitude; the sum */
    double worst_value, worst_qvalue, worst_correct;
};

void nd_scalar_solve(const struct nd_scalar_sample *samples, size_t n, struct nd_scalar_findings *out);
bool nd_scalar_is_correct(
    const struct nd_scalar_findings *findings); /* every quantised value is the correctly rounded one */

/* The first of the arithmetics, by name: "possible_arithmetic". */
void nd_scalar_tell(struct nd_experiment *experiment, json_t *entry, const struct nd_scalar_findings *findings,
                    size_t most);

/* The half precision number next to v, half to even; infinite beyond 65504. */
double nd_scalar_to_half(double v);

#endif
