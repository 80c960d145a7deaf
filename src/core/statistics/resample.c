#include "core/statistics/resample.h"

#include <assert.h>
#include <math.h>

#include "core/statistics/series.h"

static size_t rank_of(size_t n, double share)
{
    double rank = ceil((double)n * share * (1 - 0x1p-50)); /* 2000 * 0.95 is 1900, not 1901 */
    return rank < 1 ? 0 : rank > (double)n ? n - 1 : (size_t)rank - 1;
}

struct nd_interval nd_percentiles(double *draws, size_t n, double confidence)
{
    nd_series_sort(draws, n);
    size_t high = rank_of(n, 1 - (1 - confidence) / 2);
    return (struct nd_interval){draws[n - 1 - high], draws[high]};
}

double nd_quantile(double *draws, size_t n, double share)
{
    nd_series_sort(draws, n);
    return draws[rank_of(n, share)];
}
