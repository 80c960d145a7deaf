/* Div: one over the divisor from four quadratic pieces, times the dividend with 15 bits.
 * docs/science/htp-arithmetic.md#division. */
#include <math.h>
#include <stdlib.h>

#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/known/conditions.h"

enum {
    MIN_NORMAL = 1 << (ND_HTP_FACTOR_BITS - 1), /* a magnitude is brought to 2^14 .. 2^15 - 1 */
    PIECE_BITS = 14,
    HALF = 1 << (ND_HTP_PLACE_BITS - 1),
    INVERSE_BITS = 28, /* a normal divisor times its inverse is 2^28 */
};

/* 2^14 / (1 + t), by rising powers of t. Read out of all 16384 normal divisors (gen3, QAIRT 2.51.0). */
static const struct piece {
    int32_t ones, first, second;
    int32_t rounds_ones, rounds_first; /* added before 16 bits are cut off */
} pieces[] = {
    {16384, -16043, 11794, HALF, 0},
    {16116, -13659, 6555, 0, 0},
    {15527, -11177, 3945, 0, HALF},
    {14774, -9111, 2530, 0, 0},
};

struct quotient {
    struct nd_htp_factor factor; /* of the scales */
    int64_t zero_a, zero_b, zero_y;
    bool is_short; /* uint8 */
    struct nd_htp_bounds bounds;
};

/* value 2^-*exponent, cut to 2^14 .. 2^15 - 1. */
static int64_t normal_of(int64_t value, int *exponent)
{
    frexp((double)value, exponent);
    *exponent -= ND_HTP_FACTOR_BITS;
    return nd_htp_shift_cut(value, *exponent);
}

int64_t nd_htp_inverse(int64_t place)
{
    const struct piece *p = &pieces[place >> PIECE_BITS];
    int64_t sum = p->first + ((p->second * place + p->rounds_first) >> ND_HTP_PLACE_BITS);
    return p->ones + ((sum * place + p->rounds_ones) >> ND_HTP_PLACE_BITS);
}

/* The divisor has 15 bits, the place 16 after the leading one. */
static int64_t inverse_of(int64_t normal)
{
    return nd_htp_inverse((normal - MIN_NORMAL) << (ND_HTP_PLACE_BITS - ND_HTP_FACTOR_BITS + 1));
}

/* By zero: the greatest quantised value, or the least below zero. */
static int64_t divide(const void *parameters, int64_t a, int64_t b)
{
    const struct quotient *q = parameters;
    a -= q->zero_a;
    b -= q->zero_b;
    if (b == 0)
        return (int64_t)(a < 0 ? q->bounds.low : q->bounds.high);
    if (a == 0)
        return q->zero_y;
    int exponent_a, exponent_b;
    int64_t sign = (a < 0) == (b < 0) ? 1 : -1;
    int64_t dividend = normal_of(llabs(a), &exponent_a);
    if (q->is_short && sign < 0 && dividend == MIN_NORMAL) { /* -2^15 is a signed number of 16 bits, too */
        dividend *= 2;
        exponent_a--;
    }
    dividend *= q->factor.m;
    int64_t inverse = inverse_of(normal_of(llabs(b), &exponent_b));
    int right = INVERSE_BITS + exponent_b - exponent_a - q->factor.exponent;
    if (!q->is_short)
        return q->zero_y + sign * nd_htp_shift(nd_htp_shift(dividend, ND_HTP_FACTOR_BITS) * inverse, right);
    /* Of bytes the signed numbers are rounded, and once more on the way. */
    int64_t product = nd_htp_shift(sign * dividend, ND_HTP_FACTOR_BITS) * inverse;
    return q->zero_y + nd_htp_shift(nd_htp_shift(product, ND_HTP_FACTOR_BITS), right - ND_HTP_FACTOR_BITS);
}

/* Inputs that are moved, to see how far an error of theirs reaches, may lie outside of the quantised values. */
static bool are_bytes(const struct nd_array *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (!(x->x[i] >= 0 && x->x[i] <= UINT8_MAX))
            return false;
    return true;
}

enum nd_status nd_htp_div(const struct nd_htp_job *job, struct nd_error *err)
{
    bool is_short = nd_htp_all_are(job, 2, ND_DTYPE_U8);
    if (job->call->n_inputs != 2 || job->call->opset < 7 || nd_htp_is_number(job, 0) ||
        !(is_short || nd_htp_are_words(job, 2)))
        return ND_OK;
    /* Of bytes a multiplication by its inverse. Of words the quantised values may stay what they are, where
     * only the scale changes (a hard-swish that divides by 6). */
    if (nd_htp_is_number(job, 1))
        return is_short ? nd_htp_scale_by(job, 1, true, err) : ND_OK;
    const struct nd_quant *a = job->call->inputs[0].quant, *b = job->call->inputs[1].quant;
    const struct nd_quant *y = job->call->out_quant;
    struct quotient q = {.zero_a = a->zero_point[0],
                         .zero_b = b->zero_point[0],
                         .zero_y = y->zero_point[0],
                         .is_short = is_short};
    float ratio = nd_htp_quotient(nd_htp_quotient(a->scale[0], b->scale[0]), y->scale[0]);
    if (!nd_htp_is_unbounded(job) || !nd_htp_factor_init(&q.factor, ratio) ||
        (is_short && !(are_bytes(job->call->inputs[0].values) && are_bytes(job->call->inputs[1].values))))
        return ND_OK;
    q.bounds = nd_htp_bounds_of(job);
    enum nd_status status = nd_htp_for_pairs(job, divide, &q, &q.bounds, job->qvalues, err);
    *job->is_covered = status == ND_OK;
    return status;
}

/* uint8 one over x: of the quantised value that is one in the scale of x, divided in floats. Not where there is
 * no such code: a known defect (nd_reciprocal_dividend). */
enum nd_status nd_htp_reciprocal(const struct nd_htp_job *job, struct nd_error *err)
{
    if (job->call->n_inputs != 1 || !nd_htp_all_are(job, 1, ND_DTYPE_U8) || !nd_htp_is_unbounded(job))
        return ND_OK;
    const struct nd_array *values = job->call->inputs[0].values;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    bool is_clipped;
    float one = (float)nd_reciprocal_dividend(x, job->layer->dtype, &is_clipped);
    if (is_clipped)
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    float inverse = 1 / y->scale[0], zero = (float)y->zero_point[0];
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &values->shape, err);
    for (size_t i = 0; status == ND_OK && i < values->n; i++) {
        float below = (float)(values->x[i] - (double)x->zero_point[0]), quotient = one / below;
        double qvalue = below == 0 ? bounds.high : (double)rintf(quotient * inverse + zero);
        job->qvalues->x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}
