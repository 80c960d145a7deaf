/* Many values at once, held against one after the other: products in blocks, values as near doubles, quantised
 * values counted by cells, packing, and sorting. */
#include "support/main.h"

#include "arithmetic/exact/linear/quick.h"
#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "arithmetic/operators/ops.h"
#include "core/statistics/series.h"
#include "explain/evaluate/packed.h"
#include "explain/evaluate/qvalue_tally.h"
#include "support/linear_case.h"

/* ---- products in blocks ---- */

static double random_real(void)
{
    return ldexp((double)pick(-(1 << 20), 1 << 20), (int)pick(-30, 3));
}

static void fill(double *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = random_real();
}

static void every_instruction_set_adds_in_the_same_order(void **state)
{
    (void)state;
    enum { MOST = 70 };
    static double a[MOST * MOST], b[MOST * MOST], c[MOST * MOST], wanted[MOST * MOST];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    assert_true(n_kernels >= 1);
    for (int round = 0; round < 60; round++) {
        struct nd_gemm g = {.n = (size_t)pick(1, 11), .n_k = (size_t)pick(0, 40), .m = (size_t)pick(1, MOST)};
        g.a_row = g.n_k + (size_t)pick(0, 2);
        g.b_row = g.c_row = g.m;
        fill(a, MOST * MOST);
        fill(b, MOST * MOST);
        for (size_t k = 0; k < n_kernels; k++) {
            for (size_t i = 0; i < MOST * MOST; i++)
                c[i] = wanted[i] = (double)i;
            for (size_t i = 0; i < g.n; i++)
                for (size_t j = 0; j < g.m; j++)
                    for (size_t t = 0; t < g.n_k; t++)
                        wanted[i * g.c_row + j] += a[i * g.a_row + t] * b[t * g.b_row + j];
            g.a = a;
            g.b = b;
            g.c = c;
            kernels[k]->add(&g);
            if (memcmp(c, wanted, sizeof c) != 0)
                fail_msg("%s: %zu x %zu x %zu", kernels[k]->name, g.n, g.n_k, g.m);
        }
    }
}

struct conv {
    int64_t groups, n_in, n_out, in[2], out[2], kernel[2], stride[2], dilation[2], pads[4];
};

/* Some with more taps and positions than one block has. */
static struct conv random_conv(void)
{
    bool is_depthwise = pick(0, 2) == 0, is_long = pick(0, 3) == 0;
    struct conv v = {.groups = pick(1, 4),
                     .n_in = is_depthwise ? 1 : pick(1, is_long ? 40 : 6),
                     .n_out = is_depthwise ? 1 : pick(1, 9)};
    bool is_pointwise = pick(0, 4) == 0;
    for (int a = 0; a < 2; a++) {
        v.kernel[a] = is_pointwise ? 1 : pick(1, 4);
        v.stride[a] = is_pointwise && pick(0, 1) == 0 ? 1 : pick(1, 3);
        v.dilation[a] = pick(1, 2);
        v.pads[a] = is_pointwise ? 0 : pick(-1, 3);
        v.pads[a + 2] = is_pointwise ? 0 : pick(-1, 3);
        int64_t reach = (v.kernel[a] - 1) * v.dilation[a] + 1;
        v.in[a] = reach + 2 + pick(0, 16);
        v.out[a] = (v.in[a] + v.pads[a] + v.pads[a + 2] - reach) / v.stride[a] + 1;
    }
    return v;
}

static void conv_node(struct conv *v, struct node *node)
{
    node_begin(node, "Conv", 1);
    node_int(node, "group", v->groups);
    node_ints(node, "strides", v->stride, 2);
    node_ints(node, "dilations", v->dilation, 2);
    node_ints(node, "pads", v->pads, 4);
}

static struct nd_shape shape4(int64_t a, int64_t b, int64_t c, int64_t d)
{
    return (struct nd_shape){.rank = 4, .dims = {a, b, c, d}};
}

