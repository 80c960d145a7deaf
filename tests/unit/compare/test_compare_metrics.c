/* Every metric of one pair of tensors, for every type: mutations, mirror images, special values. */
#include "support/main.h"

#include "support/pair_check.h"

enum { N = 2100 };

struct buffers {
    unsigned char *ref, *test;
};

static struct buffers make_buffers(void)
{
    struct buffers b = {nd_tensor_alloc(8 * N), nd_tensor_alloc(8 * N)};
    assert_true(b.ref != NULL && b.test != NULL);
    return b;
}

static void free_buffers(struct buffers *b)
{
    free(b->ref);
    free(b->test);
}

static void assert_nothing_differs(const struct nd_difference *d, size_t n)
{
    assert_int_equal(d->n_samples, 1);
    assert_int_equal(d->n_elems, n);
    assert_true(d->has_values);
    assert_int_equal(d->n_differing + d->n_samples_differing + d->n_failing + d->max_lsb + d->max_ulp, 0);
    assert_int_equal(d->n_nan_mismatch + d->n_nan_payload + d->n_inf_mismatch + d->n_zero_sign, 0);
    assert_int_equal(d->n_saturation_mismatch + d->n_rel_undefined + d->n_worst, 0);
    const struct nd_error_stats none = {0};
    assert_same_stats(&d->abs, &none);
    assert_same_stats(&d->rel, &none);
    assert_f64_bits(d->share + d->rmse + d->mean_lsb + d->offset, 0);
    assert_f64_bits(d->signed_mean_lsb, 0);
    assert_f64_bits(d->sqnr_db, INFINITY);
    assert_f64_bits(d->cosine, 1);
    assert_f64_bits(d->norm_ratio, 1);
    assert_f64_bits(d->pearson, 1);
    assert_true(d->has_gain);
    assert_f64_bits(d->gain, 1);
    assert_false(d->has_first);
    assert_int_equal(d->structure.pattern, ND_PATTERN_NONE);
    assert_int_equal(d->lsb_histogram[4], d->is_integer ? n : 0);
    assert_true(d->tolerance.is_possible && d->tolerance.lsb == 0 && d->tolerance.ulp == 0);
    assert_f64_bits(d->tolerance.atol, 0);
    assert_f64_bits(d->tolerance.rtol, 0);
    assert_int_equal(d->ref_side.n_elems + d->test_side.n_elems, 0); /* no sample differs */
    assert_f64_bits(d->ref_side.min, NAN);
}

static void difference_identical_is_zero(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct buffers b = make_buffers();
    for (size_t k = 0; k < N_DTYPES; k++)
        for (size_t n = 0; n <= N; n = n < 35 ? n + 1 : n + 413) {
            fill_random(b.ref, all_dtypes[k], n, &seed);
            struct nd_pair_context context = simple_context(all_dtypes[k], n);
            struct nd_difference d = compare_pair(&context, b.ref, b.ref);
            assert_nothing_differs(&d, n);
        }
    free_buffers(&b);
}

