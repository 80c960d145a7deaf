/* Tensors for the benchmark of the comparison: made fast, known from a seed, shaped like what a network gives.
 *
 * float32 and float16 are normal-ish numbers of a few layers. `is_coarse` is for data that will be deflated: as
 * after a ReLU, half of it zero, and 12 bits a number, because 23 random bits would hardly compress and say
 * nothing of inflating. uint8 are codes as after a ReLU: half at the zero point, the rest half a bell above. */
#ifndef ND_BENCH_DATA_H
#define ND_BENCH_DATA_H

#include "npudiff/core/tensor.h"

enum { BENCH_ZERO_POINT = 62 };

/* Whether these functions know the type: float32, float16, uint8, uint16. */
bool bench_is_known(enum nd_dtype dtype);

/* n_elems elements into data. The same arguments give the same bytes. */
void bench_fill(enum nd_dtype dtype, bool is_coarse, uint64_t seed, void *data, size_t n_elems);

/* Changes elements, each with probability `fraction` (0 to 1): codes of 8 bits by one step up or down, the
 * others by up to 7 in their last three bits, never into a NaN or between the two zeros. Returns how many. */
size_t bench_plant(enum nd_dtype dtype, double fraction, uint64_t seed, void *data, size_t n_elems);

#endif
