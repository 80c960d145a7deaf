/* ULPs in another type, pairs of other types, scales per channel: against counting floats one by one. */
#include "support/main.h"

#include "support/pair_check.h"

/* All finite values of a narrow float type from the least to the largest, equal zeros once, with an infinity
 * (e4m3fn: the first value that is none) at both ends. */
struct ladder {
    size_t n;
    double *values;
};

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

static struct ladder make_ladder(enum nd_dtype dtype)
{
    size_t n_qvalues = (size_t)1 << n_bits_of(dtype);
    struct ladder ladder = {.values = calloc(n_qvalues + 2, sizeof(double))};
    assert_non_null(ladder.values);
    for (size_t bits = 0; bits < n_qvalues; bits++) {
        double value = (double)value_of(dtype, bits);
        if (isfinite(value) && !(value == 0 && signbit(value)))
            ladder.values[ladder.n++] = value;
    }
    qsort(ladder.values, ladder.n, sizeof(double), compare_doubles);
    return ladder;
}

/* The rung that the value rounds to; n is the infinity above the largest, -1 that below the least. Nearest,
 * ties to the even rung, which is the one with the even fraction since zero is in the middle. */
static int64_t rung_of(const struct ladder *ladder, double value)
{
    int64_t n = (int64_t)ladder->n, low = 0, high = n - 1, zero = (n - 1) / 2;
    double top = ladder->values[n - 1], beyond = top + (top - ladder->values[n - 2]) / 2;
    if (fabs(value) > beyond || (fabs(value) == beyond && (zero & 1) == 1)) /* the largest is odd */
        return value > 0 ? n : -1;
    if (fabs(value) >= top)
        return value > 0 ? n - 1 : 0;
    while (high - low > 1) {
        int64_t middle = (low + high) / 2;
        if (ladder->values[middle] <= value)
            low = middle;
        else
            high = middle;
    }
    long double below_it = (long double)value - ladder->values[low];
    long double above_it = (long double)ladder->values[high] - value;
    if (below_it != above_it)
        return below_it < above_it ? low : high;
    return (low - zero) % 2 == 0 ? low : high;
}

static void check_ulp_in(enum nd_dtype type, const struct ladder *ladder, enum nd_dtype dtype, uint64_t *seed)
{
    struct nd_compare_options options = nd_compare_options_default();
    struct nd_tensor tensor = tensor_of(dtype, 1);
    options.ulp_in = type;
    struct nd_pair_context context = context_of(&tensor, &tensor, &options);
    for (size_t k = 0; k < 300; k++) {
        double r, t;
        uint64_t ref = random_bits(dtype, seed), test = ref + below(seed, 5) - 2;
        if (below(seed, 3) == 0 && dtype == ND_DTYPE_F64) { /* on and beside a tie */
            size_t rung = below(seed, ladder->n - 1);
            r = (ladder->values[rung] + ladder->values[rung + 1]) / 2;
            memcpy(&ref, &r, sizeof ref);
            test = ref + below(seed, 3) - 1;
        }
        uint64_t stored_ref = 0, stored_test = 0;
        put_bits(&stored_ref, dtype, 0, ref);
        put_bits(&stored_test, dtype, 0, below(seed, 4) == 0 ? random_bits(dtype, seed) : test);
        r = (double)value_of(dtype, get_bits(&stored_ref, dtype, 0));
        t = (double)value_of(dtype, get_bits(&stored_test, dtype, 0));
        struct nd_difference d = compare_pair(&context, &stored_ref, &stored_test);
        free(d.worst);
        assert_true(d.has_ulp_in);
        int64_t expected = isfinite(r) && isfinite(t) ? llabs(rung_of(ladder, r) - rung_of(ladder, t)) : 0;
        assert_int_equal(d.max_ulp_in, expected);
    }
}

static void ulp_in_a_narrow_type_counts_its_values(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    static const enum nd_dtype types[] = {ND_DTYPE_F16, ND_DTYPE_BF16, ND_DTYPE_F8E4M3FN, ND_DTYPE_F8E5M2};
    for (size_t k = 0; k < 4; k++) {
        struct ladder ladder = make_ladder(types[k]);
        for (size_t i = 0; i < N_DTYPES; i++)
            check_ulp_in(types[k], &ladder, all_dtypes[i], &seed);
        free(ladder.values);
    }
}

