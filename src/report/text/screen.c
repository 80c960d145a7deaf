/* The text of one screen, put together from sentences and tables: tables get the lines that sentences leave. */
#include "npudiff/report/report.h"

#include <jansson.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "core/text/print.h"
#include "npudiff/core/parse.h"
#include "report/text/format.h"
#include "report/text/summary.h"
#include "report/text/table.h"
#include "report/text/tree.h"

enum {
    MOST_PARTS = 32,
    MIN_CUT = 10,  /* columns that are left of a cell that is too long for the line */
    MIN_LAST = 30, /* columns of a last cell that is wrapped */
    MIN_LINES = 4, /* of a table, however long the sentences are */
};

/* A sentence, or a table that is laid out at the end. */
struct part {
    struct nd_strbuf text;
    json_t *rows; /* NULL: a sentence */
    const struct nd_report_column *columns;
    char *more;
};

struct nd_report_screen {
    size_t width;
    bool failed;
    struct part parts[MOST_PARTS];
    size_t n_parts;
};

struct nd_report_screen *nd_report_screen_create(size_t width)
{
    struct nd_report_screen *screen = nd_calloc(1, sizeof *screen);
    if (screen != NULL)
        screen->width = nd_summary_width(width);
    return screen;
}

static struct part *add_part(struct nd_report_screen *screen)
{
    if (screen == NULL || screen->n_parts == MOST_PARTS) {
        if (screen != NULL)
            screen->failed = true;
        return NULL;
    }
    return &screen->parts[screen->n_parts++];
}

/* ---- sentences ---- */

void nd_report_screen_put(struct nd_report_screen *screen, const char *fmt, ...)
{
    struct part *part = add_part(screen);
    char *text = NULL;
    va_list arguments;
    if (part == NULL)
        return;
    va_start(arguments, fmt);
    int n = vasprintf(&text, fmt, arguments);
    va_end(arguments);
    if (n < 0) {
        screen->failed = true;
        return;
    }
    for (const char *line = text; *line != '\0';) {
        size_t n_bytes = strcspn(line, "\n"), indent = strspn(line, " ");
        if (n_bytes == 0)
            nd_strbuf_puts(&part->text, "\n");
        else
            nd_summary_put(&part->text, screen->width, indent, indent + 2, "%.*s", (int)(n_bytes - indent),
                           line + indent);
        line += n_bytes + (line[n_bytes] == '\n');
    }
    free(text);
}

void nd_report_screen_lose(struct nd_report_screen *screen)
{
    if (screen != NULL)
        screen->failed = true;
}

void nd_report_screen_next(struct nd_report_screen *screen, const char *why, const char *const *words,
                           size_t n_words)
{
    struct part *part = add_part(screen);
    if (part != NULL)
        nd_summary_put_next(&part->text, screen->width, why, words, n_words);
}

/* Bytes of the first word, which may have blanks in single quotes. */
static size_t word_bytes(const char *text)
{
    bool is_quoted = false;
    size_t n = 0;
    for (; text[n] != '\0' && (is_quoted || text[n] != ' '); n++)
        is_quoted = is_quoted != (text[n] == '\'');
    return n;
}

void nd_report_screen_command(struct nd_report_screen *screen, const char *command)
{
    struct part *part = add_part(screen);
    size_t column = 0;
    if (part == NULL)
        return;
    for (size_t n; *command != '\0'; command += n + strspn(command + n, " ")) {
        n = word_bytes(command);
        size_t reserve = command[n] != '\0' ? 2 : 0; /* for a backslash after it */
        bool is_new = column == 0 || column + 1 + n + reserve > screen->width;
        nd_strbuf_printf(&part->text, "%s%.*s",
                         column == 0 ? "  "
                         : is_new    ? " \\\n    "
                                     : " ",
                         (int)n, command);
        column = is_new ? (column == 0 ? 2 : 4) + n : column + 1 + n;
    }
    nd_strbuf_puts(&part->text, "\n");
}

/* ---- tables ---- */

void nd_report_screen_rows(struct nd_report_screen *screen, const char *json,
                           const struct nd_report_column *columns, const char *more)
{
    nd_screen_rows(screen, json_loads(json, 0, NULL), columns, more);
}

void nd_screen_rows(struct nd_report_screen *screen, json_t *rows, const struct nd_report_column *columns,
                    const char *more)
{
    struct part *part = add_part(screen);
    if (part == NULL) {
        json_decref(rows);
        return;
    }
    part->rows = rows;
    part->columns = columns;
    part->more = nd_strdup(more);
    screen->failed = screen->failed || part->rows == NULL || part->more == NULL;
}

