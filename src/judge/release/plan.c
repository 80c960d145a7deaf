/* What a campaign comes to: models, probes, devices, and where each capture goes. docs/reference/campaign.md.
 */

#include "core/documents/json_out.h"
#include "core/files/file.h"
#include "core/items.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"
#include "npudiff/core/parse.h"

/* Whether two models take the same: names, types and shapes, in order. */
static bool nd_qualify_has_same_inputs(const struct nd_model *a, const struct nd_model *b)
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

/* Gives the dynamic dimensions of a model their sizes. */
static enum nd_status nd_qualify_set_dims(struct nd_model *model, const struct nd_texts *dims,
                                          struct nd_error *err)
{
    for (size_t i = 0; i < dims->n; i++) {
        const char *equals = strchr(dims->items[i], '=');
        int64_t n;
        if (equals == NULL || !nd_parse_i64(equals + 1, &n) || n < 1)
            return nd_fail(err, ND_E_CAMPAIGN_FORMAT, dims->items[i],
                           "'dims' takes NAME=N with N >= 1, not '%s'", dims->items[i]);
        ND_FREED char *name = strndup(dims->items[i], (size_t)(equals - dims->items[i]));
        ND_TRY(name != NULL ? nd_model_set_dim(model, name, n, err) : nd_fail_memory(err));
    }
    return nd_model_check_static(model, err);
}

/* ---- what ships: models that hold a binary made for one device beforehand ---- */

static bool has_output_of_prepared(const struct nd_model *model, const char *name)
{
    for (size_t i = 0; i < nd_model_n_outputs(model); i++)
        if (strcmp(nd_model_output(model, i)->name, name) == 0)
            return true;
    return false;
}

static enum nd_status check_fit(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                const struct nd_model *prepared, const char *path, struct nd_error *err)
{
    if (!nd_qualify_has_same_inputs(model->model, prepared))
        return nd_fail(err, ND_E_CAMPAIGN_FORMAT, path, "%s: '%s' does not take the inputs of '%s'",
                       q->campaign.path, path, model->campaign->quantised);
    for (size_t i = 0; i < nd_model_n_outputs(model->model); i++) {
        const char *name = nd_model_output(model->model, i)->name;
        if (!has_output_of_prepared(prepared, name))
            return nd_fail(err, ND_E_CAMPAIGN_FORMAT, path, "%s: '%s' has no output '%s', which '%s' has",
                           q->campaign.path, path, name, model->campaign->quantised);
    }
    return ND_OK;
}

/* Loads what goes to the cell's device in place of the model. It must take the model's inputs and have its
 * outputs: ND_E_CAMPAIGN_FORMAT. */
static enum nd_status nd_qualify_plan_prepared(const struct nd_qualification *q,
                                               const struct nd_qualify_model *model, const char *path,
                                               struct nd_qualify_cell *cell, struct nd_error *err)
{
    ND_TRY(nd_model_load(path, &cell->prepared, err));
    ND_TRY(nd_qualify_set_dims(cell->prepared, &model->campaign->dims, err));
    ND_TRY(check_fit(q, model, cell->prepared, path, err));
    ND_TRY(nd_prepared_read(cell->prepared, &cell->binary, err));
    cell->model = cell->prepared;
    cell->tensors = "none"; /* what ships has no tensors to make visible */
    return ND_OK;
}

const char *nd_qualify_text(const struct nd_qualification *q, const char *text)
{
    json_auto_t *clean = nd_json_string(text);
    if (clean == NULL)
        nd_arena_fail(q->arena);
    return nd_arena_text(q->arena, json_string_value(clean));
}

/* ---- the captures that a model needs: one of every device, and the references ---- */

/* A label as the name of a file: digits follow where that loses something. */
static char *file_name(const char *label)
{
    struct nd_strbuf name = {0};
    uint32_t hash = 2166136261u; /* FNV-1a */
    bool is_plain = label[0] != '.' && strlen(label) <= 100;
    for (const char *at = label; *at != '\0'; at++) {
        unsigned char c = (unsigned char)*at;
        bool is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       strchr("._-+@", *at) != NULL;
        hash = (hash ^ c) * 16777619u;
        is_plain = is_plain && is_good;
        if (name.len < 100)
            nd_strbuf_append(&name, is_good && !(at == label && c == '.') ? at : "-", 1);
    }
    if (!is_plain)
        nd_strbuf_printf(&name, "-%08x", (unsigned int)hash);
    nd_strbuf_puts(&name, ".h5");
    return nd_strbuf_take(&name);
}

