/* The error budget: what the quantisation makes of the mean squared error, what the chip makes of it, and what
 * they make together. Bars are drawn here, so that they are there on paper and without scripts. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "report/html/html.h"

/* Where the quantisation breaks the model: the layers whose own error matters most at the outputs, why they
 * make it, and what would help. A part of the error budget. */

enum { MAX_LAYERS = 32, MAX_REMEDIES = 2 };

/* "12.3 dB"; no error at all has no level. */
static void put_decibel(struct nd_page *page, const json_t *object, const char *key)
{
    char buf[ND_HTML_TEXT_BYTES];
    double db = nd_doc_number(object, key);
    if (strcmp(nd_doc_text(object, key), "Infinity") == 0)
        nd_html_cell(page, "no error");
    else
        nd_html_cell_number(page, nd_html_real(db, buf), db);
}

static void put_remedies(struct nd_page *page, const json_t *remedies)
{
    const json_t *remedy;
    size_t i;
    char buf[ND_HTML_TEXT_BYTES];
    nd_html_puts(page, "<td>");
    json_array_foreach(remedies, i, remedy) {
        double gain = nd_doc_number(remedy, "output_gain_db");
        if (i >= MAX_REMEDIES)
            break;
        nd_html_puts(page, i > 0 ? "; or " : "");
        nd_html_text(page, nd_doc_text(remedy, "text"));
        if (isfinite(gain))
            nd_html_printf(page, " (%s%s dB)", gain >= 0 ? "+" : "", nd_html_real(gain, buf));
    }
    nd_html_puts(page, "</td>");
}

static void put_quantised_layer(struct nd_page *page, const json_t *layer)
{
    char buf[ND_HTML_TEXT_BYTES];
    double share = nd_doc_number(layer, "effect_share");
    nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", nd_doc_text(layer, "name"));
    nd_html_cell(page, nd_doc_text(layer, "op_type"));
    nd_html_cell_number(page, nd_html_percent(share, buf), share);
    put_decibel(page, layer, "effect_db");
    put_decibel(page, layer, "sqnr_db");
    nd_html_cell(page, nd_doc_text(layer, "text"));
    put_remedies(page, nd_doc_get(layer, "remedies"));
    nd_html_puts(page, "</tr>\n");
}

/* Of the error budget. Nothing without a float model. */
static void put_quantisation(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *found = nd_doc_get(part->documents[ND_PAGE_EXPLANATION], "quantisation"), *name;
    const json_t *ranked = nd_doc_get(found, "ranked"), *layers = nd_doc_get(found, "layers");
    char buf[ND_HTML_TEXT_BYTES];
    size_t i;
    if (json_array_size(ranked) == 0)
        return;
    nd_html_printf(page,
                   "<h3>What the quantisation costs, layer by layer</h3>\n<p>Quantisation alone, on no chip: ");
    nd_html_text(page, nd_html_real(nd_doc_number(found, "output_sqnr_db"), buf));
    nd_html_printf(page,
                   " dB at the outputs (signal over error, against the float model; samples: %.0f).</p>\n",
                   nd_doc_number(found, "effect_samples"));
    nd_html_scroll(page, "Quantisation by layer", true);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Layers whose quantisation matters most at the "
                       "outputs. Gains were computed with the change made, not estimated.</caption>");
    nd_html_heads(page, "Layer|Operator|#Share of the effects|#Alone at the outputs, dB|#The tensor itself, "
                        "dB|Why|What would help");
    json_array_foreach(ranked, i, name) {
        const json_t *layer =
            json_is_string(name) ? nd_doc_find(layers, "name", json_string_value(name)) : NULL;
        if (i < MAX_LAYERS && layer != NULL)
            put_quantised_layer(page, layer);
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}

enum { BAR_WIDTH = 600, BAR_HEIGHT = 22 };

struct budget {
    double quantisation, chip, interaction;
};

static struct budget budget_of(const json_t *mean_square)
{
    return (struct budget){.quantisation = nd_doc_number(mean_square, "quantisation"),
                           .chip = nd_doc_number(mean_square, "divergence"),
                           .interaction = nd_doc_number(mean_square, "interaction")};
}

static bool is_known(const struct budget *b)
{
    return isfinite(b->quantisation) && isfinite(b->chip) && isfinite(b->interaction);
}

static double total_of(const struct budget *b)
{
    return b->quantisation + b->chip + b->interaction;
}

/* ---- bars ---- */

