/* Each coordinate of one axis as a tensor of its own. docs/reference/metrics.md#per-channel. */
#ifndef ND_COMPARE_CHANNELS_H
#define ND_COMPARE_CHANNELS_H

#include "compare/matching/matching.h"
#include "compare/metrics/kernels/kernels.h"

/* Fills n_channels and channels of every pair that differs, of tensors that have options->channel_axis. Reads
 * the samples that differ once more. ND_E_COMPARE_MEMORY when the states of the channels do not fit. */
enum nd_status nd_channels_compare(const struct nd_aligned_captures *alignment,
                                   const struct nd_compare_options *options, const struct nd_kernels *kernels,
                                   struct nd_comparison *comparison, struct nd_error *err);

#endif
