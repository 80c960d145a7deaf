/* The kernels of src/compare on memory buffers: mutations, mirror images, and the values of the oracle. */
#include "support/main.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compare/accuracy.h"
#include "compare/classes.h"
#include "compare/pair.h"
#include "compare/ulp.h"

static const enum nd_dtype all_dtypes[] = {
    ND_DTYPE_F32, ND_DTYPE_U8,  ND_DTYPE_I8,  ND_DTYPE_U16, ND_DTYPE_I16,  ND_DTYPE_I32,  ND_DTYPE_I64,
    ND_DTYPE_F16, ND_DTYPE_F64, ND_DTYPE_U32, ND_DTYPE_U64, ND_DTYPE_BF16, ND_DTYPE_BOOL,
};
enum { N_DTYPES = sizeof all_dtypes / sizeof all_dtypes[0] };

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return *seed >> 11;
}

/* ND_SEED replays a run. */
static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20240607;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static struct nd_diff_layout make_layout(enum nd_dtype dtype, size_t n)
{
    struct nd_edge edge = {.name = (char *)"e", .dtype = dtype, .shape = {.rank = 1, .dims = {(int64_t)n}}};
    struct nd_diff_layout layout;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_OK);
    return layout;
}

static struct nd_difference compare(const struct nd_diff_layout *layout, const void *ref, const void *test)
{
    struct nd_diff_acc acc = {0};
    struct nd_difference out;
    nd_diff_add_sample(&acc, layout, ref, test, 3, 5);
    nd_diff_finish(&acc, layout, &out);
    return out;
}

static void difference_identical_is_zero(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    unsigned char *data = nd_tensor_alloc(8 * 3000);
    for (size_t i = 0; i < 8 * 3000; i++)
        data[i] = (unsigned char)next_random(&seed);
    for (size_t k = 0; k < N_DTYPES; k++)
        for (size_t n = 0; n < 3000; n = n < 300 ? n + 1 : n + 799) {
            struct nd_diff_layout layout = make_layout(all_dtypes[k], n);
            struct nd_difference d = compare(&layout, data, data);
            assert_int_equal(d.n_elems, n);
            assert_int_equal(d.n_differing + d.n_samples_differing + d.n_failing + d.max_lsb + d.max_ulp, 0);
            assert_f64_bits(d.max_abs, 0);
            assert_f64_bits(d.mean_abs, 0);
            assert_f64_bits(d.share, 0);
            assert_f64_bits(d.signed_mean_lsb, 0);
            assert_false(d.has_first);
            assert_int_equal(d.lsb_histogram[4], d.is_integer ? n : 0);
        }
    free(data);
}

/* Every bit position of elements 0..300 and around block edges is found at exactly its place. */
static void difference_of_one_bit_is_found_at_its_index(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    enum { N = 2100 };
    unsigned char *ref = nd_tensor_alloc(8 * N), *test = nd_tensor_alloc(8 * N);
    for (size_t i = 0; i < 8 * N; i++)
        ref[i] = test[i] = (unsigned char)next_random(&seed);
    for (size_t k = 0; k < N_DTYPES; k++) {
        size_t elem_bytes = nd_dtype_size_bytes(all_dtypes[k]);
        for (size_t i = 0; i < N; i = i == 300 ? 1020 : i == 1030 ? N - 1 : i + 1) {
            struct nd_diff_layout layout = make_layout(all_dtypes[k], i < 300 ? 301 : N);
            size_t bit = next_random(&seed) % (8 * elem_bytes);
            test[i * elem_bytes + bit / 8] ^= (unsigned char)(1u << bit % 8);
            struct nd_difference d = compare(&layout, ref, test);
            assert_int_equal(d.n_differing, 1);
            assert_int_equal(d.n_failing, 1);
            assert_true(d.has_first && d.first.has_index);
            assert_int_equal(d.first.index, i);
            assert_int_equal(d.first.coordinates[0], i);
            assert_int_equal(d.first.probe, 3);
            assert_int_equal(d.first.sample, 5);
            if (d.is_integer)
                assert_true(d.max_lsb == (uint64_t)1 << bit);
            else
                assert_true(d.max_ulp + d.n_nan_mismatch + d.n_nan_payload + d.n_inf_mismatch + d.n_zero_sign >
                            0);
            test[i * elem_bytes + bit / 8] ^= (unsigned char)(1u << bit % 8);
        }
    }
    free(ref);
    free(test);
}

