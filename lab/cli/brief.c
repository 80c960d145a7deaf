/* The default text of `npudiff fingerprint`: what was identified, one row for operators that compute alike. */
#include "lab/cli/brief.h"

#include <stdio.h>
#include <string.h>

#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"

/* The steps of an arithmetic apart, so that a line can be broken between them; n others give the same values.
 */
static json_t *spaced(const char *arithmetic, size_t n)
{
    char text[512];
    size_t k = 0;
    for (; *arithmetic != '\0' && k + 3 < sizeof text; arithmetic++) {
        text[k++] = *arithmetic;
        if (*arithmetic == '+')
            text[k++] = ' ';
    }
    text[k] = '\0';
    return n > 0 ? json_sprintf("%s, or %zu more that give the same values", text, n) : json_string(text);
}

json_t *fingerprint_arithmetic(const json_t *entry)
{
    const json_t *arithmetics = json_object_get(entry, "possible_arithmetic");
    const char *first = json_string_value(json_array_get(arithmetics, 0)),
               *nearest = cli_text_of(entry, "nearest");
    const char *failure = cli_text_of(entry, "failure");
    size_t n = json_array_size(arithmetics);
    if (first != NULL && n > 1)
        return spaced(first, n - 1);
    if (first != NULL)
        return spaced(first, 0);
    if (nearest[0] != '\0')
        return json_sprintf("nearest: %s", nearest);
    return failure[0] != '\0' ? cli_text(failure) : json_string("-");
}

static bool is_identified(const json_t *entry)
{
    return strcmp(cli_text_of(entry, "verdict"), "identified") == 0;
}

/* Adds the operator to the row of those that compute alike, or a row. */
static void add_entry(json_t *rows, const json_t *entry)
{
    json_t *row, *arithmetic = fingerprint_arithmetic(entry);
    const char *words = arithmetic != NULL ? json_string_value(arithmetic) : "";
    size_t i;
    json_array_foreach(rows, i, row) {
        if (strcmp(cli_text_of(row, "types"), cli_text_of(entry, "types")) == 0 &&
            strcmp(cli_text_of(row, "verdict"), cli_text_of(entry, "verdict")) == 0 &&
            strcmp(cli_text_of(row, "arithmetic"), words) == 0) {
            cli_row_set(row, "operators",
                        json_sprintf("%s, %s", cli_text_of(row, "operators"), cli_text_of(entry, "operator")));
            json_decref(arithmetic);
            return;
        }
    }
    cli_row_append(rows, json_pack("{s:O, s:O, s:O, s:o}", "operators", json_object_get(entry, "operator"),
                                   "types", json_object_get(entry, "types"), "verdict",
                                   json_object_get(entry, "verdict"), "arithmetic", arithmetic));
}

int fingerprint_print_sheet(const json_t *sheet, const char *file)
{
    static const struct nd_report_column columns[] = {{"operators", "OPERATORS"},
                                                      {"types", "TYPES"},
                                                      {"verdict", "RESULT"},
                                                      {"arithmetic", "ARITHMETIC"},
                                                      {NULL, NULL}};
    const json_t *device = json_object_get(sheet, "device");
    const char *section, *next[] = {"npudiff", "fingerprint", "--diff", file, "OTHER.json"};
    json_t *entries, *entry, *rows = json_array();
    size_t i, n = 0, n_identified = 0, n_undecided = 0;
    json_object_foreach((json_t *)(uintptr_t)json_object_get(sheet, "sections"), section, entries) {
        json_array_foreach(entries, i, entry) {
            add_entry(rows, entry);
            n++;
            n_identified += is_identified(entry);
            n_undecided += json_array_size(json_object_get(entry, "undecided")) > 0;
        }
    }
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    nd_report_screen_put(screen, "%s: the arithmetic of %zu of %zu operators\n",
                         n_identified == n  ? "IDENTIFIED"
                         : n_identified > 0 ? "PARTLY IDENTIFIED"
                                            : "NOT IDENTIFIED",
                         n_identified, n);
    nd_report_screen_put(screen, "%s, runtime %s\n", cli_text_of(device, "uri"),
                         cli_text_of(device, "runtime"));
    if (n_undecided > 0)
        nd_report_screen_put(screen, "A detail of %zu operator%s could not be decided (-v says which).\n",
                             n_undecided, n_undecided == 1 ? "" : "s");
    nd_report_screen_put(screen, "\n");
    cli_screen_rows(screen, rows, columns, "-v lists all, with the evidence");
    if (file != NULL)
        nd_report_screen_next(screen, "to compare it with a different device or SDK", next,
                              sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}

/* Two rows for an operator, or its name added to those of operators that differ in the same way. */
static void add_difference(json_t *rows, const json_t *difference)
{
    json_t *a = fingerprint_arithmetic(json_object_get(difference, "a")),
           *b = fingerprint_arithmetic(json_object_get(difference, "b"));
    const char *name = cli_text_of(difference, "operator"), *types = cli_text_of(difference, "types");
    for (size_t i = 0; i + 1 < json_array_size(rows); i += 2) {
        json_t *row = json_array_get(rows, i), *next = json_array_get(rows, i + 1);
        if (strcmp(cli_text_of(row, "types"), types) == 0 &&
            json_equal(json_object_get(row, "arithmetic"), a) &&
            json_equal(json_object_get(next, "arithmetic"), b)) {
            cli_row_set(row, "operators", json_sprintf("%s, %s", cli_text_of(row, "operators"), name));
            json_decref(a);
            json_decref(b);
            return;
        }
    }
    cli_row_append(rows, json_pack("{s:s, s:s, s:s, s:o}", "operators", name, "types", types, "side", "A",
                                   "arithmetic", a));
    cli_row_append(
        rows, json_pack("{s:s, s:s, s:s, s:o}", "operators", "", "types", "", "side", "B", "arithmetic", b));
}

int fingerprint_print_difference(const json_t *difference, const char *a, const char *b)
{
    static const struct nd_report_column columns[] = {{"operators", "OPERATORS"},
                                                      {"types", "TYPES"},
                                                      {"side", "FILE"},
                                                      {"arithmetic", "ARITHMETIC"},
                                                      {NULL, NULL}};
    json_t *rows = json_array(), *row;
    size_t i, n_different = json_array_size(json_object_get(difference, "differences"));
    size_t n_unknown = json_array_size(json_object_get(difference, "not_known"));
    json_int_t n_same = json_integer_value(json_object_get(difference, "n_same"));
    json_array_foreach(json_object_get(difference, "differences"), i, row) {
        add_difference(rows, row);
    }
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    if (n_different == 0)
        nd_report_screen_put(screen, "SAME: %" JSON_INTEGER_FORMAT " operators compute alike\n", n_same);
    else
        nd_report_screen_put(screen,
                             "DIFFERS: %zu operators compute differently, %" JSON_INTEGER_FORMAT " alike\n",
                             n_different, n_same);
    nd_report_screen_put(screen, "A: %s\nB: %s\n", a, b);
    if (n_unknown > 0)
        nd_report_screen_put(screen, "The arithmetic of %zu operators is not known on one side or both.\n",
                             n_unknown);
    if (n_different > 0) {
        nd_report_screen_put(screen, "\n");
        cli_screen_rows(screen, rows, columns, "-v lists all");
    } else {
        json_decref(rows);
    }
    return cli_print_screen(screen);
}
