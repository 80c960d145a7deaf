/* What steps show: floats that are multiples of one step, and functions that make a large difference of a small
 * one. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "explain/diagnosis/values.h"

enum { MOST = 4000 };

static uint64_t state_of_random;

static double uniform(double low, double high)
{
    state_of_random = state_of_random * 6364136223846793005u + 1442695040888963407u;
    return low + (high - low) * (double)((state_of_random ^ state_of_random >> 29) >> 11) * 0x1p-53;
}

static int seed(void **state)
{
    (void)state;
    const char *text = getenv("ND_SEED"); /* replays a run */
    state_of_random = text != NULL ? strtoull(text, NULL, 10) : 20261122;
    printf("# ND_SEED=%llu\n", (unsigned long long)state_of_random);
    return 0;
}

/* What is said of a kind in n floats of one sample; "": nothing. */
static const char *said(enum nd_fault_kind kind, const double *ref, const double *test, size_t n)
{
    static struct nd_findings found;
    struct nd_error err = {0};
    const struct nd_evidence v = {.n_samples = 1,
                                  .n = n,
                                  .shape = {1, {(int64_t)n}},
                                  .dtype = ND_DTYPE_F32,
                                  .expected = ref,
                                  .captured = test};
    assert_int_equal(nd_diagnose_tensor(&v, &found, &err), ND_OK);
    for (size_t k = 0; k < found.n; k++)
        if (found.items[k].kind == kind)
            return found.items[k].text;
    return "";
}

static void assert_says(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' does not say '%s'", text, part);
}

/* ---- multiples of a step ---- */

/* AIMET's simulation beside the DSP, as printed with six decimals. */
static const double sim[12] = {0.059581, 0.037238, 0.018619, -0.14523,  -0.402175, -0.014895,
                               0.044686, 0.011172, 0.059581, -0.171297, -0.014895, 0.227154};
static const double dsp[12] = {0.059581, 0.037238, 0.018619, -0.148954, -0.398451, -0.014895,
                               0.044686, 0.011172, 0.059581, -0.171297, -0.011172, 0.227154};

static void printed_values_are_steps_apart(void **state)
{
    (void)state;
    double ref[12], test[12];
    for (int i = 0; i < 12; i++) {
        ref[i] = (double)(float)sim[i];
        test[i] = (double)(float)dsp[i];
    }
    assert_says(said(ND_FAULT_COMMON_STEP, ref, test, 12), "at most 1 step of 0.003724 apart, 3 of 12 values");
    test[5] = (double)(float)-0.014; /* a quarter of a step beside */
    assert_string_equal(said(ND_FAULT_COMMON_STEP, ref, test, 12), "");
    test[5] = (double)(float)-0.033515;
    assert_says(said(ND_FAULT_COMMON_STEP, ref, test, 12), "at most 5 steps of 0.003724 apart, 4 of 12 values");
    /* Four values do not tell a step from chance. */
    assert_string_equal(said(ND_FAULT_COMMON_STEP, ref + 2, test + 2, 2), "");
    assert_string_equal(said(ND_FAULT_COMMON_STEP, ref + 4, test + 4, 2), "");
}

/* How a dump keeps a number: as a float32, or as a text of some decimals or digits. */
static double keep(double x, int method)
{
    char text[64];
    snprintf(text, sizeof text, method == 1 ? "%.6f" : method == 2 ? "%.7g" : "%.17g", x);
    return (double)strtof(text, NULL);
}

static void dequantised_qvalues_are_steps_apart(void **state)
{
    (void)state;
    static double ref[MOST], test[MOST];
    for (int trial = 0; trial < 120; trial++) {
        int most = trial % 4 == 3 ? 65535 : 255, method = most > 255 ? 0 : trial % 3;
        double scale = (double)(float)uniform(0.005, 0.05), n_steps = 0;
        size_t n = (size_t)uniform(most > 255 ? 400 : 16, trial % 2 == 0 ? 40 : MOST), n_moved = 0;
        for (size_t i = 0; i < n; i++) {
            double qvalue = floor(uniform(0, most + 1)) - (most + 1) / 2,
                   by = i < 2 ? (double)i : floor(uniform(0, 1.3));
            ref[i] = keep((double)((float)qvalue * (float)scale), method);
            test[i] = keep((double)((float)(qvalue + by) * (float)scale), method);
            n_moved += by != 0;
            n_steps = fmax(n_steps, by);
        }
        char text[96];
        snprintf(text, sizeof text, "at most %g step of %.4g apart, %zu of %zu values", n_steps, scale, n_moved,
                 n);
        assert_says(said(ND_FAULT_COMMON_STEP, ref, test, n), text);
    }
}

