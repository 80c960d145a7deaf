/* The text and JSON of comparisons, held against golden files (ND_UPDATE_GOLDEN=1 rewrites them: look at the
 * difference) and read back. */
#include "support/main.h"

#include "support/fake_fleet.h"

#include <jansson.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>

#include "core/files/file.h"
#include "npudiff/report/report.h"
#include "report/text/tree.h"

enum { N = 6 };

struct fleet {
    struct nd_capture *captures[N];
    struct nd_comparison *comparison;
    struct nd_gates *gates;
};

static void compare_fleet(struct fleet *fleet, size_t n)
{
    struct nd_compare_options options = nd_compare_options_default();
    struct nd_error err = {0};
    options.gates = fleet->gates;
    nd_comparison_destroy(&fleet->comparison);
    if (nd_compare_captures((const struct nd_capture *const *)fleet->captures, n, &options, &fleet->comparison,
                            &err) != ND_OK)
        fail_msg("%s", err.message);
}

/* Everything that a report can show: LSB, ULP, NaN, flips, a fallback, unstable repeats, a failed device. */
static void start(struct fleet *fleet)
{
    static const char *const labels[N] = {"cpu", "gen1", "gen2", "gen3", "gen4", "gen5"};
    static const char *const chipsets[N] = {"", "SM8450", "SM8550", "SM8650", "SM8750", "SM8850"};
    *fleet = (struct fleet){0};
    for (size_t i = 0; i < N; i++)
        fleet->captures[i] = fleet_make(labels[i], chipsets[i]);
    struct nd_capture **c = fleet->captures;
    c[1]->outputs[0][FLEET_CONV][17] += 1;
    c[1]->outputs[0][FLEET_CONV][60] -= 2;
    for (size_t i = 3; i < N; i++) {
        c[i]->outputs[0][FLEET_CONV][50] ^= 0x10;
        fleet_set_qvalue(c[i], 1, 0, 600);
        fleet_set_qvalue(c[i], 2, 4, 29);
        fleet_set_score(c[i], 0, 2, nextafterf(0.0625f, 1));
    }
    fleet_set_score(c[5], 3, 3, NAN);
    fleet_set_score(c[5], 3, 0, INFINITY);
    c[3]->providers[FLEET_SCORES] = "CPUExecutionProvider";
    c[4]->unstable[FLEET_LOGITS] = true;
    c[2]->state = ND_CAPTURE_FAILED;
    c[2]->probes[0].n_samples = 1;
    fleet_set_attr(c[2], "failure", "stage", "run");
    fleet_set_attr(c[2], "failure", "message", "the agent died: signal 11\x1b[31m");
}

static void stop(struct fleet *fleet)
{
    nd_comparison_destroy(&fleet->comparison);
    nd_gates_destroy(&fleet->gates);
    for (size_t i = 0; i < N; i++)
        nd_capture_close(&fleet->captures[i]);
}

static char *text_of(const struct fleet *fleet, bool all_tensors, size_t width)
{
    struct nd_report_options options = {
        .struct_size = sizeof options, .all_tensors = all_tensors, .width = width};
    char *text = NULL;
    assert_int_equal(nd_report_text(fleet->comparison, &options, &text, NULL), ND_OK);
    assert_non_null(text);
    return text;
}

static void assert_golden(const char *name, char *text)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/reports/%s", getenv("GOLDEN"), name);
    if (getenv("ND_UPDATE_GOLDEN") != NULL)
        assert_int_equal(nd_file_put(path, text, strlen(text), NULL), ND_OK);
    void *expected = NULL;
    size_t n;
    struct nd_error err = {0};
    if (nd_file_read(path, 1 << 20, &expected, &n, &err) != ND_OK)
        fail_msg("%s", err.message);
    assert_string_equal(text, (char *)expected);
    free(expected);
    free(text);
}

