/* Rounded twice: to some fraction bits, then to a whole number. */
#include "arithmetic/arithmetics/families.h"

#define DOUBLE(bits)                                                                                           \
    {                                                                                                          \
        .value = { ND_ROUNDED_TWICE, 0, bits }                                                                 \
    }
static const struct nd_arithmetic arithmetics[] = {
    DOUBLE(8), DOUBLE(1), DOUBLE(2), DOUBLE(3),  DOUBLE(4),  DOUBLE(5),
    DOUBLE(6), DOUBLE(7), DOUBLE(9), DOUBLE(10), DOUBLE(11), DOUBLE(12),
};

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_rounding_rule_from_name(name, &out->value) && out->value.kind == ND_ROUNDED_TWICE;
}

const struct nd_arithmetic_family nd_family_double = {.name = "double",
                                                      .arithmetics = arithmetics,
                                                      .n = sizeof arithmetics / sizeof arithmetics[0],
                                                      .put_name = nd_arithmetic_value_name,
                                                      .from_name = from_name,
                                                      .run = nd_arithmetic_run_value};
