/* A quantised model whose channels are scaled against the float model's: what is said of it is what is said
 * beside the float model that is scaled in the same way. A scaling that the two layers do not share is an error
 * of the weights, and stays one. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/quantised_bench.h"

#include "arithmetic/exact/eval_graph.h"
#include "model/graph/loaded.h"

enum { C = 8, SIDE = 6, KERNEL = 9, MAX_LAYERS = 3 };

/* x -> layer -> op -> t0 -> layer -> op -> t1 ...: Conv 1x1, or a depthwise one. */
struct net {
    size_t n_layers;
    bool is_depthwise[MAX_LAYERS], has_bias, has_channels;
    const char *op; /* NULL: none */
    float bound;    /* of a Clip */
    float weights[MAX_LAYERS][C * KERNEL], bias[MAX_LAYERS][C];
};

static size_t n_weights(const struct net *net, size_t layer)
{
    return net->is_depthwise[layer] ? C * KERNEL : C * C;
}

static size_t channel(const struct net *net, size_t layer, bool is_output, size_t i)
{
    return net->is_depthwise[layer] ? i / KERNEL : is_output ? i / C : i % C;
}

static struct net make_net(size_t n_layers, const char *op)
{
    struct net net = {.n_layers = n_layers, .op = op, .has_bias = true};
    uint64_t seed = 20261124;
    for (size_t l = 0; l < n_layers; l++) {
        for (size_t i = 0; i < C * KERNEL; i++) {
            seed = seed * 6364136223846793005u + 1442695040888963407u;
            net.weights[l][i] = (float)(seed >> 40) / 0x1p23f - 0.8f;
        }
        for (size_t c = 0; c < C; c++)
            net.bias[l][c] = 0.1f * (float)c - 0.2f;
    }
    return net;
}

static void scale_outputs(struct net *net, size_t layer, const double *factors)
{
    for (size_t i = 0; i < n_weights(net, layer); i++)
        net->weights[layer][i] *= (float)factors[channel(net, layer, true, i)];
    for (size_t c = 0; c < C; c++)
        net->bias[layer][c] *= (float)factors[c];
}

static void scale_inputs(struct net *net, size_t layer, const double *factors)
{
    for (size_t i = 0; i < n_weights(net, layer); i++)
        net->weights[layer][i] /= (float)factors[channel(net, layer, false, i)];
}

static void scale_pair(struct net *net, size_t first, const double *factors)
{
    scale_outputs(net, first, factors);
    scale_inputs(net, first + 1, factors);
}

static const char *const weight_names[] = {"w0", "w1", "w2"}, *const bias_names[] = {"b0", "b1", "b2"};
static const char *const product_names[] = {"c0", "c1", "c2"}, *const tensor_names[] = {"x", "t0", "t1", "t2"};

static void compose_layer(struct bench *b, const struct net *net, size_t l)
{
    static const int64_t pads[] = {1, 1, 1, 1};
    const struct nd_shape dense = {.rank = 4, .dims = {C, C, 1, 1}}, deep = {.rank = 4, .dims = {C, 1, 3, 3}},
                          row = {.rank = 1, .dims = {C}}, one = {0};
    const char *op = l + 1 < net->n_layers ? net->op : NULL;
    const float low = -net->bound;
    nd_compose_constant(b->compose, weight_names[l], ND_DTYPE_F32, net->is_depthwise[l] ? &deep : &dense,
                        net->weights[l]);
    if (net->has_bias)
        nd_compose_constant(b->compose, bias_names[l], ND_DTYPE_F32, &row, net->bias[l]);
    nd_compose_node(
        b->compose, "Conv",
        (const char *const[]){tensor_names[l], weight_names[l], net->has_bias ? bias_names[l] : NULL, NULL},
        op != NULL ? product_names[l] : tensor_names[l + 1]);
    if (net->is_depthwise[l]) {
        nd_compose_attribute_i(b->compose, "group", C);
        nd_compose_attribute_ints(b->compose, "pads", pads, 4);
    }
    if (op != NULL && strcmp(op, "Clip") == 0) {
        nd_compose_constant(b->compose, l == 0 ? "low0" : "low1", ND_DTYPE_F32, &one, &low);
        nd_compose_constant(b->compose, l == 0 ? "high0" : "high1", ND_DTYPE_F32, &one, &net->bound);
        nd_compose_node(
            b->compose, "Clip",
            (const char *const[]){product_names[l], l == 0 ? "low0" : "low1", l == 0 ? "high0" : "high1", NULL},
            tensor_names[l + 1]);
    } else if (op != NULL) {
        nd_compose_node(b->compose, op, (const char *const[]){product_names[l], NULL}, tensor_names[l + 1]);
    }
}

