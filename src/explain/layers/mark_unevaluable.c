/* Whether a layer can be evaluated may depend on values: an index out of range, a shape that is computed. What
 * was missed in one sample is known of none, or means over samples would be of some of them only. */
#include "core/error.h"
#include "core/text/strbuf.h"
#include "explain/stages.h"

/* A layer that its inputs keep from its reference has none because of theirs. */
static size_t unreached_from(const struct nd_plan *plan, const struct nd_explanation *out, size_t step)
{
    const struct nd_model_layer *layer = nd_plan_layer(plan, step);
    for (size_t i = 0; layer != NULL && i < layer->n_inputs; i++) {
        size_t input = plan->step_of_tensor[layer->inputs[i]];
        if (input != SIZE_MAX && out->steps[input].unreached_from != SIZE_MAX)
            return out->steps[input].unreached_from;
    }
    return step;
}

static void mark_step_unevaluable(const struct nd_evaluation *evaluation, struct nd_explanation *out, size_t s)
{
    struct nd_explained_step *step = &out->steps[s];
    for (size_t i = 0; i < evaluation->plan->n_samples; i++) {
        const struct nd_reference_sums *sums = nd_reference_sums_of(evaluation, i, s);
        if (sums->is_missed && step->unreached_from == SIZE_MAX)
            step->unreached_from = unreached_from(evaluation->plan, out, s);
        if (sums->is_float_missed && step->has_float) {
            step->has_float = false;
            step->lacks_float = true;
        }
    }
}

static enum nd_status mark_unevaluable_on_device(const struct nd_evaluation *evaluation,
                                                 struct nd_explanation *out, size_t device, size_t step,
                                                 struct nd_error *err)
{
    struct nd_explained_layer *layer = &out->devices[device].layers[step];
    layer->has_total = layer->has_total && out->steps[step].unreached_from == SIZE_MAX;
    size_t i = 0, n_samples = evaluation->plan->n_samples;
    while (i < n_samples && !nd_sums_of(evaluation, i, device, step)->is_missed)
        i++;
    if (i == n_samples)
        return ND_OK;
    layer->has_total = false;
    if (!layer->is_examined)
        return ND_OK;
    layer->is_examined = false;
    layer->why_not = nd_text("%s cannot be evaluated in sample %zu", out->steps[step].op_types, i);
    return layer->why_not != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_explain_mark_unevaluable(const struct nd_evaluation *evaluation, struct nd_explanation *out,
                                           struct nd_error *err)
{
    const struct nd_plan *plan = evaluation->plan;
    for (size_t s = 0; s < plan->n_steps; s++) {
        mark_step_unevaluable(evaluation, out, s);
        for (size_t d = 0; d < plan->n_devices; d++)
            if (!plan->sources[d].is_failed)
                ND_TRY(mark_unevaluable_on_device(evaluation, out, d, s, err));
    }
    return ND_OK;
}
