/* Exact sums and products of doubles by error-free transformations (Dekker 1971, Knuth; Shewchuk 1997), how
 * they are rounded, and the rules of devices: docs/science/theory.md#double-rounding. */
#include "arithmetic/exact/linear/rounding.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/tensors/scales.h"

/* The rounded sum, and in *error exactly what it lacks (Knuth). */
static double two_sum(double a, double b, double *error)
{
    double sum = a + b, b_part = sum - a;
    *error = (a - (sum - b_part)) + (b - b_part);
    return sum;
}

static int drop_zeros(double *x, int n)
{
    int kept = 0;
    for (int i = 0; i < n; i++)
        if (x[i] != 0)
            x[kept++] = x[i];
    return kept;
}

/* Replaces x[n], wherever the numbers lie, by numbers of the same sum of which each is the rounded sum of
 * itself and the next. Every pass of two-sums comes closer; n - 1 suffice, mostly it is two. Three such numbers
 * hold any 159 bits. */
static struct nd_wide distil(double *x, int n)
{
    struct nd_wide wide = {{0}};
    n = drop_zeros(x, n);
    for (bool has_changed = n > 1; has_changed; n = drop_zeros(x, n)) {
        has_changed = false;
        double sum = n > 0 ? x[n - 1] : 0;
        for (int i = n - 1; i > 0; i--) {
            double error, above = two_sum(x[i - 1], sum, &error);
            has_changed = has_changed || above != x[i - 1];
            x[i] = error;
            sum = above;
        }
        if (!isfinite(sum)) {
            wide.parts[0] = sum;
            return wide;
        }
        if (n > 0)
            x[0] = sum;
    }
    for (int i = 0; i < n && i < ND_WIDE_PARTS; i++)
        wide.parts[i] = x[i];
    return wide;
}

struct nd_wide nd_wide_from(double value)
{
    return (struct nd_wide){{value}};
}

struct nd_wide nd_wide_product(double a, double b)
{
    double product = a * b;
    if (!isfinite(product))
        return nd_wide_from(product);
    return (struct nd_wide){{product, fma(a, b, -product)}};
}

struct nd_wide nd_wide_add(struct nd_wide a, struct nd_wide b)
{
    double x[2 * ND_WIDE_PARTS];
    for (int i = 0; i < ND_WIDE_PARTS; i++) {
        x[2 * i] = a.parts[i];
        x[2 * i + 1] = b.parts[i];
    }
    return distil(x, 2 * ND_WIDE_PARTS);
}

struct nd_wide nd_wide_scale(struct nd_wide a, double factor)
{
    if (a.parts[1] == 0)
        return nd_wide_product(a.parts[0], factor);
    double x[2 * ND_WIDE_PARTS];
    for (int i = 0; i < ND_WIDE_PARTS; i++) {
        struct nd_wide product = nd_wide_product(a.parts[i], factor);
        x[2 * i] = product.parts[0];
        x[2 * i + 1] = product.parts[1];
    }
    return distil(x, 2 * ND_WIDE_PARTS);
}

struct nd_wide nd_wide_negate(struct nd_wide a)
{
    for (int i = 0; i < ND_WIDE_PARTS; i++)
        a.parts[i] = -a.parts[i];
    return a;
}

int nd_wide_sign(struct nd_wide a)
{
    return (a.parts[0] > 0) - (a.parts[0] < 0);
}

int nd_wide_compare(struct nd_wide a, struct nd_wide b)
{
    if (a.parts[1] == 0 && b.parts[1] == 0)
        return (a.parts[0] > b.parts[0]) - (a.parts[0] < b.parts[0]);
    /* The rest of each is at most 2^-53 of its first part, and a little. */
    double apart = a.parts[0] - b.parts[0];
    if (fabs(apart) > 0x1p-50 * (fabs(a.parts[0]) + fabs(b.parts[0])))
        return (apart > 0) - (apart < 0);
    return nd_wide_sign(nd_wide_add(a, nd_wide_negate(b)));
}

static const double largest_whole = 0x1p52;

static const char *const rounding_names[] = {
    [ND_ROUND_HALF_EVEN] = "half-even", [ND_ROUND_HALF_AWAY] = "half-away", [ND_ROUND_HALF_UP] = "half-up",
    [ND_ROUND_HALF_DOWN] = "half-down", [ND_ROUND_FLOOR] = "floor",         [ND_ROUND_CEIL] = "ceil",
    [ND_ROUND_TO_ZERO] = "to-zero",
};

const char *nd_rounding_name(enum nd_rounding rounding)
{
    return rounding_names[rounding];
}

