/* Floats of a device that are quantised values of a tensor, as real numbers. */
#ifndef ND_RUNNER_GRID_H
#define ND_RUNNER_GRID_H

#include <stdbool.h>

#include "npudiff/core/tensor.h"

/* Values that are no code: between two steps, beyond the type's range, or NaN. */
struct nd_off_grid {
    size_t n;
    double largest; /* distance of the worst one from its nearest code, in steps; infinite for NaN */
};

/* A tensor as it came, and the codes that are asked for. */
struct nd_grid {
    const struct nd_quant *quant; /* n >= 1 */
    const struct nd_shape *shape;
    enum nd_dtype from; /* float16, float32 or float64 */
    enum nd_dtype to;   /* an integer type */
};

#endif
