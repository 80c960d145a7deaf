/* Sums of pairs in 16 bits, held against kernels written out: raw quantised values are multiplied, pairs are
 * cut, and zero points are corrected at the end. */
#include "support/main.h"

#include "support/linear_case.h"

#include "arithmetic/variants/pairs.h"

enum { MAX_TERMS = 512 };

/* The terms of one sum as a kernel reads them. What pads a row has is_term false. */
struct terms {
    size_t n;
    int x[MAX_TERMS], w[MAX_TERMS];
    bool is_term[MAX_TERMS];
};

static void put_term(struct terms *terms, const int *x_and_w)
{
    assert_true(terms->n < MAX_TERMS);
    terms->is_term[terms->n] = x_and_w != NULL;
    terms->x[terms->n] = x_and_w != NULL ? x_and_w[0] : 0;
    terms->w[terms->n++] = x_and_w != NULL ? x_and_w[1] : 0;
}

static int moved(enum nd_dtype dtype, bool is_unsigned)
{
    return dtype == ND_DTYPE_U8 ? (is_unsigned ? 0 : -128) : is_unsigned ? 128 : 0;
}

/* The operands of a layer, and the zero points of what one sum reads. */
struct operands {
    const struct tensor *x, *w;
    int64_t x_zero, w_zero;
};

static int64_t product(const struct terms *terms, size_t k, int by_x, int by_w)
{
    return k < terms->n && terms->is_term[k] ? (int64_t)(terms->x[k] + by_x) * (terms->w[k] + by_w) : 0;
}

static int64_t cut(const struct nd_pair_sum *sum, int64_t pair)
{
    if (sum->is_wrapping)
        return (int16_t)(uint16_t)pair;
    return pair > 32767 ? 32767 : pair < -32768 ? -32768 : pair;
}

/* sum of cut(pairs) - z_x sum w - z_w sum x + n z_x z_w, in the kernel's types. */
static int64_t kernel_sum(const struct nd_pair_sum *sum, const struct terms *terms, const struct operands *of)
{
    int by_x = moved(of->x->qvalues.dtype, sum->is_unsigned), by_w = moved(of->w->qvalues.dtype, false);
    int64_t x_zero = of->x_zero + by_x, w_zero = of->w_zero + by_w, total = 0;
    size_t distance = (size_t)sum->distance;
    for (size_t start = 0; start < terms->n; start += distance) {
        bool is_second = start / distance % 2 == 1;
        for (size_t k = start; k < start + distance && k < terms->n; k++)
            if (terms->is_term[k])
                total += x_zero * w_zero - x_zero * (terms->w[k] + by_w) - w_zero * (terms->x[k] + by_x);
        for (size_t lane = start; lane < start + distance && !is_second; lane++)
            total += cut(sum, product(terms, lane, by_x, by_w) + product(terms, lane + distance, by_x, by_w));
    }
    return total;
}

/* ---- a layer, and what was found of it ---- */

struct found {
    struct nd_array qvalues[ND_N_PAIR_SUMS];
};

static enum nd_status keep(void *context, size_t which, const struct nd_array *qvalues, struct nd_error *err)
{
    struct found *found = context;
    return nd_array_copy(qvalues, &found->qvalues[which], err);
}

static void find(struct layer_case *layer, enum nd_dtype dtype, struct found *found)
{
    const struct nd_rounding_rule half_even = {.kind = ND_ROUNDED_ONCE, .rounding = ND_ROUND_HALF_EVEN};
    enum nd_exact_origin origins[MAX_INPUTS] = {ND_EXACT_FROM_INPUT};
    size_t tensors[MAX_INPUTS] = {0};
    const struct nd_exact_layer asked = {
        .call = &layer->call, .origins = origins, .input_tensors = tensors, .dtype = dtype};
    struct nd_error err = {0};
    memset(found, 0, sizeof *found);
    if (nd_layer_in_pairs(&asked, &half_even, keep, found, &err) != ND_OK)
        fail_msg("%s", err.message);
}

