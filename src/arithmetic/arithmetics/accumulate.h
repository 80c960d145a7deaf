/* Dot products as accelerators sum them: another type of the running sum, another order, products that are
 * rounded, subnormals that are flushed. All in integers: results do not depend on the host's floating point
 * modes.
 *
 * Every factor is a half precision number, so that products and sums are whole multiples of 2^-48. As 128-bit
 * integers in that layer all of them are exact up to 2^79, which 64 terms do not reach. */
#ifndef ND_ARITH_ACCUMULATE_H
#define ND_ARITH_ACCUMULATE_H

#include "arithmetic/arithmetics/accumulate_order.h"
#include "arithmetic/exact/linear/rounding.h"

/* What a number is rounded to. All but half precision have more exponents than can be needed here. */
enum nd_sum_type {
    ND_SUM_EXACT,  /* as it is */
    ND_SUM_F32,    /* 23 fraction bits */
    ND_SUM_F16,    /* 10 fraction bits; subnormals below 2^-14; 65504 is the largest */
    ND_SUM_BF16,   /* 7 fraction bits */
    ND_SUM_TF32,   /* 10 fraction bits, the exponents of float32 */
    ND_SUM_13BITS, /* 13 fraction bits, the exponents of float32 */
};

enum nd_sum_overflow {
    ND_SUM_TO_INFINITY, /* as IEEE 754 has it: the largest number where the rounding leads there */
    ND_SUM_TO_LARGEST,  /* 65504 */
};

struct nd_accumulator {
    enum nd_sum_type product;  /* what a product is rounded to; EXACT: fused multiply and add */
    enum nd_sum_type sum;      /* of each node of the tree */
    enum nd_rounding rounding; /* of products and of sums */
    int extra_bits;            /* -1: a node adds exactly, then rounds. Else what it adds is first cut toward
                                  zero that many bits behind the last bit that the largest of them has */
    struct nd_sum_order order;
    bool is_from_zero; /* a product that is the first of two children is rounded as a sum before the second is
                          added: multiply-adds into a register that was zero */
    bool is_flushing_inputs; /* subnormal factors are zero */
    bool is_flushing_sums;   /* subnormal products and sums of half precision are zero */
    bool is_flushing_output; /* a subnormal result of half precision is zero */
    enum nd_sum_overflow overflow;
    enum nd_sum_type output; /* ND_SUM_F16, ND_SUM_BF16, ND_SUM_F32 */
    enum nd_rounding output_rounding;
};

enum { ND_ACCUMULATOR_NAME_BYTES = 128 };

/* "sum=f16:half-even order=sequential": what differs from exact products, exact nodes, no flushing, infinity
 * and output=f16:half-even is named as well. */
const char *nd_accumulator_name(const struct nd_accumulator *accumulator, char buf[ND_ACCUMULATOR_NAME_BYTES]);

/* Factors as whole multiples of 2^-24. false: a value is not a half precision number (NaN and infinities are
 * not either); out is then not complete. */
bool nd_accumulator_factors(const float *values, size_t n, int64_t *out);

/* The dot product of the factors x and w, along a tree of the accumulator's order, which is not looked at.
 * Infinity and NaN where sums overflow; a zero is never negative. */
float nd_accumulate_factors(const struct nd_accumulator *accumulator, const struct nd_sum_tree *tree,
                            const int64_t *x, const int64_t *w);

#endif
