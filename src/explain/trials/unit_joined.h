/* A Concat whose inputs have other encodings than it has: what makes them makes them with that of the Concat,
 * or they are rescaled before it. docs/science/htp-arithmetic.md#moves. */
#ifndef ND_REPLAY_UNIT_JOINED_H
#define ND_REPLAY_UNIT_JOINED_H

#include "explain/trials/unit_trial.h"

/* Makes what is fused of the trial, by that program. How a device rescales depends on how it laid a tensor out,
 * which the model does not say: of each input the way is taken that is nearest to the device's own codes
 * (given; n = 0: not known). ND_ERR_MEMORY. */
enum nd_status nd_unit_join(struct nd_unit_trial *trial, const struct nd_exact_unit *unit, size_t program,
                            const struct nd_array *given, struct nd_error *err);

#endif
