/* The histogram of sizes: its bins, its quantiles against sorting, its text. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/metrics/kernels/kernels.h"
#include "compare/metrics/kernels/log_histogram.h"

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

/* The lower edge of a value's bin by the words of docs/reference/metrics.md: 1 + k/64 times a power of two.
 */
static double edge_of(double value)
{
    int power;
    if (value == 0 || isinf(value))
        return value;
    if (value < 0x1p-1022)
        return ldexp(floor(ldexp(value, 1028)), -1028);
    double fraction = 2 * frexp(value, &power); /* in [1, 2) */
    return ldexp(floor(64 * fraction) / 64, power - 1);
}

static double random_size(uint64_t *seed)
{
    uint64_t method = next_random(seed) % 16, bits = next_random(seed) >> 12;
    if (method == 0)
        return 0;
    if (method == 1)
        return HUGE_VAL;
    if (method < 5)
        return (double)(bits % 200);
    if (method == 5)
        return ldexp((double)bits, -1074);
    int power = (int)(next_random(seed) % (method < 8 ? 2046 : 12)) - (method < 8 ? 1022 : 6);
    return ldexp(1 + ldexp((double)bits, -52), power);
}

static int compare_doubles(const void *a, const void *b)
{
    const double *x = a, *y = b;
    return (*x > *y) - (*x < *y);
}

static void assert_text(const struct nd_log_histogram *h, const char *expected)
{
    char *text = nd_log_histogram_format(h);
    assert_non_null(text);
    assert_string_equal(text, expected);
    free(text);
}

static void value_lies_in_its_bin(void **state)
{
    (void)state;
    static const double values[] = {
        0,         0x1p-1074, 0x1.fffffffffffffp-1029, 0x1p-1028, 0x0.fffffffffffffp-1022,
        0x1p-1022, 1,         0x1.fffffffffffffp0,     127,       127.5,
        128,       0.1,       0x1.fffffffffffffp1023,  HUGE_VAL};
    uint64_t seed = random_seed();
    for (size_t i = 0; i < 20000; i++) {
        double value = i < sizeof values / sizeof values[0] ? values[i] : random_size(&seed);
        struct nd_log_histogram h = {0};
        nd_log_histogram_add(&h, value);
        double edge = nd_log_histogram_quantile(&h, 1, 2, 0);
        assert_f64_bits(edge, edge_of(value));
        assert_true(edge <= value && (value - edge <= value / 64 || value < 0x1p-1022 || isinf(value)));
        assert_true(value > 127 || value != floor(value) || edge == value);
        assert_int_equal(nd_log_histogram_count(&h), 1);
        nd_log_histogram_deinit(&h);
    }
}

static void minus_zero_is_zero(void **state)
{
    (void)state;
    struct nd_log_histogram h = {0};
    nd_log_histogram_add(&h, -0.0);
    assert_text(&h, "z1");
    nd_log_histogram_deinit(&h);
}

static void quantiles_match_sorting(void **state)
{
    (void)state;
    enum { MAX_N = 300 };
    static const uint32_t num[] = {0, 1, 1, 99, 999, 1, 4294967294u, 7},
                          den[] = {1, 2, 1, 100, 1000, 3, 4294967295u, 9};
    uint64_t seed = random_seed();
    double values[MAX_N];
    for (int round = 0; round < 300; round++) {
        size_t n = next_random(&seed) % MAX_N, n_extra = next_random(&seed) % 3 * (next_random(&seed) % 50);
        n = n + n_extra > MAX_N ? MAX_N - n_extra : n;
        struct nd_log_histogram h = {0};
        for (size_t i = 0; i < n; i++) {
            values[i] = random_size(&seed);
            nd_log_histogram_add(&h, values[i]);
        }
        memset(values + n, 0, n_extra * sizeof values[0]);
        n += n_extra;
        qsort(values, n, sizeof values[0], compare_doubles);
        for (size_t q = 0; q < 8; q++) {
            double got = nd_log_histogram_quantile(&h, num[q], den[q], n_extra);
            size_t rank = (num[q] * (uint64_t)n + den[q] - 1) / den[q];
            assert_f64_bits(got, n == 0 ? 0 : edge_of(values[rank > 0 ? rank - 1 : 0]));
        }
        nd_log_histogram_deinit(&h);
    }
}

/* Ranks that a double cannot tell apart, and products beyond 64 bits. */
static void ranks_are_exact_for_large_counts(void **state)
{
    (void)state;
    struct nd_log_histogram h = {0};
    uint64_t half = (uint64_t)1 << 62;
    nd_log_histogram_add_many(&h, 1, half);
    nd_log_histogram_add_many(&h, 2, half);
    assert_true(nd_log_histogram_count(&h) == 2 * half);
    assert_f64_bits(nd_log_histogram_quantile(&h, 1, 2, 0), 1);
    assert_f64_bits(nd_log_histogram_quantile(&h, 2147483648u, 4294967295u, 0), 2);
    assert_f64_bits(nd_log_histogram_quantile(&h, 4294967295u, 4294967295u, 0), 2);
    nd_log_histogram_deinit(&h);
    nd_log_histogram_add_many(&h, 1, half - 1);
    nd_log_histogram_add_many(&h, 2, half + 1);
    assert_f64_bits(nd_log_histogram_quantile(&h, 1, 2, 0), 2);
    nd_log_histogram_deinit(&h);
    nd_log_histogram_add(&h, 3);
    assert_f64_bits(nd_log_histogram_quantile(&h, 99, 100, ((uint64_t)1 << 63) - 1), 0);
    assert_f64_bits(nd_log_histogram_quantile(&h, 1, 1, ((uint64_t)1 << 63) - 1), 3);
    nd_log_histogram_deinit(&h);
}