static void difference_swapped_is_mirrored(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    enum { N = 1500 };
    unsigned char *a = nd_tensor_alloc(8 * N), *b = nd_tensor_alloc(8 * N);
    for (size_t k = 0; k < N_DTYPES; k++) {
        struct nd_diff_layout layout = make_layout(all_dtypes[k], N);
        for (size_t i = 0; i < 8 * N; i++) {
            a[i] = (unsigned char)next_random(&seed);
            b[i] = next_random(&seed) % 3 == 0 ? (unsigned char)(a[i] + next_random(&seed) % 7 - 3) : a[i];
        }
        struct nd_difference ab = compare(&layout, a, b), ba = compare(&layout, b, a);
        assert_true(ab.n_differing > 0 && ab.n_differing == ba.n_differing);
        for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
            assert_int_equal(ab.lsb_histogram[i], ba.lsb_histogram[ND_LSB_BUCKETS - 1 - i]);
        assert_f64_bits(ab.signed_mean_lsb, ab.is_integer ? -ba.signed_mean_lsb : 0);
        assert_true(ab.max_lsb == ba.max_lsb && ab.max_ulp == ba.max_ulp);
        assert_f64_bits(ab.max_abs, ba.max_abs);
        assert_f64_bits(ab.mean_abs, ba.mean_abs);
        assert_int_equal(ab.n_nan_mismatch, ba.n_nan_mismatch);
        assert_int_equal(ab.n_nan_payload, ba.n_nan_payload);
        assert_int_equal(ab.n_inf_mismatch, ba.n_inf_mismatch);
        assert_int_equal(ab.first.index, ba.first.index);
    }
    free(a);
    free(b);
}

static void difference_of_specials_is_counted_apart(void **state)
{
    (void)state;
    float ref[] = {NAN, NAN, NAN, 1, INFINITY, INFINITY, -INFINITY, 1, 0.0f, 0.0f, 1};
    float test[] = {NAN, NAN, 1, NAN, INFINITY, 1, INFINITY, NAN, -0.0f, 0.0f, 1};
    uint32_t payload = 0x7fc00001;
    memcpy(&test[1], &payload, sizeof payload);
    struct nd_diff_layout layout = make_layout(ND_DTYPE_F32, 11);
    struct nd_difference d = compare(&layout, ref, test);
    assert_int_equal(d.n_differing, 7);
    assert_int_equal(d.n_nan_payload, 1);
    assert_int_equal(d.n_nan_mismatch, 3);
    assert_int_equal(d.n_inf_mismatch, 2);
    assert_int_equal(d.n_zero_sign, 1);
    assert_int_equal(d.max_ulp, 0);
    assert_f64_bits(d.max_abs, 0);
    assert_int_equal(d.n_failing, 7); /* bit-equality is the gate */
    layout.gate =
        (struct nd_gate_values){.has_ulp = true, .ulp = UINT64_MAX, .has_tolerance = true, .atol = 1e300};
    assert_int_equal(compare(&layout, ref, test).n_failing, 5); /* payload and sign of zero pass */
}

static void difference_merged_equals_one_run(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    enum { N = 700, SAMPLES = 4 };
    float ref[SAMPLES][N], test[SAMPLES][N];
    for (size_t i = 0; i < (size_t)SAMPLES * N; i++) {
        (&ref[0][0])[i] = (float)next_random(&seed) * 1e-9f;
        (&test[0][0])[i] = (float)next_random(&seed) * 1e-9f;
    }
    struct nd_diff_layout layout = make_layout(ND_DTYPE_F32, N);
    struct nd_diff_acc whole = {0}, sum = {0};
    struct nd_difference a, b;
    for (size_t s = 0; s < SAMPLES; s++) {
        struct nd_diff_acc part = {0};
        nd_diff_add_sample(&whole, &layout, ref[s], test[s], 0, s);
        nd_diff_add_sample(&part, &layout, ref[s], test[s], 0, s);
        nd_diff_merge(&sum, &part);
    }
    nd_diff_finish(&whole, &layout, &a);
    nd_diff_finish(&sum, &layout, &b);
    assert_f64_bits(a.mean_abs, b.mean_abs);
    assert_f64_bits(a.max_abs, b.max_abs);
    assert_true(a.n_differing == b.n_differing && a.max_ulp == b.max_ulp && a.first.sample == b.first.sample);
}

