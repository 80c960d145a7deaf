/* Which bias arithmetics agree with the shifts that were read off. */
#include "lab/fingerprint/bias.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "lab/experiment/candidates.h"

/* ---- the arithmetic ---- */

const char *nd_bias_name(const struct nd_bias_arithmetic *p, char buf[ND_BIAS_NAME_BYTES])
{
    static const char *const rescales[] = {"", "rescaled+", "rescaled:to-zero+", "rescaled:floor+"};
    char common[64] = "";
    if (p->common_bits > 0)
        snprintf(common, sizeof common, "+common:%d:%s%s", p->common_bits, nd_rounding_name(p->common_rounding),
                 p->has_reciprocal ? "+reciprocal" : "");
    snprintf(buf, ND_BIAS_NAME_BYTES, "%s%s%s%s%s%s+rounding:%s", rescales[p->rescale],
             p->is_f32 ? "float32" : "double", common, p->has_largest_bias_scale ? "+largest-bias-scale" : "",
             p->has_largest_weight_scale ? "+largest-weight-scale" : "", p->joins_zero ? "+joins-zero" : "",
             p->is_whole ? nd_rounding_name(p->rounding) : "none");
    return buf;
}

static double in_f32(const struct nd_bias_arithmetic *p, const struct nd_bias_column *c)
{
    float scale_w = p->has_largest_weight_scale ? c->largest_scale_w : c->scale_w;
    float unit = c->scale_x * scale_w * (float)c->ratio;
    float real = (float)c->bias * (p->has_largest_bias_scale ? c->largest_bias_scale : c->bias_scale);
    float largest = p->has_largest_bias_scale ? c->largest_shared_f32 : c->largest_own_f32;
    if (p->common_bits > 0 && largest > 0) {
        float step = (float)ldexp((double)largest, -p->common_bits);
        float steps = p->has_reciprocal ? real * (1 / step) : real / step;
        real = (float)nd_round_value((double)steps, p->common_rounding) * step;
    }
    return (double)(real / unit);
}

static double in_f64(const struct nd_bias_arithmetic *p, const struct nd_bias_column *c)
{
    double scale_w = (double)(p->has_largest_weight_scale ? c->largest_scale_w : c->scale_w);
    double real = c->bias * (double)(p->has_largest_bias_scale ? c->largest_bias_scale : c->bias_scale);
    double largest = p->has_largest_bias_scale ? c->largest_shared : c->largest_own;
    if (p->common_bits > 0 && largest > 0) {
        double step = ldexp(largest, -p->common_bits);
        real = nd_round_value(real / step, p->common_rounding) * step;
    }
    return real / ((double)c->scale_x * scale_w * c->ratio);
}

double nd_bias_shift(const struct nd_bias_arithmetic *p, const struct nd_bias_column *c)
{
    double shift = p->is_f32 ? in_f32(p, c) : in_f64(p, c);
    if (p->joins_zero)
        shift += c->zero;
    if (p->is_whole)
        shift = nd_round_value(shift, p->rounding);
    return p->joins_zero ? shift : shift + c->zero_fold;
}

/* ---- reading ---- */

struct rows {
    struct nd_requantiser requantiser; /* but for its fold: the shift */
    const double *a, *qvalues;
    size_t n;
};

/* Whether some quantised value under the shift is less than the device's (sign -1), or more (sign 1). */
static bool is_beyond(const struct rows *rows, double shift, int sign)
{
    struct nd_requantiser r = rows->requantiser;
    r.fold = shift;
    for (size_t i = 0; i < rows->n; i++)
        if (sign * (nd_requantise_qvalue(&r, rows->a[i], 0, 255) - rows->qvalues[i]) > 0)
            return true;
    return false;
}

/* Of all shifts up to this one. */
static const double farthest = 0x1p33;

/* The least shift (sign -1) or the greatest under which no quantised value is beyond; infinite without a limit.
 */
static double find_limit(const struct rows *rows, int sign)
{
    enum { STEPS = 96 }; /* down to neighbouring doubles */
    double out = sign * farthest, in = -out;
    for (int i = 0; i < STEPS; i++) {
        double middle = out + (in - out) / 2;
        *(is_beyond(rows, middle, sign) ? &out : &in) = middle;
    }
    return sign * in < farthest ? in : sign * HUGE_VAL;
}

