/* A table of text with aligned columns. */
#ifndef ND_REPORT_TABLE_H
#define ND_REPORT_TABLE_H

#include "base/strbuf.h"
#include "npudiff/compare.h"

enum { ND_TABLE_MAX_COLUMNS = 24 };

struct nd_table {
    size_t n_columns; /* at most ND_TABLE_MAX_COLUMNS */
    bool is_left[ND_TABLE_MAX_COLUMNS];
    size_t max_width[ND_TABLE_MAX_COLUMNS]; /* longer cells lose their middle; 0: no limit */
    char **cells;                           /* row by row */
    size_t n_cells, capacity;
    bool failed; /* out of memory: checked once at the end */
};

/* Adds one cell; the text is cleaned (nd_clean_text). */
void nd_table_add(struct nd_table *table, const char *text);
void nd_table_addf(struct nd_table *table, const char *fmt, ...) ND_PRINTF(2, 3);

/* Width of a column as it will be shown. */
size_t nd_table_width(const struct nd_table *table, size_t column);

/* Appends the rows, each behind two spaces, without trailing blanks. A failed table fails out. */
void nd_table_render(const struct nd_table *table, struct nd_strbuf *out);

void nd_table_deinit(struct nd_table *table);

#endif
