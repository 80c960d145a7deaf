/* Where the differences of a device begin: layers with local mismatches before which there are none. */
#include <stdlib.h>

#include "core/error.h"
#include "core/memory.h"
#include "explain/stages.h"

static bool has_introduced(const struct nd_explained_layer *layer)
{
    return layer->is_examined && layer->introduced.n_differing > 0 && !layer->is_within_step;
}

/* Whether something that the step depends on has local mismatches; is_below[] of earlier steps says it of
 * those, has_any of all of them together. What floats between layers are made of is not known: it may be
 * everything before them. */
static bool has_ancestor(const struct nd_plan *plan, const struct nd_explained_device *device,
                         const bool *is_below, bool has_any, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    bool found = layer == NULL && has_any && !nd_plan_tensor(plan, step)->is_model_input;
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        found = found || (input != SIZE_MAX && (is_below[input] || has_introduced(&device->layers[input])));
    }
    return found;
}

static enum nd_status find_sources(const struct nd_plan *plan, struct nd_explained_device *device,
                                   struct nd_error *err)
{
    bool *is_below = nd_calloc(plan->n_steps, sizeof *is_below), has_any = false;
    device->sources = nd_calloc(plan->n_steps, sizeof *device->sources);
    if (is_below == NULL || device->sources == NULL) {
        free(is_below);
        return nd_fail_memory(err);
    }
    for (size_t s = 0; s < plan->n_steps; s++) {
        is_below[s] = has_ancestor(plan, device, is_below, has_any, s);
        device->layers[s].is_source = has_introduced(&device->layers[s]) && !is_below[s];
        has_any = has_any || has_introduced(&device->layers[s]);
        if (device->layers[s].is_source)
            device->sources[device->n_sources++] = s;
    }
    free(is_below);
    return ND_OK;
}

static enum nd_verdict verdict_of(const struct nd_explained_device *device, size_t n_steps)
{
    bool is_within = false;
    for (size_t s = 0; s < n_steps; s++)
        is_within = is_within || device->layers[s].is_within_step;
    if (device->n_sources > 0)
        return ND_VERDICT_DIFFERS;
    if (device->n_examined == 0 || device->n_not_examined > 0)
        return ND_VERDICT_INCONCLUSIVE;
    return is_within ? ND_VERDICT_WITHIN : ND_VERDICT_SAME;
}

enum nd_status nd_explain_trace(const struct nd_plan *plan, struct nd_explanation *out, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t d = 0; d < plan->n_devices && status == ND_OK; d++) {
        struct nd_explained_device *device = &out->devices[d];
        if (!plan->sources[d].is_failed)
            status = find_sources(plan, device, err);
        device->verdict = plan->sources[d].is_failed ? ND_VERDICT_FAILED : verdict_of(device, plan->n_steps);
        if (device->verdict > out->verdict)
            out->verdict = device->verdict;
    }
    return status;
}
