/* Quantised values of one encoding as quantised values of another, in the ways in which the HTP does it.
 * docs/science/htp-arithmetic.md#rescaling. */
#include <math.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/error.h"

enum {
    FIXED_BITS = 14,      /* behind the leading one of the multiplier */
    GREATEST_LOG = 3,     /* floor(log2) of the greatest ratio that was seen to follow the formula */
    MIN_HALF_LOG = -14,   /* of the least normal float16 */
    GREATEST_HALF_LOG = 7 /* 255 times as much is a float16 yet */
};

bool nd_htp_rescaling_init(struct nd_htp_rescaling *r, enum nd_htp_method method, double scale,
                           double out_scale)
{
    double ratio = scale / out_scale;
    *r = (struct nd_htp_rescaling){.method = method, .ratio = ratio, .inverse = (double)(1 / (float)out_scale)};
    if (!(ratio > 0) || !isfinite(ratio))
        return false;
    int log = nd_htp_floor_log2(ratio);
    if (method == ND_HTP_HALVES || method == ND_HTP_HALF || method == ND_HTP_WHOLE_HALF) {
        r->scale = nd_htp_round_to_half(scale, ND_ROUND_HALF_EVEN);
        return nd_htp_floor_log2(scale) >= MIN_HALF_LOG && nd_htp_floor_log2(scale) <= GREATEST_HALF_LOG;
    }
    r->ratio = nd_multiplier_round(ratio, FIXED_BITS, ND_ROUND_HALF_UP);
    r->more = method == ND_HTP_LAYOUT ? (log < -1 ? 0x1p-8 : 0) : ldexp(1, (log > 0 ? log : 0) - 7);
    return log <= GREATEST_LOG;
}

double nd_htp_half_of_byte(const struct nd_htp_rescaling *r, double n)
{
    return nd_htp_round_to_half(n * r->scale, ND_ROUND_HALF_AWAY);
}

/* docs/science/htp-arithmetic.md#rescaling, R6 */
static double rescale_whole(const struct nd_htp_rescaling *r, double x)
{
    struct nd_qfloat real = nd_qfloat_product(nd_qhalf_of_whole(x), nd_qfloat_read((float)r->scale));
    double steps = nd_qfloat_value(nd_qfloat_product(real, nd_qfloat_read((float)r->inverse)));
    return x != 0 ? nd_htp_half_away(nd_htp_round_to_half(steps, ND_ROUND_HALF_EVEN)) : 0;
}

/* Of a quantised value less its zero point: the same in the other encoding, not clipped. */
static double rescale_steps(const struct nd_htp_rescaling *r, double x)
{
    if (r->method == ND_HTP_HALF)
        return nd_htp_half_away(nd_htp_round_to_half(x * r->ratio, ND_ROUND_HALF_EVEN));
    if (r->method == ND_HTP_WHOLE_HALF)
        return rescale_whole(r, x);
    if (r->method == ND_HTP_HALVES_DOWN)
        return floor(nd_htp_steps_of_half(nd_htp_half_of_byte(r, x), (float)r->inverse));
    if (r->method == ND_HTP_HALVES) /* the real value as a float16, and what it is in steps of the output */
        return nd_htp_half_away(nd_htp_round_to_half(
            nd_htp_steps_of_half(nd_htp_half_of_byte(r, x), (float)r->inverse), ND_ROUND_HALF_EVEN));
    return floor(x * r->ratio + 0.5 + r->more);
}

/* Below it the multiplier of a line has no more bits than a float32. */
static const float max_of_line = 64;

int64_t nd_htp_follow_line16(const struct nd_htp_line16 *line, int64_t d)
{
    enum { SHIFT = ND_HTP_LINE_BITS - ND_HTP_LINE_QVALUE_BITS };
    int64_t product = (d * line->m + ((int64_t)1 << (SHIFT - 1))) >> SHIFT;
    return (product + line->offset + (1 << (ND_HTP_LINE_QVALUE_BITS - 1))) >> ND_HTP_LINE_QVALUE_BITS;
}

