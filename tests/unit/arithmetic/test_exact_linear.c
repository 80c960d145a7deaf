/* The exact value before rounding of products and means, held against integer and rational arithmetic written
 * out. */
#include "support/main.h"

#include "support/linear_case.h"

static const enum nd_dtype activation_types[] = {ND_DTYPE_U8, ND_DTYPE_I8, ND_DTYPE_U16, ND_DTYPE_I16};
static const enum nd_dtype weight_types[] = {ND_DTYPE_U8, ND_DTYPE_I8,  ND_DTYPE_U4,
                                             ND_DTYPE_I4, ND_DTYPE_U16, ND_DTYPE_I16};

static enum nd_dtype random_activation(void)
{
    return activation_types[pick(0, 3)];
}

static enum nd_dtype random_weight(void)
{
    return weight_types[pick(0, 5)];
}

/* A convolution of up to three axes; those that it has not are of length 1. */
struct conv {
    int n_axes;
    int64_t n, groups, in_channels, out_channels; /* channels of one group */
    int64_t in[3], out[3], kernel[3], stride[3], dilation[3], pad_begin[3], pad_end[3], extra[3];
    int64_t pads[6];
    bool has_bias;
};

static struct conv random_conv(void)
{
    struct conv conv = {.n_axes = (int)pick(1, 3), .n = pick(1, 2), .groups = pick(1, 3)};
    conv.in_channels = pick(1, 3);
    conv.out_channels = pick(1, 3);
    if (pick(0, 3) == 0) /* depthwise */
        conv.in_channels = conv.out_channels = 1;
    conv.has_bias = pick(0, 3) != 0;
    for (int a = 0; a < 3; a++) {
        bool is_used = a < conv.n_axes;
        conv.kernel[a] = is_used ? pick(1, 3) : 1;
        conv.stride[a] = is_used ? pick(1, 3) : 1;
        conv.dilation[a] = is_used ? pick(1, 2) : 1;
        conv.in[a] = is_used ? pick(1, 6) : 1;
        conv.pad_begin[a] = is_used ? pick(0, 2) : 0;
        conv.pad_end[a] = is_used ? pick(0, 2) : 0;
        int64_t reach = (conv.kernel[a] - 1) * conv.dilation[a] + 1;
        if (conv.in[a] + conv.pad_begin[a] + conv.pad_end[a] < reach)
            conv.in[a] = reach;
        conv.out[a] = (conv.in[a] + conv.pad_begin[a] + conv.pad_end[a] - reach) / conv.stride[a] + 1;
        if (is_used) {
            conv.pads[a] = conv.pad_begin[a];
            conv.pads[a + conv.n_axes] = conv.pad_end[a];
        }
    }
    return conv;
}

static void conv_node(struct conv *conv, const char *op_type, struct node *node)
{
    size_t n = (size_t)conv->n_axes;
    node_begin(node, op_type, 1);
    node_int(node, "group", conv->groups);
    node_ints(node, "strides", conv->stride, n);
    node_ints(node, "dilations", conv->dilation, n);
    node_ints(node, "pads", conv->pads, 2 * n);
}

static struct nd_shape spatial_shape(const struct conv *conv, int64_t n, int64_t channels, const int64_t *dims)
{
    struct nd_shape shape = {.rank = 2 + conv->n_axes, .dims = {n, channels}};
    for (int a = 0; a < conv->n_axes; a++)
        shape.dims[2 + a] = dims[a];
    return shape;
}

static size_t flat(const int64_t *dims, const int64_t *at)
{
    return (size_t)((at[0] * dims[1] + at[1]) * dims[2] + at[2]);
}

static int64_t product3(const int64_t *dims)
{
    return dims[0] * dims[1] * dims[2];
}

/* Steps to the next index; false after the last. */
static bool step3(const int64_t *dims, int64_t *at)
{
    for (int a = 2; a >= 0; a--) {
        if (++at[a] < dims[a])
            return true;
        at[a] = 0;
    }
    return false;
}

/* The sum at one place of the output of channel m (of all groups). */
static __int128 conv_sum(const struct conv *conv, const struct tensor *x, const struct tensor *w, int64_t n,
                         int64_t m, const int64_t *o)
{
    __int128 sum = 0;
    int64_t group = m / conv->out_channels;
    for (int64_t c = 0; c < conv->in_channels; c++) {
        int64_t k[3] = {0}, plane = (n * conv->groups + group) * conv->in_channels + c;
        do {
            int64_t i[3];
            bool is_inside = true;
            for (int a = 0; a < 3; a++) {
                i[a] = o[a] * conv->stride[a] + k[a] * conv->dilation[a] - conv->pad_begin[a];
                is_inside = is_inside && i[a] >= 0 && i[a] < conv->in[a];
            }
            size_t tap = (size_t)((m * conv->in_channels + c) * product3(conv->kernel)) + flat(conv->kernel, k);
            if (is_inside)
                sum += (__int128)x->whole[(size_t)(plane * product3(conv->in)) + flat(conv->in, i)] *
                       w->whole[tap];
        } while (step3(conv->kernel, k));
    }
    return sum;
}

