/* exp and ln in plain double arithmetic, and the normal and the binomial distribution on them: the same bits on
 * every machine. docs/science/statistics.md#numbers. */
#include <assert.h>
#include <math.h>
#include <stdbool.h>

#include "core/memory.h"
#include "core/statistics/distributions.h"
#include "core/statistics/series.h"

/* One kind of run or two, by models of the logarithm of latency: docs/science/latency.md#modes. */

enum { SHORT_STEPS = 30, LONG_STEPS = 500, N_SHIFTS = 24 };

static const double log_sqrt_2pi = 0.91893853320467274178;
static const double pi = 3.14159265358979323846;

/* Deviation of a part at least this much of the whole: a spike of equal values is not a mode
 * (docs/science/latency.md#modes). */
static const double deviation_floor = 0.02;

/* Of log likelihood in a step, where the criterion is a difference of 10 in twice that. */
static const double min_gain = 1e-4;

/* The starts: the lower part has this share of the values. The sixth splits at the widest gap. */
static const double start_shares[] = {0.1, 0.25, 0.5, 0.75, 0.9};
enum { N_STARTS = sizeof start_shares / sizeof *start_shares + 1 };

struct fit {
    const double *y;
    size_t n;
    double floor;
    double *upper; /* [n] responsibility of the upper part */
};

static struct nd_gaussian gaussian_of(const double *y, size_t n)
{
    double sum = 0, square = 0;
    for (size_t i = 0; i < n; i++)
        sum += y[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++)
        square += (y[i] - mean) * (y[i] - mean);
    return (struct nd_gaussian){1, mean, sqrt(square / (double)n)};
}

static double log_height(const struct nd_gaussian *g)
{
    return log(g->weight) - log(g->deviation) - log_sqrt_2pi;
}

static double log_density(const struct nd_gaussian *g, double height, double y)
{
    double z = (y - g->mean) / g->deviation;
    return height - z * z / 2;
}

static void split(const struct fit *fit, size_t k, struct nd_mixture *out)
{
    const size_t sizes[2] = {k, fit->n - k};
    for (size_t p = 0; p < 2; p++) {
        struct nd_gaussian *part = &out->parts[p];
        *part = gaussian_of(fit->y + (p == 0 ? 0 : k), sizes[p]);
        part->weight = (double)sizes[p] / (double)fit->n;
        part->deviation = fmax(part->deviation, fit->floor);
    }
}

static double expect(const struct fit *fit, const struct nd_mixture *m)
{
    double total = 0, height[2] = {log_height(&m->parts[0]), log_height(&m->parts[1])};
    for (size_t i = 0; i < fit->n; i++) {
        double a = log_density(&m->parts[0], height[0], fit->y[i]);
        double b = log_density(&m->parts[1], height[1], fit->y[i]);
        double top = fmax(a, b), sum = top + log1p(exp(fmin(a, b) - top));
        fit->upper[i] = exp(b - sum);
        total += sum;
    }
    return total;
}

/* False when a part died out. */
static bool maximise(const struct fit *fit, struct nd_mixture *m)
{
    double w[2] = {0}, sum[2] = {0}, square[2] = {0};
    for (size_t i = 0; i < fit->n; i++) {
        w[1] += fit->upper[i];
        sum[1] += fit->upper[i] * fit->y[i];
        w[0] += 1 - fit->upper[i];
        sum[0] += (1 - fit->upper[i]) * fit->y[i];
    }
    if (w[0] < 1 || w[1] < 1)
        return false;
    double mean[2] = {sum[0] / w[0], sum[1] / w[1]};
    for (size_t i = 0; i < fit->n; i++) {
        double a = fit->y[i] - mean[0], b = fit->y[i] - mean[1];
        square[0] += (1 - fit->upper[i]) * a * a;
        square[1] += fit->upper[i] * b * b;
    }
    for (size_t p = 0; p < 2; p++)
        m->parts[p] =
            (struct nd_gaussian){w[p] / (double)fit->n, mean[p], fmax(sqrt(square[p] / w[p]), fit->floor)};
    return true;
}

static void climb(const struct fit *fit, size_t n_steps, struct nd_mixture *m)
{
    m->log_likelihood = expect(fit, m);
    for (size_t i = 0; i < n_steps; i++) {
        if (!maximise(fit, m))
            return;
        double now = expect(fit, m), gain = now - m->log_likelihood;
        m->log_likelihood = now;
        if (gain < min_gain)
            return;
    }
}

static size_t widest_gap(const double *y, size_t n)
{
    size_t at = n / 2;
    for (size_t i = 2; i + 1 < n; i++)
        if (y[i] - y[i - 1] > y[at] - y[at - 1])
            at = i;
    return at;
}

