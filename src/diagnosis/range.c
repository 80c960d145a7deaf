/* Codes and accumulators that are cut off, and codes that are all the same. */
#include <math.h>

#include "diagnosis/diagnosis_parts.h"

void nd_doctor_try_constant(struct nd_doctor *d)
{
    const struct nd_evidence *e = d->e;
    double code = NAN, expected = NAN;
    bool is_dead = true; /* a tensor that should be constant shows a shift, not a loss */
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        if (!nd_doctor_is_known(d, i))
            continue;
        if (isnan(code)) {
            code = e->codes[i];
            expected = e->expected[i];
        }
        if (e->codes[i] != code)
            return;
        is_dead = is_dead && e->expected[i] == expected;
    }
    if (is_dead)
        return;
    bool is_zero = code == 0 || code == nd_doctor_zero_point(d, 0);
    struct nd_doctor_fault f = {.kind = is_zero ? ND_FAULT_ALL_ZERO : ND_FAULT_CONSTANT,
                                .channel = SIZE_MAX,
                                .axis = -1,
                                .amount = code};
    nd_doctor_add(d, &f, 1, "every code is %g", code);
}

static struct nd_doctor_span predict_clamp(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t s,
                                           size_t j)
{
    return nd_doctor_exactly(fmin(fmax(d->e->expected[s * d->e->n + j], f->low), f->high));
}

/* mode 1: from f->low up; -1: down. */
static struct nd_doctor_span predict_cliff(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t s,
                                           size_t j)
{
    size_t i = s * d->e->n + j;
    bool is_beyond = f->mode * d->e->values[i] >= f->mode * f->amount;
    return nd_doctor_exactly(is_beyond ? f->low : d->e->expected[i]);
}

/* The least and the greatest of the codes, of those that are no rounding of the value, and the
 * values of these. */
struct extent {
    double low, high, wrong_low, wrong_high, value_low, value_high;
};

static struct extent measure(const struct nd_doctor *d)
{
    const struct nd_evidence *e = d->e;
    struct extent x = {HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL, HUGE_VAL, -HUGE_VAL};
    for (size_t i = 0; i < e->n_samples * e->n; i++) {
        if (!nd_doctor_is_known(d, i))
            continue;
        x.low = fmin(x.low, e->codes[i]);
        x.high = fmax(x.high, e->codes[i]);
        if (!nd_doctor_is_hard(d, i))
            continue;
        x.wrong_low = fmin(x.wrong_low, e->codes[i]);
        x.wrong_high = fmax(x.wrong_high, e->codes[i]);
        x.value_low = fmin(x.value_low, e->values[i]);
        x.value_high = fmax(x.value_high, e->values[i]);
    }
    return x;
}

static void try_clamp(struct nd_doctor *d, const struct extent *x)
{
    bool is_low = x->wrong_low == x->low, is_high = x->wrong_high == x->high;
    struct nd_doctor_fault f = {.kind = ND_FAULT_SATURATION,
                                .channel = SIZE_MAX,
                                .axis = -1,
                                .amount = is_high ? x->high : x->low,
                                .predict = predict_clamp,
                                .low = x->low,
                                .high = x->high};
    if (is_low && is_high)
        nd_doctor_try(d, &f, "codes are clamped to %g..%g", x->low, x->high);
    else if (is_low || is_high)
        nd_doctor_try(d, &f, "codes stop %s %g", is_high ? "above" : "below", f.amount);
}

static void try_cliffs(struct nd_doctor *d, const struct extent *x)
{
    if (x->wrong_low != x->wrong_high)
        return;
    struct nd_doctor_fault f = {.kind = ND_FAULT_HARD_CLIFF,
                                .channel = SIZE_MAX,
                                .axis = -1,
                                .predict = predict_cliff,
                                .low = x->wrong_low};
    const char *what = f.low == nd_doctor_zero_point(d, 0) ? "the code of zero" : "one code";
    f.mode = 1;
    f.amount = x->value_low;
    if (nd_doctor_try(d, &f, "%s, %g, from %.6g up", what, f.low, f.amount))
        return;
    f.mode = -1;
    f.amount = x->value_high;
    nd_doctor_try(d, &f, "%s, %g, from %.6g down", what, f.low, f.amount);
}

static double accumulator_step(const struct nd_doctor *d, const struct nd_doctor_fault *f, size_t j)
{
    return d->e->accumulator_step[d->e->n_steps == 1 ? 0 : j / f->first % d->e->n_steps];
}

/* What is left of the accumulator in that many bits. mode 0 clips, 1 wraps. */
static struct nd_doctor_span predict_accumulator(const struct nd_doctor *d, const struct nd_doctor_fault *f,
                                                 size_t s, size_t j)
{
    size_t i = s * d->e->n + j;
    double step = accumulator_step(d, f, j), zero_point = nd_doctor_zero_point(d, j);
    double acc = (d->e->values[i] - zero_point) / step, limit = ldexp(1, (int)f->amount - 1);
    if (fabs(acc - rint(acc)) < 1e-6 * fmax(1, fabs(acc)))
        acc = rint(acc);
    if (!(step > 0) || (acc >= -limit && acc <= limit - 1))
        return nd_doctor_exactly(d->e->expected[i]);
    if (f->mode == 0)
        acc = fmin(fmax(acc, -limit), limit - 1);
    else
        acc -= 2 * limit * floor((acc + limit) / (2 * limit));
    return nd_doctor_of_value(d, zero_point + acc * step);
}

/* inner: of the axis that the steps count along. The most bits that fit: with fewer the rest would be cut, too.
 */
static bool try_bits(struct nd_doctor *d, int mode, size_t inner)
{
    const char *what = mode == 0 ? "saturates" : "wraps";
    struct nd_doctor_fault f = {.kind = mode == 0 ? ND_FAULT_ACCUMULATOR_SATURATION : ND_FAULT_ACCUMULATOR_WRAP,
                                .channel = SIZE_MAX,
                                .axis = -1,
                                .predict = predict_accumulator,
                                .first = inner,
                                .mode = mode};
    for (int bits = 32; bits >= 8; bits--) {
        f.amount = bits;
        if (nd_doctor_try(d, &f, "the accumulator %s at %d bits", what, bits))
            return true;
    }
    return false;
}

static void try_accumulators(struct nd_doctor *d)
{
    struct nd_doctor_axis axes[ND_DOCTOR_AXES] = {{-1, 1, 1}};
    size_t n_axes = d->e->n_steps == 1 ? 1 : nd_doctor_axes(d, axes);
    bool is_found[2] = {false, false};
    for (size_t a = 0; a < n_axes && d->e->accumulator_step != NULL; a++) {
        for (int mode = 0; mode < 2; mode++) {
            if (!is_found[mode] && axes[a].n == d->e->n_steps)
                is_found[mode] = try_bits(d, mode, axes[a].inner);
        }
    }
}

/* The accumulator first: its limits are powers of two of a known step, which a clamp of any other origin meets
 * once in a hundred times. */
void nd_doctor_try_range(struct nd_doctor *d)
{
    struct extent x = measure(d);
    try_accumulators(d);
    try_clamp(d, &x);
    try_cliffs(d, &x);
}
