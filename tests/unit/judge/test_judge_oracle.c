/* The statistics of the judge against golden/oracle/judge.txt, line by line. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/main.h"

#include "core/statistics/distributions.h"
#include "core/statistics/evidence.h"

enum { MAX_LIST = 16 };

static void assert_within(double actual, double expected, double relative)
{
    double gap = fabs(actual - expected);
    if (!(gap <= relative * fabs(expected) + 1e-300))
        fail_msg("%.17g instead of %.17g", actual, expected);
}

static double next_double(char **at)
{
    uint64_t bits = strtoull(*at, at, 16);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static uint64_t next_count(char **at)
{
    return strtoull(*at, at, 10);
}

static bool next_word(char **at, const char *word)
{
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0 || (*at)[n] != ' ')
        return false;
    *at += n + 1;
    return true;
}

static void check_interval(struct nd_interval actual, char **at)
{
    double low = next_double(at), high = next_double(at);
    assert_within(actual.low, low, 1e-9);
    assert_within(actual.high, high, 1e-9);
}

/* Newcombe's interval is a difference of numbers as large as 1. */
static void check_second_opinion(struct nd_interval actual, char **at)
{
    double low = next_double(at), high = next_double(at);
    assert_true(fabs(actual.low - low) <= 1e-14 && fabs(actual.high - high) <= 1e-14);
}

static void check_paired(char *at)
{
    uint64_t counts[4];
    for (size_t i = 0; i < 4; i++)
        counts[i] = next_count(&at);
    struct nd_paired table = {counts[0], counts[1], counts[2], counts[3]};
    double confidence = next_double(&at);
    check_interval(nd_paired_tango(&table, confidence), &at);
    check_second_opinion(nd_paired_newcombe(&table, confidence), &at);
}

static void check_proportion(char *at)
{
    uint64_t k = next_count(&at), n = next_count(&at);
    double confidence = next_double(&at);
    check_interval(nd_clopper_pearson(k, n, confidence), &at);
    check_interval(nd_wilson(k, n, confidence), &at);
}

static void check_needed(char *at)
{
    struct nd_paired_question question = {.kind = ND_QUESTION_NONINFERIOR};
    if (next_word(&at, "equivalent"))
        question.kind = ND_QUESTION_EQUIVALENT;
    else
        assert_true(next_word(&at, "non-inferior"));
    question.margin = next_double(&at);
    question.alpha = next_double(&at);
    question.power = next_double(&at);
    double discordant = next_double(&at);
    assert_int_equal(nd_samples_needed(&question, discordant), next_count(&at));
}

static void check_adjust(char *at)
{
    double p[MAX_LIST], adjusted[MAX_LIST];
    assert_true(next_word(&at, "holm"));
    size_t n = next_count(&at);
    assert_true(n <= MAX_LIST);
    for (size_t i = 0; i < n; i++)
        p[i] = next_double(&at);
    nd_adjust_holm(p, n, adjusted);
    for (size_t i = 0; i < n; i++)
        assert_within(adjusted[i], next_double(&at), 1e-14);
}

static void check_mid_p(char *at)
{
    struct nd_paired table = {0};
    table.ref_only = next_count(&at);
    table.test_only = next_count(&at);
    assert_within(nd_paired_p_value(&table), next_double(&at), 1e-9);
}

static void check_log_e(char *at)
{
    uint64_t b = next_count(&at), c = next_count(&at);
    double actual = nd_log_e_value(b, c), expected = next_double(&at);
    assert_true(fabs(actual - expected) <= 1e-13 + 1e-15 * fabs(expected));
    assert_f64_bits(actual, nd_log_e_value(c, b));
}

static void check_quantile(char *at)
{
    double p = next_double(&at);
    assert_within(nd_normal_quantile(p), next_double(&at), 1e-14);
}

static const struct {
    const char *name;
    void (*check)(char *at);
    size_t n_min;
} kinds[] = {
    {"paired", check_paired, 70}, {"proportion", check_proportion, 70}, {"mid_p", check_mid_p, 10},
    {"log_e", check_log_e, 12},   {"quantile", check_quantile, 15},     {"needed", check_needed, 70},
    {"adjust", check_adjust, 5},
};

enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

static void check_kind(size_t kind)
{
    char path[4096], line[4096];
    snprintf(path, sizeof path, "%s/oracle/judge.txt", getenv("GOLDEN"));
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    size_t n = 0;
    while (fgets(line, sizeof line, file) != NULL) {
        char *at = line;
        if (!next_word(&at, kinds[kind].name))
            continue;
        kinds[kind].check(at);
        n++;
    }
    fclose(file);
    assert_true(n >= kinds[kind].n_min);
}

#define KIND_TEST(name, kind)                                                                                  \
    static void name##_match_the_oracle(void **state)                                                          \
    {                                                                                                          \
        (void)state;                                                                                           \
        check_kind(kind);                                                                                      \
    }

KIND_TEST(intervals_of_differences, 0)
KIND_TEST(intervals_of_proportions, 1)
KIND_TEST(p_values, 2)
KIND_TEST(e_values, 3)
KIND_TEST(normal_quantiles, 4)
KIND_TEST(sample_sizes, 5)
KIND_TEST(adjusted_p_values, 6)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(intervals_of_differences_match_the_oracle),
        cmocka_unit_test(intervals_of_proportions_match_the_oracle),
        cmocka_unit_test(p_values_match_the_oracle),
        cmocka_unit_test(e_values_match_the_oracle),
        cmocka_unit_test(normal_quantiles_match_the_oracle),
        cmocka_unit_test(sample_sizes_match_the_oracle),
        cmocka_unit_test(adjusted_p_values_match_the_oracle),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
