/* What `npudiff promote` found, as JSON. */
#include <math.h>

#include "core/documents/json_out.h"
#include "report/text/tree.h"

static json_t *count(size_t n)
{
    return json_integer((json_int_t)n);
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? nd_json_string(text) : json_null();
}

static json_t *cost_json(const struct nd_promotion_cost *cost)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o}", "percent", nd_json_number(cost->percent), "activation_bytes",
                     nd_json_number(cost->activation_bytes), "weight_bytes", nd_json_number(cost->weight_bytes),
                     "multiply_adds_16_bits", nd_json_number(cost->multiply_adds), "conversions",
                     count(cost->n_conversions));
}

static json_t *layer_json(const struct nd_promoted *promoted, const struct nd_promoted_layer *layer)
{
    json_t *devices = json_array();
    for (size_t d = 0; d < promoted->n_devices; d++)
        nd_tree_append(devices, nd_json_known(layer->device_db[d]));
    return json_pack("{s:o, s:o, s:s, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor",
                     nd_json_string(layer->name), "operators", nd_json_string(layer->op_types), "change",
                     nd_remedy_kind_name(layer->kind), "fate", nd_promotion_fate_name(layer->fate), "reason",
                     text_or_null(layer->reason), "effect_share", nd_json_known(layer->effect_share),
                     "alone_db", nd_json_known(layer->alone_db), "predicted_db",
                     nd_json_known(layer->predicted_db), "measured_db", nd_json_known(layer->measured_db),
                     "devices_db", devices, "cost", cost_json(&layer->cost));
}

static json_t *device_json(const struct nd_promoted_device *device)
{
    bool has_labels = device->n_labelled > 0;
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "device", nd_json_string(device->label), "before_db",
                     nd_json_known(device->before_db), "after_db", nd_json_known(device->after_db), "labelled",
                     count(device->n_labelled), "right_before",
                     has_labels ? count(device->n_right_before) : json_null(), "right_after",
                     has_labels ? count(device->n_right_after) : json_null());
}

enum nd_status nd_report_promotion_json(const struct nd_promoted *promoted, char **out, struct nd_error *err)
{
    json_t *layers = json_array(), *devices = json_array();
    for (size_t i = 0; i < promoted->n_layers; i++)
        nd_tree_append(layers, layer_json(promoted, &promoted->layers[i]));
    for (size_t d = 0; d < promoted->n_devices; d++)
        nd_tree_append(devices, device_json(&promoted->devices[d]));
    json_t *computed = json_pack("{s:o, s:o, s:o}", "samples", count(promoted->n_computed_samples), "before_db",
                                 nd_json_known(promoted->computed_before_db), "after_db",
                                 nd_json_known(promoted->computed_after_db));
    json_t *members =
        json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result",
                  promoted->n_kept > 0 ? "promoted" : "nothing helps", "model", nd_json_string(promoted->model),
                  "float_model", nd_json_string(promoted->float_model), "output",
                  text_or_null(promoted->output), "samples", count(promoted->n_samples), "devices", devices,
                  "computed", computed, "kept", count(promoted->n_kept), "cost", cost_json(&promoted->cost),
                  "budget_percent", nd_json_known(promoted->budget_percent), "layers", layers);
    return nd_tree_end(ND_DOCUMENT_PROMOTION, members, out, err);
}
