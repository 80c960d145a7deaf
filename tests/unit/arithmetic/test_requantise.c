/* Arithmetics from accumulator to quantised value, and solving for them from threshold sweep. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/experiment/experiment.h"
#include "lab/experiment/threshold_sweep.h"

static uint64_t seed = 20261121;

static uint64_t next_random(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (seed ^ seed >> 32) * 0x9e3779b97f4a7c15u;
}

static double uniform(double low, double high)
{
    return low + (high - low) * (double)(next_random() >> 11) * 0x1p-53;
}

/* ---- names ---- */

static void names_are_read_back(void **state)
{
    (void)state;
    static const char *const names[] = {
        "rounding:half-even",
        "multiplier:11+granule:3+half+rounding:half-up",
        "multiplier:10+granule-whole:3+fold-zero+rounding:half-up",
        "multiplier:21:half-up+granule:7+half+rounding:floor+wrap:16",
        "rounding:to-zero+saturate:32",
        "gemmlowp",
        "tosa-double",
    };
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct nd_requantise arithmetic;
        char buf[ND_REQUANTISE_NAME_BYTES];
        assert_true(nd_requantise_from_name(names[i], &arithmetic));
        assert_string_equal(nd_requantise_name(&arithmetic, buf), names[i]);
    }
}

static void other_names_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        "half",
                                        "multiplier:0",
                                        "multiplier:24",
                                        "multiplier:11:sideways",
                                        "granule:3+granule-whole:3",
                                        "rounding:half-up+rounding:floor",
                                        "saturate:15",
                                        "wrap:33",
                                        "saturate:16+wrap:16",
                                        "multiplier:11x",
                                        "granule:-1",
                                        "fold-zero:1",
                                        "unknown:3",
                                        "gemmlowp+rounding:floor"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        struct nd_requantise arithmetic;
        if (nd_requantise_from_name(names[i], &arithmetic))
            fail_msg("'%s' was taken", names[i]);
    }
}

/* ---- arithmetic ---- */

static double qvalue_of(const char *name, double multiplier, double zero, double a)
{
    struct nd_requantise arithmetic;
    assert_true(nd_requantise_from_name(name, &arithmetic));
    const struct nd_requantise_ready r = nd_requantise_prepare(&arithmetic, multiplier, zero);
    return nd_requantise_qvalue(&r, a, 0, 255);
}

/* Worked out by hand. */
static void parts_do_what_they_say(void **state)
{
    (void)state;
    assert_int_equal((int)qvalue_of("rounding:half-even", 0.25, 10, 10), 12); /* 2.5 */
    assert_int_equal((int)qvalue_of("rounding:half-up", 0.25, 10, 10), 13);
    assert_int_equal((int)qvalue_of("rounding:half-up", 0.25, 10, -10), 8); /* -2.5 */
    assert_int_equal((int)qvalue_of("rounding:half-away", 0.25, 10, -10), 7);
    assert_int_equal((int)qvalue_of("rounding:floor", 0.25, 10, -1), 9);
    assert_int_equal((int)qvalue_of("rounding:half-even", 0.25, 10, 4000), 255); /* clipped */
    /* 1/100: floor(-log2) = 6, step 8: floor(157/8) * 8 = 152, with half a granule 156 */
    assert_int_equal((int)qvalue_of("granule:3+rounding:floor", 0.01, 0, 157), 1);
    assert_int_equal((int)qvalue_of("granule:3+half+rounding:half-up", 0.01, 0, 143), 1); /* 140 */
    assert_int_equal((int)qvalue_of("granule:3+half+rounding:half-up", 0.01, 0, 144), 1); /* 148 */
    assert_int_equal((int)qvalue_of("granule:3+half+rounding:half-up", 0.01, 0, 152), 2); /* 156 */
    /* 3/4 with one bit behind the leading one is itself, 5/8 becomes 1/2 (half to even) or 3/4 (half up) */
    assert_int_equal((int)qvalue_of("multiplier:1+rounding:floor", 0.625, 0, 100), 50);
    assert_int_equal((int)qvalue_of("multiplier:1:half-up+rounding:floor", 0.625, 0, 100), 75);
    /* 10 / 0.3 = 33.3: 33 + 100 = 133 times 0.3 = 39.9 */
    assert_int_equal((int)qvalue_of("fold-zero+rounding:floor", 0.3, 10, 100), 39);
    assert_int_equal((int)qvalue_of("rounding:floor", 0.3, 10, 100), 40);
    assert_int_equal((int)qvalue_of("rounding:floor+saturate:16", 0.001, 0, 40000), 32);
    assert_int_equal((int)qvalue_of("rounding:floor+wrap:16", 0.001, 40, 40000), 14); /* -25536 */
    assert_int_equal((int)qvalue_of("rounding:floor+wrap:16", 0.001, 40, -40000), 65);
}

