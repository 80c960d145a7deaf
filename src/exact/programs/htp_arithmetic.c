/* Multipliers of few bits, and what a sum of products becomes. */
#include "exact/programs/htp_internal.h"

#include <math.h>

double nd_htp_mantissa(double v, int n_bits)
{
    int exponent;
    double mantissa = frexp(v, &exponent);
    return ldexp(rint(ldexp(mantissa, n_bits + 1)), exponent - n_bits - 1);
}

double nd_htp_mantissa_up(double v, int n_bits)
{
    int exponent;
    double mantissa = frexp(v, &exponent);
    return ldexp(floor(ldexp(mantissa, n_bits + 1) + 0.5), exponent - n_bits - 1);
}

int nd_htp_log(double v)
{
    int exponent;
    double mantissa = frexp(v, &exponent); /* 1/2 <= mantissa < 1 */
    return mantissa > 0.5 ? -exponent : 1 - exponent;
}

double nd_htp_scale(const struct nd_htp_scaling *s, double a, const struct nd_htp_bounds *bounds)
{
    double q = floor((a + s->beta) / s->step);
    double y = floor(s->c * s->step * (q + s->half) + 0.5) + s->zero;
    return fmin(fmax(y, bounds->low), bounds->high);
}
