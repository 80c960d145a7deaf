#include <string.h>

#include "report/format.h"
#include "report/table.h"
#include "report/text.h"

/* The edges whose magnitudes are spelled out: model outputs, and where a difference begins. */
static bool is_detailed(const struct nd_comparison *c, size_t edge, size_t test)
{
    const struct nd_compared_part *total = &c->edges[edge].pairs[test - 1].total;
    bool is_wanted = c->edges[edge].is_model_output || c->devices[test].first_edge == edge;
    return is_wanted && total->coverage != ND_COVERAGE_NONE && total->difference.has_values &&
           total->difference.n_differing > 0;
}

static void add_count(struct nd_table *table, uint64_t n)
{
    nd_table_addf(table, "%llu", (unsigned long long)n);
}

static void add_short(struct nd_table *table, double value)
{
    char number[ND_NUMBER_BYTES];
    nd_table_add(table, nd_format_short(value, number));
}

static void add_titles(struct nd_table *table, const char *const *titles)
{
    for (size_t i = 0; i < table->n_columns; i++)
        nd_table_add(table, titles[i]);
}

static void put_table(const struct nd_text_report *report, struct nd_table *table, const char *title)
{
    if (table->n_cells > table->n_columns) {
        nd_strbuf_puts(report->out, title);
        nd_table_render(table, report->out);
    }
    report->out->failed = report->out->failed || table->failed;
    nd_table_deinit(table);
}

static void add_integer_row(struct nd_table *table, const struct nd_difference *d)
{
    for (size_t i = 0; i < ND_LSB_BUCKETS; i++)
        add_count(table, d->lsb_histogram[i]);
    add_short(table, d->mean_lsb);
    add_short(table, d->signed_mean_lsb);
    add_short(table, d->max_abs);
}

static void add_float_row(struct nd_table *table, const struct nd_difference *d)
{
    char number[ND_NUMBER_BYTES];
    add_count(table, d->n_differing);
    nd_table_add(table, nd_format_count(d->max_ulp, number));
    add_short(table, d->max_abs);
    add_short(table, d->mean_abs);
    add_count(table, d->n_nan_mismatch + d->n_nan_payload);
    add_count(table, d->n_inf_mismatch);
    add_count(table, d->n_zero_sign);
}

static void add_rows(const struct nd_text_report *report, struct nd_table *table, bool is_integer)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t e = 0; e < c->n_edges; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->edges[e].pairs[t - 1].total.difference;
            if (!is_detailed(c, e, t) || d->is_integer != is_integer)
                continue;
            nd_table_add(table, c->edges[e].name);
            nd_table_add(table, c->devices[t].label);
            if (is_integer)
                add_integer_row(table, d);
            else
                add_float_row(table, d);
        }
}

void nd_text_magnitudes(const struct nd_text_report *report)
{
    static const char *const integer_titles[] = {"edge", "device", "<-3", "-3",  "-2",   "-1",     "0",
                                                 "+1",   "+2",     "+3",  ">+3", "mean", "signed", "max real"};
    static const char *const float_titles[] = {"edge",     "device", "differing", "max ulp", "max abs",
                                               "mean abs", "NaN",    "Inf",       "+0/-0"};
    struct nd_table integers = {.n_columns = 14, .is_left = {true, true}};
    struct nd_table floats = {.n_columns = 9, .is_left = {true, true}};
    integers.max_width[0] = floats.max_width[0] = 32;
    add_titles(&integers, integer_titles);
    add_titles(&floats, float_titles);
    add_rows(report, &integers, true);
    add_rows(report, &floats, false);
    put_table(report, &integers,
              "\nLSB differences (test - ref) at model outputs and where a difference begins:\n");
    put_table(report, &floats, "\nfloat differences at model outputs and where a difference begins:\n");
}

static void put_labelled(const struct nd_text_report *report, const struct nd_top1 *row)
{
    static const char *const titles[] = {"device",      "correct",     "top-1", "agree", "right>wrong",
                                         "wrong>right", "wrong>other", "p",     "at 5 %"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 9, .is_left = {true, [8] = true}};
    char text[ND_NUMBER_BYTES];
    nd_strbuf_puts(report->out, "\ntop-1 at ");
    nd_text_put_clean(report->out, c->edges[row->edge].name);
    nd_strbuf_puts(report->out, ", probe '");
    nd_text_put_clean(report->out, c->probes[row->probe].name);
    nd_strbuf_puts(report->out, "' (p: two-sided mid-p McNemar of right>wrong against wrong>right):\n");
    add_titles(&table, titles);
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_top1_device *device = &row->devices[i];
        const struct nd_top1_pair *pair = i > 0 && row->pairs[i - 1].exists ? &row->pairs[i - 1] : NULL;
        nd_table_add(&table, c->devices[i].label);
        if (device->exists)
            nd_table_addf(&table, "%zu/%zu", device->n_correct, device->n_samples);
        else
            nd_table_add(&table, "no values");
        nd_table_add(&table, device->exists ? nd_format_share(device->n_correct, device->n_samples, text) : "");
        nd_table_add(&table, pair != NULL ? nd_format_share(pair->n_agree, pair->n_samples, text) : "");
        for (size_t k = 4; k < table.n_columns && pair == NULL; k++)
            nd_table_add(&table, "");
        if (pair == NULL)
            continue;
        add_count(&table, pair->n_lost);
        add_count(&table, pair->n_gained);
        add_count(&table, pair->n_changed_wrong);
        add_short(&table, pair->p_value);
        nd_table_add(&table, pair->is_significant ? "significant" : "not significant");
    }
    put_table(report, &table, "");
}

/* Rows without labels: one table for all of them, with the pairs that do not agree everywhere. */
static void put_unlabelled(const struct nd_text_report *report)
{
    static const char *const titles[] = {"output", "probe", "device", "samples", "agree", ""};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 6, .is_left = {true, true, true, [5] = true}, .max_width = {32, 24}};
    char text[ND_NUMBER_BYTES];
    size_t n_rows = 0;
    add_titles(&table, titles);
    for (size_t i = 0; i < c->n_top1; i++) {
        const struct nd_top1 *row = &c->top1[i];
        for (size_t t = 1; t < c->n_devices && !row->has_labels; t++) {
            const struct nd_top1_pair *pair = &row->pairs[t - 1];
            n_rows += pair->exists;
            if (!pair->exists ||
                (pair->n_agree == pair->n_samples && !report->all_edges && row->labels_missing_reason == NULL))
                continue;
            nd_table_add(&table, c->edges[row->edge].name);
            nd_table_add(&table, c->probes[row->probe].name);
            nd_table_add(&table, c->devices[t].label);
            nd_table_addf(&table, "%zu", pair->n_samples);
            nd_table_add(&table, nd_format_share(pair->n_agree, pair->n_samples, text));
            nd_table_add(&table, row->labels_missing_reason != NULL ? row->labels_missing_reason : "");
        }
    }
    bool has_lines = table.n_cells > table.n_columns;
    put_table(report, &table, "\ntop-1 agreement with the reference (without labels):\n");
    if (n_rows > 0 && !has_lines)
        nd_strbuf_puts(report->out, "\ntop-1 agreement with the reference (without labels): 100% everywhere\n");
}

void nd_text_top1(const struct nd_text_report *report)
{
    for (size_t i = 0; i < report->comparison->n_top1; i++)
        if (report->comparison->top1[i].has_labels)
            put_labelled(report, &report->comparison->top1[i]);
    put_unlabelled(report);
}