static double put_rectangle(struct nd_page *page, const char *class, double x, double width)
{
    if (width > 0.05)
        nd_html_printf(page, "<rect class=\"%s\" x=\"%.2f\" y=\"0\" width=\"%.2f\" height=\"%d\"/>", class, x,
                       width, BAR_HEIGHT);
    return x + (width > 0 ? width : 0);
}

/* The parts of one error as shares of the bar. A negative interaction means that quantisation and chip partly
 * cancel: it is no part of the sum, and a hatched piece at the end shows how much they take back. */
static void put_bar(struct nd_page *page, const struct budget *b)
{
    double sum = b->quantisation + b->chip + fabs(b->interaction), x = 0;
    double scale = sum > 0 ? BAR_WIDTH / sum : 0;
    nd_html_printf(page,
                   "<svg class=\"bar\" viewBox=\"0 0 %d %d\" preserveAspectRatio=\"none\" aria-hidden=\"true\" "
                   "focusable=\"false\">",
                   BAR_WIDTH, BAR_HEIGHT);
    x = put_rectangle(page, "quantisation", x, b->quantisation * scale);
    x = put_rectangle(page, "chip", x, b->chip * scale);
    put_rectangle(page, b->interaction < 0 ? "cancel" : "interaction", x, fabs(b->interaction) * scale);
    nd_html_puts(page, "</svg>");
}

/* The share of the chip with its interval, on a line from 0 to 100 %. */
static void put_share(struct nd_page *page, const json_t *mean_square)
{
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES], c[ND_HTML_TEXT_BYTES];
    const json_t *interval = nd_doc_get(mean_square, "own_share_interval");
    double share = nd_doc_number(mean_square, "own_share");
    double low = nd_doc_value(json_array_get(interval, 0)), high = nd_doc_value(json_array_get(interval, 1));
    nd_html_fill(page, "<td class=\"n\">$t", nd_html_percent(share, a));
    if (isfinite(low) && isfinite(high))
        nd_html_printf(page, " <small>%s to %s</small>", nd_html_percent(low, b), nd_html_percent(high, c));
    nd_html_puts(page, "</td>");
}

static void put_part(struct nd_page *page, const json_t *mean_square, const char *key, const char *interval_key)
{
    char a[ND_HTML_TEXT_BYTES], b[ND_HTML_TEXT_BYTES], c[ND_HTML_TEXT_BYTES];
    const json_t *interval = nd_doc_get(mean_square, interval_key);
    double low = nd_doc_value(json_array_get(interval, 0)), high = nd_doc_value(json_array_get(interval, 1));
    nd_html_printf(page, "<td class=\"n\">%s", nd_html_real(nd_doc_number(mean_square, key), a));
    if (isfinite(low) && isfinite(high))
        nd_html_printf(page, " <small>%s to %s</small>", nd_html_real(low, b), nd_html_real(high, c));
    nd_html_puts(page, "</td>");
}

/* ---- tables ---- */

static void put_device(struct nd_page *page, const struct nd_page_part *part, const json_t *device)
{
    char buf[ND_HTML_TEXT_BYTES];
    const json_t *mean_square = nd_doc_get(device, "mean_squared_error");
    struct budget b = budget_of(mean_square);
    nd_html_fill(page, "<tr><th scope=\"row\">$n</th>", nd_page_device_label(part, device));
    if (!is_known(&b)) {
        nd_html_puts(page, "<td colspan=\"6\">not known: the outputs have no values</td></tr>\n");
        return;
    }
    nd_html_puts(page, "<td class=\"bars\">");
    put_bar(page, &b);
    nd_html_puts(page, "</td>");
    put_share(page, mean_square);
    nd_html_cell_number(page, nd_html_real(total_of(&b), buf), total_of(&b));
    put_part(page, mean_square, "quantisation", "quantisation_interval");
    put_part(page, mean_square, "divergence", "divergence_interval");
    put_part(page, mean_square, "interaction", "interaction_interval");
    nd_html_puts(page, "</tr>\n");
}

static double score_of(const json_t *layer)
{
    struct budget b = budget_of(nd_doc_get(layer, "quality"));
    return is_known(&b) ? total_of(&b) : -INFINITY;
}

