/* Lists for people and for programs, from one set of rows. */
#include "cli/terminal/rows.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/terminal/errors.h"
#include "cli/terminal/terminal.h"
#include "npudiff/report/report.h"

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

void cli_print_json(enum nd_document kind, const json_t *members)
{
    char *json = json_dumps(members, JSON_COMPACT);
    char *text = json != NULL ? nd_report_document(kind, json) : NULL;
    free(json);
    if (text == NULL)
        cli_errors_lost_memory();
    else
        cli_print_made(ND_OK, text, true, NULL);
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
    json_decref(members);
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

int cli_print_screen(struct nd_report_screen *screen, const char *color)
{
    struct nd_error err = {0};
    char *text = NULL;
    enum nd_status status = nd_report_screen_end(&screen, &text, &err);
    return cli_print_answer(status, text, &(struct cli_answer){.color = color}, &err);
}

const char *cli_text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text != NULL ? text : "";
}
