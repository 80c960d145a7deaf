/* The weights and biases of a layer, before and after their quantisation. */
#ifndef ND_QUANTISATION_WEIGHTS_H
#define ND_QUANTISATION_WEIGHTS_H

#include "explain/plan/plan.h"

/* From this nd_channels_ratio on one scale for all channels is called a fault: a quarter of the channels lose
 * three bits of eight. */
#define ND_CHANNELS_APART 8.0

/* Largest over lower quartile of the channels' largest magnitudes, 1 for one channel; channels of zeros are
 * left out. *ratio is NaN where no channel has a value. ND_ERR_MEMORY. */
enum nd_status nd_channels_ratio(const struct nd_array *real, int axis, double *ratio, struct nd_error *err);

/* Mean square of a - b, of the same number of elements. */
double nd_mean_square_between(const struct nd_array *a, const struct nd_array *b);
double nd_mean_square(const struct nd_array *a);

/* out: real after symmetric quantisation to so many bits, one scale for each channel of the axis, or one for
 * all where axis is -1. ND_ERR_MEMORY. */
enum nd_status nd_weights_quantised(const struct nd_array *real, int axis, int bits, struct nd_array *out,
                                    struct nd_error *err);

/* A constant of the quantised model, and what it was in the float model: real, quantised values of biases, and
 * before are there from hold to release. ND_ERR_IO, ND_ERR_MEMORY: nothing is held. */
enum nd_status nd_pair_hold(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                            const struct nd_array *before, struct nd_error *err);
void nd_pair_release(const struct nd_plan *plan, const struct nd_exact_constant *constant,
                     const struct nd_array *before);

#endif
