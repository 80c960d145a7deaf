/* Which arithmetics captures leave possible, as JSON: docs/reference/json.md says what members mean. */
#include <math.h>

#include "core/documents/json_out.h"
#include "core/memory.h"
#include "explain/identify/identify.h"
#include "report/text/explain.h"
#include "report/text/tree.h"

/* ---- members ---- */

static void merge(json_t *object, json_t *members)
{
    if (json_object_update_new(object, members) != 0)
        nd_note_lost_text();
}

/* ---- answers ---- */

static json_t *class_json(const struct nd_identify_result *r, size_t first)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&(size_t){0});
    json_t *list = json_array();
    for (size_t p = first; p < r->n_arithmetics; p++)
        if (nd_identified_is_left(r, p) && r->class_of[p] == r->class_of[first])
            nd_tree_append(list, json_string(nd_arithmetic_name(&arithmetics[p], name)));
    return list;
}

static json_t *classes_json(const struct nd_identify_result *r)
{
    json_t *list = json_array();
    for (size_t p = nd_identified_next_class(r, SIZE_MAX); p != SIZE_MAX; p = nd_identified_next_class(r, p))
        nd_tree_append(list, class_json(r, p));
    return list;
}

static json_t *whole_json(const struct nd_other_tally *whole)
{
    size_t n;
    const struct nd_layer_arithmetic *arithmetics = nd_layer_arithmetics(&n);
    json_t *list = json_array();
    for (size_t p = 0; p < n; p++)
        if (whole->n[p] > 0)
            nd_tree_append(list, json_pack("{s:s, s:I, s:I}", "name", arithmetics[p].name, "values",
                                           (json_int_t)whole->n[p], "exceptions", (json_int_t)whole->wrong[p]));
    return list;
}

static void put_answer(const struct nd_answer *a, json_t *out)
{
    char name[ND_ARITHMETIC_NAME_BYTES];
    const struct nd_identify_result *r = &a->result;
    const struct nd_arithmetic *arithmetics = nd_arithmetics(&(size_t){0});
    bool has_best = r->best != SIZE_MAX, is_none = strcmp(a->verdict, "none") == 0;
    merge(out, json_pack("{s:s, s:b, s:o, s:s?, s:o, s:o, s:o, s:o, s:o, s:o}", "verdict", a->verdict, "split",
                         is_none && r->is_split, "groups", classes_json(r), "nearest",
                         has_best ? nd_arithmetic_name(&arithmetics[r->best], name) : NULL, "values",
                         nd_int(r->n), "open", nd_int(r->n_open), "deciding", nd_int(r->n_deciding),
                         "exceptions", nd_int(a->exceptions), "explained",
                         isnan(a->explained) ? json_null() : json_real(a->explained), "layer_arithmetic",
                         whole_json(&a->whole)));
}

/* ---- thresholds ---- */

static json_t *bound_or_null(uint64_t n, double fraction)
{
    return n > 0 ? json_real(fraction) : json_null();
}

static json_t *bracket_json(const struct nd_identify_bracket *b)
{
    return json_pack("{s:o, s:o, s:o, s:o, s:b}", "down", nd_int(b->n_down), "up", nd_int(b->n_up), "max_down",
                     bound_or_null(b->n_down, b->max_down), "min_up", bound_or_null(b->n_up, b->min_up),
                     "crossed", nd_identified_is_crossed(b));
}

static json_t *sign_json(const struct nd_identify_tally *tally, bool is_negative)
{
    const struct nd_identify_bracket bracket = nd_identify_threshold(tally, is_negative);
    return bracket.n_down + bracket.n_up == 0 ? json_null() : bracket_json(&bracket);
}

