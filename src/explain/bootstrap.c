#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"
#include "explain/internal.h"

enum { N_DRAWS = 2000, N_STATISTICS = 4 };

/* splitmix64. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static int compare_reals(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void draw(const struct nd_explain_energies *samples, size_t n, uint64_t *state,
                 double values[static N_STATISTICS])
{
    struct nd_explain_energies sum = {0};
    for (size_t i = 0; i < n; i++) {
        const struct nd_explain_energies *s = &samples[next_random(state) % n];
        sum.n_codes += s->n_codes;
        sum.quantisation += s->quantisation;
        sum.divergence += s->divergence;
        sum.interaction += s->interaction;
        sum.common += s->common;
        sum.own += s->own;
    }
    double n_codes = (double)sum.n_codes;
    values[0] = sum.own / (sum.common + sum.own);
    values[1] = sum.quantisation / n_codes;
    values[2] = sum.divergence / n_codes;
    values[3] = sum.interaction / n_codes;
}

/* The 2.5 and 97.5 percentiles; what is no number (0 / 0) is left out. Sorts values. */
static struct nd_interval interval_of(double *values)
{
    size_t n = 0;
    for (size_t i = 0; i < N_DRAWS; i++)
        if (!isnan(values[i]))
            values[n++] = values[i];
    if (n == 0)
        return (struct nd_interval){NAN, NAN};
    qsort(values, n, sizeof *values, compare_reals);
    size_t low = (n - 1) * 25 / 1000;
    return (struct nd_interval){values[low], values[n - 1 - low]};
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
    double *values = nd_calloc((size_t)N_DRAWS * N_STATISTICS, sizeof *values);
    if (values == NULL)
        return nd_fail_memory(err);
    uint64_t state = n;
    for (size_t i = 0; i < N_DRAWS; i++) {
        double drawn[N_STATISTICS];
        draw(samples, n, &state, drawn);
        for (size_t k = 0; k < N_STATISTICS; k++)
            values[k * N_DRAWS + i] = drawn[k];
    }
    for (size_t k = 0; k < N_STATISTICS; k++)
        *intervals[k] = interval_of(values + k * N_DRAWS);
    free(values);
    return ND_OK;
}
