/* The default text of a comparison: the answer first, one row for each group of identical devices, then what is
 * worth knowing, and the next command. Everything else is in the tables. */
#include <stdint.h>
#include <stdio.h>

#include "report/text/format.h"
#include "report/text/summary.h"
#include "report/text/compare.h"

enum { MOST_GROUPS = 8, MOST_CHANGES = 3 };

/* ---- groups ---- */

bool nd_text_is_first_of_group(const struct nd_comparison *c, size_t test)
{
    int class_id = c->devices[test].class_id;
    for (size_t i = 1; i < test && class_id >= 0; i++)
        if (c->devices[i].class_id == class_id)
            return false;
    return true;
}

/* "gen3=gen4=gen5", or "gen3 and 9 more". */
static void name_group(const struct nd_comparison *c, size_t test, struct nd_strbuf *out)
{
    enum { MOST_COLUMNS = 24 };
    struct nd_strbuf all = {0};
    size_t n = 0;
    nd_strbuf_puts(&all, c->devices[test].label);
    for (size_t i = test + 1; i < c->n_devices && c->devices[test].class_id >= 0; i++) {
        if (c->devices[i].class_id != c->devices[test].class_id)
            continue;
        nd_strbuf_printf(&all, "=%s", c->devices[i].label);
        n++;
    }
    if (n > 0 && all.len > MOST_COLUMNS)
        nd_strbuf_printf(out, "%s and %zu more", c->devices[test].label, n);
    else
        nd_strbuf_puts(out, all.text != NULL ? all.text : "");
    out->failed = out->failed || all.failed;
    nd_strbuf_deinit(&all);
}

/* ---- the table ---- */

/* The predictions that are worth a column: with labels where there are any, of the most samples. */
static const struct nd_top1 *choose_top1(const struct nd_comparison *c)
{
    const struct nd_top1 *best = NULL;
    for (size_t i = 0; i < c->n_top1; i++) {
        const struct nd_top1 *row = &c->top1[i];
        bool is_better =
            best == NULL || (row->has_labels && !best->has_labels) ||
            (row->has_labels == best->has_labels && row->devices[0].n_samples > best->devices[0].n_samples);
        best = is_better ? row : best;
    }
    return best;
}

static bool has_outputs(const struct nd_comparison *c)
{
    size_t e = 0;
    while (e < c->n_edges && !c->edges[e].is_model_output)
        e++;
    return e < c->n_edges;
}

/* The output of the test of which the largest share differs, or where no tensor is known to be an output, the
 * tensor; NULL when none was compared. */
static const struct nd_difference *worst_output(const struct nd_comparison *c, size_t test)
{
    bool is_of_outputs = has_outputs(c);
    const struct nd_difference *worst = NULL;
    for (size_t e = 0; e < c->n_edges; e++) {
        const struct nd_compared_part *part = &c->edges[e].pairs[test - 1].total;
        if ((c->edges[e].is_model_output || !is_of_outputs) && part->coverage != ND_COVERAGE_NONE &&
            (worst == NULL || part->difference.share > worst->share))
            worst = &part->difference;
    }
    return worst;
}

static void add_output(struct nd_table *table, const struct nd_difference *d)
{
    char number[ND_NUMBER_BYTES];
    if (d == NULL || (d->n_samples_differing > 0 && !d->has_values)) {
        nd_table_add(table, "?");
        nd_table_add(table, "?");
        return;
    }
    nd_table_add(table, nd_format_share(d->n_differing, d->n_elems, number));
    if (d->n_differing == 0)
        nd_table_add(table, "-");
    else if (d->is_integer)
        nd_table_addf(table, "±%s LSB", nd_format_count(d->max_lsb, number));
    else if (d->has_errors)
        nd_table_add(table, nd_format_short(d->abs.max, number));
    else
        nd_table_add(table, "NaN");
}

