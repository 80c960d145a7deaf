/* What a golden store tells over SDKs and chipsets: a wall chart of each model, the steps at which something
 * changed, and the tensors. */
#include <string.h>

#include "report/html/html.h"
#include "report/text/summary.h"

enum { MAX_ROWS = 200 }; /* of steps and of tensors: chosen, so that a page of many models stays small */

static const json_t *cell_of(const json_t *chart, const char *chipset, const char *sdk)
{
    const json_t *cell;
    size_t i;
    json_array_foreach(nd_doc_get(chart, "cells"), i, cell) {
        if (strcmp(nd_doc_text(cell, "chipset"), chipset) == 0 && strcmp(nd_doc_text(cell, "sdk"), sdk) == 0)
            return cell;
    }
    return NULL;
}

/* Cells after a change stand out. *before: the value of the cell before it, SIZE_MAX: none. */
static void put_cell(struct nd_page *page, const json_t *cell, size_t *before)
{
    char buf[ND_HISTORY_LETTER_BYTES];
    if (cell == NULL) {
        nd_html_cell(page, "");
        return;
    }
    size_t value = nd_doc_index(cell, "value", SIZE_MAX);
    bool has_failed = json_is_true(nd_doc_get(cell, "failed"));
    bool is_sure = json_is_true(nd_doc_get(cell, "repeatable"));
    bool has_changed = *before != SIZE_MAX && *before != value && is_sure;
    nd_html_printf(page, "<td class=\"%s\">%s%s%s</td>",
                   has_failed    ? "failed"
                   : has_changed ? "changed"
                                 : "",
                   nd_history_letter(value, buf), is_sure ? "" : "?", has_failed ? " failed" : "");
    *before = value;
}

