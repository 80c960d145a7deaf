/* Building and freeing a comparison's parts from the captures' descriptions, before anything is compared. */
#ifndef ND_COMPARE_RESULT_H
#define ND_COMPARE_RESULT_H

#include "compare/matching/matching.h"

/* Devices, probes and tensors with everything that needs no tensor: names, providers, status, unstable samples.
 * Parts made before a failure belong to comparison and go with nd_comparison_destroy. */
enum nd_status nd_result_describe(const struct nd_aligned_captures *alignment, bool all_pairs,
                                  struct nd_comparison *comparison, struct nd_error *err);

#endif