/* 1/3: TensorFlow Lite takes 2^30 and e = 1 of the ratio 1, and 2^31 / 3 with e = 0 of the mean of three. Else
 * 2/3 2^31 and e = -1 are two roundings: 4 becomes 3, and that 2. */
static void means_divide_the_multiplier(void **state)
{
    (void)state;
    const struct nd_fixed_multiplier of_mean = nd_fixed_multiplier_of_mean(ND_FIXED_GEMMLOWP, 1.0 / 3, 3),
                                     of_tosa = nd_fixed_multiplier_of_mean(ND_FIXED_TOSA_DOUBLE, 1.0 / 3, 3);
    assert_int_equal((int)of_mean.q, 715827882);
    assert_int_equal(of_mean.e, 0);
    assert_int_equal((int)of_tosa.q, 1431655765);
    assert_int_equal(of_tosa.e, -1);
    assert_int_equal((int)nd_fixed_run(ND_FIXED_GEMMLOWP, &of_mean, 4), 1);
    assert_int_equal((int)nd_fixed_run(ND_FIXED_GEMMLOWP, &of_tosa, 4), 2);
    assert_int_equal((int)qvalue_of("gemmlowp", 1.0 / 3, 10, 4), 12);
}

static void powers_of_two_have_their_logarithm(void **state)
{
    (void)state;
    assert_int_equal(nd_multiplier_log(1), 0);
    assert_int_equal(nd_multiplier_log(0.5), 1);
    assert_int_equal(nd_multiplier_log(nextafter(0.5, 1)), 0);
    assert_int_equal(nd_multiplier_log(nextafter(0.5, 0)), 1);
    assert_int_equal(nd_multiplier_log(2), -1);
    assert_int_equal(nd_multiplier_log(3), -2);
}

/* ---- threshold sweep ---- */

enum { MAX_STAIRCASES = 2 * ND_THRESHOLD_SWEEP_MULTIPLIERS };

struct study {
    struct nd_threshold_sweep staircases[MAX_STAIRCASES];
    size_t n;
};

static void add_threshold_sweep(struct study *study, const struct nd_requantise *truth, double multiplier,
                                double zero)
{
    struct nd_threshold_sweep *s = &study->staircases[study->n++];
    const struct nd_requantise_ready r = nd_requantise_prepare(truth, multiplier, zero);
    *s = (struct nd_threshold_sweep){.multiplier = multiplier,
                                     .zero_point = zero,
                                     .low = 0,
                                     .high = 255,
                                     .first = floor((-zero - 2) / multiplier),
                                     .n = (size_t)ceil(259 / multiplier)};
    double *qvalues = malloc(sizeof *qvalues * s->n);
    assert_non_null(qvalues);
    for (size_t k = 0; k < s->n; k++)
        qvalues[k] = nd_requantise_qvalue(&r, s->first + (double)k, 0, 255);
    s->qvalues = qvalues;
}

static void add_staircases(struct study *study, const struct nd_requantise *truth, const double *multipliers,
                           size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_threshold_sweep(study, truth, multipliers[i], i % 2 == 0 ? 128 : 77);
}

static void free_study(struct study *study)
{
    for (size_t i = 0; i < study->n; i++)
        free((void *)(uintptr_t)study->staircases[i].qvalues);
    study->n = 0;
}

