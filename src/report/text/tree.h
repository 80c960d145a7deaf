/* What writers have in common that build a tree of JSON, and how every writer ends. */
#ifndef ND_REPORT_TREE_H
#define ND_REPORT_TREE_H

#include <jansson.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/text/strbuf.h"
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

#endif
