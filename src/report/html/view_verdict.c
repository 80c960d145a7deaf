/* The first thing that is read: how it is, why, and what to do next. Then one row for each device. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report/html/html.h"

enum { MAX_FINDINGS = 12 };

/* ---- what is known of a device ---- */

/* The same device in the explanation: the one with this capture. */
static const json_t *explained(const struct nd_page_part *part, const json_t *device)
{
    return nd_doc_find(nd_doc_get(part->documents[ND_PAGE_EXPLANATION], ND_KEY_DEVICES), ND_KEY_CAPTURE,
                       nd_doc_text(device, ND_KEY_CAPTURE));
}

static size_t n_differing(const json_t *tensors, size_t device, const char **first, const char **op)
{
    const json_t *tensor;
    size_t i, n = 0;
    *first = *op = "";
    json_array_foreach(tensors, i, tensor)
    {
        const json_t *pair = nd_doc_pair(tensor, device);
        if (!(nd_doc_number(pair, ND_KEY_DIFFERING) > 0) &&
            !(nd_doc_number(pair, ND_KEY_SAMPLES_DIFFERING) > 0))
            continue;
        if (n++ == 0) {
            *first = nd_doc_text(tensor, ND_KEY_NAME);
            *op = nd_doc_text(tensor, ND_KEY_OP_TYPES);
        }
    }
    return n;
}

/* The first output of the model: the share of its elements that differ, and by how much at most. */
static void put_output_cells(struct nd_page *page, const json_t *tensors, size_t device)
{
    char buf[ND_HTML_TEXT_BYTES];
    const json_t *tensor, *pair = NULL;
    size_t i;
    json_array_foreach(tensors, i, tensor)
    {
        if (nd_doc_is(tensor, ND_KEY_IS_OUTPUT) && (pair = nd_doc_pair(tensor, device)) != NULL)
            break;
    }
    double share = nd_doc_number(pair, ND_KEY_SHARE), lsb = nd_doc_number(pair, ND_KEY_MAX_LSB);
    if (share > 0 && !isnan(lsb)) {
        char both[2 * ND_HTML_TEXT_BYTES], count[ND_HTML_TEXT_BYTES];
        snprintf(both, sizeof both, "%s, %s LSB", nd_html_percent(share, buf), nd_html_count(lsb, count));
        nd_html_cell_number(page, both, share);
    } else {
        nd_html_cell_number(page, nd_html_percent(share, buf), share);
    }
}

/* The first row of the accuracy that has labels, else the first one with more than one sample. */
static const json_t *accuracy_row(const json_t *comparison)
{
    const json_t *rows = nd_doc_get(comparison, ND_KEY_ACCURACY), *row, *best = NULL;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        const json_t *device = json_array_get(nd_doc_get(row, ND_KEY_DEVICES), 0);
        if (nd_doc_is(row, ND_KEY_LABELS))
            return row;
        if (best == NULL && nd_doc_number(device, ND_KEY_SAMPLES) > 1)
            best = row;
    }
    return best;
}

static void put_accuracy_cells(struct nd_page *page, const json_t *row, size_t device)
{
    char text[3 * ND_HTML_TEXT_BYTES], a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES];
    const json_t *one = json_array_get(nd_doc_get(row, ND_KEY_DEVICES), device);
    double correct = nd_doc_number(one, ND_KEY_CORRECT), accuracy = nd_doc_number(one, ND_KEY_ACCURACY);
    snprintf(text, sizeof text, "%s (%s)", nd_html_count(correct, a), nd_html_percent(accuracy, b));
    nd_html_cell_number(page, isnan(correct) ? "no labels" : text, accuracy);
    if (device == 0) {
        nd_html_cell(page, "reference");
        return;
    }
    const json_t *pair = json_array_get(nd_doc_get(row, ND_KEY_PAIRS), device - 1);
    double changed = nd_doc_number(pair, ND_KEY_SAMPLES) - nd_doc_number(pair, ND_KEY_AGREE);
    snprintf(text, sizeof text, "%s of %s", nd_html_count(changed, a),
             nd_html_count(nd_doc_number(pair, ND_KEY_SAMPLES), b));
    nd_html_cell_number(page, isnan(changed) ? "?" : text, changed);
}

