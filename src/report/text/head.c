/* The first lines of the default text of a comparison: the verdict, what was compared, where it ran. */
#include <stdio.h>
#include <stdlib.h>

#include "report/text/summary.h"
#include "report/text/compare.h"

static size_t count_groups(const struct nd_comparison *c)
{
    int most = -1;
    for (size_t i = 0; i < c->n_devices; i++)
        most = c->devices[i].class_id > most ? c->devices[i].class_id : most;
    return (size_t)(most + 1);
}

/* Whether values differ, as far as values are stored. */
static bool is_different(const struct nd_difference *d)
{
    return d->has_values ? d->n_differing > 0 : d->n_samples_differing > 0;
}

size_t nd_text_count_differing(const struct nd_comparison *c, size_t test, bool is_failing)
{
    size_t n = 0;
    for (size_t e = 0; e < c->n_edges; e++) {
        const struct nd_compared_pair *pair = &c->edges[e].pairs[test - 1];
        n += is_failing ? pair->verdict == ND_VERDICT_DIFFERS && !pair->is_unrecorded_input
                        : is_different(&pair->total.difference);
    }
    return n;
}

/* Codes on one side, the floats of the same codes on the other. */
static bool is_dequantised(const struct nd_comparison *c)
{
    bool is_mixed = false;
    for (size_t t = 1; t < c->n_devices; t++) {
        if (nd_text_count_differing(c, t, false) > 0)
            return false;
        for (size_t e = 0; e < c->n_edges; e++)
            is_mixed = is_mixed || c->edges[e].pairs[t - 1].total.difference.is_mixed;
    }
    return is_mixed;
}

static void say_equal(const struct nd_comparison *c, struct nd_strbuf *out)
{
    size_t e = 0;
    while (e < c->n_edges && c->edges[e].comparable)
        e++;
    if (is_dequantised(c))
        nd_strbuf_puts(out, "SAME: all tensors are equal after dequantisation");
    else if (c->verdict == ND_VERDICT_SAME)
        nd_strbuf_printf(out,
                         c->n_devices == 2 ? "SAME: %s equal in every bit on both devices"
                                           : "SAME: %s equal in every bit on all %zu devices",
                         e < c->n_edges    ? "all tensors that could be compared are"
                         : c->n_edges == 1 ? "the one tensor is"
                                           : "all tensors are",
                         c->n_devices);
    else
        nd_strbuf_puts(out, "OK: every value is within its gate");
}

static void put_headline(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_strbuf line = {0};
    size_t n_failed = 0;
    for (size_t i = 0; i < c->n_devices; i++)
        n_failed += c->devices[i].status == ND_CAPTURE_FAILED;
    switch (c->verdict) {
    case ND_VERDICT_SAME:
    case ND_VERDICT_WITHIN:
        say_equal(c, &line);
        break;
    case ND_VERDICT_INCONCLUSIVE:
        nd_strbuf_printf(&line, "INCONCLUSIVE: %s", nd_text_why_inconclusive(c));
        break;
    case ND_VERDICT_DIFFERS:
        nd_strbuf_puts(&line, c->has_gates ? "DIFFERS: values are outside their gates" : "DIFFERS");
        break;
    case ND_VERDICT_NOT_COMPARABLE:
        nd_text_say_what_is_shared(c, &line);
        break;
    case ND_VERDICT_FAILED:
        nd_strbuf_printf(&line, "FAILED: %zu of %zu devices failed", n_failed, c->n_devices);
        break;
    }
    size_t n_groups = count_groups(c);
    if (n_groups > 1 && c->verdict != ND_VERDICT_SAME && c->verdict != ND_VERDICT_INCONCLUSIVE &&
        !is_dequantised(c))
        nd_strbuf_printf(&line, "%s %zu captures give %zu different results: %s",
                         c->verdict == ND_VERDICT_DIFFERS && !c->has_gates ? ":"
                         : c->verdict == ND_VERDICT_NOT_COMPARABLE         ? ". What they share DIFFERS:"
                                                                           : ".",
                         c->n_devices, n_groups, c->classes_text);
    report->out->failed = report->out->failed || line.failed;
    nd_summary_put(report->out, report->width, 0, 2, "%s", line.text != NULL ? line.text : "");
    nd_strbuf_deinit(&line);
}

/* What was compared with what. */
static void put_subject(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    struct nd_strbuf line = {0};
    size_t n_samples = 0, n_outputs = 0, output = 0;
    for (size_t p = 0; p < c->n_probes; p++)
        n_samples += c->probes[p].n_samples;
    for (size_t e = c->n_edges; e-- > 0;) {
        n_outputs += c->edges[e].is_model_output;
        output = c->edges[e].is_model_output ? e : output;
    }
    if (report->model != NULL)
        nd_strbuf_printf(&line, "%s: ", report->model);
    nd_strbuf_printf(&line, "%zu tensor%s, %zu sample%s", c->n_edges, c->n_edges == 1 ? "" : "s", n_samples,
                     n_samples == 1 ? "" : "s");
    if (c->n_probes == 1)
        nd_strbuf_printf(&line, " of '%s'", c->probes[0].name);
    if (n_outputs == 1)
        nd_strbuf_printf(&line, ", output '%s'", c->edges[output].name);
    nd_strbuf_printf(&line, ", %zu captures; the reference is '%s'", c->n_devices, c->devices[0].label);
    if (c->n_edges_left_out > 0)
        nd_strbuf_printf(&line, "; %zu tensor%s left out", c->n_edges_left_out,
                         c->n_edges_left_out == 1 ? " is" : "s are");
    if (c->different_models)
        nd_strbuf_puts(&line, "; of different models");
    report->out->failed = report->out->failed || line.failed;
    nd_summary_put(report->out, report->width, 0, 2, "%s", line.text != NULL ? line.text : "");
    nd_strbuf_deinit(&line);
}

/* Where it ran: simulated or real, and with which SDK. */
static void put_environments(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    const char **labels = calloc(2 * c->n_devices + 1, sizeof *labels);
    report->out->failed = report->out->failed || labels == NULL;
    for (size_t i = 0; i < c->n_devices && labels != NULL; i++) {
        labels[i] = c->devices[i].label;
        labels[c->n_devices + i] = c->devices[i].environment != NULL ? c->devices[i].environment : "";
    }
    if (labels != NULL)
        nd_summary_put_environments(report->out, report->width, labels, labels + c->n_devices, c->n_devices);
    free(labels);
}

void nd_text_head(const struct nd_text_report *report)
{
    put_headline(report);
    put_subject(report);
    put_environments(report);
}
