/* The best quantiser of one scale for given values. */
#include "quantisation/ranges.h"

#include <math.h>
#include <string.h>

/* A search looks at so many values of a tensor, and at so many narrower ranges: chosen. */
enum { SEARCH_VALUES = 4096, SEARCH_STEPS = 50, SEARCH_ROUNDS = 3, BINS = 2048 };

struct nd_fit nd_fit_range(struct nd_range range, double low_qvalue, double high_qvalue)
{
    double low = fmin(range.low, 0), high = fmax(range.high, 0);
    double scale = (double)(float)((high - low) / (high_qvalue - low_qvalue));
    if (!(scale > 0) || !isfinite(scale))
        scale = 1;
    double zero = rint(low_qvalue - low / scale);
    return (struct nd_fit){scale, fmin(fmax(zero, low_qvalue), high_qvalue), low_qvalue, high_qvalue};
}

struct nd_range nd_range_of_fit(const struct nd_fit *fit)
{
    return (struct nd_range){(fit->low_qvalue - fit->zero) * fit->scale,
                             (fit->high_qvalue - fit->zero) * fit->scale};
}

/* The nearest whole number, ties to even, mostly without a call. */
static inline double nearest(double x)
{
    const double shift = 0x1.8p52;
    return fabs(x) < 0x1p51 ? (x + shift) - shift : rint(x);
}

static inline double apply(const struct nd_fit *fit, double x)
{
    double qvalue = nearest(x / fit->scale) + fit->zero;
    qvalue = qvalue > fit->low_qvalue ? qvalue : fit->low_qvalue; /* NaN gives the least quantised value */
    qvalue = qvalue < fit->high_qvalue ? qvalue : fit->high_qvalue;
    return (qvalue - fit->zero) * fit->scale;
}

double nd_fit_apply(const struct nd_fit *fit, double x)
{
    return apply(fit, x);
}

void nd_fit_apply_all(const struct nd_fit *fit, double *x, size_t n)
{
    const struct nd_fit own = *fit;
    for (size_t i = 0; i < n; i++)
        x[i] = apply(&own, x[i]);
}

double nd_fit_error(const struct nd_fit *fit, const float *values, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double d = apply(fit, (double)values[i]) - (double)values[i];
        sum += d * d;
    }
    return n > 0 ? sum / (double)n : 0;
}

const char *nd_calibration_name(enum nd_calibration calibration)
{
    static const char *const names[] = {[ND_CALIBRATE_MIN_MAX] = "min-max",
                                        [ND_CALIBRATE_PERCENTILE_9999] = "percentile 99.99",
                                        [ND_CALIBRATE_PERCENTILE_999] = "percentile 99.9",
                                        [ND_CALIBRATE_ENTROPY] = "entropy",
                                        [ND_CALIBRATE_MSE] = "mse"};
    return names[calibration];
}

double nd_value_quantile(const float *sorted, size_t n, double share)
{
    double at = share * (double)(n - 1);
    size_t i = (size_t)at;
    if (i + 1 >= n)
        return (double)sorted[n - 1];
    return (double)sorted[i] + (at - (double)i) * ((double)sorted[i + 1] - (double)sorted[i]);
}

static struct nd_range percentile(const float *sorted, size_t n, double share)
{
    double tail = (1 - share) / 2;
    return (struct nd_range){nd_value_quantile(sorted, n, tail), nd_value_quantile(sorted, n, 1 - tail)};
}

/* ---- the least mean square ---- */

/* Some of the values, evenly spaced in order of size, with both ends. */
static size_t thin_out(const float *sorted, size_t n, float out[static SEARCH_VALUES])
{
    if (n <= SEARCH_VALUES) {
        memcpy(out, sorted, n * sizeof *out);
        return n;
    }
    for (size_t i = 0; i < SEARCH_VALUES; i++)
        out[i] = sorted[i * (n - 1) / (SEARCH_VALUES - 1)];
    return SEARCH_VALUES;
}

static double error_of(struct nd_range range, const float *values, size_t n, double qvalues)
{
    struct nd_fit fit = nd_fit_range(range, 0, qvalues - 1);
    return nd_fit_error(&fit, values, n);
}

