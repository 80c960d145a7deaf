/* What is proven of layers that a device makes together with those before them: a Concat whose inputs have
 * other encodings, and a Relu or Clip with a quantiser of its own. docs/science/align.md#proof. */
#ifndef ND_ALIGN_JOINED_H
#define ND_ALIGN_JOINED_H

#include "arithmetic/htp/htp.h"
#include "core/tensors/scales.h"
#include "npudiff/improve/align.h"
#include "explain/trials/alternatives.h"

/* The unit with another quantiser of its output. The call is the caller's, and has to stay. */
struct nd_exact_unit nd_align_unit_with_output(const struct nd_exact_unit *unit, const struct nd_quant *output,
                                               struct nd_linear_call *call);

/* Whether nobody needs to know how a device brings the inputs of this Concat to its encoding, where their
 * makers do not do it (part of `alternatives`): every way that is known gives the same values for each of the
 * 256. *reason, static, says why it is not so; NULL: it is. ND_ERR_MEMORY. */
enum nd_status nd_align_prove_bringing(const struct nd_alternatives *alternatives, const struct nd_model *model,
                                       const struct nd_exact_unit *unit, const char **reason,
                                       struct nd_error *err);

#endif
