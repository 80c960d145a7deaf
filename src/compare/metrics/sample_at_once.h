/* Two tensors in memory, one sample of each: the engine without its streams, for repeats and channels. */
#ifndef ND_METRICS_SAMPLE_AT_ONCE_H
#define ND_METRICS_SAMPLE_AT_ONCE_H

#include "compare/metrics/states.h"

/* Adds a sample that is known to differ, or (differs false) to be equal and is not looked at. ref and test hold
 * whole samples of the context's layouts. ND_ERR_MEMORY. */
enum nd_status nd_sample_compare(struct nd_pair_state *state, const struct nd_pair_context *context,
                                 bool differs, const unsigned char *ref, const unsigned char *test,
                                 size_t probe, size_t sample, struct nd_error *err);

#endif
