/* Quantised values against floats that stand for them: what is only the rounding of quantised value to float.
 * docs/reference/metrics.md#mixed-types.
 */
#ifndef ND_METRICS_DEQUANTISE_H
#define ND_METRICS_DEQUANTISE_H

#include "compare/metrics/block.h"

/* Elements n of a block of a mixed pair, of which mask holds 1 where the real values differ. Clears it where a
 * float is the dequantised quantised value but for rounding, and says how many and by how much. bytes, x and
 * first of the block are given. */
void nd_dequantise_mask(const struct nd_pair_context *context, const struct nd_pair_block *block, uint8_t *mask,
                        struct nd_dequantised *out);

#endif
