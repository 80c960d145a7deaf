#include "report/text/format.h"
#include "report/text/compare.h"

static void put_labelled(const struct nd_text_report *report, const struct nd_top1 *row)
{
    static const char *const titles[] = {"device",      "correct",     "top-1", "agree", "right>wrong",
                                         "wrong>right", "wrong>other", "p",     "at 5 %"};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 9, .is_left = {true, [8] = true}, .max_width = {ND_TEXT_LABEL_MAX}};
    char text[ND_NUMBER_BYTES];
    struct nd_strbuf title = {0};
    nd_strbuf_printf(&title,
                     "\ntop-1 at %s, probe '%s' (p: two-sided mid-p McNemar of right>wrong against "
                     "wrong>right):",
                     c->edges[row->edge].name, c->probes[row->probe].name);
    nd_text_add_titles(&table, titles);
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
        nd_text_add_count(&table, pair->n_lost);
        nd_text_add_count(&table, pair->n_gained);
        nd_text_add_count(&table, pair->n_changed_wrong);
        nd_text_add_short(&table, pair->p_value);
        nd_table_add(&table, pair->is_significant ? "significant" : "not significant");
    }
    nd_text_put_table(report, &table, table.n_columns, 1, title.text != NULL ? title.text : "");
    report->out->failed = report->out->failed || title.failed;
    nd_strbuf_deinit(&title);
}

/* "zeros", "ramp": of the probes without labels; which they are must be said, since others have theirs. */
static void put_unlabelled_title(const struct nd_text_report *report, struct nd_strbuf *title)
{
    const struct nd_comparison *c = report->comparison;
    const char *comma = "";
    nd_strbuf_puts(title, "\ntop-1 agreement with the reference, probes without labels (");
    for (size_t p = 0; p < c->n_probes; p++) {
        bool is_unlabelled = false;
        for (size_t i = 0; i < c->n_top1; i++)
            is_unlabelled = is_unlabelled || (c->top1[i].probe == p && !c->top1[i].has_labels);
        if (!is_unlabelled)
            continue;
        nd_strbuf_printf(title, "%s'%s'", comma, c->probes[p].name);
        comma = ", ";
    }
    nd_strbuf_puts(title, "):");
}

/* Rows without labels: one table for all of them, with the pairs that do not agree everywhere. */
static void put_unlabelled(const struct nd_text_report *report)
{
    static const char *const titles[] = {"output", "probe", "device", "samples", "agree", ""};
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 6,
                             .is_left = {true, true, true, [5] = true},
                             .max_width = {ND_TEXT_NAME_MAX, 24, ND_TEXT_LABEL_MAX}};
    char text[ND_NUMBER_BYTES];
    size_t n_rows = 0;
    nd_text_add_titles(&table, titles);
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
    struct nd_strbuf title = {0};
    put_unlabelled_title(report, &title);
    if (n_rows > 0 && !has_lines)
        nd_strbuf_puts(&title, " 100% everywhere");
    nd_text_put_table(report, &table, table.n_columns, 3, title.text != NULL ? title.text : "");
    if (n_rows > 0 && !has_lines && title.text != NULL) {
        nd_strbuf_puts(report->out, "\n");
        nd_text_put_wrapped(report, title.text + 1, 2);
        nd_strbuf_puts(report->out, "\n");
    }
    report->out->failed = report->out->failed || title.failed;
    nd_strbuf_deinit(&title);
}

void nd_text_top1(const struct nd_text_report *report)
{
    for (size_t i = 0; i < report->comparison->n_top1; i++)
        if (report->comparison->top1[i].has_labels)
            put_labelled(report, &report->comparison->top1[i]);
    put_unlabelled(report);
}
