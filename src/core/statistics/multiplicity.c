#include "core/statistics/multiplicity.h"

#include <math.h>
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"

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

enum nd_status nd_adjust_holm(const double *p, size_t n, double *adjusted, struct nd_error *err)
{
    size_t n_tests = 0;
    struct ranked *ranked = nd_calloc(n, sizeof *ranked); /* the tests in the order of their p-values */
    if (ranked == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n; i++) {
        adjusted[i] = p[i]; /* the NaNs */
        if (!isnan(p[i]))
            ranked[n_tests++] = (struct ranked){p[i], i};
    }
    qsort(ranked, n_tests, sizeof *ranked, compare_ranked);
    double largest = 0;
    for (size_t i = 0; i < n_tests; i++) {
        largest = fmax(largest, fmin(1, (double)(n_tests - i) * ranked[i].p));
        adjusted[ranked[i].at] = largest;
    }
    free(ranked);
    return ND_OK;
}
