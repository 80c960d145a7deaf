/* Tensors in double precision: made, copied, and read from and written to elements of each type. */
#include "arithmetic/operators/array.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/error.h"
#include "core/memory.h"

/* Whether strides can be worked out: the product fits even without the dimensions that are 0. */
static bool has_strides(const struct nd_shape *shape)
{
    size_t n = sizeof(double);
    for (int axis = 0; axis < shape->rank; axis++)
        if (shape->dims[axis] > 0 && !nd_size_mul(n, (size_t)shape->dims[axis], &n))
            return false;
    return n <= PTRDIFF_MAX;
}

static enum nd_status make(struct nd_array *array, enum nd_dtype dtype, const struct nd_shape *shape,
                           bool is_zeroed, struct nd_error *err)
{
    size_t n;
    ND_TRY(nd_shape_n_elems(shape, &n, err));
    if (!has_strides(shape))
        return nd_fail(err, ND_E_SIZE_OVERFLOW, NULL, "a tensor's size does not fit");
    double *x = NULL;
    if (n > 0)
        x = is_zeroed ? nd_tensor_alloc(n * sizeof *x) : nd_tensor_room(n * sizeof *x);
    if (n > 0 && x == NULL)
        return nd_fail_memory(err);
    nd_array_deinit(array);
    *array = (struct nd_array){.shape = *shape, .n = n, .dtype = dtype, .x = x};
    return ND_OK;
}

enum nd_status nd_array_make(struct nd_array *array, enum nd_dtype dtype, const struct nd_shape *shape,
                             struct nd_error *err)
{
    return make(array, dtype, shape, true, err);
}

enum nd_status nd_array_make_room(struct nd_array *array, enum nd_dtype dtype, const struct nd_shape *shape,
                                  struct nd_error *err)
{
    return make(array, dtype, shape, false, err);
}

enum nd_status nd_array_copy(const struct nd_array *from, struct nd_array *to, struct nd_error *err)
{
    ND_TRY(nd_array_make_room(to, from->dtype, &from->shape, err));
    if (from->n > 0)
        memcpy(to->x, from->x, from->n * sizeof *to->x);
    return ND_OK;
}

void nd_array_deinit(struct nd_array *array)
{
    free(array->x);
    *array = (struct nd_array){0};
}

/* Floats that C has no type for: a sign, an exponent with that bias, a fraction. */
struct small_float {
    int fraction_bits;
    int exponent_bits;
    int bias;
    bool has_infinity; /* else the largest exponent holds numbers, too, and only all ones are NaN */
};

static const struct small_float half = {10, 5, 15, true};
static const struct small_float bfloat16 = {7, 8, 127, true};
static const struct small_float e4m3fn = {3, 4, 7, false};
static const struct small_float e5m2 = {2, 5, 15, true};

static double small_load(const struct small_float *format, unsigned bits)
{
    int top = (1 << format->exponent_bits) - 1;
    int exponent = (int)(bits >> format->fraction_bits) & top;
    int fraction = (int)bits & ((1 << format->fraction_bits) - 1);
    double sign = ((bits >> (format->fraction_bits + format->exponent_bits)) & 1) != 0 ? -1.0 : 1.0;
    if (exponent == top && format->has_infinity)
        return fraction != 0 ? (double)NAN : sign * (double)INFINITY;
    if (exponent == top && fraction == (1 << format->fraction_bits) - 1)
        return (double)NAN;
    int least = 1 - format->bias - format->fraction_bits; /* exponent of the last place of a subnormal */
    if (exponent == 0)
        return sign * ldexp(fraction, least);
    return sign * ldexp(fraction + (1 << format->fraction_bits), least + exponent - 1);
}

