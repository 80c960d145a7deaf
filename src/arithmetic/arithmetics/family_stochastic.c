/* Rounded by chance. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arithmetic/arithmetics/families.h"
#include "npudiff/core/parse.h"

enum { PROPORTIONAL, EQUAL, BITS };

static const struct nd_arithmetic arithmetics[] = {
    {.kind = PROPORTIONAL},      {.kind = EQUAL},
    {.kind = BITS, .n_bits = 1}, {.kind = BITS, .n_bits = 2},
    {.kind = BITS, .n_bits = 3}, {.kind = BITS, .n_bits = 4},
    {.kind = BITS, .n_bits = 8},
};

static const char *put_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    if (arithmetic->kind == BITS)
        snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "stochastic-bits:%d", arithmetic->n_bits);
    else
        snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s",
                 arithmetic->kind == EQUAL ? "stochastic-equal" : "stochastic");
    return buf;
}

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    static const char seeded[] = "stochastic:";
    uint64_t seed;
    if (nd_arithmetic_read_bits(name, "stochastic-bits:", 1, 16, &out->n_bits))
        out->kind = BITS;
    else if (strcmp(name, "stochastic-equal") == 0)
        out->kind = EQUAL;
    else
        return strcmp(name, "stochastic") == 0 ||
               (strncmp(name, seeded, strlen(seeded)) == 0 && nd_parse_u64(name + strlen(seeded), &seed));
    return true;
}

static double probability(const struct nd_arithmetic *arithmetic, const struct nd_place *place)
{
    double n_steps;
    if (place->is_whole)
        return 0;
    switch (arithmetic->kind) {
    case PROPORTIONAL:
        return place->fraction;
    case EQUAL:
        return 0.5;
    default:
        n_steps = ldexp(1, arithmetic->n_bits);
        return floor(place->fraction * n_steps) / n_steps;
    }
}

static struct nd_arithmetic_outcome run(const struct nd_arithmetic_ready *ready,
                                        const struct nd_arithmetic_element *element)
{
    const struct nd_place *place = &element->place;
    return (struct nd_arithmetic_outcome){.qvalue = nd_arithmetic_qvalue(ready, place->floor),
                                          .other = nd_arithmetic_qvalue(ready, place->floor + 1),
                                          .p = probability(ready->arithmetic, place)};
}

const struct nd_arithmetic_family nd_family_stochastic = {.name = "stochastic",
                                                          .is_stochastic = true,
                                                          .arithmetics = arithmetics,
                                                          .n = sizeof arithmetics / sizeof arithmetics[0],
                                                          .put_name = put_name,
                                                          .from_name = from_name,
                                                          .run = run};
