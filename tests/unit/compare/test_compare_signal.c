/* Energies, correlation and means: against plain sums in long double, and where squares overflow. */
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

static void assert_near(long double actual, long double expected)
{
    if (isnan(expected) || isinf(expected))
        assert_true(isnan(expected) ? isnan(actual) : actual == expected);
    else
        assert_true(fabsl(actual - expected) <= 1e-9L * (1 + fabsl(expected)));
}

/* Sums over the elements that are finite on both sides, in long double and in plain order. */
struct plain_sums {
    long double n, ref, test, difference, cross, ref_sum, test_sum, absolute, relative, relative_n;
};

static struct plain_sums sum_plainly(enum nd_dtype dtype, const struct buffers *b, size_t n)
{
    struct plain_sums s = {0};
    for (size_t i = 0; i < n; i++) {
        long double r = value_of(dtype, get_bits(b->ref, dtype, i)),
                    t = value_of(dtype, get_bits(b->test, dtype, i));
        bool is_equal = get_bits(b->ref, dtype, i) == get_bits(b->test, dtype, i);
        if (isfinite(r) && isfinite(t)) {
            s.n++;
            s.ref += r * r;
            s.test += t * t;
            s.ref_sum += r;
            s.test_sum += t;
            s.difference += (t - r) * (t - r);
            s.cross += r * t;
            s.absolute += fabsl(t - r);
            s.relative_n += r != 0 || t == 0;
            s.relative += r != 0 ? fabsl(t - r) / fabsl(r) : 0;
        } else if (is_equal) {
            s.relative_n++;
        }
    }
    return s;
}

static void signal_is_that_of_plain_sums(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    struct buffers b = make_buffers();
    for (size_t run = 0; run < 6 * N_DTYPES; run++) {
        enum nd_dtype dtype = all_dtypes[run % N_DTYPES];
        size_t n = 40 + below(&seed, N - 40);
        for (size_t i = 0; i < n; i++) { /* moderate values, so that nothing cancels or overflows */
            uint64_t bits = nd_dtype_is_float(dtype) ? random_bits(dtype, &seed) : next_random(&seed) & 0xffff;
            long double value = value_of(dtype, bits);
            bool is_wild = nd_dtype_is_float(dtype) && isfinite(value) && fabsl(value) > 1e4L;
            put_bits(b.ref, dtype, i, is_wild ? 0 : bits);
            put_bits(b.test, dtype, i,
                     below(&seed, 3) == 0 && value > 8 && !is_wild ? bits - 1
                     : is_wild                                     ? 0
                                                                   : bits);
        }
        struct nd_pair_context context = simple_context(dtype, n);
        struct nd_difference d = compare_pair(&context, b.ref, b.test);
        struct plain_sums s = sum_plainly(dtype, &b, n);
        free(d.worst);
        if (s.difference == 0)
            continue;
        long double covariance = s.cross - s.ref_sum * s.test_sum / s.n;
        long double ref_variance = s.ref - s.ref_sum * s.ref_sum / s.n;
        long double test_variance = s.test - s.test_sum * s.test_sum / s.n;
        assert_near(d.sqnr_db, 10 * log10l(s.ref / s.difference));
        assert_near(d.cosine, s.cross / sqrtl(s.ref) / sqrtl(s.test));
        assert_near(d.norm_ratio, sqrtl(s.test / s.ref));
        assert_near(d.pearson, covariance / sqrtl(ref_variance) / sqrtl(test_variance));
        assert_near(d.gain, covariance / ref_variance);
        assert_near(d.offset / (1 + fabsl(s.ref_sum)),
                    (s.test_sum - covariance / ref_variance * s.ref_sum) / s.n / (1 + fabsl(s.ref_sum)));
        long double n_abs = (long double)(n - d.n_nan_mismatch - d.n_nan_payload - d.n_inf_mismatch);
        assert_near(d.abs.mean, s.absolute / n_abs);
        assert_near(d.rmse, sqrtl(s.difference / n_abs));
        assert_near(d.rel.mean, s.relative / s.relative_n);
    }
    free_buffers(&b);
}

static void squares_that_overflow_are_reported_as_such(void **state)
{
    (void)state;
    double ref[20] = {0}, test[20] = {0};
    ref[3] = 1e200;
    test[3] = -1e200;
    test[4] = 1;
    struct nd_pair_context context = simple_context(ND_DTYPE_F64, 20);
    struct nd_difference d = compare_pair(&context, ref, test);
    free(d.worst);
    assert_f64_bits(d.abs.max, 2e200);
    assert_f64_bits(d.rmse, INFINITY);
    assert_true(isnan(d.sqnr_db)); /* inf / inf */
    assert_true(isnan(d.cosine) && isnan(d.norm_ratio));
    assert_f64_bits(d.ref_side.max, 1e200);
    assert_f64_bits(d.test_side.min, -1e200);
    assert_int_equal(d.ref_side.n_inf + d.ref_side.n_nan, 0);
    assert_int_equal(d.ref_side.n_zero, 19);
    ref[3] = 1.7e308;
    test[3] = -1.7e308;
    d = compare_pair(&context, ref, test);
    free(d.worst);
    assert_f64_bits(d.abs.max, INFINITY); /* the difference itself */
    assert_int_equal(d.n_inf_mismatch, 0);
    assert_true(d.max_ulp > (uint64_t)1 << 63);
    assert_f64_bits(d.tolerance.atol, INFINITY);
}

/* The rest of the sums keeps its meaning where only squares overflow. */
static void sums_do_not_overflow_with_their_squares(void **state)
{
    (void)state;
    double ref[4] = {1, 2, 3, 4}, test[4] = {1e200, 2, 3, 4};
    struct nd_pair_context context = simple_context(ND_DTYPE_F64, 4);
    struct nd_difference d = compare_pair(&context, ref, test);
    free(d.worst);
    assert_f64_bits(d.abs.mean, 2.5e199);
    assert_true(d.has_gain);
    assert_near(d.gain / 1e200L, -0.3L); /* sum (r - 2.5) t / sum (r - 2.5)^2 = -1.5e200 / 5 */
}

/* An element that is left out cannot make a sum infinite. */
static void element_beside_an_infinity_enters_no_sum(void **state)
{
    (void)state;
    double ref[] = {1, INFINITY, -INFINITY, NAN, 2}, test[] = {1, 1.7e308, -1.7e308, 1.7e308, 3};
    struct nd_pair_context context = simple_context(ND_DTYPE_F64, 5);
    struct nd_difference d = compare_pair(&context, ref, test), e = compare_pair(&context, test, ref);
    free(d.worst);
    free(e.worst);
    assert_near(d.cosine, 7 / sqrtl(50));
    assert_near(d.norm_ratio, sqrtl(2));
    assert_f64_bits(d.gain, 2);
    assert_near(e.cosine, 7 / sqrtl(50));
    assert_f64_bits(e.gain, 0.5);
    assert_f64_bits(d.test_side.max, 1.7e308);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signal_is_that_of_plain_sums),
        cmocka_unit_test(squares_that_overflow_are_reported_as_such),
        cmocka_unit_test(sums_do_not_overflow_with_their_squares),
        cmocka_unit_test(element_beside_an_infinity_enters_no_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
