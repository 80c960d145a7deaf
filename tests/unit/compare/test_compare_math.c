/* What stands on single numbers: exp and ln, bounds of probabilities, distributions, top-1, flips, classes. */
#include "support/main.h"

#include "compare/engine/engine.h"
#include "compare/findings/top1_classes.h"
#include "compare/metrics/states.h"
#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"
#include "support/pair_check.h"

static void assert_within(long double actual, long double expected, long double relative)
{
    assert_true(fabsl(actual - expected) <= relative * fabsl(expected));
}

static void exp_is_within_its_error(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (size_t k = 0; k < 200000; k++) {
        double x = ((double)next_random(&seed) * 0x1p-64 - 0.5) * (k % 3 == 0 ? 1400 : k % 3 == 1 ? 4 : 1e-3);
        assert_within(nd_exp(x), expl(x), 1e-15L);
    }
    assert_f64_bits(nd_exp(0), 1);
    assert_f64_bits(nd_exp(-0.0), 1);
    assert_f64_bits(nd_exp(-746), 0);
    assert_f64_bits(nd_exp(-INFINITY), 0);
    for (double x = -745.1; x < -708; x += 0.37) /* subnormal: within one of them */
        assert_true(fabsl(nd_exp(x) - expl(x)) <= 0x1p-1074L);
    assert_within(nd_exp(709), expl(709), 1e-15L);
}

static void log_is_within_its_error(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (size_t k = 0; k < 200000; k++) {
        uint64_t bits = next_random(&seed) % 0x7ff0000000000000u + 1;
        double x = k % 2 == 0 ? 1 + ((double)next_random(&seed) * 0x1p-64 - 0.5) * (k % 4 == 0 ? 1 : 1e-6) : 1;
        if (k % 2 == 1)
            memcpy(&x, &bits, sizeof x);
        if (isfinite(x))
            assert_within(nd_log(x), logl(x), 1e-15L);
    }
    assert_f64_bits(nd_log(1), 0);
    assert_within(nd_log(0x1p-1074), logl(0x1p-1074), 1e-15L);
    assert_within(nd_log(1.7976931348623157e308), logl(1.7976931348623157e308), 1e-15L);
    for (double x = 1; x < 1.0001; x = nextafter(x, 2) * (1 + 0x1p-30))
        assert_within(nd_log(x), logl(x), 1e-15L);
}

/* P(X <= k), X ~ Bin(n, p). */
static long double probability(uint64_t k, uint64_t n, long double p)
{
    long double sum = 0;
    for (uint64_t i = 0; i <= k; i++)
        sum +=
            expl(lgammal((long double)n + 1) - lgammal((long double)i + 1) - lgammal((long double)(n - i) + 1) +
                 (long double)i * logl(p) + (long double)(n - i) * log1pl(-p));
    return sum;
}

static void bound_of_repeats_is_that_of_clopper_and_pearson(void **state)
{
    (void)state;
    static const struct {
        uint64_t k, n;
        double bound;
    } known[] = {{0, 1, 0.95},
                 {0, 2, 0.7763932022500211},
                 {0, 10, 0.2588655508930523},
                 {0, 59, 0.049507609888226944},
                 {1, 2, 0.9746794344808964},
                 {1, 3, 0.8646496378284162},
                 {1, 10, 0.39416330243650477},
                 {5, 10, 0.7775588989918709},
                 {9, 10, 0.9948838031081763}};
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        assert_within(nd_repeats_bound(known[i].k, known[i].n), known[i].bound, 1e-9L);
    assert_f64_bits(nd_repeats_bound(0, 0), 1);
    assert_f64_bits(nd_repeats_bound(7, 7), 1);
    for (uint64_t n = 1; n < 400; n = n < 12 ? n + 1 : n * 2 + 1)
        for (uint64_t k = 0; k < n; k++) {
            long double p = nd_repeats_bound(k, n);
            assert_true(probability(k, n, p * (1 - 1e-9L)) > 0.05L);
            assert_true(p > 1 - 2e-9L || probability(k, n, p * (1 + 1e-9L)) < 0.05L);
        }
    assert_within(nd_repeats_bound(0, 1000000000000u), 2.995732273554e-12L, 1e-9L);
}

