#include "report/table.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "report/format.h"

void nd_table_add(struct nd_table *table, const char *text)
{
    char *clean = nd_clean_text(text);
    if (clean == NULL ||
        !nd_grow((void **)&table->cells, &table->capacity, table->n_cells + 1, sizeof *table->cells)) {
        free(clean);
        table->failed = true;
        return;
    }
    table->cells[table->n_cells++] = clean;
}

void nd_table_addf(struct nd_table *table, const char *fmt, ...)
{
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    if (vasprintf(&text, fmt, args) < 0) {
        text = NULL;
        table->failed = true;
    }
    va_end(args);
    if (text != NULL)
        nd_table_add(table, text);
    free(text);
}

static size_t shown_columns(const struct nd_table *table, size_t cell)
{
    size_t columns = nd_text_columns(table->cells[cell]), limit = table->max_width[cell % table->n_columns];
    return limit > 0 && columns > limit ? limit : columns;
}

size_t nd_table_width(const struct nd_table *table, size_t column)
{
    size_t width = 0;
    for (size_t i = column; i < table->n_cells; i += table->n_columns) {
        size_t columns = shown_columns(table, i);
        width = columns > width ? columns : width;
    }
    return width;
}

/* The byte at which code point `n` of text starts. */
static size_t byte_of(const char *text, size_t n)
{
    size_t i = 0;
    for (; text[i] != '\0'; i++)
        if (((unsigned char)text[i] & 0xc0) != 0x80 && n-- == 0)
            break;
    return i;
}

/* A name that is too long keeps its start and, mostly, its end: that is where tensors of one model differ. */
static void put_cell(const struct nd_table *table, size_t cell, struct nd_strbuf *out)
{
    const char *text = table->cells[cell];
    size_t columns = nd_text_columns(text), shown = shown_columns(table, cell);
    if (shown == columns || shown < 5) {
        nd_strbuf_append(out, text, byte_of(text, shown));
        return;
    }
    size_t n_head = (shown - 2) / 3, n_tail = shown - 2 - n_head;
    nd_strbuf_append(out, text, byte_of(text, n_head));
    nd_strbuf_puts(out, "..");
    nd_strbuf_puts(out, text + byte_of(text, columns - n_tail));
}

static void pad(struct nd_strbuf *out, size_t n)
{
    while (n-- > 0)
        nd_strbuf_append(out, " ", 1);
}

void nd_table_render(const struct nd_table *table, struct nd_strbuf *out)
{
    size_t widths[ND_TABLE_MAX_COLUMNS];
    for (size_t i = 0; i < table->n_columns; i++)
        widths[i] = nd_table_width(table, i);
    out->failed = out->failed || table->failed;
    for (size_t row = 0; row + table->n_columns <= table->n_cells && !out->failed; row += table->n_columns) {
        size_t owed = 2; /* blanks are written only in front of text */
        for (size_t i = 0; i < table->n_columns; i++) {
            size_t blank = widths[i] - shown_columns(table, row + i);
            bool is_empty = table->cells[row + i][0] == '\0';
            if (!is_empty) {
                pad(out, owed + (table->is_left[i] ? 0 : blank));
                put_cell(table, row + i, out);
                owed = 0;
            }
            owed += 2 + (is_empty || table->is_left[i] ? blank : 0);
        }
        nd_strbuf_puts(out, "\n");
    }
}

void nd_table_deinit(struct nd_table *table)
{
    for (size_t i = 0; i < table->n_cells; i++)
        free(table->cells[i]);
    free(table->cells);
    *table = (struct nd_table){0};
}
