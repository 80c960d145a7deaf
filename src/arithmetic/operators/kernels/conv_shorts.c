/* Convolution of whole numbers of 16 bits: the planes are shortened once, and the matrix of columns is made of
 * them. */
#include <stdint.h>
#include <stdlib.h>

#define ELEMENT int16_t
#include "arithmetic/operators/kernels/conv_columns_template.h"

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

/* A matrix of columns stays in the second-level cache: 72 KiB of pairs; chosen, as the least that is worth it.
 */
enum { MAX_COLUMNS = 2 * ND_SHORT_COLUMNS, MAX_ROWS = 384, MIN_ROWS = 8, MIN_CHANNELS = 4 };

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
    bool is_plain = nd_conv_is_matrix(planes->w);
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
    double *sums = nd_tensor_room(g->n_out * MAX_COLUMNS * sizeof *sums);
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
    free(sums);
    return true;
}
