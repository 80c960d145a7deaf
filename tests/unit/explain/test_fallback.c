/* Where layers were computed: likelihoods of quantised values, floats on the grid of half precision, sums of
 * evidence, and whole captures by emulated devices. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"

#include <math.h>

#include "explain/fallback/fallback.h"

/* ---- quantised values ---- */

static struct nd_fallback_counts counts_of(double n, double n_off, double n_far, bool is_wide)
{
    return (struct nd_fallback_counts){.n = n, .n_off = n_off, .n_far = n_far, .spread = 1, .is_wide = is_wide};
}

static double weigh(const char *op, struct nd_fallback_counts counts)
{
    struct nd_fallback_rates rates = nd_fallback_rates_of(op, &counts);
    return nd_fallback_weigh(&counts, &rates);
}

static void exact_qvalues_weigh_against_the_npu_where_it_is_never_exact(void **state)
{
    (void)state;
    assert_true(weigh("Conv", counts_of(20000, 0, 0, false)) <= -ND_FALLBACK_DECISION);
    assert_true(weigh("Conv+Relu", counts_of(20000, 0, 0, false)) <= -ND_FALLBACK_DECISION);
    assert_true(weigh("LayerNormalization", counts_of(20000, 12, 0, true)) <= -ND_FALLBACK_DECISION);
    /* A table of 256 entries is exact wherever it is. */
    assert_true(fabs(weigh("Gelu", counts_of(20000, 0, 0, false))) < 1);
    /* By a constant, any layer may be exact. */
    for (int is_wide = 0; is_wide < 2; is_wide++) {
        struct nd_fallback_counts constant = counts_of(64789, 0, 0, is_wide);
        assert_true(weigh("Add", constant) <= -ND_FALLBACK_DECISION);
        constant.is_by_constant = true;
        assert_true(fabs(weigh("Add", constant)) < 1.01);
        assert_true(fabs(weigh("Div", constant)) < 1.01);
    }
    /* Nothing is known of it in 8 bits. */
    assert_true(fabs(weigh("Erf", counts_of(20000, 0, 0, false))) < 2);
}

static void the_weight_of_exact_qvalues_has_a_limit_and_grows_to_it(void **state)
{
    (void)state;
    double last = 0;
    for (double n = 1; n < 1e7; n *= 4) {
        double weight = weigh("MatMul", counts_of(n, 0, 0, false));
        assert_true(weight < last);
        last = weight;
    }
    assert_true(last >= log2(0.003) - 0.01);
}

static void qvalues_of_the_arithmetic_or_of_rounding_tell(void **state)
{
    (void)state;
    assert_true(nd_fallback_weigh_arithmetic(100, 100, 0, 1) == ND_FALLBACK_MAX);
    assert_true(nd_fallback_weigh_arithmetic(100, 0, 100, 1) == -ND_FALLBACK_MAX);
    assert_true(nd_fallback_weigh_arithmetic(0, 0, 0, 1) == 0);
    assert_true(nd_fallback_weigh_arithmetic(100, 50, 50, 1) == 0); /* neither */
    assert_true(nd_fallback_weigh_arithmetic(100, 10, 10, 1) == 0);
    assert_true(nd_fallback_weigh_arithmetic(1, 1, 0, 1) <
                ND_FALLBACK_DECISION); /* one quantised value decides nothing */
    assert_true(nd_fallback_weigh_arithmetic(100, 100, 0, 80) < ND_FALLBACK_MAX); /* alike in every sample */
}

static void qvalues_off_weigh_for_the_npu(void **state)
{
    (void)state;
    assert_true(weigh("Conv", counts_of(20000, 500, 480, false)) >= ND_FALLBACK_DECISION);
    assert_true(weigh("MatMul", counts_of(20000, 19000, 18000, true)) >= ND_FALLBACK_DECISION);
    assert_true(weigh("Add", counts_of(20000, 400, 0, true)) >= ND_FALLBACK_DECISION);
    assert_true(weigh("Conv", counts_of(1e9, 9e8, 9e8, false)) <= ND_FALLBACK_MAX);
    /* Far more than others of its kind. */
    assert_true(weigh("Mul", counts_of(16383, 16372, 16342, true)) >= ND_FALLBACK_DECISION);
    /* As a CPU does it that fuses Softmax with its quantisation. */
    assert_true(weigh("Softmax", counts_of(6000, 395, 300, false)) < ND_FALLBACK_DECISION);
}

static void nothing_deciding_weighs_nothing(void **state)
{
    (void)state;
    assert_f64_bits(weigh("Reshape", counts_of(0, 0, 0, false)), 0);
}

static void qvalues_that_are_alike_weigh_less(void **state)
{
    (void)state;
    struct nd_fallback_counts apart = counts_of(300, 0, 0, false), alike = apart;
    alike.spread = 30;
    assert_true(weigh("Conv", alike) > weigh("Conv", apart));
}

