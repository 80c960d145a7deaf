/* The section of sums: what devices whose arithmetic is known are said to do. */
#include "support/main.h"

#include <string.h>

#include "lab/accumulator/on_device.h"
#include "lab/fingerprint/long_sums.h"
#include "lab/fingerprint/section.h"
#include "support/scratch.h"

static struct nd_device device;
static struct nd_bench bench;
static struct nd_error error;

static void open_bench(const char *uri)
{
    expect_ok(nd_device_parse(uri, &device, &error), &error);
    bench = (struct nd_bench){.device = &device, .folder = folder};
    nd_capture_options_init(&bench.options);
}

/* float64 sums in double precision, where the sums of the battery are exact, and gives float32. */
static void double_precision_is_exact_then_float32(void **state)
{
    (void)state;
    struct nd_accumulator_fingerprint f;
    open_bench("float64");
    expect_ok(nd_accumulator_fingerprint_take(&bench, ND_CONFIRMING_BLOCK, &f, &error), &error);
    assert_int_equal(f.n_sheets, ND_N_ACCUMULATOR_FORMS);
    for (size_t i = 0; i < f.n_sheets; i++) {
        const struct nd_accumulator_findings *found = &f.sheets[i].found;
        assert_false(f.sheets[i].asked.has_failed);
        assert_int_equal(f.sheets[i].is_as_matmul, i != ND_ACCUMULATOR_MATMUL);
        assert_int_equal(found->n_failed, 0);
        assert_int_equal(found->n_confirmed, ND_CONFIRMING_BLOCK);
        assert_false(nd_accumulator_is_confirmed(found)); /* too few vectors */
        assert_true(found->n > 0);
        assert_false(found->readings.is_one_up);
        for (size_t k = 0; k < found->n; k++) {
            const struct nd_accumulator *item = &found->items[k];
            assert_int_equal(item->product, ND_SUM_EXACT);
            assert_true(item->output == ND_SUM_F32 || item->sum == ND_SUM_F32);
            assert_true(item->sum == ND_SUM_EXACT ||
                        (item->order.kind == ND_SUM_FUSED && item->order.width == ND_BATTERY_TERMS));
            assert_false(item->is_flushing_inputs);
        }
    }
    assert_int_equal(f.n_long, ND_N_ACCUMULATOR_LONG);
    for (size_t i = 0; i < f.n_long; i++)
        assert_int_equal(f.longer[i].n_whole, f.longer[i].n);
    nd_accumulator_fingerprint_deinit(&f);
    nd_device_deinit(&device);
}

static void take_long(const char *uri, struct nd_long_sums *out)
{
    open_bench(uri);
    struct nd_experiment e = nd_experiment_begin(&bench, "MatMul", "u8 x u8, long sums", &error);
    nd_long_sums_take(&e, out);
    assert_false(e.has_failed);
    expect_ok(nd_experiment_end(&e), &error);
    nd_device_deinit(&device);
}

static void exact_integer_sums_never_end(void **state)
{
    (void)state;
    struct nd_long_sums sums;
    take_long("exact", &sums);
    assert_int_equal(sums.n_wrong, 0);
    assert_int_equal(sums.wrong, 0);
    assert_int_equal(sums.right, (int64_t)262144 * 127 * 127);
    assert_int_equal(nd_long_sums_excluded_bits(&sums), 32);
    assert_int_equal(nd_long_sums_bits(&sums), 0);
    assert_true(sums.has_pairs);
    assert_int_equal(sums.n_pairs, 64);
    assert_int_equal(sums.n_pairs_wrong, 0);
}

static void widths_are_found(void **state)
{
    (void)state;
    static const int widths[] = {16, 18, 21, 24, 27, 32};
    for (size_t i = 0; i < 2 * (sizeof widths / sizeof widths[0]); i++) {
        char uri[64];
        struct nd_long_sums sums;
        int n_bits = widths[i / 2];
        bool is_wrapping = i % 2 == 1;
        snprintf(uri, sizeof uri, "emu:%s@y=%d", is_wrapping ? "wrap" : "saturate", n_bits);
        take_long(uri, &sums);
        assert_int_equal(nd_long_sums_bits(&sums), n_bits);
        assert_true(sums.n_beyond > 0);
        assert_int_equal(is_wrapping ? sums.n_wrapped : sums.n_saturated, sums.n_beyond);
        assert_true((is_wrapping ? sums.n_saturated : sums.n_wrapped) < sums.n_beyond);
    }
}

