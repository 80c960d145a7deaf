/* The whole result as JSON; docs/reference/campaign.md describes it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "judge/qualify.h"

enum { RESULT_FORMAT = 1 };

static json_t *number(double value)
{
    if (isfinite(value))
        return json_real(value);
    return isnan(value) ? json_null() : json_string(value > 0 ? "Infinity" : "-Infinity");
}

/* Names come from files, and need not be UTF-8. */
static json_t *text_of(const char *text)
{
    json_t *value = text != NULL ? json_string(text) : json_null();
    if (value != NULL || text == NULL)
        return value;
    size_t n = strlen(text);
    char *clean = strdup(text);
    for (size_t i = 0; clean != NULL && i < n; i++)
        if ((unsigned char)clean[i] >= 0x80)
            clean[i] = '?';
    value = clean != NULL ? json_string(clean) : json_null();
    free(clean);
    return value;
}

/* Null for an empty text. */
static json_t *word(const char *text)
{
    return text_of(text[0] != '\0' ? text : NULL);
}

static json_t *texts_of(const struct nd_texts *texts)
{
    json_t *list = json_array();
    for (size_t i = 0; i < texts->n; i++)
        json_array_append_new(list, text_of(texts->items[i]));
    return list;
}

static void worsen(enum nd_exit *worst, enum nd_exit code)
{
    *worst = nd_exit_worse(*worst, code);
}

static const char *verdict_name(enum nd_exit code)
{
    static const char *const names[] = {"passed",         "failed",       "trouble",
                                        "not comparable", "inconclusive", "device failed"};
    return names[code];
}

/* ---- devices ---- */

static const struct nd_comparison *main_comparison(const struct nd_qualification *q,
                                                   const struct nd_qualify_model *model, size_t device,
                                                   size_t *test)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, q->campaign.reference);
    const struct nd_qualify_comparison *found = ref != SIZE_MAX ? nd_qualify_find_comparison(model, ref) : NULL;
    if (found == NULL || found->comparison == NULL || found->devices[device] == SIZE_MAX)
        return NULL;
    *test = found->devices[device];
    return found->comparison;
}

static void put_comparison(const struct nd_qualification *q, const struct nd_qualify_model *model,
                           size_t device, json_t *row)
{
    size_t test = 0, n_differing = 0;
    const struct nd_comparison *c = main_comparison(q, model, device, &test);
    const char *first = NULL, *op = NULL;
    for (size_t e = 0; c != NULL && e < c->n_edges; e++)
        n_differing += c->edges[e].pairs[test - 1].verdict == ND_VERDICT_DIFFERS;
    if (c != NULL && c->devices[test].first_edge != SIZE_MAX) {
        first = c->edges[c->devices[test].first_edge].name;
        op = c->edges[c->devices[test].first_edge].op_types;
    }
    json_object_set_new(row, "edges", c != NULL ? json_integer((json_int_t)c->n_edges) : json_null());
    json_object_set_new(row, "edges_differing",
                        c != NULL ? json_integer((json_int_t)n_differing) : json_null());
    json_object_set_new(row, "first_difference", text_of(first));
    json_object_set_new(row, "first_op_types", text_of(op));
    json_object_set_new(row, "class", c != NULL ? json_integer(c->devices[test].class_id) : json_null());
}

static json_t *device_json(const struct nd_qualification *q, const struct nd_qualify_model *model,
                           size_t device)
{
    const struct nd_qualify_cell *cell = &model->cells[device];
    json_t *row = json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o}", "device", text_of(cell->label), "uri",
        text_of(cell->device.uri), "chipset",
        text_of(cell->device.chipset != NULL ? cell->device.chipset->sm : NULL), "runtime",
        text_of(cell->device.runtime.id), "capture", text_of(cell->relative), "capture_sha256", cell->sha256,
        "prepared", text_of(cell->prepared != NULL ? nd_path_base(nd_model_path(cell->prepared)) : NULL),
        "failure", text_of(cell->failure));
    enum nd_capture_status state = nd_capture_state(cell->capture);
    /* A complete capture of a device that fell back where it may not is a failure, too. */
    bool is_failed = state == ND_CAPTURE_COMPLETE && cell->failure != NULL;
    json_object_set_new(row, "status",
                        json_string(nd_capture_state_name(is_failed ? ND_CAPTURE_FAILED : state)));
    json_object_set_new(row, "prepared_sdk", word(cell->binary.sdk));
    json_object_set_new(row, "prepared_chipset", word(cell->binary.chipset));
    json_t *findings = nd_qualify_prepared_findings(cell);
    nd_qualify_add_moved_finding(cell, findings);
    json_object_set_new(row, "findings", findings);
    put_comparison(q, model, device, row);
    json_object_set_new(row, "broken", text_of(cell->broken));
    json_object_set_new(row, "explanation", text_of(model->explanations[device]));
    return row;
}

