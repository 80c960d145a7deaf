/* A model before and after `align` or `promote`: what its outputs are worth, and the layers that were changed.
 */
#include <math.h>
#include <string.h>

#include "report/html/html.h"

static void put_real(struct nd_page *page, double value)
{
    char buf[ND_HTML_TEXT_BYTES];
    nd_html_cell_number(page, nd_html_real(value, buf), value);
}

static void put_named(struct nd_page *page, const char *name)
{
    nd_html_puts(page, "<tr><th scope=\"row\">");
    nd_html_name(page, name);
    nd_html_puts(page, "</th>");
}

static void end_table(struct nd_page *page)
{
    nd_html_puts(page, "</tbody></table></div>\n");
}

/* Right classes of so many: "" without labels. */
static void put_right(struct nd_page *page, const json_t *of, const char *key)
{
    char buf[ND_HTML_TEXT_BYTES];
    double n = nd_doc_number(of, key), all = nd_doc_number(of, ND_KEY_LABELLED);
    nd_html_cell_number(page, all > 0 && !isnan(n) ? nd_html_count(n, buf) : "", n);
}

/* Outputs before and after. `of`: has how many were right. */
static void put_before_after(struct nd_page *page, const char *name, double before_db, double after_db,
                             const json_t *of)
{
    put_named(page, name);
    put_real(page, before_db);
    put_real(page, after_db);
    put_right(page, of, ND_KEY_RIGHT_BEFORE);
    put_right(page, of, ND_KEY_RIGHT_AFTER);
    nd_html_puts(page, "</tr>\n");
}

static void put_card(struct nd_page *page, const json_t *document, bool is_good)
{
    const char *output = nd_doc_text(document, ND_KEY_OUTPUT);
    nd_html_printf(page, "<div class=\"card %s\"><p class=\"word\">", is_good ? "ok" : "note");
    nd_html_text(page, nd_doc_text(document, ND_KEY_RESULT));
    nd_html_puts(page, " <span class=\"of\">");
    nd_html_name(page, nd_doc_text(document, ND_KEY_MODEL));
    nd_html_puts(page, "</span></p>\n");
    if (output[0] != '\0') {
        nd_html_puts(page, "<p>Written to ");
        nd_html_name(page, output);
        nd_html_puts(page, ".</p>\n");
    }
    nd_html_puts(page, "</div>\n");
}

/* ---- promote ---- */

static void put_devices(struct nd_page *page, const json_t *document)
{
    const json_t *device;
    size_t i;
    nd_html_scroll(page, "Before and after", false);
    nd_html_puts(page,
                 "<table class=\"sortable\"><caption>Before and after: signal-to-noise ratio of the outputs "
                 "to the float model, in dB, and right classes</caption>");
    nd_html_heads(page, "Device|#Before|#After|#Right before|#Right after");
    json_array_foreach(nd_doc_get(document, ND_KEY_DEVICES), i, device)
    {
        put_before_after(page, nd_doc_text(device, ND_KEY_DEVICE), nd_doc_number(device, ND_KEY_BEFORE_DB),
                         nd_doc_number(device, ND_KEY_AFTER_DB), device);
    }
    end_table(page);
}

static void put_promoted_layers(struct nd_page *page, const json_t *document)
{
    const json_t *layer;
    size_t i;
    nd_html_scroll(page, "Layers that were promoted", false);
    nd_html_puts(page,
                 "<table class=\"sortable\"><caption>Layers that get more bits, each beside those before it; "
                 "gains in dB, cost in percent of the model's bytes or multiply-adds</caption>");
    nd_html_heads(page, "Layer|Operators|Change|#Predicted|#Measured|#Cost, %");
    json_array_foreach(nd_doc_get(document, ND_KEY_LAYERS), i, layer)
    {
        if (strcmp(nd_doc_text(layer, ND_KEY_FATE), "kept") != 0)
            continue;
        put_named(page, nd_doc_text(layer, ND_KEY_TENSOR));
        nd_html_cell(page, nd_doc_text(layer, ND_KEY_OPERATORS));
        nd_html_cell(page, nd_doc_text(layer, ND_KEY_LAYER_CHANGE));
        put_real(page, nd_doc_number(layer, ND_KEY_PREDICTED_DB));
        put_real(page, nd_doc_number(layer, ND_KEY_MEASURED_DB));
        put_real(page, nd_doc_number(nd_doc_get(layer, ND_KEY_LAYER_COST), ND_KEY_PERCENT));
        nd_html_puts(page, "</tr>\n");
    }
    end_table(page);
}

/* ---- align ---- */

static void put_accuracy_cost(struct nd_page *page, const json_t *document)
{
    const json_t *cost = nd_doc_get(document, ND_KEY_ACCURACY_COST), *output;
    const char *groups = nd_doc_text(nd_doc_get(document, ND_KEY_VERIFICATION), ND_KEY_GROUPS_TEXT);
    size_t i;
    if (groups[0] != '\0') {
        nd_html_puts(page, "<p>After, the devices form these groups: ");
        nd_html_text(page, groups);
        nd_html_puts(page, ".</p>\n");
    }
    if (json_array_size(nd_doc_get(cost, ND_KEY_ACCURACY_COST_OUTPUTS)) == 0)
        return;
    nd_html_scroll(page, "Before and after", false);
    nd_html_puts(page,
                 "<table class=\"sortable\"><caption>Before and after: signal-to-noise ratio of the outputs, "
                 "in dB, and right classes, in exact arithmetic</caption>");
    nd_html_heads(page, "Output|#Before|#After|#Right before|#Right after");
    json_array_foreach(nd_doc_get(cost, ND_KEY_ACCURACY_COST_OUTPUTS), i, output)
    {
        put_before_after(page, nd_doc_text(output, ND_KEY_TENSOR), nd_doc_number(output, ND_KEY_SQNR_BEFORE_DB),
                         nd_doc_number(output, ND_KEY_SQNR_AFTER_DB), cost);
    }
    end_table(page);
}

static void put_aligned_layers(struct nd_page *page, const json_t *document)
{
    const json_t *layer;
    size_t i;
    nd_html_scroll(page, "Layers and what is proven", true);
    nd_html_puts(page, "<table class=\"sortable\"><caption>Layers after: whether all arithmetics give the same "
                       "values</caption>");
    nd_html_heads(page, "Layer|Operators|State|Why not proven");
    json_array_foreach(nd_doc_get(document, ND_KEY_LAYERS), i, layer)
    {
        put_named(page, nd_doc_text(layer, ND_KEY_TENSOR));
        nd_html_cell(page, nd_doc_text(layer, ND_KEY_OPERATORS));
        nd_html_cell(page, nd_doc_text(layer, ND_KEY_STATE));
        nd_html_cell(page, nd_doc_text(layer, ND_KEY_REASON));
        nd_html_puts(page, "</tr>\n");
    }
    end_table(page);
}

void nd_view_changed(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *document = part->documents[ND_PAGE_CHANGED];
    const char *result = nd_doc_text(document, ND_KEY_RESULT);
    put_card(page, document, strcmp(result, "promoted") == 0 || strcmp(result, "aligned") == 0);
    if (strcmp(nd_doc_text(document, ND_KEY_KIND), ND_KIND_PROMOTION) == 0) {
        put_devices(page, document);
        put_promoted_layers(page, document);
    } else {
        put_accuracy_cost(page, document);
        put_aligned_layers(page, document);
    }
}