static void put_wall(struct nd_page *page, const json_t *chart)
{
    const json_t *sdks = nd_doc_get(chart, "sdks"), *chipset, *sdk;
    size_t c, s;
    nd_html_scroll(page, "Chipsets by SDKs", false);
    nd_html_puts(page,
                 "<table><caption>Equal letters: equal in every tensor. A question mark: not repeatable, so "
                 "that noise may be the difference</caption><thead><tr><th scope=\"col\">Chipset</th>");
    json_array_foreach(sdks, s, sdk) {
        nd_html_fill(page, "<th scope=\"col\">$t</th>", json_string_value(sdk));
    }
    nd_html_puts(page, "</tr></thead><tbody>\n");
    json_array_foreach(nd_doc_get(chart, "chipsets"), c, chipset) {
        size_t before = SIZE_MAX;
        nd_html_fill(page, "<tr><th scope=\"row\">$t</th>", json_string_value(chipset));
        json_array_foreach(sdks, s, sdk) {
            put_cell(page, cell_of(chart, json_string_value(chipset), json_string_value(sdk)), &before);
        }
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_step(struct nd_page *page, const json_t *step)
{
    char buf[ND_HTML_TEXT_BYTES];
    double n = nd_doc_number(step, "n_different");
    const json_t *also = nd_doc_get(step, "also_changed"), *item;
    size_t i;
    nd_html_fill(page, "<tr><th scope=\"row\">$t</th>", nd_doc_text(step, "chipset"));
    nd_html_cell(page, nd_doc_text(step, "from"));
    nd_html_cell(page, nd_doc_text(step, "to"));
    nd_html_cell(page, nd_doc_text(step, "verdict"));
    nd_html_cell_number(page, nd_html_count(n, buf), n);
    nd_html_fill(page, "<td>$n</td><td>", nd_doc_text(step, "first"));
    json_array_foreach(also, i, item) {
        nd_html_puts(page, i > 0 ? ", " : "");
        nd_html_text(page, json_string_value(item));
    }
    nd_html_puts(page, "</td></tr>\n");
}

static bool is_same(const json_t *step)
{
    return strcmp(nd_doc_text(step, "verdict"), "same") == 0;
}

static void put_steps(struct nd_page *page, const json_t *chart)
{
    const json_t *steps = nd_doc_get(chart, "steps"), *step;
    size_t i, n = 0;
    json_array_foreach(steps, i, step)
        n += !is_same(step);
    if (n == 0)
        return;
    nd_html_scroll(page, "Steps", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Steps at which something changed");
    if (n > MAX_ROWS)
        nd_html_printf(page, ": the first %d of %zu", MAX_ROWS, n);
    nd_html_puts(page, "</caption>");
    nd_html_heads(page, "Chipset|From|To|Verdict|#Tensors that differ|First|Also changed");
    n = 0;
    json_array_foreach(steps, i, step) {
        if (!is_same(step) && n++ < MAX_ROWS)
            put_step(page, step);
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* "SM8650: a a b": only chipsets on which it has two values or more. */
static void put_letters(struct nd_page *page, const json_t *chart, const json_t *tensor)
{
    const json_t *chipsets = nd_doc_get(chart, "chipsets"), *row, *value;
    char buf[ND_HISTORY_LETTER_BYTES];
    size_t c, s;
    bool is_first = true;
    json_array_foreach(nd_doc_get(tensor, "values"), c, row) {
        json_int_t first = -1;
        bool has_several = false;
        json_array_foreach(row, s, value) {
            if (json_is_integer(value)) {
                has_several = has_several || (first >= 0 && json_integer_value(value) != first);
                first = json_integer_value(value);
            }
        }
        if (!has_several)
            continue;
        nd_html_puts(page, is_first ? "" : "; ");
        nd_html_fill(page, "$t:", json_string_value(json_array_get(chipsets, c)));
        json_array_foreach(row, s, value) {
            nd_html_printf(
                page, " %s",
                nd_history_letter(json_is_integer(value) ? (size_t)json_integer_value(value) : SIZE_MAX, buf));
        }
        is_first = false;
    }
}

static void put_tensors(struct nd_page *page, const json_t *chart)
{
    const json_t *tensor;
    char buf[ND_HTML_TEXT_BYTES];
    size_t i, n = 0, n_shown = 0;
    json_array_foreach(nd_doc_get(chart, "tensors"), i, tensor)
        n += nd_doc_number(tensor, "n_steps") > 0;
    if (n == 0)
        return;
    nd_html_scroll(page, "Tensors that changed", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Tensors that changed, with a letter by SDK, the "
                       "oldest first; equal letters are equal bits");
    if (n > MAX_ROWS)
        nd_html_printf(page, ": the first %d of %zu", MAX_ROWS, n);
    nd_html_puts(page, "</caption>");
    nd_html_heads(page, "Tensor|Operator|#Steps|Values");
    json_array_foreach(nd_doc_get(chart, "tensors"), i, tensor) {
        double n_steps = nd_doc_number(tensor, "n_steps");
        if (!(n_steps > 0) || n_shown++ >= MAX_ROWS)
            continue;
        nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", nd_doc_text(tensor, "name"));
        nd_html_cell(page, nd_doc_text(tensor, "op_types"));
        nd_html_cell_number(page, nd_html_count(n_steps, buf), n_steps);
        nd_html_puts(page, "<td>");
        put_letters(page, chart, tensor);
        nd_html_puts(page, "</td></tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* The verdict of a model's history, in the words of the text. */
static void put_verdict(struct nd_page *page, const json_t *chart)
{
    const json_t *steps = nd_doc_get(chart, "steps"), *step;
    size_t i, n_differing = 0, n_failing = 0, n_unsure = 0, n = json_array_size(steps);
    json_array_foreach(steps, i, step) {
        const char *verdict = nd_doc_text(step, "verdict");
        n_differing += strcmp(verdict, "differs") == 0;
        n_failing += strcmp(verdict, "fails") == 0;
        n_unsure += strcmp(verdict, "inconclusive") == 0;
    }
    bool has_changed = n_differing + n_failing > 0;
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">%s",
                   n_failing > 0                           ? "fail"
                   : has_changed || n_unsure > 0 || n == 0 ? "note"
                                                           : "ok",
                   n_failing > 0     ? "Fails"
                   : n_differing > 0 ? "Changed"
                   : n_unsure > 0    ? "Inconclusive"
                   : n == 0          ? "No steps"
                                     : "Same");
    nd_html_fill(page, " <span class=\"of\">$n</span></p>\n<p>", nd_doc_text(chart, "model"));
    nd_html_printf(page, "Of %zu step%s from one SDK to the next, values changed at %zu", n, n == 1 ? "" : "s",
                   n_differing);
    if (n_failing > 0)
        nd_html_printf(page, ", the device failed at %zu", n_failing);
    if (n_unsure > 0)
        nd_html_printf(page, ", %zu cannot be judged", n_unsure);
    nd_html_puts(page, ".</p></div>\n");
}

void nd_view_history(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *chart;
    size_t i;
    json_array_foreach(nd_doc_get(part->documents[ND_PAGE_HISTORY], "charts"), i, chart) {
        put_verdict(page, chart);
        nd_html_fill(page, "<h3>History of $n</h3>\n", nd_doc_text(chart, "model"));
        put_wall(page, chart);
        put_steps(page, chart);
        put_tensors(page, chart);
    }
}