/* What one element that differs must show, worked out from its bits. */
static void check_kind(const struct nd_difference *d, enum nd_dtype dtype, uint64_t ref, uint64_t test)
{
    long double r = value_of(dtype, ref), t = value_of(dtype, test);
    bool is_measured = isfinite(r) && isfinite(t);
    assert_int_equal(d->n_nan_payload, isnan(r) && isnan(t));
    assert_int_equal(d->n_nan_mismatch, isnan(r) != isnan(t));
    assert_int_equal(d->n_inf_mismatch, !isnan(r) && !isnan(t) && !is_measured);
    assert_int_equal(d->n_zero_sign, nd_dtype_is_float(dtype) && r == 0 && t == 0);
    assert_int_equal(d->tolerance.is_possible, is_measured || (isnan(r) && isnan(t)));
    uint64_t distance = is_measured ? distance_of(dtype, ref, test) : 0;
    assert_true(d->max_lsb == (d->is_integer ? distance : 0));
    assert_true(d->max_ulp == (d->is_integer ? 0 : distance));
    assert_true(d->tolerance.lsb == d->max_lsb && d->tolerance.ulp == d->max_ulp);
    double error = is_measured ? fabs((double)t - (double)r) : 0;
    assert_f64_bits(d->abs.max, error);
    assert_f64_bits(d->tolerance.atol, error);
    assert_f64_bits(d->abs.mean, is_measured ? error / (double)d->n_elems : 0);
    double rise = is_measured ? (double)t - (double)r : 0;
    assert_f64_bits(d->signed_mean, rise != 0 ? rise / (double)d->n_elems : 0);
    assert_int_equal(d->n_above, rise > 0);
    assert_int_equal(d->n_below, rise < 0);
    assert_f64_bits(d->abs.median, 0); /* one of at least three elements */
    assert_int_equal(d->n_rel_undefined, is_measured && r == 0 && t != 0);
    assert_f64_bits(d->rel.max, is_measured && r != 0 ? error / fabs((double)r) : 0);
    if (!is_measured || error == 0)
        assert_f64_bits(d->sqnr_db, INFINITY);
    if (!d->is_integer)
        return;
    int64_t step = distance > 3 ? 4 : (int64_t)distance;
    for (int64_t i = 0; i < ND_LSB_BUCKETS; i++)
        assert_int_equal(d->lsb_histogram[i], i == 4 ? d->n_elems - 1 : i == (t > r ? 4 + step : 4 - step));
    /* 4 to 7 is bucket 0: one less than the number of binary digits that lie below the first two. */
    int bucket = distance > 3 ? 61 - __builtin_clzll((unsigned long long)distance) : -1;
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < ND_LSB_TAIL; k++)
            assert_int_equal(d->lsb_tail[side][k],
                             side == (t > r) && k == (bucket < ND_LSB_TAIL ? bucket : ND_LSB_TAIL - 1));
    double steps = (double)distance / (double)d->n_elems;
    assert_f64_bits(d->mean_lsb, steps);
    assert_f64_bits(d->signed_mean_lsb, t > r ? steps : -steps);
}

static void check_worst(const struct nd_difference *d, enum nd_dtype dtype, size_t i, uint64_t ref,
                        uint64_t test)
{
    double r = (double)value_of(dtype, ref), t = (double)value_of(dtype, test);
    if (isnan(r) && isnan(t)) {
        assert_int_equal(d->n_worst, 0); /* neither a mismatch nor an error */
        return;
    }
    assert_int_equal(d->n_worst, 1);
    const struct nd_worst *worst = &d->worst[0];
    assert_same_place(&worst->place, &d->first);
    assert_int_equal(worst->place.index, i);
    assert_f64_bits(worst->abs_error, isfinite(r) && isfinite(t) ? fabs(t - r) : INFINITY);
    assert_true(isnan(r) ? isnan(worst->ref) : worst->ref == r);
    assert_true(isnan(t) ? isnan(worst->test) : worst->test == t);
    assert_true(isnan(r) ? isnan(worst->ref_real) : worst->ref_real == r);
}

static void check_one_flip(enum nd_dtype dtype, const struct buffers *b, size_t n, size_t i, uint64_t flip)
{
    uint64_t ref = get_bits(b->ref, dtype, i), test = ref ^ flip;
    struct nd_pair_context context = simple_context(dtype, n);
    put_bits(b->test, dtype, i, test);
    struct nd_difference d = compare_pair(&context, b->ref, b->test);
    put_bits(b->test, dtype, i, ref);
    assert_int_equal(d.n_differing, 1);
    assert_int_equal(d.n_failing, 1);
    assert_int_equal(d.n_samples_differing, 1);
    assert_f64_bits(d.share, 1 / (double)n);
    assert_true(d.has_first && d.first.has_index);
    assert_int_equal(d.first.index, i);
    assert_int_equal(d.first.coordinates[0], i);
    assert_int_equal(d.first.probe, PAIR_PROBE);
    assert_int_equal(d.first.sample, PAIR_SAMPLE);
    assert_int_equal(d.structure.pattern, ND_PATTERN_ONE_ELEMENT);
    assert_int_equal(d.structure.first_index, i);
    assert_int_equal(d.structure.n_runs, 1);
    check_kind(&d, dtype, ref, test);
    check_worst(&d, dtype, i, ref, test);
    free(d.worst);
}

