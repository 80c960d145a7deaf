/* Cross-layer equalisation as a remedy: two layers whose channels are far apart, in both directions. It is
 * offered where it helps, and the gain is held against the model that is really scaled; it is not offered where
 * it would change what the model computes, or where the weights have other scales. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/quantised_bench.h"

enum { C = 8, SIDE = 6, KERNEL = 9 };

enum second { DENSE, DEPTHWISE, TRANSPOSED };

/* x -> Conv 1x1 -> between -> second -> y, or the same of Gemm, and what is special about it. */
struct net {
    const char *op; /* NULL: none */
    double bound;   /* of a Clip */
    enum second second;
    bool is_gemm, is_read_twice, is_output, has_channels_first, has_channels_second;
    float first[C * C], bias[C], weights[C * C * KERNEL];
    double low, high; /* of the tensor between */
};

static size_t n_weights(const struct net *net)
{
    return net->second == DEPTHWISE ? C * KERNEL : C * C;
}

static size_t input_channel(const struct net *net, size_t i)
{
    return net->second == DEPTHWISE ? i / KERNEL : net->second == TRANSPOSED ? i / C : i % C;
}

/* Every other channel is 50 times as small, and its reader as large. */
static struct net make_net(const char *op, enum second second)
{
    struct net net = {.op = op, .second = second, .low = -4, .high = 4};
    uint64_t seed = 20261123;
    for (size_t i = 0; i < C * C; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        net.first[i] = ((float)(seed >> 40) / 0x1p23f - 0.8f) * (i / C % 2 == 0 ? 1 : 0.02f);
    }
    for (size_t c = 0; c < C; c++)
        net.bias[c] = (c % 2 == 0 ? 1 : 0.02f) * (float)c / C;
    for (size_t i = 0; i < n_weights(&net); i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        net.weights[i] = ((float)(seed >> 40) / 0x1p23f - 1) * (input_channel(&net, i) % 2 == 0 ? 0.02f : 1);
    }
    return net;
}

static void compose_second(struct bench *b, const struct net *net)
{
    static const int64_t pads[] = {1, 1, 1, 1};
    const struct nd_shape dense = {.rank = net->is_gemm ? 2 : 4, .dims = {C, C, 1, 1}},
                          deep = {.rank = 4, .dims = {C, 1, 3, 3}};
    const char *op = net->is_gemm ? "Gemm" : net->second == TRANSPOSED ? "ConvTranspose" : "Conv";
    nd_compose_constant(b->compose, "v", ND_DTYPE_F32, net->second == DEPTHWISE ? &deep : &dense, net->weights);
    node(b, op, "h", "v", net->is_read_twice ? "t" : "y");
    if (net->is_gemm)
        nd_compose_attribute_i(b->compose, "transB", net->second == DENSE);
    if (net->second == DEPTHWISE) {
        nd_compose_attribute_i(b->compose, "group", C);
        nd_compose_attribute_ints(b->compose, "pads", pads, 4);
    }
    if (net->is_read_twice)
        node(b, "Add", "t", "h", "y");
}

static void compose(struct bench *b, const struct net *net)
{
    const struct nd_shape dense = {.rank = net->is_gemm ? 2 : 4, .dims = {C, C, 1, 1}},
                          row = {.rank = 1, .dims = {C}}, one = {0};
    const float zero = 0, bound = (float)net->bound, slope = 0.25f;
    *b = (struct bench){.n = C * SIDE * SIDE, .shape = {.rank = 4, .dims = {1, C, SIDE, SIDE}}};
    if (net->is_gemm)
        b->shape = (struct nd_shape){.rank = 2, .dims = {SIDE * SIDE, C}};
    struct nd_error err = {0};
    expect_ok(nd_compose_create(21, &b->compose, &err), &err);
    nd_compose_input(b->compose, "x", ND_DTYPE_F32, &b->shape);
    nd_compose_constant(b->compose, "w", ND_DTYPE_F32, &dense, net->first);
    nd_compose_constant(b->compose, "b", ND_DTYPE_F32, &row, net->bias);
    nd_compose_node(b->compose, net->is_gemm ? "Gemm" : "Conv", (const char *const[]){"x", "w", "b", NULL},
                    net->op != NULL ? "c" : "h");
    if (net->is_gemm)
        nd_compose_attribute_i(b->compose, "transB", 1);
    if (net->op != NULL && strcmp(net->op, "Clip") == 0) {
        nd_compose_constant(b->compose, "zero", ND_DTYPE_F32, &one, &zero);
        nd_compose_constant(b->compose, "bound", ND_DTYPE_F32, &one, &bound);
        nd_compose_node(b->compose, "Clip", (const char *const[]){"c", "zero", "bound", NULL}, "h");
    } else if (net->op != NULL && strcmp(net->op, "PRelu") == 0) {
        nd_compose_constant(b->compose, "slope", ND_DTYPE_F32, &one, &slope);
        node(b, "PRelu", "c", "slope", "h");
    } else if (net->op != NULL) {
        nd_compose_node(b->compose, net->op, (const char *const[]){"c", NULL}, "h");
    }
    compose_second(b, net);
    nd_compose_output(b->compose, "y", ND_DTYPE_F32, &b->shape);
    if (net->is_output)
        nd_compose_output(b->compose, "h", ND_DTYPE_F32, &b->shape);
}

