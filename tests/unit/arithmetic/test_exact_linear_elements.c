/* The exact value before rounding of layers that work element by element or move values; bounds; what is
 * refused. */
#include "support/main.h"

#include "support/linear_case.h"

static const enum nd_dtype types[] = {ND_DTYPE_U8,  ND_DTYPE_I8, ND_DTYPE_U16,
                                      ND_DTYPE_I16, ND_DTYPE_U4, ND_DTYPE_I4};

static enum nd_dtype random_type(void)
{
    return types[pick(0, 5)];
}

static const struct nd_shape full = {3, {2, 3, 4}};

/* Shapes that are repeated to full, and which of their elements is at each place of it. */
enum { N_SHAPES = 5 };
static const struct nd_shape shapes[N_SHAPES] = {
    {3, {2, 3, 4}}, {1, {4}}, {3, {1, 3, 1}}, {2, {3, 4}}, {0, {0}}};

static size_t place_of(size_t shape, size_t i)
{
    const size_t places[N_SHAPES] = {i, i % 4, i / 4 % 3, i % 12, 0};
    return places[shape];
}

static struct rational pair_of(const char *op_type, struct rational a, struct rational b)
{
    if (strcmp(op_type, "Add") == 0)
        return rational_add(a, b);
    if (strcmp(op_type, "Sub") == 0)
        return rational_add(a, (struct rational){-b.n, b.d});
    if (strcmp(op_type, "Mul") == 0)
        return rational_mul(a, b);
    if (strcmp(op_type, "PRelu") == 0)
        return a.n < 0 ? rational_mul(a, b) : a;
    return rational_div(a, b);
}

/* A division by 0 is infinite, or not a number. */
static void check_zero_division(const struct layer_case *layer, size_t i, struct rational a)
{
    double v = nd_ratio_value(&layer->result.v[i]);
    if (a.n == 0)
        assert_true(isnan(v));
    else if (a.n > 0 && layer->call.high < HUGE_VAL)
        assert_true(v > 0 && isfinite(v));
    else if (a.n < 0 && layer->call.low > -HUGE_VAL)
        assert_true(v <= 0 && isfinite(v));
    else
        assert_f64_bits(v, a.n < 0 ? -HUGE_VAL : HUGE_VAL);
}

static size_t check_pair(const char *op_type)
{
    struct node node;
    struct layer_case layer;
    struct tensor a, b;
    size_t shape_a = (size_t)pick(0, N_SHAPES - 1), shape_b = shape_a == 0 ? (size_t)pick(0, N_SHAPES - 1) : 0;
    if (strcmp(op_type, "PRelu") == 0 && shape_a != 0)
        return 0; /* only the slope is repeated */
    node_begin(&node, op_type, 1);
    tensor_make(&a, random_type(), shapes[shape_a], shape_a == 0 && pick(0, 2) == 0 ? 1 : -1);
    tensor_make(&b, random_type(), shapes[shape_b], shape_b == 0 && pick(0, 2) == 0 ? 2 : -1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &a);
    layer_add(&layer, &b);
    if (pick(0, 3) == 0)
        unit_scale_output(&layer, &full, (int)pick(0, 2));
    layer_bound(&layer);
    layer_run(&layer);
    layer_shape_is(&layer, full);
    for (size_t i = 0; i < layer.result.n; i++) {
        struct rational left = tensor_real(&a, place_of(shape_a, i)),
                        right = tensor_real(&b, place_of(shape_b, i));
        if (strcmp(op_type, "Div") == 0 && right.n == 0)
            check_zero_division(&layer, i, left);
        else
            layer_check(&layer, i, pair_of(op_type, left, right));
    }
    layer_end(&layer);
    tensor_free(&a);
    tensor_free(&b);
    return layer.n_ties;
}

static void pairs_are_exact(void **state)
{
    (void)state;
    static const char *const op_types[] = {"Add", "Sub", "Mul", "Div", "PRelu"};
    for (size_t k = 0; k < sizeof op_types / sizeof op_types[0]; k++) {
        size_t n_ties = 0;
        for (int i = 0; i < 400; i++)
            n_ties += check_pair(op_types[k]);
        assert_true(n_ties > 5);
    }
}

