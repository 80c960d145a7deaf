/* The first thing that is read: how it is, why, and what to do next. Then one row for each device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html/html.h"
#include "report/text/summary.h"

/* ---- what a golden store tells over SDKs and chipsets: a wall chart of each model, the steps at which
 * something changed, and the tensors ---- */

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

static void put_changed_tensors(struct nd_page *page, const json_t *chart)
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

static void put_history(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *chart;
    size_t i;
    json_array_foreach(nd_doc_get(part->documents[ND_PAGE_HISTORY], "charts"), i, chart) {
        put_verdict(page, chart);
        nd_html_fill(page, "<h3>History of $n</h3>\n", nd_doc_text(chart, "model"));
        const json_t *sdks = nd_doc_get(chart, "sdks"), *chipset, *sdk;
        size_t c, s;
        nd_html_scroll(page, "Chipsets by SDKs", false);
        nd_html_puts(
            page, "<table><caption>Equal letters: equal in every tensor. A question mark: not repeatable, so "
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
        put_steps(page, chart);
        put_changed_tensors(page, chart);
    }
}

/* Captures against a golden store: what is as it was accepted, and what changed between the two, such as the
 * SDK. */

enum { MAX_TENSORS = 20 };

/* The check itself: of `golden check --runtime` it is a member of a row of the matrix. */
static const json_t *check_of(const json_t *row)
{
    const json_t *check = nd_doc_get(row, "check");
    return json_is_object(check) ? check : row;
}

static const char *state_of(const char *verdict)
{
    if (strcmp(verdict, "same") == 0)
        return "ok";
    return strncmp(verdict, "failed", 6) == 0 || strcmp(verdict, "broken") == 0 ? "fail" : "note";
}

static void put_tensors(struct nd_page *page, const json_t *check)
{
    const json_t *list = nd_doc_get(check, "different"), *tensor;
    size_t i, n = json_array_size(list);
    if (n == 0)
        return;
    nd_html_scroll(page, "Tensors that differ", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Tensors that differ from the accepted ones");
    if (n > MAX_TENSORS)
        nd_html_printf(page, ": the first %d of %zu", MAX_TENSORS, n);
    nd_html_puts(page, "</caption>");
    nd_html_heads(page, "Tensor|Operator|#Values that differ|#Largest, LSB");
    json_array_foreach(list, i, tensor) {
        if (i < MAX_TENSORS) {
            char buf[ND_HTML_TEXT_BYTES];
            double share = nd_doc_number(tensor, "share"), lsb = nd_doc_number(tensor, "max_lsb");
            nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", nd_doc_text(tensor, "name"));
            nd_html_cell(page, nd_doc_text(tensor, "op_types"));
            nd_html_cell_number(page, isnan(share) ? "not stored" : nd_html_percent(share, buf), share);
            nd_html_cell_number(page, isnan(lsb) ? "" : nd_html_count(lsb, buf), lsb);
            nd_html_puts(page, "</tr>\n");
        }
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_check(struct nd_page *page, const json_t *row)
{
    const json_t *check = check_of(row), *entry = nd_doc_get(check, "entry");
    const char *verdict = nd_doc_text(check, "verdict");
    double n = nd_doc_number(check, "n_tensors"), n_equal = nd_doc_number(check, "n_equal");
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">", state_of(verdict));
    nd_html_fill(page, "$t <span class=\"of\">$n</span></p>\n", verdict, nd_doc_text(check, "capture"));
    if (entry != NULL && json_is_object(entry)) {
        nd_html_fill(page, "<p>Against $n ($t, $t)", nd_doc_text(entry, "label"), nd_doc_text(entry, "chipset"),
                     nd_doc_text(entry, "sdk"));
        if (!isnan(n) && !isnan(n_equal))
            nd_html_printf(page, ": %.0f of %.0f tensors are equal", n_equal, n);
        nd_html_puts(page, ".</p>\n");
    }
    nd_html_puts(page, "</div>\n");
    put_tensors(page, check);
    const json_t *list = nd_doc_get(check, "changed"), *change;
    size_t i;
    if (json_array_size(list) == 0)
        return;
    nd_html_scroll(page, "What changed", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>What changed since it was accepted</caption>");
    nd_html_heads(page, "Of|Setting|Accepted|Now|Follows from");
    json_array_foreach(list, i, change) {
        nd_html_puts(page, "<tr>");
        nd_html_cell(page, nd_doc_text(change, "what"));
        nd_html_fill(page, "<th scope=\"row\">$n</th>", nd_doc_text(change, "key"));
        nd_html_cell(page, nd_doc_text(change, "ref"));
        nd_html_cell(page, nd_doc_text(change, "test"));
        nd_html_cell(page, nd_doc_text(change, "follows_from"));
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_golden(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *golden = part->documents[ND_PAGE_GOLDEN], *row;
    const json_t *list = nd_doc_get(golden, "checks");
    size_t i;
    if (!json_is_array(list))
        list = nd_doc_get(golden, "matrix");
    if (!json_is_array(list)) {
        put_check(page, golden);
        return;
    }
    json_array_foreach(list, i, row)
        put_check(page, row);
}

/* A model before and after `align` or `promote`: what its outputs are worth, and the layers that were changed.
 */

static void put_real(struct nd_page *page, double value)
{
    char buf[ND_HTML_TEXT_BYTES];
    nd_html_cell_number(page, nd_html_real(value, buf), value);
}

static void put_named(struct nd_page *page, const char *name)
{
    nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", name);
}

static void end_table(struct nd_page *page)
{
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* Right classes of so many: "" without labels. */
static void put_right(struct nd_page *page, const json_t *of, const char *key)
{
    char buf[ND_HTML_TEXT_BYTES];
    double n = nd_doc_number(of, key), all = nd_doc_number(of, "labelled");
    nd_html_cell_number(page, all > 0 && !isnan(n) ? nd_html_count(n, buf) : "", n);
}

/* Outputs before and after. `of`: has how many were right. */
static void put_before_after(struct nd_page *page, const char *name, double before_db, double after_db,
                             const json_t *of)
{
    put_named(page, name);
    put_real(page, before_db);
    put_real(page, after_db);
    put_right(page, of, "right_before");
    put_right(page, of, "right_after");
    nd_html_puts(page, "</tr>\n");
}

/* ---- promote ---- */

static void put_promoted_layers(struct nd_page *page, const json_t *document)
{
    const json_t *layer;
    size_t i;
    nd_html_scroll(page, "Layers that were promoted", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Layers that get more bits, each beside those before "
                       "it; gains in dB, cost in percent of the model's bytes or multiply-adds</caption>");
    nd_html_heads(page, "Layer|Operators|Change|#Predicted|#Measured|#Cost, %");
    json_array_foreach(nd_doc_get(document, "layers"), i, layer) {
        if (strcmp(nd_doc_text(layer, "fate"), "kept") != 0)
            continue;
        put_named(page, nd_doc_text(layer, "tensor"));
        nd_html_cell(page, nd_doc_text(layer, "operators"));
        nd_html_cell(page, nd_doc_text(layer, "change"));
        put_real(page, nd_doc_number(layer, "predicted_db"));
        put_real(page, nd_doc_number(layer, "measured_db"));
        put_real(page, nd_doc_number(nd_doc_get(layer, "cost"), "percent"));
        nd_html_puts(page, "</tr>\n");
    }
    end_table(page);
}

/* ---- align ---- */

static void put_accuracy_cost(struct nd_page *page, const json_t *document)
{
    const json_t *cost = nd_doc_get(document, "accuracy_cost"), *output;
    const char *groups = nd_doc_text(nd_doc_get(document, "verification"), "groups");
    size_t i;
    if (groups[0] != '\0') {
        nd_html_fill(page, "<p>After, the devices form these groups: $t.</p>\n", groups);
    }
    if (json_array_size(nd_doc_get(cost, "outputs")) == 0)
        return;
    nd_html_scroll(page, "Before and after", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Before and after: signal-to-noise ratio of the "
                       "outputs, in dB, and right classes, in exact arithmetic</caption>");
    nd_html_heads(page, "Output|#Before|#After|#Right before|#Right after");
    json_array_foreach(nd_doc_get(cost, "outputs"), i, output) {
        put_before_after(page, nd_doc_text(output, "tensor"), nd_doc_number(output, "sqnr_before_db"),
                         nd_doc_number(output, "sqnr_after_db"), cost);
    }
    end_table(page);
}

static void put_aligned_layers(struct nd_page *page, const json_t *document)
{
    const json_t *layer;
    size_t i;
    nd_html_scroll(page, "Layers and what is proven", true);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Layers after: whether all arithmetics give the same "
                       "values</caption>");
    nd_html_heads(page, "Layer|Operators|State|Why not proven");
    json_array_foreach(nd_doc_get(document, "layers"), i, layer) {
        put_named(page, nd_doc_text(layer, "tensor"));
        nd_html_cell(page, nd_doc_text(layer, "operators"));
        nd_html_cell(page, nd_doc_text(layer, "state"));
        nd_html_cell(page, nd_doc_text(layer, "reason"));
        nd_html_puts(page, "</tr>\n");
    }
    end_table(page);
}

static void put_changed(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *document = part->documents[ND_PAGE_CHANGED];
    const char *result = nd_doc_text(document, "result");
    bool is_good = strcmp(result, "promoted") == 0 || strcmp(result, "aligned") == 0;
    const char *output = nd_doc_text(document, "output");
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">", is_good ? "ok" : "note");
    nd_html_fill(page, "$t <span class=\"of\">$n</span></p>\n", nd_doc_text(document, "result"),
                 nd_doc_text(document, "model"));
    if (output[0] != '\0') {
        nd_html_fill(page, "<p>Written to $n.</p>\n", output);
    }
    nd_html_puts(page, "</div>\n");
    if (strcmp(nd_doc_text(document, "kind"), "promotion") == 0) {
        const json_t *device;
        size_t i;
        nd_html_scroll(page, "Before and after", false);
        nd_html_puts(page, "<table class=\"sortable\"><caption>Before and after: signal-to-noise ratio of the "
                           "outputs to the float model, in dB, and right classes</caption>");
        nd_html_heads(page, "Device|#Before|#After|#Right before|#Right after");
        json_array_foreach(nd_doc_get(document, "devices"), i, device) {
            put_before_after(page, nd_doc_text(device, "device"), nd_doc_number(device, "before_db"),
                             nd_doc_number(device, "after_db"), device);
        }
        end_table(page);
        put_promoted_layers(page, document);
    } else {
        put_accuracy_cost(page, document);
        put_aligned_layers(page, document);
    }
}

/* A command to paste; arguments that a shell would take apart are quoted by put_argument. */
static void begin_command(struct nd_page *page)
{
    nd_html_puts(page, "<code class=\"command\" dir=\"ltr\">npudiff");
}

static void put_argument(struct nd_page *page, const char *argument)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_./:=@,+%";
    nd_html_puts(page, " ");
    if (argument[0] != '\0' && strspn(argument, plain) == strlen(argument)) {
        nd_html_text(page, argument);
        return;
    }
    nd_html_puts(page, "&#39;");
    for (const char *c = argument; *c != '\0';) {
        size_t n = strcspn(c, "'");
        char *piece = strndup(c, n);
        if (piece == NULL) {
            page->out->failed = true;
            return;
        }
        nd_html_text(page, piece);
        free(piece);
        c += n;
        if (*c == '\'') {
            nd_html_puts(page, "&#39;\\&#39;&#39;");
            c++;
        }
    }
    nd_html_puts(page, "&#39;");
}

static void end_command(struct nd_page *page)
{
    nd_html_puts(page, "</code>");
}

enum { MAX_FINDINGS = 12 };

/* ---- what is known of a device ---- */

static size_t n_differing(const json_t *tensors, size_t device, size_t *n_compared, const char **first,
                          const char **op)
{
    const json_t *tensor;
    size_t i, n = 0;
    *first = *op = "";
    *n_compared = 0;
    json_array_foreach(tensors, i, tensor) {
        const json_t *pair = nd_doc_pair(tensor, device);
        *n_compared += strcmp(nd_doc_text(pair, "coverage"), "none") != 0;
        if (!(nd_doc_number(pair, "differing") > 0) && !(nd_doc_number(pair, "samples_differing") > 0))
            continue;
        if (n++ == 0) {
            *first = nd_doc_text(tensor, "name");
            *op = nd_doc_text(tensor, "op_types");
        }
    }
    return n;
}

/* Of the output of which most differs, as the text has it: the share of its elements that differ, and by how
 * much at most. */
static void put_output_cells(struct nd_page *page, const json_t *tensors, size_t device)
{
    char buf[ND_HTML_TEXT_BYTES];
    const json_t *tensor, *pair = NULL;
    size_t i;
    json_array_foreach(tensors, i, tensor) {
        const json_t *one = nd_doc_is(tensor, "model_output") ? nd_doc_pair(tensor, device) : NULL;
        if (pair == NULL || nd_doc_number(one, "share") > nd_doc_number(pair, "share"))
            pair = one;
    }
    double share = nd_doc_number(pair, "share"), lsb = nd_doc_number(pair, "max_lsb");
    if (share > 0 && !isnan(lsb)) {
        char both[2 * ND_HTML_TEXT_BYTES], count[ND_HTML_TEXT_BYTES];
        snprintf(both, sizeof both, "%s, %s LSB", nd_html_percent(share, buf), nd_html_count(lsb, count));
        nd_html_cell_number(page, both, share);
    } else {
        nd_html_cell_number(page, nd_html_percent(share, buf), share);
    }
}

/* The predictions that the text has, too. */
static const json_t *accuracy_row(const json_t *comparison)
{
    const json_t *rows = nd_doc_get(comparison, "accuracy"), *row;
    size_t i;
    json_array_foreach(rows, i, row)
        if (nd_doc_is(row, "is_shown"))
            return row;
    return NULL;
}

static void put_accuracy_cells(struct nd_page *page, const json_t *row, size_t device)
{
    char text[3 * ND_HTML_TEXT_BYTES], a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES];
    const json_t *one = json_array_get(nd_doc_get(row, "devices"), device);
    double correct = nd_doc_number(one, "correct"), accuracy = nd_doc_number(one, "accuracy");
    snprintf(text, sizeof text, "%s (%s)", nd_html_count(correct, a), nd_html_percent(accuracy, b));
    nd_html_cell_number(page, isnan(correct) ? "no labels" : text, accuracy);
    if (device == 0) {
        nd_html_cell(page, "reference");
        return;
    }
    const json_t *pair = json_array_get(nd_doc_get(row, "pairs"), device - 1);
    double changed = nd_doc_number(pair, "samples") - nd_doc_number(pair, "agree");
    snprintf(text, sizeof text, "%s of %s", nd_html_count(changed, a),
             nd_html_count(nd_doc_number(pair, "samples"), b));
    nd_html_cell_number(page, isnan(changed) ? "?" : text, changed);
}

static void put_diagnosis(struct nd_page *page, const json_t *device)
{
    const char *verdict = nd_doc_text(device, "verdict");
    const json_t *faulty = json_array_get(nd_doc_get(device, "faulty"), 0);
    nd_html_puts(page, "<td>");
    if (verdict[0] != '\0')
        nd_html_badge(page, nd_html_state(verdict), verdict);
    else
        nd_html_puts(page, "not examined");
    if (faulty != NULL) {
        nd_html_fill(page, " $n", nd_doc_text(faulty, "layer"));
    }
    nd_html_puts(page, "</td>");
}

static void put_device_row(struct nd_page *page, const struct nd_page_part *part, size_t group)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    size_t device = part->groups[group].device;
    const json_t *one = json_array_get(nd_doc_get(comparison, "devices"), device);
    const json_t *tensors = nd_doc_get(comparison, "tensors"), *row = accuracy_row(comparison);
    const char *first, *op, *failure = nd_doc_text(one, "failure");
    size_t n_compared, n = n_differing(tensors, device, &n_compared, &first, &op);
    nd_html_fill(page, "<tr><th scope=\"row\">$n", part->groups[group].label);
    if (failure[0] != '\0') {
        nd_html_fill(page, "<br><span class=\"badge fail\">failed</span> $t", failure);
    }
    nd_html_puts(page, "</th>");
    if (device == 0)
        nd_html_puts(page, "<td class=\"n\">reference</td><td></td><td></td>");
    else {
        if (n_compared > 0)
            nd_html_printf(page, "<td class=\"n\" data-v=\"%zu\">%zu of %zu</td><td>", n, n,
                           json_array_size(tensors));
        else
            nd_html_puts(page, "<td class=\"n\">no data</td><td>");
        if (n > 0) {
            nd_html_fill(page, "$n <span class=\"op\">$t</span>", first, op);
        }
        nd_html_puts(page, "</td>");
        put_output_cells(page, tensors, device);
    }
    if (row != NULL)
        put_accuracy_cells(page, row, device);
    if (part->documents[ND_PAGE_EXPLANATION] != NULL)
        put_diagnosis(page, nd_page_explained(part, one));
    nd_html_puts(page, "</tr>\n");
}

/* ---- the card ---- */

static const char *word_of(const char *verdict, bool is_gated)
{
    static const char *const words[][2] = {{"same", "Same bits"},
                                           {"within", "Within the gates"},
                                           {"inconclusive", "Inconclusive"},
                                           {"not comparable", "Not comparable"},
                                           {"failed", "A device failed"},
                                           {"healthy", "Healthy"},
                                           {"faulty", "Faulty"},
                                           {"unexplained", "Unexplained"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i][0], verdict) == 0)
            return words[i][1];
    return strcmp(verdict, "differs") == 0 && is_gated ? "Fails the gates" : "Differs";
}

static void put_first_difference(struct nd_page *page, const json_t *comparison)
{
    const json_t *first = nd_doc_get(comparison, "first_difference");
    if (!json_is_object(first))
        return;
    nd_html_fill(page, "<p>The devices differ for the first time at $n <span class=\"op\">$t</span>.</p>\n",
                 nd_doc_text(first, "tensor"), nd_doc_text(first, "op_types"));
}

/* Faults that the values alone show, without the model. */
static void put_diagnoses(struct nd_page *page, const json_t *comparison)
{
    const json_t *list = nd_doc_get(comparison, "diagnoses"), *one;
    const json_t *devices = nd_doc_get(comparison, "devices");
    size_t i, n = 0;
    json_array_foreach(list, i, one) {
        size_t device = nd_doc_index(one, "device", json_array_size(devices));
        if (!nd_doc_is(one, "fault") || device == SIZE_MAX || n++ >= MAX_FINDINGS)
            continue;
        nd_html_puts(page, n == 1 ? "<ul class=\"findings\">\n<li>" : "<li>");
        nd_html_badge(page, "fail", "fault");
        nd_html_fill(page, " $n on $n: $t</li>\n", nd_doc_text(one, "tensor"),
                     nd_doc_device_label(json_array_get(devices, device)), nd_doc_text(one, "text"));
    }
    if (n > 0)
        nd_html_puts(page, "</ul>\n");
}

static void put_comparison_words(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    nd_html_printf(page, "<p>%zu different result%s: ", part->n_groups, part->n_groups == 1 ? "" : "s");
    nd_html_fill(page, "$n</p>\n", nd_doc_text(comparison, "groups"));
    put_first_difference(page, comparison);
    if (part->documents[ND_PAGE_EXPLANATION] == NULL)
        put_diagnoses(page, comparison);
}

/* What it does to the predictions, of those devices where it does something. */
static void put_accuracy_words(struct nd_page *page, const struct nd_page_part *part)
{
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES];
    const json_t *row = accuracy_row(part->documents[ND_PAGE_COMPARISON]);
    const json_t *devices = nd_doc_get(row, "devices");
    size_t n = 0, n_known = 0;
    for (size_t g = 1; row != NULL && g < part->n_groups; g++) {
        const json_t *pair = json_array_get(nd_doc_get(row, "pairs"), part->groups[g].device - 1);
        double samples = nd_doc_number(pair, "samples"), changed = samples - nd_doc_number(pair, "agree");
        n_known += isnan(changed) == 0;
        if (!(changed > 0) || n++ >= MAX_FINDINGS)
            continue;
        nd_html_fill(page, "<p>$n predicts a different class at $n", part->groups[g].label,
                     nd_doc_text(row, "tensor"));
        nd_html_printf(page, " for %s of %s inputs", nd_html_count(changed, a), nd_html_count(samples, b));
        if (nd_doc_is(row, "labels"))
            nd_html_printf(
                page, "; %s are right instead of %s",
                nd_html_percent(nd_doc_number(json_array_get(devices, part->groups[g].device), "accuracy"), a),
                nd_html_percent(nd_doc_number(json_array_get(devices, 0), "accuracy"), b));
        nd_html_puts(page, ".</p>\n");
    }
    if (n == 0 && n_known > 0)
        nd_html_fill(page, "<p>No predicted class at $n changed.</p>\n", nd_doc_text(row, "tensor"));
}

