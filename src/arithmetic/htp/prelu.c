/* uint8 PRelu with a constant slope for each channel: two multipliers with one shift.
 * docs/science/htp-arithmetic.md#prelu. */
#include <math.h>

#include "arithmetic/htp/htp_internal.h"

enum {
    RANK = 4,
    SLOPE_AXES = 3,      /* of [channels, 1, 1] */
    MULTIPLIER_LOG = 14, /* floor(log2) of the greater multiplier, which has 15 bits */
    MAX_SHIFT = 15,
    MORE_BITS = 7, /* what is added beside the half: the shift's layer, times 2^(MULTIPLIER_LOG - MORE_BITS) */
};

/* Quotients of scales that the formula was held against (measured, see the docs), and the greatest slope that
 * the scale of the slopes has a quantised value for. */
static const double min_ratio = 0.25, max_ratio = 8, greatest_slope = 1;

static bool is_known(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != 2 || !nd_htp_all_are(job, 2, ND_DTYPE_U8) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT || call->inputs[1].quant->zero_point[0] != 0)
        return false;
    const struct nd_shape *x = &call->inputs[0].values->shape, *slope = &call->inputs[1].values->shape;
    double ratio = (double)(call->inputs[0].quant->scale[0] / call->out_quant->scale[0]);
    return x->rank == RANK && call->inputs[0].values->n > 0 && slope->rank == SLOPE_AXES &&
           slope->dims[0] == x->dims[1] && slope->dims[1] == 1 && slope->dims[2] == 1 && ratio >= min_ratio &&
           ratio < max_ratio && UINT8_MAX * (double)call->inputs[1].quant->scale[0] <= greatest_slope;
}

static int log_of(double v)
{
    int exponent;
    frexp(v, &exponent);
    return exponent - 1;
}

enum nd_status nd_htp_prelu(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!is_known(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values, *slopes = job->call->inputs[1].values;
    const struct nd_quant *from = job->call->inputs[0].quant, *to = job->call->out_quant;
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    if (status != ND_OK)
        return status;
    float slope_scale = job->call->inputs[1].quant->scale[0];
    double ratio = (double)(from->scale[0] / to->scale[0]);
    int shift = MULTIPLIER_LOG - log_of(ratio),
        slope_shift = MULTIPLIER_LOG - log_of(UINT8_MAX * (double)slope_scale);
    shift = shift > MAX_SHIFT ? MAX_SHIFT : shift;
    double m = floor(ldexp(ratio, shift) + 0.5), half = 0.5 + ldexp(1, MORE_BITS - shift);
    size_t run = nd_dims_product(&x->shape, 2, RANK);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; i < x->n; i++) {
        float slope = (float)slopes->x[i / run % slopes->n] * slope_scale;
        double negative = floor(ldexp(rint(ldexp((double)slope, slope_shift)) * m, -slope_shift));
        double v = x->x[i] - (double)from->zero_point[0];
        double y = floor(ldexp(v * (v >= 0 ? m : negative), -shift) + half) + (double)to->zero_point[0];
        job->qvalues->x[i] = fmin(fmax(y, bounds.low), bounds.high);
    }
    *job->is_covered = true;
    return ND_OK;
}
