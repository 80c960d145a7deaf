/* What a device does between the exact value of a layer and its quantised value. rounding_rule.h has the
 * formulas. */
#include "arithmetic/exact/rounding_rule.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "npudiff/core/parse.h"

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
