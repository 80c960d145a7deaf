/* How far what a device computed is from what it should be. */
#ifndef ND_REDUCE_DIFFERENCE_H
#define ND_REDUCE_DIFFERENCE_H

#include "improve/reduce/recorded.h"
#include "npudiff/improve/reduce.h"

/* Holds two tensors of n elements against each other. Codes (is_codes): max_lsb is the largest difference of
 * two codes, else NaN. fraction: of elements whose bits differ, NaN and NaN being equal; 0 for none. tensor
 * stays. */
void nd_difference_of(enum nd_dtype dtype, bool is_qvalues, const void *ref, const void *test, size_t n,
                      struct nd_reduction_difference *out);

/* Whether it is more than the options allow. */
bool nd_difference_exceeds(const struct nd_reduction_difference *difference,
                           const struct nd_reduce_options *options);

/* The worst over the samples of one tensor of a capture, held against what was recorded. Its fraction is NaN
 * where nothing was recorded. is_of_part: the capture holds all samples as one probe. */
enum nd_status nd_difference_of_tensor(const struct nd_recorded *recorded, const struct nd_capture *test,
                                       size_t tensor, bool is_of_part, struct nd_reduction_difference *out,
                                       struct nd_error *err);

/* Whether a is worse than b: more steps, then more elements. */
bool nd_difference_is_worse(const struct nd_reduction_difference *a, const struct nd_reduction_difference *b);

#endif