/* A constant that is no code: a float as the graph has it. */
static void float_constants_are_exact(void **state)
{
    (void)state;
    static const char *const op_types[] = {"Add", "Sub", "Mul", "Div"};
    for (int k = 0; k < 200; k++) {
        struct node node;
        struct layer_case layer;
        struct tensor x;
        struct nd_array constant = {0};
        assert_int_equal(nd_array_make(&constant, ND_DTYPE_F32, &shapes[1], NULL), ND_OK);
        for (size_t i = 0; i < constant.n; i++)
            constant.x[i] = (double)random_scale() * (pick(0, 1) == 0 ? 1 : -1);
        node_begin(&node, op_types[k % 4], 1);
        tensor_make(&x, random_type(), full, -1);
        layer_begin(&layer, &node, 13);
        layer_add(&layer, &x);
        unit_add_real(&layer, &constant);
        layer_run(&layer);
        for (size_t i = 0; i < layer.result.n; i++)
            layer_check(&layer, i,
                        pair_of(op_types[k % 4], tensor_real(&x, i), rational_of_double(constant.x[i % 4])));
        layer_end(&layer);
        nd_array_deinit(&constant);
        tensor_free(&x);
    }
}

static void sum_of_three_is_exact(void **state)
{
    (void)state;
    for (int k = 0; k < 100; k++) {
        struct node node;
        struct layer_case layer;
        struct tensor x[3];
        node_begin(&node, "Sum", 1);
        layer_begin(&layer, &node, 13);
        for (size_t i = 0; i < 3; i++) {
            tensor_make(&x[i], random_type(), shapes[i], -1);
            layer_add(&layer, &x[i]);
        }
        layer_bound(&layer);
        layer_run(&layer);
        layer_shape_is(&layer, full);
        for (size_t i = 0; i < layer.result.n; i++) {
            struct rational sum = {0, 1};
            for (size_t j = 0; j < 3; j++)
                sum = rational_add(sum, tensor_real(&x[j], place_of(j, i)));
            layer_check(&layer, i, sum);
        }
        layer_end(&layer);
        for (size_t i = 0; i < 3; i++)
            tensor_free(&x[i]);
    }
}

static struct rational clamped(struct rational x, int64_t low, int64_t high)
{
    if (rational_compare(x, rational_of(low, 1)) < 0)
        return rational_of(low, 1);
    return rational_compare(x, rational_of(high, 1)) > 0 ? rational_of(high, 1) : x;
}

static struct rational unary_of(const char *op_type, struct rational x, double alpha, double beta)
{
    if (strcmp(op_type, "HardSwish") == 0)
        return rational_mul(x,
                            rational_div(clamped(rational_add(x, rational_of(3, 1)), 0, 6), rational_of(6, 1)));
    struct rational scaled = rational_mul(x, rational_of_double(alpha));
    if (strcmp(op_type, "HardSigmoid") == 0)
        return clamped(rational_add(scaled, rational_of_double(beta)), 0, 1);
    if (strcmp(op_type, "LeakyRelu") == 0)
        return x.n < 0 ? scaled : x;
    bool is_flipped = strcmp(op_type, "Neg") == 0 || (strcmp(op_type, "Abs") == 0 && x.n < 0);
    return is_flipped ? (struct rational){-x.n, x.d} : x;
}

static void unary_operators_are_exact(void **state)
{
    (void)state;
    static const char *const op_types[] = {"HardSwish", "HardSigmoid", "LeakyRelu", "Neg", "Abs", "Identity"};
    for (int k = 0; k < 600; k++) {
        struct node node;
        struct layer_case layer;
        struct tensor x;
        const char *op_type = op_types[k % 6];
        bool is_sigmoid = strcmp(op_type, "HardSigmoid") == 0, has_attributes = pick(0, 1) == 0;
        float alpha = is_sigmoid ? 0.2f : 0.01f, beta = 0.5f;
        node_begin(&node, op_type, 1);
        if (has_attributes) {
            alpha = random_scale();
            beta = random_scale();
            node_float(&node, "alpha", alpha);
            node_float(&node, "beta", beta);
        }
        tensor_make(&x, random_type(), full, pick(0, 1) == 0 ? 1 : -1);
        layer_begin(&layer, &node, 16);
        layer_add(&layer, &x);
        layer_bound(&layer);
        layer_run(&layer);
        for (size_t i = 0; i < layer.result.n; i++)
            layer_check(&layer, i, unary_of(op_type, tensor_real(&x, i), (double)alpha, (double)beta));
        layer_end(&layer);
        tensor_free(&x);
    }
}

static void requantisation_is_exact(void **state)
{
    (void)state;
    size_t n_ties = 0;
    for (int k = 0; k < 300; k++) {
        struct layer_case layer;
        struct tensor x;
        has_simple_scales = pick(0, 2) == 0;
        tensor_make(&x, random_type(), full, (int)pick(-1, 2));
        layer_begin(&layer, NULL, 13);
        layer_add(&layer, &x);
        if (pick(0, 1) == 0)
            unit_scale_output(&layer, &full, (int)pick(0, 2));
        layer_bound(&layer);
        layer_run(&layer);
        layer_shape_is(&layer, full);
        for (size_t i = 0; i < layer.result.n; i++)
            layer_check(&layer, i, tensor_real(&x, i));
        n_ties += layer.n_ties;
        layer_end(&layer);
        tensor_free(&x);
    }
    assert_true(n_ties > 5);
}

