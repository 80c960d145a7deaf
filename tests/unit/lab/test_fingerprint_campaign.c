/* The table of a campaign, of datasheets that are written here: which letter each cell has, and at which step
 * an operator changes. */
#include "support/main.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "npudiff/lab/fingerprint.h"

enum { MAX_SHEETS = 16, SHEET_BYTES = 1024 };

struct sheets {
    char text[MAX_SHEETS][SHEET_BYTES], name[MAX_SHEETS][32];
    struct nd_datasheet items[MAX_SHEETS];
    size_t n;
};

/* A datasheet with one section and one operator: its entry but for names. */
static void add(struct sheets *s, const char *chipset, const char *arch, const char *runtime, const char *entry)
{
    size_t i = s->n++;
    assert_true(i < MAX_SHEETS);
    snprintf(s->name[i], sizeof s->name[i], "%zu.json", i);
    int n =
        snprintf(s->text[i], SHEET_BYTES,
                 "{\"npudiff_datasheet\": 2, \"device\": {\"uri\": \"htp-sim:%s@%s?a=b\", \"runtime\": \"%s\", "
                 "\"arch\": \"%s\"}, \"sections\": {\"linear-u8\": [{\"operator\": \"Conv\", \"types\": "
                 "\"u8\", %s}]}}",
                 chipset, runtime, runtime, arch, entry);
    assert_in_range(n, 1, SHEET_BYTES - 1);
    s->items[i] = (struct nd_datasheet){s->text[i], s->name[i]};
}

#define HALF_UP "\"verdict\": \"identified\", \"possible_arithmetic\": [\"up\"]"
#define HALF_EVEN "\"verdict\": \"identified\", \"possible_arithmetic\": [\"even\"]"
#define ANSWERS(digest) "\"verdict\": \"not identified\", \"answers\": \"" digest "\""
#define NOT_KNOWN "\"verdict\": \"not identified\""
#define UNSTABLE "\"verdict\": \"changes from run to run\", \"answers\": \"ab\", \"unstable_trials\": 1"
#define FAILED "\"verdict\": \"failed\", \"failure\": \"no\""

static json_t *table_of(const struct sheets *s, bool is_same)
{
    struct nd_error err = {0};
    char *json = NULL;
    bool found = !is_same;
    assert_int_equal(nd_fingerprint_campaign(s->items, s->n, &json, &found, &err), ND_OK);
    assert_int_equal(found, is_same);
    json_t *table = json_loads(json, JSON_REJECT_DUPLICATES, NULL);
    assert_non_null(table);
    free(json);
    assert_string_equal(json_string_value(json_object_get(table, "verdict")), is_same ? "same" : "differs");
    return table;
}

static const char *letters(const json_t *table, const char *device)
{
    const json_t *row = json_array_get(json_object_get(table, "operators"), 0);
    return json_string_value(json_object_get(json_object_get(row, "letters"), device));
}

/* The steps as "A>B:changed/same/not known WHERE;", in which something changes or all of them. */
static void assert_steps(const json_t *table, bool only_changed, const char *expected)
{
    const json_t *step;
    char text[1024] = "";
    size_t i, n = 0;
    json_array_foreach(json_object_get(table, "steps"), i, step) {
        const json_t *changed = json_object_get(step, "changed"), *where, *place;
        size_t k;
        if (only_changed && json_array_size(changed) == 0)
            continue;
        n += (size_t)snprintf(text + n, sizeof text - n, "%s>%s:%zu/%lld/%lld",
                              json_string_value(json_object_get(step, "from")),
                              json_string_value(json_object_get(step, "to")), json_array_size(changed),
                              json_integer_value(json_object_get(step, "n_same")),
                              json_integer_value(json_object_get(step, "n_not_known")));
        where = json_object_get(json_array_get(changed, 0), "where");
        json_array_foreach(where, k, place) {
            n += (size_t)snprintf(text + n, sizeof text - n, " %s", json_string_value(place));
        }
        n += (size_t)snprintf(text + n, sizeof text - n, ";");
    }
    assert_string_equal(text, expected);
}