static json_t *binades_json(const struct nd_identify_tally *tally)
{
    json_t *list = json_array();
    for (size_t k = 0; k < 2 * (size_t)ND_IDENTIFY_BINADES; k++) {
        size_t sign = k / ND_IDENTIFY_BINADES, b = k % ND_IDENTIFY_BINADES;
        const struct nd_identify_bracket *bracket = &tally->binades[sign][b];
        if (bracket->n_down + bracket->n_up == 0)
            continue;
        bool is_last = b + 1 == ND_IDENTIFY_BINADES;
        json_t *row =
            json_pack("{s:i, s:f, s:o}", "sign", sign == 0 ? 1 : -1, "from", b > 0 ? ldexp(1, (int)b - 1) : 0.0,
                      "to", is_last ? json_null() : json_real(ldexp(1, (int)b)));
        merge(row, bracket_json(bracket));
        nd_tree_append(list, row);
    }
    return list;
}

static json_t *channels_json(const struct nd_identify_tally *tally)
{
    json_t *list = json_array();
    for (size_t c = 0; c < tally->n_channels && tally->n_channels > 1; c++) {
        json_t *row = json_pack("{s:I}", "channel", (json_int_t)c);
        merge(row, bracket_json(&tally->channels[c]));
        nd_tree_append(list, row);
    }
    return list;
}

/* ---- lists ---- */

static json_t *identified_json(const struct nd_identified_layer *layer)
{
    json_t *row =
        json_pack("{s:o, s:o, s:s}", "name", nd_json_string(layer->name), "op_type",
                  nd_json_string(layer->op_types), "method", layer->is_double ? "double" : "exact ratio");
    put_answer(layer->answer, row);
    const struct nd_identify_tally *tally = &layer->tally;
    nd_tree_set(row, "thresholds",
                json_pack("{s:o, s:o, s:o, s:o}", "positive", sign_json(tally, false), "negative",
                          sign_json(tally, true), "binades", binades_json(tally), "channels",
                          channels_json(tally)));
    json_t *list = json_array();
    for (size_t b = 0; b < ND_IDENTIFY_BINS; b++) {
        const struct nd_identify_point point = nd_identify_curve(&layer->tally, b);
        if (point.n > 0)
            nd_tree_append(list,
                           json_pack("{s:f, s:f, s:I, s:f, s:f, s:f}", "from", (double)b / ND_IDENTIFY_BINS,
                                     "to", (double)(b + 1) / ND_IDENTIFY_BINS, "values", (json_int_t)point.n,
                                     "p", point.p, "low", point.low, "high", point.high));
    }
    nd_tree_set(row, "curve", list);
    return row;
}

static json_t *layers_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    for (size_t s = 0; s < device->n_layers; s++)
        if (device->layers[s].answer != NULL)
            nd_tree_append(list, identified_json(&device->layers[s]));
    return list;
}

static json_t *rest_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    for (size_t s = 0; s < device->n_layers; s++) {
        const struct nd_identified_layer *layer = &device->layers[s];
        if (layer->is_layer && layer->answer == NULL)
            nd_tree_append(list, json_pack("{s:o, s:o, s:o}", "name", nd_json_string(layer->name), "op_type",
                                           nd_json_string(layer->op_types), "why",
                                           nd_json_string(nd_identified_why_not(layer))));
    }
    return list;
}

static json_t *probes_json(const struct nd_identified_device *device)
{
    json_t *list = json_array();
    for (size_t p = 0; p < device->n_probes; p++)
        nd_tree_append(list, json_pack("{s:o, s:I}", "name", nd_json_string(device->probes[p].name), "samples",
                                       (json_int_t)device->probes[p].n_samples));
    return list;
}

static json_t *device_json(const struct nd_identified_device *device)
{
    bool is_failed = device->failure != NULL;
    json_t *out = json_pack("{s:o, s:o, s:o, s:o}", "uri", nd_json_string(device->uri), "chipset",
                            nd_json_string(device->chipset), "capture", nd_json_string(device->capture),
                            "failure", is_failed ? nd_json_string(device->failure) : json_null());
    if (is_failed)
        return out;
    nd_tree_set(out, "probes", probes_json(device));
    put_answer(device->answer, out);
    json_t *list = json_array();
    for (size_t t = 0; t < device->n_types; t++) {
        const struct nd_identified_type *type = &device->types[t];
        json_t *row = json_pack("{s:o, s:I}", "op_type", nd_json_string(type->op_types), "layers",
                                (json_int_t)type->n_layers);
        put_answer(&type->answer, row);
        nd_tree_append(list, row);
    }
    nd_tree_set(out, "types", list);
    nd_tree_set(out, "layers", layers_json(device));
    nd_tree_set(out, "not_identified", rest_json(device));
    return out;
}