static void compose(struct bench *b, const struct net *net)
{
    *b = (struct bench){.n = C * SIDE * SIDE, .shape = {.rank = 4, .dims = {1, C, SIDE, SIDE}}};
    struct nd_error err = {0};
    expect_ok(nd_compose_create(21, &b->compose, &err), &err);
    nd_compose_input(b->compose, "x", ND_DTYPE_F32, &b->shape);
    for (size_t l = 0; l < net->n_layers; l++)
        compose_layer(b, net, l);
    nd_compose_output(b->compose, tensor_names[net->n_layers], ND_DTYPE_F32, &b->shape);
}

/* int8 with one scale, or one for each channel of the outputs. */
static void quantise_weights(struct bench *b, const struct net *net, size_t l)
{
    size_t n_scales = net->has_channels ? C : 1;
    struct nd_quantised_tensor *weights = item(b, weight_names[l], ND_DTYPE_I8, n_scales);
    size_t k = (size_t)(weights - b->items);
    weights->has_axis = net->has_channels;
    b->quants[k].axis = net->has_channels ? 0 : -1;
    for (size_t i = 0; i < n_weights(net, l); i++) {
        float *scale = &b->scales[k][net->has_channels ? channel(net, l, true, i) : 0];
        *scale = fmaxf(*scale, fabsf(net->weights[l][i]) / 127);
    }
}

/* The net, quantised, beside a float model. */
static struct fixture run_nets(struct bench *b, const struct net *net, const struct net *floats)
{
    struct bench other;
    compose(b, net);
    compose(&other, floats);
    item(b, "x", ND_DTYPE_U16, 1);
    b->scales[0][0] = 1.0f / 65535;
    for (size_t l = 0; l < net->n_layers; l++) {
        quantise_weights(b, net, l);
        item(b, tensor_names[l + 1], ND_DTYPE_U16, 1);
        b->scales[b->n_items - 1][0] = 1024.0f / 65535;
        b->zeros[b->n_items - 1][0] = 32768;
    }
    struct fixture f = run_beside(b, other.compose);
    nd_compose_destroy(&other.compose);
    return f;
}

static const double odd_larger[C] = {1, 20, 1, 20, 1, 20, 1, 20},
                    half_smaller[C] = {0.1, 0.1, 0.1, 0.1, 2, 2, 2, 2};

/* ---- what is recognised ---- */

/* Two factors are fitted to the nine weights of a channel of a depthwise layer between two pairs, which takes
 * two ninths of their rounding error: 10 log10(9 / 7) = 1.1 dB. And a part of what one layer makes of a channel
 * may be given to the other. Models that are not recognised are more than 20 dB off. */
static const double weights_tolerance_db = 1.2, values_tolerance_db = 2.5;

static void assert_like_scaled(const struct net *net, const struct net *floats, size_t n_pairs)
{
    struct bench b, c;
    struct fixture f = run_nets(&b, net, floats), g = run_nets(&c, net, net);
    const struct nd_quantisation *q = f.e->quantisation;
    assert_int_equal(g.e->quantisation->n_equalised, 0);
    assert_int_equal(q->n_equalised, n_pairs);
    for (size_t i = 0; i < n_pairs; i++)
        assert_true(q->equalised[i].is_followed);
    for (size_t l = 0; l < net->n_layers; l++) {
        const struct nd_quantised_layer *layer = quantised_layer_of(&f, tensor_names[l + 1]);
        const struct nd_quantised_layer *wanted = quantised_layer_of(&g, tensor_names[l + 1]);
        print_message("# %s: weights %.2f and %.2f dB, introduced %.2f and %.2f dB\n", tensor_names[l + 1],
                      layer->weight_sqnr_db, wanted->weight_sqnr_db, layer->introduced_sqnr_db,
                      wanted->introduced_sqnr_db);
        assert_true(layer->is_known);
        assert_int_equal(layer->cause, wanted->cause);
        assert_true(fabs(layer->weight_sqnr_db - wanted->weight_sqnr_db) < weights_tolerance_db);
        assert_true(fabs(layer->introduced_sqnr_db - wanted->introduced_sqnr_db) < values_tolerance_db);
    }
    assert_true(fabs(q->output_sqnr_db - g.e->quantisation->output_sqnr_db) < 1e-3);
    end(&b, &f);
    end(&c, &g);
}