static json_t *model_json(const struct nd_qualification *q, const struct nd_qualify_model *model)
{
    json_t *devices = json_array(), *references = json_array();
    for (size_t d = 0; d < q->n_devices; d++)
        json_array_append_new(devices, device_json(q, model, d));
    for (size_t c = q->n_devices; c < model->n_cells; c++)
        json_array_append_new(
            references, json_pack("{s:o, s:o, s:o, s:o}", "reference", text_of(model->cells[c].label),
                                  "capture", text_of(model->cells[c].relative), "failure",
                                  text_of(model->cells[c].failure), "broken", text_of(model->cells[c].broken)));
    const struct nd_qualify_comparison *found =
        nd_qualify_find_comparison(model, nd_qualify_find_cell(model, q->n_devices, q->campaign.reference));
    const struct nd_comparison *c = found != NULL ? found->comparison : NULL;
    return json_pack(
        "{s:o, s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "name", text_of(model->campaign->name),
        "quantised", text_of(nd_path_base(model->campaign->quantised)), "sha256", nd_model_sha256(model->model),
        "float", text_of(model->float_model != NULL ? nd_path_base(model->campaign->float_model) : NULL),
        "classes", text_of(c != NULL ? c->classes_text : NULL), "output_classes",
        text_of(c != NULL ? c->output_classes_text : NULL), "references", references, "devices", devices,
        "accuracy", nd_qualify_accuracy_json(q, model), "targets", nd_qualify_targets_json(q, model));
}

/* ---- gates ---- */

static json_t *rule_json(const struct nd_policy_rule *rule)
{
    char *words = nd_policy_describe(rule);
    json_t *row = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "gate", nd_policy_gate_name(rule->gate), "text",
        text_of(words), "models", texts_of(&rule->models), "devices", texts_of(&rule->devices), "edges",
        texts_of(&rule->edges), "probes", texts_of(&rule->probes), "reason", text_of(rule->reason), "owner",
        text_of(rule->owner), "until", text_of(rule->until), "line", (json_int_t)rule->mark.line + 1);
    free(words);
    return row;
}

static json_t *case_json(const struct nd_qualify_model *model, size_t device, size_t rule,
                         const struct nd_case *found)
{
    return json_pack("{s:o, s:o, s:I, s:s, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o}", "model",
                     text_of(model->campaign->name), "device", text_of(model->cells[device].label), "gate",
                     (json_int_t)rule, "verdict", nd_case_verdict_name(found->verdict), "value",
                     number(found->value), "bound", number(found->bound), "edge", text_of(found->edge), "probe",
                     text_of(found->probe), "checked", (json_int_t)found->n_cells, "failing",
                     (json_int_t)found->n_failing, "samples", (json_int_t)found->n_samples, "samples_needed",
                     (json_int_t)found->n_needed, "message", text_of(found->message));
}

static json_t *cases_json(const struct nd_qualification *q, enum nd_exit *exit_code,
                          json_int_t counts[static 6])
{
    json_t *rows = json_array();
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t d = 0; d < q->n_devices; d++) {
            /* A device that failed is told even where no gate is about it. */
            if (q->models[m].cells[d].failure != NULL)
                worsen(exit_code, ND_EXIT_DEVICE_FAILED);
            for (size_t r = 0; r < q->campaign.policy.n; r++) {
                struct nd_case found;
                nd_qualify_judge(q, &q->models[m], d, r, &found);
                if (!found.applies)
                    continue;
                counts[found.verdict]++;
                worsen(exit_code, nd_case_exit_code(found.verdict));
                json_array_append_new(rows, case_json(&q->models[m], d, r, &found));
            }
        }
    return rows;
}

json_t *nd_qualify_result(const struct nd_qualification *q, enum nd_exit *exit_code)
{
    json_int_t counts[6] = {0};
    *exit_code = ND_EXIT_SAME;
    json_t *models = json_array(), *gates = json_array();
    for (size_t m = 0; m < q->campaign.n_models; m++)
        json_array_append_new(models, model_json(q, &q->models[m]));
    for (size_t r = 0; r < q->campaign.policy.n; r++)
        json_array_append_new(gates, rule_json(&q->campaign.policy.rules[r]));
    json_t *cases = cases_json(q, exit_code, counts);
    json_t *counted = json_object();
    for (int v = ND_CASE_PASSED; v <= ND_CASE_DEVICE_FAILED; v++)
        json_object_set_new(counted, nd_case_verdict_name((enum nd_case_verdict)v), json_integer(counts[v]));
    return json_pack("{s:s, s:i, s:s, s:s, s:o, s:s, s:i, s:o, s:o, s:o, s:o, s:o}", "kind", "qualification",
                     "format", RESULT_FORMAT, "npudiff", nd_version(), "key", q->key, "campaign",
                     text_of(q->campaign.name), "verdict", verdict_name(*exit_code), "exit_code",
                     (int)*exit_code, "reference", text_of(q->campaign.reference), "counts", counted, "models",
                     models, "gates", gates, "cases", cases);
}
