/* What the text of an explanation says of a device: whose the error at the outputs is, and how many layers
 * follow. */
#include "support/main.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "report/text/explain.h"
#include "support/assert_text.h"

static void expect_said(double noise_figure_db, const char *end)
{
    const struct nd_explanation explanation = {0};
    const struct nd_explained_device device = {
        .health = ND_HEALTH_HEALTHY,
        .own_share = 0.498,
        .output = {.n_qvalues = 4, .noise_figure_db = noise_figure_db},
    };
    char said[EXPLAIN_SENTENCE_BYTES], expected[EXPLAIN_SENTENCE_BYTES];
    nd_explain_say_health(&explanation, &device, said);
    snprintf(expected, sizeof expected,
             "all 0 layers follow known arithmetic. The output's error against the float model is 50.2%% "
             "quantisation, "
             "49.8%% the chip's%s",
             end);
    assert_string_equal(said, expected);
}

static void test_parts_add_up(void **state)
{
    (void)state;
    expect_said(3, "");
    expect_said(-1.4, "");
    expect_said(NAN, "");
}

/* Two halves of an error say nothing of its size where they cancel out. */
static void test_parts_cancel_out(void **state)
{
    (void)state;
    expect_said(-17.4, ", which cancel out: together they are 17.4 dB below the quantisation alone");
}

/* A layer of floats in a quantised model counts as the others do. */
static void test_layers_of_floats_are_counted(void **state)
{
    (void)state;
    char quantised[] = "quantised", floats[] = "floats", type[] = "Add", uri[] = "cpu",
         arithmetic[] = "half-even";
    struct nd_explained_step steps[] = {{.name = quantised, .op_types = type, .is_layer = true},
                                        {.name = floats, .op_types = type}};
    struct nd_explained_layer layers[] = {
        {.is_examined = true, .arithmetic = arithmetic, .judgement.state = ND_LAYER_FOLLOWS},
        {.is_examined = true, .arithmetic = arithmetic, .judgement.state = ND_LAYER_FOLLOWS}};
    struct nd_explained_device device = {.uri = uri,
                                         .health = ND_HEALTH_HEALTHY,
                                         .layers = layers,
                                         .n_follow = 2,
                                         .n_examined = 2,
                                         .own_share = NAN};
    const struct nd_explanation explanation = {
        .n_devices = 1, .devices = &device, .n_steps = 2, .steps = steps};
    char *text = NULL;
    struct nd_error err = {0};
    assert_int_equal(nd_report_explanation_text(&explanation, NULL, 120, false, &text, &err), ND_OK);
    assert_has(text, "2 of 2 layers examined do what the device does in such layers");
    free(text);
}

