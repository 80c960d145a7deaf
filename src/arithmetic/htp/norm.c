/* LayerNormalization over the last axis: one multiplier of few bits per row, and a bias of whole quantised
 * values. docs/science/htp-arithmetic.md#norms. */
#include <math.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "arithmetic/htp/moments.h"
#include "arithmetic/htp/qfloat.h"

/* Rows of one element are their bias: the device gives 65535, where the rounded mean gives 65505 (network 43346
 * of tools/studies/strangers). */
enum { MIN_ROW = 2 };

struct norm {
    double scale;   /* of the input times that of the weights over that of the output */
    double scale_x; /* of the input */
    double epsilon;
    bool is_short; /* uint8 */
    const struct nd_linear_input *weight, *bias;
    double scale_y, zero_y;
    size_t n; /* of a row */
};

static bool is_constant(const struct nd_htp_job *job, size_t i, size_t n)
{
    return nd_htp_plain(job, i) != NULL && job->layer->origins[i] == ND_EXACT_FROM_CONSTANT &&
           job->call->inputs[i].values->n == n;
}

static bool is_known_layer(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (job->call->n_inputs < 2 || job->call->n_inputs > 3 || job->call->output != 0 ||
        !nd_htp_all_are(job, 1, job->layer->dtype))
        return false;
    const struct nd_shape *shape = &job->call->inputs[0].values->shape;
    int64_t axis = nd_op_i(&op_call, "axis", -1);
    if (shape->rank < 1 || (axis != -1 && axis != shape->rank - 1) || shape->dims[shape->rank - 1] < MIN_ROW)
        return false;
    size_t n = (size_t)shape->dims[shape->rank - 1];
    bool has_bias = nd_linear_has(job->call, 2);
    return is_constant(job, 1, n) && job->call->inputs[1].values->dtype == ND_DTYPE_U8 &&
           (!has_bias || (is_constant(job, 2, n) && job->call->inputs[2].values->dtype == ND_DTYPE_I32));
}

static struct norm describe(const struct nd_htp_job *job)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *inputs = job->call->inputs;
    struct norm norm = {.scale_x = (double)inputs[0].quant->scale[0],
                        .epsilon = nd_op_f(&op_call, "epsilon", (double)1e-5F),
                        .is_short = job->layer->dtype == ND_DTYPE_U8,
                        .weight = &inputs[1],
                        .bias = nd_linear_has(job->call, 2) ? &inputs[2] : NULL,
                        .scale_y = (double)job->call->out_quant->scale[0],
                        .zero_y = (double)job->call->out_quant->zero_point[0],
                        .n = inputs[1].values->n};
    norm.scale = norm.scale_x * (double)inputs[1].quant->scale[0] / norm.scale_y;
    return norm;
}

static double bias_of(const struct norm *norm, size_t i)
{
    if (norm->bias == NULL)
        return norm->zero_y;
    double qvalue = norm->bias->values->x[i] - (double)norm->bias->quant->zero_point[0];
    return rint(qvalue * (double)norm->bias->quant->scale[0] / norm->scale_y) + norm->zero_y;
}

/* The mean of whole numbers of that sum. uint8: cut to 64ths, by a product with a reciprocal. uint16: two
 * halves of the sum, each times the reciprocal, as qf32. */
static double mean_of(const struct norm *norm, double sum)
{
    static const double half = 0x1p16;
    float inverse = 1 / (float)norm->n;
    if (norm->is_short)
        return floor(sum * (double)inverse * 0x1p6) * 0x1p-6;
    double high = floor(sum / half) * half;
    struct nd_qfloat r = nd_qfloat_read(inverse);
    struct nd_qfloat mean = nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)high), r),
                                          nd_qfloat_product(nd_qfloat_read((float)(sum - high)), r));
    return nd_qfloat_value(mean);
}

/* What quantised values less their mean are multiplied by: of uint16 with 15 bits, of uint8 cut to a multiple
 * of 2^-16. */
static double multiplier_of(const struct norm *norm, const double *x, double variance)
{
    enum { SHORT_STEPS = 2, WIDE_STEPS = 3 }; /* of Newton's method */
    float scale = (float)norm->scale_x, square = scale * scale;
    double m = norm->scale / sqrt(variance + norm->epsilon);
    if (norm->n <= ND_HTP_MAX_MOMENTS && square > 0) {
        struct nd_htp_moments moments = nd_htp_moments_of(x, norm->n, (float)norm->epsilon / square,
                                                          norm->is_short ? SHORT_STEPS : WIDE_STEPS);
        struct nd_qfloat of_scales = nd_qfloat_read(norm->weight->quant->scale[0] / (float)norm->scale_y);
        m = nd_qfloat_value(nd_qfloat_product(moments.inverse_root, of_scales));
    }
    return norm->is_short ? floor(m * 0x1p16) * 0x1p-16 : nd_multiplier_round(m, 15, ND_ROUND_HALF_EVEN);
}

static void normalise(const struct norm *norm, const double *x, double *y, const struct nd_htp_bounds *bounds)
{
    double sum = 0, variance = 0, n = (double)norm->n;
    for (size_t i = 0; i < norm->n; i++)
        sum += x[i];
    double mean = sum / n;
    for (size_t i = 0; i < norm->n; i++)
        variance += (x[i] - mean) * (x[i] - mean);
    variance *= norm->scale_x * norm->scale_x / n;
    double m = multiplier_of(norm, x, variance);
    mean = mean_of(norm, sum);
    for (size_t i = 0; i < norm->n; i++) {
        double weight = norm->weight->values->x[i] - (double)norm->weight->quant->zero_point[0];
        double qvalue = floor((x[i] - mean) * m * weight + 0.5) + bias_of(norm, i);
        y[i] = fmin(fmax(qvalue, bounds->low), bounds->high);
    }
}

enum nd_status nd_htp_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!is_known_layer(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    struct norm norm = describe(job);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    if (norm.epsilon <= 0)
        return ND_OK;
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t row = 0; status == ND_OK && row < x->n; row += norm.n)
        normalise(&norm, x->x + row, job->qvalues->x + row, &bounds);
    *job->is_covered = status == ND_OK;
    return status;
}
