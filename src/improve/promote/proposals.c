/* What could be changed. */
#include <math.h>
#include <stdlib.h>

#include "core/memory.h"
#include "improve/promote/promote_job.h"

enum { MOST_CONSTANTS = ND_LOSS_CONSTANTS };

/* ---- as changes of the file ---- */

/* The axis of the channels of a constant that the step's unit reads; -1: it reads no such constant. */
static int axis_of(const struct nd_plan *plan, const struct nd_change *change)
{
    struct nd_exact_constant all[MOST_CONSTANTS];
    size_t n = nd_exact_unit_constants(plan->graph, plan->steps[change->step].edge, all, MOST_CONSTANTS);
    for (size_t i = 0; i < n; i++)
        if (all[i].tensor == change->tensor)
            return all[i].channel_axis;
    return -1;
}

void nd_widening_deinit(struct nd_widening *widening)
{
    free((void *)(uintptr_t)widening->edges);
    free((void *)(uintptr_t)widening->weights);
    *widening = (struct nd_widening){0};
}

enum nd_status nd_promotions_as_widening(const struct nd_promote_job *job, const size_t *promotions, size_t n,
                                         struct nd_widening *out, struct nd_error *err)
{
    size_t n_changes = 0;
    for (size_t i = 0; i < n; i++)
        n_changes += nd_promotions_at(job->promotions, promotions[i])->n_changes;
    struct nd_wide_edge *edges = nd_calloc(n_changes + 1, sizeof *edges);
    struct nd_channel_weights *weights = nd_calloc(n_changes + 1, sizeof *weights);
    *out = (struct nd_widening){.edges = edges, .weights = weights};
    if (edges == NULL || weights == NULL) {
        nd_widening_deinit(out);
        return nd_fail_memory(err);
    }
    for (size_t i = 0; i < n; i++) {
        const struct nd_promotion *promotion = nd_promotions_at(job->promotions, promotions[i]);
        for (size_t c = 0; c < promotion->n_changes; c++) {
            const struct nd_change *change = &promotion->changes[c];
            if (change->is_range)
                edges[out->n_edges++] = (struct nd_wide_edge){
                    job->plan.steps[change->step].edge, (float)change->fit.scale, (int64_t)change->fit.zero};
            else
                weights[out->n_weights++] = (struct nd_channel_weights){.tensor = change->tensor,
                                                                        .axis = axis_of(&job->plan, change),
                                                                        .shape = &change->values->shape,
                                                                        .values = change->values->x};
        }
    }
    return ND_OK;
}

/* ---- the list ---- */

/* Whether the file can be changed so. */
static bool can_be_made(const struct nd_promote_job *job, const struct nd_promotion *promotion)
{
    for (size_t c = 0; c < promotion->n_changes; c++) {
        const struct nd_change *change = &promotion->changes[c];
        if (change->is_range ? nd_widening_obstacle(job->model, job->plan.steps[change->step].edge) != NULL
                             : axis_of(&job->plan, change) < 0)
            return false;
    }
    return true;
}

static enum nd_status add_layer(struct nd_promote_job *job, size_t index, struct nd_error *err)
{
    const struct nd_promotion *promotion = nd_promotions_at(job->promotions, index);
    const struct nd_explained_step *step = &job->plan.steps[promotion->step];
    struct nd_promoted *result = job->result;
    size_t n_devices = job->options->n_devices;
    struct nd_promoted_layer layer = {.name = nd_strdup(step->name),
                                      .op_types = nd_strdup(step->op_types),
                                      .kind = promotion->kind,
                                      .fate = ND_PROMOTE_NOT_TRIED,
                                      .effect_share = promotion->effect_share,
                                      .alone_db = NAN,
                                      .predicted_db = NAN,
                                      .measured_db = NAN,
                                      .device_db = nd_calloc(n_devices, sizeof(double))};
    enum nd_status status = layer.name != NULL && layer.op_types != NULL && layer.device_db != NULL
                                ? nd_promotion_cost_of(job, &index, 1, &layer.cost, err)
                                : nd_fail_memory(err);
    for (size_t d = 0; d < n_devices && layer.device_db != NULL; d++)
        layer.device_db[d] = NAN;
    result->layers[result->n_layers] = layer;
    job->order[result->n_layers] = index;
    result->n_layers++;
    return status;
}

enum nd_status nd_find_proposals(struct nd_promote_job *job, struct nd_error *err)
{
    enum nd_status status = nd_promotions_find(&job->plan, &job->promotions, err);
    size_t n = status == ND_OK ? nd_promotions_n(job->promotions) : 0;
    if (status != ND_OK)
        return status;
    job->result->layers = nd_calloc(n + 1, sizeof *job->result->layers);
    job->order = nd_calloc(n + 1, sizeof *job->order);
    job->kept = nd_calloc(n + 1, sizeof *job->kept);
    if (job->result->layers == NULL || job->order == NULL || job->kept == NULL)
        return nd_fail_memory(err);
    for (size_t i = 0; i < n && status == ND_OK; i++)
        if (can_be_made(job, nd_promotions_at(job->promotions, i)))
            status = add_layer(job, i, err);
    return status;
}
