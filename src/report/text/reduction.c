/* What `npudiff reduce` found, as JSON and as text. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "npudiff/core/parse.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

/* The text of one screen, put together from sentences and tables: tables get the lines that sentences leave. */

enum {
    MAX_PARTS = 32,
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
    bool is_whole; /* no cell is cut */
};

struct nd_report_screen {
    size_t width;
    bool failed;
    struct part parts[MAX_PARTS];
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
    if (screen == NULL || screen->n_parts == MAX_PARTS) {
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
    if (part == NULL)
        return;
    ND_MAKE_ARGUMENTS(text, fmt);
    if (text == NULL) {
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

void nd_report_screen_whole(struct nd_report_screen *screen)
{
    if (screen != NULL && screen->n_parts > 0)
        screen->parts[screen->n_parts - 1].is_whole = true;
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

static bool is_number_column(const struct part *part, size_t column)
{
    const json_t *row;
    size_t i;
    json_array_foreach(part->rows, i, row) {
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
    ND_CLEANUP(nd_table_deinit) struct nd_table table = {.line_width = width, .is_key_whole = true};
    const json_t *row;
    size_t i;
    while (table.n_columns < ND_TABLE_MAX_COLUMNS && part->columns[table.n_columns].key != NULL) {
        table.is_left[table.n_columns] = table.n_columns == 0 || !is_number_column(part, table.n_columns);
        table.n_columns++;
    }
    for (i = 0; i < table.n_columns; i++)
        nd_table_add(&table, part->columns[i].title);
    json_array_foreach(part->rows, i, row) {
        for (size_t c = 0; i < n_rows && c < table.n_columns; c++) {
            const json_t *value = json_object_get(row, part->columns[c].key);
            char number[64];
            if (json_is_string(value))
                nd_table_add(&table, json_string_value(value));
            else if (json_is_integer(value))
                nd_table_addf(&table, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
            else if (json_is_real(value))
                nd_table_add(&table, nd_format_double(json_real_value(value), number));
            else if (json_is_boolean(value))
                nd_table_add(&table, json_is_true(value) ? "yes" : "no");
            else
                nd_table_add(&table, "-");
        }
    }
    for (i = 0; part->is_whole && i < table.n_columns; i++) /* a line has the key and one more */
        table.max_width[i] = width / 2 - 2;
    if (!part->is_whole)
        fit_columns(&table);
    if (table.n_columns > 1)
        nd_table_render_panels(&table, 1, out);
    else
        nd_table_render(&table, out);
}

/* As many rows as the lines hold, and how many there are besides. */
static void put_table(struct part *part, size_t width, size_t max_lines, struct nd_strbuf *out)
{
    size_t n = json_array_size(part->rows), n_rows = n, fewest = 0;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {0};
    lay_out(part, n, width, &text);
    if (max_lines < SIZE_MAX && nd_summary_count_lines(&text) > max_lines) {
        size_t too_many = n;
        while (fewest + 1 < too_many) { /* bisection: fewest rows fit */
            n_rows = fewest + (too_many - fewest) / 2;
            nd_strbuf_deinit(&text);
            lay_out(part, n_rows, width, &text);
            if (nd_summary_count_lines(&text) + 1 > max_lines)
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
}

enum nd_status nd_report_screen_end(struct nd_report_screen **screen_ptr, char **out, struct nd_error *err)
{
    struct nd_report_screen *screen = *screen_ptr;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf text = {.failed = screen == NULL || screen->failed};
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
    for (size_t i = 0; screen != NULL && i < screen->n_parts; i++) {
        nd_strbuf_deinit(&screen->parts[i].text);
        json_decref(screen->parts[i].rows);
        free(screen->parts[i].more);
    }
    free(screen);
    if (!text.failed)
        return nd_text_end(&text, out, err);
    return nd_fail_memory(err);
}

/* What was asked for. */
struct shown {
    bool has_difference;
    const char *folder;
};

static json_t *difference_json(const struct nd_reduction_difference *difference)
{
    return json_pack("{s:o, s:o, s:f}", "tensor", nd_json_string(difference->tensor), "max_lsb",
                     nd_json_number(difference->max_lsb), "fraction", difference->fraction);
}

static const char *end_word(enum nd_reduction_end end)
{
    static const char *const words[] = {"reduced", "not reduced", "nothing to reduce", "nothing to cut"};
    return words[end];
}

static json_t *failure_json(const struct nd_reduction_failure *failure)
{
    if (failure->id == 0)
        return json_null();
    return json_pack("{s:o, s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "stage", nd_json_string(failure->stage),
                     "code", failure->id, "message", nd_json_string(failure->message), "cause",
                     nd_json_string(failure->cause), "operator", nd_json_string(failure->op), "node",
                     nd_json_string(failure->node), "qnn_stage", nd_json_string(failure->qnn_stage), "symbol",
                     nd_json_string(failure->symbol), "raw_code",
                     failure->has_raw_code ? json_integer(failure->raw_code) : json_null());
}

static json_t *reduction_json(const struct nd_reduction *reduction, const struct shown *shown)
{
    json_t *operators = json_array();
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        nd_tree_append(operators, nd_json_string(reduction->operators[i]));
    json_t *json =
        json_pack("{s:s, s:o, s:o, s:o, s:b, s:o, s:I, s:I, s:o}", "result", end_word(reduction->end), "device",
                  nd_json_string(reduction->device), "chipset", nd_json_string(reduction->chipset), "runtime",
                  nd_json_string(reduction->runtime), "minimal", (int)reduction->is_minimal, "confirmed",
                  reduction->is_confirm_known ? json_boolean(reduction->is_confirmed) : json_null(), "sessions",
                  (json_int_t)reduction->n_sessions, "session_limit", (json_int_t)reduction->session_limit,
                  "failure", failure_json(&reduction->failure));
    json_t *counts = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "same", (json_int_t)reduction->n_same, "failed_otherwise",
        (json_int_t)reduction->n_other, "fine", (json_int_t)reduction->n_fine, "not_cut",
        (json_int_t)reduction->n_uncut, "layers", (json_int_t)reduction->n_layers, "layers_left",
        (json_int_t)reduction->n_layers_left, "operators", (json_int_t)reduction->n_operators, "operators_left",
        (json_int_t)reduction->n_operators_left);
    if (json_object_update(json, counts) != 0)
        nd_note_lost_text();
    json_decref(counts);
    nd_tree_set(json, "operator_names", operators);
    nd_tree_set(json, "inputs", nd_json_string(reduction->inputs));
    nd_tree_set(json, "samples", json_integer((json_int_t)reduction->n_samples));
    if (shown->has_difference) {
        nd_tree_set(json, "difference", difference_json(&reduction->difference));
        nd_tree_set(json, "difference_left", difference_json(&reduction->left_difference));
    }
    nd_tree_set(json, "folder", shown->folder != NULL ? nd_json_string(shown->folder) : json_null());
    nd_tree_set(json, "command", reduction->command != NULL ? nd_json_string(reduction->command) : json_null());
    return json;
}

static void put_difference(struct nd_strbuf *out, const char *what,
                           const struct nd_reduction_difference *difference)
{
    if (difference->tensor[0] == '\0') {
        nd_strbuf_printf(out, "  %s: no difference\n", what);
        return;
    }
    nd_strbuf_printf(out, "  %s: '%s' differs in %s of its elements", what, difference->tensor,
                     ND_PERCENT(difference->fraction));
    if (!isnan(difference->max_lsb))
        nd_strbuf_printf(out, ", by up to %.0f LSB", difference->max_lsb);
    nd_strbuf_puts(out, "\n");
}

static void put_found(struct nd_strbuf *out, const struct nd_reduction *reduction, const struct shown *shown)
{
    nd_strbuf_printf(out, "  remaining: %zu of %zu operators, %zu of %zu layers\n", reduction->n_operators_left,
                     reduction->n_operators, reduction->n_layers_left, reduction->n_layers);
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        nd_strbuf_printf(out, "    %s\n", reduction->operators[i]);
    if (shown->has_difference)
        put_difference(out, "this part", &reduction->left_difference);
    nd_strbuf_printf(out, "  inputs: %s, %zu sample%s\n", reduction->inputs, reduction->n_samples,
                     reduction->n_samples == 1 ? "" : "s");
    if (!reduction->is_confirm_known)
        nd_strbuf_puts(out, "  not run a second time: no session was left\n");
    else if (!reduction->is_confirmed)
        nd_strbuf_puts(out, "  NOT the same when it was run a second time: it does not happen every time\n");
    if (!reduction->is_minimal)
        nd_strbuf_puts(out, "  the sessions are used up: a smaller part may do\n");
    if (shown->folder != NULL)
        nd_strbuf_printf(out, "  reproducer in %s:\n    %s\n", shown->folder, reduction->command);
}

/* ---- the answer in one screen ---- */

static void say_difference(struct nd_report_screen *screen, const char *what,
                           const struct nd_reduction_difference *difference)
{
    char lsb[64] = "";
    if (difference->tensor[0] == '\0')
        return;
    if (!isnan(difference->max_lsb))
        snprintf(lsb, sizeof lsb, ", by at most %.0f LSB", difference->max_lsb);
    nd_report_screen_put(screen, "%s: %s of the values of '%s' differ%s.\n", what,
                         ND_PERCENT(difference->fraction), difference->tensor, lsb);
}

static void say_found(struct nd_report_screen *screen, const struct nd_reduction *reduction,
                      const struct shown *shown)
{
    static const struct nd_report_column columns[] = {{"operator", "REMAINING OPERATOR"}, {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < reduction->n_operators_left; i++)
        nd_tree_append(rows, json_pack("{s:o}", "operator", nd_json_string(reduction->operators[i])));
    if (shown->has_difference)
        say_difference(screen, "In this part", &reduction->left_difference);
    if (!reduction->is_confirm_known)
        nd_report_screen_put(screen, "It was not run a second time, because all sessions are used up.\n");
    else if (!reduction->is_confirmed)
        nd_report_screen_put(screen,
                             "Run a second time it did NOT do the same: it does not happen every time.\n");
    if (!reduction->is_minimal)
        nd_report_screen_put(
            screen, "A smaller part may exist: all %zu sessions are used up (--sessions allows more).\n",
            reduction->session_limit);
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, rows, columns, "--json lists all");
    if (shown->folder == NULL)
        return;
    nd_report_screen_put(screen, "\nThe small model and its inputs are in '%s'. Next, to see it again there:\n",
                         shown->folder);
    nd_report_screen_command(screen, reduction->command);
}

static void say_headline(struct nd_report_screen *screen, const struct nd_reduction *reduction,
                         const struct shown *shown)
{
    const char *does = shown->has_difference ? "differs" : "fails";
    const char *not = shown->has_difference ? "does not differ by more than the limit" : "does not fail";
    switch (reduction->end) {
    case ND_REDUCTION_REDUCED:
        nd_report_screen_put(screen, "REDUCED to %zu of %zu operators: this part still %s on %s\n",
                             reduction->n_operators_left, reduction->n_operators, does, reduction->device);
        break;
    case ND_REDUCTION_WHOLE:
        nd_report_screen_put(screen, "NOT REDUCED: the whole model %s on %s, but no part that npudiff tried\n",
                             does, reduction->device);
        break;
    case ND_REDUCTION_NOTHING:
        nd_report_screen_put(screen, "NOTHING TO REDUCE: the whole model %s on %s\n", not, reduction->device);
        break;
    case ND_REDUCTION_NO_MODEL:
        nd_report_screen_put(screen, "FAILED: %s failed before it got the model\n", reduction->device);
        break;
    }
}

enum nd_status nd_report_reduction_brief(const struct nd_reduction *reduction, bool has_difference,
                                         const char *folder, size_t width, char **out, struct nd_error *err)
{
    const struct shown shown = {has_difference, folder};
    struct nd_report_screen *screen = nd_report_screen_create(width);
    say_headline(screen, reduction, &shown);
    nd_report_screen_put(screen, "%zu of at most %zu sessions; the inputs of the parts are those of %s\n",
                         reduction->n_sessions, reduction->session_limit,
                         reduction->inputs[0] != '\0' ? reduction->inputs : "the probe");
    const struct nd_reduction_failure *failure = &reduction->failure;
    if (failure->id != 0)
        nd_report_screen_put(screen, "It fails at stage '%s': %s [ND-%d]\n", failure->stage, failure->message,
                             failure->id);
    if (failure->cause[0] != '\0')
        nd_report_screen_put(screen, "The log says: %s\n", failure->cause);
    if (shown.has_difference)
        say_difference(screen, "In the whole model", &reduction->difference);
    if (reduction->end == ND_REDUCTION_REDUCED)
        say_found(screen, reduction, &shown);
    else {
        /* What else can be tried where nothing was found. */
        if (reduction->end == ND_REDUCTION_NOTHING && shown.has_difference) {
            say_difference(screen, "Inside the model", &reduction->left_difference);
            nd_report_screen_put(screen,
                                 "\nOther inputs (--probe), a lower limit (--differs) or an inner tensor "
                                 "(--tensor) may show a difference.\n");
        } else if (reduction->end == ND_REDUCTION_NOTHING) {
            nd_report_screen_put(
                screen,
                "\nOther inputs (--probe) may make it fail; --differs 1lsb looks for wrong values instead.\n");
        } else if (reduction->end == ND_REDUCTION_WHOLE && reduction->n_uncut > 0) {
            nd_report_screen_put(screen, "%zu parts could not be cut out of the model.\n", reduction->n_uncut);
        }
    }
    return nd_report_screen_end(&screen, out, err);
}

/* ---- everything ---- */

enum nd_status nd_report_reduction_json(const struct nd_reduction *reduction, bool has_difference,
                                        const char *folder, char **out, struct nd_error *err)
{
    return nd_tree_end(ND_DOCUMENT_REDUCTION,
                       reduction_json(reduction, &(struct shown){has_difference, folder}), out, err);
}

enum nd_status nd_report_reduction_text(const struct nd_reduction *reduction, bool has_difference,
                                        const char *folder, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    const struct shown *shown = &(struct shown){has_difference, folder};
    nd_strbuf_printf(&buf, "%s: %s\n", reduction->device, end_word(reduction->end));
    if (reduction->failure.id != 0) {
        const struct nd_reduction_failure *failure = &reduction->failure;
        nd_strbuf_printf(&buf, "  failure at stage '%s': %s [ND-%d]\n", failure->stage, failure->message,
                         failure->id);
        if (failure->cause[0] != '\0')
            nd_strbuf_printf(&buf, "  reason in the log: %s\n", failure->cause);
        if (failure->op[0] != '\0')
            nd_strbuf_printf(&buf, "  operator of the device: %s\n", failure->op);
    }
    if (shown->has_difference)
        put_difference(&buf, "the whole model", &reduction->difference);
    switch (reduction->end) {
    case ND_REDUCTION_REDUCED:
        put_found(&buf, reduction, shown);
        break;
    case ND_REDUCTION_WHOLE:
        nd_strbuf_printf(&buf, "  no part that npudiff tried %s\n",
                         shown->has_difference ? "differs as much" : "fails like this");
        break;
    case ND_REDUCTION_NOTHING:
        nd_strbuf_printf(&buf, "  the whole model %s on this device\n",
                         shown->has_difference ? "does not differ by more than that" : "does not fail");
        if (shown->has_difference && reduction->left_difference.tensor[0] != '\0')
            put_difference(&buf, "most of all inside (--tensor)", &reduction->left_difference);
        break;
    case ND_REDUCTION_NO_MODEL:
        nd_strbuf_puts(&buf, "  the device failed before it saw the model: no part of it is to blame\n");
        break;
    }
    nd_strbuf_printf(&buf,
                     "  %zu of at most %zu sessions: %zu did the same, %zu failed otherwise, %zu did not; %zu "
                     "parts could not be cut out\n",
                     reduction->n_sessions, reduction->session_limit, reduction->n_same, reduction->n_other,
                     reduction->n_fine, reduction->n_uncut);
    return nd_text_end(&buf, out, err);
}
