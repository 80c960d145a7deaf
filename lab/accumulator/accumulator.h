/* How a device sums a dot product: a battery of 32-term products whose results give it away, the set of
 * accumulators (arithmetic/arithmetics/accumulate.h) that the results do not exclude, and its confirmation.
 *
 * The battery is made of blocks. A block is one model, MatMul(x[n_rows, 32], w[32, 1]), of half precision or of
 * floats that hold half precision numbers. In the first one all weights are 1; the second one has the weights
 * 1 + 2^-6, 1, 2^10 and 2^-10, for what needs a product that is not a factor:
 *
 * P1, order: all ordered pairs (i, j): 2^15 at i, -2^15 at j, 2^-14 elsewhere. What comes out counts the terms
 * that are added after the two have met (FPRev).
 *
 * P2, width: [2^15, 2^(15-e), -2^15], e = 6..26, at all ordered triples of {0, 1, 5, 15, 16, 31}.
 *
 * P3, rounding: the same triples with 3/4, 3/2 and -1/2, -3/4, -3/2 of the last bit of 7, 10, 13 and 23
 * fraction bits; ties at an odd number in all orders of {0, 5, 16, 31}; ties of half precision and their
 * neighbours.
 *
 * P4, subnormals: single subnormal inputs; normal inputs with a subnormal sum; sums that are subnormal on the
 * way; in block 2 subnormal inputs with a normal product, and normal inputs with a subnormal one.
 *
 * P5, range: [2^15, 2^15, -2^15] at triples.
 *
 * P6, products: (1 + 2^-6)^2 - (1 + 2^-5), in block 2.
 *
 * Random rows in both blocks, seeded: 144 in all.
 */
#ifndef ND_ACCUMULATOR_ACCUMULATOR_H
#define ND_ACCUMULATOR_ACCUMULATOR_H

#include "arithmetic/arithmetics/accumulate.h"
#include "core/text/strbuf.h"
#include "npudiff/core/status.h"

enum { ND_BATTERY_TERMS = 32, ND_BATTERY_BLOCKS = 2 };

enum nd_accumulator_probe {
    ND_PROBE_ORDER,
    ND_PROBE_WIDTH,
    ND_PROBE_ROUNDING,
    ND_PROBE_SUBNORMAL_INPUT,
    ND_PROBE_SUBNORMAL_SUM,
    ND_PROBE_RANGE,
    ND_PROBE_PRODUCT,
    ND_PROBE_RANDOM,
    ND_N_ACCUMULATOR_PROBES,
};

struct nd_accumulator_row {
    enum nd_accumulator_probe probe;
    uint8_t positions[3]; /* of ORDER (two) and WIDTH (three) */
    uint8_t exponent;     /* e, of WIDTH */
};

struct nd_accumulator_block {
    float w[ND_BATTERY_TERMS];
    size_t n_rows;
    float *x;                        /* [n_rows, 32] */
    struct nd_accumulator_row *rows; /* [n_rows] */
    size_t capacity_x, capacity_rows;
};

struct nd_accumulator_battery {
    struct nd_accumulator_block blocks[ND_BATTERY_BLOCKS];
};

/* The same on every call: at most 6500 rows. *out needs nd_accumulator_battery_deinit on success only.
 * ND_ERR_MEMORY. */
enum nd_status nd_accumulator_battery_init(struct nd_accumulator_battery *out, struct nd_error *err);
void nd_accumulator_battery_deinit(struct nd_accumulator_battery *battery);

/* Random half precision numbers, for weights and for n_rows rows: uniform, of near and of far exponents,
 * cancelling, full of ties, and near the largest number, in turn. A block depends on seed and index alone. */
void nd_accumulator_random_weights(uint64_t seed, uint64_t index, float w[ND_BATTERY_TERMS]);
void nd_accumulator_random_rows(uint64_t seed, uint64_t index, size_t n_rows, float *x);