/* Distributions. */

static struct nd_distribution distribution_of(size_t n, size_t n_samples, const double (*ref)[8],
                                              const double (*test)[8])
{
    struct nd_pair_context context = simple_context(ND_DTYPE_F64, n);
    struct nd_pair_state *state = nd_pair_state_create(&context, NULL);
    struct nd_difference d;
    for (size_t s = 0; s < n_samples; s++) {
        struct nd_probabilities a = {.n = n, .values = ref[s]}, b = {.n = n, .values = test[s]};
        nd_probabilities_describe(&a);
        nd_probabilities_describe(&b);
        nd_distribution_add(&state->distribution, &a, &b);
    }
    assert_int_equal(nd_pair_state_finish(state, &context, &d, NULL), ND_OK);
    nd_pair_state_destroy(&state);
    assert_int_equal(d.distribution.exists, n_samples > 0);
    assert_int_equal(d.distribution.n_samples, n_samples);
    return d.distribution;
}

static void divergence_of_simple_distributions_is_known(void **state)
{
    (void)state;
    const double ref[][8] = {{0.5, 0.5}, {1, 0}}, test[][8] = {{0.25, 0.75}, {0.5, 0.5}};
    struct nd_distribution d = distribution_of(2, 1, ref, test);
    assert_false(d.is_softmax);
    assert_within(d.kl, 0.143841036225890463719L, 4e-15L);
    d = distribution_of(2, 2, ref, test);
    assert_within(d.kl, (0.143841036225890463719L + 0.693147180559945309417L) / 2, 4e-15L);
    assert_f64_bits(d.topk_overlap, 1);
    d = distribution_of(2, 2, test, ref); /* q = 0 where p is not */
    assert_int_equal(d.n_infinite, 1);
    assert_within(d.kl, 0.130812035941136981L, 4e-15L);
    /* One sample that is no distribution makes all of them logits. */
    const double logits[][8] = {{0.5, 0.5}, {3, 1}}, others[][8] = {{0.25, 0.75}, {1, 1}};
    d = distribution_of(2, 2, logits, others);
    assert_true(d.is_softmax);
    assert_int_equal(d.n_infinite, 0);
    long double q = 1 / (1 + expl(0.5L)), p = 1 / (1 + expl(-2.0L));
    long double first = 0.5L * logl(0.5L / q) + 0.5L * logl(0.5L / (1 - q));
    long double second = p * logl(p / 0.5L) + (1 - p) * logl((1 - p) / 0.5L);
    assert_within(d.kl, (first + second) / 2, 1e-13L);
    d = distribution_of(2, 1, ref, ref);
    assert_f64_bits(d.kl, 0);
    assert_false(distribution_of(2, 0, ref, ref).exists);
}

/* A sum within 1 % of 1 is divided out; beyond it the values are taken as logits. */
static void values_near_a_distribution_are_one(void **state)
{
    (void)state;
    const double ref[][8] = {{0.505, 0.5}}, test[][8] = {{0.25, 0.745}};
    struct nd_distribution d = distribution_of(2, 1, ref, test);
    assert_false(d.is_softmax);
    long double p = 0.505L / 1.005L, q = 0.25L / 0.995L;
    assert_within(d.kl, p * logl(p / q) + (1 - p) * logl((1 - p) / (1 - q)), 1e-13L);
    const double far[][8] = {{0.52, 0.5}}, negative[][8] = {{-0.1, 1.1}};
    assert_true(distribution_of(2, 1, far, test).is_softmax);
    assert_true(distribution_of(2, 1, negative, test).is_softmax);
    assert_true(distribution_of(2, 1, ref, negative).is_softmax);
}

static void samples_with_nan_have_no_divergence(void **state)
{
    (void)state;
    const double ref[][8] = {{1, 2, NAN}, {1, 2, INFINITY}, {1, 2, 3}},
                 test[][8] = {{1, 2, 3}, {1, 2, 3}, {1, 2, 3}};
    struct nd_distribution d = distribution_of(3, 3, ref, test);
    assert_int_equal(d.n_invalid, 2);
    assert_f64_bits(d.kl, 0);
    assert_int_equal(d.top_k, 3);
    assert_f64_bits(d.topk_overlap, 8.0 / 9); /* two of three, three of three, three of three */
}

