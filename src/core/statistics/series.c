#include "core/statistics/series.h"

#include <assert.h>
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { DIGIT_BITS = 11, N_DIGITS = 1 << DIGIT_BITS, N_PASSES = 3 };

/* Of doubles: fewer are compared. */
enum { N_LONG_PASSES = 6, MIN_BY_DIGIT = 1 << 10 };

/* Bits that are in the order of the doubles; 0 and -0 are equal. */
static uint64_t long_key_of(double x)
{
    uint64_t bits;
    x += 0.0; /* makes of -0 0 */
    memcpy(&bits, &x, sizeof bits);
    return bits >> 63 != 0 ? ~bits : bits | UINT64_C(1) << 63;
}

static size_t long_digit_of(double x, int pass)
{
    return long_key_of(x) >> pass * DIGIT_BITS & (N_DIGITS - 1);
}

/* A stable sort, as by comparing. Digits that all values share cost nothing but the counting. counts is zero.
 */
static void sort_by_digits(double *values, size_t n, double *scratch, size_t (*counts)[N_DIGITS])
{
    double *from = values, *to = scratch;
    for (size_t i = 0; i < n; i++)
        for (int pass = 0; pass < N_LONG_PASSES; pass++)
            counts[pass][long_digit_of(values[i], pass)]++;
    for (int pass = 0; pass < N_LONG_PASSES; pass++) {
        size_t first = 0, *at = counts[pass];
        if (at[long_digit_of(values[0], pass)] == n)
            continue;
        for (size_t d = 0; d < N_DIGITS; d++) {
            size_t count = at[d];
            at[d] = first;
            first += count;
        }
        for (size_t i = 0; i < n; i++)
            to[at[long_digit_of(from[i], pass)]++] = from[i];
        double *kept = from;
        from = to;
        to = kept;
    }
    if (from != values)
        memcpy(values, from, n * sizeof *values);
}

/* Both ways give the same order. */
void nd_series_sort(double *values, size_t n)
{
    double *scratch = n >= MIN_BY_DIGIT ? malloc(n * sizeof *scratch) : NULL;
    size_t(*counts)[N_DIGITS] = scratch != NULL ? calloc(N_LONG_PASSES, sizeof *counts) : NULL;
    if (counts != NULL)
        sort_by_digits(values, n, scratch, counts);
    else if (n > 1)
        qsort(values, n, sizeof *values, by_value);
    free(counts);
    free(scratch);
}

/* Bits that are in the order of the floats. */
static uint32_t key_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits >> 31 != 0 ? ~bits : bits | UINT32_C(1) << 31;
}

/* In order of one digit, and otherwise as they were. */
static void sort_by_digit(const float *from, size_t n, int shift, float *to)
{
    size_t counts[N_DIGITS] = {0}, first = 0;
    for (size_t i = 0; i < n; i++)
        counts[key_of(from[i]) >> shift & (N_DIGITS - 1)]++;
    for (size_t d = 0; d < N_DIGITS; d++) {
        size_t count = counts[d];
        counts[d] = first;
        first += count;
    }
    for (size_t i = 0; i < n; i++)
        to[counts[key_of(from[i]) >> shift & (N_DIGITS - 1)]++] = from[i];
}

void nd_series_sort_floats(float *values, size_t n, float *scratch)
{
    float *from = values, *to = scratch;
    for (size_t i = 0; i < n; i++)
        values[i] += 0.0F; /* makes of -0 0 */
    for (int pass = 0; pass < N_PASSES; pass++) {
        sort_by_digit(from, n, pass * DIGIT_BITS, to);
        float *kept = from;
        from = to;
        to = kept;
    }
    memcpy(values, from, n * sizeof *values); /* an odd number of passes */
}

double nd_series_quantile(const double *sorted, size_t n, double q)
{
    assert(n > 0 && q >= 0 && q <= 1);
    double at = q * (double)(n - 1), below = floor(at);
    size_t i = (size_t)below;
    return i + 1 < n ? sorted[i] + (at - below) * (sorted[i + 1] - sorted[i]) : sorted[n - 1];
}

static void swap(double *a, double *b)
{
    double kept = *a;
    *a = *b;
    *b = kept;
}

/* Reorders values so that values[k] is what sorting would put there, and nothing before it is greater (Hoare's
 * selection; where the pivots are bad for long, sorting). */
static void select_place(double *values, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    for (int round = 0; low < high; round++) {
        if (round == 100) {
            nd_series_sort(values + low, high - low + 1);
            return;
        }
        double pivot = values[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i >= j)
                break;
            swap(&values[i++], &values[j--]);
        }
        /* low .. j is not above the pivot, the rest is not below it. */
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
}

double nd_series_median(double *values, size_t n)
{
    assert(n > 0);
    size_t k = (n - 1) / 2;
    select_place(values, n, k);
    if (n % 2 == 1)
        return values[k];
    double above = values[k + 1];
    for (size_t i = k + 2; i < n; i++)
        above = values[i] < above ? values[i] : above;
    return values[k] + 0.5 * (above - values[k]); /* as nd_series_quantile */
}

double nd_series_autocorrelation(const double *values, size_t n)
{
    double sum = 0, square = 0, product = 0;
    if (n < 3)
        return 0;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    double mean = sum / (double)n;
    for (size_t i = 0; i < n; i++) {
        square += (values[i] - mean) * (values[i] - mean);
        product += i > 0 ? (values[i] - mean) * (values[i - 1] - mean) : 0;
    }
    /* What is left of a constant series is rounding. */
    return sqrt(square / (double)n) > 1e-12 * fabs(mean) && square > 0 ? product / square : 0;
}

/* A coarser grid would be a strange timer, and two values far apart are no grid
 * (docs/science/latency.md#modes). */
static const double coarsest_tick = 0.25;

double nd_series_tick(const double *sorted, size_t n)
{
    double tick = INFINITY;
    size_t n_equal = 0;
    for (size_t i = 1; i < n; i++) {
        double step = sorted[i] - sorted[i - 1];
        n_equal += step <= 0;
        /* What a conversion of units rounds is no step. */
        if (step > 1e-12 * sorted[i] && step < tick)
            tick = step;
    }
    if (n_equal == 0 || !(tick < coarsest_tick * sorted[n / 2]))
        return 0;
    for (size_t i = 0; i < n; i++) {
        double steps = sorted[i] / tick;
        /* Past 2^22 ticks the tick is not known well enough to tell. */
        if (steps > 0x1p22 || fabs(steps - nearbyint(steps)) > 0.01)
            return 0;
    }
    return tick;
}

/* The 99 % points of sqrt(n) times the dip of uniform series (tools/studies/score_latency dip); between them linear in
 * 1 / sqrt(n). */
double nd_series_dip_limit(size_t n)
{
    static const struct {
        double n, scaled;
    } points[] = {{10, 0.5078},  {20, 0.5376},   {50, 0.5741},   {100, 0.5906},  {200, 0.6059},
                  {500, 0.6170}, {1000, 0.6191}, {5000, 0.6241}, {20000, 0.6263}};
    const size_t last = sizeof points / sizeof *points - 1;
    double size = (double)n, scaled = size <= points[0].n ? points[0].scaled : points[last].scaled;
    for (size_t i = 0; i < last; i++)
        if (size >= points[i].n && size <= points[i + 1].n) {
            double a = 1 / sqrt(points[i].n), b = 1 / sqrt(points[i + 1].n), at = 1 / sqrt(size);
            scaled = points[i].scaled + (points[i + 1].scaled - points[i].scaled) * (at - a) / (b - a);
        }
    return scaled / sqrt(size);
}