static void what_is_off_elsewhere_makes_exact_qvalues_tell(void **state)
{
    (void)state;
    struct nd_fallback_counts exact = counts_of(20000, 0, 0, false);
    struct nd_fallback_rates rates = nd_fallback_rates_of("Erf", &exact), layer = rates, kind = rates;
    nd_fallback_learn(&layer, 0.02, 1, true);
    nd_fallback_learn(&kind, 0.02, 5, false);
    double alone = nd_fallback_weigh(&exact, &rates);
    assert_true(nd_fallback_weigh(&exact, &layer) <= -ND_FALLBACK_DECISION);
    assert_true(nd_fallback_weigh(&exact, &kind) < alone);
    assert_true(nd_fallback_weigh(&exact, &layer) < nd_fallback_weigh(&exact, &kind));
}

/* ---- floats ---- */

enum { N = 1024 };

static void floats_are_counted_by_their_grid(void **state)
{
    (void)state;
    double full[N], half[N];
    for (size_t i = 0; i < N; i++) {
        full[i] = (float)((i % 2 ? 1 : -1) * (1 + (double)i / 777));
        half[i] = rint(full[i] * 512) / 512;
    }
    struct nd_fallback_floats floats = {0};
    nd_fallback_count_floats(&floats, full, full, N);
    assert_int_equal(floats.n, N);
    assert_true(floats.n_on_grid < N / 100);
    floats = (struct nd_fallback_floats){0};
    nd_fallback_count_floats(&floats, half, full, N);
    assert_int_equal(floats.n_on_grid, N);
    assert_int_equal(floats.n_known, N);
    floats = (struct nd_fallback_floats){0};
    for (size_t i = 0; i < N; i++)
        half[i] = nextafterf((float)half[i], INFINITY); /* as the simulator has them */
    nd_fallback_count_floats(&floats, half, NULL, N);
    assert_int_equal(floats.n_on_grid, N);
    assert_int_equal(floats.n_known, 0);
}

static void floats_that_half_precision_does_not_hold_are_left_out(void **state)
{
    (void)state;
    const double odd[] = {0, -0.0, NAN, INFINITY, -INFINITY, 1e-6, 70000, 0x1p-15};
    struct nd_fallback_floats floats = {0};
    nd_fallback_count_floats(&floats, odd, NULL, sizeof odd / sizeof *odd);
    assert_int_equal(floats.n, 0);
}

static void floats_rounded_once_are_on_the_grid_and_not_off(void **state)
{
    (void)state;
    double own[N], once[N], twice[N];
    for (size_t i = 0; i < N; i++) {
        own[i] = 1 + (double)(i * 7919 % 100003) / 100003;
        once[i] = rint(own[i] * 1024) / 1024;
        twice[i] = once[i] + (i % 4 == 0 ? 1.0 / 1024 : 0);
    }
    struct nd_fallback_floats floats = {0};
    nd_fallback_count_floats(&floats, once, own, N);
    assert_int_equal(floats.n_off, 0);
    nd_fallback_count_floats(&floats, twice, own, N);
    assert_true(floats.n_off > N / 8 && floats.n_off <= N / 4);
}

/* ---- sums ---- */

static enum nd_execution verdict_of(double first, double second, bool *is_contradictory)
{
    struct nd_explained_execution execution = {0};
    struct nd_error err = {0};
    expect_ok(nd_fallback_add(&execution, "bit-equal", first, &err, "%d", 1), &err);
    expect_ok(nd_fallback_add(&execution, "placement", second, &err, "%d", 2), &err);
    nd_fallback_conclude(&execution);
    enum nd_execution verdict = execution.verdict;
    *is_contradictory = execution.is_contradictory;
    for (size_t i = 0; i < execution.n_evidence; i++)
        free(execution.evidence[i].text);
    free(execution.evidence);
    return verdict;
}

static void a_verdict_takes_a_hundred_to_one(void **state)
{
    (void)state;
    bool is_contradictory;
    assert_int_equal(verdict_of(6.6, 0, &is_contradictory), ND_EXECUTION_UNKNOWN);
    assert_int_equal(verdict_of(6.7, 0, &is_contradictory), ND_EXECUTION_NPU);
    assert_int_equal(verdict_of(-4, -3, &is_contradictory), ND_EXECUTION_NOT_NPU);
    assert_int_equal(verdict_of(5, -5, &is_contradictory), ND_EXECUTION_UNKNOWN);
    assert_false(is_contradictory);
}

static void contradictions_of_like_weight_are_unknown(void **state)
{
    (void)state;
    bool is_contradictory;
    assert_int_equal(verdict_of(20, -12, &is_contradictory), ND_EXECUTION_UNKNOWN);
    assert_true(is_contradictory);
    assert_int_equal(verdict_of(-20, 8, &is_contradictory), ND_EXECUTION_NOT_NPU);
    assert_true(is_contradictory);
    assert_int_equal(verdict_of(20, -3, &is_contradictory), ND_EXECUTION_NPU);
    assert_false(is_contradictory);
}

