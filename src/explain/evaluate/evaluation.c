/* The sums of an evaluation: made, added, merged. evaluation.h says what they count. */
#include "explain/evaluate/evaluation.h"

#include "core/memory.h"

enum nd_status nd_evaluation_init(struct nd_evaluation *evaluation, const struct nd_plan *plan,
                                  struct nd_error *err)
{
    size_t n, n_all, n_layers = plan->n_devices * plan->n_steps;
    if (!nd_size_mul(plan->n_samples, plan->n_steps, &n) || !nd_size_mul(n, plan->n_devices, &n_all))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "too many samples");
    *evaluation = (struct nd_evaluation){.plan = plan,
                                         .sums = nd_calloc(n_all, sizeof *evaluation->sums),
                                         .reference = nd_calloc(n, sizeof *evaluation->reference),
                                         .tally = nd_calloc(n_layers, sizeof *evaluation->tally),
                                         .layer_tally = nd_calloc(n_layers, sizeof *evaluation->layer_tally)};
    bool is_made = evaluation->sums != NULL && evaluation->reference != NULL && evaluation->tally != NULL &&
                   evaluation->layer_tally != NULL;
    return is_made ? ND_OK : nd_fail_memory(err);
}

void nd_evaluation_deinit(struct nd_evaluation *evaluation)
{
    ND_FREE_ALL(evaluation->sums, evaluation->reference, evaluation->tally, evaluation->layer_tally);
}

struct nd_sums *nd_sums_of(const struct nd_evaluation *evaluation, size_t sample, size_t device, size_t step)
{
    const struct nd_plan *plan = evaluation->plan;
    return &evaluation->sums[(sample * plan->n_devices + device) * plan->n_steps + step];
}

struct nd_reference_sums *nd_reference_sums_of(const struct nd_evaluation *evaluation, size_t sample,
                                               size_t step)
{
    return &evaluation->reference[sample * evaluation->plan->n_steps + step];
}

const struct nd_qvalue_tally *nd_tally_of(const struct nd_evaluation *evaluation, size_t device, size_t step)
{
    return &evaluation->tally[device * evaluation->plan->n_steps + step];
}

const struct nd_layer_tally *nd_layer_tally_of(const struct nd_evaluation *evaluation, size_t device,
                                               size_t step)
{
    return &evaluation->layer_tally[device * evaluation->plan->n_steps + step];
}
