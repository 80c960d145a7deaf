/* What writers have in common that build a tree of JSON, and how every writer ends. */
#pragma once

#include <jansson.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "npudiff/compare/compare.h"
#include "npudiff/report/report.h"

static inline json_t *nd_int(uint64_t n)
{
    return json_integer((json_int_t)n);
}

static inline json_t *nd_or_null(const char *text)
{
    return text != NULL ? nd_json_string(text) : json_null();
}

static inline const char *nd_plural(size_t n)
{
    return n == 1 ? "" : "s";
}

/* Sets the value in this format; null for NaN. */
void nd_tree_number(json_t *row, const char *key, const char *format, double value);

/* Closes the object of a document that was written, and ends. */
enum nd_status nd_document_end(struct nd_json *json, char **out, struct nd_error *err);

/* Appends rows (an array of objects with texts, numbers, booleans or null) as a table with these columns. */
void nd_rows_put(struct nd_strbuf *out, const json_t *rows, const struct nd_report_column *columns);

/* nd_report_screen_rows of a tree that is taken over; NULL is one that could not be made. */
void nd_screen_rows(struct nd_report_screen *screen, json_t *rows, const struct nd_report_column *columns,
                    const char *more);

/* The text of a document of this kind with these members, which it takes over; NULL gives ND_ERR_MEMORY, and so
 * does any part that was lost. */
enum nd_status nd_tree_end(enum nd_document kind, json_t *members, char **out, struct nd_error *err);

/* The text; ND_ERR_MEMORY where a part of it is lost. */
enum nd_status nd_text_end(struct nd_strbuf *text, char **out, struct nd_error *err);

/* ---- a table of text with aligned columns, and numbers as its cells and sentences show them ---- */

enum { ND_TABLE_MAX_COLUMNS = 24 };

struct nd_table {
    size_t n_columns; /* at most ND_TABLE_MAX_COLUMNS */
    bool is_left[ND_TABLE_MAX_COLUMNS];
    size_t max_width[ND_TABLE_MAX_COLUMNS]; /* longer cells lose their middle; 0: no limit. Different
                                              cells that would look the same get numbers (~1, ~2) */
    size_t line_width; /* a last column that is left-aligned is wrapped to keep lines within it; 0: never */
    bool
        is_key_whole; /* a cell of the first column that is too long has a line of its own, and loses nothing */
    bool is_bare;     /* no margin, and every line reaches to its last column */
    char **cells;     /* row by row */
    size_t n_cells, capacity;
    bool failed; /* out of memory: checked once at the end */
};

/* Adds one cell; the text is cleaned (nd_clean_text). */
void nd_table_add(struct nd_table *table, const char *text);
void nd_table_addf(struct nd_table *table, const char *fmt, ...) ND_PRINTF(2, 3);

/* Width of a column as it will be shown. */
size_t nd_table_width(const struct nd_table *table, size_t column);

/* Appends the rows, each after two spaces, without trailing blanks, and shortens the cells that are too long. A
 * failed table fails out. */
void nd_table_render(struct nd_table *table, struct nd_strbuf *out);

/* The same within line_width (> 0): columns that do not fit beside the first n_keys follow below in another
 * table, which repeats those. The keys and each of the others should leave half of the line free. */
void nd_table_render_panels(struct nd_table *table, size_t n_keys, struct nd_strbuf *out);

void nd_table_deinit(struct nd_table *table);

/* Appends clean text at the end of the line that out ends with, broken at blanks so that lines keep within
 * width; the lines that follow start with indent blanks. A word longer than a line is cut in two. */
void nd_wrap_append(struct nd_strbuf *out, const char *text, size_t indent, size_t width);

/* ---- numbers in cells and sentences ---- */

/* A share in percent, rounded half up: "12.3%", "0.02%", "<0.01%" for anything above zero and below that,
 * ">99.9%" for anything below all that would be rounded to all, "0%" and "100%" only when exact; "?" for NaN.
 * Every text and page has its percentages from here. unit: "%", or with a space before it. */
char *nd_format_percent(double share, const char *unit, char buf[static ND_NUMBER_BYTES]);

/* The same as text that lives as long as the block in which this stands. */
#define ND_PERCENT(share) nd_format_percent(share, "%", (char[ND_NUMBER_BYTES]){0})

/* The same of n in total; "-" when total is 0. */
char *nd_format_share(uint64_t n, uint64_t total, char buf[static ND_NUMBER_BYTES]);

/* Four significant digits; "NaN", "Infinity", "-Infinity". For people only. */
char *nd_format_short(double value, char buf[static ND_NUMBER_BYTES]);

/* Seven decimals at most, for values that matter by how far they are from 1 (a cosine): "1" only when exact,
 * else at least ">0.9999999" or "<1.0000001". */
char *nd_format_near_one(double value, char buf[static ND_NUMBER_BYTES]);

/* A count as it is below a million, else with three significant digits ("1.23e+09"). */
char *nd_format_count(uint64_t n, char buf[static ND_NUMBER_BYTES]);