static void order_and_parts_do_not_matter(void **state)
{
    (void)state;
    enum { PARTS = 5 };
    uint64_t seed = random_seed();
    for (int round = 0; round < 20; round++) {
        struct nd_log_histogram whole = {0}, parts[PARTS] = {0}, merged = {0}, parsed;
        for (int i = 0; i < 500; i++) {
            double value = random_size(&seed);
            uint64_t n = next_random(&seed) % 4;
            nd_log_histogram_add_many(&whole, value, n);
            for (uint64_t k = 0; k < n; k++)
                nd_log_histogram_add(&parts[next_random(&seed) % PARTS], value);
        }
        for (size_t i = 0; i < PARTS; i++) {
            nd_log_histogram_merge(&merged, &parts[PARTS - 1 - i]);
            nd_log_histogram_deinit(&parts[PARTS - 1 - i]);
        }
        char *text = nd_log_histogram_format(&whole);
        assert_non_null(text);
        assert_text(&merged, text);
        assert_true(nd_log_histogram_parse(text, &parsed));
        assert_text(&parsed, text);
        assert_true(nd_log_histogram_count(&parsed) == nd_log_histogram_count(&whole));
        free(text);
        nd_log_histogram_deinit(&parsed);
        nd_log_histogram_deinit(&merged);
        nd_log_histogram_deinit(&whole);
    }
}

static void text_is_as_documented(void **state)
{
    (void)state;
    struct nd_log_histogram h = {0};
    assert_text(&h, "0");
    nd_log_histogram_add_many(&h, 1, 0);
    assert_text(&h, "0");
    nd_log_histogram_add_many(&h, 1, 12);
    nd_log_histogram_add_many(&h, 1 + 1.0 / 64, 3);
    nd_log_histogram_add(&h, 2);
    assert_text(&h, "ffc0:12,3;10000:1");
    nd_log_histogram_add_many(&h, 0, 5);
    nd_log_histogram_add(&h, HUGE_VAL);
    nd_log_histogram_add(&h, 0x1p-1074);
    nd_log_histogram_add(&h, 0x1.fffffffffffffp1023);
    assert_text(&h, "z5;i1;0:1;ffc0:12,3;10000:1;1ffbf:1");
    nd_log_histogram_deinit(&h);
    /* A run goes on over the end of a page. */
    nd_log_histogram_add(&h, 0x1.fcp0);
    nd_log_histogram_add(&h, 2);
    assert_text(&h, "ffff:1,1");
    nd_log_histogram_deinit(&h);
}

static void malformed_texts_are_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        ";",
        "00",
        "0;",
        ";0",
        "z",
        "z0",
        "z01",
        "z1;",
        ";z1",
        "z1;;i1",
        "i1;z1",
        "z1;z1",
        "i1;i1",
        "z-1",
        "Z1",
        "0;z1",
        "z1;0",
        "0:",
        "0:0",
        "0:01",
        "00:1",
        ":1",
        "1:1,",
        "1:1,,1",
        "1:,1",
        "1:1,0",
        "1:1;1:1",
        "1:1;0:1",
        "1:1;2:1",
        "1:1,1;3:1",
        "1ffc0:1",
        "1ffbf:1,1",
        "20000:1",
        "100000:1",
        "FFC0:1",
        "1:1\n",
        "1:1;2:1",
        "1:1x",
        "ffc0",
        "1:9223372036854775809",
        "1:9223372036854775808,1",
        "z9223372036854775808;i1",
        "1:99999999999999999999",
        "z1,2",
        "1:1;z1",
        "1:1;i1",
        "1:9223372036854775807,9",
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct nd_log_histogram h;
        memset(&h, 0x5a, sizeof h);
        if (nd_log_histogram_parse(texts[i], &h))
            fail_msg("'%s' was accepted", texts[i]);
        assert_text(&h, "0");
    }
    static const char *const good[] = {"0",
                                       "z1",
                                       "i1",
                                       "z9223372036854775808",
                                       "0:1",
                                       "1ffbf:1",
                                       "1:1;3:1",
                                       "1:9223372036854775807,1",
                                       "z1;i2;0:3,4;1ffbf:10"};
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        struct nd_log_histogram h;
        assert_true(nd_log_histogram_parse(good[i], &h));
        assert_text(&h, good[i]);
        nd_log_histogram_deinit(&h);
    }
}

