/* The floats of the HTP: sums and products of qf32, and quantised values as float16
 * (docs/science/htp-arithmetic.md#floats). The rules of rounding are those that the architecture's public
 * simulator, QEMU's Hexagon target, has; docs/science/htp-arithmetic.md#qfloat says how they were held against
 * the HTP's simulator. */
#include <math.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"

/* Of a qf32 and of a qf16. A zero becomes one unit of the least exponent. */
struct format {
    int fraction_bits, min_exponent;
};
static const struct format wide = {23, -127}, half = {10, -15};

/* What is left of a significand when a multiple of four units is taken away becomes 1, 2 or 3; -1, if the
 * significand is a little less than it appears. At these thresholds `rest` decides: what a double cannot hold.
 */
static const double at_one = 1.5, at_two = 2.5, at_two_of_wide = 2;

static struct nd_qfloat rounded(double significand, int exponent, double rest, struct format format)
{
    int bits = format.fraction_bits;
    if (significand == 0 && rest == 0)
        return (struct nd_qfloat){ldexp(1, -bits), format.min_exponent};
    bool is_wide = fabs(significand) >= 2 && significand != -2;
    double units = ldexp(significand, is_wide ? bits - 1 : bits);
    double fours = 4 * floor(units / 4), left = units - fours, end = is_wide ? at_two_of_wide : at_one;
    if (is_wide)
        exponent++;
    if (left == 0 && rest < 0)
        left = -1;
    else if (left < end || (left == end && rest <= 0))
        left = 1;
    else if (!is_wide && (left < at_two || (left == at_two && rest <= 0)))
        left = 2; /* an odd number of units of twice the size */
    else
        left = 3;
    struct nd_qfloat result = {ldexp(fours + left, -bits), exponent};
    if (left == 2) {
        result.significand /= 2;
        result.exponent++;
    }
    return result;
}

struct nd_qfloat nd_qfloat_read(float value)
{
    struct nd_qfloat a = {0, wide.min_exponent + 1};
    if (value != 0) {
        a.significand = 2 * frexp((double)value, &a.exponent);
        a.exponent--;
    }
    return a;
}

struct nd_qfloat nd_qfloat_from(float value)
{
    struct nd_qfloat a = nd_qfloat_read(fabsf(value));
    a = rounded(a.significand, a.exponent, 0, wide);
    if (signbit(value))
        a.significand = -a.significand;
    return a;
}

static struct nd_qfloat product(struct nd_qfloat a, struct nd_qfloat b, struct format format)
{
    return rounded(a.significand * b.significand, a.exponent + b.exponent, 0, format);
}

/* The exponent of a sum: that of the greater operand's leading bit, or the other's. */
static int exponent_of(struct nd_qfloat greater, struct nd_qfloat other, struct format format)
{
    int lead = greater.significand == 0 ? -format.fraction_bits - 1 : ilogb(greater.significand);
    int exponent = greater.exponent + lead;
    return exponent < other.exponent ? other.exponent : exponent;
}

static struct nd_qfloat sum(struct nd_qfloat a, struct nd_qfloat b, struct format format)
{
    struct nd_qfloat greater = a.exponent > b.exponent ? a : b, other = a.exponent > b.exponent ? b : a;
    int exponent = exponent_of(greater, other, format);
    double x = ldexp(greater.significand, greater.exponent - exponent),
           y = ldexp(other.significand, other.exponent - exponent), both = x + y;
    return rounded(both, exponent, (x - both) + y, format);
}

struct nd_qfloat nd_qfloat_product(struct nd_qfloat a, struct nd_qfloat b)
{
    return product(a, b, wide);
}

struct nd_qfloat nd_qfloat_sum(struct nd_qfloat a, struct nd_qfloat b)
{
    return sum(a, b, wide);
}

double nd_qfloat_value(struct nd_qfloat a)
{
    return ldexp(a.significand, a.exponent);
}

struct nd_qfloat nd_qhalf_of_whole(double n)
{
    return rounded(ldexp(n, -half.fraction_bits), half.fraction_bits, 0, half);
}

float nd_qhalf_between(float a, float b, float weight)
{
    struct nd_qfloat from = nd_qfloat_read(a), to = nd_qfloat_read(b);
    bool are_negative = !signbit(a) && signbit(b); /* both terms of b - a: their magnitudes are added */
    struct nd_qfloat step = are_negative ? nd_qfloat_minus(sum(from, nd_qfloat_minus(to), half))
                                         : sum(to, nd_qfloat_minus(from), half);
    return (float)nd_qfloat_value(sum(from, product(step, nd_qfloat_read(weight), half), half));
}

/* ---- float16 ---- */

enum {
    HALF_BITS = 10,      /* of float16, behind the leading one */
    MIN_NORMAL = -14,    /* log2 of the least float16 that has them all */
    SUBNORMAL_BITS = 24, /* behind the point, of those below */
};

double nd_htp_round_to_half(double v, enum nd_rounding rounding)
{
    return v == 0 ? v : copysign(nd_multiplier_round(fabs(v), HALF_BITS, rounding), v);
}

double nd_htp_as_half(double v, enum nd_rounding rounding)
{
    if (fabs(v) < ldexp(1, MIN_NORMAL)) {
        double units = nd_round_value(ldexp(fabs(v), SUBNORMAL_BITS), rounding);
        return copysign(ldexp(units, -SUBNORMAL_BITS), v);
    }
    return nd_htp_round_to_half(v, rounding);
}

double nd_htp_steps_of_half(double v, float inverse)
{
    return nd_qfloat_value(nd_qfloat_product(nd_qfloat_from((float)v), nd_qfloat_from(inverse)));
}

double nd_htp_qvalue_of_half(const struct nd_htp_job *job, double value, bool is_down)
{
    const struct nd_quant *y = job->call->out_quant;
    double steps = nd_htp_steps_of_half(nd_htp_round_to_half(value, ND_ROUND_HALF_EVEN), 1 / y->scale[0]);
    if (job->layer->dtype != ND_DTYPE_U16)
        steps = is_down ? floor(steps) : nd_htp_round_to_half(steps, ND_ROUND_HALF_EVEN);
    return nd_htp_half_away(steps) + (double)y->zero_point[0];
}

/* n less the zero point: of uint8 n F16(s), of uint16 the qf32 (n + 0) Q(s); halves away from zero. */
double nd_htp_half_of_qvalue(const struct nd_linear_input *input, size_t i)
{
    double n = input->values->x[i] - (double)input->quant->zero_point[0], real;
    float scale = input->quant->scale[0];
    if (nd_dtype_size_bytes(input->values->dtype) == 1)
        real = n * nd_htp_as_half((double)scale, ND_ROUND_HALF_EVEN);
    else
        real = nd_qfloat_value(nd_qfloat_product(nd_qfloat_sum(nd_qfloat_read((float)n), nd_qfloat_read(0)),
                                                 nd_qfloat_from(scale)));
    return n != 0 ? nd_htp_round_to_half(real, ND_ROUND_HALF_AWAY) : 0;
}