/* One output, in order of channels and taps; those in the padding are left out. */
static double sum_at(const struct conv *v, const double *x, const double *w, int64_t channel, int64_t row,
                     int64_t column)
{
    double sum = 0;
    for (int64_t c = 0; c < v->n_in; c++)
        for (int64_t kh = 0; kh < v->kernel[0]; kh++)
            for (int64_t kw = 0; kw < v->kernel[1]; kw++) {
                int64_t h = row * v->stride[0] + kh * v->dilation[0] - v->pads[0];
                int64_t l = column * v->stride[1] + kw * v->dilation[1] - v->pads[1];
                if (h < 0 || h >= v->in[0] || l < 0 || l >= v->in[1])
                    continue;
                int64_t plane = channel / v->n_out * v->n_in + c;
                sum += w[((channel * v->n_in + c) * v->kernel[0] + kh) * v->kernel[1] + kw] *
                       x[(plane * v->in[0] + h) * v->in[1] + l];
            }
    return sum;
}

static void convolutions_in_blocks_have_the_bits_of_plain_ones(void **state)
{
    (void)state;
    for (int round = 0; round < 80; round++) {
        struct conv v = random_conv();
        struct node node;
        struct nd_array x = {0}, w = {0}, y = {0}, *outputs[] = {&y};
        const struct nd_array *inputs[] = {&x, &w};
        struct nd_shape of_x = shape4(2, v.groups * v.n_in, v.in[0], v.in[1]);
        struct nd_shape of_w = shape4(v.groups * v.n_out, v.n_in, v.kernel[0], v.kernel[1]);
        conv_node(&v, &node);
        assert_int_equal(nd_array_make(&x, ND_DTYPE_F32, &of_x, NULL), ND_OK);
        assert_int_equal(nd_array_make(&w, ND_DTYPE_F32, &of_w, NULL), ND_OK);
        fill(x.x, x.n);
        fill(w.x, w.n);
        const struct nd_op_call call = {.node = &node.proto,
                                        .opset = 21,
                                        .n_inputs = 2,
                                        .n_outputs = 1,
                                        .inputs = inputs,
                                        .outputs = outputs};
        assert_int_equal(nd_op_run(&call, NULL), ND_OK);
        size_t at = 0;
        for (int64_t n = 0; n < 2; n++)
            for (int64_t c = 0; c < v.groups * v.n_out; c++)
                for (int64_t h = 0; h < v.out[0]; h++)
                    for (int64_t l = 0; l < v.out[1]; l++, at++) {
                        double wanted = sum_at(&v, x.x + n * (int64_t)(x.n / 2), w.x, c, h, l);
                        if (memcmp(&wanted, &y.x[at], sizeof wanted) != 0)
                            fail_msg("round %d, element %zu: %.17g, not %.17g", round, at, y.x[at], wanted);
                    }
        assert_int_equal(at, y.n);
        nd_array_deinit(&x);
        nd_array_deinit(&w);
        nd_array_deinit(&y);
    }
}

/* ---- near values ---- */

static enum nd_dtype random_type(void)
{
    static const enum nd_dtype types[] = {ND_DTYPE_U8, ND_DTYPE_U16, ND_DTYPE_I8, ND_DTYPE_I16};
    return types[pick(0, 3)];
}

/* What a device may have there: mostly the nearest quantised value, else one beside it, or any. */
static double random_given(double qvalue, double low, double high)
{
    int64_t kind = pick(0, 9);
    double given = kind < 6   ? qvalue
                   : kind < 9 ? qvalue + (double)pick(-3, 3)
                              : (double)pick((int64_t)low, (int64_t)high);
    return fmin(fmax(given, low), high);
}

struct counts {
    uint64_t n, n_quick, n_exact;
};

static void compare_values(const struct nd_quick *quick, const struct nd_linear_result *plain, double zero,
                           enum nd_dtype dtype, struct counts *counts)
{
    double low, high, *qvalues = calloc(plain->n, sizeof *qvalues), *near = calloc(plain->n, sizeof *near);
    nd_qvalue_range(dtype, &low, &high);
    nd_quick_round(quick, zero, low, high, qvalues);
    nd_quick_near(quick, 0, plain->n, near);
    for (size_t i = 0; i < plain->n; i++) {
        struct nd_ratio v = nd_quick_exact(quick, i);
        double value = nd_ratio_value(&plain->v[i]);
        assert_memory_equal(&v, &plain->v[i], sizeof v);
        bool is_near = fabs(near[i]) < ND_QUICK_LARGEST;
        if (is_near && !(fabs(near[i] - value) < ND_QUICK_DOUBT))
            fail_msg("element %zu: %.17g is not near %.17g", i, near[i], value);
        counts->n_exact += !is_near;
        double wanted = nd_qvalue_of_ratio(&plain->v[i], zero, dtype, ND_ROUND_HALF_EVEN);
        if (qvalues[i] != wanted)
            fail_msg("element %zu: %g, not %g, of %.17g", i, qvalues[i], wanted, value);
    }
    counts->n_quick++;
    free(qvalues);
    free(near);
}

