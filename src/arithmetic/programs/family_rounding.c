/* Rounded once. */
#include "arithmetic/programs/families.h"

static const struct nd_arithmetic programs[] = {
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_HALF_EVEN, 0}},
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_HALF_AWAY, 0}},
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_HALF_UP, 0}},
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_HALF_DOWN, 0}},
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_FLOOR, 0}},
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_CEIL, 0}},
    {.value = {ND_PROGRAM_SINGLE, ND_ROUND_TO_ZERO, 0}},
};

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_program_from_name(name, &out->value) && out->value.kind == ND_PROGRAM_SINGLE;
}

const struct nd_arithmetic_family nd_family_rounding = {.name = "rounding",
                                                        .programs = programs,
                                                        .n = sizeof programs / sizeof programs[0],
                                                        .put_name = nd_arithmetic_value_name,
                                                        .from_name = from_name,
                                                        .run = nd_arithmetic_run_value};
