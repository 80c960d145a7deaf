/* What a device does when it is asked twice. docs/reference/metrics.md#repeats. */
#ifndef ND_COMPARE_REPEATS_H
#define ND_COMPARE_REPEATS_H

#include "compare/matching/matching.h"
#include "compare/metrics/kernels/kernels.h"

/* Counts the repeats of a tensor on one device by their digests: n_unstable, n_repeats, n_repeats_unequal,
 * unstable_bound and is_stuck. tensor indexes the alignment; the capture has it. */
void nd_repeats_count(const struct nd_aligned_captures *alignment, size_t tensor, size_t capture,
                      struct nd_tensor_on_device *on);

/* Upper 95 % bound of a probability of which k of n trials came true (Clopper-Pearson, one-sided); 1 when n is
 * 0. Relative error below 1e-9. */
double nd_repeats_bound(uint64_t k, uint64_t n);

/* Fills `noise` of every tensor and device that stored repeats, and within_noise of the pairs. */
enum nd_status nd_repeats_measure(const struct nd_aligned_captures *alignment,
                                  const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                  struct nd_comparison *comparison, struct nd_error *err);

#endif