/* To nearest, ties to even; past the largest number infinity, or NaN where there is none. */
static unsigned small_store(const struct small_float *format, double value)
{
    unsigned top = (1U << format->exponent_bits) - 1;
    unsigned sign = (signbit(value) ? 1U : 0U) << (format->fraction_bits + format->exponent_bits);
    unsigned infinity = top << format->fraction_bits;
    unsigned not_a_number = infinity | (format->has_infinity ? 1U << (format->fraction_bits - 1)
                                                             : (1U << format->fraction_bits) - 1);
    if (isnan(value))
        return sign | not_a_number;
    if (isinf(value))
        return sign | (format->has_infinity ? infinity : not_a_number);
    int exponent;
    frexp(value, &exponent); /* |value| in [0.5, 1) * 2^exponent */
    int least = 1 - format->bias - format->fraction_bits;
    int place = exponent - 1 - format->fraction_bits;
    if (place < least || value == 0)
        place = least;
    /* Up to 2^(fraction_bits + 1): a carry moves on into the exponent by itself. */
    unsigned steps = (unsigned)rint(ldexp(fabs(value), -place));
    unsigned long bits = steps + ((unsigned long)(place - least) << format->fraction_bits);
    if (bits >= (format->has_infinity ? infinity : not_a_number))
        return sign | (format->has_infinity ? infinity : not_a_number);
    return sign | (unsigned)bits;
}

static const struct small_float *small_float_of(enum nd_dtype dtype)
{
    switch (dtype) {
    case ND_DTYPE_F16:
        return &half;
    case ND_DTYPE_BF16:
        return &bfloat16;
    case ND_DTYPE_F8E4M3FN:
        return &e4m3fn;
    case ND_DTYPE_F8E5M2:
        return &e5m2;
    default:
        return NULL;
    }
}

/* memcpy, since the elements need not be aligned. */
#define LOAD_AS(type)                                                                                          \
    do {                                                                                                       \
        type element;                                                                                          \
        memcpy(&element, from + i * sizeof element, sizeof element);                                           \
        x[i] = (double)element;                                                                                \
    } while (0)

static double load_small(enum nd_dtype dtype, const unsigned char *from, size_t i)
{
    uint16_t bits = 0;
    memcpy(&bits, from + i * nd_dtype_size_bytes(dtype), nd_dtype_size_bytes(dtype));
    return small_load(small_float_of(dtype), bits);
}

/* The quantised values that captures and weights mostly hold. False: another type. */
static bool load_qvalues(enum nd_dtype dtype, const unsigned char *from, size_t n, double *restrict x)
{
    if (dtype == ND_DTYPE_U8) {
        nd_gemm_kernels()->spread(from, 0, n, x);
        return true;
    }
    if (dtype == ND_DTYPE_I8) {
        for (size_t i = 0; i < n; i++)
            x[i] = (double)(int8_t)from[i];
        return true;
    }
    for (size_t i = 0; i < n && dtype == ND_DTYPE_U16; i++) {
        uint16_t qvalue;
        memcpy(&qvalue, from + i * sizeof qvalue, sizeof qvalue);
        x[i] = (double)qvalue;
    }
    return dtype == ND_DTYPE_U16;
}

/* Floats of 8 bits: each of them once. */
static void load_small_bytes(enum nd_dtype dtype, const unsigned char *from, size_t n, double *x)
{
    double values[UINT8_MAX + 1];
    for (unsigned bits = 0; bits <= UINT8_MAX; bits++)
        values[bits] = small_load(small_float_of(dtype), bits);
    for (size_t i = 0; i < n; i++)
        x[i] = values[from[i]];
}

void nd_array_load(enum nd_dtype dtype, const void *bytes, size_t n, double *x)
{
    const unsigned char *from = bytes;
    if (load_qvalues(dtype, from, n, x))
        return;
    if (n > UINT8_MAX && nd_dtype_is_float(dtype) && nd_dtype_size_bytes(dtype) == 1) {
        load_small_bytes(dtype, from, n, x);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        switch (dtype) {
        case ND_DTYPE_F32:
            LOAD_AS(float);
            break;
        case ND_DTYPE_F64:
            LOAD_AS(double);
            break;
        case ND_DTYPE_U8:
        case ND_DTYPE_U4:
            LOAD_AS(uint8_t);
            break;
        case ND_DTYPE_I8:
        case ND_DTYPE_I4:
            LOAD_AS(int8_t);
            break;
        case ND_DTYPE_U16:
            LOAD_AS(uint16_t);
            break;
        case ND_DTYPE_I16:
            LOAD_AS(int16_t);
            break;
        case ND_DTYPE_U32:
            LOAD_AS(uint32_t);
            break;
        case ND_DTYPE_I32:
            LOAD_AS(int32_t);
            break;
        case ND_DTYPE_U64:
            LOAD_AS(uint64_t);
            break;
        case ND_DTYPE_I64:
            LOAD_AS(int64_t);
            break;
        case ND_DTYPE_BOOL:
            x[i] = from[i] != 0 ? 1.0 : 0.0;
            break;
        default:
            x[i] = small_float_of(dtype) != NULL ? load_small(dtype, from, i) : (double)NAN;
        }
    }
}

