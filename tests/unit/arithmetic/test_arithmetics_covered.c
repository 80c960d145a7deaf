/* What the arithmetics of layers do not cover, because there is no evidence of it. */
#include "support/main.h"

#include <string.h>

#include "support/asked_layer.h"

static void layers_without_evidence_are_not_covered(void **state)
{
    (void)state;
    struct asked a;
    ask(&a, "Add", ND_DTYPE_U8);
    assert_true(is_covered(&a));
    ask(&a, "Add", ND_DTYPE_I8); /* as uint8, 128 higher */
    assert_true(is_covered(&a));
    ask(&a, "Add", ND_DTYPE_I32);
    assert_false(is_covered(&a));
    ask(&a, "Div", ND_DTYPE_U8); /* by what varies */
    assert_true(is_covered(&a));
    ask(&a, "Div", ND_DTYPE_I8);
    assert_true(is_covered(&a));
    ask(&a, "Div", ND_DTYPE_U16);
    assert_true(is_covered(&a));
    a.origins[1] = ND_EXACT_FROM_CONSTANT;
    a.values[1].n = 1; /* the quantised values may stay what they are */
    a.values[1].shape.rank = 0;
    assert_false(is_covered(&a));
    ask(&a, "Softmax", ND_DTYPE_U16); /* of one element */
    assert_false(is_covered(&a));
    ask(&a, "Sub", ND_DTYPE_U8);
    assert_true(is_covered(&a));
    ask(&a, "Mul", ND_DTYPE_U16); /* scales that are no usual multiplication */
    assert_false(is_covered(&a));
    ask(&a, "Mul", ND_DTYPE_U16);
    a.scales[2] = 0x1p13F;
    assert_true(is_covered(&a));
    ask(&a, "Sub", ND_DTYPE_U16);
    assert_true(is_covered(&a));
    ask(&a, "Add", ND_DTYPE_U8);
    a.quants[1].n = 0; /* scales in blocks */
    assert_false(is_covered(&a));
    ask(&a, "Add", ND_DTYPE_U8);
    a.scales[2] = 0;
    assert_false(is_covered(&a));
    ask(&a, "Add", ND_DTYPE_U8);
    a.scales[0] = 1e9F; /* no room for a multiplier */
    assert_false(is_covered(&a));
    const struct nd_shape one = {.rank = 0};
    static const char *const with_numbers[] = {"Add", "Div", "Max", "Min", "Mul", "Sub"};
    for (size_t i = 0; i < 6; i++)
        for (int is_negative = 0; is_negative < 2; is_negative++) {
            ask(&a, with_numbers[i], ND_DTYPE_U8);
            nd_array_deinit(&a.values[1]);
            assert_int_equal(nd_array_make(&a.values[1], a.layer.dtype, &one, NULL), ND_OK);
            a.values[1].x[0] = 7;
            a.zeros[1] = is_negative ? 9 : 0;
            a.origins[1] = ND_EXACT_FROM_CONSTANT;
            bool is_product = strcmp(with_numbers[i], "Mul") == 0 || strcmp(with_numbers[i], "Div") == 0;
            assert_true(is_covered(&a) == !(is_product && is_negative));
        }
    ask(&a, "Add", ND_DTYPE_U8);
    a.inputs[1].quant = NULL; /* floats */
    assert_false(is_covered(&a));
}

