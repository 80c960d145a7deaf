/* The smallest tolerance that is reported lets the pair pass and the next smaller one does not; the worst
 * elements are those that sorting all of them gives. */
#include "support/main.h"

#include "support/pair_check.h"

enum { N = 1300 };

static uint64_t count_failing(const struct nd_pair_context *context, struct nd_gate_values gate,
                              const void *ref, const void *test)
{
    struct nd_pair_context gated = *context;
    gated.gate = gate;
    gated.n_worst = 0;
    return compare_pair(&gated, ref, test).n_failing;
}

static void check_whole_gates(const struct nd_pair_context *context, const struct nd_tolerance *t,
                              const void *ref, const void *test)
{
    if (t->has_lsb) {
        assert_int_equal(
            count_failing(context, (struct nd_gate_values){.has_lsb = true, .lsb = t->lsb}, ref, test), 0);
        if (t->lsb > 0)
            assert_true(count_failing(context, (struct nd_gate_values){.has_lsb = true, .lsb = t->lsb - 1}, ref,
                                      test) > 0);
    }
    if (t->has_ulp) {
        assert_int_equal(
            count_failing(context, (struct nd_gate_values){.has_ulp = true, .ulp = t->ulp}, ref, test), 0);
        if (t->ulp > 0)
            assert_true(count_failing(context, (struct nd_gate_values){.has_ulp = true, .ulp = t->ulp - 1}, ref,
                                      test) > 0);
    }
}

static struct nd_gate_values tolerance_of(double atol, double rtol)
{
    return (struct nd_gate_values){.has_tolerance = true, .atol = atol, .rtol = rtol};
}

static void check_tolerance(const struct nd_pair_context *context, const void *ref, const void *test)
{
    struct nd_difference d = compare_pair(context, ref, test);
    const struct nd_tolerance *t = &d.tolerance;
    free(d.worst);
    assert_int_equal(t->is_possible, d.n_nan_mismatch + d.n_inf_mismatch == 0);
    if (!t->is_possible) {
        assert_true(count_failing(context, tolerance_of(INFINITY, 0), ref, test) > 0);
        return;
    }
    check_whole_gates(context, t, ref, test);
    assert_int_equal(count_failing(context, tolerance_of(t->atol, 0), ref, test), 0);
    if (t->atol > 0)
        assert_true(count_failing(context, tolerance_of(nextafter(t->atol, 0), 0), ref, test) > 0);
    if (isinf(t->rtol)) /* no number is enough */
        assert_true(count_failing(context, tolerance_of(0, 0x1.fffffffffffffp+1023), ref, test) > 0);
    else
        assert_int_equal(count_failing(context, tolerance_of(0, t->rtol), ref, test), 0);
    if (t->rtol > 0 && !isinf(t->rtol))
        assert_true(count_failing(context, tolerance_of(0, nextafter(t->rtol, 0)), ref, test) > 0);
}

static void tolerance_that_is_reported_passes_and_no_smaller_one(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    uint64_t ref[N], test[N];
    for (size_t run = 0; run < 120 * N_DTYPES / ND_SANITIZED_SHARE; run++) {
        enum nd_dtype dtype = all_dtypes[run % N_DTYPES];
        size_t n = run % 5 == 0 ? 1 + below(&seed, N) : 1 + below(&seed, 12);
        bool is_finite = run % 3 != 0; /* most pairs without NaN and infinity, which no tolerance lets pass */
        fill_random(ref, dtype, n, &seed);
        perturb(ref, test, dtype, n, 3, &seed);
        for (size_t i = 0; i < n && is_finite; i++)
            if (!isfinite(value_of(dtype, get_bits(ref, dtype, i))) ||
                !isfinite(value_of(dtype, get_bits(test, dtype, i)))) {
                put_bits(ref, dtype, i, below(&seed, 2));
                put_bits(test, dtype, i, below(&seed, 2));
            }
        struct nd_pair_context context = simple_context(dtype, n);
        check_tolerance(&context, ref, test);
    }
}

