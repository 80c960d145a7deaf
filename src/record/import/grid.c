#include "record/import/grid.h"

#include <math.h>
#include <string.h>

#include "core/tensors/scales.h"
#include "record/probes/element.h"

/* Two roundings of float32: that of the product and that of a scale or zero point that was added before. */
static const double float32_slack = 0x1p-22;

/* How unlikely it must be that values of a 16-bit type are on the grid by chance, in bits. Chosen: a campaign
 * of a million tensors is then taken in with a chance of one in four thousand. */
static const double needed_bits = 32;

double nd_grid_value(enum nd_dtype dtype, const void *values, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_F16:
        return (double)nd_f32_from_f16(((const uint16_t *)values)[i]);
    case ND_DTYPE_BF16:
        return (double)nd_f32_from_bf16(((const uint16_t *)values)[i]);
    case ND_DTYPE_F32:
        return (double)((const float *)values)[i];
    case ND_DTYPE_F64:
        return ((const double *)values)[i];
    case ND_DTYPE_I8:
    case ND_DTYPE_I4:
        return ((const int8_t *)values)[i];
    case ND_DTYPE_U16:
        return ((const uint16_t *)values)[i];
    case ND_DTYPE_I16:
        return ((const int16_t *)values)[i];
    case ND_DTYPE_U32:
        return ((const uint32_t *)values)[i];
    case ND_DTYPE_I32:
        return ((const int32_t *)values)[i];
    case ND_DTYPE_U64:
        return (double)((const uint64_t *)values)[i];
    case ND_DTYPE_I64:
        return (double)((const int64_t *)values)[i];
    default:
        return ((const uint8_t *)values)[i];
    }
}

static bool range_of(enum nd_dtype dtype, double *low, double *high)
{
    bool is_narrow = dtype == ND_DTYPE_U4 || dtype == ND_DTYPE_I4;
    if (!nd_dtype_is_integer(dtype) && !is_narrow)
        return false;
    int bits = is_narrow ? 4 : 8 * (int)nd_dtype_size_bytes(dtype);
    bool is_signed = dtype == ND_DTYPE_I4 || nd_dtype_is_signed_integer(dtype);
    *low = is_signed ? -ldexp(1, bits - 1) : 0;
    *high = *low + ldexp(1, bits) - 1;
    return bits <= 16;
}

static void put_code(enum nd_dtype dtype, void *codes, size_t i, int code)
{
    switch (dtype) {
    case ND_DTYPE_U16:
        ((uint16_t *)codes)[i] = (uint16_t)code;
        return;
    case ND_DTYPE_I16:
        ((int16_t *)codes)[i] = (int16_t)code;
        return;
    default:
        ((uint8_t *)codes)[i] = (uint8_t)code;
    }
}

static void note_miss(struct nd_grid_miss *miss, size_t i, double value, double nearest)
{
    if (miss == NULL)
        return;
    if (miss->n++ == 0) {
        miss->first = i;
        miss->value = value;
        miss->nearest = nearest;
    }
}

/* Half a step of the value's own type, relative to the value. */
static double slack_of(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 ? 0x1p-11 : dtype == ND_DTYPE_BF16 ? 0x1p-8 : float32_slack;
}

static bool is_narrow_float(enum nd_dtype dtype)
{
    return dtype == ND_DTYPE_F16 || dtype == ND_DTYPE_BF16;
}

bool nd_grid_codes(const struct nd_grid *grid, enum nd_dtype dtype, const void *values, size_t n, void *codes,
                   struct nd_grid_miss *miss)
{
    double low, high, bits = 0, slack = slack_of(dtype);
    size_t inner = nd_quant_inner(grid->quant, &grid->shape);
    bool is_on = range_of(grid->codes, &low, &high) && grid->quant->n > 0;
    if (miss != NULL)
        *miss = (struct nd_grid_miss){0};
    for (size_t i = 0; is_on && i < n; i++) {
        size_t c = grid->quant->n > 1 ? i / inner % grid->quant->n : 0;
        double scale = (double)grid->quant->scale[c], zero = (double)grid->quant->zero_point[c];
        double value = nd_grid_value(dtype, values, i);
        double code = fmin(fmax(nearbyint(value / scale) + zero, low), high), real = (code - zero) * scale;
        double room = fabs(real) * slack;
        if (!(fabs(value - real) <= room) || (value == 0 && signbit(value))) { /* NaN, too */
            note_miss(miss, i, value, real);
            is_on = miss != NULL && miss->n < n; /* goes on to count them */
            continue;
        }
        if (real != 0)
            bits -= log2(fmin(2 * room / scale, 1));
        if (codes != NULL)
            put_code(grid->codes, codes, i, (int)code);
    }
    return is_on && (miss == NULL || miss->n == 0) && (!is_narrow_float(dtype) || bits >= needed_bits);
}

bool nd_grid_whole_codes(enum nd_dtype codes_dtype, enum nd_dtype dtype, const void *values, size_t n,
                         void *codes, struct nd_grid_miss *miss)
{
    double low, high;
    *miss = (struct nd_grid_miss){0};
    if (!range_of(codes_dtype, &low, &high))
        return false;
    for (size_t i = 0; i < n; i++) {
        double value = nd_grid_value(dtype, values, i);
        double code = fmin(fmax(nearbyint(value), low), high);
        if (!(code == value))
            note_miss(miss, i, value, code);
        else
            put_code(codes_dtype, codes, i, (int)code);
    }
    return miss->n == 0;
}
