/* How a side of a pair is stored, and what its values mean: types, scales, zero points.
 * docs/reference/metrics.md#sums and #mixed-types. */
#include "compare/metrics/layout.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "core/error.h"

/* Float types: their ranges, and how many of their values apart two numbers are. docs/reference/metrics.md#ulp.
 */

static const struct nd_float_format formats[] = {
    {ND_DTYPE_F8E4M3FN, 4, 3, 448},    {ND_DTYPE_F8E5M2, 5, 2, 57344}, {ND_DTYPE_F16, 5, 10, 65504},
    {ND_DTYPE_BF16, 8, 7, 0x1.fep127}, {ND_DTYPE_F32, 8, 23, FLT_MAX}, {ND_DTYPE_F64, 11, 52, DBL_MAX},
};

const struct nd_float_format *nd_float_format(enum nd_dtype dtype)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i].dtype == dtype)
            return &formats[i];
    return NULL;
}

double nd_float_max(const struct nd_float_format *format)
{
    return format->max;
}

static int min_exponent(const struct nd_float_format *format)
{
    return 2 - (1 << (format->exponent_bits - 1));
}

double nd_float_min_normal(const struct nd_float_format *format)
{
    return ldexp(1, min_exponent(format));
}

/* Of a finite value >= 0. The fraction is made whole by scaling with a power of two, which is exact, and
 * rounded once; a carry into the next exponent comes out right by itself. */
static int64_t magnitude_of(const struct nd_float_format *format, double value)
{
    int exponent, least = min_exponent(format);
    frexp(value, &exponent); /* value = f * 2^exponent, f in [0.5, 1) */
    exponent = value == 0 || exponent - 1 < least ? least : exponent - 1;
    double whole = nearbyint(ldexp(value, format->fraction_bits - exponent));
    return ((int64_t)(exponent - least) << format->fraction_bits) + (int64_t)whole;
}

/* The ordered integer of `value` rounded to the format (nearest, ties to even): neighbouring floats differ by
 * 1, both zeros are 0, and what is beyond the largest finite value is one more than that. value is not NaN. */
static int64_t ordered(const struct nd_float_format *format, double value)
{
    int64_t magnitude;
    if (format->dtype == ND_DTYPE_F64) {
        double positive = fabs(value);
        memcpy(&magnitude, &positive, sizeof magnitude);
    } else {
        int64_t beyond = magnitude_of(format, format->max) + 1;
        magnitude = isinf(value) ? beyond : magnitude_of(format, fabs(value));
        magnitude = magnitude < beyond ? magnitude : beyond;
    }
    return value < 0 ? -magnitude : magnitude;
}

uint64_t nd_float_distance_in(const struct nd_float_format *format, double a, double b)
{
    int64_t x = ordered(format, a), y = ordered(format, b);
    return x > y ? (uint64_t)x - (uint64_t)y : (uint64_t)y - (uint64_t)x;
}

static enum nd_status set_channels(const struct nd_tensor *tensor, struct nd_layout *layout,
                                   struct nd_error *err)
{
    const struct nd_quant *quant = &tensor->quant;
    if (quant->n == 0 || layout->is_float)
        return ND_OK; /* plain numbers; a float is compared as it is */
    layout->n_channels = quant->n;
    layout->scale = quant->scale;
    layout->zero_point = quant->zero_point;
    if (quant->n == 1) {
        layout->zero = (double)quant->zero_point[0];
        layout->unit = (double)quant->scale[0];
        return ND_OK;
    }
    if (quant->axis < 0 || quant->axis >= tensor->shape.rank ||
        tensor->shape.dims[quant->axis] != (int64_t)quant->n)
        return nd_fail(err, ND_E_CAPTURE_SCHEMA, tensor->name,
                       "tensor '%s' has %zu scales on axis %d, which do not fit its shape", tensor->name,
                       quant->n, quant->axis);
    layout->is_real = true;
    for (int i = quant->axis + 1; i < tensor->shape.rank; i++)
        layout->inner *= (size_t)tensor->shape.dims[i]; /* fits: the whole shape does, or it is empty */
    return ND_OK;
}

static void set_range(struct nd_layout *layout)
{
    layout->tiny = DBL_TRUE_MIN;
    const struct nd_float_format *format = nd_float_format(layout->dtype);
    if (format != NULL) {
        layout->high = nd_float_max(format);
        layout->low = -layout->high;
        layout->tiny = nd_float_min_normal(format);
        return;
    }
    int n_bits = layout->dtype == ND_DTYPE_BOOL                                 ? 1
                 : layout->dtype == ND_DTYPE_U4 || layout->dtype == ND_DTYPE_I4 ? 4
                                                                                : 8 * (int)layout->elem_bytes;
    bool is_signed = nd_dtype_is_signed_integer(layout->dtype);
    layout->low = is_signed ? -ldexp(1, n_bits - 1) : 0;
    layout->high = ldexp(1, is_signed ? n_bits - 1 : n_bits) - 1; /* of 64 bits: rounded like the values are */
}

enum nd_status nd_layout_make(const struct nd_tensor *tensor, struct nd_layout *layout, struct nd_error *err)
{
    struct nd_layout made = {.dtype = tensor->dtype, .shape = tensor->shape, .inner = 1, .unit = 1};
    ND_TRY(nd_shape_size_bytes(&tensor->shape, tensor->dtype, &made.sample_bytes, err));
    ND_TRY(nd_shape_n_elems(&tensor->shape, &made.n_elems, err));
    enum nd_status status = ND_OK;
    made.kind = nd_elem_kind_of(tensor->dtype);
    made.elem_bytes = nd_dtype_size_bytes(tensor->dtype);
    made.is_float = nd_dtype_is_float(tensor->dtype);
    if (made.n_elems > 0)
        status = set_channels(tensor, &made, err);
    set_range(&made);
    if (status == ND_OK)
        *layout = made;
    return status;
}