/* Every input keeps its own scale. */
static void concatenation_is_exact(void **state)
{
    (void)state;
    for (int k = 0; k < 50; k++) {
        struct node node;
        struct layer_case layer;
        struct tensor a, b;
        node_begin(&node, "Concat", 1);
        node_int(&node, "axis", 0);
        tensor_make(&a, ND_DTYPE_U8, shapes[3], 0);
        tensor_make(&b, ND_DTYPE_I16, shapes[3], -1);
        layer_begin(&layer, &node, 13);
        layer_add(&layer, &a);
        layer_add(&layer, &b);
        layer_run(&layer);
        layer_shape_is(&layer, (struct nd_shape){2, {6, 4}});
        for (size_t i = 0; i < layer.result.n; i++)
            layer_check(&layer, i, i < 12 ? tensor_real(&a, i) : tensor_real(&b, i - 12));
        layer_end(&layer);
        tensor_free(&a);
        tensor_free(&b);
    }
}

static void transposition_is_exact(void **state)
{
    (void)state;
    int64_t order[] = {2, 0, 1};
    struct node node;
    struct layer_case layer;
    struct tensor x;
    node_begin(&node, "Transpose", 1);
    node_ints(&node, "perm", order, 3);
    tensor_make(&x, ND_DTYPE_U8, full, 1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){3, {4, 2, 3}});
    for (size_t i = 0; i < layer.result.n; i++)
        layer_check(&layer, i, tensor_real(&x, i % 6 * 4 + i / 6));
    layer_end(&layer);
    tensor_free(&x);
}

/* Every element twice along the last axis. */
static void resizing_to_the_nearest_is_exact(void **state)
{
    (void)state;
    char mode[] = "nearest", coordinates[] = "asymmetric", rounding[] = "floor";
    struct node node;
    struct layer_case layer;
    struct tensor x;
    struct nd_array scales = {0};
    assert_int_equal(nd_array_make(&scales, ND_DTYPE_F32, &(struct nd_shape){1, {3}}, NULL), ND_OK);
    scales.x[0] = scales.x[1] = 1;
    scales.x[2] = 2;
    node_begin(&node, "Resize", 1);
    node_text(&node, "mode", mode);
    node_text(&node, "coordinate_transformation_mode", coordinates);
    node_text(&node, "nearest_mode", rounding);
    tensor_make(&x, ND_DTYPE_U8, full, -1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    unit_add_real(&layer, NULL);
    unit_add_real(&layer, &scales);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){3, {2, 3, 8}});
    for (size_t i = 0; i < layer.result.n; i++)
        layer_check(&layer, i, tensor_real(&x, i / 2));
    layer_end(&layer);
    nd_array_deinit(&scales);
    tensor_free(&x);
}

/* The second output of a Split, whose first one belongs to another layer. */
static void one_of_several_outputs_is_exact(void **state)
{
    (void)state;
    struct node node;
    struct layer_case layer;
    struct tensor x;
    node_begin(&node, "Split", 2);
    node_int(&node, "axis", 2);
    tensor_make(&x, ND_DTYPE_U8, full, -1);
    layer_begin(&layer, &node, 13);
    layer.call.output = 1;
    layer_add(&layer, &x);
    layer_run(&layer);
    layer_shape_is(&layer, (struct nd_shape){3, {2, 3, 2}});
    for (size_t i = 0; i < layer.result.n; i++)
        layer_check(&layer, i, tensor_real(&x, i / 2 * 4 + 2 + i % 2));
    layer_end(&layer);
    tensor_free(&x);
}

static void maxima_are_exact(void **state)
{
    (void)state;
    int64_t kernel[] = {2};
    for (int k = 0; k < 50; k++) {
        struct node node;
        struct layer_case layer;
        struct tensor x;
        node_begin(&node, "MaxPool", 1);
        node_ints(&node, "kernel_shape", kernel, 1);
        tensor_make(&x, random_type(), full, -1);
        layer_begin(&layer, &node, 13);
        layer_add(&layer, &x);
        layer_bound(&layer);
        layer_run(&layer);
        layer_shape_is(&layer, (struct nd_shape){3, {2, 3, 3}});
        for (size_t i = 0; i < layer.result.n; i++) {
            size_t at = i / 3 * 4 + i % 3;
            layer_check(&layer, i, tensor_real(&x, x.whole[at] > x.whole[at + 1] ? at : at + 1));
        }
        layer_end(&layer);
        tensor_free(&x);
    }
}