/* In any order of the files; 2.9 is older than 2.10. */
static void a_change_stands_at_its_step(void **state)
{
    (void)state;
    struct sheets s = {0};
    add(&s, "SM8550", "v73", "qairt-2.10.0", HALF_EVEN);
    add(&s, "SM8450", "v69", "qairt-2.10.0", HALF_UP);
    add(&s, "SM8550", "v73", "qairt-2.9.0", HALF_UP);
    add(&s, "SM8450", "v69", "qairt-2.9.0", HALF_UP);
    json_t *table = table_of(&s, false);
    assert_string_equal(letters(table, "v69"), "AA");
    assert_string_equal(letters(table, "v73"), "AB");
    assert_steps(table, false, "qairt-2.9.0>qairt-2.10.0:1/0/0 v73;v69>v73:1/0/0 qairt-2.10.0;");
    json_decref(table);
}

/* Digests tell where no arithmetic does; an arithmetic that is known is not the one that is not. */
static void digests_tell_as_arithmetics_do(void **state)
{
    (void)state;
    struct sheets s = {0};
    add(&s, "SM8450", "v69", "r1", ANSWERS("ab"));
    add(&s, "SM8450", "v69", "r2", ANSWERS("ab"));
    json_t *table = table_of(&s, true);
    assert_steps(table, false, "r1>r2:0/1/0;");
    json_decref(table);
    add(&s, "SM8450", "v69", "r3", ANSWERS("cd"));
    table = table_of(&s, false);
    assert_string_equal(letters(table, "v69"), "AAB");
    assert_steps(table, true, "r2>r3:1/0/0 v69;");
    json_decref(table);
}

/* What is not known, failed, was not measured or changes from run to run accuses nobody, and a change across it
 * is not lost. */
static void steps_span_cells_that_do_not_tell(void **state)
{
    (void)state;
    struct sheets s = {0};
    add(&s, "SM8450", "v69", "r1", HALF_UP);
    add(&s, "SM8450", "v69", "r2", NOT_KNOWN);
    add(&s, "SM8450", "v69", "r3", FAILED);
    add(&s, "SM8450", "v69", "r4", UNSTABLE);
    add(&s, "SM8550", "v73", "r5", HALF_UP);
    json_t *table = table_of(&s, true);
    assert_string_equal(letters(table, "v69"), "A?!?.");
    assert_string_equal(letters(table, "v73"), "....A");
    assert_steps(table, true, "");
    json_decref(table);
    add(&s, "SM8450", "v69", "r6", HALF_EVEN);
    table = table_of(&s, false);
    assert_string_equal(letters(table, "v69"), "A?!?.B");
    assert_steps(table, true, "r1>r6:1/0/0 v69;");
    json_decref(table);
}

/* Two chipsets of an architecture go by their URIs, without the runtime. */
static void devices_of_one_architecture_are_told_apart(void **state)
{
    (void)state;
    struct sheets s = {0};
    add(&s, "SM8475", "v69", "r1", HALF_UP);
    add(&s, "SM8450", "v69", "r1", HALF_UP);
    add(&s, "SM8550", "v73", "r1", HALF_UP);
    json_t *table = table_of(&s, true);
    assert_string_equal(letters(table, "htp-sim:SM8475?a=b"), "A");
    assert_steps(table, false, "htp-sim:SM8450?a=b>htp-sim:SM8475?a=b:0/1/0;htp-sim:SM8475?a=b>v73:0/1/0;");
    json_decref(table);
}

static void a_cell_has_one_datasheet(void **state)
{
    (void)state;
    struct sheets s = {0};
    struct nd_error err = {0};
    char *json = NULL;
    bool is_same;
    add(&s, "SM8450", "v69", "r1", HALF_UP);
    add(&s, "SM8450", "v69", "r1", HALF_EVEN);
    assert_int_equal(nd_fingerprint_campaign(s.items, s.n, &json, &is_same, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'0.json'"));
    assert_non_null(strstr(err.message, "'1.json'"));
    assert_null(json);
    s.items[1].text = "[]";
    assert_int_equal(nd_fingerprint_campaign(s.items, s.n, &json, &is_same, &err), ND_ERR_FORMAT);
    assert_non_null(strstr(err.message, "'1.json' is not a datasheet"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_change_stands_at_its_step),
        cmocka_unit_test(digests_tell_as_arithmetics_do),
        cmocka_unit_test(steps_span_cells_that_do_not_tell),
        cmocka_unit_test(devices_of_one_architecture_are_told_apart),
        cmocka_unit_test(a_cell_has_one_datasheet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
