/* Arithmetics of layers of words (uint16), held against what the simulator of the HTP makes of random quantised
 * values (golden/programs). */
#include "support/main.h"

#include "support/asked_layer.h"
#include "support/gated_trial.h"

static void products_of_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "conv16", "conv16-relu", "depthwise16", "conv16-channels", "gemm16", "matmul16");
    size_t n_exact;
    assert_int_equal(count_wrong("matmul16-inputs", "v73", "htp-v73", &n_exact), 0);
    assert_true(n_exact > 600);
}

/* docs/science/htp-arithmetic.md#open: where the folded zero point is just below a whole number. */
static void products_of_calculated_words_are_nearly_exact_on_v69(void **state)
{
    (void)state;
    size_t n_exact, n_wrong = count_wrong("matmul16-inputs", "v69", "htp-v69", &n_exact);
    assert_true(n_wrong <= 9 && n_exact > 600);
}

/* tools/oracles/make_htp16_oracle.py: no formula was fitted to these. */
static void functions_of_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "relu16", "clip16", "neg16", "abs16", "abs16-rows", "leakyrelu16", "leakyrelu16-wraps",
               "sigmoid16", "sigmoid16-narrow", "tanh16", "tanh16-wide", "concat16", "slice16", "sub16-0",
               "sub16-1", "gelu16", "gelu16-wide", "gelu16-narrow", "mul16-0", "mul16-1", "mul16-2",
               "mul16-scalar");
    EXPECT_ALL(false, "relu16-zero", "hardsigmoid16", "sub16-scalar");
}

static void exponentials_and_roots_of_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "exp16", "exp16-below", "elu16", "elu16-alpha", "sqrt16", "sqrt16-wraps", "hardswish16",
               "hardswish16-wide", "hardswish16-narrow");
}

/* uint8, too. Some divisors are zero, some below it. */
static void divided_qvalues_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "div16-0", "div16-1", "div16-rows", "div8-0", "div8-1", "div8-rows");
}

/* uint8, too. */
static void softmax_is_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "softmax8-17", "softmax8-31", "softmax8-100", "softmax8-1000");
    EXPECT_ALL(true, "softmax16-3", "softmax16-8", "softmax16-32", "softmax16-64", "softmax16-100",
               "softmax16-700");
}

/* The mean decides 0.2 to 0.6 % of these quantised values. */
static void norms_of_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "norm16-64", "norm16-300");
}

static void chosen_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "max16", "min16", "max16-scalar");
}

/* Of one channel each, by steps of two: nothing is cut from the sums. */
static void strided_depthwise_products_of_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "strided16", "strided16-channels");
}

/* One operation where x is the gate's, too; with HardSigmoid two. */
static void gated_words_are_bit_exact(void **state)
{
    (void)state;
    expect_gated("silu16-0");
    expect_gated("silu16-1");
    expect_gated("silu16-2");
    EXPECT_ALL(true, "hardgate16");
}

static void ask_word(struct asked *a, const char *op_type, float scale_x, float scale_y, int64_t zero_y)
{
    ask(a, op_type, ND_DTYPE_U16);
    a->call.n_inputs = 1;
    a->scales[0] = scale_x;
    a->scales[2] = scale_y;
    a->zeros[2] = zero_y;
}

static void functions_of_words_without_evidence_are_not_covered(void **state)
{
    (void)state;
    struct asked a;
    ask_word(&a, "Tanh", 0.001F, 0x1p-15F, 32768);
    assert_true(is_covered(&a));
    ask_word(&a, "Tanh", 0.001F, 0x1p-15F, 32767); /* the provider writes with another encoding */
    assert_false(is_covered(&a));
    ask_word(&a, "Sigmoid", 0.001F, 0x1p-15F, 32768);
    assert_false(is_covered(&a));
    ask_word(&a, "Sigmoid", 0.001F, 0x1p-16F, 0);
    a.values[0].x[2] = 65536; /* no quantised value */
    assert_false(is_covered(&a));
    ask_word(&a, "HardSigmoid", 0.001F, 0.001F, 0);
    assert_false(is_covered(&a));
    ask_word(&a, "Gelu", 0.001F, 0.001F, 0);
    assert_true(is_covered(&a));
    static const char *const curves[] = {"Exp", "Elu", "Sqrt", "HardSwish"};
    for (size_t i = 0; i < sizeof curves / sizeof curves[0]; i++) {
        ask_word(&a, curves[i], 0.001F, 0.001F, 0);
        assert_true(is_covered(&a));
        a.call.low = 0;
        assert_false(is_covered(&a));
        ask_word(&a, curves[i], 20, 20, 0); /* scales that were not looked at */
        assert_false(is_covered(&a));
    }
    ask_word(&a, "Gelu", 2, 2, 0); /* steps of x that were not looked at */
    assert_false(is_covered(&a));
    ask_word(&a, "LeakyRelu", 0.001F, 0.001F, 0);
    assert_true(is_covered(&a));
    ask_word(&a, "LeakyRelu", 0.001F, 0.001F, 0);
    a.call.low = 0; /* a Relu behind it */
    assert_false(is_covered(&a));
    static const char *const lines[] = {"Relu", "Neg", "Abs"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        ask_word(&a, lines[i], 0.001F, 0.002F, 100);
        assert_true(is_covered(&a));
        ask_word(&a, lines[i], 0.1F, 0.001F, 100); /* quotients that were not looked at */
        assert_false(is_covered(&a));
    }
    ask_word(&a, "Abs", 0.001F, 0.002F, 100); /* which rows are odd depends on the layout */
    a.values[0].shape = (struct nd_shape){.rank = 3, .dims = {1, 2, 2}};
    assert_false(is_covered(&a));
    ask_word(&a, "Flatten", 0.001F, 0.002F, 0);
    assert_true(is_covered(&a));
    ask_word(&a, "Flatten", 0.001F, 0.002F, 0);
    a.call.low = 0; /* a Relu behind it */
    assert_false(is_covered(&a));
    ask_word(&a, "Flatten", 1e-7F, 2e-7F, 0); /* scales that were not looked at */
    assert_false(is_covered(&a));
}

