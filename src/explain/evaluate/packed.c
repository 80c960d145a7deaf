/* Quantised values in their own width, while they wait for their use. */
#include "explain/evaluate/packed.h"

#include "arithmetic/exact/linear/rounding.h"
#include "arithmetic/operators/kernels/gemm_kernels.h"
#include "core/memory.h"

size_t nd_packed_width(enum nd_dtype dtype)
{
    return nd_dtype_is_integer(dtype) && nd_dtype_size_bytes(dtype) <= 2 ? nd_dtype_size_bytes(dtype)
                                                                         : sizeof(double);
}

/* Less the least quantised value of the type. False: a value that is no quantised value of it. */
static bool store_bytes(const struct nd_array *values, double low, uint8_t *out)
{
    return nd_gemm_kernels()->narrow(values->x, low, values->n, out);
}

static bool store_words(const struct nd_array *values, double low, uint16_t *out)
{
    return nd_gemm_kernels()->narrow_words(values->x, low, values->n, out);
}

static double min_of(const struct nd_packed *packed)
{
    double low, high;
    nd_qvalue_range(packed->tensor_view.dtype, &low, &high);
    return low;
}

/* Room of another size is given back. */
static enum nd_status make_room(struct nd_packed *packed, size_t n, size_t width, struct nd_error *err)
{
    size_t bytes;
    if (packed->bytes != NULL && packed->tensor_view.n == n && packed->width == width)
        return ND_OK;
    nd_packed_deinit(packed);
    ND_TRY_MEMORY(nd_size_mul(n, width, &bytes), err);
    packed->bytes = nd_tensor_room(bytes);
    packed->tensor_view.n = n;
    packed->width = width;
    return packed->bytes != NULL ? ND_OK : nd_fail_memory(err);
}

enum nd_status nd_pack(const struct nd_array *values, struct nd_packed *to, struct nd_error *err)
{
    size_t width = nd_packed_width(values->dtype);
    enum nd_status status = make_room(to, values->n, width, err);
    to->tensor_view = (struct nd_array){.shape = values->shape, .n = values->n, .dtype = values->dtype};
    if (status != ND_OK)
        return status;
    if (width == 1 && store_bytes(values, min_of(to), to->bytes))
        return ND_OK;
    if (width == 2 && store_words(values, min_of(to), to->bytes))
        return ND_OK;
    status = make_room(to, values->n, sizeof(double), err);
    if (status == ND_OK && values->n > 0)
        memcpy(to->bytes, values->x, values->n * sizeof(double));
    return status;
}

void nd_unpack(const struct nd_packed *packed, double *out)
{
    size_t n = packed->tensor_view.n;
    double low = packed->width <= 2 ? min_of(packed) : 0;
    const uint8_t *bytes = packed->bytes;
    const uint16_t *words = packed->bytes;
    if (packed->width == 1)
        nd_gemm_kernels()->spread(bytes, low, n, out);
    if (packed->width == 2)
        nd_gemm_kernels()->spread_words(words, low, n, out);
    if (packed->width > 2 && n > 0)
        memcpy(out, packed->bytes, n * sizeof *out);
}

void nd_packed_deinit(struct nd_packed *packed)
{
    free(packed->bytes);
    packed->bytes = NULL;
    packed->width = 0;
}
