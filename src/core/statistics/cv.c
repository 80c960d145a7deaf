#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/series.h"

enum { N_MOMENTS = 4 };

/* The normal quantile, and the autocorrelation from which blocks are drawn (docs/science/latency.md#summary).
 */
static const double z_95 = 1.959963984540054, correlated = 0.3;

size_t nd_series_block(double autocorrelation, size_t n)
{
    return autocorrelation > correlated ? (size_t)ceil(2 * cbrt((double)n)) : 1;
}

/* The CV and the standard error of its logarithm, from sums of powers 1 to 4 of (x - pivot) / pivot. */
struct estimate {
    double cv, log_se;
};

/* docs/science/latency.md#summary: by the delta method, with central moments of the relative values. */
static struct estimate estimate_of(const double sums[static N_MOMENTS], double n)
{
    double a = sums[0] / n, b = sums[1] / n, c = sums[2] / n, d = sums[3] / n;
    double mean = 1 + a, m2 = b - a * a, m3 = c - 3 * a * b + 2 * a * a * a;
    double m4 = d - 4 * a * c + 6 * a * a * b - 3 * a * a * a * a;
    if (!(m2 > 0))
        return (struct estimate){0, 0};
    double variance = (m4 / (m2 * m2) - 1) / 4 + m2 / (mean * mean) - m3 / (m2 * mean);
    return (struct estimate){sqrt(m2 * n / (n - 1)) / mean, sqrt(fmax(variance, 0) / n)};
}

static void add_powers(double sums[static N_MOMENTS], double value)
{
    double square = value * value;
    sums[0] += value;
    sums[1] += square;
    sums[2] += square * value;
    sums[3] += square * square;
}

/* A series of n values that is drawn in circular blocks. */
struct blocks {
    const double *values;
    size_t n, size;
};

/* One draw of as many values as there are. */
static struct estimate draw(const struct blocks *blocks, uint64_t *state)
{
    size_t n = blocks->n;
    double sums[N_MOMENTS] = {0};
    for (size_t taken = 0; taken < n;) {
        /* Unbiased enough: n is far below 2^32. */
        size_t at = nd_splitmix_below(state, n);
        for (size_t k = 0; k < blocks->size && taken < n; k++, taken++) {
            add_powers(sums, blocks->values[at]);
            at = at + 1 < n ? at + 1 : 0;
        }
    }
    return estimate_of(sums, (double)n);
}

/* The interval around out->cv, whose standard error is log_se. */
static enum nd_status bootstrap(const struct blocks *blocks, uint64_t seed, double log_se,
                                struct nd_series_cv *out, struct nd_error *err)
{
    double *t = nd_calloc(ND_CV_DRAWS, sizeof *t);
    if (t == NULL)
        return nd_fail_memory(err);
    size_t n_draws = 0;
    for (size_t i = 0; i < ND_CV_DRAWS; i++) {
        struct estimate drawn = draw(blocks, &seed);
        if (drawn.cv > 0 && drawn.log_se > 0)
            t[n_draws++] = log(drawn.cv / out->cv) / drawn.log_se;
    }
    nd_series_sort(t, n_draws);
    /* The tails change sides: a draw above its centre says that the centre may be above the truth. */
    double high = n_draws > 0 ? nd_series_quantile(t, n_draws, 0.025) : NAN;
    double low = n_draws > 0 ? nd_series_quantile(t, n_draws, 0.975) : NAN;
    out->low = out->cv * exp(-low * log_se);
    out->high = out->cv * exp(-high * log_se);
    free(t);
    return ND_OK;
}

enum nd_status nd_series_cv(const double *values, size_t n, size_t block, uint64_t seed,
                            struct nd_series_cv *out, struct nd_error *err)
{
    double sum = 0, sums[N_MOMENTS] = {0};
    *out = (struct nd_series_cv){NAN, NAN, NAN};
    if (n < 2)
        return ND_OK;
    for (size_t i = 0; i < n; i++)
        sum += values[i];
    double pivot = sum / (double)n;
    double *relative = nd_calloc(n, sizeof *relative);
    if (relative == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        relative[i] = (values[i] - pivot) / pivot;
        add_powers(sums, relative[i]);
    }
    struct estimate centre = estimate_of(sums, (double)n);
    /* What is left of a constant series is rounding. */
    if (centre.cv < 1e-12)
        centre.cv = 0;
    *out = (struct nd_series_cv){centre.cv, 0, 0};
    enum nd_status status = ND_OK;
    if (centre.cv > 0 && n < ND_CV_MAX_DRAWN) {
        status = bootstrap(&(struct blocks){relative, n, block}, seed, centre.log_se, out, err);
    } else if (centre.cv > 0) {
        double wide = z_95 * centre.log_se * sqrt((double)block);
        *out = (struct nd_series_cv){centre.cv, centre.cv * exp(-wide), centre.cv * exp(wide)};
    }
    free(relative);
    return status;
}
