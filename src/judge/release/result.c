/* What was found, as the result of the campaign; docs/reference/campaign.md describes it. */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/documents/json_out.h"
#include "judge/release/qualify.h"

const char *nd_qualify_text(const struct nd_qualification *q, const char *text)
{
    json_t *clean = nd_json_string(text);
    if (clean == NULL)
        nd_arena_fail(q->arena);
    const char *copy = nd_arena_text(q->arena, json_string_value(clean));
    json_decref(clean);
    return copy;
}

static struct nd_qualified_texts texts_of(const struct nd_qualification *q, const struct nd_texts *texts)
{
    struct nd_qualified_texts list = {.items = nd_arena_calloc(q->arena, texts->n, sizeof *list.items)};
    while (list.items != NULL && list.n < texts->n) {
        list.items[list.n] = nd_qualify_text(q, texts->items[list.n]);
        list.n++;
    }
    return list;
}

static const char *verdict_name(enum nd_exit code)
{
    static const char *const names[] = {"passed",         "failed",       "trouble",
                                        "not comparable", "inconclusive", "device failed"};
    return names[code];
}

/* ---- devices ---- */

/* What the device has in common with the reference of the campaign. */
static void fill_comparison(const struct nd_qualification *q, const struct nd_qualify_model *model,
                            size_t device, struct nd_qualified_device *out)
{
    size_t test;
    const struct nd_comparison *c = nd_qualify_compared(q, model, device, &test);
    out->n_edges = out->n_edges_differing = SIZE_MAX;
    out->first_difference = out->first_op_types = "";
    out->class_id = INT_MIN;
    if (c == NULL)
        return;
    size_t first = c->devices[test].first_edge;
    out->n_edges = c->n_edges;
    out->n_edges_differing = 0;
    for (size_t e = 0; e < c->n_edges; e++)
        out->n_edges_differing += c->edges[e].pairs[test - 1].verdict == ND_VERDICT_DIFFERS;
    if (first != SIZE_MAX) {
        out->first_difference = nd_qualify_text(q, c->edges[first].name);
        out->first_op_types = nd_qualify_text(q, c->edges[first].op_types);
    }
    out->class_id = c->devices[test].class_id;
}

static void fill_device(const struct nd_qualification *q, const struct nd_qualify_model *model, size_t device,
                        struct nd_qualified_device *out)
{
    const struct nd_qualify_cell *cell = &model->cells[device];
    enum nd_capture_status state = nd_capture_state(cell->capture);
    /* A complete capture of a device that fell back where it may not is a failure, too. */
    bool is_failed = state == ND_CAPTURE_COMPLETE && cell->failure != NULL;
    *out = (struct nd_qualified_device){
        .label = nd_qualify_text(q, cell->label),
        .uri = nd_qualify_text(q, cell->device.uri),
        .chipset = cell->device.chipset != NULL ? cell->device.chipset->sm : "",
        .runtime = nd_qualify_text(q, cell->device.runtime.id),
        .capture = nd_qualify_text(q, cell->relative),
        .capture_sha256 = nd_qualify_text(q, cell->sha256),
        .prepared =
            nd_qualify_text(q, cell->prepared != NULL ? nd_path_base(nd_model_path(cell->prepared)) : NULL),
        .prepared_sdk = nd_qualify_text(q, cell->binary.sdk),
        .prepared_chipset = nd_qualify_text(q, cell->binary.chipset),
        .status = nd_capture_state_name(is_failed ? ND_CAPTURE_FAILED : state),
        .failure = nd_qualify_text(q, cell->failure),
        .broken = nd_qualify_text(q, cell->broken),
        .explanation = nd_qualify_text(q, model->explanations[device]),
    };
    out->findings.items = nd_arena_calloc(q->arena, ND_QUALIFY_MAX_FINDINGS, sizeof *out->findings.items);
    if (out->findings.items != NULL) {
        nd_qualify_add_prepared_findings(q, cell, &out->findings);
        nd_qualify_add_moved_finding(q, cell, &out->findings);
    }
    fill_comparison(q, model, device, out);
}

static void fill_model(const struct nd_qualification *q, const struct nd_qualify_model *model,
                       struct nd_qualified_model *out)
{
    const struct nd_qualify_comparison *found =
        nd_qualify_find_comparison(model, nd_qualify_find_cell(model, q->n_devices, q->campaign.reference));
    const struct nd_comparison *c = found != NULL ? found->comparison : NULL;
    const struct nd_campaign_model *campaign = model->campaign;
    *out = (struct nd_qualified_model){
        .name = nd_qualify_text(q, campaign->name),
        .quantised = nd_qualify_text(q, nd_path_base(campaign->quantised)),
        .sha256 = nd_qualify_text(q, nd_model_sha256(model->model)),
        .float_model =
            nd_qualify_text(q, model->float_model != NULL ? nd_path_base(campaign->float_model) : NULL),
        .classes = nd_qualify_text(q, c != NULL ? c->classes_text : NULL),
        .output_classes = nd_qualify_text(q, c != NULL ? c->output_classes_text : NULL),
    };
    out->references.items =
        nd_arena_calloc(q->arena, model->n_cells - q->n_devices, sizeof *out->references.items);
    out->devices.items = nd_arena_calloc(q->arena, q->n_devices, sizeof *out->devices.items);
    if (out->references.items == NULL || out->devices.items == NULL)
        return;
    for (; out->devices.n < q->n_devices; out->devices.n++)
        fill_device(q, model, out->devices.n, &out->devices.items[out->devices.n]);
    for (size_t c_ref = q->n_devices; c_ref < model->n_cells; c_ref++) {
        const struct nd_qualify_cell *cell = &model->cells[c_ref];
        out->references.items[out->references.n++] = (struct nd_qualified_reference){
            .label = nd_qualify_text(q, cell->label),
            .capture = nd_qualify_text(q, cell->relative),
            .failure = nd_qualify_text(q, cell->failure),
            .broken = nd_qualify_text(q, cell->broken),
        };
    }
    nd_qualify_fill_accuracy(q, model, out);
    nd_qualify_fill_targets(q, model, out);
}