static void ulp_in_the_own_type_is_ulp(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    uint64_t ref[200], test[200];
    for (size_t k = 0; k < N_DTYPES; k++) {
        enum nd_dtype dtype = all_dtypes[k];
        if (!nd_dtype_is_float(dtype))
            continue;
        struct nd_compare_options options = nd_compare_options_default();
        struct nd_tensor tensor = tensor_of(dtype, 200);
        options.ulp_in = dtype;
        options.n_worst = 0;
        struct nd_pair_context context = context_of(&tensor, &tensor, &options);
        for (size_t run = 0; run < 20; run++) {
            fill_random(ref, dtype, 200, &seed);
            perturb(ref, test, dtype, 200, 3, &seed);
            struct nd_difference d = compare_pair(&context, ref, test);
            assert_true(d.max_ulp == d.max_ulp_in);
        }
    }
}

static void ulp_in_takes_qvalues_as_real_values(void **state)
{
    (void)state;
    float scale[] = {0.1f};
    int64_t zero[] = {7};
    struct nd_compare_options options = nd_compare_options_default();
    struct nd_tensor tensor = tensor_of(ND_DTYPE_U8, 2);
    tensor.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = scale, .zero_point = zero};
    options.ulp_in = ND_DTYPE_F16;
    options.n_worst = 0;
    struct nd_pair_context context = context_of(&tensor, &tensor, &options);
    const uint8_t ref[] = {7, 17}, test[] = {7, 18};
    struct nd_difference d = compare_pair(&context, ref, test);
    struct ladder ladder = make_ladder(ND_DTYPE_F16);
    assert_int_equal(d.max_ulp_in,
                     rung_of(&ladder, (double)scale[0] * 11) - rung_of(&ladder, (double)scale[0] * 10));
    assert_int_equal(d.max_ulp, 0);
    assert_int_equal(d.max_lsb, 1);
    free(ladder.values);
}

/* Mixed pairs. */

struct mixed_sums {
    size_t n_differing, n_nan, n_inf, first;
    double max;
    int64_t max_ulp;
};

static void check_mixed(const struct nd_tensor *ref_tensor, const struct nd_tensor *test_tensor,
                        const void *ref, const void *test, size_t n, const struct ladder *ladder)
{
    struct mixed_sums e = {.first = SIZE_MAX};
    for (size_t i = 0; i < n; i++) {
        double r = (double)value_of(ref_tensor->dtype, get_bits(ref, ref_tensor->dtype, i));
        double t = (double)value_of(test_tensor->dtype, get_bits(test, test_tensor->dtype, i));
        if (ref_tensor->quant.n > 0)
            r = (double)ref_tensor->quant.scale[0] * (r - (double)ref_tensor->quant.zero_point[0]);
        if (test_tensor->quant.n > 0)
            t = (double)test_tensor->quant.scale[0] * (t - (double)test_tensor->quant.zero_point[0]);
        bool is_measured = isfinite(r) && isfinite(t);
        if (r == t || (isnan(r) && isnan(t)))
            continue;
        e.first = e.n_differing++ == 0 ? i : e.first;
        e.n_nan += isnan(r) != isnan(t);
        e.n_inf += !isnan(r) && !isnan(t) && !is_measured;
        e.max = is_measured && fabs(t - r) > e.max ? fabs(t - r) : e.max;
        int64_t ulp = is_measured && ladder != NULL ? llabs(rung_of(ladder, r) - rung_of(ladder, t)) : 0;
        e.max_ulp = ulp > e.max_ulp ? ulp : e.max_ulp;
    }
    struct nd_pair_context context = context_of(ref_tensor, test_tensor, NULL);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_true(d.is_mixed && !d.is_integer);
    assert_int_equal(d.n_differing, e.n_differing);
    assert_int_equal(d.n_nan_mismatch, e.n_nan);
    assert_int_equal(d.n_inf_mismatch, e.n_inf);
    assert_int_equal(d.n_nan_payload + d.n_zero_sign + d.max_lsb, 0);
    assert_f64_bits(d.abs.max, e.max);
    assert_f64_bits(d.tolerance.atol, e.max);
    assert_false(d.tolerance.has_lsb);
    /* Quantised values against floats are steps apart, and no ULPs. */
    bool has_qvalues = nd_dtype_is_float(ref_tensor->dtype) != nd_dtype_is_float(test_tensor->dtype);
    assert_int_equal(d.has_steps, has_qvalues);
    assert_int_equal(d.tolerance.has_ulp, !has_qvalues);
    if (has_qvalues) {
        const struct nd_tensor *coded = nd_dtype_is_float(ref_tensor->dtype) ? test_tensor : ref_tensor;
        assert_true(coded->quant.n != 1 ||
                    fabs(d.max_steps - d.abs.max / fabs((double)coded->quant.scale[0])) <= 1e-9 * d.max_steps);
    }
    assert_int_equal(d.has_first ? d.first.index : SIZE_MAX, e.first);
    if (ladder != NULL)
        assert_int_equal(d.max_ulp, e.max_ulp);
    free(d.worst);
}