/* First, last, every lane, both ends of every block. */
static void difference_of_one_bit_is_found_at_its_index(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct buffers b = make_buffers();
    for (size_t k = 0; k < N_DTYPES; k++) {
        enum nd_dtype dtype = all_dtypes[k];
        fill_random(b.ref, dtype, N, &seed);
        memcpy(b.test, b.ref, 8 * N);
        for (size_t i = 0; i < N; i = i == 34 ? 1005 : i == 1043 ? 2040 : i == 2060 ? N - 1 : i + 1)
            check_one_flip(dtype, &b, N, i, (uint64_t)1 << below(&seed, (size_t)n_bits_of(dtype)));
        for (size_t n = 3; n <= 1025; n = n < 50 ? n + 1 : n == 50 ? 1023 : n + 1)
            check_one_flip(dtype, &b, n, n - 1, (uint64_t)1 << below(&seed, (size_t)n_bits_of(dtype)));
    }
    free_buffers(&b);
}

/* Every bit of the narrow types on every value that they have. */
static void difference_of_every_byte_is_what_its_bits_say(void **state)
{
    (void)state;
    struct buffers b = make_buffers();
    for (size_t k = 0; k < N_DTYPES; k++) {
        enum nd_dtype dtype = all_dtypes[k];
        if (nd_dtype_size_bytes(dtype) > 1)
            continue;
        for (uint64_t value = 0; value < (uint64_t)1 << n_bits_of(dtype); value++)
            for (int bit = 0; bit < n_bits_of(dtype); bit++) {
                for (size_t i = 0; i < 3; i++)
                    put_bits(b.ref, dtype, i, i == 1 ? value : 0);
                memcpy(b.test, b.ref, 3);
                check_one_flip(dtype, &b, 3, 1, (uint64_t)1 << bit);
            }
    }
    free_buffers(&b);
}

static void difference_swapped_is_mirrored(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct buffers b = make_buffers();
    for (size_t run = 0; run < 10 * N_DTYPES; run++) {
        enum nd_dtype dtype = all_dtypes[run % N_DTYPES];
        size_t n = run < N_DTYPES ? 1500 : 1 + below(&seed, N);
        fill_random(b.ref, dtype, n, &seed);
        perturb(b.ref, b.test, dtype, n, 3, &seed);
        struct nd_pair_context context = simple_context(dtype, n);
        struct nd_difference ab = compare_pair(&context, b.ref, b.test);
        struct nd_difference ba = compare_pair(&context, b.test, b.ref);
        assert_same_counts(&ab, &ba);
        for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
            assert_int_equal(ab.lsb_histogram[i], ba.lsb_histogram[ND_LSB_BUCKETS - 1 - i]);
        assert_memory_equal(ab.lsb_tail[0], ba.lsb_tail[1], sizeof ab.lsb_tail[0]);
        assert_memory_equal(ab.lsb_tail[1], ba.lsb_tail[0], sizeof ab.lsb_tail[0]);
        if (ab.is_integer) {
            uint64_t below = 0, above = 0;
            for (size_t k = 0; k < ND_LSB_TAIL; k++) {
                below += ab.lsb_tail[0][k];
                above += ab.lsb_tail[1][k];
            }
            assert_int_equal(below, ab.lsb_histogram[0]);
            assert_int_equal(above, ab.lsb_histogram[ND_LSB_BUCKETS - 1]);
        }
        assert_f64_bits(ab.signed_mean_lsb, 0.0 - ba.signed_mean_lsb);
        assert_f64_bits(ab.signed_mean, 0.0 - ba.signed_mean);
        assert_int_equal(ab.n_above, ba.n_below);
        assert_f64_bits(ab.share_below, ba.share_above);
        assert_same_stats(&ab.abs, &ba.abs);
        assert_f64_bits(ab.rmse, ba.rmse);
        assert_same_side(&ab.ref_side, &ba.test_side);
        assert_same_side(&ab.test_side, &ba.ref_side);
        assert_same_structure(&ab.structure, &ba.structure);
        assert_true(ab.tolerance.lsb == ba.tolerance.lsb && ab.tolerance.ulp == ba.tolerance.ulp);
        assert_int_equal(ab.tolerance.is_possible, ba.tolerance.is_possible);
        assert_f64_bits(ab.tolerance.atol, ba.tolerance.atol);
        assert_int_equal(ab.n_worst, ba.n_worst);
        for (size_t i = 0; i < ab.n_worst; i++) {
            assert_same_place(&ab.worst[i].place, &ba.worst[i].place);
            assert_f64_bits(ab.worst[i].abs_error, ba.worst[i].abs_error);
            assert_true(isnan(ab.worst[i].ref) || ab.worst[i].ref == ba.worst[i].test);
        }
        free(ab.worst);
        free(ba.worst);
    }
    free_buffers(&b);
}

