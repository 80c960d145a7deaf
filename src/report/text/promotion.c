/* What `npudiff promote` found, as JSON and as text: the layers that get more bits, then the devices. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "report/text/tree.h"

static json_t *cost_json(const struct nd_promotion_cost *cost)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "percent", nd_json_number(cost->percent), "activation_bytes",
                     nd_json_number(cost->activation_bytes), "weight_bytes", nd_json_number(cost->weight_bytes),
                     "multiply_adds_16_bits", nd_json_number(cost->multiply_adds), "conversions",
                     nd_int(cost->n_conversions));
}

static json_t *layer_json(const struct nd_promoted *promoted, const struct nd_promoted_layer *layer)
{
    json_t *devices = json_array();
    for (size_t d = 0; d < promoted->n_devices; d++)
        nd_tree_append(devices, nd_json_known(layer->device_db[d]));
    return json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor",
                     nd_json_string(layer->name), "operators", nd_json_string(layer->op_types), "change",
                     nd_remedy_kind_name(layer->kind), "fate", nd_promotion_fate_name(layer->fate), "reason",
                     nd_or_null(layer->reason), "effect_share", nd_json_known(layer->effect_share), "alone_db",
                     nd_json_known(layer->alone_db), "predicted_db", nd_json_known(layer->predicted_db),
                     "measured_db", nd_json_known(layer->measured_db), "devices_db", devices, "cost",
                     cost_json(&layer->cost));
}

enum nd_status nd_report_promotion_json(const struct nd_promoted *promoted, char **out, struct nd_error *err)
{
    json_t *layers = json_array(), *devices = json_array();
    for (size_t i = 0; i < promoted->n_layers; i++)
        nd_tree_append(layers, layer_json(promoted, &promoted->layers[i]));
    for (size_t d = 0; d < promoted->n_devices; d++) {
        const struct nd_promoted_device *device = &promoted->devices[d];
        bool has_labels = device->n_labelled > 0;
        nd_tree_append(devices,
                       json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "device", nd_json_string(device->label),
                                 "before_db", nd_json_known(device->before_db), "after_db",
                                 nd_json_known(device->after_db), "labelled", nd_int(device->n_labelled),
                                 "right_before", has_labels ? nd_int(device->n_right_before) : json_null(),
                                 "right_after", has_labels ? nd_int(device->n_right_after) : json_null()));
    }
    json_t *computed = json_pack("{s:o, s:o, s:o}", "samples", nd_int(promoted->n_computed_samples),
                                 "before_db", nd_json_known(promoted->computed_before_db), "after_db",
                                 nd_json_known(promoted->computed_after_db));
    json_t *members =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result",
                  promoted->n_kept > 0 ? "promoted" : "nothing helps", "model", nd_json_string(promoted->model),
                  "float_model", nd_json_string(promoted->float_model), "output", nd_or_null(promoted->output),
                  "samples", nd_int(promoted->n_samples), "devices", devices, "computed", computed, "kept",
                  nd_int(promoted->n_kept), "cost", cost_json(&promoted->cost), "budget_percent",
                  nd_json_known(promoted->budget_percent), "layers", layers);
    return nd_tree_end(ND_DOCUMENT_PROMOTION, members, out, err);
}

static const char *change_words(const struct nd_promoted_layer *layer)
{
    return layer->kind == ND_REMEDY_16_BITS ? "16 bits" : "per channel";
}

/* "1.23 k", "45.6 M" */
static void add_amount(json_t *row, const char *key, double value)
{
    static const char *const layers[] = {"", " k", " M", " G", " T"};
    char text[64];
    size_t layer = 0;
    for (; value >= 1000 && layer + 1 < sizeof layers / sizeof layers[0]; layer++)
        value /= 1000;
    snprintf(text, sizeof text, "%.3g%s", value, layers[layer]);
    nd_tree_set(row, key, nd_json_string(text));
}

