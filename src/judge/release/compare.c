/* Devices against the references that gates name. */
#include <stdlib.h>
#include <string.h>

#include "core/memory.h"
#include "judge/release/qualify.h"

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

/* The captures that are compared, the reference first, and which device is which of them. */
static enum nd_status collect(const struct nd_qualification *q, const struct nd_qualify_model *model,
                              struct nd_qualify_comparison *out, const struct nd_capture **captures, size_t *n,
                              struct nd_error *err)
{
    out->devices = nd_calloc(model->n_cells, sizeof *out->devices);
    if (out->devices == NULL)
        return nd_fail_memory(err);
    captures[(*n)++] = model->cells[out->ref].capture;
    for (size_t d = 0; d < q->n_devices; d++) {
        out->devices[d] = SIZE_MAX;
        if (d == out->ref || model->cells[d].failure != NULL)
            continue;
        out->devices[d] = *n;
        captures[(*n)++] = model->cells[d].capture;
    }
    return ND_OK;
}

enum nd_status nd_qualify_compare_one(const struct nd_qualification *q, const struct nd_qualify_model *model,
                                      const struct nd_qualify_share *share, struct nd_qualify_comparison *out,
                                      struct nd_error *err)
{
    const struct nd_capture **captures = nd_calloc(model->n_cells, sizeof(const struct nd_capture *));
    size_t n = 0;
    enum nd_status status = captures != NULL ? collect(q, model, out, captures, &n, err) : nd_fail_memory(err);
    struct nd_compare_options options = nd_compare_options_default();
    options.n_threads = q->options->n_threads;
    options.allow_different_models = model->has_prepared;
    options.n_worst = 0;
    options.merge = share->parts;
    options.cut = share->is_part ? ND_CUT_SAMPLES : ND_CUT_NONE;
    options.n_parts = share->is_part;
    if (status == ND_OK && model->cells[out->ref].failure != NULL)
        out->why_not = nd_strdup(model->cells[out->ref].failure);
    else if (status == ND_OK && n > 1)
        status = nd_compare_captures(captures, n, &options, &out->comparison, err);
    else if (status == ND_OK)
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

static void need(const struct nd_qualification *q, struct nd_qualify_model *model, const char *to)
{
    size_t ref = nd_qualify_find_cell(model, q->n_devices, to);
    if (ref != SIZE_MAX && ref != model->float64 && nd_qualify_find_comparison(model, ref) == NULL)
        model->comparisons[model->n_comparisons++].ref = ref;
}

enum nd_status nd_qualify_list_comparisons(const struct nd_qualification *q, struct nd_qualify_model *model,
                                           struct nd_error *err)
{
    const struct nd_policy *policy = &q->campaign.policy;
    if (model->comparisons != NULL)
        return ND_OK;
    model->comparisons = nd_calloc(policy->n + 1, sizeof *model->comparisons);
    if (model->comparisons == NULL)
        return nd_fail_memory(err);
    need(q, model, q->campaign.reference);
    for (size_t r = 0; r < policy->n; r++)
        if (nd_policy_has_edges(policy->rules[r].gate) && !nd_policy_is_statistical(policy->rules[r].gate) &&
            nd_texts_match(&policy->rules[r].models, model->campaign->name))
            need(q, model, policy->rules[r].to);
    return ND_OK;
}

enum nd_status nd_qualify_compare(struct nd_qualification *q, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t m = 0; status == ND_OK && m < q->campaign.n_models; m++) {
        struct nd_qualify_model *model = &q->models[m];
        status = nd_qualify_list_comparisons(q, model, err);
        for (size_t i = 0; status == ND_OK && i < model->n_comparisons; i++)
            status = nd_qualify_compare_shared(q, model, i, err);
    }
    return status;
}
