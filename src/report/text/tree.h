/* What writers have in common that build a tree of JSON, and how every writer ends. */
#ifndef ND_REPORT_TREE_H
#define ND_REPORT_TREE_H

#include <jansson.h>

#include "core/documents/json_out.h"
#include "core/error.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"

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
