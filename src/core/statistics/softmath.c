#include "core/statistics/softmath.h"

#include <math.h>

/* ln 2 in two parts: the first has 20 zero bits at its end, so that whole multiples of it are exact. */
static const double ln2_high = 0x1.62e42fefa0000p-1, ln2_low = 0x1.cf79abc9e3b3ap-40;

double nd_exp(double x)
{
    if (x < -745.2)
        return 0;
    double k = nearbyint(x * 0x1.71547652b82fep+0); /* 1 / ln 2 */
    double r = (x - k * ln2_high) - k * ln2_low;    /* |r| <= 0.347 */
    double sum = 1;
    for (int i = 15; i > 0; i--) /* Horner: 1 + r (1 + r/2 (1 + r/3 (...))) */
        sum = 1 + r / i * sum;
    return ldexp(sum, (int)k);
}

double nd_log(double x)
{
    int exponent;
    double m = frexp(x, &exponent);
    if (m < 0x1.6a09e667f3bcdp-1) { /* sqrt(1/2) */
        m *= 2;
        exponent--;
    }
    double f = (m - 1) / (m + 1), square = f * f; /* ln m = 2 artanh f, |f| <= 0.172 */
    double sum = 0;
    for (int i = 23; i > 1; i -= 2)
        sum = (sum + 1.0 / i) * square;
    return exponent * ln2_high + (exponent * ln2_low + 2 * (f + f * sum));
}