bool nd_rounding_from_name(const char *name, enum nd_rounding *out)
{
    for (size_t i = 0; i < sizeof rounding_names / sizeof rounding_names[0]; i++)
        if (strcmp(name, rounding_names[i]) == 0) {
            *out = (enum nd_rounding)i;
            return true;
        }
    return false;
}

struct nd_ratio nd_ratio_of(double numerator, double denominator)
{
    return (struct nd_ratio){nd_wide_from(numerator), nd_wide_from(denominator)};
}

/* The same value over a denominator above 0. */
static struct nd_ratio with_positive_denominator(const struct nd_ratio *ratio)
{
    return nd_wide_sign(ratio->denominator) < 0
               ? (struct nd_ratio){nd_wide_negate(ratio->numerator), nd_wide_negate(ratio->denominator)}
               : *ratio;
}

bool nd_ratio_is_nan(const struct nd_ratio *ratio)
{
    return isnan(ratio->numerator.parts[0] / ratio->denominator.parts[0]);
}

/* numerator - factor * denominator. */
static struct nd_wide remainder_of(const struct nd_ratio *ratio, double factor)
{
    return nd_wide_add(ratio->numerator, nd_wide_scale(ratio->denominator, -factor));
}

/* Whether no double is nearer, by what is left of the quotient in double precision. False: perhaps. *rest: what
 * is left. */
static bool is_surely_nearest(const struct nd_ratio *ratio, double value, double *rest)
{
    const struct nd_wide *n = &ratio->numerator;
    double d = ratio->denominator.parts[0], product = value * d, power;
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    *rest = (n->parts[0] - product) - fma(value, d, -product) + n->parts[1];
    if (ratio->denominator.parts[1] != 0 || (bits << 12) == 0 || !(fabs(value) > 0x1p-900))
        return false;
    bits &= (uint64_t)0x7ff << 52;
    memcpy(&power, &bits, sizeof power); /* half a unit in the last place: power 2^-53 */
    return fabs(*rest) < power * d * (0x1p-53 * 0.999);
}

/* Whether v is beyond the midpoint between value and the next double in direction, or at it and value is odd.
 */
static bool is_next_nearer(const struct nd_ratio *ratio, double value, double direction)
{
    double next = nextafter(value, direction * HUGE_VAL), half = fabs(next - value) / 2;
    struct nd_wide distance = remainder_of(ratio, value);
    if (direction < 0)
        distance = nd_wide_negate(distance);
    int order = nd_wide_compare(distance, nd_wide_scale(ratio->denominator, half));
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return order > 0 || (order == 0 && bits % 2 == 1);
}

double nd_ratio_value(const struct nd_ratio *given)
{
    const struct nd_ratio positive = with_positive_denominator(given), *ratio = &positive;
    double value = ratio->numerator.parts[0] / ratio->denominator.parts[0];
    bool is_plain = ratio->numerator.parts[1] == 0 && ratio->denominator.parts[1] == 0;
    double rest, ignored;
    if (is_plain || value == 0 || !isfinite(value) || is_surely_nearest(ratio, value, &rest))
        return value;
    double better = value + rest / ratio->denominator.parts[0];
    if (is_surely_nearest(ratio, better, &ignored))
        return better;
    while (is_next_nearer(ratio, value, 1))
        value = nextafter(value, HUGE_VAL);
    while (is_next_nearer(ratio, value, -1))
        value = nextafter(value, -HUGE_VAL);
    return value;
}

/* Of two doubles, where the remainder is a double, too: most moves of quantised values. False: it takes wide
 * numbers. */
static bool place_plainly(const struct nd_ratio *ratio, struct nd_place *place)
{
    double n = ratio->numerator.parts[0], d = ratio->denominator.parts[0];
    double product = place->floor * d, above = n - product, t = above - n;
    double lost = (n - (above - t)) + (-product - t); /* by the subtraction; 0: nothing */
    if (ratio->numerator.parts[1] != 0 || ratio->denominator.parts[1] != 0 || lost != 0 ||
        fma(place->floor, d, -product) != 0 || !(above >= 0 && above < d) || !(d > 0x1p-900))
        return false;
    place->fraction = above / d;
    place->is_whole = above == 0;
    place->half = (above > d / 2) - (above < d / 2);
    return true;
}

static struct nd_place place_exactly(const struct nd_ratio *ratio, double floor_guess)
{
    struct nd_place place = {.floor = floor_guess};
    if (place_plainly(ratio, &place))
        return place;
    struct nd_wide rest = remainder_of(ratio, place.floor);
    while (nd_wide_sign(rest) < 0)
        rest = remainder_of(ratio, --place.floor);
    while (nd_wide_compare(rest, ratio->denominator) >= 0)
        rest = remainder_of(ratio, ++place.floor);
    place.fraction = rest.parts[0] / ratio->denominator.parts[0];
    place.is_whole = nd_wide_sign(rest) == 0;
    place.half = nd_wide_compare(rest, nd_wide_scale(ratio->denominator, 0.5));
    return place;
}

