/* Random numbers that are the same on every machine and in every run: whoever draws them keeps the state, a
 * seed to begin with. Neither generator is fit for secrets. */
#pragma once

#include <assert.h>
#include <stddef.h>
#include <stdint.h>

/* ---- SplitMix64 (Steele, Lea and Flood, OOPSLA 2014): all 64 bits are good ---- */

#define ND_SPLITMIX_GAMMA 0x9e3779b97f4a7c15u

/* The output function: a bijection that mixes all bits. 0 gives 0. */
static inline uint64_t nd_splitmix_output(uint64_t z)
{
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static inline uint64_t nd_splitmix_next(uint64_t *state)
{
    return nd_splitmix_output(*state += ND_SPLITMIX_GAMMA);
}

/* What nd_splitmix_next gives in state x: a hash of x. */
static inline uint64_t nd_splitmix_hash(uint64_t x)
{
    return nd_splitmix_next(&x);
}

/* The high 53 bits as a number in [0, 1). */
static inline double nd_random_share(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

/* Uniform in [0, 1). */
static inline double nd_splitmix_uniform(uint64_t *state)
{
    return nd_random_share(nd_splitmix_next(state));
}

/* Uniform in 0 .. n - 1, for 0 < n < 2^32: no number is more likely than another by more than n / 2^32. */
static inline size_t nd_splitmix_below(uint64_t *state, size_t n)
{
    assert(n > 0 && n <= UINT32_MAX);
    return (size_t)((nd_splitmix_next(state) >> 32) * n >> 32);
}

/* ---- the linear congruential generator of Knuth's MMIX: codes of probes are drawn with it ---- */

/* Its high 31 bits. */
static inline uint64_t nd_random_next(uint64_t *state)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return *state >> 33;
}

/* low <= x < high, apart from rounding. */
static inline double nd_random_between(uint64_t *state, double low, double high)
{
    return low + (high - low) * (double)nd_random_next(state) * 0x1p-31;
}
