#include "compare/codes.h"

#include <math.h>
#include <string.h>

static const uint64_t u64_bias = (uint64_t)1 << 63;

void nd_codes_load(enum nd_dtype dtype, const unsigned char *bytes, size_t n, int64_t *out)
{
    size_t elem_bytes = nd_dtype_size_bytes(dtype);
    int unused_bits = 64 - 8 * (int)elem_bytes;
    uint64_t bits[ND_DIFF_BLOCK];
    nd_diff_load_bits(bytes, elem_bytes, n, bits);
    for (size_t i = 0; i < n; i++) {
        if (nd_dtype_is_signed_integer(dtype))
            out[i] = (int64_t)(bits[i] << unused_bits) >> unused_bits;
        else
            out[i] = (int64_t)(dtype == ND_DTYPE_U64 ? bits[i] ^ u64_bias : bits[i]);
    }
}

static size_t channel_of(const struct nd_diff_layout *layout, size_t index)
{
    return layout->n_channels > 1 ? index / layout->inner % layout->n_channels : 0;
}

double nd_codes_real(const struct nd_diff_layout *layout, size_t index, int64_t code)
{
    double value = layout->dtype == ND_DTYPE_U64 ? (double)((uint64_t)code ^ u64_bias) : (double)code;
    if (layout->n_channels == 0)
        return value;
    size_t channel = channel_of(layout, index);
    return (double)layout->scale[channel] * (value - (double)layout->zero_point[channel]);
}

static size_t bucket_of(uint64_t lsb, bool is_negative)
{
    size_t steps = lsb > 3 ? 4 : (size_t)lsb;
    return is_negative ? 4 - steps : 4 + steps;
}

static bool passes(const struct nd_gate_values *gate, uint64_t lsb, double abs_error, double ref_real)
{
    if (gate->bitwise)
        return false;
    if (gate->has_lsb && lsb > gate->lsb)
        return false;
    return !gate->has_tolerance || abs_error <= gate->atol + gate->rtol * fabs(ref_real);
}

uint64_t nd_diff_codes_block(struct nd_diff_acc *acc, const struct nd_diff_layout *layout,
                             struct nd_diff_block *block)
{
    int64_t ref[ND_DIFF_BLOCK], test[ND_DIFF_BLOCK];
    nd_codes_load(layout->dtype, block->ref, block->n, ref);
    nd_codes_load(layout->dtype, block->test, block->n, test);
    uint64_t n_differing = 0;
    for (size_t i = 0; i < block->n; i++) {
        if (ref[i] == test[i])
            continue;
        if (n_differing++ == 0)
            block->first_differing = i;
        bool is_negative = test[i] < ref[i];
        uint64_t lsb =
            is_negative ? (uint64_t)ref[i] - (uint64_t)test[i] : (uint64_t)test[i] - (uint64_t)ref[i];
        acc->lsb_histogram[bucket_of(lsb, is_negative)]++;
        acc->max_lsb = lsb > acc->max_lsb ? lsb : acc->max_lsb;
        acc->sum_lsb += lsb;
        acc->sum_signed_lsb += is_negative ? -(__int128)lsb : (__int128)lsb;
        size_t index = block->first + i;
        double scale = layout->n_channels > 0 ? fabs((double)layout->scale[channel_of(layout, index)]) : 1;
        double abs_error = scale * (double)lsb;
        acc->max_abs = abs_error > acc->max_abs ? abs_error : acc->max_abs;
        block->lanes[i % ND_DIFF_LANES] += abs_error;
        if (!passes(&layout->gate, lsb, abs_error, nd_codes_real(layout, index, ref[i])))
            acc->n_failing++;
    }
    return n_differing;
}
