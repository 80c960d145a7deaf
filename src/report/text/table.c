/* Tables of text with aligned columns, numbers as the text report shows them, and how every writer ends. */
#include "report/text/tree.h"

#include <math.h>
#include <stdio.h>

#include "core/items.h"
#include "npudiff/core/parse.h"

/* What writers have in common that build a tree of JSON, and how every writer ends. */

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
    json_array_foreach(rows, i, row) {
        for (size_t c = 0; c < n; c++) {
            size_t width = nd_text_columns(cell_text(json_object_get(row, columns[c].key), buf));
            widths[c] = width > widths[c] ? width : widths[c];
        }
    }
    for (size_t c = 0; c < n; c++)
        put_cell(out, columns[c].title, widths[c], c + 1 == n);
    json_array_foreach(rows, i, row) {
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

/* No text is wrapped to less than this. */
enum { MIN_WRAPPED = 24 };

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
    ND_FREED char *text = NULL;
    ND_MAKE_ARGUMENTS(text, fmt);
    if (text != NULL)
        nd_table_add(table, text);
    else
        table->failed = true;
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
    size_t max = table->max_width[column];
    return column == 0 && table->is_key_whole && max > 0 && max < width ? max : width;
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

/* ---- cells that are too long ---- */

struct cut {
    char *shown, *whole;
    size_t cell;
};

/* A name that is too long keeps its start and, mostly, its end: that is where tensors of one model differ. */
static char *shorten(const char *text, size_t limit, const char *suffix)
{
    size_t columns = nd_text_columns(text), n_suffix = strlen(suffix);
    size_t n_kept = limit > n_suffix + 4 ? limit - n_suffix - 2 : 2, n_head = n_kept / 3;
    char *shown = NULL;
    if (asprintf(&shown, "%.*s..%s%s", (int)byte_of(text, n_head), text,
                 text + byte_of(text, columns - (n_kept - n_head)), suffix) < 0)
        return NULL;
    return shown;
}

static int compare_cuts(const void *a, const void *b)
{
    const struct cut *x = a, *y = b;
    int order = strcmp(x->shown, y->shown);
    return order != 0 ? order : strcmp(x->whole, y->whole);
}

/* Different texts that were cut to the same one get numbers: nobody may take one for the other. */
static bool number_cuts(struct cut *cuts, size_t n, size_t limit)
{
    for (size_t from = 0, to; from < n; from = to) {
        size_t number = 1;
        for (to = from + 1; to < n && strcmp(cuts[to].shown, cuts[from].shown) == 0; to++)
            ;
        bool is_one = strcmp(cuts[from].whole, cuts[to - 1].whole) == 0;
        for (size_t i = from; i < to && !is_one; i++) {
            char suffix[24];
            number += i > from && strcmp(cuts[i].whole, cuts[i - 1].whole) != 0;
            snprintf(suffix, sizeof suffix, "~%zu", number);
            char *shown = shorten(cuts[i].whole, limit, suffix);
            if (shown == NULL)
                return false;
            free(cuts[i].shown);
            cuts[i].shown = shown;
        }
    }
    return true;
}

/* Puts the cells of a column that are too long into the form in which they are shown. */
static void cut_column(struct nd_table *table, size_t column)
{
    size_t limit = table->max_width[column], n = 0;
    struct cut *cuts = nd_calloc(table->n_cells / table->n_columns + 1, sizeof *cuts);
    bool is_ok = cuts != NULL;
    for (size_t i = column; i < table->n_cells && is_ok; i += table->n_columns) {
        if (nd_text_columns(table->cells[i]) <= limit)
            continue;
        cuts[n] = (struct cut){shorten(table->cells[i], limit, ""), table->cells[i], i};
        is_ok = cuts[n++].shown != NULL;
    }
    if (is_ok) {
        qsort(cuts, n, sizeof *cuts, compare_cuts);
        is_ok = number_cuts(cuts, n, limit);
    }
    for (size_t i = 0; i < n; i++) {
        if (is_ok) {
            free(cuts[i].whole);
            table->cells[cuts[i].cell] = cuts[i].shown;
        } else {
            free(cuts[i].shown);
        }
    }
    free(cuts);
    table->failed = table->failed || !is_ok;
}

static void cut_cells(struct nd_table *table)
{
    for (size_t i = table->is_key_whole ? 1 : 0; i < table->n_columns; i++)
        if (table->max_width[i] > 0)
            cut_column(table, i);
}

static void pad(struct nd_strbuf *out, size_t n)
{
    while (n-- > 0)
        nd_strbuf_append(out, " ", 1);
}

/* Columns of the line that out ends with. */
static size_t current_column(const struct nd_strbuf *out)
{
    size_t start = out->len;
    while (start > 0 && out->text[start - 1] != '\n')
        start--;
    return out->len > start ? nd_text_columns(out->text + start) : 0;
}

void nd_wrap_append(struct nd_strbuf *out, const char *text, size_t indent, size_t width)
{
    size_t column = current_column(out);
    bool is_first = true;
    width = width > indent + MIN_WRAPPED ? width : indent + MIN_WRAPPED;
    while (*text != '\0' && !out->failed) {
        size_t n_bytes = strcspn(text, " "), rest = nd_text_columns(text), blank = is_first ? 0 : 1;
        size_t n = rest - nd_text_columns(text + n_bytes);
        if (column + blank + n > width && column > indent) {
            nd_strbuf_puts(out, "\n");
            pad(out, indent);
            column = indent;
            blank = 0;
        }
        if (n > width - column) {
            n = width - column;
            n_bytes = byte_of(text, n);
        }
        pad(out, blank);
        nd_strbuf_append(out, text, n_bytes);
        column += blank + n;
        text += n_bytes;
        is_first = *text != ' ';
        text += strspn(text, " ");
    }
}

/* Part of a table: the first n_keys columns, and those from `from` up to `to`. */
struct columns {
    size_t n_keys, from, to;
    size_t widths[ND_TABLE_MAX_COLUMNS];
};

static void render_columns(const struct nd_table *table, const struct columns *columns, struct nd_strbuf *out)
{
    out->failed = out->failed || table->failed;
    for (size_t row = 0; row + table->n_columns <= table->n_cells && !out->failed; row += table->n_columns) {
        size_t owed = table->is_bare ? 0 : 2, start = 0; /* blanks are written only in front of text */
        for (size_t i = 0; i < columns->to; i++) {
            if (i >= columns->n_keys && i < columns->from)
                continue;
            if (nd_text_columns(table->cells[row + i]) > columns->widths[i] && i == 0 && table->is_key_whole) {
                pad(out, owed);
                nd_wrap_append(out, table->cells[row], owed + 2, table->line_width);
                nd_strbuf_puts(out, "\n");
                start = columns->widths[0] + 2;
                owed += start;
                continue;
            }
            size_t blank = columns->widths[i] - shown_columns(table, row + i);
            bool is_wrapped = table->line_width > 0 && i + 1 == table->n_columns && table->is_left[i];
            start += 2;
            if (table->cells[row + i][0] == '\0') {
                owed += i + 1 < columns->to ? 2 + blank : 0;
            } else {
                pad(out, owed + (table->is_left[i] ? 0 : blank));
                if (is_wrapped)
                    nd_wrap_append(out, table->cells[row + i], start, table->line_width);
                else
                    nd_strbuf_puts(out, table->cells[row + i]);
                owed = 2 + (table->is_left[i] ? blank : 0);
            }
            start += columns->widths[i];
        }
        if (table->is_bare && table->cells[row + columns->to - 1][0] == '\0')
            pad(out, owed);
        nd_strbuf_puts(out, "\n");
    }
}

void nd_table_render(struct nd_table *table, struct nd_strbuf *out)
{
    cut_cells(table);
    struct columns columns = {.to = table->n_columns};
    for (size_t i = 0; i < table->n_columns; i++)
        columns.widths[i] = nd_table_width(table, i);
    render_columns(table, &columns, out);
}

/* Whether column i fits behind `used` columns of the line, or can be wrapped there. */
static bool is_fitting(const struct nd_table *table, const struct columns *columns, size_t i, size_t used)
{
    size_t needed = columns->widths[i];
    if (i + 1 == table->n_columns && table->is_left[i] && needed > MIN_WRAPPED)
        needed = MIN_WRAPPED;
    return used + 2 + needed <= table->line_width;
}

void nd_table_render_panels(struct nd_table *table, size_t n_keys, struct nd_strbuf *out)
{
    cut_cells(table);
    struct columns columns = {.n_keys = n_keys};
    size_t used_by_keys = 0;
    for (size_t i = 0; i < table->n_columns; i++)
        columns.widths[i] = nd_table_width(table, i);
    for (size_t i = 0; i < n_keys; i++)
        used_by_keys += 2 + columns.widths[i];
    for (columns.from = n_keys; columns.from < table->n_columns; columns.from = columns.to) {
        size_t used = used_by_keys + 2 + columns.widths[columns.from];
        columns.to = columns.from + 1;
        while (columns.to < table->n_columns && is_fitting(table, &columns, columns.to, used))
            used += 2 + columns.widths[columns.to++];
        if (columns.from > n_keys)
            nd_strbuf_puts(out, "\n");
        render_columns(table, &columns, out);
    }
}

void nd_table_deinit(struct nd_table *table)
{
    ND_FREE_ITEMS(table->cells, table->n_cells);
    *table = (struct nd_table){0};
}

/* Half up, as in decimals: 729 of 2000 are 36.5 %, although the nearest double is less than 0.3645. Quotients
 * of up to 10^9 that are no tie are further from one than this. */
static double round_half_up(double value)
{
    return floor(value + 0.5 + 1e-10);
}

char *nd_format_percent(double share, const char *unit, char buf[static ND_NUMBER_BYTES])
{
    double size = fabs(share), hundredths = round_half_up(1e4 * size), tenths = round_half_up(1e3 * size);
    const char *sign = share < 0 ? "-" : "";
    if (isnan(share))
        return strcpy(buf, "?");
    if (size <= 0 || size >= 1)
        snprintf(buf, ND_NUMBER_BYTES, "%s%.0f%s", sign, 100 * size, unit);
    else if (size < 1e-4)
        snprintf(buf, ND_NUMBER_BYTES, "<%s0.01%s", sign, unit);
    else if (tenths >= 1000)
        snprintf(buf, ND_NUMBER_BYTES, ">%s99.9%s", sign, unit);
    else if (hundredths < 100)
        snprintf(buf, ND_NUMBER_BYTES, "%s%.2f%s", sign, hundredths / 100, unit);
    else
        snprintf(buf, ND_NUMBER_BYTES, "%s%.1f%s", sign, tenths / 10, unit);
    return buf;
}

char *nd_format_share(uint64_t n, uint64_t total, char buf[static ND_NUMBER_BYTES])
{
    double share = (double)n / (double)total;
    return total == 0 ? strcpy(buf, "-")
                      : nd_format_percent(n < total && share >= 1 ? nextafter(1, 0) : share, "%", buf);
}

char *nd_format_short(double value, char buf[static ND_NUMBER_BYTES])
{
    return isfinite(value) ? nd_format_digits(value, 4, buf) : nd_format_double(value, buf);
}

char *nd_format_near_one(double value, char buf[static ND_NUMBER_BYTES])
{
    const double nearest = 1e-7;
    if (isfinite(value) && value != 1 && fabs(value - 1) < nearest)
        return strcpy(buf, value < 1 ? ">0.9999999" : "<1.0000001");
    bool is_near = fabs(value - 1) < 0.1;
    return is_near ? nd_format_digits(value, value < 1 ? 7 : 8, buf) : nd_format_short(value, buf);
}

char *nd_format_count(uint64_t n, char buf[static ND_NUMBER_BYTES])
{
    if (n >= 1000000)
        return nd_format_digits((double)n, 3, buf);
    snprintf(buf, ND_NUMBER_BYTES, "%llu", (unsigned long long)n);
    return buf;
}
