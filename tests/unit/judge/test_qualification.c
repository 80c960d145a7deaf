/* Writers of a campaign's result: JUnit against its schema, CSV, and what is no result. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "support/main.h"

#include "npudiff/report/report.h"

/* Two devices, every verdict, and names that XML and CSV have to mind. */
static const char result[] =
    "{\"kind\": \"qualification\", \"format\": 1, \"campaign\": \"a <b> & \\\"c\\\"\", \"verdict\": \"failed\","
    "\"reference\": \"quantised\", \"counts\": {\"passed\": 2, \"failed\": 1},"
    "\"models\": [{\"name\": \"m\", \"quantised\": \"m.onnx\", \"accuracy\": [], \"devices\": ["
    "{\"device\": \"cpu\", \"status\": \"complete\", \"failure\": null, \"run_s\": 1.25},"
    "{\"device\": \"gen1\", \"status\": \"failed\", \"failure\": \"session: no\\u0001\"},"
    "{\"device\": \"gen3\", \"status\": \"failed\", \"failure\": \"crash\"}]}],"
    "\"gates\": [{\"gate\": \"lsb\", \"text\": \"lsb <= 1\", \"edges\": [\"a*\", \"b\"], \"line\": 7},"
    "{\"gate\": \"lsb\", \"text\": \"lsb <= 1\", \"edges\": [], \"line\": 9},"
    "{\"gate\": \"accuracy-drop\", \"text\": \"accuracy, \\\"drop\\\"\", \"edges\": [], \"line\": 11}],"
    "\"cases\": ["
    "{\"model\": \"m\", \"device\": \"cpu\", \"gate\": 0, \"verdict\": \"failed\", \"value\": 2.0, \"bound\": "
    "1.0,"
    " \"edge\": \"a1\", \"probe\": \"p\", \"checked\": 3, \"failing\": 1, \"samples\": 0, \"samples_needed\": "
    "0,"
    " \"message\": \"2 > 1 at 'a1'\"},"
    "{\"model\": \"m\", \"device\": \"cpu\", \"gate\": 1, \"verdict\": \"passed\", \"message\": \"\"},"
    "{\"model\": \"m\", \"device\": \"cpu\", \"gate\": 2, \"verdict\": \"inconclusive\", \"samples\": 700,"
    " \"samples_needed\": 4282, \"message\": \"inconclusive: 4 282 samples needed, 700 given\"},"
    "{\"model\": \"m\", \"device\": \"gen1\", \"gate\": 0, \"verdict\": \"device failed\", \"message\": \"x\"},"
    "{\"model\": \"m\", \"device\": \"gen1\", \"gate\": 1, \"verdict\": \"warned\", \"message\": \"<slow>\"},"
    "{\"model\": \"m\", \"device\": \"gen1\", \"gate\": 2, \"verdict\": \"not comparable\", \"message\": \"n\"}"
    "]}";

typedef enum nd_status writer(const struct nd_qualified *result, char **out, struct nd_error *err);

/* What a writer makes of the text of a result. */
static enum nd_status write_as(writer *write, const char *json, char **out, struct nd_error *err)
{
    struct nd_qualified read;
    enum nd_status status = nd_qualified_read(json, &read, err);
    if (status != ND_OK)
        return status;
    status = write(&read, out, err);
    nd_qualified_deinit(&read);
    return status;
}

/* What xmllint says of a document: 0 when golden/junit.rng accepts it, 3 when it does not. Text that is no XML
 * fails the test. */
static int validate(const char *xml)
{
    char command[4096];
    const char *golden = getenv("GOLDEN");
    assert_non_null(golden);
    snprintf(command, sizeof command, "exec xmllint --noout --nonet --relaxng '%s/junit.rng' - 2>/dev/null",
             golden);
    FILE *xmllint = popen(command, "w");
    assert_non_null(xmllint);
    fputs(xml, xmllint);
    int status = pclose(xmllint);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) != 0 && WEXITSTATUS(status) != 3)
        fail_msg("xmllint (Debian: libxml2-utils) ends with %d for:\n%s", WEXITSTATUS(status), xml);
    return WEXITSTATUS(status);
}

static void assert_holds(const char *text, const char *part)
{
    if (strstr(text, part) == NULL)
        fail_msg("'%s' is not in:\n%s", part, text);
}

