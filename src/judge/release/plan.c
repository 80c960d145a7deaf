/* What a campaign comes to: models, probes, devices, and where each capture goes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"
#include "npudiff/core/parse.h"

/* ---- probes ---- */

bool nd_qualify_has_same_inputs(const struct nd_model *a, const struct nd_model *b)
{
    size_t n = nd_model_n_inputs(a);
    bool is_alike = n == nd_model_n_inputs(b);
    for (size_t i = 0; is_alike && i < n; i++) {
        const struct nd_model_io *of_a = nd_model_input(a, i), *of_b = nd_model_input(b, i);
        is_alike = strcmp(of_a->name, of_b->name) == 0 && of_a->dtype == of_b->dtype &&
                   nd_shape_equal(&of_a->shape, &of_b->shape);
    }
    return is_alike;
}

/* The float model is fed the very same: what a generated probe is may depend on the quantised model. */
static enum nd_status make_float_probes(struct nd_qualify_model *model, struct nd_error *err)
{
    model->float_probes = nd_calloc(model->n_probes, sizeof *model->float_probes);
    if (model->float_probes == NULL)
        return nd_fail_memory(err);
    if (!nd_qualify_has_same_inputs(model->model, model->float_model))
        return nd_fail(err, ND_E_CAMPAIGN_FORMAT, model->campaign->float_model,
                       "'%s' does not take the inputs of '%s'", model->campaign->float_model,
                       model->campaign->quantised);
    for (size_t p = 0; p < model->n_probes; p++)
        model->float_probes[p] = model->probes[p];
    return ND_OK;
}

/* ---- models ---- */

enum nd_status nd_qualify_set_dims(struct nd_model *model, const struct nd_texts *dims, struct nd_error *err)
{
    for (size_t i = 0; i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n;
        if (equals == NULL || !nd_parse_i64(equals + 1, &n) || n < 1)
            return nd_fail(err, ND_E_CAMPAIGN_FORMAT, dims->items[i],
                           "'dims' takes NAME=N with N >= 1, not '%s'", dims->items[i]);
        char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        enum nd_status status = name != NULL ? nd_model_set_dim(model, name, n, err) : nd_fail_memory(err);
        free(name);
        if (status != ND_OK)
            return status;
    }
    return nd_model_check_static(model, err);
}

static enum nd_status load(const char *path, const struct nd_texts *dims, struct nd_model **out,
                           struct nd_error *err)
{
    enum nd_status status = nd_model_load(path, out, err);
    return status == ND_OK ? nd_qualify_set_dims(*out, dims, err) : status;
}

static enum nd_status find_edges(struct nd_qualify_model *model, const char *edges, struct nd_error *err)
{
    size_t *selected = NULL;
    enum nd_status status = nd_model_select_edges(model->model, edges, &selected, &model->n_edges, err);
    if (status != ND_OK)
        return status;
    model->edges = nd_calloc(model->n_edges, sizeof *model->edges);
    for (size_t i = 0; model->edges != NULL && i < model->n_edges; i++) {
        const struct nd_edge *edge = nd_model_edge(model->model, selected[i]);
        bool is_known = edge->dtype != ND_DTYPE_NONE;
        model->edges[i] = (struct nd_scope_edge){.name = edge->name,
                                                 .may_be_integer = !is_known || !nd_dtype_is_float(edge->dtype),
                                                 .may_be_float = !is_known || nd_dtype_is_float(edge->dtype),
                                                 .is_output = edge->is_model_output};
    }
    free(selected);
    return model->edges != NULL ? ND_OK : nd_fail_memory(err);
}

static bool has_output(const struct nd_qualify_model *model, const char *name)
{
    for (size_t e = 0; e < model->n_edges; e++)
        if (model->edges[e].is_output && strcmp(model->edges[e].name, name) == 0)
            return true;
    return false;
}

static enum nd_status plan_model(struct nd_qualification *q, struct nd_qualify_model *model,
                                 struct nd_error *err)
{
    const struct nd_campaign_model *campaign = model->campaign;
    model->quantised = model->float64 = SIZE_MAX;
    model->n_probes = campaign->probes.n;
    model->probes = nd_calloc(model->n_probes, sizeof *model->probes);
    model->scope_probes = nd_calloc(model->n_probes, sizeof *model->scope_probes);
    model->explanations = nd_calloc(q->n_devices, sizeof *model->explanations);
    if (model->probes == NULL || model->scope_probes == NULL || model->explanations == NULL)
        return nd_fail_memory(err);
    enum nd_status status = load(campaign->quantised, &campaign->dims, &model->model, err);
    if (status == ND_OK && campaign->float_model != NULL)
        status = load(campaign->float_model, &campaign->dims, &model->float_model, err);
    if (status == ND_OK)
        status = nd_probes_for_model(model->model, (const char *const *)campaign->probes.items,
                                     campaign->probes.n, model->probes, err);
    if (status == ND_OK && model->float_model != NULL)
        status = make_float_probes(model, err);
    if (status == ND_OK)
        status = find_edges(model, q->campaign.edges, err);
    for (size_t p = 0; status == ND_OK && p < model->n_probes; p++) {
        model->scope_probes[p] = (struct nd_scope_probe){.name = model->probes[p]->name,
                                                         .has_labels = model->probes[p]->labels != NULL,
                                                         .goals = model->probes[p]};
        for (size_t i = 0; i < model->probes[p]->n_goals; i++)
            if (!has_output(model, model->probes[p]->goals[i].output))
                return nd_fail(err, ND_E_CAMPAIGN_FORMAT, q->campaign.path,
                               "%s: probe '%s' has a target of '%s', which is no output of model '%s'",
                               q->campaign.path, model->probes[p]->name, model->probes[p]->goals[i].output,
                               campaign->name);
        for (size_t i = 0; i < p; i++)
            if (strcmp(model->probes[i]->name, model->probes[p]->name) == 0)
                return nd_fail(err, ND_E_CAMPAIGN_FORMAT, q->campaign.path,
                               "%s: model '%s' has two probes '%s'", q->campaign.path, campaign->name,
                               model->probes[p]->name);
    }
    if (status != ND_OK)
        nd_error_context(err, "%s: model '%s'", q->campaign.path, campaign->name);
    return status;
}