static void difference_of_specials_is_counted_apart(void **state)
{
    (void)state;
    float ref[] = {NAN, NAN, NAN, 1, INFINITY, INFINITY, -INFINITY, 1, 0.0f, 0.0f, 1};
    float test[] = {NAN, NAN, 1, NAN, INFINITY, 1, INFINITY, NAN, -0.0f, 0.0f, 1};
    put_bits(test, ND_DTYPE_F32, 1, 0x7fc00001);
    struct nd_pair_context context = simple_context(ND_DTYPE_F32, 11);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_int_equal(d.n_differing, 7);
    assert_int_equal(d.n_nan_payload, 1);
    assert_int_equal(d.n_nan_mismatch, 3);
    assert_int_equal(d.n_inf_mismatch, 2);
    assert_int_equal(d.n_zero_sign, 1);
    assert_int_equal(d.max_ulp, 0);
    assert_f64_bits(d.abs.max, 0);
    assert_f64_bits(d.abs.mean, 0);
    assert_f64_bits(d.rel.max, 0);
    assert_f64_bits(d.cosine, 1);
    assert_int_equal(d.n_failing, 7); /* bit-equality is the gate */
    assert_int_equal(d.ref_side.n_nan, 3);
    assert_int_equal(d.ref_side.n_inf, 3);
    assert_int_equal(d.ref_side.n_zero, 2);
    assert_int_equal(d.test_side.n_nan, 4);
    assert_int_equal(d.test_side.n_inf, 2);
    assert_f64_bits(d.test_side.min, 0);
    assert_f64_bits(d.test_side.max, 1);
    assert_int_equal(d.n_worst, 5); /* three NaNs and two infinities */
    for (size_t i = 0; i < 5; i++)
        assert_f64_bits(d.worst[i].abs_error, INFINITY);
    free(d.worst);
    context.gate =
        (struct nd_gate_values){.has_ulp = true, .ulp = UINT64_MAX, .has_tolerance = true, .atol = 1e300};
    d = compare_pair(&context, ref, test);
    assert_int_equal(d.n_failing, 5); /* payload and sign of zero pass */
    free(d.worst);
}

static void sides_are_counted_over_whole_samples(void **state)
{
    (void)state;
    float ref[40], test[40];
    for (size_t i = 0; i < 40; i++)
        ref[i] = test[i] = (float)i - 20; /* one zero */
    ref[3] = 0x1p-149f;
    ref[4] = -0x1p-127f;
    test[5] = 3.40282347e38f;
    test[6] = -3.40282347e38f;
    test[7] = INFINITY;
    struct nd_pair_context context = simple_context(ND_DTYPE_F32, 40);
    struct nd_difference d = compare_pair(&context, ref, test);
    free(d.worst);
    assert_int_equal(d.ref_side.n_elems, 40);
    assert_int_equal(d.ref_side.n_subnormal, 2);
    assert_int_equal(d.ref_side.n_zero, 1);
    assert_int_equal(d.test_side.n_subnormal, 0);
    assert_int_equal(d.test_side.n_saturated, 2); /* infinities are counted apart */
    assert_int_equal(d.test_side.n_inf, 1);
    assert_int_equal(d.n_saturation_mismatch, 2); /* the infinity has a line of its own */
    assert_f64_bits(d.test_side.max, 3.4028234663852886e38);
    assert_f64_bits(d.ref_side.min, -20);
    assert_int_equal(d.ref_side.n_stuck_samples + d.test_side.n_stuck_samples, 0);
}