/* Random numbers as dumps and narrower types keep them have no step but their own precision. */
static void other_floats_have_no_step(void **state)
{
    (void)state;
    static double ref[MOST], test[MOST];
    for (int trial = 0; trial < 4000; trial++) {
        static const int bits[] = {0, 0, 0, 10, 7, 3};
        int method = trial % 6;
        size_t n = (size_t)uniform(2, trial % 50 == 0 ? 600 : 30);
        double spread = exp(uniform(-3, 3)), error = exp(uniform(-12, -1));
        for (size_t i = 0; i < n; i++) {
            double *const sides[] = {&ref[i], &test[i]};
            double x = spread * uniform(-1, 1), y = x * (1 + error * uniform(-1, 1));
            for (int side = 0; side < 2; side++) {
                int exponent;
                double v = keep(side == 0 ? x : y, method < 3 ? method : 0);
                frexp(v, &exponent);
                *sides[side] = bits[method] > 0 ? ldexp(rint(ldexp(v, bits[method] + 1 - exponent)),
                                                        exponent - bits[method] - 1)
                                                : v;
            }
        }
        assert_string_equal(said(ND_FAULT_COMMON_STEP, ref, test, n), "");
        assert_string_equal(said(ND_FAULT_OWN_STEP, ref, test, n), "");
    }
}

/* A device whose output is fixed point, beside floats of no step; and codes, whole numbers and narrow floats.
 */
static void one_sided_steps_are_told(void **state)
{
    (void)state;
    static double ref[MOST], test[MOST];
    for (int trial = 0; trial < 60; trial++) {
        int bits = 4 + trial % 5;
        bool is_cut = trial % 2 == 0;
        char text[96];
        for (size_t i = 0; i < MOST; i++) {
            ref[i] = (double)(float)uniform(-3, 3);
            test[i] = ldexp(is_cut ? trunc(ldexp(ref[i], bits)) : rint(ldexp(ref[i], bits)), -bits);
        }
        snprintf(text, sizeof text, "all values are multiples of %.5g, fixed point with %d fractional bits",
                 ldexp(1, -bits), bits);
        assert_says(said(ND_FAULT_OWN_STEP, ref, test, MOST), text);
        assert_string_equal(said(ND_FAULT_BF16_GRID, ref, test, MOST), "");
        snprintf(text, sizeof text, "cut toward zero to multiples of %.5g, not rounded", ldexp(1, -bits));
        if (is_cut)
            assert_says(said(ND_FAULT_TRUNCATION, ref, test, MOST), text);
        else
            assert_string_equal(said(ND_FAULT_TRUNCATION, ref, test, MOST), "");
        for (size_t i = 0; i < MOST; i++) /* codes times a scale */
            test[i] = (double)((float)rint(ref[i] / 0.0237) * 0.0237F);
        assert_says(said(ND_FAULT_OWN_STEP, ref, test, MOST),
                    "all values are multiples of 0.0237, as of dequantised values");
        for (size_t i = 0; i < MOST; i++) /* the reference is of the same kind */
            ref[i] = test[i] + (i % 7 == 0 ? (double)0.0237F : 0);
        assert_string_equal(said(ND_FAULT_OWN_STEP, ref, test, MOST), "");
        for (size_t i = 0; i < MOST; i++) {
            ref[i] = uniform(-90, 90);
            test[i] = rint(ref[i]);
        }
        assert_says(said(ND_FAULT_OWN_STEP, ref, test, MOST), "all values are multiples of 1, whole numbers");
        for (size_t i = 0; i < MOST; i++) { /* a text of two decimals */
            ref[i] = uniform(-3, 3);
            test[i] = (double)(float)(rint(ref[i] * 100) / 100);
        }
        assert_string_equal(said(ND_FAULT_OWN_STEP, ref, test, MOST), "");
    }
}

/* ---- Greater, Less, Equal ---- */

enum { N_COMPARED = 400 };

/* Two tensors and their comparison; the test's are off by up to `error`. */
struct compared {
    double a_ref[N_COMPARED], a_test[N_COMPARED], b_ref[N_COMPARED], b_test[N_COMPARED], ref[N_COMPARED],
        test[N_COMPARED];
};

static double outcome(int relation, double a, double b)
{
    return relation == 0 ? a > b : relation == 1 ? a < b : a == b;
}

