/* The history of a golden store for people and as JSON. */
#include <math.h>
#include <stdint.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "npudiff/report/report.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

enum {
    MAX_STEPS = 6,                       /* of a chart in the default text: chosen, so that one fits a screen */
    MAX_SDKS = ND_TABLE_MAX_COLUMNS - 2, /* in a table of text; the newest. JSON has all */
    MAX_COLUMNS = ND_TABLE_MAX_COLUMNS - 2 /* chipsets in the table of tensors */
};

static bool is_same(const struct nd_golden_step *step)
{
    return strcmp(step->verdict, "same") == 0;
}

/* 0 is "a", 25 "z", 26 "aa". */
const char *nd_history_letter(size_t value, char buf[static ND_HISTORY_LETTER_BYTES])
{
    size_t at = ND_HISTORY_LETTER_BYTES - 1;
    buf[at] = '\0';
    if (value == SIZE_MAX)
        return "-";
    for (value++; value > 0 && at > 0; value = (value - 1) / 26)
        buf[--at] = (char)('a' + (value - 1) % 26);
    return buf + at;
}

/* ---- JSON ---- */

static void put_steps(struct nd_json *json, const struct nd_golden_chart *chart)
{
    ND_JSON_LIST(json, "steps", i, chart->n_steps) {
        const struct nd_golden_step *step = &chart->steps[i];
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "chipset", chart->chipsets.items[step->chipset]);
        nd_json_text(json, "from", chart->sdks.items[step->from]);
        nd_json_text(json, "to", chart->sdks.items[step->to]);
        nd_json_text(json, "verdict", step->verdict);
        nd_json_count(json, "n_different", step->n_different);
        nd_json_count(json, "n_missing", step->n_missing);
        nd_json_count(json, "n_extra", step->n_extra);
        nd_json_text(json, "first", step->first != SIZE_MAX ? chart->tensors[step->first].name : NULL);
        nd_json_texts(json, "also_changed", step->also, step->n_also);
        nd_json_close(json, '}');
    }
}

static void put_chart(struct nd_json *json, const struct nd_golden_chart *chart)
{
    nd_json_open(json, NULL, '{');
    nd_json_text(json, "model", chart->model);
    nd_json_count(json, "entries", chart->n_entries);
    nd_json_texts(json, "probes", chart->probes.items, chart->probes.n);
    nd_json_texts(json, "chipsets", chart->chipsets.items, chart->chipsets.n);
    nd_json_texts(json, "sdks", chart->sdks.items, chart->sdks.n);
    ND_JSON_LIST(json, "cells", k, chart->chipsets.n * chart->sdks.n) {
        const struct nd_golden_cell *cell = &chart->cells[k];
        if (cell->n_accepted == 0)
            continue;
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "chipset", chart->chipsets.items[k / chart->sdks.n]);
        nd_json_text(json, "sdk", chart->sdks.items[k % chart->sdks.n]);
        nd_json_text(json, "entry", cell->id);
        nd_json_count(json, "accepted", cell->n_accepted);
        nd_json_bool(json, "failed", cell->has_failed);
        nd_json_bool(json, "repeatable", !cell->is_unstable);
        nd_json_index(json, "value", cell->value);
        nd_json_close(json, '}');
    }
    put_steps(json, chart);
    ND_JSON_LIST(json, "tensors", t, chart->n_tensors) {
        nd_json_open(json, NULL, '{');
        nd_json_text(json, "name", chart->tensors[t].name);
        nd_json_text(json, "op_types", chart->tensors[t].op_types);
        nd_json_count(json, "n_steps", chart->tensors[t].n_steps);
        ND_JSON_LIST(json, "values", c, chart->chipsets.n) {
            ND_JSON_LINE_LIST(json, NULL, s, chart->sdks.n)
                nd_json_index(json, NULL, chart->tensors[t].values[c * chart->sdks.n + s]);
        }
        nd_json_close(json, '}');
    }
    nd_json_close(json, '}');
}

