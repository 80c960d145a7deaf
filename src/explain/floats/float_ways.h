/* What a layer that is too far off did in place of what the model says: another attribute, another constant, an
 * operand read at other places, fewer bits, a line through the right values, or a fault of diagnosis.h. */
#ifndef ND_EXPLAIN_FLOATS_FLOAT_WAYS_H
#define ND_EXPLAIN_FLOATS_FLOAT_WAYS_H

#include "explain/floats/ways.h"

/* Of a step that can be worked out, over 32 samples at most. is_tight: bounds, which add up in sums, tell
 * nothing: a way must predict the values to two units in the last place. ND_ERR_MEMORY, and errors of reading
 * captures. */
enum nd_status nd_float_find_fault(const struct nd_float_evaluation *evaluation, size_t device, size_t step,
                                   bool is_tight, struct nd_float_fault *out, struct nd_error *err);

#endif
