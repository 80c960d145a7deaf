/* Products of 16-bit whole numbers, summed in exact whole numbers. */
#include "arithmetic/operators/kernels/short_products.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

/* A block of b stays in the second-level cache: 384 x 96 pairs are 72 KiB; chosen. */
enum { MAX_TERMS = 384, MIN_TERMS = 16, MAX_COLUMNS = 2 * ND_SHORT_COLUMNS };

struct nd_short_range nd_short_range_of(const struct nd_array *x, const struct nd_op_shorts *shorts)
{
    double low, high;
    struct nd_short_range range = {.n_terms = 0};
    if (x->n == 0)
        return range;
    if (shorts->left_largest > 0 && shorts->left_largest <= INT16_MAX) {
        low = -shorts->left_largest;
        high = shorts->left_largest;
    } else {
        nd_gemm_kernels()->range(x->x, x->n, &low, &high);
    }
    low = fmin(low, 0); /* padding */
    high = fmax(high, 0);
    if (low < INT16_MIN || high > INT16_MAX)
        range.offset = low + 32768;
    if (!(high - range.offset <= INT16_MAX))
        return range;
    double largest = fmax(fabs(low - range.offset), fabs(high - range.offset)) * shorts->largest;
    double most = largest > 0 ? 2147483647.0 / largest : MAX_TERMS;
    size_t n_terms = most < MAX_TERMS ? (size_t)most / 2 * 2 : MAX_TERMS;
    range.n_terms = n_terms >= MIN_TERMS ? n_terms : 0;
    return range;
}

/* Rows k .. k + n - 1 of columns j .. j + n_columns - 1 of b, in pairs. */
struct piece {
    size_t k, n, j, n_columns;
};

static void pair_weights(const struct nd_short_factors *f, const struct piece *piece, int16_t *pairs)
{
    size_t step = f->is_transposed ? f->inner : 1, next = f->is_transposed ? 1 : f->m;
    for (size_t t = 0; t < piece->n; t += 2, pairs += (ptrdiff_t)(2 * MAX_COLUMNS)) {
        const int16_t *first = f->b->weights + (piece->k + t) * next + piece->j * step;
        for (size_t c = 0; c < piece->n_columns; c++) {
            pairs[2 * c] = first[c * step];
            pairs[2 * c + 1] = t + 1 < piece->n ? first[c * step + next] : (int16_t)0;
        }
    }
}

/* What the offset took away: the sum of each column of b, times it. */
static void begin(const struct nd_short_factors *f, double offset, double *c)
{
    size_t step = f->is_transposed ? f->inner : 1, next = f->is_transposed ? 1 : f->m;
    memset(c, 0, f->n * f->m * sizeof *c);
    for (size_t k = 0; k < f->inner && offset != 0; k++)
        for (size_t j = 0; j < f->m; j++)
            c[j] += offset * f->b->weights[k * next + j * step];
    for (size_t i = 1; i < f->n && offset != 0; i++)
        memcpy(c + i * f->m, c, f->m * sizeof *c);
}

static void multiply(const struct nd_short_factors *f, const int16_t *left, size_t n_terms, int16_t *pairs,
                     double *c)
{
    for (size_t j = 0; j < f->m; j += MAX_COLUMNS)
        for (size_t k = 0; k < f->inner; k += n_terms) {
            const struct piece piece = {.k = k,
                                        .n = f->inner - k < n_terms ? f->inner - k : n_terms,
                                        .j = j,
                                        .n_columns = f->m - j < MAX_COLUMNS ? f->m - j : MAX_COLUMNS};
            const struct nd_short_gemm gemm = {.n = f->n,
                                               .n_pairs = (piece.n + 1) / 2,
                                               .m = piece.n_columns,
                                               .a = left + k,
                                               .b = pairs,
                                               .c = c + j,
                                               .a_row = f->inner,
                                               .b_row = MAX_COLUMNS,
                                               .c_row = f->m};
            pair_weights(f, &piece, pairs);
            nd_gemm_kernels()->add_short(&gemm);
        }
}

/* Row by row of b's transpose, as it lies there. */
static void multiply_rows(const struct nd_short_factors *f, const int16_t *left, size_t n_terms, double *c)
{
    for (size_t j = 0; j < f->m; j++)
        for (size_t i = 0; i < f->n; i++)
            for (size_t k = 0; k < f->inner; k += n_terms)
                c[i * f->m + j] +=
                    nd_gemm_kernels()->dot_short(left + i * f->inner + k, f->b->weights + j * f->inner + k,
                                                 f->inner - k < n_terms ? f->inner - k : n_terms);
}

bool nd_short_product(const struct nd_short_factors *f, double *c)
{
    enum { MIN_ROWS = 4 }; /* below, making the pairs costs more than it saves; chosen */
    bool are_few = f->n < MIN_ROWS;
    if ((are_few && !f->is_transposed) || f->inner < MIN_TERMS || f->a->n != f->n * f->inner)
        return false;
    struct nd_short_range range = nd_short_range_of(f->a, f->b);
    int16_t *left = range.n_terms > 0 ? nd_calloc(f->a->n + 1, sizeof *left) : NULL;
    int16_t *pairs = left != NULL ? nd_calloc(are_few ? 1 : MAX_TERMS * MAX_COLUMNS, sizeof *pairs) : NULL;
    for (size_t i = 0; i < f->a->n && pairs != NULL; i++)
        left[i] = (int16_t)(f->a->x[i] - range.offset);
    if (pairs != NULL) {
        begin(f, range.offset, c);
        if (are_few)
            multiply_rows(f, left, range.n_terms, c);
        else
            multiply(f, left, range.n_terms, pairs, c);
    }
    free(left);
    free(pairs);
    return pairs != NULL;
}
