#include "record/probes/element.h"

#include <math.h>
#include <string.h>

/* Buffers hold little-endian elements, and are filled and read as they lie in memory. */
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "probes are written for little-endian machines");

static uint32_t bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

uint16_t nd_f16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u)
        return (uint16_t)(sign | 0x7e00u);
    if (magnitude >= 0x477ff000u) /* 65520, half-way between the largest float16 and the next power of two */
        return (uint16_t)(sign | 0x7c00u);
    int exponent = (int)(magnitude >> 23) - 127;
    if (exponent < -25)
        return (uint16_t)sign;
    /* The significand with its hidden bit, cut by 13 bits, or by more where the result is subnormal. */
    unsigned cut = exponent >= -14 ? 13u : 13u + (unsigned)(-14 - exponent);
    uint32_t significand = (magnitude & 0x7fffffu) | 0x800000u;
    uint32_t kept = significand >> cut;
    uint32_t rest = significand & ((1u << cut) - 1u);
    uint32_t half = 1u << (cut - 1u);
    if (rest > half || (rest == half && (kept & 1u) != 0))
        kept++;
    /* kept carries the hidden bit 0x400: adding it to the exponent below it, a carry also lands where it
     * belongs. */
    uint32_t below = exponent >= -14 ? (uint32_t)(exponent + 14) << 10 : 0u;
    return (uint16_t)(sign | (below + kept));
}

uint16_t nd_bf16_from_f32(float value)
{
    uint32_t bits = bits_of(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16);
}

float nd_f32_from_f16(uint16_t bits)
{
    uint32_t sign = (uint32_t)(bits & 0x8000u) << 16;
    uint32_t exponent = bits >> 10 & 0x1fu;
    uint32_t fraction = bits & 0x3ffu;
    if (exponent == 0x1fu)
        return float_of(sign | 0x7f800000u | fraction << 13);
    if (exponent > 0)
        return float_of(sign | (exponent + 112u) << 23 | fraction << 13);
    float magnitude = (float)fraction * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
}

float nd_f32_from_bf16(uint16_t bits)
{
    return float_of((uint32_t)bits << 16);
}

void nd_element_put_float(enum nd_dtype dtype, void *data, size_t i, float value)
{
    size_t size = nd_dtype_size_bytes(dtype);
    unsigned char *at = (unsigned char *)data + i * size;
    uint16_t half = dtype == ND_DTYPE_BF16 ? nd_bf16_from_f32(value) : nd_f16_from_f32(value);
    double wide = (double)value;
    memcpy(at,
           dtype == ND_DTYPE_F32   ? (const void *)&value
           : dtype == ND_DTYPE_F64 ? (const void *)&wide
                                   : &half,
           size);
}

void nd_element_put_bits(enum nd_dtype dtype, void *data, size_t i, uint64_t value)
{
    size_t size = nd_dtype_size_bytes(dtype);
    memcpy((unsigned char *)data + i * size, &value, size);
}

struct nd_code_range nd_code_range_of(enum nd_dtype dtype)
{
    bool is_nibble = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
    unsigned n_bits = is_nibble ? 4 : (unsigned)(8 * nd_dtype_size_bytes(dtype));
    uint64_t largest = UINT64_MAX >> (64u - n_bits);
    if (nd_dtype_is_signed_integer(dtype))
        return (struct nd_code_range){-(int64_t)(largest >> 1) - 1, largest >> 1, n_bits};
    return (struct nd_code_range){0, largest, n_bits};
}

struct nd_code_range nd_code_range_of_input(const struct nd_probe_target *target)
{
    struct nd_code_range range = nd_code_range_of(target->dtype);
    if (target->quant == NULL || target->quant->n == 0 || !nd_dtype_is_integer(target->quant_dtype))
        return range;
    struct nd_code_range codes = nd_code_range_of(target->quant_dtype);
    if (codes.min > range.min)
        range.min = codes.min;
    if (codes.max < range.max)
        range.max = codes.max;
    /* max + 1 is a power of two in every type, and where there are negative codes there are as many again. */
    range.n_bits = (unsigned)__builtin_popcountll(range.max) + (range.min < 0 ? 1u : 0u);
    return range;
}

bool nd_target_has_quantiser(const struct nd_probe_target *target)
{
    return nd_dtype_is_float(target->dtype) && target->quant != NULL && target->quant->n > 0;
}

static bool is_finite_in(enum nd_dtype dtype, double value)
{
    float narrow = (float)value;
    if (dtype == ND_DTYPE_F16)
        narrow = nd_f32_from_f16(nd_f16_from_f32(narrow));
    if (dtype == ND_DTYPE_BF16)
        narrow = nd_f32_from_bf16(nd_bf16_from_f32(narrow));
    return isfinite(narrow);
}

static enum nd_status check_channel(const struct nd_quantiser *quantiser, const struct nd_probe_target *target,
                                    size_t channel, struct nd_error *err)
{
    float scale = quantiser->quant->scale[channel];
    int64_t zero_point = quantiser->quant->zero_point[channel];
    if (!isfinite(scale) || scale <= 0)
        return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                       "the quantiser of input '%s' has the scale %g; scales are finite and above 0",
                       target->name, (double)scale);
    if (zero_point < quantiser->code_min || zero_point > quantiser->code_max)
        return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                       "the quantiser of input '%s' has the zero point %lld, which is no %s", target->name,
                       (long long)zero_point, nd_dtype_name(target->quant_dtype));
    double low = (double)scale * (double)(quantiser->code_min - zero_point);
    double high = (double)scale * (double)(quantiser->code_max - zero_point);
    if (!is_finite_in(target->dtype, low) || !is_finite_in(target->dtype, high))
        return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                       "the quantiser of input '%s' reaches from %g to %g, beyond what %s can hold",
                       target->name, low, high, nd_dtype_name(target->dtype));
    return ND_OK;
}

enum nd_status nd_quantiser_init(struct nd_quantiser *quantiser, const struct nd_probe_target *target,
                                 struct nd_error *err)
{
    const struct nd_quant *quant = target->quant;
    if (!nd_dtype_is_integer(target->quant_dtype) || nd_dtype_size_bytes(target->quant_dtype) > 2)
        return nd_fail(err, ND_E_MODEL_UNSUPPORTED, target->name,
                       "the quantiser of input '%s' makes %s; probes know codes of 8 and 16 bits", target->name,
                       nd_dtype_name(target->quant_dtype));
    struct nd_code_range range = nd_code_range_of(target->quant_dtype);
    struct nd_quantiser made = {quant, range.min, (int64_t)range.max, 1};
    if (quant->n > 1) {
        if (quant->axis < 0 || quant->axis >= target->shape.rank ||
            (uint64_t)target->shape.dims[quant->axis] != quant->n)
            return nd_fail(err, ND_E_MODEL_GRAPH, target->name,
                           "the quantiser of input '%s' has %zu scales on axis %d, where the input has no such "
                           "dimension",
                           target->name, quant->n, quant->axis);
        for (int d = quant->axis + 1; d < target->shape.rank; d++)
            made.n_inner *= (size_t)target->shape.dims[d];
    }
    for (size_t channel = 0; channel < quant->n; channel++) {
        enum nd_status status = check_channel(&made, target, channel, err);
        if (status != ND_OK)
            return status;
    }
    *quantiser = made;
    return ND_OK;
}

size_t nd_quantiser_channel(const struct nd_quantiser *quantiser, size_t i)
{
    return quantiser->quant->n > 1 ? i / quantiser->n_inner % quantiser->quant->n : 0;
}