/* ---- gates ---- */

static struct nd_qualified_gate gate_of(const struct nd_qualification *q, const struct nd_policy_rule *rule)
{
    char *words = nd_policy_describe(rule);
    if (words == NULL)
        nd_arena_fail(q->arena);
    struct nd_qualified_gate gate = {
        .gate = nd_policy_gate_name(rule->gate),
        .text = nd_qualify_text(q, words),
        .models = texts_of(q, &rule->models),
        .devices = texts_of(q, &rule->devices),
        .edges = texts_of(q, &rule->edges),
        .probes = texts_of(q, &rule->probes),
        .reason = nd_qualify_text(q, rule->reason),
        .owner = nd_qualify_text(q, rule->owner),
        .until = nd_qualify_text(q, rule->until),
        .line = rule->mark.line + 1,
    };
    free(words);
    return gate;
}

/* One gate on one model and device, where it governs something there. */
static void judge_case(const struct nd_qualification *q, const struct nd_qualified_model *model, size_t m,
                       size_t device, size_t rule, struct nd_qualified *out)
{
    struct nd_case found;
    nd_qualify_judge(q, &q->models[m], device, rule, &found);
    if (!found.applies)
        return;
    out->counts[found.verdict].n++;
    out->exit_code = (int)nd_exit_worse((enum nd_exit)out->exit_code, nd_case_exit_code(found.verdict));
    out->cases.items[out->cases.n++] = (struct nd_qualified_case){
        .model = model->name,
        .device = model->devices.items[device].label,
        .gate = rule,
        .verdict = nd_case_verdict_name(found.verdict),
        .value = found.value,
        .bound = found.bound,
        .edge = nd_qualify_text(q, found.edge),
        .probe = nd_qualify_text(q, found.probe),
        .n_checked = found.n_cells,
        .n_failing = found.n_failing,
        .n_samples = (size_t)found.n_samples,
        .n_samples_needed = (size_t)found.n_needed,
        .message = nd_qualify_text(q, found.message),
    };
}

static void judge_all(const struct nd_qualification *q, struct nd_qualified *out)
{
    for (size_t m = 0; m < q->campaign.n_models; m++)
        for (size_t d = 0; d < q->n_devices; d++) {
            /* A device that failed is told even where no gate is about it. */
            if (q->models[m].cells[d].failure != NULL)
                out->exit_code = (int)nd_exit_worse((enum nd_exit)out->exit_code, ND_EXIT_DEVICE_FAILED);
            for (size_t r = 0; r < q->campaign.policy.n; r++)
                judge_case(q, &out->models.items[m], m, d, r, out);
        }
}

void nd_qualify_fill(const struct nd_qualification *q, struct nd_qualified *out)
{
    size_t n_models = q->campaign.n_models, n_gates = q->campaign.policy.n;
    *out = (struct nd_qualified){
        .version = nd_version(),
        .key = nd_qualify_text(q, q->key),
        .campaign = nd_qualify_text(q, q->campaign.name),
        .reference = nd_qualify_text(q, q->campaign.reference),
        .exit_code = ND_EXIT_SAME,
    };
    for (int v = 0; v < ND_QUALIFIED_N_VERDICTS; v++)
        out->counts[v].verdict = nd_case_verdict_name((enum nd_case_verdict)v);
    out->models.items = nd_arena_calloc(q->arena, n_models, sizeof *out->models.items);
    out->gates.items = nd_arena_calloc(q->arena, n_gates, sizeof *out->gates.items);
    out->cases.items = nd_arena_calloc(q->arena, n_models * q->n_devices * n_gates, sizeof *out->cases.items);
    if (nd_arena_has_failed(q->arena))
        return;
    for (; out->models.n < n_models; out->models.n++)
        fill_model(q, &q->models[out->models.n], &out->models.items[out->models.n]);
    for (; out->gates.n < n_gates; out->gates.n++)
        out->gates.items[out->gates.n] = gate_of(q, &q->campaign.policy.rules[out->gates.n]);
    if (!nd_arena_has_failed(q->arena))
        judge_all(q, out);
    out->verdict = verdict_name((enum nd_exit)out->exit_code);
    nd_qualify_suggest(q, out);
}
