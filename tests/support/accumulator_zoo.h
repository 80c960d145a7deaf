/* The emulated devices of accumulator probes, and which of them do the same: found by brute force, on vectors
 * of its own, without the battery. */
#ifndef ND_TESTS_ACCUMULATOR_ZOO_H
#define ND_TESTS_ACCUMULATOR_ZOO_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "lab/accumulator/accumulator.h"

enum { ZOO_TERMS = ND_BATTERY_TERMS, ZOO_BLOCK_ROWS = 512 };

/* The 196 devices of the tests: 7 accumulators x 14 orders x flushing (all or none), output half precision.
 * Accumulators: float32, half even and to zero; half precision, half even and to zero; bfloat16; half precision
 * of rounded products; 13 fraction bits, aligned, cut toward zero. Orders: sequential, reversed, pairwise,
 * halving, lanes of 4, 8, 16, blocks of 4, 8, 16, fused by 4, 8, 16, 32. */
enum { ND_N_ZOO_ACCUMULATORS = 7, ND_N_ZOO_ORDERS = 14, ND_N_ZOO = 196 };
/* Whether it matters that the first product is rounded: not where it is already, and not by adders of many. */
static inline bool zoo_can_be_from_zero(const struct nd_accumulator *item)
{
    bool is_short = item->sum != ND_SUM_EXACT && item->sum != ND_SUM_F32;
    return is_short && item->product != item->sum &&
           (item->order.kind != ND_SUM_FUSED || item->order.width == 2);
}

static inline void nd_accumulator_zoo(struct nd_accumulator items[ND_N_ZOO])
{
    static const struct nd_accumulator kinds[ND_N_ZOO_ACCUMULATORS] = {
        {.sum = ND_SUM_F32, .rounding = ND_ROUND_HALF_EVEN, .extra_bits = -1},
        {.sum = ND_SUM_F32, .rounding = ND_ROUND_TO_ZERO, .extra_bits = -1},
        {.sum = ND_SUM_F16, .rounding = ND_ROUND_HALF_EVEN, .extra_bits = -1},
        {.sum = ND_SUM_F16, .rounding = ND_ROUND_TO_ZERO, .extra_bits = -1},
        {.sum = ND_SUM_BF16, .rounding = ND_ROUND_HALF_EVEN, .extra_bits = -1},
        {.sum = ND_SUM_F16, .rounding = ND_ROUND_HALF_EVEN, .extra_bits = -1, .product = ND_SUM_F16},
        {.sum = ND_SUM_13BITS, .rounding = ND_ROUND_TO_ZERO, .extra_bits = 0},
    };
    static const struct nd_sum_order orders[ND_N_ZOO_ORDERS] = {
        {ND_SUM_SEQUENTIAL, 0}, {ND_SUM_REVERSED, 0}, {ND_SUM_PAIRWISE, 0}, {ND_SUM_HALVING, 0},
        {ND_SUM_LANES, 4},      {ND_SUM_LANES, 8},    {ND_SUM_LANES, 16},   {ND_SUM_BLOCKS, 4},
        {ND_SUM_BLOCKS, 8},     {ND_SUM_BLOCKS, 16},  {ND_SUM_FUSED, 4},    {ND_SUM_FUSED, 8},
        {ND_SUM_FUSED, 16},     {ND_SUM_FUSED, 32},
    };
    size_t n = 0;
    for (size_t k = 0; k < ND_N_ZOO_ACCUMULATORS; k++)
        for (size_t o = 0; o < ND_N_ZOO_ORDERS; o++)
            for (int is_flushing = 0; is_flushing < 2; is_flushing++) {
                struct nd_accumulator *item = &items[n++];
                *item = kinds[k];
                item->order = orders[o];
                item->is_from_zero = zoo_can_be_from_zero(item);
                item->is_flushing_inputs = item->is_flushing_sums = item->is_flushing_output = is_flushing;
                item->output = ND_SUM_F16;
                item->output_rounding = ND_ROUND_HALF_EVEN;
            }
}

static inline uint64_t zoo_random(uint64_t *state)
{
    return nd_splitmix_next(state);
}

/* A power of two and a half more, of exponents low to high. */
static inline float zoo_number(uint64_t *state, int low, int high)
{
    float value = ldexpf(zoo_random(state) % 3 == 0 ? 1.5F : 1.0F,
                         low + (int)(zoo_random(state) % (uint64_t)(high - low + 1)));
    return zoo_random(state) & 1 ? -value : value;
}

/* What an adversary would take: large numbers that meet and leave what was rounded off, at places of their own;
 * sums next to the ends of the range; a few terms only. */
static inline void zoo_adversarial_row(uint64_t *state, float x[ZOO_TERMS])
{
    int top = (int)(zoo_random(state) % 30) - 14, gap = (int)(zoo_random(state) % 27);
    int low = top - gap < -24 ? -24 : top - gap;
    bool is_sparse = zoo_random(state) & 1;
    for (int i = 0; i < ZOO_TERMS; i++)
        x[i] =
            is_sparse && zoo_random(state) % 4 != 0 ? 0 : zoo_number(state, low, low < top - 4 ? low + 2 : top);
    for (int k = (int)(zoo_random(state) % 3); k >= 0; k--) {
        float value = ldexpf(zoo_random(state) & 1 ? 1.0F : 1.5F, top);
        x[zoo_random(state) % ZOO_TERMS] = value;
        x[zoo_random(state) % ZOO_TERMS] = -value;
    }
    /* Below the least subnormal number a half would be left. */
    for (int i = 0; i < ZOO_TERMS; i++)
        x[i] = truncf(x[i] * 0x1p24F) * 0x1p-24F;
}

