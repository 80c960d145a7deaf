/* Layers on bytes: each gives the quantised values that the evaluation in doubles gives. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/bytes/byte_layer.h"
#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/random.h"
#include "explain/evaluate/packed.h"
#include "model/rewrite/compose.h"
#include "support/scratch.h"

#define SHAPE(...)                                                                                             \
    ((struct nd_shape){.rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), .dims = {__VA_ARGS__}})
#define NAMES(...) ((const char *[]){__VA_ARGS__, NULL})

enum { MAX_TENSORS = 64, CHANNELS = 8 };

static uint64_t seed = 20;

static int64_t pick(int64_t low, int64_t high)
{
    return low + (int64_t)(nd_random_next(&seed) % (uint64_t)(high - low + 1));
}

/* Another scale and zero point for each tensor. */
struct quantiser {
    float scale[CHANNELS];
    int64_t zero[CHANNELS];
    struct nd_quant quant;
};

static struct nd_quant *any_quant(struct quantiser *q, enum nd_dtype dtype, size_t n, int axis)
{
    for (size_t i = 0; i < n; i++) {
        q->scale[i] = (float)pick(60, 200) / 4096;
        q->zero[i] = n > 1 ? 0 : dtype == ND_DTYPE_I8 ? pick(-90, 90) : pick(20, 200);
    }
    q->quant = (struct nd_quant){.n = n, .axis = axis, .scale = q->scale, .zero_point = q->zero};
    return &q->quant;
}

/* NAME is what a node made; NAME.q its quantised values, and NAME.dq those made numbers again. */
static void requantise(struct nd_compose *c, const char *name, enum nd_dtype dtype)
{
    struct quantiser q;
    char qvalues[64], numbers[64];
    snprintf(qvalues, sizeof qvalues, "%s.q", name);
    snprintf(numbers, sizeof numbers, "%s.dq", name);
    any_quant(&q, dtype, 1, -1);
    nd_compose_quantize(c, name, qvalues, &q.quant, dtype);
    nd_compose_dequantize(c, qvalues, numbers, &q.quant, dtype);
}

static void weigh(struct nd_compose *c, const char *name, const struct nd_shape *shape)
{
    int8_t qvalues[CHANNELS * CHANNELS * 9];
    struct quantiser q;
    char numbers[64];
    snprintf(numbers, sizeof numbers, "%s.dq", name);
    for (size_t i = 0; i < sizeof qvalues; i++)
        qvalues[i] = (int8_t)pick(-127, 127);
    nd_compose_constant(c, name, ND_DTYPE_I8, shape, qvalues);
    nd_compose_dequantize(c, name, numbers, any_quant(&q, ND_DTYPE_I8, CHANNELS, 0), ND_DTYPE_I8);
}

static void compose_convolutions(struct nd_compose *c)
{
    const float bias[CHANNELS] = {0.1f, -2, 3, 0, 0.25f, 7, -1e-3f, 1};
    nd_compose_input(c, "x", ND_DTYPE_F32, &SHAPE(2, CHANNELS, 13, 11));
    requantise(c, "x", ND_DTYPE_U8);
    weigh(c, "w", &SHAPE(CHANNELS, CHANNELS, 3, 3));
    nd_compose_constant(c, "bias", ND_DTYPE_F32, &SHAPE(CHANNELS), bias);
    nd_compose_node(c, "Conv", NAMES("x.dq", "w.dq", "bias"), "conv");
    nd_compose_attribute_ints(c, "pads", (const int64_t[]){1, 0, 2, 1}, 4);
    nd_compose_node(c, "Relu", NAMES("conv"), "relu");
    requantise(c, "relu", ND_DTYPE_I8);
    weigh(c, "planes", &SHAPE(CHANNELS, 1, 3, 3));
    for (int64_t stride = 1; stride <= 2; stride++) {
        const char *name = stride == 1 ? "plane" : "plane2";
        nd_compose_node(c, "Conv", NAMES("relu.dq", "planes.dq"), name);
        nd_compose_attribute_ints(c, "pads", (const int64_t[]){1, 1, 1, 1}, 4);
        nd_compose_attribute_ints(c, "strides", (const int64_t[]){stride, stride}, 2);
        nd_compose_attribute_i(c, "group", CHANNELS);
        requantise(c, name, stride == 1 ? ND_DTYPE_U8 : ND_DTYPE_I8);
    }
    weigh(c, "points", &SHAPE(CHANNELS, CHANNELS, 1, 1));
    nd_compose_node(c, "Conv", NAMES("plane.dq", "points.dq", "bias"), "point");
    requantise(c, "point", ND_DTYPE_U8);
}