static void junit_of_every_verdict_is_valid(void **state)
{
    (void)state;
    char *xml = NULL;
    assert_int_equal(write_as(nd_report_qualification_junit, result, &xml, NULL), ND_OK);
    assert_int_equal(validate(xml), 0);
    assert_holds(xml,
                 "<testsuites name=\"a &lt;b&gt; &amp; &quot;c&quot;\" tests=\"7\" failures=\"1\" errors=\"4\" "
                 "skipped=\"0\" time=\"1.250\">");
    assert_holds(
        xml,
        "<testsuite name=\"m on cpu\" tests=\"3\" failures=\"1\" errors=\"1\" skipped=\"0\" time=\"1.250\">");
    /* Two gates of the same words stay two tests. */
    assert_holds(xml, "<testcase name=\"lsb &lt;= 1 (line 7)\"");
    assert_holds(xml, "<testcase name=\"lsb &lt;= 1 (line 9)\"");
    assert_holds(xml, "<failure message=\"2 &gt; 1 at 'a1'\" type=\"failed\"/>");
    assert_holds(xml,
                 "<error message=\"inconclusive: 4 282 samples needed, 700 given\" type=\"inconclusive\"/>");
    assert_holds(xml, "<system-out>&lt;slow&gt;</system-out>");
    /* A failed device that no gate is about. */
    assert_holds(
        xml, "<testcase name=\"capture\" classname=\"a &lt;b&gt; &amp; &quot;c&quot;.m.gen3\" time=\"0.000\">");
    free(xml);
}

/* Line feeds, control characters, a terminal's commands, what looks like markup, bytes that are no UTF-8. */
static void junit_of_any_names_is_valid(void **state)
{
    (void)state;
    static const char json[] =
        "{\"kind\": \"qualification\", \"format\": 1, \"campaign\": \"c\", \"models\": [{\"name\": \"<!-- m\","
        "\"devices\": [{\"device\": \"d\\u001b[2J\\u007f\\u0085\", \"failure\": \"\"}]}],"
        "\"gates\": [{\"text\": \"\\uffff'g'\", \"line\": 1}], \"cases\": [{\"model\": \"<!-- m\", \"device\": "
        "\"d\\u001b[2J\\u007f\\u0085\", \"gate\": 0, \"verdict\": \"warned\", \"message\": \"a\\r\\n]]>\"}]}";
    struct nd_qualified read;
    char *xml = NULL;
    assert_int_equal(nd_qualified_read(json, &read, NULL), ND_OK);
    const char *campaign = read.campaign;
    read.campaign = "\xc3\xa9\xc3\n\t]]>&#0;\xe2\x82";
    assert_int_equal(nd_report_qualification_junit(&read, &xml, NULL), ND_OK);
    read.campaign = campaign;
    nd_qualified_deinit(&read);
    assert_int_equal(validate(xml), 0);
    assert_holds(xml, "<testsuites name=\"\xc3\xa9???]]&gt;&amp;#0;??\" tests=\"1\"");
    assert_holds(xml, "<testsuite name=\"&lt;!-- m on d?[2J???\" tests=\"1\"");
    assert_holds(xml, "<testcase name=\"?\?\?'g'\"");
    assert_holds(xml, "      <system-out>a??]]&gt;</system-out>\n");
    free(xml);
}

static void junit_schema_refuses_what_is_none(void **state)
{
    (void)state;
    assert_true(validate("<testsuites/>") != 0);
    assert_true(validate("<testsuites name='a' tests='x' failures='0' errors='0' skipped='0' time='0'/>") != 0);
    assert_int_equal(validate("<testsuites name='a' tests='0' failures='0' errors='0' skipped='0' time='0'/>"),
                     0);
}

static void csv_quotes_what_it_must(void **state)
{
    (void)state;
    char *csv = NULL;
    assert_int_equal(write_as(nd_report_qualification_csv, result, &csv, NULL), ND_OK);
    assert_holds(csv, "\r\nm,cpu,lsb,lsb <= 1,a* b,failed,2.0,1.0,a1,p,3,1,0,0,2 > 1 at 'a1'\r\n");
    assert_holds(csv, "\r\nm,cpu,accuracy-drop,\"accuracy, \"\"drop\"\"\",*,inconclusive,,,,,,,700,4282,"
                      "\"inconclusive: 4 282 samples needed, 700 given\"\r\n");
    free(csv);
}

/* A spreadsheet runs a cell that begins with '='. Numbers below 0 stay numbers. */
static void csv_has_no_formula(void **state)
{
    (void)state;
    char evil[sizeof result + 64], *csv = NULL;
    const char *at = strstr(result, "\"a1\"");
    assert_non_null(at);
    snprintf(evil, sizeof evil, "%.*s\"=HYPERLINK(1)\"%s", (int)(at - result), result, at + 4);
    assert_int_equal(write_as(nd_report_qualification_csv, evil, &csv, NULL), ND_OK);
    assert_holds(csv, ",'=HYPERLINK(1),");
    assert_null(strstr(csv, ",=HYPERLINK"));
    free(csv);
}

/* Arithmetics read it: a count of a million and more has every digit. */
static void csv_counts_have_every_digit(void **state)
{
    (void)state;
    char many[sizeof result + 8], *csv = NULL;
    const char *at = strstr(result, "4282");
    assert_non_null(at);
    snprintf(many, sizeof many, "%.*s1712345%s", (int)(at - result), result, at + 4);
    assert_int_equal(write_as(nd_report_qualification_csv, many, &csv, NULL), ND_OK);
    assert_holds(csv, ",700,1712345,");
    free(csv);
}

