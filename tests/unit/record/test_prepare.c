/* Preparing a folder for qnn-net-run, without a runtime: names and quantised values at the ends of a model,
 * quantisation, and what is refused before anything runs. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/error.h"
#include "core/files/file.h"
#include "model/graph/parts.h"
#include "record/qnn/prepare_internal.h"
#include "support/scratch.h"

/* ---- names ---- */

static void expect_name(const char *name, const char *expected)
{
    char *made = nd_native_name(name);
    assert_string_equal(made, expected);
    free(made);
}

static void name_keeps_letters_digits_and_underscores(void **state)
{
    (void)state;
    expect_name("conv1_out", "conv1_out");
    expect_name("residual/relu:0", "residual_relu_0");
    expect_name("7x", "_7x");
    expect_name("", "_");
    expect_name("st m/r\xc3\xa9l", "st_m_r__l");
    expect_name("/", "_");
    expect_name("_a.b-c", "_a_b_c");
}

/* ---- models ---- */

/* The golden model with one text replaced wherever it stands by one as long. */
static struct nd_model *load_changed(const char *from, const char *to)
{
    char source[1024];
    void *bytes = NULL;
    size_t n = 0;
    struct nd_error err = {0};
    struct nd_model *model = NULL;
    char *path = in_folder("changed.onnx");
    assert_int_equal(strlen(from), strlen(to));
    snprintf(source, sizeof source, "%s/models/cnn.w8a8.onnx", getenv("GOLDEN"));
    expect_ok(nd_file_read(source, 1 << 24, &bytes, &n, &err), &err);
    for (size_t i = 0; i + strlen(from) <= n; i++)
        if (memcmp((char *)bytes + i, from, strlen(from)) == 0)
            memcpy((char *)bytes + i, to, strlen(to));
    expect_ok(nd_file_put(path, bytes, n, &err), &err);
    expect_ok(nd_model_load(path, &model, &err), &err);
    free(bytes);
    free(path);
    return model;
}

/* Every tensor but the input's own codes. */
static size_t inner_tensors(const struct nd_model *model, size_t tensors[64])
{
    size_t n = 0;
    for (size_t e = 0; e < nd_model_n_tensors(model); e++)
        if (strcmp(nd_model_tensor(model, e)->op_types, "input") != 0)
            tensors[n++] = e;
    return n;
}

