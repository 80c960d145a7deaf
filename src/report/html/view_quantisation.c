/* Where the quantisation breaks the model: the layers whose own error matters most at the outputs, why they
 * make it, and what would help. A part of the error budget. */
#include <math.h>
#include <string.h>

#include "report/html/html.h"

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
    json_array_foreach(remedies, i, remedy)
    {
        double gain = nd_doc_number(remedy, ND_KEY_OUTPUT_GAIN);
        if (i >= MAX_REMEDIES)
            break;
        nd_html_puts(page, i > 0 ? "; or " : "");
        nd_html_text(page, nd_doc_text(remedy, ND_KEY_TEXT));
        if (isfinite(gain))
            nd_html_printf(page, " (%s%s dB)", gain >= 0 ? "+" : "", nd_html_real(gain, buf));
    }
    nd_html_puts(page, "</td>");
}

static void put_layer(struct nd_page *page, const json_t *layer)
{
    char buf[ND_HTML_TEXT_BYTES];
    double share = nd_doc_number(layer, ND_KEY_EFFECT_SHARE);
    nd_html_puts(page, "<tr><th scope=\"row\">");
    nd_html_name(page, nd_doc_text(layer, ND_KEY_NAME));
    nd_html_puts(page, "</th>");
    nd_html_cell(page, nd_doc_text(layer, ND_KEY_OP_TYPE));
    nd_html_cell_number(page, nd_html_percent(share, buf), share);
    put_decibel(page, layer, ND_KEY_EFFECT_DB);
    put_decibel(page, layer, ND_KEY_SQNR);
    nd_html_cell(page, nd_doc_text(layer, ND_KEY_TEXT));
    put_remedies(page, nd_doc_get(layer, ND_KEY_REMEDIES));
    nd_html_puts(page, "</tr>\n");
}

void nd_view_quantisation(struct nd_page *page, const struct nd_page_part *part)
{
    const json_t *found = nd_doc_get(part->documents[ND_PAGE_EXPLANATION], ND_KEY_QUANTISATION), *name;
    const json_t *ranked = nd_doc_get(found, ND_KEY_RANKED), *layers = nd_doc_get(found, ND_KEY_LAYERS);
    char buf[ND_HTML_TEXT_BYTES];
    size_t i;
    if (json_array_size(ranked) == 0)
        return;
    nd_html_printf(page,
                   "<h3>What the quantisation costs, layer by layer</h3>\n<p>Quantisation alone, on no chip: ");
    nd_html_text(page, nd_html_real(nd_doc_number(found, ND_KEY_OUTPUT_SQNR), buf));
    nd_html_printf(page,
                   " dB at the outputs (signal over error, against the float model; samples: %.0f).</p>\n",
                   nd_doc_number(found, ND_KEY_OUTPUT_EFFECT_SAMPLES));
    nd_html_scroll(page, "Quantisation by layer", true);
    nd_html_puts(page,
                 "<table class=\"sortable\"><caption>Layers whose quantisation matters most at the outputs. "
                 "Gains were computed with the change made, not estimated.</caption>");
    nd_html_heads(page, "Layer|Operator|#Share of the effects|#Alone at the outputs, dB|#The tensor itself, dB|"
                        "Why|What would help");
    json_array_foreach(ranked, i, name)
    {
        const json_t *layer =
            json_is_string(name) ? nd_doc_find(layers, ND_KEY_NAME, json_string_value(name)) : NULL;
        if (i < MAX_LAYERS && layer != NULL)
            put_layer(page, layer);
    }
    nd_html_puts(page, "</tbody></table></div>\n");
}
