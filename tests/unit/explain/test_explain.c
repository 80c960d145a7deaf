/* What is made in a layer and what it inherits: devices whose faults are known. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"

#include <math.h>

/* Every element, and with it every sum: of means, too. */
static void assert_identity(const struct fixture *f)
{
    for (size_t s = 0; s < f->e->n_steps; s++) {
        const struct nd_explained_layer *layer = &f->e->devices[0].layers[s];
        double n = (double)layer->n_qvalues;
        assert_true(layer->n_qvalues > 0);
        assert_int_equal(layer->n_violations, 0);
        assert_true(round(layer->total.mean * n) ==
                    round(layer->introduced.mean * n) + round(layer->passed_on.mean * n));
    }
}

static void device_that_is_exact_has_no_mismatch(void **state)
{
    (void)state;
    static const char *const models[] = {"cnn.w8a8", "cnn.w8a16", "vit.w8a8"};
    for (size_t k = 0; k < 3; k++) {
        struct fixture f = {.model = load(models[k])};
        add_device(&f, &(struct mc_device){0});
        explain_ok(&f);
        const struct nd_explained_device *device = &f.e->devices[0];
        assert_int_equal(f.e->verdict, ND_VERDICT_SAME);
        assert_int_equal(device->n_sources, 0);
        assert_int_equal(device->n_examined, nd_model_n_layers(f.model) + 1); /* and the input */
        assert_int_equal(f.e->n_samples, MC_SAMPLES);
        for (size_t s = 0; s < f.e->n_steps; s++) {
            assert_true(device->layers[s].is_examined);
            assert_int_equal(device->layers[s].introduced.n_differing + device->layers[s].total.n_differing +
                                 device->layers[s].passed_on.n_differing,
                             0);
        }
        assert_identity(&f);
        close_fixture(&f);
    }
}

static void device_that_floors_is_half_a_step_low_in_every_layer(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.rounding = ND_ROUND_FLOOR});
    explain_ok(&f);
    const struct nd_explained_device *device = &f.e->devices[0];
    assert_int_equal(f.e->verdict, ND_VERDICT_DIFFERS);
    assert_int_equal(device->n_sources, 1);
    assert_string_equal(f.e->steps[device->sources[0]].name, "stem/relu");
    assert_int_equal(layer_of(&f, "image")->introduced.n_differing, 0);
    for (size_t s = 0; s < f.e->n_steps; s++) {
        const char *op = f.e->steps[s].op_types;
        bool moves = strcmp(op, "MaxPool") == 0 || strcmp(op, "Flatten") == 0 || strcmp(op, "input") == 0;
        assert_int_equal(device->layers[s].introduced.n_differing == 0, moves);
        assert_true(device->layers[s].introduced.max <= 1 && device->layers[s].introduced.mean <= 0);
    }
    /* No Relu behind it, so few quantised values are clipped: -1 with probability 1/2. */
    const struct nd_explained_layer *conv = layer_of(&f, "residual/conv");
    assert_true(fabs(conv->introduced.mean + 0.5) < 0.03 && fabs(conv->introduced.mean_square - 0.5) < 0.03);
    assert_identity(&f);
    close_fixture(&f);
}

static void qvalue_that_is_wrong_is_introduced_once_and_passed_on_behind(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.wrong_tensor = "depthwise/relu"});
    explain_ok(&f);
    const struct nd_explained_device *device = &f.e->devices[0];
    size_t wrong = find_step(&f, "depthwise/relu");
    uint64_t n_passed_on = 0;
    assert_int_equal(device->n_sources, 1);
    assert_int_equal(device->sources[0], wrong);
    for (size_t s = 0; s < f.e->n_steps; s++) {
        const struct nd_explained_layer *layer = &device->layers[s];
        assert_int_equal(layer->introduced.n_differing, s == wrong);
        assert_int_equal(layer->is_source, s == wrong);
        n_passed_on += layer->passed_on.n_differing;
        assert_true(s > wrong || layer->passed_on.n_differing == 0);
    }
    assert_true(n_passed_on > 0);
    assert_true(layer_of(&f, "pointwise/relu")->amplification > 0);
    assert_identity(&f);
    close_fixture(&f);
}

static const struct nd_explained_layer *explain_without_pool(struct fixture *f, const struct mc_device *device)
{
    *f = (struct fixture){.model = load("cnn.w8a8")};
    add_device(f, device);
    explain_ok(f);
    assert_false(layer_of(f, "pool")->has_total);
    assert_true(layer_of(f, "residual/conv")->has_total);
    assert_true(layer_of(f, "logits")->is_examined);
    return layer_of(f, "pool");
}