static void add_cost(json_t *row, const struct nd_promotion_cost *cost)
{
    nd_tree_number(row, "percent", "%.3g %%", cost->percent);
    add_amount(row, "bytes", cost->activation_bytes + cost->weight_bytes);
    add_amount(row, "products", cost->multiply_adds);
}

/* The smallest gain of all devices. */
static double gain_of(const struct nd_promoted *promoted)
{
    double least = HUGE_VAL;
    for (size_t d = 0; d < promoted->n_devices; d++)
        least = fmin(least, promoted->devices[d].after_db - promoted->devices[d].before_db);
    return least;
}

static size_t n_of(const struct nd_promoted *promoted, enum nd_promotion_fate fate)
{
    size_t n = 0;
    for (size_t i = 0; i < promoted->n_layers; i++)
        n += promoted->layers[i].fate == fate;
    return n;
}

static void say_headline(struct nd_report_screen *screen, const struct nd_promoted *promoted)
{
    if (promoted->n_kept == 0) {
        if (promoted->n_layers == 0)
            nd_report_screen_put(screen, "NOTHING HELPS: no layer can get more bits\n");
        else
            nd_report_screen_put(screen, "NOTHING HELPS: none of %zu proposals is worth its cost%s\n",
                                 promoted->n_layers,
                                 n_of(promoted, ND_PROMOTE_OVER_BUDGET) > 0 ? " within the budget" : "");
        return;
    }
    nd_report_screen_put(screen, "PROMOTED: %zu layer%s, %+.1f dB on %s, at a cost of %.3g %%\n",
                         promoted->n_kept, promoted->n_kept == 1 ? "" : "s", gain_of(promoted),
                         promoted->n_devices == 1 ? promoted->devices[0].label : "every device",
                         promoted->cost.percent);
    if (promoted->output != NULL)
        nd_report_screen_put(screen, "%s: written to '%s'.\n", nd_path_base(promoted->model), promoted->output);
}

