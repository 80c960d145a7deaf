/* A campaign: whether it may ship, the matrix of models and devices, and every gate that is not passed. */
#include <stdio.h>
#include <string.h>

#include "report/html/html.h"

enum { MAX_REASONS = 40 };

struct tally {
    size_t n, n_failed, n_unknown;
    const json_t *first; /* the first case that is not passed, a failed one before others */
};

static bool is_failed(const char *verdict)
{
    return strcmp(verdict, "failed") == 0 || strcmp(verdict, "device failed") == 0;
}

static bool is_passed(const char *verdict)
{
    return strcmp(verdict, "passed") == 0 || strcmp(verdict, "warned") == 0;
}

/* model, device: NULL counts all. */
static struct tally count_cases(const json_t *campaign, const char *model, const char *device)
{
    struct tally tally = {0};
    const json_t *one;
    size_t i;
    json_array_foreach(nd_doc_get(campaign, "cases"), i, one) {
        const char *verdict = nd_doc_text(one, "verdict");
        if ((model != NULL && strcmp(nd_doc_text(one, "model"), model) != 0) ||
            (device != NULL && strcmp(nd_doc_text(one, "device"), device) != 0))
            continue;
        tally.n++;
        if (is_failed(verdict) && tally.n_failed++ == 0)
            tally.first = one;
        if (!is_failed(verdict) && !is_passed(verdict) && tally.n_unknown++ == 0 && tally.n_failed == 0)
            tally.first = one;
    }
    return tally;
}

static void put_reason(struct nd_page *page, const json_t *campaign, const json_t *one)
{
    const char *message = nd_doc_text(one, "message");
    const json_t *gates = nd_doc_get(campaign, "gates");
    size_t gate = nd_doc_index(one, "gate", json_array_size(gates));
    nd_html_text(page, gate != SIZE_MAX ? nd_doc_text(json_array_get(gates, gate), "text") : "");
    if (message[0] != '\0') {
        nd_html_fill(page, ": $t", message);
    }
}

/* ---- the matrix ---- */

static void put_cell(struct nd_page *page, const json_t *campaign, const char *model, const json_t *device)
{
    struct tally tally = count_cases(campaign, model, nd_doc_text(device, "device"));
    const char *failure = nd_doc_text(device, "failure");
    nd_html_puts(page, "<td>");
    if (failure[0] != '\0') {
        nd_html_badge(page, "fail", "failed");
        nd_html_fill(page, "<br><small>$t</small>", failure);
    } else if (tally.n == 0) {
        nd_html_badge(page, "unknown", "no gate");
    } else if (tally.n_failed == 0 && tally.n_unknown == 0) {
        nd_html_badge(page, "ok", "ok");
        nd_html_printf(page, " <small>%zu gate%s</small>", tally.n, tally.n == 1 ? "" : "s");
    } else {
        nd_html_badge(page, tally.n_failed > 0 ? "fail" : "unknown", tally.n_failed > 0 ? "fails" : "unknown");
        nd_html_printf(page, " <small>%zu of %zu</small><br><small>",
                       tally.n_failed > 0 ? tally.n_failed : tally.n_unknown, tally.n);
        put_reason(page, campaign, tally.first);
        nd_html_puts(page, "</small>");
    }
    nd_html_puts(page, "</td>");
}

/* ---- what is not passed, and accuracy ---- */

static void put_reasons(struct nd_page *page, const json_t *campaign)
{
    const json_t *one;
    size_t i, n = 0;
    nd_html_puts(page, "<ul class=\"findings\">\n");
    for (int pass = 0; pass < 2; pass++)
        json_array_foreach(nd_doc_get(campaign, "cases"), i, one) {
            const char *verdict = nd_doc_text(one, "verdict");
            if (is_passed(verdict) || is_failed(verdict) != (pass == 0) || n++ >= MAX_REASONS)
                continue;
            nd_html_puts(page, "<li>");
            nd_html_badge(page, pass == 0 ? "fail" : "unknown", verdict);
            nd_html_fill(page, " $n on $n: ", nd_doc_text(one, "model"), nd_doc_text(one, "device"));
            put_reason(page, campaign, one);
            nd_html_puts(page, "</li>\n");
        }
    if (n > MAX_REASONS)
        nd_html_printf(page, "<li>and %zu more: result.txt has all</li>\n", n - MAX_REASONS);
    nd_html_puts(page, "</ul>\n");
}

