/* What writers have in common that build a tree of JSON, and how every writer ends. */
#include "report/text/tree.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/core/parse.h"

enum { MAX_COLUMNS = 12 };

/* The text, or NULL where a part of it is lost. */
static char *whole(char *text)
{
    if (!nd_take_lost_text())
        return text;
    free(text);
    return NULL;
}

static enum nd_status end(char *text, char **out, struct nd_error *err)
{
    text = whole(text);
    ND_TRY_MEMORY(text != NULL, err);
    *out = text;
    return ND_OK;
}

enum nd_status nd_tree_end(enum nd_document kind, json_t *members, char **out, struct nd_error *err)
{
    json_auto_t *tree = nd_json_document(kind, members);
    char *text = tree != NULL ? nd_json_dump(tree, 2) : NULL;
    return end(text, out, err);
}

enum nd_status nd_text_end(struct nd_strbuf *text, char **out, struct nd_error *err)
{
    return end(nd_strbuf_take(text), out, err);
}

/* ---- tables ---- */

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

/* The last cell of a line is not padded. */
static void put_cell(struct nd_strbuf *out, const char *text, size_t width, bool is_last)
{
    if (is_last)
        nd_strbuf_printf(out, "%s\n", text);
    else
        nd_strbuf_printf(out, "%s%*s", text, (int)(width - nd_text_columns(text) + 2), "");
}

void nd_rows_put(struct nd_strbuf *out, const json_t *rows, const struct nd_report_column *columns)
{
    size_t widths[MAX_COLUMNS] = {0};
    size_t n = 0, i;
    char buf[64];
    const json_t *row;
    for (; n < MAX_COLUMNS && columns[n].key != NULL; n++)
        widths[n] = nd_text_columns(columns[n].title);
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++) {
            size_t width = nd_text_columns(cell_text(json_object_get(row, columns[c].key), buf));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < n; c++)
        put_cell(out, columns[c].title, widths[c], c + 1 == n);
    json_array_foreach(rows, i, row)
    {
        for (size_t c = 0; c < n; c++)
            put_cell(out, cell_text(json_object_get(row, columns[c].key), buf), widths[c], c + 1 == n);
    }
}

/* ---- what the commands print of their own ---- */

char *nd_report_document(enum nd_document kind, const char *json)
{
    json_auto_t *tree = nd_json_document(kind, json_loads(json, 0, NULL));
    char *text = tree != NULL ? nd_json_dump(tree, 2) : NULL;
    return whole(text);
}

char *nd_report_rows(const char *json, const struct nd_report_column *columns)
{
    json_auto_t *rows = json_loads(json, 0, NULL);
    struct nd_strbuf out = {.failed = rows == NULL};
    nd_rows_put(&out, rows, columns);
    return whole(nd_strbuf_take(&out));
}

void nd_tree_number(json_t *row, const char *key, const char *format, double value)
{
    char text[64];
    snprintf(text, sizeof text, format, value);
    nd_tree_set(row, key, isnan(value) ? json_null() : nd_json_string(text));
}

enum nd_status nd_document_end(struct nd_json *json, char **out, struct nd_error *err)
{
    nd_json_close(json, '}');
    nd_strbuf_puts(json->out, "\n");
    return nd_text_end(json->out, out, err);
}
