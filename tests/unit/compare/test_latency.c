/* Latencies: the statistics, the verdicts on series whose truth is known, and the join with digests. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "capture/write/write.h"
#include "compare/latency/latency.h"
#include "core/error.h"
#include "core/random.h"
#include "core/statistics/series.h"
#include "npudiff/compare/latency.h"
#include "support/latency_series.h"
#include "support/scratch.h"

enum { RUNS = ND_LATENCY_MIN_RUNS, SERIES = 40 };
static uint64_t seed = 20240607;

static struct nd_latency examine(const double *us, size_t n, const struct nd_latency_options *options)
{
    struct nd_latency found;
    struct nd_error err = {0};
    expect_ok(nd_latency_examine(us, n, options, &found, &err), &err);
    return found;
}

/* ---- the small functions ---- */

static void quantile_between_values_is_linear(void **state)
{
    (void)state;
    const double values[] = {1, 2, 4, 8};
    assert_f64_bits(nd_series_quantile(values, 4, 0), 1);
    assert_f64_bits(nd_series_quantile(values, 4, 1), 8);
    assert_f64_bits(nd_series_quantile(values, 4, 0.5), 3);
    assert_f64_bits(nd_series_quantile(values, 4, 0.75), 5); /* numpy.quantile([1, 2, 4, 8], 0.75) */
    assert_f64_bits(nd_series_quantile(values, 1, 0.9), 1);
}

static void autocorrelation_of_known_series_is_exact(void **state)
{
    (void)state;
    const double alternating[] = {1, 3, 1, 3}, constant[] = {0.1, 0.1, 0.1, 0.1};
    assert_f64_bits(nd_series_autocorrelation(alternating, 4), -0.75);
    assert_f64_bits(nd_series_autocorrelation(constant, 4), 0);
}

static double dip_of(double *values, size_t n)
{
    double dip = 0;
    nd_series_sort(values, n);
    assert_int_equal(nd_series_dip(values, n, &dip, NULL), ND_OK);
    return dip;
}

/* The examples are Hartigan's and those whose dip is plain; the whole was compared with an independent
 * implementation (docs/science/latency.md#verdict). */
static void dip_of_known_series_is_exact(void **state)
{
    (void)state;
    double faculty[] = {30, 33, 35, 36, 37, 37, 39, 39, 39, 39, 39, 40, 40, 40, 40, 41, 42, 43, 43, 43, 44,
                        44, 45, 45, 46, 47, 47, 48, 48, 48, 49, 50, 50, 51, 52, 52, 53, 53, 53, 53, 53, 54,
                        54, 57, 57, 59, 60, 60, 60, 61, 61, 61, 61, 62, 62, 62, 62, 63, 66, 70, 72, 72, 72};
    double even[] = {1, 2, 3, 4, 5, 6, 7, 8}, same[] = {5, 5, 5, 5, 5}, halves[100];
    for (size_t i = 0; i < 100; i++)
        halves[i] = i < 50 ? 1 + 1e-9 * (double)i : 2 + 1e-9 * (double)i;
    assert_true(fabs(dip_of(faculty, 63) - 0.0595238095238095) < 1e-12);
    assert_f64_bits(dip_of(even, 8), 1.0 / 16);
    assert_f64_bits(dip_of(same, 5), 0.1);
    assert_true(dip_of(halves, 100) > 0.24 && dip_of(halves, 100) <= 0.25);
}

static void dip_limit_is_passed_by_one_uniform_series_in_a_hundred(void **state)
{
    (void)state;
    double values[100];
    size_t n_above = 0;
    uint64_t random = seed;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t k = 0; k < 4000; k++) {
        for (size_t i = 0; i < 100; i++)
            values[i] = nd_splitmix_uniform(&random);
        n_above += dip_of(values, 100) > nd_series_dip_limit(100);
    }
    assert_in_range(n_above, 20, 64); /* 40 expected, deviation 6.3 */
    for (size_t n = 5; n < 30000; n++)
        assert_true(nd_series_dip_limit(n) > nd_series_dip_limit(n + 1));
}