static size_t put_findings_of(struct nd_page *page, const struct nd_page_part *part, const json_t *device,
                              const char *key, const char *state, size_t n)
{
    const json_t *list = nd_doc_get(device, key), *layer;
    size_t i;
    json_array_foreach(list, i, layer) {
        if (n++ < MAX_FINDINGS) {
            /* What explain found at one layer of one device. */
            nd_html_printf(page, "<li><span class=\"badge %s\">%s</span> ", state,
                           strcmp(state, "fail") == 0 ? "fault" : "unexplained");
            nd_html_fill(page, "$n <span class=\"op\">$t</span> on $n: ", nd_doc_text(layer, "layer"),
                         nd_doc_text(layer, "op_type"), nd_page_device_label(part, device));
            /* The cause, how sure it is, and what speaks for it. */
            const char *text = nd_doc_text(layer, "text"), *certainty = nd_doc_text(layer, "certainty");
            nd_html_text(page, text);
            nd_html_puts(page, text[0] != '\0' ? " (" : "");
            nd_html_text(page, certainty);
            nd_html_puts(page, text[0] != '\0' ? "). " : certainty[0] != '\0' ? ": " : "");
            nd_html_text(page, nd_doc_text(layer, "evidence"));
            if (nd_doc_text(layer, "remedy")[0] != '\0') {
                nd_html_fill(page, ". $t", nd_doc_text(layer, "remedy"));
            }
            nd_html_puts(page, "</li>\n");
        }
    }
    return n;
}