static void compare_tallies(const struct nd_quick *quick, const struct nd_linear_result *plain,
                            const struct nd_quant *quant, enum nd_dtype dtype)
{
    double low, high, *given = calloc(plain->n, sizeof *given);
    nd_qvalue_range(dtype, &low, &high);
    for (size_t i = 0; i < plain->n; i++)
        given[i] = random_given(
            nd_qvalue_of_ratio(&plain->v[i], (double)quant->zero_point[0], dtype, ND_ROUND_HALF_EVEN), low,
            high);
    struct nd_exact_values values = {
        .shape = &plain->shape, .n = plain->n, .v = plain->v, .quant = quant, .dtype = dtype};
    struct nd_qvalue_tally one_by_one = {0}, at_once = {0};
    nd_qvalue_tally_add(&one_by_one, &values, given);
    values.v = NULL;
    values.quick = quick;
    nd_qvalue_tally_add(&at_once, &values, given);
    assert_int_equal(at_once.n_open, one_by_one.n_open);
    assert_int_equal(at_once.all_wrong, one_by_one.all_wrong);
    size_t n;
    char name[ND_ROUNDING_RULE_NAME_BYTES];
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t p = 0; p < n; p++)
        if (at_once.wrong[p] != one_by_one.wrong[p] || at_once.far[p] != one_by_one.far[p])
            fail_msg("%s: %llu and %llu, not %llu and %llu", nd_rounding_rule_name(&arithmetics[p], name),
                     (unsigned long long)at_once.wrong[p], (unsigned long long)at_once.far[p],
                     (unsigned long long)one_by_one.wrong[p], (unsigned long long)one_by_one.far[p]);
    free(given);
}

/* The scale that brings the values into the range of the quantised values, so that most are neither clipped nor
 * equal; or any scale. */
static void choose_scale(struct layer_case *layer, enum nd_dtype dtype)
{
    double low, high, largest = 0;
    layer->out_scales[0] = 1;
    layer_run(layer);
    for (size_t i = 0; i < layer->result.n; i++) {
        double size = fabs(nd_ratio_value(&layer->result.v[i]));
        largest = size < HUGE_VAL ? fmax(largest, size) : largest; /* not of what is divided by zero */
    }
    nd_linear_deinit(&layer->result);
    nd_qvalue_range(dtype, &low, &high);
    int64_t kind = pick(0, 3);
    layer->out_scales[0] =
        kind == 0 ? random_scale() : (float)fmax(largest / (high - low) * (kind == 1 ? 1.7 : 0.8), 0x1p-60);
}

static void check_layer(struct layer_case *layer, struct counts *counts)
{
    enum nd_dtype dtype = random_type();
    struct nd_linear_result quick;
    choose_scale(layer, dtype);
    layer_bound(layer);
    layer->out_zero_points[0] = pick(0, 1) == 0 ? 0 : (int64_t)random_qvalue(dtype);
    layer_run(layer);
    counts->n += layer->result.n;
    assert_int_equal(nd_linear_layer_quick(&layer->call, &quick, NULL), ND_OK);
    if (quick.quick != NULL) {
        compare_values(quick.quick, &layer->result, (double)layer->out_zero_points[0], dtype, counts);
        compare_tallies(quick.quick, &layer->result, &layer->out_quant, dtype);
    }
    nd_linear_deinit(&quick);
    layer_end(layer);
}

