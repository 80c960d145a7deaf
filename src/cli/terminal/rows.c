/* Lists for people and programs from one set of rows: an aligned table or JSON; and the tensors that a capture
 * lacks. */
#include "cli/terminal/rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void cli_row_append(json_t *rows, json_t *row)
{
    if (json_array_append_new(rows, row) != 0)
        cli_errors_lost_memory();
}

void cli_row_set(json_t *row, const char *key, json_t *value)
{
    if (json_object_set_new(row, key, value) != 0)
        cli_errors_lost_memory();
}

void cli_print_table(const json_t *rows, const struct nd_report_column *columns)
{
    char *json = json_dumps(rows, JSON_COMPACT);
    char *text = json != NULL ? nd_report_rows(json, columns) : NULL;
    if (text == NULL)
        cli_errors_lost_memory();
    else
        fputs(text, stdout);
    free(text);
    free(json);
}

void cli_print_json(enum nd_document kind, json_t *members)
{
    char *json = members != NULL ? json_dumps(members, JSON_COMPACT) : NULL;
    char *text = json != NULL ? nd_report_document(kind, json) : NULL;
    free(json);
    json_decref(members);
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

int cli_print_rows(enum nd_document kind, const char *name, json_t *rows,
                   const struct nd_report_column *columns, bool is_json)
{
    if (rows == NULL)
        return cli_fail_memory();
    if (!is_json) {
        cli_print_table(rows, columns);
        json_decref(rows);
        return 0;
    }
    json_t *members = json_pack("{s:o}", name, rows);
    if (members == NULL)
        return cli_fail_memory();
    cli_print_json(kind, members);
    return 0;
}

void cli_screen_rows(struct nd_report_screen *screen, json_t *rows, const struct nd_report_column *columns,
                     const char *more)
{
    char *json = json_dumps(rows, JSON_COMPACT);
    nd_report_screen_rows(screen, json, columns, more);
    free(json);
    json_decref(rows);
}

const char *cli_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}

/* ---- what a capture says of single tensors ---- */

/* The first n bytes as a text of JSON. */
static json_t *text_of(const char *from, size_t n)
{
    char *copy = strndup(from, n);
    json_t *text = copy != NULL ? cli_text(copy) : NULL;
    if (copy == NULL)
        cli_errors_lost_memory();
    free(copy);
    return text;
}

json_t *cli_tensor_rows(const struct nd_capture *capture, const char *attribute, const char *what)
{
    json_t *rows = json_array();
    const char *line = nd_capture_string(capture, "runtime", attribute);
    while (line != NULL && *line != '\0') {
        size_t n = strcspn(line, "\n"), n_name = strcspn(line, "\t\n");
        size_t begin = n_name < n ? n_name + 1 : n;
        json_array_append_new(rows, json_pack("{s:o, s:o}", "tensor", text_of(line, n_name), what,
                                              text_of(line + begin, n - begin)));
        line += n + (line[n] == '\n');
    }
    return rows;
}