static void found_free(struct found *found)
{
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++)
        nd_array_deinit(&found->qvalues[s]);
}

/* Scales are powers of two: all of this is exact in doubles. */
static double qvalue_of(const struct layer_case *layer, const struct operands *of, size_t channel,
                        int64_t accumulator, int64_t bias)
{
    double scale = (double)of->x->scales[0] * (double)of->w->scales[of->w->quant.n == 1 ? 0 : channel];
    double real = (double)(accumulator + bias) * scale;
    real = fmin(fmax(real, layer->call.low), layer->call.high);
    return fmin(fmax(rint(real / (double)layer->out_scales[0]) + (double)layer->out_zero_points[0], 0), 255);
}

static enum nd_dtype byte_type(void)
{
    return pick(0, 1) == 0 ? ND_DTYPE_U8 : ND_DTYPE_I8;
}

/* A step of the output that leaves most quantised values within 0..255. */
static void choose_output(struct layer_case *layer, const struct operands *of)
{
    layer->out_scales[0] = of->x->scales[0] * of->w->scales[0] * 1024;
    layer->out_zero_points[0] = pick(64, 192);
    if (pick(0, 1) == 0)
        layer->call.low = 0;
    if (pick(0, 2) == 0)
        layer->call.high = (double)layer->out_scales[0] * 40;
}

/* Scales that are powers of two, and many of the lowest codes: -128 by -128 twice is what wraps. */
static void make_simple(struct tensor *tensor)
{
    double low, high;
    nd_qvalue_range(tensor->qvalues.dtype, &low, &high);
    for (size_t i = 0; i < tensor->qvalues.n; i++) {
        if (pick(0, 2) == 0)
            tensor->qvalues.x[i] = low;
        tensor->whole[i] =
            (int64_t)tensor->qvalues.x[i] - tensor->zero_points[i / tensor->n_inner % tensor->quant.n];
    }
    for (size_t c = 0; c < tensor->quant.n; c++)
        tensor->scales[c] = ldexpf(1, (int)pick(-6, -4));
}

/* How many quantised values of a sum are not the exact sum's. */
struct counts {
    size_t n_layers, n_moved[ND_N_PAIR_SUMS];
};

/* ---- MatMul and Gemm ---- */

struct matrices {
    struct operands of;
    int64_t stacks, rows, inner, columns;
    bool is_stacked, flips_a, flips_b;
};

static void check_matrix(const struct matrices *m, const struct layer_case *layer, const struct found *found,
                         struct counts *counts)
{
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++) {
        const struct nd_pair_sum *sum = &nd_pair_sums()[s];
        if (sum->order != ND_PAIR_CHANNELS_FASTEST) {
            assert_null(found->qvalues[s].x); /* a matrix has one order */
            continue;
        }
        for (int64_t i = 0; i < m->stacks * m->rows * m->columns; i++) {
            int64_t stack = i / m->columns / m->rows, r = i / m->columns % m->rows, c = i % m->columns,
                    exact = 0;
            int64_t b_stack = m->is_stacked ? stack * m->inner * m->columns : 0;
            struct terms terms = {.n = 0};
            struct operands of = m->of;
            of.w_zero = of.w->zero_points[of.w->quant.n == 1 ? 0 : c];
            for (int64_t k = 0; k < m->inner; k++) {
                int64_t a = stack * m->rows * m->inner + (m->flips_a ? k * m->rows + r : r * m->inner + k);
                int64_t b = b_stack + (m->flips_b ? c * m->inner + k : k * m->columns + c);
                put_term(&terms, (const int[]){(int)of.x->qvalues.x[a], (int)of.w->qvalues.x[b]});
                exact += of.x->whole[a] * of.w->whole[b];
            }
            double expected = qvalue_of(layer, &of, (size_t)c, kernel_sum(sum, &terms, &of), 0);
            assert_true(found->qvalues[s].x[i] == expected);
            counts->n_moved[s] += expected != qvalue_of(layer, &of, (size_t)c, exact, 0);
        }
    }
}

