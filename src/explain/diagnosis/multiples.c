/* Floats of one device or of two that all are multiples of one step: quantised values that were dequantised
 * before they were dumped, or fixed point. The step is not known, and may stand in a text dump with few digits.
 *
 * The least difference between the two sides (of one: between two of its magnitudes) is m steps, m of 1 to 4.
 * From there the step is an interval [low,
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

/* The values of one side or of both. */
struct sides {
    const double *x[2];
    int n;
    size_t n_values; /* of each */
};

/* Whether every value passes. */
static bool is_so(const struct sides *sides, bool (*is)(double v, int digits), int digits)
{
    for (int k = 0; k < sides->n; k++)
        for (size_t i = 0; i < sides->n_values; i++)
            if (!is(sides->x[k][i], digits))
                return false;
    return true;
}

static bool is_number(double v, int digits)
{
    (void)digits;
    return isfinite(v);
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

static struct precision precision_of(const struct sides *sides)
{
    struct precision found = {-1, -1, 0, false};
    for (int n = 0; n <= MAX_DECIMALS && found.n_decimals < 0; n++)
        found.n_decimals = is_so(sides, has_decimals, n) ? n : -1;
    for (int n = 1; n <= MAX_DECIMALS && found.n_digits < 0; n++)
        found.n_digits = is_so(sides, has_digits, n) ? n : -1;
    while (found.mantissa_bits < DOUBLE_BITS && !is_so(sides, has_mantissa, found.mantissa_bits))
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

/* Narrows the step by the distances of the sorted magnitudes x[n] from one of them, or from 0. False: they are
 * not its multiples, or it is no step that they show. */
static bool narrow(const struct precision *precision, const double *x, size_t n, double from, struct step *step,
                   double *chance)
{
    double least[2] = {0, 0}, before = 0; /* the two least probable magnitudes */
    *chance = log10(MAX_MULTIPLIERS);
    for (size_t i = 0; i < n; i++) {
        double v = x[i] - from, unit = unit_of(precision, x[i]) + (from > 0 ? unit_of(precision, from) : 0);
        double k = rint(v / middle(step));
        if (v <= unit || v - before <= 2 * unit)
            continue; /* zero, or the same again */
        before = v;
        double room = room_of(step, unit, k), granule = spacing(x[i], precision->mantissa_bits);
        double part = log10(fmin(fmax(2 * room, granule) / middle(step), 1));
        if (k < 1 || k > LARGEST_QVALUE || 2 * room >= middle(step))
            return false;
        step->low = fmax(step->low, (v - unit) / k);
        step->high = fmin(step->high, (v + unit) / k);
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

/* Notes: floats without a gross error. */
static bool is_usable(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    bool is_wide = e->dtype == ND_DTYPE_F32 || e->dtype == ND_DTYPE_F64 || e->dtype == ND_DTYPE_F16;
    return e->step == 0 && e->ref_step == 0 && is_wide && look->out->n_gross == 0;
}

/* The magnitudes of the first values, sorted, into scratch; returns how many. */
static size_t sort_magnitudes(const struct nd_look *look, const struct sides *sides)
{
    size_t n = sides->n_values < MAX_ELEMENTS ? sides->n_values : MAX_ELEMENTS, n_sides = (size_t)sides->n;
    for (size_t i = 0; i < n; i++)
        for (size_t k = 0; k < n_sides; k++) /* scratch and scratch2 follow each other: room for both sides */
            look->scratch[n_sides * i + k] = fabs(sides->x[k][i]);
    (void)nd_look_quantile(look->scratch, n_sides * n, 0);
    return n_sides * n;
}

/* The step that is m-th part of a difference; chance: more than max_chance where it is none. */
static struct step step_from(const struct precision *precision, const double *x, size_t n, double apart,
                             double unit, double *chance)
{
    for (int m = 1; m <= MAX_MULTIPLIERS; m++) {
        struct step step = {(apart - unit) / m, (apart + unit) / m};
        if (step.low > 0 && narrow(precision, x, n, x[0], &step, chance) &&
            narrow(precision, x, n, 0, &step, chance) && *chance <= max_chance)
            return step;
    }
    *chance = 0;
    return (struct step){0, 0};
}

void nd_try_multiples(const struct nd_look *look)
{
    const struct nd_evidence *e = look->e;
    const struct sides both = {{e->expected, e->captured}, 2, look->n_total};
    if (!is_usable(look) || !is_so(&both, is_number, 0))
        return;
    const struct precision precision = precision_of(&both);
    double unit = 0, chance = 0, apart = min_difference(look, &precision, &unit);
    size_t n = sort_magnitudes(look, &both);
    struct step step = step_from(&precision, look->scratch, n, apart, unit, &chance);
    double most = chance < 0 ? largest_difference(look, &precision, &step) : 0;
    if (most > 0)
        say(look, &step, most, chance);
}

/* ---- of one side ---- */

/* The least difference of two magnitudes that are known well enough to be two. */
static double min_gap(const struct precision *precision, const double *x, size_t n, double *unit)
{
    double least = HUGE_VAL;
    for (size_t i = 1; i < n; i++) {
        double of_both = unit_of(precision, x[i]) + unit_of(precision, x[i - 1]), gap = x[i] - x[i - 1];
        if (gap > 2 * of_both && gap < least) {
            least = gap;
            *unit = of_both;
        }
    }
    return least;
}

/* The step of values that are known so well; 0: none. */
static struct nd_own_step own_step(const struct nd_look *look, const struct sides *side,
                                   const struct precision *precision)
{
    size_t n = sort_magnitudes(look, side);
    double unit = 0, chance = 0, gap = min_gap(precision, look->scratch, n, &unit);
    struct step step = {0, 0};
    if (isfinite(gap))
        step = step_from(precision, look->scratch, n, gap, unit, &chance);
    for (size_t i = 0; i < look->n_total && chance < 0; i++)
        chance = is_multiple(&step, precision, side->x[0][i]) ? chance : 0;
    double power = chance < 0 ? exp2(rint(log2(middle(&step)))) : 0;
    if (!(chance < 0))
        return (struct nd_own_step){0};
    return (struct nd_own_step){power >= step.low && power <= step.high ? power : middle(&step), chance};
}

/* As floats hold the values, then as text does. */
struct nd_own_step nd_find_own_step(const struct nd_look *look, const double *x)
{
    const struct sides side = {{x, NULL}, 1, look->n_total};
    if (!is_so(&side, is_number, 0))
        return (struct nd_own_step){0};
    struct precision precision = precision_of(&side), whole = precision;
    whole.n_decimals = whole.n_digits = -1;
    struct nd_own_step own = own_step(look, &side, &whole);
    double decimal = precision.n_decimals >= 0 ? pow(10, -precision.n_decimals) : 0;
    if (own.step == 0 && decimal > 0)
        own = own_step(look, &side, &precision);
    bool is_of_few = decimal > 0 && own.step == 0;
    for (size_t i = 0; i < look->n_total && is_of_few; i++)
        is_of_few = fabs(x[i]) <= 2 * LARGEST_QVALUE * decimal;
    bool is_text = precision.n_decimals > 0; /* whole numbers are no text's */
    if (is_of_few || (is_text && own.step > 0 && fabs(own.step - decimal) <= 1e-6 * decimal))
        return (struct nd_own_step){decimal, 0};
    return own;
}
