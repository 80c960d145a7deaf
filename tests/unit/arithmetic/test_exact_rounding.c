/* Rounding of exact quotients, held against rational arithmetic. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/exact/linear/rounding.h"

enum { N_ROUNDINGS = ND_ROUND_TO_ZERO + 1 };

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed ^ *seed >> 32) * 0x9e3779b97f4a7c15u;
}

/* ND_SEED replays a run. */
static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20250912;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* The doubles up to the mark, and beyond it. */
static struct nd_wide read_wide(char **rest, char mark)
{
    struct nd_wide wide = {{0}};
    for (size_t i = 0; **rest != mark; i++) {
        assert_true(i < ND_WIDE_PARTS);
        uint64_t bits = strtoull(*rest, rest, 16);
        memcpy(&wide.parts[i], &bits, sizeof bits);
        *rest += 1;
    }
    *rest += 2;
    return wide;
}

static void check_line(char *line)
{
    char *rest = line;
    struct nd_ratio ratio;
    ratio.numerator = read_wide(&rest, '/');
    ratio.denominator = read_wide(&rest, '=');
    double below = strtod(rest, &rest);
    const char *ups = rest + 1;
    uint64_t bits = strtoull(ups + N_ROUNDINGS, NULL, 16);
    double value;
    memcpy(&value, &bits, sizeof value);
    for (int r = 0; r < N_ROUNDINGS; r++) {
        double expected = below + (ups[r] == '1' ? 1 : 0);
        if (nd_round_ratio(&ratio, (enum nd_rounding)r) != expected)
            fail_msg("%s: expected %.17g of %s", nd_rounding_name((enum nd_rounding)r), expected, line);
        struct nd_ratio plain = nd_ratio_of(value, 1);
        if (nd_round_value(value, (enum nd_rounding)r) != nd_round_ratio(&plain, (enum nd_rounding)r))
            fail_msg("as a double: %s", line);
    }
    if (nd_ratio_value(&ratio) != value)
        fail_msg("%.17g is not %.17g: %s", nd_ratio_value(&ratio), value, line);
}

static void rounding_matches_the_oracle(void **state)
{
    (void)state;
    char path[4096], *line = NULL;
    size_t size = 0, n_lines = 0;
    snprintf(path, sizeof path, "%s/oracle/round.txt", getenv("GOLDEN"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &size, file) > 0)
        if (line[0] != '#') {
            check_line(line);
            n_lines++;
        }
    free(line);
    fclose(file);
    assert_true(n_lines > 2500);
}

static __int128 magnitude_of(__int128 value)
{
    return value < 0 ? -value : value;
}

static struct nd_wide wide_of(__int128 value, int exponent)
{
    struct nd_wide wide = {{0}};
    int sign = value < 0 ? -1 : 1;
    __int128 rest = magnitude_of(value);
    for (int power = exponent; rest != 0; power += 32, rest >>= 32)
        wide = nd_wide_add(wide, nd_wide_from(ldexp((double)(sign * (int64_t)(rest & 0xffffffff)), power)));
    return wide;
}

/* numerator / denominator in the most direct way. */
static __int128 rounded(__int128 numerator, __int128 denominator, enum nd_rounding rounding)
{
    __int128 below = numerator / denominator, rest = numerator % denominator;
    if (rest < 0) {
        below--;
        rest += denominator;
    }
    int half = (2 * rest > denominator) - (2 * rest < denominator);
    bool is_up[N_ROUNDINGS] = {
        [ND_ROUND_HALF_EVEN] = half > 0 || (half == 0 && below % 2 != 0),
        [ND_ROUND_HALF_AWAY] = half > 0 || (half == 0 && numerator > 0),
        [ND_ROUND_HALF_UP] = half >= 0,
        [ND_ROUND_HALF_DOWN] = half > 0,
        [ND_ROUND_FLOOR] = false,
        [ND_ROUND_CEIL] = rest != 0,
        [ND_ROUND_TO_ZERO] = numerator < 0 && rest != 0,
    };
    return below + (is_up[rounding] ? 1 : 0);
}