static void check_matmul(struct counts *counts)
{
    struct node node;
    struct layer_case layer;
    struct tensor a, b;
    struct found found;
    bool is_gemm = pick(0, 1) == 0;
    struct matrices m = {.stacks = is_gemm ? 1 : pick(1, 2),
                         .rows = pick(1, 4),
                         .inner = pick(1, 40),
                         .columns = pick(1, 5),
                         .is_stacked = !is_gemm && pick(0, 1) == 0,
                         .flips_a = is_gemm && pick(0, 1) == 0,
                         .flips_b = is_gemm && pick(0, 1) == 0};
    node_begin(&node, is_gemm ? "Gemm" : "MatMul", 1);
    node_int(&node, "transA", m.flips_a);
    node_int(&node, "transB", m.flips_b);
    struct nd_shape shape_a = {3, {m.stacks, m.rows, m.inner}}, shape_b = {3, {m.stacks, m.inner, m.columns}};
    if (is_gemm)
        shape_a = (struct nd_shape){2, {m.flips_a ? m.inner : m.rows, m.flips_a ? m.rows : m.inner}};
    if (!m.is_stacked)
        shape_b = (struct nd_shape){2, {m.flips_b ? m.columns : m.inner, m.flips_b ? m.inner : m.columns}};
    tensor_make(&a, byte_type(), shape_a, -1);
    tensor_make(&b, byte_type(), shape_b, !m.is_stacked && pick(0, 1) == 0 ? (m.flips_b ? 0 : 1) : -1);
    make_simple(&a);
    make_simple(&b);
    m.of = (struct operands){.x = &a, .w = &b, .x_zero = a.zero_points[0]};
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &a);
    layer_add(&layer, &b);
    choose_output(&layer, &m.of);
    find(&layer, ND_DTYPE_U8, &found);
    check_matrix(&m, &layer, &found, counts);
    found_free(&found);
    tensor_free(&a);
    tensor_free(&b);
}

/* ---- Conv ---- */

struct conv {
    struct operands of;
    int64_t n, groups, in_channels, out_channels; /* channels of one group */
    int64_t in[2], out[2], kernel[2], stride[2], pads[4];
    bool has_bias;
    int64_t bias[MAX_SCALES];
};

/* What tap (c, k) of the sum at one place reads: the zero point beside the picture. */
static void read_tap(const struct conv *conv, const int64_t at[5], int64_t c, int64_t k, int out[2])
{
    int64_t k_y = k / conv->kernel[1], k_x = k % conv->kernel[1], group = at[1] / conv->out_channels;
    int64_t y = at[2] * conv->stride[0] + k_y - conv->pads[0],
            x = at[3] * conv->stride[1] + k_x - conv->pads[1];
    int64_t plane = (at[0] * conv->groups + group) * conv->in_channels + c;
    bool is_inside = y >= 0 && x >= 0 && y < conv->in[0] && x < conv->in[1];
    out[0] = is_inside ? (int)conv->of.x->qvalues.x[(plane * conv->in[0] + y) * conv->in[1] + x]
                       : (int)conv->of.x_zero;
    out[1] = (int)conv->of.w->qvalues
                 .x[((at[1] * conv->in_channels + c) * conv->kernel[0] + k_y) * conv->kernel[1] + k_x];
}

