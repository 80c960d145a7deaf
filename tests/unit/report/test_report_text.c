/* What the text report says of each member of a comparison that is made by hand: exact lines. */
#include "support/main.h"

#include "support/assert_text.h"
#include "support/fake_comparison.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/report/report.h"
#include "report/text/tree.h"

static char *text_of(const struct fake_comparison *fake, const struct nd_report_options *options)
{
    char *text = NULL;
    struct nd_report_options own = {.struct_size = sizeof own};
    if (options != NULL)
        own = *options;
    own.struct_size = sizeof own;
    struct nd_error err = {0};
    if (nd_report_text(&fake->comparison, &own, &text, &err) != ND_OK)
        fail_msg("%s", err.message);
    return text;
}

static void assert_lines_fit(const char *text, size_t width)
{
    for (const char *line = text; *line != '\0';) {
        size_t n = strcspn(line, "\n");
        char *copy = strndup(line, n);
        assert_non_null(copy);
        if (nd_text_columns(copy) > width || (n > 0 && copy[n - 1] == ' '))
            fail_msg("wider than %zu, or a blank at the end: '%s'", width, copy);
        free(copy);
        line += n + (line[n] == '\n');
    }
}

/* Different texts never look the same, whatever they lose; equal ones stay equal. */
static void cells_that_are_cut_stay_different(void **state)
{
    (void)state;
    static const char *const names[] = {"model/encoder/block0/attention/query/matmul/output",
                                        "model/encoder/block1/attention/query/matmul/output",
                                        "model/encoder/block0/attention/query/matmul/output", "short"};
    struct nd_table table = {.n_columns = 1, .is_left = {true}, .max_width = {20}};
    struct nd_strbuf out = {0};
    for (size_t i = 0; i < 4; i++)
        nd_table_add(&table, names[i]);
    nd_table_render(&table, &out);
    nd_table_deinit(&table);
    assert_false(out.failed);
    assert_string_equal(out.text,
                        "  model..tmul/output~1\n  model..tmul/output~2\n  model..tmul/output~1\n  short\n");
    nd_strbuf_deinit(&out);
}

static void channels_are_listed_worst_first(void **state)
{
    (void)state;
    enum { N = 40 };
    struct fake_comparison fake;
    static struct nd_difference channels[N];
    fake_init(&fake);
    fake_channels(&fake, channels, N);
    char *text = text_of(&fake, NULL);
    assert_has(text, "\nchannels (axis -1) of conv, gen1 against cpu: 35 of 40 differ, the worst 16:\n"
                     "  channel  differing  share  largest  max real");
    assert_has(text, "\n       39          7  21.9%      ±39        39");
    assert_has(text, "\n        7          7  21.9%       ±7         7");
    assert_has(text, "\n       38          6");
    assert_has(text, "\n       37          5");
    assert_has(text, "\n       36          4");
    assert_has_not(text, "\n       28          4");
    assert_true(strstr(text, "\n       31          7") < strstr(text, "\n       38          6"));
    free(text);
    text = text_of(&fake, &(struct nd_report_options){.all_tensors = true});
    assert_has(text, "35 of 40 differ:\n");
    assert_has(text, "\n        1          1");
    assert_has_not(text, "\n        0          0");
    free(text);
}

static void text_of_outputs_shows_the_signal(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    struct nd_difference *d = fake_fill(&fake, FAKE_SCORES, 0);
    d->distribution = (struct nd_distribution){true, true, 4, 1, 0, 0.125, 5, 0.75};
    d->structure =
        (struct nd_structure){.pattern = ND_PATTERN_FROM_POWER_OF_TWO, .first_index = 4096, .axis = -1};
    fake.comparison.n_pairs = FAKE_DEVICES - 1;
    char *text = text_of(&fake, NULL);
    assert_has(text, "\n  output  device    SQNR dB      cosine  norm ratio  Pearson  median |e|     p99 |e|"
                     "  max |e|            KL   top-k\n"
                     "  scores  gen1    -Infinity  >0.9999999         1.5    -0.75      1e-300  4.941e-324"
                     "      0.1  0.125 +1 inf  3.75/5\n");
    assert_has(text,
               "\n  scores  gen1  NaN 0 -> 1, infinite 0 -> 2, saturated 1 -> 12, subnormal 0 -> 4, samples of "
               "one value 0 -> 3\n");
    assert_has(text, "\nwhich elements of a sample differ:\n  scores  from element 4096 = 2^12 on  gen1\n");
    assert_has_not(text, "worst elements");
    assert_has_not(text, "would pass");
    free(text);
    text = text_of(&fake, &(struct nd_report_options){.worst = true});
    assert_has(text, "\n  scores  gen1    val         3  2 [0,2]  Infinity       0.25   NaN\n"
                     "  scores  gen1    val         1  -             0.5          2   2.5\n");
    free(text);
    text = text_of(&fake, &(struct nd_report_options){.details = true, .width = 80});
    assert_has(text, "\n  device  --lsb  --ulp  --atol  --rtol\n  gen1        -      4     0.1       -\n");
    assert_lines_fit(text, 80);
    free(text);
}

