#include "support/main.h"

/* YAML that was made to cost much: deep, with many anchors, with aliases of aliases. */
#include <stdlib.h>
#include <string.h>

#include "core/documents/yaml_map.h"
#include "core/text/strbuf.h"

static struct nd_error err;

static enum nd_status load(struct nd_strbuf *text)
{
    const struct nd_yaml_file file = {"x.yaml", "a campaign", ND_E_CAMPAIGN_FORMAT};
    struct nd_yaml yaml;
    size_t n = text->len;
    char *whole = nd_strbuf_take(text);
    assert_non_null(whole);
    enum nd_status status = nd_yaml_load(&yaml, &file, whole, n, &err);
    nd_yaml_deinit(&yaml);
    free(whole);
    return status;
}

static void repeat(struct nd_strbuf *text, const char *piece, size_t n)
{
    for (size_t i = 0; i < n; i++)
        nd_strbuf_puts(text, piece);
}

static void expect_refused(struct nd_strbuf *text, const char *message)
{
    assert_int_equal(load(text), ND_ERR_USAGE);
    assert_int_equal(err.id, ND_E_CAMPAIGN_FORMAT);
    assert_string_equal(err.message, message);
}

static void lists_and_mappings_64_deep_are_read_and_65_are_not(void **state)
{
    static const char *const pieces[][2] = {{"[", "]"}, {"{a: ", "}"}, {"- ", ""}};
    (void)state;
    for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++)
        for (size_t n = 63; n <= 64; n++) {
            struct nd_strbuf text = {0};
            nd_strbuf_puts(&text, "a:\n  ");
            repeat(&text, pieces[p][0], n);
            nd_strbuf_puts(&text, "x");
            repeat(&text, pieces[p][1], n);
            enum nd_status status = load(&text);
            assert_int_equal(status, n == 63 ? ND_OK : ND_ERR_USAGE);
        }
    assert_string_equal(err.message, "x.yaml:2:129: lists and mappings lie more than 64 deep in each other");
}

/* Without the limit this takes libyaml a minute, and the test its limit of time. */
static void two_hundred_thousand_brackets_are_refused_at_the_65th(void **state)
{
    struct nd_strbuf text = {0};
    (void)state;
    repeat(&text, "[", 200000);
    expect_refused(&text, "x.yaml:1:65: lists and mappings lie more than 64 deep in each other");
    repeat(&text, "{a: ", 200000);
    expect_refused(&text, "x.yaml:1:257: lists and mappings lie more than 64 deep in each other");
}

static void anchors_and_tag_directives_are_few(void **state)
{
    struct nd_strbuf text = {0};
    (void)state;
    nd_strbuf_puts(&text, "a:\n");
    for (int i = 0; i < 200000; i++)
        nd_strbuf_printf(&text, "- &n%d x\n", i);
    expect_refused(&text, "x.yaml:258:3: there are more than 256 anchors");
    for (int i = 0; i < 200000; i++)
        nd_strbuf_printf(&text, "%%TAG !n%d! tag:x:\n", i);
    nd_strbuf_puts(&text, "--- {a: b}\n");
    expect_refused(&text, "x.yaml:17:1: there are more than 16 tag directives");
}

static void aliases_do_no_output_effect(void **state)
{
    struct nd_strbuf text = {0};
    (void)state;
    nd_strbuf_puts(&text, "a: &a [x, y]\nb: *a\nc: [*a, *a]\n");
    assert_int_equal(load(&text), ND_OK);

    nd_strbuf_puts(&text, "a: &a0 [x, x]\n"); /* each is four of the one before */
    for (int i = 1; i < 30; i++)
        nd_strbuf_printf(&text, "b%d: &a%d [*a%d, *a%d, *a%d, *a%d]\n", i, i, i - 1, i - 1, i - 1, i - 1);
    assert_int_equal(load(&text), ND_ERR_USAGE);
    assert_non_null(strstr(err.message, "aliases stand for more than 10000000 values"));

    nd_strbuf_puts(&text, "a: &a\n- x\n- *a\n");
    assert_int_equal(load(&text), ND_ERR_USAGE);
    assert_non_null(strstr(err.message, "more than 64 deep"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_and_mappings_64_deep_are_read_and_65_are_not),
        cmocka_unit_test(two_hundred_thousand_brackets_are_refused_at_the_65th),
        cmocka_unit_test(anchors_and_tag_directives_are_few),
        cmocka_unit_test(aliases_do_no_output_effect),
    };
    cmocka_set_message_output(CM_OUTPUT_TAP);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
