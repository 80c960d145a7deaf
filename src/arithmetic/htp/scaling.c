/* From the sum of a column to its quantised value: bias, multiplier and shift
 * (docs/science/htp-arithmetic.md#products-conv-gemm-matmul). F is one operation on float32, and all operations
 * here are such, as far as nothing else is said. And what functions share: multipliers of 15 bits with a shift,
 * shifts that round (docs/science/htp-arithmetic.md#exponential), and one over a number
 * (docs/science/htp-arithmetic.md#division). */
#include <math.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"

/* What a part of what remains of a sum stands for, of uint16, with weights of 8 and of 16 bits. */
enum { WORD_STEP = 256, WIDE_STEP = 65536 };

double nd_htp_scale(const struct nd_htp_scaling *s, double a, const struct nd_htp_bounds *bounds)
{
    double q = floor((a + s->beta) / s->step);
    double y = floor(s->c * s->step * (q + s->half) + 0.5) + s->zero;
    return nd_within(y, bounds->low, bounds->high);
}

/* M, the multiplier, from the scales of the tensors and what each channel has of the greatest. */
static float multiplier_of(const struct nd_htp_column *c)
{
    double scale_w = c->is_per_channel ? c->largest_scale_w : c->scale_w;
    float share = c->is_per_channel ? (float)c->scale_w / (float)c->largest_scale_w : (float)c->r;
    float product = (float)c->scale_x * (float)scale_w;
    return product / (float)c->scale_y * share;
}

/* Of weights per channel: the bias in real numbers. All biases of the product are first brought to one scale,
 * which the greatest of them decides; their own do not count. */
static float shared_bias_of(const struct nd_htp_column *c)
{
    float real = (float)c->bias * c->largest_bias_scale;
    float step = c->largest_bias * 0x1p-28F;
    return c->largest_bias > 0 ? rintf(real * (1 / step)) * step : 0;
}

/* The bias in units of the accumulator, `size` products of scales each, not yet a whole number. */
static float bias_in_layers(const struct nd_htp_column *c, float size)
{
    if (c->bias_scale <= 0)
        return 0;
    double scale_w = c->is_per_channel ? c->largest_scale_w : c->scale_w;
    float unit = (float)c->scale_x * (float)scale_w * (float)c->r * size;
    return (c->is_per_channel ? shared_bias_of(c) : (float)c->bias * (float)c->bias_scale) / unit;
}

/* uint8: the lowest 32 bits of a whole number, as a signed one, is what the device keeps of a bias. A defect:
 * docs/results/found.md#bias. Measured up to 3 x 2^31. uint16 loses 8 bits first, and kept 5.8 x 2^31. */
static double wrapped(double whole)
{
    double rest = fmod(whole, 0x1p32);
    return rest >= 0x1p31 ? rest - 0x1p32 : rest < -0x1p31 ? rest + 0x1p32 : rest;
}

/* v73: cut to a whole number. */
static double bias_of(const struct nd_htp_column *c, float size)
{
    return trunc((double)bias_in_layers(c, size));
}

/* v69: bias and zero point together, halves away from zero. */
static double bias_and_zero_of(const struct nd_htp_column *c, float multiplier)
{
    float both = bias_in_layers(c, 1) + (float)c->zero_y / multiplier;
    return trunc((double)(both + copysignf(0.5F, both)));
}

bool nd_htp_bias_wraps(const struct nd_htp_column *c)
{
    double alone = bias_of(c, 1), with_zero = bias_and_zero_of(c, multiplier_of(c));
    return wrapped(alone) != alone || wrapped(with_zero) != with_zero;
}

/* Below it uint8 of v69 writes 255 where the sum is positive, and of v73 is off by one with large biases;
 * uint16 has it wrong (measured). */
static const float least_multiplier = 0x1p-24F;

bool nd_htp_is_known_multiplier(enum nd_htp_arch arch, bool is_word, const struct nd_htp_column *c)
{
    bool can_differ = arch == ND_HTP_V69 ? is_word || c->zero_y > 0 || c->bias_scale > 0
                                         : c->is_wide || (c->bias_scale > 0 && !is_word);
    return !can_differ || multiplier_of(c) >= least_multiplier;
}

bool nd_htp_multiplier_wraps(const struct nd_htp_column *c)
{
    return multiplier_of(c) < least_multiplier;
}

/* The whole sum by 15 bits of the multiplier, rounded; cut where no bit is left to be shifted out (measured).
 */
static struct nd_htp_scaling whole_sum(double beta, float multiplier)
{
    static const float first_cut = 0.5F;
    static const double finer = 0x1p-20; /* than any product by c */
    double c = nd_multiplier_round((double)multiplier, 14, ND_ROUND_HALF_UP);
    return (struct nd_htp_scaling){
        .beta = beta, .c = c, .step = 1, .half = multiplier >= first_cut ? (finer - 0.5) / c : 0};
}