static int by_falling_score(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The score that a layer needs to be among the `most` with the highest. */
static double nd_page_threshold(struct nd_page *page, const json_t *layers,
                                double (*score)(const json_t *layer), size_t most)
{
    size_t n = json_array_size(layers);
    if (n <= most)
        return -INFINITY;
    ND_FREED double *scores = nd_calloc(n, sizeof *scores);
    if (scores == NULL) {
        page->out->failed = true;
        return -INFINITY;
    }
    for (size_t i = 0; i < n; i++)
        scores[i] = score(json_array_get(layers, i));
    qsort(scores, n, sizeof *scores, by_falling_score);
    return scores[most - 1];
}

/* Of a model with more layers than are shown: those with the largest error, in graph order. */
static void put_rows(struct nd_page *page, const json_t *layers, size_t most)
{
    size_t n = json_array_size(layers), n_put = 0;
    double threshold = nd_page_threshold(page, layers, score_of, most);
    for (size_t i = 0; i < n && n_put < most; i++) {
        double score = score_of(json_array_get(layers, i));
        if (!isfinite(score) || score < threshold)
            continue;
        const json_t *layer = json_array_get(layers, i);
        char buf[ND_HTML_TEXT_BYTES];
        struct budget b = budget_of(nd_doc_get(layer, "quality"));
        nd_html_fill(page, "<tr><th scope=\"row\">$n</th><td class=\"bars\">", nd_doc_text(layer, "name"));
        put_bar(page, &b);
        nd_html_puts(page, "</td>");
        nd_html_cell_number(page, nd_html_real(b.quantisation, buf), b.quantisation);
        nd_html_cell_number(page, nd_html_real(b.chip, buf), b.chip);
        nd_html_cell_number(page, nd_html_real(b.interaction, buf), b.interaction);
        nd_html_puts(page, "</tr>\n");
        n_put++;
    }
}

static void put_layers(struct nd_page *page, const struct nd_page_part *part, const json_t *device, size_t most)
{
    const json_t *layers = nd_doc_get(device, "layers");
    nd_html_printf(page, "<details%s>", json_array_size(nd_doc_get(device, "faulty")) > 0 ? " open" : "");
    nd_html_fill(page, "<summary>Layers of $n</summary>", nd_page_device_label(part, device));
    nd_html_scroll(page, "Budget of the layers", true);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Mean squared error of each layer's output against "
                       "the float model, in LSB&sup2;");
    if (json_array_size(layers) > most)
        nd_html_printf(page, ": the %zu layers of %zu with the largest error", most, json_array_size(layers));
    nd_html_puts(page, "</caption>");
    nd_html_heads(page, "Layer|Shares|#Quantisation|#Chip|#Interaction");
    put_rows(page, layers, most);
    nd_html_puts(page, "</tbody></table></div></details>\n");
}

static size_t n_known(const json_t *devices)
{
    const json_t *device;
    size_t d, n = 0;
    json_array_foreach(devices, d, device) {
        struct budget b = budget_of(nd_doc_get(device, "mean_squared_error"));
        n += is_known(&b);
    }
    return n;
}

/* How many layers of each of n devices are shown. */
static size_t nd_page_rows_each(size_t n_devices)
{
    size_t each = n_devices > 0 ? ND_PAGE_MAX_ROWS / n_devices : ND_PAGE_MAX_ROWS;
    return each > ND_PAGE_MIN_ROWS ? each : ND_PAGE_MIN_ROWS;
}

void nd_view_budget(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *explanation = part->documents[ND_PAGE_EXPLANATION];
    const json_t *devices = nd_doc_get(explanation, "devices"), *device;
    size_t d;
    nd_html_section(page, part, "budget", "Error budget");
    if (n_known(devices) == 0) {
        nd_html_absent(
            page,
            "How much of the error is quantisation, and how much is the chip, is not in this report. It is "
            "when the float model is given:",
            "npudiff report --quantised MODEL.onnx --float FLOAT.onnx REFERENCE.h5 TEST.h5 -o report.html");
        nd_html_section_end(page);
        return;
    }
    nd_html_puts(
        page,
        "<ul class=\"legend\"><li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect "
        "class=\"quantisation\" width=\"10\" height=\"10\"/></svg> quantisation: the same on every "
        "chip</li><li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect class=\"chip\" "
        "width=\"10\" height=\"10\"/></svg> chip: what this device adds</li><li><svg class=\"key\" viewBox=\"0 "
        "0 10 10\" aria-hidden=\"true\"><rect class=\"interaction\" width=\"10\" height=\"10\"/></svg> both "
        "together add to it</li><li><svg class=\"key\" viewBox=\"0 0 10 10\" aria-hidden=\"true\"><rect "
        "class=\"cancel\" width=\"10\" height=\"10\"/></svg> they partly cancel</li></ul>\n");
    nd_html_scroll(page, "Error budget", false);
    nd_html_printf(
        page,
        "<table><caption>Mean squared error of the model's outputs against the float model, in LSB&sup2;, with "
        "95 %% intervals over samples; samples examined: %.0f. Identical devices share a row.</caption>",
        nd_doc_number(explanation, "samples"));
    nd_html_heads(page, "Device|Shares|#The chip's share|#Error|#Quantisation|#Chip|#Interaction");
    json_array_foreach(devices, d, device) {
        if (nd_doc_is_leader(device, d))
            put_device(page, part, device);
    }
    nd_html_puts(page, "</tbody></table></div>\n");
    json_array_foreach(devices, d, device) {
        if (nd_doc_is_leader(device, d) && json_array_size(nd_doc_get(device, "layers")) > 0)
            put_layers(page, part, device, nd_page_rows_each(json_array_size(devices)));
    }
    put_quantisation(page, part);
    nd_html_section_end(page);
}

