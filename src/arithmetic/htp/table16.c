/* uint16 Tanh and Sigmoid, and x Sigmoid(x) as one operation: one curve of 16 cubic pieces.
 * docs/science/htp-arithmetic.md#tables. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"

/* What a piece adds up, by falling powers of the place within it; the curve of tanh in steps of 1/32768. Each
 * was read out of all 65536 quantised values of one Tanh (gen3, QAIRT 2.51.0), where no other whole numbers
 * give every quantised value. */
static const struct piece {
    int16_t ones, quarters, of_32, of_256; /* in steps of 1, 1/4, 1/32, 1/256 */
} pieces[] = {
    {32766, -58, -36, -1125},      {32746, -117, -389, -757},     {32702, -250, -672, -1192},
    {32613, -475, -1115, -1725},   {32453, -837, -1760, -2424},   {32179, -1392, -2667, -3266},
    {31735, -2214, -3894, -4178},  {31044, -3385, -5465, -5006},  {30007, -4987, -7354, -5405},
    {28509, -7078, -9406, -4952},  {26426, -9658, -11296, -3158}, {23647, -12622, -12509, 262},
    {20101, -15726, -12443, 4941}, {15800, -18595, -10586, 9594}, {10858, -20788, -6953, 12789},
    {5494, -21927, -2101, 13087},
};
enum { PIECE_BITS = 12 }; /* of the place within a piece */

/* tanh of |x| = u / 12288, times 32768. */
static int64_t curve(int64_t u)
{
    int64_t rest = UINT16_MAX - (u < UINT16_MAX ? u : UINT16_MAX), at = (rest * rest) >> 16;
    const struct piece *p = &pieces[at >> PIECE_BITS];
    int64_t f = at & ((1 << PIECE_BITS) - 1);
    int64_t sum = p->of_32 + ((p->of_256 * f + (1 << 14)) >> 15);
    sum = p->quarters + ((sum * f + (1 << 14)) >> 15);
    return p->ones + ((sum * f + (1 << 13)) >> 14);
}

struct input {
    int64_t m, zero;
    int shift;
    bool is_gate; /* Sigmoid: (1 + tanh(x / 2)) / 2 */
};

/* tanh of x, or of x / 2 for the gate, in steps of 1/32768 from 32768. */
static int64_t bend(const void *parameters, int64_t x)
{
    const struct input *in = parameters;
    int64_t d = x - in->zero, y = curve(((d < 0 ? -d : d) * in->m) >> in->shift);
    y = d < 0 ? -1 - y : y;
    return 32768 + (in->is_gate ? y - (y & 1) : y);
}

/* False: scales above 1, and multipliers of 32768, which may be cut to 15 bits, were not seen. */
static bool make_input(const struct nd_quant *x, bool is_gate, struct input *out)
{
    /* What tanh reads is in steps of 1/12288, 32768 of them to 8/3: a half less for the gate. */
    static const double steps = 12288;
    double factor = (double)x->scale[0] * steps / (is_gate ? 2 : 1);
    int exponent; /* factor < 2^exponent */
    frexp(factor, &exponent);
    out->is_gate = is_gate;
    out->shift = 15 - (exponent > 0 ? exponent : 0);
    out->zero = x->zero_point[0];
    if (out->shift < 0)
        return false;
    out->m = llrint(ldexp(factor, out->shift));
    return out->m <= INT16_MAX;
}

enum nd_status nd_htp_curve16(const struct nd_htp_job *job, struct nd_error *err)
{
    struct input in;
    bool is_gate = job->call->node->op_type[0] == 'S';
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !nd_htp_writes(job, is_gate ? ND_HTP_GATE_SCALE : ND_HTP_TANH_SCALE, is_gate ? 0 : 32768) ||
        !make_input(job->call->inputs[0].quant, is_gate, &in))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, bend, &in, &bounds, err);
}

/* ---- x Sigmoid(x) ---- */

enum {
    SILU_BITS = 33,       /* of the multiplier, after the point */
    SILU_QVALUE_BITS = 3, /* of the product, after the point */
};

struct silu {
    struct input gate;
    int64_t m, middle, offset, zero; /* middle: of all products, which are seen from there */
};

static int64_t gate_itself(const void *parameters, int64_t x)
{
    enum { SHIFT = SILU_BITS - SILU_QVALUE_BITS };
    const struct silu *s = parameters;
    int64_t product = (x - s->gate.zero) * (bend(&s->gate, x) >> 1) - s->middle;
    int64_t sum = ((product * s->m + ((int64_t)1 << (SHIFT - 1))) >> SHIFT) + s->offset;
    return ((sum + (1 << (SILU_QVALUE_BITS - 1))) >> SILU_QVALUE_BITS) + s->zero;
}

enum nd_status nd_htp_silu16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Quotients of scales that the formula was held against, over 32768. */
    static const float least = 0x1p-18F, most = 0x1p-12F;
    struct silu s;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) ||
        !make_input(job->call->inputs[0].quant, true, &s.gate))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float m = x->scale[0] * 0x1p-15F / y->scale[0];
    if (!(m >= least && m <= most))
        return ND_OK;
    s.m = llrint(ldexp((double)m, SILU_BITS));
    s.zero = y->zero_point[0];
    s.middle = (int64_t)(float)((double)((UINT16_MAX - 2 * s.gate.zero) * UINT16_MAX) / 4);
    s.offset = llrint(ldexp((double)(s.middle * s.m), SILU_QVALUE_BITS - SILU_BITS));
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, gate_itself, &s, &bounds, err);
}
