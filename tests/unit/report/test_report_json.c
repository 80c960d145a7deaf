/* What the JSON report says of each member of a comparison that is made by hand: exact text. */
#include "support/main.h"

#include "support/assert_text.h"
#include "support/fake_comparison.h"

#include <jansson.h>
#include <stdlib.h>

#include "npudiff/report/report.h"

static char *json_text_of(const struct fake_comparison *fake)
{
    char *text = NULL;
    json_error_t error;
    assert_int_equal(nd_report_json(&fake->comparison, &text, NULL), ND_OK);
    json_t *root = json_loads(text, JSON_REJECT_DUPLICATES, &error);
    if (root == NULL)
        fail_msg("%s in line %d", error.text, error.line);
    json_decref(root);
    return text;
}

static void json_of_a_difference_has_every_member(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    struct nd_difference *d = fake_fill(&fake, FAKE_SCORES, 0);
    d->has_ulp_in = true;
    d->max_ulp_in = 17;
    d->distribution = (struct nd_distribution){true, true, 4, 1, 0, 0.125, 5, 0.75};
    d->structure = (struct nd_structure){.pattern = ND_PATTERN_ONE_COORDINATE,
                                         .first_index = 2,
                                         .last_index = 2,
                                         .n_runs = 1,
                                         .longest_run = 1,
                                         .axes = {{false, 0, 0, 0}, {true, 1, 2, 2}},
                                         .axis = 1};
    fake.comparison.ulp_in = ND_DTYPE_F16;
    char *text = json_text_of(&fake);
    static const char *const wanted[] = {
        "\n \"ulp_in\": \"float16\",",
        "\"max_ulp\": 1.8446744073709552e+19,\n     \"max_ulp_in\": 17,\n     \"sqnr_db\": "
        "\"-Infinity\",\n     \"cosine\": 0.999999999,\n     \"norm_ratio\": 1.5,\n     \"pearson\": -0.75,\n"
        "     \"gain\": 0.5,\n     \"offset\": -3.0,\n     \"max_abs\": 0.1,\n     \"mean_abs\": "
        "0.3333333333333333,\n",
        "\"rmse\": 0.25,\n",
        "\"saturation_mismatch\": 4,",
        "\"abs\": {\"max\": 0.1, \"mean\": 0.3333333333333333, \"median\": 1e-300, \"p99\": "
        "5e-324},",
        "\"rel\": {\"max\": \"Infinity\", \"mean\": \"NaN\", \"median\": 2.0, \"p99\": 1e+22, \"undefined\": "
        "6},",
        "\"ref_side\": {\"elements\": 48, \"nan\": 0, \"inf\": 0, \"zero\": 5, \"subnormal\": 0, "
        "\"saturated\": 1, "
        "\"stuck_samples\": 0, \"min\": -1.0, \"max\": 1.0},",
        "\"test_side\": {\"elements\": 48, \"nan\": 1, \"inf\": 2, \"zero\": 5, \"subnormal\": 4, "
        "\"saturated\": "
        "12, \"stuck_samples\": 3, \"min\": null, \"max\": null},",
        "\"structure\": {\"pattern\": \"one coordinate\", \"first_index\": 2, \"last_index\": 2, \"stride\": "
        "0, "
        "\"runs\": 1, \"longest_run\": 1, \"axes\": [null, {\"n\": 1, \"first\": 2, \"last\": 2}], \"axis\": "
        "1, "
        "\"permutation\": null},",
        "\"worst\": [\n      {\"probe\": \"val\", \"sample\": 3, \"index\": 2, \"coordinates\": [0, 2], "
        "\"abs_error\": \"Infinity\", \"ref\": 0.25, \"test\": \"NaN\", \"ref_real\": 0.25, \"test_real\": "
        "\"NaN\"},\n      {\"probe\": \"val\", \"sample\": 1, \"index\": null, \"coordinates\": null, "
        "\"abs_error\": 0.5, \"ref\": 7.0, \"test\": 8.0, \"ref_real\": 2.0, \"test_real\": 2.5}\n     ],",
        "\"tolerance\": {\"lsb\": null, \"ulp\": 4, \"atol\": 0.1, \"rtol\": \"Infinity\"},",
        "\"distribution\": {\"samples\": 4, \"kl\": 0.125, \"kl_of\": \"softmax\", \"kl_infinite\": 1, "
        "\"kl_invalid\": 0, \"topk\": 5, \"topk_overlap\": 0.75},",
    };
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++)
        assert_has(text, wanted[i]);
    free(text);
}

