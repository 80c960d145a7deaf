/* What the quantisation costs, layer by layer, as JSON. */
#include <math.h>

#include "core/documents/json_out.h"
#include "report/text/explain.h"
#include "report/text/tree.h"

static json_t *remedy_json(const struct nd_explanation *e, const struct nd_remedy *remedy)
{
    json_t *partners = json_array();
    for (size_t i = 0; i < remedy->n_partners; i++)
        nd_tree_append(partners, nd_json_string(e->steps[remedy->partners[i]].name));
    return json_pack(
        "{s:s, s:s?, s:o, s:o, s:o, s:o, s:o}", "kind", nd_remedy_kind_name(remedy->kind), "method",
        remedy->method, "partners", partners, "text", nd_json_string(remedy->text), "range",
        isnan(remedy->low) ? json_null()
                           : json_pack("[o, o]", nd_json_number(remedy->low), nd_json_number(remedy->high)),
        "own_gain_db", nd_json_number(remedy->own_gain_db), "output_gain_db",
        nd_json_known(remedy->output_gain_db));
}

static json_t *pair(double low, double high)
{
    return isnan(low) ? json_null() : json_pack("[o, o]", nd_json_number(low), nd_json_number(high));
}

static json_t *evidence_json(const struct nd_quantised_layer *layer)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "range",
                     pair(layer->range_low, layer->range_high), "values",
                     pair(layer->value_low, layer->value_high), "central_values",
                     pair(layer->central_low, layer->central_high), "used_share",
                     nd_json_known(layer->used_share), "clipped_share", nd_json_known(layer->clipped_share),
                     "mask", nd_json_known(layer->mask), "mask_share",
                     isnan(layer->mask) ? json_null() : nd_json_known(layer->mask_share), "weight_ratio",
                     nd_json_known(layer->weight_ratio), "weight_sqnr_db", nd_json_known(layer->weight_sqnr_db),
                     "bias_error", nd_json_known(layer->bias_error));
}

static json_t *layer_json(const struct nd_explanation *e, size_t s)
{
    const struct nd_quantised_layer *layer = &e->quantisation->layers[s];
    json_t *remedies = json_array();
    for (size_t i = 0; i < layer->n_remedies; i++)
        nd_tree_append(remedies, remedy_json(e, &layer->remedies[i]));
    json_t *row = json_pack("{s:o, s:o, s:b, s:s, s:o, s:b, s:o, s:o}", "name",
                            nd_json_string(e->steps[s].name), "op_type", nd_json_string(e->steps[s].op_types),
                            "known", layer->is_known, "cause", nd_loss_cause_name(layer->cause), "text",
                            layer->cause_text != NULL ? nd_json_string(layer->cause_text) : json_null(),
                            "is_accused", layer->is_accused, "remedies", remedies, "evidence",
                            layer->is_known ? evidence_json(layer) : json_null());
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"sqnr_db", layer->sqnr_db},
                   {"introduced_sqnr_db", layer->introduced_sqnr_db},
                   {"signal", layer->signal},
                   {"total", layer->total},
                   {"introduced", layer->introduced},
                   {"passed_on", layer->passed_on},
                   {"rounding", layer->rounding},
                   {"clipping", layer->clipping},
                   {"constants", layer->constants},
                   {"effect_db", layer->effect_db},
                   {"effect_share", layer->effect_share}};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0] && row != NULL; i++)
        nd_tree_set(row, numbers[i].name, layer->is_known ? nd_json_known(numbers[i].value) : json_null());
    return row;
}

static json_t *whole_json(const struct nd_quantisation *q)
{
    json_t *list = json_array();
    for (size_t i = 0; i < q->n_whole; i++)
        nd_tree_append(list, json_pack("{s:s, s:s, s:I, s:o}", "kind", nd_remedy_kind_name(q->whole[i].kind),
                                       "text", q->whole[i].text, "layers", (json_int_t)q->whole[i].n_layers,
                                       "output_gain_db", nd_json_number(q->whole[i].output_gain_db)));
    return list;
}

static json_t *equalised_json(const struct nd_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->quantisation->n_equalised; i++) {
        const struct nd_equalised_pair *pair = &e->quantisation->equalised[i];
        nd_tree_append(list,
                       json_pack("{s:[o, o], s:o, s:b}", "layers", nd_json_string(e->steps[pair->first].name),
                                 nd_json_string(e->steps[pair->second].name), "factors",
                                 json_pack("[o, o]", nd_json_number(pair->least), nd_json_number(pair->most)),
                                 "is_followed", pair->is_followed));
    }
    return list;
}

json_t *nd_explain_quantisation_json(const struct nd_explanation *e)
{
    const struct nd_quantisation *q = e->quantisation;
    if (q == NULL)
        return json_null();
    json_t *layers = json_array(), *ranked = json_array();
    for (size_t s = 0; s < q->n_layers; s++)
        nd_tree_append(layers, layer_json(e, s));
    for (size_t i = 0; i < q->n_ranked; i++)
        nd_tree_append(ranked, nd_json_string(e->steps[q->ranked[i]].name));
    return json_pack("{s:I, s:I, s:o, s:o, s:o, s:o, s:o, s:o}", "samples", (json_int_t)q->n_samples,
                     "effect_samples", (json_int_t)q->n_effect_samples, "output_sqnr_db",
                     nd_json_known(q->output_sqnr_db), "mended_sqnr_db", nd_json_known(q->mended_sqnr_db),
                     "model_remedies", whole_json(q), "equalised", equalised_json(e), "ranked", ranked,
                     "layers", layers);
}