/* Rounded and clipped to low..high, both of which a double can hold; NaN gives 0. */
static double clip(double value, double low, double high)
{
    double rounded = rint(value);
    if (isnan(rounded))
        return 0;
    return rounded < low ? low : rounded > high ? high : rounded;
}

#define STORE_AS(type, value)                                                                                  \
    do {                                                                                                       \
        type element = (type)(value);                                                                          \
        memcpy(to + i * sizeof element, &element, sizeof element);                                             \
    } while (0)

static void store_small(enum nd_dtype dtype, double value, unsigned char *to, size_t i)
{
    const struct small_float *format = small_float_of(dtype);
    uint16_t bits = format != NULL ? (uint16_t)small_store(format, value) : 0;
    size_t size = nd_dtype_size_bytes(dtype);
    for (size_t b = 0; b < size; b++)
        to[i * size + b] = (unsigned char)(bits >> (8 * b));
}

/* 2^63 and 2^64 are the first doubles past the types. */
static int64_t to_i64(double value)
{
    double rounded = rint(value);
    if (isnan(rounded))
        return 0;
    return rounded >= 0x1p63 ? INT64_MAX : rounded < -0x1p63 ? INT64_MIN : (int64_t)rounded;
}

static uint64_t to_u64(double value)
{
    double rounded = rint(value);
    return !(rounded > 0) ? 0 : rounded >= 0x1p64 ? UINT64_MAX : (uint64_t)rounded;
}

static void store_integer(enum nd_dtype dtype, double value, unsigned char *to, size_t i)
{
    switch (dtype) {
    case ND_DTYPE_U8:
        STORE_AS(uint8_t, clip(value, 0, UINT8_MAX));
        break;
    case ND_DTYPE_U4:
        STORE_AS(uint8_t, clip(value, 0, 15));
        break;
    case ND_DTYPE_I8:
        STORE_AS(int8_t, clip(value, INT8_MIN, INT8_MAX));
        break;
    case ND_DTYPE_I4:
        STORE_AS(int8_t, clip(value, -8, 7));
        break;
    case ND_DTYPE_U16:
        STORE_AS(uint16_t, clip(value, 0, UINT16_MAX));
        break;
    case ND_DTYPE_I16:
        STORE_AS(int16_t, clip(value, INT16_MIN, INT16_MAX));
        break;
    case ND_DTYPE_U32:
        STORE_AS(uint32_t, clip(value, 0, UINT32_MAX));
        break;
    case ND_DTYPE_I32:
        STORE_AS(int32_t, clip(value, INT32_MIN, INT32_MAX));
        break;
    case ND_DTYPE_U64:
        STORE_AS(uint64_t, to_u64(value));
        break;
    default:
        STORE_AS(int64_t, to_i64(value));
    }
}

void nd_array_store(enum nd_dtype dtype, const double *x, size_t n, void *bytes)
{
    unsigned char *to = bytes;
    for (size_t i = 0; i < n; i++) {
        if (dtype == ND_DTYPE_F32)
            STORE_AS(float, x[i]);
        else if (dtype == ND_DTYPE_F64)
            STORE_AS(double, x[i]);
        else if (dtype == ND_DTYPE_BOOL)
            to[i] = x[i] != 0 ? 1 : 0;
        else if (nd_dtype_is_integer(dtype))
            store_integer(dtype, x[i], to, i);
        else
            store_small(dtype, x[i], to, i);
    }
}
