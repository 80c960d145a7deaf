/* Exact quotients of 128-bit integers, to hold exact arithmetic in doubles against. Include after main.h. */
#ifndef ND_TESTS_RATIONAL_H
#define ND_TESTS_RATIONAL_H

#include <math.h>
#include <stdbool.h>

#include "arithmetic/exact/linear/rounding.h"

/* n / d in lowest terms, d > 0. */
struct rational {
    __int128 n, d;
};

static inline struct rational rational_of(__int128 n, __int128 d)
{
    __int128 a = n < 0 ? -n : n, b = d < 0 ? -d : d;
    while (b != 0) {
        __int128 rest = a % b;
        a = b;
        b = rest;
    }
    if (d < 0)
        a = -a;
    return (struct rational){n / a, d / a};
}

static inline struct rational rational_mul(struct rational a, struct rational b)
{
    struct rational left = rational_of(a.n, b.d), right = rational_of(b.n, a.d);
    return (struct rational){left.n * right.n, left.d * right.d};
}

static inline struct rational rational_div(struct rational a, struct rational b)
{
    return rational_mul(a, b.n < 0 ? (struct rational){-b.d, -b.n} : (struct rational){b.d, b.n});
}

static inline struct rational rational_add(struct rational a, struct rational b)
{
    __int128 common = rational_of(a.d, b.d).d; /* b.d without what it shares with a.d */
    return rational_of(a.n * common + b.n * (a.d * common / b.d), a.d * common);
}

static inline int rational_compare(struct rational a, struct rational b)
{
    struct rational difference = rational_add(a, (struct rational){-b.n, b.d});
    return (difference.n > 0) - (difference.n < 0);
}

/* Of magnitude 2^-60 to 2^70. */
static inline struct rational rational_of_double(double x)
{
    int exponent;
    __int128 n = (__int128)ldexp(frexp(x, &exponent), 53);
    for (exponent -= 53; n != 0 && n % 2 == 0; exponent++)
        n /= 2;
    if (n == 0)
        return (struct rational){0, 1};
    return exponent >= 0 ? rational_of(n * ((__int128)1 << exponent), 1)
                         : rational_of(n, (__int128)1 << -exponent);
}

static inline struct rational rational_of_wide(struct nd_wide wide)
{
    struct rational sum = {0, 1};
    for (size_t i = 0; i < ND_WIDE_PARTS; i++)
        sum = rational_add(sum, rational_of_double(wide.parts[i]));
    return sum;
}

static inline struct rational rational_of_ratio(const struct nd_ratio *ratio)
{
    return rational_div(rational_of_wide(ratio->numerator), rational_of_wide(ratio->denominator));
}

static inline bool rational_equal(struct rational a, struct rational b)
{
    return a.n == b.n && a.d == b.d;
}

#endif