/* What P1 and P2 show by themselves, whatever the accumulator may be. */
struct nd_accumulator_readings {
    bool has_tree; /* every pair of P1 counts, and the counts are those of a tree */
    struct nd_sum_tree tree;
    size_t n_pairs_read; /* of 496: a count came out in at least one of the two orders */
    int exact_block;     /* nothing is lost among neighbours of so many terms; 0: there are no such blocks */
    /* Fraction bits that survive: e up to which all of P2 came out, over the triples. 5: not even 6. */
    int min_width, max_width;
    size_t n_infinite, n_nan, n_largest, n_wide; /* of P5: infinity, NaN, 65504, 32768 */
    bool
        is_one_up; /* every output is one that nd_accumulator_undo_one_up takes back: it was, before all else */
    size_t n_range;
};
/* The values are half precision numbers which a conversion to float32 left one unit of float32 too large, in
 * magnitude: 2^-23 of the power of two below, 2^-37 below 2^-14; 65536 and a unit is infinity. (QNN's HTP does
 * so.) False where a number is none of these; zeros, infinities and NaN pass. out may not be trusted then. */
bool nd_accumulator_undo_one_up(const float *values, size_t n, float *out);

struct nd_accumulator_findings {
    struct nd_accumulator_readings readings;
    struct nd_accumulator *items; /* not excluded, in the order of the hypotheses; owned */
    size_t n;
    size_t n_hypotheses;
    size_t n_outputs; /* of the battery */
    /* Where none is left: the one that gives most of some outputs, and how many of all. */
    struct nd_accumulator nearest;
    size_t n_nearest;
    uint64_t n_confirmed, n_failed; /* random vectors that any, that no item gave; see below */
};

/* outputs[b] are those of block b, [n_rows]. Equal means the same number: zeros without regard to their sign,
 * NaN is NaN. hypotheses is borrowed; those with ND_SUM_GIVEN use the tree of the readings, and are left out
 * where there is none. NULL: the family, and the family with the tree of the readings where no named order has
 * it. *out needs nd_accumulator_findings_deinit on success only. ND_ERR_MEMORY. */
enum nd_status nd_accumulator_identify(const struct nd_accumulator_battery *battery,
                                       const float *const *outputs, const struct nd_accumulator *hypotheses,
                                       size_t n_hypotheses, struct nd_accumulator_findings *out,
                                       struct nd_error *err);
void nd_accumulator_findings_deinit(struct nd_accumulator_findings *findings);

/* A device: out[i] = the product of row i and w. */
typedef enum nd_status nd_accumulator_device(void *context, const float w[ND_BATTERY_TERMS], const float *x,
                                             size_t n_rows, float *out, struct nd_error *err);

/* Whether what was found holds on at least n_vectors random ones: items that fail one are removed. When none is
 * left, the set stays as it was before that block, and n_failed counts the vectors that none of them gave.
 * Errors of the device; ND_ERR_MEMORY. */
enum nd_status nd_accumulator_confirm(struct nd_accumulator_findings *findings, nd_accumulator_device *device,
                                      void *context, uint64_t n_vectors, uint64_t seed, struct nd_error *err);

/* Fewer are no confirmation. The device is asked for blocks: a real one takes seconds for each. */
enum { ND_CONFIRMING_VECTORS = 100000, ND_CONFIRMING_BLOCK = 16384 };
bool nd_accumulator_is_confirmed(const struct nd_accumulator_findings *findings);

/* What was found, in words, a line each: order, width and rounding, products, subnormals, range, output, and
 * what could not be decided between. */
void nd_accumulator_findings_write(const struct nd_accumulator_findings *findings, struct nd_strbuf *out);

/* One thing that can be said of an accumulator, in a few words. */
enum { ND_ACCUMULATOR_PROPERTY_BYTES = 128 };
typedef void nd_accumulator_property(const struct nd_accumulator *item,
                                     char buf[ND_ACCUMULATOR_PROPERTY_BYTES]);
struct nd_accumulator_property_of {
    const char *label; /* "running sum" */
    const char *key;   /* "running_sum" */
    nd_accumulator_property *say;
};
/* All of them, [n]; static. */
const struct nd_accumulator_property_of *nd_accumulator_properties(size_t *n);

#endif
