/* Evidence that may be looked at all the time. */
#include <math.h>
#include <stdio.h>

#include "support/judge_study.h"
#include "support/main.h"

static void evidence_starts_at_one(void **state)
{
    (void)state;
    struct nd_sequential_evidence evidence = {0};
    assert_f64_bits(nd_log_e_value(0, 0), 0);
    assert_false(nd_evidence_suffices(&evidence, ND_EVIDENCE_STOP));
    assert_f64_bits(evidence.log_e_max, 0);
    nd_evidence_add(&evidence, true);
    assert_true(fabs(evidence.log_e) < 1e-15); /* one flip is no evidence */
    assert_int_equal(evidence.test_only, 1);
    assert_int_equal(evidence.ref_only, 0);
}

/* The next flip multiplies E by twice its predicted probability. */
static void evidence_is_a_bet_on_the_next_flip(void **state)
{
    (void)state;
    for (uint64_t b = 0; b < 60; b++)
        for (uint64_t c = 0; c < 60; c++) {
            double n = (double)(b + c), now = nd_log_e_value(b, c);
            double gain = log(2 * ((double)b + 0.5) / (n + 1));
            assert_true(fabs(nd_log_e_value(b + 1, c) - now - gain) < 1e-13);
            /* A fair coin leaves it as it is on average. */
            double mean = (exp(nd_log_e_value(b + 1, c)) + exp(nd_log_e_value(b, c + 1))) / 2;
            assert_true(fabs(mean - exp(now)) < 1e-12 * exp(now));
        }
}

static void evidence_grows_with_imbalance(void **state)
{
    (void)state;
    for (uint64_t n = 1; n < 200; n += 7)
        for (uint64_t b = 0; 2 * (b + 1) <= n; b++)
            assert_true(nd_log_e_value(b, n - b) > nd_log_e_value(b + 1, n - b - 1));
    assert_true(nd_log_e_value(500000000, 500000000) < -9);
    assert_true(nd_log_e_value(0, 1000000000) > 6.9e8);
}

static void evidence_keeps_its_largest_value(void **state)
{
    (void)state;
    struct nd_sequential_evidence evidence = {0};
    for (size_t i = 0; i < 8; i++)
        nd_evidence_add(&evidence, false);
    assert_true(nd_evidence_suffices(&evidence, ND_EVIDENCE_STOP));
    double largest = evidence.log_e_max;
    for (size_t i = 0; i < 8; i++)
        nd_evidence_add(&evidence, true);
    assert_true(evidence.log_e < 0);
    assert_true(nd_evidence_suffices(&evidence, ND_EVIDENCE_STOP));
    assert_f64_bits(evidence.log_e_max, largest);
    assert_true(largest > log(20));
}

static void false_alarms_are_as_rare_as_promised(void **state)
{
    (void)state;
    uint64_t seed = 3, n_alarms = 0, n_found = 0, sum = 0;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < 1000; i++) {
        n_alarms += study_stop(0.5, 1000, &seed) > 0;
        uint64_t at = study_stop(0.65, 1000, &seed);
        n_found += at > 0;
        sum += at;
    }
    assert_true(n_alarms <= 50);
    assert_true(n_found >= 999);
    assert_in_range(sum / 1000, 100, 120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(evidence_starts_at_one),
        cmocka_unit_test(evidence_is_a_bet_on_the_next_flip),
        cmocka_unit_test(evidence_grows_with_imbalance),
        cmocka_unit_test(evidence_keeps_its_largest_value),
        cmocka_unit_test(false_alarms_are_as_rare_as_promised),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
