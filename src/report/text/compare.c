#include "report/text/compare.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/error.h"
#include "core/text/options.h"
#include "report/text/format.h"
#include "report/text/summary.h"
#include "report/text/tree.h"

enum { DEFAULT_WIDTH = 120, MIN_WIDTH = 80 };

size_t nd_text_list_limit(const struct nd_text_report *report)
{
    return report->all_edges ? SIZE_MAX : report->is_brief ? ND_TEXT_BRIEF_LINES : ND_TEXT_LIST_LINES;
}

void nd_text_put_more(const struct nd_text_report *report, size_t n)
{
    if (n > nd_text_list_limit(report))
        nd_strbuf_printf(report->out, "  and %zu more\n", n - nd_text_list_limit(report));
}

void nd_text_put_wrapped(const struct nd_text_report *report, const char *text, size_t indent)
{
    char *clean = nd_clean_text(text);
    if (clean == NULL)
        report->out->failed = true;
    else
        nd_wrap_append(report->out, clean, indent, report->width);
    free(clean);
}

/* Takes from the widest key until the keys leave enough of the line to the other columns. */
static void fit_keys(struct nd_table *table, size_t n_keys, size_t limit)
{
    enum { MIN_KEY = 8 };
    for (;;) {
        size_t used = 0, widest = 0, width = 0;
        for (size_t i = 0; i < n_keys; i++) {
            size_t columns = nd_table_width(table, i);
            used += 2 + columns;
            widest = columns > width ? i : widest;
            width = columns > width ? columns : width;
        }
        if (used <= limit || width <= MIN_KEY)
            return;
        table->max_width[widest] = width - 1;
    }
}

void nd_text_put_table(const struct nd_text_report *report, struct nd_table *table, size_t n_title_cells,
                       size_t n_keys, const char *title)
{
    if (table->n_cells > n_title_cells) {
        size_t n_newlines = strspn(title, "\n");
        nd_strbuf_append(report->out, title, n_newlines);
        if (title[n_newlines] != '\0') {
            nd_text_put_wrapped(report, title + n_newlines, 2);
            nd_strbuf_puts(report->out, "\n");
        }
        table->line_width = report->width;
        fit_keys(table, n_keys, report->width * 11 / 20);
        nd_table_render_panels(table, n_keys, report->out);
    }
    report->out->failed = report->out->failed || table->failed;
    nd_table_deinit(table);
}

void nd_text_add_titles(struct nd_table *table, const char *const *titles)
{
    for (size_t i = 0; i < table->n_columns; i++)
        nd_table_add(table, titles[i]);
}

void nd_text_add_count(struct nd_table *table, uint64_t n)
{
    nd_table_addf(table, "%llu", (unsigned long long)n);
}

void nd_text_add_short(struct nd_table *table, double value)
{
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, nd_format_short(value, number));
}

void nd_text_add_short_if(struct nd_table *table, bool exists, double value)
{
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, exists ? nd_format_short(value, number) : "-");
}

void nd_text_add_near_one_if(struct nd_table *table, bool exists, double value)
{
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, exists ? nd_format_near_one(value, number) : "-");
}

/* Of a pair that counts. */
static bool has_verdict(const struct nd_comparison *c, const struct nd_compared_edge *edge,
                        enum nd_verdict verdict)
{
    for (size_t t = 1; t < c->n_devices; t++)
        if (edge->pairs[t - 1].verdict == verdict && !edge->pairs[t - 1].is_unrecorded_input)
            return true;
    return false;
}

static bool is_unrecorded(const struct nd_comparison *c, const struct nd_compared_edge *edge)
{
    size_t t = 1;
    while (t < c->n_devices && !edge->pairs[t - 1].is_unrecorded_input)
        t++;
    return t < c->n_devices;
}

/* What is said of an edge: one thing for all tests, so that no edge is counted twice in a sentence. What could
 * not be compared is counted apart. */
enum said { SAID_DIFFERS, SAID_NAN, SAID_WITHIN, SAID_DEQUANTISED, SAID_OTHER_TYPE, SAID_EQUAL, N_SAID };

static enum said what_is_said(const struct nd_comparison *c, const struct nd_compared_edge *edge)
{
    bool is_different = false, is_dequantised = false;
    for (size_t t = 1; t < c->n_devices; t++) {
        const struct nd_difference *d = &edge->pairs[t - 1].total.difference;
        is_different = is_different || d->n_samples_differing > 0;
        is_dequantised = is_dequantised || d->n_dequantised > 0;
    }
    return has_verdict(c, edge, ND_VERDICT_DIFFERS)        ? SAID_DIFFERS
           : has_verdict(c, edge, ND_VERDICT_INCONCLUSIVE) ? SAID_NAN
           : !has_verdict(c, edge, ND_VERDICT_WITHIN)      ? SAID_EQUAL
           : is_different                                  ? SAID_WITHIN
           : is_dequantised                                ? SAID_DEQUANTISED
                                                           : SAID_OTHER_TYPE;
}

/* What the verdict means here, in one half sentence on the last line. What does not fit there is left out: it
 * has been said above. */
