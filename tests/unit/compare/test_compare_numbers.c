/* What is not a number: it has no metric, is reported before any verdict, and two captures that are NaN alike
 * are not the same. */
#include "support/main.h"

#include "judge/release/qualify.h"
#include "npudiff/report/report.h"
#include "support/assert_text.h"
#include "support/fleet_compare.h"

static void fill_sample(struct nd_capture *capture, size_t sample, float value)
{
    for (size_t k = 0; k < FLEET_CLASSES; k++)
        fleet_set_score(capture, sample, k, value);
}

static void fill(struct fleet *f, size_t capture, float value)
{
    for (size_t s = 0; s < FLEET_SAMPLES; s++)
        fill_sample(f->captures[capture], s, value);
}

static const struct nd_difference *scores_of(const struct nd_comparison *c)
{
    return &total_of(c, FLEET_SCORES, 1)->difference;
}

static char *text_of(const struct nd_comparison *c, const struct nd_matrix *matrix)
{
    struct nd_report_options options = {.struct_size = sizeof options};
    options.matrices = matrix;
    options.n_matrices = matrix != NULL;
    char *text = NULL;
    assert_int_equal(nd_report_text(c, &options, &text, NULL), ND_OK);
    assert_non_null(text);
    return text;
}

static char *json_of(const struct nd_comparison *c)
{
    char *text = NULL;
    assert_int_equal(nd_report_json(c, &text, NULL), ND_OK);
    assert_non_null(text);
    return text;
}

/* What is said of NaN stands before the classes and the verdict. */
static void assert_said_first(const char *text, const char *what)
{
    assert_has(text, what);
    assert_true(strstr(text, what) < strstr(text, "\nbit-equal, "));
    assert_true(strstr(text, what) < strstr(text, "\nverdict: "));
}

static void outputs_that_are_nan_alike_are_inconclusive(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fill(&f, 0, NAN);
    fill(&f, 1, NAN);
    const struct nd_comparison *c = fleet_compare(&f);
    const struct nd_difference *d = scores_of(c);
    assert_int_equal(c->verdict, ND_VERDICT_INCONCLUSIVE);
    assert_int_equal(nd_verdict_exit_code(c->verdict), ND_EXIT_INCONCLUSIVE);
    assert_int_equal(d->numbers.n_ref_nan, FLEET_SAMPLES * FLEET_CLASSES);
    assert_int_equal(d->numbers.n_samples_both_nan, FLEET_SAMPLES);
    assert_false(d->has_signal || d->has_errors || d->has_gain);
    assert_true(isnan(d->sqnr_db) && isnan(d->cosine) && isnan(d->abs.max) && isnan(d->rmse));
    char *text = text_of(c, NULL), *json = json_of(c);
    assert_said_first(
        text, "\nnot a number (NaN), or infinite:\n  scores  cpu   NaN in every value of all 4 samples\n"
              "  scores  gen1  NaN in every value of all 4 samples\n"
              "  A sample that is NaN on both sides was not compared.\n");
    assert_has(text, "verdict: inconclusive (1 of 4 tensors have samples that are NaN on both sides)");
    assert_has(json, "\"verdict\": \"inconclusive\",\n \"exit_code\": 4,");
    assert_has(json, "\"sqnr_db\": null,\n     \"cosine\": null,\n     \"norm_ratio\": null,");
    assert_has(json, "\"numbers\": {\"elements\": 20, \"ref_nan\": 20, \"test_nan\": 20, \"ref_inf\": 0, "
                     "\"test_inf\": 0, \"samples\": 4, \"samples_ref_nan\": 4, \"samples_test_nan\": 4, "
                     "\"samples_both_nan\": 4}");
    free(json);
    free(text);
    struct nd_tensor_value value = nd_tensor_value_of(ND_POLICY_BIT_EQUAL, d, NAN);
    assert_false(value.is_known);
    fleet_stop(&f);
}

