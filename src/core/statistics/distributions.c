/* exp and ln in plain double arithmetic, and the normal and the binomial distribution on them: the same bits on
 * every machine. docs/science/statistics.md#numbers. */
#include <assert.h>
#include <math.h>

#include "core/statistics/distributions.h"

/* ln 2 in two parts: the first has 20 zero bits at its end, so that whole multiples of it are exact. */
static const double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;

double nd_exp(double x)
{
    if (x < -745.2)
        return 0;
    double k = nearbyint(x * 0x1.71547652b82fep+0); /* 1 / ln 2 */
    double r = (x - k * ln2_high) - k * ln2_low;    /* |r| <= 0.347 */
    double sum = 1;
    for (int i = 15; i > 0; i--) /* Horner: 1 + r (1 + r/2 (1 + r/3 (...))) */
        sum = 1 + r / i * sum;
    return ldexp(sum, (int)k);
}

double nd_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) { /* sqrt(1/2) */
        m *= 2;
        exponent--;
    }
    double f = (m - 1) / (m + 1), square = f * f; /* ln m = 2 artanh f, |f| <= 0.172 */
    double sum = 0;
    for (int i = 23; i > 1; i -= 2)
        sum = (sum + 1.0 / i) * square;
    return exponent * ln2_high + (exponent * ln2_low + 2 * (f + f * sum));
}

/* Algorithm AS 241, PPND16 (Wichura 1988): quotients of polynomials of degree 7, highest power first. */
enum { N_COEFFICIENTS = 8 };

struct quotient {
    double numerator[N_COEFFICIENTS], denominator[N_COEFFICIENTS];
};

static const struct quotient central = {
    .numerator = {2.5090809287301226727e+3, 3.3430575583588128105e+4, 6.7265770927008700853e+4,
                  4.5921953931549871457e+4, 1.3731693765509461125e+4, 1.9715909503065514427e+3,
                  1.3314166789178437745e+2, 3.3871328727963666080e+0},
    .denominator = {5.2264952788528545610e+3, 2.8729085735721942674e+4, 3.9307895800092710610e+4,
                    2.1213794301586595867e+4, 5.3941960214247511077e+3, 6.8718700749205790830e+2,
                    4.2313330701600911252e+1, 1},
};
static const struct quotient near = {
    .numerator = {7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1,
                  1.27045825245236838258e+0, 3.64784832476320460504e+0, 5.76949722146069140550e+0,
                  4.63033784615654529590e+0, 1.42343711074968357734e+0},
    .denominator = {1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2,
                    1.48103976427480074590e-1, 6.89767334985100004550e-1, 1.67638483018380384940e+0,
                    2.05319162663775882187e+0, 1},
};
static const struct quotient far = {
    .numerator = {2.01033439929228813265e-7, 2.71155556874348757815e-5, 1.24266094738807843860e-3,
                  2.65321895265761230930e-2, 2.96560571828504891230e-1, 1.78482653991729133580e+0,
                  5.46378491116411436990e+0, 6.65790464350110377720e+0},
    .denominator = {2.04426310338993978564e-15, 1.42151175831644588870e-7, 1.84631831751005468180e-5,
                    7.86869131145613259100e-4, 1.48753612908506148525e-2, 1.36929880922735805310e-1,
                    5.99832206555887937690e-1, 1},
};

static double polynomial(const double coefficients[static N_COEFFICIENTS], double x)
{
    double sum = coefficients[0];
    for (int i = 1; i < N_COEFFICIENTS; i++)
        sum = sum * x + coefficients[i];
    return sum;
}

static double value_of(const struct quotient *q, double x)
{
    return polynomial(q->numerator, x) / polynomial(q->denominator, x);
}

double nd_normal_quantile(double p)
{
    assert(p > 0 && p < 1);
    double from_middle = p - 0.5;
    if (fabs(from_middle) <= 0.425)
        return from_middle * value_of(&central, 0.180625 - from_middle * from_middle);
    double r = sqrt(-nd_log(from_middle < 0 ? p : 1 - p));
    double z = r <= 5 ? value_of(&near, r - 1.6) : value_of(&far, r - 5);
    return from_middle < 0 ? -z : z;
}

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
