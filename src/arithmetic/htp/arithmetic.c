/* What a sum of products becomes. */
#include "arithmetic/htp/htp_internal.h"

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

/* Of a whole number beyond `most` the sign and all bits but the highest two are kept. A defect:
 * docs/results/found.md#hard-swish-wraps. */
static double kept_of(double n, double most)
{
    double half = most / 2, rest = n - floor(n / half) * half;
    if (n >= -most && n < most)
        return n;
    return n < 0 ? rest - most : rest + half;
}

/* n and the number that the gate is made of, which may have more bits, without the half that both have. */
static double gated(const struct nd_htp_gate *gate, double n, double fine, const struct nd_htp_bounds *bounds)
{
    double opened = nd_within(floor((fine + 0.5) * gate->slope) + gate->middle, 0, gate->top);
    double y = floor((n + 0.5) * opened * gate->layer + gate->half) + gate->zero;
    return nd_within(y, bounds->low, bounds->high);
}

double nd_htp_scale_gated(const struct nd_htp_gate *gate, double a, const struct nd_htp_bounds *bounds,
                          bool *wraps)
{
    double sum = a + gate->beta, n = floor(sum / gate->step), fine = floor(sum / gate->fine_step);
    double kept = kept_of(n, gate->most), qvalue = gated(gate, kept, fine == n ? kept : fine, bounds);
    *wraps |= kept != n && fabs(qvalue - gated(gate, n, fine, bounds)) > 1;
    return qvalue;
}
