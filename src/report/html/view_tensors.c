/* The heat map: tensors in graph order, groups of identical devices as columns. A cell has the share of the
 * values that differ and the largest difference; its details are in the page's data. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html/html.h"

enum {
    MAX_WORST = 5,       /* of each cell in the data */
    MAX_DETAILED = 4000, /* cells with their worst elements; further ones have their histogram only */
    MAX_PREFIX_BYTES = 200
};

/* Upper ends of the steps of colour, by share and by steps of the quantised value. Chosen: so that a difference
 * in one value of a thousand can be told from none. */
static const double share_ends[] = {0, 0.001, 0.01, 0.05, 0.2, 0.5};
static const double lsb_ends[] = {0, 1, 2, 4, 16, 64};

static int step_of(double value, const double *ends)
{
    int step = 0;
    while (step < 6 && value > ends[step])
        step++;
    return step;
}

/* ---- blocks of tensors ---- */

/* The length of the first components of all names that are the same everywhere, with the final '/'. */
static size_t common_length(const json_t *tensors)
{
    const char *first = nd_doc_text(json_array_get(tensors, 0), "name");
    size_t i, common = strlen(first);
    const json_t *tensor;
    json_array_foreach(tensors, i, tensor) {
        const char *name = nd_doc_text(tensor, "name");
        size_t n = 0;
        while (n < common && name[n] == first[n])
            n++;
        common = n;
    }
    while (common > 0 && first[common - 1] != '/')
        common--;
    return common;
}

/* The component that follows; its length is 0 where the name has no further '/'. */
static size_t block_length(const char *name, size_t common)
{
    const char *start = name + common, *slash = strchr(*start == '/' ? start + 1 : start, '/');
    size_t n = slash != NULL ? (size_t)(slash - start) : 0;
    return n < MAX_PREFIX_BYTES ? n : 0;
}

/* The end of the run of tensors from i on that are in one block. */
static size_t block_end(const json_t *tensors, size_t i, size_t common)
{
    const char *name = nd_doc_text(json_array_get(tensors, i), "name");
    size_t n = block_length(name, common), end = i + 1;
    for (; n > 0 && end < json_array_size(tensors); end++) {
        const char *other = nd_doc_text(json_array_get(tensors, end), "name");
        if (block_length(other, common) != n || strncmp(other + common, name + common, n) != 0)
            break;
    }
    return end;
}

/* ---- a cell ---- */

/* "3 LSB", "12 ULP" or the largest error in real units. */
static void put_size(struct nd_page *page, const json_t *pair)
{
    char buf[ND_HTML_TEXT_BYTES];
    double lsb = nd_doc_number(pair, "max_lsb"), ulp = nd_doc_number(pair, "max_ulp");
    if (!isnan(lsb))
        nd_html_printf(page, "%s LSB", nd_html_count(lsb, buf));
    else if (!isnan(ulp))
        nd_html_printf(page, "%s ULP", nd_html_count(ulp, buf));
    else
        nd_html_printf(page, "%s", nd_html_real(nd_doc_number(pair, "max_abs"), buf));
}

static bool is_compared(const json_t *pair)
{
    return pair != NULL && strcmp(nd_doc_text(pair, "coverage"), "none") != 0;
}

/* A faulty layer is marked whatever share of its values differs: later ones may differ in more. */
static void put_cell(struct nd_page *page, const json_t *pair, bool is_faulty)
{
    const char *fault = is_faulty ? " faulty\"><span class=\"badge fail\">fault</span> " : "\">";
    char buf[ND_HTML_TEXT_BYTES];
    double share = nd_doc_number(pair, "share"), n = nd_doc_number(pair, "samples_differing");
    double lsb = nd_doc_number(pair, "max_lsb");
    if (!is_compared(pair)) {
        nd_html_printf(page, "<td class=\"x%sno data</td>", fault);
        return;
    }
    if (isnan(share) && !(n > 0))
        share = 0;
    if (isnan(share)) {
        nd_html_printf(page, "<td class=\"x%sdiffers</td>", fault);
        return;
    }
    if (!(share > 0)) {
        nd_html_printf(page, "<td class=\"s0 m0%s=</td>", fault);
        return;
    }
    nd_html_printf(page, "<td class=\"s%d m%d%s%s <small>", step_of(share, share_ends),
                   step_of(isnan(lsb) ? 0 : lsb, lsb_ends), fault, nd_html_percent(share, buf));
    put_size(page, pair);
    nd_html_puts(page, "</small></td>");
}

