/* uint8 Softmax over the last axis: powers of two, by a multiplier of few bits.
 * docs/science/htp-arithmetic.md#softmax. */
#include <math.h>

#include "arith/htp_internal.h"

enum {
    LEAST_ROW = 17,  /* elements: shorter rows are made in another way */
    STEP_BITS = 7,   /* behind the leading one of what a code is worth as a power of two */
    SCALE_BITS = 16, /* of the output's scale, after the point */
};

/* Of the output: those that the formula was held against. */
static const double least_scale = 0x1p-10, greatest_scale = 0x1p-7;

/* log2(e) */
static const double log2_e = 0x1.71547652b82fep+0;

bool nd_htp_is_softmax_of_rows(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    int64_t axis = nd_op_i(&op_call, "axis", job->call->opset < 13 ? 1 : -1);
    return shape->rank >= 2 && (axis == -1 || axis == shape->rank - 1);
}

static bool is_known(const struct nd_htp_job *job)
{
    if (job->call->n_inputs != 1 || !nd_htp_all_are(job, 1, ND_DTYPE_U8))
        return false;
    const struct nd_quant *y =
        nd_htp_plain_output(job); /* with another zero point the device has 0 all the same */
    if (y->zero_point[0] != 0 || (double)y->scale[0] < least_scale || (double)y->scale[0] > greatest_scale)
        return false;
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    return nd_htp_is_softmax_of_rows(job) && shape->dims[shape->rank - 1] >= LEAST_ROW;
}

/* Inputs that are moved, to see how far an error of theirs reaches, may be no codes. */
static bool has_codes(const struct nd_array *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (!(x->x[i] >= 0 && x->x[i] <= UINT8_MAX && x->x[i] == floor(x->x[i])))
            return false;
    return true;
}

/* What one step of the input is as a power of two: cut, not rounded. */
static double step_of(double scale)
{
    int exponent;
    double mantissa = frexp(scale * log2_e, &exponent);
    return ldexp(floor(ldexp(mantissa, STEP_BITS + 1)), exponent - STEP_BITS - 1);
}

enum nd_status nd_htp_softmax(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!is_known(job) || !has_codes(job->call->inputs[0].values))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = nd_array_make(job->codes, job->unit->dtype, &x->shape, err);
    if (status != ND_OK)
        return status;
    double one = 1 / ldexp(floor(ldexp((double)job->call->out_quant->scale[0], SCALE_BITS)), -SCALE_BITS);
    double step = step_of((double)nd_htp_plain(job, 0)->scale[0]), powers[UINT8_MAX + 1];
    for (int i = 0; i <= UINT8_MAX; i++)
        powers[i] = exp2(-i * step);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    size_t n = (size_t)x->shape.dims[x->shape.rank - 1];
    for (size_t row = 0; row < x->n; row += n) {
        const double *from = x->x + row;
        double greatest = from[0], sum = 0;
        for (size_t i = 1; i < n; i++)
            greatest = fmax(greatest, from[i]);
        for (size_t i = 0; i < n; i++)
            sum += powers[(size_t)(greatest - from[i])];
        for (size_t i = 0; i < n; i++) {
            double y = floor(one * powers[(size_t)(greatest - from[i])] / sum + 0.5);
            job->codes->x[row + i] = fmin(fmax(y, bounds.low), bounds.high);
        }
    }
    *job->is_covered = true;
    return ND_OK;
}