bool nd_htp_line16_init(struct nd_htp_line16 *line, const struct nd_quant *x, const struct nd_quant *y,
                        bool is_negative)
{
    float ratio = x->scale[0] / y->scale[0];
    if (!(ratio > 0 && ratio < max_of_line))
        return false;
    line->m = llrint(ldexp((double)ratio, ND_HTP_LINE_BITS));
    float rounded = (float)ldexp((double)line->m, -ND_HTP_LINE_BITS);
    float moved = (float)x->zero_point[0] * (is_negative ? -rounded : rounded);
    float offset = (1 << ND_HTP_LINE_QVALUE_BITS) * ((float)y->zero_point[0] - moved);
    line->offset = llrintf(offset);
    line->m = is_negative ? -line->m : line->m;
    return true;
}

/* From one encoding to another, and within the bounds of the layer. */
struct step {
    const struct nd_htp_rescaling *r;
    double zero, sign, out_zero;
    struct nd_htp_bounds bounds;
};

static double rescale(const struct step *s, double qvalue)
{
    return nd_within(rescale_steps(s->r, s->sign * (qvalue - s->zero)) + s->out_zero, s->bounds.low,
                     s->bounds.high);
}

bool nd_htp_is_rescaled_alike(const struct nd_quant *x, double factor, const struct nd_quant *y)
{
    const struct nd_htp_bounds bounds = {.high = UINT8_MAX};
    struct nd_htp_rescaling fixed, laid_out;
    double scale = (double)x->scale[0] * factor, out_scale = (double)y->scale[0];
    struct step a = {&fixed, (double)x->zero_point[0], 1, (double)y->zero_point[0], bounds}, b = a;
    bool is = nd_htp_rescaling_init(&fixed, ND_HTP_FIXED, scale, out_scale) &&
              nd_htp_rescaling_init(&laid_out, ND_HTP_LAYOUT, scale, out_scale);
    b.r = &laid_out;
    for (int qvalue = 0; qvalue <= UINT8_MAX && is; qvalue++)
        is = rescale(&a, qvalue) == rescale(&b, qvalue);
    return is;
}

/* Of bytes each is worked out once. False: there are others, and nothing was done. */
static bool rescale_bytes(const struct step *s, double *x, size_t n)
{
    enum { BLOCK = 1024, N_BYTES = UINT8_MAX + 1 };
    const struct nd_gemm_kernels *kernels = nd_gemm_kernels();
    double made[N_BYTES];
    uint8_t table[N_BYTES], qvalues[BLOCK];
    for (size_t qvalue = 0; qvalue < N_BYTES; qvalue++)
        made[qvalue] = rescale(s, (double)qvalue);
    if (n < N_BYTES || !kernels->narrow(made, 0, N_BYTES, table))
        return false;
    for (size_t first = 0; first < n; first += BLOCK)
        if (!kernels->narrow(x + first, 0, n - first < BLOCK ? n - first : BLOCK, qvalues))
            return false;
    for (size_t first = 0; first < n; first += BLOCK) {
        size_t m = n - first < BLOCK ? n - first : BLOCK;
        kernels->narrow(x + first, 0, m, qvalues);
        kernels->look_up(table, qvalues, m, qvalues);
        kernels->spread(qvalues, 0, m, x + first);
    }
    return true;
}

void nd_htp_rescale_all(const struct nd_htp_job *job, const struct nd_htp_rescaling *r, double zero,
                        double sign, struct nd_array *qvalues)
{
    const struct step step = {.r = r,
                              .zero = zero,
                              .sign = sign,
                              .out_zero = (double)job->call->out_quant->zero_point[0],
                              .bounds = nd_htp_bounds_of(job)};
    if (rescale_bytes(&step, qvalues->x, qvalues->n))
        return;
    for (size_t i = 0; i < qvalues->n; i++)
        qvalues->x[i] = rescale(&step, qvalues->x[i]);
}

enum nd_status nd_htp_multiply_by(const struct nd_htp_job *job, size_t i, enum nd_htp_method method,
                                  double factor, struct nd_error *err)
{
    const struct nd_quant *x = nd_htp_plain(job, i), *y = nd_htp_plain_output(job);
    struct nd_htp_rescaling r;
    if (!nd_htp_rescaling_init(&r, method, (double)x->scale[0] * fabs(factor), (double)y->scale[0]))
        return ND_OK;
    ND_TRY(nd_array_copy(job->call->inputs[i].values, job->qvalues, err));
    nd_htp_rescale_all(job, &r, (double)x->zero_point[0], copysign(1, factor), job->qvalues);
    *job->is_covered = true;
    return ND_OK;
}