/* ---- rows ---- */

static void put_row(struct nd_page *page, const struct nd_page_part *part, const json_t *tensor, size_t t)
{
    double largest = 0;
    for (size_t g = 1; g < part->n_groups; g++) {
        double share = nd_doc_number(nd_doc_pair(tensor, part->groups[g].device), "share");
        largest = share > largest ? share : largest;
    }
    nd_html_printf(
        page,
        "<tr data-t=\"%zu\" data-s=\"%.3g\"><th scope=\"row\"><a id=\"%stensor-%zu\" href=\"#%stensor-%zu\">",
        t, largest, part->prefix, t + 1, part->prefix, t + 1);
    nd_html_fill(page, "$n</a></th><td class=\"op\">$t</td><td class=\"op\">$t</td>",
                 nd_doc_text(tensor, "name"), nd_doc_text(tensor, "op_types"), nd_doc_text(tensor, "dtype"));
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_COMPARISON], "devices");
    for (size_t g = 1; g < part->n_groups; g++) {
        const json_t *device = nd_page_explained(part, json_array_get(devices, part->groups[g].device));
        const json_t *faulty = nd_doc_get(device, "faulty");
        put_cell(page, nd_doc_pair(tensor, part->groups[g].device),
                 nd_doc_find(faulty, "layer", nd_doc_text(tensor, "name")) != NULL);
    }
    nd_html_puts(page, "</tr>\n");
}

static void put_rows(struct nd_page *page, const struct nd_page_part *part, const json_t *tensors)
{
    size_t common = common_length(tensors), n = json_array_size(tensors);
    bool is_open = false;
    for (size_t i = 0, end; i < n; i = end) {
        end = block_end(tensors, i, common);
        bool is_block = end - i > 1;
        if (is_block || !is_open)
            nd_html_printf(page, "%s<tbody%s>\n", is_open ? "</tbody>\n" : "",
                           is_block ? " class=\"of-block\"" : "");
        if (is_block) {
            /* A block of several tensors has a row of its own, which scripts make a button of. */
            const char *name = nd_doc_text(json_array_get(tensors, i), "name");
            char text[MAX_PREFIX_BYTES + 1];
            snprintf(text, sizeof text, "%.*s", (int)block_length(name, common), name + common);
            nd_html_printf(page, "<tr class=\"block\"><th scope=\"rowgroup\" colspan=\"%zu\">",
                           part->n_groups + 2);
            nd_html_name(page, text);
            nd_html_printf(page, " <span class=\"op\">%zu tensors</span></th></tr>\n", end - i);
        }
        for (size_t t = i; t < end; t++)
            put_row(page, part, json_array_get(tensors, t), t);
        if (is_block)
            nd_html_puts(page, "</tbody>\n");
        is_open = !is_block;
    }
    if (is_open)
        nd_html_puts(page, "</tbody>\n");
}

/* ---- data ---- */

static void put_coordinates(struct nd_json *data, const json_t *worst)
{
    const json_t *list = nd_doc_get(worst, "coordinates"), *one;
    size_t i;
    nd_json_open_line(data, NULL, '[');
    json_array_foreach(list, i, one)
        nd_json_int(data, NULL, json_integer_value(one));
    nd_json_close(data, ']');
}

/* [[probe, sample, [coordinates], reference, test]] */
static void put_worst(struct nd_json *data, const json_t *pair)
{
    const json_t *list = nd_doc_get(pair, "worst"), *one;
    size_t i;
    nd_json_open_line(data, "w", '[');
    json_array_foreach(list, i, one) {
        if (i >= MAX_WORST)
            break;
        nd_json_open_line(data, NULL, '[');
        nd_json_text(data, NULL, nd_doc_text(one, "probe"));
        nd_json_real(data, NULL, nd_doc_number(one, "sample"));
        put_coordinates(data, one);
        nd_html_data_real(data, NULL, nd_doc_number(one, "ref_real"));
        nd_html_data_real(data, NULL, nd_doc_number(one, "test_real"));
        nd_json_close(data, ']');
    }
    nd_json_close(data, ']');
}

static void put_known(struct nd_json *data, const char *key, double value)
{
    if (isfinite(value))
        nd_html_data_real(data, key, value);
}