static void top_k_takes_the_lowest_index_of_equals(void **state)
{
    (void)state;
    const double flat[][8] = {{1, 1, 1, 1, 1, 1, 1, 1}}, late[][8] = {{1, 1, 1, 2, 2, 2, 2, 2}};
    const double wild[][8] = {{NAN, 9, NAN, NAN, NAN, NAN, NAN, 8}};
    struct nd_distribution d = distribution_of(8, 1, flat, late);
    assert_int_equal(d.top_k, 5);
    assert_f64_bits(d.topk_overlap, 2.0 / 5); /* 0 1 2 3 4 and 3 4 5 6 7 */
    assert_f64_bits(distribution_of(8, 1, flat, flat).topk_overlap, 1);
    assert_f64_bits(distribution_of(8, 1, wild, late).topk_overlap, 1.0 / 5);
    d = distribution_of(2, 1, flat, late);
    assert_int_equal(d.top_k, 2);
    assert_f64_bits(d.topk_overlap, 1);
}

/* Top-1. */

static int64_t top1_of(const struct nd_layout *layout, const void *elems, size_t n)
{
    const struct nd_kernels *kernels;
    struct nd_best best = {.index = -1}, parts = {.index = -1};
    assert_int_equal(nd_kernels_choose(NULL, &kernels, NULL), ND_OK);
    nd_best_offer(&best, layout, kernels, elems, 0, n);
    for (size_t i = n; i-- > 0;) { /* one by one, from the end */
        struct nd_best one = {.index = -1};
        nd_best_offer(&one, layout, kernels, (const unsigned char *)elems + i * layout->elem_bytes, i, 1);
        nd_best_merge(&parts, &one);
    }
    assert_int_equal(best.index, parts.index);
    return best.index;
}

static int64_t plain_top1(enum nd_dtype dtype, const void *elems, size_t n)
{
    struct nd_tensor tensor = tensor_of(dtype, n);
    struct nd_layout layout;
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_OK);
    return top1_of(&layout, elems, n);
}

static void top1_takes_the_lowest_of_equals_and_never_nan(void **state)
{
    (void)state;
    assert_int_equal(plain_top1(ND_DTYPE_F32, (float[]){1, 3, 3, 2}, 4), 1);
    assert_int_equal(plain_top1(ND_DTYPE_F32, (float[]){NAN, -3, NAN, -2}, 4), 3);
    assert_int_equal(plain_top1(ND_DTYPE_F32, (float[]){NAN, NAN, NAN, NAN}, 4), -1);
    assert_int_equal(plain_top1(ND_DTYPE_F32, (float[]){-INFINITY, -INFINITY, NAN, -INFINITY}, 4), 0);
    assert_int_equal(plain_top1(ND_DTYPE_F32, (float[]){-0.0f, 0.0f, -1, -1}, 4), 0);
    assert_int_equal(plain_top1(ND_DTYPE_I8, (int8_t[]){-128, 5, 127, 127}, 4), 2);
    assert_int_equal(plain_top1(ND_DTYPE_U8, (uint8_t[]){128, 5, 127, 127}, 4), 0);
    assert_int_equal(plain_top1(ND_DTYPE_U64, (uint64_t[]){UINT64_MAX - 1, UINT64_MAX}, 2), 1);
    assert_int_equal(plain_top1(ND_DTYPE_I64, (int64_t[]){INT64_MAX - 1, INT64_MAX, INT64_MIN}, 3), 1);
    assert_int_equal(plain_top1(ND_DTYPE_U8, "", 0), -1);
}