/* sum * s_x * s_w + bias */
static struct rational product_real(__int128 sum, const struct tensor *x, const struct tensor *w,
                                    size_t channel, const struct tensor *bias)
{
    struct rational real =
        rational_mul(rational_of(sum, 1), rational_mul(tensor_scale(x, 0), tensor_scale(w, channel)));
    return bias != NULL ? rational_add(real, tensor_real(bias, channel)) : real;
}

/* Most models give the bias the scale s_x s_w, rounded to float, and quantised values to match. */
static void make_bias(struct tensor *bias, const struct tensor *x, const struct tensor *w, int64_t n)
{
    tensor_make(bias, ND_DTYPE_I32, shape_of(1, &n), w->quant.n > 1 || pick(0, 1) == 0 ? 0 : -1);
    for (size_t c = 0; c < bias->quant.n && pick(0, 3) != 0; c++)
        bias->scales[c] = x->scales[0] * w->scales[w->quant.n == 1 ? 0 : c % w->quant.n];
}

static size_t check_conv(void)
{
    struct conv conv = random_conv();
    struct node node;
    struct layer_case layer;
    struct tensor x, w, bias = {0};
    int64_t channels = conv.groups * conv.out_channels, n = 0;
    conv_node(&conv, "Conv", &node);
    tensor_make(&x, random_activation(), spatial_shape(&conv, conv.n, conv.groups * conv.in_channels, conv.in),
                -1);
    tensor_make(&w, random_weight(), spatial_shape(&conv, channels, conv.in_channels, conv.kernel),
                pick(0, 1) == 0 ? 0 : -1);
    make_bias(&bias, &x, &w, channels);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    layer_add(&layer, &w);
    if (conv.has_bias)
        layer_add(&layer, &bias);
    struct nd_shape shape = spatial_shape(&conv, conv.n, channels, conv.out);
    if (pick(0, 3) == 0)
        unit_scale_output(&layer, &shape, 1);
    layer_bound(&layer);
    layer_run(&layer);
    layer_shape_is(&layer, shape);
    for (size_t i = 0; n < conv.n; n++)
        for (int64_t m = 0; m < channels; m++) {
            int64_t o[3] = {0};
            do
                layer_check(&layer, i++,
                            product_real(conv_sum(&conv, &x, &w, n, m, o), &x, &w, (size_t)m,
                                         conv.has_bias ? &bias : NULL));
            while (step3(conv.out, o));
        }
    layer_end(&layer);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&bias);
    return layer.n_ties;
}

static void conv_is_exact(void **state)
{
    (void)state;
    size_t n_ties = 0;
    for (int i = 0; i < 300; i++)
        n_ties += check_conv();
    assert_true(n_ties > 10);
}

/* What the transpose adds to each place of its output: sums[n][channel][out]. */
static __int128 *transposed_sums(const struct conv *conv, const struct tensor *x, const struct tensor *w)
{
    int64_t channels = conv->groups * conv->out_channels, in_channels = conv->groups * conv->in_channels;
    __int128 *sums = calloc((size_t)(conv->n * channels * product3(conv->out)), sizeof *sums);
    assert_non_null(sums);
    for (int64_t n = 0; n < conv->n; n++)
        for (int64_t c = 0; c < in_channels; c++)
            for (int64_t m = 0; m < conv->out_channels; m++) {
                int64_t i[3] = {0}, to = n * channels + c / conv->in_channels * conv->out_channels + m;
                do {
                    int64_t k[3] = {0}, o[3];
                    do {
                        bool is_inside = true;
                        for (int a = 0; a < 3; a++) {
                            o[a] = i[a] * conv->stride[a] + k[a] * conv->dilation[a] - conv->pad_begin[a];
                            is_inside = is_inside && o[a] >= 0 && o[a] < conv->out[a];
                        }
                        if (is_inside)
                            sums[(size_t)(to * product3(conv->out)) + flat(conv->out, o)] +=
                                (__int128)x->whole[(size_t)((n * in_channels + c) * product3(conv->in)) +
                                                   flat(conv->in, i)] *
                                w->whole[(size_t)((c * conv->out_channels + m) * product3(conv->kernel)) +
                                         flat(conv->kernel, k)];
                    } while (step3(conv->kernel, k));
                } while (step3(conv->in, i));
            }
    return sums;
}

