/* What the files of the table of arithmetics share. */
#ifndef ND_ARITH_FAMILIES_H
#define ND_ARITH_FAMILIES_H

#include "arithmetic/arithmetics/arithmetics.h"

/* nd_arithmetic.kind of the family float. */
enum {
    ND_FLOAT_VALUE, /* nd_arithmetic.value says it */
    ND_FLOAT_VALUE_FP16,
    ND_FLOAT_VALUE_BF16,
    ND_FLOAT_EXECUTION,
    ND_FLOAT_UNROUNDED_INPUTS,
};

struct nd_arithmetic_family {
    const char *name;
    bool needs_accumulator, is_stochastic;
    const struct nd_arithmetic *arithmetics; /* those of the table */
    size_t n;
    const char *(*put_name)(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES]);
    /* False where the name is none of the family's. Fills all but the family of a zeroed arithmetic. */
    bool (*from_name)(const char *name, struct nd_arithmetic *out);
    /* NULL: nothing to be made ready. */
    void (*prepare)(struct nd_arithmetic_ready *ready);
    struct nd_arithmetic_outcome (*run)(const struct nd_arithmetic_ready *ready,
                                        const struct nd_arithmetic_element *element);
};

extern const struct nd_arithmetic_family nd_family_rounding, nd_family_double, nd_family_multiplier,
    nd_family_fixed, nd_family_granule, nd_family_accumulator, nd_family_float, nd_family_stochastic;

/* A whole number, zero point added, clipped. */
double nd_arithmetic_qvalue(const struct nd_arithmetic_ready *ready, double whole);
struct nd_arithmetic_outcome nd_arithmetic_surely(double qvalue);

/* Of families that are requantisation by parts. */
void nd_arithmetic_prepare_requantise(struct nd_arithmetic_ready *ready);
struct nd_arithmetic_outcome nd_arithmetic_run_requantise(const struct nd_arithmetic_ready *ready,
                                                          const struct nd_arithmetic_element *element);
const char *nd_arithmetic_requantise_name(const struct nd_arithmetic *arithmetic,
                                          char buf[ND_ARITHMETIC_NAME_BYTES]);
/* Of families that are arithmetics of arithmetic/exact/rounding_rule.h. */
struct nd_arithmetic_outcome nd_arithmetic_run_value(const struct nd_arithmetic_ready *ready,
                                                     const struct nd_arithmetic_element *element);
const char *nd_arithmetic_value_name(const struct nd_arithmetic *arithmetic,
                                     char buf[ND_ARITHMETIC_NAME_BYTES]);

/* The number behind a prefix, low to high; false for any other name. */
bool nd_arithmetic_read_bits(const char *name, const char *prefix, int low, int high, int *out);

#endif
