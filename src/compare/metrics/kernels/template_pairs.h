/* The errors of one tensor against the other. A part of kernels_template.c. */
#pragma once

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compare/metrics/kernels/template_elements.h"
#include "compare/metrics/kernels/template_lanes.h"

/* How many lanes of a are less than those of b. */
static inline uint64_t count_less(VECTOR(double) a, VECTOR(double) b)
{
#if defined __AVX512F__
    return (uint64_t)__builtin_popcount(_mm512_cmp_pd_mask((__m512d)a, (__m512d)b, _CMP_LT_OQ));
#elif defined __AVX__
    return (uint64_t)__builtin_popcount((unsigned)_mm256_movemask_pd((__m256d)(a < b)));
#else
    VECTOR(int64_t) less = a < b; /* -1 where it holds */
    int64_t count = 0;
    for (size_t k = 0; k < PER_VECTOR; k++)
        count -= less[k];
    return (uint64_t)count;
#endif
}

/* Slots of values that are no NaN and not negative. */
static inline void put_slots(VECTOR(double) value, uint32_t *out)
{
    VECTOR(double) lowest = (VECTOR(double)){0} + ND_SLOT_LOW;
    VECTOR(uint64_t) bins = (VECTOR(uint64_t))greater(value, lowest) >> ND_BIN_SHIFT;
    HALF_VECTOR(uint32_t) slots = __builtin_convertvector(bins, HALF_VECTOR(uint32_t)) - ND_SLOT_BIN;
    memcpy(out, &slots, sizeof slots);
}

struct pair_lanes {
    struct lanes sum_relative, sum_abs, sum_signed, sum_squares, sum_ref_signed, max_relative, max_absolute;
    uint64_t n_above, n_below, n_nonzero; /* of ref */
};

/* A quotient for every element, also where nothing differs (0 / 1); where ref is 0 infinity makes it 0. */
static inline void add_pairs(const double *ref, const double *test, struct pair_lanes *lanes,
                             struct nd_error_values *out, size_t at)
{
    for (size_t k = 0; k < N_VECTORS; k++) {
        VECTOR(double) r = take(ref + k * PER_VECTOR), d = take(test + k * PER_VECTOR) - r, none = {0};
        VECTOR(double) absolute = size_of(d), size = size_of(r);
        VECTOR(double) ratio = absolute / choose_lanes(size == 0, none + HUGE_VAL, size);
        lanes->sum_relative.part[k] += ratio;
        lanes->sum_abs.part[k] += absolute;
        lanes->sum_signed.part[k] += d;
        lanes->sum_squares.part[k] += d * d;
        lanes->sum_ref_signed.part[k] += r * d;
        lanes->max_relative.part[k] = greater(ratio, lanes->max_relative.part[k]);
        lanes->max_absolute.part[k] = greater(absolute, lanes->max_absolute.part[k]);
        lanes->n_above += count_less(none, d);
        lanes->n_below += count_less(d, none);
        lanes->n_nonzero += count_less(none, size);
        put_slots(absolute, out->absolute + at + k * PER_VECTOR);
        put_slots(ratio, out->relative + at + k * PER_VECTOR);
    }
}

/* The folders of slots that are in use. */
static uint32_t folders_of(const uint32_t *slots, size_t n)
{
    uint32_t folders = 0;
    for (size_t i = 0; i < n; i++)
        folders |= (uint32_t)1 << ((slots[i] + (ND_LOG_IN_FOLDER - 1)) / ND_LOG_IN_FOLDER % 32);
    return folders;
}

static void errors(const double *ref, const double *test, size_t n, struct nd_error_values *out,
                   struct nd_diff_sums *sums)
{
    assert(n <= ND_BLOCK);
    struct pair_lanes lanes = {.n_above = 0};
    double rest_ref[ND_LANES], rest_test[ND_LANES];
    uint64_t n_undefined = 0;
    size_t i = 0;
    for (; i + ND_LANES <= n; i += ND_LANES)
        add_pairs(ref + i, test + i, &lanes, out, i);
    if (i < n)
        add_pairs(pad(ref + i, n - i, 0, rest_ref), pad(test + i, n - i, 0, rest_test), &lanes, out, i);
    for (size_t k = 0; k < n && lanes.n_nonzero < n; k++)
        n_undefined += ref[k] == 0 && test[k] != 0;
    *sums = (struct nd_diff_sums){.sum_abs = add_lanes(&lanes.sum_abs),
                                  .sum_signed = add_lanes(&lanes.sum_signed),
                                  .sum_squares = add_lanes(&lanes.sum_squares),
                                  .sum_ref_signed = add_lanes(&lanes.sum_ref_signed),
                                  .max_abs = greatest_lane(&lanes.max_absolute),
                                  .n_above = lanes.n_above,
                                  .n_below = lanes.n_below};
    out->sum_relative = add_lanes(&lanes.sum_relative);
    out->max_absolute = sums->max_abs;
    out->max_relative = greatest_lane(&lanes.max_relative);
    out->n_undefined = n_undefined;
    out->absolute_folders = folders_of(out->absolute, n);
    out->relative_folders = folders_of(out->relative, n);
}