static void assert_lines_fit(const char *text, size_t width)
{
    for (const char *line = text; *line != '\0';) {
        char copy[1024];
        size_t n = strcspn(line, "\n");
        assert_true(n < sizeof copy);
        memcpy(copy, line, n);
        copy[n] = '\0';
        if (nd_text_columns(copy) > width)
            fail_msg("wider than %zu: %s", width, copy);
        assert_true(n == 0 || copy[n - 1] != ' ');
        line += n + (line[n] == '\n');
    }
}

static void text_of_a_fleet_matches_the_golden_file(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    compare_fleet(&f, N);
    char *text = text_of(&f, false, 0);
    assert_lines_fit(text, 120);
    assert_null(strchr(text, '\x1b'));
    assert_golden("compare_fleet.txt", text);
    assert_golden("compare_fleet_all.txt", text_of(&f, true, 0));
    text = text_of(&f, false, 80);
    assert_lines_fit(text, 80);
    assert_golden("compare_fleet_narrow.txt", text);
    stop(&f);
}

static void text_with_gates_marks_what_fails(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    assert_int_equal(nd_gates_create(&f.gates, NULL), ND_OK);
    assert_int_equal(nd_gates_parse(f.gates, ND_GATE_LSB, "2,logits:1", NULL), ND_OK);
    assert_int_equal(nd_gates_parse(f.gates, ND_GATE_ULP, "4", NULL), ND_OK);
    f.captures[2]->state = ND_CAPTURE_COMPLETE;
    f.captures[2]->probes[0].n_samples = FLEET_SAMPLES;
    compare_fleet(&f, N);
    assert_golden("compare_gated.txt", text_of(&f, false, 0));
    stop(&f);
}

static void text_of_equal_captures_is_short(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    nd_capture_close(&f.captures[1]);
    f.captures[1] = fleet_make("gen1", "SM8450");
    compare_fleet(&f, 2);
    assert_golden("compare_same.txt", text_of(&f, false, 0));
    stop(&f);
}

static void text_of_digests_alone_says_so(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    f.captures[1]->digest_only = true;
    f.captures[1]->tensors[FLEET_SCORES].shape.dims[1] = 4;
    compare_fleet(&f, 2);
    assert_golden("compare_digests.txt", text_of(&f, false, 0));
    stop(&f);
}

/* Numbers look alike wherever the user lives. Where the locale is not installed this repeats the C locale. */
static void text_is_independent_of_the_locale(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    compare_fleet(&f, N);
    setlocale(LC_ALL, "de_DE.UTF-8");
    char *text = text_of(&f, false, 0);
    setlocale(LC_ALL, "C");
    assert_golden("compare_fleet.txt", text);
    stop(&f);
}

static void text_with_many_devices_is_cut_into_panels(void **state)
{
    (void)state;
    enum { MANY = 30 };
    struct nd_capture *captures[MANY];
    struct nd_comparison *comparison = NULL;
    struct fleet f = {0};
    for (size_t i = 0; i < MANY; i++) {
        static char labels[MANY][16];
        snprintf(labels[i], sizeof labels[i], "phone-%zu", i);
        captures[i] = fleet_make(labels[i], "SM8450");
        captures[i]->outputs[0][FLEET_CONV][i] ^= i > 0;
    }
    assert_int_equal(
        nd_compare_captures((const struct nd_capture *const *)captures, MANY, NULL, &comparison, NULL), ND_OK);
    f.comparison = comparison;
    char *text = text_of(&f, false, 120);
    for (size_t i = 1; i < MANY; i++) {
        char label[16];
        size_t n_found = 0;
        snprintf(label, sizeof label, "phone-%zu ", i);
        for (const char *at = text; (at = strstr(at, label)) != NULL; at++)
            n_found++;
        assert_true(n_found >= 2);
    }
    free(text);
    nd_comparison_destroy(&comparison);
    for (size_t i = 0; i < MANY; i++)
        nd_capture_close(&captures[i]);
}

/* JSON. */

static json_t *json_of(const struct fleet *fleet)
{
    char *text = NULL;
    json_error_t error;
    assert_int_equal(nd_report_json(fleet->comparison, &text, NULL), ND_OK);
    json_t *root = json_loads(text, 0, &error);
    if (root == NULL)
        fail_msg("%s", error.text);
    assert_true(text[strlen(text) - 1] == '\n');
    free(text);
    return root;
}

