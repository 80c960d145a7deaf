/* Programs: what a device does between the exact value of a layer and its quantised value. Each is a formula
 * from v, in steps of the output, to a whole number, to which the zero point is added before clipping.
 *
 *     half-even ... to-zero   v rounded once (rounding.h)
 *     double:N                v rounded to N fraction bits, half up, then that to a whole number, half away
 *                             from zero: fixed point multiplication with a rounding shift behind it (gemmlowp,
 *                             TOSA DOUBLE_ROUND). Differs from rounding once in 2^-(N+1) of all values
 *     float32                 v as a float32, rounded half to even */
#ifndef ND_EVAL_ARITHMETIC_H
#define ND_EVAL_ARITHMETIC_H

#include "arithmetic/exact/linear/rounding.h"

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
 * dtype holds.
 */
double nd_rounding_rule_qvalue(const struct nd_rounding_rule *arithmetic, const struct nd_ratio *ratio,
                               double zero_point, enum nd_dtype dtype);

#endif
