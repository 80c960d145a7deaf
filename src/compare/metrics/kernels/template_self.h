/* One tensor alone. A part of kernels_template.c. */
#pragma once

#include <assert.h>
#include <math.h>
#include <string.h>

#include "compare/metrics/kernels/template_elements.h"
#include "compare/metrics/kernels/template_lanes.h"

struct value_sums {
    struct lanes sum, squares, min, max;
};

static inline void add_values(const double *x, struct value_sums *sums)
{
    for (size_t k = 0; k < N_VECTORS; k++) {
        VECTOR(double) value = take(x + k * PER_VECTOR);
        sums->sum.part[k] += value;
        sums->squares.part[k] += value * value;
        sums->min.part[k] = lesser(value, sums->min.part[k]);
        sums->max.part[k] = greater(value, sums->max.part[k]);
    }
}

static void sum_values(const double *x, size_t n, struct nd_self_sums *out)
{
    struct value_sums sums = {all_lanes(0), all_lanes(0), all_lanes(HUGE_VAL), all_lanes(-HUGE_VAL)};
    double rest[ND_LANES];
    size_t i = 0;
    for (; i + ND_LANES <= n; i += ND_LANES)
        add_values(x + i, &sums);
    if (i < n) { /* the first value changes no range, and 0 no sum */
        struct value_sums range = sums;
        add_values(pad(x + i, n - i, x[i], rest), &range);
        add_values(pad(x + i, n - i, 0, rest), &sums);
        sums.min = range.min;
        sums.max = range.max;
    }
    out->sum = add_lanes(&sums.sum);
    out->sum_squares = add_lanes(&sums.squares);
    out->min = min_lane(&sums.min) + 0.0; /* -0 becomes +0 */
    out->max = greatest_lane(&sums.max) + 0.0;
}

static uint64_t count_tiny(const double *x, size_t n, double tiny)
{
    uint64_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += fabs(x[i]) < tiny;
    return count;
}

static void self_sums(const double *x, size_t n, double tiny, struct nd_self_sums *out)
{
    assert(n >= 1 && n <= ND_BLOCK);
    sum_values(x, n, out);
    out->n_tiny = count_tiny(x, n, tiny);
}

/* Whole numbers: sum (x - z) = sum x - n z, sum (x - z)^2 = sum x^2 - 2 z sum x + n z^2. Squares of bytes and
 * sums of PIECE bytes have 16 bits: the narrower the lanes, the more of them. */
#define SELF_BYTES(name, type, wide, least, greatest)                                                          \
    static void self_##name(const void *elems, size_t n, double zero, double tiny, struct nd_self_sums *out)   \
    {                                                                                                          \
        enum { PIECE = 256 };                                                                                  \
        assert(n >= 1 && n <= ND_BLOCK);                                                                       \
        (void)tiny;                                                                                            \
        const struct at_##type *x = elems;                                                                     \
        int32_t sum = 0, n_zero = 0;                                                                           \
        uint32_t squares = 0;                                                                                  \
        type min = greatest, max = least;                                                                      \
        for (size_t i = 0; i < n; i++) {                                                                       \
            min = x[i].value < min ? x[i].value : min;                                                         \
            max = x[i].value > max ? x[i].value : max;                                                         \
        }                                                                                                      \
        for (size_t first = 0; first < n; first += PIECE) {                                                    \
            size_t end = n - first < PIECE ? n : first + PIECE;                                                \
            wide piece = 0;                                                                                    \
            for (size_t i = first; i < end; i++)                                                               \
                piece = (wide)(piece + x[i].value);                                                            \
            sum += piece;                                                                                      \
        }                                                                                                      \
        for (size_t i = 0; i < n; i++)                                                                         \
            squares += (uint16_t)(x[i].value * x[i].value);                                                    \
        for (size_t first = 0; first < n && zero >= min && zero <= max; first += PIECE / 2) {                  \
            size_t end = n - first < PIECE / 2 ? n : first + PIECE / 2;                                        \
            uint8_t piece = 0;                                                                                 \
            for (size_t i = first; i < end; i++)                                                               \
                piece = (uint8_t)(piece + (x[i].value == (type)zero));                                         \
            n_zero += piece;                                                                                   \
        }                                                                                                      \
        int64_t z = (int64_t)zero, count = (int64_t)n;                                                         \
        out->sum = (double)(sum - count * z);                                                                  \
        out->sum_squares = (double)((int64_t)squares - 2 * z * sum + count * z * z);                           \
        out->min = (double)(min - z);                                                                          \
        out->max = (double)(max - z);                                                                          \
        out->n_tiny = (uint64_t)n_zero;                                                                        \
    }
SELF_BYTES(u8, uint8_t, uint16_t, 0, UINT8_MAX)
SELF_BYTES(i8, int8_t, int16_t, INT8_MIN, INT8_MAX)