static void compose_others(struct nd_compose *c)
{
    const float number = 0.37f;
    const int64_t flat[] = {2, -1}, split[] = {3, 5};
    nd_compose_constant(c, "number", ND_DTYPE_F32, &SHAPE(1), &number);
    nd_compose_constant(c, "flat", ND_DTYPE_I64, &SHAPE(2), flat);
    nd_compose_constant(c, "sizes", ND_DTYPE_I64, &SHAPE(2), split);
    nd_compose_node(c, "Sigmoid", NAMES("point.dq"), "sigmoid");
    requantise(c, "sigmoid", ND_DTYPE_U8);
    nd_compose_node(c, "Mul", NAMES("sigmoid.dq", "point.dq"), "silu");
    requantise(c, "silu", ND_DTYPE_I8);
    nd_compose_node(c, "GlobalAveragePool", NAMES("silu.dq"), "mean");
    requantise(c, "mean", ND_DTYPE_U8);
    nd_compose_node(c, "Mul", NAMES("mean.dq", "silu.dq"), "excited");
    requantise(c, "excited", ND_DTYPE_U8);
    nd_compose_node(c, "Add", NAMES("excited.dq", "number"), "moved");
    requantise(c, "moved", ND_DTYPE_U8);
    nd_compose_node(c, "Concat", NAMES("moved.dq", "silu.dq", "plane.dq"), "joined");
    nd_compose_attribute_i(c, "axis", 1);
    requantise(c, "joined", ND_DTYPE_U8);
    nd_compose_node(c, "Reshape", NAMES("joined.dq", "flat"), "long");
    requantise(c, "long", ND_DTYPE_I8);
    nd_compose_node(c, "Transpose", NAMES("plane2.dq"), "turned");
    nd_compose_attribute_ints(c, "perm", (const int64_t[]){0, 2, 3, 1}, 4);
    requantise(c, "turned", ND_DTYPE_U8);
    nd_compose_output(c, "long.dq", ND_DTYPE_F32, &SHAPE(2, 24 * 14 * 10));
    nd_compose_output(c, "turned.dq", ND_DTYPE_F32, &SHAPE(2, 7, 5, CHANNELS));
}

static enum nd_status keep_shape(void *context, size_t tensor, const struct nd_array *values,
                                 enum nd_exact_method method, struct nd_error *err)
{
    struct nd_shape *shapes = context;
    (void)method;
    (void)err;
    shapes[tensor] = values->shape;
    return ND_OK;
}

static struct nd_byte_layers *find(const struct nd_model *model, const struct nd_exact_graph *graph,
                                   struct nd_shape shapes[MAX_TENSORS])
{
    struct nd_array input = {0};
    struct nd_byte_layers *layers = NULL;
    struct nd_error err = {0};
    const struct nd_exact_options options = {.struct_size = sizeof options};
    assert_true(nd_model_n_tensors(model) <= MAX_TENSORS);
    for (size_t e = 0; e < MAX_TENSORS; e++)
        shapes[e].rank = -1;
    assert_int_equal(nd_array_make(&input, ND_DTYPE_F32, &SHAPE(2, CHANNELS, 13, 11), NULL), ND_OK);
    if (nd_exact_graph_run(graph, &input, &options, keep_shape, shapes, &err) != ND_OK ||
        nd_byte_layers_create(graph, shapes, SIZE_MAX, &layers, &err) != ND_OK)
        fail_msg("%s", err.message);
    nd_array_deinit(&input);
    assert_non_null(layers);
    return layers;
}

