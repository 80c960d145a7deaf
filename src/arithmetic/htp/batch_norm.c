/* BatchNormalization with quantisers of its own: one weight and one bias for each channel, which the provider
 * makes of the four constants. docs/science/htp-arithmetic.md#batch-normalization. F is one operation on
 * float32. */
#include <math.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"

enum { FACTOR = 1, BIAS, MEAN, VARIANCE, N_INPUTS, RANK = 4, MULTIPLIER_BITS = 14 };

/* The multipliers of which it is known (measured, see the docs): powers of two. */
enum { MIN_LOG = -10, GREATEST_LOG = -4 };

/* What is added before the floor beside the half: the multiplier's power of two, less that many bits. */
enum { MORE_BITS8 = 5, MORE_BITS16 = 3 };

static const float MIN_RANGE = 0.0001F;     /* of the provider's encodings */
static const float DEFAULT_EPSILON = 1e-5F; /* of the operator */

struct norm {
    const struct nd_htp_job *job;
    struct nd_array weights, biases; /* quantised values less zero point */
    double scale_w, scale_b;
    double m;       /* the multiplier, a float32 */
    bool overflows; /* the greatest bias does not fit its 32 bits: the device has it with the wrong sign */
};

/* Real numbers or quantised values with one encoding, constant, one for each channel. */
static bool is_known_constant(const struct nd_htp_job *job, size_t i, size_t n)
{
    const struct nd_linear_input *input = &job->call->inputs[i];
    if (job->layer->origins[i] != ND_EXACT_FROM_CONSTANT || input->values->n != n)
        return false;
    enum nd_dtype dtype = input->values->dtype;
    if (input->quant == NULL)
        return dtype == ND_DTYPE_F32 && i != FACTOR;
    bool is_byte = dtype == ND_DTYPE_U8 || (dtype == ND_DTYPE_I8 && i == FACTOR);
    return nd_htp_plain(job, i) != NULL && (is_byte || (dtype == ND_DTYPE_I32 && i == BIAS));
}

/* No Relu or Clip inside, or a Relu that the zero point 0 makes: of another one the provider makes an operation
 * of its own, and how the first is quantised is not known. */
static bool is_one_operation(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    bool is_relu = call->low == 0 && call->out_quant->zero_point[0] == 0;
    return (call->low <= -HUGE_VAL || is_relu) && call->high >= HUGE_VAL;
}

static bool is_known(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != N_INPUTS || !nd_htp_all_are(job, 1, job->layer->dtype) || !is_one_operation(job) ||
        call->inputs[0].values->n == 0 || call->inputs[0].values->shape.rank != RANK)
        return false;
    for (size_t i = FACTOR; i < N_INPUTS; i++)
        if (!nd_linear_has(call, i) ||
            !is_known_constant(job, i, (size_t)call->inputs[0].values->shape.dims[1]))
            return false;
    return true;
}

/* The range of an encoding that has all values and 0. */
static void find_range(const struct nd_array *values, float *low, float *high)
{
    double least = 0, greatest = 0;
    for (size_t i = 0; i < values->n; i++) {
        least = fmin(least, values->x[i]);
        greatest = fmax(greatest, values->x[i]);
    }
    *low = (float)least;
    *high = fmaxf((float)greatest, *low + MIN_RANGE);
}

/* Values become 8-bit quantised values less their zero point. */
static double encode_bytes(struct nd_array *values)
{
    float low, high;
    find_range(values, &low, &high);
    double step = ((double)high - (double)low) / UINT8_MAX, scale = (double)(float)step;
    double zero = (double)rintf((float)fmin(fmax(-(double)low / step, 0), UINT8_MAX));
    for (size_t i = 0; i < values->n; i++)
        values->x[i] = fmin(fmax(round(values->x[i] / scale + zero), 0), UINT8_MAX) - zero;
    return scale;
}

/* Values become 32-bit quantised values; *overflows: the greatest does not fit, and becomes the least, as the
 * provider has it. */
static double encode_words(struct nd_array *values, bool *overflows)
{
    float low, high;
    find_range(values, &low, &high);
    double scale = (double)(float)((double)fmaxf(-low, high) / INT32_MAX);
    for (size_t i = 0; i < values->n; i++) {
        values->x[i] = round(values->x[i] / scale);
        if (values->x[i] > INT32_MAX) {
            values->x[i] = INT32_MIN;
            *overflows = true;
        }
    }
    return scale;
}

/* Numbers, and no int8 factors below 0 beside uint16 activations, of which the provider makes 16-bit ones. */
static bool are_usual(const struct norm *norm)
{
    const struct nd_linear_input *factor = &norm->job->call->inputs[FACTOR];
    bool can_be_negative = norm->job->layer->dtype == ND_DTYPE_U8 || factor->values->dtype == ND_DTYPE_U8;
    for (size_t c = 0; c < norm->weights.n; c++)
        if (!isfinite(norm->weights.x[c]) || !isfinite(norm->biases.x[c]) ||
            (norm->weights.x[c] < 0 && !can_be_negative))
            return false;
    return true;
}

/* Mean and variance go into factor and bias, which get encodings of their own. *are_known false: it is not
 * known what becomes of them. */
