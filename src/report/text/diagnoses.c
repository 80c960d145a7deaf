/* What makes values differ, how errors grow, and where the comparison is wrong.
 * docs/reference/diagnoses.md and docs/reference/metrics.md#predicate. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "report/text/compare.h"
#include "report/text/tree.h"

/* A line is said once for all devices of which it holds in the same tensor. */
static bool is_same_line(const struct nd_compared_diagnosis *a, const struct nd_compared_diagnosis *b)
{
    return a->tensor == b->tensor && a->is_of_runs == b->is_of_runs && a->n_later == b->n_later &&
           strcmp(a->kind, b->kind) == 0 && strcmp(a->text, b->text) == 0;
}

/* Later tensors show the same kind: the first is where it is made. */
static bool is_first_of_kind(const struct nd_comparison *c, size_t i)
{
    for (size_t k = 0; k < i; k++)
        if (c->diagnoses[k].device == c->diagnoses[i].device &&
            strcmp(c->diagnoses[k].kind, c->diagnoses[i].kind) == 0)
            return false;
    return true;
}

static void add_line(const struct nd_text_report *report, struct nd_table *table, size_t i, bool *is_said)
{
    const struct nd_comparison *c = report->comparison;
    const struct nd_compared_diagnosis *d = &c->diagnoses[i];
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf labels = {0}, text = {0};
    for (size_t k = i; k < c->n_diagnoses; k++) {
        if (is_said[k] || !is_same_line(d, &c->diagnoses[k]))
            continue;
        nd_strbuf_printf(&labels, "%s%s", k > i ? ", " : "", c->devices[c->diagnoses[k].device].label);
        is_said[k] = true;
    }
    nd_strbuf_puts(&text, d->text);
    if (d->n_later > 0 && !report->details)
        nd_strbuf_printf(&text, " (and %zu later tensor%s)", d->n_later, d->n_later == 1 ? "" : "s");
    nd_table_add(table, c->tensors[d->tensor].name);
    nd_table_add(table, labels.text != NULL ? labels.text : "");
    nd_table_add(table, text.text != NULL ? text.text : "");
    table->failed = table->failed || labels.failed || text.failed;
}

static void put_lines(const struct nd_text_report *report, bool is_note, const char *title)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 3, .is_left = {true, true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    bool *is_said = nd_calloc(c->n_diagnoses, sizeof *is_said);
    size_t n = 0;
    report->out->failed = report->out->failed || (is_said == NULL && c->n_diagnoses > 0);
    for (size_t i = 0; i < c->n_diagnoses && is_said != NULL; i++) {
        bool is_wanted = c->diagnoses[i].is_note == is_note && !is_said[i];
        is_wanted = is_wanted && (report->details || is_first_of_kind(c, i));
        if (is_wanted && n++ < nd_text_list_limit(report))
            add_line(report, &table, i, is_said);
    }
    free(is_said);
    nd_text_put_table(report, &table, 0, 2, title);
    nd_text_put_more(report, n);
}

static void put_depths(const struct nd_text_report *report)
{
    static const char *const titles[] = {"device", "grows", "tensors", "first", "last", "error"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 6, .is_left = {true, true, [5] = true}, .max_width = {ND_TEXT_LABEL_MAX}};
    nd_text_add_titles(&table, titles);
    for (size_t i = 0; i < c->n_depths; i++) {
        const struct nd_compared_depth *d = &c->depths[i];
        if (strcmp(d->growth, "unknown") == 0)
            continue;
        nd_table_add(&table, c->devices[d->device].label);
        if (strcmp(d->growth, "constant-rate") == 0)
            nd_table_addf(&table, "%.4g times per tensor", d->factor);
        else if (strcmp(d->growth, "none") == 0)
            nd_table_add(&table, "no growth");
        else
            nd_table_add(&table, strcmp(d->growth, "linear") == 0 ? "linearly" : "as a square root");
        nd_text_add_count(&table, d->n_tensors);
        nd_text_add_short(&table, d->first);
        nd_text_add_short(&table, d->last);
        nd_table_add(&table, d->is_share ? "share of values that differ" : "relative error");
    }
    nd_text_put_table(report, &table, table.n_columns, 1,
                      "\nhow the error grows over the tensors, in their order:");
}