/* Random quantised values of every input, as doubles and as bytes. */
static void check_layer(const struct nd_model *model, const struct nd_byte_layers *layers,
                        struct nd_byte_runner *runner, size_t layer, const struct nd_shape *shapes)
{
    const size_t *tensors;
    size_t n = nd_byte_layer_inputs(layers, layer, &tensors);
    struct nd_array inputs[4] = {{.n = 0}}, qvalues = {0};
    struct nd_packed packed[4] = {{.width = 0}}, wanted = {.width = 0};
    const uint8_t *bytes[4];
    const char *name = nd_model_tensor(model, nd_byte_layer_tensor(layers, layer))->name;
    assert_true(n <= 4);
    for (size_t i = 0; i < n; i++) {
        double low, high;
        enum nd_dtype dtype = nd_model_tensor(model, tensors[i])->dtype;
        nd_qvalue_range(dtype, &low, &high);
        assert_int_equal(nd_array_make(&inputs[i], dtype, &shapes[tensors[i]], NULL), ND_OK);
        for (size_t k = 0; k < inputs[i].n; k++)
            inputs[i].x[k] = (double)pick((int64_t)low, (int64_t)high);
        assert_int_equal(nd_pack(&inputs[i], &packed[i], NULL), ND_OK);
        bytes[i] = packed[i].bytes;
    }
    assert_int_equal(nd_byte_layer_evaluate(runner, layer, inputs, &qvalues, NULL), ND_OK);
    assert_int_equal(nd_pack(&qvalues, &wanted, NULL), ND_OK);
    assert_int_equal(wanted.width, 1);
    uint8_t *out = malloc(qvalues.n);
    assert_non_null(out);
    assert_int_equal(nd_byte_layer_run(runner, layer, bytes, out, NULL), ND_OK);
    if (memcmp(out, wanted.bytes, qvalues.n) != 0)
        fail_msg("'%s' gives other quantised values", name);
    free(out);
    nd_array_deinit(&qvalues);
    nd_packed_deinit(&wanted);
    for (size_t i = 0; i < n; i++) {
        nd_array_deinit(&inputs[i]);
        nd_packed_deinit(&packed[i]);
    }
}

static void layers_on_bytes_give_the_qvalues_of_the_evaluation(void **state)
{
    (void)state;
    static const char *const slow[] = {"mean", "turned"}; /* a sum; short runs */
    struct nd_compose *c = NULL;
    struct nd_model *model;
    struct nd_exact_graph *graph;
    struct nd_byte_runner *runner;
    struct nd_error err = {0};
    char *path = in_folder("model.onnx");
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    compose_convolutions(c);
    compose_others(c);
    if (nd_compose_write(c, path, &err) != ND_OK || nd_model_load(path, &model, &err) != ND_OK ||
        nd_exact_graph_create(model, &graph, &err) != ND_OK)
        fail_msg("%s", err.message);
    struct nd_shape shapes[MAX_TENSORS];
    struct nd_byte_layers *layers = find(model, graph, shapes);
    assert_int_equal(nd_byte_runner_create(layers, &runner, NULL), ND_OK);
    size_t n_quick = 0;
    for (size_t u = 0; u < nd_byte_layers_count(layers); u++) {
        const char *name = nd_model_tensor(model, nd_byte_layer_tensor(layers, u))->name;
        bool is_slow = false;
        for (size_t i = 0; i < sizeof slow / sizeof slow[0]; i++)
            is_slow = is_slow || strncmp(name, slow[i], strlen(slow[i])) == 0;
        if (nd_byte_layer_is_quick(layers, u) == is_slow)
            fail_msg("'%s' is %s", name, is_slow ? "quick" : "slow");
        for (int round = 0; round < 20 && !is_slow; round++)
            check_layer(model, layers, runner, u, shapes);
        n_quick += !is_slow;
    }
    assert_int_equal(n_quick, 10);
    nd_byte_runner_destroy(&runner);
    nd_byte_layers_destroy(&layers);
    nd_exact_graph_destroy(&graph);
    nd_model_destroy(&model);
    nd_compose_destroy(&c);
    free(path);
}

/* ---- kernels ---- */

enum { MOST = 300 };

/* Bytes to numbers and back, and to other bytes. */
static void check_bytes(const struct nd_gemm_kernels *kernels, const uint8_t *bytes, int zero, size_t n)
{
    static double qvalues[MOST];
    const double broken[] = {0.5, 256, -1, (double)NAN};
    uint8_t table[256], found[MOST], back[MOST];
    int16_t shorts[MOST];
    float floats[MOST];
    for (size_t i = 0; i < sizeof table; i++)
        table[i] = (uint8_t)pick(0, 255);
    kernels->look_up(table, bytes, n, found);
    kernels->spread(bytes, -128, n, qvalues);
    kernels->widen(bytes, zero, n, shorts);
    kernels->to_floats(bytes, zero, n, floats);
    assert_true(kernels->narrow(qvalues, -128, n, back));
    for (size_t i = 0; i < n; i++)
        assert_true(found[i] == table[bytes[i]] && qvalues[i] == bytes[i] - 128 && back[i] == bytes[i] &&
                    shorts[i] == bytes[i] - zero && floats[i] == (float)shorts[i]);
    for (size_t i = 0; i < 4; i++)
        assert_false(kernels->narrow(broken + i, 0, 1, back));
}

