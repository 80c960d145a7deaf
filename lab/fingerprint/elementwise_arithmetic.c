/* Arithmetics of elementwise.h: their numbers for given scales, their quantised values, their names. */
#include <math.h>
#include <stdio.h>

#include "lab/fingerprint/elementwise.h"

enum { MIN_BITS = 4, MAX_BITS = 30 };

const char *nd_elementwise_op_name(enum nd_elementwise_op op)
{
    static const char *const names[] = {"Add", "Sub", "Mul"};
    return names[op];
}

const char *nd_offset_limit_name(enum nd_offset_limit limit)
{
    static const char *const names[] = {"by a smaller k", "wrapping", "saturating"};
    return names[limit];
}

static int floor_log2(double v)
{
    int exponent;
    frexp(v, &exponent);
    return exponent - 1;
}

static int choose_k(const struct nd_elementwise_arithmetic *p, double r1, double r2)
{
    double key = p->key == ND_KEY_SUM ? r1 + r2 : p->key == ND_KEY_MAX ? fmax(r1, r2) : r1;
    int k = p->key == ND_KEY_NONE ? p->cap : p->shift - floor_log2(key);
    return p->cap > 0 && k > p->cap ? p->cap : k;
}

/* value / 2^bits as a whole number. */
static int64_t shift_rounded(int64_t value, int bits, enum nd_rounding rounding)
{
    return (int64_t)nd_round_value(ldexp((double)value, -bits), rounding);
}

static int64_t centre_of(const struct nd_elementwise_arithmetic *p, const struct nd_elementwise_scales *s)
{
    double at = (p->centre - (double)s->z1) * (p->centre - (double)s->z2);
    return p->has_centre
               ? (int64_t)ldexp(nd_round_value(ldexp(at, p->centre_gain - p->centre_bits), ND_ROUND_HALF_UP),
                                p->centre_bits)
               : 0;
}

/* D in its bits, where k does not make it fit. */
static int64_t limit_offset(const struct nd_elementwise_arithmetic *p, int64_t d)
{
    if (p->offset_bits == 0 || p->limit == ND_OFFSET_LOWERS_K)
        return d;
    int64_t greatest = ((int64_t)1 << (p->offset_bits - 1)) - 1, all = 2 * greatest + 1;
    if (p->limit == ND_OFFSET_WRAPS)
        return ((d + greatest + 1) & all) - greatest - 1;
    return d > greatest ? greatest : d < -greatest - 1 ? -greatest - 1 : d;
}

/* D and C for one k. */
static void fill(struct nd_elementwise_ready *r, double r1, double r2)
{
    const struct nd_elementwise_arithmetic *p = &r->arithmetic;
    const struct nd_elementwise_scales *s = &r->scales;
    int64_t one = (int64_t)1 << r->k, sign = s->op == ND_ELEMENTWISE_SUB ? -1 : 1;
    r->m1 = (int64_t)nd_round_value(ldexp(r1, r->k), p->multiplier_rounding);
    r->m2 = sign * (int64_t)nd_round_value(ldexp(r2, r->k), p->multiplier_rounding);
    int64_t rest = 0, kept; /* what is added before the first shift; what is rounded to its units */
    if (s->op == ND_ELEMENTWISE_MUL) {
        kept = centre_of(p, s) * r->m1;
        rest = -kept;
        r->m2 = 0;
    } else {
        kept = -s->z1 * r->m1 - s->z2 * r->m2;
    }
    int64_t layers = one >> p->first; /* both are whole: k > first */
    r->d = limit_offset(p, shift_rounded(kept, p->first, p->rounding) + s->zy * layers + layers / 2);
    r->offset = r->d * ((int64_t)1 << p->first) + rest;
    if (p->rounds_first)
        r->offset += (int64_t)1 << (p->first - 1);
}

bool nd_elementwise_prepare(const struct nd_elementwise_arithmetic *p, const struct nd_elementwise_scales *s,
                            struct nd_elementwise_ready *out)
{
    struct nd_elementwise_ready r = {.arithmetic = *p, .scales = *s};
    double r1 = (double)s->s1 / (double)s->sy, r2 = (double)s->s2 / (double)s->sy;
    if (s->op == ND_ELEMENTWISE_MUL)
        r1 = (double)s->s1 * (double)s->s2 / (double)s->sy;
    if (p->kind == ND_ELEMENTWISE_FIXED) {
        int64_t greatest = p->offset_bits > 0 ? ((int64_t)1 << (p->offset_bits - 1)) - 1 : INT64_MAX;
        r.k = choose_k(p, r1, r2);
        do {
            if (r.k < MIN_BITS || r.k > MAX_BITS || r.k <= p->first)
                return false;
            fill(&r, r1, r2);
        } while (r.d > greatest && r.k-- > 0);
    }
    *out = r;
    return true;
}

