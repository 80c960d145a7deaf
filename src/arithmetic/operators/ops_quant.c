/* QuantizeLinear and DequantizeLinear: real = scale * (quantised value - zero_point). */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>

#include "core/tensors/scales.h"

/* Which scale belongs to an element: that of (outer, a, inner) is at outer * outer_stride + a / block *
 * axis_stride
 * + inner * inner_stride. */
struct scales {
    const struct nd_array *scale;
    const struct nd_array *zero_point; /* nullable: 0 */
    size_t n_outer, n_axis, n_inner;
    size_t outer_stride, block, axis_stride, inner_stride;
};

/* One scale per slice of an axis, or (block_size) one per run of elements along it. */
static enum nd_status fit_axis(const struct nd_op_call *call, struct scales *out, struct nd_error *err)
{
    const struct nd_shape *x = &call->inputs[0]->shape, *scale = &out->scale->shape;
    int64_t block = nd_op_i(call, "block_size", 0);
    int axis = 0;
    enum nd_status status = nd_op_axis(call, nd_op_i(call, "axis", 1), x->rank, &axis, err);
    if (status != ND_OK)
        return status;
    out->n_outer = nd_dims_product(x, 0, axis);
    out->n_axis = (size_t)x->dims[axis];
    out->n_inner = nd_dims_product(x, axis + 1, x->rank);
    if (block <= 0) {
        if (scale->rank != 1 || scale->dims[0] != x->dims[axis])
            return nd_op_misfit(call, err, "%zu scales for the %zu elements of axis %d", out->scale->n,
                                out->n_axis, axis);
        out->block = 1;
        out->axis_stride = 1;
        return ND_OK;
    }
    struct nd_shape wanted = *x;
    wanted.dims[axis] = x->dims[axis] / block + (x->dims[axis] % block != 0 ? 1 : 0);
    if (!nd_shape_equal(scale, &wanted))
        return nd_op_misfit(call, err, "scales that do not fit to blocks of %lld", (long long)block);
    out->block = (size_t)block;
    out->inner_stride = 1;
    out->axis_stride = out->n_inner;
    out->outer_stride = out->n_inner * (size_t)wanted.dims[axis];
    return ND_OK;
}

static enum nd_status fit_scales(const struct nd_op_call *call, struct scales *out, struct nd_error *err)
{
    struct scales made = {.scale = call->inputs[1], .zero_point = nd_op_in(call, 2)};
    if (made.zero_point != NULL && made.zero_point->n != made.scale->n)
        return nd_op_misfit(call, err, "%zu scales and %zu zero points", made.scale->n, made.zero_point->n);
    enum nd_status status = ND_OK;
    if (made.scale->n == 1 && nd_op_i(call, "block_size", 0) <= 0) {
        made.n_outer = made.n_axis = made.block = 1;
        made.n_inner = call->inputs[0]->n;
    } else {
        status = fit_axis(call, &made, err);
    }
    if (status == ND_OK)
        *out = made;
    return status;
}

void nd_op_qvalue_range(enum nd_dtype dtype, double *low, double *high)
{
    switch (dtype) {
    case ND_DTYPE_U4:
        *low = 0;
        *high = 15;
        break;
    case ND_DTYPE_I4:
        *low = -8;
        *high = 7;
        break;
    default:
        *high = ldexp(1, 8 * (int)nd_dtype_size_bytes(dtype) - (nd_dtype_is_signed_integer(dtype) ? 1 : 0)) - 1;
        *low = nd_dtype_is_signed_integer(dtype) ? -*high - 1 : 0;
    }
}

/* Half to even, then the zero point, then clipped to the type. NaN, of which the specification says nothing,
 * becomes the least quantised value, as ONNX Runtime's CPU provider has it on x86-64
 * (tools/studies/hold_exact). is_float32: x and scale are float32, and so is their quotient, which may lie on a
 * tie that the exact one does not reach. */
static double quantize(double x, double scale, double zero_point, enum nd_dtype dtype, bool is_float32)
{
    double steps = rint(is_float32 ? (double)((float)x / (float)scale) : x / scale);
    double qvalue = isnan(steps) ? -HUGE_VAL : steps + zero_point;
    double low, high;
    nd_op_qvalue_range(dtype, &low, &high);
    return qvalue < low ? low : qvalue > high ? high : qvalue;
}

/* y of x; dtype is that of the quantised values where y are quantised values, ND_DTYPE_NONE where x are. */
static void convert(const struct scales *s, enum nd_dtype dtype, bool is_float32, const double *x, double *y)
{
    for (size_t outer = 0; outer < s->n_outer; outer++)
        for (size_t a = 0; a < s->n_axis; a++)
            for (size_t inner = 0; inner < s->n_inner; inner++) {
                size_t at = outer * s->outer_stride + a / s->block * s->axis_stride + inner * s->inner_stride;
                double scale = s->scale->x[at], zero_point = s->zero_point != NULL ? s->zero_point->x[at] : 0;
                *y++ = dtype != ND_DTYPE_NONE ? quantize(*x, scale, zero_point, dtype, is_float32)
                                              : scale * (*x - zero_point);
                x++;
            }
}

enum nd_status nd_op_quantize(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *zero_point = nd_op_in(call, 2);
    int64_t named = nd_op_i(call, "output_dtype", 0);
    enum nd_dtype dtype = zero_point != NULL ? zero_point->dtype
                          : named != 0       ? (enum nd_dtype)named
                                             : ND_DTYPE_U8;
    if (!nd_dtype_is_of_qvalues(dtype))
        return nd_op_unsupported(call, err, "quantised values of type %s", nd_dtype_name(dtype));
    struct scales scales;
    enum nd_status status = fit_scales(call, &scales, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, dtype, &x->shape, err);
    if (status == ND_OK)
        convert(&scales, dtype,
                call->is_folded && x->dtype == ND_DTYPE_F32 && scales.scale->dtype == ND_DTYPE_F32, x->x,
                call->outputs[0]->x);
    return status;
}

enum nd_status nd_op_dequantize(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct scales scales;
    enum nd_status status = fit_scales(call, &scales, err);
    if (status == ND_OK)
        status = nd_op_make(call, 0, scales.scale->dtype, &x->shape, err);
    if (status == ND_OK)
        convert(&scales, ND_DTYPE_NONE, false, x->x, call->outputs[0]->x);
    return status;
}
