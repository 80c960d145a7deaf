#include <math.h>

#include "core/statistics/binomial.h"
#include "core/statistics/mcnemar.h"
#include "core/statistics/softmath.h"

/* The binomial probability P(X = k), X ~ Bin(n, 1/2), as mantissa * 2^exponent so that no n underflows on the
 * way. */
struct scaled {
    double mantissa;
    long exponent;
};

static struct scaled normalise(struct scaled value)
{
    int shift;
    value.mantissa = frexp(value.mantissa, &shift);
    value.exponent += shift;
    return value;
}

static struct scaled binomial_half(size_t n, size_t k)
{
    struct scaled p = {1, -(long)n};
    for (size_t i = 1; i <= k; i++) {
        p.mantissa *= (double)(n - k + i) / (double)i;
        p = normalise(p);
    }
    return p;
}

/* Beyond this many factors the product takes long and has lost more digits than the logarithm. */
enum { N_FACTORS = 1 << 16 };

static double probability_half(size_t n, size_t k)
{
    if (k > N_FACTORS)
        return nd_exp(nd_binomial_log_pmf(k, n, 0.5, 0.5));
    struct scaled p = binomial_half(n, k);
    return p.exponent < -2000 ? 0 : ldexp(p.mantissa, (int)p.exponent);
}

double nd_mcnemar_mid_p(size_t n_lost, size_t n_gained)
{
    size_t n = n_lost + n_gained, k = n_lost < n_gained ? n_lost : n_gained;
    if (n_lost == n_gained)
        return 1; /* 2 P(X < n/2) + P(X = n/2) */
    /* p = P(X = k) + 2 P(X < k). Terms below k, relative to P(X = k): t(i-1) = t(i) i / (n-i+1), falling. */
    double term = 1, below = 0;
    for (size_t i = k; i > 0 && term > below * 1e-18; i--) {
        term *= (double)i / (double)(n - i + 1);
        below += term;
    }
    double p = probability_half(n, k) * (1 + 2 * below);
    return p < 1 ? p : 1;
}