static void put_pair(struct nd_page *page, const json_t *model, const json_t *device, const json_t *pair)
{
    char a[ND_HTML_TEXT_BYTES], text[3 * ND_HTML_TEXT_BYTES];
    const json_t *interval = nd_doc_get(pair, "interval");
    double before = nd_doc_number(pair, "right_before"), after = nd_doc_number(pair, "right_after");
    double n = nd_doc_number(pair, "samples"), p = nd_doc_number(pair, "p_value");
    nd_html_fill(page, "<tr><th scope=\"row\">$n</th><td>$n</td>", nd_doc_text(model, "name"),
                 nd_doc_text(device, "device"));
    nd_html_cell(page, nd_doc_text(pair, "reference"));
    nd_html_cell_number(page, nd_html_count(n, a), n);
    nd_html_cell_number(page, nd_html_percent(before / n, a), before / n);
    nd_html_cell_number(page, nd_html_percent(after / n, a), after / n);
    snprintf(text, sizeof text, "%+.2f (%+.2f to %+.2f)", 100 * (after - before) / n,
             100 * nd_doc_value(json_array_get(interval, 0)), 100 * nd_doc_value(json_array_get(interval, 1)));
    nd_html_cell_number(page, text, (after - before) / n);
    nd_html_cell_number(page, nd_html_real(p, a), p);
    nd_html_cell(page, nd_doc_text(pair, "answer"));
    nd_html_puts(page, "</tr>\n");
}

static size_t count_pairs(const json_t *models)
{
    const json_t *model, *study;
    size_t m, s, n = 0;
    json_array_foreach(models, m, model) {
        json_array_foreach(nd_doc_get(model, "accuracy"), s, study)
            n += json_array_size(nd_doc_get(study, "devices"));
    }
    return n;
}

static void put_accuracy(struct nd_page *page, const json_t *models)
{
    if (count_pairs(models) == 0)
        return;
    nd_html_scroll(page, "Accuracy of the campaign", false);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Accuracy of each device against the references, on "
                       "the same inputs. Change: in percentage points, with its interval.</caption>");
    nd_html_heads(page, "Model|Device|Against|#Samples|#Reference|#Device|#Change|#p|Answer");
    const json_t *model, *study, *device, *pair;
    size_t m, s, d, i;
    json_array_foreach(models, m, model) {
        json_array_foreach(nd_doc_get(model, "accuracy"), s, study) {
            json_array_foreach(nd_doc_get(study, "devices"), d, device) {
                json_array_foreach(nd_doc_get(device, "against"), i, pair)
                    put_pair(page, model, device, pair);
            }
        }
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

void nd_view_campaign(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *campaign = part->documents[ND_PAGE_QUALIFICATION];
    struct tally tally = count_cases(campaign, NULL, NULL);
    const char *verdict = nd_doc_text(campaign, "verdict");
    bool is_ready = strcmp(verdict, "passed") == 0;
    bool has_failed = tally.n_failed > 0 || is_failed(verdict);
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">%s</p>\n<p>",
                   is_ready     ? "ok"
                   : has_failed ? "fail"
                                : "unknown",
                   is_ready     ? "Ready"
                   : has_failed ? "Not ready"
                                : "Not known");
    nd_html_printf(page, "%zu of %zu gates passed", tally.n - tally.n_failed - tally.n_unknown, tally.n);
    if (tally.n_failed > 0)
        nd_html_printf(page, ", %zu failed", tally.n_failed);
    if (tally.n_unknown > 0)
        nd_html_printf(page, ", %zu could not be judged", tally.n_unknown);
    nd_html_fill(page, ". The reference is $n.</p>\n", nd_doc_text(campaign, "reference"));
    if (!is_ready)
        put_reasons(page, campaign);
    nd_html_puts(page, "</div>\n");
    const json_t *models = nd_doc_get(campaign, "models"), *model, *device;
    const json_t *heads = nd_doc_get(json_array_get(models, 0), "devices");
    size_t m, d;
    nd_html_scroll(page, "Models and devices", false);
    nd_html_puts(page, "<table class=\"matrix\"><caption>Models and devices</caption>\n<thead><tr><th "
                       "scope=\"col\">Model</th>");
    json_array_foreach(heads, d, device) {
        nd_html_fill(page, "<th scope=\"col\">$n</th>", nd_doc_text(device, "device"));
    }
    nd_html_puts(page, "</tr></thead>\n<tbody>\n");
    json_array_foreach(models, m, model) {
        const char *name = nd_doc_text(model, "name");
        nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", name);
        json_array_foreach(heads, d, device)
            put_cell(page, campaign, name,
                     nd_doc_find(nd_doc_get(model, "devices"), "device", nd_doc_text(device, "device")));
        nd_html_puts(page, "</tr>\n");
    }
    nd_html_puts(page, "</tbody></table></div>\n");
    put_accuracy(page, nd_doc_get(campaign, "models"));
}