/* The nearest element of dtype: near enough is good enough here. */
static uint64_t bits_near(enum nd_dtype dtype, double value)
{
    uint64_t best = 0;
    double least = INFINITY;
    float narrow = (float)value;
    if (dtype == ND_DTYPE_F32) {
        memcpy(&best, &narrow, sizeof narrow);
        return best;
    }
    for (uint64_t bits = 0; bits < (uint64_t)1 << n_bits_of(dtype); bits += 1) {
        double error = fabs((double)value_of(dtype, bits) - value);
        best = error < least ? bits : best;
        least = error < least ? error : least;
    }
    return best;
}

static void mixed_pairs_are_compared_as_real_values(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    enum { N = 60 };
    float scale[] = {0x1.8p-5f};
    int64_t zero[] = {100};
    static const enum nd_dtype pairs[][2] = {{ND_DTYPE_U8, ND_DTYPE_F32},       {ND_DTYPE_F32, ND_DTYPE_U8},
                                             {ND_DTYPE_F16, ND_DTYPE_F32},      {ND_DTYPE_BF16, ND_DTYPE_F32},
                                             {ND_DTYPE_F32, ND_DTYPE_F8E4M3FN}, {ND_DTYPE_BF16, ND_DTYPE_F16}};
    for (size_t k = 0; k < sizeof pairs / sizeof pairs[0]; k++) {
        enum nd_dtype r = pairs[k][0], t = pairs[k][1];
        struct nd_tensor ref_tensor = tensor_of(r, N), test_tensor = tensor_of(t, N);
        struct nd_quant quant = {.n = 1, .axis = -1, .scale = scale, .zero_point = zero};
        ref_tensor.quant = r == ND_DTYPE_U8 ? quant : (struct nd_quant){0};
        test_tensor.quant = t == ND_DTYPE_U8 ? quant : (struct nd_quant){0};
        /* The narrower float: the fewer fraction bits. */
        enum nd_dtype narrow = !nd_dtype_is_float(r)   ? t
                               : !nd_dtype_is_float(t) ? r
                               : k >= 4                ? pairs[k][k == 4]
                                                       : r;
        struct ladder ladder = {0};
        if (n_bits_of(narrow) <= 16)
            ladder = make_ladder(narrow);
        for (size_t run = 0; run < 5; run++) {
            uint64_t ref[N], test[N];
            fill_random(ref, r, N, &seed);
            for (size_t i = 0; i < N; i++) {
                double value = (double)value_of(r, get_bits(ref, r, i));
                if (r == ND_DTYPE_U8)
                    value = (double)scale[0] * (value - (double)zero[0]);
                put_bits(test, t, i, below(&seed, 3) == 0 ? random_bits(t, &seed) : bits_near(t, value));
            }
            check_mixed(&ref_tensor, &test_tensor, ref, test, N, ladder.values != NULL ? &ladder : NULL);
        }
        free(ladder.values);
    }
}

