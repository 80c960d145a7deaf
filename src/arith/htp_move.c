/* What moves codes, or takes the greatest of some: codes stay what they are while they mean the same. */
#include <stdlib.h>

#include "arith/htp_internal.h"
#include "base/memory.h"

static bool mean_the_same(const struct nd_quant *a, const struct nd_quant *b)
{
    return a->n == 1 && b->n == 1 && a->scale[0] == b->scale[0] && a->zero_point[0] == b->zero_point[0];
}

/* Whether only the first input has codes. */
static bool has_one_source(const struct nd_htp_job *job)
{
    for (size_t i = 1; i < job->call->n_inputs; i++)
        if (job->call->inputs[i].quant != NULL)
            return false;
    return true;
}

enum nd_status nd_htp_move(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_call *call = job->call;
    const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    if (inputs == NULL)
        return nd_fail_memory(err);
    bool is_known = nd_htp_plain_output(job) != NULL;
    for (size_t i = 0; i < call->n_inputs && is_known; i++) {
        inputs[i] = call->inputs[i].values;
        if (inputs[i] != NULL && call->inputs[i].quant != NULL)
            is_known =
                inputs[i]->dtype == job->unit->dtype && mean_the_same(call->inputs[i].quant, call->out_quant);
        else
            is_known = i > 0; /* axes, shapes, indices */
    }
    struct nd_array moved = {0}, bytes = {0};
    const struct nd_array *known = is_known && call->n_inputs > 0 ? nd_htp_recall(job, 0) : NULL;
    enum nd_status status = ND_OK;
    if (known != NULL && has_one_source(job)) {
        const struct nd_array *codes = inputs[0];
        inputs[0] = known;
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, &bytes, err);
        inputs[0] = codes;
        if (status == ND_OK)
            nd_htp_remember(job, &bytes);
    }
    nd_array_deinit(&bytes);
    struct nd_htp_bounds bounds = is_known ? nd_htp_bounds_of(job) : (struct nd_htp_bounds){0};
    if (is_known && status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, &moved, err);
    for (size_t i = 0; is_known && i < moved.n; i++)
        moved.x[i] = moved.x[i] < bounds.low ? bounds.low : moved.x[i] > bounds.high ? bounds.high : moved.x[i];
    free(inputs);
    if (status != ND_OK || !is_known) {
        nd_array_deinit(&moved);
        return status;
    }
    moved.dtype = job->unit->dtype;
    *job->codes = moved;
    *job->is_covered = true;
    return ND_OK;
}
