/* Values that pass through floats. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "arithmetic/arithmetics/families.h"

static const char *const names[] = {
    [ND_FLOAT_VALUE] = "float32",
    [ND_FLOAT_VALUE_FP16] = "value-fp16",
    [ND_FLOAT_VALUE_BF16] = "value-bf16",
    [ND_FLOAT_EXECUTION] = "float-execution",
    [ND_FLOAT_UNROUNDED_INPUTS] = "unrounded-inputs",
};
static const struct nd_arithmetic arithmetics[] = {
    {.kind = ND_FLOAT_VALUE, .value = {ND_ROUNDED_AS_FLOAT32, 0, 0}},
    {.kind = ND_FLOAT_EXECUTION},
    {.kind = ND_FLOAT_VALUE_FP16},
    {.kind = ND_FLOAT_VALUE_BF16},
    {.kind = ND_FLOAT_UNROUNDED_INPUTS},
};
enum { N_ARITHMETICS = sizeof arithmetics / sizeof arithmetics[0] };

static const char *put_name(const struct nd_arithmetic *arithmetic, char buf[ND_ARITHMETIC_NAME_BYTES])
{
    snprintf(buf, ND_ARITHMETIC_NAME_BYTES, "%s", names[arithmetic->kind]);
    return buf;
}

static bool from_name(const char *name, struct nd_arithmetic *out)
{
    for (size_t i = 0; i < N_ARITHMETICS; i++)
        if (strcmp(name, names[arithmetics[i].kind]) == 0) {
            *out = arithmetics[i];
            return true;
        }
    return false;
}

/* To a float of n_bits behind the leading one, whose least normal is 2^least; overflow is left to clipping. */
static double to_float(double x, int n_bits, int least)
{
    int exponent;
    double mantissa = frexp(fabs(x), &exponent);
    if (x == 0 || !isfinite(x))
        return x;
    int quantum = (exponent - 1 < least ? least : exponent - 1) - n_bits;
    return copysign(ldexp(rint(ldexp(mantissa, exponent - quantum)), quantum), x);
}

static double through_floats(double v, double scale)
{
    float real = (float)(v * scale);
    float quotient = real / (float)scale;
    return rint((double)quotient);
}

static struct nd_arithmetic_outcome run(const struct nd_arithmetic_ready *ready,
                                        const struct nd_arithmetic_element *element)
{
    double v, whole = 0;
    switch (ready->arithmetic->kind) {
    case ND_FLOAT_VALUE:
        return nd_arithmetic_run_value(ready, element);
    case ND_FLOAT_UNROUNDED_INPUTS:
        return nd_arithmetic_surely(
            nd_arithmetic_qvalue(ready, nd_round_ratio(element->fused, ND_ROUND_HALF_EVEN)));
    default:
        v = nd_ratio_value(element->v);
    }
    if (ready->arithmetic->kind == ND_FLOAT_EXECUTION)
        whole = through_floats(v, ready->scaling.scale);
    else if (ready->arithmetic->kind == ND_FLOAT_VALUE_FP16)
        whole = rint(to_float(v, 10, -14));
    else
        whole = rint(to_float(v, 7, -126));
    return nd_arithmetic_surely(nd_arithmetic_qvalue(ready, isnan(whole) ? -HUGE_VAL : whole));
}

const struct nd_arithmetic_family nd_family_float = {.name = "float",
                                                     .arithmetics = arithmetics,
                                                     .n = N_ARITHMETICS,
                                                     .put_name = put_name,
                                                     .from_name = from_name,
                                                     .run = run};
