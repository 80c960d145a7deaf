/* Solving for what is dropped from sums of uint16 products. The quantised values come from a formula in 64-bit
 * integers, which is written here a second time. */
#include "support/main.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/random.h"
#include "lab/fingerprint/linear_u16.h"

enum { N_QVALUES = 4096 };

struct made {
    struct nd_word_qvalues about;
    double sums[N_QVALUES], zeros[N_QVALUES], qvalues[N_QVALUES];
};

static double floor_divide(double a, double b)
{
    return floor(a / b); /* powers of two: exact */
}

/* floor(sum / 2^p) - floor((zero + 2^(p - 1)) / 2^p), times c = m cut to so many bits behind its leading one.
 */
static void make(struct made *made, int dropped_bits, int multiplier_bits, uint64_t *seed)
{
    double unit = ldexp(1, dropped_bits);
    struct nd_word_qvalues *a = &made->about;
    *a = (struct nd_word_qvalues){.scale_x = (float)nd_random_between(seed, 0.0001, 0.0003),
                                  .scale_w = (float)nd_random_between(seed, 0.004, 0.012),
                                  .zero_y = floor(nd_random_between(seed, 20000, 45000)),
                                  .n = N_QVALUES,
                                  .sums = made->sums,
                                  .zeros = made->zeros,
                                  .qvalues = made->qvalues};
    a->scale_y = a->scale_x * a->scale_w * (float)nd_random_between(seed, 400, 1200);
    int exponent;
    double m = frexp((double)a->scale_x * (double)a->scale_w / (double)a->scale_y * unit, &exponent);
    double c = ldexp(floor(ldexp(m, multiplier_bits + 1)), exponent - multiplier_bits - 1);
    for (size_t i = 0; i < N_QVALUES; i++) {
        made->sums[i] = floor(nd_random_between(seed, -2e7, 2e7));
        made->zeros[i] = floor(nd_random_between(seed, -1e6, 1e6));
        if (dropped_bits > 0 && i % 4 == 0) /* a tie */
            made->zeros[i] = (floor_divide(made->zeros[i], unit) + 0.5) * unit;
        double q = floor_divide(made->sums[i], unit) - floor_divide(made->zeros[i] + unit / 2, unit);
        made->qvalues[i] = fmin(fmax(floor(c * q + 0.5) + a->zero_y, 0), 65535);
    }
}

static const struct nd_requantise rests[] = {
    {.multiplier_bits = 14, .multiplier_rounding = ND_ROUND_FLOOR, .rounding = ND_ROUND_HALF_UP},
    {.multiplier_bits = 16, .multiplier_rounding = ND_ROUND_FLOOR, .rounding = ND_ROUND_HALF_UP},
    {.multiplier_bits = 14, .multiplier_rounding = ND_ROUND_FLOOR, .rounding = ND_ROUND_FLOOR},
};

static void dropped_bits_and_their_roundings_are_found(void **state)
{
    (void)state;
    static const int drops[] = {8, 6, 11};
    for (size_t d = 0; d < sizeof drops / sizeof drops[0]; d++) {
        uint64_t seed = 100 + d;
        struct made *made = calloc(1, sizeof *made);
        struct nd_word_findings found;
        assert_non_null(made);
        make(made, drops[d], 14, &seed);
        assert_int_equal(nd_word_solve(rests, 3, &made->about, 1, &found, NULL), ND_OK);
        assert_int_equal(found.n_right, N_QVALUES);
        assert_true(found.n_arithmetics > 0);
        for (size_t i = 0; i < found.n_arithmetics; i++) {
            assert_int_equal(found.arithmetics[i].dropped_bits, drops[d]);
            assert_false(found.arithmetics[i].drops_together);
            assert_int_equal(found.arithmetics[i].sum_rounding, ND_ROUND_FLOOR);
            assert_int_equal(found.arithmetics[i].zero_rounding, ND_ROUND_HALF_UP);
            assert_int_equal(found.arithmetics[i].rest.multiplier_bits, 14);
            assert_int_equal(found.arithmetics[i].rest.rounding, ND_ROUND_HALF_UP);
        }
        free(found.arithmetics);
        free(made);
    }
}

