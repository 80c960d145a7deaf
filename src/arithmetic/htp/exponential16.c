/* uint16 Exp, and Elu, which has it below zero: two to a whole number times a mantissa of four cubic pieces.
 * docs/science/htp-arithmetic.md#exponential. */
#include <math.h>
#include <stdlib.h>

#include "arithmetic/htp/htp_internal.h"

enum {
    PLACE_BITS = 16,    /* of the exponent, after the point */
    PIECE_BITS = 14,    /* of the place within a piece */
    MANTISSA_BITS = 14, /* of what is 1 .. 2, after the point */
    HALF = 1 << (PLACE_BITS - 1),
};

/* 2^t in steps of 1/16384, by rising powers of t. Each piece was read out of all quantised values of one Exp
 * whose quantised values are the places (gen3, QAIRT 2.51.0); no other whole numbers give every quantised
 * value. */
static const struct piece {
    int32_t ones, first, second, third;
    int32_t rounds_ones, rounds_first; /* added before 16 bits are cut off */
} pieces[] = {
    {16384, 11357, 3925, 987, HALF, HALF},
    {16381, 11395, 3780, 1180, 0, HALF},
    {16352, 11565, 3447, 1401, 0, 0},
    {16231, 12038, 2824, 1676, HALF, 0},
};

static int64_t mantissa(int64_t place)
{
    const struct piece *p = &pieces[place >> PIECE_BITS];
    int64_t sum = p->second + ((p->third * place) >> PLACE_BITS);
    sum = p->first + ((sum * place + p->rounds_first) >> PLACE_BITS);
    return p->ones + ((sum * place + p->rounds_ones) >> PLACE_BITS);
}

struct exponential {
    struct nd_htp_factor in, out; /* of the quantised values to places, and of the mantissa */
    struct nd_htp_factor line;    /* Elu: of the quantised values from zero on */
    int64_t zero, added;
    bool is_elu;
    int64_t zero_y;
};

/* Not yet with what is added. */
static int64_t raise(const struct exponential *e, int64_t d)
{
    int64_t place = nd_htp_shift_cut(llabs(d) * e->in.m, ND_HTP_FACTOR_BITS - e->in.exponent);
    int64_t whole = place >> PLACE_BITS, rest = place & UINT16_MAX;
    if (d < 0) { /* a place before a whole number; of the number itself the nearest that there is */
        whole = -whole - 1;
        rest = rest == 0 ? UINT16_MAX : UINT16_MAX + 1 - rest;
    }
    int64_t scaled = (mantissa(rest) * e->out.m) >> ND_HTP_FACTOR_BITS;
    int64_t right = -(whole + e->out.exponent);
    return nd_htp_shift_cut(scaled, (int)(right > INT16_MAX   ? INT16_MAX
                                          : right < INT16_MIN ? INT16_MIN
                                                              : right));
}

static int64_t bend(const void *parameters, int64_t x)
{
    const struct exponential *e = parameters;
    int64_t d = x - e->zero;
    if (!e->is_elu || d < 0)
        return raise(e, d) + e->added;
    return e->zero_y + nd_htp_shift_cut((d * e->line.m) >> ND_HTP_FACTOR_BITS, -e->line.exponent);
}

/* Of x, those that the formulas were held against. */
static const float min_scale = 1e-7F, max_scale = 3e-3F;

static bool is_usual(const struct nd_htp_job *job)
{
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job))
        return false;
    float scale = job->call->inputs[0].quant->scale[0];
    return scale >= min_scale && scale <= max_scale;
}

/* Of the quantised input and output; the function is alpha e^x. */
static bool make_exponential(const struct nd_htp_job *job, float alpha, struct exponential *out)
{
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float places = x->scale[0] / (float)0.69314718055994530942;
    *out = (struct exponential){.zero = x->zero_point[0], .zero_y = y->zero_point[0]};
    out->added = out->zero_y;
    return nd_htp_factor_init(&out->in, ldexpf(places, PLACE_BITS)) &&
           nd_htp_factor_init(&out->out, nd_htp_quotient(ldexpf(alpha, -MANTISSA_BITS), y->scale[0]));
}

enum nd_status nd_htp_exp16(const struct nd_htp_job *job, struct nd_error *err)
{
    struct exponential e;
    if (!is_usual(job) || !make_exponential(job, 1, &e))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, bend, &e, &bounds, err);
}

enum nd_status nd_htp_elu16(const struct nd_htp_job *job, struct nd_error *err)
{
    static const float min_alpha = 0.1F, max_alpha = 3; /* those that the formula was held against */
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    float alpha = (float)nd_op_f(&op_call, "alpha", 1);
    struct exponential e;
    if (!(alpha >= min_alpha && alpha <= max_alpha) || !is_usual(job) || !make_exponential(job, alpha, &e))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    if (!nd_htp_factor_init(&e.line, nd_htp_quotient(x->scale[0], y->scale[0])))
        return ND_OK;
    e.is_elu = true;
    e.added = (int64_t)((float)e.zero_y - alpha / y->scale[0]);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, bend, &e, &bounds, err);
}
