/* Where the model ran: devices and what they were configured with, operators, parts of the graph and the cuts
 * between them, and latencies. */
#include <math.h>
#include <string.h>

#include "report/html/html.h"

enum { MAX_PIECES = 100 };

/* ---- environment ---- */

/* An identifier, which is not broken into lines. */
static void put_short_cell(struct nd_page *page, const char *text)
{
    nd_html_puts(page, strlen(text) <= 24 ? "<td class=\"short\">" : "<td>");
    nd_html_text(page, text);
    nd_html_puts(page, "</td>");
}

static void put_environment(struct nd_page *page, const json_t *devices)
{
    const json_t *device;
    size_t d;
    nd_html_scroll(page, "Environment", false);
    nd_html_puts(page,
                 "<table class=\"sortable\"><caption>Environment. The last column has what is configured "
                 "otherwise than on the first device of the same kind, and can change results.</caption>");
    nd_html_heads(page, "Device|URI|Chipset|Runtime|Capture|State|Configured otherwise");
    json_array_foreach(devices, d, device)
    {
        nd_html_puts(page, "<tr><th scope=\"row\">");
        nd_html_name(page, nd_doc_device_label(device));
        nd_html_puts(page, "</th><td>");
        nd_html_name(page, nd_doc_text(device, ND_KEY_URI));
        nd_html_puts(page, "</td>");
        put_short_cell(page, nd_doc_text(device, ND_KEY_CHIPSET));
        put_short_cell(page, nd_doc_text(device, ND_KEY_RUNTIME));
        nd_html_puts(page, "<td>");
        nd_html_name(page, nd_doc_text(device, ND_KEY_CAPTURE));
        nd_html_puts(page, "</td>");
        nd_html_cell(page, nd_doc_text(device, ND_KEY_STATUS));
        nd_html_cell(page, nd_doc_text(device, ND_KEY_CONFIGURATION));
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* ---- placement ---- */

static void put_device_heads(struct nd_page *page, const json_t *devices)
{
    const json_t *device;
    size_t d;
    json_array_foreach(devices, d, device)
    {
        nd_html_puts(page, "<th scope=\"col\">");
        nd_html_name(page, nd_doc_device_label(device));
        nd_html_puts(page, "</th>");
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
    const json_t *devices = nd_doc_get(placement, ND_KEY_DEVICES), *row, *cell;
    char buf[ND_HTML_TEXT_BYTES];
    size_t i, d;
    nd_html_scroll(page, "Operators", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Where each operator ran. &ldquo;3 of 4&rdquo;: so "
                       "many nodes ran on the NPU.</caption>\n<thead><tr><th scope=\"col\">Operator</th><th "
                       "scope=\"col\" class=\"n\">Nodes</th>");
    put_device_heads(page, devices);
    nd_html_puts(page, "</tr></thead>\n<tbody>\n");
    json_array_foreach(nd_doc_get(placement, ND_KEY_OPERATORS), i, row)
    {
        double n = nd_doc_number(row, ND_KEY_COUNT);
        nd_html_puts(page, "<tr><th scope=\"row\">");
        nd_html_text(page, nd_doc_text(row, ND_KEY_OP_TYPE));
        nd_html_puts(page, "</th>");
        nd_html_cell_number(page, nd_html_count(n, buf), n);
        json_array_foreach(nd_doc_get(row, ND_KEY_CELLS), d, cell)
        {
            const char *text = json_string_value(cell) != NULL ? json_string_value(cell) : "";
            nd_html_printf(page, "<td class=\"%s\">", cell_state(text));
            nd_html_text(page, text);
            nd_html_puts(page, "</td>");
        }
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

static void put_us_and_bytes(struct nd_page *page, const json_t *piece)
{
    char buf[ND_HTML_TEXT_BYTES];
    double us = nd_doc_number(piece, ND_KEY_US), flops = nd_doc_number(piece, ND_KEY_FLOPS);
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
    json_array_foreach(nd_doc_get(device, ND_KEY_CUTS), i, cut)
    {
        if (nd_doc_index(cut, ND_KEY_FROM, SIZE_MAX) != piece)
            continue;
        nd_html_printf(page, "%sto part %.0f: %s bytes", n++ > 0 ? "; " : "", nd_doc_number(cut, ND_KEY_TO) + 1,
                       nd_html_count(nd_doc_number(cut, ND_KEY_BYTES), buf));
    }
    nd_html_puts(page, "</td>");
}

static void put_pieces(struct nd_page *page, const json_t *device)
{
    const json_t *pieces = nd_doc_get(device, ND_KEY_PIECES), *piece;
    char buf[ND_HTML_TEXT_BYTES];
    size_t i;
    nd_html_puts(page, "<details><summary>Parts of the graph on ");
    nd_html_name(page, nd_doc_device_label(device));
    nd_html_printf(page, " <span class=\"op\">%zu</span></summary>", json_array_size(pieces));
    nd_html_scroll(page, "Parts of the graph", false);
    nd_html_puts(
        page,
        "<table><caption>Nodes that ran together, in their order, and what passes between them</caption>");
    nd_html_heads(page, "#Part|Provider|#Nodes|From|To|#&micro;s a run|#FLOPs|Cuts");
    json_array_foreach(pieces, i, piece)
    {
        double n = nd_doc_number(piece, ND_KEY_N_NODES);
        if (i >= MAX_PIECES)
            break;
        nd_html_printf(page, "<tr><th scope=\"row\" class=\"n\">%zu</th>", i + 1);
        nd_html_cell(page, nd_doc_text(piece, ND_KEY_PROVIDER));
        nd_html_cell_number(page, nd_html_count(n, buf), n);
        nd_html_puts(page, "<td>");
        nd_html_name(page, nd_doc_text(piece, ND_KEY_FIRST_NODE));
        nd_html_puts(page, "</td><td>");
        nd_html_name(page, nd_doc_text(piece, ND_KEY_LAST_NODE));
        nd_html_puts(page, "</td>");
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
    json_array_foreach(devices, d, device)
    {
        double n = nd_doc_number(device, ND_KEY_N_FELL_BACK);
        if (n > 0) {
            nd_html_puts(page, "<p class=\"warning\">");
            nd_html_name(page, nd_doc_device_label(device));
            nd_html_printf(page, ": %.0f node%s that should run on the NPU did not.</p>\n", n,
                           n > 1 ? "s" : "");
        }
        json_array_foreach(nd_doc_get(device, ND_KEY_PROBLEMS), i, problem)
        {
            nd_html_puts(page, "<p class=\"warning\">");
            nd_html_text(page, json_string_value(problem) != NULL ? json_string_value(problem) : "");
            nd_html_puts(page, "</p>\n");
        }
    }
}

static void put_placement(struct nd_page *page, const json_t *placement)
{
    const json_t *devices = nd_doc_get(placement, ND_KEY_DEVICES), *device;
    size_t d;
    nd_html_puts(page, "<h3>Placement</h3>\n");
    put_fell_back(page, devices);
    put_operators(page, placement);
    json_array_foreach(devices, d, device)
    {
        if (json_array_size(nd_doc_get(device, ND_KEY_PIECES)) > 0)
            put_pieces(page, device);
    }
}

void nd_view_where(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_COMPARISON], ND_KEY_DEVICES);
    nd_html_section(page, part, "where", "Where it ran");
    if (json_array_size(devices) > 0)
        put_environment(page, devices);
    if (part->documents[ND_PAGE_PLACEMENT] != NULL)
        put_placement(page, part->documents[ND_PAGE_PLACEMENT]);
    else
        nd_html_absent(page, "Which nodes ran on the NPU is not in this report. It is when the model is given:",
                       "npudiff placement MODEL.onnx TEST.h5 --report placement.html");
    nd_view_latency(page, part);
    nd_html_section_end(page);
}