enum nd_status nd_report_golden_history_json(const struct nd_golden_history *history,
                                             const struct nd_golden *store, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_json json = {.out = &buf};
    nd_json_open_document(&json, ND_DOCUMENT_GOLDEN_HISTORY);
    ND_JSON_LIST(&json, "charts", c, history->n_charts)
        put_chart(&json, &history->charts[c]);
    nd_report_put_problems(&json, store);
    nd_json_close(&json, '}');
    nd_strbuf_puts(&buf, "\n");
    return nd_text_end(&buf, out, err);
}

/* ---- text ---- */

static void say_verdict(struct nd_strbuf *out, const struct nd_golden_chart *chart, size_t width)
{
    size_t n_changed = 0, n_tensors = 0, n_unsure = 0, n_failing = 0;
    for (size_t i = 0; i < chart->n_steps; i++) {
        const char *verdict = chart->steps[i].verdict;
        n_changed += strcmp(verdict, "differs") == 0;
        n_unsure += strcmp(verdict, "inconclusive") == 0;
        n_failing += strcmp(verdict, "fails") == 0;
    }
    for (size_t t = 0; t < chart->n_tensors; t++)
        n_tensors += chart->tensors[t].n_steps > 0;
    if (chart->n_steps == 0)
        nd_summary_put(out, width, 0, 2, "NO STEPS: no chipset has entries of two SDKs");
    else if (n_changed > 0)
        nd_summary_put(out, width, 0, 2, "CHANGED: %zu of %zu tensors, at %zu of %zu steps", n_tensors,
                       chart->n_tensors, n_changed, chart->n_steps);
    else if (n_unsure + n_failing == 0)
        nd_summary_put(out, width, 0, 2, "SAME: no tensor changed at %zu step%s", chart->n_steps,
                       chart->n_steps == 1 ? "" : "s");
    if (n_failing > 0)
        nd_summary_put(out, width, 0, 2, "FAILS: at %zu of %zu steps", n_failing, chart->n_steps);
    if (n_unsure > 0)
        nd_summary_put(out, width, 0, 2,
                       "INCONCLUSIVE: at %zu of %zu steps: one of the two entries is not repeatable, so that "
                       "noise may be the difference",
                       n_unsure, chart->n_steps);
}

/* Chipsets by SDKs: equal letters are equal in every tensor. */
static void put_wall(struct nd_strbuf *out, const struct nd_golden_chart *chart, size_t width)
{
    size_t first = chart->sdks.n > MAX_SDKS ? chart->sdks.n - MAX_SDKS : 0;
    struct nd_table table = {.n_columns = 1 + chart->sdks.n - first, .line_width = width};
    char buf[ND_HISTORY_LETTER_BYTES];
    nd_table_add(&table, "CHIPSET");
    for (size_t s = first; s < chart->sdks.n; s++)
        nd_table_add(&table, chart->sdks.items[s]);
    for (size_t i = 0; i < table.n_columns; i++)
        table.is_left[i] = true;
    for (size_t c = 0; c < chart->chipsets.n; c++) {
        nd_table_add(&table, chart->chipsets.items[c]);
        for (size_t s = first; s < chart->sdks.n; s++) {
            const struct nd_golden_cell *cell = &chart->cells[c * chart->sdks.n + s];
            nd_table_addf(&table, "%s%s%s", nd_history_letter(cell->value, buf), cell->is_unstable ? "?" : "",
                          cell->has_failed ? " failed" : "");
        }
    }
    nd_table_render_panels(&table, 1, out);
    nd_table_deinit(&table);
    if (first > 0)
        nd_summary_put(out, width, 2, 2, "%zu older SDKs are not shown (--json has them)", first);
    nd_summary_put(out, width, 2, 2,
                   "Equal letters: equal in every tensor. '-': no entry. '?': not repeatable.");
}

