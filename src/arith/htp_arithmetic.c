/* What a sum of products becomes. */
#include "arith/htp_internal.h"

#include <math.h>

double nd_htp_scale(const struct nd_htp_scaling *s, double a, const struct nd_htp_bounds *bounds)
{
    double q = floor((a + s->beta) / s->step);
    double y = floor(s->c * s->step * (q + s->half) + 0.5) + s->zero;
    return nd_within(y, bounds->low, bounds->high);
}

double nd_htp_scale_sloped(const struct nd_htp_slopes *slopes, double a, const struct nd_htp_bounds *bounds)
{
    const struct nd_htp_scaling *s = a + slopes->above.beta >= 0 ? &slopes->above : &slopes->below;
    double q = floor((a + s->beta) / s->step);
    double y = floor(s->c * s->step * (q + s->half) + slopes->half) + s->zero;
    return nd_within(y, bounds->low, bounds->high);
}

/* Of a whole number of more bits the sign and all bits but the highest two are kept. A defect:
 * docs/results/found.md#hard-swish-wraps. */
static double kept_of(double n, int bits)
{
    double most = ldexp(1, bits - 1), half = most / 2, rest = n - floor(n / half) * half;
    if (n >= -most && n < most)
        return n;
    return n < 0 ? rest - most : rest + half;
}

/* n and the number that the gate is made of, which may have more bits, without the half that both have. */
static double gated(const struct nd_htp_gate *gate, double n, double fine, const struct nd_htp_bounds *bounds)
{
    double opened = floor(ldexp((fine + 0.5) * gate->slope, -gate->slope_bits)) + gate->middle;
    double product = (n + 0.5) * nd_within(opened, 0, gate->top);
    double y = floor(ldexp(product, -gate->product_bits) + gate->half) + gate->zero;
    return nd_within(y, bounds->low, bounds->high);
}

double nd_htp_scale_gated(const struct nd_htp_gate *gate, double a, const struct nd_htp_bounds *bounds,
                          bool *wraps)
{
    double n = floor((a + gate->beta) / gate->step), kept = kept_of(n, gate->product_bits);
    double fine = gate->fine_step < gate->step ? floor((a + gate->beta) / gate->fine_step) : kept;
    double code = gated(gate, kept, fine, bounds);
    *wraps |= kept != n && fabs(code - gated(gate, n, gate->fine_step < gate->step ? fine : n, bounds)) > 1;
    return code;
}
