/* Devices with an arithmetic of whole units: it is named, what follows it is explained and what does not is
 * found. They are emulated, so that the truth is known. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/changed_model.h"
#include "support/explain_fixture.h"

#include <math.h>

#include "explain/layers/device_arithmetics.h"

/* ---- one device ---- */

static void explain_emulated(struct fixture *f, const char *model, const char *emulated)
{
    *f = (struct fixture){.model = load(model)};
    add_device(f, &(struct mc_device){.emulated = emulated});
    explain_ok(f);
}

static bool is_listed(char *const *list, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

static void arithmetic_of_layers_is_named_and_explains_them(void **state)
{
    (void)state;
    static const char *const models[] = {"cnn.w8a8", "cnn.w8a16", "vit.w8a8"};
    static const char *const arithmetics[] = {"htp-v73", "htp-v69"};
    for (size_t k = 0; k < 6; k++) {
        struct fixture f;
        explain_emulated(&f, models[k / 2], arithmetics[k % 2]);
        const struct nd_explained_device *device = &f.e->devices[0];
        assert_string_equal(device->arithmetic, arithmetics[k % 2]);
        assert_int_equal(device->n_arithmetics, 2); /* no uint8 Mul tells the other SDKs from it */
        assert_int_equal(device->n_faulty, 0);
        assert_int_equal(f.e->verdict, ND_VERDICT_DIFFERS);
        for (size_t s = 0; s < f.e->n_steps; s++) {
            const struct nd_explained_layer *layer = &device->layers[s];
            if (!f.e->steps[s].is_layer || !layer->is_covered)
                continue;
            assert_string_equal(layer->arithmetic, device->arithmetic);
            assert_int_equal(layer->n_unexplained, 0);
            assert_true(layer->explained_fraction == 1);
            assert_true(is_listed(layer->arithmetics, layer->n_arithmetics, device->arithmetic));
        }
        close_fixture(&f);
    }
}

static void layers_without_a_arithmetic_are_not_known_and_not_faulty(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "../programs/unknown-softmax", "htp-v73,round.Softmax=floor");
    const struct nd_explained_layer *softmax = layer_of(&f, "softmax");
    assert_false(softmax->is_covered || softmax->judgement.state == ND_LAYER_FAULTY);
    assert_null(softmax->arithmetic);
    assert_true(softmax->introduced.n_differing > 0);
    assert_int_equal(f.e->devices[0].n_faulty, 0);
    close_fixture(&f);
}

/* The one layer that does not follow known arithmetic, whether that is proof of a fault or not. */
static size_t find_odd(const struct nd_explained_device *device)
{
    if (device->n_faulty + device->n_unexplained != 1)
        return SIZE_MAX;
    return device->n_faulty > 0 ? device->faulty[0] : device->unexplained[0];
}

/* kind NULL: it is not known; a kind must be proved, which a few values that are off by one are not. */
static void assert_found(const char *model, const char *emulated, const char *tensor, const char *kind)
{
    struct fixture f;
    explain_emulated(&f, model, emulated);
    const struct nd_explained_device *device = &f.e->devices[0];
    size_t odd = find_odd(device);
    if (odd == SIZE_MAX || strcmp(f.e->steps[odd].name, tensor) != 0)
        fail_msg("%s on %s: %zu faulty, %zu unexplained, the first is %s", emulated, model, device->n_faulty,
                 device->n_unexplained, odd != SIZE_MAX ? f.e->steps[odd].name : "none");
    const struct nd_explained_layer *layer = &device->layers[odd];
    assert_true(layer->n_unexplained > 0);
    assert_non_null(layer->judgement.evidence);
    assert_int_equal(f.e->health, device->n_faulty > 0 ? ND_HEALTH_FAULTY : ND_HEALTH_UNEXPLAINED);
    if (kind != NULL && layer->judgement.state != ND_LAYER_FAULTY)
        fail_msg("%s on %s: '%s' is not called faulty", emulated, model, tensor);
    if (kind != NULL && (layer->judgement.fault.kind == NULL || strcmp(layer->judgement.fault.kind, kind) != 0))
        fail_msg("%s on %s is called %s", emulated, model,
                 layer->judgement.fault.kind != NULL ? layer->judgement.fault.kind : "nothing");
    close_fixture(&f);
}

