/* Top-1 classes, accuracy, flips and their significance. METRICS.md section 10. */
#ifndef ND_COMPARE_ACCURACY_H
#define ND_COMPARE_ACCURACY_H

#include "compare/align.h"
#include "compare/pair.h"

/* Flat index of the largest value of one sample, the lowest of equals; NaN never wins. -1 when there is none
 * (no elements, or all NaN). */
int64_t nd_top1_index(const struct nd_diff_layout *layout, const void *data);

/* Two-sided mid-p McNemar of n_lost against n_gained discordant samples; 1 when there are none. */
double nd_mcnemar_mid_p(size_t n_lost, size_t n_gained);

/* Counts one pair from the top-1 classes of n samples (-1: none); labels may be NULL. Sets all but ref and
 * test. */
void nd_top1_pair_count(const int64_t *ref, const int64_t *test, const int64_t *labels, size_t n,
                        struct nd_top1_pair *out);

/* Fills comparison->top1 for every model output with two or more elements and every probe. */
enum nd_status nd_accuracy_make(const struct nd_alignment *alignment, size_t block_bytes,
                                struct nd_comparison *comparison, struct nd_error *err);

#endif
