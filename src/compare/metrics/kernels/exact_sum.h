/* Sums of doubles without rounding: a fixed-point number as wide as all of double.
 * docs/reference/metrics.md#sums.
 *
 * Adding and merging have no order: the same values give the same sum however they were split up. A struct of
 * zeros is the sum of nothing. There is room for 2^60 additions, those of merged sums counted. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* 2098 bits of doubles and 78 for carries and sign. */
enum { ND_EXACT_LIMBS = 68 };

struct nd_exact_sum {
    /* The value is the sum of limb[i] * 2^(32 i - 1074). Limbs are signed and carry late: n_pending bounds how
     * many 32-bit numbers each one has taken up since it was last below 2^32. */
    int64_t limb[ND_EXACT_LIMBS];
    uint64_t n_pending;
    uint64_t n_nan, n_pos_inf, n_neg_inf; /* added, but in no limb */
};

void nd_exact_add(struct nd_exact_sum *sum, double value);

/* Adds all that was added to other; other may be sum itself. */
void nd_exact_merge(struct nd_exact_sum *sum, const struct nd_exact_sum *other);

/* The nearest double, ties to even, +0 for zero; infinite beyond the largest double. NaN when a NaN or
 * infinities of both signs were added, else the infinity that was. */
double nd_exact_round(const struct nd_exact_sum *sum);

/* The sum as text in new memory, or NULL when out of memory. One value has one text: "[-]HpE" for H * 2^E with
 * H an odd number in lower-case hexadecimal and E decimal, "0" for zero, then ",nan=N", ",inf=N", ",-inf=N" for
 * what was counted. */
char *nd_exact_format(const struct nd_exact_sum *sum);

/* Reads what nd_exact_format writes, and nothing else: false for another text and for numbers that 2^60
 * additions cannot reach. *out is written only on success. */
bool nd_exact_parse(const char *text, struct nd_exact_sum *out);