static void fault_over_a_arithmetic_of_layers_is_found(void **state)
{
    (void)state;
    static const struct {
        const char *model, *emulated, *tensor, *kind;
    } faults[] = {
        {"cnn.w8a8", "htp-v73,stale@residual/conv", "residual/conv", "stale"},
        {"cnn.w8a8", "htp-v69,fallback@residual/conv", "residual/conv", "fallback"},
        {"cnn.w8a8", "htp-v73,zero@average", "average", "all-zero"},
        {"cnn.w8a8", "htp-v73,scale@residual/conv=*:1.02", "residual/conv", "scale"},
        {"cnn.w8a8", "htp-v73,window@pool=7:1", "pool", "unwritten-window"},
        {"cnn.w8a8", "htp-v73,round@stem/relu=htp-v69", "stem/relu", NULL},
        {"cnn.w8a16", "htp-v73,zero-point@depthwise/relu=2:300", "depthwise/relu", "channel-zero-point"},
        {"cnn.w8a16", "htp-v73,zero-point@depthwise/relu=2:1", "depthwise/relu",
         NULL}, /* a bias rounded otherwise */
        {"cnn.w8a16", "htp-v69,permute@pointwise/relu=3", "pointwise/relu", "channel-permutation"},
        {"vit.w8a8", "htp-v73,stale@block1/attn/k/bias", "block1/attn/k/bias", "stale"},
        {"vit.w8a8", "htp-v73,stale@block0/norm2", "block0/norm2", "stale"},
    };
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        assert_found(faults[i].model, faults[i].emulated, faults[i].tensor, faults[i].kind);
}

/* 100 values, of which the two arithmetics differ in a few: all of them are exact, and that proves no fallback.
 */
static void exact_values_of_a_small_layer_are_no_fallback(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "cnn.w8a8", "htp-v73,fallback=Gemm");
    assert_int_equal(f.e->devices[0].n_faulty, 0);
    assert_int_equal(f.e->health, ND_HEALTH_HEALTHY);
    const struct nd_explained_layer *layer = layer_of(&f, "logits");
    assert_true(layer->n_unexplained > 0 && layer->introduced.n_differing == 0);
    assert_int_equal(layer->judgement.state, ND_LAYER_FOLLOWS);
    assert_string_equal(layer->judgement.why_follows, "exact");
    close_fixture(&f);
}

static void rounding_once_is_no_arithmetic_of_layers(void **state)
{
    (void)state;
    static const char *const devices[] = {"half-even", "double:8", "floor", "double:8,fallback@residual/conv"};
    for (size_t i = 0; i < sizeof devices / sizeof devices[0]; i++) {
        struct fixture f;
        explain_emulated(&f, "cnn.w8a8", devices[i]);
        assert_int_equal(f.e->devices[0].n_arithmetics, 0);
        assert_int_equal(f.e->devices[0].n_faulty, i == 3);
        close_fixture(&f);
    }
}

/* Every tenth value of a Conv is off by `moved` LSB, up and down in turn, as no fault with a name makes it. */
static double moved;

static void move_some(const struct mc_run *run, const struct nd_tensor *tensor, struct nd_array *qvalues)
{
    for (size_t i = run->sample % 10; i < qvalues->n && strcmp(tensor->name, "residual/conv") == 0; i += 10)
        qvalues->x[i] += (i / 10 % 2 == 0) == (qvalues->x[i] >= moved) && qvalues->x[i] <= 255 - moved ? moved
                         : qvalues->x[i] >= moved                                                      ? -moved
                                                                                                       : 0;
}