static void layout_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    float scale[4] = {1, 1, 1, 1};
    int64_t zero[4] = {0};
    struct nd_diff_layout layout;
    struct nd_edge edge = {.name = (char *)"e",
                           .dtype = ND_DTYPE_U8,
                           .shape = {.rank = 2, .dims = {2, 3}},
                           .quant = {.n = 4, .axis = 1, .scale = scale, .zero_point = zero}};
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_ERR_FORMAT);
    edge.quant.n = 3;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_OK);
    edge.quant.axis = 2;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_ERR_FORMAT);
    edge.quant.axis = -1;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_ERR_FORMAT);
    edge.shape.rank = -1;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_ERR_FORMAT);
}

/* The oracle. */

static json_t *load(const char *name)
{
    char path[4096];
    json_error_t error;
    snprintf(path, sizeof path, "%s/oracle/compare/%s.json", getenv("GOLDEN"), name);
    json_t *rows = json_load_file(path, 0, &error);
    if (rows == NULL)
        fail_msg("%s: %s", path, error.text);
    assert_true(json_array_size(rows) > 10);
    return rows;
}

static const char *text_of(const json_t *row, const char *key)
{
    const char *text = json_string_value(json_object_get(row, key));
    assert_non_null(text);
    return text;
}

static size_t size_of(const json_t *row, const char *key)
{
    assert_true(json_is_integer(json_object_get(row, key)));
    return (size_t)json_integer_value(json_object_get(row, key));
}

static double double_of(const json_t *row, const char *key)
{
    uint64_t bits = strtoull(text_of(row, key), NULL, 16);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static unsigned char *bytes_of(const json_t *row, const char *key)
{
    const char *hex = text_of(row, key);
    unsigned char *bytes = nd_tensor_alloc(strlen(hex) / 2);
    for (size_t i = 0; hex[2 * i] != '\0'; i++) {
        unsigned value;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &value), 1);
        bytes[i] = (unsigned char)value;
    }
    return bytes;
}

static void check_integers(const struct nd_difference *d, const json_t *expect)
{
    const json_t *histogram = json_object_get(expect, "histogram");
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        assert_true(d->lsb_histogram[i] == (uint64_t)json_integer_value(json_array_get(histogram, i)));
    assert_true(d->max_lsb == strtoull(text_of(expect, "max_lsb"), NULL, 10));
    assert_f64_bits(d->mean_lsb, double_of(expect, "mean_lsb"));
    assert_f64_bits(d->signed_mean_lsb, double_of(expect, "signed_mean_lsb"));
}

static void check_floats(const struct nd_difference *d, const json_t *expect)
{
    assert_true(d->max_ulp == strtoull(text_of(expect, "max_ulp"), NULL, 10));
    assert_int_equal(d->n_nan_mismatch, size_of(expect, "nan_mismatch"));
    assert_int_equal(d->n_nan_payload, size_of(expect, "nan_payload"));
    assert_int_equal(d->n_inf_mismatch, size_of(expect, "inf_mismatch"));
    assert_int_equal(d->n_zero_sign, size_of(expect, "zero_sign"));
}

static void check_case(const json_t *row)
{
    float scales[64];
    int64_t zero_points[64];
    struct nd_edge edge = {.name = (char *)"e", .dtype = nd_dtype_from_name(text_of(row, "dtype"))};
    const json_t *shape = json_object_get(row, "shape"), *hex_scales = json_object_get(row, "scales");
    edge.shape.rank = (int)json_array_size(shape);
    for (int i = 0; i < edge.shape.rank; i++)
        edge.shape.dims[i] = json_integer_value(json_array_get(shape, (size_t)i));
    edge.quant = (struct nd_quant){.n = json_array_size(hex_scales),
                                   .axis = (int)json_integer_value(json_object_get(row, "axis")),
                                   .scale = scales,
                                   .zero_point = zero_points};
    for (size_t i = 0; i < edge.quant.n; i++) {
        uint32_t bits = (uint32_t)strtoul(json_string_value(json_array_get(hex_scales, i)), NULL, 16);
        bits = __builtin_bswap32(bits);
        memcpy(&scales[i], &bits, sizeof bits);
        zero_points[i] = json_integer_value(json_array_get(json_object_get(row, "zero_points"), i));
    }
    struct nd_diff_layout layout;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_OK);
    bool is_float = nd_dtype_is_float(edge.dtype);
    layout.gate = (struct nd_gate_values){.has_lsb = !is_float,
                                          .has_ulp = is_float,
                                          .has_tolerance = true,
                                          .lsb = size_of(row, "lsb"),
                                          .ulp = size_of(row, "ulp"),
                                          .atol = double_of(row, "atol"),
                                          .rtol = double_of(row, "rtol")};
    unsigned char *ref = bytes_of(row, "ref"), *test = bytes_of(row, "test");
    struct nd_difference d = compare(&layout, ref, test);
    const json_t *expect = json_object_get(row, "expect");
    int first = (int)json_integer_value(json_object_get(expect, "first"));
    assert_int_equal(d.n_differing, size_of(expect, "differing"));
    assert_int_equal(d.has_first ? (int)d.first.index : -1, first);
    assert_int_equal(d.n_failing, size_of(expect, "failing"));
    assert_f64_bits(d.max_abs, double_of(expect, "max_abs"));
    assert_f64_bits(d.mean_abs, double_of(expect, "mean_abs"));
    if (d.is_integer)
        check_integers(&d, expect);
    else
        check_floats(&d, expect);
    free(ref);
    free(test);
}

