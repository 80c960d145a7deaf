/* uint16 Tanh and Sigmoid: one curve of 16 cubic pieces. docs/science/htp-arithmetic.md#tables. */
#include <math.h>

#include "arith/htp_internal.h"

/* What a piece adds up, by falling powers of the place within it; the curve of tanh in steps of 1/32768. Each
 * was read out of all 65536 codes of one Tanh (gen3, QAIRT 2.51.0), where no other whole numbers give every
 * code. */
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

static int64_t bend(const void *parameters, int64_t x)
{
    const struct input *in = parameters;
    int64_t d = x - in->zero, y = curve(((d < 0 ? -d : d) * in->m) >> in->shift);
    y = d < 0 ? -1 - y : y;
    return 32768 + (in->is_gate ? y - (y & 1) : y);
}

enum nd_status nd_htp_curve16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* What tanh reads is in steps of 1/12288, 32768 of them to 8/3: a half less for the gate. */
    static const double steps = 12288;
    struct input in = {.is_gate = job->call->node->op_type[0] == 'S'};
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || job->call->low > -HUGE_VAL ||
        job->call->high < HUGE_VAL ||
        !nd_htp_writes(job, in.is_gate ? ND_HTP_GATE_SCALE : ND_HTP_TANH_SCALE, in.is_gate ? 0 : 32768))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant;
    double factor = (double)x->scale[0] * steps / (in.is_gate ? 2 : 1);
    int exponent; /* factor < 2^exponent */
    frexp(factor, &exponent);
    in.shift = 15 - (exponent > 0 ? exponent : 0);
    if (in.shift < 0) /* scales above 1: not seen */
        return ND_OK;
    in.m = llrint(ldexp(factor, in.shift));
    in.zero = x->zero_point[0];
    if (in.m > INT16_MAX) /* whether a multiplier of 32768 is cut to 15 bits is not known */
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, bend, &in, &bounds, err);
}
