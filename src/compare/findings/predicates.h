/* Which tensors of a test are wrong, or which samples of a tensor. docs/reference/metrics.md#predicate. */
#ifndef ND_COMPARE_PREDICATES_H
#define ND_COMPARE_PREDICATES_H

#include "compare/matching/matching.h"

/* How far off each sample of a tensor is, and which are so by more than rounding.
 * docs/reference/metrics.md#predicate. */

/* Marks the samples that are grossly wrong among others that differ by rounding at most; false: the sizes do
 * not part so. A gross sample is off by a tenth of the spread or more, and ten times as far as every sample
 * that is not. NaN counts as nothing known. */
bool nd_sample_sizes_part(const double *sizes, size_t n, bool *is_gross);

/* Fills comparison->predicates; verdicts are known. ND_ERR_MEMORY. */
enum nd_status nd_predicates_find(const struct nd_aligned_captures *alignment,
                                  const struct nd_compare_options *options, struct nd_comparison *comparison,
                                  struct nd_error *err);

/* Whether a pair is grossly wrong: it fails its gate, or without gates differs by more than any rounding. */
bool nd_predicates_is_wrong(const struct nd_difference *difference, bool has_gates);

#endif