struct nd_bias_range nd_bias_read(const struct nd_requantiser *r, const double *a, const double *qvalues,
                                  size_t n)
{
    const struct rows rows = {*r, a, qvalues, n};
    if (is_beyond(&rows, farthest, -1) || is_beyond(&rows, -farthest, 1))
        return (struct nd_bias_range){1, 0};
    return (struct nd_bias_range){find_limit(&rows, -1), find_limit(&rows, 1)};
}

/* ---- solving ---- */

struct search {
    const struct nd_bias_reading *readings;
    size_t n;
    bool folds;
    struct nd_bias_findings *out;
    struct nd_candidates candidates;
};

/* Those with the fewest wrong columns stay. */
static void try_arithmetic(struct search *s, const struct nd_bias_arithmetic *p)
{
    /* More than a column's shift is off in double, where it is not rounded. */
    enum { STRIDE = 1000003 }; /* a prime above all n */
    const double sliver = p->is_whole ? 0 : 0x1p-30;
    uint64_t wrong = 0;
    for (size_t i = 0; i < s->n && wrong <= s->out->n_wrong; i++) {
        /* Columns of all settings in turn: what is wrong is so soon. */
        const struct nd_bias_reading *reading = &s->readings[i * STRIDE % s->n];
        double shift = nd_bias_shift(p, &reading->columns[p->rescale]);
        wrong += shift < reading->range.low - sliver || shift > reading->range.high + sliver;
    }
    nd_candidates_fewest(&s->candidates, p, wrong, &s->out->n_wrong);
}

static void try_roundings(struct search *s, struct nd_bias_arithmetic p)
{
    for (int joins = 0; joins <= s->folds; joins++) {
        p.joins_zero = joins != 0;
        p.is_whole = true;
        for (int r = ND_ROUND_HALF_EVEN; r <= ND_ROUND_TO_ZERO; r++) {
            p.rounding = (enum nd_rounding)r;
            try_arithmetic(s, &p);
        }
        p.is_whole = false;
        p.rounding = ND_ROUND_HALF_EVEN;
        try_arithmetic(s, &p);
    }
}

static void try_steps(struct search *s, struct nd_bias_arithmetic p)
{
    enum { MIN_BITS = 8, MAX_BITS = 31 };
    static const enum nd_rounding roundings[] = {ND_ROUND_HALF_EVEN, ND_ROUND_FLOOR, ND_ROUND_TO_ZERO};
    try_roundings(s, p);
    for (p.common_bits = MIN_BITS; p.common_bits <= MAX_BITS; p.common_bits++)
        for (size_t r = 0; r < sizeof roundings / sizeof roundings[0]; r++)
            for (int reciprocal = 0; reciprocal <= p.is_f32; reciprocal++) {
                p.common_rounding = roundings[r];
                p.has_reciprocal = reciprocal != 0;
                try_roundings(s, p);
            }
}

static bool are_scales_shared(const struct nd_bias_reading *readings, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (readings[i].columns[0].scale_w < readings[i].columns[0].largest_scale_w ||
            readings[i].columns[0].bias_scale < readings[i].columns[0].largest_bias_scale)
            return false;
    return true;
}

enum nd_status nd_bias_solve(const struct nd_bias_reading *readings, size_t n, bool folds,
                             struct nd_bias_findings *out, struct nd_error *err)
{
    struct nd_bias_findings found = {.n_readings = n, .n_wrong = UINT64_MAX};
    struct search search = {
        .readings = readings, .n = n, .folds = folds, .out = &found, .candidates = ND_CANDIDATES(&found)};
    int n_scales = are_scales_shared(readings, n) ? 1 : 4;
    for (int rescale = 0; rescale < ND_BIAS_RESCALES; rescale++)
        for (int form = 0; form < 2 * n_scales; form++)
            try_steps(&search, (struct nd_bias_arithmetic){.rescale = (enum nd_bias_rescale)rescale,
                                                           .is_f32 = (form & 1) != 0,
                                                           .has_largest_bias_scale = (form & 2) != 0,
                                                           .has_largest_weight_scale = (form & 4) != 0});
    enum nd_status status = nd_candidates_end(&search.candidates, err);
    if (status == ND_OK)
        *out = found;
    return status;
}