struct nd_htp_scaling nd_htp_scaling_strided(const struct nd_htp_column *c)
{
    float m = multiplier_of(c), bias = (float)c->bias, zero = (float)c->zero_y / m;
    if (!c->is_per_channel && c->bias_scale > 0)
        bias = bias * (float)c->bias_scale * (1 / ((float)c->scale_x * (float)c->scale_w));
    return whole_sum((double)rintf(bias) + (double)floorf(zero + 0.5F), m);
}

struct nd_htp_scaling nd_htp_scaling8(enum nd_htp_arch arch, const struct nd_htp_column *c)
{
    float m = multiplier_of(c);
    int shift = nd_multiplier_log((double)m) - 3;
    if (arch == ND_HTP_V69) /* the zero point goes into the accumulator, and the shift only to the right */
        return (struct nd_htp_scaling){.beta = wrapped(bias_and_zero_of(c, m)),
                                       .c = nd_multiplier_round((double)m, 10, ND_ROUND_HALF_UP),
                                       .step = ldexp(1, shift > 0 ? shift : 0)};
    return (struct nd_htp_scaling){.beta = wrapped(bias_of(c, 1)),
                                   .c = nd_multiplier_round((double)m, 11, ND_ROUND_HALF_UP),
                                   .step = ldexp(1, shift),
                                   .half = 0.5,
                                   .zero = c->zero_y};
}

struct nd_htp_scaling nd_htp_scaling16(enum nd_htp_arch arch, const struct nd_htp_column *c)
{
    float multiplier = multiplier_of(c);
    while (arch == ND_HTP_V73 && multiplier > 0 && multiplier < least_multiplier)
        multiplier *= 0x1p32F; /* five bits of a shift are kept: a defect */
    double m = (c->is_wide ? WIDE_STEP : WORD_STEP) * (double)multiplier;
    if (arch == ND_HTP_V69)
        return (struct nd_htp_scaling){.beta = floor(bias_and_zero_of(c, multiplier) / WORD_STEP),
                                       .c = nd_multiplier_round(m, 10, ND_ROUND_HALF_UP),
                                       .step = 1};
    double wide = floor((double)bias_in_layers(c, WIDE_STEP) + 0.5);
    return (struct nd_htp_scaling){.beta = c->is_wide ? wide : bias_of(c, WORD_STEP),
                                   .c = nd_multiplier_round(m, 21, ND_ROUND_HALF_UP),
                                   .step = ldexp(1, nd_multiplier_log(m) - 7),
                                   .half = 0.5,
                                   .zero = c->zero_y};
}

struct nd_htp_scaling nd_htp_scaling_whole16(const struct nd_htp_column *c)
{
    float multiplier = multiplier_of(c), zero = (float)c->zero_y / multiplier + 0.5F;
    float unit = (float)c->scale_x * (float)(c->is_per_channel ? c->largest_scale_w : c->scale_w);
    float real = (float)c->bias * unit; /* through real numbers, which moves large ones by one */
    return whole_sum(rint((double)(real * (1 / unit))) + floor((double)zero), multiplier);
}

/* What a sum of one is in real numbers, with something after it: the share comes before the scale of the
 * output. */
static float layer_of(const struct nd_htp_column *c)
{
    float share = c->is_per_channel ? (float)c->scale_w / (float)c->largest_scale_w : (float)c->r;
    return (float)c->scale_x * (float)(c->is_per_channel ? c->largest_scale_w : c->scale_w) * share;
}

static float sloped_multiplier_of(const struct nd_htp_column *c)
{
    return c->is_per_channel ? layer_of(c) / (float)c->scale_y : multiplier_of(c);
}

/* uint8: the range of quantised values on that side of the zero point decides how many bits of the sum are
 * left. */
static struct nd_htp_scaling line8(double m, double range)
{
    enum { SUM_LOG = 12, PRODUCT_BITS = 15, MIN_SHIFT = 1 };
    int exponent = 0;
    if (range > 0)
        frexp(range / m, &exponent);
    int shift = exponent - 1 - SUM_LOG, most = nd_multiplier_log(m) - 3;
    shift = shift < MIN_SHIFT ? MIN_SHIFT : shift;
    shift = shift > most ? most : shift;
    return (struct nd_htp_scaling){
        .c = ldexp(floor(ldexp(m, shift + PRODUCT_BITS) + 0.5), -shift - PRODUCT_BITS),
        .step = ldexp(1, shift),
        .half = 0.5};
}

