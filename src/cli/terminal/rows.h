/* Lists for people and programs from one set of rows: an aligned table or JSON; and the tensors that a capture
 * lacks. */
#pragma once

#include <jansson.h>
#include <stdbool.h>

#include "cli/terminal/errors.h"
#include "npudiff/capture/capture.h"
#include "npudiff/report/report.h"

/* json_array_append_new and json_object_set_new; what is lost, be it a value that is NULL as it could not be
 * made, ends the command with exit code 2. */
void cli_row_append(json_t *rows, json_t *row);
void cli_row_set(json_t *row, const char *key, json_t *value);

/* Prints `rows` (an array of objects with strings, integers, reals, booleans or null) as a table with these
 * columns. */
void cli_print_table(const json_t *rows, const struct nd_report_column *columns);

/* Prints a JSON document of this kind with these members, which it takes over, indented, doubles
 * round-tripping, with a final newline. A document that is printed after an error was reported holds it as
 * "error". */
void cli_print_json(enum nd_document kind, json_t *members);

/* Prints JSON that the library made; nothing where a part of it was lost for want of memory. */
void cli_print_document(const char *json);

/* Prints a text, or a JSON object, that a writer of npudiff/report.h made with this status, and frees it. A
 * JSON object that is printed after an error was reported holds it as "error". 0, or the exit code of the
 * writer's error. */
int cli_print_made(enum nd_status status, char *text, bool is_json, const struct nd_error *err);

/* A document with the member "name": rows as JSON, or the rows as a table. Takes over the reference to rows; 0,
 * or exit code 2 when memory is out. */
int cli_print_rows(enum nd_document kind, const char *name, json_t *rows,
                   const struct nd_report_column *columns, bool is_json);

/* The same as a part of a text of one screen (npudiff/report.h); takes over the reference to rows. */
void cli_screen_rows(struct nd_report_screen *screen, json_t *rows, const struct nd_report_column *columns,
                     const char *more);

/* The text member, "" when there is none. */
const char *cli_text_of(const json_t *object, const char *key);

/* [{"tensor", what}] of an attribute of /runtime that has a line for each tensor ("left_out",
 * "untouched_differs"): its name, a tab, what is said of it. Empty where there is none. Owned by the caller. */
json_t *cli_tensor_rows(const struct nd_capture *capture, const char *attribute, const char *what);
