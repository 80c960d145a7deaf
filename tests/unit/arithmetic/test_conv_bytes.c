/* Convolution of bytes held against the sum over taps, on random windows: strides, dilations, pads on either
 * side, groups, channels that are no multiple of four, zero points at the ends; and its kernels on every
 * instruction set. */
#include "support/main.h"

#include <string.h>

#include "arithmetic/operators/kernels/conv_bytes.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "support/linear_case.h"

/* ---- kernels ---- */

enum { MAX_QUADS = 60, MAX_BYTES = 4 * 400 };

static int32_t product(const struct nd_quad_gemm *g, size_t i, size_t j)
{
    int32_t sum = g->start[i] + (g->totals != NULL ? g->step[i] * g->totals[j] : 0);
    for (size_t k = 0; k < g->n_quads; k++)
        for (size_t t = 0; t < 4; t++)
            sum +=
                g->a[(k * ND_QUAD_ROWS + i) * 4 + t] * g->b[4 * (g->offsets[k] + (ptrdiff_t)j) + (ptrdiff_t)t];
    return sum;
}

/* Now and then the ends, which 16 bits would not hold two products of. */
static int64_t pick_byte(int64_t low, bool is_at_end)
{
    return is_at_end ? low + 255 * pick(0, 1) : pick(low, low + 255);
}

static void products_of_quads_are_exact(void **state)
{
    (void)state;
    static int8_t a[MAX_QUADS * ND_QUAD_ROWS * 4];
    static uint8_t b[MAX_BYTES];
    static double c[ND_QUAD_ROWS * ND_QUAD_COLUMNS];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 200; round++) {
        int32_t start[ND_QUAD_ROWS], step[ND_QUAD_ROWS], totals[ND_QUAD_COLUMNS];
        ptrdiff_t offsets[MAX_QUADS];
        bool is_at_end = pick(0, 3) == 0;
        for (size_t i = 0; i < sizeof a; i++)
            a[i] = (int8_t)pick_byte(-128, is_at_end);
        for (size_t i = 0; i < sizeof b; i++)
            b[i] = (uint8_t)pick_byte(0, is_at_end);
        for (size_t i = 0; i < ND_QUAD_ROWS; i++) {
            start[i] = (int32_t)pick(-1000000, 1000000);
            step[i] = (int32_t)pick(-255, 255);
        }
        for (size_t i = 0; i < ND_QUAD_COLUMNS; i++)
            totals[i] = (int32_t)pick(-1000000, 1000000);
        for (size_t i = 0; i < MAX_QUADS; i++)
            offsets[i] = (ptrdiff_t)pick(0, MAX_BYTES / 4 - ND_QUAD_COLUMNS);
        const struct nd_quad_gemm gemm = {.n_quads = (size_t)pick(0, MAX_QUADS),
                                          .m = (size_t)pick(1, ND_QUAD_COLUMNS),
                                          .a = a,
                                          .b = b,
                                          .offsets = offsets,
                                          .start = start,
                                          .step = step,
                                          .totals = pick(0, 1) == 0 ? totals : NULL,
                                          .c = c};
        for (size_t k = 0; k < n_kernels; k++) {
            memset(c, 0xff, sizeof c);
            kernels[k]->multiply_quads(&gemm);
            for (size_t i = 0; i < ND_QUAD_ROWS; i++)
                for (size_t j = 0; j < gemm.m; j++)
                    assert_true(c[i * ND_QUAD_COLUMNS + j] == (double)product(&gemm, i, j));
        }
    }
}

static void quads_are_made_and_added_up(void **state)
{
    (void)state;
    enum { MOST = 300 };
    static uint8_t rows[4][MOST], quads[4 * MOST];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    const uint8_t *const all[4] = {rows[0], rows[1], rows[2], rows[3]};
    for (int round = 0; round < 100; round++) {
        size_t n = (size_t)pick(0, MOST);
        for (size_t i = 0; i < 4 * n; i++)
            rows[i % 4][i / 4] = (uint8_t)pick(0, 255);
        for (size_t k = 0; k < n_kernels; k++) {
            int32_t totals[MOST];
            for (size_t i = 0; i < n; i++)
                totals[i] = (int32_t)i;
            kernels[k]->make_quads(all, n, quads);
            kernels[k]->total_quads(quads, n, totals);
            for (size_t i = 0; i < n; i++) {
                for (size_t t = 0; t < 4; t++)
                    assert_int_equal(quads[4 * i + t], rows[t][i]);
                assert_int_equal(totals[i], (int)i + rows[0][i] + rows[1][i] + rows[2][i] + rows[3][i]);
            }
        }
    }
}

