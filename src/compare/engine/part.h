/* Parts of a comparison that was cut. docs/reference/metrics.md#parts. */
#ifndef ND_COMPARE_PART_H
#define ND_COMPARE_PART_H

#include "compare/engine/job_plan.h"

/* ND_E_COMPARE_PART unless the parts are of these captures, tensors, probes, pairs, gates and options;
 * `described` has all of them, but no results yet. */
enum nd_status nd_parts_check(const struct nd_parts *parts, const struct nd_comparison *described,
                              struct nd_error *err);

enum { ND_PART_FORMAT = 5, ND_PART_DEVICE_COUNTS = 4, ND_PART_PAIR_COUNTS = 6 };

#endif
