/* Operators of quantised values: QuantizeLinear and DequantizeLinear, real = scale * (quantised value -
 * zero_point); ConvInteger and MatMulInteger, which are sums of products; QLinearConv and QLinearMatMul, which
 * round these sums. */
#include <math.h>

#include "arithmetic/operators/ops_shared.h"
#include "core/memory.h"
#include "core/tensors/scales.h"

/* ---- scales and zero points ---- */

/* Which scale belongs to an element: that of (outer, a, inner) is at outer * outer_stride + a / block *
 * axis_stride + inner * inner_stride. */
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
    ND_TRY(nd_op_axis(call, nd_op_i(call, "axis", 1), x->rank, &axis, err));
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
    if (made.scale->n == 1 && nd_op_i(call, "block_size", 0) <= 0) {
        made.n_outer = made.n_axis = made.block = 1;
        made.n_inner = call->inputs[0]->n;
    } else {
        ND_TRY(fit_axis(call, &made, err));
    }
    *out = made;
    return ND_OK;
}

/* The least and the greatest quantised value of an integer type. */
static void find_qvalue_range(enum nd_dtype dtype, double *low, double *high)
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
    find_qvalue_range(dtype, &low, &high);
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

static enum nd_status nd_op_quantize(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0], *zero_point = nd_op_in(call, 2);
    int64_t named = nd_op_i(call, "output_dtype", 0);
    enum nd_dtype dtype = zero_point != NULL ? zero_point->dtype
                          : named != 0       ? (enum nd_dtype)named
                                             : ND_DTYPE_U8;
    if (!nd_dtype_is_of_qvalues(dtype))
        return nd_op_unsupported(call, err, "quantised values of type %s", nd_dtype_name(dtype));
    struct scales scales;
    ND_TRY(fit_scales(call, &scales, err));
    ND_TRY(nd_op_make(call, 0, dtype, &x->shape, err));
    convert(&scales, dtype, call->is_folded && x->dtype == ND_DTYPE_F32 && scales.scale->dtype == ND_DTYPE_F32,
            x->x, call->outputs[0]->x);
    return ND_OK;
}

static enum nd_status nd_op_dequantize(const struct nd_op_call *call, struct nd_error *err)
{
    const struct nd_array *x = call->inputs[0];
    struct scales scales;
    ND_TRY(fit_scales(call, &scales, err));
    ND_TRY(nd_op_make(call, 0, scales.scale->dtype, &x->shape, err));
    convert(&scales, ND_DTYPE_NONE, false, x->x, call->outputs[0]->x);
    return ND_OK;
}

/* ---- products of quantised values ---- */

/* An operand as quantised values less zero point; and where its parts are among the inputs. */
struct operand {
    size_t qvalues, scale, zero_point; /* scale: SIZE_MAX for sums */
    int axis;                          /* that may have a zero point and scale each */
    struct nd_array packed_weights;
};

static bool is_rounded(const struct nd_op_call *call)
{
    return nd_op_is(call, "QLinearConv") || nd_op_is(call, "QLinearMatMul");
}

/* The parameter of an element that lies at `channel` on the axis; 0 when there is none. */
static double parameter(const struct nd_array *values, size_t channel)
{
    return values == NULL ? 0 : values->x[values->n == 1 ? 0 : channel];
}

static enum nd_status take_packed_weights(const struct nd_op_call *call, struct operand *operand,
                                          struct nd_error *err)
{
    const struct nd_array *qvalues = call->inputs[operand->qvalues],
                          *zero = nd_op_in(call, operand->zero_point);
    int rank = qvalues->shape.rank, axis = operand->axis < 0 ? rank - 1 : operand->axis;
    size_t n_channels = axis >= 0 && axis < rank ? (size_t)qvalues->shape.dims[axis] : 1;
    size_t inner = rank > 0 ? nd_dims_product(&qvalues->shape, axis + 1, rank) : 1;
    if (zero != NULL && zero->n != 1 && zero->n != n_channels)
        return nd_op_misfit(call, err, "%zu zero points for %zu channels", zero->n, n_channels);
    ND_TRY(nd_array_make(&operand->packed_weights, ND_DTYPE_F64, &qvalues->shape, err));
    for (size_t i = 0; i < qvalues->n; i++)
        operand->packed_weights.x[i] = qvalues->x[i] - parameter(zero, i / inner % n_channels);
    return ND_OK;
}

