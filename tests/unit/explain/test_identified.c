/* Arithmetics named from captures of devices whose arithmetics are known. */
#include "support/main.h"
#include "support/scratch.h"

#include "report/text/explain.h"
#include "support/explain_fixture.h"

#include <jansson.h>
#include <math.h>

static json_t *identify(const struct fixture *f, const struct nd_identify_options *options)
{
    struct nd_error err = {0};
    struct nd_identification *identification = NULL;
    expect_ok(nd_identify_captures(f->model, (const struct nd_capture *const *)f->captures, f->n_captures,
                                   options, &identification, &err),
              &err);
    json_t *json = nd_identification_json(identification);
    assert_non_null(json);
    nd_identification_destroy(&identification);
    return json;
}

static const json_t *device_of(const json_t *json, size_t d)
{
    const json_t *device = json_array_get(json_object_get(json, "devices"), d);
    assert_non_null(device);
    return device;
}

static const char *string_of(const json_t *object, const char *key)
{
    const char *value = json_string_value(json_object_get(object, key));
    assert_non_null(value);
    return value;
}

/* The row of a list with that value, or NULL. */
static const json_t *find_row(const json_t *device, const char *list, const char *key, const char *value)
{
    size_t i;
    const json_t *row;
    json_array_foreach(json_object_get(device, list), i, row)
        if (strcmp(string_of(row, key), value) == 0)
            return row;
    return NULL;
}

static bool holds(const json_t *answer, const char *arithmetic)
{
    size_t i, k;
    const json_t *names, *name;
    json_array_foreach(json_object_get(answer, "groups"), i, names)
        json_array_foreach(names, k, name)
            if (strcmp(json_string_value(name), arithmetic) == 0)
                return true;
    return false;
}

static json_int_t number_of(const json_t *answer, const char *key)
{
    const json_t *value = json_object_get(answer, key);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

/* ---- what is told ---- */

static void arithmetics_are_named(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "floor"});
    add_device(&f, &(struct mc_device){.emulated = "multiplier:8+rounding:half-up"});
    json_t *json = identify(&f, NULL);
    const json_t *floor = device_of(json, 0), *conv = find_row(floor, "types", "op_type", "Conv");
    assert_non_null(conv);
    assert_string_equal(string_of(floor, "verdict"), "single");
    assert_string_equal(string_of(conv, "verdict"), "single");
    assert_true(holds(conv, "floor") && holds(floor, "floor") && !holds(conv, "half-even"));
    assert_int_equal(number_of(conv, "exceptions"), 0);
    assert_float_equal(json_real_value(json_object_get(conv, "explained")), 1, 0);
    assert_true(number_of(conv, "deciding") > 0 && number_of(conv, "deciding") <= number_of(conv, "values"));
    /* That one is not in the table. */
    const json_t *other = find_row(device_of(json, 1), "types", "op_type", "Conv");
    assert_string_equal(string_of(other, "verdict"), "none");
    assert_int_equal(json_array_size(json_object_get(other, "groups")), 0);
    assert_true(strlen(string_of(other, "nearest")) > 0);
    assert_true(json_real_value(json_object_get(other, "explained")) < 0.999);
    assert_true(number_of(other, "exceptions") > 0);
    json_decref(json);
    close_fixture(&f);
}

/* Thresholds of floor lie at 1, below zero as above, and its curve is 0. */
static void thresholds_and_curves_are_those_of_the_arithmetic(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "floor"});
    add_device(&f, &(struct mc_device){.emulated = "half-even"});
    json_t *json = identify(&f, NULL);
    const json_t *layer = find_row(device_of(json, 0), "layers", "op_type", "Conv"), *point;
    const json_t *above = json_object_get(json_object_get(layer, "thresholds"), "positive");
    assert_int_equal(number_of(above, "up"), 0);
    assert_true(json_is_null(json_object_get(above, "min_up")));
    assert_true(json_real_value(json_object_get(above, "max_down")) > 0.99);
    json_int_t n = 0;
    size_t i;
    json_array_foreach(json_object_get(layer, "curve"), i, point) {
        assert_float_equal(json_number_value(json_object_get(point, "p")), 0, 0);
        assert_float_equal(json_number_value(json_object_get(point, "low")), 0, 0);
        /* Clopper and Pearson of none in n: 1 - 0.025^(1/n) */
        double high = 1 - pow(0.025, 1 / (double)number_of(point, "values"));
        assert_float_equal(json_number_value(json_object_get(point, "high")), high, 1e-9);
        n += number_of(point, "values");
    }
    assert_int_equal(n, number_of(layer, "open"));
    layer = find_row(device_of(json, 1), "layers", "op_type", "Conv");
    above = json_object_get(json_object_get(layer, "thresholds"), "positive");
    assert_true(json_real_value(json_object_get(above, "max_down")) <= 0.5);
    assert_true(json_real_value(json_object_get(above, "min_up")) >= 0.5);
    assert_true(json_is_null(json_object_get(layer, "explained")));
    json_decref(json);
    close_fixture(&f);
}

/* What no arithmetic of single values gives, an arithmetic of whole layers may. */
static void arithmetics_of_layers_are_counted_beside(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "htp-v73"});
    json_t *json = identify(&f, NULL);
    const json_t *conv = find_row(device_of(json, 0), "types", "op_type", "Conv"), *row;
    assert_string_equal(string_of(conv, "verdict"), "none");
    json_int_t exceptions[2] = {-1, -1};
    size_t i;
    json_array_foreach(json_object_get(conv, "layer_arithmetic"), i, row)
        for (size_t k = 0; k < 2; k++)
            if (strcmp(string_of(row, "name"), k == 0 ? "htp-v73" : "htp-v69") == 0) {
                assert_int_equal(number_of(row, "values"), number_of(conv, "values"));
                exceptions[k] = number_of(row, "exceptions");
            }
    assert_int_equal(exceptions[0], 0);
    assert_true(exceptions[1] > 0);
    json_decref(json);
    close_fixture(&f);
}

