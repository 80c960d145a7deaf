/* Whether a unit can be evaluated may depend on values: an index out of range, a shape that is computed. What
 * was missed in one sample is known of none, or means over samples would be of some of them only. */
#include "base/error.h"
#include "base/strbuf.h"
#include "explain/explain_job.h"

enum nd_status nd_explain_let_go(void *context, size_t edge, const struct nd_error *why, struct nd_error *err)
{
    (void)context;
    (void)edge;
    (void)why;
    (void)err;
    return ND_OK;
}

/* A unit that its inputs keep from its reference has none because of theirs. */
static size_t unreached_from(const struct nd_explain_job *job, size_t step)
{
    const struct nd_model_unit *unit = nd_explain_unit_of(job->model, job->out->steps[step].edge);
    for (size_t i = 0; unit != NULL && i < unit->n_inputs; i++) {
        size_t input = job->step_of_edge[unit->inputs[i]];
        if (input != SIZE_MAX && job->out->steps[input].unreached_from != SIZE_MAX)
            return job->out->steps[input].unreached_from;
    }
    return step;
}

static void settle_step(struct nd_explain_job *job, size_t s)
{
    struct nd_explained_step *step = &job->out->steps[s];
    for (size_t i = 0; i < job->n_samples; i++) {
        const struct nd_explain_reference_sums *sums = &job->reference[i * job->n_steps + s];
        if (sums->is_missed && step->unreached_from == SIZE_MAX)
            step->unreached_from = unreached_from(job, s);
        if (sums->is_float_missed && step->has_float) {
            step->has_float = false;
            step->lacks_float = true;
        }
    }
}

static enum nd_status settle_unit(struct nd_explain_job *job, size_t device, size_t step, struct nd_error *err)
{
    struct nd_explained_unit *unit = &job->out->devices[device].units[step];
    unit->has_total = unit->has_total && job->out->steps[step].unreached_from == SIZE_MAX;
    size_t i = 0;
    while (i < job->n_samples && !nd_explain_sums_of(job, i, device, step)->is_missed)
        i++;
    if (i == job->n_samples)
        return ND_OK;
    unit->has_total = false;
    if (!unit->is_examined)
        return ND_OK;
    struct nd_strbuf why = {0};
    unit->is_examined = false;
    nd_strbuf_printf(&why, "%s cannot be evaluated in sample %zu", job->out->steps[step].op_types, i);
    unit->why_not = nd_strbuf_take(&why);
    return unit->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_explain_settle(struct nd_explain_job *job, struct nd_error *err)
{
    enum nd_status status = ND_OK;
    for (size_t s = 0; s < job->n_steps && status == ND_OK; s++) {
        settle_step(job, s);
        for (size_t d = 0; d < job->n_devices && status == ND_OK; d++)
            if (!job->sources[d].is_failed)
                status = settle_unit(job, d, s, err);
    }
    return status;
}
