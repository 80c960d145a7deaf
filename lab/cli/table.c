/* The table of a campaign: the steps first, then each operator with a letter for its arithmetic in each cell.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/rows.h"
#include "cli/terminal/terminal.h"
#include "core/memory.h"
#include "lab/cli/brief.h"

/* The texts of a list with blanks between. */
static json_t *joined(const json_t *list)
{
    json_t *text = json_string(""), *item;
    size_t i;
    json_array_foreach(list, i, item) {
        json_t *longer =
            json_sprintf("%s%s%s", json_string_value(text), i > 0 ? " " : "", json_string_value(item));
        json_decref(text);
        text = longer;
    }
    return text;
}

static bool is_alike(const json_t *a, const json_t *b)
{
    return a != NULL && strcmp(cli_text_of(a, "types"), cli_text_of(b, "types")) == 0 &&
           json_equal(json_object_get(a, "where"), json_object_get(b, "where"));
}

/* "Add, Sub u8 x u8 -> u8 (v73 v75)": operators of the same types that change at the same places stand
 * together. n_lines: places that there are; where it is all of them, none is named. */
static json_t *changed_operators(const json_t *changed, size_t n_lines)
{
    json_t *text = json_string(""), *row;
    size_t i;
    json_array_foreach(changed, i, row) {
        const json_t *before = i > 0 ? json_array_get(changed, i - 1) : NULL,
                     *where = json_object_get(row, "where");
        bool is_last = !is_alike(json_array_get(changed, i + 1), row);
        bool is_somewhere = json_array_size(where) < n_lines;
        json_t *places = joined(where);
        json_t *longer = json_sprintf(
            "%s%s%s%s%s%s%s%s", json_string_value(text),
            i == 0                  ? ""
            : is_alike(before, row) ? ", "
                                    : "; ",
            cli_text_of(row, "operator"), is_last ? " " : "", is_last ? cli_text_of(row, "types") : "",
            is_last && is_somewhere ? " (" : "", is_last && is_somewhere ? json_string_value(places) : "",
            is_last && is_somewhere ? ")" : "");
        json_decref(places);
        json_decref(text);
        text = longer;
    }
    return text;
}

/* How many bytes "qairt-" and the like take, where all runtimes begin with the same word. */
static size_t common_word(const json_t *runtimes)
{
    const char *first = json_string_value(json_array_get(runtimes, 0));
    const char *end = first != NULL ? strchr(first, '-') : NULL;
    const json_t *runtime;
    size_t i, n = end != NULL ? (size_t)(end + 1 - first) : 0;
    json_array_foreach(runtimes, i, runtime) {
        if (n > 0 && strncmp(json_string_value(runtime), first, n) != 0)
            return 0;
    }
    return n;
}

static json_t *step_rows(const json_t *table)
{
    json_t *rows = json_array(), *step;
    size_t i, n_devices = json_array_size(json_object_get(table, "devices")),
              n_runtimes = json_array_size(json_object_get(table, "runtimes")),
              n_word = common_word(json_object_get(table, "runtimes"));
    json_array_foreach(json_object_get(table, "steps"), i, step) {
        const json_t *changed = json_object_get(step, "changed");
        bool is_runtime = strcmp(cli_text_of(step, "along"), "runtime") == 0;
        size_t skipped = is_runtime ? n_word : 0;
        cli_row_append(rows, json_pack("{s:o, s:I, s:O, s:O, s:o}", "step",
                                       json_sprintf("%s to %s", cli_text_of(step, "from") + skipped,
                                                    cli_text_of(step, "to") + skipped),
                                       "n_changed", (json_int_t)json_array_size(changed), "n_same",
                                       json_object_get(step, "n_same"), "n_not_known",
                                       json_object_get(step, "n_not_known"), "operators",
                                       changed_operators(changed, is_runtime ? n_devices : n_runtimes)));
    }
    return rows;
}

static const struct nd_report_column step_columns[] = {{"step", "STEP"},
                                                       {"n_changed", "CHANGED"},
                                                       {"n_same", "SAME"},
                                                       {"n_not_known", "NOT KNOWN"},
                                                       {"operators", "WHAT CHANGED (WHERE)"},
                                                       {NULL, NULL}};

static size_t count_operators(const json_t *table, const char *verdict)
{
    const json_t *row;
    size_t i, n = 0;
    json_array_foreach(json_object_get(table, "operators"), i, row) {
        n += strcmp(cli_text_of(row, "verdict"), verdict) == 0;
    }
    return n;
}

/* The cells without a datasheet, such as "v68 with qairt-2.47.0, v81 with qairt-2.47.0". */
static json_t *missing_cells(const json_t *table, size_t *n)
{
    json_t *text = json_string(""), *cell;
    size_t i;
    *n = 0;
    json_array_foreach(json_object_get(table, "datasheets"), i, cell) {
        if (!json_is_null(json_object_get(cell, "file")))
            continue;
        json_t *longer = json_sprintf("%s%s%s with %s", json_string_value(text), (*n)++ > 0 ? ", " : "",
                                      cli_text_of(cell, "device"), cli_text_of(cell, "runtime"));
        json_decref(text);
        text = longer;
    }
    return text;
}

