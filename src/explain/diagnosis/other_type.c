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