/* Worked out in the device's own way, whichever it is. */
static void tensor_that_was_not_captured_is_shown_by_its_readers(void **state)
{
    (void)state;
    static const char *const emulated[] = {NULL, "htp-v69", "htp-v73"};
    for (size_t i = 0; i < sizeof emulated / sizeof emulated[0]; i++) {
        struct fixture f;
        const struct nd_explained_layer *pool =
            explain_without_pool(&f, &(struct mc_device){.missing_tensor = "pool", .emulated = emulated[i]});
        assert_int_equal(pool->judgement.state, ND_LAYER_FOLLOWS);
        assert_string_equal(pool->judgement.why_follows, "worked-out");
        assert_int_equal(layer_of(&f, "residual/conv")->judgement.state, ND_LAYER_FOLLOWS);
        assert_int_equal(f.e->devices[0].n_not_examined, 0);
        assert_int_equal(f.e->health, ND_HEALTH_HEALTHY);
        close_fixture(&f);
    }
}

/* The device went on with another value: its reader is not accused of it. */
static void tensor_that_was_not_captured_and_does_not_fit_accuses_nobody(void **state)
{
    (void)state;
    struct fixture f;
    const struct nd_explained_layer *pool =
        explain_without_pool(&f, &(struct mc_device){.missing_tensor = "pool", .wrong_tensor = "pool"});
    const struct nd_explained_layer *reader = layer_of(&f, "residual/conv");
    assert_int_equal(pool->judgement.state, ND_LAYER_NOT_EXAMINED);
    assert_string_equal(pool->why_not, "not captured");
    assert_int_equal(reader->judgement.state, ND_LAYER_NOT_EXAMINED);
    assert_non_null(strstr(reader->why_not, "an input that was not captured"));
    assert_int_equal(f.e->devices[0].n_faulty + f.e->devices[0].n_unexplained, 0);
    assert_int_equal(f.e->health, ND_HEALTH_INCONCLUSIVE);
    close_fixture(&f);
}

/* The near miss: an output of the model has no reader. (A chain that is too long: tests/cli/cases/explain.sh.)
 */
static void tensor_that_nothing_shows_is_not_examined(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.missing_tensor = "logits"});
    explain_ok(&f);
    assert_int_equal(f.e->health, ND_HEALTH_INCONCLUSIVE);
    assert_string_equal(layer_of(&f, "logits")->why_not, "not captured");
    close_fixture(&f);
}

static void energies_do_not_depend_on_threads(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8"), .float_model = load("cnn.float")};
    struct nd_error err = {0};
    add_device(&f, &(struct mc_device){.rounding = ND_ROUND_FLOOR});
    expect_ok(explain(&f, 1, &err), &err);
    struct nd_explained_device one = f.e->devices[0];
    one.layers = NULL;
    expect_ok(explain(&f, 3, &err), &err);
    const struct nd_explained_device *three = &f.e->devices[0];
    assert_memory_equal(&one.output, &three->output, sizeof one.output);
    assert_memory_equal(&one.own_share_interval, &three->own_share_interval, sizeof one.own_share_interval);
    assert_true(one.own_share > one.own_share_interval.low && one.own_share < one.own_share_interval.high);
    assert_true(one.own_share_interval.high - one.own_share_interval.low < 0.5);
    /* Divergence works against quantisation: the two are far from independent. */
    const struct nd_explained_layer *conv = layer_of(&f, "stem/relu");
    assert_true(conv->quality.correlation < -0.2);
    assert_true(conv->quality.noise_figure_db > 1);
    close_fixture(&f);
}

static void capture_of_another_model_or_input_is_refused(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    struct nd_error err = {0};
    add_device(&f, &(struct mc_device){0});
    add_device(&f, &(struct mc_device){.brightness = 0.5f});
    assert_int_equal(explain(&f, 0, &err), ND_ERR_NOT_COMPARABLE);
    assert_int_equal(err.id, ND_E_COMPARE_NOTHING);
    nd_model_destroy(&f.model);
    f.model = load("cnn.w8a16");
    assert_int_equal(explain(&f, 0, &err), ND_ERR_NOT_COMPARABLE);
    assert_int_equal(err.id, ND_E_COMPARE_MODEL);
    close_fixture(&f);
}

static void device_that_failed_is_a_result(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.state = ND_CAPTURE_FAILED});
    explain_ok(&f);
    assert_int_equal(f.e->verdict, ND_VERDICT_FAILED);
    assert_int_equal(f.e->n_steps, 0);
    add_device(&f, &(struct mc_device){0});
    explain_ok(&f);
    assert_int_equal(f.e->verdict, ND_VERDICT_FAILED);
    assert_int_equal(f.e->devices[1].verdict, ND_VERDICT_SAME);
    assert_string_equal(layer_of(&f, "logits")->why_not, "the device failed");
    close_fixture(&f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(device_that_is_exact_has_no_mismatch),
        TEST(device_that_floors_is_half_a_step_low_in_every_layer),
        TEST(qvalue_that_is_wrong_is_introduced_once_and_passed_on_behind),
        TEST(tensor_that_was_not_captured_is_shown_by_its_readers),
        TEST(tensor_that_was_not_captured_and_does_not_fit_accuses_nobody),
        TEST(tensor_that_nothing_shows_is_not_examined),
        TEST(energies_do_not_depend_on_threads),
        TEST(capture_of_another_model_or_input_is_refused),
        TEST(device_that_failed_is_a_result),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