/* The quotient of the leading parts is within 2^-51 of v, relatively; only where that leaves in doubt on which
 * side of a threshold v lies, the exact remainder decides. */
struct nd_place nd_place_of(const struct nd_ratio *given)
{
    const struct nd_ratio positive = with_positive_denominator(given), *ratio = &positive;
    double quotient = ratio->numerator.parts[0] / ratio->denominator.parts[0];
    if (isnan(quotient))
        return (struct nd_place){.is_whole = true, .half = -1};
    if (fabs(quotient) >= 2 * largest_whole)
        return (struct nd_place){.floor = copysign(largest_whole, quotient), .is_whole = true, .half = -1};
    if (isinf(ratio->denominator.parts[0]))
        return (struct nd_place){.is_whole = true, .half = -1};
    double below = floor(quotient), fraction = quotient - below, doubt = fabs(quotient) * 0x1p-50 + 0x1p-50;
    if (fraction > doubt && fraction < 1 - doubt && fabs(fraction - 0.5) > doubt)
        return (struct nd_place){.floor = below, .fraction = fraction, .half = fraction > 0.5 ? 1 : -1};
    return place_exactly(ratio, below);
}

static bool is_rounded_up(const struct nd_place *place, enum nd_rounding rounding)
{
    bool is_negative = place->floor < 0;
    if (place->is_whole)
        return false;
    switch (rounding) {
    case ND_ROUND_HALF_EVEN:
        return place->half > 0 || (place->half == 0 && fmod(place->floor, 2) != 0);
    case ND_ROUND_HALF_AWAY:
        return place->half > 0 || (place->half == 0 && !is_negative);
    case ND_ROUND_HALF_UP:
        return place->half >= 0;
    case ND_ROUND_HALF_DOWN:
        return place->half > 0;
    case ND_ROUND_FLOOR:
        return false;
    case ND_ROUND_CEIL:
        return true;
    case ND_ROUND_TO_ZERO:
        return is_negative;
    }
    assert(false);
    return false;
}

double nd_round_place(const struct nd_place *place, enum nd_rounding rounding)
{
    double rounded = place->floor + (is_rounded_up(place, rounding) ? 1 : 0);
    return fmin(fmax(rounded, -largest_whole), largest_whole) + 0.0; /* + 0.0 makes of -0 0 */
}

double nd_round_ratio(const struct nd_ratio *ratio, enum nd_rounding rounding)
{
    struct nd_place place = nd_place_of(ratio);
    return nd_round_place(&place, rounding);
}

double nd_round_value(double v, enum nd_rounding rounding)
{
    if (fabs(v) < 0x1p51) { /* then v and the half beside it are doubles */
        double below = floor(v), middle = below + 0.5;
        const struct nd_place place = {
            .floor = below, .fraction = v - below, .is_whole = v == below, .half = (v > middle) - (v < middle)};
        return nd_round_place(&place, rounding);
    }
    struct nd_ratio ratio = nd_ratio_of(v, 1);
    return nd_round_ratio(&ratio, rounding);
}

void nd_qvalue_range(enum nd_dtype dtype, double *low, double *high)
{
    bool is_nibble = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
    int n_bits = is_nibble ? 4 : 8 * (int)nd_dtype_size_bytes(dtype);
    assert(nd_dtype_is_of_qvalues(dtype));
    bool is_signed = nd_dtype_is_signed_integer(dtype);
    *low = is_signed ? -(double)(UINT64_C(1) << (n_bits - 1)) : 0;
    *high = (double)(UINT64_C(1) << (is_signed ? n_bits - 1 : n_bits)) - 1;
}

double nd_qvalue_of_ratio(const struct nd_ratio *ratio, double zero_point, enum nd_dtype dtype,
                          enum nd_rounding rounding)
{
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    return nd_ratio_is_nan(ratio) ? low : fmin(fmax(nd_round_ratio(ratio, rounding) + zero_point, low), high);
}

/* ---- rules ---- */

