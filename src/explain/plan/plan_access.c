/* What a plan says of its steps. plan.h says what each is. */
#include "explain/plan/plan.h"

/* ---- what is asked of a plan ---- */

const struct nd_model_layer *nd_plan_layer(const struct nd_plan *plan, size_t step)
{
    return nd_model_layer_of_tensor(plan->model, plan->steps[step].tensor);
}

const struct nd_tensor *nd_plan_tensor(const struct nd_plan *plan, size_t step)
{
    return nd_model_tensor(plan->model, plan->steps[step].tensor);
}

bool nd_plan_reads_together(const struct nd_plan *plan, size_t step)
{
    return plan->steps[step].is_model_output || plan->steps[step].substituted_from != SIZE_MAX;
}

size_t nd_plan_share(const struct nd_plan *plan, size_t n)
{
    return (size_t)(plan->memory_bytes / (double)n);
}
