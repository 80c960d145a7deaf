/* One kind of run or two, by models of the logarithm of latency: docs/science/latency.md#modes. */
#include "core/statistics/series.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "core/memory.h"

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
