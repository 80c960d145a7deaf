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
