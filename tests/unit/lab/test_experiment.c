/* The harness of all sections: when it stops, which arithmetics it leaves, what it says. */
#include "support/main.h"

#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "lab/experiment/candidates.h"
#include "lab/experiment/product.h"
#include "support/scratch.h"

static struct nd_device device;
static struct nd_bench bench;
static struct nd_error error;

static struct nd_experiment begin(const char *uri)
{
    expect_ok(nd_device_parse(uri, &device, &error), &error);
    bench = (struct nd_bench){.device = &device, .folder = folder};
    nd_capture_options_init(&bench.options);
    return nd_experiment_begin(&bench, "MatMul", "u8 x u8 -> u8", &error);
}

static void end(struct nd_experiment *e)
{
    expect_ok(nd_experiment_end(e), &error);
    nd_device_deinit(&device);
}

/* Three rows of two terms by two columns: the products are made by hand. */
static const double rows[] = {1, 2, 3, 4, 5, 6};
static const uint8_t weights[] = {1, 10, 2, 20};

static struct nd_product product(enum nd_linear_form form)
{
    return (struct nd_product){.form = form,
                               .dtype = ND_DTYPE_U8,
                               .n_rows = 3,
                               .n_terms = 2,
                               .n_columns = 2,
                               .weights = weights,
                               .scale_x = 1,
                               .scale_w = 1,
                               .scale_y = 1};
}

static void products_of_all_forms_are_in_rows(void **state)
{
    (void)state;
    static const double qvalues[] = {5, 50, 11, 110, 17, 170};
    struct nd_experiment e = begin("exact");
    for (int form = ND_FORM_MATMUL; form <= ND_FORM_CONV; form++) {
        const struct nd_product p = product((enum nd_linear_form)form);
        const double *answer = nd_product_ask(&e, &p, rows, 1);
        assert_non_null(answer);
        for (size_t i = 0; i < 6; i++)
            assert_int_equal((int)answer[i], (int)qvalues[i]);
    }
    assert_int_equal(e.n_asked, 3);
    assert_true(e.is_on_npu);
    end(&e);
}

static void the_first_failure_ends_an_experiment(void **state)
{
    (void)state;
    struct nd_experiment e = begin("float64"); /* refuses what is quantised */
    const struct nd_product p = product(ND_FORM_MATMUL);
    json_t *entries = json_array();
    assert_null(nd_product_ask(&e, &p, rows, 1));
    assert_null(nd_product_ask(&e, &p, rows, 1));
    assert_int_equal(e.n_asked, 1);
    assert_false(nd_experiment_goes_on(&e));
    assert_null(nd_experiment_alloc(&e, 1, 1));
    assert_null(nd_experiment_tell(&e, entries, true));
    const json_t *entry = json_array_get(entries, 0);
    assert_string_equal(json_string_value(json_object_get(entry, "verdict")), "failed");
    assert_string_equal(json_string_value(json_object_get(entry, "failure")), "the device is for float models");
    assert_string_equal(json_string_value(json_object_get(entry, "stage")), "model");
    assert_null(json_object_get(entry, "provider"));
    json_decref(entries);
    end(&e);
}

static void a_patient_experiment_counts_refusals_after_the_first(void **state)
{
    (void)state;
    struct nd_experiment e = begin("exact");
    struct nd_device other;
    const struct nd_product p = product(ND_FORM_MATMUL);
    e.is_patient = true;
    assert_non_null(nd_product_ask(&e, &p, rows, 1));
    expect_ok(nd_device_parse("float64", &other, &error), &error);
    bench.device = &other;
    assert_null(nd_product_ask(&e, &p, rows, 1));
    bench.device = &device;
    assert_int_equal(e.n_refused, 1);
    assert_true(nd_experiment_goes_on(&e));
    assert_non_null(nd_product_ask(&e, &p, rows, 1));
    assert_int_equal(e.n_asked, 3);
    nd_device_deinit(&other);
    end(&e);
}

/* ---- arithmetics ---- */

/* An arithmetic is a number of right quantised values in a hundred. */
struct arithmetic {
    int right, other;
};
struct findings {
    struct arithmetic *arithmetics;
    size_t n_arithmetics;
};

static size_t ask(struct nd_experiment *e, void *context, size_t i, uint64_t *seed)
{
    (void)e;
    (void)seed;
    *(size_t *)context += i;
    return 100;
}

static uint64_t count_right(const void *context, const void *arithmetic)
{
    (void)context;
    return (uint64_t)((const struct arithmetic *)arithmetic)->right;
}