static void put_explanation_words(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_EXPLANATION], "devices"), *device;
    size_t d, n = 0;
    nd_html_puts(page, "<ul class=\"findings\">\n");
    json_array_foreach(devices, d, device) {
        if (nd_doc_is_leader(device, d))
            n = put_findings_of(page, part, device, "faulty", "fail", n);
    }
    json_array_foreach(devices, d, device) {
        if (nd_doc_is_leader(device, d))
            n = put_findings_of(page, part, device, "unexplained", "unknown", n);
    }
    if (n == 0)
        nd_html_puts(
            page, "<li>No layer has a fault, and every layer that was examined follows known arithmetic or is "
                  "within 1 LSB of exact rounding: the differences are the chips' healthy rounding.</li>\n");
    else if (n > MAX_FINDINGS)
        nd_html_printf(page, "<li>and %zu more: see <a href=\"#%sflow\">Error flow</a></li>\n",
                       n - MAX_FINDINGS, part->prefix);
    nd_html_puts(page, "</ul>\n");
}

static void put_reduce(struct nd_page *page, const json_t *explanation)
{
    /* The first device that has the verdict of all. */
    const json_t *device =
        nd_doc_find(nd_doc_get(explanation, "devices"), "verdict", nd_doc_text(explanation, "verdict"));
    const json_t *layer = json_array_get(nd_doc_get(device, "faulty"), 0);
    if (layer == NULL)
        layer = json_array_get(nd_doc_get(device, "unexplained"), 0);
    const char *uri = nd_doc_text(device, "uri");
    if (uri[0] == '?' ||
        strncmp(uri, "import", strlen("import")) == 0) { /* a file of another tool cannot be run */
        nd_html_puts(page, "<p>Next, to see every layer: ");
        begin_command(page);
        nd_html_puts(page, " explain -v --quantised");
        put_argument(page, nd_doc_text(explanation, "model"));
        put_argument(page, nd_doc_text(device, "capture"));
        end_command(page);
        nd_html_puts(page, "</p>\n");
        return;
    }
    nd_html_puts(page, "<p>Next, to make a small reproducer for the vendor: ");
    begin_command(page);
    nd_html_puts(page, " reduce");
    put_argument(page, nd_doc_text(explanation, "model"));
    nd_html_puts(page, " -d");
    put_argument(page, uri);
    nd_html_puts(page, " -o reproducer --differs 1lsb");
    if (layer != NULL) {
        nd_html_puts(page, " --tensor");
        put_argument(page, nd_doc_text(layer, "layer"));
    }
    end_command(page);
    nd_html_puts(page, "</p>\n");
}