static void json_of_equal_or_unknown_tensors_is_null_there(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    char *text = json_text_of(&fake);
    assert_has(text, "\"max_ulp_in\": null,");
    assert_has(text, "\"sqnr_db\": \"Infinity\",");
    assert_has(
        text, "\"ref_side\": null,\n     \"test_side\": null,\n     \"structure\": null,\n     \"worst\": [],");
    assert_has(text, "\"tolerance\": {\"lsb\": 0, \"ulp\": null, \"atol\": 0.0, \"rtol\": 0.0},");
    assert_has(text, "\"distribution\": null,");
    assert_has(text, "\"partings\": [],");
    assert_has_not(text, "channels");
    free(text);

    struct nd_compared_part *total = &fake.pairs[FAKE_CONV][0].total;
    total->difference.tolerance.is_possible = false;
    text = json_text_of(&fake);
    assert_has(text, "\"tolerance\": {\"lsb\": null, \"ulp\": null, \"atol\": null, \"rtol\": null},");
    free(text);
    total->difference.has_values = false;
    text = json_text_of(&fake);
    assert_has(text, "\"abs\": null,\n     \"rel\": null,");
    assert_has(text, "\"structure\": null,\n     \"worst\": null,\n     \"tolerance\": null,\n     "
                     "\"distribution\": null,");
    free(text);
    total->coverage = ND_COVERAGE_NONE;
    total->reason = fake_text("type uint8 against int8");
    text = json_text_of(&fake);
    assert_has(text, "\"samples\": null,");
    assert_has(text, "\"first\": null,\n     \"mixed\": null,");
    free(text);
}

static void json_of_devices_has_repeats_and_noise(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    struct nd_difference noise = fake_equal(true, 96);
    noise.abs.max = 0.5;
    noise.share = 0.25;
    noise.max_lsb = 3;
    struct nd_tensor_on_device *on = &fake.on[FAKE_CONV][1];
    on->n_unstable = 2;
    on->n_repeats = 12;
    on->n_repeats_unequal = 2;
    on->unstable_bound = 0.4375;
    on->noise = &noise;
    on->is_stuck = true;
    fake.pairs[FAKE_CONV][0].within_noise = true;
    fake.comparison.odd_one_out = 1;
    fake.tensors[FAKE_CONV].odd_one_out = 2;
    fake.comparison.n_partings = 2;
    fake.partings[0] = (struct nd_parting){0, 1, 0, 2, FAKE_SCORES};
    fake.partings[1] = (struct nd_parting){1, 2, 1, 2, SIZE_MAX};
    char *text = json_text_of(&fake);
    assert_has(text,
               "{\"exists\": true, \"provider\": \"QNN\", \"cpu_fallback\": false, \"unstable_samples\": 2, "
               "\"repeats\": 12, \"repeats_unequal\": 2, \"unstable_bound\": 0.4375, \"noise\": {\"max_abs\": "
               "0.5, \"share\": 0.25, \"max_lsb\": 3, \"max_ulp\": null}, \"stuck_output\": true},");
    assert_has(text,
               "\"repeats_unequal\": 0, \"unstable_bound\": 1.0, \"noise\": null, \"stuck_output\": false}");
    assert_has(text, "\"within_noise\": true,");
    assert_has(text, "\n \"odd_one_out\": 1,");
    assert_has(text, "\n   \"odd_one_out\": 2,\n   \"groups\": [0, 0, 0],");
    assert_has(text, "\n   \"odd_one_out\": null,");
    assert_has(text, "\"partings\": [\n"
                     "  {\"groups\": [0, 1], \"devices\": [0, 2], \"tensor\": \"scores\"},\n"
                     "  {\"groups\": [1, 2], \"devices\": [1, 2], \"tensor\": null}\n ],");
    free(text);
}

