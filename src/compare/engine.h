/* Streams the samples of one edge through the kernels. METRICS.md section 7. */
#ifndef ND_COMPARE_ENGINE_H
#define ND_COMPARE_ENGINE_H

#include "compare/align.h"

/* Fills pairs and verdicts of one edge, whose devices, gate and allocated pairs are there already. Digests
 * first: samples are read only where a digest differs from the reference's, each capture once for all pairs,
 * block_bytes at a time. */
enum nd_status nd_engine_compare_edge(const struct nd_alignment *alignment, size_t edge,
                                      const struct nd_compare_options *options, size_t block_bytes,
                                      struct nd_compared_edge *compared, struct nd_error *err);

#endif
