/* Reads what must be read, on all threads, and fills the pairs of every tensor.
 * docs/reference/metrics.md#elements, #sums and #alignment. */
#ifndef ND_COMPARE_ENGINE_H
#define ND_COMPARE_ENGINE_H

#include "compare/matching/matching.h"
#include "compare/metrics/kernels/kernels.h"

/* comparison is described (devices, probes, tensors with their pairs); fills differences, coverage, reasons and
 * top1. */
enum nd_status nd_engine_run(const struct nd_aligned_captures *alignment,
                             const struct nd_compare_options *options, const struct nd_kernels *kernels,
                             struct nd_comparison *comparison, struct nd_error *err);

#endif
