/* Bytes that are called by another type than they are. */
#include <math.h>

#include "diagnosis/values_internal.h"

/* All chosen. Read as it is called an eighth of the values is far off; read as the other type 99 % are within a
 * sixteenth of the spread, to which chance comes in one of eight. */
static const double least_far = 1.0 / 8, near_of_spread = 1.0 / 16, least_near = 0.99;

/* Numbers that are not alike, counted up to the least number that is evidence. */
static size_t count_distinct(const double *x, size_t n)
{
    double seen[ND_VALUES_MIN_DECISIVE];
    size_t n_seen = 0;
    for (size_t i = 0; i < n && n_seen < ND_VALUES_MIN_DECISIVE; i++) {
        size_t k = 0;
        while (k < n_seen && seen[k] != x[i])
            k++;
        if (k == n_seen && isfinite(x[i]))
            seen[n_seen++] = x[i];
    }
    return n_seen;
}

/* The root mean square about the mean of the finite values. */
static double spread_of(const double *x, size_t n)
{
    double sum = 0, squares = 0;
    size_t n_known = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i])) {
            n_known++;
            sum += x[i];
            squares += x[i] * x[i];
        }
    double mean = n_known > 0 ? sum / (double)n_known : 0;
    return n_known > 0 ? sqrt(fmax(squares / (double)n_known - mean * mean, 0)) : 0;
}

/* The share of the finite x of which y is no further than that. */
static double share_near(const double *x, const double *y, size_t n, double room)
{
    size_t n_known = 0, n_near = 0;
    for (size_t i = 0; i < n; i++) {
        n_known += isfinite(x[i]) ? 1 : 0;
        n_near += isfinite(x[i]) && fabs(y[i] - x[i]) <= room;
    }
    return n_known > 0 ? (double)n_near / (double)n_known : 0;
}

bool nd_values_may_be_mislabelled(const double *x, const double *own, size_t n)
{
    double spread = spread_of(x, n);
    return spread > 0 && isfinite(spread) &&
           1 - share_near(x, own, n, 2 * near_of_spread * spread) >= least_far &&
           count_distinct(x, n) >= ND_VALUES_MIN_DECISIVE;
}

bool nd_values_is_reading(const double *x, const double *reading, size_t n)
{
    return share_near(x, reading, n, near_of_spread * spread_of(x, n)) >= least_near;
}