/* ---- all of it ---- */

static enum nd_status check_policy(struct nd_qualification *q, struct nd_error *err)
{
    size_t n = q->campaign.n_models;
    q->scopes = nd_calloc(n, sizeof *q->scopes);
    if (q->scopes == NULL)
        return nd_fail_memory(err);
    for (size_t m = 0; m < n; m++) {
        const struct nd_qualify_model *model = &q->models[m];
        q->scopes[m] = (struct nd_scope_model){.name = model->campaign->name,
                                               .has_float = model->float_model != NULL,
                                               .n_edges = model->n_edges,
                                               .n_probes = model->n_probes,
                                               .edges = model->edges,
                                               .probes = model->scope_probes};
    }
    const struct nd_scope scope = {
        .n_models = n, .n_devices = q->n_devices, .models = q->scopes, .devices = q->labels};
    return nd_policy_check(&q->campaign.policy, &scope, q->campaign.path, err);
}

size_t nd_qualify_find_cell(const struct nd_qualify_model *model, size_t n_devices, const char *to)
{
    for (size_t d = 0; d < n_devices; d++)
        if (strcmp(model->cells[d].label, to) == 0)
            return d;
    return strcmp(to, ND_REFERENCE_FLOAT) == 0 ? model->float64 : model->quantised;
}

static enum nd_status check_reference(const struct nd_qualification *q, struct nd_error *err)
{
    if (strcmp(q->campaign.reference, ND_REFERENCE_QUANTISED) == 0)
        return ND_OK;
    for (size_t d = 0; d < q->n_devices; d++)
        if (strcmp(q->labels[d], q->campaign.reference) == 0)
            return ND_OK;
    return nd_fail(err, ND_E_CAMPAIGN_FORMAT, q->campaign.path,
                   "%s: 'reference' is 'quantised' or a device of the campaign, not '%s'", q->campaign.path,
                   q->campaign.reference);
}

enum nd_status nd_qualify_plan(struct nd_qualification *q, struct nd_error *err)
{
    q->n_devices = q->campaign.n_devices;
    q->labels = nd_calloc(q->n_devices, sizeof *q->labels);
    q->models = nd_calloc(q->campaign.n_models, sizeof *q->models);
    if (q->labels == NULL || q->models == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t m = 0; m < q->campaign.n_models; m++)
        q->models[m].campaign = &q->campaign.models[m];
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = plan_model(q, &q->models[m], err);
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = nd_qualify_plan_cells(q, &q->models[m], err);
    if (status == ND_OK)
        status = check_reference(q, err);
    return status == ND_OK && !q->is_one_model ? check_policy(q, err) : status;
}

static void cell_deinit(struct nd_qualify_cell *cell)
{
    nd_capture_close(&cell->capture);
    nd_device_deinit(&cell->device);
    nd_model_destroy(&cell->prepared);
    free(cell->path);
    free(cell->relative);
    free(cell->failure);
    free(cell->broken);
}

static void model_deinit(struct nd_qualify_model *model, size_t n_devices)
{
    for (size_t i = 0; i < model->n_studies; i++)
        nd_accuracy_study_deinit(&model->studies[i]);
    free(model->studies);
    nd_qualify_targets_deinit(model);
    for (size_t i = 0; i < model->n_comparisons; i++) {
        nd_comparison_destroy(&model->comparisons[i].comparison);
        free(model->comparisons[i].devices);
        free(model->comparisons[i].why_not);
    }
    free(model->comparisons);
    for (size_t d = 0; model->explanations != NULL && d < n_devices; d++)
        free(model->explanations[d]);
    free(model->explanations);
    for (size_t i = 0; i < model->n_cells; i++)
        cell_deinit(&model->cells[i]);
    free(model->cells);
    free(model->edges);
    free(model->scope_probes);
    for (size_t p = 0; model->probes != NULL && p < model->n_probes; p++)
        nd_probe_destroy(&model->probes[p]);
    free(model->probes);
    free(model->float_probes); /* they are those of the quantised model */
    nd_model_destroy(&model->float_model);
    nd_model_destroy(&model->model);
}

void nd_qualify_plan_deinit(struct nd_qualification *q)
{
    for (size_t m = 0; q->models != NULL && m < q->campaign.n_models; m++)
        model_deinit(&q->models[m], q->n_devices);
    nd_qualified_deinit(&q->last);
    free(q->models);
    free(q->scopes);
    free(q->labels);
}