/* A gate in LSB governs quantised values against floats, whichever side the quantised values are on and
 * whatever the scales are. */
static void gate_of_qvalues_against_floats_counts_steps(void **state)
{
    (void)state;
    struct nd_difference d = {
        .is_mixed = true, .has_values = true, .n_samples_differing = 1, .has_steps = true, .max_steps = 2.5};
    d.abs.max = 0.25;
    struct nd_tensor_value value = nd_tensor_value_of(ND_POLICY_LSB, &d, NAN); /* a scale for each channel */
    assert_true(value.is_known);
    assert_f64_bits(value.value, 2.5);
    assert_f64_bits(nd_tensor_value_of(ND_POLICY_LSB, &d, 0.1).value, 2.5); /* between two steps */
    assert_false(nd_tensor_value_of(ND_POLICY_ULP, &d, 0.1).is_known);
    d.n_inf_mismatch = 1;
    assert_true(isinf(nd_tensor_value_of(ND_POLICY_LSB, &d, 0.1).value));
    d = (struct nd_difference){.is_mixed = true, .has_values = true};
    assert_f64_bits(nd_tensor_value_of(ND_POLICY_ULP, &d, 0.1).value, 0);
}

/* The first sample is that of the first launch. */
static void one_sample_that_is_nan_alike_is_inconclusive(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fill_sample(f.captures[0], 0, NAN);
    fill_sample(f.captures[1], 0, NAN);
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_INCONCLUSIVE);
    assert_true(scores_of(c)->has_signal); /* of the other samples: they are equal */
    char *text = text_of(c, NULL);
    assert_said_first(text, "  scores  cpu   NaN in 5 of 20 values, in every value of 1 of 4 samples\n");
    free(text);
    f.captures[1]->outputs[0][FLEET_CONV][3] ^= 1; /* a difference outranks what is inconclusive */
    c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
    assert_int_equal(nd_verdict_exit_code(c->verdict), ND_EXIT_DIFFERS);
    fleet_stop(&f);
}

static void single_nans_that_are_equal_are_reported_and_same(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fleet_set_score(f.captures[0], 2, 1, NAN);
    fleet_set_score(f.captures[1], 2, 1, NAN);
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_SAME);
    char *text = text_of(c, NULL);
    assert_said_first(text, "  scores  gen1  NaN in 1 of 20 values\n");
    assert_has_not(text, "was not compared");
    free(text);
    fleet_stop(&f);
}

static void output_that_is_nan_on_one_side_has_no_metric(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fill(&f, 1, NAN);
    const struct nd_comparison *c = fleet_compare(&f);
    const struct nd_difference *d = scores_of(c);
    assert_int_equal(c->verdict, ND_VERDICT_DIFFERS);
    assert_false(d->has_signal || d->has_errors);
    char *text = text_of(c, NULL);
    assert_said_first(text, "  scores  gen1  NaN in every value of all 4 samples\n");
    assert_has(text, " 100% NaN\n"); /* and no "0ulp" */
    assert_has_not(text, "Infinity");
    free(text);
    struct nd_tensor_value value = nd_tensor_value_of(ND_POLICY_SQNR, d, NAN);
    assert_true(value.is_known);
    assert_f64_bits(value.value, -INFINITY); /* no gate passes it */
    fleet_stop(&f);
}

/* Imported captures may not say what the outputs are: then every float tensor is looked at. */
static void nan_is_found_where_no_tensor_is_an_output(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    for (size_t i = 0; i < 2; i++) {
        f.captures[i]->tensors[FLEET_LOGITS].is_model_output = false;
        f.captures[i]->tensors[FLEET_SCORES].is_model_output = false;
        fill(&f, i, NAN);
    }
    assert_int_equal(fleet_compare(&f)->verdict, ND_VERDICT_INCONCLUSIVE);
    fleet_stop(&f);
}

