/* A BatchNormalization becomes part of the ConvTranspose before it, and only there. The models are made by
 * tools/oracles/make_align_models.py; tests/e2e/test_align.py runs the copies. */
#include "support/golden_models.h"

#include <math.h>

#include "model/rewrite/requantise_model.h"
#include "npudiff/devices/device.h"
#include "npudiff/improve/align.h"
#include "support/scratch.h"

static const char *const folded[] = {"align/norm.u8.onnx", "align/norm-bias.u8.onnx"};
static const char *const near_misses[] = {"align/norm-read-twice.u8.onnx", "align/norm-groups.u8.onnx",
                                          "align/norm-along-width.u8.onnx", "found/batch-norm.u8.onnx",
                                          "models/cnn.w8a8.onnx"};

static size_t fold(const char *name, const char *path)
{
    struct nd_model *model = load(name);
    struct nd_error err = {0};
    size_t n = 99;
    expect_ok(nd_model_write_folded(model, path, &n, &err), &err);
    nd_model_destroy(&model);
    return n;
}

static void test_the_layers_between_are_gone(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof folded / sizeof folded[0]; i++) {
        char *path = in_folder("folded.onnx");
        assert_int_equal(fold(folded[i], path), 1);
        struct nd_model *before = load(folded[i]), *after = load(path);
        assert_int_equal(nd_model_n_tensors(before), 4);
        assert_int_equal(nd_model_n_tensors(after), 2);
        assert_int_equal(nd_model_n_layers(after), 1);
        assert_string_equal(nd_model_layer(after, 0)->op_types, "ConvTranspose+Relu");
        const struct nd_tensor *y = nd_model_tensor(after, 1), *old = nd_model_tensor(before, 3);
        assert_string_equal(y->name, old->name);
        assert_true(y->quant.scale[0] == old->quant.scale[0]);
        assert_true(y->is_model_output);
        nd_model_destroy(&before);
        nd_model_destroy(&after);
        unlink(path);
        free(path);
    }
}

static void test_near_misses_stay(void **state)
{
    (void)state;
    char *path = in_folder("folded.onnx");
    for (size_t i = 0; i < sizeof near_misses / sizeof near_misses[0]; i++) {
        print_message("# %s\n", near_misses[i]);
        assert_int_equal(fold(near_misses[i], path), 0);
        assert_false(nd_path_exists(path));
    }
    free(path);
}

/* Within what the roundings that are gone, and those of the new weights, account for: three of at most half a
 * step of 1/32 in a signal of about 1, and that of the weights, are 34 dB. */
static void test_the_values_are_those_of_the_model(void **state)
{
    (void)state;
    static const double min_db = 28;
    for (size_t i = 0; i < sizeof folded / sizeof folded[0]; i++) {
        struct nd_model *model = load(folded[i]);
        struct nd_align_options options;
        struct nd_alignment *alignment = NULL;
        struct nd_probe *probe = NULL;
        struct nd_error err = {0};
        const char *spec = "uniform:8:3";
        expect_ok(nd_probes_for_model(model, &spec, 1, &probe, &err), &err);
        nd_align_options_init(&options);
        options.probes = (const struct nd_probe *const *)&probe;
        options.n_probes = 1;
        expect_ok(nd_align(model, &options, &alignment, &err), &err);
        print_message("# %s: %.1f dB\n", folded[i], alignment->outputs[0].sqnr_after_db);
        assert_int_equal(alignment->n_folded, 1);
        assert_int_equal(alignment->n_proven, 1);
        assert_int_equal(alignment->n_layers, 1);
        assert_string_equal(strrchr(alignment->model, '/'), strrchr(folded[i], '/'));
        assert_true(alignment->outputs[0].sqnr_after_db > min_db);
        nd_alignment_destroy(&alignment);
        nd_probe_destroy(&probe);
        nd_model_destroy(&model);
    }
}

static void test_layers_that_are_not_named_stay(void **state)
{
    (void)state;
    struct nd_model *model = load(folded[0]);
    struct nd_align_options options;
    struct nd_alignment *alignment = NULL;
    struct nd_error err = {0};
    nd_align_options_init(&options);
    options.layers = "t";
    expect_ok(nd_align(model, &options, &alignment, &err), &err);
    assert_int_equal(alignment->n_folded, 0);
    assert_int_equal(alignment->n_layers, 3);
    nd_alignment_destroy(&alignment);
    nd_model_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_the_layers_between_are_gone, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(test_near_misses_stay, make_folder, remove_folder),
        cmocka_unit_test(test_the_values_are_those_of_the_model),
        cmocka_unit_test(test_layers_that_are_not_named_stay),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