static void put_diagnosis(struct nd_page *page, const json_t *device)
{
    const char *verdict = nd_doc_text(device, ND_KEY_VERDICT);
    const json_t *faulty = json_array_get(nd_doc_get(device, ND_KEY_FAULTY), 0);
    nd_html_puts(page, "<td>");
    if (verdict[0] != '\0')
        nd_html_badge(page, nd_html_state(verdict), verdict);
    else
        nd_html_puts(page, "not examined");
    if (faulty != NULL) {
        nd_html_puts(page, " ");
        nd_html_name(page, nd_doc_text(faulty, ND_KEY_LAYER));
    }
    nd_html_puts(page, "</td>");
}

static void put_device_row(struct nd_page *page, const struct nd_page_part *part, size_t group)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    size_t device = part->groups[group].device;
    const json_t *one = json_array_get(nd_doc_get(comparison, ND_KEY_DEVICES), device);
    const json_t *tensors = nd_doc_get(comparison, ND_KEY_TENSORS), *row = accuracy_row(comparison);
    const char *first, *op, *failure = nd_doc_text(one, ND_KEY_FAILURE);
    size_t n = n_differing(tensors, device, &first, &op);
    nd_html_puts(page, "<tr><th scope=\"row\">");
    nd_html_name(page, part->groups[group].label);
    if (failure[0] != '\0') {
        nd_html_puts(page, "<br><span class=\"badge fail\">failed</span> ");
        nd_html_text(page, failure);
    }
    nd_html_puts(page, "</th>");
    if (device == 0)
        nd_html_puts(page, "<td class=\"n\">reference</td><td></td><td></td>");
    else {
        nd_html_printf(page, "<td class=\"n\" data-v=\"%zu\">%zu of %zu</td><td>", n, n,
                       json_array_size(tensors));
        if (n > 0) {
            nd_html_name(page, first);
            nd_html_puts(page, " <span class=\"op\">");
            nd_html_text(page, op);
            nd_html_puts(page, "</span>");
        }
        nd_html_puts(page, "</td>");
        put_output_cells(page, tensors, device);
    }
    if (row != NULL)
        put_accuracy_cells(page, row, device);
    if (part->documents[ND_PAGE_EXPLANATION] != NULL)
        put_diagnosis(page, explained(part, one));
    nd_html_puts(page, "</tr>\n");
}

