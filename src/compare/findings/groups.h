/* Equality classes of devices, from digests alone. docs/reference/metrics.md#classes. */
#ifndef ND_COMPARE_CLASSES_H
#define ND_COMPARE_CLASSES_H

#include "compare/matching/matching.h"

/* The classes of n devices where is_equal(context, a, b), a < b, tells whether two agree; has_data[i] false
 * gives -1. A device joins the first class all of whose members agree with it, so the numbers rise in order of
 * device. */
void nd_classes_make(size_t n, const bool *has_data, bool (*is_equal)(const void *context, size_t a, size_t b),
                     const void *context, int *classes);

/* Fills class_id of compared->devices. */
enum nd_status nd_classes_of_tensor(const struct nd_matching *alignment, size_t tensor,
                                    struct nd_compared_tensor *compared, struct nd_error *err);

/* Whether the tensor is not repeatable on one of two devices that have it: that they differ there then shows
 * nothing. */
bool nd_tensor_is_noisy(const struct nd_compared_tensor *tensor, size_t a, size_t b);

/* Fills class_id and output_class_id of the devices and the two texts from the tensors' classes. */
enum nd_status nd_classes_overall(struct nd_comparison *comparison, struct nd_error *err);

#endif