/* All terms in the order of the kernel. */
static void read_terms(const struct conv *conv, const struct nd_pair_sum *sum, const int64_t at[5],
                       struct terms *terms)
{
    int64_t n_taps = conv->kernel[0] * conv->kernel[1], block = 2 * sum->distance, width = conv->in_channels;
    bool is_padded = sum->order == ND_PAIR_CHANNELS_PADDED, is_first = sum->order == ND_PAIR_POSITIONS_FASTEST;
    while (is_padded && width % block != 0)
        width++;
    terms->n = 0;
    for (int64_t outer = 0; outer < (is_first ? conv->in_channels : n_taps); outer++)
        for (int64_t inner = 0; inner < (is_first ? n_taps : width); inner++) {
            int x_and_w[2];
            int64_t c = is_first ? outer : inner, k = is_first ? inner : outer;
            if (c < conv->in_channels)
                read_tap(conv, at, c, k, x_and_w);
            put_term(terms, c < conv->in_channels ? x_and_w : NULL);
        }
}

static void check_conv_qvalues(const struct conv *conv, const struct layer_case *layer,
                               const struct found *found, struct counts *counts)
{
    int64_t channels = conv->groups * conv->out_channels, n_taps = conv->kernel[0] * conv->kernel[1];
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++) {
        const struct nd_pair_sum *sum = &nd_pair_sums()[s];
        if (n_taps == 1 && sum->order != ND_PAIR_CHANNELS_FASTEST)
            continue;
        for (int64_t i = 0; i < conv->n * channels * conv->out[0] * conv->out[1]; i++) {
            int64_t place = i % (conv->out[0] * conv->out[1]), plane = i / (conv->out[0] * conv->out[1]),
                    exact = 0;
            int64_t at[5] = {plane / channels, plane % channels, place / conv->out[1], place % conv->out[1]};
            struct operands of = conv->of;
            struct terms terms;
            of.w_zero = of.w->zero_points[of.w->quant.n == 1 ? 0 : at[1]];
            read_terms(conv, sum, at, &terms);
            for (size_t k = 0; k < terms.n; k++)
                exact += terms.is_term[k] ? (terms.x[k] - of.x_zero) * (terms.w[k] - of.w_zero) : 0;
            int64_t bias = conv->has_bias ? conv->bias[at[1]] : 0;
            double expected = qvalue_of(layer, &of, (size_t)at[1], kernel_sum(sum, &terms, &of), bias);
            assert_true(found->qvalues[s].x[i] == expected);
            counts->n_moved[s] += expected != qvalue_of(layer, &of, (size_t)at[1], exact, bias);
        }
    }
}

static struct conv random_conv(void)
{
    struct conv conv = {
        .n = pick(1, 2), .groups = pick(1, 2), .in_channels = pick(1, 9), .out_channels = pick(1, 3)};
    for (int a = 0; a < 2; a++) {
        conv.kernel[a] = pick(1, 3);
        conv.stride[a] = pick(1, 2);
        conv.in[a] = pick(3, 6);
        conv.pads[a] = pick(0, 2);
        conv.pads[a + 2] = pick(0, 2);
        conv.out[a] = (conv.in[a] + conv.pads[a] + conv.pads[a + 2] - conv.kernel[a]) / conv.stride[a] + 1;
    }
    conv.has_bias = pick(0, 1) == 0;
    return conv;
}

static void check_conv(struct counts *counts)
{
    struct conv conv = random_conv();
    struct node node;
    struct layer_case layer;
    struct tensor x, w, bias;
    struct found found;
    int64_t channels = conv.groups * conv.out_channels;
    node_begin(&node, "Conv", 1);
    node_int(&node, "group", conv.groups);
    node_ints(&node, "strides", conv.stride, 2);
    node_ints(&node, "pads", conv.pads, 4);
    tensor_make(&x, byte_type(),
                (struct nd_shape){4, {conv.n, conv.groups * conv.in_channels, conv.in[0], conv.in[1]}}, -1);
    tensor_make(&w, byte_type(),
                (struct nd_shape){4, {channels, conv.in_channels, conv.kernel[0], conv.kernel[1]}},
                pick(0, 1) == 0 ? 0 : -1);
    tensor_make(&bias, ND_DTYPE_I32, (struct nd_shape){1, {channels}}, 0);
    make_simple(&x);
    make_simple(&w);
    for (int64_t c = 0; c < channels; c++) {
        bias.scales[c] = x.scales[0] * w.scales[w.quant.n == 1 ? 0 : c];
        bias.qvalues.x[c] = (double)(conv.bias[c] = pick(-30000, 30000));
    }
    conv.of = (struct operands){.x = &x, .w = &w, .x_zero = x.zero_points[0]};
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    layer_add(&layer, &w);
    if (conv.has_bias)
        layer_add(&layer, &bias);
    choose_output(&layer, &conv.of);
    find(&layer, ND_DTYPE_U8, &found);
    check_conv_qvalues(&conv, &layer, &found, counts);
    found_free(&found);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&bias);
}