static void sums_that_lose_nothing_are_told(void **state)
{
    (void)state;
    uint64_t seed = 7;
    struct made *made = calloc(1, sizeof *made);
    struct nd_word_findings found;
    assert_non_null(made);
    make(made, 0, 14, &seed);
    assert_int_equal(nd_word_solve(rests, 3, &made->about, 1, &found, NULL), ND_OK);
    assert_int_equal(found.n_right, N_QVALUES);
    assert_int_equal(found.arithmetics[0].dropped_bits, 0);
    free(found.arithmetics);
    made->qvalues[17] += made->qvalues[17] < 60000 ? 3 : -3;
    assert_int_equal(nd_word_solve(rests, 3, &made->about, 1, &found, NULL), ND_OK);
    assert_int_equal(found.n_right, N_QVALUES - 1);
    free(found.arithmetics);
    free(made);
}

static void folded_zero_points_may_be_cut(void **state)
{
    (void)state;
    struct nd_requantise cut, rounded;
    char buf[ND_REQUANTISE_NAME_BYTES];
    assert_true(nd_requantise_from_name("fold-zero:floor+rounding:half-up", &cut));
    assert_true(nd_requantise_from_name("fold-zero+rounding:half-up", &rounded));
    assert_string_equal(nd_requantise_name(&cut, buf), "fold-zero:floor+rounding:half-up");
    /* 7 / 4 = 1.75 is 1 or 2 more in the sum, and 4 or 8 in the quantised value. */
    struct nd_requantise_ready r = nd_requantise_prepare(&cut, 4, 7);
    assert_int_equal((int)nd_requantise_qvalue(&r, 10, 0, 255), 44);
    r = nd_requantise_prepare(&rounded, 4, 7);
    assert_int_equal((int)nd_requantise_qvalue(&r, 10, 0, 255), 48);
}

static void folded_zero_points_may_pass_through_float32(void **state)
{
    (void)state;
    struct nd_requantise arithmetic;
    char buf[ND_REQUANTISE_NAME_BYTES];
    assert_false(nd_requantise_from_name("fold-f32+rounding:half-up", &arithmetic));
    assert_true(nd_requantise_from_name("fold-zero:floor+fold-f32+rounding:half-up", &arithmetic));
    assert_string_equal(nd_requantise_name(&arithmetic, buf), "fold-zero:floor+fold-f32+rounding:half-up");
    /* 2^24 + 1 is no float32. */
    struct nd_requantise_ready r = nd_requantise_prepare(&arithmetic, 1, 0x1p24 + 1);
    assert_true(r.fold >= 0x1p24 && r.fold <= 0x1p24);
}

/* A threshold sweep whose zero point is cut leaves no arithmetic that rounds it. */
static void staircases_tell_how_a_zero_point_is_folded(void **state)
{
    (void)state;
    static const double multipliers[] = {0.3131, 0.7071, 0.0871},
                        zeros[] = {30003, 30079, 30158}; /* z / m: .6, .5, .7 */
    struct nd_threshold_sweep stairs[3];
    double *qvalues[3];
    struct nd_threshold_sweep_findings found;
    for (size_t s = 0; s < 3; s++) {
        double m = multipliers[s], zero = zeros[s];
        stairs[s] = (struct nd_threshold_sweep){
            .multiplier = m, .zero_point = zero, .high = 65535, .first = -20000, .n = 40000};
        qvalues[s] = calloc(stairs[s].n, sizeof *qvalues[s]);
        assert_non_null(qvalues[s]);
        int exponent;
        double mantissa = frexp(m, &exponent), c = ldexp(floor(ldexp(mantissa, 11) + 0.5), exponent - 11);
        for (size_t i = 0; i < stairs[s].n; i++)
            qvalues[s][i] =
                fmin(fmax(floor(c * (stairs[s].first + (double)i + floor(zero / m)) + 0.5), 0), 65535);
        stairs[s].qvalues = qvalues[s];
    }
    assert_int_equal(nd_threshold_sweep_solve(stairs, 3, &found, NULL), ND_OK);
    assert_true(found.n_arithmetics > 0);
    assert_int_equal(found.arithmetics[0].multiplier_bits, 10);
    for (size_t i = 0; i < found.n_arithmetics; i++) {
        assert_true(found.arithmetics[i].folds_zero);
        assert_int_equal(found.arithmetics[i].fold_rounding, ND_ROUND_FLOOR);
    }
    free(found.arithmetics);
    for (size_t s = 0; s < 3; s++)
        free(qvalues[s]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dropped_bits_and_their_roundings_are_found),
        cmocka_unit_test(sums_that_lose_nothing_are_told),
        cmocka_unit_test(folded_zero_points_may_be_cut),
        cmocka_unit_test(folded_zero_points_may_pass_through_float32),
        cmocka_unit_test(staircases_tell_how_a_zero_point_is_folded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
