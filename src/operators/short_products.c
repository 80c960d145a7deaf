#include "operators/short_products.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "operators/gemm_kernels.h"

/* A block of b stays in the second-level cache: 384 x 96 pairs are 72 KiB; chosen. */
enum { MOST_TERMS = 384, LEAST_TERMS = 16, MOST_COLUMNS = 2 * ND_SHORT_COLUMNS };

struct nd_short_range nd_short_range_of(const struct nd_array *x, const struct nd_op_shorts *shorts)
{
    double low, high;
    struct nd_short_range range = {.n_terms = 0};
    if (x->n == 0)
        return range;
    nd_gemm_kernels()->range(x->x, x->n, &low, &high);
    low = fmin(low, 0); /* padding */
    high = fmax(high, 0);
    if (low < INT16_MIN || high > INT16_MAX)
        range.offset = low + 32768;
    if (!(high - range.offset <= INT16_MAX))
        return range;
    double largest = fmax(fabs(low - range.offset), fabs(high - range.offset)) * shorts->largest;
    double most = largest > 0 ? 2147483647.0 / largest : MOST_TERMS;
    size_t n_terms = most < MOST_TERMS ? (size_t)most / 2 * 2 : MOST_TERMS;
    range.n_terms = n_terms >= LEAST_TERMS ? n_terms : 0;
    return range;
}

struct product {
    const struct nd_op_shorts *b;
    bool is_transposed;
    size_t inner, m;
};

/* Rows k .. k + n - 1 of columns j .. j + n_columns - 1, in pairs. */
static void pair_weights(const struct product *p, size_t k, size_t n, size_t j, size_t n_columns,
                         int16_t *pairs)
{
    const int16_t *w = p->b->weights;
    for (size_t t = 0; t < n; t += 2, pairs += (ptrdiff_t)(2 * MOST_COLUMNS)) {
        bool has_both = t + 1 < n;
        size_t step = p->is_transposed ? p->inner : 1, next = p->is_transposed ? 1 : p->m;
        const int16_t *first = w + (p->is_transposed ? j * p->inner + k + t : (k + t) * p->m + j);
        for (size_t c = 0; c < n_columns; c++) {
            pairs[2 * c] = first[c * step];
            pairs[2 * c + 1] = has_both ? first[c * step + next] : (int16_t)0;
        }
    }
}

/* What the offset took away: the sum of each column of b, times it. */
static void begin(const struct product *p, double offset, size_t n, double *c)
{
    memset(c, 0, n * p->m * sizeof *c);
    for (size_t k = 0; k < p->inner && offset != 0; k++)
        for (size_t j = 0; j < p->m; j++)
            c[j] += offset * p->b->weights[p->is_transposed ? j * p->inner + k : k * p->m + j];
    for (size_t i = 1; i < n && offset != 0; i++)
        memcpy(c + i * p->m, c, p->m * sizeof *c);
}

bool nd_short_product(const struct nd_array *a, const struct nd_op_shorts *b, bool is_transposed, size_t n,
                      size_t inner, size_t m, double *c)
{
    enum { LEAST_ROWS = 4 }; /* below, making the pairs costs more than it saves */
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    const struct product p = {.b = b, .is_transposed = is_transposed, .inner = inner, .m = m};
    if (n < LEAST_ROWS || inner < LEAST_TERMS || a->n != n * inner)
        return false;
    struct nd_short_range range = nd_short_range_of(a, b);
    int16_t *left = range.n_terms > 0 ? nd_calloc(n * inner + 1, 2 * sizeof *left) : NULL;
    int16_t *pairs = left != NULL ? nd_calloc(MOST_TERMS * MOST_COLUMNS, sizeof *pairs) : NULL;
    if (pairs == NULL) {
        free(left);
        return false;
    }
    for (size_t i = 0; i < n * inner; i++)
        left[i] = (int16_t)(a->x[i] - range.offset);
    begin(&p, range.offset, n, c);
    for (size_t j = 0; j < m; j += MOST_COLUMNS)
        for (size_t k = 0; k < inner; k += range.n_terms) {
            size_t n_terms = inner - k < range.n_terms ? inner - k : range.n_terms;
            const struct nd_short_gemm gemm = {.n = n,
                                               .n_pairs = (n_terms + 1) / 2,
                                               .m = m - j < MOST_COLUMNS ? m - j : MOST_COLUMNS,
                                               .a = left + k,
                                               .b = pairs,
                                               .c = c + j,
                                               .a_row = inner,
                                               .b_row = MOST_COLUMNS,
                                               .c_row = m};
            pair_weights(&p, k, n_terms, j, gemm.m, pairs);
            kernels->add_short(&gemm);
        }
    free(left);
    free(pairs);
    return true;
}