/* One end after the other is moved towards zero; the ranges of the other end stay. */
static struct nd_range min_square(const float *sorted, size_t n, double qvalues)
{
    float values[SEARCH_VALUES];
    size_t n_values = thin_out(sorted, n, values);
    struct nd_range whole = {(double)sorted[0], (double)sorted[n - 1]}, best = whole;
    double least = error_of(best, values, n_values, qvalues);
    for (int round = 0; round < SEARCH_ROUNDS; round++) {
        struct nd_range at = best;
        for (int k = 1; k <= SEARCH_STEPS; k++) { /* round 0: both ends, 1: the lower, 2: the upper */
            /* Geometric, so that a range a thousand times too wide is found, too. */
            double part = pow(0.86, k);
            struct nd_range tried = {round != 2 ? whole.low * part : at.low,
                                     round != 1 ? whole.high * part : at.high};
            double error = error_of(tried, values, n_values, qvalues);
            if (error < least) {
                least = error;
                best = tried;
            }
        }
    }
    return best;
}

/* ---- the least divergence of Kullback and Leibler ---- */

/* Counts of the values in BINS bins of the whole range. */
static void count(const float *sorted, size_t n, struct nd_range whole, double counts[static BINS])
{
    double width = (whole.high - whole.low) / BINS;
    memset(counts, 0, BINS * sizeof *counts);
    for (size_t i = 0; i < n; i++) {
        double at = floor(((double)sorted[i] - whole.low) / width);
        counts[(size_t)fmin(fmax(at, 0), BINS - 1)] += 1;
    }
}

/* Of the values in bins first .. last - 1, what lies outside added at the ends, against what so many quantised
 * values leave of them: every quantised value spreads its count over its bins that are not empty, and knows
 * nothing of what is clipped. */
static double divergence(const double counts[static BINS], size_t first, size_t last, double n, double qvalues)
{
    double sum = 0, per_qvalue = (double)(last - first) / qvalues, clipped[2] = {0};
    for (size_t i = 0; i < BINS; i++)
        if (i < first || i >= last)
            clipped[i < first ? 0 : 1] += counts[i];
    for (size_t begin = first, k = 1; begin < last; k++) {
        size_t end = first + (size_t)((double)k * per_qvalue);
        double total = 0, n_used = 0;
        end = end > last ? last : end;
        for (size_t i = begin; i < end; i++) {
            total += counts[i];
            n_used += counts[i] > 0;
        }
        for (size_t i = begin; i < end; i++) {
            double p = counts[i] + (i == first ? clipped[0] : 0) + (i == last - 1 ? clipped[1] : 0);
            /* An empty quantised value cannot give what is clipped into it: chosen, a thousandth of a value. */
            double q = fmax(counts[i] > 0 ? total / n_used : 0, 1e-3);
            sum += p > 0 ? p / n * log(p / q) : 0;
        }
        begin = end;
    }
    return sum;
}

/* As calibration by entropy is usually done: bins of the whole range, both ends moved towards zero by the same
 * share, and no fewer bins than quantised values. */
static struct nd_range min_divergence(const float *sorted, size_t n, double qvalues)
{
    double counts[BINS], least = HUGE_VAL;
    struct nd_range whole = {fmin((double)sorted[0], 0), fmax((double)sorted[n - 1], 0)}, best = whole;
    if (!(whole.high > whole.low))
        return whole;
    count(sorted, n, whole, counts);
    double width = (whole.high - whole.low) / BINS, zero = -whole.low / width;
    for (int k = 0; k <= SEARCH_STEPS; k++) {
        double part = pow(0.93, k);
        size_t first = (size_t)(zero - zero * part), last = (size_t)ceil(zero + (BINS - zero) * part);
        if ((double)(last - first) < qvalues)
            break;
        double d = divergence(counts, first, last, (double)n, qvalues);
        if (d < least) {
            least = d;
            best = (struct nd_range){whole.low + (double)first * width, whole.low + (double)last * width};
        }
    }
    return best;
}

struct nd_range nd_calibrate(enum nd_calibration calibration, const float *sorted, size_t n, double qvalues)
{
    switch (calibration) {
    case ND_CALIBRATE_PERCENTILE_9999:
        return percentile(sorted, n, 0.9999);
    case ND_CALIBRATE_PERCENTILE_999:
        return percentile(sorted, n, 0.999);
    case ND_CALIBRATE_ENTROPY:
        return min_divergence(sorted, n, qvalues);
    case ND_CALIBRATE_MSE:
        return min_square(sorted, n, qvalues);
    default:
        return (struct nd_range){(double)sorted[0], (double)sorted[n - 1]};
    }
}