static double real_value(const struct nd_elementwise_scales *s, int64_t a, int64_t b)
{
    long double x = a - s->z1, y = b - s->z2, s1 = s->s1, s2 = s->s2, sy = s->sy;
    long double value = s->op == ND_ELEMENTWISE_MUL   ? x * y * (s1 * s2)
                        : s->op == ND_ELEMENTWISE_SUB ? x * s1 - y * s2
                                                      : x * s1 + y * s2;
    return (double)(value / sy);
}

static double float_value(const struct nd_elementwise_ready *r, int64_t a, int64_t b)
{
    const struct nd_elementwise_scales *s = &r->scales;
    float x = (float)(a - s->z1) * s->s1, y = (float)(b - s->z2) * s->s2;
    float value = s->op == ND_ELEMENTWISE_MUL ? x * y : s->op == ND_ELEMENTWISE_SUB ? x - y : x + y;
    return (double)(r->arithmetic.is_reciprocal ? value * (1 / s->sy) : value / s->sy);
}

uint8_t nd_elementwise_qvalue(const struct nd_elementwise_ready *r, int64_t a, int64_t b)
{
    const struct nd_elementwise_scales *s = &r->scales;
    if (r->arithmetic.kind == ND_ELEMENTWISE_FIXED) {
        int64_t t = s->op == ND_ELEMENTWISE_MUL ? (a - s->z1) * (b - s->z2) * r->m1 : a * r->m1 + b * r->m2;
        int64_t y = (t + r->offset) >> r->k;
        return (uint8_t)(y < 0 ? 0 : y > 255 ? 255 : y);
    }
    double v = r->arithmetic.kind == ND_ELEMENTWISE_REAL ? real_value(s, a, b) : float_value(r, a, b);
    return (uint8_t)fmin(fmax(nd_round_value(v, r->arithmetic.rounding) + (double)s->zy, 0), 255);
}

/* ---- names ---- */

static const char *key_name(enum nd_scaling_key key)
{
    static const char *const names[] = {"", "r1 + r2", "max(r1, r2)", "r"};
    return names[key];
}

static void name_shift(const struct nd_elementwise_arithmetic *p, char *buf, size_t size)
{
    if (p->key == ND_KEY_NONE)
        snprintf(buf, size, "k = %d", p->cap);
    else if (p->cap > 0)
        snprintf(buf, size, "k = min(%d, %d - floor(log2(%s)))", p->cap, p->shift, key_name(p->key));
    else
        snprintf(buf, size, "k = %d - floor(log2(%s))", p->shift, key_name(p->key));
}

const char *nd_elementwise_name(const struct nd_elementwise_arithmetic *p, enum nd_elementwise_op op,
                                char buf[ND_ELEMENTWISE_NAME_BYTES])
{
    char shift[64], limit[48] = "", centre[96] = "", added[32] = "";
    if (p->kind == ND_ELEMENTWISE_REAL) {
        snprintf(buf, ND_ELEMENTWISE_NAME_BYTES, "real+rounding:%s", nd_rounding_name(p->rounding));
        return buf;
    }
    if (p->kind == ND_ELEMENTWISE_FLOAT32) {
        snprintf(buf, ND_ELEMENTWISE_NAME_BYTES, "float32+%s+rounding:%s",
                 p->is_reciprocal ? "reciprocal" : "division", nd_rounding_name(p->rounding));
        return buf;
    }
    name_shift(p, shift, sizeof shift);
    if (p->rounds_first)
        snprintf(added, sizeof added, " + 2^%d", p->first - 1);
    if (p->offset_bits > 0)
        snprintf(limit, sizeof limit, ", D within %d bits %s", p->offset_bits, nd_offset_limit_name(p->limit));
    if (p->has_centre)
        snprintf(centre, sizeof centre, ", P = 2^%d round(2^%d (%g - z1)(%g - z2))", p->centre_bits,
                 p->centre_gain - p->centre_bits, p->centre, p->centre);
    const char *sum = op == ND_ELEMENTWISE_MUL
                          ? (p->has_centre ? "((A - z1)(B - z2) - P) m" : "(A - z1)(B - z2) m")
                      : op == ND_ELEMENTWISE_SUB ? "A m1 - B m2"
                                                 : "A m1 + B m2";
    snprintf(buf, ND_ELEMENTWISE_NAME_BYTES,
             "y = (((%s%s) >> %d) + D) >> (k - %d), m = %s(r 2^k), %s, D rounded %s to 2^%d%s%s", sum, added,
             p->first, p->first, nd_rounding_name(p->multiplier_rounding), shift, nd_rounding_name(p->rounding),
             p->first, centre, limit);
    return buf;
}