static enum nd_status fuse(struct norm *norm, bool *are_known, struct nd_error *err)
{
    const struct nd_linear_call *call = norm->job->call;
    const struct nd_op_call op_call = {.node = call->node, .opset = norm->job->call->opset};
    double epsilon = (double)(float)nd_op_f(&op_call, "epsilon", DEFAULT_EPSILON);
    struct nd_array mean = {0}, variance = {0};
    enum nd_status status = nd_linear_reals(call, FACTOR, &norm->weights, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, BIAS, &norm->biases, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, MEAN, &mean, err);
    if (status == ND_OK)
        status = nd_linear_reals(call, VARIANCE, &variance, err);
    for (size_t c = 0; status == ND_OK && c < norm->weights.n; c++) {
        norm->weights.x[c] /= sqrt(variance.x[c] + epsilon);
        norm->biases.x[c] -= mean.x[c] * norm->weights.x[c];
    }
    *are_known = status == ND_OK && are_usual(norm);
    if (*are_known) {
        bool is_byte = call->inputs[BIAS].quant != NULL && call->inputs[BIAS].values->dtype == ND_DTYPE_U8;
        norm->scale_w = encode_bytes(&norm->weights);
        norm->scale_b = is_byte ? encode_bytes(&norm->biases) : encode_words(&norm->biases, &norm->overflows);
    }
    nd_array_deinit(&mean);
    nd_array_deinit(&variance);
    return status;
}

/* The multiplier; and whether it is one of which it is known. */
static bool find_multiplier(struct norm *norm)
{
    const struct nd_linear_call *call = norm->job->call;
    norm->m = (double)(call->inputs[0].quant->scale[0] * (float)norm->scale_w / call->out_quant->scale[0]);
    return norm->m >= ldexp(1, MIN_LOG) && norm->m < ldexp(1, GREATEST_LOG);
}

/* v73, uint8: a product of one weight. */
static void make_product(const struct norm *norm, size_t channel, const double *x, size_t n, double *qvalues)
{
    const struct nd_quant *from = norm->job->call->inputs[0].quant, *to = norm->job->call->out_quant;
    struct nd_htp_column column = {.scale_x = (double)from->scale[0],
                                   .scale_w = norm->scale_w,
                                   .scale_y = (double)to->scale[0],
                                   .zero_x = (double)from->zero_point[0],
                                   .zero_y = (double)to->zero_point[0],
                                   .bias = norm->biases.x[channel],
                                   .bias_scale = norm->scale_b};
    double w = nd_htp_fit_weight(norm->weights.x[channel], &column.r);
    struct nd_htp_scaling scaling = nd_htp_scaling8(ND_HTP_V73, &column);
    struct nd_htp_bounds bounds = nd_htp_bounds_of(norm->job);
    for (size_t i = 0; i < n; i++)
        qvalues[i] = nd_htp_scale(&scaling, (x[i] - column.zero_x) * w, &bounds);
}

/* v69, and uint16: bias and zero point go into the sum, each rounded by itself. */
static void make_sum(const struct norm *norm, size_t channel, const double *x, size_t n, double *qvalues)
{
    const struct nd_quant *from = norm->job->call->inputs[0].quant, *to = norm->job->call->out_quant;
    float layer = from->scale[0] * (float)norm->scale_w;
    float bias = (float)norm->biases.x[channel] * (float)norm->scale_b * (1 / layer);
    float zero = (float)to->zero_point[0] / (float)norm->m;
    double beta = (double)rintf(bias) + (double)floorf(zero + 0.5F);
    int more_bits = norm->job->layer->dtype == ND_DTYPE_U8 ? MORE_BITS8 : MORE_BITS16;
    int exponent;
    frexp(norm->m, &exponent);
    double more = ldexp(1, exponent - 1 - more_bits);
    double c = nd_multiplier_round(norm->m, MULTIPLIER_BITS, ND_ROUND_HALF_UP), w = norm->weights.x[channel];
    struct nd_htp_bounds bounds = nd_htp_bounds_of(norm->job);
    for (size_t i = 0; i < n; i++) {
        double y = floor(((x[i] - (double)from->zero_point[0]) * w + beta) * c + 0.5 + more);
        qvalues[i] = fmin(fmax(y, bounds.low), bounds.high);
    }
}

static enum nd_status make_batch_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    struct norm norm = {.job = job};
    bool are_known = false;
    if (!is_known(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = fuse(&norm, &are_known, err);
    bool is_covered = status == ND_OK && are_known && find_multiplier(&norm);
    if (is_covered)
        status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    bool is_product = job->arithmetic->arch == ND_HTP_V73 && job->layer->dtype == ND_DTYPE_U8;
    size_t run = nd_dims_product(&x->shape, 2, RANK);
    for (size_t i = 0; is_covered && status == ND_OK && i < x->n; i += run)
        (is_product ? make_product : make_sum)(&norm, i / run % norm.weights.n, x->x + i, run,
                                               job->qvalues->x + i);
    *job->is_covered = is_covered && status == ND_OK;
    nd_array_deinit(&norm.weights);
    nd_array_deinit(&norm.biases);
    return status;
}

bool nd_layer_loses_sign_of_bias(const struct nd_exact_layer *layer)
{
    const struct nd_htp_job job = {.layer = layer, .call = layer->call};
    struct norm norm = {.job = &job};
    bool are_known = false;
    if (is_known(&job))
        (void)fuse(&norm, &are_known, NULL); /* without memory nothing is known */
    nd_array_deinit(&norm.weights);
    nd_array_deinit(&norm.biases);
    return are_known && norm.overflows;
}

const struct nd_htp_operator nd_htp_batch_norms[] = {
    {"BatchNormalization", make_batch_norm, false},
    {.op_type = NULL},
};