static void worst_qvalues_have_every_digit(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    fake_fill(&fake, FAKE_CONV, 0)->n_worst = 1;
    struct nd_worst *worst = fake.pairs[FAKE_CONV][0].total.difference.worst;
    *worst = (struct nd_worst){.place = {.has_index = true}, .abs_error = 0.5, .ref = 36127, .test = 36131};
    worst->ref_real = 1.5;
    worst->test_real = 2;
    char *text = text_of(&fake, &(struct nd_report_options){.worst = true});
    assert_has(text, "     36127      36131\n");
    assert_has_not(text, "e+04");
    free(text);
    fake.tensors[FAKE_CONV].is_quantised = false; /* plain integers: what is stored is what they are worth */
    worst->ref_real = worst->ref = 1234567;
    worst->test_real = worst->test = 1234568;
    text = text_of(&fake, &(struct nd_report_options){.worst = true});
    assert_has(text, "1234567  1234568");
    free(text);
}

/* No tensor is counted twice: one device fails where another stays within its gate. */
static void verdict_counts_each_tensor_once(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    fake.comparison.has_gates = true;
    fake.comparison.n_pairs = FAKE_DEVICES - 1;
    for (size_t e = 0; e < FAKE_COMPARED_TENSORS; e++) {
        fake_differ(&fake, e, 0)->n_failing = 0;
        fake_differ(&fake, e, 1);
        fake.pairs[e][0].verdict = ND_VERDICT_WITHIN;
    }
    fake.pairs[FAKE_CONV][1].verdict = ND_VERDICT_WITHIN;
    char *text = text_of(&fake, NULL);
    assert_has(
        text,
        "\nverdict: differs (1 of 2 tensors fail their gate; 1 of 2 tensors differ only within their gate)");
    free(text);
}