/* Its multiplier is half of a whole number less than 2^-13, which float32 makes a half, and that even. Recorded
 * of a network of a stranger on gen3. */
static void the_multiplier_of_a_gate_is_a_float32(void **state)
{
    (void)state;
    static const double x[] = {37044, 29982, 27400, 36851}, expected[] = {59196, 17158, 6348, 58666};
    struct asked a;
    struct nd_array made = {0};
    bool covered;
    ask_word(&a, "Sigmoid", 0x1.e59d54p-12F, 0x1p-16F, 0);
    a.zeros[0] = 32220;
    for (size_t i = 0; i < 4; i++)
        a.values[0].x[i] = x[i];
    assert_int_equal(nd_layer_arithmetic_run(nd_layer_arithmetic_from_name("htp-v73"), &a.layer, NULL, &made,
                                             &covered, NULL),
                     ND_OK);
    assert_true(covered);
    for (size_t i = 0; i < 4; i++)
        assert_true(made.x[i] == expected[i]);
    nd_array_deinit(&made);
    nd_array_deinit(&a.values[0]);
    nd_array_deinit(&a.values[1]);
}

static void reduced_words_are_bit_exact(void **state)
{
    (void)state;
    EXPECT_ALL(true, "reducesum16", "reducesum16-more", "reducemean16", "reducemean16-four", "reducesum16-many",
               "reducemean16-many", "reducesum16-few");
    EXPECT_ALL(true, "pool16-2", "pool16-3");
    EXPECT_ALL(false, "reducemean16-plane");
}

/* ONNX Runtime makes it of Erf and what is around it. */
static void gelu_of_another_domain_is_covered(void **state)
{
    (void)state;
    static char domain[] = "com.microsoft";
    struct asked a;
    ask_word(&a, "Gelu", 0.001F, 0.001F, 0);
    a.node.domain = domain;
    assert_true(is_covered(&a));
    ask_word(&a, "Exp", 0.001F, 0.001F, 0);
    a.node.domain = domain;
    assert_false(is_covered(&a));
}

static bool is_leaky_covered(const char *arithmetic, struct nd_layer_memory *memory)
{
    static const size_t input_tensors[] = {1, 2};
    struct asked a;
    struct nd_array qvalues = {0};
    bool covered;
    ask_word(&a, "LeakyRelu", 0.001F, 0.001F, 0);
    a.layer.input_tensors = input_tensors;
    assert_int_equal(nd_layer_arithmetic_run(nd_layer_arithmetic_from_name(arithmetic), &a.layer, memory,
                                             &qvalues, &covered, NULL),
                     ND_OK);
    nd_array_deinit(&qvalues);
    nd_array_deinit(&a.values[0]);
    nd_array_deinit(&a.values[1]);
    return covered;
}

/* On v73 both are one operation. */
static void leaky_words_of_a_gemm_are_not_covered(void **state)
{
    (void)state;
    static const size_t input_tensors[] = {SIZE_MAX, SIZE_MAX};
    struct nd_layer_memory *memory;
    struct asked a;
    struct nd_array qvalues = {0};
    bool covered;
    assert_int_equal(nd_layer_memory_create(4, &memory, NULL), ND_OK);
    assert_true(is_leaky_covered("htp-v73", memory));
    ask(&a, "MatMul", ND_DTYPE_U16);
    a.layer.tensor = 1;
    a.layer.input_tensors = input_tensors;
    assert_int_equal(nd_layer_arithmetic_run(nd_layer_arithmetic_from_name("htp-v73"), &a.layer, memory,
                                             &qvalues, &covered, NULL),
                     ND_OK);
    nd_array_deinit(&qvalues);
    nd_array_deinit(&a.values[0]);
    nd_array_deinit(&a.values[1]);
    assert_false(is_leaky_covered("htp-v73", memory));
    assert_true(is_leaky_covered("htp-v69", memory));
    nd_layer_memory_destroy(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_of_words_are_bit_exact),
        cmocka_unit_test(products_of_calculated_words_are_nearly_exact_on_v69),
        cmocka_unit_test(functions_of_words_are_bit_exact),
        cmocka_unit_test(exponentials_and_roots_of_words_are_bit_exact),
        cmocka_unit_test(divided_qvalues_are_bit_exact),
        cmocka_unit_test(softmax_is_bit_exact),
        cmocka_unit_test(norms_of_words_are_bit_exact),
        cmocka_unit_test(chosen_words_are_bit_exact),
        cmocka_unit_test(the_multiplier_of_a_gate_is_a_float32),
        cmocka_unit_test(reduced_words_are_bit_exact),
        cmocka_unit_test(strided_depthwise_products_of_words_are_bit_exact),
        cmocka_unit_test(gated_words_are_bit_exact),
        cmocka_unit_test(functions_of_words_without_evidence_are_not_covered),
        cmocka_unit_test(gelu_of_another_domain_is_covered),
        cmocka_unit_test(leaky_words_of_a_gemm_are_not_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