static void put_next(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    const json_t *explanation = part->documents[ND_PAGE_EXPLANATION], *device;
    size_t i;
    const char *verdict = nd_doc_text(explanation, "verdict");
    if (explanation == NULL && strcmp(nd_doc_text(comparison, "verdict"), "differs") == 0) {
        nd_html_puts(page, "<p>Next: is it the quantisation or the chip? ");
        begin_command(page);
        nd_html_puts(page, " explain --quantised MODEL.onnx");
        json_array_foreach(nd_doc_get(comparison, "devices"), i, device) {
            if (i < 6)
                put_argument(page, nd_doc_text(device, "capture"));
        }
        end_command(page);
        nd_html_puts(page, "</p>\n");
    } else if (strcmp(verdict, "faulty") == 0 || strcmp(verdict, "unexplained") == 0) {
        put_reduce(page, explanation);
    }
}

/* The verdict that counts: of two documents the one that knows more. */
static void put_card(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    const json_t *explanation = part->documents[ND_PAGE_EXPLANATION];
    bool is_gated = nd_doc_is(comparison, "gated");
    const char *verdict = nd_doc_text(explanation != NULL && !is_gated ? explanation : comparison, "verdict");
    const char *state = nd_html_state(verdict);
    if (strcmp(verdict, "differs") == 0 && is_gated)
        state = "fail";
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">", state);
    nd_html_text(page, word_of(verdict, is_gated));
    if (part->name[0] != '\0') {
        nd_html_fill(page, " <span class=\"of\">$n</span>", part->name);
    }
    nd_html_puts(page, "</p>\n");
    if (comparison != NULL)
        put_comparison_words(page, part);
    if (explanation != NULL)
        put_explanation_words(page, part);
    if (comparison != NULL)
        put_accuracy_words(page, part);
    put_next(page, part);
    nd_html_puts(page, "</div>\n");
}