/* On threshold sweep of random multipliers. */
static bool is_equal_elsewhere(const struct nd_requantise *a, const struct nd_requantise *b)
{
    struct study fresh = {.n = 0};
    uint64_t wrong = 0;
    for (size_t i = 0; i < 8; i++)
        add_threshold_sweep(&fresh, a, exp2(-uniform(0.5, 8)), floor(uniform(1, 254)));
    for (size_t i = 0; i < fresh.n; i++)
        wrong += nd_threshold_sweep_count_wrong(&fresh.staircases[i], b);
    free_study(&fresh);
    return wrong == 0;
}

static bool is_same(const struct nd_requantise *a, const struct nd_requantise *b)
{
    char x[ND_REQUANTISE_NAME_BYTES], y[ND_REQUANTISE_NAME_BYTES];
    return strcmp(nd_requantise_name(a, x), nd_requantise_name(b, y)) == 0;
}

/* Two rounds, as a device is asked. */
static void solve(const struct nd_requantise *truth, struct study *study,
                  struct nd_threshold_sweep_findings *found)
{
    double multipliers[ND_THRESHOLD_SWEEP_MULTIPLIERS];
    add_staircases(study, truth, multipliers, nd_threshold_sweep_first_multipliers(multipliers));
    assert_int_equal(nd_threshold_sweep_solve(study->staircases, study->n, found, NULL), ND_OK);
    size_t n = nd_threshold_sweep_next_multipliers(found, multipliers);
    if (n == 0)
        return;
    free(found->arithmetics);
    add_staircases(study, truth, multipliers, n);
    assert_int_equal(nd_threshold_sweep_solve(study->staircases, study->n, found, NULL), ND_OK);
}

/* The truth is never excluded, and a lone verdict is never wrong. */
static void check_solving(const char *name, size_t *n_single)
{
    struct nd_requantise truth;
    struct nd_threshold_sweep_findings found;
    struct study study = {.n = 0};
    assert_true(nd_requantise_from_name(name, &truth));
    solve(&truth, &study, &found);
    bool has_truth = false;
    for (size_t i = 0; i < found.n_arithmetics; i++)
        has_truth = has_truth || is_same(&found.arithmetics[i], &truth);
    if (!has_truth && !(found.n_arithmetics > 0 && is_equal_elsewhere(&truth, &found.arithmetics[0])))
        fail_msg("%s was excluded: %zu arithmetics are left, the nearest has %llu wrong", name,
                 found.n_arithmetics, (unsigned long long)found.n_nearest_wrong);
    if (found.n_arithmetics == 1) {
        assert_true(is_equal_elsewhere(&truth, &found.arithmetics[0]));
        (*n_single)++;
    }
    free(found.arithmetics);
    free_study(&study);
}

static void staircases_give_their_arithmetic(void **state)
{
    (void)state;
    static const char *const multipliers[] = {"multiplier:10", "multiplier:11:half-up", "multiplier:12:floor"};
    static const char *const granules[] = {"", "+granule:3+half", "+granule-whole:3+fold-zero",
                                           "+granule:1+half+fold-zero"};
    static const char *const roundings[] = {"half-up", "half-even", "floor", "to-zero"};
    size_t n = 0, n_single = 0;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t m = 0; m < 3; m++)
        for (size_t g = 0; g < 4; g++)
            for (size_t r = 0; r < 4; r++, n++) {
                char name[ND_REQUANTISE_NAME_BYTES];
                snprintf(name, sizeof name, "%s%s+rounding:%s", multipliers[m], granules[g], roundings[r]);
                check_solving(name, &n_single);
            }
    print_message("# %zu arithmetics, %zu of them singled out\n", n, n_single);
    assert_true(n_single * 4 >= n);
}

static void exact_multiplier_is_found(void **state)
{
    (void)state;
    size_t n_single = 0;
    check_solving("rounding:half-even", &n_single);
    check_solving("multiplier:23+rounding:half-up", &n_single);
    check_solving("multiplier:16+rounding:half-up", &n_single);
}

