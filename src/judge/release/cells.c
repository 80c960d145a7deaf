/* The captures that a model needs: one of every device, and the references. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/files/file.h"
#include "core/memory.h"
#include "core/text/strbuf.h"
#include "judge/release/qualify.h"

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
    cell->edges = q->campaign.edges;
    cell->allow_fallback = nd_device_is_npu(cell->device.kind) && cell->device.way == ND_REMOTE_AGENT;
    for (size_t i = 0; status == ND_OK && i < device->n_prepared; i++)
        if (strcmp(device->prepared[i].model, model->campaign->name) == 0) {
            status = nd_qualify_plan_prepared(q, model, device->prepared[i].path, cell, err);
            model->has_prepared = true;
        }
    return status == ND_OK ? place(q, model, cell->label, cell, err) : status;
}

static enum nd_status plan_reference(struct nd_qualification *q, struct nd_qualify_model *model, bool is_float,
                                     struct nd_error *err)
{
    struct nd_qualify_cell *cell = &model->cells[model->n_cells];
    *(is_float ? &model->float64 : &model->quantised) = model->n_cells++;
    cell->label = is_float ? ND_REFERENCE_FLOAT : ND_REFERENCE_QUANTISED;
    cell->model = is_float ? model->float_model : model->model;
    cell->probes = (const struct nd_probe *const *)(is_float ? model->float_probes : model->probes);
    cell->edges = is_float ? "outputs" : q->campaign.edges;
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
        is_needed = is_needed || (nd_policy_has_edges(q->campaign.policy.rules[r].gate) &&
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
                   a->way == b->way && a->n_threads == b->n_threads && a->n_options == b->n_options &&
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

/* Two names of one device would be captured over one another. */
static enum nd_status check_paths(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                  struct nd_error *err)
{
    for (size_t i = 0; i < model->n_cells; i++)
        for (size_t k = 0; k < i; k++)
            if (strcmp(model->cells[i].path, model->cells[k].path) == 0 ||
                strcmp(model->cells[i].label, model->cells[k].label) == 0)
                return nd_fail(err, ND_E_CAMPAIGN_FORMAT, q->campaign.path, "%s: two devices are called '%s'",
                               q->campaign.path, model->cells[i].label);
    return ND_OK;
}

enum nd_status nd_qualify_plan_cells(struct nd_qualification *q, struct nd_qualify_model *model,
                                     struct nd_error *err)
{
    model->cells = nd_calloc(q->n_devices + 2, sizeof *model->cells);
    if (model->cells == NULL)
        return nd_fail_memory(err);
    enum nd_status status = ND_OK;
    for (size_t d = 0; status == ND_OK && d < q->n_devices; d++)
        status = plan_device(q, model, d, err);
    if (status == ND_OK && needs_quantised(q, model))
        status = plan_reference(q, model, false, err);
    if (status == ND_OK && model->float_model != NULL && has_truth(model))
        status = plan_reference(q, model, true, err);
    if (status == ND_OK)
        status = check_devices(q, model, err);
    return status == ND_OK ? check_paths(q, model, err) : status;
}