/* Whatever is accepted is what would have been written. */
static void damaged_texts_are_refused_or_canonical(void **state)
{
    (void)state;
    static const char letters[] = "0123456789abcdef:,; zi\1";
    uint64_t seed = random_seed();
    size_t n_accepted = 0;
    for (int round = 0; round < 5000; round++) {
        struct nd_log_histogram h = {0}, parsed;
        for (int i = 0; i < 6; i++)
            nd_log_histogram_add(&h, random_size(&seed));
        char *text = nd_log_histogram_format(&h);
        for (uint64_t k = next_random(&seed) % 3; k > 0; k--)
            text[next_random(&seed) % strlen(text)] = letters[next_random(&seed) % (sizeof letters - 1)];
        if (nd_log_histogram_parse(text, &parsed)) {
            assert_text(&parsed, text);
            n_accepted++;
        }
        free(text);
        nd_log_histogram_deinit(&parsed);
        nd_log_histogram_deinit(&h);
    }
    assert_true(n_accepted > 1000 && n_accepted < 5000);
}

static void failure_stays_and_spreads(void **state)
{
    (void)state;
    struct nd_log_histogram h = {0}, failed = {.failed = true};
    nd_log_histogram_add(&h, 1);
    assert_null(nd_log_histogram_format(&failed));
    nd_log_histogram_merge(&h, &failed);
    assert_true(h.failed);
    assert_null(nd_log_histogram_format(&h));
    nd_log_histogram_deinit(&h);
    assert_false(h.failed);
}

/* The listed values, or with `list` NULL all, by their slots; what is in slot 0 one by one. */
static void add_by_slots(struct nd_log_histogram *h, const struct nd_slots *slots, const double *values,
                         const uint16_t *list, size_t n)
{
    uint64_t n_low, n_expected = 0;
    assert_true(nd_log_histogram_add_slots(h, slots, list, n, &n_low));
    for (size_t k = 0; k < n; k++) {
        double value = values[list != NULL ? list[k] : k];
        n_expected += value < ND_SLOT_FIRST;
        if (value < ND_SLOT_FIRST)
            nd_log_histogram_add(h, value);
    }
    assert_int_equal(n_low, n_expected);
}

/* Blocks of values of which many are 0, on every instruction set: sizes as they are met, and from end to end.
 */
static void slots_of_a_block_count_as_its_values(void **state)
{
    (void)state;
    enum { ROUNDS = 300 };
    static double values[ND_BLOCK], none[ND_BLOCK];
    static uint16_t list[ND_BLOCK];
    static struct nd_error_values errors;
    struct nd_diff_sums sums;
    const struct nd_kernels *const *kernels;
    size_t n_kernels = nd_kernels_available(&kernels), n_taken = 0;
    uint64_t seed = random_seed();
    struct nd_log_histogram wanted = {0}, found = {0};
    for (size_t round = 0; round < ROUNDS; round++) {
        size_t n = 1 + next_random(&seed) % ND_BLOCK, n_listed = 0;
        int spread = round % 3 == 0 ? 200 : 40;
        for (size_t i = 0; i < n; i++) {
            int power = (int)(next_random(&seed) % (uint64_t)spread) - spread / 2;
            double value = ldexp(1 + (double)(next_random(&seed) >> 12) * 0x1p-52, power);
            values[i] = next_random(&seed) % 20 == 0 ? 0 : value;
            if (next_random(&seed) % 3 > 0)
                list[n_listed++] = (uint16_t)i;
        }
        for (size_t k = 0; k < n_kernels; k++) {
            const uint16_t *listed = round % 2 == 0 ? list : NULL;
            size_t n_added = listed != NULL ? n_listed : n;
            kernels[k]->errors(none, values, n, &errors, &sums);
            if (!(errors.max_absolute < ND_SLOT_END))
                continue;
            const struct nd_slots slots = {errors.absolute, errors.absolute_folders};
            add_by_slots(&found, &slots, values, listed, n_added);
            for (size_t i = 0; i < n_added; i++)
                nd_log_histogram_add(&wanted, values[listed != NULL ? listed[i] : i]);
            n_taken++;
        }
        if (round % 50 != 49)
            continue;
        char *text = nd_log_histogram_format(&wanted), *other = nd_log_histogram_format(&found);
        assert_string_equal(other, text);
        free(text);
        free(other);
        nd_log_histogram_deinit(&wanted);
        nd_log_histogram_deinit(&found);
    }
    assert_true(n_taken > n_kernels * ROUNDS / 2); /* some are too large */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(value_lies_in_its_bin),
        cmocka_unit_test(minus_zero_is_zero),
        cmocka_unit_test(quantiles_match_sorting),
        cmocka_unit_test(ranks_are_exact_for_large_counts),
        cmocka_unit_test(order_and_parts_do_not_matter),
        cmocka_unit_test(text_is_as_documented),
        cmocka_unit_test(malformed_texts_are_refused),
        cmocka_unit_test(damaged_texts_are_refused_or_canonical),
        cmocka_unit_test(failure_stays_and_spreads),
        cmocka_unit_test(slots_of_a_block_count_as_its_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
