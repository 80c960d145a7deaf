/* From the sum of a column to its code: bias, multiplier and shift.
 * docs/science/htp-arithmetic.md#products-conv-gemm-matmul. F is one operation on float32. */
#include <math.h>

#include "arith/htp_internal.h"
#include "arith/requantise.h"

/* The bias in units of the accumulator, `unit` float32 products of scales each. With weights per channel all
 * biases are first brought to one scale, which the greatest of them decides. */
static double bias_of(const struct nd_htp_column *c, float unit)
{
    if (c->bias_scale <= 0)
        return 0;
    if (!c->is_per_channel)
        return trunc((double)((float)c->bias * (float)c->bias_scale / unit));
    if (c->largest_bias <= 0)
        return 0;
    float real = (float)c->bias * (float)c->largest_bias_scale;
    float step = (float)(c->largest_bias * 0x1p-28);
    float rounded = rintf(real * (1 / step)) * step;
    return trunc((double)(rounded / unit));
}

bool nd_htp_is_bias_unsure(enum nd_htp_arch arch, const struct nd_htp_column *c)
{
    return arch == ND_HTP_V73 && c->is_per_channel && c->bias_scale > 0 && c->bias != 0;
}

/* In the product of the two scales. */
static double exact_bias(const struct nd_htp_column *c)
{
    return c->bias_scale > 0 ? c->bias * c->bias_scale / (c->scale_x * c->scale_w * c->r) : 0;
}

struct nd_htp_scaling nd_htp_scaling8(enum nd_htp_arch arch, const struct nd_htp_column *c)
{
    double m = c->scale_x * c->scale_w / c->scale_y * c->r;
    int shift = nd_multiplier_log(m) - 3;
    if (arch == ND_HTP_V69) /* the zero point goes into the accumulator, and the shift only to the right */
        return (struct nd_htp_scaling){.beta = rint(exact_bias(c) + c->zero_y / m),
                                       .c = nd_multiplier_round(m, 10, ND_ROUND_HALF_EVEN),
                                       .step = ldexp(1, shift > 0 ? shift : 0)};
    double scale_w = c->is_per_channel ? c->largest_scale_w : c->scale_w;
    float unit = (float)c->scale_x * (float)scale_w * (float)c->r;
    return (struct nd_htp_scaling){.beta = bias_of(c, unit),
                                   .c = nd_multiplier_round(m, 11, ND_ROUND_HALF_EVEN),
                                   .step = ldexp(1, shift),
                                   .half = 0.5,
                                   .zero = c->zero_y};
}

struct nd_htp_scaling nd_htp_scaling16(enum nd_htp_arch arch, const struct nd_htp_column *c)
{
    if (arch == ND_HTP_V69) {
        double m = 256 * c->scale_x * c->scale_w / c->scale_y * c->r;
        return (struct nd_htp_scaling){.beta = floor(exact_bias(c) / 256 + c->zero_y / m),
                                       .c = nd_multiplier_round(m, 10, ND_ROUND_HALF_EVEN),
                                       .step = 1};
    }
    double scale_w = c->is_per_channel ? c->largest_scale_w : c->scale_w;
    float share = c->is_per_channel ? (float)(c->scale_w / c->largest_scale_w) : (float)c->r;
    float product = (float)c->scale_x * (float)scale_w;
    double m = 256 * (double)(product / (float)c->scale_y * share);
    return (struct nd_htp_scaling){.beta = bias_of(c, product * (float)c->r * 256),
                                   .c = nd_multiplier_round(m, 21, ND_ROUND_HALF_UP),
                                   .step = ldexp(1, nd_multiplier_log(m) - 7),
                                   .half = 0.5,
                                   .zero = c->zero_y};
}
