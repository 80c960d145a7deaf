/* Tensors that a runner said it cannot give. */
#ifndef ND_RECORD_MISSING_TENSORS_H
#define ND_RECORD_MISSING_TENSORS_H

#include "devices/launch.h"
#include "record/sessions/pass_plan.h"

/* Reads from the run in `folder` which tensors its session could not give, and plans a single session without
 * them. plan->n_passes is 0 where there is nothing to plan: none is missing, or an output of the model is, or
 * all are. Freed by nd_pass_plan_deinit, on success only. */
enum nd_status nd_plan_without_missing(const struct nd_capture_job *capture, const char *folder,
                                       struct nd_pass_plan *plan, struct nd_error *err);

#endif
