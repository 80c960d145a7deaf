/* Arithmetics, held against integer arithmetic and the laws of what they get wrong. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "arithmetic/exact/linear/rounding.h"
#include "support/assert_bits.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed ^ *seed >> 32) * 0x9e3779b97f4a7c15u;
}

static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED"); /* replays a run */
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20261121;
    printf("# seed %llu\n", (unsigned long long)seed);
    return seed;
}

static double run_arithmetic(const struct nd_rounding_rule *arithmetic, double numerator, double denominator)
{
    struct nd_ratio ratio = nd_ratio_of(numerator, denominator);
    struct nd_place place = nd_place_of(&ratio);
    return nd_rounding_rule_round(arithmetic, &ratio, &place);
}

static __int128 floor_div(__int128 a, __int128 b)
{
    __int128 quotient = a / b;
    return quotient - (a % b < 0 ? 1 : 0);
}

/* n / d in fixed point with n_bits, half up; then half away from zero. */
static __int128 fixed_point(__int128 n, __int128 d, int n_bits)
{
    __int128 one = (__int128)1 << n_bits;
    __int128 first = floor_div(2 * n * one + d, 2 * d);
    return first < 0 ? -((-first + one / 2) / one) : (first + one / 2) / one;
}

static void double_rounding_is_fixed_point_arithmetic(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int i = 0; i < 200000; i++) {
        int n_bits = 1 + (int)(next_random(&seed) % ND_ROUNDING_RULE_MAX_BITS);
        const struct nd_rounding_rule arithmetic = {.kind = ND_ROUNDED_TWICE, .n_bits = n_bits};
        int64_t d = 1 + (int64_t)(next_random(&seed) % 100000), n = (int64_t)(next_random(&seed) % (1u << 31));
        if (i % 2 == 0) /* thresholds of both roundings, and beside them */
            d = (int64_t)1 << (next_random(&seed) % 16);
        if (i % 4 == 0)
            n = n * d + (int64_t)(next_random(&seed) % 3) - 1;
        n = next_random(&seed) % 2 == 0 ? n : -n;
        if (llabs(n) >= (int64_t)1 << 52)
            continue;
        assert_f64_bits(run_arithmetic(&arithmetic, (double)n, (double)d), (double)fixed_point(n, d, n_bits));
    }
}

/* What is less than half a first step short of a tie is rounded away from zero: 2^-(bits + 1) of all values. */
static void double_rounding_follows_its_law(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    const struct nd_rounding_rule once = {.kind = ND_ROUNDED_ONCE};
    for (int n_bits = 1; n_bits <= 6; n_bits++) {
        const struct nd_rounding_rule twice = {.kind = ND_ROUNDED_TWICE, .n_bits = n_bits};
        int n = 200000, n_differing = 0;
        for (int i = 0; i < n; i++) {
            double v = (double)(next_random(&seed) >> 11) * 0x1p-53 * 200 - 100;
            double a = run_arithmetic(&once, v, 1), b = run_arithmetic(&twice, v, 1);
            assert_true(fabs(a - b) <= 1);
            n_differing += a != b;
        }
        double share = ldexp(1, -n_bits - 1), error = sqrt(share * (1 - share) / n);
        assert_true(fabs((double)n_differing / n - share) < 5 * error);
    }
}

static void float32_loses_what_does_not_fit(void **state)
{
    (void)state;
    const struct nd_rounding_rule arithmetic = {.kind = ND_ROUNDED_AS_FLOAT32};
    assert_f64_bits(run_arithmetic(&arithmetic, 65536.5 + 0x1p-20, 1), 65536);
    assert_f64_bits(run_arithmetic(&arithmetic, 2.5 + 0x1p-20, 1), 3);
    assert_f64_bits(run_arithmetic(&arithmetic, -2.5, 1), -2);
    assert_f64_bits(run_arithmetic(&arithmetic, -1, 3), 0);
    assert_f64_bits(run_arithmetic(&arithmetic, 7, 0), 0x1p52);
}

static void what_is_no_number_is_zero(void **state)
{
    (void)state;
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    for (size_t i = 0; i < n; i++) {
        assert_f64_bits(run_arithmetic(&arithmetics[i], 0, 0), 0);
        assert_f64_bits(run_arithmetic(&arithmetics[i], -1, 0), -0x1p52);
        assert_f64_bits(run_arithmetic(&arithmetics[i], -12, 4), -3);
    }
}

static void names_are_read_back(void **state)
{
    (void)state;
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    struct nd_rounding_rule read = {0};
    char buf[ND_ROUNDING_RULE_NAME_BYTES];
    for (size_t i = 0; i < n; i++) {
        assert_true(nd_rounding_rule_from_name(nd_rounding_rule_name(&arithmetics[i], buf), &read));
        assert_int_equal(read.kind, arithmetics[i].kind);
        assert_int_equal(read.rounding, arithmetics[i].rounding);
        assert_int_equal(read.n_bits, arithmetics[i].n_bits);
    }
    assert_false(nd_rounding_rule_from_name("double:13", &read));
    assert_false(nd_rounding_rule_from_name("double", &read));
    assert_false(nd_rounding_rule_from_name("", &read));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(double_rounding_is_fixed_point_arithmetic),
        cmocka_unit_test(double_rounding_follows_its_law),
        cmocka_unit_test(float32_loses_what_does_not_fit),
        cmocka_unit_test(what_is_no_number_is_zero),
        cmocka_unit_test(names_are_read_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
