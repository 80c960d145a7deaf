/* Where the model ran: devices and what they were configured with, operators, parts of the graph and the cuts
 * between them, and latencies. */
#include <math.h>
#include <string.h>

#include "core/files/file.h"
#include "report/html/html.h"

/* Latencies: one row for each series, and its runs in their order. The strips are drawn here; scripts let a
 * reader zoom into them. */

enum { STRIP_WIDTH = 900, STRIP_HEIGHT = 90, MAX_POINTS = 2000 };

/* ---- the table ---- */

static void put_us(struct nd_page *page, const json_t *object, const char *key)
{
    char buf[ND_HTML_TEXT_BYTES];
    double us = nd_doc_number(object, key);
    nd_html_cell_number(page, isnan(us) ? "" : nd_html_real(us, buf), us);
}

static void put_row(struct nd_page *page, const json_t *series)
{
    char buf[ND_HTML_TEXT_BYTES];
    const json_t *timed = nd_doc_get(series, "timed");
    const char *verdict = nd_doc_text(series, "verdict");
    double runs = nd_doc_number(series, "runs"), cv = nd_doc_number(timed, "cv");
    nd_html_fill(page, "<tr><th scope=\"row\">$n</th><td>$n</td><td>",
                 nd_path_base(nd_doc_text(series, "file")), nd_doc_text(series, "probe"));
    nd_html_badge(page, nd_doc_is(series, "is_suspect") ? "note" : nd_html_state(verdict), verdict);
    nd_html_puts(page, "</td>");
    nd_html_cell_number(page, nd_html_count(runs, buf), runs);
    put_us(page, timed, "median_us");
    put_us(page, timed, "p90_us");
    put_us(page, timed, "p99_us");
    put_us(page, timed, "max_us");
    nd_html_cell_number(page, isnan(cv) ? "" : nd_html_percent(cv, buf), cv);
    const json_t *modes = nd_doc_get(series, "modes");
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES];
    const json_t *mode;
    size_t i;
    nd_html_puts(page, "<td>");
    json_array_foreach(modes, i, mode)
        nd_html_printf(page, "%s%s of the runs at %s &micro;s", i > 0 ? ", " : "",
                       nd_html_percent(nd_doc_number(mode, "weight"), a),
                       nd_html_real(nd_doc_number(mode, "median_us"), b));
    nd_html_puts(page, "</td>");
    nd_html_puts(page, "</tr>\n");
}

