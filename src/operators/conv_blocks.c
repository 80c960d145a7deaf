#include "operators/conv_blocks.h"

#include <string.h>

#include "base/memory.h"
#include "operators/gemm_kernels.h"

/* A matrix of columns stays in the second-level cache: 128 KiB of doubles, 72 KiB of pairs; chosen. */
enum {
    MOST_COLUMNS = 96,
    MOST_ROWS = 170,
    MOST_SHORT_ROWS = 384,
    LEAST_SHORT_ROWS = 8,
    LEAST_SHORT_CHANNELS = 4
};

/* Where the columns of a block lie in the output: of w->out[2] positions each, but the first and last row. */
struct block {
    ptrdiff_t from, n;
};

double *nd_conv_blocks_room(void)
{
    return nd_calloc(MOST_COLUMNS * (MOST_ROWS * sizeof(double) + MOST_SHORT_ROWS * sizeof(int16_t)), 1);
}

/* What one tap reads of one plane: of the windows first .. end - 1 of each row, which lie inside. */
struct tap {
    const double *plane;
    ptrdiff_t k[ND_WINDOW_AXES], first, end;
};

/* n positions of one row of the output from `column` on. in_row: NULL in the padding. */
static void copy_row(const struct nd_window *w, const struct tap *tap, const double *in_row, ptrdiff_t column,
                     ptrdiff_t n, double *to)
{
    ptrdiff_t stride = w->stride[2];
    ptrdiff_t from = tap->first < column ? 0 : tap->first - column;
    ptrdiff_t until = tap->end - column > n ? n : tap->end - column;
    if (in_row == NULL || from >= until) {
        memset(to, 0, (size_t)n * sizeof *to);
        return;
    }
    const double *x = in_row + (column * stride + tap->k[2] * w->dilation[2] - w->pad_begin[2]);
    for (ptrdiff_t i = 0; i < from; i++)
        to[i] = 0;
    if (stride == 1)
        memcpy(to + from, x + from, (size_t)(until - from) * sizeof *to);
    else
        for (ptrdiff_t i = from; i < until; i++)
            to[i] = x[i * stride];
    for (ptrdiff_t i = until; i < n; i++)
        to[i] = 0;
}

/* One row of the matrix. */
static void copy_tap(const struct nd_window *w, const struct tap *tap, struct block block, double *to)
{
    ptrdiff_t row = block.from / w->out[2], column = block.from % w->out[2];
    for (ptrdiff_t left = block.n; left > 0; row++, column = 0) {
        ptrdiff_t n = w->out[2] - column < left ? w->out[2] - column : left;
        ptrdiff_t d = w->out[0] > 1 ? row / w->out[1] : 0, h = row - d * w->out[1];
        d = d * w->stride[0] + tap->k[0] * w->dilation[0] - w->pad_begin[0];
        h = h * w->stride[1] + tap->k[1] * w->dilation[1] - w->pad_begin[1];
        bool is_inside = d >= 0 && d < w->in[0] && h >= 0 && h < w->in[1];
        copy_row(w, tap, is_inside ? tap->plane + (d * w->in[1] + h) * w->in[2] : NULL, column, n, to);
        to += n;
        left -= n;
    }
}

/* Rows first .. first + n - 1: row = channel * n_kernel + tap. */
static void copy_columns(const struct nd_conv_group *g, size_t first, size_t n, struct block block,
                         double *room)
{
    const struct nd_window *w = g->w;
    size_t n_kernel = (size_t)w->n_kernel;
    for (size_t i = 0; i < n; i++) {
        ptrdiff_t t = (ptrdiff_t)((first + i) % n_kernel);
        struct tap tap = {
            .plane = g->in + (ptrdiff_t)((first + i) / n_kernel) * w->n_in,
            .k = {t / (w->kernel[1] * w->kernel[2]), t / w->kernel[2] % w->kernel[1], t % w->kernel[2]}};
        nd_window_range(w, 2, tap.k[2], &tap.first, &tap.end);
        copy_tap(w, &tap, block, room + i * MOST_COLUMNS);
    }
}