static __int128 random_int(uint64_t *seed, int max_bits)
{
    unsigned __int128 bits = (unsigned __int128)next_random(seed) << 64 | next_random(seed);
    int n_bits = 1 + (int)(next_random(seed) % (unsigned)max_bits);
    __int128 value = (__int128)(bits >> (128 - n_bits));
    return next_random(seed) % 2 == 0 ? value : -value;
}

static void rounding_matches_integer_division(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    size_t n_ties = 0;
    for (int i = 0; i < 200000; i++) {
        __int128 denominator = magnitude_of(random_int(&seed, 64)) + 1, numerator = random_int(&seed, 110);
        if (i % 2 == 0) { /* at or beside a tie */
            denominator *= 2;
            numerator =
                random_int(&seed, 50) * denominator + denominator / 2 + (int)(next_random(&seed) % 3) - 1;
        }
        __int128 whole = numerator / denominator;
        if (magnitude_of(whole) >= (__int128)1 << 52)
            continue;
        n_ties += magnitude_of(numerator - whole * denominator) * 2 == denominator;
        int exponent = (int)(next_random(&seed) % 200) - 100;
        struct nd_ratio ratio = {wide_of(numerator, exponent), wide_of(denominator, exponent)};
        for (int r = 0; r < N_ROUNDINGS; r++) {
            double expected = (double)rounded(numerator, denominator, (enum nd_rounding)r);
            assert_f64_bits(nd_round_ratio(&ratio, (enum nd_rounding)r), expected);
        }
        double clipped = fmin(fmax((double)rounded(numerator, denominator, ND_ROUND_HALF_EVEN) + 3, -128), 127);
        assert_f64_bits(nd_qvalue_of_ratio(&ratio, 3, ND_DTYPE_I8, ND_ROUND_HALF_EVEN), clipped);
    }
    assert_true(n_ties > 20000);
}

/* The same number in two ways: which leading part is larger says nothing. */
static void leading_parts_do_not_decide(void **state)
{
    (void)state;
    struct nd_wide above = {{0x1.0000000000001p0, -0x1.fffffffffffffp-54, 0}}, below = {{1, 0x1p-53, 0x1p-106}};
    assert_int_equal(nd_wide_compare(above, below), 0);
    below.parts[2] = 0x1.0000000000001p-106;
    assert_int_equal(nd_wide_compare(above, below), -1);
    assert_int_equal(nd_wide_compare(below, above), 1);
    below.parts[2] = 0x1p-107;
    assert_int_equal(nd_wide_compare(above, below), 1);
}

/* Whether the parts are the number, and are as they should be. */
static void assert_wide(struct nd_wide wide, __int128 expected, int exponent)
{
    for (size_t i = 0; i < ND_WIDE_PARTS; i++) {
        expected -= (__int128)ldexp(wide.parts[i], -exponent);
        if (i > 0)
            assert_true(wide.parts[i - 1] + wide.parts[i] == wide.parts[i - 1]);
    }
    assert_true(expected == 0);
}

static void wide_arithmetic_is_exact(void **state)
{
    (void)state;
    uint64_t seed = random_seed();
    for (int i = 0; i < 100000; i++) {
        int exponent = (int)(next_random(&seed) % 600) - 300;
        __int128 a = random_int(&seed, 120), b = random_int(&seed, 120);
        if (i % 4 == 0)
            b = -a + random_int(&seed, 60); /* cancels */
        struct nd_wide wide_a = wide_of(a, exponent), wide_b = wide_of(b, exponent);
        assert_wide(wide_a, a, exponent);
        assert_wide(nd_wide_add(wide_a, wide_b), a + b, exponent);
        assert_wide(nd_wide_negate(wide_a), -a, exponent);
        assert_int_equal(nd_wide_compare(wide_a, wide_b), (a > b) - (a < b));
        assert_int_equal(nd_wide_compare(wide_a, wide_of(a, exponent)), 0);
        assert_int_equal(nd_wide_sign(wide_b), (b > 0) - (b < 0));
        __int128 narrow = random_int(&seed, 74), factor = random_int(&seed, 52);
        assert_wide(nd_wide_scale(wide_of(narrow, exponent), (double)factor), narrow * factor, exponent);
        __int128 c = random_int(&seed, 53);
        assert_wide(nd_wide_product(ldexp((double)c, exponent), (double)factor), c * factor, exponent);
    }
}