static void qvalues_saturate_at_the_ends_of_their_type(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_DTYPES; k++) {
        enum nd_dtype dtype = all_dtypes[k];
        if (nd_dtype_is_float(dtype))
            continue;
        uint64_t top = n_bits_of(dtype) == 64 ? UINT64_MAX : ((uint64_t)1 << n_bits_of(dtype)) - 1;
        bool is_signed = nd_dtype_is_signed_integer(dtype);
        uint64_t low = is_signed ? top / 2 + 1 : 0, high = is_signed ? top / 2 : top;
        uint64_t ref[40] = {0}, test[40] = {0};
        for (size_t i = 0; i < 40; i++) {
            put_bits(ref, dtype, i, i % 2 == 0 ? low : high);
            put_bits(test, dtype, i, i % 2 == 0 ? low : high);
        }
        put_bits(test, dtype, 21, low);
        struct nd_pair_context context = simple_context(dtype, 40);
        struct nd_difference d = compare_pair(&context, ref, test);
        assert_int_equal(d.ref_side.n_saturated, 40);
        assert_int_equal(d.test_side.n_saturated, 40);
        assert_int_equal(d.n_saturation_mismatch, 0); /* from one end to the other */
        assert_true(d.max_lsb == top);
        assert_int_equal(d.ref_side.n_zero, is_signed ? 0 : 20);
        free(d.worst);
        if (dtype == ND_DTYPE_BOOL)
            continue;
        /* 64-bit integers are compared as doubles here, to which the next 512 are equal. */
        put_bits(test, dtype, 21, n_bits_of(dtype) == 64 ? high - 4096 : high - 1);
        d = compare_pair(&context, ref, test);
        assert_int_equal(d.n_saturation_mismatch, 1);
        assert_int_equal(d.test_side.n_saturated, 39);
        free(d.worst);
    }
}

static void samples_of_one_value_are_stuck(void **state)
{
    (void)state;
    uint8_t ref[1500], test[1500];
    memset(ref, 7, sizeof ref);
    memset(test, 7, sizeof test);
    test[1200] = 8;
    struct nd_pair_context context = simple_context(ND_DTYPE_U8, 1500);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_int_equal(d.ref_side.n_stuck_samples, 1);
    assert_int_equal(d.test_side.n_stuck_samples, 0);
    assert_f64_bits(d.pearson, 0); /* one side is constant */
    assert_false(d.has_gain);
    free(d.worst);
    memset(test, 9, sizeof test);
    d = compare_pair(&context, ref, test);
    assert_int_equal(d.test_side.n_stuck_samples, 1);
    assert_f64_bits(d.pearson, 1); /* both are */
    assert_f64_bits(d.cosine, 1);
    free(d.worst);
    float nans[] = {NAN, NAN}, ones[] = {1, 1}, one[] = {1};
    context = simple_context(ND_DTYPE_F32, 2);
    d = compare_pair(&context, nans, ones);
    assert_int_equal(d.ref_side.n_stuck_samples, 0); /* NaNs have no value */
    assert_int_equal(d.test_side.n_stuck_samples, 1);
    free(d.worst);
    context = simple_context(ND_DTYPE_F32, 1);
    d = compare_pair(&context, one, nans);
    assert_int_equal(d.ref_side.n_stuck_samples, 0); /* a single element says nothing */
    free(d.worst);
}

static void empty_tensors_have_no_difference(void **state)
{
    (void)state;
    for (size_t k = 0; k < N_DTYPES; k++) {
        struct nd_tensor tensor = tensor_of(all_dtypes[k], 0);
        tensor.shape = (struct nd_shape){.rank = 3, .dims = {4, 0, 5}};
        struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
        struct nd_difference d = compare_pair(&context, "", "");
        assert_nothing_differs(&d, 0);
    }
}

static void layout_that_does_not_fit_is_refused(void **state)
{
    (void)state;
    float scale[4] = {1, 1, 1, 1};
    int64_t zero[4] = {0};
    struct nd_layout layout;
    struct nd_tensor tensor = {.name = (char *)(uintptr_t) "e",
                               .dtype = ND_DTYPE_U8,
                               .shape = {.rank = 2, .dims = {2, 3}},
                               .quant = {.n = 4, .axis = 1, .scale = scale, .zero_point = zero}};
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_ERR_FORMAT);
    tensor.quant.n = 3;
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_OK);
    tensor.quant.axis = 2;
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_ERR_FORMAT);
    tensor.quant.axis = -1;
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_ERR_FORMAT);
    tensor.shape.rank = -1;
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_ERR_FORMAT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(difference_identical_is_zero),
        cmocka_unit_test(difference_of_one_bit_is_found_at_its_index),
        cmocka_unit_test(difference_of_every_byte_is_what_its_bits_say),
        cmocka_unit_test(difference_swapped_is_mirrored),
        cmocka_unit_test(difference_of_specials_is_counted_apart),
        cmocka_unit_test(sides_are_counted_over_whole_samples),
        cmocka_unit_test(qvalues_saturate_at_the_ends_of_their_type),
        cmocka_unit_test(samples_of_one_value_are_stuck),
        cmocka_unit_test(empty_tensors_have_no_difference),
        cmocka_unit_test(layout_that_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
