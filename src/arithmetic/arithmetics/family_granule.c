/* The accumulator cut to a granule before it is multiplied, with and without half of one; the zero point folded
 * into it. The last two are what the HTP does in Conv, Gemm and MatMul of uint8 quantised values (runtime's
 * simulator). */
#include "arithmetic/arithmetics/families.h"

#define GRANULE(bits)                                                                                          \
    {.requantise = {.has_granule = true, .granule_bits = bits, .rounding = ND_ROUND_HALF_EVEN}},               \
    {                                                                                                          \
        .requantise = {                                                                                        \
            .has_granule = true,                                                                               \
            .granule_bits = bits,                                                                              \
            .has_half_granule = true,                                                                          \
            .rounding = ND_ROUND_HALF_UP                                                                       \
        }                                                                                                      \
    }
static const struct nd_arithmetic arithmetics[] = {
    GRANULE(1),
    GRANULE(2),
    GRANULE(3),
    GRANULE(4),
    GRANULE(5),
    {.requantise = {.folds_zero = true, .rounding = ND_ROUND_HALF_EVEN}},
    {.requantise = {.folds_zero = true, .rounding = ND_ROUND_HALF_UP}},
    {.requantise = {.multiplier_bits = 11,
                    .multiplier_rounding = ND_ROUND_HALF_UP,
                    .has_granule = true,
                    .granule_bits = 3,
                    .has_half_granule = true,
                    .rounding = ND_ROUND_HALF_UP}},
    {.requantise = {.multiplier_bits = 10,
                    .multiplier_rounding = ND_ROUND_HALF_UP,
                    .has_granule = true,
                    .granule_bits = 3,
                    .is_granule_whole = true,
                    .folds_zero = true,
                    .rounding = ND_ROUND_HALF_UP}},
};

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    const struct nd_requantise *r = &out->requantise;
    return nd_requantise_from_name(name, &out->requantise) && (r->has_granule || r->folds_zero) &&
           r->accumulator_bits == 0;
}

const struct nd_arithmetic_family nd_family_granule = {.name = "granule",
                                                       .needs_accumulator = true,
                                                       .arithmetics = arithmetics,
                                                       .n = sizeof arithmetics / sizeof arithmetics[0],
                                                       .put_name = nd_arithmetic_requantise_name,
                                                       .from_name = from_name,
                                                       .prepare = nd_arithmetic_prepare_requantise,
                                                       .run = nd_arithmetic_run_requantise};