static void tick_is_found_only_where_there_is_one(void **state)
{
    (void)state;
    const double ticks[] = {990, 1000, 1000, 1010, 1030}, ends[] = {1000, 1000, 3000, 3000};
    const double none[] = {990, 1000, 1000, 1010.5, 1030.25}, once[] = {990, 1000, 1010};
    assert_f64_bits(nd_series_tick(ticks, 5), 10);
    assert_f64_bits(nd_series_tick(ends, 4), 0);
    assert_f64_bits(nd_series_tick(none, 5), 0);
    assert_f64_bits(nd_series_tick(once, 3), 0);
}

static void cv_interval_covers_the_truth(void **state)
{
    (void)state;
    double us[RUNS];
    size_t n_covered = 0;
    uint64_t random = seed;
    for (size_t k = 0; k < 200; k++) {
        struct nd_series_cv cv;
        series_normal_5(us, RUNS, &random);
        assert_int_equal(nd_series_cv(us, RUNS, 1, k, &cv, NULL), ND_OK);
        assert_true(cv.low < cv.cv && cv.cv < cv.high);
        n_covered += cv.low <= 0.05 && 0.05 <= cv.high;
    }
    assert_in_range(n_covered, 179, 199); /* 190 expected, deviation 3.1 */
}

static void change_is_found_at_its_place(void **state)
{
    (void)state;
    double logs[300];
    struct nd_level_change items[4];
    struct nd_changes changes = {.items = items, .most = 4};
    uint64_t random = seed;
    for (size_t i = 0; i < 300; i++)
        logs[i] = 7 + 0.01 * series_normal(&random) + (i >= 100 ? 0.2 : 0) - (i >= 220 ? 0.1 : 0);
    assert_int_equal(nd_change_find(logs, 300, 0.02, &changes, NULL), ND_OK);
    assert_int_equal(changes.n, 2);
    assert_int_equal(items[0].at, 100);
    assert_int_equal(items[1].at, 220);
    assert_true(items[0].p < 1e-9 && items[1].p < 1e-9);
    changes.most = 1;
    assert_int_equal(nd_change_find(logs, 300, 0.02, &changes, NULL), ND_OK);
    assert_int_equal(changes.n, 1);
    changes.most = 4;
    assert_int_equal(nd_change_find(logs, 300, 0.3, &changes, NULL), ND_OK);
    assert_int_equal(changes.n, 0);
    assert_int_equal(nd_change_find(logs, 39, 0.02, &changes, NULL), ND_OK);
    assert_int_equal(changes.n, 0);
}

/* ---- examination ---- */

static void options_of_study(struct nd_latency_options *options)
{
    nd_latency_options_init(options);
    options->n_warm_up = 0;
}

/* A small part of tools/studies/score_latency: the same series, fewer of them. */
static void verdicts_on_series_of_known_truth_hold(void **state)
{
    (void)state;
    static const char *const hard[] = {"80/20, 3 deviations apart"}; /* power 0.19 at 200 runs */
    double us[RUNS];
    uint64_t random = seed;
    struct nd_latency_options options;
    options_of_study(&options);
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t s = 0; s < SERIES_N_SCENARIOS; s++) {
        const struct series_scenario *scenario = &series_scenarios[s];
        size_t n_modes = 0, n_levels = 0;
        for (size_t k = 0; k < SERIES; k++) {
            scenario->draw(us, RUNS, &random);
            struct nd_latency found = examine(us, RUNS, &options);
            n_modes += found.verdict == ND_LATENCY_TWO_MODES;
            n_levels += found.verdict == ND_LATENCY_REGIMES;
        }
        print_message("# %s: two modes %zu, regimes %zu of %d\n", scenario->name, n_modes, n_levels, SERIES);
        if (scenario->truth == SERIES_ONE)
            assert_true(n_modes <= 3 && n_levels <= 5); /* 1.3 % and 3.4 % at most */
        else if (scenario->truth == SERIES_LEVELS)
            assert_true(n_levels >= SERIES - 1);
        else if (strcmp(scenario->name, hard[0]) != 0)
            assert_true(n_modes >= SERIES * 3 / 4);
    }
}

