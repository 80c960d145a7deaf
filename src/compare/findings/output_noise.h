/* How near outputs are, as one number. */
#ifndef ND_COMPARE_OUTPUT_NOISE_H
#define ND_COMPARE_OUTPUT_NOISE_H

#include "npudiff/compare/compare.h"

/* The mean, over the tensors compared in that pair, of noise by signal, in dB: the signal-to-noise ratio of the
 * tensors together, each weighing the same. Of several probes the one with the most noise counts. Tensors
 * without values, or without a signal where they differ, are left out; NaN: all are. */
double nd_comparison_sqnr_db(const struct nd_comparison *comparison, size_t pair);

#endif
