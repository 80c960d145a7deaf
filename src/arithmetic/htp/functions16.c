/* uint16 functions of one input. One line or two (docs/science/htp-arithmetic.md#elements): Relu, Clip, Neg,
 * Abs, LeakyRelu, PRelu, HardSigmoid. Curves, from cubic pieces: Tanh, Sigmoid and x Sigmoid(x) as one
 * operation (docs/science/htp-arithmetic.md#tables): one curve of 16 pieces. Gelu
 * (docs/science/htp-arithmetic.md#gelu): x times a gate of 12 bits, in steps of x, then brought to the scale of
 * the output. Exp, and Elu, which has it below zero (docs/science/htp-arithmetic.md#exponential): two to a
 * whole number times a mantissa of four pieces. And Sqrt and HardSwish (docs/science/htp-arithmetic.md#root).
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"

/* What the provider gives a uint16 Sigmoid and HardSigmoid (zero point 0), and a Tanh (32768), to write with.
 */
#define GATE_SCALE 0x1p-16
#define TANH_SCALE 0x1p-15

/* Whether the output is plain and has that scale and zero point. */
static bool writes(const struct nd_htp_job *job, double scale, int64_t zero)
{
    const struct nd_quant *quant = nd_htp_plain_output(job);
    return quant != NULL && (double)quant->scale[0] == scale && quant->zero_point[0] == zero;
}

/* The quantised value that becomes of x. */
typedef int64_t function_of_word(const void *parameters, int64_t x);

/* Makes the quantised values of the layer from input 0. */
static enum nd_status make_words(const struct nd_htp_job *job, function_of_word *function,
                                 const void *parameters, const struct nd_htp_bounds *bounds,
                                 struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        double y = (double)function(parameters, (int64_t)x->x[i]);
        job->qvalues->x[i] = fmin(fmax(y, bounds->low), bounds->high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

/* ---- lines ---- */

/* The greatest quotients of scales that the formulas were held against: 200, and 16 for Abs (QAIRT 2.51:
 * from 26 on 4 of 65 536 quantised values were off by one). */
static const float max_of_abs = 16, max_of_leaky = 200;

static int64_t rescale_qvalue(const void *parameters, int64_t x)
{
    return nd_htp_follow_line16(parameters, x);
}

/* Relu, Clip, and a change of the encoding alone: the line between the bounds of the operator. Where these are
 * those of the quantised values the provider leaves it out, and what remains is a change of the encoding, which
 * depends on the layout. */
static enum nd_status narrow(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_call *call = job->call;
    struct nd_htp_line16 line;
    double low = call->low, high = call->high;
    if (!nd_htp_has_words(job) ||
        (call->node != NULL && !nd_linear_fold(call->node, call->n_inputs, call->inputs, &low, &high)) ||
        !nd_htp_line16_init(&line, call->inputs[0].quant, call->out_quant, false))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_between(job, low, high);
    bool is_left_out = bounds.low <= 0 && bounds.high >= UINT16_MAX;
    enum nd_htp_layout layout = nd_htp_layout_of(job->memory, job->layer, 0);
    if (is_left_out && layout == ND_HTP_UNKNOWN)
        return ND_OK;
    if (is_left_out && layout == ND_HTP_BLOCKED)
        return nd_htp_rescale_input(job, ND_HTP_LAYOUT, err);
    return make_words(job, rescale_qvalue, &line, &bounds, err);
}

static enum nd_status negate_words(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_line16 line;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !nd_htp_line16_init(&line, job->call->inputs[0].quant, job->call->out_quant, true))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, rescale_qvalue, &line, &bounds, err);
}

/* The product is rounded in rows with an even index alone; in the
 * others it is cut. */
static int64_t rescale_magnitude(const struct nd_htp_line16 *line, int64_t magnitude, bool is_odd_row)
{
    enum { SHIFT = ND_HTP_LINE_BITS - ND_HTP_LINE_QVALUE_BITS };
    int64_t half = is_odd_row ? 0 : (int64_t)1 << (SHIFT - 1);
    return (((magnitude * line->m + half) >> SHIFT) + line->offset + (1 << (ND_HTP_LINE_QVALUE_BITS - 1))) >>
           ND_HTP_LINE_QVALUE_BITS;
}