/* Whether the probe comes near where half precision ends. Chosen: a quarter of it. */
static void put_half_range(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < c->n_depths; i++) {
        const struct nd_compared_depth *d = &c->depths[i];
        if (!d->is_half || isnan(d->largest))
            continue;
        char number[ND_NUMBER_BYTES];
        struct nd_strbuf line = {0};
        nd_strbuf_printf(
            &line,
            "%s: the largest value compared is %s (%s); these probes %s the end of half precision, 65504",
            c->devices[d->device].label, nd_format_short(d->largest, number),
            c->tensors[d->largest_tensor].name, d->largest < 65504.0 / 4 ? "do not come near" : "come near");
        nd_strbuf_puts(report->out, "\n");
        nd_text_put_wrapped(report, line.text != NULL ? line.text : "", 2);
        nd_strbuf_puts(report->out, "\n");
        report->out->failed = report->out->failed || line.failed;
        nd_strbuf_deinit(&line);
    }
}

static void put_signs(const struct nd_text_report *report)
{
    static const char *const titles[] = {"tensor", "device", "test > ref", "test < ref", "mean", "per |mean|"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {
        .n_columns = 6, .is_left = {true, true}, .max_width = {ND_TEXT_NAME_MAX, ND_TEXT_LABEL_MAX}};
    nd_text_add_titles(&table, titles);
    for (size_t e = 0; e < c->n_tensors; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->tensors[e].pairs[t - 1].total.difference;
            if (!nd_text_is_detailed(c, e, t))
                continue;
            nd_table_add(&table, c->tensors[e].name);
            nd_table_add(&table, c->devices[t].label);
            nd_table_add(&table, ND_PERCENT(d->share_above));
            nd_table_add(&table, ND_PERCENT(d->share_below));
            nd_text_add_short(&table, d->signed_mean);
            nd_text_add_short(&table, d->abs.mean > 0 ? d->signed_mean / d->abs.mean : 0);
        }
    nd_text_put_table(
        report, &table, table.n_columns, 2,
        "\nsigned differences (test - ref, real units; the last column is 1 or -1 where all have one sign):");
}

void nd_text_diagnoses(const struct nd_text_report *report)
{
    put_lines(report, false, "\ndiagnosis from the values:");
    put_lines(report, true, "\narithmetic that the values show (no fault):");
    if (!report->details)
        return;
    put_signs(report);
    put_depths(report);
    put_half_range(report);
}

/* Beyond this the chance is no number anybody needs (chosen): 2^20 is a million. */
static const double chance_bits_shown = 20;

static void put_predicate(const struct nd_text_report *report, const struct nd_compared_predicate *p)
{
    ND_CLEANUP(nd_strbuf_deinit) struct nd_strbuf line = {0};
    double bits = fmin(-p->log2_chance, chance_bits_shown);
    nd_strbuf_puts(report->out, "  ");
    nd_strbuf_puts(&line, p->text);
    if (p->tensor == SIZE_MAX)
        nd_strbuf_printf(&line, " (wrong: %s",
                         report->comparison->has_gates
                             ? "fails its gate"
                             : "SQNR below 20 dB, more than 2 LSB off, or NaN or infinity on one side");
    if (!isnan(p->log2_chance))
        nd_strbuf_printf(&line, "%sby chance in less than 1 of %.0f)", p->tensor == SIZE_MAX ? "; " : " (",
                         floor(exp2(bits)));
    nd_text_put_wrapped(report, line.text != NULL ? line.text : "", 4);
    nd_strbuf_puts(report->out, "\n");
    report->out->failed = report->out->failed || line.failed;
}

void nd_text_predicates(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->n_predicates > 0)
        nd_strbuf_puts(report->out, "\nwhere it is wrong:\n");
    for (size_t i = 0; i < c->n_predicates && i < nd_text_list_limit(report); i++)
        put_predicate(report, &c->predicates[i]);
    nd_text_put_more(report, c->n_predicates);
}