static void fresh_qvalues_leave_the_best_arithmetics(void **state)
{
    (void)state;
    static const struct nd_confirmation confirmation = {
        .n_models = 1001, .ask = ask, .count_right = count_right};
    struct arithmetic arithmetics[] = {{99, 0}, {100, 1}, {3, 2}, {100, 3}};
    struct findings found = {arithmetics, 4};
    size_t sum = 0;
    struct nd_experiment e = begin("exact");
    nd_experiment_confirm(&e, &confirmation, &sum, ND_LEFT(&found));
    assert_int_equal(sum, 1000 * 1001 / 2);
    assert_int_equal(found.n_arithmetics, 2);
    assert_int_equal(arithmetics[0].other, 1);
    assert_int_equal(arithmetics[1].other, 3);
    assert_int_equal(e.n_fresh, 100100);
    assert_int_equal(e.n_right, 100100);
    assert_true(nd_experiment_is_confirmed(&e, found.n_arithmetics));
    assert_false(nd_experiment_is_confirmed(&e, 0));
    found.n_arithmetics = 0; /* nothing to confirm: nothing is asked, and the counts are 0 again */
    nd_experiment_confirm(&e, &confirmation, &sum, ND_LEFT(&found));
    assert_int_equal(sum, 1000 * 1001 / 2);
    assert_int_equal(e.n_fresh, 0);
    end(&e);
}

static void what_arithmetics_differ_in_is_undecided(void **state)
{
    (void)state;
    static const struct nd_issue issues[] = {{"right", "a", {ND_FIELD(struct arithmetic, right)}},
                                             {"other", "b", {ND_FIELD(struct arithmetic, other)}},
                                             {NULL, NULL, {{0}}}};
    const struct arithmetic arithmetics[] = {{7, 1}, {7, 1}, {7, 2}};
    struct nd_experiment e = begin("exact");
    json_t *entry = json_object();
    nd_tell_issues(&e, entry, issues, arithmetics, 2, sizeof arithmetics[0]);
    assert_null(json_object_get(entry, "undecided"));
    nd_tell_issues(&e, entry, issues, arithmetics, 3, sizeof arithmetics[0]);
    const json_t *list = json_object_get(entry, "undecided");
    assert_int_equal(json_array_size(list), 1);
    assert_string_equal(json_string_value(json_object_get(json_array_get(list, 0), "what")), "other");
    json_decref(entry);
    end(&e);
}

static void a_candidates_keeps_what_has_the_fewest_wrong(void **state)
{
    (void)state;
    static const uint64_t wrong[] = {5, 7, 5, 2, 2, 3};
    struct findings found = {NULL, 0};
    struct nd_candidates candidates = ND_CANDIDATES(&found);
    struct arithmetic nearest = {0, 0};
    uint64_t n_wrong = UINT64_MAX, n_nearest = UINT64_MAX;
    for (int i = 0; i < 6; i++)
        nd_candidates_fewest(&candidates, &(struct arithmetic){i, 0}, wrong[i], &n_wrong);
    expect_ok(nd_candidates_end(&candidates, &error), &error);
    assert_int_equal(n_wrong, 2);
    assert_int_equal(found.n_arithmetics, 2);
    assert_int_equal(found.arithmetics[0].right, 3);
    assert_int_equal(found.arithmetics[1].right, 4);
    found.n_arithmetics = 0;
    for (int i = 0; i < 6; i++)
        nd_candidates_right(&candidates, &(struct arithmetic){i, 0}, wrong[i], &nearest, &n_nearest);
    assert_int_equal(found.n_arithmetics, 0);
    assert_int_equal(nearest.right, 3); /* the first of equals */
    nd_candidates_right(&candidates, &(struct arithmetic){6, 0}, 0, &nearest, &n_nearest);
    assert_int_equal(found.n_arithmetics, 1);
    candidates.failed = true; /* as after an allocation that failed */
    nd_candidates_keep(&candidates, &(struct arithmetic){7, 0});
    assert_int_equal(found.n_arithmetics, 1);
    assert_int_equal(nd_candidates_end(&candidates, &error), ND_ERR_MEMORY);
    assert_null(found.arithmetics);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(products_of_all_forms_are_in_rows, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(the_first_failure_ends_an_experiment, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(a_patient_experiment_counts_refusals_after_the_first, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(fresh_qvalues_leave_the_best_arithmetics, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(what_arithmetics_differ_in_is_undecided, make_folder, remove_folder),
        cmocka_unit_test(a_candidates_keeps_what_has_the_fewest_wrong),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