static enum nd_status make_magnitudes(const struct nd_htp_job *job, struct nd_error *err)
{
    /* With more, the provider may lay a tensor out with the channels last: which rows there are is not known.
     */
    enum { N_AXES = 2 };
    struct nd_htp_line16 line;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        job->call->inputs[0].values->shape.rank != N_AXES ||
        !nd_htp_line16_init(&line, job->call->inputs[0].quant, job->call->out_quant, false) ||
        job->call->inputs[0].quant->scale[0] >= max_of_abs * job->call->out_quant->scale[0])
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    int64_t zero = job->call->inputs[0].quant->zero_point[0];
    size_t length = (size_t)x->shape.dims[1];
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    line.offset = job->call->out_quant->zero_point[0] * (1 << ND_HTP_LINE_QVALUE_BITS);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        bool is_odd = i / length % 2 == 1;
        double y = (double)rescale_magnitude(&line, llabs((int64_t)x->x[i] - zero), is_odd);
        job->qvalues->x[i] = fmin(fmax(y, bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

struct leaky {
    int64_t above, below; /* the multipliers */
    int64_t zero_x, zero_y;
    int shift;
};

/* The sum wraps in 32 bits, before it is rounded: with a shift of 15 what is above 65535 becomes 0. That is a
 * defect of the SDK (2.50.40, 2.51.0). */
static int64_t leak(const void *parameters, int64_t x)
{
    const struct leaky *l = parameters;
    int64_t d = x - l->zero_x;
    int64_t sum = d * (d >= 0 ? l->above : l->below) + l->zero_y * ((int64_t)1 << l->shift);
    int64_t wrapped = (int64_t)((uint64_t)(sum - INT32_MIN) & UINT32_MAX) + INT32_MIN;
    return (wrapped + ((int64_t)1 << (l->shift - 1))) >> l->shift;
}

/* False: a quotient of scales that was not looked at. */
static bool make_leaky(const struct nd_quant *x, const struct nd_quant *y, float slope, struct leaky *out)
{
    float above = x->scale[0] / y->scale[0], below = above * slope, largest = fmaxf(above, fabsf(below));
    if (!(largest < max_of_leaky))
        return false;
    int exponent; /* largest < 2^exponent */
    frexp((double)largest, &exponent);
    *out = (struct leaky){.zero_x = x->zero_point[0], .zero_y = y->zero_point[0]};
    out->shift = 15 - (exponent > 0 ? exponent : 0);
    out->above = (int64_t)ldexp((double)above, out->shift);
    out->below = (int64_t)ldexp((double)below, out->shift);
    return true;
}

static enum nd_status make_leaky_relu(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    struct leaky l;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        nd_htp_is_made_with_matrix(job) ||
        !make_leaky(job->call->inputs[0].quant, job->call->out_quant, (float)nd_op_f(&op_call, "alpha", 0.01),
                    &l))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, leak, &l, &bounds, err);
}

/* A constant slope for each channel, its zero point 0. */
static bool has_slopes(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != 2 || !nd_htp_are_words(job, 2) || !nd_htp_is_unbounded(job) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT || call->inputs[1].quant->zero_point[0] != 0)
        return false;
    return nd_htp_run_of_slopes(job) > 0;
}