static void ends_of_native_model_are_qvalues_under_safe_names(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_native native = {0};
    struct nd_model *model = load_changed("stem/relu", "st m/r\xc3\xa9l"), *copy = NULL;
    size_t tensors[64], n = inner_tensors(model, tensors);
    char *path = in_folder("native.onnx");
    expect_ok(nd_model_write_native(model, tensors, n, path, &native, &err), &err);
    expect_ok(nd_model_load(path, &copy, &err), &err);
    assert_int_equal(native.n_inputs, 1);
    assert_string_equal(native.inputs[0].tensor, "image_QuantizeLinear_Output");
    assert_int_equal(nd_model_n_inputs(copy), 1);
    assert_string_equal(nd_model_input(copy, 0)->name, native.inputs[0].name);
    assert_int_equal(nd_model_input(copy, 0)->dtype, ND_DTYPE_U8);
    assert_true(nd_shape_equal(&nd_model_input(copy, 0)->shape, &nd_model_input(model, 0)->shape));
    assert_int_equal(native.n_outputs, n);
    assert_int_equal(nd_model_n_outputs(copy), n);
    for (size_t i = 0; i < n; i++) {
        const struct nd_model_io *output = nd_model_output(copy, i);
        const struct nd_tensor *tensor = nd_model_tensor(model, native.outputs[i].index);
        assert_int_equal(native.outputs[i].index, tensors[i]);
        assert_string_equal(native.outputs[i].tensor, tensor->onnx_name);
        assert_string_equal(output->name, native.outputs[i].name);
        assert_int_equal(output->dtype, ND_DTYPE_U8);
        assert_int_equal(
            strspn(output->name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"),
            strlen(output->name));
    }
    /* The graph behind the quantised values is the same: one node less, as many layers. */
    assert_int_equal(nd_model_n_layers(copy), nd_model_n_layers(model));
    nd_native_deinit(&native);
    nd_model_destroy(&model);
    nd_model_destroy(&copy);
    free(path);
}

static void same_call_writes_the_same_bytes(void **state)
{
    (void)state;
    void *bytes[2] = {NULL, NULL};
    size_t sizes[2] = {0, 0};
    struct nd_model *model = load_changed("stem/relu", "stem/relu");
    size_t tensors[64], n = inner_tensors(model, tensors);
    char *path = in_folder("native.onnx");
    for (int i = 0; i < 2; i++) {
        struct nd_native native = {0};
        assert_int_equal(nd_model_write_native(model, tensors, n, path, &native, NULL), ND_OK);
        assert_int_equal(nd_file_read(path, 1 << 24, &bytes[i], &sizes[i], NULL), ND_OK);
        nd_native_deinit(&native);
    }
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
    free(bytes[0]);
    free(bytes[1]);
    nd_model_destroy(&model);
    free(path);
}

static void names_that_collide_are_both_named(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_native native = {0};
    struct nd_model *model = load_changed("residual/relu", "residual.conv");
    size_t tensors[64], n = inner_tensors(model, tensors);
    char *path = in_folder("native.onnx");
    assert_int_equal(nd_model_write_native(model, tensors, n, path, &native, &err), ND_ERR_UNSUPPORTED);
    assert_int_equal(err.id, ND_E_PREPARE_NAMES);
    assert_non_null(strstr(err.message, "'residual/conv_QuantizeLinear_Output'"));
    assert_non_null(strstr(err.message, "'residual.conv_QuantizeLinear_Output'"));
    assert_null(native.outputs); /* untouched */
    nd_model_destroy(&model);
    free(path);
}

/* Asked for alone, the same tensor has its name for itself: the other tensor inside makes way. */
static void tensor_inside_makes_method(void **state)
{
    (void)state;
    struct nd_error err = {0};
    struct nd_native native = {0};
    struct nd_model *model = load_changed("residual/relu", "residual_conv"), *copy = NULL;
    size_t tensors[64], n = inner_tensors(model, tensors), chosen = 0;
    char *path = in_folder("native.onnx");
    for (size_t i = 0; i < n; i++)
        if (strcmp(nd_model_tensor(model, tensors[i])->name, "residual/conv") == 0)
            chosen = tensors[i];
    /* The output must need the other: logits come behind both. */
    const size_t two[] = {chosen, tensors[n - 1]};
    expect_ok(nd_model_write_native(model, two, 2, path, &native, &err), &err);
    expect_ok(nd_model_load(path, &copy, &err), &err);
    assert_string_equal(nd_model_output(copy, 0)->name, "residual_conv_QuantizeLinear_Output");
    assert_true(nd_model_has_tensor(copy, "residual_conv_QuantizeLinear_Output_inside0"));
    assert_int_equal(nd_model_n_layers(copy), nd_model_n_layers(model));
    nd_native_deinit(&native);
    nd_model_destroy(&model);
    nd_model_destroy(&copy);
    free(path);
}

/* ---- quantised values ---- */

struct qvalue_range {
    enum nd_dtype dtype;
    int64_t min, max;
};
static const struct qvalue_range qvalue_ranges[] = {
    {ND_DTYPE_U8, 0, 255}, {ND_DTYPE_I8, -128, 127}, {ND_DTYPE_U16, 0, 65535}, {ND_DTYPE_I16, -32768, 32767}};

static int64_t qvalue_at(enum nd_dtype dtype, const void *qvalues, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_U8:
        return ((const uint8_t *)qvalues)[i];
    case ND_DTYPE_I8:
        return ((const int8_t *)qvalues)[i];
    case ND_DTYPE_U16:
        return ((const uint16_t *)qvalues)[i];
    default:
        return ((const int16_t *)qvalues)[i];
    }
}

static int64_t quantise_one(float value, float scale, int64_t zero_point, enum nd_dtype dtype)
{
    uint16_t qvalue[1] = {0xabcd};
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero_point};
    nd_prepare_quantise(&value, 1, &quant, 1, dtype, qvalue);
    return qvalue_at(dtype, qvalue, 0);
}

static void ties_go_to_even(void **state)
{
    (void)state;
    static const struct {
        float value;
        int64_t qvalue;
    } cases[] = {{0.25f, 0}, {0.75f, 2}, {1.25f, 2}, {1.75f, 4}, {-0.25f, 0}, {-0.75f, -2}, {-1.25f, -2}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(quantise_one(cases[i].value, 0.5f, 0, ND_DTYPE_I8), cases[i].qvalue);
        /* The zero point is added behind the rounding: odd or even, it moves no tie. */
        assert_int_equal(quantise_one(cases[i].value, 0.5f, 101, ND_DTYPE_U8), cases[i].qvalue + 101);
    }
}

static void qvalues_saturate_and_nan_is_lowest(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof qvalue_ranges / sizeof qvalue_ranges[0]; t++) {
        const struct qvalue_range *range = &qvalue_ranges[t];
        for (int64_t zero_point = range->min; zero_point <= range->max; zero_point += 51) {
            static const float large[] = {INFINITY, 3.4028234e38f, 1e30f};
            for (size_t i = 0; i < 3; i++) {
                assert_int_equal(quantise_one(large[i], 0.01f, zero_point, range->dtype), range->max);
                assert_int_equal(quantise_one(-large[i], 0.01f, zero_point, range->dtype), range->min);
            }
            assert_int_equal(quantise_one(NAN, 0.01f, zero_point, range->dtype), range->min);
            assert_int_equal(quantise_one(0.0f, 0.01f, zero_point, range->dtype), zero_point);
            assert_int_equal(quantise_one(-0.0f, 0.01f, zero_point, range->dtype), zero_point);
            assert_int_equal(quantise_one(1e-42f, 0.01f, zero_point, range->dtype), zero_point);
        }
    }
}