static void put_headline(struct nd_report_screen *screen, const json_t *table)
{
    size_t n_differ = count_operators(table, "differs"), n_same = count_operators(table, "same"),
           n_unknown = count_operators(table, "not known"), n_missing,
           n_cells = json_array_size(json_object_get(table, "datasheets"));
    json_auto_t *missing = missing_cells(table, &n_missing);
    if (n_differ > 0)
        nd_report_screen_put(screen,
                             "DIFFERS: the arithmetic of %zu of %zu operators changes, that of %zu does not\n",
                             n_differ, n_differ + n_same + n_unknown, n_same);
    else
        nd_report_screen_put(screen, "SAME: the arithmetic of %zu operators changes nowhere\n", n_same);
    nd_report_screen_put(screen, "Devices: %zu, runtimes: %zu, datasheets: %zu\n",
                         json_array_size(json_object_get(table, "devices")),
                         json_array_size(json_object_get(table, "runtimes")), n_cells - n_missing);
    if (n_unknown > 0)
        nd_report_screen_put(screen, "The arithmetic of %zu operators is known in one cell at most.\n",
                             n_unknown);
    enum { MAX_NAMED = 4 }; /* two lines of 80 columns */
    if (n_missing > MAX_NAMED)
        nd_report_screen_put(screen,
                             "Not measured: %zu of %zu pairs of device and runtime (-v has dots for them)\n",
                             n_missing, n_cells);
    else if (n_missing > 0)
        nd_report_screen_put(screen, "Not measured: %s\n", json_string_value(missing));
}

/* ---- each operator ---- */

static void print_letters(const json_t *table)
{
    const json_t *devices = json_object_get(table, "devices"), *operators = json_object_get(table, "operators"),
                 *row;
    size_t i, n = json_array_size(devices), k = 0;
    ND_FREED struct nd_report_column *columns = calloc(n + 3, sizeof *columns);
    json_auto_t *rows = json_array();
    if (columns == NULL)
        return;
    columns[k++] = (struct nd_report_column){"operator", "OPERATOR"};
    columns[k++] = (struct nd_report_column){"types", "TYPES"};
    for (size_t d = 0; d < n; d++, k++)
        columns[k] = (struct nd_report_column){json_string_value(json_array_get(devices, d)),
                                               json_string_value(json_array_get(devices, d))};
    json_array_foreach(operators, i, row) {
        json_t *out = json_copy(json_object_get(row, "letters"));
        json_object_set(out, "operator", json_object_get(row, "operator"));
        json_object_set(out, "types", json_object_get(row, "types"));
        cli_row_append(rows, out);
    }
    cli_print_table(rows, columns);
}

static void print_arithmetic(const json_t *table)
{
    const json_t *row, *claim;
    size_t i, k;
    json_array_foreach(json_object_get(table, "operators"), i, row) {
        if (strcmp(cli_text_of(row, "verdict"), "differs") != 0)
            continue;
        printf("%s %s (%s)\n", cli_text_of(row, "operator"), cli_text_of(row, "types"),
               cli_text_of(row, "section"));
        json_array_foreach(json_object_get(row, "arithmetic"), k, claim) {
            json_t *text = fingerprint_arithmetic(claim);
            printf("    %s  %s: %s\n", cli_text_of(claim, "letter"), cli_text_of(claim, "verdict"),
                   json_string_value(text));
            json_decref(text);
        }
    }
}

static int print_all(const json_t *table, struct nd_report_screen *screen)
{
    json_auto_t *steps = step_rows(table), *runtimes = joined(json_object_get(table, "runtimes"));
    int exit_code = cli_print_screen(screen);
    putchar('\n');
    cli_print_table(steps, step_columns);
    printf("\nOne letter for each runtime, in this order: %s\n"
           "The same letter in a row: the same arithmetic. ?: not known. !: failed. .: not measured.\n\n",
           json_string_value(runtimes));
    print_letters(table);
    putchar('\n');
    print_arithmetic(table);
    return exit_code;
}

int fingerprint_print_campaign(const json_t *table, const char *folder, bool verbose)
{
    struct nd_report_screen *screen = nd_report_screen_create(cli_text_width(0));
    const char *next[] = {"npudiff", "fingerprint", "--campaign", folder, "-v"};
    put_headline(screen, table);
    if (verbose)
        return print_all(table, screen);
    nd_report_screen_put(screen, "\n");
    if (json_array_size(json_object_get(table, "steps")) > 0)
        cli_screen_rows(screen, step_rows(table), step_columns, "-v lists all");
    nd_report_screen_next(screen, "for each operator in each datasheet", next, sizeof next / sizeof next[0]);
    return cli_print_screen(screen);
}