/* PRelu: the LeakyRelu of each channel, of slopes below 1. */
static enum nd_status make_prelu(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!has_slopes(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values, *slopes = job->call->inputs[1].values;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    size_t run = nd_htp_run_of_slopes(job);
    for (size_t first = 0; status == ND_OK && first < x->n; first += run) {
        struct leaky l;
        float slope = (float)slopes->x[first / run % slopes->n] * job->call->inputs[1].quant->scale[0];
        if (!(slope < 1) || !make_leaky(job->call->inputs[0].quant, job->call->out_quant, slope, &l))
            return ND_OK;
        for (size_t i = first; i < first + run; i++)
            job->qvalues->x[i] = fmin(fmax((double)leak(&l, (int64_t)x->x[i]), bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

struct line {
    double slope, offset;
    int64_t zero;
};

static int64_t follow_line(const void *parameters, int64_t x)
{
    const struct line *l = parameters;
    return (int64_t)floor((double)(x - l->zero) * l->slope + l->offset + 0.5);
}

static enum nd_status make_hard_sigmoid(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !writes(job, GATE_SCALE, 0))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant;
    float slope = x->scale[0] * (float)nd_op_f(&op_call, "alpha", 0.2);
    float offset = (float)nd_op_f(&op_call, "beta", 0.5);
    struct line l = {.slope = (double)slope / GATE_SCALE,
                     .offset = rint((double)offset / GATE_SCALE),
                     .zero = x->zero_point[0]};
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, follow_line, &l, &bounds, err);
}

/* ---- Tanh and Sigmoid ---- */

/* What a piece adds up, by falling powers of the place within it; the curve of tanh in steps of 1/32768. Each
 * was read out of all 65536 quantised values of one Tanh (gen3, QAIRT 2.51.0), where no other whole numbers
 * give every quantised value. */
static const struct tanh_piece {
    int16_t ones, quarters, of_32, of_256; /* in steps of 1, 1/4, 1/32, 1/256 */
} tanh_pieces[] = {
    {32766, -58, -36, -1125},      {32746, -117, -389, -757},     {32702, -250, -672, -1192},
    {32613, -475, -1115, -1725},   {32453, -837, -1760, -2424},   {32179, -1392, -2667, -3266},
    {31735, -2214, -3894, -4178},  {31044, -3385, -5465, -5006},  {30007, -4987, -7354, -5405},
    {28509, -7078, -9406, -4952},  {26426, -9658, -11296, -3158}, {23647, -12622, -12509, 262},
    {20101, -15726, -12443, 4941}, {15800, -18595, -10586, 9594}, {10858, -20788, -6953, 12789},
    {5494, -21927, -2101, 13087},
};
enum { TANH_PIECE_BITS = 12 }; /* of the place within a piece */

/* tanh of |x| = u / 12288, times 32768. */
static int64_t tanh_of(int64_t u)
{
    int64_t rest = UINT16_MAX - (u < UINT16_MAX ? u : UINT16_MAX), at = (rest * rest) >> 16;
    const struct tanh_piece *p = &tanh_pieces[at >> TANH_PIECE_BITS];
    int64_t f = at & ((1 << TANH_PIECE_BITS) - 1);
    int64_t sum = p->of_32 + ((p->of_256 * f + (1 << 14)) >> 15);
    sum = p->quarters + ((sum * f + (1 << 14)) >> 15);
    return p->ones + ((sum * f + (1 << 13)) >> 14);
}

struct tanh_input {
    int64_t m, zero;
    int shift;
    bool is_gate; /* Sigmoid: (1 + tanh(x / 2)) / 2 */
};

/* tanh of x, or of x / 2 for the gate, in steps of 1/32768 from 32768. */
static int64_t bend_tanh(const void *parameters, int64_t x)
{
    const struct tanh_input *in = parameters;
    int64_t d = x - in->zero, y = tanh_of(((d < 0 ? -d : d) * in->m) >> in->shift);
    y = d < 0 ? -1 - y : y;
    return 32768 + (in->is_gate ? y - (y & 1) : y);
}

/* False: scales above 1, and multipliers of 32768, which may be cut to 15 bits, were not seen. */
static bool make_tanh_input(const struct nd_quant *x, bool is_gate, struct tanh_input *out)
{
    /* What tanh reads is in steps of 1/12288, 32768 of them to 8/3: a half less for the gate. */
    static const float steps = 12288;
    double factor = (double)(x->scale[0] * steps) / (is_gate ? 2 : 1);
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

static enum nd_status make_tanh(const struct nd_htp_job *job, struct nd_error *err)
{
    struct tanh_input in;
    bool is_gate = job->call->node->op_type[0] == 'S';
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !writes(job, is_gate ? GATE_SCALE : TANH_SCALE, is_gate ? 0 : 32768) ||
        !make_tanh_input(job->call->inputs[0].quant, is_gate, &in))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, bend_tanh, &in, &bounds, err);
}

/* ---- x Sigmoid(x) ---- */

enum {
    SILU_BITS = 33,       /* of the multiplier, after the point */
    SILU_QVALUE_BITS = 3, /* of the product, after the point */
};

struct silu {
    struct tanh_input gate;
    int64_t m, middle, offset, zero; /* middle: of all products, which are seen from there */
};

static int64_t gate_itself(const void *parameters, int64_t x)
{
    enum { SHIFT = SILU_BITS - SILU_QVALUE_BITS };
    const struct silu *s = parameters;
    int64_t product = (x - s->gate.zero) * (bend_tanh(&s->gate, x) >> 1) - s->middle;
    int64_t sum = ((product * s->m + ((int64_t)1 << (SHIFT - 1))) >> SHIFT) + s->offset;
    return ((sum + (1 << (SILU_QVALUE_BITS - 1))) >> SILU_QVALUE_BITS) + s->zero;
}

enum nd_status nd_htp_silu16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Quotients of scales that the formula was held against, over 32768. */
    static const float least = 0x1p-18F, most = 0x1p-12F;
    struct silu s;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) ||
        !make_tanh_input(job->call->inputs[0].quant, true, &s.gate))
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
    return make_words(job, gate_itself, &s, &bounds, err);
}