static void check_conv(struct counts *counts)
{
    static const enum nd_dtype weight_types[] = {ND_DTYPE_U8, ND_DTYPE_I8, ND_DTYPE_U16, ND_DTYPE_U4,
                                                 ND_DTYPE_I4};
    struct conv v = random_conv();
    struct node node;
    struct tensor x, w, bias;
    struct layer_case layer;
    const int64_t n_out = v.groups * v.n_out;
    const struct nd_shape of_bias = {.rank = 1, .dims = {n_out}};
    bool is_per_channel = pick(0, 1) == 0 && n_out <= MAX_SCALES, has_bias = pick(0, 2) != 0;
    conv_node(&v, &node);
    tensor_make(&x, random_type(), shape4(1, v.groups * v.n_in, v.in[0], v.in[1]), -1);
    tensor_make(&w, weight_types[pick(0, 4)], shape4(n_out, v.n_in, v.kernel[0], v.kernel[1]),
                is_per_channel ? 0 : -1);
    tensor_make(&bias, ND_DTYPE_I32, of_bias, -1);
    for (size_t i = 0; i < bias.qvalues.n; i++)
        bias.qvalues.x[i] = (double)pick(-100000, 100000);
    bias.scales[0] = (float)((double)x.scales[0] * (double)w.scales[0]);
    layer_begin(&layer, &node, 21);
    layer_add(&layer, &x);
    layer_add(&layer, &w);
    if (has_bias)
        layer_add(&layer, &bias);
    check_layer(&layer, counts);
    tensor_free(&x);
    tensor_free(&w);
    tensor_free(&bias);
}

static void check_elements(struct counts *counts)
{
    static const char *const op_types[] = {"Add",  "Sub",       "Mul",      "Div",
                                           "Relu", "HardSwish", "Identity", "ReduceMean"};
    size_t op = (size_t)pick(0, 7);
    struct node node;
    struct tensor a, b;
    struct layer_case layer;
    const struct nd_shape shape = {.rank = 2, .dims = {pick(1, 40), pick(1, 70)}};
    bool is_number = pick(0, 3) == 0, is_swapped = pick(0, 1) == 0;
    const struct nd_shape other = {
        .rank = 2, .dims = {is_number || pick(0, 1) == 0 ? 1 : shape.dims[0], is_number ? 1 : shape.dims[1]}};
    enum nd_dtype dtype = random_type();
    node_begin(&node, op_types[op], 1);
    tensor_make(&a, dtype, op < 4 && is_swapped ? other : shape, -1);
    tensor_make(&b, dtype, is_swapped ? shape : other, -1);
    layer_begin(&layer, &node, op == 7 ? 13 : 21);
    layer_add(&layer, &a);
    if (op < 4)
        layer_add(&layer, &b);
    check_layer(&layer, counts);
    tensor_free(&a);
    tensor_free(&b);
}

static void near_values_decide_what_exact_ones_do(void **state)
{
    (void)state;
    struct counts counts = {0};
    for (int round = 0; round < 400; round++)
        if (pick(0, 1) == 0)
            check_conv(&counts);
        else
            check_elements(&counts);
    print_message("# %llu values, %llu of them not near\n", (unsigned long long)counts.n,
                  (unsigned long long)counts.n_exact);
    assert_true(counts.n_quick > 300); /* it is the quick way that was tested */
    assert_true(counts.n_exact * 4 < counts.n);
}

/* ---- packing ---- */

static void packed_qvalues_come_back(void **state)
{
    (void)state;
    static const enum nd_dtype types[] = {ND_DTYPE_U8,  ND_DTYPE_I8,  ND_DTYPE_U16,
                                          ND_DTYPE_I16, ND_DTYPE_I32, ND_DTYPE_F32};
    struct nd_packed packed = {.bytes = NULL};
    for (int round = 0; round < 200; round++) {
        enum nd_dtype dtype = types[pick(0, 5)];
        struct nd_shape shape = {.rank = 1, .dims = {pick(0, 300)}};
        struct nd_array values = {0}, back = {0};
        bool is_strange = pick(0, 3) == 0; /* no quantised values of the type */
        static const double strange[] = {0.5, -40000, 65536, 1e300, (double)NAN, (double)INFINITY};
        assert_int_equal(nd_array_make(&values, dtype, &shape, NULL), ND_OK);
        assert_int_equal(nd_array_make(&back, dtype, &shape, NULL), ND_OK);
        for (size_t i = 0; i < values.n; i++)
            values.x[i] = dtype == ND_DTYPE_F32 ? random_real() : (double)(int64_t)random_qvalue(dtype);
        if (is_strange && values.n > 0)
            values.x[pick(0, (int64_t)values.n - 1)] = strange[pick(0, 5)];
        assert_int_equal(nd_pack(&values, &packed, NULL), ND_OK);
        assert_true(nd_shape_equal(&packed.tensor_view.shape, &shape) && packed.tensor_view.n == values.n);
        assert_true(is_strange || packed.width == nd_packed_width(dtype));
        nd_unpack(&packed, back.x);
        if (values.n > 0)
            assert_memory_equal(back.x, values.x, values.n * sizeof *values.x);
        nd_array_deinit(&values);
        nd_array_deinit(&back);
    }
    nd_packed_deinit(&packed);
}

