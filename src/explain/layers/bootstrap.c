/* Intervals of error shares, by drawing samples again. docs/science/statistics.md. */
#include <math.h>

#include "core/error.h"
#include "core/memory.h"
#include "core/random.h"
#include "core/statistics/evidence.h"
#include "explain/stages.h"

enum { N_STATISTICS = 4 };

/* Of the two-sided intervals (docs/science/theory.md#own-share). */
static const double confidence = 0.95;

static void draw(const struct nd_explain_energies *samples, size_t n, uint64_t *state,
                 double values[static N_STATISTICS])
{
    struct nd_explain_energies sum = {0};
    for (size_t i = 0; i < n; i++) {
        const struct nd_explain_energies *s = &samples[nd_splitmix_below(state, n)];
        sum.n_qvalues += s->n_qvalues;
        sum.quantisation += s->quantisation;
        sum.divergence += s->divergence;
        sum.interaction += s->interaction;
        sum.common += s->common;
        sum.own += s->own;
    }
    double n_qvalues = (double)sum.n_qvalues;
    values[0] = sum.own / (sum.common + sum.own);
    values[1] = sum.quantisation / n_qvalues;
    values[2] = sum.divergence / n_qvalues;
    values[3] = sum.interaction / n_qvalues;
}

/* What is no number (0 / 0) is left out. Sorts values. */
static struct nd_interval interval_of(double *values)
{
    size_t n = 0;
    for (size_t i = 0; i < ND_DRAWS; i++)
        if (!isnan(values[i]))
            values[n++] = values[i];
    return n > 0 ? nd_percentiles(values, n, confidence) : (struct nd_interval){NAN, NAN};
}

enum nd_status nd_explain_bootstrap(const struct nd_explain_energies *samples, size_t n,
                                    struct nd_explained_device *device, struct nd_error *err)
{
    struct nd_interval *const intervals[N_STATISTICS] = {
        &device->own_share_interval, &device->quantisation_interval, &device->divergence_interval,
        &device->interaction_interval};
    for (size_t k = 0; k < N_STATISTICS; k++)
        *intervals[k] = (struct nd_interval){NAN, NAN};
    if (n < 2)
        return ND_OK;
    ND_FREED double *values = nd_calloc((size_t)ND_DRAWS * N_STATISTICS, sizeof *values);
    ND_TRY_MEMORY(values != NULL, err);
    uint64_t state = n;
    for (size_t i = 0; i < ND_DRAWS; i++) {
        double drawn[N_STATISTICS];
        draw(samples, n, &state, drawn);
        for (size_t k = 0; k < N_STATISTICS; k++)
            values[k * ND_DRAWS + i] = drawn[k];
    }
    for (size_t k = 0; k < N_STATISTICS; k++)
        *intervals[k] = interval_of(values + k * ND_DRAWS);
    return ND_OK;
}