/* ---- Gelu ---- */

/* The gate from |x| / sqrt(2) in steps of 1/16384, by falling powers. Each piece was read out of all quantised
 * values of a Gelu (gen3, QAIRT 2.51.0); where they round and where they cut, too. */
static const struct gelu_piece {
    int32_t end; /* the first place that is not the piece's */
    int32_t ones, first, second, third;
    int32_t rounds_third, rounds_second; /* added before 16 bits are cut off */
} gelu_pieces[] = {
    {16384, 2048, 9495, -5413, -19971, 0, 0},
    {32768, 1771, 13768, -27869, 19199, 32768, 32768},
    {49152, 3801, 1237, -1730, 808, 0, 32768},
    {53249, 4096, 0, 0, 0, 0, 0},
    {56174, 4095, 0, 0, 0, 0, 0},
    {61167, 4096, 0, 0, 0, 0, 0},
};
enum { GELU_GATE_BITS = 12, LAST_GATE = 4095 };

static int64_t gelu_gate(int64_t place)
{
    for (size_t i = 0; i < sizeof gelu_pieces / sizeof *gelu_pieces; i++) {
        const struct gelu_piece *p = &gelu_pieces[i];
        if (place >= p->end)
            continue;
        int64_t sum = p->second + ((p->third * place + p->rounds_third) >> 16);
        sum = p->first + ((sum * place + p->rounds_second) >> 16);
        return p->ones + ((sum * place + (1 << 15)) >> 16);
    }
    return LAST_GATE;
}

/* A signed number of steps times a multiplier of 15 bits, cut towards zero; rounded where the ratio is below a
 * half. */
struct cutting {
    int64_t m, zero;
    int shift;
};

/* False: no ratio of which it is known. */
static bool cutting_init(struct cutting *c, float ratio, int64_t zero)
{
    int exponent; /* ratio < 2^exponent */
    if (!(ratio > 0 && isfinite(ratio)))
        return false;
    frexpf(ratio, &exponent);
    *c = (struct cutting){.shift = 15 - exponent, .zero = zero};
    c->m = llrint(ldexp((double)ratio, c->shift));
    return c->shift >= 0 && c->shift < 32 && c->m <= INT16_MAX;
}

static int64_t cut(const struct cutting *c, int64_t value)
{
    enum { CUT = 15 };
    int64_t product = llabs(value) * c->m;
    int more = c->shift - CUT;
    product = more <= 0 ? product >> c->shift : ((product >> CUT) + ((int64_t)1 << (more - 1))) >> more;
    return c->zero + (value < 0 ? -product : product);
}

struct gelu {
    int64_t m, zero; /* of the place */
    int shift;
    struct cutting out;
};

static int64_t bend_gelu(const void *parameters, int64_t x)
{
    const struct gelu *g = parameters;
    int64_t d = x - g->zero, magnitude = llabs(d);
    int64_t passed = gelu_gate((magnitude * g->m + ((int64_t)1 << (g->shift - 1))) >> g->shift);
    if (d < 0)
        passed = passed < 1 << GELU_GATE_BITS ? (1 << GELU_GATE_BITS) - passed : 0;
    int64_t steps = (magnitude * passed + (1 << (GELU_GATE_BITS - 1))) >> GELU_GATE_BITS;
    return cut(&g->out, d < 0 ? -steps : steps);
}