static void add_top1(struct nd_table *table, const struct nd_top1 *top1, size_t device)
{
    char number[ND_NUMBER_BYTES];
    if (top1 == NULL)
        return;
    const struct nd_top1_device *on = &top1->devices[device];
    const struct nd_top1_pair *pair = device > 0 ? &top1->pairs[device - 1] : NULL;
    if (top1->has_labels)
        nd_table_add(table, on->exists ? nd_format_share(on->n_correct, on->n_samples, number) : "?");
    if (pair == NULL)
        nd_table_add(table, "-");
    else if (pair->exists)
        nd_table_addf(table, "%zu of %zu", pair->n_samples - pair->n_agree, pair->n_samples);
    else
        nd_table_add(table, "?");
}

static void add_titles(struct nd_table *table, const struct nd_comparison *c, const struct nd_top1 *top1)
{
    static const char *const titles[2][7] = {
        {"", "tensors", "tensors", "output", "largest", "top-1", "changed"},
        {"device", "differ", "fail", "differs", "at output", "right", "classes"}};
    for (size_t row = 0; row < 2; row++) {
        for (size_t i = 0; i < 7; i++) {
            bool is_shown = i == 2   ? c->has_gates
                            : i == 5 ? top1 != NULL && top1->has_labels
                            : i == 6 ? top1 != NULL
                                     : true;
            bool is_of_tensor = !has_outputs(c) && (i == 3 || (i == 4 && row == 1));
            if (is_shown)
                nd_table_add(table, !is_of_tensor ? titles[row][i]
                                    : i == 4      ? "there"
                                    : row == 0    ? "worst"
                                                  : "tensor");
        }
    }
}

static void add_group(struct nd_table *table, const struct nd_comparison *c, const struct nd_top1 *top1,
                      size_t test)
{
    struct nd_strbuf name = {0};
    name_group(c, test, &name);
    nd_table_add(table, name.text != NULL ? name.text : "");
    table->failed = table->failed || name.failed;
    nd_strbuf_deinit(&name);
    nd_table_addf(table, "%zu of %zu", nd_text_count_differing(c, test, false), c->n_edges);
    if (c->has_gates)
        nd_table_addf(table, "%zu", nd_text_count_differing(c, test, true));
    add_output(table, worst_output(c, test));
    add_top1(table, top1, test);
}

static void put_groups(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    const struct nd_comparison *c = report->comparison;
    bool has_labels = top1 != NULL && top1->has_labels;
    size_t n = 0, n_columns = 4 + (size_t)c->has_gates + (top1 != NULL) + has_labels;
    struct nd_table table = {.n_columns = n_columns, .is_left = {true}};
    table.max_width[0] = report->width * 2 / 5; /* the other columns take up to 3 / 5 of 80 columns */
    add_titles(&table, c, top1);
    if (has_labels) {
        nd_table_add(&table, c->devices[0].label);
        for (size_t i = 1; i + 2 < n_columns; i++)
            nd_table_add(&table, "-");
        add_top1(&table, top1, 0);
    }
    for (size_t t = 1; t < c->n_devices; t++)
        if (nd_text_is_first_of_group(c, t) && n++ < MOST_GROUPS)
            add_group(&table, c, top1, t);
    nd_text_put_table(report, &table, 0, 1, "\n");
    if (n > MOST_GROUPS)
        nd_strbuf_printf(report->out, "  and %zu more groups (-v shows them)\n", n - MOST_GROUPS);
}

/* The first tensor, in graph order, that differs from the reference: one sentence for all groups of which it is
 * the same. */
