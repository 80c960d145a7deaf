/* Products and convolutions of whole numbers of 16 bits: several times as many at once as of doubles, with the
 * same bits. A convolution shortens the planes once, and makes the matrix of columns of them. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define ELEMENT int16_t
#include "arithmetic/operators/kernels/conv_columns_template.h"

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "arithmetic/operators/kernels/short_products.h"
#include "core/memory.h"

/* ---- products of matrices ---- */

/* A block of b stays in the second-level cache: 384 x 96 pairs are 72 KiB; chosen. */
enum { MAX_COLUMNS = 2 * ND_SHORT_COLUMNS, MAX_TERMS = 384, MIN_TERMS = 16 };

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
static void begin_product(const struct nd_short_factors *f, double offset, double *c)
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
    ND_FREED int16_t *left = range.n_terms > 0 ? nd_calloc(f->a->n + 1, sizeof *left) : NULL;
    ND_FREED int16_t *pairs =
        left != NULL ? nd_calloc(are_few ? 1 : MAX_TERMS * MAX_COLUMNS, sizeof *pairs) : NULL;
    for (size_t i = 0; i < f->a->n && pairs != NULL; i++)
        left[i] = (int16_t)(f->a->x[i] - range.offset);
    if (pairs != NULL) {
        begin_product(f, range.offset, c);
        if (are_few)
            multiply_rows(f, left, range.n_terms, c);
        else
            multiply(f, left, range.n_terms, pairs, c);
    }
    return pairs != NULL;
}

/* ---- convolutions ---- */

/* A matrix of columns stays in the second-level cache: 72 KiB of pairs; chosen, as the least that is worth it.
 */
enum { MAX_ROWS = 384, MIN_ROWS = 8, MIN_CHANNELS = 4 };

static size_t n_inputs(const struct nd_conv_group *g)
{
    return g->n_in * (size_t)g->w->n_in;
}

bool nd_conv_shorts_begin(struct nd_conv_shorts *shorts, const struct nd_conv_group *g)
{
    *shorts = (struct nd_conv_shorts){.in = NULL};
    if (g->short_weight == NULL || g->range.n_terms == 0 || g->n_out < MIN_CHANNELS ||
        g->n_in * (size_t)g->w->n_kernel < MIN_ROWS)
        return false;
    shorts->in = nd_tensor_room((n_inputs(g) + 1) * sizeof *shorts->in);
    shorts->pairs = nd_calloc(MAX_ROWS * MAX_COLUMNS, sizeof *shorts->pairs);
    if (shorts->in != NULL && shorts->pairs != NULL)
        return true;
    nd_conv_shorts_end(shorts);
    return false;
}

void nd_conv_shorts_end(struct nd_conv_shorts *shorts)
{
    free(shorts->in);
    free(shorts->pairs);
    *shorts = (struct nd_conv_shorts){.in = NULL};
}

static double sum_of(const int16_t *x, size_t n)
{
    enum { MOST = 1 << 15 }; /* whose sum 32 bits hold */
    double sum = 0;
    for (size_t first = 0; first < n; first += MOST) {
        size_t end = n - first < MOST ? n : first + MOST;
        int32_t part = 0;
        for (size_t i = first; i < end; i++)
            part += x[i];
        sum += part;
    }
    return sum;
}

/* What the offset took away: the sum of the weights of each output, times it. */
static void add_offset(const struct nd_conv_group *g, size_t n_rows)
{
    size_t n_out = (size_t)g->w->n_out;
    for (size_t c = 0; c < g->n_out && g->range.offset != 0; c++) {
        double lost = sum_of(g->short_weight + c * n_rows, n_rows) * g->range.offset;
        for (size_t i = 0; i < n_out; i++)
            g->out[c * n_out + i] += lost;
    }
}

/* Rows k .. k + n_terms - 1 of the matrix, in pairs. */
static void pair_rows(const struct planes *planes, size_t k, size_t n_terms, struct block block, int16_t *pairs)
{
    int16_t rows[2][MAX_COLUMNS];
    bool is_plain = nd_window_is_pointwise(planes->w);
    size_t n_out = (size_t)planes->w->n_out;
    for (size_t i = 0; i < n_terms; i += 2, pairs += (ptrdiff_t)(2 * MAX_COLUMNS)) {
        const int16_t *both[2] = {rows[0], i + 1 < n_terms ? rows[1] : NULL};
        for (size_t t = 0; t < 2 && i + t < n_terms; t++) {
            if (is_plain)
                both[t] = planes->in + (k + i + t) * n_out + block.from;
            else
                copy_columns(planes, k + i + t, block, rows[t]);
        }
        nd_gemm_kernels()->pair(both[0], both[1], (size_t)block.n, pairs);
    }
}

/* Positions from .. from + n - 1 of all channels of the group: c[n_out][c_row] += sums. */
static void add_block(const struct nd_conv_shorts *shorts, const struct nd_conv_group *g, struct block block,
                      double *c, size_t c_row)
{
    const struct planes planes = {g->w, shorts->in, (int16_t)-g->range.offset};
    size_t n_rows = g->n_in * (size_t)g->w->n_kernel;
    size_t most = g->range.n_terms < MAX_ROWS ? g->range.n_terms : MAX_ROWS;
    for (size_t k = 0; k < n_rows; k += most) {
        size_t n_terms = n_rows - k < most ? n_rows - k : most;
        const struct nd_short_gemm gemm = {.n = g->n_out,
                                           .n_pairs = (n_terms + 1) / 2,
                                           .m = (size_t)block.n,
                                           .a = g->short_weight + k,
                                           .b = shorts->pairs,
                                           .c = c,
                                           .a_row = n_rows,
                                           .b_row = MAX_COLUMNS,
                                           .c_row = c_row};
        pair_rows(&planes, k, n_terms, block, shorts->pairs);
        nd_gemm_kernels()->add_short(&gemm);
    }
}

static struct block block_at(const struct nd_conv_group *g, size_t from)
{
    size_t left = (size_t)g->w->n_out - from;
    return (struct block){(ptrdiff_t)from, (ptrdiff_t)(left < MAX_COLUMNS ? left : MAX_COLUMNS)};
}

void nd_conv_shorts_add(const struct nd_conv_shorts *shorts, const struct nd_conv_group *g)
{
    size_t n_out = (size_t)g->w->n_out;
    nd_gemm_kernels()->shorten(g->in, g->range.offset, n_inputs(g), shorts->in);
    add_offset(g, g->n_in * (size_t)g->w->n_kernel);
    for (size_t from = 0; from < n_out; from += MAX_COLUMNS)
        add_block(shorts, g, block_at(g, from), g->out + from, n_out);
}

bool nd_conv_shorts_each(const struct nd_conv_shorts *shorts, const struct nd_conv_group *g,
                         const struct nd_byte_sums *bytes)
{
    ND_FREED double *sums = nd_tensor_room(g->n_out * MAX_COLUMNS * sizeof *sums);
    if (sums == NULL)
        return false;
    nd_gemm_kernels()->widen(bytes->in, bytes->zero, n_inputs(g), shorts->in);
    for (size_t from = 0; from < (size_t)g->w->n_out; from += MAX_COLUMNS) {
        const struct block block = block_at(g, from);
        memset(sums, 0, g->n_out * (size_t)block.n * sizeof *sums);
        add_block(shorts, g, block, sums, (size_t)block.n);
        const struct nd_sums_block made = {
            .sums = sums, .n_channels = g->n_out, .from = from, .n = (size_t)block.n, .row = (size_t)block.n};
        bytes->take(bytes->context, &made);
    }
    return true;
}