json_t *nd_identification_json(const struct nd_identification *identification)
{
    json_t *devices = json_array();
    for (size_t d = 0; d < identification->n_devices; d++)
        nd_tree_append(devices, device_json(&identification->devices[d]));
    return json_pack("{s:o}", "devices", devices);
}

/* What the quantisation costs, layer by layer, as JSON. */

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
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "range",
                     pair(layer->range_low, layer->range_high), "values",
                     pair(layer->value_low, layer->value_high), "central_values",
                     pair(layer->central_low, layer->central_high), "used_share",
                     nd_json_known(layer->used_share), "clipped_share", nd_json_known(layer->clipped_share),
                     "mask", nd_json_known(layer->mask), "mask_share",
                     isnan(layer->mask) ? json_null() : nd_json_known(layer->mask_share), "weight_ratio",
                     nd_json_known(layer->weight_ratio), "weight_sqnr_db", nd_json_known(layer->weight_sqnr_db),
                     "bias_error", nd_json_known(layer->bias_error), "constant_channels",
                     (json_int_t)layer->n_constant_channels, "constant_text",
                     layer->constant_text != NULL ? nd_json_string(layer->constant_text) : json_null());
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

static json_t *whole_json_of_quantisation(const struct nd_quantisation *q)
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

static json_t *nd_explain_quantisation_json(const struct nd_explanation *e)
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
                     "model_remedies", whole_json_of_quantisation(q), "equalised", equalised_json(e), "ranked",
                     ranked, "layers", layers);
}

static json_t *interval(const struct nd_interval *interval)
{
    return json_pack("[o, o]", nd_json_number(interval->low), nd_json_number(interval->high));
}

static json_t *part(const struct nd_explained_part *part)
{
    return json_pack("{s:I, s:o, s:o, s:o}", "differing", (json_int_t)part->n_differing, "max",
                     nd_json_number(part->max), "mean", nd_json_number(part->mean), "mean_squared_error",
                     nd_json_number(part->mean_square));
}

static json_t *decomposition(const struct nd_decomposition *d)
{
    if (d->n_qvalues == 0)
        return json_null();
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "values", (json_int_t)d->n_qvalues,
        "signal", nd_json_number(d->signal), "quantisation", nd_json_number(d->quantisation), "divergence",
        nd_json_number(d->divergence), "interaction", nd_json_number(d->interaction), "correlation",
        nd_json_number(d->correlation), "bias", nd_json_number(d->bias), "sqnr_db", nd_json_number(d->sqnr_db),
        "noise_figure_db", nd_json_number(d->noise_figure_db), "clipped", (json_int_t)d->n_clipped,
        "clipped_quantisation", nd_json_number(d->clipped_quantisation), "clipped_divergence",
        nd_json_number(d->clipped_divergence));
}

static json_t *share(uint64_t n, uint64_t total, bool is_known)
{
    return is_known && total > 0 ? json_real((double)n / (double)total) : json_null();
}

static json_t *execution_evidence_json(const struct nd_explained_execution *execution)
{
    json_t *list = json_array();
    for (size_t i = 0; i < execution->n_evidence; i++) {
        const struct nd_execution_evidence *evidence = &execution->evidence[i];
        nd_tree_append(list, json_pack("{s:s, s:s, s:f, s:o}", "kind", evidence->kind, "for",
                                       evidence->is_for_npu ? "npu" : "not-npu", "weight", evidence->weight,
                                       "text", nd_json_string(evidence->text)));
    }
    return list;
}

