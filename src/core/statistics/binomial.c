#include "core/statistics/binomial.h"

#include <math.h>

#include "core/statistics/softmath.h"

/* ln n! less Stirling's formula. */
static double stirling_error(double n)
{
    static const double small[] = {0,
                                   0x1.4c071bcda0a5bp-4,
                                   0x1.52a9b923ea649p-5,
                                   0x1.c579a268d80b3p-6,
                                   0x1.54a2662fd78a9p-6,
                                   0x1.10b4e513fcbedp-6,
                                   0x1.c6b167bebdf36p-7,
                                   0x1.85d4d612e4a86p-7,
                                   0x1.552805e7b3076p-7,
                                   0x1.2f4871b12ab64p-7,
                                   0x1.10f9d4c0743a7p-7,
                                   0x1.f0593088014f8p-8,
                                   0x1.c7018733aa9c6p-8,
                                   0x1.a40514700f36cp-8,
                                   0x1.86076c002d4a7p-8,
                                   0x1.6c08f6f194a10p-8};
    if (n < sizeof small / sizeof small[0])
        return small[(int)n];
    double s = 1 / (n * n);
    return (1.0 / 12 - (1.0 / 360 - (1.0 / 1260 - (1.0 / 1680 - s / 1188) * s) * s) * s) / n;
}

/* x ln(x / mean) + mean - x, without cancellation where x is near mean. */
static double deviance(double x, double mean)
{
    double gap = x - mean;
    if (fabs(gap) >= 0.1 * (x + mean))
        return x * nd_log(x / mean) - gap;
    double v = gap / (x + mean), sum = gap * v, term = 2 * x * v, before;
    v *= v;
    for (int i = 3;; i += 2) {
        term *= v;
        before = sum;
        sum += term / i;
        if (sum == before)
            return sum;
    }
}

/* n ln q: p may be so small that q = 1 - p is 1. */
static double log_all(double n, double p, double q)
{
    return p < 0.1 ? -deviance(n, n * q) - n * p : n * nd_log(q);
}

double nd_binomial_log_pmf(uint64_t k, uint64_t n, double p, double q)
{
    static const double log_two_pi = 0x1.d67f1c864beb5p+0;
    double x = (double)k, size = (double)n, y = (double)(n - k);
    if (n == 0)
        return 0;
    if (k == 0)
        return log_all(size, p, q);
    if (k == n)
        return log_all(size, q, p);
    /* Loader (2000). */
    double correction = stirling_error(size) - stirling_error(x) - stirling_error(y);
    double log_root = (nd_log(size / x) - nd_log(y) - log_two_pi) / 2;
    return correction - deviance(x, size * p) - deviance(y, size * q) + log_root;
}

/* ln P(X <= k) for p > k / n: the terms fall from the k-th one down. */
static double log_tail(uint64_t k, uint64_t n, double p, double q)
{
    double term = 1, sum = 1, odds = q / p;
    for (uint64_t i = k; i > 0 && term > sum * 0x1p-60; i--) {
        term *= (double)i / (double)(n - i + 1) * odds;
        sum += term;
    }
    return nd_binomial_log_pmf(k, n, p, q) + nd_log(sum);
}

/* 1 - alpha^(1 / n), without cancellation. */
static double bound_of_none(double log_alpha, double n)
{
    double x = -log_alpha / n, sum = 1;
    for (int i = 12; i > 1; i--)
        sum = 1 - x / i * sum;
    return x < 0.1 ? x * sum : 1 - nd_exp(-x);
}

double nd_binomial_upper(uint64_t k, uint64_t n, double alpha)
{
    double log_alpha = nd_log(alpha);
    if (n == 0 || k == n)
        return 1;
    if (k == 0)
        return bound_of_none(log_alpha, (double)n);
    double low = (double)k / (double)n, high = 1 - 0x1p-53;
    for (int step = 0; step < 100 && high - low > high * 0x1p-50; step++) {
        double middle = low + (high - low) / 2;
        if (log_tail(k, n, middle, 1 - middle) > log_alpha)
            low = middle;
        else
            high = middle;
    }
    return high;
}

double nd_binomial_lower(uint64_t k, uint64_t n, double alpha)
{
    double log_alpha = nd_log(alpha);
    if (n == 0 || k == 0)
        return 0;
    if (k == n)
        return nd_exp(log_alpha / (double)n);
    /* As the failures' upper bound, but looking for p, which may be too small to be found from 1 - p. */
    double low = 0, high = (double)k / (double)n;
    for (int step = 0; step < 1200 && high - low > high * 0x1p-50; step++) {
        double middle = low + (high - low) / 2;
        if (log_tail(n - k, n, 1 - middle, middle) > log_alpha)
            high = middle;
        else
            low = middle;
    }
    return low;
}
