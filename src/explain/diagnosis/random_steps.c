/* Chance: rounding up with the probability of the fraction, and flips of a step. */
#include <math.h>

#include "explain/diagnosis/look.h"

enum { N_BINS = 16, MIN_ELEMENTS = 24, MIN_AWAY = 6 };

struct bin {
    double expected, variance, up; /* how many are rounded up: mean and variance by the law, and as given */
};

struct stochastic {
    struct bin bins[N_BINS];
    size_t n, n_beside; /* elements with a fraction; quantised values that are neither floor nor ceil */
    double away, away_expected, away_variance; /* from the nearest */
};

static struct stochastic count(const struct nd_look *look)
{
    struct stochastic x = {0};
    const struct nd_evidence *e = look->e;
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        if (!nd_is_inside(look, i))
            continue;
        double floored = floor(e->exact[i]), f = e->exact[i] - floored, rise = e->captured[i] - floored;
        if (f == 0 && rise == 0)
            continue;
        x.n++;
        if (rise != 0 && rise != 1) {
            x.n_beside++;
            continue;
        }
        struct bin *bin = &x.bins[(int)(f * N_BINS)];
        bin->expected += f;
        bin->variance += f * (1 - f);
        bin->up += rise;
        x.away += rise != (f > 0.5);
        x.away_expected += fmin(f, 1 - f);
        x.away_variance += f * (1 - f);
    }
    return x;
}

/* Chi-square, with neighbours pooled until a bin can say something. */
static double chi_square(const struct stochastic *x, double *freedom)
{
    double sum = 0;
    struct bin pool = {0};
    *freedom = 0;
    for (int b = 0; b < N_BINS; b++) {
        pool.expected += x->bins[b].expected;
        pool.variance += x->bins[b].variance;
        pool.up += x->bins[b].up;
        if (pool.variance < 1 && !(b + 1 == N_BINS && pool.variance > 0.25))
            continue;
        sum += (pool.up - pool.expected) * (pool.up - pool.expected) / pool.variance;
        *freedom += 1;
        pool = (struct bin){0};
    }
    return sum;
}

/* Exceeded once in 10^5 (Wilson and Hilferty). */
static double critical(double freedom)
{
    double a = 2 / (9 * freedom), root = 1 - a + 4.265 * sqrt(a);
    return freedom * root * root * root;
}

void nd_try_stochastic(const struct nd_look *look)
{
    struct stochastic x = count(look);
    double freedom = 0, sum = chi_square(&x, &freedom);
    if (x.n < MIN_ELEMENTS || x.away < MIN_AWAY || x.n_beside * 100 > x.n || !(sum < critical(freedom)))
        return;
    /* The bins of a few elements would pass a device that is off only now and then. */
    if (fabs(x.away - x.away_expected) > 4.5 * sqrt(x.away_variance))
        return;
    double explained = 1 - (double)x.n_beside / (double)x.n;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_STOCHASTIC_ROUNDING, sum / freedom, explained, 0);
    nd_add(look, &f, "rounded up as often as the fraction says (chi-square %.1f of %g bins)", sum, freedom);
}

/* Runs differ and their inputs do not. */
void nd_try_flips(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    nd_try_stochastic(look);
    if (nd_is_found(look))
        return;
    size_t n_step = 0;
    for (size_t i = 0; i < e->n_samples * e->n; i++)
        n_step += nd_is_known(look, i) && fabs(e->captured[i] - e->expected[i]) == 1;
    if (n_step * 100 < look->n_wrong * 95)
        return;
    double share = look->n_known > 0 ? (double)look->n_wrong / (double)look->n_known : 0;
    double explained = look->n_wrong > 0 ? (double)n_step / (double)look->n_wrong : 1;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_FLIPS, share, explained, 0);
    nd_add(look, &f, "runs of the same input differ; %.3g %% of these quantised values are off by one",
           100 * share);
}