/* Of a pointwise kernel the planes are the matrix already. */
static bool is_matrix(const struct nd_window *w)
{
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++)
        if (w->kernel[axis] != 1 || w->stride[axis] != 1 || w->pad_begin[axis] != 0 ||
            w->in[axis] != w->out[axis])
            return false;
    return true;
}

static void add_doubles(const struct nd_conv_group *g, double *room)
{
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    size_t n_rows = g->n_in * (size_t)g->w->n_kernel, n_out = (size_t)g->w->n_out;
    bool is_plain = is_matrix(g->w);
    for (size_t from = 0; from < n_out; from += MOST_COLUMNS)
        for (size_t k = 0; k < n_rows; k += MOST_ROWS) {
            struct nd_gemm gemm = {.n = g->n_out,
                                   .n_k = n_rows - k < MOST_ROWS ? n_rows - k : MOST_ROWS,
                                   .m = n_out - from < MOST_COLUMNS ? n_out - from : MOST_COLUMNS,
                                   .a = g->weight + k,
                                   .b = is_plain ? g->in + k * n_out + from : room,
                                   .c = g->out + from,
                                   .a_row = n_rows,
                                   .b_row = is_plain ? n_out : MOST_COLUMNS,
                                   .c_row = n_out};
            if (!is_plain)
                copy_columns(g, k, gemm.n_k, (struct block){(ptrdiff_t)from, (ptrdiff_t)gemm.m}, room);
            kernels->add(&gemm);
        }
}

/* ---- whole numbers of 16 bits ---- */

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

/* b of the product from its rows. */
static void pair_rows(const struct nd_conv_group *g, const double *rows, size_t row,
                      const struct nd_short_gemm *gemm, size_t n_terms, int16_t *pairs)
{
    for (size_t k = 0; k < n_terms; k += 2)
        nd_gemm_kernels()->pair(rows + k * row, k + 1 < n_terms ? rows + (k + 1) * row : NULL, g->range.offset,
                                gemm->m, pairs + k * MOST_COLUMNS);
}

static void add_shorts(const struct nd_conv_group *g, double *room)
{
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    size_t n_rows = g->n_in * (size_t)g->w->n_kernel, n_out = (size_t)g->w->n_out;
    bool is_plain = is_matrix(g->w);
    size_t most = is_plain ? MOST_SHORT_ROWS : MOST_ROWS;
    int16_t *pairs = (int16_t *)(void *)(room + MOST_COLUMNS * MOST_ROWS);
    most = g->range.n_terms < most ? g->range.n_terms : most;
    add_offset(g, n_rows);
    for (size_t from = 0; from < n_out; from += MOST_COLUMNS)
        for (size_t k = 0; k < n_rows; k += most) {
            size_t n_terms = n_rows - k < most ? n_rows - k : most;
            const struct nd_short_gemm gemm = {.n = g->n_out,
                                               .n_pairs = (n_terms + 1) / 2,
                                               .m = n_out - from < MOST_COLUMNS ? n_out - from : MOST_COLUMNS,
                                               .a = g->short_weight + k,
                                               .b = pairs,
                                               .c = g->out + from,
                                               .a_row = n_rows,
                                               .b_row = MOST_COLUMNS,
                                               .c_row = n_out};
            if (!is_plain)
                copy_columns(g, k, n_terms, (struct block){(ptrdiff_t)from, (ptrdiff_t)gemm.m}, room);
            pair_rows(g, is_plain ? g->in + k * n_out + from : room, is_plain ? n_out : MOST_COLUMNS, &gemm,
                      n_terms, pairs);
            kernels->add_short(&gemm);
        }
}

void nd_conv_blocks_add(const struct nd_conv_group *g, double *room)
{
    bool is_short = g->short_weight != NULL && g->range.n_terms > 0 && g->n_out >= LEAST_SHORT_CHANNELS &&
                    g->n_in * (size_t)g->w->n_kernel >= LEAST_SHORT_ROWS;
    if (is_short)
        add_shorts(g, room);
    else
        add_doubles(g, room);
}