static void check_conv_transpose(void)
{
    struct conv conv = random_conv();
    struct node node;
    struct layer_case layer;
    struct tensor x, w, bias = {0};
    int64_t channels = conv.groups * conv.out_channels;
    conv_node(&conv, "ConvTranspose", &node);
    for (int a = 0; a < conv.n_axes; a++)
        conv.extra[a] = pick(0, conv.stride[a] - 1);
    node_ints(&node, "output_padding", conv.extra, (size_t)conv.n_axes);
    for (int a = 0; a < 3; a++) {
        conv.out[a] = (conv.in[a] - 1) * conv.stride[a] + (conv.kernel[a] - 1) * conv.dilation[a] + 1 +
                      conv.extra[a] - conv.pad_begin[a] - conv.pad_end[a];
        if (conv.out[a] < 1)
            return;
    }
    tensor_make(&x, random_activation(), spatial_shape(&conv, conv.n, conv.groups * conv.in_channels, conv.in),
                -1);
    tensor_make(&w, random_weight(),
                spatial_shape(&conv, conv.groups * conv.in_channels, conv.out_channels, conv.kernel),
                pick(0, 1) == 0 ? 1 : -1);
    make_bias(&bias, &x, &w, channels);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    layer_add(&layer, &w);
    if (conv.has_bias)
        layer_add(&layer, &bias);
    layer_run(&layer);
    layer_shape_is(&layer, spatial_shape(&conv, conv.n, channels, conv.out));
    __int128 *sums = transposed_sums(&conv, &x, &w);
    for (size_t i = 0; i < layer.result.n; i++) {
        size_t m = i / (size_t)product3(conv.out) % (size_t)channels;
        struct rational real = product_real(sums[i], &x, &w, m % (size_t)conv.out_channels, NULL);
        layer_check(&layer, i, conv.has_bias ? rational_add(real, tensor_real(&bias, m)) : real);
    }
    free(sums);
    layer_end(&layer);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&bias);
}

static void conv_transpose_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        check_conv_transpose();
}

static void check_gemm(void)
{
    struct node node;
    struct layer_case layer;
    struct tensor a, b, c;
    int64_t rows = pick(1, 5), inner = pick(1, 9), columns = pick(1, 6);
    bool flips_a = pick(0, 1) == 0, flips_b = pick(0, 1) == 0;
    float alpha = pick(0, 1) == 0 ? 1 : (float)pick(1, 255) / 64,
          beta = pick(0, 1) == 0 ? 1 : (float)pick(-255, 255) / 64;
    struct nd_shape shape_a = {2, {flips_a ? inner : rows, flips_a ? rows : inner}};
    struct nd_shape shape_b = {2, {flips_b ? columns : inner, flips_b ? inner : columns}};
    const struct nd_shape shapes_c[] = {
        {0, {0}}, {1, {columns}}, {2, {rows, columns}}, {2, {rows, 1}}, {1, {1}}};
    size_t kind = (size_t)pick(0, 5);
    node_begin(&node, "Gemm", 1);
    node_int(&node, "transA", flips_a);
    node_int(&node, "transB", flips_b);
    node_float(&node, "alpha", alpha);
    node_float(&node, "beta", beta);
    tensor_make(&a, random_activation(), shape_a, -1);
    tensor_make(&b, random_weight(), shape_b, pick(0, 1) == 0 ? (flips_b ? 0 : 1) : -1);
    tensor_make(&c, ND_DTYPE_I32, shapes_c[kind % 5], kind == 1 ? 0 : -1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &a);
    layer_add(&layer, &b);
    if (kind < 5)
        layer_add(&layer, &c);
    layer_bound(&layer);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){2, {rows, columns}});
    for (int64_t r = 0; r < rows; r++)
        for (int64_t m = 0; m < columns; m++) {
            __int128 sum = 0;
            for (int64_t k = 0; k < inner; k++)
                sum += (__int128)a.whole[flips_a ? k * rows + r : r * inner + k] *
                       b.whole[flips_b ? m * inner + k : k * columns + m];
            struct rational real = product_real(sum, &a, &b, (size_t)m, NULL);
            real = rational_mul(real, rational_of_double((double)alpha));
            int64_t at[] = {0, m, r * columns + m, r, 0};
            if (kind < 5)
                real = rational_add(
                    real, rational_mul(rational_of_double((double)beta), tensor_real(&c, (size_t)at[kind])));
            layer_check(&layer, (size_t)(r * columns + m), real);
        }
    layer_end(&layer);
    tensor_free(&a);
    tensor_free(&b);
    tensor_free(&c);
}