static void mixed_zeros_and_nans_are_equal(void **state)
{
    (void)state;
    struct nd_tensor wide = tensor_of(ND_DTYPE_F32, 3), narrow = tensor_of(ND_DTYPE_F16, 3);
    const float ref[] = {0.0f, NAN, 1.5f};
    const uint16_t test[] = {0x8000, 0xfe01, 0x3e00};
    struct nd_pair_context context = context_of(&wide, &narrow, NULL);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_int_equal(d.n_differing, 0);
    assert_int_equal(d.n_failing, 0);
    assert_f64_bits(d.cosine, 1);
    assert_int_equal(d.n_samples_differing, 0); /* no value differs */
}

/* Every quantised value of a byte, as floats that a layer may make of it. */
enum { QVALUES = 256 };

struct dequantisation {
    uint8_t qvalues[QVALUES];
    float one_product[QVALUES], two_products[QVALUES], in_half[QVALUES];
};

static struct dequantisation dequantise(float scale, float zero)
{
    struct dequantisation made;
    for (int i = 0; i < QVALUES; i++) {
        made.qvalues[i] = (uint8_t)i;
        made.one_product[i] = ((float)i - zero) * scale;
        float qvalue_part = (float)i * scale, zero_part = zero * scale;
        made.two_products[i] = qvalue_part - zero_part;
        uint64_t half = bits_near(ND_DTYPE_F16, (double)made.one_product[i]);
        made.in_half[i] = (float)value_of(ND_DTYPE_F16, half);
    }
    return made;
}

static void floats_that_qvalues_were_made_of_are_equal(void **state)
{
    (void)state;
    float scale[] = {0.040689535f};
    int64_t zero[] = {112};
    struct nd_tensor qvalues = tensor_of(ND_DTYPE_U8, QVALUES), floats = tensor_of(ND_DTYPE_F32, QVALUES);
    qvalues.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = scale, .zero_point = zero};
    struct dequantisation made = dequantise(scale[0], 112);
    float *const orders[] = {made.one_product, made.two_products, made.in_half};
    for (size_t k = 0; k < 3; k++) {
        struct nd_pair_context context = context_of(&qvalues, &floats, NULL);
        struct nd_difference d = compare_pair(&context, made.qvalues, orders[k]);
        assert_int_equal(d.n_differing + d.n_samples_differing + d.n_failing, 0);
        assert_true(d.n_dequantised > 100); /* the others are exact */
        assert_true(d.dequantised_steps > 0 && d.dequantised_steps < (k < 2 ? 1e-4 : 0.5));
        assert_f64_bits(d.abs.max, 0);
        free(d.worst);
        float right = orders[k][200];
        static const float steps[] = {1, 0.6f, -1,
                                      0.3f}; /* another quantised value, and no quantised value at all */
        for (size_t i = 0; i < 4; i++) {
            orders[k][200] = right + steps[i] * scale[0];
            context = context_of(&floats, &qvalues, NULL); /* the sides may be the other way round */
            d = compare_pair(&context, orders[k], made.qvalues);
            assert_int_equal(d.n_differing, 1);
            assert_int_equal(d.first.index, 200);
            free(d.worst);
        }
        orders[k][200] = right;
    }
}

/* A float of half precision may stand for any of several quantised values of 16 bits. */
static void halves_of_wide_qvalues_differ(void **state)
{
    (void)state;
    float scale[] = {1e-3f}, wide = 0x1.d4cp+5f;
    int64_t zero[] = {0};
    uint16_t qvalue = 58600;
    struct nd_tensor qvalues = tensor_of(ND_DTYPE_U16, 1), floats = tensor_of(ND_DTYPE_F32, 1);
    qvalues.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = scale, .zero_point = zero};
    struct nd_pair_context context = context_of(&qvalues, &floats, NULL);
    struct nd_difference d = compare_pair(&context, &qvalue, &wide);
    assert_true(fabs((double)wide - 58.6) < 0x1p-11 * 59); /* one rounding to half precision away */
    assert_int_equal(d.n_differing, 1);
    free(d.worst);
}

/* Scales per channel. */

