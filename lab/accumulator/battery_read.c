/* What the battery shows by itself. */
#include <math.h>
#include <string.h>

#include "lab/accumulator/accumulator.h"

enum {
    N_TERMS = ND_BATTERY_TERMS,
    N_COUNTED = N_TERMS - 2,
    N_PAIRS = N_TERMS * (N_TERMS - 1) / 2,
    MIN_EXPONENT = 5
};

/* How many units of 2^-14 came out, or -1 when that is not a count. Adders of 24 bits that cut may leave a rest
 * of the two large terms, some times 2^-9 = 32 units (the last bit of 24 below 2^15): it is taken away. A
 * larger rest is of a shorter sum, and may have swallowed units. */
static int count_of(float output)
{
    double units = (double)output * 0x1p14;
    if (!(fabs(units) < 2048) || units != floor(units))
        return -1;
    long rest = (long)units % N_TERMS;
    rest += rest < 0 ? N_TERMS : 0;
    return rest <= N_COUNTED ? (int)rest : -1;
}

/* A count without a rest is worth more than one with it. */
static bool is_clean(float output)
{
    return output >= 0 && output <= N_COUNTED * 0x1p-14F;
}

/* l of every pair, from that of the two orders that is a count. How many were read. */
static size_t read_joins(const struct nd_accumulator_block *block, const float *outputs,
                         uint8_t l[N_TERMS * N_TERMS])
{
    float by_pair[N_TERMS * N_TERMS];
    size_t n_read = 0;
    for (size_t i = 0; i < N_TERMS * N_TERMS; i++)
        by_pair[i] = NAN;
    for (size_t r = 0; r < block->n_rows; r++)
        if (block->rows[r].probe == ND_PROBE_ORDER)
            by_pair[block->rows[r].positions[0] * N_TERMS + block->rows[r].positions[1]] = outputs[r];
    for (size_t i = 0; i < N_TERMS; i++)
        for (size_t j = 0; j <= i; j++) {
            float a = by_pair[i * N_TERMS + j], b = by_pair[j * N_TERMS + i];
            int of_a = count_of(a), of_b = count_of(b);
            int count = is_clean(a) && is_clean(b) ? (of_a > of_b ? of_a : of_b)
                        : is_clean(a)              ? of_a
                        : is_clean(b)              ? of_b
                        : of_a >= 0                ? of_a
                                                   : of_b;
            n_read += i != j && count >= 0;
            l[i * N_TERMS + j] = l[j * N_TERMS + i] = (uint8_t)(i == j ? 1 : N_TERMS - (count < 0 ? 0 : count));
        }
    return n_read;
}

/* The size of blocks of neighbours within which nothing is lost, while something is between them. */
static int exact_block(const uint8_t l[N_TERMS * N_TERMS])
{
    for (int size = N_TERMS; size >= 4; size /= 2) {
        bool is_block = true;
        for (int i = 0; i < N_TERMS && is_block; i++)
            for (int j = 0; j < N_TERMS && is_block; j++)
                is_block = i == j || (l[i * N_TERMS + j] == 2) == (i / size == j / size);
        if (is_block)
            return size;
    }
    return 0;
}

static void read_widths(const struct nd_accumulator_block *block, const float *outputs,
                        struct nd_accumulator_readings *out)
{
    out->min_width = 1000;
    out->max_width = MIN_EXPONENT;
    for (size_t r = 0; r < block->n_rows;) {
        int width = MIN_EXPONENT;
        bool is_whole = true;
        const struct nd_accumulator_row *first = &block->rows[r];
        if (first->probe != ND_PROBE_WIDTH) {
            r++;
            continue;
        }
        for (; r < block->n_rows && block->rows[r].probe == ND_PROBE_WIDTH &&
               memcmp(block->rows[r].positions, first->positions, sizeof first->positions) == 0;
             r++) {
            is_whole = is_whole && outputs[r] == ldexpf(0x1p15F, -block->rows[r].exponent);
            width = is_whole ? block->rows[r].exponent : width;
        }
        out->min_width = width < out->min_width ? width : out->min_width;
        out->max_width = width > out->max_width ? width : out->max_width;
    }
}

static void read_range(const struct nd_accumulator_block *block, const float *outputs,
                       struct nd_accumulator_readings *out)
{
    for (size_t r = 0; r < block->n_rows; r++) {
        if (block->rows[r].probe != ND_PROBE_RANGE)
            continue;
        out->n_range++;
        out->n_infinite += isinf(outputs[r]) != 0;
        out->n_nan += isnan(outputs[r]) != 0;
        out->n_wide += outputs[r] == 0x1p15F;
        /* 65504 - 32768, and 65504 that nothing was taken from. */
        out->n_largest += outputs[r] == 32736 || outputs[r] == 65504;
    }
}

bool nd_accumulator_undo_one_up(const float *values, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        int64_t factor;
        out[i] = values[i];
        if (values[i] == 0 || isnan(values[i]) || isinf(values[i]))
            continue;
        int exponent = ilogbf(values[i]) < -14 ? -14 : ilogbf(values[i]);
        out[i] = copysignf(fabsf(values[i]) - ldexpf(1, exponent - 23), values[i]);
        if (fabsf(out[i]) == 65536)
            out[i] = copysignf(INFINITY, values[i]);
        else if (!nd_accumulator_factors(&out[i], 1, &factor))
            return false;
    }
    return true;
}

void nd_accumulator_read(const struct nd_accumulator_battery *battery, const float *const *outputs,
                         struct nd_accumulator_readings *out)
{
    uint8_t l[N_TERMS * N_TERMS];
    const struct nd_accumulator_block *ones = &battery->blocks[0];
    *out = (struct nd_accumulator_readings){0};
    out->n_pairs_read = read_joins(ones, outputs[0], l);
    out->has_tree = out->n_pairs_read == N_PAIRS && nd_sum_tree_from_joins(l, N_TERMS, &out->tree);
    out->exact_block = out->has_tree || out->n_pairs_read < N_PAIRS ? 0 : exact_block(l);
    read_widths(ones, outputs[0], out);
    read_range(ones, outputs[0], out);
}
