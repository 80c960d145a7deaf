/* Sections of a datasheet: their arithmetics against answers whose arithmetic is known, and whole entries
 * against devices that npudiff evaluates itself. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/random.h"
#include "lab/experiment/ask.h"
#include "lab/fingerprint/mean.h"
#include "lab/fingerprint/scalar.h"
#include "lab/fingerprint/section.h"
#include "support/assert_bits.h"
#include "support/scratch.h"

/* ---- arithmetics of numbers ---- */

static void half_precision_is_rounded_half_even(void **state)
{
    (void)state;
    assert_f64_bits(nd_scalar_to_half(2049), 2048);
    assert_f64_bits(nd_scalar_to_half(2051), 2052);
    assert_f64_bits(nd_scalar_to_half(0x1p-24 * 1.5), 0x1p-23);
    assert_f64_bits(nd_scalar_to_half(0x1p-25), 0);
    assert_f64_bits(nd_scalar_to_half(65519), 65504);
    assert_f64_bits(nd_scalar_to_half(-65520), -HUGE_VAL);
    assert_f64_bits(nd_scalar_to_half(1.0 / 3), 0x1.554p-2);
}

enum { N_VALUES = 4096 };

/* Answers of an arithmetic, of values of which many are ties and close to them. */
static void answer(const struct nd_scalar_arithmetic *arithmetic, struct nd_scalar_sample *sample,
                   double *values, double *qvalues)
{
    uint64_t seed = 1;
    for (size_t i = 0; i < N_VALUES; i++) {
        double k = floor(nd_random_between(&seed, -100, 100)) + 0.5;
        double off = i % 4 == 0 ? 0 : ldexp(nd_random_between(&seed, -1, 1), -(int)(i % 24));
        values[i] = (double)(float)((k + off) * (double)sample->scale);
    }
    sample->n = N_VALUES;
    sample->values = values;
    for (size_t i = 0; i < N_VALUES; i++)
        qvalues[i] = nd_scalar_qvalue(arithmetic, sample, values[i]);
    sample->qvalues = qvalues;
}

static bool is_same_arithmetic(const struct nd_scalar_arithmetic *a, const struct nd_scalar_arithmetic *b)
{
    return a->value == b->value && a->rounding == b->rounding && a->has_zero_inside == b->has_zero_inside;
}

/* Every arithmetic is among those that its own answers leave, and is the only one of its precision and rounding
 * of halves unless zero points make no difference. */
static void scalar_arithmetic_is_found_in_its_answers(void **state)
{
    (void)state;
    double *values = calloc(2 * N_VALUES, sizeof *values), *qvalues = calloc(2 * N_VALUES, sizeof *qvalues);
    assert_non_null(values);
    assert_non_null(qvalues);
    for (int value = 0; value < ND_N_SCALAR_VALUES; value++)
        for (int rounding = 0; rounding <= ND_ROUND_TO_ZERO; rounding++)
            for (int inside = 0; inside < 2; inside++) {
                const struct nd_scalar_arithmetic arithmetic = {(enum nd_scalar_value)value,
                                                                (enum nd_rounding)rounding, inside != 0};
                struct nd_scalar_sample samples[2] = {{.scale = 0x1p-5F, .zero = 101, .high = 255},
                                                      {.scale = 0.0173F, .zero = 127, .high = 255}};
                struct nd_scalar_findings found;
                bool is_there = false;
                for (size_t s = 0; s < 2; s++)
                    answer(&arithmetic, &samples[s], values + s * N_VALUES, qvalues + s * N_VALUES);
                nd_scalar_solve(samples, 2, &found);
                for (size_t p = 0; p < found.n_arithmetics; p++) {
                    is_there = is_there || is_same_arithmetic(&found.arithmetics[p], &arithmetic);
                    assert_true(found.arithmetics[p].rounding == arithmetic.rounding ||
                                found.arithmetics[p].has_zero_inside || arithmetic.has_zero_inside);
                }
                assert_true(is_there);
                assert_true(found.n_qvalues == 2 * N_VALUES);
                assert_true(nd_scalar_is_correct(&found) == (value == 0 && rounding == 0 && inside == 0) ||
                            inside != 0);
            }
    free(values);
    free(qvalues);
}

static void scalar_answers_of_nothing_known_leave_nothing(void **state)
{
    (void)state;
    const struct nd_scalar_arithmetic arithmetic = {ND_SCALAR_EXACT, ND_ROUND_HALF_EVEN, false};
    struct nd_scalar_sample sample = {.scale = 0.0173F, .zero = 127, .high = 255};
    struct nd_scalar_findings found;
    double *values = calloc(N_VALUES, sizeof *values), *qvalues = calloc(N_VALUES, sizeof *qvalues);
    assert_non_null(values);
    assert_non_null(qvalues);
    answer(&arithmetic, &sample, values, qvalues);
    qvalues[5] += 7;
    nd_scalar_solve(&sample, 1, &found);
    assert_int_equal(found.n_arithmetics, 0);
    assert_int_equal(found.n_off, 1);
    assert_f64_bits(found.largest_off, 7);
    assert_int_equal(found.n_nearest_wrong, 1);
    values[5] = NAN; /* what has no value is not judged */
    nd_scalar_solve(&sample, 1, &found);
    assert_true(found.n_arithmetics > 0);
    assert_int_equal(found.n_qvalues, N_VALUES - 1);
    free(values);
    free(qvalues);
}

