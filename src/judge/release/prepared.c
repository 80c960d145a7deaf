/* What ships: models that hold a binary made for one device beforehand. */
#include <stdio.h>
#include <string.h>

#include "judge/release/qualify.h"

static bool has_output(const struct nd_model *model, const char *name)
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
        if (!has_output(prepared, name))
            return nd_fail(err, ND_E_CAMPAIGN_FORMAT, path, "%s: '%s' has no output '%s', which '%s' has",
                           q->campaign.path, path, name, model->campaign->quantised);
    }
    return ND_OK;
}

enum nd_status nd_qualify_plan_prepared(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                        const char *path, struct nd_qualify_cell *cell, struct nd_error *err)
{
    enum nd_status status = nd_model_load(path, &cell->prepared, err);
    if (status == ND_OK)
        status = nd_qualify_set_dims(cell->prepared, &model->campaign->dims, err);
    if (status == ND_OK)
        status = check_fit(q, model, cell->prepared, path, err);
    if (status == ND_OK)
        status = nd_prepared_read(cell->prepared, &cell->binary, err);
    cell->model = cell->prepared;
    cell->edges = "none"; /* what ships has no edges to make visible */
    return status;
}

/* "2.51.0" of the runtime "qairt-2.51.0". */
static const char *version_of(const char *runtime)
{
    static const char prefix[] = "qairt-";
    return strncmp(runtime, prefix, sizeof prefix - 1) == 0 ? runtime + sizeof prefix - 1 : runtime;
}

/* Whether "2.51.0.260929181845" is a build of "2.51.0". */
static bool is_build_of(const char *sdk, const char *version)
{
    size_t n = strlen(version);
    return strncmp(sdk, version, n) == 0 && (sdk[n] == '\0' || sdk[n] == '.');
}

/* The chipset that the binary is for, or NULL where it says none that is known. */
static const struct nd_chipset *chipset_of(const struct nd_prepared *binary)
{
    size_t n;
    const struct nd_chipset *all = nd_chipsets(&n), *found = nd_chipset_find(binary->chipset);
    for (size_t i = 0; found == NULL && i < n; i++)
        if (binary->soc_model != 0 && all[i].soc_model == binary->soc_model)
            found = &all[i];
    return found;
}

static void add_chipset_finding(const struct nd_qualification *q, const struct nd_prepared *binary,
                                const struct nd_chipset *own, struct nd_qualified_texts *findings)
{
    const struct nd_chipset *made_for = chipset_of(binary);
    if (made_for == own || (made_for == NULL && binary->chipset[0] == '\0' && binary->soc_model == 0))
        return;
    char name[64];
    if (made_for != NULL)
        snprintf(name, sizeof name, "%s (%s)", made_for->sm, made_for->arch);
    else if (binary->chipset[0] != '\0')
        snprintf(name, sizeof name, "%s", binary->chipset);
    else
        snprintf(name, sizeof name, "soc_model %d", binary->soc_model);
    findings->items[findings->n++] =
        nd_arena_printf(q->arena, "binary prepared for chipset %s, run as %s (%s)", name, own->sm, own->arch);
}

void nd_qualify_add_prepared_findings(const struct nd_qualification *q, const struct nd_qualify_cell *cell,
                                      struct nd_qualified_texts *findings)
{
    if (!cell->binary.exists || cell->device.chipset == NULL)
        return;
    const char *version = version_of(cell->device.runtime.id), *sdk = cell->binary.sdk;
    if (sdk[0] != '\0' && !is_build_of(sdk, version))
        findings->items[findings->n++] =
            nd_arena_printf(q->arena, "binary prepared with SDK %s, run with SDK %s", sdk, version);
    add_chipset_finding(q, &cell->binary, cell->device.chipset, findings);
}