static void difference_matches_the_oracle(void **state)
{
    (void)state;
    json_t *rows = load("pairs");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        check_case(json_array_get(rows, i));
    }
    json_decref(rows);
}

static void ulp_matches_the_oracle(void **state)
{
    (void)state;
    json_t *rows = load("ulp");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        const struct nd_float_format *format = nd_float_format(nd_dtype_from_name(text_of(row, "dtype")));
        uint64_t a = strtoull(text_of(row, "a"), NULL, 16), b = strtoull(text_of(row, "b"), NULL, 16);
        uint64_t expected = strtoull(text_of(row, "ulp"), NULL, 10);
        assert_true(nd_float_distance_ulp(format, a, b) == expected);
        assert_true(nd_float_distance_ulp(format, b, a) == expected);
        assert_f64_bits(nd_float_value(format, a), double_of(row, "value_a"));
    }
    json_decref(rows);
}

static void mcnemar_matches_the_oracle(void **state)
{
    (void)state;
    json_t *rows = load("mcnemar");
    for (size_t i = 0; i < json_array_size(rows); i++) {
        const json_t *row = json_array_get(rows, i);
        size_t lost = size_of(row, "lost"), gained = size_of(row, "gained");
        double p = nd_mcnemar_mid_p(lost, gained), expected = double_of(row, "p");
        assert_true(fabs(p - expected) <= expected * ldexp((double)(lost + gained + 4), -50) + 5e-324);
        assert_f64_bits(p, nd_mcnemar_mid_p(gained, lost));
    }
    json_decref(rows);
    assert_f64_bits(nd_mcnemar_mid_p(0, 0), 1);
    assert_f64_bits(nd_mcnemar_mid_p(5, 0), 0.03125); /* the fewest one-sided flips that are significant */
    assert_f64_bits(nd_mcnemar_mid_p(4, 0), 0.0625);
    assert_true(nd_mcnemar_mid_p(0, 5000) >= 0);
}

/* Top-1. */

static void top1_takes_the_lowest_of_equals_and_never_nan(void **state)
{
    (void)state;
    struct nd_diff_layout floats = make_layout(ND_DTYPE_F32, 4);
    assert_int_equal(nd_top1_index(&floats, (float[]){1, 3, 3, 2}), 1);
    assert_int_equal(nd_top1_index(&floats, (float[]){NAN, -3, NAN, -2}), 3);
    assert_int_equal(nd_top1_index(&floats, (float[]){NAN, NAN, NAN, NAN}), -1);
    assert_int_equal(nd_top1_index(&floats, (float[]){-INFINITY, -INFINITY, NAN, -INFINITY}), 0);
    assert_int_equal(nd_top1_index(&floats, (float[]){-0.0f, 0.0f, -1, -1}), 0);
    struct nd_diff_layout codes = make_layout(ND_DTYPE_I8, 4);
    assert_int_equal(nd_top1_index(&codes, (int8_t[]){-128, 5, 127, 127}), 2);
    codes.dtype = ND_DTYPE_U8;
    assert_int_equal(nd_top1_index(&codes, (uint8_t[]){128, 5, 127, 127}), 0);
    struct nd_diff_layout wide = make_layout(ND_DTYPE_U64, 2);
    assert_int_equal(nd_top1_index(&wide, (uint64_t[]){UINT64_MAX - 1, UINT64_MAX}), 1);
    struct nd_diff_layout empty = make_layout(ND_DTYPE_U8, 0);
    assert_int_equal(nd_top1_index(&empty, ""), -1);
}