static json_t *execution_json(const struct nd_explained_execution *execution)
{
    return json_pack("{s:s, s:b, s:f, s:o, s:s?, s:I, s:I, s:I, s:I, s:I, s:I, s:b}", "verdict",
                     nd_execution_name(execution->verdict), "contradictory", execution->is_contradictory,
                     "balance", execution->balance, "evidence", execution_evidence_json(execution),
                     "why_unknown", execution->why_unknown, "deciding", (json_int_t)execution->n_deciding,
                     "off", (json_int_t)execution->n_off, "far", (json_int_t)execution->n_far, "layers_npu",
                     (json_int_t)execution->n_npu, "layers_not_npu", (json_int_t)execution->n_not_npu,
                     "layers_unknown", (json_int_t)execution->n_unknown, "called_npu",
                     execution->is_called_npu);
}

/* Why such devices differ. */
static json_t *losses_json(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    json_t *list = json_array();
    for (size_t i = 0; i < device->n_losses; i++) {
        const struct nd_explained_layer *layer = &device->layers[device->losses[i]];
        nd_tree_append(list, json_pack("{s:o, s:o, s:s, s:f, s:I, s:I}", "layer",
                                       nd_json_string(e->steps[device->losses[i]].name), "op_type",
                                       nd_json_string(e->steps[device->losses[i]].op_types), "arithmetic",
                                       layer->arithmetic, "max", layer->introduced.max, "differing",
                                       (json_int_t)layer->introduced.n_differing, "values",
                                       (json_int_t)layer->n_qvalues));
    }
    return list;
}

static json_t *because_json(const struct nd_explained_difference *difference)
{
    json_t *list = json_array();
    for (size_t i = 0; i < difference->n_because; i++) {
        const struct nd_explained_reason *reason = &difference->because[i];
        nd_tree_append(list,
                       json_pack("{s:s, s:[s, s], s:o}", "property", reason->name, "text", reason->texts[0],
                                 reason->texts[1], "op_types", nd_json_string(reason->op_types)));
    }
    return list;
}

static json_t *differences_json(const struct nd_explanation *e)
{
    json_t *list = json_array();
    for (size_t i = 0; i < e->n_differences; i++) {
        const struct nd_explained_difference *difference = &e->differences[i];
        nd_tree_append(list, json_pack("{s:[I, I], s:[s, s], s:o, s:I, s:o, s:I, s:I}", "devices",
                                       (json_int_t)difference->devices[0], (json_int_t)difference->devices[1],
                                       "arithmetic", difference->arithmetics[0], difference->arithmetics[1],
                                       "because", because_json(difference), "layers",
                                       (json_int_t)difference->n_layers, "op_types",
                                       nd_json_string(difference->op_types != NULL ? difference->op_types : ""),
                                       "differing", (json_int_t)difference->n_differing, "values",
                                       (json_int_t)difference->n_qvalues));
    }
    return list;
}

static json_t *arithmetics(const struct nd_explained_layer *layer)
{
    json_t *list = json_array();
    for (size_t i = 0; i < layer->n_arithmetics; i++)
        nd_tree_append(list, json_string(layer->arithmetics[i]));
    return list;
}

/* Indices of the layers that it reads. */
static json_t *inputs(const struct nd_explained_step *step)
{
    json_t *list = json_array();
    for (size_t i = 0; i < step->n_inputs; i++)
        nd_tree_append(list, json_integer((json_int_t)step->inputs[i]));
    return list;
}

/* What is said of a layer of a float model. */
static json_t *floats_json(const struct nd_explained_floats *f)
{
    if (f->n == 0)
        return json_null();
    json_t *row =
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "precision", nd_float_type_name(f->digits), "values",
                  (json_int_t)f->n, "rounded_once", (json_int_t)f->n_rounded, "beyond_bound",
                  (json_int_t)f->n_beyond, "flushed_to_zero", (json_int_t)f->n_flushed, "not_finite",
                  (json_int_t)f->n_lost, "out_of_range", (json_int_t)f->n_overflown);
    if (row == NULL)
        return NULL;
    nd_tree_set(row, "largest_ulp", nd_json_known(f->max_ulp));
    nd_tree_set(row, "mean_ulp", nd_json_known(f->mean_ulp));
    nd_tree_set(row, "largest_of_bound", nd_json_known(f->worst));
    nd_tree_set(row, "introduced", nd_json_known(f->introduced));
    nd_tree_set(row, "passed_on", nd_json_known(f->passed_on));
    nd_tree_set(row, "total", nd_json_known(f->total));
    nd_tree_set(row, "effect", nd_json_known(f->effect));
    return row;
}

