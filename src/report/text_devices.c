#include "report/format.h"
#include "report/table.h"
#include "report/text.h"

static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

static void put_number(struct nd_strbuf *out, size_t n, const char *what, const char *end)
{
    nd_strbuf_printf(out, "%zu %s%s%s", n, what, n == 1 ? "" : "s", end);
}

void nd_text_devices(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_samples = 0;
    for (size_t p = 0; p < c->n_probes; p++)
        n_samples += c->probes[p].n_samples;
    put_number(report->out, c->n_devices, "device", ", ");
    put_number(report->out, c->n_edges, "edge", ", ");
    put_number(report->out, c->n_probes, "probe", ", ");
    put_number(report->out, n_samples, "sample", c->different_models ? " (of different models)\n\n" : "\n\n");
    struct nd_table table = {.n_columns = 7, .is_left = {true, true, true, true, false, true, true}};
    static const char *const titles[] = {"device", "chipset", "runtime", "status", "samples", "", "capture"};
    table.max_width[2] = 28;
    for (size_t i = 0; i < table.n_columns; i++)
        nd_table_add(&table, titles[i]);
    for (size_t i = 0; i < c->n_devices; i++) {
        const struct nd_compared_device *device = &c->devices[i];
        nd_table_add(&table, device->label);
        nd_table_add(&table, or_dash(device->chipset));
        nd_table_add(&table, or_dash(device->runtime));
        nd_table_add(&table, nd_capture_state_name(device->status));
        if (device->n_samples < device->n_samples_expected)
            nd_table_addf(&table, "%zu of %zu", device->n_samples, device->n_samples_expected);
        else
            nd_table_addf(&table, "%zu", device->n_samples);
        nd_table_add(&table, i == 0 ? "reference" : "");
        nd_table_add(&table, device->capture);
    }
    nd_table_render(&table, report->out);
    nd_table_deinit(&table);
    for (size_t i = 0; i < c->n_devices; i++) {
        if (c->devices[i].status != ND_CAPTURE_FAILED)
            continue;
        nd_strbuf_puts(report->out, "  ");
        nd_text_put_clean(report->out, c->devices[i].label);
        nd_strbuf_puts(report->out, " failed");
        nd_strbuf_puts(report->out, c->devices[i].failure[0] != '\0' ? ": " : "");
        nd_text_put_clean(report->out, c->devices[i].failure);
        nd_strbuf_puts(report->out, "\n");
    }
}

void nd_text_classes(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    bool has_short = false;
    nd_strbuf_puts(report->out, "\nbit-equal, all edges:     ");
    nd_text_put_clean(report->out, c->classes_text);
    nd_strbuf_puts(report->out, "\nbit-equal, model outputs: ");
    nd_text_put_clean(report->out, c->output_classes_text);
    nd_strbuf_puts(report->out, "\n");
    for (size_t i = 0; i < c->n_devices; i++)
        has_short = has_short ||
                    (c->devices[i].class_id >= 0 && c->devices[i].n_samples < c->devices[i].n_samples_expected);
    if (has_short)
        nd_strbuf_puts(report->out, "  * judged by the samples it has: the device stopped early\n");
}

static void put_place(const struct nd_text_report *report, const struct nd_compared_edge *edge, size_t test)
{
    const struct nd_difference_place *first = &edge->pairs[test - 1].total.difference.first;
    nd_strbuf_puts(report->out, ": probe '");
    nd_text_put_clean(report->out, report->comparison->probes[first->probe].name);
    nd_strbuf_printf(report->out, "', sample %zu", first->sample);
    if (!first->has_index) {
        nd_strbuf_puts(report->out, ", element unknown (digests only)");
        return;
    }
    nd_strbuf_printf(report->out, ", element %zu", first->index);
    for (int i = 0; i < edge->shape.rank; i++)
        nd_strbuf_printf(report->out, "%s%lld%s", i == 0 ? " [" : ",", (long long)first->coordinates[i],
                         i == edge->shape.rank - 1 ? "]" : "");
}

void nd_text_first_differences(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->first_edge == SIZE_MAX)
        return;
    nd_strbuf_puts(report->out, "\nfirst difference from ");
    nd_text_put_clean(report->out, c->devices[0].label);
    nd_strbuf_puts(report->out, ", in graph order:\n");
    struct nd_table table = {.n_columns = 2, .is_left = {true, true}};
    for (size_t t = 1; t < c->n_devices; t++) {
        struct nd_strbuf line = {0};
        struct nd_text_report part = {.comparison = c, .out = &line};
        size_t first = c->devices[t].first_edge;
        if (first == SIZE_MAX) {
            nd_strbuf_puts(&line, c->devices[t].class_id < 0 ? "unknown: no data" : "none");
        } else {
            nd_strbuf_puts(&line, c->edges[first].name);
            if (c->edges[first].op_types[0] != '\0')
                nd_strbuf_printf(&line, " (%s)", c->edges[first].op_types);
            put_place(&part, &c->edges[first], t);
        }
        nd_table_add(&table, c->devices[t].label);
        report->out->failed = report->out->failed || line.failed;
        nd_table_add(&table, line.text != NULL ? line.text : "");
        nd_strbuf_deinit(&line);
    }
    nd_table_render(&table, report->out);
    nd_table_deinit(&table);
}