static void put_step(struct nd_strbuf *out, const struct nd_golden_chart *chart,
                     const struct nd_golden_step *step, size_t width)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    nd_strbuf_printf(&line, "%s, %s to %s: %s", chart->chipsets.items[step->chipset],
                     chart->sdks.items[step->from], chart->sdks.items[step->to], step->verdict);
    if (step->first != SIZE_MAX)
        nd_strbuf_printf(&line, ", %zu of %zu tensors, first '%s' (%s)", step->n_different, chart->n_tensors,
                         chart->tensors[step->first].name, chart->tensors[step->first].op_types);
    if (step->n_missing > 0)
        nd_strbuf_printf(&line, "; %zu tensor%s no longer there", step->n_missing,
                         step->n_missing == 1 ? " is" : "s are");
    if (step->n_extra > 0)
        nd_strbuf_printf(&line, "; %zu tensor%s new", step->n_extra, step->n_extra == 1 ? " is" : "s are");
    for (size_t i = 0; i < step->n_also; i++)
        nd_strbuf_printf(&line, "%s%s", i == 0 ? "; also changed: " : ", ", nd_golden_axis_name(step->also[i]));
    nd_summary_put(out, width, 2, 4, "%s", line.text != NULL ? line.text : "");
    out->failed = out->failed || line.failed;
}

/* Tensors that changed: for each chipset a letter by SDK, oldest first. */
static void put_tensors(struct nd_strbuf *out, const struct nd_golden_chart *chart, size_t width)
{
    size_t n = chart->chipsets.n < MAX_COLUMNS ? chart->chipsets.n : MAX_COLUMNS;
    struct nd_table table = {.n_columns = 2 + n, .line_width = width};
    char buf[ND_HISTORY_LETTER_BYTES];
    nd_table_add(&table, "TENSOR");
    nd_table_add(&table, "OPERATOR");
    for (size_t c = 0; c < n; c++)
        nd_table_add(&table, chart->chipsets.items[c]);
    for (size_t i = 0; i < table.n_columns; i++)
        table.is_left[i] = true;
    for (size_t t = 0; t < chart->n_tensors; t++) {
        if (chart->tensors[t].n_steps == 0)
            continue;
        nd_table_add(&table, chart->tensors[t].name);
        nd_table_add(&table, chart->tensors[t].op_types);
        for (size_t c = 0; c < n; c++) {
            struct nd_strbuf letters = {0};
            for (size_t s = 0; s < chart->sdks.n; s++)
                nd_strbuf_printf(&letters, "%s%s", s > 0 ? " " : "",
                                 nd_history_letter(chart->tensors[t].values[c * chart->sdks.n + s], buf));
            nd_table_add(&table, letters.text != NULL ? letters.text : "");
            table.failed = table.failed || letters.failed;
            nd_strbuf_deinit(&letters);
        }
    }
    bool has_rows = table.n_cells > table.n_columns;
    if (has_rows) {
        nd_summary_put(out, width, 0, 2,
                       "Tensors that changed. For each chipset a letter by SDK, the oldest first; equal "
                       "letters are equal bits:");
        nd_table_render_panels(&table, 2, out);
    }
    nd_table_deinit(&table);
    if (has_rows && n < chart->chipsets.n)
        nd_summary_put(out, width, 2, 2, "%zu more chipsets are not shown (--json has them)",
                       chart->chipsets.n - n);
}

enum nd_status nd_report_golden_history_text(const struct nd_golden_history *history, size_t width,
                                             bool is_verbose, char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    width = nd_summary_width(width);
    if (history->n_charts == 0)
        nd_summary_put(&buf, width, 0, 2, "The store has no entries.");
    for (size_t c = 0; c < history->n_charts; c++) {
        const struct nd_golden_chart *chart = &history->charts[c];
        nd_summary_put(&buf, width, 0, 2, "%s: %zu tensor%s, %zu chipset%s, %zu SDK%s, %zu entr%s",
                       chart->model, chart->n_tensors, chart->n_tensors == 1 ? "" : "s", chart->chipsets.n,
                       chart->chipsets.n == 1 ? "" : "s", chart->sdks.n, chart->sdks.n == 1 ? "" : "s",
                       chart->n_entries, chart->n_entries == 1 ? "y" : "ies");
        say_verdict(&buf, chart, width);
        nd_strbuf_puts(&buf, "\n");
        put_wall(&buf, chart, width);
        size_t most = is_verbose ? SIZE_MAX : MAX_STEPS;
        size_t n = 0;
        for (size_t i = 0; i < chart->n_steps; i++) {
            if (is_same(&chart->steps[i]) || n++ >= most)
                continue;
            put_step(&buf, chart, &chart->steps[i], width);
        }
        if (n > most)
            nd_summary_put(&buf, width, 2, 4, "and %zu more (-v shows them)", n - most);
        if (is_verbose)
            put_tensors(&buf, chart, width);
        nd_strbuf_puts(&buf, c + 1 < history->n_charts ? "\n" : "");
    }
    return nd_text_end(&buf, out, err);
}