static json_t *layer_json_of_explain(const struct nd_explanation *e, const struct nd_explained_device *device,
                                     size_t s)
{
    const struct nd_explained_layer *layer = &device->layers[s];
    const struct nd_explained_step *step = &e->steps[s];
    bool is_taken = step->substituted_from != SIZE_MAX;
    const char *method = is_taken                    ? "substituted"
                         : step->is_double           ? "double"
                         : step->unreached_from != s ? "exact ratio"
                                                     : NULL;
    const char *unreached = step->unreached_from != SIZE_MAX ? e->steps[step->unreached_from].name : NULL;
    bool is_examined = layer->is_examined, has_qvalues = is_examined && layer->floats.n == 0;
    uint64_t n = layer->n_qvalues;
    json_t *row = json_pack(
        "{s:o, s:o, s:b, s:o, s:s?, s:I, s:o, s:o, s:o, s:o, s:b, s:b, s:b}", "name",
        nd_json_string(step->name), "op_type", nd_json_string(step->op_types), "examined", is_examined,
        "why_not", is_examined ? json_null() : nd_json_string(layer->why_not), "method", method, "values",
        (json_int_t)n, "introduced_mismatch", share(layer->introduced.n_differing, n, has_qvalues),
        "passed_on_mismatch", share(layer->passed_on.n_differing, n, is_examined && layer->has_total),
        "explained_fraction", has_qvalues ? nd_json_known(layer->explained_fraction) : json_null(),
        "possible_arithmetic", arithmetics(layer), "is_layer", step->is_layer, "is_source", layer->is_source,
        "within_one_step_of_double", layer->is_within_step);
    if (row == NULL)
        return NULL;
    nd_tree_set(row, "inputs", inputs(step));
    nd_tree_set(row, "floats", floats_json(&layer->floats));
    nd_tree_set(row, "substituted_from", nd_or_null(is_taken ? e->devices[step->substituted_from].uri : NULL));
    nd_tree_set(row, "arithmetic", nd_or_null(layer->arithmetic));
    nd_tree_set(row, "is_covered", json_boolean(layer->is_covered));
    nd_tree_set(row, "state", json_string(nd_layer_state_name(layer->judgement.state)));
    nd_tree_set(row, "why_follows", nd_or_null(layer->judgement.why_follows));
    nd_tree_set(row, "follows_text", nd_or_null(layer->judgement.follows_text));
    nd_tree_set(row, "evidence", nd_or_null(layer->judgement.evidence));
    nd_tree_set(row, "certainty", nd_or_null(nd_certainty_name(layer->judgement.certainty)));
    nd_tree_set(row, "tie_rule", nd_or_null(layer->tie_rule));
    nd_tree_set(row, "ties", layer->tie_rule != NULL ? json_integer((json_int_t)layer->n_ties) : json_null());
    nd_tree_set(row, "known_defect", nd_or_null(layer->judgement.known_defect));
    nd_tree_set(row, "remedy", nd_or_null(layer->judgement.remedy));
    nd_tree_set(row, "is_faulty", json_boolean(layer->judgement.state == ND_LAYER_FAULTY));
    nd_tree_set(row, "not_a_number", is_examined ? json_integer((json_int_t)layer->n_nan) : json_null());
    nd_tree_set(row, "unexplained", json_integer((json_int_t)layer->n_unexplained));
    nd_tree_set(row, "introduced", has_qvalues ? part(&layer->introduced) : json_null());
    nd_tree_set(row, "passed_on", is_examined && layer->has_total ? part(&layer->passed_on) : json_null());
    nd_tree_set(row, "total", layer->has_total ? part(&layer->total) : json_null());
    nd_tree_set(row, "identity_violations", json_integer((json_int_t)layer->n_violations));
    nd_tree_set(row, "amplification", nd_json_known(layer->amplification));
    nd_tree_set(row, "effect", nd_json_known(layer->floats.n > 0 ? (double)NAN : layer->effect));
    nd_tree_set(row, "effect_share", nd_json_known(nd_explain_effect_share(e, device, s)));
    nd_tree_set(row, "affected_share", nd_json_known(layer->harmed_share));
    nd_tree_set(row, "quality", decomposition(&layer->quality));
    nd_tree_set(row, "no_reference_from", nd_or_null(unreached));
    nd_tree_set(row, "lacks_float", json_boolean(step->lacks_float));
    nd_tree_set(row, "execution", execution_json(&layer->execution));
    return row;
}