static void put_devices(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    nd_html_scroll(page, "Devices", false);
    nd_html_puts(
        page,
        "<table class=\"sortable\"><caption>Devices. Those that agree in every bit of every tensor share a "
        "row; the first device is the reference.</caption>\n<thead><tr><th scope=\"col\">Device</th><th "
        "scope=\"col\" class=\"n\">Tensors that differ</th><th scope=\"col\">First differs at</th><th "
        "scope=\"col\" class=\"n\">Output values that differ</th>");
    if (accuracy_row(comparison) != NULL)
        nd_html_puts(page, "<th scope=\"col\" class=\"n\">Predictions right</th><th scope=\"col\" "
                           "class=\"n\">Predictions changed</th>");
    if (part->documents[ND_PAGE_EXPLANATION] != NULL)
        nd_html_puts(page, "<th scope=\"col\">Diagnosis</th>");
    nd_html_puts(page, "</tr></thead>\n<tbody>\n");
    for (size_t g = 0; g < part->n_groups; g++)
        put_device_row(page, part, g);
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* ---- the card ---- */

static const char *word_of(const char *verdict, bool is_gated)
{
    static const char *const words[][2] = {{"same", "Same bits"},
                                           {"within", "Within the gates"},
                                           {"inconclusive", "Inconclusive"},
                                           {"not comparable", "Not comparable"},
                                           {"failed", "A device failed"},
                                           {"healthy", "Healthy"},
                                           {"faulty", "Faulty"},
                                           {"unexplained", "Unexplained"}};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
        if (strcmp(words[i][0], verdict) == 0)
            return words[i][1];
    return strcmp(verdict, "differs") == 0 && is_gated ? "Fails the gates" : "Differs";
}

static void put_first_difference(struct nd_page *page, const json_t *comparison)
{
    const json_t *first = nd_doc_get(comparison, ND_KEY_FIRST_DIFFERENCE);
    if (!json_is_object(first))
        return;
    nd_html_puts(page, "<p>The devices differ for the first time at ");
    nd_html_name(page, nd_doc_text(first, ND_KEY_TENSOR));
    nd_html_puts(page, " <span class=\"op\">");
    nd_html_text(page, nd_doc_text(first, ND_KEY_OP_TYPES));
    nd_html_puts(page, "</span>.</p>\n");
}

/* Faults that the values alone show, without the model. */
static void put_diagnoses(struct nd_page *page, const json_t *comparison)
{
    const json_t *list = nd_doc_get(comparison, ND_KEY_DIAGNOSES), *one;
    const json_t *devices = nd_doc_get(comparison, ND_KEY_DEVICES);
    size_t i, n = 0;
    json_array_foreach(list, i, one)
    {
        size_t device = nd_doc_index(one, ND_KEY_DEVICE, json_array_size(devices));
        if (!nd_doc_is(one, ND_KEY_IS_FAULT) || device == SIZE_MAX || n++ >= MAX_FINDINGS)
            continue;
        nd_html_puts(page, n == 1 ? "<ul class=\"findings\">\n<li>" : "<li>");
        nd_html_badge(page, "fail", "fault");
        nd_html_puts(page, " ");
        nd_html_name(page, nd_doc_text(one, ND_KEY_TENSOR));
        nd_html_puts(page, " on ");
        nd_html_name(page, nd_doc_device_label(json_array_get(devices, device)));
        nd_html_puts(page, ": ");
        nd_html_text(page, nd_doc_text(one, ND_KEY_TEXT));
        nd_html_puts(page, "</li>\n");
    }
    if (n > 0)
        nd_html_puts(page, "</ul>\n");
}

static void put_comparison_words(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    nd_html_printf(page, "<p>%zu different result%s: ", part->n_groups, part->n_groups == 1 ? "" : "s");
    nd_html_name(page, nd_doc_text(comparison, ND_KEY_GROUPS_TEXT));
    nd_html_puts(page, "</p>\n");
    put_first_difference(page, comparison);
    if (part->documents[ND_PAGE_EXPLANATION] == NULL)
        put_diagnoses(page, comparison);
}

/* What it does to the predictions, of those devices where it does something. */
static void put_accuracy_words(struct nd_page *page, const struct nd_page_part *part)
{
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES];
    const json_t *row = accuracy_row(part->documents[ND_PAGE_COMPARISON]);
    const json_t *devices = nd_doc_get(row, ND_KEY_DEVICES);
    size_t n = 0, n_known = 0;
    for (size_t g = 1; row != NULL && g < part->n_groups; g++) {
        const json_t *pair = json_array_get(nd_doc_get(row, ND_KEY_PAIRS), part->groups[g].device - 1);
        double samples = nd_doc_number(pair, ND_KEY_SAMPLES),
               changed = samples - nd_doc_number(pair, ND_KEY_AGREE);
        n_known += isnan(changed) == 0;
        if (!(changed > 0) || n++ >= MAX_FINDINGS)
            continue;
        nd_html_puts(page, "<p>");
        nd_html_name(page, part->groups[g].label);
        nd_html_printf(page, " predicts a different class for %s of %s inputs", nd_html_count(changed, a),
                       nd_html_count(samples, b));
        if (nd_doc_is(row, ND_KEY_LABELS))
            nd_html_printf(
                page, "; %s are right instead of %s",
                nd_html_percent(nd_doc_number(json_array_get(devices, part->groups[g].device), ND_KEY_ACCURACY),
                                a),
                nd_html_percent(nd_doc_number(json_array_get(devices, 0), ND_KEY_ACCURACY), b));
        nd_html_puts(page, ".</p>\n");
    }
    if (n == 0 && n_known > 0)
        nd_html_puts(page, "<p>No prediction changed.</p>\n");
}

