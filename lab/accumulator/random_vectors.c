/* Random vectors that tell accumulators apart. */
#include "core/random.h"
#include "lab/accumulator/accumulator.h"

#include <math.h>

enum { N_TERMS = ND_BATTERY_TERMS };

/* low to high, both included. */
static int between(uint64_t *state, int low, int high)
{
    return low + (int)(nd_splitmix_next(state) % (uint64_t)(high - low + 1));
}

/* +-1.xxx 2^exponent, of n_bits fraction bits; below 2^-14 cut to what half precision has there. */
static float half_number(uint64_t *state, int exponent, int n_bits)
{
    uint64_t random = nd_splitmix_next(state);
    int fraction = (int)(random >> 32 & 1023) & ~((1 << (10 - n_bits)) - 1), significand = 1024 + fraction;
    if (exponent < -14) {
        significand >>= exponent < -25 ? 11 : -14 - exponent;
        exponent = -14;
    }
    return ldexpf((float)(random & 1 ? -significand : significand), exponent - 10);
}

/* A number, its negative somewhere else, and small ones between. */
static void fill_cancelling(uint64_t *state, float *x)
{
    int top = between(state, 0, 15);
    for (int i = 0; i < N_TERMS; i++)
        x[i] = half_number(state, top - between(state, 4, 24), 10);
    for (int k = 0; k < 3; k++) {
        int i = between(state, 0, N_TERMS - 1), j = between(state, 0, N_TERMS - 1);
        x[i] = half_number(state, top, 10);
        x[j] = -x[i];
    }
}

static void fill_row(uint64_t *state, uint64_t kind, float *x)
{
    static const struct {
        int low, high, n_bits;
    } kinds[] = {{-6, -1, 10}, {-8, 8, 10},    {-26, 2, 10}, {-4, 4, 1},
                 {10, 15, 10}, {-18, -10, 10}, {-14, 14, 3}};
    if (kind >= sizeof kinds / sizeof *kinds) {
        fill_cancelling(state, x);
        return;
    }
    for (int i = 0; i < N_TERMS; i++)
        x[i] = half_number(state, between(state, kinds[kind].low, kinds[kind].high), kinds[kind].n_bits);
    /* With gaps, so that few terms meet. */
    if (nd_splitmix_next(state) % 4 == 0)
        for (int i = 0; i < N_TERMS; i++)
            x[i] = nd_splitmix_next(state) % 4 == 0 ? x[i] : 0;
}

static uint64_t start(uint64_t seed, uint64_t index, uint64_t stream)
{
    uint64_t state = seed;
    state = nd_splitmix_next(&state) ^ index;
    return nd_splitmix_next(&state) ^ stream;
}

void nd_accumulator_random_weights(uint64_t seed, uint64_t index, float w[ND_BATTERY_TERMS])
{
    uint64_t state = start(seed, index, 1);
    for (int i = 0; i < N_TERMS; i++)
        switch (index % 4) {
        case 0:
            w[i] = 1;
            break;
        case 1:
            w[i] = half_number(&state, between(&state, -3, 0), 10);
            break;
        case 2:
            w[i] = half_number(&state, between(&state, -12, 2), 10);
            break;
        default:
            w[i] = half_number(&state, between(&state, -6, 6), 0);
        }
}

void nd_accumulator_random_rows(uint64_t seed, uint64_t index, size_t n_rows, float *x)
{
    uint64_t state = start(seed, index, 2);
    for (size_t i = 0; i < n_rows; i++)
        fill_row(&state, nd_splitmix_next(&state) % 10, x + i * N_TERMS);
}
