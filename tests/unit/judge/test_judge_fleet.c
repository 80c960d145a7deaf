/* Churn, common and own loss of several devices, and distances from a target. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/judge_study.h"
#include "support/main.h"

#include "judge/accuracy/fleet_accuracy.h"

/* Churn. */

static void prediction_changes_counts_what_differs(void **state)
{
    (void)state;
    static const int64_t classes[] = {1, 2, 3, -1, 5, /* */ 1, 2, 4, -1, 5, /* */ 1, 7, 4, 0, 5};
    static const int64_t truth[] = {1, 2, 4, -1, 6};
    struct nd_predictions in = {3, 5, classes, truth};
    struct nd_prediction_changes changes;
    assert_int_equal(nd_prediction_changes_measure(&in, 0.95, 1, &changes, NULL), ND_OK);
    assert_int_equal(changes.n_pairs, 3);
    static const uint64_t differ[] = {1, 3, 2};
    static const size_t devices[][2] = {{0, 1}, {0, 2}, {1, 2}};
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(changes.pairs[i].differ.k, differ[i]);
        assert_int_equal(changes.pairs[i].differ.n, 5);
        assert_int_equal(changes.pairs[i].ref, devices[i][0]);
        assert_int_equal(changes.pairs[i].test, devices[i][1]);
        assert_int_equal(nd_paired_n(&changes.pairs[i].table), 5);
    }
    const struct nd_paired *table = &changes.pairs[1].table; /* devices 0 and 2 */
    assert_int_equal(table->both_right, 1);
    assert_int_equal(table->ref_only, 1);
    assert_int_equal(table->test_only, 1);
    assert_int_equal(table->both_wrong, 2); /* none is never right */
    assert_int_equal(changes.any_differs.k, 3);
    assert_int_equal(changes.unstable.k, 2);
    assert_f64_bits(changes.mean, 6.0 / 15);
    assert_true(changes.is_mean_bound);
    assert_f64_bits(changes.mean_interval.low, changes.any_differs.interval.low * 2 / 3);
    assert_f64_bits(changes.mean_interval.high, changes.any_differs.interval.high);
    nd_prediction_changes_deinit(&changes);
    in.truth = NULL;
    assert_int_equal(nd_prediction_changes_measure(&in, 0.95, 1, &changes, NULL), ND_OK);
    assert_int_equal(changes.unstable.n, 0);
    assert_true(isnan(changes.unstable.share));
    assert_int_equal(nd_paired_n(&changes.pairs[0].table), 0);
    nd_prediction_changes_deinit(&changes);
    nd_prediction_changes_deinit(&changes);
}

static void prediction_changes_of_little_says_little(void **state)
{
    (void)state;
    static const int64_t classes[] = {1, 1};
    for (size_t n_devices = 0; n_devices < 3; n_devices++)
        for (size_t n_samples = 0; n_samples < 2; n_samples++) {
            struct nd_predictions in = {n_devices, n_samples, classes, NULL};
            struct nd_prediction_changes changes;
            assert_int_equal(nd_prediction_changes_measure(&in, 0.95, 1, &changes, NULL), ND_OK);
            assert_int_equal(changes.n_pairs, n_devices == 2);
            assert_f64_bits(changes.any_differs.interval.low, 0);
            assert_true(changes.any_differs.interval.high >= 0.975);
            assert_true(isnan(changes.mean) == (n_devices < 2 || n_samples == 0));
            assert_true(changes.mean_interval.low == 0 && changes.mean_interval.high >= 0.975);
            nd_prediction_changes_deinit(&changes);
        }
}