static void top1_per_channel_compares_real_values(void **state)
{
    (void)state;
    float scale[] = {1, 10, -1};
    int64_t zero[] = {0, 4, 0};
    struct nd_tensor tensor = tensor_of(ND_DTYPE_U8, 3);
    tensor.quant = (struct nd_quant){.n = 3, .axis = 0, .scale = scale, .zero_point = zero};
    struct nd_layout layout;
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_OK);
    assert_int_equal(top1_of(&layout, (uint8_t[]){9, 5, 200}, 3), 1);
    tensor.quant = (struct nd_quant){.n = 1, .axis = -1, .scale = &scale[2], .zero_point = zero};
    assert_int_equal(nd_layout_make(&tensor, &layout, NULL), ND_OK);
    assert_int_equal(top1_of(&layout, (uint8_t[]){9, 5, 200}, 3), 1);
}

static void top1_pair_counts_flips_and_mirrors(void **state)
{
    (void)state;
    const int64_t labels[] = {0, 1, 2, 3, 4, 5, 6}, ref[] = {0, 1, 9, 9, 9, -1, -1};
    const int64_t test[] = {0, 7, 2, 9, 8, -1, 6};
    struct nd_top1_pair ab = {.test = 1}, ba = {.test = 1};
    nd_top1_pair_count(ref, test, labels, 7, &ab);
    nd_top1_pair_count(test, ref, labels, 7, &ba);
    assert_int_equal(ab.n_samples, 7);
    assert_int_equal(ab.n_agree, 3);
    assert_int_equal(ab.n_lost, 1);
    assert_int_equal(ab.n_gained, 2);
    assert_int_equal(ab.n_changed_wrong, 1);
    assert_int_equal(ba.n_lost, ab.n_gained);
    assert_int_equal(ba.n_gained, ab.n_lost);
    ab = (struct nd_top1_pair){.test = 1};
    nd_top1_pair_count(ref, test, NULL, 7, &ab);
    assert_int_equal(ab.n_lost + ab.n_gained + ab.n_changed_wrong, 0);
    assert_int_equal(ab.n_agree, 3);
}

static void significance_of_flips_is_that_of_the_plain_sum(void **state)
{
    (void)state;
    assert_f64_bits(nd_mcnemar_mid_p(0, 0), 1);
    assert_f64_bits(nd_mcnemar_mid_p(5, 0), 0.03125); /* the fewest one-sided flips that are significant */
    assert_f64_bits(nd_mcnemar_mid_p(4, 0), 0.0625);
    assert_true(nd_mcnemar_mid_p(0, 5000) >= 0);
    for (size_t n = 1; n < 60; n++)
        for (size_t k = 0; 2 * k < n; k++) {
            long double term = 1, sum = 0; /* C(n, i) */
            for (size_t i = 0; i <= k; i++) {
                sum += i < k ? 2 * term : term;
                term = term * (long double)(n - i) / (long double)(i + 1);
            }
            double p = nd_mcnemar_mid_p(k, n - k);
            assert_within(p, ldexpl(sum, -(int)n), ldexpl((long double)(n + 4), -50));
            assert_f64_bits(p, nd_mcnemar_mid_p(n - k, k));
        }
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
        for (size_t qvalue = 0; qvalue < n_assignments; qvalue++) {
            int numbers[6], classes[6], seen = 0;
            bool has_data[6];
            size_t rest = qvalue;
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
        cmocka_unit_test(exp_is_within_its_error),
        cmocka_unit_test(log_is_within_its_error),
        cmocka_unit_test(bound_of_repeats_is_that_of_clopper_and_pearson),
        cmocka_unit_test(divergence_of_simple_distributions_is_known),
        cmocka_unit_test(values_near_a_distribution_are_one),
        cmocka_unit_test(samples_with_nan_have_no_divergence),
        cmocka_unit_test(top_k_takes_the_lowest_index_of_equals),
        cmocka_unit_test(top1_takes_the_lowest_of_equals_and_never_nan),
        cmocka_unit_test(top1_per_channel_compares_real_values),
        cmocka_unit_test(top1_pair_counts_flips_and_mirrors),
        cmocka_unit_test(significance_of_flips_is_that_of_the_plain_sum),
        cmocka_unit_test(classes_of_every_assignment_are_numbered_in_order),
        cmocka_unit_test(classes_need_agreement_with_every_member),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
