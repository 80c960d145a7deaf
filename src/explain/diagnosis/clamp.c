/* Values that are cut off or multiplied, and a clamp that only the reference has. */
#include <math.h>
#include <stdio.h>

#include "arithmetic/exact/linear/rounding.h"
#include "core/tensors/scales.h"
#include "core/text/strbuf.h"
#include "explain/diagnosis/look.h"

/* ---- clamps and a gain ---- */

struct clamp {
    double gain, low, high;
    bool has_low, has_high;
};

static struct nd_span predict_clamp(const struct nd_look *look, const struct nd_fault *f, size_t s, size_t j)
{
    const struct clamp *c = f->data;
    double x = c->gain * look->e->expected[s * look->e->n + j];
    x = c->has_low ? fmax(x, c->low) : x;
    return nd_exactly(c->has_high ? fmin(x, c->high) : x);
}

/* Many elements have the extreme value where the reference goes on: it has values on both sides of it there. Of
 * exact quantised values one that is no rounding is enough. */
static bool is_clamped(const struct nd_look *look, double extreme, double sign)
{
    enum { MIN_CLAMPED = 8 };
    double least = HUGE_VAL, most = -HUGE_VAL;
    size_t n = 0;
    for (size_t i = 0; i < look->n_total && nd_is_exact(look); i++)
        if (look->e->captured[i] == extreme && nd_is_far(look, i))
            return true;
    for (size_t i = 0; i < look->n_total; i++) {
        if (!nd_is_known(look, i) || look->e->captured[i] != extreme)
            continue;
        n++;
        least = fmin(least, sign * look->e->expected[i]);
        most = fmax(most, sign * look->e->expected[i]);
    }
    return !nd_is_exact(look) && n >= MIN_CLAMPED && most - least > look->far;
}

/* Exact quantised values of another scale are scale.c's. */
static double find_gain(const struct nd_look *look, const struct clamp *c)
{
    static const double min_gain =
        0.02; /* chosen: more than a scale loses in half precision, many times over */
    const struct nd_evidence *e = look->e;
    size_t n = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        bool is_end = (c->has_low && e->captured[i] == c->low) || (c->has_high && e->captured[i] == c->high);
        if (nd_is_known(look, i) && isfinite(e->captured[i]) && !is_end && fabs(e->expected[i]) > look->far)
            look->scratch[n++] = e->captured[i] / e->expected[i];
    }
    double gain = n >= ND_MIN_DECISIVE && !nd_is_exact(look) ? nd_look_quantile(look->scratch, n, 0.5) : 1;
    return gain > 0 && fabs(gain - 1) > min_gain ? gain : 1;
}

/* What lies beyond a clamp is exactly the clamp: of 99 elements in 100. (So the judge asks of exact quantised
 * values.) */
static bool is_sharp(const struct nd_look *look, const struct clamp *c)
{
    size_t n = 0, n_sharp = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double x = c->gain * look->e->expected[i];
        bool is_low = c->has_low && x < c->low - look->far, is_high = c->has_high && x > c->high + look->far;
        if (!nd_is_known(look, i) || (!is_low && !is_high))
            continue;
        n++;
        n_sharp += look->e->captured[i] == (is_low ? c->low : c->high);
    }
    return n_sharp * 100 >= n * 99;
}

void nd_ends_of_type(const struct nd_evidence *e, double *low, double *high)
{
    bool has_ends = e->step > 0 && nd_dtype_is_of_qvalues(e->dtype);
    if (has_ends)
        nd_qvalue_range(e->dtype, low, high);
    *low = has_ends ? e->step * (*low - e->zero_point) : -HUGE_VAL;
    *high = has_ends ? e->step * (*high - e->zero_point) : HUGE_VAL;
}

/* The clamps are the ends of the type, which every value that is too large meets. */
static bool is_end_of_type(const struct nd_look *look, const struct clamp *c)
{
    double low, high, half = look->e->step / 2;
    nd_ends_of_type(look->e, &low, &high);
    return (!c->has_low || fabs(c->low - low) < half) && (!c->has_high || fabs(c->high - high) < half);
}

void nd_try_clamp(const struct nd_look *look)
{
    struct clamp c = {.low = look->low, .high = look->high};
    c.has_low = is_clamped(look, c.low, -1);
    c.has_high = is_clamped(look, c.high, 1);
    c.gain = find_gain(look, &c);
    bool has_gain = c.gain != 1;
    if ((!c.has_low && !c.has_high) || (has_gain && is_end_of_type(look, &c)) || !is_sharp(look, &c))
        return; /* of a gain alone relations.c knows more */
    struct nd_fault f = nd_fault_of(ND_FAULT_SATURATION, c.has_high ? c.high : c.low, predict_clamp);
    f.data = &c;
    char gain[64] = "";
    if (has_gain)
        snprintf(gain, sizeof gain, ", values between are %s times as large", ND_FACTOR(c.gain, 4));
    if (c.has_low && c.has_high)
        nd_try(look, &f, "clamped at both ends, to %.6g..%.6g%s", c.low, c.high, gain);
    else
        nd_try(look, &f, "%s stop %s %.6g%s", nd_is_exact(look) ? "codes" : "values",
               c.has_high ? "above" : "below", f.amount, gain);
}