/* Every quantised value comes back from what it stands for. */
static void qvalue_of_what_a_qvalue_stands_for_is_itself(void **state)
{
    (void)state;
    for (size_t t = 0; t < sizeof qvalue_ranges / sizeof qvalue_ranges[0]; t++) {
        const struct qvalue_range *range = &qvalue_ranges[t];
        int64_t zero_point = range->min + (range->max - range->min) / 3;
        for (int64_t qvalue = range->min; qvalue <= range->max; qvalue++)
            assert_int_equal(
                quantise_one((float)(qvalue - zero_point) * 0.0173f, 0.0173f, zero_point, range->dtype),
                qvalue);
    }
}

static void channels_have_their_own_scales(void **state)
{
    (void)state;
    float scales[] = {1.0f, 0.5f, 0.25f};
    int64_t zero_points[] = {0, 10, 20};
    const struct nd_quant quant = {.n = 3, .axis = 1, .scale = scales, .zero_point = zero_points};
    const float values[] = {1, 2, 1, 2, 1, 2, 3, 4, 3, 4, 3, 4}; /* [2, 3, 2] */
    static const uint8_t expected[] = {1, 2, 12, 14, 24, 28, 3, 4, 16, 18, 32, 36};
    uint8_t qvalues[12];
    nd_prepare_quantise(values, 12, &quant, 2, ND_DTYPE_U8, qvalues);
    assert_memory_equal(qvalues, expected, sizeof expected);
}

/* ---- what is refused ---- */

static enum nd_status try_prepare(const struct nd_model *model, const struct nd_device *device,
                                  const char *target, const struct nd_prepare_options *options,
                                  struct nd_error *err)
{
    const char *spec = "zeros";
    struct nd_probe *probe = NULL;
    expect_ok(nd_probes_for_model(model, &spec, 1, &probe, err), err);
    const struct nd_probe *probes[] = {probe, probe};
    enum nd_status status =
        nd_prepare(&(struct nd_workload){model, device, probes, 1}, target, options, NULL, err);
    nd_probe_destroy(&probe);
    return status;
}

static void request_without_meaning_is_refused_before_anything_is_made(void **state)
{
    (void)state;
    static const struct nd_chipset chipset = {.sm = "SM8650", .soc_model = 57, .arch = "v75"};
    const struct nd_device cpu = {.kind = ND_DEVICE_CPU, .label = (char *)(uintptr_t) "cpu"};
    const struct nd_device sim = {
        .kind = ND_DEVICE_HTP_SIM, .label = (char *)(uintptr_t) "gen3", .chipset = &chipset};
    struct nd_prepare_options options;
    struct nd_error err = {0};
    struct nd_model *model = load_changed("stem/relu", "stem/relu");
    char *target = in_folder("prepared"), *below = in_folder("none/prepared");
    nd_prepare_options_init(&options);
    assert_int_equal(try_prepare(model, &cpu, target, &options, &err), ND_ERR_USAGE);
    assert_non_null(strstr(err.message, "'cpu' makes no context"));
    assert_int_equal(try_prepare(model, &sim, folder, &options, &err), ND_ERR_IO);
    assert_int_equal(err.id, ND_E_FILE_EXISTS);
    assert_int_equal(try_prepare(model, &sim, below, &options, &err), ND_ERR_IO);
    options.tensors = "none";
    assert_int_equal(try_prepare(model, &sim, target, &options, &err), ND_ERR_USAGE);
    options.tensors = "image"; /* quantised values of an input: nothing is computed */
    assert_int_equal(try_prepare(model, &sim, target, &options, &err), ND_ERR_NOT_FOUND);
    options.tensors = NULL;
    options.struct_size = 1;
    assert_int_equal(try_prepare(model, &sim, target, &options, &err), ND_ERR_USAGE);
    assert_false(nd_path_exists(target));
    free(target);
    free(below);
    nd_model_destroy(&model);
}

static void qnn_types_have_their_names(void **state)
{
    (void)state;
    assert_string_equal(nd_qnn_type_name(0x0408), "QNN_DATATYPE_UFIXED_POINT_8");
    assert_string_equal(nd_qnn_type_name(0x0232), "QNN_DATATYPE_FLOAT_32");
    assert_string_equal(nd_qnn_type_name(0x7fff), "QNN_DATATYPE_UNDEFINED");
}

#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_keeps_letters_digits_and_underscores),
        IN_FOLDER(ends_of_native_model_are_qvalues_under_safe_names),
        IN_FOLDER(same_call_writes_the_same_bytes),
        IN_FOLDER(names_that_collide_are_both_named),
        IN_FOLDER(tensor_inside_makes_method),
        cmocka_unit_test(ties_go_to_even),
        cmocka_unit_test(qvalues_saturate_and_nan_is_lowest),
        cmocka_unit_test(qvalue_of_what_a_qvalue_stands_for_is_itself),
        cmocka_unit_test(channels_have_their_own_scales),
        IN_FOLDER(request_without_meaning_is_refused_before_anything_is_made),
        cmocka_unit_test(qnn_types_have_their_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
