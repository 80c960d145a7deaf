/* One side of a pair, gathered block by block before the pairs that need it add it to their state.
 * docs/reference/metrics.md#accounting. */
#ifndef ND_METRICS_ACCOUNT_H
#define ND_METRICS_ACCOUNT_H

#include "compare/metrics/states.h"

void nd_side_init(struct nd_side_state *side);
void nd_side_add_block(struct nd_side_state *side, const struct nd_side_block *block, size_t n);
void nd_side_merge(struct nd_side_state *side, const struct nd_side_state *other);

/* The two sides as parts of a pair's state: fields without anything to do. */
extern const struct nd_metric nd_metric_side_ref, nd_metric_side_test;

#endif