static enum nd_latency_verdict verdict_of(void (*draw)(double *, size_t, uint64_t *), size_t n,
                                          size_t n_warm_up)
{
    double us[RUNS];
    uint64_t random = seed;
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    options.n_warm_up = n_warm_up;
    draw(us, n, &random);
    return examine(us, n, &options).verdict;
}

/* The first run is always warm-up; it must not make 200 runs too few. */
static void runs_of_the_warm_up_count(void **state)
{
    (void)state;
    assert_int_equal(verdict_of(series_normal_2, RUNS, ND_LATENCY_DETECT), ND_LATENCY_UNIMODAL);
    assert_int_equal(verdict_of(series_normal_2, RUNS, RUNS / 10), ND_LATENCY_UNIMODAL);
    assert_int_equal(verdict_of(series_normal_2, RUNS, RUNS / 10 + 1), ND_LATENCY_TOO_FEW);
    assert_int_equal(verdict_of(series_normal_2, RUNS, 150), ND_LATENCY_TOO_FEW);
    assert_int_equal(verdict_of(series_normal_2, RUNS - 1, ND_LATENCY_DETECT), ND_LATENCY_TOO_FEW);
}

static void overwhelming_evidence_needs_no_200_runs(void **state)
{
    (void)state;
    assert_int_equal(verdict_of(series_throttled, 100, ND_LATENCY_DETECT), ND_LATENCY_REGIMES);
    assert_int_equal(verdict_of(series_two_5, 150, ND_LATENCY_DETECT), ND_LATENCY_TWO_MODES);
    assert_int_equal(verdict_of(series_lognormal, 150, ND_LATENCY_DETECT), ND_LATENCY_TOO_FEW);
    assert_int_equal(verdict_of(series_outliers, 100, ND_LATENCY_DETECT), ND_LATENCY_TOO_FEW);
    struct nd_latency few = {
        .n = 60, .n_timed = 59, .n_warm_up = 1, .join = {.state = ND_JOIN_KNOWN, .p = 3e-48}};
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    nd_latency_conclude(&options, &few);
    assert_int_equal(few.verdict, ND_LATENCY_TOO_FEW);
    assert_true(few.is_suspect); /* slow runs give other bits */
    few.join.p = 1e-3;
    nd_latency_conclude(&options, &few);
    assert_false(few.is_suspect);
}

static void field_rule_alarms_as_often_as_the_table_says(void **state)
{
    (void)state;
    double us[RUNS];
    uint64_t random = seed;
    struct nd_latency_options options;
    options_of_study(&options);
    size_t n_rates = 0;
    for (const struct nd_latency_rate *rate = nd_latency_rule_rates(); rate->series != NULL; rate++) {
        const struct series_scenario *scenario = NULL;
        for (size_t s = 0; s < SERIES_N_SCENARIOS; s++)
            if (strcmp(series_scenarios[s].name, rate->series) == 0)
                scenario = &series_scenarios[s];
        assert_non_null(scenario);
        n_rates++;
        if (rate->n_runs > RUNS)
            continue;
        size_t n_alarms = 0;
        for (size_t k = 0; k < SERIES; k++) {
            scenario->draw(us, rate->n_runs, &random);
            n_alarms += examine(us, rate->n_runs, &options).cv_high > options.suspect_cv;
        }
        double expected = SERIES * rate->false_alarms;
        double slack = 4 * sqrt(SERIES * rate->false_alarms * (1 - rate->false_alarms)) + 1;
        print_message("# %s, %zu runs: %zu alarms, %g expected\n", rate->series, rate->n_runs, n_alarms,
                      expected);
        assert_true(fabs((double)n_alarms - expected) <= slack);
    }
    assert_true(n_rates >= 8);
}

