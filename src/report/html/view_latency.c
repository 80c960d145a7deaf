/* Latencies: one row for each series, and its runs in their order. The strips are drawn here; scripts let a
 * reader zoom into them. */
#include <math.h>
#include <string.h>

#include "core/files/file.h"
#include "report/html/html.h"

enum { STRIP_WIDTH = 900, STRIP_HEIGHT = 90, MAX_POINTS = 2000 };

/* ---- the table ---- */

static void put_us(struct nd_page *page, const json_t *object, const char *key)
{
    char buf[ND_HTML_TEXT_BYTES];
    double us = nd_doc_number(object, key);
    nd_html_cell_number(page, isnan(us) ? "" : nd_html_real(us, buf), us);
}

static void put_modes(struct nd_page *page, const json_t *modes)
{
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES];
    const json_t *mode;
    size_t i;
    nd_html_puts(page, "<td>");
    json_array_foreach(modes, i, mode)
        nd_html_printf(page, "%s%s of the runs at %s &micro;s", i > 0 ? ", " : "",
                       nd_html_percent(nd_doc_number(mode, ND_KEY_WEIGHT), a),
                       nd_html_real(nd_doc_number(mode, ND_KEY_MEDIAN_US), b));
    nd_html_puts(page, "</td>");
}

static void put_row(struct nd_page *page, const json_t *series)
{
    char buf[ND_HTML_TEXT_BYTES];
    const json_t *timed = nd_doc_get(series, ND_KEY_TIMED);
    const char *verdict = nd_doc_text(series, ND_KEY_VERDICT);
    double runs = nd_doc_number(series, ND_KEY_RUNS), cv = nd_doc_number(timed, ND_KEY_CV);
    nd_html_puts(page, "<tr><th scope=\"row\">");
    nd_html_name(page, nd_path_base(nd_doc_text(series, ND_KEY_FILE)));
    nd_html_puts(page, "</th><td>");
    nd_html_name(page, nd_doc_text(series, ND_KEY_PROBE));
    nd_html_puts(page, "</td><td>");
    nd_html_badge(page, nd_doc_is(series, ND_KEY_IS_SUSPECT) ? "note" : nd_html_state(verdict), verdict);
    nd_html_puts(page, "</td>");
    nd_html_cell_number(page, nd_html_count(runs, buf), runs);
    put_us(page, timed, ND_KEY_MEDIAN_US);
    put_us(page, timed, ND_KEY_P90_US);
    put_us(page, timed, ND_KEY_P99_US);
    put_us(page, timed, ND_KEY_MAX_US);
    nd_html_cell_number(page, isnan(cv) ? "" : nd_html_percent(cv, buf), cv);
    put_modes(page, nd_doc_get(series, ND_KEY_MODES));
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
    json_array_foreach(list, i, series) put_row(page, series);
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* ---- strips ---- */

/* What the strip shows goes up to here: a few runs that take far longer would press all others to the bottom.
 */
static double top_of(const json_t *series)
{
    const json_t *timed = nd_doc_get(series, ND_KEY_TIMED);
    double p99 = nd_doc_number(timed, ND_KEY_P99_US), max = nd_doc_number(timed, ND_KEY_MAX_US);
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
    const json_t *runs = nd_doc_get(series, ND_KEY_RUNS_US), *run, *mode;
    size_t i, n = json_array_size(runs) < MAX_POINTS ? json_array_size(runs) : MAX_POINTS;
    char buf[ND_HTML_TEXT_BYTES];
    double top = top_of(series);
    nd_html_printf(page, "<figure class=\"strip\" data-series=\"%s%zu\" data-top=\"%.6g\" data-modes=\"",
                   prefix, s, top);
    json_array_foreach(nd_doc_get(series, ND_KEY_MODES), i, mode)
        nd_html_printf(page, "%s%.6g", i > 0 ? " " : "", nd_doc_number(mode, ND_KEY_MEDIAN_US));
    nd_html_puts(page, "\"><figcaption>");
    nd_html_name(page, nd_path_base(nd_doc_text(series, ND_KEY_FILE)));
    nd_html_printf(page,
                   " <span class=\"op\">%zu runs in their order, from 0 to %s &micro;s</span></figcaption><svg "
                   "viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\" "
                   "focusable=\"false\"><path class=\"runs\" d=\"",
                   n, nd_html_real(top, buf), STRIP_WIDTH, STRIP_HEIGHT);
    json_array_foreach(runs, i, run)
    {
        double us = nd_doc_value(run);
        if (i >= n || !(us > 0))
            continue;
        double y = us < top ? STRIP_HEIGHT * (1 - us / top) : 0;
        nd_html_printf(page, "M%.1f %.1fh1", (double)i * STRIP_WIDTH / (double)n, y);
    }
    nd_html_puts(page, "\"/>");
    json_array_foreach(nd_doc_get(series, ND_KEY_MODES), i, mode)
        put_level(page, nd_doc_number(mode, ND_KEY_MEDIAN_US), top, "mode");
    nd_html_puts(page, "</svg></figure>\n");
}

static void put_data(struct nd_json *data, const json_t *list)
{
    const json_t *series, *run;
    size_t i, k;
    nd_json_open_line(data, "latency", '[');
    json_array_foreach(list, i, series)
    {
        nd_json_open_line(data, NULL, '[');
        json_array_foreach(nd_doc_get(series, ND_KEY_RUNS_US), k, run)
        {
            double us = nd_doc_value(run);
            if (k < MAX_POINTS)
                nd_json_real_if(data, NULL, isfinite(us), us);
        }
        nd_json_close(data, ']');
    }
    nd_json_close(data, ']');
}

void nd_view_latency(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *list = nd_doc_get(part->documents[ND_PAGE_LATENCY], ND_KEY_SERIES), *series;
    size_t i;
    bool has_runs = false;
    nd_html_puts(page, "<h3>Latency</h3>\n");
    if (json_array_size(list) == 0) {
        nd_html_absent(page, "Latencies are not in this report. They are in one of their own:",
                       "npudiff latency TEST.h5 --report latency.html");
        return;
    }
    put_table(page, list);
    json_array_foreach(list, i, series)
    {
        if (json_array_size(nd_doc_get(series, ND_KEY_RUNS_US)) > 1 && top_of(series) > 0) {
            put_strip(page, series, part->prefix, i);
            has_runs = true;
        }
    }
    if (has_runs) {
        put_data(&page->data, list);
        page->has_chart = true;
    }
}