/* How far apart are the two that are farthest: bytes in the order of unsigned ones. */
static uint8_t farthest_bytes(const uint8_t *ref, const uint8_t *test, size_t n, uint8_t flip)
{
    uint8_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint8_t r = ref[i] ^ flip, t = test[i] ^ flip, apart = (uint8_t)(r > t ? r - t : t - r);
        most = apart > most ? apart : most;
    }
    return most;
}

/* The cells of n pairs. Equal ones, which nobody counts, go to one of the 16 first cells of equal pairs in
 * turn: where most is equal, adding to one cell would wait for the addition before. */
static void find_cells(const uint8_t *restrict ref, const uint8_t *restrict test, size_t n,
                       uint16_t *restrict cell)
{
    enum { NEXT_EQUAL = 257 };
    uint16_t at = 0; /* of 16 bits, so that vectors have more of them */
    for (size_t i = 0; i < n; i++, at++) {
        uint16_t r = ref[i], t = test[i], equal = (uint16_t)(at % ND_LANES * NEXT_EQUAL),
                 pair = (uint16_t)(r << 8 | t);
        uint16_t is_equal = (uint16_t)((int16_t)((r ^ t) - 1) >> 15); /* all ones, or 0 */
        cell[i] = (uint16_t)(pair ^ ((pair ^ equal) & is_equal));
    }
}

/* What is missing to whole lanes: equal pairs. The ratios come one by one, so that lanes are no vectors here.
 */
static void join(const uint8_t *ref, const uint8_t *test, size_t n, bool is_signed, struct nd_joint_cell *cells,
                 struct nd_error_values *out)
{
    assert(n <= ND_BLOCK);
    uint16_t cell[ND_BLOCK + ND_LANES];
    double ratio[ND_LANES] = {0};
    struct lanes lanes;
    find_cells(ref, test, n, cell);
    memset(cell + n, 0, ND_LANES * sizeof *cell);
    for (size_t i = 0; i < n; i += ND_LANES)
        for (size_t k = 0; k < ND_LANES; k++) {
            struct nd_joint_cell *pair = &cells[cell[i + k]];
            pair->n[k % 2]++;
            ratio[k] += pair->ratio;
        }
    memcpy(&lanes, ratio, sizeof lanes);
    out->sum_relative = add_lanes(&lanes);
    out->max_absolute = farthest_bytes(ref, test, n, is_signed ? 0x80 : 0);
}

static void find_steps(const double *ref, const double *test, size_t n, uint8_t *out)
{
    enum { FIRST = 2 * 1023 }; /* of 1 */
    assert(n <= ND_BLOCK);
    for (size_t i = 0; i < n; i++) {
        double d = test[i] - ref[i];
        uint64_t bits;
        memcpy(&bits, &d, sizeof bits);
        uint32_t high = (uint32_t)(bits >> 51), size = ((high & 0xfff) - FIRST) & 127;
        out[i] = (uint8_t)(choose(d == 0, ND_NO_STEP, size | (high >> 5 & 128)));
    }
}

/* Differences have 16 bits: what is wrapped on the way does not matter. */
#define STEPS_FROM(name, type)                                                                                 \
    static void steps_from_##name(const void *ref, const void *test, size_t n, uint16_t limit,                 \
                                  uint32_t *above, uint32_t *below)                                            \
    {                                                                                                          \
        assert(n <= ND_BLOCK);                                                                                 \
        const struct at_##type *r = ref, *t = test;                                                            \
        int16_t from = (int16_t)limit;                                                                         \
        uint16_t n_above = 0, n_below = 0;                                                                     \
        for (size_t i = 0; i < n; i++) {                                                                       \
            int16_t d = (int16_t)(uint16_t)(t[i].value - r[i].value);                                          \
            n_above = (uint16_t)(n_above + (d >= from));                                                       \
            n_below = (uint16_t)(n_below + (d <= -from));                                                      \
        }                                                                                                      \
        *above = n_above;                                                                                      \
        *below = n_below;                                                                                      \
    }
STEPS_FROM(u8, uint8_t)
STEPS_FROM(i8, int8_t)
STEPS_FROM(u16, uint16_t)
STEPS_FROM(i16, int16_t)

static bool exceeds(const double *ref, const double *test, size_t n, double unit, double rtol)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += unit * fabs(test[i] - ref[i]) > rtol * fabs(unit * ref[i]);
    return count > 0;
}
