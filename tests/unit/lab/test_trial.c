/* Models made to order, run on the quantised reference: what a device answers, and that it is asked only once.
 */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "lab/experiment/trial.h"
#include "support/scratch.h"

/* y = round(x / factor): uint8 quantised values in steps of 1. */
static struct nd_compose *make_division(float factor)
{
    const struct nd_shape shape = {.rank = 2, .dims = {1, 8}};
    float one = 1;
    int64_t zero = 0;
    const struct nd_quant fine = {.n = 1, .axis = -1, .scale = &one, .zero_point = &zero},
                          coarse = {.n = 1, .axis = -1, .scale = &factor, .zero_point = &zero};
    struct nd_compose *c = NULL;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_U8, &shape);
    nd_compose_dequantize(c, "x", "x_real", &fine, ND_DTYPE_U8);
    nd_compose_node(c, "Identity", (const char *[]){"x_real", NULL}, "same");
    nd_compose_quantize(c, "same", "y", &coarse, ND_DTYPE_U8);
    nd_compose_output(c, "y", ND_DTYPE_U8, &shape);
    return c;
}

static void device_answers_once(void **state)
{
    (void)state;
    uint8_t x[16];
    struct nd_device device;
    struct nd_error err = {0};
    struct nd_trial_result result;
    struct nd_compose *model = make_division(3);
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = (uint8_t)(i * 16);
    expect_ok(nd_device_parse("exact", &device, &err), &err);
    struct nd_bench bench = {.device = &device, .folder = folder};
    nd_capture_options_init(&bench.options);
    const struct nd_trial_input input = {"x", ND_DTYPE_U8, {.rank = 2, .dims = {1, 8}}, x};
    const struct nd_bench_trial trial = {
        .model = model, .output = "y", .n_samples = 2, .n_inputs = 1, .inputs = &input};
    for (size_t pass = 0; pass < 2; pass++) {
        expect_ok(nd_trial_run(&bench, &trial, &result, &err), &err);
        assert_false(result.has_failed);
        assert_true(result.is_on_npu);
        assert_int_equal(result.n, 16);
        for (size_t i = 0; i < 16; i++)
            assert_int_equal((int)result.x[i], (int)(x[i] + 1) / 3); /* no ties among thirds */
        nd_trial_deinit(&result);
        assert_int_equal(bench.n_run, 1);
        assert_int_equal(bench.n_kept, pass);
    }
    x[3]++; /* other inputs are another trial */
    expect_ok(nd_trial_run(&bench, &trial, &result, &err), &err);
    assert_int_equal(bench.n_run, 2);
    nd_trial_deinit(&result);
    nd_compose_destroy(&model);
    nd_device_deinit(&device);
}

/* A model that the device refuses is an answer, too, and is asked again. */
static void refused_model_is_an_answer(void **state)
{
    (void)state;
    const struct nd_shape shape = {.rank = 2, .dims = {1, 8}};
    const uint8_t x[8] = {0};
    float one = 1;
    int64_t zero = 0;
    const struct nd_quant quant = {.n = 1, .axis = -1, .scale = &one, .zero_point = &zero};
    struct nd_device device;
    struct nd_error err = {0};
    struct nd_trial_result result;
    struct nd_compose *c = NULL;
    assert_int_equal(nd_compose_create(21, &c, NULL), ND_OK);
    nd_compose_input(c, "x", ND_DTYPE_U8, &shape);
    nd_compose_dequantize(c, "x", "x_real", &quant, ND_DTYPE_U8);
    nd_compose_node(c, "NoSuchOperator", (const char *[]){"x_real", NULL}, "z");
    nd_compose_quantize(c, "z", "y", &quant, ND_DTYPE_U8);
    nd_compose_output(c, "y", ND_DTYPE_U8, &shape);
    expect_ok(nd_device_parse("exact", &device, &err), &err);
    struct nd_bench bench = {.device = &device, .folder = folder};
    nd_capture_options_init(&bench.options);
    const struct nd_trial_input input = {"x", ND_DTYPE_U8, shape, x};
    const struct nd_bench_trial trial = {
        .model = c, .output = "y", .n_samples = 1, .n_inputs = 1, .inputs = &input};
    for (size_t pass = 0; pass < 2; pass++) {
        expect_ok(nd_trial_run(&bench, &trial, &result, &err), &err);
        assert_true(result.has_failed);
        assert_non_null(strstr(result.failure.message, "NoSuchOperator"));
        assert_null(result.x);
        nd_trial_deinit(&result);
        assert_int_equal(bench.n_run, pass + 1);
    }
    nd_compose_destroy(&c);
    nd_device_deinit(&device);
}

/* Every sample is run twice: what changes from run to run is told. */
static void unstable_device_is_told(void **state)
{
    (void)state;
    static const char *const devices[] = {"exact", "emu:half-even,flip@y=0.5"};
    const struct nd_shape shape = {.rank = 2, .dims = {1, 8}};
    uint8_t x[64];
    struct nd_compose *model = make_division(3);
    for (size_t i = 0; i < sizeof x; i++)
        x[i] = (uint8_t)(i * 4);
    for (size_t d = 0; d < 2; d++) {
        struct nd_device device;
        struct nd_error err = {0};
        struct nd_trial_result result;
        expect_ok(nd_device_parse(devices[d], &device, &err), &err);
        struct nd_bench bench = {.device = &device, .folder = folder};
        nd_capture_options_init(&bench.options);
        const struct nd_trial_input input = {"x", ND_DTYPE_U8, shape, x};
        const struct nd_bench_trial trial = {
            .model = model, .output = "y", .n_samples = 8, .n_inputs = 1, .inputs = &input};
        expect_ok(nd_trial_run(&bench, &trial, &result, &err), &err);
        assert_int_equal(result.is_unstable, d);
        assert_int_equal(bench.n_unstable, d);
        nd_trial_deinit(&result);
        nd_device_deinit(&device);
    }
    nd_compose_destroy(&model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(device_answers_once, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(refused_model_is_an_answer, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(unstable_device_is_told, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