static void mean_prediction_changes_is_drawn_with_its_seed(void **state)
{
    (void)state;
    enum { N_DEVICES = 4, N_SAMPLES = 500 };
    static int64_t classes[N_DEVICES * N_SAMPLES];
    uint64_t seed = 5;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < N_DEVICES * N_SAMPLES; i++)
        classes[i] = nd_splitmix_below(&seed, 20) == 0; /* two differ with probability 0.095 */
    struct nd_predictions in = {N_DEVICES, N_SAMPLES, classes, NULL};
    struct nd_prediction_changes a, b;
    assert_int_equal(nd_prediction_changes_measure(&in, 0.95, 1, &a, NULL), ND_OK);
    assert_int_equal(nd_prediction_changes_measure(&in, 0.95, 1, &b, NULL), ND_OK);
    assert_false(a.is_mean_bound);
    assert_f64_bits(a.mean_interval.low, b.mean_interval.low);
    assert_f64_bits(a.mean_interval.high, b.mean_interval.high);
    assert_true(a.mean_interval.low < a.mean && a.mean < a.mean_interval.high);
    assert_true(a.mean_interval.low < 0.095 && 0.095 < a.mean_interval.high);
    assert_true(a.mean_interval.high - a.mean_interval.low < 0.04);
    nd_prediction_changes_deinit(&a);
    nd_prediction_changes_deinit(&b);
}

/* Uniform or uneven. */

enum { MAX_DEVICES = 6, MAX_SAMPLES = 4000 };

static unsigned char devices[MAX_DEVICES * MAX_SAMPLES], reference[MAX_SAMPLES];

static struct nd_spread spread_of(const struct fleet_study *study, uint64_t *state, double margin)
{
    study_draw_fleet(study, state, devices, reference);
    struct nd_rights in = {study->n_devices, study->n_samples, devices, reference, NULL};
    struct nd_spread_options options = {0.95, margin, 0, 1};
    struct nd_spread spread;
    assert_int_equal(nd_spread_measure(&in, &options, &spread, NULL), ND_OK);
    return spread;
}

static void loss_of_all_is_uniform_and_of_one_uneven(void **state)
{
    (void)state;
    uint64_t seed = 11;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct fleet_study alike = {4, 4000, 0.02, 0, 0.005}, one = {4, 4000, 0.02, 0.05, 0.005};
    struct nd_spread spread = spread_of(&alike, &seed, 0.02);
    assert_int_equal(spread.kind, ND_SPREAD_UNIFORM);
    assert_true(spread.common.interval.high < 0 && spread.common.interval.low > -0.025);
    nd_spread_deinit(&spread);
    spread = spread_of(&alike, &seed, 0);
    assert_int_equal(spread.kind, ND_SPREAD_INCONCLUSIVE); /* no margin was given */
    nd_spread_deinit(&spread);
    spread = spread_of(&one, &seed, 0.02);
    assert_int_equal(spread.kind, ND_SPREAD_UNEVEN);
    assert_int_equal(spread.worst, 3);
    assert_true(spread.own[3].interval.high < 0);
    assert_true(spread.spread.interval.low < 0.0375 && 0.0375 < spread.spread.interval.high);
    double own = spread.own[spread.best].value - spread.own[spread.worst].value;
    assert_true(fabs(own - spread.spread.value) < 1e-14);
    nd_spread_deinit(&spread);
    nd_spread_deinit(&spread);
}

/* Every device right on the samples of its own bits. */
static struct nd_spread exact_spread(size_t n_devices, size_t n_samples, const unsigned char *bits,
                                     const unsigned char *ref, const unsigned char *quantised, double margin)
{
    struct nd_rights in = {n_devices, n_samples, bits, ref, quantised};
    struct nd_spread_options options = {0.95, margin, 0, 1};
    struct nd_spread spread;
    assert_int_equal(nd_spread_measure(&in, &options, &spread, NULL), ND_OK);
    return spread;
}

static void equal_devices_are_not_proven_equal_by_few_samples(void **state)
{
    (void)state;
    memset(devices, 1, sizeof devices);
    struct nd_spread spread = exact_spread(3, 1, devices, NULL, NULL, 0.01);
    assert_int_equal(spread.kind, ND_SPREAD_INCONCLUSIVE);
    assert_f64_bits(spread.spread.value, 0);
    assert_f64_bits(spread.spread.interval.low, 0);
    assert_true(spread.spread.interval.high > 0.5);
    nd_spread_deinit(&spread);
    spread = exact_spread(3, 4000, devices, NULL, NULL, 0.01);
    assert_int_equal(spread.kind, ND_SPREAD_UNIFORM);
    assert_int_equal(spread.best, 0);
    assert_int_equal(spread.worst, 0);
    assert_true(isnan(spread.common.value));
    nd_spread_deinit(&spread);
}