/* ---- arithmetics of windows ---- */

enum { N_WINDOWS = 6000, N_SCALES = 4 };

/* Answers of an arithmetic, and that it is found in them. */
static void check_mean(const struct nd_mean_arithmetic *arithmetic, size_t side, bool is_of_sum)
{
    static const double ratios[N_SCALES] = {0.7731415, 0.61234, 1.2345678, 0.5512345},
                        zeros[N_SCALES] = {128, 0, 100, 37};
    struct nd_mean_sample samples[N_SCALES];
    struct nd_mean_findings found;
    uint64_t seed = 9;
    for (size_t s = 0; s < N_SCALES; s++) {
        uint8_t *windows = calloc(N_WINDOWS, side * side);
        double *qvalues = calloc(N_WINDOWS, sizeof *qvalues);
        assert_non_null(windows);
        assert_non_null(qvalues);
        for (size_t i = 0; i < N_WINDOWS; i++) {
            double base = nd_random_between(&seed, 0, 235);
            for (size_t e = 0; e < side * side; e++)
                windows[i * side * side + e] = (uint8_t)nd_random_between(&seed, base, base + 20);
        }
        samples[s] = (struct nd_mean_sample){.ratio = (double)(float)ratios[s],
                                             .zero_x = zeros[s],
                                             .zero_y = zeros[N_SCALES - 1 - s],
                                             .n_rows = side,
                                             .n_columns = side,
                                             .n = N_WINDOWS,
                                             .windows = windows,
                                             .qvalues = qvalues};
        for (size_t i = 0; i < N_WINDOWS; i++)
            qvalues[i] = nd_mean_qvalue(arithmetic, &samples[s], windows + i * side * side);
    }
    assert_int_equal(nd_mean_solve(samples, N_SCALES, true, &found, NULL), ND_OK);
    assert_true(found.is_of_sum == is_of_sum);
    bool is_there = false;
    char name[ND_MEAN_NAME_BYTES], other[ND_MEAN_NAME_BYTES];
    nd_mean_name(arithmetic, name);
    for (size_t p = 0; p < found.n_arithmetics; p++)
        is_there = is_there || strcmp(nd_mean_name(&found.arithmetics[p], other), name) == 0;
    assert_true(is_there);
    free(found.arithmetics);
    for (size_t s = 0; s < N_SCALES; s++) {
        free((void *)(uintptr_t)samples[s].windows);
        free((void *)(uintptr_t)samples[s].qvalues);
    }
}

static void mean_arithmetic_is_found_in_its_answers(void **state)
{
    (void)state;
    struct nd_mean_arithmetic p = {.n_stages = 1, .first_shift = ND_MEAN_NO_SHIFT};
    p.requantise = (struct nd_requantise){
        .multiplier_bits = 14, .multiplier_rounding = ND_ROUND_HALF_UP, .rounding = ND_ROUND_HALF_UP};
    check_mean(&p, 3, true);
    p.first_shift = 11;
    check_mean(&p, 2, true);
    p.n_stages = 2;
    memcpy(p.stages, (const uint8_t[]){2, 2}, 2);
    check_mean(&p, 4, false);
    p.first_shift = ND_MEAN_NO_SHIFT;
    memcpy(p.stages, (const uint8_t[]){3, 2}, 2);
    p.requantises_last = true;
    check_mean(&p, 6, false);
    p = (struct nd_mean_arithmetic){.n_stages = 1, .first_shift = ND_MEAN_NO_SHIFT};
    p.requantise = (struct nd_requantise){.multiplier_bits = 11,
                                          .multiplier_rounding = ND_ROUND_HALF_EVEN,
                                          .has_granule = true,
                                          .granule_bits = 3,
                                          .has_half_granule = true,
                                          .rounding = ND_ROUND_HALF_EVEN};
    check_mean(&p, 5, true);
}

/* A mean by hand: quantised values 1, 2, 3, 5 in steps of 1 and 2 are 11 / 4 / 2 = 1.375, and in stages of two
 * they are as well. */