static void product_by_constants_that_is_far_off_is_faulty(void **state)
{
    (void)state;
    static const struct {
        double moved;
        enum nd_layer_state state;
    } rows[] = {{5, ND_LAYER_FAULTY}, {4, ND_LAYER_UNEXPLAINED}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct fixture f = {.model = load("cnn.w8a8")};
        moved = rows[i].moved;
        add_device(&f, &(struct mc_device){
                           .emulated = "htp-v73",
                           .import = "npu",
                           .arch = "v75",
                           .sdk = "2.51.0",
                           .change = move_some,
                           .missing_tensor = "residual/relu"}); /* which would show that it read other values */
        explain_ok(&f);
        const struct nd_explained_layer *layer = layer_of(&f, "residual/conv");
        assert_int_equal(layer->judgement.state, rows[i].state);
        assert_null(layer->judgement.fault.kind);
        if (layer->judgement.state == ND_LAYER_FAULTY) {
            assert_int_equal(layer->judgement.certainty, ND_CERTAINTY_LIKELY);
            assert_non_null(strstr(layer->judgement.evidence, "are off by more than 4 LSB"));
        }
        close_fixture(&f);
    }
}

static void arithmetic_that_costs_much_is_told(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "cnn.w8a16", "htp-v73");
    const struct nd_explained_device *device = &f.e->devices[0];
    assert_true(device->n_losses > 0);
    for (size_t i = 0; i < device->n_losses; i++)
        assert_true(device->layers[device->losses[i]].introduced.max >= 10 &&
                    device->layers[device->losses[i]].judgement.state != ND_LAYER_FAULTY);
    close_fixture(&f);
}

/* ---- where it ran ---- */

static void arithmetic_says_which_layer_an_npu_computed(void **state)
{
    (void)state;
    struct fixture f;
    explain_emulated(&f, "cnn.w8a8", "htp-v73,fallback@residual/conv");
    const struct nd_explained_execution *fell_back = &layer_of(&f, "residual/conv")->execution;
    const struct nd_explained_execution *other = &layer_of(&f, "depthwise/relu")->execution;
    assert_int_equal(fell_back->verdict, ND_EXECUTION_NOT_NPU);
    assert_int_equal(other->verdict, ND_EXECUTION_NPU);
    assert_string_equal(fell_back->evidence[0].kind, "program");
    assert_string_equal(other->evidence[0].kind, "program");
    close_fixture(&f);
}

static void set_scale(Onnx__ModelProto *proto, const char *name, float scale)
{
    Onnx__TensorProto *tensor = tensor_of(proto, name);
    if (tensor->raw_data.len > 0)
        memcpy(tensor->raw_data.data, &scale, sizeof scale);
    else
        tensor->float_data[0] = scale;
}

/* A Conv whose sums are odd, and whose multiplier is 2^-10: nothing is rounded twice, and there are no ties. */
static void make_exact(Onnx__ModelProto *proto)
{
    set_scale(proto, "pointwise/relu_scale", 0x1p-5F); /* of 'pool', too */
    set_scale(proto, "residual.weight_scale", 0x1p-8F);
    set_scale(proto, "residual.bias_quantized_scale", 0x1p-13F);
    set_scale(proto, "residual/conv_scale", 0x1p-3F);
    Onnx__TensorProto *weights = tensor_of(proto, "residual.weight_quantized"),
                      *bias = tensor_of(proto, "residual.bias_quantized");
    for (size_t i = 0; i < weights->raw_data.len;
         i++) { /* less the zero point of 130: even, of 8 signed bits */
        uint8_t *qvalue = &weights->raw_data.data[i];
        *qvalue = *qvalue < 4 ? 4 : *qvalue & 0xfe;
    }
    for (size_t i = 0; i < bias->raw_data.len; i += 4) /* of 32 bits: odd */
        bias->raw_data.data[i] |= 1;
}