static void json_of_channels_follows_the_probes(void **state)
{
    (void)state;
    enum { N = 40 };
    struct fake_comparison fake;
    static struct nd_difference channels[N];
    fake_init(&fake);
    fake_channels(&fake, channels, N);
    char *text = json_text_of(&fake);
    assert_has(text, "\n \"channel_axis\": -1,");
    assert_has(
        text, "{\"channel\": 39, \"samples\": 4, \"samples_differing\": 7, \"elements\": 32, \"differing\": 7, "
              "\"share\": 0.21875,");
    free(text);
}

static void json_of_diagnoses_has_every_member(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    struct nd_compared_diagnosis diagnosis = {2, FAKE_CONV, "wrap", fake_text("codes wrap"), false, false, 256,
                                              1, -40,       3};
    struct nd_compared_depth depth = {2, "linear", true, 9, 1, 0.01, 0.09, 12.5, FAKE_SCORES, true};
    char *text = json_text_of(&fake);
    assert_has(text, "\"diagnoses\": [],\n \"depth\": [],");
    free(text);
    fake.comparison.diagnoses = &diagnosis;
    fake.comparison.depths = &depth;
    fake.comparison.n_diagnoses = fake.comparison.n_depths = 1;
    text = json_text_of(&fake);
    assert_has(text,
               "{\"device\": 2, \"tensor\": \"conv\", \"kind\": \"wrap\", \"fault\": true, \"of_runs\": false, "
               "\"text\": \"codes wrap\", \"amount\": 256.0, \"explained\": 1.0, \"log10_chance\": -40.0, "
               "\"later_tensors\": 3}");
    assert_has(text,
               "{\"device\": 2, \"growth\": \"linear\", \"of\": \"share\", \"tensors\": 9, \"factor\": 1.0, "
               "\"first\": 0.01, \"last\": 0.09, \"half_precision\": true, \"largest\": 12.5, "
               "\"largest_tensor\": \"scores\"}");
    free(text);
}

/* Of any document: the shortest numbers that read back equal, names that are quoted, empty containers in one
 * line.
 */
static void json_of_a_document_is_as_short_as_it_can_be(void **state)
{
    (void)state;
    char *text = nd_report_document(
        ND_DOCUMENT_PROBES, "{\"reals\": [0.050000000000000003, 0.33333333333333331, 0.000000000001, 7.0],"
                            "\"no \\\"object\\\"\": {}, \"no array\": [], \"rest\": [true, null, -3],"
                            "\"text\": \"a\\n\\u00e9\"}");
    assert_string_equal(text,
                        "{\n  \"kind\": \"probes\",\n  \"format\": 2,\n  \"npudiff\": \"" ND_VERSION
                        "\",\n  \"reals\": [\n    0.05,\n    0.3333333333333333,\n    1e-12,\n    7.0\n  ],\n"
                        "  \"no \\\"object\\\"\": {},\n  \"no array\": [],\n"
                        "  \"rest\": [\n    true,\n    null,\n    -3\n  ],\n"
                        "  \"text\": \"a\\n\xc3\xa9\"\n}\n");
    free(text);
    assert_null(nd_report_document(ND_DOCUMENT_PROBES, "{\"cut\": "));
}

static void rows_are_a_table(void **state)
{
    (void)state;
    static const struct nd_report_column columns[] = {{"a", "NAME"}, {"b", "B"}, {"c", "C"}, {NULL, NULL}};
    char *text = nd_report_rows(
        "[{\"a\": \"x\", \"b\": 0.05, \"c\": true}, {\"a\": \"long er\", \"b\": 12, \"d\": 1}]", columns);
    assert_string_equal(text, "NAME     B     C\nx        0.05  yes\nlong er  12    -\n");
    free(text);
    assert_null(nd_report_rows("no rows", columns));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(json_of_a_difference_has_every_member),
        cmocka_unit_test(json_of_equal_or_unknown_tensors_is_null_there),
        cmocka_unit_test(json_of_devices_has_repeats_and_noise),
        cmocka_unit_test(json_of_channels_follows_the_probes),
        cmocka_unit_test(json_of_diagnoses_has_every_member),
        cmocka_unit_test(json_of_a_document_is_as_short_as_it_can_be),
        cmocka_unit_test(rows_are_a_table),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