static void gemm_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        check_gemm();
}

/* Batches of the left operand 2 x 3, of the right one 2 x 3, 3, 1 x 3 or none. */
static void check_matmul(void)
{
    struct node node;
    struct layer_case layer;
    struct tensor a, b;
    int64_t rows = pick(1, 4), inner = pick(1, 9), columns = pick(1, 5), kind = pick(0, 3);
    const struct nd_shape shapes_b[] = {{4, {2, 3, inner, columns}},
                                        {3, {3, inner, columns}},
                                        {4, {1, 3, inner, columns}},
                                        {2, {inner, columns}}};
    struct nd_shape shape_b = shapes_b[kind];
    node_begin(&node, "MatMul", 1);
    tensor_make(&a, random_activation(), (struct nd_shape){4, {2, 3, rows, inner}}, -1);
    tensor_make(&b, random_weight(), shape_b, pick(0, 1) == 0 ? shape_b.rank - 1 : -1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &a);
    layer_add(&layer, &b);
    layer_bound(&layer);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){4, {2, 3, rows, columns}});
    for (int64_t i = 0; i < 6 * rows * columns; i++) {
        int64_t m = i % columns, r = i / columns % rows, batch = i / columns / rows;
        int64_t batch_b = kind == 0 ? batch : kind == 3 ? 0 : batch % 3;
        __int128 sum = 0;
        for (int64_t k = 0; k < inner; k++)
            sum += (__int128)a.whole[(batch * rows + r) * inner + k] *
                   b.whole[(batch_b * inner + k) * columns + m];
        layer_check(&layer, (size_t)i, product_real(sum, &a, &b, (size_t)m, NULL));
    }
    layer_end(&layer);
    tensor_free(&a);
    tensor_free(&b);
}

static void matmul_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++)
        check_matmul();
}

static void matmul_of_vectors_is_exact(void **state)
{
    (void)state;
    struct node node;
    struct layer_case layer;
    struct tensor a, b;
    node_begin(&node, "MatMul", 1);
    tensor_make(&a, ND_DTYPE_U8, (struct nd_shape){1, {7}}, -1);
    tensor_make(&b, ND_DTYPE_I8, (struct nd_shape){1, {7}}, -1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &a);
    layer_add(&layer, &b);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){0});
    __int128 sum = 0;
    for (size_t k = 0; k < 7; k++)
        sum += a.whole[k] * b.whole[k];
    layer_check(&layer, 0, product_real(sum, &a, &b, 0, NULL));
    layer_end(&layer);
    tensor_free(&a);
    tensor_free(&b);
}

/* All quantised values at their extremes: what saturates 16-bit pairs, or passes 32 bits and 2^52, is exact
 * here. */
static void extreme_qvalues_are_exact(void **state)
{
    (void)state;
    static const struct {
        enum nd_dtype x_type, w_type;
        int64_t x, w, n;
    } cases[] = {
        {ND_DTYPE_U8, ND_DTYPE_I8, 255, 127, 4000},      {ND_DTYPE_U8, ND_DTYPE_I8, 255, -128, 4000},
        {ND_DTYPE_U16, ND_DTYPE_I8, 65535, -128, 4000},  {ND_DTYPE_U16, ND_DTYPE_U16, 65535, 65535, 4001},
        {ND_DTYPE_I16, ND_DTYPE_I16, -32768, -32768, 3}, {ND_DTYPE_U16, ND_DTYPE_U16, 65535, 65535, 1 << 20},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct node node;
        struct layer_case layer;
        struct tensor a, b;
        int64_t n = cases[i].n;
        node_begin(&node, "MatMul", 1);
        tensor_make(&a, cases[i].x_type, (struct nd_shape){2, {1, n}}, -1);
        tensor_make(&b, cases[i].w_type, (struct nd_shape){2, {n, 1}}, -1);
        a.zero_points[0] = b.zero_points[0] = 0;
        for (int64_t k = 0; k < n; k++) {
            a.qvalues.x[k] = (double)cases[i].x;
            b.qvalues.x[k] = (double)cases[i].w;
        }
        layer_begin(&layer, &node, 13);
        layer_add(&layer, &a);
        layer_add(&layer, &b);
        layer_run(&layer);
        layer_check(&layer, 0, product_real((__int128)cases[i].x * cases[i].w * n, &a, &b, 0, NULL));
        layer_end(&layer);
        tensor_free(&a);
        tensor_free(&b);
    }
}