/* ---- convolutions ---- */

struct conv {
    struct nd_window w;
    size_t n_groups, n_in, n_out;
    int zero;
    int16_t *weights;
    uint8_t *in;
    double *sums; /* [n_groups][n_out][n_out of w]; NaN: nobody has given it */
    size_t group;
};

static void take(void *context, const struct nd_sums_block *block)
{
    struct conv *conv = context;
    size_t n = (size_t)conv->w.n_out;
    for (size_t c = 0; c < block->n_channels; c++)
        for (size_t i = 0; i < block->n; i++) {
            size_t channel = conv->group * conv->n_out + block->first_channel + c;
            assert_true(block->first_channel + c < conv->n_out && block->from + i < n);
            assert_true(isnan(conv->sums[channel * n + block->from + i])); /* once */
            conv->sums[channel * n + block->from + i] = block->sums[c * block->row + i];
        }
}

static double sum_of(const struct conv *conv, size_t channel, ptrdiff_t y, ptrdiff_t x)
{
    const struct nd_window *w = &conv->w;
    size_t group = channel / conv->n_out;
    double sum = 0;
    for (size_t c = 0; c < conv->n_in; c++)
        for (ptrdiff_t t = 0; t < w->n_kernel; t++) {
            ptrdiff_t iy = y * w->stride[1] + t / w->kernel[2] * w->dilation[1] - w->pad_begin[1];
            ptrdiff_t ix = x * w->stride[2] + t % w->kernel[2] * w->dilation[2] - w->pad_begin[2];
            if (iy < 0 || iy >= w->in[1] || ix < 0 || ix >= w->in[2])
                continue;
            int qvalue = conv->in[(ptrdiff_t)(group * conv->n_in + c) * w->n_in + iy * w->in[2] + ix];
            sum += (double)(qvalue - conv->zero) *
                   conv->weights[(ptrdiff_t)(channel * conv->n_in + c) * w->n_kernel + t];
        }
    return sum;
}

/* A window that has at least one output. */
static struct nd_window pick_window(void)
{
    struct nd_window w = {.n_axes = 2};
    for (int axis = 0; axis < ND_WINDOW_AXES; axis++) {
        bool is_used = axis > 0;
        w.kernel[axis] = is_used ? pick(1, 4) : 1;
        w.stride[axis] = is_used ? pick(1, 3) : 1;
        w.dilation[axis] = is_used ? pick(1, 2) : 1;
        ptrdiff_t reach = (w.kernel[axis] - 1) * w.dilation[axis] + 1;
        w.pad_begin[axis] = is_used ? pick(0, 3) : 0;
        w.pad_end[axis] = is_used ? pick(0, 3) : 0;
        w.in[axis] = is_used ? pick(1, axis == 2 && pick(0, 2) == 0 ? 130 : 14) : 1;
        if (w.in[axis] + w.pad_begin[axis] + w.pad_end[axis] < reach)
            w.in[axis] = reach;
        w.out[axis] = (w.in[axis] + w.pad_begin[axis] + w.pad_end[axis] - reach) / w.stride[axis] + 1;
    }
    if (pick(0, 4) == 0)
        for (int axis = 1; axis < ND_WINDOW_AXES; axis++) { /* pointwise */
            w.kernel[axis] = w.stride[axis] = w.dilation[axis] = 1;
            w.pad_begin[axis] = w.pad_end[axis] = 0;
            w.out[axis] = w.in[axis];
        }
    nd_window_close(&w);
    return w;
}

