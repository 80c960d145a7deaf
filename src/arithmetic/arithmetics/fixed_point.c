#include "arithmetic/arithmetics/fixed_point.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

enum { MULTIPLIER_BITS = 31 }; /* of both specifications: int32 without its sign */

struct nd_fixed_multiplier nd_fixed_multiplier(double multiplier)
{
    struct nd_fixed_multiplier m;
    m.q = round(ldexp(frexp(multiplier, &m.e), MULTIPLIER_BITS));
    if (m.q == ldexp(1, MULTIPLIER_BITS)) {
        m.q /= 2;
        m.e++;
    }
    return m;
}

struct nd_fixed_multiplier nd_fixed_multiplier_of_mean(enum nd_fixed_point kind, double multiplier, double n)
{
    enum { MAX_LEFT = 32, MAX_RIGHT = 31 }; /* of the shift, as the kernel holds it in its bounds */
    if (kind != ND_FIXED_GEMMLOWP)
        return nd_fixed_multiplier(multiplier);
    struct nd_fixed_multiplier m = nd_fixed_multiplier(multiplier * n);
    int shift = ilogb(n);
    shift = shift < MAX_LEFT ? shift : MAX_LEFT;
    shift = shift < MAX_RIGHT + m.e ? shift : MAX_RIGHT + m.e;
    m.q = floor(ldexp(m.q, shift) / n); /* exact: below 2^53 for n below 2^22 */
    m.e -= shift;
    return m;
}

/* floor(x / 2^n), which C leaves to the compiler for negative numbers. */
static int64_t shift_down(int64_t x, int n)
{
    return x >= 0 ? x >> n : -((-x + ((int64_t)1 << n) - 1) >> n);
}

static int64_t divide_half_away(int64_t x, int n)
{
    int64_t half = n > 0 ? (int64_t)1 << (n - 1) : 0;
    return x >= 0 ? (x + half) >> n : -((-x + half) >> n);
}

/* a m 2^-right of a whole product a m 2^31. */
static int64_t scale_as_tosa(int64_t product, int right, bool is_double)
{
    int64_t round = (int64_t)1 << (MULTIPLIER_BITS - 1 + right), more = (int64_t)1 << (MULTIPLIER_BITS - 1);
    if (is_double && right > 0)
        round += product >= 0 ? more : -more;
    return shift_down(product + round, MULTIPLIER_BITS + right);
}

double nd_fixed_run(enum nd_fixed_point kind, const struct nd_fixed_multiplier *m, double a)
{
    enum { MAX_LEFT = 30, MAX_RIGHT = 31 }; /* of a shift, in both specifications */
    int right = m->e < 0 ? -m->e : 0;
    double shifted = a * ldexp(1, m->e > 0 ? m->e : 0);
    if (m->e > MAX_LEFT || right > MAX_RIGHT || !(fabs(shifted) <= (double)INT32_MAX))
        return 0;
    int64_t product = (int64_t)shifted * (int64_t)m->q, half = (int64_t)1 << (MULTIPLIER_BITS - 1);
    return (double)(kind == ND_FIXED_GEMMLOWP
                        ? divide_half_away(shift_down(product + half, MULTIPLIER_BITS), right)
                        : scale_as_tosa(product, right, kind == ND_FIXED_TOSA_DOUBLE));
}

static const char *const names[ND_FIXED_N] = {[ND_FIXED_NONE] = "",
                                              [ND_FIXED_GEMMLOWP] = "gemmlowp",
                                              [ND_FIXED_TOSA_SINGLE] = "tosa-single",
                                              [ND_FIXED_TOSA_DOUBLE] = "tosa-double"};

const char *nd_fixed_name(enum nd_fixed_point kind)
{
    return names[kind];
}

bool nd_fixed_from_name(const char *name, enum nd_fixed_point *out)
{
    for (int kind = ND_FIXED_NONE + 1; kind < ND_FIXED_N; kind++)
        if (strcmp(name, names[kind]) == 0) {
            *out = (enum nd_fixed_point)kind;
            return true;
        }
    return false;
}