void nd_view_verdict(struct nd_page *page, const struct nd_page_part *part)
{
    bool has_comparison = part->documents[ND_PAGE_COMPARISON] != NULL;
    if (part->documents[ND_PAGE_QUALIFICATION] != NULL)
        nd_view_campaign(page, part);
    if (part->documents[ND_PAGE_GOLDEN] != NULL)
        put_golden(page, part);
    if (part->documents[ND_PAGE_HISTORY] != NULL)
        put_history(page, part);
    if (part->documents[ND_PAGE_CHANGED] != NULL)
        put_changed(page, part);
    if (has_comparison || part->documents[ND_PAGE_EXPLANATION] != NULL)
        put_card(page, part);
    if (has_comparison) {
        const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
        nd_html_scroll(page, "Devices", false);
        nd_html_puts(
            page,
            "<table class=\"sortable\"><caption>Devices. Those that agree in every bit of every tensor share a "
            "row; the first device is the reference.</caption>\n<thead><tr><th scope=\"col\">Device</th><th "
            "scope=\"col\" class=\"n\">Tensors that differ</th><th scope=\"col\">First differs at</th><th "
            "scope=\"col\" class=\"n\">Output values that differ</th>");
        if (accuracy_row(comparison) != NULL)
            nd_html_puts(page, "<th scope=\"col\" class=\"n\">Predictions right</th><th scope=\"col\" "
                               "class=\"n\">Predictions changed</th>");
        if (part->documents[ND_PAGE_EXPLANATION] != NULL)
            nd_html_puts(page, "<th scope=\"col\">Diagnosis</th>");
        nd_html_puts(page, "</tr></thead>\n<tbody>\n");
        for (size_t g = 0; g < part->n_groups; g++)
            put_device_row(page, part, g);
        nd_html_puts(page, "</tbody></table></div>\n");
    }
}