/* The cause, how sure it is, and what speaks for it. */
static void put_cause(struct nd_page *page, const json_t *layer)
{
    const char *text = nd_doc_text(layer, ND_KEY_TEXT), *certainty = nd_doc_text(layer, ND_KEY_CERTAINTY);
    nd_html_text(page, text);
    nd_html_puts(page, text[0] != '\0' ? " (" : "");
    nd_html_text(page, certainty);
    nd_html_puts(page, text[0] != '\0' ? "). " : certainty[0] != '\0' ? ": " : "");
    nd_html_text(page, nd_doc_text(layer, ND_KEY_EVIDENCE));
}

/* What explain found at one layer of one device. */
static void put_finding(struct nd_page *page, const struct nd_page_part *part, const json_t *device,
                        const json_t *layer, const char *state)
{
    nd_html_printf(page, "<li><span class=\"badge %s\">%s</span> ", state,
                   strcmp(state, "fail") == 0 ? "fault" : "unexplained");
    nd_html_name(page, nd_doc_text(layer, ND_KEY_LAYER));
    nd_html_puts(page, " <span class=\"op\">");
    nd_html_text(page, nd_doc_text(layer, ND_KEY_OP_TYPE));
    nd_html_puts(page, "</span> on ");
    nd_html_name(page, nd_page_device_label(part, device));
    nd_html_puts(page, ": ");
    put_cause(page, layer);
    if (nd_doc_text(layer, ND_KEY_REMEDY)[0] != '\0') {
        nd_html_puts(page, ". ");
        nd_html_text(page, nd_doc_text(layer, ND_KEY_REMEDY));
    }
    nd_html_puts(page, "</li>\n");
}

static size_t put_findings_of(struct nd_page *page, const struct nd_page_part *part, const json_t *device,
                              const char *key, const char *state, size_t n)
{
    const json_t *list = nd_doc_get(device, key), *layer;
    size_t i;
    json_array_foreach(list, i, layer)
    {
        if (n++ < MAX_FINDINGS)
            put_finding(page, part, device, layer, state);
    }
    return n;
}

static void put_explanation_words(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_EXPLANATION], ND_KEY_DEVICES), *device;
    size_t d, n = 0;
    nd_html_puts(page, "<ul class=\"findings\">\n");
    json_array_foreach(devices, d, device)
    {
        if (nd_doc_is_leader(device, d))
            n = put_findings_of(page, part, device, ND_KEY_FAULTY, "fail", n);
    }
    json_array_foreach(devices, d, device)
    {
        if (nd_doc_is_leader(device, d))
            n = put_findings_of(page, part, device, ND_KEY_UNEXPLAINED, "unknown", n);
    }
    if (n == 0)
        nd_html_puts(page, "<li>No layer has a fault, and every layer that was examined follows known "
                           "arithmetic: the differences are the chips' healthy rounding.</li>\n");
    else if (n > MAX_FINDINGS)
        nd_html_printf(page, "<li>and %zu more: see <a href=\"#%sflow\">Error flow</a></li>\n",
                       n - MAX_FINDINGS, part->prefix);
    nd_html_puts(page, "</ul>\n");
}

/* The first device that has the verdict of all. */
static const json_t *suspect_of(const json_t *explanation)
{
    return nd_doc_find(nd_doc_get(explanation, ND_KEY_DEVICES), ND_KEY_VERDICT,
                       nd_doc_text(explanation, ND_KEY_VERDICT));
}