static void put_first(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_said = 0;
    for (size_t t = 1; t < c->n_devices; t++) {
        size_t edge = c->devices[t].first_edge, n_differing = 0, n_here = 0;
        bool is_said = edge == SIZE_MAX || !nd_text_is_first_of_group(c, t);
        struct nd_strbuf names = {0};
        for (size_t i = 1; i < c->n_devices; i++) {
            is_said = is_said || (i < t && c->devices[i].first_edge == edge);
            if (c->devices[i].first_edge == SIZE_MAX || !nd_text_is_first_of_group(c, i))
                continue;
            n_differing++;
            if (c->devices[i].first_edge != edge)
                continue;
            nd_strbuf_puts(&names, n_here++ > 0 ? ", " : " on ");
            name_group(c, i, &names);
        }
        if (!is_said && n_said++ < MOST_CHANGES)
            nd_summary_put(report->out, report->width, 0, 2,
                           "'%s' (%s%s%s) is the first tensor that differs%s.", c->edges[edge].name,
                           c->edges[edge].op_types, c->edges[edge].op_types[0] != '\0' ? ", " : "",
                           nd_dtype_name(c->edges[edge].dtype),
                           n_here < n_differing && names.text != NULL ? names.text : "");
        report->out->failed = report->out->failed || names.failed;
        nd_strbuf_deinit(&names);
    }
    if (n_said > MOST_CHANGES)
        nd_strbuf_puts(report->out, "Others begin to differ at later tensors (-v shows them).\n");
}

/* ---- what it does to the predictions ---- */

static void put_changes(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    const struct nd_comparison *c = report->comparison;
    size_t n = 0, n_pairs = 0;
    if (top1 == NULL || c->verdict == ND_VERDICT_SAME)
        return;
    for (size_t t = 1; t < c->n_devices; t++) {
        const struct nd_top1_pair *pair = &top1->pairs[t - 1];
        n_pairs += pair->exists;
        if (!pair->exists || pair->n_agree == pair->n_samples || !nd_text_is_first_of_group(c, t) ||
            n++ >= MOST_CHANGES || !top1->has_labels)
            continue;
        nd_summary_put(report->out, report->width, 0, 2,
                       "%s: %zu right class%s become%s wrong, %zu wrong become%s right (%s, p = %.2g).",
                       c->devices[t].label, pair->n_lost, pair->n_lost == 1 ? "" : "es",
                       pair->n_lost == 1 ? "s" : "", pair->n_gained, pair->n_gained == 1 ? "s" : "",
                       pair->is_significant ? "significant" : "not significant", pair->p_value);
    }
    if (n == 0 && n_pairs > 0)
        nd_strbuf_puts(report->out, "No predicted class changes.\n");
}

/* What is worth knowing beside the table, the most telling first: a long list is cut at its end. */
static void put_notes(const struct nd_text_report *report, const struct nd_top1 *top1)
{
    nd_text_failures(report);
    nd_text_not_repeatable(report);
    put_changes(report, top1);
    nd_text_samples(report, top1);
    put_first(report);
    nd_text_numbers(report);
    nd_text_diagnoses(report);
    nd_text_structure(report);
    nd_text_predicates(report);
    nd_text_problems(report);
    if (report->comparison->has_gates)
        nd_text_gates(report);
    nd_text_device_notes(report);
    nd_text_stuck(report);
}

void nd_text_brief(const struct nd_text_report *report)
{
    const struct nd_top1 *top1 = choose_top1(report->comparison);
    struct nd_strbuf notes = {0}, next = {0};
    struct nd_text_report of_notes = *report, of_next = *report;
    of_notes.out = &notes;
    of_next.out = &next;
    put_notes(&of_notes, top1);
    nd_text_next(&of_next);
    nd_text_head(report);
    if (report->comparison->verdict != ND_VERDICT_SAME) {
        put_groups(report, top1);
        nd_strbuf_puts(report->out, notes.len > 0 && notes.text[0] != '\n' ? "\n" : "");
    }
    size_t used = nd_summary_count_lines(report->out) + nd_summary_count_lines(&next);
    nd_summary_append_cut(report->out, &notes, used < ND_SUMMARY_LINES ? ND_SUMMARY_LINES - used : 1);
    if (report->worst)
        nd_text_worst(report);
    nd_text_channels(report);
    nd_text_matrices(report);
    nd_summary_append_cut(report->out, &next, SIZE_MAX);
    nd_strbuf_deinit(&notes);
    nd_strbuf_deinit(&next);
}
