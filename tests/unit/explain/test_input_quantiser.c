/* What devices are known to make of a model's input, and what would be a fault. */
#include "support/main.h"

#include <math.h>

#include "explain/layer_diagnosis/layer_diagnosis.h"

/* ---- known arithmetic: by its sentence, so that the order does not matter ---- */

static double made(const char *sentence, float x, float scale)
{
    for (size_t a = 0; a < ND_N_INPUT_ARITHMETICS; a++) {
        const char *text = nd_input_arithmetic_text(a);
        if (sentence == NULL ? text == NULL : text != NULL && strstr(text, sentence) != NULL)
            return nd_input_arithmetic(a, x, scale);
    }
    fail_msg("no arithmetic says '%s'", sentence != NULL ? sentence : "(ONNX)");
    return NAN;
}

static void onnx_comes_first_and_has_no_sentence(void **state)
{
    (void)state;
    assert_null(nd_input_arithmetic_text(0));
    for (size_t a = 1; a < ND_N_INPUT_ARITHMETICS; a++)
        assert_non_null(nd_input_arithmetic_text(a));
}

static void ties_are_rounded_as_the_sentence_says(void **state)
{
    (void)state;
    static const float ties[] = {-2.5F, -1.5F, -0.5F, 0.5F, 1.5F, 2.5F};
    static const double even[] = {-2, -2, 0, 0, 2, 2}, away[] = {-3, -2, -1, 1, 2, 3},
                        up[] = {-2, -1, 0, 1, 2, 3}, down[] = {-3, -2, -1, 0, 1, 2};
    for (size_t i = 0; i < sizeof ties / sizeof *ties; i++) {
        assert_true(made(NULL, ties[i], 1) == even[i]);
        assert_true(made("ties are rounded half away", ties[i], 1) == away[i]);
        assert_true(made("ties are rounded half up", ties[i], 1) == up[i]);
        assert_true(made("ties are rounded half down", ties[i], 1) == down[i]);
    }
}

/* Half precision has steps of 1/8 from 128 on: 200.4375 is nearer to 200.5 than to 200.375? It is the middle,
 * and even is 200.5. */
static void half_precision_moves_values_onto_ties(void **state)
{
    (void)state;
    assert_true(made(NULL, 200.4375F, 1) == 200);
    assert_true(made("half precision", 200.4375F, 1) == 201);
    assert_true(made("half precision", -200.4375F, 1) == -201);
    assert_true(made("half precision", 200.43F, 1) == 200);
    assert_true(made("half precision", 3.4375F, 1) == 3);
}

/* Draws until the two divide otherwise beside a tie: the candidates are not all one. */
static void products_and_quotients_differ_beside_ties(void **state)
{
    (void)state;
    uint64_t seed = 20261122;
    size_t n = 0;
    print_message("# seed %llu\n", (unsigned long long)seed);
    for (size_t i = 0; i < 1000000 && n == 0; i++) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        float scale = 0.001F + (float)(seed >> 44) * 0x1p-24F, x = ((float)((seed >> 20) % 200) + 0.5F) * scale;
        n += made("multiplied by 1 / scale in float32, not", x, scale) != made(NULL, x, scale);
    }
    assert_true(n > 0);
}

/* ---- faults ---- */

static void faults_give_their_qvalues(void **state)
{
    (void)state;
    static const struct {
        double steps,
            qvalues[ND_N_INPUT_FAULTS]; /* to zero, quantised value cut, floor, ceil, magnitude; zero point 7 */
    } cases[] = {
        {-1.7, {6, 5, 5, 6, 9}},
        {-9.2, {-2, -2, -3, -2, 16}},
        {1.7, {8, 8, 8, 9, 9}},
        {0, {7, 7, 7, 7, 7}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int f = 0; f < ND_N_INPUT_FAULTS; f++)
            assert_true(nd_input_fault_qvalue((enum nd_input_fault)f, cases[i].steps, 7) ==
                        cases[i].qvalues[f]);
    assert_false(signbit(nd_input_fault_qvalue(ND_INPUT_QVALUE_CUT, -0.3, 0)));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(onnx_comes_first_and_has_no_sentence),
        cmocka_unit_test(ties_are_rounded_as_the_sentence_says),
        cmocka_unit_test(half_precision_moves_values_onto_ties),
        cmocka_unit_test(products_and_quotients_differ_beside_ties),
        cmocka_unit_test(faults_give_their_qvalues),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
