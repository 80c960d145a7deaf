#include <math.h>

#include "core/documents/json_out.h"
#include "report/text/explain.h"
#include "report/text/explain_words.h"
#include "report/text/tree.h"

static json_t *interval(const struct nd_interval *interval)
{
    return json_pack("[o, o]", nd_json_number(interval->low), nd_json_number(interval->high));
}

static json_t *part(const struct nd_explained_part *part)
{
    return json_pack("{s:I, s:o, s:o, s:o}", "differing", (json_int_t)part->n_differing, "max",
                     nd_json_number(part->max), "mean", nd_json_number(part->mean), "mean_squared_error",
                     nd_json_number(part->energy));
}

static json_t *decomposition(const struct nd_decomposition *d)
{
    if (d->n_codes == 0)
        return json_null();
    return json_pack(
        "{s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o, s:o}", "values", (json_int_t)d->n_codes,
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

static json_t *programs(const struct nd_explained_unit *unit)
{
    json_t *list = json_array();
    for (size_t i = 0; i < unit->n_programs; i++)
        nd_tree_append(list, json_string(unit->programs[i]));
    return list;
}

static json_t *text_or_null(const char *text)
{
    return text != NULL ? nd_json_string(text) : json_null();
}

/* Indices of the units that it reads. */
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
        json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "precision", f->digits == 11 ? "float16" : "float32",
                  "values", (json_int_t)f->n, "rounded_once", (json_int_t)f->n_rounded, "beyond_bound",
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

static json_t *unit_json(const struct nd_explanation *e, const struct nd_explained_device *device, size_t s)
{
    const struct nd_explained_unit *unit = &device->units[s];
    const struct nd_explained_step *step = &e->steps[s];
    bool is_taken = step->taken_from != SIZE_MAX;
    const char *way = is_taken                    ? "taken"
                      : step->is_double           ? "double"
                      : step->unreached_from != s ? "exact ratio"
                                                  : NULL;
    const char *unreached = step->unreached_from != SIZE_MAX ? e->steps[step->unreached_from].name : NULL;
    bool is_examined = unit->is_examined, has_codes = is_examined && unit->floats.n == 0;
    uint64_t n = unit->n_codes;
    json_t *row =
        json_pack("{s:o, s:o, s:b, s:o, s:s?, s:I, s:o, s:o, s:o, s:o, s:b, s:b, s:b}", "name",
                  nd_json_string(step->name), "op_type", nd_json_string(step->op_types), "examined",
                  is_examined, "why_not", is_examined ? json_null() : nd_json_string(unit->why_not), "way", way,
                  "values", (json_int_t)n, "introduced_mismatch", share(unit->local.n_differing, n, has_codes),
                  "passed_on_mismatch", share(unit->inherited.n_differing, n, is_examined && unit->has_total),
                  "explained_fraction", has_codes ? nd_json_known(unit->explained_fraction) : json_null(),
                  "possible_arithmetic", programs(unit), "is_layer", step->is_unit, "is_source",
                  unit->is_source, "within_one_step_of_double", unit->is_within_step);
    if (row == NULL)
        return NULL;
    nd_tree_set(row, "inputs", inputs(step));
    nd_tree_set(row, "floats", floats_json(&unit->floats));
    nd_tree_set(row, "taken_from", text_or_null(is_taken ? e->devices[step->taken_from].uri : NULL));
    nd_tree_set(row, "arithmetic", text_or_null(unit->program));
    nd_tree_set(row, "is_covered", json_boolean(unit->is_covered));
    nd_tree_set(row, "state", json_string(nd_layer_state_name(unit->state)));
    nd_tree_set(row, "why_follows", text_or_null(unit->why_follows));
    nd_tree_set(row, "follows_text", text_or_null(unit->follows_text));
    nd_tree_set(row, "evidence", text_or_null(unit->evidence));
    nd_tree_set(row, "certainty", text_or_null(nd_certainty_name(unit->certainty)));
    nd_tree_set(row, "tie_rule", text_or_null(unit->tie_rule));
    nd_tree_set(row, "ties", unit->tie_rule != NULL ? json_integer((json_int_t)unit->n_ties) : json_null());
    nd_tree_set(row, "known_defect", text_or_null(unit->known_defect));
    nd_tree_set(row, "remedy", text_or_null(unit->remedy));
    nd_tree_set(row, "is_faulty", json_boolean(unit->is_faulty));
    nd_tree_set(row, "not_a_number", is_examined ? json_integer((json_int_t)unit->n_nan) : json_null());
    nd_tree_set(row, "unexplained", json_integer((json_int_t)unit->n_unexplained));
    nd_tree_set(row, "introduced", has_codes ? part(&unit->local) : json_null());
    nd_tree_set(row, "passed_on", is_examined && unit->has_total ? part(&unit->inherited) : json_null());
    nd_tree_set(row, "total", unit->has_total ? part(&unit->total) : json_null());
    nd_tree_set(row, "identity_violations", json_integer((json_int_t)unit->n_violations));
    nd_tree_set(row, "amplification", nd_json_known(unit->gain));
    nd_tree_set(row, "effect", nd_json_known(unit->floats.n > 0 ? (double)NAN : unit->harm));
    nd_tree_set(row, "effect_share", nd_json_known(nd_explain_effect_share(e, device, s)));
    nd_tree_set(row, "affected_share", nd_json_known(unit->harmed_share));
    nd_tree_set(row, "quality", decomposition(&unit->quality));
    nd_tree_set(row, "no_reference_from", text_or_null(unreached));
    nd_tree_set(row, "lacks_float", json_boolean(step->lacks_float));
    nd_tree_set(row, "execution", nd_explain_execution_json(&unit->execution));
    return row;
}

static json_t *energy(const struct nd_explained_device *device)
{
    if (device->output.n_codes == 0)
        return json_null();
    json_t *energy = decomposition(&device->output);
    nd_tree_set(energy, "own_share", nd_json_known(device->own_share));
    nd_tree_set(energy, "own_share_interval", interval(&device->own_share_interval));
    nd_tree_set(energy, "quantisation_interval", interval(&device->quantisation_interval));
    nd_tree_set(energy, "divergence_interval", interval(&device->divergence_interval));
    nd_tree_set(energy, "interaction_interval", interval(&device->interaction_interval));
    return energy;
}

static void add_fault(json_t *row, const struct nd_explained_fault *fault)
{
    nd_tree_set(row, "text", nd_json_string(fault->text));
    nd_tree_set(row, "channel",
                fault->channel != SIZE_MAX ? json_integer((json_int_t)fault->channel) : json_null());
    nd_tree_set(row, "amount", nd_json_known(fault->amount));
    nd_tree_set(row, "explained_fraction", nd_json_known(fault->explained));
    nd_tree_set(row, "rival", text_or_null(fault->rival));
}

static json_t *faulty_json(const struct nd_explanation *e, const struct nd_explained_device *device,
                           size_t step)
{
    const struct nd_explained_unit *unit = &device->units[step];
    const struct nd_explained_fault *fault = &unit->fault;
    json_t *row = json_pack("{s:o, s:o, s:I, s:o}", "layer", nd_json_string(e->steps[step].name), "op_type",
                            nd_json_string(e->steps[step].op_types), "unexplained",
                            (json_int_t)unit->n_unexplained, "kind", text_or_null(fault->kind));
    if (row == NULL)
        return NULL;
    nd_tree_set(row, "evidence", text_or_null(unit->evidence));
    nd_tree_set(row, "certainty", text_or_null(nd_certainty_name(unit->certainty)));
    nd_tree_set(row, "known_defect", text_or_null(unit->known_defect));
    nd_tree_set(row, "remedy", text_or_null(unit->remedy));
    nd_tree_set(row, "differing_share", share(unit->n_unexplained, unit->n_codes, unit->is_examined));
    nd_tree_set(row, "effect", nd_json_known(unit->harm));
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

static json_t *device_json(const struct nd_explanation *e, const struct nd_explained_device *device)
{
    json_t *sources = json_array(), *units = json_array(), *faulty = json_array(), *programs = json_array();
    json_t *unexplained = json_array();
    for (size_t i = 0; i < device->n_unexplained; i++)
        nd_tree_append(unexplained, faulty_json(e, device, device->unexplained[i]));
    for (size_t i = 0; i < device->n_programs; i++)
        nd_tree_append(programs, json_string(device->programs[i]));
    for (size_t i = 0; i < device->n_faulty; i++)
        nd_tree_append(faulty, faulty_json(e, device, device->faulty[i]));
    for (size_t i = 0; i < device->n_sources; i++)
        nd_tree_append(sources, nd_json_string(e->steps[device->sources[i]].name));
    for (size_t s = 0; s < e->n_steps; s++)
        nd_tree_append(units, unit_json(e, device, s));
    json_t *observer = device->observer.n_samples == 0
                           ? json_null()
                           : json_pack("{s:I, s:I}", "samples", (json_int_t)device->observer.n_samples,
                                       "changed", (json_int_t)device->observer.n_changed);
    json_t *environment = text_or_null(device->environment[0] != '\0' ? device->environment : NULL);
    return json_pack("{s:s, s:o, s:I, s:s?, s:b, s:I, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, "
                     "s:o, s:o, s:o, s:I, s:I, s:o, s:o, s:o}",
                     "difference", nd_verdict_name(device->verdict), "unexplained", unexplained, "follow",
                     (json_int_t)device->n_follow, "expected_arithmetic", device->expected, "is_refuted",
                     device->is_refuted, "same_as", (json_int_t)device->same_as, "observer", observer, "uri",
                     nd_json_string(device->uri), "chipset", nd_json_string(device->chipset), "capture",
                     nd_json_string(device->capture), "verdict", nd_health_name(device->health), "failure",
                     device->failure != NULL ? nd_json_string(device->failure) : json_null(), "arithmetic",
                     text_or_null(device->program), "possible_arithmetic", programs, "losses",
                     nd_explain_losses_json(e, device), "findings", findings_json(e, device), "faulty", faulty,
                     "sources", sources, "mean_squared_error", energy(device), "execution",
                     nd_explain_execution_json(&device->execution), "examined", (json_int_t)device->n_examined,
                     "not_examined", (json_int_t)device->n_not_examined, "layers", units, "label",
                     nd_json_string(device->label), "environment", environment);
}

static json_t *vote_json(const struct nd_explained_vote *vote)
{
    return json_pack("{s:b, s:o, s:I, s:o, s:o, s:o}", "known", vote->is_known, "why_not",
                     text_or_null(vote->why_not), "groups", (json_int_t)vote->n_lineages, "split_share",
                     nd_json_known(vote->split_share), "margin", nd_json_known(vote->margin),
                     "common_divergence", nd_json_known(vote->common_divergence));
}

static json_t *explanation_json(const struct nd_explanation *e)
{
    json_t *devices = json_array();
    for (size_t d = 0; d < e->n_devices; d++)
        nd_tree_append(devices, device_json(e, &e->devices[d]));
    return json_pack(
        "{s:s, s:s, s:o, s:s, s:o, s:o, s:I, s:I, s:o, s:o, s:o, s:o}", "verdict", nd_health_name(e->health),
        "difference", nd_verdict_name(e->verdict), "model", nd_json_string(e->model), "model_sha256",
        e->model_sha256, "float_model", e->float_model != NULL ? nd_json_string(e->float_model) : json_null(),
        "probe", e->probe != NULL ? nd_json_string(e->probe) : json_null(), "samples", (json_int_t)e->n_samples,
        "effect_samples", (json_int_t)e->n_harm_samples, "vote", vote_json(&e->vote), "differences",
        nd_explain_differences_json(e), "quantisation", nd_explain_quantisation_json(e), "devices", devices);
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