static void scalar_output_that_is_nan_is_found(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    for (size_t i = 0; i < 2; i++) {
        f.captures[i]->tensors[FLEET_SCORES].shape = (struct nd_shape){.rank = 0};
        fill(&f, i, NAN);
    }
    const struct nd_comparison *c = fleet_compare(&f);
    assert_int_equal(c->verdict, ND_VERDICT_INCONCLUSIVE);
    assert_int_equal(scores_of(c)->numbers.n_elems, FLEET_SAMPLES);
    fleet_stop(&f);
}

static void first_run_that_is_nan_is_named(void **state)
{
    (void)state;
    static const unsigned char signalling_nan[4] = {1, 0, 0x80, 0x7f}; /* later runs: infinity */
    struct fleet f;
    fleet_start(&f, 2);
    for (size_t i = 0; i < 2; i++) {
        memcpy(f.captures[i]->outputs[0][FLEET_SCORES], signalling_nan, sizeof signalling_nan);
        f.captures[i]->unstable[FLEET_SCORES] = true;
    }
    char *text = text_of(fleet_compare(&f), NULL);
    assert_said_first(
        text, "  scores  gen1  NaN in 1 of 20 values; the first run gave NaN, a later run of the same input");
    free(text);
    fleet_stop(&f);
}

/* Zeros where the reference has numbers: no NaN, and every metric is one. */
static void outputs_without_nan_say_nothing_of_it(void **state)
{
    (void)state;
    struct fleet f;
    fleet_start(&f, 2);
    fill(&f, 1, 0);
    const struct nd_comparison *c = fleet_compare(&f);
    assert_true(scores_of(c)->has_signal && scores_of(c)->has_errors);
    char *text = text_of(c, NULL);
    assert_has_not(text, "not a number");
    free(text);
    fleet_stop(&f);
}

static void matrix_marks_what_leaves_samples_out(void **state)
{
    (void)state;
    struct fleet f;
    struct nd_matrix matrix;
    assert_int_equal(nd_matrix_parse("cosine", &matrix, NULL), ND_OK);
    fleet_start(&f, 3);
    f.options.all_pairs = true;
    f.captures[0]->tensors[FLEET_LOGITS].is_model_output = false;
    for (size_t i = 1; i < 3; i++)
        fleet_set_score(f.captures[i], 1, 1, 0.3f);
    fill_sample(f.captures[2], 3, NAN);
    char *text = text_of(fleet_compare(&f), &matrix);
    assert_has(text, "\ncosine at scores, over the samples that differ (row: reference, column: test):\n");
    const char *cell = strstr(text, "\ncosine at scores");
    assert_has(cell, "  gen2  0.");
    assert_has(cell, "*         -*           .\n"); /* nothing is left of gen1 against gen2 */
    assert_has(cell, "\n  *  leaves out samples or values: NaN, infinite, or missing on one side\n");
    free(text);
    f.n = 2;
    text = text_of(fleet_compare(&f), &matrix);
    assert_has_not(strstr(text, "\ncosine at scores"), "*");
    free(text);
    f.n = 3;
    fleet_stop(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(outputs_that_are_nan_alike_are_inconclusive),
        cmocka_unit_test(gate_of_qvalues_against_floats_counts_steps),
        cmocka_unit_test(one_sample_that_is_nan_alike_is_inconclusive),
        cmocka_unit_test(single_nans_that_are_equal_are_reported_and_same),
        cmocka_unit_test(output_that_is_nan_on_one_side_has_no_metric),
        cmocka_unit_test(nan_is_found_where_no_tensor_is_an_output),
        cmocka_unit_test(scalar_output_that_is_nan_is_found),
        cmocka_unit_test(first_run_that_is_nan_is_named),
        cmocka_unit_test(outputs_without_nan_say_nothing_of_it),
        cmocka_unit_test(matrix_marks_what_leaves_samples_out),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