static void channels_have_their_own_scales(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int axis = 0; axis < 3; axis++) {
        static const int64_t dims[] = {30, 11, 7};
        enum { N = 30 * 11 * 7 };
        static int8_t ref[N], test[N];
        float scale[30];
        int64_t zero[30];
        size_t n_channels = (size_t)dims[axis], inner = axis == 0 ? 77 : axis == 1 ? 7 : 1;
        for (size_t c = 0; c < n_channels; c++) {
            scale[c] = (float)(1 + below(&seed, 100)) * 0x1p-6f * (c == 2 ? -1 : 1);
            zero[c] = (int64_t)below(&seed, 256) - 128;
        }
        struct nd_tensor tensor = tensor_of(ND_DTYPE_I8, 0);
        tensor.shape = (struct nd_shape){.rank = 3, .dims = {dims[0], dims[1], dims[2]}};
        tensor.quant = (struct nd_quant){.n = n_channels, .axis = axis, .scale = scale, .zero_point = zero};
        fill_random(ref, ND_DTYPE_I8, N, &seed);
        perturb(ref, test, ND_DTYPE_I8, N, 3, &seed);
        double max = 0, sum = 0, low = INFINITY, high = -INFINITY;
        uint64_t max_steps = 0;
        size_t n_zero = 0, n_saturated = 0;
        for (size_t i = 0; i < N; i++) {
            size_t c = i / inner % n_channels;
            double r = (double)scale[c] * (double)(ref[i] - zero[c]),
                   t = (double)scale[c] * (double)(test[i] - zero[c]);
            uint64_t steps = (uint64_t)abs(test[i] - ref[i]);
            max = fabs(t - r) > max ? fabs(t - r) : max;
            sum += fabs(t - r);
            max_steps = steps > max_steps ? steps : max_steps;
            low = t < low ? t : low;
            high = t > high ? t : high;
            n_zero += ref[i] == zero[c];
            n_saturated += ref[i] == -128 || ref[i] == 127;
        }
        struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
        struct nd_difference d = compare_pair(&context, ref, test);
        assert_true(d.max_lsb == max_steps);
        assert_f64_bits(d.abs.max, max);
        assert_true(fabs(d.abs.mean - sum / N) < 1e-12 * sum);
        assert_f64_bits(d.test_side.min, low);
        assert_f64_bits(d.test_side.max, high);
        assert_int_equal(d.ref_side.n_zero, n_zero);
        assert_int_equal(d.ref_side.n_saturated, n_saturated);
        free(d.worst);
    }
}

/* One scale for all is the same as that scale for each. */
static void channels_of_one_scale_are_like_one_for_all(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    float scale[5];
    int64_t zero[5];
    uint8_t ref[500], test[500];
    for (size_t c = 0; c < 5; c++) {
        scale[c] = 0.25f; /* a power of two: no rounding in between */
        zero[c] = 77;
    }
    struct nd_tensor one = tensor_of(ND_DTYPE_U8, 0), each = tensor_of(ND_DTYPE_U8, 0);
    one.shape = each.shape = (struct nd_shape){.rank = 2, .dims = {100, 5}};
    one.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = scale, .zero_point = zero};
    each.quant = (struct nd_quant){.n = 5, .axis = 1, .scale = scale, .zero_point = zero};
    fill_random(ref, ND_DTYPE_U8, 500, &seed);
    perturb(ref, test, ND_DTYPE_U8, 500, 3, &seed);
    struct nd_pair_context a = context_of(&one, &one, NULL), b = context_of(&each, &each, NULL);
    struct nd_difference x = compare_pair(&a, ref, test), y = compare_pair(&b, ref, test);
    assert_same_difference(&x, &y);
    free(x.worst);
    free(y.worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ulp_in_a_narrow_type_counts_its_values),
        cmocka_unit_test(ulp_in_the_own_type_is_ulp),
        cmocka_unit_test(ulp_in_takes_qvalues_as_real_values),
        cmocka_unit_test(mixed_pairs_are_compared_as_real_values),
        cmocka_unit_test(mixed_zeros_and_nans_are_equal),
        cmocka_unit_test(floats_that_qvalues_were_made_of_are_equal),
        cmocka_unit_test(halves_of_wide_qvalues_differ),
        cmocka_unit_test(channels_have_their_own_scales),
        cmocka_unit_test(channels_of_one_scale_are_like_one_for_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
