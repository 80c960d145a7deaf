/* Rounded twice: to some fraction bits, then to a whole number. */
#include "arithmetic/programs/families.h"

#define DOUBLE(bits)                                                                                           \
    {                                                                                                          \
        .value = { ND_PROGRAM_DOUBLE, 0, bits }                                                                \
    }
static const struct nd_arithmetic programs[] = {
    DOUBLE(8), DOUBLE(1), DOUBLE(2), DOUBLE(3),  DOUBLE(4),  DOUBLE(5),
    DOUBLE(6), DOUBLE(7), DOUBLE(9), DOUBLE(10), DOUBLE(11), DOUBLE(12),
};

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_program_from_name(name, &out->value) && out->value.kind == ND_PROGRAM_DOUBLE;
}

const struct nd_arithmetic_family nd_family_double = {.name = "double",
                                                      .programs = programs,
                                                      .n = sizeof programs / sizeof programs[0],
                                                      .put_name = nd_arithmetic_value_name,
                                                      .from_name = from_name,
                                                      .run = nd_arithmetic_run_value};
