/* Accumulators that are too narrow, or whose last bits are dropped. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/arithmetics/families.h"

enum { AS_PARTS, DROPPED };

#define WIDTH(bits)                                                                                            \
    {.requantise = {.accumulator_bits = bits, .rounding = ND_ROUND_HALF_EVEN}},                                \
    {                                                                                                          \
        .requantise = {.accumulator_bits = bits, .wraps = true, .rounding = ND_ROUND_HALF_EVEN }               \
    }
#define DROP(bits)                                                                                             \
    {                                                                                                          \
        .kind = DROPPED, .n_bits = bits                                                                        \
    }
static const struct nd_arithmetic arithmetics[] = {
    WIDTH(16), WIDTH(18), WIDTH(20), WIDTH(24), WIDTH(32), DROP(1), DROP(2), DROP(3), DROP(4), DROP(6), DROP(8),
};

static const char *put_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    if (arithmetic->kind == AS_PARTS)
        return nd_arithmetic_requantise_name(arithmetic, buf);
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "drop-bits:%d", arithmetic->n_bits);
    return buf;
}

/* What no other family spells: "rounding:HOW" alone, too. */
static bool from_name(const char *name, struct nd_arithmetic *out)
{
    if (nd_arithmetic_read_bits(name, "drop-bits:", 1, 16, &out->n_bits)) {
        out->kind = DROPPED;
        return true;
    }
    return nd_requantise_from_name(name, &out->requantise);
}

static void prepare(struct nd_arithmetic_ready *ready)
{
    nd_arithmetic_prepare_requantise(ready);
    ready->dropped = ready->arithmetic->kind == DROPPED ? ldexp(1, ready->arithmetic->n_bits) : 0;
}

const struct nd_arithmetic_family nd_family_accumulator = {.name = "accumulator",
                                                           .needs_accumulator = true,
                                                           .arithmetics = arithmetics,
                                                           .n = sizeof arithmetics / sizeof arithmetics[0],
                                                           .put_name = put_name,
                                                           .from_name = from_name,
                                                           .prepare = prepare,
                                                           .run = nd_arithmetic_run_requantise};