/* Layers that nobody looked at do not follow. */
static void test_all_layers_are_all_that_there_are(void **state)
{
    (void)state;
    static const struct {
        size_t n_follow, n_within;
        const char *said;
    } cases[] = {
        {10, 0, "all 10 layers follow known arithmetic"},
        {4, 0, "4 of 10 layers follow known arithmetic; 6 were not looked at"},
        {4, 5, "9 of 10 layers follow known arithmetic; 1 were not looked at"},
        {4, 6, "4 of 10 layers follow known arithmetic; the arithmetic of 6 is not known, all within 1 LSB"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct nd_explained_layer layers[10] = {0};
        struct nd_explained_step steps[10] = {0};
        for (size_t s = 0; s < 10; s++)
            layers[s].judgement.state = s < cases[i].n_follow                       ? ND_LAYER_FOLLOWS
                                        : s < cases[i].n_follow + cases[i].n_within ? ND_LAYER_WITHIN_LSB
                                                                                    : ND_LAYER_NOT_EXAMINED;
        const struct nd_explained_device device = {
            .health = ND_HEALTH_HEALTHY, .layers = layers, .own_share = NAN};
        const struct nd_explanation explanation = {.n_steps = 10, .steps = steps};
        char said[EXPLAIN_SENTENCE_BYTES];
        nd_explain_say_health(&explanation, &device, said);
        assert_string_equal(said, cases[i].said);
    }
}

static void expect_defects(bool has_defect, const char *headline, const char *end)
{
    char a[] = "a", b[] = "b", type[] = "Reciprocal", uri[] = "npu", defect[] = "a known defect",
         remedy[] = "Do it otherwise.";
    struct nd_explained_step steps[] = {{.name = a, .op_types = type, .is_layer = true},
                                        {.name = b, .op_types = type, .is_layer = true}};
    struct nd_explained_layer layers[] = {
        {.is_examined = true,
         .judgement.state = ND_LAYER_UNEXPLAINED,
         .judgement.known_defect = has_defect ? defect : NULL,
         .judgement.remedy = remedy,
         .n_qvalues = 100,
         .n_unexplained = 50},
        {.is_examined = true, .judgement.state = ND_LAYER_FOLLOWS, .n_qvalues = 100}};
    size_t unexplained[] = {0};
    struct nd_explained_device device = {.uri = uri,
                                         .label = uri,
                                         .capture = uri,
                                         .health = ND_HEALTH_UNEXPLAINED,
                                         .layers = layers,
                                         .n_examined = 2,
                                         .unexplained = unexplained,
                                         .n_unexplained = 1,
                                         .n_follow = 1,
                                         .own_share = NAN};
    const struct nd_explanation explanation = {.health = ND_HEALTH_UNEXPLAINED,
                                               .n_devices = 1,
                                               .devices = &device,
                                               .n_steps = 2,
                                               .steps = steps,
                                               .model = uri};
    char *text = NULL, said[EXPLAIN_SENTENCE_BYTES];
    struct nd_error err = {0};
    nd_explain_say_health(&explanation, &device, said);
    assert_has(said, end);
    assert_int_equal(nd_report_explanation_brief(&explanation, NULL, 200, &text, &err), ND_OK);
    assert_has(text, headline);
    free(text);
}

/* "Nothing shows a fault" is no sentence for a layer that the SDK is known to compute wrongly. */
static void test_known_defects_are_in_the_first_lines(void **state)
{
    (void)state;
    expect_defects(
        false, "UNEXPLAINED: some layers follow no known arithmetic, and no known fault predicts their values",
        "1 of 2 layers do not follow known arithmetic in 50.0% of their values; no known fault predicts them");
    expect_defects(
        true, "UNEXPLAINED: some layers follow no known arithmetic, and the SDK has a known defect there",
        "1 of 2 layers do not follow known arithmetic in 50.0% of their values; 1 of them has a known "
        "defect of the SDK");
}

static void expect_place(double share, bool is_first_accused, bool is_second_accused, const char *wanted)
{
    char a[] = "a", b[] = "b", type[] = "Conv";
    struct nd_explained_step steps[] = {{.name = a, .op_types = type}, {.name = b, .op_types = type}};
    struct nd_quantised_layer layers[] = {{.effect_share = 0.125, .is_accused = is_second_accused},
                                          {.effect_share = share, .is_accused = is_first_accused}};
    size_t ranked[] = {1, 0};
    struct nd_quantisation quantisation = {
        .layers = layers, .ranked = ranked, .n_ranked = 2, .n_effect_samples = 8, .output_sqnr_db = 20};
    const struct nd_explanation explanation = {.n_steps = 2, .steps = steps, .quantisation = &quantisation};
    struct nd_strbuf out = {0};
    nd_explain_put_quantisation_line(&out, &explanation, 200);
    char *text = nd_strbuf_take(&out);
    assert_non_null(text);
    assert_has(text, wanted);
    free(text);
}

/* A layer is named for the cause that can be mended; the word says whether it has the greatest part, too. */
static void test_word_for_the_layer_fits_its_part(void **state)
{
    (void)state;
    expect_place(0.5, true, true, "(SQNR of 8 samples). Mainly in 'b' (Conv), 50.0% of");
    expect_place(0.5, false, true, "(SQNR of 8 samples). A cause to mend is in 'a' (Conv), 12.5% of");
    expect_place(0.5, false, false, "(SQNR of 8 samples). No layer stands out; most in 'b' (Conv), 50.0% of");
    expect_place(0.75, false, false, "(SQNR of 8 samples). Mostly in 'b' (Conv), 75.0% of");
}

static void expect_next(double sqnr_db, char *uri, const char *wanted)
{
    char a[] = "a", type[] = "Conv", model[] = "m.onnx";
    struct nd_explained_step steps[] = {{.name = a, .op_types = type, .is_layer = true}};
    struct nd_explained_layer layers[] = {
        {.is_examined = true, .judgement.state = ND_LAYER_FOLLOWS, .n_qvalues = 100}};
    struct nd_quantised_layer shown_layers[] = {{.effect_share = 1}};
    size_t ranked[] = {0};
    struct nd_quantisation quantisation = {.layers = shown_layers,
                                           .ranked = ranked,
                                           .n_ranked = 1,
                                           .n_effect_samples = 8,
                                           .output_sqnr_db = sqnr_db};
    struct nd_explained_device device = {.uri = uri,
                                         .label = uri,
                                         .capture = uri,
                                         .layers = layers,
                                         .n_examined = 1,
                                         .n_follow = 1,
                                         .own_share = NAN};
    const struct nd_explanation explanation = {.n_devices = 1,
                                               .devices = &device,
                                               .n_steps = 1,
                                               .steps = steps,
                                               .model = model,
                                               .float_model = model,
                                               .quantisation = &quantisation};
    char *text = NULL;
    struct nd_error err = {0};
    assert_int_equal(nd_report_explanation_brief(&explanation, NULL, 200, &text, &err), ND_OK);
    assert_has(text, wanted);
    free(text);
}

/* A healthy device is no reason to go on to the gates where the quantisation leaves little of the model. */
static void test_next_command_is_about_the_quantisation_where_it_breaks_the_model(void **state)
{
    (void)state;
    char npu[] = "npu", import[] = "import:numpy";
    expect_next(0.58, npu, "npudiff lint m.onnx");
    expect_next(30, npu, "npudiff init m.onnx -d npu -o campaign.yaml");
    expect_next(30, import, "npudiff report --quantised m.onnx import:numpy -o report.html");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_add_up),
        cmocka_unit_test(test_parts_cancel_out),
        cmocka_unit_test(test_layers_of_floats_are_counted),
        cmocka_unit_test(test_all_layers_are_all_that_there_are),
        cmocka_unit_test(test_known_defects_are_in_the_first_lines),
        cmocka_unit_test(test_word_for_the_layer_fits_its_part),
        cmocka_unit_test(test_next_command_is_about_the_quantisation_where_it_breaks_the_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
