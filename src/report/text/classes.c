#include "report/text/format.h"
#include "report/text/compare.h"

static void put_classes(const struct nd_text_report *report, const char *title, const char *classes)
{
    enum { INDENT = 26 };
    nd_strbuf_printf(report->out, "\n%-*s", INDENT, title);
    nd_text_put_wrapped(report, classes, INDENT);
}

/* "gen5: 2 of 4 tensors, gen1: 1 of 4 tensors": where one device stands against all others. */
static void put_odd_ones(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_strbuf line = {0};
    for (size_t i = 0; i < c->n_devices; i++) {
        size_t n = 0;
        for (size_t e = 0; e < c->n_edges; e++)
            n += c->edges[e].odd_one_out == i;
        if (n == 0 && c->odd_one_out != i)
            continue;
        nd_strbuf_printf(&line, "%s%s (", line.len > 0 ? ", " : "", c->devices[i].label);
        if (c->odd_one_out == i)
            nd_strbuf_puts(&line, "all others agree on every tensor; ");
        nd_strbuf_printf(&line, "alone on %zu of %zu tensors)", n, c->n_edges);
    }
    if (line.len > 0)
        put_classes(report, "odd one out:", line.text);
    report->out->failed = report->out->failed || line.failed;
    nd_strbuf_deinit(&line);
}

void nd_text_classes(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    bool has_short = false;
    put_classes(report, c->n_edges_left_out > 0 ? "bit-equal, these tensors:" : "bit-equal, all tensors:",
                c->classes_text);
    put_classes(report, "bit-equal, model outputs:", c->output_classes_text);
    put_odd_ones(report);
    nd_strbuf_puts(report->out, "\n");
    for (size_t i = 0; i < c->n_devices; i++)
        has_short = has_short ||
                    (c->devices[i].class_id >= 0 && c->devices[i].n_samples < c->devices[i].n_samples_expected);
    if (has_short)
        nd_strbuf_puts(report->out, "  * judged by the samples it has: the device stopped early\n");
}

static void put_edge(struct nd_strbuf *out, const struct nd_compared_edge *edge)
{
    nd_strbuf_puts(out, edge->name);
    if (edge->op_types[0] != '\0')
        nd_strbuf_printf(out, " (%s)", edge->op_types);
}

static void put_place(const struct nd_comparison *c, const struct nd_compared_edge *edge, size_t test,
                      struct nd_strbuf *out)
{
    const struct nd_difference_place *first = &edge->pairs[test - 1].total.difference.first;
    nd_strbuf_printf(out, ": probe '%s', sample %zu", c->probes[first->probe].name, first->sample);
    if (!first->has_index) {
        nd_strbuf_puts(out, ", element unknown (digests only)");
        return;
    }
    nd_strbuf_printf(out, ", element %zu", first->index);
    nd_text_put_coordinates(out, &edge->shape, first);
}

void nd_text_put_coordinates(struct nd_strbuf *out, const struct nd_shape *shape,
                             const struct nd_difference_place *place)
{
    for (int i = 0; i < shape->rank; i++)
        nd_strbuf_printf(out, "%s%lld%s", i == 0 ? " [" : ",", (long long)place->coordinates[i],
                         i == shape->rank - 1 ? "]" : "");
}

static void add_line(struct nd_table *table, struct nd_strbuf *line)
{
    nd_table_add(table, line->text != NULL ? line->text : "");
    table->failed = table->failed || line->failed;
    nd_strbuf_deinit(line);
}

static void put_from_reference(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}, .max_width = {ND_TEXT_LABEL_MAX}};
    for (size_t t = 1; t < c->n_devices; t++) {
        struct nd_strbuf line = {0};
        size_t first = c->devices[t].first_edge;
        if (first == SIZE_MAX) {
            nd_strbuf_puts(&line, c->devices[t].class_id < 0 ? "unknown: no data" : "none");
        } else {
            put_edge(&line, &c->edges[first]);
            put_place(c, &c->edges[first], t, &line);
        }
        nd_table_add(&table, c->devices[t].label);
        add_line(&table, &line);
    }
    nd_strbuf_puts(report->out, "\nfirst difference from ");
    nd_text_put_wrapped(report, c->devices[0].label, 2);
    nd_strbuf_puts(report->out, ", in graph order:\n");
    nd_text_put_table(report, &table, 0, 1, "");
}

static void put_members(const struct nd_comparison *c, int class_id, struct nd_strbuf *out)
{
    bool is_first = true;
    for (size_t i = 0; i < c->n_devices; i++) {
        if (c->devices[i].class_id != class_id)
            continue;
        nd_strbuf_printf(out, "%s%s", is_first ? "" : " = ", c->devices[i].label);
        is_first = false;
    }
}

/* Where two classes of tests part. Where the reference's class parts from another is the first difference of
 * that one, and has been said. */
static void put_partings(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}, .max_width = {report->width / 2}};
    size_t n = 0;
    for (size_t i = 0; i < c->n_partings; i++) {
        const struct nd_parting *parting = &c->partings[i];
        struct nd_strbuf classes = {0}, edge = {0};
        bool is_with_reference = parting->device_a == 0 || parting->device_b == 0;
        if (is_with_reference || n++ >= nd_text_list_limit(report))
            continue;
        put_members(c, parting->class_a, &classes);
        nd_strbuf_puts(&classes, " | ");
        put_members(c, parting->class_b, &classes);
        if (parting->edge != SIZE_MAX)
            put_edge(&edge, &c->edges[parting->edge]);
        else
            nd_strbuf_puts(&edge, "where one has no data");
        add_line(&table, &classes);
        add_line(&table, &edge);
    }
    nd_text_put_table(report, &table, 0, 1,
                      "\nwhere captures begin to differ from each other, in graph order:");
    nd_text_put_more(report, n);
}

void nd_text_first_differences(const struct nd_text_report *report)
{
    if (report->comparison->first_edge == SIZE_MAX)
        return;
    put_from_reference(report);
    put_partings(report);
}