/* ---- sorting ---- */

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

static void floats_are_sorted_by_their_bits(void **state)
{
    (void)state;
    enum { MOST = 3000 };
    static float values[MOST], wanted[MOST], scratch[MOST];
    static const float special[] = {0, -0.0F, INFINITY, -INFINITY, 0x1p-149F, -0x1p-149F, 1, -1};
    for (int round = 0; round < 50; round++) {
        size_t n = (size_t)pick(0, MOST);
        for (size_t i = 0; i < n; i++)
            values[i] = wanted[i] = pick(0, 9) == 0 ? special[pick(0, 7)] : (float)random_real();
        nd_series_sort_floats(values, n, scratch);
        qsort(wanted, n, sizeof *wanted, by_value);
        for (size_t i = 0; i < n; i++)
            assert_true(values[i] == wanted[i] && !(values[i] == 0 && signbit(values[i])));
    }
}

static int by_long_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void doubles_are_sorted_as_by_comparing(void **state)
{
    (void)state;
    enum { MOST = 5000 };
    static double values[MOST], wanted[MOST];
    static const double special[] = {0, -0.0, HUGE_VAL, -HUGE_VAL, 0x1p-1074, -0x1p-1074, 0x1.8p1023, 1, -1};
    for (int round = 0; round < 50; round++) {
        size_t n = (size_t)pick(0, MOST);
        double range = round % 2 == 0 ? 1 : 1e300;
        for (size_t i = 0; i < n; i++)
            values[i] = wanted[i] = pick(0, 9) == 0 ? special[pick(0, 8)] : range * random_real();
        nd_series_sort(values, n);
        qsort(wanted, n, sizeof *wanted, by_long_value);
        size_t n_minus = 0, n_wanted = 0;
        for (size_t i = 0; i < n; i++) {
            assert_true(values[i] == wanted[i]);
            n_minus += signbit(values[i]) != 0;
            n_wanted += signbit(wanted[i]) != 0;
        }
        assert_int_equal(n_minus, n_wanted);
    }
}

/* Many at once come from a table, few do not. */
static void small_floats_load_alike_many_at_once(void **state)
{
    (void)state;
    enum { N = 1000 };
    static const enum nd_dtype types[] = {ND_DTYPE_F8E4M3FN, ND_DTYPE_F8E5M2};
    for (size_t t = 0; t < 2; t++) {
        unsigned char bytes[N];
        double values[N], one;
        for (size_t i = 0; i < N; i++)
            bytes[i] = (unsigned char)(i % 256);
        nd_array_load(types[t], bytes, N, values);
        for (size_t i = 0; i < N; i++) {
            nd_array_load(types[t], &bytes[i], 1, &one);
            assert_true(memcmp(&one, &values[i], sizeof one) == 0);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_instruction_set_adds_in_the_same_order),
        cmocka_unit_test(convolutions_in_blocks_have_the_bits_of_plain_ones),
        cmocka_unit_test(near_values_decide_what_exact_ones_do),
        cmocka_unit_test(packed_qvalues_come_back),
        cmocka_unit_test(floats_are_sorted_by_their_bits),
        cmocka_unit_test(doubles_are_sorted_as_by_comparing),
        cmocka_unit_test(small_floats_load_alike_many_at_once),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
