#include <math.h>
#include <stdio.h>

#include "report/text/format.h"
#include "report/text/summary.h"
#include "report/text/compare.h"

static const char *or_dash(const char *text)
{
    return text[0] != '\0' ? text : "-";
}

static void put_number(struct nd_strbuf *out, size_t n, const char *what, const char *end)
{
    nd_strbuf_printf(out, "%zu %s%s%s", n, what, n == 1 ? "" : "s", end);
}

/* Only where something fell back: everything on the NPU is what was asked for. */
static void put_npu_share(const struct nd_text_report *report, const struct nd_compared_device *device)
{
    const struct nd_npu_share *share = &device->npu_share;
    size_t n = share->n_npu + share->n_off;
    if (!device->is_npu || share->n_off == 0)
        return;
    char time[48] = "";
    if (!isnan(share->time))
        snprintf(time, sizeof time, ", %.3g %% of the time", 100 * share->time);
    nd_summary_put(report->out, report->width, 2, 4,
                   "%s: %zu of %zu operators (%.3g %%)%s on the NPU; 'npudiff placement' says which not",
                   device->label, share->n_npu, n, 100 * share->nodes, time);
}

/* Only where options differ that are known to change bits. */
static void put_configuration(const struct nd_text_report *report, const struct nd_compared_device *device)
{
    if (device->configuration == NULL || device->configuration[0] == '\0')
        return;
    nd_summary_put(report->out, report->width, 2, 4,
                   "%s is configured differently from '%s', in what is known to change bits: %s", device->label,
                   report->comparison->devices[device->configured_as].label, device->configuration);
}

/* What the captures leave open, so that nobody takes "same" for more than it says. */
static void put_unknown(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    if (c->unknown_models)
        nd_summary_put(report->out, report->width, 2, 4, "%s",
                       "note: not every capture says of which model it is; tensors are matched by name alone");
    if (c->unknown_inputs)
        nd_summary_put(report->out, report->width, 2, 4, "%s",
                       "note: not every capture says what it was fed; the inputs are taken to be the same");
}

void nd_text_devices(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_samples = 0;
    for (size_t p = 0; p < c->n_probes; p++)
        n_samples += c->probes[p].n_samples;
    put_number(report->out, c->n_devices, "device", ", ");
    put_number(report->out, c->n_edges, "tensor", "");
    if (c->n_edges_left_out > 0)
        nd_strbuf_printf(report->out, " of %zu", c->n_edges + c->n_edges_left_out);
    nd_strbuf_puts(report->out, ", ");
    put_number(report->out, c->n_probes, "probe", ", ");
    put_number(report->out, n_samples, "sample", c->different_models ? " (of different models)\n\n" : "\n\n");
    struct nd_table table = {.n_columns = 7,
                             .is_left = {true, true, true, true, false, true, true},
                             .max_width = {ND_TEXT_LABEL_MAX, 16, 28}};
    static const char *const titles[] = {"device", "chipset", "runtime", "status", "samples", "", "capture"};
    nd_text_add_titles(&table, titles);
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
    nd_text_put_table(report, &table, table.n_columns, 1, "");
    nd_text_device_notes(report);
    nd_text_failures(report);
}

void nd_text_device_notes(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    put_unknown(report);
    for (size_t i = 0; i < c->n_devices; i++)
        put_npu_share(report, &c->devices[i]);
    for (size_t i = 0; i < c->n_devices; i++)
        put_configuration(report, &c->devices[i]);
}

void nd_text_failures(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    for (size_t i = 0; i < c->n_devices; i++) {
        if (c->devices[i].status != ND_CAPTURE_FAILED)
            continue;
        nd_strbuf_puts(report->out, "  ");
        nd_text_put_wrapped(report, c->devices[i].label, 4);
        nd_strbuf_puts(report->out, " failed");
        nd_strbuf_puts(report->out, c->devices[i].failure[0] != '\0' ? ": " : "");
        nd_text_put_wrapped(report, c->devices[i].failure, 4);
        nd_strbuf_puts(report->out, "\n");
    }
}
