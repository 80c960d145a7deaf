/* Integer arithmetic as TensorFlow Lite's kernels and TOSA specify it (fixed_point.h). Of a mean and of a
 * LeakyRelu, too, whose sums have no multiplier for other families (struct nd_arithmetic_scaling). */
#include "arithmetic/arithmetics/families.h"

static const struct nd_arithmetic arithmetics[] = {{.requantise = {.fixed = ND_FIXED_GEMMLOWP}},
                                                   {.requantise = {.fixed = ND_FIXED_TOSA_SINGLE}},
                                                   {.requantise = {.fixed = ND_FIXED_TOSA_DOUBLE}}};

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    return nd_requantise_from_name(name, &out->requantise) && out->requantise.fixed != ND_FIXED_NONE;
}

static void prepare(struct nd_arithmetic_ready *ready)
{
    const struct nd_arithmetic_scaling *s = &ready->scaling;
    nd_arithmetic_prepare_requantise(ready);
    if (s->n_averaged > 0)
        ready->requantiser.multiplier =
            nd_fixed_multiplier_of_mean(ready->arithmetic->requantise.fixed, s->multiplier, s->n_averaged);
    if (s->slope > 0)
        ready->below = nd_fixed_multiplier(s->multiplier * s->slope);
}

static struct nd_arithmetic_outcome run(const struct nd_arithmetic_ready *ready,
                                        const struct nd_arithmetic_element *element)
{
    if (ready->scaling.slope > 0 && element->a < 0)
        return nd_arithmetic_surely(nd_arithmetic_qvalue(
            ready, nd_fixed_run(ready->arithmetic->requantise.fixed, &ready->below, element->a)));
    return nd_arithmetic_run_requantise(ready, element);
}

const struct nd_arithmetic_family nd_family_fixed = {.name = "fixed-point",
                                                     .needs_accumulator = true,
                                                     .arithmetics = arithmetics,
                                                     .n = sizeof arithmetics / sizeof arithmetics[0],
                                                     .put_name = nd_arithmetic_requantise_name,
                                                     .from_name = from_name,
                                                     .prepare = prepare,
                                                     .run = run};