/* Two roundings are none of the arithmetics by parts. */
static void specified_arithmetic_is_found(void **state)
{
    (void)state;
    static const char *const names[] = {"gemmlowp", "tosa-double"};
    for (size_t k = 0; k < sizeof names / sizeof names[0]; k++) {
        struct nd_requantise truth;
        struct nd_threshold_sweep_findings found;
        struct study study = {.n = 0};
        bool has_truth = false;
        assert_true(nd_requantise_from_name(names[k], &truth));
        solve(&truth, &study, &found);
        for (size_t i = 0; i < found.n_arithmetics; i++) {
            has_truth = has_truth || found.arithmetics[i].fixed == truth.fixed;
            assert_int_not_equal(found.arithmetics[i].fixed, ND_FIXED_NONE);
        }
        assert_true(has_truth);
        free(found.arithmetics);
        free_study(&study);
    }
}

/* What no arithmetic gives leaves none. */
static void foreign_arithmetic_leaves_nothing(void **state)
{
    (void)state;
    struct nd_requantise truth;
    struct nd_threshold_sweep_findings found;
    struct study study = {.n = 0};
    double multipliers[ND_THRESHOLD_SWEEP_MULTIPLIERS];
    assert_true(nd_requantise_from_name("multiplier:11+granule:3+half+rounding:half-up", &truth));
    add_staircases(&study, &truth, multipliers, nd_threshold_sweep_first_multipliers(multipliers));
    ((double *)(uintptr_t)study.staircases[0].qvalues)[study.staircases[0].n / 2] += 3;
    assert_int_equal(nd_threshold_sweep_solve(study.staircases, study.n, &found, NULL), ND_OK);
    assert_int_equal(found.n_arithmetics, 0);
    assert_int_equal(found.n_rising, study.n - 1);
    free(found.arithmetics);
    free_study(&study);
}

static void granule_is_the_divisor_of_distances(void **state)
{
    (void)state;
    struct nd_requantise truth;
    struct nd_threshold_sweep_shape shape;
    struct study study = {.n = 0};
    assert_true(nd_requantise_from_name("multiplier:11+granule:2+half+rounding:half-up", &truth));
    for (size_t i = 0; i < 8; i++)
        add_threshold_sweep(&study, &truth, exp2(-3.4 - 0.57 * (double)i), 128);
    for (size_t i = 0; i < study.n; i++) {
        nd_threshold_sweep_look(&study.staircases[i], &shape);
        assert_true(shape.is_rising);
        assert_true(shape.n_thresholds >= 250);
        assert_true(shape.granule == ldexp(1, nd_multiplier_log(study.staircases[i].multiplier) - 2));
        assert_true(shape.offset == 0);
    }
    free_study(&study);
}

/* ---- fresh quantised values ---- */

static void best_arithmetics_stay_in_order(void **state)
{
    (void)state;
    int arithmetics[] = {10, 11, 12, 13, 14};
    const uint64_t n_right[] = {7, 9, 3, 9, 8};
    uint64_t most = 1;
    assert_int_equal(nd_fresh_keep_best(arithmetics, sizeof *arithmetics, 5, n_right, &most), 2);
    assert_int_equal(most, 9);
    assert_int_equal(arithmetics[0], 11);
    assert_int_equal(arithmetics[1], 13);
    assert_int_equal(nd_fresh_keep_best(arithmetics, sizeof *arithmetics, 0, n_right, &most), 0);
    assert_int_equal(most, 0);
}

static void few_or_wrong_qvalues_confirm_nothing(void **state)
{
    (void)state;
    assert_false(nd_fresh_is_enough(99999, 99999));
    assert_true(nd_fresh_is_enough(100000, 99900));
    assert_false(nd_fresh_is_enough(100000, 99899));
    assert_false(nd_fresh_is_enough(0, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(best_arithmetics_stay_in_order),
        cmocka_unit_test(few_or_wrong_qvalues_confirm_nothing),
        cmocka_unit_test(names_are_read_back),
        cmocka_unit_test(other_names_are_refused),
        cmocka_unit_test(parts_do_what_they_say),
        cmocka_unit_test(means_divide_the_multiplier),
        cmocka_unit_test(specified_arithmetic_is_found),
        cmocka_unit_test(powers_of_two_have_their_logarithm),
        cmocka_unit_test(granule_is_the_divisor_of_distances),
        cmocka_unit_test(staircases_give_their_arithmetic),
        cmocka_unit_test(exact_multiplier_is_found),
        cmocka_unit_test(foreign_arithmetic_leaves_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