static json_t *tensor_of(const json_t *root, size_t tensor)
{
    return json_array_get(json_object_get(root, "tensors"), tensor);
}

static json_t *pair_of(const json_t *root, size_t tensor, size_t test)
{
    return json_array_get(json_object_get(tensor_of(root, tensor), "pairs"), test - 1);
}

static const char *string_of(const json_t *object, const char *key)
{
    assert_true(json_is_string(json_object_get(object, key)));
    return json_string_value(json_object_get(object, key));
}

static json_int_t number_of(const json_t *object, const char *key)
{
    assert_true(json_is_integer(json_object_get(object, key)));
    return json_integer_value(json_object_get(object, key));
}

static void json_reads_back_with_the_promised_names(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    compare_fleet(&f, N);
    json_t *root = json_of(&f);
    assert_string_equal(string_of(root, "verdict"), "failed");
    const json_t *device = json_array_get(json_object_get(root, "devices"), 2);
    assert_string_equal(string_of(device, "uri"), "gen2");
    assert_string_equal(string_of(device, "capture"), "gen2");
    assert_string_equal(string_of(device, "chipset"), "SM8550");
    assert_string_equal(string_of(device, "status"), "failed");
    assert_int_equal(json_array_size(json_object_get(root, "tensors")), FLEET_TENSORS);
    const json_t *tensor = tensor_of(root, FLEET_CONV);
    assert_string_equal(string_of(tensor, "name"), "conv");
    assert_true(json_is_false(json_object_get(tensor, "comparable")));
    static const int classes[N] = {0, 1, 0, 2, 2, 2};
    for (size_t i = 0; i < N; i++)
        assert_int_equal(json_integer_value(json_array_get(json_object_get(tensor, "groups"), i)), classes[i]);
    const json_t *pair = pair_of(root, FLEET_CONV, 1);
    assert_int_equal(number_of(pair, "ref"), 0);
    assert_int_equal(number_of(pair, "test"), 1);
    assert_int_equal(number_of(pair, "elements"), 24 * FLEET_SAMPLES);
    assert_int_equal(number_of(pair, "differing"), 2);
    assert_int_equal(number_of(pair, "max_lsb"), 2);
    assert_true(json_is_null(json_object_get(pair, "max_ulp")));
    assert_f64_bits(json_real_value(json_object_get(pair, "max_abs")), 1.0);
    assert_int_equal(number_of(pair, "nan"), 0);
    assert_f64_bits(json_real_value(json_object_get(pair, "mean_lsb")), 3.0 / 96);
    const json_t *scores = pair_of(root, FLEET_SCORES, 5);
    assert_int_equal(number_of(scores, "max_ulp"), 1);
    assert_int_equal(number_of(scores, "nan"), 1);
    assert_int_equal(number_of(scores, "inf_mismatch"), 1);
    assert_string_equal(string_of(json_object_get(root, "first_difference"), "tensor"), "conv");
    const json_t *top1 = json_array_get(json_object_get(root, "accuracy"), 0);
    assert_string_equal(string_of(top1, "tensor"), "logits");
    assert_int_equal(number_of(json_array_get(json_object_get(top1, "pairs"), 2), "right_to_wrong"), 1);
    json_decref(root);
    stop(&f);
}

static void json_spells_out_infinity_and_what_is_unknown(void **state)
{
    (void)state;
    struct fleet f;
    start(&f);
    for (size_t i = 0; i < 2; i++) {
        double big = i == 0 ? 1.7e308 : -1.7e308;
        f.captures[i]->tensors[FLEET_SCORES].dtype = ND_DTYPE_F64;
        f.captures[i]->tensors[FLEET_SCORES].shape = (struct nd_shape){.rank = 1, .dims = {1}};
        memcpy(f.captures[i]->outputs[0][FLEET_SCORES], &big, sizeof big);
    }
    f.captures[1]->tensors[FLEET_LOGITS].name = (char *)(uintptr_t) "\xff\x01";
    compare_fleet(&f, 2);
    json_t *root = json_of(&f);
    const json_t *pair = pair_of(root, FLEET_SCORES, 1);
    assert_string_equal(string_of(pair, "max_abs"), "Infinity");
    assert_true(json_is_real(json_object_get(pair, "max_ulp"))); /* over 2^63 */
    assert_true(json_real_value(json_object_get(pair, "max_ulp")) > 1.8e19);
    assert_true(json_is_null(json_object_get(pair_of(root, FLEET_LOGITS, 1), "differing")));
    assert_string_equal(string_of(tensor_of(root, FLEET_TENSORS), "name"), "??");
    json_decref(root);
    stop(&f);
}

