/* Every rule of lint: a model with the fault, a near miss without it, and what --fix makes of it. The models
 * are made by tools/oracles/make_lint_models.py, tools/oracles/make_found.py and the scripts of
 * golden/programs; tests/e2e/test_lint.py shows on the NPU that the faults are there. */
#include "support/golden_models.h"

#include <math.h>

#include "npudiff/improve/lint.h"
#include "support/scratch.h"

struct expected {
    const char *model;
    const char *rule;  /* of the only finding; NULL: there is none */
    double effect_lsb; /* worked out with numpy from the model's constants; 0: not known */
    bool can_be_mended;
};

static const struct expected all[] = {
    {"lint/infinite.u8.onnx", "scale-not-finite", 0, false},
    {"lint/bias-twice.u8.onnx", "bias-scale", 9.43, true},
    {"lint/bias-twice.u16.onnx", "bias-scale", 2413, true},
    {"lint/bias-one.u8.onnx", "bias-scale", 18.854, false},
    {"lint/bias-right.u8.onnx", NULL, 0, false},
    {"programs/bias16-gemm-rescaled.onnx", "bias-scale", 7504.25, true},
    {"programs/bias8-gemm-rescaled.onnx", "bias-scale", 13.04, true},
    {"programs/bias8-conv-off.onnx", NULL, 0, false}, /* the scales are off by less than rounding */
    {"lint/overflow.u8.onnx", "bias-overflow", 0, false},
    {"lint/no-overflow.u8.onnx", NULL, 0, false},
    {"found/batch-norm.u8.onnx", "batch-norm-bias", 128, false},
    {"found/tanh.u16.onnx", "forced-encoding", 6553.6, true},
    {"found/sigmoid.u16.onnx", "forced-encoding", 11008, true},
    {"lint/sigmoid-moved.u16.onnx", "forced-inside", 16385, true},
    {"lint/sigmoid-required.u16.onnx", NULL, 0, false},
    {"lint/leaky-wraps.u16.onnx", "leaky-relu-wrap", 65535, false},
    {"programs/leakyrelu16-wraps.onnx", "leaky-relu-wrap", 65535, false},
    {"lint/leaky.u16.onnx", NULL, 0, false},
    {"lint/moved.u8.onnx", "moved-unscaled", 46, true},
    {"lint/moved-clipped.u8.onnx", "moved-unscaled", 57, false},
    {"lint/joined.u8.onnx", "moved-unscaled", 56, false},
    {"lint/moved-same.u8.onnx", NULL, 0, false},
    {"found/concat.u8.onnx", "concat-input", 127, false},
    {"lint/concat-two.u8.onnx", NULL, 0, false},
    {"lint/concat-wide.u8.onnx", NULL, 0, false},
    {"lint/concat-same.u8.onnx", NULL, 0, false},
    {"lint/concat-ranges.u8.onnx", "concat-range", 0, false},
    {"lint/concat-ranges-few.u16.onnx", "concat-range", 0, false},
    {"lint/concat-ranges-4.u8.onnx", NULL, 0, false},
    {"found/reciprocal.u16.onnx", "reciprocal-scale", 0, false},
    {"lint/reciprocal.u16.onnx", NULL, 0, false},
    {"found/cast.u8.onnx", "cast-bytes", 0, false},
    {"found/matmul.uint4-blocks.u16.onnx", "block-zero-point", 0, false},
    {"found/matmul.int4-blocks.u16.onnx", NULL, 0, false},
    {"lint/axis-0.u8.onnx", "weight-axis", 0, false},
    {"lint/axis-0.u16.onnx", "weight-axis", 0, false},
    {"lint/axis-1.u8.onnx", NULL, 0, false},
    {"lint/channels.u8.onnx", "activation-channels", 0, false},
    {"lint/apart.u8.onnx", "weight-channels", 0, false},
    {"lint/together.u8.onnx", NULL, 0, false},
    {"programs/matmul16-inputs.onnx", "operand-8-bits", 0, false},
    {"lint/missing.u8.onnx", "missing-quantiser", 0, false},
    {"lint/missing.u16.onnx", "missing-quantiser", 0, false},
    {"lint/quantised.u8.onnx", NULL, 0, false},
    {"lint/open.u8.onnx", "open-constant", 0, false},
    {"lint/open-ir3.u8.onnx", NULL, 0, false},
    {"lint/matmul-add.u16.onnx", NULL, 0, false},
    {"lint/abs.u16.onnx", "abs-rows", 1, false},
    {"lint/abs-same.u16.onnx", NULL, 0, false},
    {"lint/double.u8.onnx", "double-quantiser", 0, false},
    /* Models of the usual recipes, on which every layer was seen to follow the arithmetic of the HTP. */
    {"models/cnn.w8a8.onnx", NULL, 0, false},
    {"models/cnn.w8a16.onnx", NULL, 0, false},
    {"models/vit.w8a8.onnx", NULL, 0, false},
    {"models/depthwise-stride-2.w8a8.onnx", NULL, 0, false},
    {"models/random-attention.w8a8.onnx", NULL, 0, false},
    {"models/random-residual.u8.onnx", NULL, 0, false},
};