/* ---- what came from the field, held against the golden store, for people ---- */

static void put_entry(struct nd_strbuf *out, size_t width, const char *what,
                      const struct nd_golden_entry *entry)
{
    nd_summary_put(out, width, 2, 4, "%s%s (%.12s): chipset %s, SDK %s", what, entry->label, entry->id,
                   entry->chipset, entry->sdk);
}

static void put_standing(struct nd_strbuf *out, size_t width, const char *what,
                         const struct nd_triage_standing *standing)
{
    const struct nd_golden_difference *d = &standing->difference;
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    put_entry(out, width, what, &standing->entry);
    nd_strbuf_printf(&line, "%zu of %zu tensor%s equal", d->n_equal, d->n_tensors,
                     d->n_tensors == 1 ? " is" : "s are");
    if (d->n_different > 0)
        nd_strbuf_printf(&line, ", the first that differs is %s (%s)", d->different[0].name,
                         d->different[0].op_types);
    if (!isnan(standing->share))
        nd_strbuf_printf(&line, "; %s of all values differ", ND_PERCENT(standing->share));
    nd_summary_put(out, width, 4, 6, "%s", line.text != NULL ? line.text : "");
    out->failed = out->failed || line.failed;
}

enum nd_status nd_report_triage_text(const struct nd_triage *triage, const char *field, size_t width,
                                     char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    width = nd_summary_width(width);
    const char *verdict = triage->verdict;
    if (strcmp(verdict, "known") == 0)
        nd_summary_put(&buf, width, 0, 2, "KNOWN: %s has the values of an accepted capture", field);
    else if (strcmp(verdict, "new") == 0)
        nd_summary_put(&buf, width, 0, 2, "NEW: %s has values that were never accepted%s%s", field,
                       triage->n_equal > 0 ? " for its chipset, " : "",
                       triage->n_equal > 0 ? triage->chipset : "");
    else
        nd_summary_put(&buf, width, 0, 2, "%s: %s: the store has no entry of this model and these probes",
                       strcmp(verdict, "not comparable") == 0 ? "NOT COMPARABLE" : verdict, field);
    if (triage->failure.has_failed)
        nd_summary_put(&buf, width, 2, 4, "the device failed at stage '%s' [ND-%lld]", triage->failure.stage,
                       (long long)triage->failure.code);
    for (size_t i = 0; i < triage->n_equal; i++)
        put_entry(&buf, width, "equal to ", &triage->standings[i].entry);
    if (triage->nearest != SIZE_MAX) {
        put_standing(&buf, width, "nearest: ", &triage->standings[triage->nearest]);
        if (triage->closer != SIZE_MAX)
            put_standing(&buf, width, "closer in its values, but of a different chipset: ",
                         &triage->standings[triage->closer]);
    }
    if (triage->nearest != SIZE_MAX || triage->n_equal == 0) {
        const char *model = triage->nearest != SIZE_MAX ? triage->standings[triage->nearest].entry.model : NULL;
        if (triage->is_bundle)
            nd_summary_put_explain(
                &buf, width, "with the capture that the bundle was made of (ask for it), to find the cause",
                "CAPTURE.h5", model);
        else
            nd_summary_put_explain(&buf, width, "to find the cause", field, model);
    }
    return nd_text_end(&buf, out, err);
}