static void say_layers(struct nd_report_screen *screen, const struct nd_promoted *promoted)
{
    static const struct nd_report_column columns[] = {
        {"layer", "LAYER"},  {"change", "CHANGE"}, {"predicted", "PREDICTED"}, {"measured", "MEASURED"},
        {"percent", "COST"}, {"bytes", "BYTES"},   {"products", "PRODUCTS"},   {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t i = 0; i < promoted->n_layers; i++) {
        const struct nd_promoted_layer *layer = &promoted->layers[i];
        if (layer->fate != ND_PROMOTE_KEPT)
            continue;
        json_t *row =
            json_pack("{s:o, s:s}", "layer", nd_json_string(layer->name), "change", change_words(layer));
        nd_tree_number(row, "predicted", "%+.2f", layer->predicted_db);
        nd_tree_number(row, "measured", "%+.2f", layer->measured_db);
        add_cost(row, &layer->cost);
        nd_tree_append(rows, row);
    }
    if (promoted->n_kept == 0) {
        json_decref(rows);
        return;
    }
    nd_report_screen_put(screen, "\n");
    nd_screen_rows(screen, rows, columns, "-v shows all");
    nd_report_screen_put(screen,
                         "\nGains in dB, each beside those above it; MEASURED on the device that gains least.\n"
                         "PRODUCTS: multiply-adds at 16 bits. COST: their share, or that of the bytes.\n");
}

enum nd_status nd_report_promotion_brief(const struct nd_promoted *promoted, size_t width, char **out,
                                         struct nd_error *err)
{
    struct nd_report_screen *screen = nd_report_screen_create(width);
    say_headline(screen, promoted);
    say_layers(screen, promoted);
    static const struct nd_report_column columns[] = {{"device", "DEVICE"},
                                                      {"before", "DB BEFORE"},
                                                      {"after", "DB AFTER"},
                                                      {"right", "RIGHT CLASSES"},
                                                      {NULL, NULL}};
    json_t *rows = json_array();
    for (size_t d = 0; d < promoted->n_devices; d++) {
        const struct nd_promoted_device *device = &promoted->devices[d];
        json_t *row = json_pack("{s:o}", "device", nd_json_string(device->label));
        char right[96];
        nd_tree_number(row, "before", "%.2f", device->before_db);
        nd_tree_number(row, "after", "%.2f", device->after_db);
        snprintf(right, sizeof right, "%zu, then %zu of %zu", device->n_right_before, device->n_right_after,
                 device->n_labelled);
        nd_tree_set(row, "right", device->n_labelled > 0 ? nd_json_string(right) : json_null());
        nd_tree_append(rows, row);
    }
    nd_report_screen_put(screen, "\nSignal-to-noise ratio of the outputs to the float model, %zu sample%s:\n",
                         promoted->n_samples, promoted->n_samples == 1 ? "" : "s");
    nd_screen_rows(screen, rows, columns, "-v shows all");
    /* Proposals that were not kept are told of by number. */
    size_t n_useless = n_of(promoted, ND_PROMOTE_NO_GAIN), n_refused = n_of(promoted, ND_PROMOTE_REFUSED),
           n_dear = n_of(promoted, ND_PROMOTE_OVER_BUDGET);
    if (n_useless + n_refused + n_dear > 0)
        nd_report_screen_put(
            screen,
            "\nNot kept: %zu did not help, %zu could not run, %zu were over the budget (-v shows them).\n",
            n_useless, n_refused, n_dear);
    const char *const words[] = {"npudiff", "promote", promoted->model, "--float", promoted->float_model,
                                 "...",     "-o",      "promoted.onnx"};
    if (promoted->n_kept > 0 && promoted->output == NULL)
        nd_report_screen_next(screen, "to write the model", words, sizeof words / sizeof words[0]);
    return nd_report_screen_end(&screen, out, err);
}

/* ---- everything ---- */

enum nd_status nd_report_promotion_text(const struct nd_promoted *promoted, size_t width, char **out,
                                        struct nd_error *err)
{
    static const struct nd_report_column columns[] = {{"layer", "LAYER"},
                                                      {"operators", "OPERATORS"},
                                                      {"change", "CHANGE"},
                                                      {"effect", "EFFECT"},
                                                      {"alone", "DB ALONE"},
                                                      {"predicted", "PREDICTED"},
                                                      {"measured", "MEASURED"},
                                                      {"percent", "COST"},
                                                      {"fate", "RESULT"},
                                                      {"reason", "WHY"},
                                                      {NULL, NULL}};
    struct nd_strbuf text = {0};
    char *brief = NULL;
    ND_TRY(nd_report_promotion_brief(promoted, width, &brief, err));
    nd_strbuf_puts(&text, brief);
    free(brief);
    json_auto_t *rows = json_array();
    for (size_t i = 0; i < promoted->n_layers; i++) {
        const struct nd_promoted_layer *layer = &promoted->layers[i];
        json_t *row = json_pack("{s:o, s:o, s:s, s:s, s:o}", "layer", nd_json_string(layer->name), "operators",
                                nd_json_string(layer->op_types), "change", change_words(layer), "fate",
                                nd_promotion_fate_name(layer->fate), "reason",
                                layer->reason != NULL ? nd_json_string(layer->reason) : json_null());
        nd_tree_number(row, "effect", "%.3g %%", 100 * layer->effect_share);
        nd_tree_number(row, "alone", "%+.2f", layer->alone_db);
        nd_tree_number(row, "predicted", "%+.2f", layer->predicted_db);
        nd_tree_number(row, "measured", "%+.2f", layer->measured_db);
        add_cost(row, &layer->cost);
        nd_tree_append(rows, row);
    }
    nd_strbuf_puts(&text, "\nAll proposals, in the order in which they are tried. EFFECT: of the layer's "
                          "error, of the effects of all layers on the outputs.\n");
    nd_rows_put(&text, rows, columns);
    return nd_text_end(&text, out, err);
}
