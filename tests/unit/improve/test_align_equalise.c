/* Channels of two layers that are scaled against each other, where that lowers the error at the outputs. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "model/rewrite/compose.h"
#include "npudiff/devices/device.h"
#include "npudiff/improve/align.h"
#include "support/scratch.h"

enum { CHANNELS = 8, SIDE = 6, KERNEL = 3, N_W = CHANNELS * CHANNELS, N_V = CHANNELS * KERNEL * KERNEL };

struct recipe {
    uint64_t seed;
    float most;      /* of the tensor between the layers */
    bool is_even;    /* channels are of one size already */
    bool is_bound;   /* the float model has a Clip, which the quantiser stands for */
    bool has_reader; /* the tensor between is read by another layer, too */
};

/* A constant: floats, or quantised values of them behind a DequantizeLinear. */
static void add_constant(struct nd_compose *c, const char *name, const struct nd_shape *shape,
                         const float *reals, size_t n, float scale, bool is_quantised)
{
    int8_t qvalues[N_V + N_W];
    int32_t wide[CHANNELS];
    int64_t zero = 0;
    bool is_bias = strcmp(name, "b") == 0;
    char coded[32], made[64];
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &scale, .zero_point = &zero};
    if (!is_quantised) {
        nd_compose_constant(c, name, ND_DTYPE_F32, shape, reals);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        if (is_bias)
            wide[i] = (int32_t)lrintf(reals[i] / scale);
        else
            qvalues[i] = (int8_t)lrintf(reals[i] / scale);
    }
    snprintf(coded, sizeof coded, "%s_quantized", name);
    snprintf(made, sizeof made, "%s_DequantizeLinear_Output", name);
    nd_compose_constant(c, coded, is_bias ? ND_DTYPE_I32 : ND_DTYPE_I8, shape,
                        is_bias ? (const void *)wide : qvalues);
    nd_compose_dequantize(c, coded, made, &quant, is_bias ? ND_DTYPE_I32 : ND_DTYPE_I8);
}

static void quantise(struct nd_compose *c, const char *tensor, float scale, int64_t zero, bool is_quantised)
{
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

/* Sizes of channels: those of the first layer, and one by those of the second. */
static float size_of(const struct recipe *recipe, size_t channel)
{
    return recipe->is_even ? 1 : ldexpf(1, -2 * (int)(channel % 4));
}

/* x -> Conv 1x1 -> Relu -> depthwise Conv -> y. What the channels lose in the first layer they get back in the
 * second. */
static void write_model(const struct recipe *recipe, bool is_quantised, const char *path)
{
    struct nd_compose *c = NULL;
    uint64_t state = recipe->seed;
    float w[N_W], b[CHANNELS], v[N_V];
    const float scale_w = 1.0F / 127, scale_x = 2.0F / 255, scale_v = 64.0F / 127;
    const char *const suffix = is_quantised ? "_DequantizeLinear_Output" : "";
    char names[3][64];
    for (size_t i = 0; i < N_W; i++)
        w[i] = (float)(2 * nd_splitmix_uniform(&state) - 1) * size_of(recipe, i / CHANNELS);
    for (size_t i = 0; i < CHANNELS; i++)
        b[i] = (float)(nd_splitmix_uniform(&state) - 0.5) * size_of(recipe, i);
    for (size_t i = 0; i < N_V; i++)
        v[i] = (float)(2 * nd_splitmix_uniform(&state) - 1) / size_of(recipe, i / (KERNEL * KERNEL));
    for (size_t i = 0; i < 3; i++)
        snprintf(names[i], sizeof names[i], "%s%s", (const char *[]){"w", "b", "v"}[i], suffix);
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_F32, &(struct nd_shape){4, {1, CHANNELS, SIDE, SIDE}});
    quantise(c, "x", scale_x, 128, is_quantised);
    add_constant(c, "w", &(struct nd_shape){4, {CHANNELS, CHANNELS, 1, 1}}, w, N_W, scale_w, is_quantised);
    add_constant(c, "b", &(struct nd_shape){1, {CHANNELS}}, b, CHANNELS, scale_x * scale_w, is_quantised);
    add_constant(c, "v", &(struct nd_shape){4, {CHANNELS, 1, KERNEL, KERNEL}}, v, N_V, scale_v, is_quantised);
    nd_compose_node(c, "Conv", (const char *[]){"x.dq", names[0], names[1], NULL}, "sum");
    if (recipe->is_bound && !is_quantised) {
        nd_compose_constant(c, "low", ND_DTYPE_F32, &(struct nd_shape){0, {0}}, &(float){0});
        nd_compose_constant(c, "high", ND_DTYPE_F32, &(struct nd_shape){0, {0}}, &recipe->most);
        nd_compose_node(c, "Clip", (const char *[]){"sum", "low", "high", NULL}, "a");
    } else {
        nd_compose_node(c, "Relu", (const char *[]){"sum", NULL}, "a");
    }
    quantise(c, "a", recipe->most / 255, 0, is_quantised);
    nd_compose_node(c, "Conv", (const char *[]){"a.dq", names[2], NULL}, "y");
    nd_compose_attribute_i(c, "group", CHANNELS);
    nd_compose_attribute_ints(c, "pads", (int64_t[]){1, 1, 1, 1}, 4);
    quantise(c, "y", 10.0F / 255, 128, is_quantised);
    nd_compose_output(c, "y.dq", ND_DTYPE_F32, &(struct nd_shape){4, {1, CHANNELS, SIDE, SIDE}});
    if (recipe->has_reader) {
        nd_compose_node(c, "MaxPool", (const char *[]){"a.dq", NULL}, "z");
        nd_compose_attribute_ints(c, "kernel_shape", (int64_t[]){2, 2}, 2);
        quantise(c, "z", recipe->most / 255, 0, is_quantised);
        nd_compose_output(c, "z.dq", ND_DTYPE_F32, &(struct nd_shape){4, {1, CHANNELS, SIDE - 1, SIDE - 1}});
    }
    assert_int_equal(nd_compose_write(c, path, NULL), ND_OK);
    nd_compose_destroy(&c);
}