const struct nd_rounding_rule *nd_rounding_rules(size_t *n)
{
    static const struct nd_rounding_rule arithmetics[] = {
        {ND_ROUNDED_ONCE, ND_ROUND_HALF_EVEN, 0},
        {ND_ROUNDED_ONCE, ND_ROUND_HALF_AWAY, 0},
        {ND_ROUNDED_ONCE, ND_ROUND_HALF_UP, 0},
        {ND_ROUNDED_ONCE, ND_ROUND_HALF_DOWN, 0},
        {ND_ROUNDED_AS_FLOAT32, 0, 0},
        {ND_ROUNDED_ONCE, ND_ROUND_FLOOR, 0},
        {ND_ROUNDED_ONCE, ND_ROUND_CEIL, 0},
        {ND_ROUNDED_ONCE, ND_ROUND_TO_ZERO, 0},
        {ND_ROUNDED_TWICE, 0, 8},
        {ND_ROUNDED_TWICE, 0, 1},
        {ND_ROUNDED_TWICE, 0, 2},
        {ND_ROUNDED_TWICE, 0, 3},
        {ND_ROUNDED_TWICE, 0, 4},
        {ND_ROUNDED_TWICE, 0, 5},
        {ND_ROUNDED_TWICE, 0, 6},
        {ND_ROUNDED_TWICE, 0, 7},
        {ND_ROUNDED_TWICE, 0, 9},
        {ND_ROUNDED_TWICE, 0, 10},
        {ND_ROUNDED_TWICE, 0, 11},
        {ND_ROUNDED_TWICE, 0, 12},
    };
    *n = sizeof arithmetics / sizeof arithmetics[0];
    return arithmetics;
}

const char *nd_rounding_rule_name(const struct nd_rounding_rule *arithmetic,
                                  char buf[ND_ROUNDING_RULE_NAME_BYTES])
{
    switch (arithmetic->kind) {
    case ND_ROUNDED_ONCE:
        snprintf(buf, ND_ROUNDING_RULE_NAME_BYTES, "%s", nd_rounding_name(arithmetic->rounding));
        break;
    case ND_ROUNDED_TWICE:
        snprintf(buf, ND_ROUNDING_RULE_NAME_BYTES, "double:%d", arithmetic->n_bits);
        break;
    case ND_ROUNDED_AS_FLOAT32:
        snprintf(buf, ND_ROUNDING_RULE_NAME_BYTES, "float32");
        break;
    }
    return buf;
}

bool nd_rounding_rule_from_name(const char *name, struct nd_rounding_rule *out)
{
    size_t n;
    const struct nd_rounding_rule *arithmetics = nd_rounding_rules(&n);
    char buf[ND_ROUNDING_RULE_NAME_BYTES];
    for (size_t i = 0; i < n; i++)
        if (strcmp(name, nd_rounding_rule_name(&arithmetics[i], buf)) == 0) {
            *out = arithmetics[i];
            return true;
        }
    return false;
}

/* v 2^n_bits rounded half up, less floor 2^n_bits. */
static double first_rounding(const struct nd_ratio *ratio, const struct nd_place *place, double n_steps)
{
    double x = place->fraction * n_steps + 0.5, doubt = (fabs(place->floor) + 1) * 0x1p-49 * n_steps;
    if (place->is_whole)
        return 0;
    if (fabs(x - rint(x)) > doubt)
        return floor(x);
    const struct nd_ratio scaled = {nd_wide_scale(ratio->numerator, n_steps), ratio->denominator};
    return nd_round_ratio(&scaled, ND_ROUND_HALF_UP) - place->floor * n_steps;
}

static double round_twice(const struct nd_ratio *ratio, const struct nd_place *place, int n_bits)
{
    double n_steps = ldexp(1, n_bits), first = first_rounding(ratio, place, n_steps);
    bool is_up = 2 * first > n_steps || (2 * first == n_steps && place->floor >= 0);
    return place->floor + (is_up ? 1 : 0) + 0.0;
}

double nd_rounding_rule_round(const struct nd_rounding_rule *arithmetic, const struct nd_ratio *ratio,
                              const struct nd_place *place)
{
    switch (arithmetic->kind) {
    case ND_ROUNDED_ONCE:
        break;
    case ND_ROUNDED_TWICE:
        return round_twice(ratio, place, arithmetic->n_bits);
    case ND_ROUNDED_AS_FLOAT32: {
        double v = ratio->numerator.parts[0] / ratio->denominator.parts[0];
        return place->is_whole ? place->floor : rint((double)(float)v) + 0.0;
    }
    }
    return nd_round_place(place, arithmetic->rounding);
}

double nd_rounding_rule_qvalue(const struct nd_rounding_rule *arithmetic, const struct nd_ratio *ratio,
                               double zero_point, enum nd_dtype dtype)
{
    double low, high;
    nd_qvalue_range(dtype, &low, &high);
    if (nd_ratio_is_nan(ratio))
        return low;
    const struct nd_place place = nd_place_of(ratio);
    return fmin(fmax(nd_rounding_rule_round(arithmetic, ratio, &place) + zero_point, low), high);
}