static enum nd_status place(const struct nd_qualification *q, const struct nd_qualify_model *model,
                            const char *label, struct nd_qualify_cell *cell, struct nd_error *err)
{
    struct nd_strbuf relative = {0};
    char *name = file_name(label);
    nd_strbuf_printf(&relative, "captures/%s/%s", model->campaign->name, name != NULL ? name : "");
    free(name);
    cell->relative = nd_strbuf_take(&relative);
    if (cell->relative != NULL)
        cell->path = nd_path_join(q->folder, cell->relative);
    return cell->path != NULL ? ND_OK : nd_fail_memory(err);
}

static enum nd_status plan_device(struct nd_qualification *q, struct nd_qualify_model *model, size_t d,
                                  struct nd_error *err)
{
    struct nd_qualify_cell *cell = &model->cells[model->n_cells++];
    const struct nd_campaign_device *device = &q->campaign.devices[d];
    enum nd_status status = nd_device_parse(device->uri, &cell->device, err);
    if (status != ND_OK) {
        nd_error_context(err, "%s:%zu:%zu", q->campaign.path, device->mark.line + 1, device->mark.column + 1);
        return status;
    }
    q->labels[d] = q->models[0].cells[d].device.label;
    cell->label = cell->device.label;
    cell->model = model->model;
    cell->probes = (const struct nd_probe *const *)model->probes;
    cell->tensors = q->campaign.tensors;
    cell->allow_fallback = nd_device_is_npu(cell->device.kind) && cell->device.method == ND_REMOTE_AGENT;
    for (size_t i = 0; i < device->n_prepared; i++)
        if (strcmp(device->prepared[i].model, model->campaign->name) == 0) {
            ND_TRY(nd_qualify_plan_prepared(q, model, device->prepared[i].path, cell, err));
            model->has_prepared = true;
        }
    return place(q, model, cell->label, cell, err);
}

static enum nd_status plan_reference(struct nd_qualification *q, struct nd_qualify_model *model, bool is_float,
                                     struct nd_error *err)
{
    struct nd_qualify_cell *cell = &model->cells[model->n_cells];
    *(is_float ? &model->float64 : &model->quantised) = model->n_cells++;
    cell->label = is_float ? ND_REFERENCE_FLOAT : ND_REFERENCE_QUANTISED;
    cell->model = is_float ? model->float_model : model->model;
    cell->probes = (const struct nd_probe *const *)(is_float ? model->float_probes : model->probes);
    cell->tensors = is_float ? "outputs" : q->campaign.tensors;
    enum nd_status status = nd_device_parse(is_float ? "float64" : "exact", &cell->device, err);
    return status == ND_OK ? place(q, model, cell->label, cell, err) : status;
}

/* Labels or targets: then the references are told beside the devices. */
static bool has_truth(const struct nd_qualify_model *model)
{
    for (size_t p = 0; p < model->n_probes; p++)
        if (model->scope_probes[p].has_labels || model->probes[p]->n_goals > 0)
            return true;
    return false;
}

static bool needs_quantised(const struct nd_qualification *q, const struct nd_qualify_model *model)
{
    bool is_needed = strcmp(q->campaign.reference, ND_REFERENCE_QUANTISED) == 0;
    for (size_t r = 0; r < q->campaign.policy.n; r++)
        is_needed = is_needed || (nd_policy_has_tensors(q->campaign.policy.rules[r].gate) &&
                                  strcmp(q->campaign.policy.rules[r].to, ND_REFERENCE_QUANTISED) == 0);
    return is_needed || has_truth(model);
}

static bool is_same_text(const char *a, const char *b)
{
    return strcmp(a != NULL ? a : "", b != NULL ? b : "") == 0;
}

static const char *option_of(const struct nd_device *device, const char *key)
{
    for (size_t i = 0; i < device->n_options; i++)
        if (strcmp(device->option_keys[i], key) == 0)
            return device->option_values[i];
    return NULL;
}

