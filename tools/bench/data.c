#include "tools/bench/data.h"

#include <math.h>
#include <string.h>

/* Marsaglia's xorshift: one number takes less than a nanosecond. The state is never 0. */
static uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

/* Seeds that are neighbours must not give streams that look alike. */
static uint64_t first_state(uint64_t seed)
{
    uint64_t state = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15);
    for (int i = 0; i < 8; i++)
        next_random(&state);
    return state;
}

/* The sum of four numbers of `bits` bits each: near enough to a bell, around twice the largest of them. */
static int32_t bell(uint64_t random, int bits)
{
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    return (int32_t)((random & mask) + (random >> 16 & mask) + (random >> 32 & mask) + (random >> 48 & mask));
}

static float make_float(uint64_t random, bool is_coarse)
{
    int32_t centred = bell(random, 16) - 2 * 0xffff;
    if (is_coarse)
        centred = centred > 0 ? centred & ~63 : 0;
    return (float)centred / 32768.0f;
}

/* Cut to a half; what would be subnormal is zero. */
static uint16_t make_half(uint64_t random)
{
    float value = make_float(random, false);
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000, exponent = bits >> 23 & 0xff;
    if (exponent < 127 - 14)
        return 0;
    return (uint16_t)(sign | (exponent - 112) << 10 | (bits >> 13 & 0x3ff));
}

static uint8_t make_qvalue(uint64_t random)
{
    int32_t qvalue = bell(random, 5);
    return (uint8_t)(qvalue > BENCH_ZERO_POINT ? qvalue : BENCH_ZERO_POINT);
}

static uint16_t make_code16(uint64_t random)
{
    int32_t qvalue = bell(random, 14);
    return (uint16_t)(qvalue > BENCH_ZERO_POINT ? qvalue : BENCH_ZERO_POINT);
}

bool bench_is_known(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F32 || dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_U8 || dtype == ND_DTYPE_U16;
}

void bench_fill(enum nd_dtype dtype, bool is_coarse, uint64_t seed, void *data, size_t n_elems)
{
    uint64_t state = first_state(seed);
    if (dtype == ND_DTYPE_F32)
        for (size_t i = 0; i < n_elems; i++)
            ((float *)data)[i] = make_float(next_random(&state), is_coarse);
    else if (dtype == ND_DTYPE_F16)
        for (size_t i = 0; i < n_elems; i++)
            ((uint16_t *)data)[i] = make_half(next_random(&state));
    else if (dtype == ND_DTYPE_U16)
        for (size_t i = 0; i < n_elems; i++)
            ((uint16_t *)data)[i] = make_code16(next_random(&state));
    else
        for (size_t i = 0; i < n_elems; i++)
            ((uint8_t *)data)[i] = make_qvalue(next_random(&state));
}

static void change(enum nd_dtype dtype, uint64_t random, void *data, size_t i)
{
    uint16_t last_bits = (uint16_t)(1 + random % 7);
    uint8_t *qvalue = (uint8_t *)data + i;
    if (dtype == ND_DTYPE_F32)
        ((uint32_t *)data)[i] ^= last_bits;
    else if (dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_U16)
        ((uint16_t *)data)[i] ^= last_bits;
    else
        *qvalue = (uint8_t)(random % 2 == 0 ? *qvalue + 1 : *qvalue - 1); /* codes are far from 0 and 255 */
}

size_t bench_plant(enum nd_dtype dtype, double fraction, uint64_t seed, void *data, size_t n_elems)
{
    uint64_t state = first_state(seed);
    size_t n_planted = 0;
    if (fraction <= 0)
        return 0;
    for (size_t i = 0;; i++) {
        /* From one changed element to the next: a geometric number of steps. */
        double uniform = ((double)(next_random(&state) >> 11) + 1) * 0x1p-53;
        double gap = floor(log(uniform) / log1p(-fraction));
        if (gap >= (double)(n_elems - i))
            return n_planted;
        i += (size_t)gap;
        change(dtype, next_random(&state), data, i);
        n_planted++;
        if (i + 1 >= n_elems)
            return n_planted;
    }
}
