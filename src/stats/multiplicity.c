#include "stats/multiplicity.h"

#include <math.h>
#include <stdlib.h>

#include "base/error.h"
#include "base/memory.h"

struct ranked {
    double p;
    size_t at;
};

static int compare_ranked(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->p != y->p)
        return x->p < y->p ? -1 : 1;
    return (x->at > y->at) - (x->at < y->at);
}

/* The tests in the order of their p-values. */
static struct ranked *rank(const double *p, size_t n, size_t *n_tests)
{
    struct ranked *ranked = nd_calloc(n, sizeof *ranked);
    *n_tests = 0;
    for (size_t i = 0; i < n && ranked != NULL; i++)
        if (!isnan(p[i]))
            ranked[(*n_tests)++] = (struct ranked){p[i], i};
    if (ranked != NULL)
        qsort(ranked, *n_tests, sizeof *ranked, compare_ranked);
    return ranked;
}

void nd_adjust_bonferroni(const double *p, size_t n, double *adjusted)
{
    size_t n_tests = 0;
    for (size_t i = 0; i < n; i++)
        n_tests += isnan(p[i]) ? 0 : 1;
    for (size_t i = 0; i < n; i++)
        adjusted[i] = isnan(p[i]) ? NAN : fmin(1, (double)n_tests * p[i]);
}

enum nd_status nd_adjust_holm(const double *p, size_t n, double *adjusted, struct nd_error *err)
{
    size_t n_tests;
    struct ranked *ranked = rank(p, n, &n_tests);
    if (ranked == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        adjusted[i] = p[i]; /* the NaNs */
    double largest = 0;
    for (size_t i = 0; i < n_tests; i++) {
        largest = fmax(largest, fmin(1, (double)(n_tests - i) * ranked[i].p));
        adjusted[ranked[i].at] = largest;
    }
    free(ranked);
    return ND_OK;
}

enum nd_status nd_adjust_fdr(const double *p, size_t n, double *adjusted, struct nd_error *err)
{
    size_t n_tests;
    struct ranked *ranked = rank(p, n, &n_tests);
    if (ranked == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++)
        adjusted[i] = p[i];
    double smallest = 1;
    for (size_t i = n_tests; i-- > 0;) {
        smallest = fmin(smallest, ranked[i].p * (double)n_tests / (double)(i + 1));
        adjusted[ranked[i].at] = smallest;
    }
    free(ranked);
    return ND_OK;
}

double nd_alpha_all_pairs(double alpha, size_t n)
{
    return n < 2 ? alpha : alpha / (double)(n - 1);
}