/* int8 with one scale, or one for each channel of the axis. */
static void quantise_weights(struct bench *b, const char *name, const float *values, size_t n,
                             bool has_channels)
{
    struct nd_quantised_tensor *weights = item(b, name, ND_DTYPE_I8, has_channels ? C : 1);
    size_t k = (size_t)(weights - b->items), n_scales = has_channels ? C : 1;
    weights->has_axis = has_channels;
    b->quants[k].axis = has_channels ? 0 : -1;
    for (size_t i = 0; i < n; i++) {
        size_t c = i / (n / n_scales);
        b->scales[k][c] = fmaxf(b->scales[k][c], fabsf(values[i]) / 127);
    }
}

static struct fixture run_net(struct bench *b, const struct net *net)
{
    compose(b, net);
    item(b, "x", ND_DTYPE_U16, 1);
    b->scales[0][0] = 1.0f / 65535;
    quantise_weights(b, "w", net->first, C * C, net->has_channels_first);
    quantise_weights(b, "v", net->weights, n_weights(net), net->has_channels_second);
    quantise(b, "h", net->low, net->high);
    for (size_t i = 0; i < 2; i++) {
        item(b, i == 0 ? "y" : "t", ND_DTYPE_U16, 1);
        b->scales[b->n_items - 1][0] = 8.0f / 65535;
        b->zeros[b->n_items - 1][0] = 32768;
        if (!net->is_read_twice)
            break;
    }
    return run(b);
}

static const struct nd_remedy *find_remedy(const struct fixture *f, const char *name)
{
    const struct nd_quantised_layer *layer = quantised_layer_of(f, name);
    for (size_t i = 0; i < layer->n_remedies; i++)
        if (layer->remedies[i].kind == ND_REMEDY_EQUALISE)
            return &layer->remedies[i];
    return NULL;
}

/* ---- where it helps ---- */

static double largest(const float *values, const struct net *net, size_t n, bool is_first, size_t channel)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        if ((is_first ? i / C : input_channel(net, i)) == channel)
            most = fmax(most, fabs((double)values[i]));
    return most;
}

/* Scales the float model itself. is_kept: channels that a Clip cuts off. */
static void equalise(struct net *net, const bool *is_kept)
{
    double first[C], second[C], of_first = 0, of_second = 0;
    bool has_kept = false;
    for (size_t c = 0; c < C; c++)
        has_kept = has_kept || is_kept[c];
    for (size_t c = 0; c < C; c++) {
        first[c] = largest(net->first, net, C * C, true, c);
        second[c] = largest(net->weights, net, n_weights(net), false, c);
        if (!has_kept || is_kept[c]) {
            of_first = fmax(of_first, first[c]);
            of_second = fmax(of_second, second[c]);
        }
    }
    for (size_t c = 0; c < C; c++) {
        double factor = is_kept[c] ? 1 : sqrt(first[c] / of_first / (second[c] / of_second));
        net->bias[c] = (float)((double)net->bias[c] / factor);
        for (size_t i = 0; i < C * C; i++)
            if (i / C == c)
                net->first[i] = (float)((double)net->first[i] / factor);
        for (size_t i = 0; i < n_weights(net); i++)
            if (input_channel(net, i) == c)
                net->weights[i] = (float)((double)net->weights[i] * factor);
    }
}