static void summary_of_known_runs_is_exact(void **state)
{
    (void)state;
    const double us[] = {900, NAN, 10, 20, 30, 40};
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    options.n_warm_up = 1;
    struct nd_latency l = examine(us, 6, &options);
    assert_int_equal(l.n, 6);
    assert_int_equal(l.n_not_recorded, 1);
    assert_int_equal(l.n_warm_up, 1);
    assert_int_equal(l.n_timed, 4);
    assert_f64_bits(l.first_us, 900);
    assert_f64_bits(l.warm_up_median_us, 900);
    assert_f64_bits(l.mean_us, 25);
    assert_f64_bits(l.median_us, 25);
    assert_f64_bits(l.p50_us, 25);
    assert_f64_bits(l.p90_us, 37);
    assert_f64_bits(l.mad_us, 10);
    assert_f64_bits(l.min_us, 10);
    assert_f64_bits(l.max_us, 40);
    assert_true(fabs(l.cv - 0.5163977794943222) < 1e-15);
    assert_int_equal(l.verdict, ND_LATENCY_TOO_FEW);
    assert_int_equal(l.join.state, ND_JOIN_NOT_ASKED);
}

static void warm_up_is_the_slow_start(void **state)
{
    (void)state;
    double us[300];
    uint64_t random = seed;
    series_normal_2(us, 300, &random);
    for (size_t i = 0; i < 6; i++)
        us[i] = 3000 - 300 * (double)i;
    assert_int_equal(examine(us, 300, NULL).n_warm_up, 6);
    for (size_t i = 0; i < 300; i++)
        us[i] = 3000;
    assert_int_equal(examine(us, 300, NULL).n_warm_up, 1);
}

static void nothing_and_constants_have_a_verdict(void **state)
{
    (void)state;
    double us[RUNS + 1] = {0};
    struct nd_latency none = examine(us, 0, NULL);
    assert_int_equal(none.verdict, ND_LATENCY_TOO_FEW);
    assert_true(isnan(none.cv) && isnan(none.first_us));
    for (size_t i = 0; i <= RUNS; i++)
        us[i] = NAN;
    struct nd_latency unknown = examine(us, RUNS, NULL);
    assert_int_equal(unknown.n_not_recorded, RUNS);
    assert_int_equal(unknown.verdict, ND_LATENCY_TOO_FEW);
    for (size_t i = 0; i <= RUNS; i++)
        us[i] = 123.4;
    struct nd_latency constant = examine(us, RUNS + 1, NULL);
    assert_int_equal(constant.verdict, ND_LATENCY_UNIMODAL);
    assert_f64_bits(constant.cv, 0);
    assert_f64_bits(constant.cv_high, 0);
    assert_f64_bits(constant.mad_us, 0);
    /* Two exact times are two modes, not a timer. */
    for (size_t i = 0; i <= RUNS; i++)
        us[i] = i % 5 == 0 ? 3000 : 1000;
    struct nd_latency two = examine(us, RUNS + 1, NULL);
    assert_int_equal(two.verdict, ND_LATENCY_TWO_MODES);
    assert_f64_bits(two.modes[0].median_us, 1000);
    assert_f64_bits(two.modes[1].median_us, 3000);
    assert_int_equal(two.modes[0].n + two.modes[1].n, two.n_timed);
}

static void result_depends_on_values_and_options_only(void **state)
{
    (void)state;
    double us[500];
    uint64_t random = seed;
    series_two_outliers(us, 500, &random);
    struct nd_latency a = examine(us, 500, NULL), b = examine(us, 500, NULL);
    assert_f64_bits(a.cv_low, b.cv_low);
    assert_f64_bits(a.delta_bic, b.delta_bic);
    /* In another unit only the times change. */
    for (size_t i = 0; i < 500; i++)
        us[i] *= 1024;
    struct nd_latency c = examine(us, 500, NULL);
    assert_f64_bits(c.median_us, 1024 * a.median_us);
    assert_int_equal(c.modes[1].n, a.modes[1].n);
    assert_true(fabs(c.cv - a.cv) < 1e-12 && fabs(c.delta_bic - a.delta_bic) < 1e-3);
}