/* Decibels at the output, on samples that no weight was rounded for. */
static double align(const struct recipe *recipe, bool keeps_channels, size_t *n_equalised)
{
    const char *const specs[] = {"uniform:12:77", "uniform:16:5"};
    char *paths[] = {in_folder("model.onnx"), in_folder("float.onnx"), in_folder("aligned.onnx")};
    struct nd_model *quantised = NULL, *real = NULL;
    struct nd_probe *probes[2] = {NULL};
    struct nd_align_options options;
    struct nd_alignment *alignment = NULL;
    struct nd_error err = {0};
    write_model(recipe, true, paths[0]);
    write_model(recipe, false, paths[1]);
    expect_ok(nd_model_load(paths[0], &quantised, &err), &err);
    expect_ok(nd_model_load(paths[1], &real, &err), &err);
    expect_ok(nd_probes_for_model(quantised, specs, 2, probes, &err), &err);
    nd_align_options_init(&options);
    options.float_model = real;
    options.probes = (const struct nd_probe *const *)probes;
    options.n_probes = 1;
    options.fit = (const struct nd_probe *const *)probes + 1;
    options.n_fit = 1;
    options.keeps_channels = keeps_channels;
    options.output = paths[2];
    options.replace = true;
    expect_ok(nd_align(quantised, &options, &alignment, &err), &err);
    double sqnr = alignment->outputs[0].sqnr_after_db;
    *n_equalised = alignment->n_equalised;
    assert_int_equal(alignment->n_from_float, 2);
    assert_int_equal(alignment->n_proven, alignment->n_layers);
    print_message("# seed %llu: %zu equalised, %.1f dB\n", (unsigned long long)recipe->seed, *n_equalised,
                  sqnr);
    nd_alignment_destroy(&alignment);
    for (size_t i = 0; i < 2; i++)
        nd_probe_destroy(&probes[i]);
    nd_model_destroy(&quantised);
    nd_model_destroy(&real);
    for (size_t i = 0; i < 3; i++)
        free(paths[i]);
    return sqnr;
}

static void uneven_channels_are_equalised(void **state)
{
    (void)state;
    static const double min_gain_db = 5;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        const struct recipe recipe = {.seed = seed, .most = 4};
        size_t n_kept, n;
        double kept = align(&recipe, true, &n_kept), equalised = align(&recipe, false, &n);
        assert_int_equal(n_kept, 0);
        assert_int_equal(n, 1);
        assert_true(equalised > kept + min_gain_db);
    }
}

static void even_channels_stay(void **state)
{
    (void)state;
    size_t n;
    align(&(struct recipe){.seed = 1, .most = 4, .is_even = true}, false, &n);
    assert_int_equal(n, 0);
}

/* A channel that becomes smaller would be clipped at more than the bound. */
static void what_a_bound_holds_stays(void **state)
{
    (void)state;
    size_t n;
    align(&(struct recipe){.seed = 1, .most = 4, .is_bound = true}, false, &n);
    assert_int_equal(n, 0);
}

static void what_two_layers_read_stays(void **state)
{
    (void)state;
    size_t n;
    align(&(struct recipe){.seed = 1, .most = 4, .has_reader = true}, false, &n);
    assert_int_equal(n, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(uneven_channels_are_equalised, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(even_channels_stay, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_a_bound_holds_stays, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_two_layers_read_stays, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
