/* What the sections of the text of a comparison are made of: lists with a limit, wrapped text, tables and their
 * cells. */
#include "core/memory.h"
#include "report/text/compare.h"

#include "report/text/tree.h"

size_t nd_text_list_limit(const struct nd_text_report *report)
{
    return report->all_tensors ? SIZE_MAX : report->is_brief ? ND_TEXT_BRIEF_LINES : ND_TEXT_LIST_LINES;
}

void nd_text_put_more(const struct nd_text_report *report, size_t n)
{
    if (n > nd_text_list_limit(report))
        nd_strbuf_printf(report->out, "  and %zu more\n", n - nd_text_list_limit(report));
}

void nd_text_put_wrapped(const struct nd_text_report *report, const char *text, size_t indent)
{
    ND_FREED char *clean = nd_clean_text(text);
    if (clean == NULL)
        report->out->failed = true;
    else
        nd_wrap_append(report->out, clean, indent, report->width);
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

void nd_text_put_coordinates(struct nd_strbuf *out, const struct nd_shape *shape,
                             const struct nd_difference_place *place)
{
    for (int i = 0; i < shape->rank; i++)
        nd_strbuf_printf(out, "%s%lld%s", i == 0 ? " [" : ",", (long long)place->coordinates[i],
                         i == shape->rank - 1 ? "]" : "");
}

bool nd_text_is_detailed(const struct nd_comparison *comparison, size_t tensor, size_t test)
{
    const struct nd_compared_part *total = &comparison->tensors[tensor].pairs[test - 1].total;
    bool is_wanted =
        comparison->tensors[tensor].is_model_output || comparison->devices[test].first_tensor == tensor;
    return is_wanted && total->coverage != ND_COVERAGE_NONE && total->difference.has_values &&
           total->difference.n_differing > 0;
}

const char *nd_text_measure(const struct nd_measure *measure, const struct nd_difference *d,
                            char buf[static ND_NUMBER_BYTES])
{
    if (!nd_measure_is_known(measure, d))
        return "-";
    switch (measure->form) {
    case ND_MEASURED_COUNT:
        return nd_format_count(nd_measure_count(measure, d), buf);
    case ND_MEASURED_SHARE:
        return nd_format_share(d->n_differing, d->n_elems, buf);
    case ND_MEASURED_NEAR_ONE:
        return nd_format_near_one(nd_measure_value(measure, d), buf);
    case ND_MEASURED_REAL:
        break;
    }
    return nd_format_short(nd_measure_value(measure, d), buf);
}
