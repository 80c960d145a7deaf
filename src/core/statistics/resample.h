/* Drawing samples with replacement, where an interval has no closed form.
 * docs/science/statistics.md#resampling. */
#ifndef ND_STATS_RESAMPLE_H
#define ND_STATS_RESAMPLE_H

#include <stddef.h>
#include <stdint.h>

#include "npudiff/core/interval.h"

enum { ND_DRAWS = 2000 };

/* Below this many samples that tell anything a bootstrap cannot know what it has not seen. */
enum { ND_FEW = 10 };

/* The two-sided percentile interval of n > 0 draws; infinities allowed, no NaN. Sorts them. */
struct nd_interval nd_percentiles(double *draws, size_t n, double confidence);

/* The smallest of n > 0 draws that at least this share of them does not exceed. Sorts them. */
double nd_quantile(double *draws, size_t n, double share);

#endif
