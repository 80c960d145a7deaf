#include "compare/findings/output_noise.h"

#include <math.h>

double nd_comparison_sqnr_db(const struct nd_comparison *comparison, size_t pair)
{
    double sum = 0, n = 0;
    for (size_t e = 0; e < comparison->n_tensors; e++) {
        const struct nd_compared_part *total = &comparison->tensors[e].pairs[pair].total;
        if (total->coverage != ND_COVERAGE_FULL || !total->difference.has_values)
            continue;
        sum += total->difference.has_signal ? pow(10, -total->difference.sqnr_db / 10) : 0;
        n += total->difference.has_signal || total->difference.n_samples_differing == 0;
    }
    return n > 0 ? -10 * log10(sum / n) : (double)NAN;
}