/* null for a cell without differences. */
static void put_cell_data(struct nd_json *data, const json_t *pair, size_t *n_detailed)
{
    const char *reason = nd_doc_text(pair, "reason");
    if (!(nd_doc_number(pair, "samples_differing") > 0) && reason[0] == '\0') {
        nd_json_null(data, NULL);
        return;
    }
    nd_json_open_line(data, NULL, '{');
    put_known(data, "n", nd_doc_number(pair, "elements"));
    put_known(data, "d", nd_doc_number(pair, "differing"));
    put_known(data, "s", nd_doc_number(pair, "samples"));
    put_known(data, "sd", nd_doc_number(pair, "samples_differing"));
    put_known(data, "lsb", nd_doc_number(pair, "max_lsb"));
    put_known(data, "abs", nd_doc_number(pair, "max_abs"));
    put_known(data, "sqnr", nd_doc_number(pair, "sqnr_db"));
    if (reason[0] != '\0')
        nd_json_text(data, "why", reason);
    /* The buckets that are not empty. */
    const json_t *near = nd_doc_get(pair, "histogram"), *tail = nd_doc_get(pair, "histogram_tail");
    const json_t *bucket;
    const char *key;
    json_auto_t *copy = json_object();
    nd_json_open_line(data, "h", '{');
    if (json_is_object(near))
        json_object_update(copy, (json_t *)near);
    if (json_is_object(tail)) { /* says more of what lies beyond */
        json_object_del(copy, "<-3");
        json_object_del(copy, ">3");
        json_object_update(copy, (json_t *)tail);
    }
    json_object_foreach(copy, key, bucket) {
        if (json_number_value(bucket) > 0)
            nd_json_int(data, key, json_integer_value(bucket));
    }
    nd_json_close(data, '}');
    if ((*n_detailed)++ < MAX_DETAILED)
        put_worst(data, pair);
    nd_json_close(data, '}');
}

static void put_data(struct nd_json *data, const struct nd_page_part *part, const json_t *tensors)
{
    const json_t *tensor;
    bool is_gated = nd_doc_is(part->documents[ND_PAGE_COMPARISON], "gated");
    size_t i, n_detailed = 0;
    nd_json_open_line(data, "groups", '[');
    for (size_t g = 1; g < part->n_groups; g++)
        nd_json_text(data, NULL, part->groups[g].label);
    nd_json_close(data, ']');
    nd_json_open_line(data, "tensors", '[');
    json_array_foreach(tensors, i, tensor) {
        nd_json_open_line(data, NULL, '{');
        nd_json_text(data, "gate", is_gated ? nd_doc_text(tensor, "gate") : NULL);
        nd_json_open_line(data, "cells", '[');
        for (size_t g = 1; g < part->n_groups; g++)
            put_cell_data(data, nd_doc_pair(tensor, part->groups[g].device), &n_detailed);
        nd_json_close(data, ']');
        nd_json_close(data, '}');
    }
    nd_json_close(data, ']');
}

void nd_view_tensors(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *tensors = nd_doc_get(part->documents[ND_PAGE_COMPARISON], "tensors");
    nd_html_section(page, part, "tensors", "Tensors");
    if (json_array_size(tensors) == 0 || part->n_groups == 0)
        nd_html_absent(
            page, "Which tensors differ is not in this report. It is when the report is made of a comparison:",
            "npudiff report REFERENCE.h5 TEST.h5 -o report.html");
    else if (part->n_groups == 1)
        nd_html_puts(page, "<p>All devices agree in every bit of every tensor.</p>\n");
    else {
        nd_html_scroll(page, "Heat map", true);
        nd_html_puts(page, "<table class=\"heat by-share\"><caption>Share of the values that differ from the "
                           "reference's, and the largest difference. &ldquo;=&rdquo;: every bit is equal. ");
        if (part->groups[0].n_devices > 1) {
            nd_html_fill(page, "Equal to the reference everywhere: $n. ", part->groups[0].label);
        }
        nd_html_puts(page,
                     "</caption>\n<thead><tr><th scope=\"col\">Tensor</th><th scope=\"col\">Operator</th><th "
                     "scope=\"col\">Type</th>");
        for (size_t g = 1; g < part->n_groups; g++) {
            nd_html_fill(page, "<th scope=\"col\">$n</th>", part->groups[g].label);
        }
        nd_html_puts(page, "</tr></thead>\n");
        put_rows(page, part, tensors);
        nd_html_puts(page, "</table></div>\n");
    }
    nd_html_section_end(page);
    if (part->n_groups > 1)
        put_data(&page->data, part, tensors);
}
