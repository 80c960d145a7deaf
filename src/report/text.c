#include "report/text.h"

#include <stdlib.h>

#include "base/error.h"
#include "report/format.h"

enum { DEFAULT_WIDTH = 120, MIN_WIDTH = 80 };

void nd_text_put_clean(struct nd_strbuf *out, const char *text)
{
    char *clean = nd_clean_text(text);
    if (clean == NULL)
        out->failed = true;
    else
        nd_strbuf_puts(out, clean);
    free(clean);
}

/* Edges with at least one pair of that verdict. */
static size_t count_edges(const struct nd_comparison *c, enum nd_verdict verdict)
{
    size_t n = 0;
    for (size_t e = 0; e < c->n_edges; e++) {
        bool has_one = false;
        for (size_t t = 1; t < c->n_devices; t++)
            has_one = has_one || c->edges[e].pairs[t - 1].verdict == verdict;
        n += has_one;
    }
    return n;
}

/* What a verdict means here, in one half sentence. */
static void put_explanation(const struct nd_text_report *report)
{
    const struct nd_comparison *c = report->comparison;
    size_t n_failed = 0;
    for (size_t i = 0; i < c->n_devices; i++)
        n_failed += c->devices[i].status == ND_CAPTURE_FAILED;
    const char *separator = " (";
    struct {
        size_t n;
        size_t of;
        const char *what;
    } parts[] = {
        {n_failed, c->n_devices, "devices failed"},
        {count_edges(c, ND_VERDICT_DIFFERS), c->n_edges,
         c->has_gates ? "edges fail their gate" : "edges differ"},
        {count_edges(c, ND_VERDICT_WITHIN), c->n_edges, "edges differ within their gate"},
        {count_edges(c, ND_VERDICT_NOT_COMPARABLE), c->n_edges, "edges not or only partly comparable"},
    };
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        if (parts[i].n == 0)
            continue;
        nd_strbuf_printf(report->out, "%s%zu of %zu %s", separator, parts[i].n, parts[i].of, parts[i].what);
        separator = "; ";
    }
    if (separator[0] == ' ')
        nd_strbuf_printf(report->out, " (all %zu edges are bit-equal on all %zu devices", c->n_edges,
                         c->n_devices);
    nd_strbuf_puts(report->out, ")\n");
}

enum nd_status nd_report_text(const struct nd_comparison *comparison, const struct nd_report_options *options,
                              char **out, struct nd_error *err)
{
    struct nd_strbuf buf = {0};
    struct nd_text_report report = {.comparison = comparison, .width = DEFAULT_WIDTH, .out = &buf};
    if (options != NULL) {
        report.all_edges = options->all_edges;
        if (options->width > 0)
            report.width = options->width > MIN_WIDTH ? options->width : MIN_WIDTH;
    }
    nd_text_devices(&report);
    nd_text_classes(&report);
    nd_text_first_differences(&report);
    nd_text_edges(&report);
    nd_text_gates(&report);
    nd_text_magnitudes(&report);
    nd_text_top1(&report);
    nd_text_problems(&report);
    nd_strbuf_printf(&buf, "\nverdict: %s", nd_verdict_name(comparison->verdict));
    put_explanation(&report);
    char *text = nd_strbuf_take(&buf);
    nd_strbuf_deinit(&buf);
    if (text == NULL)
        return nd_fail_memory(err);
    *out = text;
    return ND_OK;
}