/* A number of 11 bits, half of its last one, and something far below: what is rounded once is rounded up or
 * down, what was rounded before is a tie. */
static inline void zoo_near_tie_row(uint64_t *state, float x[ZOO_TERMS])
{
    int last = (int)(zoo_random(state) % 6), rest = last - 2 - (int)(zoo_random(state) % 24);
    float sign = zoo_random(state) & 1 ? -1 : 1;
    memset(x, 0, ZOO_TERMS * sizeof *x);
    x[zoo_random(state) % ZOO_TERMS] = sign * ldexpf((float)(1024 + zoo_random(state) % 1023), last);
    x[zoo_random(state) % ZOO_TERMS] += sign * ldexpf(0.5F, last);
    x[zoo_random(state) % ZOO_TERMS] +=
        (zoo_random(state) & 1 ? 1.0F : -1.0F) * ldexpf(1, rest < -24 ? -24 : rest);
    /* Where two of them met, what is no half precision number is left out. */
    for (int i = 0; i < ZOO_TERMS; i++) {
        int64_t factor;
        x[i] = nd_accumulator_factors(&x[i], 1, &factor) ? x[i] : 0;
    }
}

static inline void zoo_factors(const float *values, size_t n, int64_t *out)
{
    if (!nd_accumulator_factors(values, n, out))
        abort();
}

/* Block `index` of vectors: adversarial ones and random ones in turn. */
static inline void zoo_vectors(uint64_t seed, uint64_t index, int64_t w[ZOO_TERMS], int64_t *x)
{
    float values[ZOO_BLOCK_ROWS * ZOO_TERMS], weights[ZOO_TERMS];
    uint64_t state = seed ^ (index * 0x2545f4914f6cdd1dU);
    nd_accumulator_random_weights(seed, index / 2, weights);
    if (index % 2 == 0)
        nd_accumulator_random_rows(seed, index, ZOO_BLOCK_ROWS, values);
    else
        for (size_t i = 0; i < ZOO_BLOCK_ROWS; i++)
            (zoo_random(&state) % 4 == 0 ? zoo_near_tie_row : zoo_adversarial_row)(&state,
                                                                                   values + i * ZOO_TERMS);
    zoo_factors(weights, ZOO_TERMS, w);
    zoo_factors(values, (size_t)ZOO_BLOCK_ROWS * ZOO_TERMS, x);
}

static inline uint64_t zoo_hash(uint64_t hash, float output)
{
    uint32_t bits;
    output = isnan(output) ? NAN : output == 0 ? 0.0F : output;
    memcpy(&bits, &output, sizeof bits);
    return (hash ^ bits) * 0x9ddfea08eb382d69U ^ hash >> 29;
}

/* classes[i]: the first of the items that gave the same results as item i on all of n_blocks blocks. */
static inline void zoo_classes(const struct nd_accumulator *items, size_t n, uint64_t seed, uint64_t n_blocks,
                               size_t *classes)
{
    static int64_t x[ZOO_BLOCK_ROWS * ZOO_TERMS];
    int64_t w[ZOO_TERMS];
    uint64_t *hashes = calloc(n, sizeof *hashes);
    if (hashes == NULL)
        abort();
    for (uint64_t b = 0; b < n_blocks; b++) {
        zoo_vectors(seed, b, w, x);
        for (size_t i = 0; i < n; i++) {
            struct nd_sum_tree tree;
            nd_sum_tree_of(&items[i].order, ZOO_TERMS, &tree);
            for (size_t r = 0; r < ZOO_BLOCK_ROWS; r++)
                hashes[i] = zoo_hash(hashes[i], nd_accumulate_factors(&items[i], &tree, x + r * ZOO_TERMS, w));
        }
    }
    for (size_t i = 0; i < n; i++)
        for (classes[i] = 0; hashes[classes[i]] != hashes[i];)
            classes[i]++;
    free(hashes);
}

/* An emulated device. */
static inline enum nd_status zoo_device(void *context, const float *w, const float *x, size_t n_rows,
                                        float *out, struct nd_error *err)
{
    (void)err;
    const struct nd_accumulator *item = context;
    struct nd_sum_tree tree;
    int64_t factors_w[ZOO_TERMS], factors_x[ZOO_TERMS];
    nd_sum_tree_of(&item->order, ZOO_TERMS, &tree);
    zoo_factors(w, ZOO_TERMS, factors_w);
    for (size_t r = 0; r < n_rows; r++) {
        zoo_factors(x + r * ZOO_TERMS, ZOO_TERMS, factors_x);
        out[r] = nd_accumulate_factors(item, &tree, factors_x, factors_w);
    }
    return ND_OK;
}

/* The outputs of the battery, [ND_BATTERY_BLOCKS], each freed by the caller. */
static inline void zoo_run_battery(const struct nd_accumulator_battery *battery, struct nd_accumulator *item,
                                   float *outputs[ND_BATTERY_BLOCKS])
{
    for (size_t b = 0; b < ND_BATTERY_BLOCKS; b++) {
        const struct nd_accumulator_block *block = &battery->blocks[b];
        outputs[b] = calloc(block->n_rows, sizeof *outputs[b]);
        if (outputs[b] == NULL)
            abort();
        zoo_device(item, block->w, block->x, block->n_rows, outputs[b], NULL);
    }
}

#endif