enum nd_status nd_htp_gelu16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Of x and as quotients, those that the formula was held against. */
    static const float min_scale = 1e-8F, max_scale = 1, least = 0x1p-8F, most = 0x1p8F;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float ratio = x->scale[0] / y->scale[0];
    struct gelu g = {.zero = x->zero_point[0]};
    if (!(x->scale[0] >= min_scale && x->scale[0] <= max_scale && ratio >= least && ratio <= most) ||
        !cutting_init(&g.out, ratio, y->zero_point[0]))
        return ND_OK;
    double factor = ldexp((double)x->scale[0] / sqrt(2), 14);
    int exponent; /* factor < 2^exponent */
    frexp(factor, &exponent);
    g.shift = 15 - exponent;
    g.m = llrint(ldexp(factor, g.shift));
    if (g.m > INT16_MAX)
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, bend_gelu, &g, &bounds, err);
}

static enum nd_status make_gelu(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    char approximate[16];
    nd_op_text(&op_call, "approximate", approximate, sizeof approximate);
    bool is_known = job->call->n_inputs == 1 && (approximate[0] == '\0' || strcmp(approximate, "none") == 0);
    return is_known ? nd_htp_gelu16(job, err) : ND_OK;
}

/* ---- Exp and Elu ---- */

enum {
    PLACE_BITS = 16,       /* of the exponent, after the point */
    POWER_PIECE_BITS = 14, /* of the place within a piece */
    MANTISSA_BITS = 14,    /* of what is 1 .. 2, after the point */
    HALF = 1 << (PLACE_BITS - 1),
};

/* 2^t in steps of 1/16384, by rising powers of t. Each piece was read out of all quantised values of one Exp
 * whose quantised values are the places (gen3, QAIRT 2.51.0); no other whole numbers give every quantised
 * value. */
static const struct power_piece {
    int32_t ones, first, second, third;
    int32_t rounds_ones, rounds_first; /* added before 16 bits are cut off */
} power_pieces[] = {
    {16384, 11357, 3925, 987, HALF, HALF},
    {16381, 11395, 3780, 1180, 0, HALF},
    {16352, 11565, 3447, 1401, 0, 0},
    {16231, 12038, 2824, 1676, HALF, 0},
};

static int64_t mantissa(int64_t place)
{
    const struct power_piece *p = &power_pieces[place >> POWER_PIECE_BITS];
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

static int64_t bend_exponential(const void *parameters, int64_t x)
{
    const struct exponential *e = parameters;
    int64_t d = x - e->zero;
    if (!e->is_elu || d < 0)
        return raise(e, d) + e->added;
    return e->zero_y + nd_htp_shift_cut((d * e->line.m) >> ND_HTP_FACTOR_BITS, -e->line.exponent);
}

/* Of x, those that the formulas were held against. */
static const float min_exponent_scale = 1e-7F, max_exponent_scale = 3e-3F;

static bool is_usual_exponent(const struct nd_htp_job *job)
{
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job))
        return false;
    float scale = job->call->inputs[0].quant->scale[0];
    return scale >= min_exponent_scale && scale <= max_exponent_scale;
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

static enum nd_status make_exp(const struct nd_htp_job *job, struct nd_error *err)
{
    struct exponential e;
    if (!is_usual_exponent(job) || !make_exponential(job, 1, &e))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, bend_exponential, &e, &bounds, err);
}

static enum nd_status make_elu(const struct nd_htp_job *job, struct nd_error *err)
{
    static const float min_alpha = 0.1F, max_alpha = 3; /* those that the formula was held against */
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    float alpha = (float)nd_op_f(&op_call, "alpha", 1);
    struct exponential e;
    if (!(alpha >= min_alpha && alpha <= max_alpha) || !is_usual_exponent(job) ||
        !make_exponential(job, alpha, &e))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    if (!nd_htp_factor_init(&e.line, nd_htp_quotient(x->scale[0], y->scale[0])))
        return ND_OK;
    e.is_elu = true;
    e.added = (int64_t)((float)e.zero_y - alpha / y->scale[0]);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, bend_exponential, &e, &bounds, err);
}

/* ---- Log, and Pow: e to the power of a number times it ---- */

enum {
    LOG_BITS = 15,      /* of a logarithm and of what it is of, after the point */
    LOG_OF_TWO = 22713, /* in such steps */
    BY_BITS = 8,        /* of the exponent of a Pow, after the point */
    POWER_BITS = 10,    /* of the exponent of e, after the point */
};

/* ln(1 + t) in steps of 2^-15, by rising powers of t. Each piece was read out of 27 000 places of Pows by 64
 * (gen3, QAIRT 2.51.0); no other whole numbers give every one. */