void nd_layout_make_real(struct nd_layout *layout)
{
    if (layout->is_float || layout->is_real || layout->n_channels == 0)
        return;
    layout->is_real = true;
    layout->zero = 0;
    layout->unit = 1;
}

void nd_layout_load(const struct nd_layout *layout, const struct nd_kernels *kernels,
                    const unsigned char *bytes, size_t first, size_t n, double *x)
{
    kernels->load[layout->kind](bytes, n, layout->zero, x);
    if (layout->is_real) {
        /* Quantised values to real values: one channel per run of `inner` elements. */
        size_t channel = first / layout->inner % layout->n_channels,
               left = layout->inner - first % layout->inner;
        for (size_t i = 0; i < n; i++) {
            x[i] = (double)layout->scale[channel] * (x[i] - (double)layout->zero_point[channel]);
            if (--left == 0) {
                left = layout->inner;
                channel = channel + 1 < layout->n_channels ? channel + 1 : 0;
            }
        }
    }
}

bool nd_layout_is_narrow(const struct nd_layout *layout)
{
    return !layout->is_float && layout->elem_bytes < 8 && !layout->is_real && fabs(layout->zero) <= 0x1p31;
}

bool nd_layout_is_less(const struct nd_layout *layout, const unsigned char *a, const unsigned char *b, size_t i)
{
    size_t elem_bytes = layout->elem_bytes;
    uint64_t x = 0, y = 0;
    memcpy(&x, a + i * elem_bytes, elem_bytes); /* little endian */
    memcpy(&y, b + i * elem_bytes, elem_bytes);
    if (!nd_dtype_is_signed_integer(layout->dtype))
        return x < y;
    int unused_bits = 64 - 8 * (int)elem_bytes;
    return (int64_t)(x << unused_bits) < (int64_t)(y << unused_bits);
}

double nd_layout_stored(const struct nd_layout *layout, const unsigned char *bytes)
{
    double value;
    const struct nd_kernels *const *all;
    nd_kernels_available(&all);
    all[0]->load[layout->kind](bytes, 1, 0, &value);
    return value;
}

void nd_layout_coordinates(const struct nd_shape *shape, size_t index, int64_t *coordinates)
{
    for (int i = shape->rank - 1; i >= 0; i--) {
        coordinates[i] = (int64_t)(index % (size_t)shape->dims[i]);
        index /= (size_t)shape->dims[i];
    }
}

/* ---- whether a sample is the other one with its axes exchanged. docs/reference/metrics.md#structure ---- */

enum { MAX_LONG = 6 };

struct long_dims {
    size_t n;
    int dims[ND_MAX_RANK];
};

static struct long_dims find_long(const struct nd_shape *shape)
{
    struct long_dims found = {0};
    for (int i = 0; i < shape->rank; i++)
        if (shape->dims[i] > 1)
            found.dims[found.n++] = i;
    return found;
}

static uint64_t factorial(size_t n)
{
    return n < 2 ? 1 : n * factorial(n - 1);
}

/* The order of that number: order[i] is which of the n things comes at place i. */
static void decode(size_t n, uint64_t number, size_t *order)
{
    bool is_used[ND_MAX_RANK] = {false};
    for (size_t i = 0; i < n; i++) {
        uint64_t block = factorial(n - 1 - i), skip = number / block;
        number %= block;
        for (size_t k = 0; k < n; k++) {
            if (is_used[k] || skip-- > 0)
                continue;
            order[i] = k;
            is_used[k] = true;
            break;
        }
    }
}

/* Walks the test in C order; the reference's place moves by the strides of the exchanged dimensions. */
static bool is_permuted(const struct nd_shape *shape, const struct long_dims *dims, const size_t *order,
                        size_t elem_bytes, const unsigned char *ref, const unsigned char *test)
{
    size_t extents[ND_MAX_RANK], strides[ND_MAX_RANK], at[ND_MAX_RANK] = {0}, n = 1;
    for (size_t i = dims->n; i-- > 0;) {
        strides[i] = n;
        extents[i] = (size_t)shape->dims[dims->dims[i]];
        n *= extents[i];
    }
    size_t offset = 0;
    for (size_t k = 0; k < n; k++) {
        if (memcmp(ref + offset * elem_bytes, test + k * elem_bytes, elem_bytes) != 0)
            return false;
        for (size_t i = dims->n; i-- > 0;) {
            offset += strides[order[i]];
            if (++at[i] < extents[order[i]])
                break;
            offset -= at[i] * strides[order[i]];
            at[i] = 0;
        }
    }
    return true;
}

uint64_t nd_permutation_find(const struct nd_shape *shape, size_t elem_bytes, const unsigned char *ref,
                             const unsigned char *test)
{
    struct long_dims dims = find_long(shape);
    if (dims.n > MAX_LONG)
        return 0;
    for (uint64_t number = 1; number < factorial(dims.n); number++) {
        size_t order[ND_MAX_RANK];
        decode(dims.n, number, order);
        if (is_permuted(shape, &dims, order, elem_bytes, ref, test))
            return number;
    }
    return 0;
}

void nd_permutation_describe(const struct nd_shape *shape, uint64_t number, int *permutation)
{
    struct long_dims dims = find_long(shape);
    size_t order[ND_MAX_RANK];
    for (int i = 0; i < shape->rank; i++)
        permutation[i] = i;
    if (number >= factorial(dims.n))
        return; /* no permutation of this shape: a part may hold any number */
    decode(dims.n, number, order);
    for (size_t i = 0; i < dims.n; i++)
        permutation[dims.dims[i]] = dims.dims[order[i]];
}
