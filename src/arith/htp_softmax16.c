/* uint16 Softmax over the last axis: powers of two of 15 bits, times one over their sum.
 * docs/science/htp-arithmetic.md#softmax16. */
#include <math.h>

#include "arith/htp_internal.h"

enum {
    LEAST_ROW = 3,   /* elements: rows of two are made in another way */
    MOST_ROW = 5000, /* the longest that it was held against */
    PLACE_BITS = 16, /* of the exponent, after the point */
    STEP_BITS = 6,   /* of what one code is in places, after the point: the rest is cut off */
    MOST_STEP_BITS = 16,
    PIECE_BITS = 14, /* of the place within a piece */
    POWER_BITS = 15, /* a power of two is 2^15 - 1 at most */
    NEWTON_STEPS = 5,
    MOST_INVERSE_BITS = 16,
    MOST_WHOLE = 40, /* powers below 2^-40 are 0 */
    SCALE_BITS = 16, /* of the output's scale: the rest is cut off */
    HALF = 1 << (PLACE_BITS - 1),
};

/* 2^t in steps of 2^-14, by rising powers of t. Read out of all 65536 places (gen3, QAIRT 2.51.0). */
static const struct piece {
    int32_t ones, first, second;
    int32_t rounds_ones, rounds_first; /* added before 16 bits are cut off */
} pieces[] = {
    {16384, 11326, 4300, HALF, 0},
    {16438, 10908, 5119, 0, 0},
    {16685, 9928, 6087, HALF, HALF},
    {17340, 8200, 7227, HALF, HALF},
};

struct softmax {
    int64_t step;    /* places, times 2^STEP_BITS, that one code is */
    int64_t scale_y; /* SCALE_BITS of it, times 2^exponent_y */
    int exponent_y;
    size_t n; /* of a row */
};

/* 2^-(distance from the greatest of the row), 32767 at most. */
static int64_t power_of(const struct softmax *s, int64_t distance)
{
    int64_t place = (distance * s->step) >> STEP_BITS, whole = place >> PLACE_BITS;
    int64_t rest = UINT16_MAX - (place & UINT16_MAX);
    const struct piece *p = &pieces[rest >> PIECE_BITS];
    int64_t sum = p->first + ((p->second * rest + p->rounds_first) >> PLACE_BITS);
    return whole > MOST_WHOLE ? 0 : (p->ones + ((sum * rest + p->rounds_ones) >> PLACE_BITS)) >> whole;
}

/* One over a whole number, as R 2^-*bits: steps of Newton's method in whole numbers from the same start for
 * all, as precise as the number has bits. */
static int64_t inverse_of(int64_t number, int *bits)
{
    int size;
    frexp((double)number, &size);
    int n = size - 1, kept = n < MOST_INVERSE_BITS ? n : MOST_INVERSE_BITS;
    int64_t inverse = (int64_t)1 << (kept - 1);
    for (int i = 0; i < NEWTON_STEPS; i++)
        inverse += (inverse * (((int64_t)1 << n) - ((inverse * number) >> kept))) >> n;
    *bits = n + kept;
    return inverse;
}

static void make_row(const struct softmax *s, const double *x, double *y)
{
    double greatest = x[0];
    int64_t sum = 0;
    int bits;
    for (size_t i = 1; i < s->n; i++)
        greatest = fmax(greatest, x[i]);
    for (size_t i = 0; i < s->n; i++)
        sum += power_of(s, (int64_t)(greatest - x[i]));
    int64_t inverse = inverse_of((sum * s->scale_y) >> SCALE_BITS, &bits);
    for (size_t i = 0; i < s->n; i++) {
        double power = (double)power_of(s, (int64_t)(greatest - x[i]));
        y[i] = fmin(floor(ldexp(power * (double)inverse, -bits - s->exponent_y)), UINT16_MAX);
    }
}

static int64_t step_of(float scale)
{
    float places = ldexpf(scale / (float)0.69314718055994530942, PLACE_BITS + STEP_BITS);
    int bits;
    frexpf(places, &bits);
    int more = bits > MOST_STEP_BITS ? bits - MOST_STEP_BITS : 0;
    return (int64_t)ldexpf(places, -more) << more;
}

static bool is_known(const struct nd_htp_job *job)
{
    /* Those that the formula was held against. */
    static const float least_x = 2.5e-6F, most_x = 0.19F, least_y = 4e-8F, most_y = 2.2e-2F;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !nd_htp_is_softmax_of_rows(job))
        return false;
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    int64_t n = shape->dims[shape->rank - 1];
    return n >= LEAST_ROW && n <= MOST_ROW && y->zero_point[0] == 0 && x->scale[0] >= least_x &&
           x->scale[0] <= most_x && y->scale[0] >= least_y && y->scale[0] <= most_y;
}

enum nd_status nd_htp_softmax16(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!is_known(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    struct softmax s = {.step = step_of(job->call->inputs[0].quant->scale[0]),
                        .n = (size_t)x->shape.dims[x->shape.rank - 1]};
    double mantissa = frexp((double)job->call->out_quant->scale[0], &s.exponent_y);
    s.scale_y = (int64_t)ldexp(mantissa, SCALE_BITS);
    enum nd_status status = nd_array_make(job->codes, job->unit->dtype, &x->shape, err);
    for (size_t row = 0; status == ND_OK && row < x->n; row += s.n)
        make_row(&s, x->x + row, job->codes->x + row);
    *job->is_covered = status == ND_OK;
    return status;
}
