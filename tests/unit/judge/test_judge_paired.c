/* Differences of accuracies: edge cases, laws, verdicts, sample sizes, and how often they are right. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/judge_study.h"
#include "support/main.h"

#include "core/statistics/evidence.h"

static struct nd_paired_question question_of(enum nd_question_kind kind, double margin)
{
    return (struct nd_paired_question){kind, margin, ND_QUESTION_ALPHA, ND_QUESTION_POWER};
}

static struct nd_paired_answer ask(struct nd_paired table, enum nd_question_kind kind, double margin)
{
    struct nd_paired_question question = question_of(kind, margin);
    struct nd_paired_answer answer;
    nd_paired_ask(&table, &question, &answer);
    return answer;
}

static void no_sample_says_nothing(void **state)
{
    (void)state;
    struct nd_paired none = {0};
    assert_true(isnan(nd_paired_difference(&none)));
    assert_f64_bits(nd_paired_p_value(&none), 1);
    struct nd_interval tango = nd_paired_tango(&none, 0.95), newcombe = nd_paired_newcombe(&none, 0.95);
    assert_f64_bits(tango.low, -1);
    assert_f64_bits(tango.high, 1);
    assert_f64_bits(newcombe.low, -1);
    assert_f64_bits(newcombe.high, 1);
    struct nd_paired_answer answer = ask(none, ND_QUESTION_NONINFERIOR, 0.01);
    assert_int_equal(answer.kind, ND_ANSWER_INCONCLUSIVE);
    assert_f64_bits(answer.discordant, 1);
    struct nd_proportion share = nd_proportion_of(0, 0, 0.95);
    assert_true(isnan(share.share) && share.interval.low == 0 && share.interval.high == 1);
    struct nd_interval wilson = nd_wilson(0, 0, 0.95);
    assert_true(wilson.low == 0 && wilson.high == 1);
}

static void no_disagreement_leaves_what_was_not_seen(void **state)
{
    (void)state;
    struct nd_paired same = {500, 0, 0, 200};
    struct nd_interval tango = nd_paired_tango(&same, 0.95);
    assert_f64_bits(tango.low, -tango.high);
    assert_true(tango.high > 0.0054 && tango.high < 0.0055);
    struct nd_paired_answer answer = ask(same, ND_QUESTION_EQUIVALENT, 0.01);
    assert_int_equal(answer.kind, ND_ANSWER_YES);
    assert_true(answer.is_discordant_bound);
    assert_true(fabs(answer.discordant * 700 - 3) < 0.02);
    answer = ask(same, ND_QUESTION_NONINFERIOR, 0.001);
    assert_int_equal(answer.kind, ND_ANSWER_INCONCLUSIVE);
    assert_true(answer.n_needed > 36000 && answer.n_needed < 37000);
}

static void total_disagreement_reaches_the_end(void **state)
{
    (void)state;
    struct nd_paired lost = {0, 50, 0, 0};
    struct nd_interval tango = nd_paired_tango(&lost, 0.95);
    assert_f64_bits(nd_paired_difference(&lost), -1);
    assert_f64_bits(tango.low, -1);
    assert_true(tango.high < -0.85 && tango.high > -0.86);
    assert_int_equal(ask(lost, ND_QUESTION_NONINFERIOR, 0.01).kind, ND_ANSWER_NO);
    assert_int_equal(ask(lost, ND_QUESTION_EQUIVALENT, 0.01).kind, ND_ANSWER_NO);
    struct nd_paired won = {0, 0, 50, 0};
    assert_int_equal(ask(won, ND_QUESTION_NONINFERIOR, 0.01).kind, ND_ANSWER_YES);
    assert_int_equal(ask(won, ND_QUESTION_EQUIVALENT, 0.01).kind, ND_ANSWER_NO);
}

static struct nd_paired random_table(uint64_t *state)
{
    size_t n = 1 + nd_splitmix_below(state, 300);
    return (struct nd_paired){nd_splitmix_below(state, n), nd_splitmix_below(state, n),
                              nd_splitmix_below(state, n), nd_splitmix_below(state, n) + 1};
}

static void exchanged_sides_mirror(void **state)
{
    (void)state;
    uint64_t seed = 6;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < 2000; i++) {
        struct nd_paired t = random_table(&seed), m = {t.both_right, t.test_only, t.ref_only, t.both_wrong};
        struct nd_interval of_t = nd_paired_tango(&t, 0.95), of_m = nd_paired_tango(&m, 0.95);
        assert_f64_bits(of_t.low, -of_m.high);
        assert_f64_bits(of_t.high, -of_m.low);
        of_t = nd_paired_newcombe(&t, 0.95);
        of_m = nd_paired_newcombe(&m, 0.95);
        assert_true(fabs(of_t.low + of_m.high) < 1e-14 && fabs(of_t.high + of_m.low) < 1e-14);
        assert_f64_bits(nd_paired_p_value(&t), nd_paired_p_value(&m));
        struct nd_interval k = nd_wilson(t.ref_only, t.ref_only + t.test_only + 1, 0.9),
                           rest = nd_wilson(t.test_only + 1, t.ref_only + t.test_only + 1, 0.9);
        assert_true(fabs(k.low - (1 - rest.high)) < 1e-14);
    }
}

static void intervals_follow_counts_and_confidence(void **state)
{
    (void)state;
    uint64_t seed = 7;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < 2000; i++) {
        struct nd_paired t = random_table(&seed), more = t;
        more.both_wrong--;
        more.test_only++;
        struct nd_interval a = nd_paired_tango(&t, 0.95), b = nd_paired_tango(&more, 0.95),
                           wide = nd_paired_tango(&t, 0.99);
        double difference = nd_paired_difference(&t);
        assert_true(a.low < difference && difference < a.high);
        assert_true(b.low > a.low && b.high > a.high);
        assert_true(wide.low < a.low && wide.high > a.high);
        assert_true(wide.low >= -1 && wide.high <= 1);
        struct nd_paired tenfold = {10 * t.both_right, 10 * t.ref_only, 10 * t.test_only, 10 * t.both_wrong};
        struct nd_interval narrow = nd_paired_tango(&tenfold, 0.95);
        assert_true(narrow.high - narrow.low < a.high - a.low);
    }
    for (uint64_t n = 1; n < 40; n++)
        for (uint64_t k = 0; k < n; k++) {
            struct nd_interval a = nd_clopper_pearson(k, n, 0.95), b = nd_clopper_pearson(k + 1, n, 0.95);
            assert_true(b.low > a.low && b.high >= a.high && (k + 1 == n || b.high > a.high));
            assert_true(fabs(a.low - (1 - nd_clopper_pearson(n - k, n, 0.95).high)) < 1e-14);
        }
}

static void verdicts_are_read_off_the_interval(void **state)
{
    (void)state;
    struct nd_paired good = {700000, 10000, 10000, 280000}, bad = {690000, 40000, 0, 270000},
                     close = {500, 15, 12, 173};
    assert_int_equal(ask(good, ND_QUESTION_NONINFERIOR, 0.01).kind, ND_ANSWER_YES);
    assert_int_equal(ask(good, ND_QUESTION_EQUIVALENT, 0.01).kind, ND_ANSWER_YES);
    assert_int_equal(ask(bad, ND_QUESTION_NONINFERIOR, 0.01).kind, ND_ANSWER_NO);
    assert_int_equal(ask(bad, ND_QUESTION_EQUIVALENT, 0.01).kind, ND_ANSWER_NO);
    struct nd_paired_answer answer = ask(close, ND_QUESTION_NONINFERIOR, 0.01);
    assert_int_equal(answer.kind, ND_ANSWER_INCONCLUSIVE);
    assert_int_equal(answer.n_samples, 700);
    assert_true(answer.n_needed > 3000 && answer.n_needed < 3500);
    assert_false(answer.is_discordant_bound);
    assert_f64_bits(answer.confidence, 0.9);
    assert_string_equal(nd_answer_name(ND_QUESTION_NONINFERIOR, ND_ANSWER_NO), "inferior");
    assert_string_equal(nd_answer_name(ND_QUESTION_EQUIVALENT, ND_ANSWER_YES), "equivalent");
    assert_string_equal(nd_answer_name(ND_QUESTION_EQUIVALENT, ND_ANSWER_INCONCLUSIVE), "inconclusive");
}

static void sample_sizes_are_those_of_the_table(void **state)
{
    (void)state;
    static const double discordants[] = {0.002, 0.01, 0.02, 0.05}, margins[] = {0.01, 0.005, 0.001};
    static const uint64_t needed[][3] = {
        {172, 686, 17128}, {857, 3426, 85639}, {1713, 6852, 171277}, {4282, 17128, 428193}};
    for (size_t i = 0; i < 4; i++)
        for (size_t k = 0; k < 3; k++) {
            struct nd_paired_question question = question_of(ND_QUESTION_NONINFERIOR, margins[k]);
            assert_int_equal(nd_samples_needed(&question, discordants[i]), needed[i][k]);
        }
    struct nd_paired_question both = question_of(ND_QUESTION_EQUIVALENT, 0.01);
    assert_int_equal(nd_samples_needed(&both, 0.01), 1083); /* 10.8 */
    assert_int_equal(nd_samples_needed(&both, 0), 0);
    struct nd_paired_question tiny = question_of(ND_QUESTION_NONINFERIOR, 1e-12);
    assert_true(nd_samples_needed(&tiny, 1) == UINT64_MAX);
}