static void refuse(const double *us, size_t n, const struct nd_latency_options *options, enum nd_status status,
                   const char *text)
{
    struct nd_latency found = {.n = 77};
    struct nd_error err = {0};
    assert_int_equal(nd_latency_examine(us, n, options, &found, &err), status);
    assert_int_equal(found.n, 77);
    assert_non_null(strstr(err.message, text));
}

static void impossible_latencies_and_options_are_refused(void **state)
{
    (void)state;
    const double zero[] = {1, 0}, negative[] = {1, 2, -3}, infinite[] = {INFINITY}, good[] = {1};
    refuse(zero, 2, NULL, ND_ERR_FORMAT, "run 1");
    refuse(negative, 3, NULL, ND_ERR_FORMAT, "run 2");
    refuse(infinite, 1, NULL, ND_ERR_FORMAT, "run 0");
    refuse(good, (size_t)ND_LATENCY_MAX_RUNS + 1, NULL, ND_ERR_USAGE, "10000001");
    struct nd_latency_options options;
    nd_latency_options_init(&options);
    options.suspect_cv = 0.01;
    refuse(good, 1, &options, ND_ERR_USAGE, "contradict");
    nd_latency_options_init(&options);
    options.min_runs = 1;
    refuse(good, 1, &options, ND_ERR_USAGE, "2 runs");
}

/* ---- join ---- */

enum { SAMPLES = 3, TENSORS = 2 };

/* A capture of SAMPLES samples with n_repeats each. tie 0: all runs of a sample give the same bits; 1: slow
 * runs give others at the second tensor; 2: every tenth run does, slow or not. */
static struct nd_latency join(size_t n_repeats, int tie, bool has_slow)
{
    struct nd_error err = {0};
    struct nd_capture_writer *writer = NULL;
    struct nd_capture *capture = NULL;
    struct nd_latency found;
    size_t n = SAMPLES * n_repeats;
    double *us = calloc(n, sizeof *us);
    struct nd_digest *digests = calloc(n, sizeof *digests);
    assert_true(us != NULL && digests != NULL);
    uint64_t random = seed;
    struct nd_tensor tensors[TENSORS] = {{.name = (char *)"a",
                                          .onnx_name = (char *)"a",
                                          .op_types = (char *)"Conv",
                                          .node = (char *)"a",
                                          .dtype = ND_DTYPE_U8,
                                          .shape = {1, {4}},
                                          .quant = {0, -1, NULL, NULL}},
                                         {.name = (char *)"b",
                                          .onnx_name = (char *)"b",
                                          .op_types = (char *)"Add",
                                          .node = (char *)"b",
                                          .dtype = ND_DTYPE_U8,
                                          .shape = {1, {4}},
                                          .quant = {0, -1, NULL, NULL}}};
    const char *providers[TENSORS] = {"", ""};
    struct nd_capture_probe probe = {.name = (char *)"p",
                                     .source = (char *)"p",
                                     .n_samples = SAMPLES,
                                     .n_samples_expected = SAMPLES,
                                     .n_repeats = n_repeats,
                                     .latency_us = us};
    for (size_t i = 0; i < n; i++)
        us[i] = series_run(0.01, &random) + (has_slow && i % 5 == 4 ? 300 : 0);
    char *path = in_folder("join.h5");
    expect_ok(nd_capture_writer_create(path, true, &writer, &err), &err);
    expect_ok(nd_capture_writer_tensors(writer, tensors, providers, TENSORS, &err), &err);
    expect_ok(nd_capture_writer_nodes(writer, NULL, 0, &err), &err);
    expect_ok(nd_capture_writer_probe(writer, &probe, &err), &err);
    for (size_t e = 0; e < TENSORS; e++) {
        for (size_t i = 0; i < n; i++) {
            bool is_other = e == 1 && ((tie == 1 && i % 5 == 4) || (tie == 2 && i % 10 == i / 10 % 10));
            uint32_t bytes = (uint32_t)(i / n_repeats * 10 + (is_other ? 1 : 0));
            digests[i] = nd_digest_bytes(&bytes, sizeof bytes);
        }
        expect_ok(nd_capture_writer_digests(writer, &probe, &tensors[e], digests, &err), &err);
    }
    expect_ok(nd_capture_writer_commit(writer, ND_CAPTURE_COMPLETE, &err), &err);
    nd_capture_writer_destroy(&writer);
    expect_ok(nd_capture_open(path, &capture, &err), &err);
    expect_ok(nd_latency_of_capture(capture, 0, NULL, &found, &err), &err);
    nd_capture_close(&capture);
    free(path);
    free(us);
    free(digests);
    return found;
}