static void a_scaled_pair_is_compared_with_the_same_factors(void **state)
{
    (void)state;
    static const char *const ops[] = {NULL, "Relu", "LeakyRelu"};
    for (size_t i = 0; i < 2 * (sizeof ops / sizeof ops[0]); i++) {
        struct net net = make_net(2, ops[i / 2]), floats = net;
        net.has_channels = i % 2 != 0;
        scale_pair(&net, 0, odd_larger);
        assert_like_scaled(&net, &floats, 1);
    }
}

static void the_factors_are_told(void **state)
{
    (void)state;
    struct bench b;
    struct net net = make_net(2, "Relu"), floats = net;
    net.has_channels = true;
    scale_pair(&net, 0, odd_larger);
    struct fixture f = run_nets(&b, &net, &floats);
    assert_int_equal(f.e->quantisation->n_equalised, 1);
    const struct nd_equalised_pair *pair = &f.e->quantisation->equalised[0];
    assert_int_equal(pair->first, find_step(&f, "t0"));
    assert_int_equal(pair->second, find_step(&f, "t1"));
    assert_true(fabs(pair->least - 1) < 0.01 && fabs(pair->most - 20) < 0.2);
    end(&b, &f);
}

/* The layer in the middle has factors of its inputs and of its outputs: of a depthwise one they are the same
 * channels. */
static void two_pairs_share_a_layer(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct net net = make_net(3, "Relu");
        net.is_depthwise[1] = i % 2 != 0;
        struct net floats = net;
        net.has_channels = i / 2 != 0;
        scale_pair(&net, 0, odd_larger);
        scale_pair(&net, 1, half_smaller);
        assert_like_scaled(&net, &floats, 2);
    }
}

static void one_of_two_pairs_is_scaled(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct net net = make_net(3, "Relu");
        net.is_depthwise[1] = i % 2 != 0;
        struct net floats = net;
        net.has_channels = true;
        scale_pair(&net, i / 2, odd_larger);
        assert_like_scaled(&net, &floats, 1);
    }
}

/* ---- what is none ---- */

static void assert_not_equalised(const struct net *net, const struct net *floats, const char *faulty)
{
    struct bench b;
    struct fixture f = run_nets(&b, net, floats);
    assert_int_equal(f.e->quantisation->n_equalised, 0);
    if (faulty != NULL) {
        const struct nd_quantised_layer *layer = quantised_layer_of(&f, faulty);
        print_message("# %s: weights %.2f dB, %s\n", faulty, layer->weight_sqnr_db,
                      nd_loss_cause_name(layer->cause));
        assert_true(layer->weight_sqnr_db < 10);
        assert_true(layer->cause == ND_LOSS_WEIGHT_ROUNDING || layer->cause == ND_LOSS_WEIGHT_CHANNELS);
    }
    end(&b, &f);
}

static void a_model_as_it_was_is_not_scaled(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct net net = make_net(3, "Relu");
        net.is_depthwise[1] = i % 2 != 0;
        net.has_channels = i / 2 != 0;
        assert_not_equalised(&net, &net, NULL);
    }
}

/* The second layer does not take back what the first one does, or does what nobody has done before it. */
static void weights_that_are_wrong_stay_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        struct net net = make_net(3, "Relu");
        net.is_depthwise[1] = i != 0;
        net.has_channels = true;
        struct net floats = net;
        scale_outputs(&net, 0, odd_larger);
        assert_not_equalised(&net, &floats, "t0");
        net = floats;
        scale_inputs(&net, 1, odd_larger);
        assert_not_equalised(&net, &floats, "t1");
        net = floats;
        scale_outputs(&net, 0, odd_larger); /* and other factors are taken back */
        scale_inputs(&net, 1, half_smaller);
        assert_not_equalised(&net, &floats, "t0");
    }
}