static void top1_per_channel_compares_real_values(void **state)
{
    (void)state;
    float scale[] = {1, 10, -1};
    int64_t zero[] = {0, 4, 0};
    struct nd_edge edge = {.name = (char *)"e",
                           .dtype = ND_DTYPE_U8,
                           .shape = {.rank = 1, .dims = {3}},
                           .quant = {.n = 3, .axis = 0, .scale = scale, .zero_point = zero}};
    struct nd_diff_layout layout;
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_OK);
    assert_int_equal(nd_top1_index(&layout, (uint8_t[]){9, 5, 200}), 1);
    edge.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = &scale[2], .zero_point = zero};
    assert_int_equal(nd_diff_layout_make(&edge, &layout, NULL), ND_OK);
    assert_int_equal(nd_top1_index(&layout, (uint8_t[]){9, 5, 200}), 1);
}

static void top1_pair_counts_flips_and_mirrors(void **state)
{
    (void)state;
    const int64_t labels[] = {0, 1, 2, 3, 4, 5, 6}, ref[] = {0, 1, 9, 9, 9, -1, -1};
    const int64_t test[] = {0, 7, 2, 9, 8, -1, 6};
    struct nd_top1_pair ab = {.test = 1}, ba = {.test = 1};
    nd_top1_pair_count(ref, test, labels, 7, &ab);
    nd_top1_pair_count(test, ref, labels, 7, &ba);
    assert_int_equal(ab.n_agree, 3);
    assert_int_equal(ab.n_lost, 1);
    assert_int_equal(ab.n_gained, 2);
    assert_int_equal(ab.n_changed_wrong, 1);
    assert_int_equal(ba.n_lost, ab.n_gained);
    assert_int_equal(ba.n_gained, ab.n_lost);
    assert_f64_bits(ab.p_value, ba.p_value);
    assert_false(ab.is_significant);
    nd_top1_pair_count(ref, test, NULL, 7, &ab);
    assert_int_equal(ab.n_lost + ab.n_gained + ab.n_changed_wrong, 0);
    assert_int_equal(ab.n_agree, 3);
}

/* Classes. */

static bool same_number(const void *context, size_t a, size_t b)
{
    const int *numbers = context;
    return numbers[a] == numbers[b];
}

static void classes_of_every_assignment_are_numbered_in_order(void **state)
{
    (void)state;
    for (size_t n = 2; n <= 6; n++) {
        size_t n_assignments = 1;
        for (size_t i = 0; i < n; i++)
            n_assignments *= n;
        for (size_t code = 0; code < n_assignments; code++) {
            int numbers[6], classes[6], seen = 0;
            bool has_data[6];
            size_t rest = code;
            for (size_t i = 0; i < n; i++, rest /= n) {
                numbers[i] = (int)(rest % n);
                has_data[i] = numbers[i] != 5; /* with six devices: some without data */
            }
            nd_classes_make(n, has_data, same_number, numbers, classes);
            for (size_t i = 0; i < n; i++) {
                assert_int_equal(classes[i] < 0, !has_data[i]);
                assert_true(classes[i] <= seen);
                seen += classes[i] == seen;
                for (size_t j = 0; j < i; j++)
                    assert_int_equal(classes[i] == classes[j], numbers[i] == numbers[j]);
            }
        }
    }
}

/* 0 (stopped early) agrees with 1 and with 2, but these differ. */
static bool agrees_with_first(const void *context, size_t a, size_t b)
{
    (void)context;
    return a == 0 && b > 0;
}

static void classes_need_agreement_with_every_member(void **state)
{
    (void)state;
    int classes[3];
    nd_classes_make(3, (bool[]){true, true, true}, agrees_with_first, NULL, classes);
    assert_int_equal(classes[0], 0);
    assert_int_equal(classes[1], 0);
    assert_int_equal(classes[2], 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(difference_identical_is_zero),
        cmocka_unit_test(difference_of_one_bit_is_found_at_its_index),
        cmocka_unit_test(difference_swapped_is_mirrored),
        cmocka_unit_test(difference_of_specials_is_counted_apart),
        cmocka_unit_test(difference_merged_equals_one_run),
        cmocka_unit_test(layout_that_does_not_fit_is_refused),
        cmocka_unit_test(difference_matches_the_oracle),
        cmocka_unit_test(ulp_matches_the_oracle),
        cmocka_unit_test(mcnemar_matches_the_oracle),
        cmocka_unit_test(top1_takes_the_lowest_of_equals_and_never_nan),
        cmocka_unit_test(top1_per_channel_compares_real_values),
        cmocka_unit_test(top1_pair_counts_flips_and_mirrors),
        cmocka_unit_test(classes_of_every_assignment_are_numbered_in_order),
        cmocka_unit_test(classes_need_agreement_with_every_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
