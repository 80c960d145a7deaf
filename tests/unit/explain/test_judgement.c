/* Layers of unknown arithmetic that are within one LSB of exact rounding, without a bias. */
#include <math.h>

#include "explain/verdict/judgement.h"
#include "support/main.h"

static struct nd_explained_layer layer_of(size_t n, size_t n_above, size_t n_below)
{
    return (struct nd_explained_layer){.is_examined = true,
                                       .n_qvalues = n,
                                       .introduced = {.n_differing = n_above + n_below,
                                                      .max = 1,
                                                      .mean = ((double)n_above - (double)n_below) / (double)n}};
}

static enum nd_layer_state judged(struct nd_explained_layer layer, bool is_known)
{
    nd_judge_open(&layer);
    nd_judge_within_lsb(&layer, is_known);
    return layer.judgement.state;
}

static void one_lsb_to_both_sides_is_no_alarm(void **state)
{
    (void)state;
    assert_int_equal(judged(layer_of(1000, 100, 100), false), ND_LAYER_WITHIN_LSB);
    assert_int_equal(judged(layer_of(1000, 1, 0), false), ND_LAYER_WITHIN_LSB);
    assert_int_equal(judged(layer_of(1000, 250, 250), false), ND_LAYER_WITHIN_LSB);
}

/* Floor and truncation move values to one side. 4 standard errors: of 16 values all, of 100 70 to 30. */
static void a_bias_is(void **state)
{
    (void)state;
    assert_int_equal(judged(layer_of(1000, 0, 400), false), ND_LAYER_UNEXPLAINED);
    assert_int_equal(judged(layer_of(1000, 400, 0), false), ND_LAYER_UNEXPLAINED);
    assert_int_equal(judged(layer_of(1000, 16, 0), false), ND_LAYER_WITHIN_LSB);
    assert_int_equal(judged(layer_of(1000, 17, 0), false), ND_LAYER_UNEXPLAINED);
    assert_int_equal(judged(layer_of(1000, 70, 30), false), ND_LAYER_WITHIN_LSB);
    assert_int_equal(judged(layer_of(1000, 71, 29), false), ND_LAYER_UNEXPLAINED);
}

static void so_are_more_steps_and_more_than_half_of_the_values(void **state)
{
    (void)state;
    struct nd_explained_layer far = layer_of(1000, 100, 100);
    far.introduced.max = 2;
    assert_int_equal(judged(far, false), ND_LAYER_UNEXPLAINED);
    assert_int_equal(judged(layer_of(1000, 251, 250), false), ND_LAYER_UNEXPLAINED);
}

static void known_arithmetic_has_to_be_followed(void **state)
{
    (void)state;
    assert_int_equal(judged(layer_of(1000, 100, 100), true), ND_LAYER_UNEXPLAINED);
}

static void what_is_not_open_stays_as_it_is(void **state)
{
    (void)state;
    struct nd_explained_layer layer = layer_of(1000, 100, 100);
    layer.is_examined = false;
    assert_int_equal(judged(layer, false), ND_LAYER_NOT_EXAMINED);
    layer.judgement.state = ND_LAYER_FAULTY;
    nd_judge_within_lsb(&layer, false);
    assert_int_equal(layer.judgement.state, ND_LAYER_FAULTY);
    layer = layer_of(1000, 100, 100);
    layer.judgement.is_noise = true;
    assert_int_equal(judged(layer, false), ND_LAYER_UNEXPLAINED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_lsb_to_both_sides_is_no_alarm),
        cmocka_unit_test(a_bias_is),
        cmocka_unit_test(so_are_more_steps_and_more_than_half_of_the_values),
        cmocka_unit_test(known_arithmetic_has_to_be_followed),
        cmocka_unit_test(what_is_not_open_stays_as_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