static void put_reduce(struct nd_page *page, const json_t *explanation)
{
    const json_t *device = suspect_of(explanation);
    const json_t *layer = json_array_get(nd_doc_get(device, ND_KEY_FAULTY), 0);
    if (layer == NULL)
        layer = json_array_get(nd_doc_get(device, ND_KEY_UNEXPLAINED), 0);
    nd_html_puts(page, "<p>Next, to make a small reproducer for the vendor: ");
    nd_html_command_begin(page);
    nd_html_puts(page, " reduce");
    nd_html_argument(page, nd_doc_text(explanation, ND_KEY_MODEL));
    nd_html_puts(page, " -d");
    nd_html_argument(page, nd_doc_text(device, ND_KEY_URI));
    nd_html_puts(page, " -o reproducer --differs 1lsb");
    if (layer != NULL) {
        nd_html_puts(page, " --tensor");
        nd_html_argument(page, nd_doc_text(layer, ND_KEY_LAYER));
    }
    nd_html_command_end(page);
    nd_html_puts(page, "</p>\n");
}

static void put_next(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    const json_t *explanation = part->documents[ND_PAGE_EXPLANATION], *device;
    size_t i;
    const char *verdict = nd_doc_text(explanation, ND_KEY_VERDICT);
    if (explanation == NULL && strcmp(nd_doc_text(comparison, ND_KEY_VERDICT), "differs") == 0) {
        nd_html_puts(page, "<p>Next: is it the quantisation or the chip? ");
        nd_html_command_begin(page);
        nd_html_puts(page, " explain --quantised MODEL.onnx");
        json_array_foreach(nd_doc_get(comparison, ND_KEY_DEVICES), i, device)
        {
            if (i < 6)
                nd_html_argument(page, nd_doc_text(device, ND_KEY_CAPTURE));
        }
        nd_html_command_end(page);
        nd_html_puts(page, "</p>\n");
    } else if (strcmp(verdict, "faulty") == 0 || strcmp(verdict, "unexplained") == 0) {
        put_reduce(page, explanation);
    }
}

/* The verdict that counts: of two documents the one that knows more. */
static void put_card(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *comparison = part->documents[ND_PAGE_COMPARISON];
    const json_t *explanation = part->documents[ND_PAGE_EXPLANATION];
    bool is_gated = nd_doc_is(comparison, ND_KEY_GATED);
    const char *verdict =
        nd_doc_text(explanation != NULL && !is_gated ? explanation : comparison, ND_KEY_VERDICT);
    const char *state = nd_html_state(verdict);
    if (strcmp(verdict, "differs") == 0 && is_gated)
        state = "fail";
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">", state);
    nd_html_text(page, word_of(verdict, is_gated));
    if (part->name[0] != '\0') {
        nd_html_puts(page, " <span class=\"of\">");
        nd_html_name(page, part->name);
        nd_html_puts(page, "</span>");
    }
    nd_html_puts(page, "</p>\n");
    if (comparison != NULL)
        put_comparison_words(page, part);
    if (explanation != NULL)
        put_explanation_words(page, part);
    if (comparison != NULL)
        put_accuracy_words(page, part);
    put_next(page, part);
    nd_html_puts(page, "</div>\n");
}

void nd_view_verdict(struct nd_page *page, const struct nd_page_part *part)
{
    bool has_comparison = part->documents[ND_PAGE_COMPARISON] != NULL;
    if (part->documents[ND_PAGE_QUALIFICATION] != NULL)
        nd_view_campaign(page, part);
    if (part->documents[ND_PAGE_GOLDEN] != NULL)
        nd_view_golden(page, part);
    if (part->documents[ND_PAGE_HISTORY] != NULL)
        nd_view_history(page, part);
    if (part->documents[ND_PAGE_CHANGED] != NULL)
        nd_view_changed(page, part);
    if (has_comparison || part->documents[ND_PAGE_EXPLANATION] != NULL)
        put_card(page, part);
    if (has_comparison)
        put_devices(page, part);
}
