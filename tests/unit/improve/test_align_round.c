/* Weights that are rounded for inputs that were seen. */
#include "support/main.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "model/rewrite/compose.h"
#include "npudiff/devices/device.h"
#include "npudiff/improve/align.h"
#include "support/scratch.h"

enum { GROUPS = 2, CHANNELS = 6, SIDE = 7, KERNEL = 3, CLASSES = 5 };
enum {
    CONV_WEIGHTS = CHANNELS * CHANNELS / GROUPS * KERNEL * KERNEL,
    GEMM_WEIGHTS = CLASSES * CHANNELS * SIDE * SIDE
};

/* One constant, whose first element makes its scale coarse: floats, or quantised values of them behind a
 * DequantizeLinear.
 */
static void add_weights(struct nd_compose *c, const char *name, const struct nd_shape *shape, size_t n,
                        bool is_quantised, uint64_t *state)
{
    float real[GEMM_WEIGHTS], scale = 8.0F / 127;
    int8_t qvalues[GEMM_WEIGHTS];
    int64_t zero = 0;
    char coded[32];
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    for (size_t i = 0; i < n; i++) {
        real[i] = i == 0 ? 8 : (float)((nd_splitmix_uniform(state) - 0.5) / 2);
        qvalues[i] = (int8_t)(real[i] / scale);
    }
    if (!is_quantised) {
        nd_compose_constant(c, name, ND_DTYPE_F32, shape, real);
        return;
    }
    snprintf(coded, sizeof coded, "%s_quantized", name);
    nd_compose_constant(c, coded, ND_DTYPE_I8, shape, qvalues);
    snprintf(coded, sizeof coded, "%s_DequantizeLinear_Output", name);
    char from[32];
    snprintf(from, sizeof from, "%s_quantized", name);
    nd_compose_dequantize(c, from, coded, &quant, ND_DTYPE_I8);
}

static void quantise(struct nd_compose *c, const char *tensor, float scale, bool is_quantised)
{
    int64_t zero = strcmp(tensor, "x") == 0 ? 0 : 128;
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    char qvalues[32], reals[32];
    snprintf(qvalues, sizeof qvalues, "%s.q", tensor);
    snprintf(reals, sizeof reals, "%s.dq", tensor);
    if (is_quantised) {
        nd_compose_quantize(c, tensor, qvalues, &quant, ND_DTYPE_U8);
        nd_compose_dequantize(c, qvalues, reals, &quant, ND_DTYPE_U8);
    } else {
        nd_compose_node(c, "Identity", (const char *[]){tensor, NULL}, reals);
    }
}

/* x -> Conv in two groups, with stride and padding -> Flatten -> Gemm: all values of x are above 0, so that
 * errors of weights add up. */
static void write_model(bool is_quantised, uint64_t seed, const char *path)
{
    struct nd_compose *c = NULL;
    const char *const suffix = is_quantised ? "_DequantizeLinear_Output" : "";
    char names[2][64];
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_F32, &(struct nd_shape){4, {1, CHANNELS, 2 * SIDE, 2 * SIDE}});
    quantise(c, "x", 1.0F / 255, is_quantised);
    add_weights(c, "w", &(struct nd_shape){4, {CHANNELS, CHANNELS / GROUPS, KERNEL, KERNEL}}, CONV_WEIGHTS,
                is_quantised, &seed);
    snprintf(names[0], sizeof names[0], "w%s", suffix);
    nd_compose_node(c, "Conv", (const char *[]){"x.dq", names[0], NULL}, "a");
    nd_compose_attribute_i(c, "group", GROUPS);
    nd_compose_attribute_ints(c, "strides", (int64_t[]){2, 2}, 2);
    nd_compose_attribute_ints(c, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    quantise(c, "a", 18.0F / 255, is_quantised);
    nd_compose_node(c, "Flatten", (const char *[]){"a.dq", NULL}, "flat");
    quantise(c, "flat", 18.0F / 255, is_quantised);
    add_weights(c, "v", &(struct nd_shape){2, {CLASSES, CHANNELS * SIDE * SIDE}}, GEMM_WEIGHTS, is_quantised,
                &seed);
    snprintf(names[1], sizeof names[1], "v%s", suffix);
    nd_compose_node(c, "Gemm", (const char *[]){"flat.dq", names[1], NULL}, "y");
    nd_compose_attribute_i(c, "transB", 1);
    quantise(c, "y", 64.0F / 255, is_quantised);
    nd_compose_output(c, "y.dq", ND_DTYPE_F32, &(struct nd_shape){2, {1, CLASSES}});
    assert_int_equal(nd_compose_write(c, path, NULL), ND_OK);
    nd_compose_destroy(&c);
}

struct models {
    struct nd_model *quantised, *real;
};

/* Decibels at the output, on samples that no weight was rounded for. */
static double sqnr_after(const struct models *models, const char *fit, size_t *n_fit_samples)
{
    const char *const specs[] = {"uniform:12:77", fit};
    struct nd_probe *probes[2] = {NULL};
    struct nd_align_options options;
    struct nd_alignment *alignment = NULL;
    struct nd_error err = {0};
    expect_ok(nd_probes_for_model(models->quantised, specs, 2, probes, &err), &err);
    nd_align_options_init(&options);
    options.float_model = models->real;
    options.probes = (const struct nd_probe *const *)probes;
    options.n_probes = 1;
    options.fit = (const struct nd_probe *const *)probes + 1;
    options.n_fit = 1;
    expect_ok(nd_align(models->quantised, &options, &alignment, &err), &err);
    double sqnr = alignment->outputs[0].sqnr_after_db;
    *n_fit_samples = alignment->n_fit_samples;
    assert_int_equal(alignment->n_from_float, 2);
    assert_int_equal(alignment->n_proven, alignment->n_layers);
    nd_alignment_destroy(&alignment);
    for (size_t i = 0; i < 2; i++)
        nd_probe_destroy(&probes[i]);
    return sqnr;
}

static void errors_of_weights_cancel_on_inputs_that_were_seen(void **state)
{
    (void)state;
    static const double min_gain_db = 4; /* 5.2 to 10.2 when this was written */
    for (uint64_t seed = 1; seed <= 6; seed++) {
        char *paths[] = {in_folder("model.onnx"), in_folder("float.onnx")};
        struct models models = {.quantised = NULL};
        struct nd_error err = {0};
        size_t n;
        write_model(true, seed, paths[0]);
        write_model(false, seed, paths[1]);
        expect_ok(nd_model_load(paths[0], &models.quantised, &err), &err);
        expect_ok(nd_model_load(paths[1], &models.real, &err), &err);
        double to_nearest = sqnr_after(&models, "zeros", &n); /* says nothing: nothing is moved */
        assert_int_equal(n, 1);
        double fitted = sqnr_after(&models, "uniform:16:5", &n);
        assert_int_equal(n, 8);
        print_message("# seed %llu: %.1f dB rounded to the nearest, %.1f dB for inputs\n",
                      (unsigned long long)seed, to_nearest, fitted);
        assert_true(fitted > to_nearest + min_gain_db);
        nd_model_destroy(&models.quantised);
        nd_model_destroy(&models.real);
        for (size_t i = 0; i < 2; i++)
            free(paths[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(errors_of_weights_cancel_on_inputs_that_were_seen, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