static void climb_from_all(const struct fit *fit, struct nd_mixture *best)
{
    best->log_likelihood = -INFINITY;
    for (size_t s = 0; s < N_STARTS; s++) {
        struct nd_mixture m = {0};
        size_t k = s + 1 < N_STARTS ? (size_t)(start_shares[s] * (double)fit->n) : widest_gap(fit->y, fit->n);
        split(fit, k < 1 ? 1 : k, &m);
        climb(fit, SHORT_STEPS, &m);
        if (m.log_likelihood > best->log_likelihood)
            *best = m;
    }
    climb(fit, LONG_STEPS, best);
    if (best->parts[0].mean > best->parts[1].mean) {
        struct nd_gaussian lower = best->parts[1];
        best->parts[1] = best->parts[0];
        best->parts[0] = lower;
    }
}

/* Log likelihood, in terms of y = log t, of t - shift being log-normal. */
static double shifted_likelihood(const double *y, size_t n, double base, double shift)
{
    double sum = 0, square = 0, slope = 0;
    for (size_t i = 0; i < n; i++) {
        double t = exp(y[i] - base), z = log(t - shift);
        sum += z;
        square += z * z;
        slope += log(t) - z;
    }
    double mean = sum / (double)n, variance = square / (double)n - mean * mean;
    return variance > 0 ? slope - (double)n * (log(variance) / 2 + log_sqrt_2pi + 0.5) : -INFINITY;
}

/* The best of a ladder of shifts. The likelihood grows without bound where the shift meets the least value, so
 * the ladder ends one hundredth of the way from the median below it. */
static double best_shifted(const double *y, size_t n)
{
    double base = y[n / 2], least = exp(y[0] - base), reach = fmax(1 - least, 1e-9), best = -INFINITY;
    for (size_t k = 0; k < N_SHIFTS; k++) {
        double shift = least - reach * 0.01 * pow(1.6, (double)k);
        if (shift <= -1e6)
            break;
        best = fmax(best, shifted_likelihood(y, n, base, shift));
    }
    return best;
}

/* Log likelihood of the exponential power distribution with this shape: 1 is Laplace's, 2 normal, many uniform.
 */
static double power_likelihood(const double *y, size_t n, double centre, double shape)
{
    double reach = fmax(y[n - 1] - centre, centre - y[0]), sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += pow(fabs(y[i] - centre) / reach, shape);
    int sign;
    double log_scale = log(reach) + log(shape * sum / (double)n) / shape;
    return (double)n * (log(shape / 2) - log_scale - lgamma_r(1 / shape, &sign) - 1 / shape);
}

/* The best flat or pointed single hump. */
static double best_power(const double *y, size_t n, double mean)
{
    static const double shapes[] = {1, 1.5, 3, 4, 6, 10, 20, 50};
    const double centres[] = {mean, (y[0] + y[n - 1]) / 2};
    double best = -INFINITY;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (size_t k = 0; k < 2; k++)
            best = fmax(best, power_likelihood(y, n, centres[k], shapes[i]));
    return best;
}

/* Bayesian information criteria of one kind of run, less those of two. */
static void weigh(const double *y, size_t n, const struct nd_gaussian *one, struct nd_mixture *m)
{
    double log_n = log((double)n), two = -2 * m->log_likelihood + 5 * log_n;
    double gaussian = (double)n * (log(2 * pi * one->deviation * one->deviation) + 1) + 2 * log_n;
    double other = fmax(best_shifted(y, n), best_power(y, n, one->mean));
    m->gaussian_bic = gaussian - two;
    m->delta_bic = fmin(gaussian, -2 * other + 3 * log_n) - two;
}

static double boundary(const struct nd_mixture *m)
{
    double low = m->parts[0].mean, high = m->parts[1].mean;
    double height[2] = {log_height(&m->parts[0]), log_height(&m->parts[1])};
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (log_density(&m->parts[0], height[0], middle) > log_density(&m->parts[1], height[1], middle))
            low = middle;
        else
            high = middle;
    }
    return (low + high) / 2;
}

enum nd_status nd_mixture_fit(const double *sorted, size_t n, struct nd_mixture *out, struct nd_error *err)
{
    assert(n >= ND_MIXTURE_MIN && n <= ND_MIXTURE_MAX && sorted[0] < sorted[n - 1]);
    struct nd_gaussian one = gaussian_of(sorted, n);
    struct fit fit = {sorted, n, deviation_floor * one.deviation, nd_calloc(n, sizeof *fit.upper)};
    ND_TRY_MEMORY(fit.upper != NULL, err);
    struct nd_mixture m = {0};
    climb_from_all(&fit, &m);
    free(fit.upper);
    weigh(sorted, n, &one, &m);
    m.ashman_d =
        sqrt(2.0) * (m.parts[1].mean - m.parts[0].mean) / hypot(m.parts[0].deviation, m.parts[1].deviation);
    m.boundary = boundary(&m);
    *out = m;
    return ND_OK;
}

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