/* Whatever names they were given, and in whatever order their options stand. */
static bool is_same_device(const struct nd_device *a, const struct nd_device *b)
{
    bool is_same = a->kind == b->kind && a->chipset == b->chipset && a->transport == b->transport &&
                   a->method == b->method && a->n_threads == b->n_threads && a->n_options == b->n_options &&
                   is_same_text(a->address, b->address) && is_same_text(a->runtime.id, b->runtime.id) &&
                   is_same_text(a->optimisation, b->optimisation);
    for (size_t i = 0; is_same && i < a->n_options; i++) {
        const char *other = option_of(b, a->option_keys[i]);
        is_same = other != NULL && strcmp(other, a->option_values[i]) == 0;
    }
    return is_same;
}

/* The same measured twice would be a device that agrees with itself. */
static enum nd_status check_devices(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                    struct nd_error *err)
{
    for (size_t i = 0; i < q->n_devices; i++)
        for (size_t k = 0; k < i; k++) {
            const struct nd_campaign_device *first = &q->campaign.devices[k], *second = &q->campaign.devices[i];
            const struct nd_device *device = &model->cells[i].device;
            bool is_same_model =
                (model->cells[i].prepared != NULL) == (model->cells[k].prepared != NULL) &&
                strcmp(nd_model_sha256(model->cells[i].model), nd_model_sha256(model->cells[k].model)) == 0;
            if (is_same_model && is_same_device(device, &model->cells[k].device))
                return nd_fail(err, ND_E_CAMPAIGN_FORMAT, q->campaign.path,
                               "%s:%zu:%zu: '%s' and '%s' (line %zu) are the same device%s%s; name it once",
                               q->campaign.path, second->mark.line + 1, second->mark.column + 1, second->uri,
                               first->uri, first->mark.line + 1, device->chipset != NULL ? ", " : "",
                               device->chipset != NULL ? device->chipset->sm : "");
        }
    return ND_OK;
}

/* Fills the cells of a model. */
static enum nd_status nd_qualify_plan_cells(struct nd_qualification *q, struct nd_qualify_model *model,
                                            struct nd_error *err)
{
    model->cells = nd_calloc(q->n_devices + 2, sizeof *model->cells);
    ND_TRY_MEMORY(model->cells != NULL, err);
    for (size_t d = 0; d < q->n_devices; d++)
        ND_TRY(plan_device(q, model, d, err));
    if (needs_quantised(q, model))
        ND_TRY(plan_reference(q, model, false, err));
    if (model->float_model != NULL && has_truth(model))
        ND_TRY(plan_reference(q, model, true, err));
    ND_TRY(check_devices(q, model, err));
    /* Two names of one device would be captured over one another. */
    for (size_t i = 0; i < model->n_cells; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(model->cells[i].path, model->cells[k].path) == 0 ||
                strcmp(model->cells[i].label, model->cells[k].label) == 0)
                return nd_fail(err, ND_E_CAMPAIGN_FORMAT, q->campaign.path, "%s: two devices are called '%s'",
                               q->campaign.path, model->cells[i].label);
    return ND_OK;
}

/* ---- models and their probes ---- */

/* The float model is fed the very same: what a generated probe is may depend on the quantised model. */
static enum nd_status make_float_probes(struct nd_qualify_model *model, struct nd_error *err)
{
    model->float_probes = nd_calloc(model->n_probes, sizeof *model->float_probes);
    ND_TRY_MEMORY(model->float_probes != NULL, err);
    if (!nd_qualify_has_same_inputs(model->model, model->float_model))
        return nd_fail(err, ND_E_CAMPAIGN_FORMAT, model->campaign->float_model,
                       "'%s' does not take the inputs of '%s'", model->campaign->float_model,
                       model->campaign->quantised);
    for (size_t p = 0; p < model->n_probes; p++)
        model->float_probes[p] = model->probes[p];
    return ND_OK;
}

static enum nd_status load(const char *path, const struct nd_texts *dims, struct nd_model **out,
                           struct nd_error *err)
{
    enum nd_status status = nd_model_load(path, out, err);
    return status == ND_OK ? nd_qualify_set_dims(*out, dims, err) : status;
}