static json_t *mean_square(const struct nd_explained_device *device)
{
    if (device->output.n_qvalues == 0)
        return json_null();
    json_t *mean_square = decomposition(&device->output);
    nd_tree_set(mean_square, "own_share", nd_json_known(device->own_share));
    nd_tree_set(mean_square, "own_share_interval", interval(&device->own_share_interval));
    nd_tree_set(mean_square, "quantisation_interval", interval(&device->quantisation_interval));
    nd_tree_set(mean_square, "divergence_interval", interval(&device->divergence_interval));
    nd_tree_set(mean_square, "interaction_interval", interval(&device->interaction_interval));
    return mean_square;
}

static void add_fault(json_t *row, const struct nd_explained_fault *fault)
{
    nd_tree_set(row, "text", nd_json_string(fault->text));
    nd_tree_set(row, "channel",
                fault->channel != SIZE_MAX ? json_integer((json_int_t)fault->channel) : json_null());
    nd_tree_set(row, "amount", nd_json_known(fault->amount));
    nd_tree_set(row, "explained_fraction", nd_json_known(fault->explained));
    nd_tree_set(row, "rival", nd_or_null(fault->rival));
}

static json_t *faulty_json(const struct nd_explanation *e, const struct nd_explained_device *device,
                           size_t step)
{
    const struct nd_explained_layer *layer = &device->layers[step];
    const struct nd_explained_fault *fault = &layer->judgement.fault;
    json_t *row = json_pack("{s:o, s:o, s:I, s:o}", "layer", nd_json_string(e->steps[step].name), "op_type",
                            nd_json_string(e->steps[step].op_types), "unexplained",
                            (json_int_t)layer->n_unexplained, "kind", nd_or_null(fault->kind));
    if (row == NULL)
        return NULL;
    nd_tree_set(row, "evidence", nd_or_null(layer->judgement.evidence));
    nd_tree_set(row, "certainty", nd_or_null(nd_certainty_name(layer->judgement.certainty)));
    nd_tree_set(row, "known_defect", nd_or_null(layer->judgement.known_defect));
    nd_tree_set(row, "remedy", nd_or_null(layer->judgement.remedy));
    nd_tree_set(row, "differing_share", share(layer->n_unexplained, layer->n_qvalues, layer->is_examined));
    nd_tree_set(row, "effect", nd_json_known(layer->effect));
    if (fault->kind != NULL)
        add_fault(row, fault);
    return row;
}

static json_t *findings_json(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    json_t *list = json_array();
    for (size_t i = 0; i < device->n_findings; i++) {
        const struct nd_explained_fault *fault = &device->findings[i].fault;
        json_t *row = json_pack("{s:o, s:s}", "tensor", nd_json_string(e->steps[device->findings[i].step].name),
                                "kind", fault->kind);
        if (row != NULL)
            add_fault(row, fault);
        nd_tree_append(list, row);
    }
    return list;
}