/* A Clip with bounds of the given values as inputs; NULL: omitted. */
static bool fold_clip(const double *least, const double *most, const struct nd_quant *quant, double *low,
                      double *high)
{
    struct node node;
    struct nd_array bounds[2];
    memset(bounds, 0, sizeof bounds);
    const double *values[2] = {least, most};
    struct nd_linear_input inputs[3] = {0};
    node_begin(&node, "Clip", 1);
    for (size_t i = 0; i < 2; i++) {
        if (values[i] == NULL)
            continue;
        assert_int_equal(nd_array_make(&bounds[i], ND_DTYPE_F32, &shapes[4], NULL), ND_OK);
        bounds[i].x[0] = *values[i];
        inputs[i + 1] = (struct nd_linear_input){.values = &bounds[i], .quant = quant};
    }
    bool is_folded = nd_linear_fold(&node.proto, 3, inputs, low, high);
    nd_array_deinit(&bounds[0]);
    nd_array_deinit(&bounds[1]);
    return is_folded;
}

static void relu_and_clip_narrow_the_bounds(void **state)
{
    (void)state;
    struct node relu, clip, other;
    double low = -HUGE_VAL, high = HUGE_VAL, six = 6, minus = -1.5, nan = (double)NAN;
    float scale = 0.25f;
    int64_t zero_point = 2;
    const struct nd_quant quant = {1, -1, &scale, &zero_point};
    node_begin(&other, "Sigmoid", 1);
    assert_false(nd_linear_fold(&other.proto, 0, NULL, &low, &high));
    assert_false(fold_clip(&nan, NULL, NULL, &low, &high));
    assert_f64_bits(low, -HUGE_VAL);
    assert_f64_bits(high, HUGE_VAL);
    node_begin(&clip, "Clip", 1);
    node_float(&clip, "min", -3);
    node_float(&clip, "max", 7);
    assert_true(nd_linear_fold(&clip.proto, 1, NULL, &low, &high));
    assert_f64_bits(low, -3.0);
    assert_f64_bits(high, 7.0);
    assert_true(fold_clip(&minus, NULL, NULL, &low, &high));
    assert_f64_bits(low, -1.5);
    assert_f64_bits(high, 7.0);
    node_begin(&relu, "Relu", 1);
    assert_true(nd_linear_fold(&relu.proto, 1, NULL, &low, &high));
    assert_f64_bits(low, 0.0);
    assert_true(fold_clip(NULL, &six, &quant, &low, &high)); /* the quantised value 6 is 1 */
    assert_f64_bits(low, 0.0);
    assert_f64_bits(high, 1.0);
    assert_true(fold_clip(&six, NULL, NULL, &low, &high)); /* all above: a constant */
    assert_f64_bits(low, 6.0);
    assert_f64_bits(high, 6.0);
    assert_true(fold_clip(NULL, &minus, NULL, &low, &high));
    assert_f64_bits(low, -1.5);
    assert_f64_bits(high, -1.5);
}

/* Of the status that nd_linear_layer gives; nothing is made. */
static void assert_refused(struct layer_case *layer, enum nd_status expected)
{
    struct nd_error err = {0};
    assert_int_equal(nd_linear_layer(&layer->call, &layer->result, &err), expected);
    assert_true(err.message[0] != '\0');
    assert_null(layer->result.v);
}

static void begin_two(struct layer_case *layer, const struct node *node, const struct tensor *a,
                      const struct tensor *b)
{
    layer_begin(layer, node, 13);
    layer_add(layer, a);
    layer_add(layer, b);
}

static void what_is_not_linear_is_refused(void **state)
{
    (void)state;
    struct node node;
    struct layer_case layer;
    struct tensor x;
    static const char *const op_types[] = {"Softmax", "Sigmoid", "Pow", "ReduceL2", "", "conv"};
    tensor_make(&x, ND_DTYPE_U8, full, -1);
    for (size_t i = 0; i < sizeof op_types / sizeof op_types[0]; i++) {
        node_begin(&node, op_types[i], 1);
        begin_two(&layer, &node, &x, &x);
        assert_refused(&layer, ND_ERR_UNSUPPORTED);
    }
    node_begin(&node, "Add", 1);
    begin_two(&layer, &node, &x, &x);
    layer.inputs[1].values = NULL;
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    layer.call.n_inputs = 0;
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    char domain[] = "com.microsoft", modes[2][8] = {"linear", "cubic"};
    node_begin(&node, "Add", 1);
    node.proto.domain = domain;
    begin_two(&layer, &node, &x, &x);
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    for (size_t i = 0; i < 2; i++) {
        node_begin(&node, "Resize", 1);
        node_text(&node, "mode", modes[i]);
        begin_two(&layer, &node, &x, &x);
        assert_refused(&layer, ND_ERR_UNSUPPORTED);
    }
    tensor_free(&x);
}

