/* Numbers for probes: the same on every machine and in every run. */
#ifndef ND_FINGERPRINT_RANDOM_H
#define ND_FINGERPRINT_RANDOM_H

#include <stdint.h>

/* A linear congruential generator, its high 31 bits. */
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

#endif
