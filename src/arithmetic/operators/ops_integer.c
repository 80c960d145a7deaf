/* Products of codes: ConvInteger and MatMulInteger, whose results are sums of products, and QLinearConv and
 * QLinearMatMul, which round the sums to quantised values. */
#include "arithmetic/operators/ops_shared.h"

#include <math.h>

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
    enum nd_status status = nd_array_make(&operand->packed_weights, ND_DTYPE_F64, &qvalues->shape, err);
    for (size_t i = 0; status == ND_OK && i < qvalues->n; i++)
        operand->packed_weights.x[i] = qvalues->x[i] - parameter(zero, i / inner % n_channels);
    return status;
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
    nd_op_qvalue_range(zero->dtype, &low, &high);
    for (size_t i = 0; status == ND_OK && i < sums->n; i++) {
        double steps = sums->x[i] * a->x[0] * parameter(b, i / inner % n_channels) / scale->x[0];
        call->outputs[0]->x[i] = fmin(fmax(rint(steps) + zero->x[0], low), high);
    }
    return status;
}

/* axis: of the channels of the result. */
static enum nd_status run(const struct nd_op_call *call, nd_op_function *product, int weights_axis, int axis,
                          struct nd_error *err)
{
    struct operand operands[2] = {{.qvalues = 0, .scale = SIZE_MAX, .zero_point = 2, .axis = -1},
                                  {.qvalues = 1, .scale = SIZE_MAX, .zero_point = 3, .axis = weights_axis}};
    if (is_rounded(call)) {
        operands[0] = (struct operand){.qvalues = 0, .scale = 1, .zero_point = 2, .axis = -1};
        operands[1] = (struct operand){.qvalues = 3, .scale = 4, .zero_point = 5, .axis = weights_axis};
    }
    struct nd_array sums = {0}, *out = &sums;
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
    nd_array_deinit(&sums);
    return status;
}

enum nd_status nd_op_integer_conv(const struct nd_op_call *call, struct nd_error *err)
{
    return run(call, nd_op_conv, 0, 1, err);
}

enum nd_status nd_op_integer_matmul(const struct nd_op_call *call, struct nd_error *err)
{
    return run(call, nd_op_matmul, -1, -1, err);
}