static void double_is_rounded_exactly(void **state)
{
    (void)state;
    static const struct {
        double v, expected[N_ROUNDINGS];
    } cases[] = {
        {0.0, {0, 0, 0, 0, 0, 0, 0}},
        {-0.0, {0, 0, 0, 0, 0, 0, 0}},
        {0.5, {0, 1, 1, 0, 0, 1, 0}},
        {-0.5, {0, -1, 0, -1, -1, 0, 0}},
        {1.5, {2, 2, 2, 1, 1, 2, 1}},
        {-1.5, {-2, -2, -1, -2, -2, -1, -1}},
        {2.5, {2, 3, 3, 2, 2, 3, 2}},
        {-2.5, {-2, -3, -2, -3, -3, -2, -2}},
        {0x1.fffffffffffffp-2, {0, 0, 0, 0, 0, 1, 0}},
        {-0x1.fffffffffffffp-2, {0, 0, 0, 0, -1, 0, 0}},
        {-0x1.0000000000001p-1, {-1, -1, -1, -1, -1, 0, 0}},
        {0x1p-1074, {0, 0, 0, 0, 0, 1, 0}},
        {-0x1p-1074, {0, 0, 0, 0, -1, 0, 0}},
        {0x1.fffffffffffffp51, {0x1p52, 0x1p52, 0x1p52, 0x1p52 - 1, 0x1p52 - 1, 0x1p52, 0x1p52 - 1}},
        {HUGE_VAL, {0x1p52, 0x1p52, 0x1p52, 0x1p52, 0x1p52, 0x1p52, 0x1p52}},
        {0x1.8p52, {0x1p52, 0x1p52, 0x1p52, 0x1p52, 0x1p52, 0x1p52, 0x1p52}},
        {-1e300, {-0x1p52, -0x1p52, -0x1p52, -0x1p52, -0x1p52, -0x1p52, -0x1p52}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (int r = 0; r < N_ROUNDINGS; r++)
            assert_f64_bits(nd_round_value(cases[i].v, (enum nd_rounding)r), cases[i].expected[r]);
    assert_f64_bits(nd_round_value((double)NAN, ND_ROUND_CEIL), 0.0);
}

static void division_by_zero_is_infinite(void **state)
{
    (void)state;
    struct nd_ratio up = nd_ratio_of(1, 0), down = nd_ratio_of(-1, 0), none = nd_ratio_of(0, 0);
    assert_f64_bits(nd_ratio_value(&up), HUGE_VAL);
    assert_f64_bits(nd_ratio_value(&down), -HUGE_VAL);
    assert_true(isnan(nd_ratio_value(&none)));
    assert_f64_bits(nd_qvalue_of_ratio(&up, 5, ND_DTYPE_U8, ND_ROUND_FLOOR), 255.0);
    assert_f64_bits(nd_qvalue_of_ratio(&down, 5, ND_DTYPE_U8, ND_ROUND_FLOOR), 0.0);
    assert_f64_bits(nd_qvalue_of_ratio(&none, 5, ND_DTYPE_U8, ND_ROUND_FLOOR), 0.0);
    assert_f64_bits(nd_wide_add(nd_wide_from(HUGE_VAL), nd_wide_product(0.1, 0.1)).parts[0], HUGE_VAL);
    assert_f64_bits(nd_wide_scale(nd_wide_from(HUGE_VAL), -2).parts[0], -HUGE_VAL);
}

static void denominators_may_be_negative_or_infinite(void **state)
{
    (void)state;
    for (int r = 0; r < N_ROUNDINGS; r++)
        for (double n = -7; n <= 7; n += 0.5) {
            struct nd_ratio under = nd_ratio_of(n, HUGE_VAL), below = nd_ratio_of(n, -3),
                            above = nd_ratio_of(-n, 3);
            assert_f64_bits(nd_round_ratio(&under, (enum nd_rounding)r), 0.0);
            assert_f64_bits(nd_round_ratio(&below, (enum nd_rounding)r),
                            nd_round_ratio(&above, (enum nd_rounding)r));
        }
    struct nd_ratio below = {nd_wide_product(0.1, 0.3), nd_wide_product(-0.7, 0.1)};
    struct nd_ratio above = {nd_wide_negate(below.numerator), nd_wide_negate(below.denominator)};
    assert_f64_bits(nd_ratio_value(&below), nd_ratio_value(&above));
}

static void qvalues_are_clipped_to_their_type(void **state)
{
    (void)state;
    static const struct {
        enum nd_dtype dtype;
        double low, high;
    } cases[] = {
        {ND_DTYPE_U8, 0, 255},         {ND_DTYPE_I8, -128, 127},
        {ND_DTYPE_U16, 0, 65535},      {ND_DTYPE_I16, -32768, 32767},
        {ND_DTYPE_U4, 0, 15},          {ND_DTYPE_I4, -8, 7},
        {ND_DTYPE_U32, 0, 0xffffffff}, {ND_DTYPE_I32, -0x1p31, 0x1p31 - 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        double low, high;
        nd_qvalue_range(cases[i].dtype, &low, &high);
        assert_f64_bits(low, cases[i].low);
        assert_f64_bits(high, cases[i].high);
        struct nd_ratio ratio = nd_ratio_of(high * 3 + 1.5, 3);
        assert_f64_bits(nd_qvalue_of_ratio(&ratio, 0, cases[i].dtype, ND_ROUND_HALF_UP), high);
        assert_f64_bits(nd_qvalue_of_ratio(&ratio, -1, cases[i].dtype, ND_ROUND_HALF_UP), high);
        assert_f64_bits(nd_qvalue_of_ratio(&ratio, -1, cases[i].dtype, ND_ROUND_HALF_DOWN), high - 1);
        ratio = nd_ratio_of(low * 3 - 1.5, 3);
        assert_f64_bits(nd_qvalue_of_ratio(&ratio, 0, cases[i].dtype, ND_ROUND_FLOOR), low);
        assert_f64_bits(nd_qvalue_of_ratio(&ratio, 1, cases[i].dtype, ND_ROUND_HALF_EVEN),
                        fmod(low, 2) == 0 ? low + 1 : low);
    }
}

static void rounding_names_are_read_back(void **state)
{
    (void)state;
    enum nd_rounding read = ND_ROUND_CEIL;
    for (int r = 0; r < N_ROUNDINGS; r++) {
        assert_true(nd_rounding_from_name(nd_rounding_name((enum nd_rounding)r), &read));
        assert_int_equal(read, r);
    }
    assert_false(nd_rounding_from_name("half", &read));
    assert_false(nd_rounding_from_name("", &read));
    assert_int_equal(read, N_ROUNDINGS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounding_matches_the_oracle),
        cmocka_unit_test(rounding_matches_integer_division),
        cmocka_unit_test(leading_parts_do_not_decide),
        cmocka_unit_test(wide_arithmetic_is_exact),
        cmocka_unit_test(double_is_rounded_exactly),
        cmocka_unit_test(division_by_zero_is_infinite),
        cmocka_unit_test(qvalues_are_clipped_to_their_type),
        cmocka_unit_test(rounding_names_are_read_back),
        cmocka_unit_test(denominators_may_be_negative_or_infinite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