/* Its quantised values are those of floats on the NPU, too. */
static void layer_of_which_the_arithmetic_gives_exact_qvalues_does_not_tell(void **state)
{
    (void)state;
    struct fixture f = {.model = load_changed("cnn.w8a8", make_exact)};
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    explain_ok(&f);
    const struct nd_explained_layer *layer = layer_of(&f, "residual/conv");
    assert_int_equal(layer->introduced.n_differing, 0);
    assert_true(layer->execution.n_deciding > 1000);
    assert_int_equal(layer->execution.verdict, ND_EXECUTION_UNKNOWN);
    assert_int_equal(layer_of(&f, "depthwise/relu")->execution.verdict, ND_EXECUTION_NPU);
    close_fixture(&f);
}

/* ---- two devices ---- */

static void two_arithmetics_say_why_devices_differ(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "htp-v69"});
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    explain_ok(&f);
    assert_int_equal(f.e->n_differences, 1); /* the third is the second */
    const struct nd_explained_difference *difference = &f.e->differences[0];
    assert_int_equal(difference->devices[0], 0);
    assert_int_equal(difference->devices[1], 1);
    assert_string_equal(difference->arithmetics[0], "htp-v69");
    assert_string_equal(difference->arithmetics[1], "htp-v73");
    assert_true(difference->n_differing > 0 && difference->n_differing < difference->n_qvalues);
    bool has_bits = false;
    for (size_t i = 0; i < difference->n_because; i++)
        has_bits |= strcmp(difference->because[i].name, "multiplier-bits") == 0 &&
                    strstr(difference->because[i].texts[0], "10 bits") != NULL &&
                    strstr(difference->because[i].texts[1], "11 bits") != NULL;
    assert_true(has_bits);
    /* The first layer reads the same on both: there it is every quantised value that the devices have
     * otherwise. */
    const struct nd_explained_layer *a = &f.e->devices[0].layers[find_step(&f, "stem/relu")],
                                    *b = &f.e->devices[1].layers[find_step(&f, "stem/relu")];
    assert_true(a->introduced.n_differing != b->introduced.n_differing);
    close_fixture(&f);
}

/* ---- observed arithmetics ---- */

enum { N_LAYERS = 4 };

struct kind {
    struct nd_qvalue_tally tally[N_LAYERS];
    struct nd_layer_tally layers[N_LAYERS];
    struct nd_observed_arithmetic observations[N_LAYERS];
    bool is_possible[ND_MAX_LAYER_ARITHMETICS];
    size_t arithmetic;
};

/* Layers of 1000 quantised values, 100 of which no rounding gives; wrong[i] of them are not those of any
 * arithmetic of layers.
 */
static void find(struct kind *k, const char *const *op_types, const uint64_t *wrong, double doubt)
{
    *k = (struct kind){0};
    for (size_t i = 0; i < N_LAYERS; i++) {
        k->tally[i].n_open = 1000;
        for (size_t p = 0; p < ND_MAX_ARITHMETICS; p++)
            k->tally[i].wrong[p] = k->tally[i].far[p] = 100;
        for (size_t p = 0; p < ND_MAX_LAYER_ARITHMETICS; p++) {
            k->layers[i].n[p] = 1000;
            k->layers[i].wrong[p] = wrong[i];
            k->layers[i].max[p] = wrong[i] > 0 ? 1 : 0;
            k->layers[i].doubt[p] = doubt;
        }
        k->observations[i] = (struct nd_observed_arithmetic){.op_types = op_types[i],
                                                             .is_counted = true,
                                                             .tally = &k->tally[i],
                                                             .layers = &k->layers[i],
                                                             .n_qvalues = 1000,
                                                             .arithmetic = SIZE_MAX,
                                                             .follows = true};
    }
    bool is_refuted;
    nd_find_layer_arithmetics(k->observations, N_LAYERS, ND_EXPECT_ANY, &k->arithmetic, k->is_possible,
                              &is_refuted);
}

static void layer_that_is_off_is_faulty_beside_its_kind(void **state)
{
    (void)state;
    static const char *const op_types[N_LAYERS] = {"Conv", "Conv", "Conv", "Add"};
    struct kind k;
    find(&k, op_types, (const uint64_t[]){0, 1, 0, 0}, 0);
    assert_int_equal(k.arithmetic, 0);
    for (size_t i = 0; i < N_LAYERS; i++)
        assert_int_equal(k.observations[i].standing, i == 1 ? ND_STANDING_FAULTY : ND_STANDING_FOLLOWS);
}