enum nd_status nd_htp_rescale_input(const struct nd_htp_job *job, enum nd_htp_method method,
                                    struct nd_error *err)
{
    return nd_htp_multiply_by(job, 0, method, 1, err);
}

/* ---- to the other type: docs/science/htp-arithmetic.md#requantise ---- */

/* uint16 to uint8: shares of a quantised value of the output that have 16 bits with a sign, as the offset has.
 */
struct to_bytes {
    int64_t m, offset;
    int shift;
};

/* A quantised value of uint16 less 32767, times the multiplier. */
static int64_t multiply_short(const struct to_bytes *t, int64_t x)
{
    return (x * t->m + (1 << 14)) >> 15;
}

static bool to_bytes_init(struct to_bytes *t, const struct nd_quant *x, const struct nd_quant *y)
{
    enum {
        MOST_BITS = 22,
        FEW_BITS = 15,
        BITS = 14,
        FIRST_OF_FEW = -4
    }; /* of the multiplier, and from which ratio on */
    double ratio = (double)(x->scale[0] / y->scale[0]);
    int log = nd_htp_floor_log2(ratio), bits = log >= FIRST_OF_FEW ? FEW_BITS : BITS - 1 - log;
    if (!(ratio > 0 && ratio < 1) || (log >= FIRST_OF_FEW && x->zero_point[0] == UINT16_MAX))
        return false;
    bits = bits < MOST_BITS ? bits : MOST_BITS;
    *t = (struct to_bytes){.m = llrint(ldexp(ratio, bits)), .shift = bits - FEW_BITS};
    t->offset = (y->zero_point[0] << t->shift) - multiply_short(t, x->zero_point[0] - INT16_MAX);
    t->offset = t->offset > INT16_MAX ? INT16_MAX : t->offset < INT16_MIN ? INT16_MIN : t->offset;
    return t->m <= INT16_MAX;
}

static bool to_words_init(const struct nd_quant *x, const struct nd_quant *y, double *m)
{
    enum { BITS = 15 };                         /* behind the leading one of the multiplier */
    static const double least = 1, most = 8192; /* ratios that were looked at */
    double ratio = (double)(x->scale[0] / y->scale[0]);
    if (!(ratio >= least && ratio < most))
        return false;
    *m = nd_multiplier_round(ratio, BITS, ND_ROUND_HALF_EVEN);
    return true;
}

static enum nd_status change_width(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_array *values = job->call->inputs[0].values;
    const struct nd_quant *x = nd_htp_plain(job, 0), *y = nd_htp_plain_output(job);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    struct to_bytes bytes;
    double m = 0;
    bool narrows = job->layer->dtype == ND_DTYPE_U8;
    if (values->dtype != (narrows ? ND_DTYPE_U16 : ND_DTYPE_U8) || !nd_htp_are_within(values, UINT16_MAX) ||
        !(narrows ? to_bytes_init(&bytes, x, y) : to_words_init(x, y, &m)))
        return ND_OK;
    enum nd_status status = nd_array_copy(values, job->qvalues, err);
    for (size_t i = 0; status == ND_OK && i < values->n; i++) {
        double made = floor((values->x[i] - (double)x->zero_point[0]) * m + 0.5) + (double)y->zero_point[0];
        if (narrows) {
            int64_t less = (int64_t)values->x[i] - INT16_MAX;
            int64_t sum = multiply_short(&bytes, less < INT16_MAX ? less : INT16_MAX) + bytes.offset;
            made = (double)((sum + ((1 << bytes.shift) >> 1)) >> bytes.shift);
        }
        job->qvalues->x[i] = nd_within(made, bounds.low, bounds.high);
    }
    job->qvalues->dtype = job->layer->dtype;
    *job->is_covered = status == ND_OK;
    return status;
}

enum nd_status nd_htp_requantise(const struct nd_htp_job *job, struct nd_error *err)
{
    if (nd_htp_plain(job, 0) == NULL || nd_htp_plain_output(job) == NULL)
        return ND_OK;
    if (job->layer->dtype != job->call->inputs[0].values->dtype)
        return change_width(job, err);
    return job->layer->dtype == ND_DTYPE_U8
               ? nd_htp_rescale_input(job, nd_htp_is_laid_out(job, 0) ? ND_HTP_LAYOUT : ND_HTP_FIXED, err)
               : ND_OK;
}