static void put_verdict(const struct nd_text_report *report)
{
    enum { PART_BYTES = 128 };
    const struct nd_comparison *c = report->comparison;
    size_t n_failed = 0, n_not_comparable = 0, n_unrecorded = 0, n[N_SAID] = {0};
    for (size_t i = 0; i < c->n_devices; i++)
        n_failed += c->devices[i].status == ND_CAPTURE_FAILED;
    for (size_t e = 0; e < c->n_edges; e++) {
        n[what_is_said(c, &c->edges[e])]++;
        n_not_comparable += has_verdict(c, &c->edges[e], ND_VERDICT_NOT_COMPARABLE);
        n_unrecorded += is_unrecorded(c, &c->edges[e]);
    }
    const struct {
        size_t n;
        size_t of;
        const char *what;
    } parts[] = {
        {n_failed, c->n_devices, "devices failed"},
        {n[SAID_DIFFERS], c->n_edges, c->has_gates ? "tensors fail their gate" : "tensors differ"},
        {n[SAID_NAN], c->n_edges, "tensors have samples that are NaN on both sides"},
        {n[SAID_WITHIN], c->n_edges, "tensors differ only within their gate"},
        {n[SAID_DEQUANTISED], c->n_edges, "tensors are equal after dequantisation"},
        {n[SAID_OTHER_TYPE], c->n_edges, "tensors have equal values in different types"},
        {n_not_comparable, c->n_edges, "tensors not or only partly comparable"},
        {n_unrecorded, c->n_edges, "tensors are model inputs that not every capture has"},
    };
    struct nd_strbuf line = {0};
    const char *separator = " (";
    nd_strbuf_printf(&line, "verdict: %s", nd_verdict_name(c->verdict));
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        char part[PART_BYTES];
        if (parts[i].n == 0)
            continue;
        snprintf(part, sizeof part, "%s%zu of %zu %s", separator, parts[i].n, parts[i].of, parts[i].what);
        bool is_fitting = line.len + strlen(part) + strlen("; ...)") <= report->width;
        nd_strbuf_puts(&line, is_fitting ? part : "; ...");
        separator = "; ";
        if (!is_fitting)
            break;
    }
    if (separator[0] == ' ' && c->broken_top1 != SIZE_MAX) {
        nd_strbuf_puts(&line, " (the reference is broken");
        separator = "; ";
    }
    if (separator[0] == ' ' && c->n_edges == 1)
        nd_strbuf_printf(&line, " (the tensor is bit-equal on all %zu devices", c->n_devices);
    else if (separator[0] == ' ')
        nd_strbuf_printf(&line, " (all %zu tensors are bit-equal on all %zu devices", c->n_edges, c->n_devices);
    if (c->n_edges_left_out > 0)
        nd_strbuf_printf(&line, "; %zu tensor%s left out", c->n_edges_left_out,
                         c->n_edges_left_out == 1 ? "" : "s");
    report->out->failed = report->out->failed || line.failed;
    nd_strbuf_printf(report->out, "\n%s)\n", line.text != NULL ? line.text : "");
    nd_strbuf_deinit(&line);
}

/* All tables. */
static void put_sections(const struct nd_text_report *report)
{
    nd_text_devices(report);
    nd_text_numbers(report);
    nd_text_classes(report);
    nd_text_first_differences(report);
    nd_text_predicates(report);
    nd_text_edges(report);
    nd_text_gates(report);
    nd_text_not_repeatable(report);
    nd_text_repeats(report);
    nd_text_stuck(report);
    nd_text_magnitudes(report);
    nd_text_signal(report);
    nd_text_structure(report);
    nd_text_diagnoses(report);
    nd_text_worst(report);
    nd_text_channels(report);
    nd_text_matrices(report);
    nd_text_top1(report);
    nd_text_problems(report);
    put_verdict(report);
}

enum nd_status nd_report_text(const struct nd_comparison *comparison, const struct nd_report_options *options,
                              char **out, struct nd_error *err)
{
    struct nd_report_options own = {.struct_size = sizeof own};
    enum nd_status status = nd_options_read(&own, sizeof own, options, err);
    if (status != ND_OK)
        return status;
    struct nd_strbuf buf = {0};
    struct nd_text_report report = {.comparison = comparison,
                                    .is_brief = own.is_brief,
                                    .model = own.model,
                                    .model_path = own.model_path,
                                    .all_edges = own.all_edges,
                                    .details = own.details,
                                    .worst = own.worst || own.details,
                                    .matrices = own.matrices,
                                    .n_matrices = own.n_matrices,
                                    .width = DEFAULT_WIDTH,
                                    .out = &buf};
    if (own.is_brief)
        report.width = nd_summary_width(own.width);
    else if (own.width > 0)
        report.width = own.width > MIN_WIDTH ? own.width : MIN_WIDTH;
    for (size_t i = 0; i < report.n_matrices; i++) {
        status = nd_matrix_check(&report.matrices[i], comparison, err);
        if (status != ND_OK)
            return status;
    }
    if (own.is_brief)
        nd_text_brief(&report);
    else
        put_sections(&report);
    return nd_text_end(&buf, out, err);
}
