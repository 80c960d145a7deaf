/* Floats of two devices that all are multiples of one step: quantised values that were dequantised before they
 * were dumped. The step is not known, and may stand in a text dump with few digits.
 *
 * The least difference between the two sides is m steps, m of 1 to 4. From there the step is an interval [low,
 * high] that every magnitude v = k step, known to within u(v), narrows: k = rint(v / step), step in [(v - u) /
 * k, (v + u) / k]. By chance a magnitude lies within u + k (high - low) / 2 of a multiple with probability p =
 * max(2 (u + k (high - low) / 2), g) / step, at most 1, where g is the spacing at v of the narrowest float type
 * that holds all values: those of few bits of mantissa are multiples of something by themselves. log10_chance =
 * log10(4) + sum of log10(p) over the distinct magnitudes, less the two that may have given the step. */
#include <limits.h>
#include <math.h>
#include <stdio.h>

#include "explain/diagnosis/look.h"

enum {
    MAX_MULTIPLIERS = 4,
    MAX_ELEMENTS = 4096,    /* from which the step is found; chosen: the others are held against it */
    MAX_DECIMALS = 9,       /* of a text dump */
    LARGEST_QVALUE = 65535, /* quantised values of 16 bits */
    HALF_BITS = 10,         /* mantissa of half precision */
    DOUBLE_BITS = 52,
};

/* Chosen, as for the other grids: chance gives less than one of a million tensors. */
static const double max_chance = -6;
/* Half a unit in the last place of float32. A product of a quantised value and a scale is rounded to it, and
 * what a text says once more. */
static const double float32_part = 0x1p-24;

/* What values are known to. */
struct precision {
    int n_decimals;    /* behind the point; -1: not written with so few */
    int n_digits;      /* of the number; -1: the same */
    int mantissa_bits; /* of the narrowest float type that holds all of them */
    bool is_half;      /* they are rounded to half precision */
};

static double spacing(double v, int mantissa_bits)
{
    return v == 0 ? 0 : nd_unit_at(v, mantissa_bits, INT_MIN / 2);
}

static double unit_of(const struct precision *precision, double v)
{
    double u = 2 * float32_part * fabs(v);
    double decimals = precision->n_decimals >= 0 ? 0.5 * pow(10, -precision->n_decimals) : 0, digits = 0;
    if (precision->n_digits >= 0 && v != 0)
        digits = 0.5 * pow(10, floor(log10(fabs(v))) - precision->n_digits + 1);
    u += fmax(decimals, digits);
    return precision->is_half ? u + spacing(v, HALF_BITS) / 2 : u;
}

static bool is_decimal(double v, double unit)
{
    return fabs(v - rint(v / unit) * unit) <= 1.01 * float32_part * fabs(v);
}

/* Whether every value of both sides passes. */
static bool is_so(const struct nd_look *look, bool (*is)(double v, int digits), int digits)
{
    for (size_t i = 0; i < look->n_total; i++)
        if (!is(look->e->expected[i], digits) || !is(look->e->captured[i], digits))
            return false;
    return true;
}

static bool has_decimals(double v, int n)
{
    return is_decimal(v, pow(10, -n));
}

static bool has_digits(double v, int n)
{
    return v == 0 || is_decimal(v, pow(10, floor(log10(fabs(v))) - n + 1));
}

static bool has_mantissa(double v, int n_bits)
{
    double units = v == 0 ? 0 : v / spacing(v, n_bits);
    return units == rint(units);
}

static struct precision precision_of(const struct nd_look *look)
{
    struct precision found = {-1, -1, 0, false};
    for (int n = 0; n <= MAX_DECIMALS && found.n_decimals < 0; n++)
        found.n_decimals = is_so(look, has_decimals, n) ? n : -1;
    for (int n = 1; n <= MAX_DECIMALS && found.n_digits < 0; n++)
        found.n_digits = is_so(look, has_digits, n) ? n : -1;
    while (found.mantissa_bits < DOUBLE_BITS && !is_so(look, has_mantissa, found.mantissa_bits))
        found.mantissa_bits++;
    found.is_half = found.mantissa_bits == HALF_BITS;
    return found;
}

/* ---- the step ---- */

struct step {
    double low, high;
};

static double middle(const struct step *step)
{
    return (step->low + step->high) / 2;
}

static double room_of(const struct step *step, double unit, double k)
{
    return unit + k * (step->high - step->low) / 2;
}

/* Narrows the step by the sorted magnitudes x[n]. False: they are not its multiples, or it is no step that they
 * show. */
