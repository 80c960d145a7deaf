/* A multiplier with few bits. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arithmetic/arithmetics/families.h"

enum { AS_PARTS, AS_FP16, AS_BF16 };

#define BITS(bits)                                                                                             \
    {.requantise = {.multiplier_bits = bits, .rounding = ND_ROUND_HALF_EVEN}},                                 \
    {                                                                                                          \
        .requantise = {.multiplier_bits = bits, .rounding = ND_ROUND_HALF_UP }                                 \
    }
static const struct nd_arithmetic arithmetics[] = {
    BITS(23), BITS(21), BITS(16), BITS(12), BITS(11), BITS(10), BITS(9), {.kind = AS_FP16}, {.kind = AS_BF16},
};

static const char *put_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    if (arithmetic->kind == AS_PARTS)
        return nd_arithmetic_requantise_name(arithmetic, buf);
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s",
             arithmetic->kind == AS_FP16 ? "multiplier-fp16" : "multiplier-bf16");
    return buf;
}

/* Any requantisation with a multiplier of few bits alone: what has a granule or an accumulator is theirs. */
static bool from_name(const char *name, struct nd_arithmetic *out)
{
    if (strcmp(name, "multiplier-fp16") == 0 || strcmp(name, "multiplier-bf16") == 0) {
        out->kind = strcmp(name, "multiplier-fp16") == 0 ? AS_FP16 : AS_BF16;
        return true;
    }
    const struct nd_requantise *r = &out->requantise;
    return nd_requantise_from_name(name, &out->requantise) && r->multiplier_bits != ND_MULTIPLIER_EXACT &&
           !r->has_granule && !r->folds_zero && r->accumulator_bits == 0;
}

static double to_fp16(double x)
{
    static const double smallest_normal = 0x1p-14, least = 0x1p-24;
    return x < smallest_normal ? nd_round_value(x / least, ND_ROUND_HALF_EVEN) * least
                               : nd_multiplier_round(x, 10, ND_ROUND_HALF_EVEN);
}

static void prepare(struct nd_arithmetic_ready *ready)
{
    nd_arithmetic_prepare_requantise(ready);
    double m = ready->scaling.multiplier;
    if (ready->arithmetic->kind == AS_FP16)
        ready->requantiser.c = to_fp16(m);
    else if (ready->arithmetic->kind == AS_BF16)
        ready->requantiser.c = nd_multiplier_round(m, 7, ND_ROUND_HALF_EVEN);
}

const struct nd_arithmetic_family nd_family_multiplier = {.name = "multiplier",
                                                          .needs_accumulator = true,
                                                          .arithmetics = arithmetics,
                                                          .n = sizeof arithmetics / sizeof arithmetics[0],
                                                          .put_name = put_name,
                                                          .from_name = from_name,
                                                          .prepare = prepare,
                                                          .run = nd_arithmetic_run_requantise};
