/* What a layer gives when two products of 8 bit quantised values are added in 16 bits before they reach the
 * accumulator.
 *
 * Kernels without wide dot products do so: pmaddubsw of x86 without VNNI multiplies uint8 by int8 and adds
 * neighbours with saturation; smull followed by smlal of Arm adds two int8 products in a lane of 16 bits, which
 * wraps. One product always fits 16 bits, the sum of two does not. The kernel reads quantised values, not
 * quantised values less their zero point: zero points are corrected afterwards, in the accumulator. With l and
 * r the quantised values as the kernel reads them, k and k' the terms of a pair,
 *
 *     accumulator = exact sum + sum over pairs of (cut(l r + l' r') - (l r + l' r'))
 *
 * where cut() saturates or wraps at 16 bits. Padding of a Conv holds the zero point of what is read. */
#pragma once

#include "arithmetic/exact/eval_graph.h"
#include "arithmetic/exact/linear/rounding.h"

/* In which order the terms of a Conv are counted. The terms of a MatMul or Gemm have one order. */
enum nd_pair_order {
    ND_PAIR_CHANNELS_FASTEST,  /* all channels of one kernel position, then those of the next: NHWC */
    ND_PAIR_POSITIONS_FASTEST, /* all kernel positions of one channel, then those of the next: NCHW */
    ND_PAIR_CHANNELS_PADDED,   /* as the first; channels are padded so that no pair spans two positions */
};

struct nd_pair_sum {
    bool is_wrapping; /* else it saturates */
    bool is_unsigned; /* the left operand (of a Conv: the input) is read as uint8, else as int8; the right one
                         always as int8. A quantised value of the other type is moved by 128 */
    int distance;     /* of the terms of a pair: terms k and k + distance of each 2 distance terms */
    enum nd_pair_order order;
};

enum { ND_N_PAIR_SUMS = 24, ND_PAIR_SUM_TEXT_BYTES = 160 };

/* All of them, those that hardware is known to have first. Static. */
const struct nd_pair_sum *nd_pair_sums(void);

/* "two products (k and k + 1) are added in 16 bits and saturate". has_orders: says the order of terms, too. */
const char *nd_pair_sum_text(const struct nd_pair_sum *sum, bool has_orders, char buf[ND_PAIR_SUM_TEXT_BYTES]);

/* Told of the quantised values that the layer gives with nd_pair_sums()[which]. An error ends the run. */
typedef enum nd_status nd_pair_sum_found(void *context, size_t which, const struct nd_array *qvalues,
                                         struct nd_error *err);

/* Calls found for those that may give other quantised values than exact sums, each rounded by `usual`: none
 * where the layer is no Conv, Gemm or MatMul of 8 bit quantised values, or where it is not linear. Orders that
 * are the same for a layer are tried once. ND_ERR_MEMORY, or what found returned. Threads may call at the same
 * time. */
enum nd_status nd_layer_in_pairs(const struct nd_exact_layer *layer, const struct nd_rounding_rule *usual,
                                 nd_pair_sum_found *found, void *context, struct nd_error *err);