static void fewest_samples_are_the_fewest(void **state)
{
    (void)state;
    static const double margins[] = {0.9, 0.3, 0.05, 0.01, 0.0037, 1e-5};
    for (size_t i = 0; i < sizeof margins / sizeof margins[0]; i++) {
        struct nd_paired_question question = question_of(ND_QUESTION_NONINFERIOR, margins[i]);
        uint64_t n = nd_samples_min(&question);
        assert_int_equal(ask((struct nd_paired){n, 0, 0, 0}, ND_QUESTION_EQUIVALENT, margins[i]).kind,
                         ND_ANSWER_YES);
        if (n > 1)
            assert_int_equal(ask((struct nd_paired){n - 1, 0, 0, 0}, ND_QUESTION_NONINFERIOR, margins[i]).kind,
                             ND_ANSWER_INCONCLUSIVE);
    }
}

static void untested_p_values_do_not_count(void **state)
{
    (void)state;
    const double p[] = {NAN, 0.02, NAN, 0.03};
    double adjusted[4];
    nd_adjust_holm(p, 4, adjusted);
    assert_true(isnan(adjusted[0]) && isnan(adjusted[2]));
    assert_f64_bits(adjusted[3], 0.04); /* never below that of a smaller p-value */
    nd_adjust_holm(p, 0, adjusted);
}