static void tolerance_of_codes_is_in_real_units(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    uint8_t ref[60], test[60];
    for (size_t run = 0; run < 200; run++) {
        float scale[3];
        int64_t zero[3];
        for (size_t c = 0; c < 3; c++) {
            scale[c] = (float)(1 + below(&seed, 1000)) * 0x1.3p-9f * (below(&seed, 5) == 0 ? -1 : 1);
            zero[c] = (int64_t)below(&seed, 256);
        }
        struct nd_tensor tensor = {
            .name = (char *)(uintptr_t) "e",
            .dtype = ND_DTYPE_U8,
            .shape = {.rank = 3, .dims = {5, 3, 4}},
            .quant = {.n = run % 2 == 0 ? 1 : 3, .axis = 1, .scale = scale, .zero_point = zero}};
        struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
        fill_random(ref, ND_DTYPE_U8, 60, &seed);
        perturb(ref, test, ND_DTYPE_U8, 60, 4, &seed);
        check_tolerance(&context, ref, test);
    }
}

/* Whatever follows it, an element that no relative tolerance covers is not forgotten. */
static void tolerance_infinite_stays_so(void **state)
{
    (void)state;
    const float ref[] = {0, 0.0f, 1, 0}, test[] = {1, -0.0f, 2, 0};
    struct nd_pair_context context = simple_context(ND_DTYPE_F32, 4);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_f64_bits(d.tolerance.rtol, INFINITY);
    assert_f64_bits(d.tolerance.atol, 1);
    free(d.worst);
}

static void gates_are_those_of_the_options(void **state)
{
    (void)state;
    struct nd_gates *gates;
    struct nd_compare_options options = nd_compare_options_default();
    struct nd_tensor tensor = tensor_of(ND_DTYPE_I16, 3);
    const int16_t ref[] = {100, -100, 0}, test[] = {104, -100, 1};
    assert_int_equal(nd_gates_create(&gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_RTOL, "0.04", NULL), ND_OK);
    options.gates = gates;
    options.n_worst = 0;
    struct nd_pair_context context = context_of(&tensor, &tensor, &options);
    assert_int_equal(compare_pair(&context, ref, test).n_failing, 1);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_ATOL, "1", NULL), ND_OK);
    context = context_of(&tensor, &tensor, &options);
    assert_int_equal(compare_pair(&context, ref, test).n_failing, 0);
    assert_int_equal(nd_gates_parse(gates, ND_GATE_LSB, "3", NULL), ND_OK);
    context = context_of(&tensor, &tensor, &options);
    assert_int_equal(compare_pair(&context, ref, test).n_failing, 1); /* all must hold */
    assert_int_equal(nd_gates_parse(gates, ND_GATE_BITWISE, NULL, NULL), ND_OK);
    context = context_of(&tensor, &tensor, &options);
    assert_int_equal(compare_pair(&context, ref, test).n_failing, 2);
    nd_gates_destroy(&gates);
}

/* Worst elements. */

struct ranked {
    bool is_unmeasured;
    double error;
    size_t sample, index;
};

static int compare_ranks(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    if (x->is_unmeasured != y->is_unmeasured)
        return x->is_unmeasured ? -1 : 1;
    if (x->error != y->error)
        return x->error > y->error ? -1 : 1;
    if (x->sample != y->sample)
        return x->sample < y->sample ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

enum { N_SAMPLES = 3 };

/* All that differs in the sample, and can be ranked. */
static size_t rank_sample(enum nd_dtype dtype, const void *ref, const void *test, size_t n, size_t sample,
                          struct ranked *out)
{
    size_t n_ranked = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t a = get_bits(ref, dtype, i), b = get_bits(test, dtype, i);
        double r = (double)value_of(dtype, a), t = (double)value_of(dtype, b);
        bool is_measured = isfinite(r) && isfinite(t);
        if (a != b && !(isnan(r) && isnan(t)))
            out[n_ranked++] = (struct ranked){!is_measured, is_measured ? fabs(t - r) : INFINITY, sample, i};
    }
    return n_ranked;
}