static void make_compared(struct compared *c, int relation, double error, bool is_constant)
{
    for (size_t i = 0; i < N_COMPARED; i++) {
        bool is_near = i % 5 == 0;
        c->b_ref[i] = c->b_test[i] = is_constant ? 0.25 : floor(uniform(-32, 32)) / 32;
        c->a_ref[i] = is_near ? c->b_ref[i] : floor(uniform(-32, 32)) / 32;
        c->a_test[i] = c->a_ref[i] + (is_near && i % 2 == 0 ? error : 0);
        c->ref[i] = outcome(relation, c->a_ref[i], c->b_ref[i]);
        c->test[i] = outcome(relation, c->a_test[i], c->b_test[i]);
    }
}

static const char *said_of(const struct compared *c, bool is_constant)
{
    static struct nd_findings found;
    struct nd_error err = {0};
    const struct nd_other others[] = {{"a", c->a_ref, c->a_test}, {"b", c->b_ref, c->b_test}};
    const struct nd_evidence v = {.n_samples = 4,
                                  .n = N_COMPARED / 4,
                                  .shape = {1, {N_COMPARED / 4}},
                                  .dtype = ND_DTYPE_BOOL,
                                  .step = 1,
                                  .ref_step = 1,
                                  .expected = c->ref,
                                  .captured = c->test,
                                  .others = others,
                                  .n_others = is_constant ? 1 : 2};
    assert_int_equal(nd_diagnose_tensor(&v, &found, &err), ND_OK);
    for (size_t k = 0; k < found.n; k++)
        if (found.items[k].kind == ND_FAULT_STEP)
            return found.items[k].text;
    return "";
}

static void comparisons_amplify(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "Greater or Less ('a' > 'b') amplifies: their difference changes by at most 0.0312 in the 40 elements",
        "Greater or Less ('a' < 'b') amplifies: their difference changes by at most 0.0312 in the 40 elements",
        "Equal ('a' = 'b') amplifies: their difference changes by at most 0.0312 in the 40 elements"};
    static const char *const constants[] = {
        "Greater or Less (a constant from 0.25 to 0.28125) amplifies: 'a' differs by at most 0.0312 in the 40",
        "Greater or Less (a constant from 0.21875 to 0.25) amplifies: 'a' differs by at most 0.0312 in the 40",
        "Equal (the constant 0.25) amplifies: 'a' differs by at most 0.0312 in the 40"};
    static struct compared c;
    for (int relation = 0; relation < 3; relation++)
        for (int is_constant = 0; is_constant < 2; is_constant++) {
            double error = relation == 1 ? -1.0 / 32 : 1.0 / 32;
            make_compared(&c, relation, error, is_constant != 0);
            assert_says(said_of(&c, is_constant != 0), (is_constant ? constants : texts)[relation]);
            c.test[7] = c.test[7] == 0; /* the device's own error */
            assert_string_equal(said_of(&c, is_constant != 0), "");
            make_compared(&c, relation, 8 * error, is_constant != 0); /* no small difference */
            assert_string_equal(said_of(&c, is_constant != 0), "");
        }
}

/* Zeros and ones that follow from nothing that is there, and too few of them. */
static void other_bits_are_no_comparison(void **state)
{
    (void)state;
    static struct compared c;
    make_compared(&c, 0, 1.0 / 32, false);
    for (size_t i = 0; i < N_COMPARED; i++)
        c.ref[i] = c.test[i] = uniform(0, 1) < 0.5;
    c.test[3] = c.test[3] == 0;
    assert_string_equal(said_of(&c, false), "");
    make_compared(&c, 0, 1.0 / 32, true);
    for (size_t i = 0; i < N_COMPARED; i++) { /* six ones of the reference */
        c.a_ref[i] = i < 6 ? 1 : i % 2 == 0 ? 0.25 : -1;
        c.a_test[i] = i == 8 ? 0.28 : c.a_ref[i];
        c.ref[i] = c.a_ref[i] > 0.25;
        c.test[i] = c.a_test[i] > 0.25;
    }
    assert_string_equal(said_of(&c, true), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(printed_values_are_steps_apart),
        cmocka_unit_test(dequantised_qvalues_are_steps_apart),
        cmocka_unit_test(other_floats_have_no_step),
        cmocka_unit_test(one_sided_steps_are_told),
        cmocka_unit_test(comparisons_amplify),
        cmocka_unit_test(other_bits_are_no_comparison),
    };
    return cmocka_run_group_tests(tests, seed, NULL);
}