/* And sums to bytes, held against round. */
static void every_set_takes_bytes(void **state)
{
    (void)state;
    static uint8_t bytes[MOST], rounded[MOST];
    static double x[MOST], near[MOST], qvalues[MOST];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels), n_clear = 0;
    for (int round = 0; round < 400; round++) {
        size_t n = (size_t)pick(0, MOST);
        int zero = (int)pick(0, 255);
        bool has_tie = pick(0, 3) == 0 && n > 0;
        for (size_t i = 0; i < n; i++) {
            bytes[i] = (uint8_t)pick(0, 255);
            x[i] = (double)pick(-4000, 4000);
        }
        const struct nd_sums_rounding r = {.factor = 0.125 - 0x1p-20,
                                           .bias = 0.3,
                                           .least = -20.25,
                                           .greatest = pick(0, 1) == 0 ? 90.2 : (double)INFINITY,
                                           .zero = (double)zero,
                                           .most = 0.5 - 0x1p-28,
                                           .largest = 0x1p18};
        if (has_tie)
            x[pick(0, (int64_t)n - 1)] = pick(0, 1) == 0 ? (double)NAN : 0x1p40;
        for (size_t i = 0; i < n; i++)
            near[i] = fmin(fmax(x[i] * r.factor + r.bias, r.least), r.greatest);
        for (size_t s = 0; s < n_kernels; s++) {
            const struct nd_rounding_block block = {.near = near,
                                                    .n = n,
                                                    .zero = r.zero,
                                                    .low = 0,
                                                    .high = 255,
                                                    .most = r.most,
                                                    .largest = r.largest,
                                                    .qvalues = qvalues};
            bool is_clear = kernels[s]->round_sums(&r, x, n, rounded);
            assert_true(!has_tie || !is_clear || r.greatest < 100);
            n_clear += is_clear;
            if (is_clear && kernels[0]->round(&block))
                for (size_t i = 0; i < n; i++)
                    assert_true((double)rounded[i] == qvalues[i]);
            check_bytes(kernels[s], bytes, zero, n);
        }
    }
    assert_true(n_clear > 100);
}

static void every_set_adds_planes_of_floats(void **state)
{
    (void)state;
    static float in[4096], weights[9];
    static double out[1024];
    const struct nd_gemm_kernels *const *kernels;
    size_t n_kernels = nd_gemm_kernels_available(&kernels);
    for (int round = 0; round < 60; round++) {
        ptrdiff_t offsets[9];
        struct nd_float_taps p = {.in = in,
                                  .weights = weights,
                                  .offsets = offsets,
                                  .n_taps = (size_t)pick(1, 9),
                                  .n_rows = (size_t)pick(1, 20),
                                  .n_columns = (size_t)pick(1, 40),
                                  .out = out};
        p.in_row = p.n_columns + (size_t)pick(0, 5);
        for (size_t i = 0; i < 4096; i++)
            in[i] = (float)pick(-255, 255);
        for (size_t t = 0; t < p.n_taps; t++) {
            offsets[t] = (ptrdiff_t)pick(0, 900);
            weights[t] = (float)pick(-128, 127);
        }
        for (size_t s = 0; s < n_kernels; s++) {
            kernels[s]->add_float_plane(&p);
            for (size_t i = 0; i < p.n_rows * p.n_columns; i++) {
                const float *x = in + i / p.n_columns * p.in_row + i % p.n_columns;
                double wanted = 0;
                for (size_t t = 0; t < p.n_taps; t++)
                    wanted += (double)weights[t] * (double)x[offsets[t]];
                assert_true(out[i] == wanted);
            }
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_set_takes_bytes),
        cmocka_unit_test(every_set_adds_planes_of_floats),
        cmocka_unit_test(layers_on_bytes_give_the_qvalues_of_the_evaluation),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