/* ---- the error on its way through the model: which layers introduce differences, which only pass them on, and
 * what that does to the outputs. A table; scripts draw the graph of it ---- */

/* Whether there is anything to show of the device: values of layers. */
static bool has_layers(const json_t *device, size_t d)
{
    return nd_doc_is_leader(device, d) && json_array_size(nd_doc_get(device, "layers")) > 0;
}

static const char *layer_state(const json_t *layer)
{
    return nd_html_state(nd_doc_text(layer, "state"));
}

static void put_number(struct nd_page *page, const json_t *layer, const char *key, bool is_share)
{
    char buf[ND_HTML_TEXT_BYTES];
    double value = nd_doc_number(layer, key);
    nd_html_cell_number(page,
                        isnan(value) ? ""
                        : is_share   ? nd_html_percent(value, buf)
                                     : nd_html_real(value, buf),
                        value);
}

/* What makes a layer worth a row: a fault, then its effect, then what it introduces. */
static double rank_of(const json_t *layer)
{
    double effect = nd_doc_number(layer, "affected_share"),
           introduced = nd_doc_number(layer, "introduced_mismatch");
    double score = strcmp(layer_state(layer), "fail") == 0 ? 3 : 0;
    return score + (isfinite(effect) ? effect : 0) + (isfinite(introduced) ? introduced : 0);
}

static void put_flow(struct nd_page *page, const struct nd_page_part *part, const json_t *device, size_t d,
                     size_t most, bool is_open)
{
    const json_t *layers = nd_doc_get(device, "layers");
    const char *verdict = nd_doc_text(device, "verdict");
    nd_html_printf(page, "<details class=\"layers\"%s><summary>", is_open ? " open" : "");
    nd_html_fill(page, "$n ", nd_page_device_label(part, device));
    nd_html_badge(page, nd_html_state(verdict), verdict);
    if (nd_doc_number(nd_doc_get(device, "observer"), "changed") > 0)
        nd_html_puts(page, " of the recorded graph: recording changes the outputs");
    nd_html_puts(page, "</summary>\n");
    nd_html_scroll(page, "Layers", true);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Layers in graph order");
    if (json_array_size(layers) > most)
        nd_html_printf(page, ": the %zu of %zu with the most effect and the most differences", most,
                       json_array_size(layers));
    nd_html_puts(page, ". Introduced here: values that differ from the layer computed exactly from its own "
                       "inputs. Passed on: values that differ because the inputs did. Effect: output values "
                       "that change where this layer alone is as on the device.</caption>");
    nd_html_heads(page,
                  "Layer|Operator|#Introduced here|#Passed on|#Amplification|#Effect on the outputs|State");
    /* Of a model with more layers than are shown: those with the highest scores, in graph order. */
    size_t n = json_array_size(layers), n_put = 0;
    double threshold = nd_page_threshold(page, layers, rank_of, most);
    for (size_t i = 0; i < n && n_put < most; i++) {
        const json_t *layer = json_array_get(layers, i);
        if (rank_of(layer) < threshold)
            continue;
        const char *arithmetic = nd_doc_text(layer, "arithmetic"), *why_not = nd_doc_text(layer, "why_not");
        nd_html_printf(page, "<tr id=\"%slayer-%zu-%zu\"><th scope=\"row\">", part->prefix, d + 1, i + 1);
        nd_html_fill(page, "$n</th><td class=\"op\">$t</td>", nd_doc_text(layer, "name"),
                     nd_doc_text(layer, "op_type"));
        put_number(page, layer, "introduced_mismatch", true);
        put_number(page, layer, "passed_on_mismatch", true);
        put_number(page, layer, "amplification", false);
        put_number(page, layer, "affected_share", true);
        nd_html_puts(page, "<td>");
        nd_html_badge(page, layer_state(layer), nd_doc_text(layer, "state"));
        nd_html_fill(page, " $t</td></tr>\n", why_not[0] != '\0' ? why_not : arithmetic);
        n_put++;
    }
    nd_html_puts(page, "</tbody></table></div></details>\n");
}

