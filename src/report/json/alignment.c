/* What `npudiff align` made, as JSON. */
#include "core/documents/json_out.h"
#include "improve/align/outputs_json.h"
#include "report/text/accuracy_change.h"
#include "report/text/tree.h"

static const char *end_word(enum nd_align_end end)
{
    static const char *const words[] = {"aligned", "differs", "inconclusive", "over budget"};
    return words[end];
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? nd_json_string(text) : json_null();
}

static json_t *count(size_t n)
{
    return json_integer((json_int_t)n);
}

/* ---- JSON ---- */

static json_t *counterexample_json(const struct nd_alignment *alignment, const struct nd_alignment_layer *layer)
{
    if (layer->n_unequal == 0)
        return json_null();
    return json_pack("{s:o, s:o, s:[{s:s, s:o}, {s:s, s:o}]}", "channel", count(layer->channel), "sum",
                     nd_json_number(layer->sum), "values", "arithmetic", alignment->arithmetics[0], "value",
                     nd_json_number(layer->values[0]), "arithmetic", alignment->arithmetics[layer->against],
                     "value", nd_json_number(layer->values[1]));
}

static json_t *scaling_json(const struct nd_alignment_layer *layer)
{
    if (!layer->is_product)
        return json_null();
    bool is_planned = layer->is_planned;
    return json_pack("{s:b, s:o, s:o, s:o, s:o, s:o, s:b}", "planned", (int)is_planned, "obstacle",
                     text_or_null(layer->obstacle), "exponent",
                     is_planned ? json_integer(layer->exponent) : json_null(), "same_exponent",
                     is_planned ? json_boolean(!layer->has_exponents) : json_null(), "weights_coarser",
                     is_planned ? nd_json_number(layer->weight_factor) : json_null(), "output_coarser",
                     is_planned ? nd_json_number(layer->output_factor) : json_null(), "weights_from_float",
                     (int)layer->is_from_float);
}

static json_t *layer_json(const struct nd_alignment *alignment, const struct nd_alignment_layer *layer)
{
    bool is_covered = layer->n_channels > 0;
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "tensor",
                     nd_json_string(layer->name), "operators", nd_json_string(layer->op_types), "state",
                     nd_align_state_name(layer->state), "reason", text_or_null(layer->reason), "scaling",
                     scaling_json(layer), "channels", is_covered ? count(layer->n_channels) : json_null(),
                     "channels_unequal", is_covered ? count(layer->n_unequal) : json_null(), "sums",
                     is_covered ? nd_json_number(layer->n_sums) : json_null(), "counterexample",
                     counterexample_json(alignment, layer), "groups",
                     layer->n_groups > 0 ? count(layer->n_groups) : json_null());
}

/* In points: hundredths of the labelled samples. */
static json_t *accuracy_json(const struct nd_alignment *alignment)
{
    if (alignment->n_labelled == 0)
        return json_null();
    const struct nd_accuracy_change change = nd_accuracy_change_of(alignment);
    return json_pack("{s:o, s:o, s:o, s:o}", "points", nd_json_number(change.points), "low",
                     nd_json_number(change.low), "high", nd_json_number(change.high), "confidence",
                     nd_json_number(change.confidence));
}

static json_t *accuracy_cost_json(const struct nd_alignment *alignment)
{
    if (alignment->n_outputs == 0)
        return json_null();
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "reference",
                     alignment->float_model != NULL ? "float" : "quantised", "samples",
                     count(alignment->n_samples), "fit_samples", count(alignment->n_fit_samples),
                     "fit_samples_priced", count(alignment->n_fit_priced), "outputs",
                     nd_alignment_outputs_json(alignment), "budget_db", nd_json_known(alignment->budget_db),
                     "labelled", count(alignment->n_labelled), "right_before", count(alignment->n_right_before),
                     "right_after", count(alignment->n_right_after), "classes_changed",
                     count(alignment->n_changed), "accuracy_change", accuracy_json(alignment));
}

static json_t *curve_json(const struct nd_alignment *alignment)
{
    if (alignment->n_points == 0)
        return json_null();
    json_t *points = json_array();
    for (size_t i = 0; i < alignment->n_points; i++) {
        const struct nd_alignment_point *point = &alignment->points[i];
        nd_tree_append(points,
                       json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layers",
                                 count(point->n_layers), "last", text_or_null(point->layer), "effect_db",
                                 nd_json_known(point->effect_db), "sqnr_db", nd_json_known(point->sqnr_db),
                                 "loss_db", nd_json_known(point->loss_db), "values", count(point->n_values),
                                 "different", count(point->n_different), "tensors", count(point->n_tensors),
                                 "tensors_different", count(point->n_tensors_different)));
    }
    return json_pack("{s:o, s:o}", "samples", count(alignment->n_curve_samples), "points", points);
}

static json_t *devices_json(const struct nd_alignment *alignment)
{
    if (alignment->n_devices == 0)
        return json_null();
    json_t *labels = json_array();
    for (size_t i = 0; i < alignment->n_devices; i++)
        nd_tree_append(labels, nd_json_string(alignment->devices[i]));
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "devices", labels, "groups",
                     nd_json_string(alignment->groups), "tensors", count(alignment->n_tensors), "tensors_equal",
                     count(alignment->n_tensors_equal), "samples", count(alignment->n_device_samples),
                     "refuted", count(alignment->n_refuted));
}

static json_t *alignment_json(const struct nd_alignment *alignment)
{
    json_t *layers = json_array(), *arithmetics = json_array();
    for (size_t i = 0; i < alignment->n_layers; i++)
        nd_tree_append(layers, layer_json(alignment, &alignment->layers[i]));
    for (size_t i = 0; i < alignment->n_arithmetics; i++)
        nd_tree_append(arithmetics, nd_json_string(alignment->arithmetics[i]));
    json_t *counts =
        json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "layers",
                  count(alignment->n_layers), "proven", count(alignment->n_proven), "tested",
                  count(alignment->n_tested), "unknown", count(alignment->n_unknown), "differ",
                  count(alignment->n_differ), "products", count(alignment->n_products), "planned",
                  count(alignment->n_planned), "weighted", count(alignment->n_weighted), "from_float",
                  count(alignment->n_from_float), "float_tensors", count(alignment->n_floats), "folded",
                  count(alignment->n_folded), "equalised", count(alignment->n_equalised));
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "result",
                     end_word(alignment->end), "model", nd_json_string(alignment->model), "output",
                     text_or_null(alignment->output), "certificate", text_or_null(alignment->certificate),
                     "float_model", text_or_null(alignment->float_model), "arithmetics", arithmetics, "counts",
                     counts, "accuracy_cost", accuracy_cost_json(alignment), "curve", curve_json(alignment),
                     "verification", devices_json(alignment), "layers", layers);
}

enum nd_status nd_report_alignment_json(const struct nd_alignment *alignment, char **out, struct nd_error *err)
{
    return nd_tree_end(ND_DOCUMENT_ALIGNMENT, alignment_json(alignment), out, err);
}
