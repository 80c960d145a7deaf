/* Pairs of bytes, counted. Where much of a large tensor differs this is quicker than adding up what each
 * element says: all that has no order is worked out once for each pair of quantised values, and multiplied.
 * Sums of whole numbers are exact, so that the results are the same to the bit. docs/reference/metrics.md#sums.
 */
#ifndef ND_METRICS_JOINT_H
#define ND_METRICS_JOINT_H

#include "compare/metrics/states.h"

/* The counts of the state, made when there is none; NULL where the pair has none (context->may_join), or when
 * out of memory: the block is then added up element by element. */
struct nd_joint *nd_joint_of(struct nd_pair_state *state, const struct nd_pair_context *context);

/* The n <= ND_BLOCK pairs of bytes of a block; *out: as nd_kernels.join. */
void nd_joint_add(struct nd_joint *joint, const struct nd_pair_context *context, const unsigned char *ref,
                  const unsigned char *test, size_t n, struct nd_error_values *out);

/* Adds what they hold to the metrics and frees it. Before a state is merged, formatted or finished. */
void nd_joint_settle(struct nd_pair_state *state, const struct nd_pair_context *context);

/* Whether a pair of these layouts fit: quantised values of one byte whose sums are whole numbers. */
bool nd_joint_fits(const struct nd_pair_context *context);

#endif