static void kind_that_is_off_is_not_known(void **state)
{
    (void)state;
    static const char *const op_types[N_LAYERS] = {"Conv", "Conv", "Add", "Add"};
    struct kind k;
    find(&k, op_types, (const uint64_t[]){0, 0, 7, 9}, 0);
    assert_int_equal(k.observations[0].standing, ND_STANDING_FOLLOWS);
    assert_int_equal(k.observations[2].standing, ND_STANDING_UNKNOWN);
    assert_int_equal(k.observations[3].standing, ND_STANDING_UNKNOWN);
}

static void doubt_is_allowed_and_no_more(void **state)
{
    (void)state;
    static const char *const op_types[N_LAYERS] = {"A", "B", "C", "D"};
    struct kind k;
    find(&k, op_types, (const uint64_t[]){0, 15, 16, 0}, 0.015);
    assert_int_equal(k.observations[1].standing, ND_STANDING_FOLLOWS);
    assert_int_equal(k.observations[2].standing, ND_STANDING_FAULTY);
    find(&k, op_types, (const uint64_t[]){0, 1, 0, 0}, 1);
    assert_int_equal(k.observations[1].standing, ND_STANDING_UNKNOWN);
}

/* ---- what tells arithmetics apart ---- */

static void sdks_differ_in_mul_and_nothing_else(void **state)
{
    (void)state;
    struct nd_layer_difference out[ND_LAYER_MAX_DIFFERENCES];
    const struct nd_layer_arithmetic *a = nd_layer_arithmetic_from_name("htp-v73"),
                                     *b = nd_layer_arithmetic_from_name("htp-v73:2.48");
    assert_int_equal(nd_layer_arithmetic_differences(a, b, "Mul", ND_DTYPE_U8, out), 1);
    assert_string_equal(out[0].name, "product-rounding");
    assert_string_not_equal(out[0].a, out[0].b);
    assert_int_equal(nd_layer_arithmetic_differences(a, b, "Conv+Relu", ND_DTYPE_U8, out), 0);
    b = nd_layer_arithmetic_from_name("htp-v69");
    assert_int_equal(nd_layer_arithmetic_differences(a, b, "Mul", ND_DTYPE_U8, out), 0);
    assert_true(nd_layer_arithmetic_differences(a, b, "Conv+Relu", ND_DTYPE_U8, out) > 1);
    assert_true(nd_layer_arithmetic_differences(a, b, "Gemm", ND_DTYPE_U16, out) > 1);
    assert_int_equal(nd_layer_arithmetic_differences(a, b, "Softmax", ND_DTYPE_U8, out), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetic_of_layers_is_named_and_explains_them),
        cmocka_unit_test(layers_without_a_arithmetic_are_not_known_and_not_faulty),
        cmocka_unit_test(fault_over_a_arithmetic_of_layers_is_found),
        cmocka_unit_test(exact_values_of_a_small_layer_are_no_fallback),
        cmocka_unit_test(rounding_once_is_no_arithmetic_of_layers),
        cmocka_unit_test(product_by_constants_that_is_far_off_is_faulty),
        cmocka_unit_test(arithmetic_that_costs_much_is_told),
        cmocka_unit_test(arithmetic_says_which_layer_an_npu_computed),
        cmocka_unit_test(layer_of_which_the_arithmetic_gives_exact_qvalues_does_not_tell),
        cmocka_unit_test(two_arithmetics_say_why_devices_differ),
        cmocka_unit_test(layer_that_is_off_is_faulty_beside_its_kind),
        cmocka_unit_test(kind_that_is_off_is_not_known),
        cmocka_unit_test(doubt_is_allowed_and_no_more),
        cmocka_unit_test(sdks_differ_in_mul_and_nothing_else),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