/* What is said is what the model gains that is really scaled and quantised again. */
static void assert_equalising_helps(struct net net, const bool *is_kept)
{
    struct bench b;
    struct fixture f = run_net(&b, &net);
    const struct nd_remedy *remedy = find_remedy(&f, "h");
    assert_non_null(remedy);
    assert_non_null(find_remedy(&f, "y"));
    assert_non_null(strstr(remedy->text, "equalisation with 'y'"));
    const struct nd_quantised_layer *h = quantised_layer_of(&f, "h");
    double said = remedy->output_gain_db, own = remedy->own_gain_db, before = f.e->quantisation->output_sqnr_db;
    double low = h->value_low, high = h->value_high;
    net.low = h->range_low;
    net.high = h->range_high;
    assert_true(own > 3 && said > 3);
    end(&b, &f);
    equalise(&net, is_kept);
    f = run_net(&b, &net); /* only for the values that the tensor has now */
    h = quantised_layer_of(&f, "h");
    double of_low = low < 0 ? h->value_low / low : 0, of_high = h->value_high / high;
    net.low *= low < 0 ? of_low : of_high;
    net.high *= of_high;
    end(&b, &f);
    f = run_net(&b, &net);
    double measured = f.e->quantisation->output_sqnr_db - before;
    print_message("# %s: said %+.3f dB (%+.3f dB at the second layer), measured %+.3f dB\n",
                  net.op != NULL ? net.op : "nothing between", said, own, measured);
    assert_true(fabs(measured - said) < 0.05);
    assert_null(find_remedy(&f, "h")); /* it is done */
    end(&b, &f);
}

static void it_is_offered_with_the_gain_that_it_has(void **state)
{
    (void)state;
    static const char *const ops[] = {NULL, "Relu", "LeakyRelu", "PRelu", "Identity"};
    const bool none[C] = {0};
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++)
        assert_equalising_helps(make_net(ops[i], DENSE), none);
    assert_equalising_helps(make_net("Relu", DEPTHWISE), none);
    assert_equalising_helps(make_net("Relu", TRANSPOSED), none);
    for (int second = DENSE; second <= TRANSPOSED; second += TRANSPOSED - DENSE) {
        struct net net = make_net("Relu", (enum second)second);
        net.is_gemm = true;
        assert_equalising_helps(net, none);
    }
    struct net far = make_net("Clip", DENSE);
    far.bound = 100;
    assert_equalising_helps(far, none);
}

/* The odd channels are small, and stay so far below the bound that they can be scaled. The even ones are cut
 * off.
 */
static void channels_that_a_clip_cuts_off_stay(void **state)
{
    (void)state;
    const bool is_even[C] = {true, false, true, false, true, false, true, false};
    struct net net = make_net("Clip", DENSE);
    net.bound = 0.9;
    for (size_t i = 0; i < C * C; i++)
        net.weights[i] *= i % C % 2 == 0 ? 1 : 0.05f;
    for (size_t c = 0; c < C; c += 2)
        net.bias[c] += 0.7f;
    assert_equalising_helps(net, is_even);
}