static void share_never_rounds_to_none_or_all(void **state)
{
    (void)state;
    char buf[ND_NUMBER_BYTES];
    static const struct {
        uint64_t n, total;
        const char *expected;
    } rows[] = {{0, 0, "-"},
                {0, 7, "0%"},
                {7, 7, "100%"},
                {1, 1000000, "<0.01%"},
                {1, 2, "50.0%"},
                {1, 10000, "0.01%"},
                {99, 10000, "0.99%"},
                {1, 100, "1.0%"},
                {1, 3, "33.3%"},
                {2, 3, "66.7%"},
                {999, 1000, "99.9%"},
                {99999, 100000, ">99.9%"},
                {80, 51200, "0.16%"},
                {6, 100000, "<0.01%"},
                {995, 100000, "1.0%"},
                {994, 100000, "0.99%"},
                {15, 100000, "0.02%"},
                {199, 1000, "19.9%"},
                {729, 2000, "36.5%"}, /* a tie, whatever its nearest double is; and its neighbours */
                {728, 2000, "36.4%"},
                {72899, 200000, "36.4%"},
                {UINT64_MAX - 1, UINT64_MAX, ">99.9%"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_string_equal(nd_format_share(rows[i].n, rows[i].total, buf), rows[i].expected);
    /* Pages have shares: the same digits. */
    assert_string_equal(nd_format_percent(729. / 2000, " %", buf), "36.5 %");
    assert_string_equal(nd_format_percent(-0.0011, "%", buf), "-0.11%");
    assert_string_equal(nd_format_percent(NAN, "%", buf), "?");
    assert_string_equal(ND_FACTOR(1, 4), "1");
    assert_string_equal(ND_FACTOR(1.5, 4), "1.5");
    assert_string_equal(ND_FACTOR(1.00012, 4), "1.00012");
    assert_string_equal(ND_FACTOR(0.99987654, 4), "0.999877");
}

static void text_with_control_bytes_is_cleaned(void **state)
{
    (void)state;
    static const char *const rows[][2] = {{"conv/1:0", "conv/1:0"},
                                          {"a\tb\n", "a?b?"},
                                          {"\x1b[2J", "?[2J"},
                                          {"\xc3\xa4", "\xc3\xa4"},
                                          {"\xc2\x9b", "??"},
                                          {"\xff", "?"},
                                          {"\xe2\x82\xac", "\xe2\x82\xac"},
                                          {"\xc3", "?"},
                                          {"\xed\xa0\x80", "???"},
                                          {"a\xef\xbf\xbe", "a???"},
                                          {"\xef\xbf\xbd", "\xef\xbf\xbd"}};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char *clean = nd_clean_text(rows[i][0]);
        assert_string_equal(clean, rows[i][1]);
        free(clean);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_of_a_fleet_matches_the_golden_file),
        cmocka_unit_test(text_with_gates_marks_what_fails),
        cmocka_unit_test(text_of_equal_captures_is_short),
        cmocka_unit_test(text_of_digests_alone_says_so),
        cmocka_unit_test(text_is_independent_of_the_locale),
        cmocka_unit_test(text_with_many_devices_is_cut_into_panels),
        cmocka_unit_test(json_reads_back_with_the_promised_names),
        cmocka_unit_test(json_spells_out_infinity_and_what_is_unknown),
        cmocka_unit_test(share_never_rounds_to_none_or_all),
        cmocka_unit_test(text_with_control_bytes_is_cleaned),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
