/* Quantised values that are called by the type of the other sign. */
#include <math.h>

#include "explain/diagnosis/look.h"

/* mode 0: bits of the dtype's quantised values, read with or without a sign. mode 1: the device used the other
 * type for the quantised values, too, so that they are half a range off before that. */
static struct nd_span predict_type(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    double expected = look->e->expected[s * look->e->n + j], range = look->highest - look->lowest + 1;
    bool is_upper = expected >= look->lowest + range / 2;
    if (f->mode == 1)
        return nd_exactly(is_upper ? expected - range / 2 : expected + range / 2);
    if (look->lowest < 0)
        return nd_exactly(is_upper ? expected : expected + range);
    return nd_exactly(is_upper ? expected - range : expected);
}

void nd_try_type(const struct nd_look *look)
{
    struct nd_fault f = nd_fault_of(ND_FAULT_WRONG_TYPE, 0, predict_type);
    const char *other = look->lowest < 0 ? "unsigned" : "signed";
    nd_try(look, &f, "%s values are read as %s", nd_dtype_name(look->e->dtype), other);
    f.mode = 1;
    nd_try(look, &f, "%s values are read as %s", other, nd_dtype_name(look->e->dtype));
}

/* ---- one bit of a quantised value is the other one ---- */

/* The bit in which it is not what was expected, but for the noise, or -1. The lowest two are what rounding
 * moves. */
static int flipped_bit(const struct nd_look *look, size_t i)
{
    enum { LOWEST = 2 };
    double qvalue = look->e->captured[i] - look->lowest, last = look->highest - look->lowest;
    for (int bit = LOWEST; ldexp(1, bit) < last; bit++) {
        if (ldexp(1, bit) <= 4 * look->noise) /* of as many differences most would fit */
            continue;
        bool is_set = fmod(floor(ldexp(qvalue, -bit)), 2) == 1;
        double other = qvalue + (is_set ? -ldexp(1, bit) : ldexp(1, bit)) + look->lowest;
        if (fabs(other - look->e->expected[i]) <= look->noise)
            return bit;
    }
    return -1;
}

/* One bit in all of them; or, in six and more, any: of two bytes one in 40 differs in one of these six bits. */
void nd_try_flipped_bits(const struct nd_look *look)
{
    enum { FEWEST_OF_ANY = 6 };
    size_t n[64] = {0}, n_any = 0;
    int most = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        int bit = nd_is_known(look, i) && nd_is_wrong(look, i) ? flipped_bit(look, i) : -1;
        if (bit < 0)
            continue;
        n_any++;
        n[bit]++;
        most = n[bit] > n[most] ? bit : most;
    }
    bool is_one = (double)n[most] >= look->criteria->min_explained * (double)look->n_wrong;
    size_t n_flipped = is_one ? n[most] : n_any;
    struct nd_finding f = nd_finding_of(look, ND_FAULT_FLIPPED_BIT, is_one ? most : -1,
                                        (double)n_flipped / (double)look->n_wrong, 0);
    if (is_one)
        nd_add(look, &f, "a bit is flipped: bit %d in %zu of %zu values", most, n_flipped, look->n_known);
    else if (n_flipped >= FEWEST_OF_ANY)
        nd_add(look, &f, "a bit is flipped in %zu of %zu values, not the same one in all", n_flipped,
               look->n_known);
}