/* ---- what the datasheet says ---- */

static const json_t *find(const json_t *entries, const char *operator_name, const char *types)
{
    const json_t *entry;
    size_t i;
    json_array_foreach(entries, i, entry) {
        if (strcmp(json_string_value(json_object_get(entry, "operator")), operator_name) == 0 &&
            strcmp(json_string_value(json_object_get(entry, "types")), types) == 0)
            return entry;
    }
    fail_msg("no entry %s, %s", operator_name, types);
    return NULL;
}

static const char *verdict_of(const json_t *entry)
{
    return json_string_value(json_object_get(entry, "verdict"));
}

static const char *line_of(const json_t *entry, size_t i)
{
    return json_string_value(json_array_get(json_object_get(entry, "text"), i));
}

static const json_t *parameter(const json_t *entry, const char *key)
{
    return json_object_get(json_object_get(entry, "parameters"), key);
}

/* Quantised models only: half of the section fails, and says so. */
static void section_of_a_wrapping_device(void **state)
{
    (void)state;
    json_t *entries = json_array();
    open_bench("emu:wrap@y=20");
    expect_ok(nd_section_accumulator_f16(&bench, entries, &error), &error);
    assert_int_equal(json_array_size(entries), 2);
    const json_t *entry = find(entries, "MatMul", "float x float");
    assert_string_equal(verdict_of(entry), "failed");
    assert_string_equal(json_string_value(json_object_get(entry, "failure")),
                        "the device is for quantised models");
    entry = find(entries, "MatMul", "u8 x u8, long sums");
    assert_string_equal(verdict_of(entry), "bounded");
    assert_string_equal(line_of(entry, 0), "an accumulator of 20 bits that wraps");
    assert_int_equal(json_integer_value(parameter(entry, "bits")), 20);
    assert_string_equal(json_string_value(parameter(entry, "beyond")), "wraps");
    assert_true(json_is_false(parameter(entry, "pairs_saturate")));
    json_decref(entries);
    nd_device_deinit(&device);
}

/* Confirmed on as many products as a claim takes. */
static void section_of_double_precision(void **state)
{
    (void)state;
    json_t *entries = json_array();
    open_bench("float64");
    expect_ok(nd_section_accumulator_f16(&bench, entries, &error), &error);
    assert_int_equal(json_array_size(entries), 4);
    const json_t *entry = find(entries, "MatMul", "float x float");
    assert_string_equal(verdict_of(entry), "identified");
    assert_string_equal(json_string_value(parameter(entry, "products")), "not rounded (fused)");
    assert_string_equal(json_string_value(parameter(entry, "subnormals")), "kept");
    assert_int_equal(json_integer_value(parameter(entry, "terms_added_exactly_at_least")), 4096);
    assert_int_equal(strlen(json_string_value(json_object_get(entry, "answers"))), 32);
    /* Exact sums, and one rounding of 32 terms, are the same function. */
    assert_true(json_array_size(json_object_get(entry, "possible_arithmetic")) > 1);
    assert_true(json_array_size(json_object_get(entry, "undecided")) > 0);
    assert_string_equal(verdict_of(find(entries, "MatMul", "float x float, inputs")), "identified");
    assert_string_equal(verdict_of(find(entries, "Conv", "float x float")), "identified");
    entry = find(entries, "MatMul", "u8 x u8, long sums");
    assert_string_equal(verdict_of(entry), "failed");
    assert_string_equal(json_string_value(json_object_get(entry, "failure")), "the device is for float models");
    json_decref(entries);
    nd_device_deinit(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(double_precision_is_exact_then_float32, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(exact_integer_sums_never_end, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(widths_are_found, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(section_of_a_wrapping_device, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(section_of_double_precision, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