/* Half to even, then the zero point, then the type. */
static enum nd_status round_sums(const struct nd_op_call *call, const struct operand operands[2],
                                 const struct nd_array *sums, int axis, struct nd_error *err)
{
    const struct nd_array *a = nd_op_in(call, operands[0].scale), *b = nd_op_in(call, operands[1].scale);
    const struct nd_array *scale = nd_op_in(call, 6), *zero = nd_op_in(call, 7);
    int rank = sums->shape.rank;
    axis = axis < 0 ? rank - 1 : axis;
    size_t n_channels = axis >= 0 ? (size_t)sums->shape.dims[axis] : 1,
           inner = rank > 0 ? nd_dims_product(&sums->shape, axis + 1, rank) : 1;
    if (a->n != 1 || scale->n != 1 || zero->n != 1 || (b->n != 1 && b->n != n_channels))
        return nd_op_unsupported(call, err, "scales of these axes");
    double low, high;
    enum nd_status status = nd_op_make(call, 0, zero->dtype, &sums->shape, err);
    find_qvalue_range(zero->dtype, &low, &high);
    for (size_t i = 0; status == ND_OK && i < sums->n; i++) {
        double steps = sums->x[i] * a->x[0] * parameter(b, i / inner % n_channels) / scale->x[0];
        call->outputs[0]->x[i] = fmin(fmax(rint(steps) + zero->x[0], low), high);
    }
    return status;
}

/* axis: of the channels of the result. */
static enum nd_status run_product(const struct nd_op_call *call, nd_op_function *product, int weights_axis,
                                  int axis, struct nd_error *err)
{
    struct operand operands[2] = {{.qvalues = 0, .scale = SIZE_MAX, .zero_point = 2, .axis = -1},
                                  {.qvalues = 1, .scale = SIZE_MAX, .zero_point = 3, .axis = weights_axis}};
    if (is_rounded(call)) {
        operands[0] = (struct operand){.qvalues = 0, .scale = 1, .zero_point = 2, .axis = -1};
        operands[1] = (struct operand){.qvalues = 3, .scale = 4, .zero_point = 5, .axis = weights_axis};
    }
    ND_CLEANUP(nd_array_deinit) struct nd_array sums = {0};
    struct nd_array *out = &sums;
    const struct nd_array *inputs[] = {&operands[0].packed_weights, &operands[1].packed_weights,
                                       is_rounded(call) ? nd_op_in(call, 8) : NULL};
    struct nd_op_call inner = *call;
    inner.n_inputs = inputs[2] != NULL ? 3 : 2;
    inner.inputs = inputs;
    inner.n_outputs = 1;
    inner.outputs = &out;
    enum nd_status status = take_packed_weights(call, &operands[0], err);
    if (status == ND_OK)
        status = take_packed_weights(call, &operands[1], err);
    if (status == ND_OK)
        status = product(&inner, err);
    if (status == ND_OK && is_rounded(call)) {
        status = round_sums(call, operands, &sums, axis, err);
    } else if (status == ND_OK) {
        status = nd_op_make(call, 0, ND_DTYPE_I32, &sums.shape, err);
        for (size_t i = 0; status == ND_OK && i < sums.n; i++)
            call->outputs[0]->x[i] = sums.x[i];
        status = status == ND_OK ? nd_op_wrap(call, call->outputs[0], err) : status;
    }
    nd_array_deinit(&operands[0].packed_weights);
    nd_array_deinit(&operands[1].packed_weights);
    return status;
}

static enum nd_status nd_op_integer_conv(const struct nd_op_call *call, struct nd_error *err)
{
    return run_product(call, nd_op_conv, 0, 1, err);
}

static enum nd_status nd_op_integer_matmul(const struct nd_op_call *call, struct nd_error *err)
{
    return run_product(call, nd_op_matmul, -1, -1, err);
}

/* ---- the operators ---- */

const struct nd_op nd_ops_quant[] = {
    {"", "QuantizeLinear", 2, nd_op_quantize},
    {MS, "QuantizeLinear", 2, nd_op_quantize},
    {"", "DequantizeLinear", 2, nd_op_dequantize},
    {MS, "DequantizeLinear", 2, nd_op_dequantize},
    {"", "ConvInteger", 2, nd_op_integer_conv},
    {"", "QLinearConv", 8, nd_op_integer_conv},
    {"", "MatMulInteger", 2, nd_op_integer_matmul},
    {"", "QLinearMatMul", 8, nd_op_integer_matmul},
    {NULL, NULL, 0, NULL},
};