static void fill(struct conv *conv)
{
    static const int zeros[] = {0, 255, 128, 1};
    conv->zero = pick(0, 1) == 0 ? zeros[pick(0, 3)] : (int)pick(0, 255);
    size_t n_weights = conv->n_groups * conv->n_out * conv->n_in * (size_t)conv->w.n_kernel;
    size_t n_qvalues = conv->n_groups * conv->n_in * (size_t)conv->w.n_in;
    size_t n_sums = conv->n_groups * conv->n_out * (size_t)conv->w.n_out;
    int64_t least = pick(0, 1) == 0 ? -128 : pick(-255, 0);
    conv->weights = malloc((n_weights + 1) * sizeof *conv->weights);
    conv->in = malloc(n_qvalues + 1);
    conv->sums = malloc(n_sums * sizeof *conv->sums);
    for (size_t i = 0; i < n_weights; i++)
        conv->weights[i] = (int16_t)pick_byte(least, pick(0, 5) == 0);
    for (size_t i = 0; i < n_qvalues; i++)
        conv->in[i] = (uint8_t)pick_byte(0, pick(0, 5) == 0);
    for (size_t i = 0; i < n_sums; i++)
        conv->sums[i] = (double)NAN;
}

static void convolutions_are_exact(void **state)
{
    (void)state;
    size_t n_shifted = 0, n_by_row = 0, n_between = 0;
    for (int round = 0; round < 300; round++) {
        struct conv conv = {.w = pick_window(),
                            .n_groups = (size_t)pick(1, 3),
                            .n_in = (size_t)pick(1, 9),
                            .n_out = (size_t)pick(4, 18)};
        while (conv.n_in * (size_t)conv.w.n_kernel < 8)
            conv.n_in++;
        fill(&conv);
        const struct nd_conv_group group = {
            .w = &conv.w, .n_in = conv.n_in, .n_out = conv.n_out, .short_weight = conv.weights};
        struct nd_byte_weights weights;
        struct nd_conv_bytes room;
        assert_true(nd_byte_weights_make(&weights, &group, conv.n_groups, conv.zero));
        assert_true(nd_conv_bytes_begin(&room, &weights));
        for (conv.group = 0; conv.group < conv.n_groups; conv.group++) {
            const struct nd_byte_sums bytes = {
                .in = conv.in + conv.group * conv.n_in * (size_t)conv.w.n_in, .take = take, .context = &conv};
            nd_conv_bytes_each(&room, conv.group, &bytes);
        }
        size_t n = (size_t)conv.w.n_out, n_row = (size_t)conv.w.out[2];
        for (size_t i = 0; i < conv.n_groups * conv.n_out * n; i++)
            assert_true(conv.sums[i] ==
                        sum_of(&conv, i / n, (ptrdiff_t)(i % n / n_row), (ptrdiff_t)(i % n_row)));
        n_shifted += weights.is_shifted;
        n_by_row += n_row > 96;
        n_between += weights.in_row > n_row;
        nd_conv_bytes_end(&room);
        nd_byte_weights_end(&weights);
        free(conv.weights);
        free(conv.in);
        free(conv.sums);
    }
    assert_true(n_shifted > 20 && n_by_row > 5 && n_between > 20); /* the ways there are were all taken */
}

/* Weights of a wider range, as of channels with zero points of their own, and of 16 bits. */
static void wide_weights_are_left_to_others(void **state)
{
    (void)state;
    struct nd_window w = {
        .in = {1, 5, 5}, .out = {1, 3, 3}, .kernel = {1, 3, 3}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}};
    int16_t weights[4 * 9] = {[3] = -128, [4] = 127};
    struct nd_byte_weights made;
    nd_window_close(&w);
    const struct nd_conv_group group = {.w = &w, .n_in = 1, .n_out = 4, .short_weight = weights};
    assert_true(nd_byte_weights_make(&made, &group, 1, 7));
    assert_false(made.is_shifted);
    nd_byte_weights_end(&made);
    weights[4] = 128;
    assert_false(nd_byte_weights_make(&made, &group, 1, 7));
    weights[3] = 256;
    weights[4] = 300;
    assert_false(nd_byte_weights_make(&made, &group, 1, 7));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(products_of_quads_are_exact, set_seed),
        cmocka_unit_test_setup(quads_are_made_and_added_up, set_seed),
        cmocka_unit_test_setup(convolutions_are_exact, set_seed),
        cmocka_unit_test_setup(wide_weights_are_left_to_others, set_seed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