static void mean_qvalue_is_that_of_the_formula(void **state)
{
    (void)state;
    const uint8_t window[] = {1, 2, 3, 5};
    struct nd_mean_sample sample = {
        .ratio = 0.5, .zero_y = 10, .n_rows = 2, .n_columns = 2, .n = 1, .windows = window};
    struct nd_mean_arithmetic p = {
        .n_stages = 1, .first_shift = ND_MEAN_NO_SHIFT, .requantise = {.rounding = ND_ROUND_CEIL}};
    assert_f64_bits(nd_mean_qvalue(&p, &sample, window), 12);
    p.requantise.rounding = ND_ROUND_HALF_UP;
    assert_f64_bits(nd_mean_qvalue(&p, &sample, window), 11);
    p.requantise.multiplier_bits = 14;
    p.first_shift = 11; /* 2^11 of 2^17: 1/64 is not enough */
    assert_f64_bits(nd_mean_qvalue(&p, &sample, window), 11);
    sample.is_max = true;
    p.first_shift = ND_MEAN_NO_SHIFT;
    assert_f64_bits(nd_mean_qvalue(&p, &sample, window), 13); /* 5 / 2, half up */
}

/* ---- sections ---- */

static json_t *take_unstable(const char *uri, nd_section *section, size_t *n_unstable)
{
    struct nd_device device;
    struct nd_error err = {0};
    json_t *entries = json_array();
    expect_ok(nd_device_parse(uri, &device, &err), &err);
    struct nd_bench bench = {.device = &device, .folder = folder};
    nd_capture_options_init(&bench.options);
    expect_ok(section(&bench, entries, &err), &err);
    assert_true(bench.n_run > 0);
    assert_true(bench.device == &device);
    *n_unstable = bench.n_unstable;
    nd_device_deinit(&device);
    return entries;
}

static json_t *take(const char *uri, nd_section *section)
{
    size_t n_unstable;
    json_t *entries = take_unstable(uri, section, &n_unstable);
    assert_int_equal(n_unstable, 0);
    return entries;
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* The quantised reference rounds exactly, half to even: that, and no other rounding of ties, is said of it. */
static void reference_has_correctly_rounded_tables(void **state)
{
    (void)state;
    json_t *entries = take("exact", nd_section_table_u8), *entry;
    size_t i, n_even = 0;
    json_array_foreach(entries, i, entry) {
        const json_t *arithmetics = json_object_get(entry, "possible_arithmetic");
        assert_string_equal(text_of(entry, "verdict"), "identified");
        assert_string_equal(json_string_value(json_array_get(arithmetics, 0)),
                            "value:exact+rounding:half-even");
        assert_int_equal(json_integer_value(json_object_get(json_object_get(entry, "evidence"), "off")), 0);
        assert_int_equal(json_integer_value(json_object_get(json_object_get(entry, "evidence"), "many_valued")),
                         0);
        n_even += strcmp(text_of(entry, "operator"), "HardSwish") == 0;
    }
    assert_int_equal(i, 15);
    assert_int_equal(n_even, 1);
    json_decref(entries);
}

static void reference_has_exact_means(void **state)
{
    (void)state;
    json_t *entries = take("exact", nd_section_pool_u8), *entry;
    size_t i;
    json_array_foreach(entries, i, entry) {
        bool has_exact = false;
        size_t p;
        json_t *arithmetic;
        assert_string_equal(text_of(entry, "verdict"), "identified");
        json_array_foreach(json_object_get(entry, "possible_arithmetic"), p, arithmetic) {
            has_exact = has_exact || strcmp(json_string_value(arithmetic), "rounding:half-even") == 0;
        }
        assert_true(has_exact);
    }
    assert_int_equal(i, 9);
    json_decref(entries);
}

static void reference_has_exact_norms(void **state)
{
    (void)state;
    json_t *entries = take("exact", nd_section_normalise), *entry;
    size_t i;
    json_array_foreach(entries, i, entry) {
        assert_string_equal(text_of(entry, "verdict"), "identified");
        assert_int_equal(strlen(text_of(entry, "answers")), 64);
    }
    assert_int_equal(i, 6);
    json_decref(entries);
}

/* Quantised values that are one more or less in every run: the section that asks another device than its
 * bench's counts that as well. */
static void qvalues_that_change_are_counted(void **state)
{
    (void)state;
    size_t n_unstable;
    json_t *entries = take_unstable("emu:flip@y=0.5", nd_section_quantise, &n_unstable);
    assert_true(n_unstable >= 6); /* three settings of two types; fresh ones only where an arithmetic is left */
    assert_string_equal(text_of(json_array_get(entries, 0), "verdict"), "not identified");
    json_decref(entries);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(half_precision_is_rounded_half_even),
        cmocka_unit_test(scalar_arithmetic_is_found_in_its_answers),
        cmocka_unit_test(scalar_answers_of_nothing_known_leave_nothing),
        cmocka_unit_test(mean_arithmetic_is_found_in_its_answers),
        cmocka_unit_test(mean_qvalue_is_that_of_the_formula),
        cmocka_unit_test_setup_teardown(reference_has_correctly_rounded_tables, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(reference_has_exact_means, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(reference_has_exact_norms, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(qvalues_that_change_are_counted, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