static void nothing_given_says_nothing(void **state)
{
    (void)state;
    for (size_t n_devices = 0; n_devices < 3; n_devices++) {
        struct nd_spread spread = exact_spread(n_devices, 0, devices, NULL, NULL, 0.5);
        assert_int_equal(spread.kind, ND_SPREAD_INCONCLUSIVE);
        assert_true(isnan(spread.spread.value) && spread.spread.interval.high == 1);
        nd_spread_deinit(&spread);
    }
    memset(devices, 0, sizeof devices);
    memset(reference, 1, sizeof reference);
    struct nd_spread spread = exact_spread(1, 100, devices, reference, NULL, 0.5);
    assert_int_equal(spread.kind, ND_SPREAD_INCONCLUSIVE); /* one device is no fleet, but it has a loss */
    assert_true(isnan(spread.spread.value));
    assert_true(fabs(spread.common.value + 1) < 1e-14);
    assert_true(spread.common.interval.high < -0.9);
    nd_spread_deinit(&spread);
}

static void parts_of_the_loss_add_up(void **state)
{
    (void)state;
    static unsigned char quantised[MAX_SAMPLES];
    uint64_t seed = 12;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct fleet_study study = {5, 800, 0.05, 0.02, 0.02}, reference_study = {1, 800, 0.04, 0, 0.02};
    study_draw_fleet(&reference_study, &seed, quantised, reference);
    study_draw_fleet(&study, &seed, devices, reference);
    struct nd_spread spread = exact_spread(5, 800, devices, reference, quantised, 0);
    double sum = 0;
    for (size_t d = 0; d < 5; d++)
        sum += spread.own[d].value;
    assert_true(fabs(sum) < 1e-13);
    assert_true(fabs(spread.quantised.value + spread.beyond.value - spread.common.value) < 1e-13);
    assert_true(study_is_within(&spread.common.interval, spread.common.value));
    nd_spread_deinit(&spread);
}

static void exchanged_devices_exchange_their_parts(void **state)
{
    (void)state;
    uint64_t seed = 13;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct fleet_study study = {2, 500, 0.05, 0.1, 0.02};
    static unsigned char turned[2 * 500];
    study_draw_fleet(&study, &seed, devices, reference);
    memcpy(turned, devices + 500, 500);
    memcpy(turned + 500, devices, 500);
    struct nd_spread a = exact_spread(2, 500, devices, reference, NULL, 0),
                     b = exact_spread(2, 500, turned, reference, NULL, 0);
    assert_f64_bits(a.spread.value, b.spread.value);
    assert_f64_bits(a.spread.interval.low, b.spread.interval.low);
    assert_f64_bits(a.spread.interval.high, b.spread.interval.high);
    assert_int_equal(a.best, b.worst);
    assert_int_equal(a.worst, b.best);
    nd_spread_deinit(&a);
    nd_spread_deinit(&b);
}

static void alike_devices_are_rarely_called_uneven(void **state)
{
    (void)state;
    uint64_t seed = 14;
    print_message("# seed %llu\n", (unsigned long long)seed);
    struct fleet_study alike = {5, 300, 0.03, 0, 0.02};
    size_t n_uneven = 0, n_covered = 0;
    for (size_t i = 0; i < 100; i++) {
        struct nd_spread spread = spread_of(&alike, &seed, 0.02);
        n_uneven += spread.kind == ND_SPREAD_UNEVEN;
        n_covered += study_is_within(&spread.common.interval, 0.25 * 0.02 - 0.75 * 0.03);
        nd_spread_deinit(&spread);
    }
    assert_true(n_uneven <= 11);
    assert_true(n_covered >= 86);
}

/* Targets. */

static void sums_leave_out_what_is_no_number(void **state)
{
    (void)state;
    const double values[] = {1, NAN, 3, INFINITY, -2}, target[] = {2, 0, 3, 1, NAN};
    struct nd_target_sums sums = nd_target_sums_of(values, target, 5);
    assert_int_equal(sums.n_elems, 2);
    assert_int_equal(sums.n_left_out, 3);
    assert_f64_bits(sums.abs_error, 1);
    assert_f64_bits(sums.sq_error, 1);
    assert_f64_bits(sums.sq_target, 13);
    assert_int_equal(nd_target_sums_of(values, target, 0).n_elems, 0);
}

