/* The matrix of columns of a convolution, of elements of one type: ELEMENT is defined by who includes this,
 * once. */
#include <string.h>

#include "arithmetic/operators/kernels/convolutions.h"

/* Where the columns of a block lie in the output: of w->out[2] positions each, but the first and last row. */
struct block {
    ptrdiff_t from, n;
};

/* The planes that windows slide over, and what lies around them. */
struct planes {
    const struct nd_window *w;
    const ELEMENT *in;
    ELEMENT padding;
};

/* What one tap reads of one plane: of the windows first .. end - 1 of each row, which lie inside. */
struct tap {
    const ELEMENT *plane;
    ptrdiff_t k[ND_WINDOW_AXES], first, end;
};

static void fill_row(ELEMENT *to, ptrdiff_t n, ELEMENT padding)
{
    for (ptrdiff_t i = 0; i < n; i++)
        to[i] = padding;
}

/* n positions of one row of the output from `column` on. in_row: NULL in the padding. */
static void copy_row(const struct planes *planes, const struct tap *tap, const ELEMENT *in_row,
                     struct block row, ELEMENT *to)
{
    const struct nd_window *w = planes->w;
    ptrdiff_t stride = w->stride[2], column = row.from, n = row.n;
    ptrdiff_t from = tap->first < column ? 0 : tap->first - column;
    ptrdiff_t until = tap->end - column > n ? n : tap->end - column;
    if (in_row == NULL || from >= until) {
        fill_row(to, n, planes->padding);
        return;
    }
    const ELEMENT *x = in_row + (column * stride + tap->k[2] * w->dilation[2] - w->pad_begin[2]);
    fill_row(to, from, planes->padding);
    if (stride == 1)
        memcpy(to + from, x + from, (size_t)(until - from) * sizeof *to);
    else
        for (ptrdiff_t i = from; i < until; i++)
            to[i] = x[i * stride];
    fill_row(to + until, n - until, planes->padding);
}

/* One row of the matrix. */
static void copy_tap(const struct planes *planes, const struct tap *tap, struct block block, ELEMENT *to)
{
    const struct nd_window *w = planes->w;
    ptrdiff_t row = block.from / w->out[2], column = block.from % w->out[2];
    for (ptrdiff_t left = block.n; left > 0; row++, column = 0) {
        ptrdiff_t n = w->out[2] - column < left ? w->out[2] - column : left;
        ptrdiff_t d = w->out[0] > 1 ? row / w->out[1] : 0, h = row - d * w->out[1];
        d = d * w->stride[0] + tap->k[0] * w->dilation[0] - w->pad_begin[0];
        h = h * w->stride[1] + tap->k[1] * w->dilation[1] - w->pad_begin[1];
        bool is_inside = d >= 0 && d < w->in[0] && h >= 0 && h < w->in[1];
        copy_row(planes, tap, is_inside ? tap->plane + (d * w->in[1] + h) * w->in[2] : NULL,
                 (struct block){column, n}, to);
        to += n;
        left -= n;
    }
}

/* Row i of the matrix: row = channel * n_kernel + tap. */
static void copy_columns(const struct planes *planes, size_t i, struct block block, ELEMENT *to)
{
    const struct nd_window *w = planes->w;
    size_t n_kernel = (size_t)w->n_kernel;
    ptrdiff_t t = (ptrdiff_t)(i % n_kernel);
    struct tap tap = {
        .plane = planes->in + (ptrdiff_t)(i / n_kernel) * w->n_in,
        .k = {t / (w->kernel[1] * w->kernel[2]), t / w->kernel[2] % w->kernel[1], t % w->kernel[2]}};
    nd_window_range(w, 2, tap.k[2], &tap.first, &tap.end);
    copy_tap(planes, &tap, block, to);
}