static void check_worst(enum nd_dtype dtype, size_t n_worst, size_t n, size_t one_in, uint64_t *seed)
{
    static uint64_t ref[N], test[N];
    static struct ranked ranked[N_SAMPLES * N];
    struct nd_compare_options options = nd_compare_options_default();
    struct nd_tensor tensor = tensor_of(dtype, n);
    options.n_worst = n_worst;
    struct nd_pair_context context = context_of(&tensor, &tensor, &options);
    struct nd_pair_state *state = nd_pair_state_create(&context, NULL);
    struct nd_difference d;
    size_t n_ranked = 0, order[N_SAMPLES] = {2, 0, 1};
    for (size_t k = 0; k < N_SAMPLES; k++) {
        fill_random(ref, dtype, n, seed);
        perturb(ref, test, dtype, n, one_in, seed);
        assert_int_equal(nd_sample_compare(state, &context, do_bytes_differ(&context, ref, test),
                                           (unsigned char *)ref, (unsigned char *)test, 0, order[k], NULL),
                         ND_OK);
        n_ranked += rank_sample(dtype, ref, test, n, order[k], ranked + n_ranked);
    }
    assert_int_equal(nd_pair_state_finish(state, &context, &d, NULL), ND_OK);
    qsort(ranked, n_ranked, sizeof ranked[0], compare_ranks);
    assert_int_equal(d.n_worst, n_ranked < n_worst ? n_ranked : n_worst);
    for (size_t i = 0; i < d.n_worst; i++) {
        assert_int_equal(d.worst[i].place.sample, ranked[i].sample);
        assert_int_equal(d.worst[i].place.index, ranked[i].index);
        assert_f64_bits(d.worst[i].abs_error, ranked[i].error);
    }
    free(d.worst);
    nd_pair_state_destroy(&state);
}

static void worst_elements_are_those_of_a_full_sort(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    static const size_t counts[] = {0, 1, 5, 1000};
    for (size_t run = 0; run < 8 * N_DTYPES; run++)
        for (size_t k = 0; k < 4; k++)
            check_worst(all_dtypes[run % N_DTYPES], counts[k], run % 2 == 0 ? N : 30, run % 4 < 2 ? 2 : 40,
                        &seed);
}

/* A difference too large for a double has no measure either, but it is one. */
static void worst_mismatch_comes_before_any_error(void **state)
{
    (void)state;
    const double ref[] = {1.7e308, 0, 1.7e308}, test[] = {-1.7e308, 0, NAN};
    struct nd_pair_context context = simple_context(ND_DTYPE_F64, 3);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_int_equal(d.n_worst, 2);
    assert_int_equal(d.worst[0].place.index, 2);
    assert_int_equal(d.worst[1].place.index, 0);
    free(d.worst);
}

static void worst_elements_show_qvalues_and_what_they_mean(void **state)
{
    (void)state;
    float scale[] = {0.5f, -2};
    int64_t zero[] = {10, 3};
    struct nd_tensor tensor = {.name = (char *)(uintptr_t) "e",
                               .dtype = ND_DTYPE_U8,
                               .shape = {.rank = 2, .dims = {3, 2}},
                               .quant = {.n = 2, .axis = 1, .scale = scale, .zero_point = zero}};
    const uint8_t ref[] = {10, 3, 12, 5, 0, 0}, test[] = {20, 4, 12, 5, 0, 3};
    struct nd_pair_context context = context_of(&tensor, &tensor, NULL);
    struct nd_difference d = compare_pair(&context, ref, test);
    assert_int_equal(d.n_worst, 3);
    assert_int_equal(d.worst[0].place.index, 5); /* 6 before 5 before 2 */
    assert_f64_bits(d.worst[0].ref_real, 6);
    assert_f64_bits(d.worst[0].test_real, -0.0);
    assert_int_equal(d.worst[1].place.index, 0);
    assert_f64_bits(d.worst[1].ref, 10);
    assert_f64_bits(d.worst[1].test, 20);
    assert_f64_bits(d.worst[1].ref_real, 0);
    assert_f64_bits(d.worst[1].test_real, 5);
    assert_f64_bits(d.worst[1].abs_error, 5);
    assert_int_equal(d.worst[2].place.coordinates[0], 0);
    assert_int_equal(d.worst[2].place.coordinates[1], 1);
    assert_f64_bits(d.worst[2].abs_error, 2);
    assert_int_equal(d.max_lsb, 10); /* steps know nothing of scales */
    assert_f64_bits(d.abs.max, 6);
    free(d.worst);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tolerance_that_is_reported_passes_and_no_smaller_one),
        cmocka_unit_test(tolerance_of_codes_is_in_real_units),
        cmocka_unit_test(tolerance_infinite_stays_so),
        cmocka_unit_test(gates_are_those_of_the_options),
        cmocka_unit_test(worst_elements_are_those_of_a_full_sort),
        cmocka_unit_test(worst_mismatch_comes_before_any_error),
        cmocka_unit_test(worst_elements_show_qvalues_and_what_they_mean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
