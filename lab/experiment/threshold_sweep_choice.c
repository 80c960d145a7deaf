/* Which multipliers to ask a device about. */
#include <math.h>

#include "lab/experiment/threshold_sweep.h"

size_t nd_threshold_sweep_first_multipliers(double out[ND_THRESHOLD_SWEEP_MULTIPLIERS])
{
    /* Mantissas without a pattern; the exponents cover what 8-bit products of a few terms are scaled with. */
    static const struct {
        float mantissa;
        int exponent;
    } chosen[] = {{1, -5},          {1, -7},          {1.4142135F, -2}, {1.7320508F, -1}, {1.2345679F, -4},
                  {1.8392868F, -6}, {1.1180340F, -7}, {1.5811388F, -5}, {1.3247180F, -8}, {1.6180340F, -7}};
    size_t n = sizeof chosen / sizeof chosen[0];
    for (size_t i = 0; i < n; i++)
        out[i] = ldexp((double)chosen[i].mantissa, chosen[i].exponent);
    return n;
}

/* Halfway between two mantissas of n_bits, the lower of which is even or odd. */
static double halfway(int n_bits, bool is_odd)
{
    double layer = ldexp(1, -n_bits), lower = ldexp(floor(ldexp(1.37, n_bits - 1)), 1 - n_bits);
    return ldexp(lower + (is_odd ? layer : 0) + layer / 2, -6);
}

size_t nd_threshold_sweep_next_multipliers(const struct nd_threshold_sweep_findings *findings,
                                           double out[ND_THRESHOLD_SWEEP_MULTIPLIERS])
{
    bool is_asked[ND_MULTIPLIER_MAX_BITS + 1] = {false};
    size_t n = 0;
    for (size_t i = 0; i < findings->n_arithmetics && n + 2 <= ND_THRESHOLD_SWEEP_MULTIPLIERS; i++) {
        int bits = findings->arithmetics[i].multiplier_bits;
        /* Beyond that the 24 bits of a float have no half. */
        if (bits == ND_MULTIPLIER_EXACT || bits >= ND_MULTIPLIER_MAX_BITS || is_asked[bits])
            continue;
        is_asked[bits] = true;
        out[n++] = halfway(bits, false);
        out[n++] = halfway(bits, true);
    }
    return n;
}
