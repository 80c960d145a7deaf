/* Exact sums: no order, one rounding, one text. */
#include "support/main.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/kernels/exact_sum.h"

static uint64_t next_random(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (*seed ^ *seed >> 32) * 0x9e3779b97f4a7c15u;
}

/* ND_SEED replays a run. */
static uint64_t random_seed(void)
{
    const char *text = getenv("ND_SEED");
    uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 20250711;
    print_message("# ND_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

static double from_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Finite, of any size. */
static double random_double(uint64_t *seed)
{
    uint64_t bits = next_random(seed) & 0x800fffffffffffffu;
    return from_bits(bits | next_random(seed) % 2047 << 52);
}

static struct nd_exact_sum sum_of(const double *values, size_t n)
{
    struct nd_exact_sum sum = {0};
    for (size_t i = 0; i < n; i++)
        nd_exact_add(&sum, values[i]);
    return sum;
}

static void assert_text(const struct nd_exact_sum *sum, const char *expected)
{
    char *text = nd_exact_format(sum);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

/* The same value, however it is looked at. */
static void assert_equal(const struct nd_exact_sum *a, const struct nd_exact_sum *b)
{
    char *text = nd_exact_format(b);
    assert_non_null(text);
    assert_text(a, text);
    assert_f64_bits(nd_exact_round(a), nd_exact_round(b));
    free(text);
}

static void check_line(char *line)
{
    enum { MAX_VALUES = 128 };
    double values[MAX_VALUES];
    size_t n = 0;
    char *rest, *text;
    double rounded = from_bits(strtoull(strtok_r(line, " \n", &rest), NULL, 16));
    const char *expected = strtok_r(NULL, " \n", &rest);
    assert_non_null(expected);
    while ((text = strtok_r(NULL, " \n", &rest)) != NULL) {
        assert_true(n < MAX_VALUES);
        values[n++] = from_bits(strtoull(text, NULL, 16));
    }
    struct nd_exact_sum sum = sum_of(values, n), parsed;
    assert_f64_bits(nd_exact_round(&sum), rounded);
    assert_text(&sum, expected);
    assert_true(nd_exact_parse(expected, &parsed));
    assert_equal(&parsed, &sum);
}

static void sums_match_the_oracle(void **state)
{
    (void)state;
    char path[4096], *line = NULL;
    size_t size = 0, n_lines = 0;
    snprintf(path, sizeof path, "%s/oracle/exact_sum.txt", getenv("GOLDEN"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (getline(&line, &size, file) > 0)
        if (line[0] != '#') {
            check_line(line);
            n_lines++;
        }
    free(line);
    fclose(file);
    assert_true(n_lines > 300);
}

static void sum_of_nothing_is_zero(void **state)
{
    (void)state;
    struct nd_exact_sum sum = {0};
    assert_f64_bits(nd_exact_round(&sum), 0.0);
    assert_text(&sum, "0");
    nd_exact_add(&sum, -0.0);
    assert_f64_bits(nd_exact_round(&sum), 0.0);
    nd_exact_add(&sum, -3);
    assert_text(&sum, "-3p0");
    nd_exact_add(&sum, 3);
    assert_f64_bits(nd_exact_round(&sum), 0.0);
    assert_text(&sum, "0");
}

static void order_and_parts_do_not_matter(void **state)
{
    (void)state;
    enum { N = 300, PARTS = 7 };
    uint64_t seed = random_seed();
    double values[N];
    for (int round = 0; round < 50; round++) {
        for (size_t i = 0; i < N; i++)
            values[i] = i % 3 == 2 ? -values[i - 1 - i % 2] : random_double(&seed);
        struct nd_exact_sum whole = sum_of(values, N), parts[PARTS] = {0}, merged = {0};
        for (size_t i = N - 1; i > 0; i--) {
            size_t k = next_random(&seed) % (i + 1);
            double kept = values[i];
            values[i] = values[k];
            values[k] = kept;
        }
        for (size_t i = 0; i < N; i++)
            nd_exact_add(&parts[next_random(&seed) % PARTS], values[i]);
        for (size_t i = 0; i < PARTS; i++)
            nd_exact_merge(&merged, &parts[(i * 3 + 1) % PARTS]);
        struct nd_exact_sum shuffled = sum_of(values, N);
        assert_equal(&shuffled, &whole);
        assert_equal(&merged, &whole);
        for (size_t i = 0; i < N; i++)
            nd_exact_add(&merged, -values[i]);
        assert_text(&merged, "0");
    }
}

/* Doubling by merging a sum with itself passes every limit at which limbs carry. */
static void room_is_enough_for_2_to_the_60_additions(void **state)
{
    (void)state;
    static const double values[] = {0x1.fffffffffffffp1023, 0x1p-1074, 0x1.fffffffffffffp-30};
    for (size_t i = 0; i < 3; i++)
        for (int sign = -1; sign < 2; sign += 2) {
            double value = sign * values[i];
            struct nd_exact_sum sum = sum_of(&value, 1);
            for (int k = 0; k < 60; k++)
                nd_exact_merge(&sum, &sum);
            double expected = ldexp(value, 60);
            assert_f64_bits(nd_exact_round(&sum), expected);
            char *text = nd_exact_format(&sum);
            struct nd_exact_sum parsed;
            assert_true(nd_exact_parse(text, &parsed));
            assert_text(&parsed, text);
            free(text);
            value = -value;
            struct nd_exact_sum opposite = sum_of(&value, 1);
            for (int k = 0; k < 60; k++)
                nd_exact_merge(&opposite, &opposite);
            nd_exact_merge(&sum, &opposite);
            assert_text(&sum, "0");
        }
}

static void many_small_additions_carry(void **state)
{
    (void)state;
    enum { N = 3000000 };
    double value = 0x1.fffffffffffffp0;
    struct nd_exact_sum sum = {0};
    sum.n_pending = ((uint64_t)1 << 29) - N / 2; /* as if it had taken up that many zeros */
    for (size_t i = 0; i < N; i++)
        nd_exact_add(&sum, value);
    nd_exact_add(&sum, -2.0 * N);
    nd_exact_add(&sum, 0x1p-52 * N);
    assert_text(&sum, "0");
}

static void special_values_decide(void **state)
{
    (void)state;
    const double inf = HUGE_VAL;
    struct nd_exact_sum sum = {0}, parsed;
    nd_exact_add(&sum, 2.5);
    nd_exact_add(&sum, inf);
    assert_f64_bits(nd_exact_round(&sum), inf);
    assert_text(&sum, "5p-1,inf=1");
    nd_exact_add(&sum, inf);
    nd_exact_add(&sum, -2.5);
    assert_text(&sum, "0,inf=2");
    struct nd_exact_sum other = {0};
    nd_exact_add(&other, -inf);
    assert_f64_bits(nd_exact_round(&other), -inf);
    nd_exact_merge(&other, &sum);
    assert_true(isnan(nd_exact_round(&other)));
    assert_text(&other, "0,inf=2,-inf=1");
    nd_exact_add(&other, -(double)NAN);
    assert_true(isnan(nd_exact_round(&other)));
    assert_text(&other, "0,nan=1,inf=2,-inf=1");
    assert_true(nd_exact_parse("0,nan=1,inf=2,-inf=1", &parsed));
    assert_text(&parsed, "0,nan=1,inf=2,-inf=1");
}

static void malformed_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        " ",
        "-",
        "00",
        "-0",
        "0p0",
        "p0",
        "1",
        "1p",
        "1p-",
        "2p0",
        "10p0",
        "01p0",
        "+1p0",
        "1P0",
        "Ap0",
        "Bp1",
        "1p+0",
        "1p-0",
        "1p00",
        "1p01",
        "1p0 ",
        " 1p0",
        "1p0\n",
        "1p-1075",
        "1p1084",
        "3p1083",
        "1p99999999999999999999",
        "1p-99999999999999999999",
        "0x1p0",
        "1p0x",
        "1.p0",
        "--1p0",
        "nan",
        "inf",
        "1p0,",
        "1p0,nan",
        "1p0,nan=",
        "1p0,nan=0",
        "1p0,nan=01",
        "1p0,nan=-1",
        "1p0,inf=1,nan=1",
        "1p0,-inf=1,inf=1",
        "1p0,nan=1,nan=1",
        "1p0,nan=1152921504606846977",
        "1p0,nan=99999999999999999999",
        "1p0nan=1",
        ",nan=1",
        "0,",
        "1p0,inf=1 ",
        "1p0,foo=1",
    };
    struct nd_exact_sum sum, before;
    memset(&sum, 0x5a, sizeof sum);
    before = sum;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        if (nd_exact_parse(texts[i], &sum))
            fail_msg("'%s' was accepted", texts[i]);
        assert_memory_equal(&sum, &before, sizeof sum);
    }
    /* Ends of the range. */
    assert_true(nd_exact_parse("1p-1074", &sum));
    assert_true(nd_exact_parse("-1p1083", &sum));
    assert_text(&sum, "-1p1083");
    assert_true(nd_exact_parse("1p0,nan=1152921504606846976", &sum));
    /* More digits than there is room for. */
    char *digits = malloc(5001);
    assert_non_null(digits);
    memset(digits, '1', 4990);
    strcpy(digits + 4990, "p-1074");
    assert_false(nd_exact_parse(digits, &sum));
    /* As many as there are: 2158 bits. */
    memset(digits, 'f', 540);
    digits[0] = '3';
    strcpy(digits + 540, "p-1074");
    assert_true(nd_exact_parse(digits, &sum));
    assert_text(&sum, digits);
    digits[0] = '4';
    assert_false(nd_exact_parse(digits, &sum));
    free(digits);
}

/* Whatever is accepted is what would have been written. */
static void damaged_texts_are_refused_or_canonical(void **state)
{
    (void)state;
    static const char letters[] = "0123456789abcdefp-,=nanif \1";
    uint64_t seed = random_seed();
    size_t n_accepted = 0;
    for (int round = 0; round < 20000; round++) {
        double values[3] = {random_double(&seed), ldexp(random_double(&seed), 5), 1};
        struct nd_exact_sum sum = sum_of(values + next_random(&seed) % 3, 1), parsed;
        char *text = nd_exact_format(&sum);
        for (uint64_t k = next_random(&seed) % 3; k > 0; k--)
            text[next_random(&seed) % strlen(text)] = letters[next_random(&seed) % (sizeof letters - 1)];
        if (nd_exact_parse(text, &parsed)) {
            assert_text(&parsed, text);
            n_accepted++;
        }
        free(text);
    }
    assert_true(n_accepted > 5000 && n_accepted < 20000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_match_the_oracle),
        cmocka_unit_test(sum_of_nothing_is_zero),
        cmocka_unit_test(order_and_parts_do_not_matter),
        cmocka_unit_test(room_is_enough_for_2_to_the_60_additions),
        cmocka_unit_test(many_small_additions_carry),
        cmocka_unit_test(special_values_decide),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(damaged_texts_are_refused_or_canonical),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