static enum nd_status find_tensors(struct nd_qualify_model *model, const char *tensors, struct nd_error *err)
{
    ND_FREED size_t *selected = NULL;
    ND_TRY(nd_model_select_tensors(model->model, tensors, &selected, &model->n_tensors, err));
    model->tensors = nd_calloc(model->n_tensors, sizeof *model->tensors);
    for (size_t i = 0; model->tensors != NULL && i < model->n_tensors; i++) {
        const struct nd_tensor *tensor = nd_model_tensor(model->model, selected[i]);
        bool is_known = tensor->dtype != ND_DTYPE_NONE;
        model->tensors[i] =
            (struct nd_scope_tensor){.name = tensor->name,
                                     .may_be_integer = !is_known || !nd_dtype_is_float(tensor->dtype),
                                     .may_be_float = !is_known || nd_dtype_is_float(tensor->dtype),
                                     .is_output = tensor->is_model_output};
    }
    return model->tensors != NULL ? ND_OK : nd_fail_memory(err);
}

static bool has_output(const struct nd_qualify_model *model, const char *name)
{
    for (size_t e = 0; e < model->n_tensors; e++)
        if (model->tensors[e].is_output && strcmp(model->tensors[e].name, name) == 0)
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
    ND_TRY_MEMORY(model->probes != NULL && model->scope_probes != NULL && model->explanations != NULL, err);
    enum nd_status status = load(campaign->quantised, &campaign->dims, &model->model, err);
    if (status == ND_OK && campaign->float_model != NULL)
        status = load(campaign->float_model, &campaign->dims, &model->float_model, err);
    if (status == ND_OK)
        status = nd_probes_for_model(model->model, (const char *const *)campaign->probes.items,
                                     campaign->probes.n, model->probes, err);
    if (status == ND_OK && model->float_model != NULL)
        status = make_float_probes(model, err);
    if (status == ND_OK)
        status = find_tensors(model, q->campaign.tensors, err);
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
    ND_TRY_MEMORY(q->scopes != NULL, err);
    for (size_t m = 0; m < n; m++) {
        const struct nd_qualify_model *model = &q->models[m];
        q->scopes[m] = (struct nd_scope_model){.name = model->campaign->name,
                                               .has_float = model->float_model != NULL,
                                               .n_tensors = model->n_tensors,
                                               .n_probes = model->n_probes,
                                               .tensors = model->tensors,
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
    ND_TRY_MEMORY(q->labels != NULL && q->models != NULL, err);
    for (size_t m = 0; m < q->campaign.n_models; m++)
        q->models[m].campaign = &q->campaign.models[m];
    for (size_t m = 0; m < q->campaign.n_models; m++)
        ND_TRY(plan_model(q, &q->models[m], err));
    for (size_t m = 0; m < q->campaign.n_models; m++)
        ND_TRY(nd_qualify_plan_cells(q, &q->models[m], err));
    ND_TRY(check_reference(q, err));
    return q->is_one_model ? ND_OK : check_policy(q, err);
}

static void model_deinit(struct nd_qualify_model *model, size_t n_devices)
{
    ND_DEINIT_EACH(nd_accuracy_study_deinit, model->studies, model->n_studies);
    for (size_t i = 0; i < model->n_targets; i++) {
        for (size_t c = 0; model->targets[i].sums != NULL && c < model->n_cells; c++)
            free(model->targets[i].sums[c]);
        free(model->targets[i].sums);
    }
    free(model->targets);
    for (size_t i = 0; i < model->n_comparisons; i++) {
        nd_comparison_destroy(&model->comparisons[i].comparison);
        ND_FREE_ALL(model->comparisons[i].devices, model->comparisons[i].why_not);
    }
    free(model->comparisons);
    ND_FREE_ITEMS(model->explanations, n_devices);
    for (size_t i = 0; i < model->n_cells; i++) {
        struct nd_qualify_cell *cell = &model->cells[i];
        nd_capture_close(&cell->capture);
        nd_device_deinit(&cell->device);
        nd_model_destroy(&cell->prepared);
        ND_FREE_ALL(cell->path, cell->relative, cell->failure, cell->broken);
    }
    ND_FREE_ALL(model->cells, model->tensors, model->scope_probes);
    for (size_t p = 0; model->probes != NULL && p < model->n_probes; p++)
        nd_probe_destroy(&model->probes[p]);
    ND_FREE_ALL(model->probes, model->float_probes); /* they are those of the quantised model */
    nd_model_destroy(&model->float_model);
    nd_model_destroy(&model->model);
}

void nd_qualify_plan_deinit(struct nd_qualification *q)
{
    for (size_t m = 0; q->models != NULL && m < q->campaign.n_models; m++)
        model_deinit(&q->models[m], q->n_devices);
    nd_qualified_deinit(&q->last);
    ND_FREE_ALL(q->models, q->scopes, q->labels);
}