/* The quantised model has no Clip any more, as tools that equalise leave it. */
static void bounds_of_a_clip_follow_the_channels(void **state)
{
    (void)state;
    static const float bounds[] = {6, 1}; /* no value reaches the first one; the second one is reached */
    for (size_t i = 0; i < 2; i++) {
        struct bench b, c;
        struct net floats = make_net(2, "Clip");
        floats.bound = bounds[i];
        struct net net = floats, plain = floats;
        net.op = plain.op = "Identity";
        net.has_channels = plain.has_channels = true;
        scale_pair(&net, 0, odd_larger);
        struct fixture f = run_nets(&b, &net, &floats), g = run_nets(&c, &plain, &floats);
        const struct nd_quantisation *q = f.e->quantisation, *wanted = g.e->quantisation;
        print_message("# Clip at %g: outputs %.2f, as they were %.2f dB\n", (double)bounds[i],
                      q->output_sqnr_db, wanted->output_sqnr_db);
        assert_int_equal(q->n_equalised, 1);
        assert_true(q->equalised[0].is_followed);
        if (i == 0)
            assert_true(quantised_layer_of(&f, "t0")->sqnr_db > 45);
        else /* what the Clip cuts off is the error, and the float model's outputs are what they were */
            assert_true(wanted->output_sqnr_db < 20 && fabs(q->output_sqnr_db - wanted->output_sqnr_db) < 0.1);
        end(&b, &f);
        end(&c, &g);
    }
}

/* ---- constants that are let go ---- */

static void scaled_constants_are_read_again(void **state)
{
    (void)state;
    enum { N = 64 }; /* 32 KB of doubles: a constant that can be let go */
    static float weights[N * N];
    double outputs[N], inputs[N];
    const struct nd_shape shape = {.rank = 2, .dims = {N, N}}, row = {.rank = 2, .dims = {1, N}};
    const struct nd_weight_axes axes = {N, N, 1, 1, true};
    struct nd_error err = {0};
    struct nd_compose *c;
    for (size_t i = 0; i < N * N; i++)
        weights[i] = (float)(i % 97) - 48;
    for (size_t i = 0; i < N; i++) {
        outputs[i] = (double)(i + 1);
        inputs[i] = 1 / (double)(i + 2);
    }
    expect_ok(nd_compose_create(21, &c, &err), &err);
    nd_compose_input(c, "x", ND_DTYPE_F32, &row);
    nd_compose_constant(c, "w", ND_DTYPE_F32, &shape, weights);
    nd_compose_node(c, "Gemm", (const char *const[]){"x", "w", NULL}, "y");
    nd_compose_attribute_i(c, "transB", 1);
    nd_compose_output(c, "y", ND_DTYPE_F32, &row);
    char *path = in_folder("gemm.onnx");
    expect_ok(nd_compose_write(c, path, &err), &err);
    struct nd_model *model = load_path(path);
    for (size_t i = 0; i < 2; i++) {
        struct nd_exact_graph *graph;
        expect_ok(nd_exact_graph_create_within(model, i == 0 ? SIZE_MAX : 0, &graph, &err), &err);
        size_t w = nd_names_find(&model->graph.names, "w");
        const struct nd_array *values = nd_exact_constant_values(graph, w);
        assert_true((values->x != NULL) == (i == 0));
        expect_ok(nd_exact_graph_scale(graph, w, &axes, &(struct nd_weight_factors){outputs, inputs}, &err),
                  &err);
        for (size_t turn = 0; turn < 2; turn++) {
            expect_ok(nd_exact_hold(graph, values, &err), &err);
            for (size_t k = 0; k < N * N; k++)
                assert_true(values->x[k] == (double)weights[k] * (outputs[k / N] * inputs[k % N]));
            nd_exact_release(graph, values);
        }
        nd_exact_graph_destroy(&graph);
    }
    nd_model_destroy(&model);
    nd_compose_destroy(&c);
    free(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_scaled_pair_is_compared_with_the_same_factors, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(the_factors_are_told, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(two_pairs_share_a_layer, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(one_of_two_pairs_is_scaled, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_model_as_it_was_is_not_scaled, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(weights_that_are_wrong_stay_wrong, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(bounds_of_a_clip_follow_the_channels, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(scaled_constants_are_read_again, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
