/* Dot products as accelerators sum them: another type of the running sum, another order, products that are
 * rounded, subnormals that are flushed. All in integers: results do not depend on the host's floating point
 * modes.
 *
 * Every factor is a half precision number, so that products and sums are whole multiples of 2^-48. As 128-bit
 * integers in that layer all of them are exact up to 2^79, which 64 terms do not reach. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "arithmetic/exact/linear/rounding.h"

/* The order in which a dot product is summed: a tree whose leaves are the products, in the order of their
 * positions. A node with more than two children adds them at once (a fused or multi-way adder). */
enum { ND_SUM_MAX_TERMS = 64, ND_SUM_ORDER_NAME_BYTES = 24 };

enum nd_sum_order_kind {
    ND_SUM_SEQUENTIAL, /* ((0 + 1) + 2) + 3 ... */
    ND_SUM_REVERSED,   /* the last product first */
    ND_SUM_PAIRWISE,   /* neighbours, then neighbouring pairs ... */
    ND_SUM_HALVING,    /* i with i + n/2, then i with i + n/4 ... */
    ND_SUM_LANES,      /* lane l sums l, l + width, l + 2 width ...; then the lanes pairwise */
    ND_SUM_BLOCKS,     /* width neighbours in sequence; the sums of the blocks in sequence */
    ND_SUM_TREES,      /* width neighbours pairwise; the sums of the blocks in sequence */
    ND_SUM_FUSED,      /* the running sum and the next width products at once */
    ND_SUM_GIVEN,      /* a tree that comes from elsewhere: nd_sum_tree_of refuses it */
};

struct nd_sum_order {
    enum nd_sum_order_kind kind;
    int width; /* of LANES, BLOCKS, TREES and FUSED: 1 to ND_SUM_MAX_TERMS; else 0 */
};

/* "sequential", "lanes:8", "fused:16" ... */
const char *nd_sum_order_name(const struct nd_sum_order *order, char buf[ND_SUM_ORDER_NAME_BYTES]);

/* Slots 0 to n_terms - 1 are the products, those behind them the nodes, children before parents; the last slot
 * is the sum. The children of node k are children[first[k]] to children[first[k + 1] - 1]. */
struct nd_sum_tree {
    size_t n_terms;
    size_t n_nodes;
    uint16_t first[ND_SUM_MAX_TERMS + 1];
    uint16_t children[2 * ND_SUM_MAX_TERMS];
};

/* n_terms is 1 to ND_SUM_MAX_TERMS. One term is one node with one child. A width beyond n_terms is n_terms. */
void nd_sum_tree_of(const struct nd_sum_order *order, size_t n_terms, struct nd_sum_tree *out);

/* Whether the two add the same terms in the same places; the order of a node's children does not count. Both
 * are to come from nd_sum_tree_of or nd_sum_tree_canonical order: nodes are matched by the leaves below. */
bool nd_sum_tree_equal(const struct nd_sum_tree *a, const struct nd_sum_tree *b);

/* l[i * n_terms + j]: how many leaves lie under the lowest node above both i and j (1 where i = j). */
void nd_sum_tree_joins(const struct nd_sum_tree *tree, uint8_t *l);

/* The tree of such a table; false when no tree has it. */
bool nd_sum_tree_from_joins(const uint8_t *l, size_t n_terms, struct nd_sum_tree *out);

/* "((0 1) (2 3))" into buf, cut to fit, always terminated. */
void nd_sum_tree_format(const struct nd_sum_tree *tree, char *buf, size_t buf_size);

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