static const struct log_piece {
    int32_t powers[5], rounds[4]; /* added before 16 bits are cut off */
} log_pieces[] = {
    {{0, 32767, -16337, 10350, -5209}, {HALF, HALF, 0, HALF}},
    {{10, 32612, -15410, 7761, -2353}, {HALF, 0, 0, 0}},
    {{75, 32089, -13811, 5556, -1199}, {HALF, HALF, HALF, 0}},
    {{231, 31251, -12109, 4012, -671}, {0, 0, 0, HALF}},
};

/* Of so many quantised values; what is less than one step is half a step. */
static int64_t log_of(const struct nd_htp_factor *steps, int64_t qvalues)
{
    int exponent;
    int64_t value = nd_htp_shift_cut(qvalues * steps->m, ND_HTP_FACTOR_BITS - steps->exponent);
    if (value == 0)
        return (int64_t) - (LOG_BITS + 1) * LOG_OF_TWO;
    frexp((double)value, &exponent);
    int64_t place = nd_htp_shift_cut(value, exponent - 1 - PLACE_BITS) & UINT16_MAX;
    const struct log_piece *p = &log_pieces[place >> POWER_PIECE_BITS];
    int64_t sum = p->powers[4];
    for (int i = 3; i >= 0; i--)
        sum = p->powers[i] + ((sum * place + p->rounds[i]) >> PLACE_BITS);
    return sum + (int64_t)(exponent - 1 - LOG_BITS) * LOG_OF_TWO;
}

struct power {
    struct nd_htp_factor in; /* of the quantised values to steps of a logarithm */
    struct nd_htp_factor out;
    struct exponential e;
    int64_t by, zero, zero_y;
};

static int64_t take_log(const void *parameters, int64_t x)
{
    const struct power *p = parameters;
    return p->zero_y +
           nd_htp_shift(log_of(&p->in, x - p->zero) * p->out.m, ND_HTP_FACTOR_BITS - p->out.exponent);
}

/* The power of the magnitude, which is clipped before it gets its sign. */
static int64_t take_power(const void *parameters, int64_t x)
{
    const struct power *p = parameters;
    int64_t d = x - p->zero;
    if (d == 0)
        return p->zero_y;
    int64_t exponent = (log_of(&p->in, llabs(d)) * p->by) >> (LOG_BITS + BY_BITS - POWER_BITS);
    exponent = exponent < INT16_MIN ? INT16_MIN : exponent > INT16_MAX ? INT16_MAX : exponent;
    int64_t most = UINT16_MAX - p->zero_y, y = raise(&p->e, exponent);
    y = y < most ? y : most;
    return p->zero_y + (d < 0 && p->by % (2 << BY_BITS) == 1 << BY_BITS ? -y : y);
}

/* False: scales of the input that were not looked at. */
static bool power_init(const struct nd_htp_job *job, struct power *p)
{
    static const float min_scale = 1e-6F, max_scale = 3e-3F; /* those that the formula was held against */
    const struct nd_quant *x = job->call->inputs[0].quant;
    *p = (struct power){.zero = x->zero_point[0], .zero_y = job->call->out_quant->zero_point[0]};
    return nd_htp_is_unbounded(job) && x->scale[0] >= min_scale && x->scale[0] <= max_scale &&
           nd_htp_factor_init(&p->in, ldexpf(x->scale[0], LOG_BITS));
}

/* Of positive numbers, and in steps of 2^-14 at least: others give 0. */
static enum nd_status make_log(const struct nd_htp_job *job, struct nd_error *err)
{
    static const float shrunk = 0.99999F;
    struct power p;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !power_init(job, &p))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    float ratio = nd_htp_quotient(ldexpf(1, -LOG_BITS), job->call->out_quant->scale[0]) * shrunk;
    bool is_known = ratio < 0.5F && nd_htp_factor_init(&p.out, ratio);
    for (size_t i = 0; i < x->n; i++)
        is_known = is_known && x->x[i] > (double)p.zero;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return is_known ? make_words(job, take_log, &p, &bounds, err) : ND_OK;
}

enum nd_status nd_htp_power16(const struct nd_htp_job *job, float exponent, struct nd_error *err)
{
    static const float least = 0.25F, most = 8; /* those that the formula was held against */
    struct power p;
    if (!(exponent >= least && exponent <= most) || !power_init(job, &p) ||
        !nd_htp_factor_init(&p.e.in,
                            ldexpf(ldexpf(1, -POWER_BITS) / (float)0.69314718055994530942, PLACE_BITS)) ||
        !nd_htp_factor_init(&p.e.out,
                            nd_htp_quotient(ldexpf(1, -MANTISSA_BITS), job->call->out_quant->scale[0])))
        return ND_OK;
    p.by = (int64_t)(ldexpf(exponent, BY_BITS) + 0.5F);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, take_power, &p, &bounds, err);
}

