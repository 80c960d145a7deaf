/* The right values of a sample at other places of it. */
#include <math.h>
#include <stdlib.h>

#include "diagnosis/values_internal.h"

/* ---- padded memory that is read as dense ---- */

enum { MOST_PAD = 64 }; /* elements; chosen */

struct padding {
    size_t block, pad; /* elements */
};

static double predict_padded(const struct nd_values_look *look, const void *fault, size_t s, size_t j)
{
    const struct padding *p = fault;
    size_t block = j / (p->block + p->pad), at = j % (p->block + p->pad);
    return at < p->block ? look->v->ref[s * look->v->n + block * p->block + at] : NAN;
}

void nd_values_try_padded(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    struct padding p = {.block = 1};
    double explained, chance;
    for (int a = v->shape.rank - 1; a > 0; a--) {
        p.block *= (size_t)v->shape.dims[a];
        for (p.pad = 1; p.pad <= MOST_PAD && p.pad <= p.block && p.block < v->n; p.pad++) {
            if (!nd_values_holds(look, predict_padded, &p, &explained, &chance))
                continue;
            struct nd_finding f = nd_values_finding(look, ND_FAULT_SHIFTED, (double)p.pad, explained, chance);
            f.axis = a - 1;
            nd_values_add(
                look, &f,
                "every %zu values are %zu further on than those before: they are padded to %zu in memory and "
                "read as dense",
                p.block, p.pad, p.block + p.pad);
            return;
        }
    }
}

/* ---- any other places ---- */

static int compare(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void sort_sample(const double *x, size_t n, double *sorted)
{
    for (size_t j = 0; j < n; j++)
        sorted[j] = x[j];
    qsort(sorted, n, sizeof *sorted, compare);
}

/* The values of a sample, sorted, are the reference's; *n_distinct of them are different numbers. */
static bool is_same_sorted(const struct nd_values_look *look, size_t sample, size_t *n_distinct)
{
    size_t n = look->v->n, first = sample * n;
    for (size_t i = first; i < first + n; i++)
        if (!isfinite(look->v->ref[i]) || !isfinite(look->v->test[i]))
            return false;
    sort_sample(look->v->ref + first, n, look->scratch);
    sort_sample(look->v->test + first, n, look->scratch2);
    *n_distinct = 0;
    for (size_t j = 0; j < n; j++) {
        if (look->scratch[j] != look->scratch2[j])
            return false;
        *n_distinct += j == 0 || look->scratch[j] != look->scratch[j - 1];
    }
    return true;
}

/* Equal bit for bit, as a multiset, in every sample that is far off: of 12 numbers and more, 12 of them far
 * from their place, in each, no rounding comes to that. */
void nd_values_try_elsewhere(const struct nd_values_look *look)
{
    const struct nd_values *v = look->v;
    size_t n_told = 0, n_moved = 0, n_distinct;
    for (size_t s = 0; s < v->n_samples; s++) {
        size_t n_far = 0;
        for (size_t i = s * v->n; i < (s + 1) * v->n; i++)
            n_far += nd_values_is_far(look, i);
        if (n_far == 0)
            continue;
        if (!is_same_sorted(look, s, &n_distinct))
            return;
        n_told += n_distinct >= ND_VALUES_MIN_DECISIVE && n_far >= ND_VALUES_MIN_DECISIVE;
        for (size_t i = s * v->n; i < (s + 1) * v->n; i++)
            n_moved += v->test[i] != v->ref[i];
    }
    if (n_told == 0)
        return;
    struct nd_finding f = nd_values_finding(look, ND_FAULT_OTHER_PLACES, (double)n_moved, 1, 0);
    nd_values_add(look, &f,
                  "sorted, every sample has the same values as the reference; %zu of %zu lie at other places",
                  n_moved, look->n_known);
}