static bool narrow(const struct precision *precision, const double *x, size_t n, struct step *step,
                   double *chance)
{
    double least[2] = {0, 0}, before = 0; /* the two least probable magnitudes */
    *chance = log10(MAX_MULTIPLIERS);
    for (size_t i = 0; i < n; i++) {
        double unit = unit_of(precision, x[i]), k = rint(x[i] / middle(step));
        if (x[i] <= unit || x[i] - before <= 2 * unit)
            continue; /* zero, or the same again */
        before = x[i];
        double room = room_of(step, unit, k), granule = spacing(x[i], precision->mantissa_bits);
        double part = log10(fmin(fmax(2 * room, granule) / middle(step), 1));
        if (k < 1 || k > LARGEST_QVALUE || 2 * room >= middle(step))
            return false;
        step->low = fmax(step->low, (x[i] - unit) / k);
        step->high = fmin(step->high, (x[i] + unit) / k);
        if (step->low > step->high)
            return false;
        *chance += part;
        if (part < least[0]) {
            least[1] = least[0];
            least[0] = part;
        } else {
            least[1] = fmin(least[1], part);
        }
    }
    *chance -= least[0] + least[1];
    return true;
}

/* The least difference between the sides; of those that are much like it the one that is known best. */
static double min_difference(const struct nd_look *look, const struct precision *precision, double *layer)
{
    static const double alike = 1.25; /* chosen: less than from one step to two */
    const struct nd_evidence *e = look->e;
    double least = HUGE_VAL, known = HUGE_VAL;
    *layer = HUGE_VAL;
    for (size_t i = 0; i < look->n_total; i++)
        if (e->expected[i] != e->captured[i])
            least = fmin(least, fabs(e->expected[i] - e->captured[i]));
    for (size_t i = 0; i < look->n_total; i++) {
        double apart = fabs(e->expected[i] - e->captured[i]);
        if (apart < least || apart > alike * least)
            continue;
        double of_both = unit_of(precision, e->expected[i]) + unit_of(precision, e->captured[i]);
        if (of_both < *layer) {
            *layer = of_both;
            known = apart;
        }
    }
    return known;
}

static bool is_multiple(const struct step *step, const struct precision *precision, double v)
{
    double k = rint(fabs(v) / middle(step));
    return k <= LARGEST_QVALUE &&
           fabs(fabs(v) - k * middle(step)) <= room_of(step, unit_of(precision, v), k) * (1 + 1e-9);
}

/* The largest difference in steps, or 0: some values are no multiples. */
static double largest_difference(const struct nd_look *look, const struct precision *precision,
                                 const struct step *step)
{
    double most = 0;
    for (size_t i = 0; i < look->n_total; i++) {
        double a = look->e->expected[i], b = look->e->captured[i];
        if (!is_multiple(step, precision, a) || !is_multiple(step, precision, b))
            return 0;
        most = fmax(most, rint(fabs(a - b) / middle(step)));
    }
    return most;
}

static void say(const struct nd_look *look, const struct step *step, double most, double chance)
{
    struct nd_finding f = nd_finding_of(look, ND_FAULT_COMMON_STEP, most, 1, chance);
    char part[48] = "", said[ND_CHANCE_BYTES];
    if (look->e->is_part)
        snprintf(part, sizeof part, " of samples %zu to %zu", look->e->first_sample,
                 look->e->first_sample + look->e->n_samples - 1);
    nd_add(look, &f, "at most %g step%s of %.4g apart, %zu of %zu values%s: all values are its multiples (%s)",
           most, most == 1 ? "" : "s", middle(step), look->n_wrong, look->n_known, part,
           nd_say_chance(chance, said));
}

static bool is_usable(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    bool is_wide = e->dtype == ND_DTYPE_F32 || e->dtype == ND_DTYPE_F64 || e->dtype == ND_DTYPE_F16;
    if (e->step > 0 || e->ref_step > 0 || !is_wide || look->out->n_gross > 0 || look->n_known != look->n_total)
        return false;
    for (size_t i = 0; i < look->n_total; i++)
        if (!isfinite(e->captured[i]))
            return false;
    return true;
}

void nd_try_multiples(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    double unit = 0, *x = look->scratch;
    if (!is_usable(look))
        return;
    size_t n = look->n_total < MAX_ELEMENTS ? look->n_total : MAX_ELEMENTS;
    const struct precision precision = precision_of(look);
    double least = min_difference(look, &precision, &unit);
    for (size_t i = 0; i < n; i++) {
        x[2 * i] = fabs(e->expected[i]); /* scratch and scratch2 follow each other: room for both sides */
        x[2 * i + 1] = fabs(e->captured[i]);
    }
    (void)nd_look_quantile(x, 2 * n, 0);
    for (int m = 1; m <= MAX_MULTIPLIERS; m++) {
        struct step step = {(least - unit) / m, (least + unit) / m};
        double chance = 0;
        if (!(step.low > 0) || !narrow(&precision, x, 2 * n, &step, &chance) || chance > max_chance)
            continue;
        double most = largest_difference(look, &precision, &step);
        if (most > 0) {
            say(look, &step, most, chance);
            return;
        }
    }
}