static void pairs_are_those_of_kernels(void **state)
{
    (void)state;
    struct counts counts = {0};
    for (int i = 0; i < 300; i++)
        check_matmul(&counts);
    for (int i = 0; i < 300; i++)
        check_conv(&counts);
    for (size_t s = 0; s < ND_N_PAIR_SUMS; s++) {
        const struct nd_pair_sum *sum = &nd_pair_sums()[s];
        /* int8 by int8 that saturates loses 1 of 32768: it is tried all the same. */
        if (sum->is_unsigned || sum->is_wrapping)
            assert_true(counts.n_moved[s] > 20);
    }
}

/* 210 * -81 + 198 * -80 = -32850 saturates; with -80 twice it is -32640, and right. */
static void the_pair_of_the_issue_saturates(void **state)
{
    (void)state;
    const double weights[] = {-81, -80}, expected[] = {-32768 / 2, -32640 / 2};
    for (int i = 0; i < 2; i++) {
        struct node node;
        struct layer_case layer;
        struct tensor a, b;
        struct found found;
        node_begin(&node, "MatMul", 1);
        tensor_make(&a, ND_DTYPE_U8, (struct nd_shape){2, {1, 2}}, -1);
        tensor_make(&b, ND_DTYPE_I8, (struct nd_shape){2, {2, 1}}, -1);
        a.qvalues.x[0] = 210;
        a.qvalues.x[1] = 198;
        b.qvalues.x[0] = weights[i];
        b.qvalues.x[1] = -80;
        a.zero_points[0] = b.zero_points[0] = 0;
        a.scales[0] = b.scales[0] = 1;
        layer_begin(&layer, &node, 13);
        layer_add(&layer, &a);
        layer_add(&layer, &b);
        layer.out_scales[0] = 2;
        find(&layer, ND_DTYPE_I16, &found);
        assert_true(found.qvalues[0].x[0] == expected[i]);
        found_free(&found);
        tensor_free(&a);
        tensor_free(&b);
    }
}

/* 16 bit quantised values have no such kernel, Mul has no sums. */
static void other_units_have_none(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct node node;
        struct layer_case layer;
        struct tensor a, b;
        struct found found;
        node_begin(&node, i == 0 ? "MatMul" : "Mul", 1);
        tensor_make(&a, i == 0 ? ND_DTYPE_U16 : ND_DTYPE_U8, (struct nd_shape){2, {4, 4}}, -1);
        tensor_make(&b, ND_DTYPE_I8, (struct nd_shape){2, {4, 4}}, -1);
        layer_begin(&layer, &node, 13);
        layer_add(&layer, &a);
        layer_add(&layer, &b);
        find(&layer, ND_DTYPE_U8, &found);
        for (size_t s = 0; s < ND_N_PAIR_SUMS; s++)
            assert_null(found.qvalues[s].x);
        found_free(&found);
        tensor_free(&a);
        tensor_free(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_those_of_kernels),
        cmocka_unit_test(the_pair_of_the_issue_saturates),
        cmocka_unit_test(other_units_have_none),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