static void put_table(struct nd_page *page, const json_t *list)
{
    const json_t *series;
    size_t i;
    nd_html_scroll(page, "Latency", false);
    nd_html_puts(page,
                 "<table class=\"sortable\"><caption>Latency of the runs after the warm-up, in &micro;s. "
                 "Spread: standard deviation over mean. Modes: the speeds, where the runs have two.</caption>");
    nd_html_heads(page, "Series|Probe|Verdict|#Runs|#Median|#90 %|#99 %|#Longest|#Spread|Modes");
    json_array_foreach(list, i, series)
        put_row(page, series);
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* ---- strips ---- */

/* What the strip shows goes up to here: a few runs that take far longer would press all others to the bottom.
 */
static double top_of(const json_t *series)
{
    const json_t *timed = nd_doc_get(series, "timed");
    double p99 = nd_doc_number(timed, "p99_us"), max = nd_doc_number(timed, "max_us");
    return max > 1.5 * p99 ? 1.5 * p99 : max; /* 1.5: chosen */
}

static void put_level(struct nd_page *page, double us, double top, const char *class)
{
    if (us > 0 && us < top)
        nd_html_printf(page, "<line class=\"%s\" x1=\"0\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>", class,
                       STRIP_WIDTH, STRIP_HEIGHT * (1 - us / top), STRIP_HEIGHT * (1 - us / top));
}

static void put_strip(struct nd_page *page, const json_t *series, const char *prefix, size_t s)
{
    const json_t *runs = nd_doc_get(series, "runs_us"), *run, *mode;
    size_t i, n = json_array_size(runs) < MAX_POINTS ? json_array_size(runs) : MAX_POINTS;
    char buf[ND_HTML_TEXT_BYTES];
    double top = top_of(series);
    nd_html_printf(page, "<figure class=\"strip\" data-series=\"%s%zu\" data-top=\"%.6g\" data-modes=\"",
                   prefix, s, top);
    json_array_foreach(nd_doc_get(series, "modes"), i, mode)
        nd_html_printf(page, "%s%.6g", i > 0 ? " " : "", nd_doc_number(mode, "median_us"));
    nd_html_fill(page, "\"><figcaption>$n", nd_path_base(nd_doc_text(series, "file")));
    nd_html_printf(page,
                   " <span class=\"op\">%zu runs in their order, from 0 to %s &micro;s</span></figcaption><svg "
                   "viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\" "
                   "focusable=\"false\"><path class=\"runs\" d=\"",
                   n, nd_html_real(top, buf), STRIP_WIDTH, STRIP_HEIGHT);
    json_array_foreach(runs, i, run) {
        double us = nd_doc_value(run);
        if (i >= n || !(us > 0))
            continue;
        double y = us < top ? STRIP_HEIGHT * (1 - us / top) : 0;
        nd_html_printf(page, "M%.1f %.1fh1", (double)i * STRIP_WIDTH / (double)n, y);
    }
    nd_html_puts(page, "\"/>");
    json_array_foreach(nd_doc_get(series, "modes"), i, mode)
        put_level(page, nd_doc_number(mode, "median_us"), top, "mode");
    nd_html_puts(page, "</svg></figure>\n");
}

static void put_data(struct nd_json *data, const json_t *list)
{
    const json_t *series, *run;
    size_t i, k;
    nd_json_open_line(data, "latency", '[');
    json_array_foreach(list, i, series) {
        nd_json_open_line(data, NULL, '[');
        json_array_foreach(nd_doc_get(series, "runs_us"), k, run) {
            double us = nd_doc_value(run);
            if (k < MAX_POINTS)
                nd_json_real_if(data, NULL, isfinite(us), us);
        }
        nd_json_close(data, ']');
    }
    nd_json_close(data, ']');
}

static void put_latency(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *list = nd_doc_get(part->documents[ND_PAGE_LATENCY], "series"), *series;
    size_t i;
    bool has_runs = false;
    nd_html_puts(page, "<h3>Latency</h3>\n");
    if (json_array_size(list) == 0) {
        nd_html_absent(page, "Latencies are not in this report. They are in one of their own:",
                       "npudiff latency TEST.h5 --report latency.html");
        return;
    }
    put_table(page, list);
    json_array_foreach(list, i, series) {
        if (json_array_size(nd_doc_get(series, "runs_us")) > 1 && top_of(series) > 0) {
            put_strip(page, series, part->prefix, i);
            has_runs = true;
        }
    }
    if (has_runs) {
        put_data(&page->data, list);
        page->has_chart = true;
    }
}

enum { MAX_PIECES = 100 };

/* ---- environment ---- */

/* An identifier, which is not broken into lines. */
static void put_short_cell(struct nd_page *page, const char *text)
{
    nd_html_puts(page, strlen(text) <= 24 ? "<td class=\"short\">" : "<td>");
    nd_html_fill(page, "$t</td>", text);
}

/* ---- placement ---- */

static void put_device_heads(struct nd_page *page, const json_t *devices)
{
    const json_t *device;
    size_t d;
    json_array_foreach(devices, d, device) {
        nd_html_fill(page, "<th scope=\"col\">$n</th>", nd_doc_device_label(device));
    }
}

static const char *cell_state(const char *text)
{
    if (strcmp(text, "NPU") == 0)
        return "npu";
    return strcmp(text, "failed") == 0 ? "failed" : strcmp(text, "unknown") == 0 ? "x" : "off";
}

static void put_operators(struct nd_page *page, const json_t *placement)
{
    const json_t *devices = nd_doc_get(placement, "devices"), *row, *cell;
    char buf[ND_HTML_TEXT_BYTES];
    size_t i, d;
    nd_html_scroll(page, "Operators", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Where each operator ran. &ldquo;3 of 4&rdquo;: so "
                       "many nodes ran on the NPU.</caption>\n<thead><tr><th scope=\"col\">Operator</th><th "
                       "scope=\"col\" class=\"n\">Nodes</th>");
    put_device_heads(page, devices);
    nd_html_puts(page, "</tr></thead>\n<tbody>\n");
    json_array_foreach(nd_doc_get(placement, "operators"), i, row) {
        double n = nd_doc_number(row, "count");
        nd_html_fill(page, "<tr><th scope=\"row\">$t</th>", nd_doc_text(row, "op_type"));
        nd_html_cell_number(page, nd_html_count(n, buf), n);
        json_array_foreach(nd_doc_get(row, "cells"), d, cell) {
            const char *text = json_string_value(cell) != NULL ? json_string_value(cell) : "";
            nd_html_printf(page, "<td class=\"%s\">", cell_state(text));
            nd_html_fill(page, "$t</td>", text);
        }
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_us_and_bytes(struct nd_page *page, const json_t *piece)
{
    char buf[ND_HTML_TEXT_BYTES];
    double us = nd_doc_number(piece, "us"), flops = nd_doc_number(piece, "flops");
    nd_html_cell_number(page, isnan(us) ? "" : nd_html_real(us, buf), us);
    nd_html_cell_number(page, isnan(flops) ? "" : nd_html_count(flops, buf), flops);
}

/* What goes over from this piece to others. */
static void put_cuts(struct nd_page *page, const json_t *device, size_t piece)
{
    const json_t *cut;
    char buf[ND_HTML_TEXT_BYTES];
    size_t i, n = 0;
    nd_html_puts(page, "<td>");
    json_array_foreach(nd_doc_get(device, "cuts"), i, cut) {
        if (nd_doc_index(cut, "from", SIZE_MAX) != piece)
            continue;
        nd_html_printf(page, "%sto part %.0f: %s bytes", n++ > 0 ? "; " : "", nd_doc_number(cut, "to") + 1,
                       nd_html_count(nd_doc_number(cut, "bytes"), buf));
    }
    nd_html_puts(page, "</td>");
}

static void put_pieces(struct nd_page *page, const json_t *device)
{
    const json_t *pieces = nd_doc_get(device, "pieces"), *piece;
    char buf[ND_HTML_TEXT_BYTES];
    size_t i;
    nd_html_fill(page, "<details><summary>Parts of the graph on $n", nd_doc_device_label(device));
    nd_html_printf(page, " <span class=\"op\">%zu</span></summary>", json_array_size(pieces));
    nd_html_scroll(page, "Parts of the graph", false);
    nd_html_puts(
        page,
        "<table><caption>Nodes that ran together, in their order, and what passes between them</caption>");
    nd_html_heads(page, "#Part|Provider|#Nodes|From|To|#&micro;s a run|#FLOPs|Cuts");
    json_array_foreach(pieces, i, piece) {
        double n = nd_doc_number(piece, "n_nodes");
        if (i >= MAX_PIECES)
            break;
        nd_html_printf(page, "<tr><th scope=\"row\" class=\"n\">%zu</th>", i + 1);
        nd_html_cell(page, nd_doc_text(piece, "provider"));
        nd_html_cell_number(page, nd_html_count(n, buf), n);
        nd_html_fill(page, "<td>$n</td><td>$n</td>", nd_doc_text(piece, "first_node"),
                     nd_doc_text(piece, "last_node"));
        put_us_and_bytes(page, piece);
        put_cuts(page, device, i);
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div></details>\n");
}

static void put_fell_back(struct nd_page *page, const json_t *devices)
{
    const json_t *device, *problem;
    size_t d, i;
    json_array_foreach(devices, d, device) {
        double n = nd_doc_number(device, "n_fell_back");
        if (n > 0) {
            nd_html_fill(page, "<p class=\"warning\">$n", nd_doc_device_label(device));
            nd_html_printf(page, ": %.0f node%s that should run on the NPU did not.</p>\n", n,
                           n > 1 ? "s" : "");
        }
        json_array_foreach(nd_doc_get(device, "problems"), i, problem) {
            nd_html_fill(page, "<p class=\"warning\">$t</p>\n",
                         json_string_value(problem) != NULL ? json_string_value(problem) : "");
        }
    }
}

static void put_placement(struct nd_page *page, const json_t *placement)
{
    const json_t *devices = nd_doc_get(placement, "devices"), *device;
    size_t d;
    nd_html_puts(page, "<h3>Placement</h3>\n");
    put_fell_back(page, devices);
    put_operators(page, placement);
    json_array_foreach(devices, d, device) {
        if (json_array_size(nd_doc_get(device, "pieces")) > 0)
            put_pieces(page, device);
    }
}

void nd_view_where(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_COMPARISON], "devices");
    nd_html_section(page, part, "where", "Where it ran");
    if (json_array_size(devices) > 0) {
        const json_t *device;
        size_t d;
        nd_html_scroll(page, "Environment", false);
        nd_html_puts(page,
                     "<table class=\"sortable\"><caption>Environment. The last column has what is configured "
                     "otherwise than on the first device of the same kind, and can change results.</caption>");
        nd_html_heads(page, "Device|URI|Chipset|Runtime|Capture|State|Configured otherwise");
        json_array_foreach(devices, d, device) {
            nd_html_fill(page, "<tr><th scope=\"row\">$n</th><td>$n</td>", nd_doc_device_label(device),
                         nd_doc_text(device, "uri"));
            put_short_cell(page, nd_doc_text(device, "chipset"));
            put_short_cell(page, nd_doc_text(device, "runtime"));
            nd_html_fill(page, "<td>$n</td>", nd_doc_text(device, "capture"));
            nd_html_cell(page, nd_doc_text(device, "status"));
            nd_html_cell(page, nd_doc_text(device, "configuration"));
            nd_html_puts(page, "</tr>\n");
        }
        nd_html_puts(page, "</tbody></table></div>\n");
    }
    if (part->documents[ND_PAGE_PLACEMENT] != NULL)
        put_placement(page, part->documents[ND_PAGE_PLACEMENT]);
    else
        nd_html_absent(page, "Which nodes ran on the NPU is not in this report. It is when the model is given:",
                       "npudiff placement MODEL.onnx TEST.h5 --report placement.html");
    put_latency(page, part);
    nd_html_section_end(page);
}