static json_t *device_json_of_explain(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    json_t *sources = json_array(), *layers = json_array(), *faulty = json_array(), *arithmetics = json_array();
    json_t *unexplained = json_array();
    for (size_t i = 0; i < device->n_unexplained; i++)
        nd_tree_append(unexplained, faulty_json(e, device, device->unexplained[i]));
    for (size_t i = 0; i < device->n_arithmetics; i++)
        nd_tree_append(arithmetics, json_string(device->arithmetics[i]));
    for (size_t i = 0; i < device->n_faulty; i++)
        nd_tree_append(faulty, faulty_json(e, device, device->faulty[i]));
    for (size_t i = 0; i < device->n_sources; i++)
        nd_tree_append(sources, nd_json_string(e->steps[device->sources[i]].name));
    for (size_t s = 0; s < e->n_steps; s++)
        nd_tree_append(layers, layer_json_of_explain(e, device, s));
    json_t *observer = device->observer.n_samples == 0
                           ? json_null()
                           : json_pack("{s:I, s:I, s:o}", "samples", (json_int_t)device->observer.n_samples,
                                       "changed", (json_int_t)device->observer.n_changed, "differs",
                                       nd_or_null(device->observer.differs));
    json_t *environment = nd_or_null(device->environment[0] != '\0' ? device->environment : NULL);
    return json_pack(
        "{s:s, s:o, s:I, s:I, s:s?, s:b, s:I, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, "
        "s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}",
        "difference", nd_verdict_name(device->verdict), "unexplained", unexplained, "follow",
        (json_int_t)device->n_follow, "within_1_lsb", (json_int_t)device->n_within_lsb, "expected_arithmetic",
        device->expected, "is_refuted", device->is_refuted, "same_as", (json_int_t)device->same_as, "observer",
        observer, "uri", nd_json_string(device->uri), "chipset", nd_json_string(device->chipset), "capture",
        nd_json_string(device->capture), "verdict", nd_health_name(device->health), "failure",
        device->failure != NULL ? nd_json_string(device->failure) : json_null(), "arithmetic",
        nd_or_null(device->arithmetic), "possible_arithmetic", arithmetics, "losses", losses_json(e, device),
        "findings", findings_json(e, device), "faulty", faulty, "sources", sources, "mean_squared_error",
        mean_square(device), "execution", execution_json(&device->execution), "examined",
        (json_int_t)device->n_examined, "not_examined", (json_int_t)device->n_not_examined, "layers", layers,
        "label", nd_json_string(device->label), "environment", environment);
}

static json_t *explanation_json(const struct nd_explanation *e)
{
    json_t *devices = json_array();
    for (size_t d = 0; d < e->n_devices; d++)
        nd_tree_append(devices, device_json_of_explain(e, &e->devices[d]));
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "verdict", nd_health_name(e->health),
        "difference", nd_verdict_name(e->verdict), "model", nd_json_string(e->model), "model_sha256",
        e->model_sha256, "float_model", e->float_model != NULL ? nd_json_string(e->float_model) : json_null(),
        "probe", e->probe != NULL ? nd_json_string(e->probe) : json_null(), "samples", (json_int_t)e->n_samples,
        "effect_samples", (json_int_t)e->n_output_effect_samples, "majority",
        json_pack("{s:b, s:o, s:I, s:o, s:o, s:o}", "known", e->majority.is_known, "why_not",
                  nd_or_null(e->majority.why_not), "groups", (json_int_t)e->majority.n_groups, "split_share",
                  nd_json_known(e->majority.split_share), "margin", nd_json_known(e->majority.margin),
                  "common_divergence", nd_json_known(e->majority.common_divergence)),
        "differences", differences_json(e), "quantisation", nd_explain_quantisation_json(e), "devices",
        devices);
}

enum nd_status nd_report_explanation_json(const struct nd_explanation *explanation,
                                          const struct nd_identification *identification, char **out,
                                          struct nd_error *err)
{
    json_t *tree = explanation_json(explanation);
    if (identification != NULL)
        nd_tree_set(tree, "identification", nd_identification_json(identification));
    return nd_tree_end(ND_DOCUMENT_EXPLANATION, tree, out, err);
}