static void unusable_scales_are_refused(void **state)
{
    (void)state;
    const float scales[] = {0, -1, (float)NAN, (float)INFINITY};
    struct node node;
    struct layer_case layer;
    struct tensor x, w;
    node_begin(&node, "MatMul", 1);
    tensor_make(&x, ND_DTYPE_U8, (struct nd_shape){2, {3, 3}}, -1);
    tensor_make(&w, ND_DTYPE_U8, (struct nd_shape){2, {3, 3}}, 1);
    for (size_t i = 0; i < 4; i++) {
        float kept = w.scales[2];
        w.scales[2] = scales[i];
        begin_two(&layer, &node, &x, &w);
        assert_refused(&layer, ND_ERR_UNSUPPORTED);
        w.scales[2] = kept;
        begin_two(&layer, &node, &x, &w);
        layer.out_scales[0] = scales[i];
        assert_refused(&layer, ND_ERR_UNSUPPORTED);
    }
    begin_two(&layer, &node, &x, &w);
    layer.out_quant.n = 0;
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    begin_two(&layer, &node, &w, &x); /* per channel on the left */
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    w.quant.axis = 0; /* the axis that is summed over */
    begin_two(&layer, &node, &x, &w);
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    w.quant.n = 2;
    begin_two(&layer, &node, &x, &w);
    assert_refused(&layer, ND_ERR_FORMAT);
    w.quant.n = 3;
    w.quant.axis = 2;
    begin_two(&layer, &node, &x, &w);
    assert_refused(&layer, ND_ERR_FORMAT);
    w.quant.axis = 1;
    begin_two(&layer, &node, &x, &w);
    layer.out_scales[1] = 1;
    layer.out_quant.n = 2; /* of three columns */
    layer.out_quant.axis = 1;
    assert_refused(&layer, ND_ERR_FORMAT);
    tensor_free(&x);
    tensor_free(&w);
}

static void inexact_operands_are_refused(void **state)
{
    (void)state;
    struct node node;
    struct layer_case layer;
    struct tensor x, wide;
    struct nd_array weights = {0};
    struct nd_shape square = {2, {3, 3}};
    tensor_make(&x, ND_DTYPE_U16, square, -1);
    tensor_make(&wide, ND_DTYPE_I32, square, -1);
    assert_int_equal(nd_array_make(&weights, ND_DTYPE_F32, &square, NULL), ND_OK);
    x.qvalues.x[0] = (double)x.zero_points[0] + 1;
    wide.qvalues.x[0] = -0x1p31;
    weights.x[8] = 0.5;
    node_begin(&node, "MatMul", 1);
    layer_begin(&layer, &node, 13);
    layer_add(&layer, &x);
    unit_add_real(&layer, &weights);
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    weights.x[8] = 0x1p53;
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    weights.x[8] = 5;
    layer_run(&layer);
    layer_end(&layer);
    node_begin(&node, "Add", 1);
    begin_two(&layer, &node, &x, &wide);
    assert_refused(&layer, ND_ERR_UNSUPPORTED);
    node_begin(&node, "Conv", 1); /* of two dimensions */
    begin_two(&layer, &node, &x, &x);
    assert_refused(&layer, ND_ERR_FORMAT);
    nd_array_deinit(&weights);
    tensor_free(&x);
    tensor_free(&wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pairs_are_exact),
        cmocka_unit_test(float_constants_are_exact),
        cmocka_unit_test(sum_of_three_is_exact),
        cmocka_unit_test(unary_operators_are_exact),
        cmocka_unit_test(requantisation_is_exact),
        cmocka_unit_test(concatenation_is_exact),
        cmocka_unit_test(transposition_is_exact),
        cmocka_unit_test(resizing_to_the_nearest_is_exact),
        cmocka_unit_test(one_of_several_outputs_is_exact),
        cmocka_unit_test(maxima_are_exact),
        cmocka_unit_test(relu_and_clip_narrow_the_bounds),
        cmocka_unit_test(what_is_not_linear_is_refused),
        cmocka_unit_test(unusable_scales_are_refused),
        cmocka_unit_test(inexact_operands_are_refused),
    };
    return cmocka_run_group_tests(tests, set_seed, NULL);
}