static void add_cell(struct nd_table *table, const json_t *value)
{
    char number[64];
    if (json_is_string(value))
        nd_table_add(table, json_string_value(value));
    else if (json_is_integer(value))
        nd_table_addf(table, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    else if (json_is_real(value))
        nd_table_add(table, nd_format_double(json_real_value(value), number));
    else if (json_is_boolean(value))
        nd_table_add(table, json_is_true(value) ? "yes" : "no");
    else
        nd_table_add(table, "-");
}

static bool is_number_column(const struct part *part, size_t column)
{
    const json_t *row;
    size_t i;
    json_array_foreach(part->rows, i, row)
    {
        const json_t *value = json_object_get(row, part->columns[column].key);
        if (!json_is_number(value) && !json_is_null(value) && value != NULL)
            return false;
    }
    return true;
}

/* Takes columns from the widest cells until the line is wide enough for all. A last column of text is wrapped
 * instead. */
static void fit_columns(struct nd_table *table)
{
    for (;;) {
        size_t last = table->n_columns - 1, total = 0, widest = 0, most = 0;
        for (size_t i = 0; i < table->n_columns; i++) {
            size_t width = nd_table_width(table, i);
            if (i == last && table->is_left[i] && width > MIN_LAST)
                width = MIN_LAST;
            else if (width > most && table->is_left[i]) {
                widest = i;
                most = width;
            }
            total += 2 + width;
        }
        if (total <= table->line_width || most <= MIN_CUT)
            return;
        size_t excess = total - table->line_width;
        table->max_width[widest] = most > MIN_CUT + excess ? most - excess : MIN_CUT;
    }
}

/* The first n_rows of the table. */
static void lay_out(const struct part *part, size_t n_rows, size_t width, struct nd_strbuf *out)
{
    struct nd_table table = {.line_width = width};
    const json_t *row;
    size_t i;
    while (table.n_columns < ND_TABLE_MAX_COLUMNS && part->columns[table.n_columns].key != NULL) {
        table.is_left[table.n_columns] = table.n_columns == 0 || !is_number_column(part, table.n_columns);
        table.n_columns++;
    }
    for (i = 0; i < table.n_columns; i++)
        nd_table_add(&table, part->columns[i].title);
    json_array_foreach(part->rows, i, row)
    {
        for (size_t c = 0; i < n_rows && c < table.n_columns; c++)
            add_cell(&table, json_object_get(row, part->columns[c].key));
    }
    fit_columns(&table);
    if (table.n_columns > 1)
        nd_table_render_panels(&table, 1, out);
    else
        nd_table_render(&table, out);
    nd_table_deinit(&table);
}

/* As many rows as the lines hold, and how many there are besides. */
static void put_table(struct part *part, size_t width, size_t most_lines, struct nd_strbuf *out)
{
    size_t n = json_array_size(part->rows), n_rows = n, fewest = 0;
    struct nd_strbuf text = {0};
    lay_out(part, n, width, &text);
    if (most_lines < SIZE_MAX && nd_summary_count_lines(&text) > most_lines) {
        size_t too_many = n;
        while (fewest + 1 < too_many) { /* bisection: fewest rows fit */
            n_rows = fewest + (too_many - fewest) / 2;
            nd_strbuf_deinit(&text);
            lay_out(part, n_rows, width, &text);
            if (nd_summary_count_lines(&text) + 1 > most_lines)
                too_many = n_rows;
            else
                fewest = n_rows;
        }
        n_rows = fewest > 0 ? fewest : 1;
        nd_strbuf_deinit(&text);
        lay_out(part, n_rows, width, &text);
    }
    nd_strbuf_append(out, text.text != NULL ? text.text : "", text.len);
    if (n_rows < n)
        nd_summary_put(out, width, 2, 4, "and %zu more (%s)", n - n_rows, part->more);
    out->failed = out->failed || text.failed;
    nd_strbuf_deinit(&text);
}

static void free_screen(struct nd_report_screen *screen)
{
    for (size_t i = 0; screen != NULL && i < screen->n_parts; i++) {
        nd_strbuf_deinit(&screen->parts[i].text);
        json_decref(screen->parts[i].rows);
        free(screen->parts[i].more);
    }
    free(screen);
}

enum nd_status nd_report_screen_end(struct nd_report_screen **screen_ptr, char **out, struct nd_error *err)
{
    struct nd_report_screen *screen = *screen_ptr;
    struct nd_strbuf text = {.failed = screen == NULL || screen->failed};
    size_t used = 0, n_tables = 0;
    *screen_ptr = NULL;
    for (size_t i = 0; !text.failed && i < screen->n_parts; i++) {
        used += nd_summary_count_lines(&screen->parts[i].text);
        n_tables += screen->parts[i].rows != NULL;
    }
    for (size_t i = 0; !text.failed && i < screen->n_parts; i++) {
        struct part *part = &screen->parts[i];
        if (part->rows == NULL) {
            text.failed = text.failed || part->text.failed;
            nd_strbuf_append(&text, part->text.text != NULL ? part->text.text : "", part->text.len);
            continue;
        }
        size_t share = ND_SUMMARY_LINES > used ? (ND_SUMMARY_LINES - used) / n_tables-- : 0;
        size_t before = nd_summary_count_lines(&text);
        put_table(part, screen->width, share > MIN_LINES ? share : MIN_LINES, &text);
        used += nd_summary_count_lines(&text) - before;
    }
    free_screen(screen);
    if (!text.failed)
        return nd_text_end(&text, out, err);
    nd_strbuf_deinit(&text);
    return nd_fail_memory(err);
}
