/* Accumulators that are cut off: their limits are powers of two of a known step, which a clamp of any other
 * origin meets once in a hundred times. */
#include <math.h>

#include "explain/diagnosis/look.h"

static double accumulator_step(const struct nd_look *look, const struct nd_fault *f, size_t j)
{
    return look->e->accumulator_step[look->e->n_steps == 1 ? 0 : j / f->first % look->e->n_steps];
}

/* What is left of the accumulator in that many bits. mode 0 clips, 1 wraps. */
static struct nd_span predict_accumulator(const struct nd_look *look, const struct nd_fault *f, size_t s,
                                          size_t j)
{
    size_t i = s * look->e->n + j;
    double step = accumulator_step(look, f, j), zero_point = nd_zero_point(look, j);
    double acc = (look->e->exact[i] - zero_point) / step, limit = ldexp(1, (int)f->amount - 1);
    if (fabs(acc - rint(acc)) < 1e-6 * fmax(1, fabs(acc)))
        acc = rint(acc);
    if (!(step > 0) || (acc >= -limit && acc <= limit - 1))
        return nd_exactly(look->e->expected[i]);
    if (f->mode == 0)
        acc = fmin(fmax(acc, -limit), limit - 1);
    else
        acc -= 2 * limit * floor((acc + limit) / (2 * limit));
    return nd_qvalues_of(look, zero_point + acc * step);
}

/* inner: of the axis that the steps count along. The most bits that fit: with fewer the rest would be cut, too.
 */
static bool try_bits(const struct nd_look *look, int mode, size_t inner)
{
    const char *what = mode == 0 ? "saturates" : "wraps";
    struct nd_fault f = nd_fault_of(mode == 0 ? ND_FAULT_ACCUMULATOR_SATURATION : ND_FAULT_ACCUMULATOR_WRAP, 0,
                                    predict_accumulator);
    f.first = inner;
    f.mode = mode;
    for (int bits = 32; bits >= 8; bits--) {
        f.amount = bits;
        if (nd_try(look, &f, "the accumulator %s at %d bits", what, bits))
            return true;
    }
    return false;
}

void nd_try_accumulators(const struct nd_look *look)
{
    struct nd_axis axes[ND_CHANNEL_AXES] = {{-1, 1, 1}};
    size_t n_axes = look->e->n_steps == 1 ? 1 : nd_channel_axes(look, axes);
    bool is_found[2] = {false, false};
    for (size_t a = 0; a < n_axes && look->e->accumulator_step != NULL; a++) {
        for (int mode = 0; mode < 2; mode++) {
            if (!is_found[mode] && axes[a].n == look->e->n_steps)
                is_found[mode] = try_bits(look, mode, axes[a].inner);
        }
    }
}
