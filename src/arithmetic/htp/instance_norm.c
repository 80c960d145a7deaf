/* InstanceNormalization. uint8: real numbers, whose last step is a float16 in quantised values of the output.
 * uint16: qf32 from the sums of quantised values on. docs/science/htp-arithmetic.md#instance-normalization. */
#include <math.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/htp/moments.h"

enum {
    RANK = 4,
    HALF_BITS = 10, /* of float16 */
    N_STEPS = 3,    /* of Newton's method, uint16 */
};

/* The device takes the variance as the difference of the mean square and the squared mean, in float32. Where it
 * is a smaller part of the latter than this, more quantised values differ than nd_layer_arithmetic_doubt says
 * (measured, see the docs). */
static const double min_part = 0x1p-9;

/* uint16: where a quantised value times the gain of its plane may be greater than this, quantised values next
 * to a half differ by 1.
 */
static const double greatest_product = 0x1p20, greatest_qvalue = 65535;

struct plane {
    double mean, variance; /* of quantised values */
};

static struct plane plane_of(const double *x, size_t n)
{
    struct plane plane = {0};
    for (size_t i = 0; i < n; i++)
        plane.mean += x[i];
    plane.mean /= (double)n;
    for (size_t i = 0; i < n; i++)
        plane.variance += (x[i] - plane.mean) * (x[i] - plane.mean);
    plane.variance /= (double)n;
    return plane;
}

static bool is_constant(const struct nd_htp_job *job, size_t i, enum nd_dtype dtype, size_t n)
{
    return nd_htp_plain(job, i) != NULL && job->layer->origins[i] == ND_EXACT_FROM_CONSTANT &&
           job->call->inputs[i].values->dtype == dtype && job->call->inputs[i].values->n == n;
}

static bool is_known(const struct nd_htp_job *job)
{
    if (job->call->n_inputs != 3 || !nd_htp_all_are(job, 1, job->layer->dtype))
        return false;
    const struct nd_array *x = job->call->inputs[0].values;
    size_t n = x->shape.rank == RANK ? (size_t)x->shape.dims[1] : 0;
    return x->n > 0 && n > 0 && (is_constant(job, 1, ND_DTYPE_U8, n) || is_constant(job, 1, ND_DTYPE_I8, n)) &&
           is_constant(job, 2, ND_DTYPE_I32, n);
}

static double real_of(const struct nd_linear_input *input, size_t i)
{
    return (input->values->x[i] - (double)input->quant->zero_point[0]) * (double)input->quant->scale[0];
}

static float float_of(const struct nd_linear_input *input, size_t i)
{
    return (float)(input->values->x[i] - (double)input->quant->zero_point[0]) * input->quant->scale[0];
}

static struct nd_qfloat settled_product(struct nd_qfloat a, struct nd_qfloat b)
{
    return nd_qfloat_settled(nd_qfloat_product(a, b));
}

static struct nd_qfloat settled_sum(struct nd_qfloat a, struct nd_qfloat b)
{
    return nd_qfloat_settled(nd_qfloat_sum(a, b));
}

/* n uint16 quantised values of one channel: x times a gain, and an offset. False: numbers of which it is not
 * known. */
static bool normalise_words(const struct nd_htp_job *job, size_t channel, const double *x, size_t n, double *y)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *inputs = job->call->inputs;
    float scale = inputs[0].quant->scale[0], epsilon = (float)nd_op_f(&op_call, "epsilon", (double)1e-5F);
    float square = scale * scale;
    if (!(epsilon > 0) || !(square > 0) || n > ND_HTP_MAX_MOMENTS)
        return false;
    struct nd_htp_moments moments = nd_htp_moments_of(x, n, epsilon / square, N_STEPS);
    struct nd_qfloat inverse = nd_qfloat_read(1 / job->call->out_quant->scale[0]),
                     zero = nd_qfloat_read((float)job->call->out_quant->zero_point[0]),
                     weight = nd_qfloat_read(float_of(&inputs[1], channel)),
                     bias = nd_qfloat_read(float_of(&inputs[2], channel));
    struct nd_qfloat gain = settled_product(settled_product(weight, inverse), moments.inverse_root);
    if (!(fabs(nd_qfloat_value(gain)) * greatest_qvalue <= greatest_product))
        return false;
    struct nd_qfloat centre = nd_qfloat_product(gain, moments.mean),
                     offset = settled_sum(settled_product(bias, inverse), nd_qfloat_minus(centre));
    offset = nd_qfloat_sum(settled_sum(offset, zero), nd_qfloat_read(0)); /* a float becomes a qf32 so */
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; i < n; i++) {
        double v = nd_qfloat_value(nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)x[i]), gain), offset));
        y[i] = fmin(fmax(floor(v + 0.5), bounds.low), bounds.high);
    }
    return true;
}

/* n uint8 quantised values of one channel. False: too little of the variance is left. */
static bool normalise(const struct nd_htp_job *job, size_t channel, const double *x, size_t n, double *y)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *inputs = job->call->inputs;
    double scale = (double)inputs[0].quant->scale[0], out_scale = (double)job->call->out_quant->scale[0];
    double epsilon = nd_op_f(&op_call, "epsilon", (double)1e-5F) / (scale * scale);
    struct plane plane = plane_of(x, n);
    if (!(epsilon > 0) || (plane.variance > 0 && plane.variance < plane.mean * plane.mean * min_part))
        return false;
    double gain = real_of(&inputs[1], channel) / out_scale / sqrt(plane.variance + epsilon);
    double offset = real_of(&inputs[2], channel) / out_scale + (double)job->call->out_quant->zero_point[0];
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    for (size_t i = 0; i < n; i++) {
        double v = (x[i] - plane.mean) * gain + offset;
        if (v != 0)
            v = copysign(nd_multiplier_round(fabs(v), HALF_BITS, ND_ROUND_HALF_EVEN), v);
        y[i] = fmin(fmax(floor(v + 0.5), bounds.low), bounds.high);
    }
    return true;
}

enum nd_status nd_htp_instance_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array qvalues = {0};
    if (!is_known(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    size_t n_channels = (size_t)x->shape.dims[1], n = nd_dims_product(&x->shape, 2, RANK);
    enum nd_status status = nd_array_make(&qvalues, job->layer->dtype, &x->shape, err);
    bool is_covered = status == ND_OK;
    for (size_t i = 0; is_covered && i < x->n; i += n)
        is_covered = (job->layer->dtype == ND_DTYPE_U16 ? normalise_words : normalise)(
            job, i / n % n_channels, x->x + i, n, qvalues.x + i);
    if (!is_covered) {
        nd_array_deinit(&qvalues);
        return status;
    }
    *job->qvalues = qvalues;
    *job->is_covered = true;
    return ND_OK;
}
