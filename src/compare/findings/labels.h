/* Labels that are wrong: the same bytes, which two captures call by other types, scales or zero points.
 * docs/reference/metrics.md#labels. */
#ifndef ND_COMPARE_LABELS_H
#define ND_COMPARE_LABELS_H

#include "compare/matching/matching.h"

/* The types that bytes are read as. */
enum { ND_N_READINGS = 11 };
extern const enum nd_dtype nd_readings[ND_N_READINGS];

/* Whether the values of one side, own, are too far from those of the other one, x, for rounding, [n] each:
 * their bytes may be called by a wrong type. */
bool nd_values_may_be_mislabelled(const double *x, const double *own, size_t n);
/* Whether these bytes, read as another type, are what the other side has. */
bool nd_values_is_reading(const double *x, const double *reading, size_t n);

/* Looks at every pair that cannot be compared because types, shapes or quantisation differ, and reads its
 * values. Where they are the same bytes, and the labels give them other real values, pair->label says so (and
 * is the reason, too). Where the labels give them the same real values, the pair is compared: nothing differs.
 * After the engine, before the verdicts. ND_ERR_MEMORY, and the errors of reading. */
enum nd_status nd_labels_find(const struct nd_aligned_captures *alignment, struct nd_comparison *comparison,
                              struct nd_error *err);

#endif