/* ---- Sqrt: x times one over its root ---- */

enum {
    ROOT_PIECE_BITS = 10, /* x from 2^14 on lies in 48 pieces */
    FIRST_PIECE = 16,
    MIN_NORMAL = 1 << 14,
    ROOT_BITS = 9, /* of x times one over its root, after the point, where x is normal */
};

/* A guess at 8192 / sqrt(x), of the middle of each piece. */
static int64_t guess_of(int64_t x)
{
    double middle = ((double)(x >> ROOT_PIECE_BITS) + 0.5) * (1 << ROOT_PIECE_BITS);
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

static enum nd_status make_sqrt(const struct nd_htp_job *job, struct nd_error *err)
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
    return make_words(job, take_root, &r, &bounds, err);
}

/* ---- HardSwish: x, in steps of the output, times a gate of 15 bits ---- */

enum { SWISH_GATE_BITS = 15 };

struct hard_swish {
    struct nd_htp_factor gate, out;
    int64_t zero, zero_y;
};

static int64_t swish_gate(const struct nd_htp_factor *factor, int64_t d)
{
    /* At least one bit after the point is left for the second rounding. */
    int places = factor->exponent < 0 ? -factor->exponent : 1, left = factor->exponent + places;
    int64_t product = nd_htp_shift(d * ((int64_t)1 << left) * factor->m, ND_HTP_FACTOR_BITS);
    int64_t gate = nd_htp_shift(product, places) + (1 << (SWISH_GATE_BITS - 1));
    return gate < 0 ? 0 : gate > INT16_MAX ? INT16_MAX : gate;
}

static int64_t swish(const void *parameters, int64_t x)
{
    const struct hard_swish *h = parameters;
    int64_t d = x - h->zero;
    int left = h->out.exponent > 0 ? h->out.exponent : 0, right = h->out.exponent < 0 ? -h->out.exponent : 0;
    int64_t steps = nd_htp_shift(d * ((int64_t)1 << left) * h->out.m, ND_HTP_FACTOR_BITS);
    int64_t product = nd_htp_shift(steps * swish_gate(&h->gate, d), SWISH_GATE_BITS);
    return h->zero_y + nd_htp_shift(product, right);
}

enum nd_status nd_htp_hard_swish16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* Those that the formula was held against: of x, and as quotients. */
    static const float min_scale = 1e-6F, max_scale = 2e-3F, least = 1.0F / 60, most = 60;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        (job->arithmetic != NULL && nd_htp_is_made_with_matrix(job))) /* else of operators in parts */
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant, *y = job->call->out_quant;
    float ratio = nd_htp_quotient(x->scale[0], y->scale[0]);
    struct hard_swish h = {.zero = x->zero_point[0], .zero_y = y->zero_point[0]};
    if (!(x->scale[0] >= min_scale && x->scale[0] <= max_scale && ratio >= least && ratio <= most) ||
        !nd_htp_factor_init(&h.gate, ldexpf(x->scale[0] / 6, SWISH_GATE_BITS)) ||
        !nd_htp_factor_init(&h.out, ratio))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return make_words(job, swish, &h, &bounds, err);
}

const struct nd_htp_operator nd_htp_functions16[] = {
    {"", narrow, true},
    {"", nd_htp_requantise, false},
    {"Relu", narrow, true},
    {"Clip", narrow, true},
    {"Neg", negate_words, true},
    {"Abs", make_magnitudes, true},
    {"LeakyRelu", make_leaky_relu, true},
    {"HardSigmoid", make_hard_sigmoid, true},
    {"PRelu", make_prelu, true},
    {"Sigmoid", make_tanh, true},
    {"Tanh", make_tanh, true},
    {"Gelu", make_gelu, true},
    {"Exp", make_exp, true},
    {"Log", make_log, true},
    {"Elu", make_elu, true},
    {"Sqrt", make_sqrt, true},
    {"HardSwish", nd_htp_hard_swish16, true},
    {.op_types = NULL},
};