/* ---- data ---- */

static void put_known(struct nd_json *data, double value)
{
    if (isfinite(value))
        nd_html_data_real(data, NULL, value);
    else
        nd_json_null(data, NULL);
}

/* Names, operators and inputs are the same on all devices. */
static void put_graph(struct nd_json *data, const json_t *layers)
{
    const json_t *layer, *inputs, *input;
    size_t i, k, n = json_array_size(layers);
    nd_json_open_line(data, "nodes", '[');
    json_array_foreach(layers, i, layer) {
        nd_json_open_line(data, NULL, '[');
        nd_json_text(data, NULL, nd_doc_text(layer, "name"));
        nd_json_text(data, NULL, nd_doc_text(layer, "op_type"));
        nd_json_open_line(data, NULL, '[');
        inputs = nd_doc_get(layer, "inputs");
        json_array_foreach(inputs, k, input) {
            if (json_is_integer(input) && json_integer_value(input) >= 0 &&
                (size_t)json_integer_value(input) < n)
                nd_json_int(data, NULL, json_integer_value(input));
        }
        nd_json_close(data, ']');
        nd_json_close(data, ']');
    }
    nd_json_close(data, ']');
}

static void put_data(struct nd_json *data, const struct nd_page_part *part, const json_t *devices)
{
    const json_t *device;
    size_t d;
    bool has_graph = false;
    nd_json_open_line(data, "flow", '{');
    json_array_foreach(devices, d, device) {
        if (!has_graph && has_layers(device, d)) {
            put_graph(data, nd_doc_get(device, "layers"));
            has_graph = true;
        }
    }
    nd_json_open_line(data, "devices", '[');
    json_array_foreach(devices, d, device) {
        if (has_layers(device, d)) {
            const json_t *layers = nd_doc_get(device, "layers"), *layer;
            size_t i;
            nd_json_open_line(data, NULL, '{');
            nd_json_count(data, "id", d + 1);
            nd_json_text(data, "label", nd_page_device_label(part, device));
            nd_json_open_line(data, "layers", '[');
            json_array_foreach(layers, i, layer) {
                nd_json_open_line(data, NULL, '[');
                put_known(data, nd_doc_number(layer, "introduced_mismatch"));
                put_known(data, nd_doc_number(layer, "passed_on_mismatch"));
                put_known(data, nd_doc_number(layer, "affected_share"));
                nd_json_text(data, NULL, layer_state(layer));
                nd_json_close(data, ']');
            }
            nd_json_close(data, ']');
            nd_json_close(data, '}');
        }
    }
    nd_json_close(data, ']');
    nd_json_close(data, '}');
}

void nd_view_flow(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *devices = nd_doc_get(part->documents[ND_PAGE_EXPLANATION], "devices"), *device;
    size_t d, n = 0, n_faulty = 0, first = SIZE_MAX;
    nd_html_section(page, part, "flow", "Error flow");
    json_array_foreach(devices, d, device) {
        if (!has_layers(device, d))
            continue;
        first = n++ == 0 ? d : first;
        n_faulty += json_array_size(nd_doc_get(device, "faulty")) > 0;
    }
    if (n == 0)
        nd_html_absent(
            page, "Which layer introduces a difference is not in this report. It is when the model is given:",
            "npudiff report --quantised MODEL.onnx REFERENCE.h5 TEST.h5 -o report.html");
    else
        nd_html_printf(page, "<div class=\"graph\" data-graph=\"%s\" hidden></div>\n", part->prefix);
    json_array_foreach(devices, d, device) {
        if (has_layers(device, d))
            put_flow(page, part, device, d, nd_page_rows_each(n),
                     n_faulty > 0 ? json_array_size(nd_doc_get(device, "faulty")) > 0 : d == first);
    }
    nd_html_section_end(page);
    if (n > 0) {
        put_data(&page->data, part, devices);
        page->has_graph = true;
    }
}
