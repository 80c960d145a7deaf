/* Arithmetics from a real number to a quantised value: scalar.h defines the family. */
#include "lab/fingerprint/scalar.h"

#include <math.h>
#include <stdio.h>

static const char *const value_names[ND_N_SCALAR_VALUES] = {
    "exact",           "float32-quotient", "float32-reciprocal", "half-quotient",
    "half-reciprocal", "half-value",       "bfloat16-quotient",
};

const char *nd_scalar_name(const struct nd_scalar_arithmetic *arithmetic, char buf[ND_SCALAR_NAME_BYTES])
{
    snprintf(buf, ND_SCALAR_NAME_BYTES, "value:%s+rounding:%s%s", value_names[arithmetic->value],
             nd_rounding_name(arithmetic->rounding), arithmetic->has_zero_inside ? "+zero-inside" : "");
    return buf;
}

/* v with so many bits in all, but none below 2^least; half to even. */
static double cut(double v, int n_bits, int least)
{
    int exponent;
    if (v == 0 || !isfinite(v))
        return v;
    frexp(v, &exponent);
    int unit = exponent - n_bits > least ? exponent - n_bits : least;
    return ldexp(rint(ldexp(v, -unit)), unit);
}

double nd_scalar_to_half(double v)
{
    double h = cut(v, 11, -24);
    return fabs(h) > 65504 ? copysign(HUGE_VAL, h) : h;
}

static double divide(enum nd_scalar_value value, double v, float scale)
{
    float f = (float)v, inverse = 1 / scale;
    switch (value) {
    case ND_SCALAR_FLOAT32_QUOTIENT:
        return (double)(f / scale);
    case ND_SCALAR_FLOAT32_RECIPROCAL:
        return (double)(f * inverse);
    case ND_SCALAR_HALF_QUOTIENT:
        return nd_scalar_to_half((double)(f / scale));
    case ND_SCALAR_HALF_RECIPROCAL:
        return nd_scalar_to_half((double)(f * inverse));
    case ND_SCALAR_HALF_VALUE:
        return (double)((float)nd_scalar_to_half(v) / scale);
    case ND_SCALAR_BFLOAT16_QUOTIENT:
        return cut((double)(f / scale), 8, -133);
    default:
        return v / (double)scale;
    }
}

double nd_scalar_qvalue(const struct nd_scalar_arithmetic *arithmetic, const struct nd_scalar_sample *sample,
                        double value)
{
    double zero = arithmetic->has_zero_inside ? sample->zero : 0, rounded;
    if (arithmetic->value == ND_SCALAR_EXACT) {
        struct nd_ratio ratio = nd_ratio_of(value, (double)sample->scale);
        ratio.numerator = nd_wide_add(ratio.numerator, nd_wide_product(zero, (double)sample->scale));
        rounded = nd_round_ratio(&ratio, arithmetic->rounding);
    } else {
        rounded = nd_round_value((double)((float)divide(arithmetic->value, value, sample->scale) + (float)zero),
                                 arithmetic->rounding);
    }
    return fmin(fmax(rounded + sample->zero - zero, sample->low), sample->high);
}

double nd_scalar_value_of(const struct nd_scalar_arithmetic *arithmetic, const struct nd_scalar_sample *sample,
                          size_t i)
{
    bool is_exact = arithmetic->value == ND_SCALAR_EXACT || sample->float_values == NULL;
    return is_exact ? sample->values[i] : sample->float_values[i];
}

static uint64_t count_wrong(const struct nd_scalar_arithmetic *arithmetic,
                            const struct nd_scalar_sample *samples, size_t n, uint64_t enough)
{
    uint64_t wrong = 0;
    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < samples[s].n && wrong < enough; i++)
            wrong += isfinite(samples[s].values[i]) &&
                     nd_scalar_qvalue(arithmetic, &samples[s],
                                      nd_scalar_value_of(arithmetic, &samples[s], i)) != samples[s].qvalues[i];
    return wrong;
}

static void compare_with_correct(const struct nd_scalar_sample *samples, size_t n,
                                 struct nd_scalar_findings *out)
{
    const struct nd_scalar_arithmetic correct = {ND_SCALAR_EXACT, ND_ROUND_HALF_EVEN, false};
    for (size_t s = 0; s < n; s++)
        for (size_t i = 0; i < samples[s].n; i++) {
            if (!isfinite(samples[s].values[i]))
                continue;
            double qvalue = nd_scalar_qvalue(&correct, &samples[s], samples[s].values[i]);
            double off = samples[s].qvalues[i] - qvalue;
            out->n_qvalues++;
            out->n_off += off != 0;
            out->sum_off += off;
            if (fabs(off) <= out->largest_off)
                continue;
            out->largest_off = fabs(off);
            out->worst_value = samples[s].values[i];
            out->worst_qvalue = samples[s].qvalues[i];
            out->worst_correct = qvalue;
        }
}

void nd_scalar_solve(const struct nd_scalar_sample *samples, size_t n, struct nd_scalar_findings *out)
{
    *out = (struct nd_scalar_findings){.n_nearest_wrong = UINT64_MAX};
    compare_with_correct(samples, n, out);
    for (int value = 0; value < ND_N_SCALAR_VALUES; value++)
        for (int rounding = 0; rounding <= ND_ROUND_TO_ZERO; rounding++)
            for (int inside = 0; inside < 2; inside++) {
                const struct nd_scalar_arithmetic arithmetic = {(enum nd_scalar_value)value,
                                                                (enum nd_rounding)rounding, inside != 0};
                uint64_t wrong = count_wrong(&arithmetic, samples, n, out->n_nearest_wrong);
                if (wrong == 0) {
                    out->arithmetics[out->n_arithmetics++] = arithmetic;
                } else if (wrong < out->n_nearest_wrong) {
                    out->n_nearest_wrong = wrong;
                    out->nearest = arithmetic;
                }
            }
}

bool nd_scalar_is_correct(const struct nd_scalar_findings *findings)
{
    return findings->n_qvalues > 0 && findings->n_off == 0;
}

void nd_scalar_tell(struct nd_experiment *e, json_t *entry, const struct nd_scalar_findings *findings,
                    size_t most)
{
    char buf[ND_SCALAR_NAME_BYTES];
    nd_tell_listed(e, entry, "possible_arithmetic", NULL);
    for (size_t i = 0; i < findings->n_arithmetics && i < most; i++)
        nd_tell_listed(e, entry, "possible_arithmetic", nd_scalar_name(&findings->arithmetics[i], buf));
}