static void slow_runs_with_other_bits_are_joined(void **state)
{
    (void)state;
    struct nd_latency l = join(100, 1, true);
    assert_int_equal(l.verdict, ND_LATENCY_TWO_MODES);
    assert_int_equal(l.slow, ND_SLOW_MODE);
    assert_int_equal(l.join.state, ND_JOIN_KNOWN);
    assert_int_equal(l.join.n_slow, 60);
    assert_int_equal(l.join.n_slow_other, 60);
    assert_int_equal(l.join.n_fast + l.join.n_slow, l.n_timed);
    assert_int_equal(l.join.n_fast_other, 0);
    assert_true(l.join.p < 1e-30);
    assert_int_equal(l.join.n_tensors, TENSORS);
    assert_int_equal(l.join.n_tied, 1);
    assert_int_equal(l.join.first_tied, 1);
    assert_true(l.is_suspect);
}

static void other_bits_that_are_not_tied_are_told_apart(void **state)
{
    (void)state;
    struct nd_latency same = join(100, 0, true), spread = join(100, 2, true);
    assert_int_equal(same.join.state, ND_JOIN_KNOWN);
    assert_int_equal(same.join.n_slow_other + same.join.n_fast_other, 0);
    assert_f64_bits(same.join.p, 1);
    assert_int_equal(same.join.n_tied, 0);
    assert_true(spread.join.n_slow_other > 0 && spread.join.n_fast_other > 0);
    assert_true(spread.join.p > 0.01);
    assert_int_equal(spread.join.first_tied, SIZE_MAX);
}

static void join_without_repeats_or_slow_runs_is_not_known(void **state)
{
    (void)state;
    struct nd_latency once = join(1, 1, true), steady = join(100, 2, false);
    assert_int_equal(once.join.state, ND_JOIN_NO_REPEATS);
    assert_int_equal(once.verdict, ND_LATENCY_TOO_FEW);
    assert_int_equal(steady.join.state, ND_JOIN_NO_SLOW);
    assert_int_equal(steady.verdict, ND_LATENCY_UNIMODAL);
    assert_true(isnan(steady.join.p) && !steady.is_suspect);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantile_between_values_is_linear),
        cmocka_unit_test(autocorrelation_of_known_series_is_exact),
        cmocka_unit_test(dip_of_known_series_is_exact),
        cmocka_unit_test(dip_limit_is_passed_by_one_uniform_series_in_a_hundred),
        cmocka_unit_test(tick_is_found_only_where_there_is_one),
        cmocka_unit_test(cv_interval_covers_the_truth),
        cmocka_unit_test(change_is_found_at_its_place),
        cmocka_unit_test(verdicts_on_series_of_known_truth_hold),
        cmocka_unit_test(runs_of_the_warm_up_count),
        cmocka_unit_test(overwhelming_evidence_needs_no_200_runs),
        cmocka_unit_test(field_rule_alarms_as_often_as_the_table_says),
        cmocka_unit_test(summary_of_known_runs_is_exact),
        cmocka_unit_test(warm_up_is_the_slow_start),
        cmocka_unit_test(nothing_and_constants_have_a_verdict),
        cmocka_unit_test(result_depends_on_values_and_options_only),
        cmocka_unit_test(impossible_latencies_and_options_are_refused),
        cmocka_unit_test_setup_teardown(slow_runs_with_other_bits_are_joined, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(other_bits_that_are_not_tied_are_told_apart, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(join_without_repeats_or_slow_runs_is_not_known, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
