/* Devices against the references that gates name. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "judge/qualify.h"

const struct nd_qualify_comparison *nd_qualify_find_comparison(const struct nd_qualify_model *model, size_t ref)
{
    for (size_t i = 0; i < model->n_comparisons; i++)
        if (model->comparisons[i].ref == ref)
            return &model->comparisons[i];
    return NULL;
}

const struct nd_comparison *nd_qualify_compared(const struct nd_qualification *q,
                                                const struct nd_qualify_model *model, size_t device,
                                                size_t *test)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, q->campaign.reference);
    const struct nd_qualify_comparison *found = nd_qualify_find_comparison(model, ref);
    if (found == NULL || found->comparison == NULL || found->devices[device] == SIZE_MAX)
        return NULL;
    *test = found->devices[device];
    return found->comparison;
}

static enum nd_status compare(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              struct nd_qualify_comparison *out, struct nd_error *err)
{
    const struct nd_capture **captures = nd_calloc(model->n_cells, sizeof(const struct nd_capture *));
    out->devices = nd_calloc(model->n_cells, sizeof *out->devices);
    if (captures == NULL || out->devices == NULL) {
        free(captures);
        return nd_fail_memory(err);
    }
    size_t n = 0;
    captures[n++] = model->cells[out->ref].capture;
    for (size_t d = 0; d < q->n_devices; d++) {
        out->devices[d] = SIZE_MAX;
        if (d == out->ref || model->cells[d].failure != NULL)
            continue;
        out->devices[d] = n;
        captures[n++] = model->cells[d].capture;
    }
    struct nd_compare_options options = nd_compare_options_default();
    options.n_threads = q->options->n_threads;
    options.allow_different_models = model->has_prepared;
    options.n_worst = 0;
    enum nd_status status = ND_OK;
    if (model->cells[out->ref].failure != NULL)
        out->why_not = nd_strdup(model->cells[out->ref].failure);
    else if (n > 1)
        status = nd_compare_captures(captures, n, &options, &out->comparison, err);
    else
        out->why_not = nd_strdup("no device is left to compare");
    free(captures);
    if (status == ND_ERR_NOT_COMPARABLE) {
        out->why_not = nd_strdup(err->message);
        status = ND_OK;
    }
    if (status == ND_OK && out->comparison == NULL && out->why_not == NULL)
        status = nd_fail_memory(err);
    return status;
}

static enum nd_status need(const struct nd_qualification *q, struct nd_qualify_model *model, const char *to,
                           struct nd_error *err)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, to);
    if (ref == SIZE_MAX || ref == model->float64 || nd_qualify_find_comparison(model, ref) != NULL)
        return ND_OK;
    struct nd_qualify_comparison *added = &model->comparisons[model->n_comparisons++];
    added->ref = ref;
    return compare(q, model, added, err);
}

static enum nd_status compare_model(const struct nd_qualification *q, struct nd_qualify_model *model,
                                    struct nd_error *err)
{
    const struct nd_policy *policy = &q->campaign.policy;
    model->comparisons = nd_calloc(policy->n + 1, sizeof *model->comparisons);
    if (model->comparisons == NULL)
        return nd_fail_memory(err);
    enum nd_status status = need(q, model, q->campaign.reference, err);
    for (size_t r = 0; status == ND_OK && r < policy->n; r++)
        if (nd_policy_has_edges(policy->rules[r].gate) && !nd_policy_is_statistical(policy->rules[r].gate) &&
            nd_texts_match(&policy->rules[r].models, model->campaign->name))
            status = need(q, model, policy->rules[r].to, err);
    return status;
}

enum nd_status nd_qualify_compare(struct nd_qualification *q, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++)
        status = compare_model(q, &q->models[m], err);
    return status;
}