/* h and g have channels far apart: the layer between them is scaled against both. */
static void a_layer_is_scaled_against_both_its_neighbours(void **state)
{
    (void)state;
    static const char *const weights[] = {"w", "v", "u"}, *const tensors[] = {"x", "h", "g", "y"};
    struct net net = make_net("Relu", DENSE);
    const struct nd_shape dense = {.rank = 4, .dims = {C, C, 1, 1}};
    struct bench b = {.n = C * SIDE * SIDE, .shape = {.rank = 4, .dims = {1, C, SIDE, SIDE}}};
    struct nd_error err = {0};
    expect_ok(nd_compose_create(21, &b.compose, &err), &err);
    nd_compose_input(b.compose, "x", ND_DTYPE_F32, &b.shape);
    item(&b, "x", ND_DTYPE_U16, 1);
    b.scales[0][0] = 1.0f / 65535;
    float values[3][C * C];
    for (size_t k = 0; k < 3; k++) {
        for (size_t i = 0; i < C * C;
             i++) /* channels are large or small in h, the first or the second half in g */
            values[k][i] = k == 0   ? net.first[i]
                           : k == 1 ? net.weights[i] * (i / C < C / 2 ? 1 : 0.02f)
                                    : net.first[i] / (i / C % 2 == 0 ? 1 : 0.02f) * (i % C < C / 2 ? 0.02f : 1);
        nd_compose_constant(b.compose, weights[k], ND_DTYPE_F32, &dense, values[k]);
        node(&b, "Conv", tensors[k], weights[k], tensors[k + 1]);
        quantise_weights(&b, weights[k], values[k], C * C, false);
        item(&b, tensors[k + 1], ND_DTYPE_U16, 1);
        b.scales[b.n_items - 1][0] = 16.0f / 65535;
        b.zeros[b.n_items - 1][0] = 32768;
    }
    nd_compose_output(b.compose, "y", ND_DTYPE_F32, &b.shape);
    struct fixture f = run(&b);
    const struct nd_remedy *remedy = find_remedy(&f, "g");
    assert_non_null(remedy);
    print_message("# %s: %+.3f dB, %+.3f dB at y\n", remedy->text, remedy->output_gain_db, remedy->own_gain_db);
    assert_non_null(strstr(remedy->text, "with 'h' and 'y'"));
    assert_true(remedy->output_gain_db > 10);
    const struct nd_quantisation *q = f.e->quantisation;
    size_t i = 0;
    while (i < q->n_whole && q->whole[i].kind != ND_REMEDY_EQUALISE)
        i++;
    assert_true(i < q->n_whole && q->whole[i].n_layers == 3);
    assert_true(fabs(q->whole[i].output_gain_db - remedy->output_gain_db) < 1e-6); /* the same three layers */
    assert_true(q->mended_sqnr_db >= q->output_sqnr_db + remedy->output_gain_db - 1e-6);
    end(&b, &f);
}

/* ---- where it must not be offered ---- */

static void assert_not_offered(const struct net *net, const char *why)
{
    struct bench b;
    struct fixture f = run_net(&b, net);
    const struct nd_quantisation *q = f.e->quantisation;
    print_message("# %s\n", why);
    for (size_t s = 0; s < q->n_layers; s++)
        for (size_t i = 0; i < q->layers[s].n_remedies; i++)
            assert_int_not_equal(q->layers[s].remedies[i].kind, ND_REMEDY_EQUALISE);
    for (size_t i = 0; i < q->n_whole; i++)
        assert_int_not_equal(q->whole[i].kind, ND_REMEDY_EQUALISE);
    end(&b, &f);
}

static void it_is_not_offered_where_it_changes_the_model(void **state)
{
    (void)state;
    struct net net = make_net("Relu", DENSE);
    net.is_read_twice = true;
    assert_not_offered(&net, "two readers");
    net = make_net("Relu", DENSE);
    net.is_output = true;
    assert_not_offered(&net, "an output of the model");
    net = make_net("Sigmoid", DENSE);
    assert_not_offered(&net, "Sigmoid");
    net = make_net("HardSwish", DENSE);
    assert_not_offered(&net, "HardSwish");
    net = make_net("Clip", DENSE);
    net.bound = 0.01; /* every channel reaches it */
    assert_not_offered(&net, "a Clip that cuts off every channel");
}

static void it_is_not_offered_for_weights_with_more_scales(void **state)
{
    (void)state;
    struct net net = make_net("Relu", DEPTHWISE);
    net.has_channels_first = true;
    assert_not_offered(&net, "scales by channel in the first layer");
    net = make_net("Relu", DEPTHWISE);
    net.has_channels_second = true;
    assert_not_offered(&net, "scales by channel in the second layer");
}

/* All channels are of one size: nothing is gained, and nothing said. */
static void it_is_not_offered_where_it_gains_nothing(void **state)
{
    (void)state;
    struct net net = make_net("Relu", DENSE);
    for (size_t i = 0; i < C * C; i++) {
        net.first[i] *= i / C % 2 == 0 ? 1 : 50;
        net.weights[i] *= i % C % 2 == 0 ? 50 : 1;
    }
    assert_not_offered(&net, "channels of one size");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(it_is_offered_with_the_gain_that_it_has, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(channels_that_a_clip_cuts_off_stay, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_layer_is_scaled_against_both_its_neighbours, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(it_is_not_offered_where_it_changes_the_model, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(it_is_not_offered_for_weights_with_more_scales, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(it_is_not_offered_where_it_gains_nothing, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
