/* What functions of uint16 share: multipliers of 15 bits with a shift, and shifts that round.
 * docs/science/htp-arithmetic.md#exponential. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"

float nd_htp_quotient(float a, float b)
{
    float inverse = 1 / b;
    return a * inverse;
}

bool nd_htp_factor_init(struct nd_htp_factor *factor, float value)
{
    enum { GREATEST = 1 << ND_HTP_FACTOR_BITS };
    int exponent; /* value < 2^exponent */
    if (!(value > 0 && isfinite(value)))
        return false;
    double mantissa = frexp((double)value, &exponent);
    *factor = (struct nd_htp_factor){.m = (int64_t)floor(mantissa * GREATEST + 0.5), .exponent = exponent};
    if (factor->m == GREATEST) {
        factor->m /= 2;
        factor->exponent++;
    }
    return true;
}

/* More bits than these are lost or leave the quantised values in any case. */
enum { MAX_RIGHT = 60, MAX_LEFT = 30 };

int64_t nd_htp_shift(int64_t value, int right)
{
    if (right <= 0)
        return value * ((int64_t)1 << (-right < MAX_LEFT ? -right : MAX_LEFT));
    int places = right < MAX_RIGHT ? right : MAX_RIGHT;
    return (value + ((int64_t)1 << (places - 1))) >> places;
}

int64_t nd_htp_shift_cut(int64_t value, int right)
{
    return right <= 0 ? nd_htp_shift(value, right) : value >> (right < MAX_RIGHT ? right : MAX_RIGHT);
}
