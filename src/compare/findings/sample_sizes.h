/* How far off each sample of a tensor is, and which are so by more than rounding.
 * docs/reference/metrics.md#predicate. */
#ifndef ND_COMPARE_SAMPLE_SIZES_H
#define ND_COMPARE_SAMPLE_SIZES_H

#include "compare/matching/matching.h"

/* Root mean square of test - reference of each of the n samples that nd_align_samples gives, probe after probe,
 * in units of the reference's spread over all of them; infinite where one side alone is not finite. Codes are
 * compared as codes. *is_known: both captures keep all values, and the reference is not one value. sizes: [n].
 * ND_ERR_MEMORY, or what reading gives. */
enum nd_status nd_sample_sizes_read(const struct nd_matching *alignment, size_t edge, size_t test, size_t n,
                                    double *sizes, bool *is_known, struct nd_error *err);

/* Marks the samples that are grossly wrong among others that differ by rounding at most; false: the sizes do
 * not part so. A gross sample is off by a tenth of the spread or more, and ten times as far as every sample
 * that is not. NaN counts as nothing known. */
bool nd_sample_sizes_part(const double *sizes, size_t n, bool *is_gross);

#endif
