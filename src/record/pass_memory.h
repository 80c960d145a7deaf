/* The passes that a capture came to, as a first guess for the same tensors on the next device. */
#ifndef ND_RECORD_PASS_MEMORY_H
#define ND_RECORD_PASS_MEMORY_H

#include "record/pass_plan.h"

/* Keeps a copy of a plan that shows every edge, in the place of what was kept before. memory may be NULL. */
enum nd_status nd_pass_memory_keep(struct nd_pass_memory *memory, const struct nd_recording *recording,
                                   const struct nd_pass_plan *plan, struct nd_error *err);

/* Tries every session of the plan that is kept for these edges of this model. *out is a copy of it, freed by
 * nd_pass_plan_deinit, where all hold; else, and where nothing is kept, *out has no passes. memory may be NULL.
 */
enum nd_status nd_pass_memory_try(struct nd_pass_memory *memory, const struct nd_recording *recording,
                                  struct nd_pass_plan *out, struct nd_error *err);

#endif