/* Of the pairs of one axis the formula is known where that is the last; of three and more along any. */
static void softmax_of_pairs_along_another_axis_is_not_covered(void **state)
{
    (void)state;
    static char name[] = "axis";
    static const struct {
        int64_t rows, axis;
        bool is_covered;
    } cases[] = {{2, 1, true}, {2, 0, false}, {3, 0, true}, {3, 1, true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct asked a;
        const struct nd_shape shape = {.rank = 2, .dims = {cases[i].rows, 2}};
        Onnx__AttributeProto axis = ONNX__ATTRIBUTE_PROTO__INIT, *attributes[] = {&axis};
        axis.name = name;
        axis.has_type = axis.has_i = 1;
        axis.type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
        axis.i = cases[i].axis;
        ask(&a, "Softmax", ND_DTYPE_U8);
        a.call.n_inputs = 1;
        a.node.attribute = attributes;
        a.node.n_attribute = 1;
        nd_array_deinit(&a.values[0]);
        assert_int_equal(nd_array_make(&a.values[0], a.layer.dtype, &shape, NULL), ND_OK);
        assert_int_equal(is_covered(&a), cases[i].is_covered);
    }
}

/* As they are when inputs are moved, to see how far an error of theirs reaches. */
static void tables_have_entries_for_qvalues_alone(void **state)
{
    (void)state;
    static const double beyond[] = {-63, 256, 1e9};
    struct asked a;
    ask(&a, "Abs", ND_DTYPE_U8);
    a.call.n_inputs = 1;
    a.values[0].x[3] = 255;
    assert_true(is_covered(&a));
    for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
        ask(&a, "Abs", ND_DTYPE_U8);
        a.call.n_inputs = 1;
        a.values[0].x[3] = beyond[i];
        assert_false(is_covered(&a));
    }
}

static double doubt_of(const struct asked *a)
{
    return nd_layer_arithmetic_doubt(nd_layer_arithmetic_from_name("htp-v73"), &a->layer, NULL);
}

/* Which of two ways of rescaling a tensor takes depends on the layout in which the layer before left it. */
static void what_layers_made_is_rescaled_in_doubt(void **state)
{
    (void)state;
    struct asked a;
    ask(&a, "Identity", ND_DTYPE_U8);
    a.call.n_inputs = 1;
    a.origins[0] = ND_EXACT_FROM_LAYER;
    assert_true(doubt_of(&a) == 0); /* in the same encoding */
    a.scales[0] = 0.4F;
    assert_true(doubt_of(&a) > 0 && doubt_of(&a) < 0.02);
    a.origins[0] = ND_EXACT_FROM_INPUT;
    assert_true(doubt_of(&a) == 0);
    assert_true(is_covered(&a));
    ask(&a, "Mul", ND_DTYPE_U8);
    a.origins[0] = ND_EXACT_FROM_LAYER;
    assert_true(doubt_of(&a) == 0);
    a.origins[1] = ND_EXACT_FROM_CONSTANT;
    assert_true(doubt_of(&a) == 0); /* a tensor */
    a.values[1].n = 1;
    a.values[1].x[0] = 3;
    assert_true(doubt_of(&a) == 0); /* by 1.5: no value is next to a half */
    a.values[1].x[0] = 2;
    assert_true(doubt_of(&a) == 0); /* the same encoding */
    a.scales[0] = 0.494F;           /* 1 lies between the two */
    assert_true(doubt_of(&a) > 0);
    a.values[1].n = 4;
    assert_true(is_covered(&a));
}

static void products_without_evidence_are_not_covered(void **state)
{
    (void)state;
    struct asked a;
    ask(&a, "MatMul", ND_DTYPE_U8);
    assert_true(is_covered(&a));
    ask(&a, "MatMul", ND_DTYPE_U16);
    assert_true(is_covered(&a));
    ask(&a, "MatMul", ND_DTYPE_U16);
    a.origins[1] = ND_EXACT_FROM_CONSTANT; /* 16-bit weights */
    assert_false(is_covered(&a));
    ask(&a, "MatMul", ND_DTYPE_U8);
    a.node.n_output = 0; /* not even evaluated */
    assert_false(is_covered(&a));
    ask(&a, "MatMul", ND_DTYPE_U8);
    a.values[1].shape = (struct nd_shape){.rank = 1, .dims = {4}};
    assert_false(is_covered(&a));
    ask(&a, "Reshape", ND_DTYPE_U8); /* the scale changes, and an input has one too many */
    a.scales[0] = 0.25F;
    assert_false(is_covered(&a));
    ask(&a, "Concat", ND_DTYPE_U8); /* what makes the inputs decides */
    a.scales[0] = 0.25F;
    assert_false(is_covered(&a));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_without_evidence_are_not_covered),
        cmocka_unit_test(softmax_of_pairs_along_another_axis_is_not_covered),
        cmocka_unit_test(tables_have_entries_for_qvalues_alone),
        cmocka_unit_test(what_layers_made_is_rescaled_in_doubt),
        cmocka_unit_test(products_without_evidence_are_not_covered),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