/* uint16: as without a LeakyRelu, but for a multiplier that is cut. */
static struct nd_htp_scaling line16(double m)
{
    enum { BITS = 21 };
    int log = nd_multiplier_log(m), behind = log + 1 + BITS;
    return (struct nd_htp_scaling){
        .c = ldexp(floor(ldexp(m, behind)), -behind), .step = ldexp(1, log - 7), .half = 0.5};
}

/* With a LeakyRelu or Relu: one of two lines, and what is added before the floor (uint16 is cut). */
struct slopes {
    struct nd_htp_scaling above, below;
    double half;
};

/* Of v73, with a LeakyRelu of that slope, or a Relu (0). False: a multiplier of which it is not known. */
static bool slopes_of(enum nd_dtype dtype, const struct nd_htp_column *c, double slope, struct slopes *slopes)
{
    /* Of uint8: with more, the multiplier has bits that are not known (measured, see the docs). */
    static const float max_of_bytes = 0x1p-4F;
    bool is_word = dtype == ND_DTYPE_U16;
    float above = sloped_multiplier_of(c), below = above * (float)slope;
    *slopes = (struct slopes){.half = is_word ? 0 : 0.5};
    slopes->above = is_word ? line16(WORD_STEP * (double)above) : line8((double)above, UINT8_MAX - c->zero_y);
    slopes->below = slope == 0 ? (struct nd_htp_scaling){.step = 1}
                    : is_word  ? line16(WORD_STEP * (double)below)
                               : line8((double)below, c->zero_y);
    slopes->above.beta = slopes->below.beta = bias_of(c, is_word ? WORD_STEP : 1);
    slopes->above.zero = slopes->below.zero = c->zero_y;
    return above > 0 && slope >= 0 && (is_word || above < max_of_bytes);
}

/* What the gate grows by where n does by one, of that many bits behind the point. Where it has more before
 * them, n has finer steps there. */
static void set_slope(struct nd_htp_gate *gate, double slope, int bits, double most)
{
    slope = rint(ldexp(slope, bits));
    gate->fine_step = gate->step;
    for (; slope >= most; slope = floor(slope / 2))
        gate->fine_step /= 2;
    gate->slope = ldexp(slope, -bits);
}

bool nd_htp_gate_of(enum nd_dtype dtype, const struct nd_htp_column *c, struct nd_htp_gate *gate)
{
    static const struct {
        int product_bits, slope_bits, top_bits;
        double max_of_slope, half;
    } methods[] = {{15, 11, 0, 0x1p12, 0.5}, {27, 25, 2, 0x1p22, 0}};
    static const float sixth = 1.0F / 6;
    bool is_word = dtype == ND_DTYPE_U16;
    int bits = methods[is_word].product_bits, top_bits = methods[is_word].top_bits;
    float multiplier = sloped_multiplier_of(c), slope = multiplier * sixth * layer_of(c);
    if (!(multiplier > 0) || !isfinite(multiplier) || !isfinite(slope))
        return false;
    double size = is_word ? WORD_STEP : 1, m = size * (double)multiplier;
    double step = is_word ? ldexp(1, nd_multiplier_log(m) - 7) : line8(m, UINT8_MAX - c->zero_y).step;
    double top = ldexp(m * step, bits), by_n = ldexp((double)slope * size * step * size * step, bits);
    *gate = (struct nd_htp_gate){.beta = bias_of(c, (float)size),
                                 .step = step,
                                 .middle = floor(top / 2 + 0.5),
                                 .top = ldexp(floor(ldexp(top, top_bits) + 0.5), -top_bits),
                                 .half = methods[is_word].half,
                                 .zero = c->zero_y,
                                 .unit = ldexp(1, -bits),
                                 .most = ldexp(1, bits - 1)};
    set_slope(gate, by_n, methods[is_word].slope_bits, methods[is_word].max_of_slope);
    return true;
}

/* ---- multipliers of 15 bits with a shift, and shifts that round ---- */

float nd_htp_quotient(float a, float b)
{
    float inverse = 1 / b;
    return a * inverse;
}

bool nd_htp_factor_init(struct nd_htp_factor *factor, float value)
{
    enum { GREATEST = 1 << ND_HTP_FACTOR_BITS };
    int exponent; /* value < 2^exponent */
    if (!(value > 0 && isfinite(value)))
        return false;
    double mantissa = frexp((double)value, &exponent);
    *factor = (struct nd_htp_factor){.m = (int64_t)floor(mantissa * GREATEST + 0.5), .exponent = exponent};
    if (factor->m == GREATEST) {
        factor->m /= 2;
        factor->exponent++;
    }
    return true;
}

/* More bits than these are lost or leave the quantised values in any case. */
enum { MAX_RIGHT = 60, MAX_LEFT = 30 };

