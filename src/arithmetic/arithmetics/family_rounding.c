/* Rounded once. */
#include "arithmetic/arithmetics/families.h"

static const struct nd_arithmetic arithmetics[] = {
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_EVEN, 0}}, {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_AWAY, 0}},
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_UP, 0}},   {.value = {ND_ROUNDED_ONCE, ND_ROUND_HALF_DOWN, 0}},
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_FLOOR, 0}},     {.value = {ND_ROUNDED_ONCE, ND_ROUND_CEIL, 0}},
    {.value = {ND_ROUNDED_ONCE, ND_ROUND_TO_ZERO, 0}},
};

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_rounding_rule_from_name(name, &out->value) && out->value.kind == ND_ROUNDED_ONCE;
}

const struct nd_arithmetic_family nd_family_rounding = {.name = "rounding",
                                                        .arithmetics = arithmetics,
                                                        .n = sizeof arithmetics / sizeof arithmetics[0],
                                                        .put_name = nd_arithmetic_value_name,
                                                        .from_name = from_name,
                                                        .run = nd_arithmetic_run_value};
