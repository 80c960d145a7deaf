/* Several devices: what they have in common, what each layer does to the outputs, and who is out of line. */
#include "support/main.h"
#include "support/scratch.h"

#include "support/explain_fixture.h"

#include <math.h>

static const char *const tensors[] = {"stem/relu", "depthwise/relu", "pointwise/relu", "residual/conv"};

/* Every device has one quantised value that is wrong, elsewhere; all but the last round as told. */
static void add_groups(struct fixture *f, enum nd_rounding most, enum nd_rounding last)
{
    for (size_t i = 0; i < 4; i++)
        add_device(f, &(struct mc_device){.rounding = most, .wrong_tensor = tensors[i]});
    add_device(f, &(struct mc_device){.rounding = last});
}

static void majority_is_what_is_common(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8"), .float_model = load("cnn.float")};
    add_groups(&f, ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR);
    explain_ok(&f);
    assert_true(f.e->majority.is_known);
    assert_int_equal(f.e->majority.n_groups, 5);
    assert_true(f.e->majority.margin >= 2 && f.e->majority.margin <= 4);
    /* The majority is the quantised reference, so that what is floor's own is its divergence. */
    assert_true(f.e->majority.common_divergence == 0);
    const struct nd_explained_device *floors = &f.e->devices[4];
    double share = floors->output.divergence / (floors->output.divergence + floors->output.quantisation);
    assert_true(fabs(floors->own_share - share) < 1e-12);
    assert_true(f.e->devices[0].own_share < 0.05 && floors->own_share > 0.1);
    close_fixture(&f);
}

/* That the majority is wrong is seen against the reference only. */
static void majority_that_is_wrong_shows_in_what_is_common(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8"), .float_model = load("cnn.float")};
    add_groups(&f, ND_ROUND_FLOOR, ND_ROUND_HALF_EVEN);
    explain_ok(&f);
    assert_true(f.e->majority.is_known);
    assert_true(f.e->majority.common_divergence > 0.5);
    assert_true(f.e->devices[4].own_share > 0.1);
    assert_true(f.e->devices[0].own_share < 0.05);
    assert_true(f.e->devices[4].output.divergence == 0);
    close_fixture(&f);
}

static void vote_abstains_without_a_clear_majority(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.rounding = ND_ROUND_FLOOR});
    add_device(&f, &(struct mc_device){.rounding = ND_ROUND_FLOOR});
    explain_ok(&f);
    assert_false(f.e->majority.is_known);
    assert_int_equal(f.e->majority.n_groups, 1);
    assert_int_equal(f.e->devices[1].same_as, 0);
    assert_memory_equal(&f.e->devices[0].layers[3].introduced, &f.e->devices[1].layers[3].introduced,
                        sizeof(struct nd_explained_part));
    assert_non_null(strstr(f.e->majority.why_not, "the devices form 1 group; with fewer than 3"));
    add_device(&f, &(struct mc_device){0});
    add_device(&f, &(struct mc_device){.rounding = ND_ROUND_CEIL});
    explain_ok(&f);
    assert_false(f.e->majority.is_known);
    assert_int_equal(f.e->majority.n_groups, 3);
    assert_true(f.e->majority.margin < 2 && f.e->majority.split_share > 0.3);
    close_fixture(&f);
}

/* One wrong code: what it does to the outputs is all that the outputs differ by. */
static void harm_is_what_a_introduced_error_does_to_the_outputs(void **state)
{
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        struct fixture f = {.model = load("cnn.w8a8"), .n_output_effect_samples = MC_SAMPLES};
        add_device(&f, &(struct mc_device){.wrong_tensor = tensors[i]});
        explain_ok(&f);
        const struct nd_explained_layer *layer = layer_of(&f, tensors[i]), *logits = layer_of(&f, "logits");
        assert_true(layer->effect == logits->total.mean_square);
        assert_true(layer->harmed_share == (double)logits->total.n_differing / (double)logits->n_qvalues);
        for (size_t s = 0; s < f.e->n_steps; s++)
            if (&f.e->devices[0].layers[s] != layer && f.e->steps[s].is_layer)
                assert_true(f.e->devices[0].layers[s].effect == 0);
        close_fixture(&f);
    }
    struct fixture f = {.model = load("cnn.w8a8"), .n_output_effect_samples = MC_SAMPLES};
    add_device(&f, &(struct mc_device){.wrong_tensor = "logits"});
    explain_ok(&f);
    assert_true(layer_of(&f, "logits")->effect == 1.0 / 100);
    f.n_output_effect_samples = 0;
    explain_ok(&f);
    assert_true(isnan(layer_of(&f, "logits")->effect));
    close_fixture(&f);
}

static void layer_out_of_line_is_told_from_the_device(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){.rounding = ND_ROUND_FLOOR, .wrong_tensor = "residual/conv"});
    explain_ok(&f);
    const struct nd_explained_device *device = &f.e->devices[0];
    assert_string_equal(device->arithmetic, "floor");
    assert_int_equal(device->n_faulty, 0); /* one value, off by one, proves no fault */
    assert_int_equal(device->n_unexplained, 1);
    assert_int_equal(device->unexplained[0], find_step(&f, "residual/conv"));
    assert_int_equal(device->health, ND_HEALTH_UNEXPLAINED);
    assert_int_equal(layer_of(&f, "residual/conv")->n_unexplained, 1);
    assert_int_equal(layer_of(&f, "residual/conv")->n_arithmetics, 0);
    assert_true(layer_of(&f, "residual/conv")->explained_fraction > 0.99);
    assert_true(layer_of(&f, "logits")->n_arithmetics >= 1);
    assert_true(layer_of(&f, "logits")->explained_fraction == 1);
    assert_true(device->n_sources == 1 && device->sources[0] == find_step(&f, "stem/relu"));
    close_fixture(&f);
}

static void observing_is_held_against_untouched_runs(void **state)
{
    (void)state;
    struct fixture f = {.model = load("cnn.w8a8")};
    add_device(&f, &(struct mc_device){0});
    explain_ok(&f);
    assert_int_equal(f.e->devices[0].observer.n_samples, 0);
    add_device(&f, &(struct mc_device){.missing_tensor = "pool"});
    f.n_untouched = 1;
    explain_ok(&f);
    assert_int_equal(f.e->devices[0].observer.n_samples, MC_SAMPLES);
    assert_int_equal(f.e->devices[0].observer.n_changed, 0);
    add_device(&f, &(struct mc_device){.wrong_tensor = "logits"});
    f.n_untouched = 2;
    explain_ok(&f);
    assert_int_equal(f.e->devices[0].observer.n_samples, 2 * MC_SAMPLES);
    assert_int_equal(f.e->devices[0].observer.n_changed, 1);
    close_fixture(&f);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        TEST(majority_is_what_is_common),
        TEST(majority_that_is_wrong_shows_in_what_is_common),
        TEST(vote_abstains_without_a_clear_majority),
        TEST(harm_is_what_a_introduced_error_does_to_the_outputs),
        TEST(layer_out_of_line_is_told_from_the_device),
        TEST(observing_is_held_against_untouched_runs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
