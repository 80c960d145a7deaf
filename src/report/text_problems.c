#include <string.h>

#include "report/table.h"
#include "report/text.h"

static size_t list_limit(const struct nd_text_report *report)
{
    return report->all_edges ? SIZE_MAX : ND_TEXT_LIST_LINES;
}

static void put_list(const struct nd_text_report *report, struct nd_table *table, const char *title,
                     size_t n_lines)
{
    if (table->n_cells > 0)
        nd_strbuf_puts(report->out, title);
    nd_table_render(table, report->out);
    nd_table_deinit(table);
    if (n_lines > list_limit(report))
        nd_strbuf_printf(report->out, "  and %zu more\n", n_lines - list_limit(report));
}

void nd_text_gates(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 4, .is_left = {true, true, true}, .max_width = {48}};
    size_t n = 0;
    for (size_t e = 0; e < c->n_edges && c->has_gates; e++)
        for (size_t t = 1; t < c->n_devices; t++) {
            const struct nd_difference *d = &c->edges[e].pairs[t - 1].total.difference;
            if (d->n_failing == 0 || n++ >= list_limit(report))
                continue;
            nd_table_add(&table, c->edges[e].name);
            nd_table_add(&table, c->edges[e].gate);
            nd_table_add(&table, c->devices[t].label);
            nd_table_addf(&table, "%llu of %llu", (unsigned long long)d->n_failing,
                          (unsigned long long)d->n_elems);
        }
    put_list(report, &table, "\nelements that fail their gate:\n", n);
}

/* The reason that all edges of a device share, or NULL. */
static const char *common_reason(const struct nd_comparison *c, size_t test)
{
    const char *common = NULL;
    if (c->devices[test].class_id < 0)
        return "the capture holds no data";
    for (size_t e = 0; e < c->n_edges; e++) {
        const char *reason = c->edges[e].pairs[test - 1].total.reason;
        if (reason == NULL || (common != NULL && strcmp(reason, common) != 0))
            return NULL;
        common = reason;
    }
    return common;
}

static void add_line(struct nd_table *table, const char *edge, const char *device, const char *reason)
{
    nd_table_add(table, edge);
    nd_table_add(table, device);
    nd_table_add(table, reason);
}

void nd_text_problems(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 3, .is_left = {true, true, true}, .max_width = {48}};
    size_t n = 0;
    for (size_t t = 1; t < c->n_devices; t++) {
        const char *common = common_reason(c, t);
        if (common != NULL) {
            if (n++ < list_limit(report))
                add_line(&table, "(all edges)", c->devices[t].label, common);
            continue;
        }
        for (size_t e = 0; e < c->n_edges; e++) {
            const char *reason = c->edges[e].pairs[t - 1].total.reason;
            if (reason != NULL && n++ < list_limit(report))
                add_line(&table, c->edges[e].name, c->devices[t].label, reason);
        }
    }
    put_list(report, &table, "\nnot or only partly comparable:\n", n);
}