static void text_of_patterns_names_the_elements(void **state)
{
    (void)state;
    static const struct {
        struct nd_structure structure;
        const char *line;
    } rows[] = {
        {{.pattern = ND_PATTERN_ONE_ELEMENT, .first_index = 7}, "only element 7  gen3\n"},
        {{.pattern = ND_PATTERN_ONE_COORDINATE, .axis = 1, .axes = {[1] = {true, 1, 2, 2}}},
         "only coordinate 2 of axis 1 (of 3)  gen3\n"},
        {{.pattern = ND_PATTERN_PERMUTED_AXES, .permutation = {0, 2, 1}},
         "the reference with its axes in the order [0,2,1]  gen3\n"},
        {{.pattern = ND_PATTERN_RANGE, .first_index = 3, .last_index = 9},
         "every element from [0,0,3] to [0,2,1]  gen3\n"},
        {{.pattern = ND_PATTERN_RANGE, .first_index = 12, .last_index = 23}, "all of slice 1 (axis 0)  gen3\n"},
        {{.pattern = ND_PATTERN_RANGE, .first_index = 16, .last_index = 23},
         "all of slice 1, rows 1 to 2 (axis 1)  gen3\n"},
        {{.pattern = ND_PATTERN_STRIDE, .first_index = 3, .last_index = 9, .stride = 2},
         "only elements 3 + 2 k, up to 9  gen3\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct fake_comparison fake;
        fake_init(&fake);
        fake_differ(&fake, FAKE_CONV, 1)->structure = rows[i].structure;
        char *text = text_of(&fake, NULL);
        assert_has(text, rows[i].line);
        free(text);
    }
    struct fake_comparison fake;
    fake_init(&fake);
    const struct nd_structure two = {
        .pattern = ND_PATTERN_STRIDE, .first_index = 3, .last_index = 9, .stride = 6};
    fake_differ(&fake, FAKE_CONV, 0)->structure = fake_differ(&fake, FAKE_CONV, 1)->structure = two;
    char *both = text_of(&fake, NULL);
    assert_has(both, "\n  conv  only elements 3 and 9  gen1, gen3\n");
    free(both);
    fake_init(&fake);
    fake_differ(&fake, FAKE_CONV, 1)->structure.pattern = ND_PATTERN_SCATTERED;
    char *text = text_of(&fake, NULL);
    assert_has_not(text, "which elements");
    free(text);
}

static void text_of_repeats_says_how_sure_it_is(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    for (size_t e = 0; e < FAKE_COMPARED_TENSORS; e++)
        for (size_t i = 0; i < FAKE_DEVICES; i++) {
            fake.on[e][i].n_repeats = 12;
            fake.on[e][i].unstable_bound = 0.2209;
        }
    char *text = text_of(&fake, NULL);
    assert_has(text, "\nrepeats: 0 of 12 unequal on every device (a repeat differs with p < 22.09 %, 95 %)\n");
    free(text);
    for (size_t e = 0; e < FAKE_COMPARED_TENSORS; e++)
        fake.on[e][0].n_repeats = 0;
    text = text_of(&fake, NULL);
    assert_has(text, "\nrepeats: 0 of 12 unequal on each of 2 devices (");
    free(text);

    struct nd_difference noise = fake_equal(true, 96);
    noise.n_differing = 24;
    noise.max_lsb = 3;
    fake.on[FAKE_CONV][1].n_repeats_unequal = fake.on[FAKE_CONV][1].n_unstable = 2;
    fake.on[FAKE_CONV][1].noise = &noise;
    fake.on[FAKE_SCORES][1].is_stuck = fake.on[FAKE_SCORES][2].is_stuck = true;
    fake.on[FAKE_CONV][2].is_stuck = true; /* no output: not said */
    fake_differ(&fake, FAKE_CONV, 0);
    fake.pairs[FAKE_CONV][0].within_noise = true;
    text = text_of(&fake, NULL);
    assert_has(text, "\n  conv    gen1    2 of 12  22.09  25.0%       ±3         0\n");
    assert_has(text, " u ~     =\n");
    assert_has(text, "\n  ~     may be noise");
    assert_has(text, "\nstuck outputs, the same for different inputs, on:\n  scores  gen1, gen3\n");
    free(text);
}

static void text_names_the_odd_one_and_where_tests_part(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    fake_differ(&fake, FAKE_CONV, 0);
    fake.comparison.first_tensor = FAKE_CONV;
    fake.comparison.odd_one_out = fake.tensors[FAKE_CONV].odd_one_out = 1;
    fake.devices[1].class_id = 1;
    fake.devices[2].class_id = 2;
    fake.comparison.n_partings = 2;
    fake.partings[0] = (struct nd_parting){0, 1, 0, 1, FAKE_CONV};
    fake.partings[1] = (struct nd_parting){1, 2, 1, 2, FAKE_CONV};
    char *text = text_of(&fake, NULL);
    assert_has(
        text, "\nodd one out:              gen1 (all others agree on every tensor; alone on 1 of 2 tensors)\n");
    assert_has(
        text,
        "\nwhere captures begin to differ from each other, in graph order:\n  gen1 | gen3  conv (Conv+Relu)\n");
    assert_has_not(text, "cpu | gen1  conv");
    free(text);
}

static void matrix_is_mirrored_only_where_it_is_symmetric(void **state)
{
    (void)state;
    struct fake_comparison fake;
    struct nd_matrix matrices[2];
    fake_init(&fake);
    fake_differ(&fake, FAKE_SCORES, 0)->sqnr_db = 20;
    fake_differ(&fake, FAKE_SCORES, 1)->sqnr_db = 30;
    fake.pairs[FAKE_SCORES][2].total.coverage = ND_COVERAGE_NONE;
    assert_int_equal(nd_matrix_parse("sqnr:scores", &matrices[0], NULL), ND_OK);
    assert_int_equal(nd_matrix_parse("share", &matrices[1], NULL), ND_OK);
    struct nd_report_options options = {.struct_size = sizeof options, .matrices = matrices, .n_matrices = 2};
    char *text = text_of(&fake, &options);
    assert_has(text, "\nSQNR in dB at scores, over the samples that differ (row: reference, column: test):\n"
                     "        cpu  gen1  gen3\n"
                     "  cpu     .    20    30\n"
                     "  gen1          .   n/c\n"
                     "  gen3                .\n");
    assert_has(text, "\nshare of differing elements at scores (row: reference, column: test):\n"
                     "         cpu  gen1  gen3\n"
                     "  cpu      .  5.0%  5.0%\n"
                     "  gen1  5.0%     .   n/c\n"
                     "  gen3  5.0%   n/c     .\n");
    free(text);
    matrices[1].tensor = "missing";
    struct nd_error err = {0};
    assert_int_equal(nd_report_text(&fake.comparison, &options, &text, &err), ND_ERR_USAGE);
    assert_string_equal(err.message, "there is no tensor 'missing' for a matrix");
    static const char *const wrong[] = {"", ":", "shares", "share:", ":scores", "Share"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(nd_matrix_parse(wrong[i], &matrices[0], NULL), ND_ERR_USAGE);
    assert_int_equal(nd_matrix_parse("kl:a:0", &matrices[0], NULL), ND_OK);
    assert_string_equal(matrices[0].tensor, "a:0");
}

/* Names and reasons as long as they come: nothing may leave the width, and nothing wrapped may be lost. */
static void lines_keep_within_any_width(void **state)
{
    (void)state;
    struct fake_comparison fake;
    struct nd_matrix matrix;
    assert_int_equal(nd_matrix_parse("cosine", &matrix, NULL), ND_OK);
    static struct nd_difference channels[40];
    fake_init(&fake);
    for (size_t i = 0; i < FAKE_PAIRS; i++) {
        fake_fill(&fake, FAKE_SCORES, i)->distribution =
            (struct nd_distribution){true, true, 4, 1, 0, 0.125, 5, 0.75};
        fake_fill(&fake, FAKE_CONV, i)->structure.pattern = ND_PATTERN_RANGE;
        fake.parts[FAKE_CONV][i].reason = NULL;
        for (size_t k = 0; k < ND_LSB_BUCKETS; k++)
            fake.pairs[FAKE_CONV][i].total.difference.lsb_histogram[k] = UINT64_MAX / (k + 1);
    }
    fake_channels(&fake, channels, 40);
    for (size_t i = 0; i < FAKE_DEVICES; i++) {
        fake.devices[i].label = fake_text("htp-sim:SM8850@qairt-2.48.40.260115123456");
        fake.devices[i].capture =
            fake_text("/a/path/of/many/folders/that/does/not/end/for/a/long/while/and/then/"
                      "goes/on/for/some/more/folders/capture.h5");
        fake.devices[i].class_id = (int)i;
        fake.devices[i].failure =
            fake_text("stage 'run': the agent died of something that takes many words to say");
        fake.on[FAKE_CONV][i].n_repeats = fake.on[FAKE_CONV][i].n_repeats_unequal = 1000000;
    }
    fake.devices[1].status = ND_CAPTURE_FAILED;
    fake.comparison.has_gates = true;
    fake.comparison.first_tensor = FAKE_CONV;
    fake.comparison.classes_text =
        fake_text("one = two = three = four = five = six = seven | eight = nine = ten | "
                  "eleven = twelve = thirteen = fourteen = fifteen = sixteen");
    fake.tensors[FAKE_CONV].name =
        fake_text("/model/backbone/features/features.0/features.0.0/Conv_output_0_quantized");
    fake.pairs[FAKE_SCORES][1].total.coverage = ND_COVERAGE_PART;
    fake.pairs[FAKE_SCORES][1].total.reason =
        fake_text("probe 'val': only 1 of 4 samples on both sides, and what "
                  "else there may be to say about them");
    static const size_t widths[] = {80, 81, 100, 120, 200};
    for (size_t i = 0; i < sizeof widths / sizeof widths[0]; i++) {
        struct nd_report_options options = {
            .details = true, .width = widths[i], .matrices = &matrix, .n_matrices = 1};
        char *text = text_of(&fake, &options);
        assert_lines_fit(text, widths[i]);
        assert_has(text, "sixteen\n");
        free(text);
    }
}

static void wrapped_text_breaks_at_blanks(void **state)
{
    (void)state;
    struct nd_strbuf out = {0};
    nd_strbuf_puts(&out, "12345");
    nd_wrap_append(&out, "one two three four five", 2, 26);
    assert_string_equal(out.text, "12345one two three four\n  five");
    nd_strbuf_deinit(&out);
    nd_wrap_append(&out, "abcdefghijklmnopqrstuvwxyz0123 end", 2, 26);
    assert_string_equal(out.text, "abcdefghijklmnopqrstuvwxyz\n  0123 end");
    nd_strbuf_deinit(&out);
}

static void numbers_near_one_never_round_to_it(void **state)
{
    (void)state;
    char buf[ND_NUMBER_BYTES];
    static const struct {
        double value;
        const char *expected;
    } rows[] = {{1, "1"},
                {1 - 1e-16, ">0.9999999"},
                {1 + 1e-15, "<1.0000001"},
                {0.9999998, "0.9999998"},
                {0.999, "0.999"},
                {1.0000002, "1.0000002"},
                {0.5, "0.5"},
                {-1, "-1"},
                {0, "0"},
                {INFINITY, "Infinity"},
                {NAN, "NaN"},
                {1234567, "1.235e+06"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(nd_format_near_one(rows[i].value, buf), rows[i].expected);
}

static struct nd_compared_diagnosis fake_diagnosis(size_t device, size_t tensor, const char *kind,
                                                   const char *text)
{
    return (struct nd_compared_diagnosis){.device = device,
                                          .tensor = tensor,
                                          .kind = kind,
                                          .text = fake_text(text),
                                          .is_note = strcmp(kind, "fp16-grid") == 0,
                                          .chance = NAN};
}

/* Devices share a line, later tensors are counted, and what accuses nobody stands apart. */
static void diagnoses_are_said_once(void **state)
{
    (void)state;
    struct fake_comparison fake;
    fake_init(&fake);
    struct nd_compared_diagnosis diagnoses[] = {
        fake_diagnosis(1, FAKE_CONV, "stale", "every sample holds the same values"),
        fake_diagnosis(1, FAKE_SCORES, "stale", "later"),
        fake_diagnosis(2, FAKE_CONV, "stale", "every sample holds the same values"),
        fake_diagnosis(2, FAKE_SCORES, "stale", "later"),
        fake_diagnosis(2, FAKE_SCORES, "fp16-grid", "all values are half precision numbers"),
    };
    struct nd_compared_depth depth = {.device = 2,
                                      .growth = "constant-rate",
                                      .n_tensors = 8,
                                      .factor = 1.5,
                                      .first = 0.001,
                                      .last = 0.02,
                                      .largest = 12,
                                      .is_half = true};
    diagnoses[0].n_later = diagnoses[2].n_later = 1;
    fake.comparison.diagnoses = diagnoses;
    fake.comparison.n_diagnoses = 5;
    fake.comparison.depths = &depth;
    fake.comparison.n_depths = 1;
    char *text = text_of(&fake, NULL);
    assert_has(text, "\ndiagnosis from the values:\n"
                     "  conv  gen1, gen3  every sample holds the same values (and 1 later tensor)\n"
                     "\narithmetic that the values show (no fault):\n"
                     "  scores  gen3  all values are half precision numbers\n");
    assert_has_not(text, "per tensor");
    free(text);
    text = text_of(&fake, &(struct nd_report_options){.details = true});
    assert_has(text, "\n  scores  gen1, gen3  later\n");
    assert_has(text, "\n  gen3    1.5 times per tensor        8  0.001  0.02  relative error\n");
    assert_has(text, "do not come near the end of half precision, 65504\n");
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cells_that_are_cut_stay_different),
        cmocka_unit_test(channels_are_listed_worst_first),
        cmocka_unit_test(text_of_outputs_shows_the_signal),
        cmocka_unit_test(diagnoses_are_said_once),
        cmocka_unit_test(worst_qvalues_have_every_digit),
        cmocka_unit_test(verdict_counts_each_tensor_once),
        cmocka_unit_test(text_of_patterns_names_the_elements),
        cmocka_unit_test(text_of_repeats_says_how_sure_it_is),
        cmocka_unit_test(text_names_the_odd_one_and_where_tests_part),
        cmocka_unit_test(matrix_is_mirrored_only_where_it_is_symmetric),
        cmocka_unit_test(lines_keep_within_any_width),
        cmocka_unit_test(wrapped_text_breaks_at_blanks),
        cmocka_unit_test(numbers_near_one_never_round_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