/* ---- captures ---- */

static void exact_capture_was_not_computed_by_an_npu(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.arch = "v75"});
    explain_ok(&f);
    assert_int_equal(layer_of(&f, "pointwise/relu")->execution.verdict, ND_EXECUTION_NOT_NPU);
    assert_int_equal(layer_of(&f, "pointwise/relu")->execution.n_off, 0);
    assert_true(layer_of(&f, "pointwise/relu")->execution.n_deciding > 1000);
    assert_int_equal(layer_of(&f, "features")->execution.verdict, ND_EXECUTION_UNKNOWN);
    assert_non_null(layer_of(&f, "features")->execution.why_unknown);
    assert_int_equal(layer_of(&f, "image")->execution.n_evidence, 0);
    assert_int_equal(f.e->devices[0].execution.n_npu, 0);
    close_fixture(&f);
}

/* NPUs of others round as exactly as a CPU does: nobody knows of this one that it does not. */
static void exact_values_tell_nothing_of_an_npu_that_is_not_known(void **state)
{
    (void)state;
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_HALF_UP, ND_ROUND_HALF_AWAY};
    for (size_t i = 0; i < 3; i++) {
        struct fixture f = {.model = load("cnn.w8a8")};
        add_device(&f, &(struct mc_device){.import = "npu", .rounding = roundings[i]});
        explain_ok(&f);
        assert_true(f.e->health < ND_HEALTH_UNEXPLAINED);
        assert_int_not_equal(f.e->devices[0].execution.verdict, ND_EXECUTION_NOT_NPU);
        const struct nd_explained_execution *layer = &layer_of(&f, "pointwise/relu")->execution;
        assert_int_not_equal(layer->verdict, ND_EXECUTION_NOT_NPU);
        for (size_t k = 0; k < layer->n_evidence; k++)
            assert_string_not_equal(layer->evidence[k].kind, "bit-equal");
        close_fixture(&f);
    }
}

/* A device beside one of which a layer is permuted: what is expected of it is not what the broken one has. */
static void broken_run_sets_no_rate_for_its_siblings(void **state)
{
    (void)state;
    static const char *const faults[] = {"htp-v73,permute@residual/conv=3",
                                         "htp-v73,scale@residual/conv=*:1.3"};
    for (size_t k = 0; k < 2; k++) {
        struct fixture f = {.model = load("cnn.w8a8")};
        add_device(&f, &(struct mc_device){.emulated = "double:8"});
        add_device(&f, &(struct mc_device){.emulated = faults[k]});
        explain_ok(&f);
        size_t step = find_step(&f, "residual/conv");
        const struct nd_explained_layer *good = &f.e->devices[0].layers[step],
                                        *broken = &f.e->devices[1].layers[step];
        assert_int_equal(good->judgement.state, ND_LAYER_FOLLOWS);
        assert_int_equal(broken->judgement.state, ND_LAYER_FAULTY);
        for (size_t i = 0; i < good->execution.n_evidence; i++)
            assert_null(strstr(good->execution.evidence[i].text, "on other runs of this comparison"));
        for (size_t i = 0; i < broken->execution.n_evidence; i++) /* nor is it evidence for itself */
            assert_string_equal(broken->execution.evidence[i].kind, "neighbours");
        assert_int_equal(broken->execution.verdict, ND_EXECUTION_UNKNOWN);
        close_fixture(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_qvalues_weigh_against_the_npu_where_it_is_never_exact),
        cmocka_unit_test(the_weight_of_exact_qvalues_has_a_limit_and_grows_to_it),
        cmocka_unit_test(qvalues_of_the_arithmetic_or_of_rounding_tell),
        cmocka_unit_test(qvalues_off_weigh_for_the_npu),
        cmocka_unit_test(nothing_deciding_weighs_nothing),
        cmocka_unit_test(qvalues_that_are_alike_weigh_less),
        cmocka_unit_test(what_is_off_elsewhere_makes_exact_qvalues_tell),
        cmocka_unit_test(floats_are_counted_by_their_grid),
        cmocka_unit_test(floats_that_half_precision_does_not_hold_are_left_out),
        cmocka_unit_test(floats_rounded_once_are_on_the_grid_and_not_off),
        cmocka_unit_test(a_verdict_takes_a_hundred_to_one),
        cmocka_unit_test(contradictions_of_like_weight_are_unknown),
        cmocka_unit_test_setup_teardown(exact_capture_was_not_computed_by_an_npu, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(exact_values_tell_nothing_of_an_npu_that_is_not_known, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(broken_run_sets_no_rate_for_its_siblings, make_folder, remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
