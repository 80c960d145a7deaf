/* The error on its way through the model: which layers introduce differences, which only pass them on, and what
 * that does to the outputs. A table; scripts draw the graph of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report/html/html.h"

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

static void put_layer(struct nd_page *page, const struct nd_page_part *part, const json_t *layer, size_t d,
                      size_t i)
{
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
}

/* What makes a layer worth a row: a fault, then its effect, then what it introduces. */
static double score_of(const json_t *layer)
{
    double effect = nd_doc_number(layer, "affected_share"),
           introduced = nd_doc_number(layer, "introduced_mismatch");
    double score = strcmp(layer_state(layer), "fail") == 0 ? 3 : 0;
    return score + (isfinite(effect) ? effect : 0) + (isfinite(introduced) ? introduced : 0);
}

static void put_device(struct nd_page *page, const struct nd_page_part *part, const json_t *device, size_t d,
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
    double threshold = nd_page_threshold(page, layers, score_of, most);
    for (size_t i = 0; i < n && n_put < most; i++) {
        const json_t *layer = json_array_get(layers, i);
        if (score_of(layer) < threshold)
            continue;
        put_layer(page, part, layer, d, i);
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

static void put_device_data(struct nd_json *data, const struct nd_page_part *part, const json_t *device,
                            size_t d)
{
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
        if (has_layers(device, d))
            put_device_data(data, part, device, d);
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
            put_device(page, part, device, d, nd_page_rows_each(n),
                       n_faulty > 0 ? json_array_size(nd_doc_get(device, "faulty")) > 0 : d == first);
    }
    nd_html_section_end(page);
    if (n > 0) {
        put_data(&page->data, part, devices);
        page->has_graph = true;
    }
}
