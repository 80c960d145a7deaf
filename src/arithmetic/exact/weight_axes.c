#include "arithmetic/exact/weight_axes.h"

size_t nd_weight_channel(const struct nd_weight_axes *axes, bool is_output, size_t i)
{
    size_t a = i / (axes->n1 * axes->inner), b = i / axes->inner % axes->n1;
    return is_output == axes->is_first_out ? a : a / (axes->n0 / axes->groups) * axes->n1 + b;
}

size_t nd_weight_channels(const struct nd_weight_axes *axes, bool is_output)
{
    return is_output == axes->is_first_out ? axes->n0 : axes->groups * axes->n1;
}

void nd_weights_scale(const struct nd_weight_axes *axes, const struct nd_weight_factors *factors, double *x)
{
    size_t n = axes->n0 * axes->n1 * axes->inner;
    for (size_t first = 0; first < n; first += axes->inner) {
        double factor = 1;
        if (factors->outputs != NULL)
            factor *= factors->outputs[nd_weight_channel(axes, true, first)];
        if (factors->inputs != NULL)
            factor *= factors->inputs[nd_weight_channel(axes, false, first)];
        for (size_t i = first; i < first + axes->inner; i++)
            x[i] *= factor;
    }
}
