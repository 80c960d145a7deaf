#include "cli/rows.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/errors.h"
#include "npudiff/parse.h"
#include "npudiff/report.h"

enum { MAX_COLUMNS = 12 };

json_t *cli_text(const char *text)
{
    json_t *value = json_string(text != NULL ? text : "");
    if (value != NULL)
        return value;
    char *clean = strdup(text);
    for (char *at = clean; at != NULL && *at != '\0'; at++)
        if ((unsigned char)*at >= 0x80)
            *at = '?';
    value = clean != NULL ? json_string(clean) : NULL;
    free(clean);
    return value;
}

/* The cell's text; buf is used for numbers. */
static const char *cell_text(const json_t *value, char buf[64])
{
    if (json_is_string(value))
        return json_string_value(value);
    if (json_is_integer(value))
        snprintf(buf, 64, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        nd_format_double(json_real_value(value), buf);
    else if (json_is_boolean(value))
        return json_is_true(value) ? "yes" : "no";
    else
        return "-";
    return buf;
}

/* Columns of a terminal that UTF-8 text takes, near enough: its characters. */
static int text_width(const char *text)
{
    int n = 0;
    for (; *text != '\0'; text++)
        n += ((unsigned char)*text & 0xc0) != 0x80;
    return n;
}

/* The last cell of a line is not padded. */
static void print_cell(const char *text, int width, bool is_last)
{
    if (is_last)
        printf("%s\n", text);
    else
        printf("%s%*s", text, width - text_width(text) + 2, "");
}

void cli_print_table(const json_t *rows, const struct cli_column *columns)
{
    int widths[MAX_COLUMNS] = {0};
    size_t n = 0, i;
    char buf[64];
    const json_t *row;
    while (n < MAX_COLUMNS && columns[n].key != NULL) {
        widths[n] = text_width(columns[n].title);
        n++;
    }
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++) {
            int width = text_width(cell_text(json_object_get(row, columns[c].key), buf));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < n; c++)
        print_cell(columns[c].title, widths[c], c + 1 == n);
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++) {
            const char *text = cell_text(json_object_get(row, columns[c].key), buf);
            print_cell(text, widths[c], c + 1 == n);
        }
    }
}

void cli_print_json(const json_t *value)
{
    char *text = nd_report_tree(value);
    if (text == NULL)
        cli_errors_lost_memory();
    else
        cli_print_made(ND_OK, text, true, NULL);
}

void cli_print_document(const char *json)
{
    if (cli_errors_has_lost_memory())
        return; /* its place takes the error */
    fputs(json, stdout);
    cli_errors_has_document();
}

/* Prints the object with the error as its last member. */
static void print_with_error(const char *object, const json_t *error)
{
    size_t n = strlen(object);
    char *text = json_dumps(error, JSON_INDENT(2));
    if (text == NULL) {
        cli_errors_lost_memory();
        return;
    }
    while (n > 0 && object[n - 1] != '}')
        n--;
    n -= 2; /* and the line break before it */
    printf("%.*s,\n  \"error\": ", (int)n, object);
    for (const char *at = text; *at != '\0'; at++)
        printf(*at == '\n' ? "\n  " : "%c", *at);
    cli_print_document("\n}\n");
    free(text);
}

int cli_print_made(enum nd_status status, char *text, bool is_json, const struct nd_error *err)
{
    if (status != ND_OK)
        return cli_report_error(err);
    json_t *error = is_json && strncmp(text, "{\n", 2) == 0 ? cli_errors_first() : NULL;
    if (!is_json)
        fputs(text, stdout);
    else if (error == NULL || cli_errors_has_lost_memory())
        cli_print_document(text);
    else
        print_with_error(text, error);
    json_decref(error);
    free(text);
    return 0;
}

int cli_print_rows(const char *name, json_t *rows, const struct cli_column *columns, bool is_json)
{
    if (rows == NULL)
        return cli_fail_memory();
    if (!is_json) {
        cli_print_table(rows, columns);
        json_decref(rows);
        return 0;
    }
    json_t *root = json_pack("{s:o}", name, rows);
    if (root == NULL)
        return cli_fail_memory();
    cli_print_json(root);
    json_decref(root);
    return 0;
}

const char *cli_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}