/* The same of 16 bits. A square has 32, and is added up in two halves. */
#define SELF_SHORTS(name, type, least, greatest)                                                               \
    static void self_##name(const void *elems, size_t n, double zero, double tiny, struct nd_self_sums *out)   \
    {                                                                                                          \
        assert(n >= 1 && n <= ND_BLOCK);                                                                       \
        (void)tiny;                                                                                            \
        const struct at_##type *x = elems;                                                                     \
        int32_t sum = 0;                                                                                       \
        uint32_t low = 0, high = 0;                                                                            \
        uint16_t n_zero = 0;                                                                                   \
        type min = greatest, max = least;                                                                      \
        for (size_t i = 0; i < n; i++) {                                                                       \
            min = x[i].value < min ? x[i].value : min;                                                         \
            max = x[i].value > max ? x[i].value : max;                                                         \
        }                                                                                                      \
        for (size_t i = 0; i < n; i++) {                                                                       \
            uint32_t value = (uint32_t)(int32_t)x[i].value, square = value * value;                            \
            sum += x[i].value;                                                                                 \
            low += square & 0xffff;                                                                            \
            high += square >> 16;                                                                              \
        }                                                                                                      \
        if (zero >= min && zero <= max)                                                                        \
            for (size_t i = 0; i < n; i++)                                                                     \
                n_zero = (uint16_t)(n_zero + (x[i].value == (type)zero));                                      \
        int64_t z = (int64_t)zero, count = (int64_t)n, squares = (int64_t)(((uint64_t)high << 16) + low);      \
        out->sum = (double)(sum - count * z);                                                                  \
        out->sum_squares = (double)(squares - 2 * z * sum + count * z * z);                                    \
        out->min = (double)(min - z);                                                                          \
        out->max = (double)(max - z);                                                                          \
        out->n_tiny = n_zero;                                                                                  \
    }
SELF_SHORTS(u16, uint16_t, 0, UINT16_MAX)
SELF_SHORTS(i16, int16_t, INT16_MIN, INT16_MAX)

/* float32 in the order of add_values, widened on the way; extremes and sizes are compared as floats. */

struct float_lanes {
    HALF_VECTOR(float) part[N_VECTORS];
};

static inline HALF_VECTOR(float) take_floats(const struct at_float *x)
{
    HALF_VECTOR(float) out;
    memcpy(&out, x, sizeof out);
    return out;
}

static inline __attribute__((unused)) HALF_VECTOR(float)
    choose_floats(HALF_VECTOR(int32_t) mask, HALF_VECTOR(float) yes, HALF_VECTOR(float) no)
{
    return (HALF_VECTOR(float))(((HALF_VECTOR(int32_t))yes & mask) | ((HALF_VECTOR(int32_t))no & ~mask));
}

struct float_sums {
    struct lanes sum, squares;
    struct float_lanes min, max;
};

static inline void add_floats(const struct at_float *x, struct float_sums *sums)
{
    for (size_t k = 0; k < N_VECTORS; k++) {
        HALF_VECTOR(float) narrow = take_floats(x + k * PER_VECTOR);
        VECTOR(double) value = __builtin_convertvector(narrow, VECTOR(double));
        sums->sum.part[k] += value;
        sums->squares.part[k] += value * value;
        sums->min.part[k] = LESSER_FLOAT(narrow, sums->min.part[k]);
        sums->max.part[k] = GREATER_FLOAT(narrow, sums->max.part[k]);
    }
}

static void finish_float_range(const struct float_lanes *min, const struct float_lanes *max,
                               struct nd_self_sums *out)
{
    float least[ND_LANES], greatest[ND_LANES];
    memcpy(least, min, sizeof least);
    memcpy(greatest, max, sizeof greatest);
    for (size_t lane = 1; lane < ND_LANES; lane++) {
        least[0] = least[lane] < least[0] ? least[lane] : least[0];
        greatest[0] = greatest[lane] > greatest[0] ? greatest[lane] : greatest[0];
    }
    out->min = (double)least[0] + 0.0; /* -0 becomes +0 */
    out->max = (double)greatest[0] + 0.0;
}

/* What is missing to whole lanes changes no sum and no range: zeros, or the first value. */
static void add_rest(const struct at_float *x, size_t n, struct float_sums *sums)
{
    struct at_float zeros[ND_LANES], firsts[ND_LANES];
    struct float_sums range = *sums;
    for (size_t lane = 0; lane < ND_LANES; lane++) {
        zeros[lane].value = lane < n ? x[lane].value : 0;
        firsts[lane].value = lane < n ? x[lane].value : x[0].value;
    }
    add_floats(firsts, &range);
    add_floats(zeros, sums);
    sums->min = range.min;
    sums->max = range.max;
}

static void sum_floats(const struct at_float *x, size_t n, struct nd_self_sums *out)
{
    struct float_sums sums = {.sum = all_lanes(0), .squares = all_lanes(0)};
    size_t i = 0;
    for (size_t k = 0; k < N_VECTORS; k++) {
        sums.min.part[k] = (HALF_VECTOR(float)){0} + HUGE_VALF;
        sums.max.part[k] = (HALF_VECTOR(float)){0} - HUGE_VALF;
    }
    for (; i + ND_LANES <= n; i += ND_LANES)
        add_floats(x + i, &sums);
    if (i < n)
        add_rest(x + i, n - i, &sums);
    out->sum = add_lanes(&sums.sum);
    out->sum_squares = add_lanes(&sums.squares);
    finish_float_range(&sums.min, &sums.max, out);
}

static void self_f32(const void *elems, size_t n, double zero, double tiny, struct nd_self_sums *out)
{
    assert(n >= 1 && n <= ND_BLOCK);
    (void)zero;
    const struct at_float *x = elems;
    float limit = (float)tiny;
    int32_t n_tiny = 0;
    sum_floats(x, n, out);
    for (size_t i = 0; i < n; i++)
        n_tiny += fabsf(x[i].value) < limit;
    out->n_tiny = (uint64_t)n_tiny;
}