int64_t nd_htp_shift(int64_t value, int right)
{
    if (right <= 0)
        return value * ((int64_t)1 << (-right < MAX_LEFT ? -right : MAX_LEFT));
    int places = right < MAX_RIGHT ? right : MAX_RIGHT;
    return (value + ((int64_t)1 << (places - 1))) >> places;
}

int64_t nd_htp_shift_cut(int64_t value, int right)
{
    return right <= 0 ? nd_htp_shift(value, right) : value >> (right < MAX_RIGHT ? right : MAX_RIGHT);
}

enum { PIECE_BITS = 14, HALF = 1 << (ND_HTP_PLACE_BITS - 1) };

/* 2^14 / (1 + t), by rising powers of t. Read out of all 16384 normal divisors (gen3, QAIRT 2.51.0). */
static const struct piece {
    int32_t ones, first, second;
    int32_t rounds_ones, rounds_first; /* added before 16 bits are cut off */
} inverse_pieces[] = {
    {16384, -16043, 11794, HALF, 0},
    {16116, -13659, 6555, 0, 0},
    {15527, -11177, 3945, 0, HALF},
    {14774, -9111, 2530, 0, 0},
};

int64_t nd_htp_inverse(int64_t place)
{
    const struct piece *p = &inverse_pieces[place >> PIECE_BITS];
    int64_t sum = p->first + ((p->second * place + p->rounds_first) >> ND_HTP_PLACE_BITS);
    return p->ones + ((sum * place + p->rounds_ones) >> ND_HTP_PLACE_BITS);
}

/* ---- sums with what comes after them ---- */

static double scale_sloped(const struct slopes *slopes, double a, const struct nd_htp_bounds *bounds)
{
    const struct nd_htp_scaling *s = a + slopes->above.beta >= 0 ? &slopes->above : &slopes->below;
    double q = floor((a + s->beta) / s->step);
    double y = floor(s->c * s->step * (q + s->half) + slopes->half) + s->zero;
    return nd_within(y, bounds->low, bounds->high);
}

/* Of a whole number beyond `most` the sign and all bits but the highest two are kept. A defect:
 * docs/results/found.md#hard-swish-wraps. */
static double kept_of(double n, double most)
{
    double half = most / 2, rest = n - floor(n / half) * half;
    if (n >= -most && n < most)
        return n;
    return n < 0 ? rest - most : rest + half;
}

/* n and the number that the gate is made of, which may have more bits, without the half that both have. */
static double gated(const struct nd_htp_gate *gate, double n, double fine, const struct nd_htp_bounds *bounds)
{
    double opened = nd_within(floor((fine + 0.5) * gate->slope) + gate->middle, 0, gate->top);
    double y = floor((n + 0.5) * opened * gate->unit + gate->half) + gate->zero;
    return nd_within(y, bounds->low, bounds->high);
}

/* *wraps becomes true where an n that is too large makes a quantised value more than 1 from what it should be.
 */
static double scale_gated(const struct nd_htp_gate *gate, double a, const struct nd_htp_bounds *bounds,
                          bool *wraps)
{
    double sum = a + gate->beta, n = floor(sum / gate->step), fine = floor(sum / gate->fine_step);
    double kept = kept_of(n, gate->most), qvalue = gated(gate, kept, fine == n ? kept : fine, bounds);
    *wraps |= kept != n && fabs(qvalue - gated(gate, n, fine, bounds)) > 1;
    return qvalue;
}

/* A column with what comes after it. */
struct bent {
    struct slopes slopes;
    struct nd_htp_gate gate;
};

/* False: a multiplier of which it is not known. */
static bool find_bent(const struct nd_htp_job *job, size_t k, const struct nd_htp_column *column,
                      struct bent *bent)
{
    enum nd_dtype dtype = job->layer->dtype;
    return job->after == ND_LAYER_AFTER_HARD_SWISH
               ? nd_htp_gate_of(dtype, column, &bent->gate)
               : slopes_of(dtype, column, job->slopes != NULL ? job->slopes[k] : job->slope, &bent->slopes);
}

bool nd_htp_bend(const struct nd_htp_job *job, size_t k, const struct nd_htp_column *column, size_t n,
                 double *sums)
{
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    struct bent bent;
    bool wraps = false;
    if (!find_bent(job, k, column, &bent))
        return false;
    for (size_t i = 0; i < n; i++)
        sums[i] = job->after == ND_LAYER_AFTER_HARD_SWISH ? scale_gated(&bent.gate, sums[i], &bounds, &wraps)
                                                          : scale_sloped(&bent.slopes, sums[i], &bounds);
    if (job->wraps != NULL)
        *job->wraps |= wraps;
    return true;
}