static void check_average_pool(void)
{
    struct conv conv = random_conv();
    struct node node;
    struct layer_case layer;
    struct tensor x;
    bool counts_padding = pick(0, 1) == 0;
    size_t n_axes = (size_t)conv.n_axes;
    for (int a = 0; a < 3; a++)
        if (conv.pad_begin[a] >= conv.kernel[a] || conv.pad_end[a] >= conv.kernel[a] || conv.dilation[a] > 1)
            return;
    node_begin(&node, "AveragePool", 1);
    node_ints(&node, "kernel_shape", conv.kernel, n_axes);
    node_ints(&node, "strides", conv.stride, n_axes);
    node_ints(&node, "pads", conv.pads, 2 * n_axes);
    node_int(&node, "count_include_pad", counts_padding);
    tensor_make(&x, random_activation(), spatial_shape(&conv, conv.n, conv.in_channels, conv.in), -1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    layer_bound(&layer);
    layer_run(&layer);
    layer_shape_is(&layer, spatial_shape(&conv, conv.n, conv.in_channels, conv.out));
    for (size_t i = 0; i < layer.result.n; i++) {
        size_t n_out = (size_t)product3(conv.out), plane = i / n_out, place = i % n_out;
        int64_t o[3] = {(int64_t)place / (conv.out[1] * conv.out[2]),
                        (int64_t)place / conv.out[2] % conv.out[1], (int64_t)place % conv.out[2]};
        int64_t k[3] = {0}, count = 0;
        __int128 sum = 0;
        do {
            int64_t at[3];
            bool is_inside = true;
            for (int a = 0; a < 3; a++) {
                at[a] = o[a] * conv.stride[a] + k[a] - conv.pad_begin[a];
                is_inside = is_inside && at[a] >= 0 && at[a] < conv.in[a];
            }
            count += is_inside || counts_padding;
            if (is_inside)
                sum += x.whole[plane * (size_t)product3(conv.in) + flat(conv.in, at)];
        } while (step3(conv.kernel, k));
        layer_check(&layer, i, rational_mul(rational_of(sum, count), tensor_scale(&x, 0)));
    }
    layer_end(&layer);
    tensor_free(&x);
}

static void average_pool_is_exact(void **state)
{
    (void)state;
    for (int i = 0; i < 1000; i++)
        check_average_pool();
}

/* The last two axes of four, by each operator that can. */
static void check_mean(const char *op_type, int64_t opset, bool has_attribute, bool divides)
{
    struct node node;
    struct layer_case layer;
    struct tensor x;
    struct nd_array axes = {0};
    int64_t n = pick(1, 3), channels = pick(1, 4), height = pick(1, 7), width = pick(1, 7),
            axes_list[] = {2, -1};
    int64_t n_axes = 2;
    struct nd_shape axes_shape = shape_of(1, &n_axes);
    node_begin(&node, op_type, 1);
    tensor_make(&x, random_activation(), (struct nd_shape){4, {n, channels, height, width}}, -1);
    layer_begin(&layer, &node, opset);
    layer_add(&layer, &x);
    if (has_attribute)
        node_ints(&node, "axes", axes_list, 2);
    else if (op_type[0] != 'G') {
        assert_int_equal(nd_array_make(&axes, ND_DTYPE_I64, &axes_shape, NULL), ND_OK);
        axes.x[0] = 2;
        axes.x[1] = -1;
        unit_add_real(&layer, &axes);
    }
    layer_bound(&layer);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){4, {n, channels, 1, 1}});
    for (int64_t i = 0; i < n * channels; i++) {
        __int128 sum = 0;
        for (int64_t k = 0; k < height * width; k++)
            sum += x.whole[i * height * width + k];
        layer_check(&layer, (size_t)i,
                    rational_mul(rational_of(sum, divides ? height * width : 1), tensor_scale(&x, 0)));
    }
    layer_end(&layer);
    nd_array_deinit(&axes);
    tensor_free(&x);
}

static void means_and_sums_are_exact(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        check_mean("GlobalAveragePool", 13, false, true);
        check_mean("ReduceMean", 13, true, true);
        check_mean("ReduceMean", 18, false, true);
        check_mean("ReduceSum", 11, true, false);
        check_mean("ReduceSum", 13, false, false);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(conv_is_exact),
        cmocka_unit_test(conv_transpose_is_exact),
        cmocka_unit_test(gemm_is_exact),
        cmocka_unit_test(matmul_is_exact),
        cmocka_unit_test(matmul_of_vectors_is_exact),
        cmocka_unit_test(extreme_qvalues_are_exact),
        cmocka_unit_test(average_pool_is_exact),
        cmocka_unit_test(means_and_sums_are_exact),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