static void intervals_cover_as_often_as_they_say(void **state)
{
    (void)state;
    uint64_t seed = 20, n_covered = 0, n_yes = 0, n_wrong_yes = 0;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct study study = {700, 0.1, -0.02}, equal = {1713, 0.02, 0}, worse = {1713, 0.02, -0.01};
    struct nd_paired_question question = question_of(ND_QUESTION_NONINFERIOR, 0.01);
    for (size_t i = 0; i < 2000; i++) {
        struct nd_paired table = study_draw(&study, &seed);
        struct nd_interval tango = nd_paired_tango(&table, 0.95);
        n_covered += study_is_within(&tango, study.difference);
        struct nd_paired_answer answer;
        table = study_draw(&equal, &seed);
        nd_paired_ask(&table, &question, &answer);
        n_yes += answer.kind == ND_ANSWER_YES;
        table = study_draw(&worse, &seed);
        nd_paired_ask(&table, &question, &answer);
        n_wrong_yes += answer.kind == ND_ANSWER_YES;
    }
    /* Four standard deviations: 0.5 %, 0.7 %, 0.5 %. */
    assert_in_range(n_covered, 1900 - 39, 1900 + 39);
    assert_true(n_yes > 1740);
    assert_true(n_wrong_yes < 140);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_sample_says_nothing),
        cmocka_unit_test(no_disagreement_leaves_what_was_not_seen),
        cmocka_unit_test(total_disagreement_reaches_the_end),
        cmocka_unit_test(exchanged_sides_mirror),
        cmocka_unit_test(intervals_follow_counts_and_confidence),
        cmocka_unit_test(verdicts_are_read_off_the_interval),
        cmocka_unit_test(sample_sizes_are_those_of_the_table),
        cmocka_unit_test(fewest_samples_are_the_fewest),
        cmocka_unit_test(untested_p_values_do_not_count),
        cmocka_unit_test(intervals_cover_as_often_as_they_say),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