static void text_ends_with_the_verdict(void **state)
{
    (void)state;
    char *text = NULL;
    assert_int_equal(write_as(nd_report_qualification_text, result, &text, NULL), ND_OK);
    assert_holds(text, "campaign 'a <b> & \"c\"': failed (gates: 2 passed, 1 failed)\n");
    assert_holds(text,
                 "  inconclusive: cpu: accuracy, \"drop\": inconclusive: 4 282 samples needed, 700 given\n");
    assert_null(strchr(text, '\001'));
    free(text);
}

/* What is written reads back, and is written the same again: also what is not known, infinite or nested. The
 * first text has the names of version 0.1, and a device that is called as one of them. */
static void json_reads_back_equal(void **state)
{
    (void)state;
    static const char parts[] =
        "{\"kind\": \"qualification\", \"format\": 1, \"npudiff\": \"1\", \"key\": \"k\", \"exit_code\": 4,"
        "\"counts\": {\"passed\": 3, \"device failed\": 1}, \"models\": [{\"name\": \"m\\u00e9\", \"devices\": "
        "["
        "{\"device\": \"d\", \"findings\": [\"a\", \"b\"], \"class\": -1, \"edges\": 7}, {\"class\": null}],"
        "\"references\": [{\"reference\": \"float\", \"broken\": \"why\"}],"
        "\"accuracy\": [{\"probe\": \"p\", \"baseline\": {\"class\": 40, \"float\": 39},"
        "\"changed predictions\": {\"mean\": \"NaN\", \"unstable\": {\"samples\": 1, \"of\": 2, \"interval\": "
        "[0.1, 0.9]}},"
        "\"spread\": {\"spread\": {\"value\": 0.1, \"interval\": [\"-Infinity\", \"Infinity\"]}, \"common\": "
        "null},"
        "\"devices\": [{\"device\": \"d\", \"against\": [{\"evidence\": {\"largest\": \"Infinity\", \"stop\": "
        "5},"
        "\"gate\": null, \"p_value_holm\": 0.30000000000000004}]}]}]}],"
        "\"suggestion\": \"policy:\\n\", \"suggested\": {\"policy\": [{\"gate\": \"finalize\"},"
        "{\"gate\": \"lsb\", \"max\": 2.0, \"devices\": [\"d\"]}], \"left_out\": [{\"model\": \"m\"}]}}";
    static const char *const held[] = {"\"verdict\": \"\",\n \"exit_code\": 4,", /* a word is never null */
                                       "\"passed\": 3,\n  \"warned\": 0,",
                                       "\"name\": \"m\u00e9\"",
                                       "\"group\": -1,",
                                       "\"group\": null,",
                                       "\"uri\": null,",
                                       "\"tensors\": 7,\n     \"tensors_differing\": null,",
                                       "\"class\": 40,\n      \"float\": 39\n",
                                       "\"mean\": \"NaN\"",
                                       "\"-Infinity\",\n        \"Infinity\"\n",
                                       "\"common\": null",
                                       "\"stop\": 5",
                                       "\"p_value_holm\": 0.30000000000000004\n",
                                       "{\n    \"gate\": \"finalize\"\n   },",
                                       "\"max\": 2.0,\n    \"devices\": ["};
    char *first = NULL, *second = NULL;
    assert_int_equal(write_as(nd_report_qualification_json, parts, &first, NULL), ND_OK);
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++)
        assert_holds(first, held[i]);
    assert_int_equal(write_as(nd_report_qualification_json, first, &second, NULL), ND_OK);
    assert_string_equal(first, second);
    free(first);
    free(second);
}

static void what_is_no_result_is_refused(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "{", "[]", "{}", "{\"kind\": \"qualification\", \"format\": 3}"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        char *out = NULL;
        struct nd_error err = {0};
        assert_int_equal(write_as(nd_report_qualification_text, texts[i], &out, &err), ND_ERR_FORMAT);
        assert_int_equal(write_as(nd_report_qualification_csv, texts[i], &out, &err), ND_ERR_FORMAT);
        assert_int_equal(write_as(nd_report_qualification_junit, texts[i], &out, &err), ND_ERR_FORMAT);
        assert_null(out);
    }
    /* Everything is missing: empty lists, no crash. */
    char *out = NULL;
    assert_int_equal(
        write_as(nd_report_qualification_junit, "{\"kind\": \"qualification\", \"format\": 1}", &out, NULL),
        ND_OK);
    assert_int_equal(validate(out), 0);
    free(out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(junit_of_every_verdict_is_valid),
        cmocka_unit_test(junit_of_any_names_is_valid),
        cmocka_unit_test(junit_schema_refuses_what_is_none),
        cmocka_unit_test(csv_quotes_what_it_must),
        cmocka_unit_test(csv_has_no_formula),
        cmocka_unit_test(csv_counts_have_every_digit),
        cmocka_unit_test(json_reads_back_equal),
        cmocka_unit_test(text_ends_with_the_verdict),
        cmocka_unit_test(what_is_no_result_is_refused),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
