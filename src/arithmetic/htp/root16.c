/* uint16 Sqrt and HardSwish. docs/science/htp-arithmetic.md#root. */
#include <math.h>
#include <stdlib.h>

#include "arithmetic/htp/htp_internal.h"

/* ---- Sqrt: x times one over its root ---- */

enum {
    PIECE_BITS = 10, /* x from 2^14 on lies in 48 pieces */
    FIRST_PIECE = 16,
    MIN_NORMAL = 1 << 14,
    ROOT_BITS = 9, /* of x times one over its root, after the point, where x is normal */
};

/* A guess at 8192 / sqrt(x), of the middle of each piece. */
static int64_t guess_of(int64_t x)
{
    double middle = ((double)(x >> PIECE_BITS) + 0.5) * (1 << PIECE_BITS);
    return llrint(8192 / sqrt(middle));
}

struct root {
    struct nd_htp_factor out;
    int64_t zero, zero_y;
};

static int64_t take_root(const void *parameters, int64_t x)
{
    const struct root *r = parameters;
    /* Below zero the place wraps. */
    int64_t d = (x - r->zero) & UINT16_MAX;
    if (d == 0)
        return r->zero_y;
    int halvings = 0;
    for (; d < MIN_NORMAL; d *= 4)
        halvings++;
    /* One step of Newton's method. */
    int64_t guess = guess_of(d);
    int64_t inverse = (guess * ((3 << 18) - ((d * guess * guess) >> 8)) + (1 << 14) - 1) >> 15;
    int64_t scaled = nd_htp_shift(d * inverse * r->out.m, ND_HTP_FACTOR_BITS);
    return r->zero_y + nd_htp_shift(scaled, ROOT_BITS + halvings - r->out.exponent);
}

enum nd_status nd_htp_sqrt16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Those that the formula was held against: of x, and as quotients. */
    static const float min_scale = 1e-8F, max_scale = 10, least = 0x1p-10F, most = 0x1p6F;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    /* The root of a quantised value, in steps of 1/256. */
    float ratio = nd_htp_quotient(sqrtf(x->scale[0]), y->scale[0]) / 256;
    struct root r = {.zero = x->zero_point[0], .zero_y = y->zero_point[0]};
    if (!(x->scale[0] >= min_scale && x->scale[0] <= max_scale && ratio >= least && ratio <= most) ||
        !nd_htp_factor_init(&r.out, ratio))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, take_root, &r, &bounds, err);
}

/* ---- HardSwish: x, in steps of the output, times a gate of 15 bits ---- */

enum { GATE_BITS = 15 };

struct hard_swish {
    struct nd_htp_factor gate, out;
    int64_t zero, zero_y;
};

static int64_t gate_of(const struct nd_htp_factor *factor, int64_t d)
{
    /* At least one bit after the point is left for the second rounding. */
    int places = factor->exponent < 0 ? -factor->exponent : 1, left = factor->exponent + places;
    int64_t product = nd_htp_shift(d * ((int64_t)1 << left) * factor->m, ND_HTP_FACTOR_BITS);
    int64_t gate = nd_htp_shift(product, places) + (1 << (GATE_BITS - 1));
    return gate < 0 ? 0 : gate > INT16_MAX ? INT16_MAX : gate;
}

static int64_t swish(const void *parameters, int64_t x)
{
    const struct hard_swish *h = parameters;
    int64_t d = x - h->zero;
    int left = h->out.exponent > 0 ? h->out.exponent : 0, right = h->out.exponent < 0 ? -h->out.exponent : 0;
    int64_t steps = nd_htp_shift(d * ((int64_t)1 << left) * h->out.m, ND_HTP_FACTOR_BITS);
    int64_t product = nd_htp_shift(steps * gate_of(&h->gate, d), GATE_BITS);
    return h->zero_y + nd_htp_shift(product, right);
}

enum nd_status nd_htp_hard_swish16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Those that the formula was held against: of x, and as quotients. */
    static const float min_scale = 1e-6F, max_scale = 2e-3F, least = 1.0F / 60, most = 60;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        nd_htp_is_made_with_matrix(job))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float ratio = nd_htp_quotient(x->scale[0], y->scale[0]);
    struct hard_swish h = {.zero = x->zero_point[0], .zero_y = y->zero_point[0]};
    if (!(x->scale[0] >= min_scale && x->scale[0] <= max_scale && ratio >= least && ratio <= most) ||
        !nd_htp_factor_init(&h.gate, ldexpf(x->scale[0] / 6, GATE_BITS)) || !nd_htp_factor_init(&h.out, ratio))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, swish, &h, &bounds, err);
}