/* One layer of another program: its type has none, nor has the device; the layer has. */
static void a_unit_of_its_own_is_told(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    struct nd_error err = {0};
    add_device(&f, &(struct mc_device){.emulated = "half-even"});
    json_t *json = identify(&f, NULL);
    char items[256], name[128];
    snprintf(name, sizeof name, "%s",
             string_of(find_row(device_of(json, 0), "layers", "op_type", "Conv"), "name"));
    json_decref(json);
    snprintf(items, sizeof items, "half-even,round@%s=floor", name);
    struct nd_emulation probe = {0};
    expect_ok(nd_emulation_parse(items, &probe, &err), &err);
    nd_emulation_deinit(&probe);
    add_device(&f, &(struct mc_device){.emulated = items});
    json = identify(&f, NULL);
    const json_t *device = device_of(json, 1), *conv = find_row(device, "types", "op_type", "Conv");
    assert_string_equal(string_of(conv, "verdict"), "none");
    assert_true(json_is_true(json_object_get(conv, "split")));
    assert_string_equal(string_of(device, "verdict"), "none");
    assert_true(json_is_true(json_object_get(device, "split")));
    /* An arithmetic of chance would have no exceptions. */
    assert_true(strncmp(string_of(conv, "nearest"), "stochastic", 10) != 0);
    assert_true(number_of(conv, "exceptions") > 0);
    assert_true(holds(find_row(device, "layers", "name", name), "floor"));
    assert_true(holds(find_row(device, "types", "op_type", "Gemm"), "half-even"));
    json_decref(json);
    close_fixture(&f);
}

/* ---- what cannot be told ---- */

static void what_is_missing_is_listed(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    size_t tensor = nd_model_layer(f.model, 1)->tensor;
    const char *missing = nd_model_tensor(f.model, tensor)->name;
    add_device(&f, &(struct mc_device){.missing_tensor = missing});
    json_t *json = identify(&f, NULL);
    const json_t *row = find_row(device_of(json, 0), "not_identified", "name", missing);
    assert_non_null(row);
    assert_string_equal(string_of(row, "why"), "not captured");
    assert_null(find_row(device_of(json, 0), "layers", "name", missing));
    assert_true(json_array_size(json_object_get(device_of(json, 0), "not_identified")) > 1); /* its readers */
    json_decref(json);
    close_fixture(&f);
}

static void few_samples_decide_nothing(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "floor"});
    const struct nd_identify_options options = {.struct_size = sizeof options, .n_samples = 1};
    json_t *json = identify(&f, &options);
    const json_t *probe = json_array_get(json_object_get(device_of(json, 0), "probes"), 0);
    assert_int_equal(number_of(probe, "samples"), 1);
    const json_t *gemm = find_row(device_of(json, 0), "types", "op_type", "Gemm"); /* ten outputs */
    assert_true(number_of(gemm, "open") < 64);
    assert_string_equal(string_of(gemm, "verdict"), "too-few");
    assert_int_equal(json_array_size(json_object_get(gemm, "groups")), 0);
    json_decref(json);
    close_fixture(&f);
}

static void a_failed_device_is_an_entry(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.state = ND_CAPTURE_FAILED});
    add_device(&f, &(struct mc_device){.emulated = "floor"});
    json_t *json = identify(&f, NULL);
    assert_true(strlen(string_of(device_of(json, 0), "failure")) > 0);
    assert_null(json_object_get(device_of(json, 0), "verdict"));
    assert_true(json_is_null(json_object_get(device_of(json, 1), "failure")));
    assert_string_equal(string_of(device_of(json, 1), "verdict"), "single");
    json_decref(json);
    close_fixture(&f);
}

static void other_models_and_probes_are_refused(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    struct nd_error err = {0};
    struct nd_identification *none = NULL;
    add_device(&f, &(struct mc_device){.emulated = "floor"});
    const struct nd_capture *const *captures = (const struct nd_capture *const *)f.captures;
    struct nd_model *other = load("cnn.w8a16");
    assert_int_equal(nd_identify_captures(other, captures, 1, NULL, &none, &err), ND_ERR_NOT_COMPARABLE);
    nd_model_destroy(&other);
    const struct nd_identify_options options = {.struct_size = sizeof options, .probe = "zeros"};
    assert_int_equal(nd_identify_captures(f.model, captures, 1, &options, &none, &err), ND_ERR_NOT_FOUND);
    assert_null(none);
    close_fixture(&f);
}

static void threads_change_nothing(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.emulated = "stochastic:7"});
    json_t *found[2] = {NULL};
    for (size_t i = 0; i < 2; i++) {
        const struct nd_identify_options options = {.struct_size = sizeof options, .n_threads = 1 + 2 * i};
        found[i] = identify(&f, &options);
    }
    assert_true(json_equal(found[0], found[1]));
    assert_true(holds(device_of(found[0], 0), "stochastic"));
    json_decref(found[0]);
    json_decref(found[1]);
    close_fixture(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(arithmetics_are_named),
        cmocka_unit_test(thresholds_and_curves_are_those_of_the_arithmetic),
        cmocka_unit_test(arithmetics_of_layers_are_counted_beside),
        cmocka_unit_test(a_unit_of_its_own_is_told),
        cmocka_unit_test(what_is_missing_is_listed),
        cmocka_unit_test(few_samples_decide_nothing),
        cmocka_unit_test(a_failed_device_is_an_entry),
        cmocka_unit_test(other_models_and_probes_are_refused),
        cmocka_unit_test(threads_change_nothing),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
