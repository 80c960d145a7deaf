/* Putting verdicts together: one order, wherever it is asked for, over all pairs. */
#include "support/main.h"

#include "judge/release/qualify.h"
#include "npudiff/compare/compare.h"

/* From the mildest to the most severe. */
static const enum nd_exit exits[] = {ND_EXIT_SAME,           ND_EXIT_INCONCLUSIVE,  ND_EXIT_DIFFERS,
                                     ND_EXIT_NOT_COMPARABLE, ND_EXIT_DEVICE_FAILED, ND_EXIT_TROUBLE};
static const enum nd_verdict verdicts[] = {ND_VERDICT_SAME,           ND_VERDICT_WITHIN,
                                           ND_VERDICT_INCONCLUSIVE,   ND_VERDICT_DIFFERS,
                                           ND_VERDICT_NOT_COMPARABLE, ND_VERDICT_FAILED};
static const enum nd_case_verdict cases[] = {ND_CASE_PASSED, ND_CASE_WARNED,         ND_CASE_INCONCLUSIVE,
                                             ND_CASE_FAILED, ND_CASE_NOT_COMPARABLE, ND_CASE_DEVICE_FAILED};

static void failure_outranks_inconclusive(void **state)
{
    (void)state;
    assert_int_equal(nd_exit_worse(ND_EXIT_INCONCLUSIVE, ND_EXIT_DIFFERS), ND_EXIT_DIFFERS);
    assert_int_equal(nd_verdict_worse(ND_VERDICT_INCONCLUSIVE, ND_VERDICT_DIFFERS), ND_VERDICT_DIFFERS);
    assert_int_equal(nd_case_verdict_worse(ND_CASE_INCONCLUSIVE, ND_CASE_FAILED), ND_CASE_FAILED);
}

static void every_pair_has_the_more_severe(void **state)
{
    (void)state;
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++) {
            size_t worse = a > b ? a : b;
            assert_int_equal(nd_exit_worse(exits[a], exits[b]), exits[worse]);
            assert_int_equal(nd_verdict_worse(verdicts[a], verdicts[b]), verdicts[worse]);
            assert_int_equal(nd_case_verdict_worse(cases[a], cases[b]), cases[worse]);
        }
}

static void verdicts_agree_with_their_exit_codes(void **state)
{
    (void)state;
    for (size_t a = 0; a < 6; a++)
        for (size_t b = 0; b < 6; b++) {
            enum nd_exit of_verdicts =
                nd_exit_worse(nd_verdict_exit_code(verdicts[a]), nd_verdict_exit_code(verdicts[b]));
            enum nd_exit of_cases = nd_exit_worse(nd_case_exit_code(cases[a]), nd_case_exit_code(cases[b]));
            assert_int_equal(nd_verdict_exit_code(nd_verdict_worse(verdicts[a], verdicts[b])), of_verdicts);
            assert_int_equal(nd_case_exit_code(nd_case_verdict_worse(cases[a], cases[b])), of_cases);
        }
}

static void unknown_number_is_as_severe_as_trouble(void **state)
{
    (void)state;
    assert_int_equal(nd_exit_worse(ND_EXIT_DEVICE_FAILED, (enum nd_exit)77), 77);
    assert_int_equal(nd_exit_worse((enum nd_exit)77, ND_EXIT_SAME), 77);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(failure_outranks_inconclusive),
        cmocka_unit_test(every_pair_has_the_more_severe),
        cmocka_unit_test(verdicts_agree_with_their_exit_codes),
        cmocka_unit_test(unknown_number_is_as_severe_as_trouble),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