static struct nd_lint *lint(const char *name, const char *output)
{
    struct nd_model *model = load(name);
    struct nd_lint_options options;
    struct nd_lint *found = NULL;
    struct nd_error err = {0};
    nd_lint_options_init(&options);
    options.output = output;
    expect_ok(nd_lint_model(model, &options, &found, &err), &err);
    nd_model_destroy(&model);
    return found;
}

static void test_every_rule_finds_its_fault_and_no_near_miss(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        const struct expected *e = &all[i];
        struct nd_lint *found = lint(e->model, NULL);
        const struct nd_lint_finding *first = found->n_findings > 0 ? &found->findings[0] : NULL;
        print_message("# %s: %s, %g LSB\n", e->model, first != NULL ? first->rule->id : "clean",
                      first != NULL ? first->effect_lsb : 0);
        assert_int_equal(found->n_findings, e->rule != NULL);
        if (e->rule != NULL) {
            assert_string_equal(first->rule->id, e->rule);
            assert_true(e->effect_lsb == 0 ? isnan(first->effect_lsb)
                                           : fabs(first->effect_lsb - e->effect_lsb) <= 0.001 * e->effect_lsb);
            assert_int_equal(first->change != NULL, e->can_be_mended);
            assert_false(first->is_mended);
        }
        nd_lint_destroy(&found);
    }
}

/* A mask is told of twice: as a constant, and where the sum with it is quantised. */
static void test_a_mask_and_several_layers(void **state)
{
    (void)state;
    struct nd_lint *found = lint("lint/mask.u8.onnx", NULL);
    assert_int_equal(found->n_findings, 2);
    for (size_t i = 0; i < found->n_findings; i++)
        assert_string_equal(found->findings[i].rule->id, "far-range");
    assert_int_equal(found->n_left, 2);
    nd_lint_destroy(&found);
    found = lint("models/vit.w8a16.onnx", NULL);
    assert_int_equal(found->n_findings, 4); /* scores and context of two blocks */
    assert_int_equal(found->n_warnings, 4);
    nd_lint_destroy(&found);
}

static void test_what_is_mended_is_clean(void **state)
{
    (void)state;
    char *path = in_folder("mended.onnx");
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        struct nd_lint *found = lint(all[i].model, path);
        assert_int_equal(found->output != NULL, all[i].can_be_mended);
        assert_int_equal(nd_path_exists(path), all[i].can_be_mended);
        if (all[i].can_be_mended) {
            struct nd_lint *again = lint(path, NULL);
            assert_true(found->findings[0].is_mended);
            assert_int_equal(found->n_left, 0);
            assert_int_equal(again->n_findings, 0);
            nd_lint_destroy(&again);
            unlink(path);
        }
        nd_lint_destroy(&found);
    }
    free(path);
}

/* What follows the Sigmoid and has its encoding gets the new one, too; all else stays. */
static void test_an_encoding_is_mended_along_the_way(void **state)
{
    (void)state;
    char *path = in_folder("gate.onnx");
    struct nd_lint *found = lint("lint/sigmoid-moved.u16.onnx", path);
    struct nd_model *before = load("lint/sigmoid-moved.u16.onnx"), *after = load(path);
    assert_int_equal(nd_model_n_tensors(before), nd_model_n_tensors(after));
    for (size_t i = 0; i < nd_model_n_tensors(after); i++) {
        const struct nd_tensor *old = nd_model_tensor(before, i), *new = nd_model_tensor(after, i);
        bool is_gate = strcmp(new->name, "s") == 0 || strcmp(new->name, "r") == 0;
        assert_string_equal(old->name, new->name);
        assert_true(new->quant.scale[0] == (is_gate ? 0x1p-16F : old->quant.scale[0]));
        assert_int_equal(new->quant.zero_point[0], is_gate ? 0 : old->quant.zero_point[0]);
    }
    nd_model_destroy(&before);
    nd_model_destroy(&after);
    nd_lint_destroy(&found);
    free(path);
}

static void test_refuses(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_lint *found = NULL;
    struct nd_lint_options options;
    char *path = in_folder("there.onnx");
    struct nd_model *model = load("models/cnn.float.onnx");
    nd_lint_options_init(&options);
    assert_int_equal(nd_lint_model(model, &options, &found, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_LINT_FLOAT);
    nd_model_destroy(&model);
    model = load("found/tanh.u16.onnx");
    options.output = path;
    expect_ok(nd_lint_model(model, &options, &found, &err), &err);
    nd_lint_destroy(&found);
    assert_int_equal(nd_lint_model(model, &options, &found, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    assert_null(found);
    nd_model_destroy(&model);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rule_finds_its_fault_and_no_near_miss),
        cmocka_unit_test(test_a_mask_and_several_layers),
        cmocka_unit_test_setup_teardown(test_what_is_mended_is_clean, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_an_encoding_is_mended_along_the_way, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_refuses, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