static const struct nd_spread_options target_options = {.confidence = 0.95, .seed = 9};

static struct nd_target_comparison compare(const struct nd_target_sums *ref, const struct nd_target_sums *test,
                                           size_t n)
{
    struct nd_target_comparison out;
    assert_int_equal(nd_target_compare(ref, test, n, &target_options, &out, NULL), ND_OK);
    return out;
}

static void worse_device_is_found_and_mirrored(void **state)
{
    (void)state;
    enum { N = 60 };
    struct nd_target_sums ref[N], test[N];
    uint64_t seed = 15;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < N; i++) {
        double e = 0.5 + study_uniform(&seed);
        ref[i] = (struct nd_target_sums){100, 0, 10 * e, e * e, 400};
        test[i] = (struct nd_target_sums){100, 0, 11 * e, 1.21 * e * e, 400};
    }
    struct nd_target_comparison a = compare(ref, test, N), b = compare(test, ref, N);
    assert_true(a.difference.mean_error.interval.low > 0);
    assert_true(fabs(a.difference.sqnr_db.value + 20 * log10(1.1)) < 1e-12);
    assert_true(fabs(a.difference.sqnr_db.interval.high + 20 * log10(1.1)) <
                1e-12); /* the same in every sample */
    assert_true(fabs(a.difference.mean_error.value + b.difference.mean_error.value) < 1e-15);
    assert_f64_bits(a.ref.sqnr_db.value, b.test.sqnr_db.value);
    assert_f64_bits(a.ref.mean_error.interval.low, b.test.mean_error.interval.low);
    assert_true(study_is_within(&a.ref.mean_error.interval, a.ref.mean_error.value));
}

static void targets_that_are_met_have_no_error(void **state)
{
    (void)state;
    struct nd_target_sums met[3] = {{4, 0, 0, 0, 9}, {4, 0, 0, 0, 1}, {4, 0, 0, 0, 2}}, off[3], none[3] = {{0}};
    for (size_t i = 0; i < 3; i++)
        off[i] = (struct nd_target_sums){4, 0, 1, 1, met[i].sq_target};
    struct nd_target_comparison out = compare(met, met, 3);
    assert_f64_bits(out.ref.sqnr_db.value, INFINITY);
    assert_f64_bits(out.difference.sqnr_db.value, 0);
    assert_f64_bits(out.difference.mean_error.interval.high, 0);
    out = compare(met, off, 3);
    assert_f64_bits(out.difference.sqnr_db.value, -INFINITY);
    assert_f64_bits(out.difference.mean_error.value, 0.25);
    out = compare(none, none, 3);
    assert_true(isnan(out.ref.mean_error.value) && isnan(out.difference.sqnr_db.value));
    assert_true(isnan(out.difference.sqnr_db.interval.low));
    out = compare(off, off, 1);
    assert_true(isnan(out.ref.mean_error.interval.low));
    assert_f64_bits(out.ref.mean_error.value, 0.25);
    out = compare(off, off, 0);
    assert_true(isnan(out.ref.mean_error.value));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(prediction_changes_counts_what_differs),
        cmocka_unit_test(prediction_changes_of_little_says_little),
        cmocka_unit_test(mean_prediction_changes_is_drawn_with_its_seed),
        cmocka_unit_test(loss_of_all_is_uniform_and_of_one_uneven),
        cmocka_unit_test(equal_devices_are_not_proven_equal_by_few_samples),
        cmocka_unit_test(nothing_given_says_nothing),
        cmocka_unit_test(parts_of_the_loss_add_up),
        cmocka_unit_test(exchanged_devices_exchange_their_parts),
        cmocka_unit_test(alike_devices_are_rarely_called_uneven),
        cmocka_unit_test(sums_leave_out_what_is_no_number),
        cmocka_unit_test(worse_device_is_found_and_mirrored),
        cmocka_unit_test(targets_that_are_met_have_no_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
