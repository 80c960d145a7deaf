/* Classes of devices, and how near outputs are. docs/reference/metrics.md#classes. */
#ifndef ND_COMPARE_COMPARE_H
#define ND_COMPARE_COMPARE_H

#include "npudiff/compare/compare.h"

/* The classes of n devices where is_equal(context, a, b), a < b, tells whether two agree; has_data[i] false
 * gives -1. A device joins the first class all of whose members agree with it, so the numbers rise in order of
 * device. */
void nd_classes_make(size_t n, const bool *has_data, bool (*is_equal)(const void *context, size_t a, size_t b),
                     const void *context, int *classes);

/* The mean, over the tensors compared in that pair, of noise by signal, in dB: the signal-to-noise ratio of the
 * tensors together, each weighing the same. Of several probes the one with the most noise counts. Tensors
 * without values, or without a signal where they differ, are left out; NaN: all are. */
double nd_comparison_sqnr_db(const struct nd_comparison *comparison, size_t pair);

#endif
