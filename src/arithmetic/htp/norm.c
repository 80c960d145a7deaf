/* LayerNormalization over the last axis (docs/science/htp-arithmetic.md#norms): one multiplier of few bits per
 * row, and a bias of whole quantised values. InstanceNormalization: qf32 from the sums of quantised values on,
 * also with the Mul and the Add of a GroupNormalization
 * (docs/science/htp-arithmetic.md#instance-normalization). BatchNormalization with quantisers of its own
 * (docs/science/htp-arithmetic.md#batch-normalization): one weight and one bias for each channel, which the
 * provider makes of the four constants. F is one operation on float32. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

/* ---- mean and inverse deviation as float instructions give them ---- */

enum {
    FLOAT_BITS = 24, /* of a significand */
    SUM_BITS = 16, /* sums of quantised values are cut into two numbers there, before either becomes a float */
    SQUARE_BITS = 32, /* sums of squares there */
};

enum { SHORT_STEPS = 2, WIDE_STEPS = 3 }; /* of Newton's method: of bytes, of words */

/* More quantised values than this make whole numbers that do not fit 64 bits. */
enum { MAX_MOMENTS = 16384, MAX_BYTES = 160000 /* as far as bytes were measured */ };

struct moments {
    struct nd_qfloat mean, inverse_root; /* the latter of variance and epsilon */
};

/* The first guess of an inverse root is this less half of the float, both as whole numbers. */
static const int32_t guess_of_root = 0x5f375a86;

/* The qf32 as an IEEE float, read again: the same value, another exponent. */
static struct nd_qfloat settled(struct nd_qfloat a)
{
    return nd_qfloat_read((float)nd_qfloat_value(a));
}

/* A whole number of up to 32 bits times a float: its upper and its lower bits are floats of their own. */
static struct nd_qfloat scaled(int64_t whole, float factor)
{
    int64_t upper = whole >> SUM_BITS << SUM_BITS;
    struct nd_qfloat by = nd_qfloat_read(factor);
    return nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)upper), by),
                         nd_qfloat_product(nd_qfloat_read((float)(whole - upper)), by));
}

/* The same of more bits: the lowest 32 of them as above. */
static struct nd_qfloat scaled_squares(int64_t whole, float factor)
{
    int64_t upper = whole >> SQUARE_BITS << SQUARE_BITS;
    return nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)upper), nd_qfloat_read(factor)),
                         scaled(whole - upper, factor));
}

/* 1 / sqrt(value) of a positive number, after that many steps of Newton's method. Three: off by a few layers in
 * the last place; two, as uint8 has it: up to 5e-6 too small. */
static struct nd_qfloat inverse_root(struct nd_qfloat value, int n_steps)
{
    float number = (float)nd_qfloat_value(value), guess;
    int32_t bits;
    memcpy(&bits, &number, sizeof bits);
    bits = guess_of_root - (bits >> 1);
    memcpy(&guess, &bits, sizeof guess);
    struct nd_qfloat root = nd_qfloat_read(guess), middle = nd_qfloat_read(1.5F),
                     half = settled(nd_qfloat_product(nd_qfloat_read(0.5F), value));
    for (int i = 0; i < n_steps; i++) {
        struct nd_qfloat square = settled(nd_qfloat_product(half, root));
        square = settled(nd_qfloat_product(square, root));
        root = settled(nd_qfloat_product(root, settled(nd_qfloat_sum(middle, nd_qfloat_minus(square)))));
    }
    return root;
}

/* A whole number as the float instructions have it: the bits that do not fit are cut off, and the last one is
 * set. */
static struct nd_qfloat cut_to_odd(int64_t whole)
{
    int exponent;
    double units = ldexp(frexp((double)whole, &exponent), FLOAT_BITS);
    return (struct nd_qfloat){ldexp(2 * floor(units / 2) + 1, 1 - FLOAT_BITS), exponent - 1};
}

/* Of n quantised values, up to MAX_MOMENTS; epsilon in squares of quantised values, above 0. is_short: of
 * bytes, whose variance is what the product of sum and mean leaves of the sum of squares. */
static struct moments moments_of(const double *x, size_t n, float epsilon, bool is_short, int n_steps)
{
    int64_t sum = 0, squares = 0, count = (int64_t)n;
    for (size_t i = 0; i < n; i++) {
        int64_t qvalue = (int64_t)x[i];
        sum += qvalue;
        squares += qvalue * qvalue;
    }
    float square_of_n = (float)n * (float)n, share = 1 / (float)n;
    struct nd_qfloat whole = nd_qfloat_read((float)sum), by = nd_qfloat_read(share), variance,
                     mean = settled(is_short ? nd_qfloat_product(whole, by) : scaled(sum, share));
    if (is_short)
        variance = nd_qfloat_product(
            settled(nd_qfloat_sum(cut_to_odd(squares), nd_qfloat_minus(nd_qfloat_product(whole, mean)))), by);
    else
        variance = settled(scaled_squares(count * squares - sum * sum, 1 / square_of_n));
    struct nd_qfloat more = settled(nd_qfloat_sum(variance, nd_qfloat_read(epsilon)));
    return (struct moments){mean, inverse_root(more, n_steps)};
}

/* ---- LayerNormalization ---- */

/* Rows of one element are their bias: the device gives 65535, where the rounded mean gives 65505 (network 43346
 * of tools/studies/strangers). */
enum { MIN_ROW = 2 };

struct layer_norm {
    double scale;   /* of the input times that of the weights over that of the output */
    double scale_x; /* of the input */
    double epsilon;
    bool is_short;                               /* uint8 */
    const struct nd_linear_input *weight, *bias; /* weight NULL: of one, bias NULL: none */
    float scale_w;
    double scale_y, zero_y;
    size_t n, step; /* of a row, and from an element of it to the next */
};

static bool is_constant_of(const struct nd_htp_job *job, size_t i, enum nd_dtype dtype, size_t n)
{
    return nd_htp_plain(job, i) != NULL && job->layer->origins[i] == ND_EXACT_FROM_CONSTANT &&
           job->call->inputs[i].values->dtype == dtype && job->call->inputs[i].values->n == n;
}

static bool is_known_layer_norm(const struct nd_htp_job *job)
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
    return is_constant_of(job, 1, ND_DTYPE_U8, n) && (!has_bias || is_constant_of(job, 2, ND_DTYPE_I32, n));
}

/* Without weights and bias yet. */
static struct layer_norm describe_layer_norm(const struct nd_htp_job *job, double epsilon, float scale_w,
                                             size_t n)
{
    struct layer_norm norm = {.scale_x = (double)job->call->inputs[0].quant->scale[0],
                              .epsilon = epsilon,
                              .is_short = job->layer->dtype == ND_DTYPE_U8,
                              .scale_w = scale_w,
                              .scale_y = (double)job->call->out_quant->scale[0],
                              .zero_y = (double)job->call->out_quant->zero_point[0],
                              .n = n,
                              .step = 1};
    norm.scale = norm.scale_x * (double)scale_w / norm.scale_y;
    return norm;
}

static double bias_of(const struct layer_norm *norm, size_t i)
{
    if (norm->bias == NULL)
        return norm->zero_y;
    double qvalue = norm->bias->values->x[i] - (double)norm->bias->quant->zero_point[0];
    return rint(qvalue * (double)norm->bias->quant->scale[0] / norm->scale_y) + norm->zero_y;
}

/* The mean of whole numbers of that sum. uint8: cut to 64ths, by a product with a reciprocal. uint16: two
 * halves of the sum, each times the reciprocal, as qf32. */
static double mean_of(const struct layer_norm *norm, double sum)
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
 * of 2^-16, and from 1 on to 16 bits. */
static double multiplier_of(const struct layer_norm *norm, const double *x, double variance)
{
    float scale = (float)norm->scale_x, square = scale * scale;
    double m = norm->scale / sqrt(variance + norm->epsilon);
    if (norm->n <= MAX_MOMENTS && square > 0) {
        struct moments moments = moments_of(x, norm->n, (float)norm->epsilon / square, false,
                                            norm->is_short ? SHORT_STEPS : WIDE_STEPS);
        struct nd_qfloat of_scales = nd_qfloat_read(norm->scale_w / (float)norm->scale_y);
        m = nd_qfloat_value(nd_qfloat_product(moments.inverse_root, of_scales));
    }
    double unit = exp2(fmax(logb(m) + 1, 0) - 16);
    return norm->is_short ? floor(m / unit) * unit : nd_multiplier_round(m, 15, ND_ROUND_HALF_EVEN);
}

/* x: without what lies between; y: with it. */
static void normalise_row(const struct layer_norm *norm, const double *x, double *y,
                          const struct nd_htp_bounds *bounds)
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
        double weight =
            norm->weight == NULL ? 1 : norm->weight->values->x[i] - (double)norm->weight->quant->zero_point[0];
        double qvalue = floor((x[i] - mean) * m * weight + 0.5) + bias_of(norm, i);
        y[i * norm->step] = fmin(fmax(qvalue, bounds->low), bounds->high);
    }
}

static enum nd_status normalise_rows(const struct nd_htp_job *job, const struct layer_norm *norm,
                                     struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    if (norm->epsilon <= 0)
        return ND_OK;
    ND_FREED double *row = nd_calloc(norm->n, sizeof *row);
    ND_TRY_MEMORY(row != NULL, err);
    ND_TRY(nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err));
    for (size_t r = 0; r < x->n / norm->n; r++) {
        size_t first = r / norm->step * norm->step * norm->n + r % norm->step;
        for (size_t i = 0; i < norm->n; i++)
            row[i] = x->x[first + i * norm->step];
        normalise_row(norm, row, job->qvalues->x + first, &bounds);
    }
    *job->is_covered = true;
    return ND_OK;
}

static enum nd_status make_layer_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *inputs = job->call->inputs;
    if (!is_known_layer_norm(job))
        return ND_OK;
    struct layer_norm norm = describe_layer_norm(job, nd_op_f(&op_call, "epsilon", (double)1e-5F),
                                                 inputs[1].quant->scale[0], inputs[1].values->n);
    norm.weight = &inputs[1];
    norm.bias = nd_linear_has(job->call, 2) ? &inputs[2] : NULL;
    return normalise_rows(job, &norm, err);
}

/* ---- of operators that the device joins ---- */

/* One over the root of a number of quantised values, or its Gelu: of uint8 an entry of a table. */
static double entry_of(const struct nd_htp_job *job, double qvalues)
{
    float x = (float)qvalues * job->call->inputs[0].quant->scale[0],
          inverse = 1 / job->call->out_quant->scale[0];
    bool is_root = job->after == ND_LAYER_AFTER_INVERSE;
    float y = is_root ? 1 / sqrtf(x) : (float)((double)x * (1 + erf((double)x * sqrt(0.5))) / 2),
          steps = y * inverse;
    return is_root && qvalues <= 0 ? HUGE_VAL
                                   : (double)rintf(steps + (float)job->call->out_quant->zero_point[0]);
}

/* Of uint16 one over the root, after the two steps of Newton's method that uint8 has in a LayerNormalization.
 */
static double inverse_root_of(const struct nd_htp_job *job, double qvalues)
{
    enum { N_STEPS = 2 };
    struct nd_qfloat scale = nd_qfloat_read(job->call->inputs[0].quant->scale[0]),
                     inverse = nd_qfloat_read(1 / job->call->out_quant->scale[0]),
                     x = settled(nd_qfloat_product(nd_qfloat_read((float)qvalues), scale)),
                     y = nd_qfloat_product(inverse_root(x, N_STEPS), inverse);
    return floor(nd_qfloat_value(y) + 0.5) + (double)job->call->out_quant->zero_point[0];
}

/* ND_ERR_UNSUPPORTED: a root of less than zero, of words. */
static enum nd_status join_functions(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    bool is_word = job->layer->dtype == ND_DTYPE_U16;
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        double n = x->x[i] - (double)job->call->inputs[0].quant->zero_point[0];
        job->qvalues->x[i] =
            nd_within(is_word ? inverse_root_of(job, n) : entry_of(job, n), bounds.low, bounds.high);
        status = is_word && n < 0 ? ND_ERR_UNSUPPORTED : ND_OK;
    }
    *job->is_covered = status == ND_OK;
    return status;
}

enum nd_status nd_htp_in_parts(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!nd_htp_all_are(job, 1, ND_DTYPE_U8) && !nd_htp_all_are(job, 1, ND_DTYPE_U16))
        return ND_OK;
    if (job->after == ND_LAYER_AFTER_GATE && job->layer->dtype == ND_DTYPE_U16)
        return nd_htp_gelu16(job, err);
    if (job->after != ND_LAYER_AFTER_NORM)
        return join_functions(job, err);
    const struct nd_array *x = job->call->inputs[0].values, *means = job->call->inputs[1].values;
    struct nd_shape shape = x->shape; /* of the means: one axis is 1 */
    int axis = 0;
    while (means != NULL && means->shape.rank == shape.rank && axis < shape.rank - 1 &&
           means->shape.dims[axis] == shape.dims[axis])
        axis++;
    size_t n = shape.rank > 0 ? (size_t)shape.dims[axis] : 0;
    shape.dims[axis] = 1;
    if (n < MIN_ROW || means == NULL || !nd_shape_equal(&shape, &means->shape))
        return ND_OK;
    struct layer_norm norm = describe_layer_norm(job, job->epsilon, 1, n);
    norm.step = nd_dims_product(&x->shape, axis + 1, shape.rank);
    return normalise_rows(job, &norm, err);
}

/* ---- InstanceNormalization ---- */

enum {
    RANK = 4,
};

static const float DEFAULT_EPSILON = 1e-5F; /* of the operator */

/* Where a quantised value times the gain of its plane may be greater than this, uint16 quantised values next to
 * a half differ by 1. */
static const double greatest_product = 0x1p20;

/* uint8: planes of one value whose inverse deviation is greater are made in another way (302 was seen to be
 * known, 954 not). */
static const double greatest_root = 302;

static bool is_known_instance_norm(const struct nd_htp_job *job)
{
    if (job->call->n_inputs != 3 || !nd_htp_all_are(job, 1, job->layer->dtype))
        return false;
    const struct nd_array *x = job->call->inputs[0].values;
    size_t n = x->shape.rank == RANK || x->shape.rank == RANK - 1 ? (size_t)x->shape.dims[1] : 0;
    return x->n > 0 && n > 0 &&
           (is_constant_of(job, 1, job->layer->dtype, n) || is_constant_of(job, 1, ND_DTYPE_U8, n) ||
            is_constant_of(job, 1, ND_DTYPE_I8, n)) &&
           is_constant_of(job, 2, ND_DTYPE_I32, n);
}

static double real_of(const struct nd_linear_input *input, size_t i)
{
    if (input->quant == NULL)
        return input->values->x[i];
    return (input->values->x[i] - (double)input->quant->zero_point[0]) * (double)input->quant->scale[0];
}

static float float_of(const struct nd_linear_input *input, size_t i)
{
    return (float)(input->values->x[i] - (double)input->quant->zero_point[0]) * input->quant->scale[0];
}

static struct nd_qfloat settled_product(struct nd_qfloat a, struct nd_qfloat b)
{
    return settled(nd_qfloat_product(a, b));
}

static struct nd_qfloat settled_sum(struct nd_qfloat a, struct nd_qfloat b)
{
    return settled(nd_qfloat_sum(a, b));
}

/* Quantised values of one plane, or a part of it: x times a gain, and an offset. False: it is not known. */
static bool normalise(const struct nd_htp_job *job, const struct moments *moments, float weight, float bias,
                      const double *x, size_t n, double *y)
{
    bool is_short = job->layer->dtype == ND_DTYPE_U8;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    struct nd_qfloat inverse = nd_qfloat_read(1 / job->call->out_quant->scale[0]),
                     zero = nd_qfloat_read((float)job->call->out_quant->zero_point[0]);
    struct nd_qfloat gain =
        settled_product(settled_product(nd_qfloat_read(weight), inverse), moments->inverse_root);
    struct nd_qfloat offset = settled_sum(settled_product(nd_qfloat_read(bias), inverse),
                                          nd_qfloat_minus(nd_qfloat_product(gain, moments->mean)));
    offset = nd_qfloat_sum(settled_sum(offset, zero), nd_qfloat_read(0)); /* a float becomes a qf32 so */
    if (!is_short && !(fabs(nd_qfloat_value(gain)) * UINT16_MAX <= greatest_product))
        return false;
    for (size_t i = 0; i < n; i++) {
        double v = nd_qfloat_value(nd_qfloat_sum(nd_qfloat_product(nd_qfloat_read((float)x[i]), gain), offset));
        v = is_short ? nd_htp_round_to_half(v, ND_ROUND_HALF_EVEN) : v;
        y[i] = nd_within(floor(v + 0.5), bounds.low, bounds.high);
    }
    return true;
}

/* n quantised values from the first on are a plane. With numbers for the channels it is a group of them, and
 * these take the place of weight and bias, which are 1 and 0. */
static bool normalise_plane(const struct nd_htp_job *job, const struct nd_array *x, size_t first, size_t n)
{
    static const float almost = 1e-5F; /* of 1: 255 times 1 / 255 as encodings have it */
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_linear_input *inputs = job->call->inputs;
    bool is_short = job->layer->dtype == ND_DTYPE_U8, is_known;
    size_t plane = first / n % (size_t)x->shape.dims[1];
    float scale = inputs[0].quant->scale[0], square = scale * scale, weight = float_of(&inputs[1], plane),
          bias = float_of(&inputs[2], plane);
    float epsilon = (float)nd_op_f(&op_call, "epsilon", (double)DEFAULT_EPSILON) / square;
    size_t n_parts = job->n_slopes / (size_t)x->shape.dims[1], run = n_parts > 0 ? n / n_parts : n;
    if (!(square > 0) || !(epsilon > 0) || n > (is_short ? MAX_BYTES : MAX_MOMENTS) ||
        (job->after != ND_LAYER_AFTER_NONE && (fabsf(weight - 1) > almost || bias != 0)))
        return false;
    struct moments moments =
        moments_of(x->x + first, n, epsilon, is_short, is_short ? SHORT_STEPS : WIDE_STEPS);
    is_known = !is_short || nd_qfloat_value(moments.inverse_root) <= greatest_root;
    for (size_t i = first; is_known && i < first + n; i += run) {
        size_t channel = n_parts > 0 ? i / run % job->n_slopes : 0;
        if (n_parts > 0) {
            weight = (float)job->slopes[channel];
            bias = job->offsets != NULL ? (float)job->offsets[channel] : 0;
        }
        is_known = normalise(job, &moments, weight, bias, x->x + i, run, job->qvalues->x + i);
    }
    return is_known;
}

enum nd_status nd_htp_instance_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!is_known_instance_norm(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    size_t n_planes = (size_t)x->shape.dims[1], n = nd_dims_product(&x->shape, 2, x->shape.rank);
    bool is_covered =
        job->n_slopes % n_planes == 0 && (job->n_slopes == 0 || n % (job->n_slopes / n_planes) == 0);
    enum nd_status status = is_covered ? nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err) : ND_OK;
    for (size_t i = 0; is_covered && status == ND_OK && i < x->n; i += n)
        is_covered = normalise_plane(job, x, i, n);
    *job->is_covered = is_covered && status == ND_OK;
    if (!*job->is_covered)
        nd_array_deinit(job->qvalues);
    return status;
}

/* ---- BatchNormalization ---- */

enum { FACTOR = 1, BIAS, MEAN, VARIANCE, N_INPUTS, MULTIPLIER_BITS = 14 };

/* The multipliers of which it is known (measured, see the docs): powers of two. */
enum { MIN_LOG = -10, GREATEST_LOG = -2 };

/* What is added before the floor beside the half: the multiplier's power of two, less that many bits. */
enum { MORE_BITS8 = 5, MORE_BITS16 = 3 };

static const float MIN_RANGE = 0.0001F; /* of the provider's encodings */

struct batch_norm {
    const struct nd_htp_job *job;
    struct nd_array weights, biases; /* quantised values less zero point */
    double scale_w, scale_b;
    double m;       /* the multiplier, a float32 */
    bool overflows; /* the greatest bias does not fit its 32 bits: the device has it with the wrong sign */
};

/* Real numbers or quantised values with one encoding, constant, one for each channel. */
static bool is_channel_constant(const struct nd_htp_job *job, size_t i, size_t n)
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

static bool is_known_batch_norm(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != N_INPUTS || !nd_htp_all_are(job, 1, job->layer->dtype) || !is_one_operation(job) ||
        call->inputs[0].values->n == 0 || call->inputs[0].values->shape.rank < 2)
        return false;
    for (size_t i = FACTOR; i < N_INPUTS; i++)
        if (!nd_linear_has(call, i) ||
            !is_channel_constant(job, i, (size_t)call->inputs[0].values->shape.dims[1]))
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
static bool are_usual(const struct batch_norm *norm)
{
    const struct nd_linear_input *factor = &norm->job->call->inputs[FACTOR];
    bool can_be_negative = norm->job->layer->dtype == ND_DTYPE_U8 || factor->values->dtype == ND_DTYPE_U8;
    for (size_t c = 0; c < norm->weights.n; c++)
        if (!isfinite(norm->weights.x[c]) || !isfinite(norm->biases.x[c]) ||
            (norm->weights.x[c] < 0 && !can_be_negative))
            return false;
    return true;
}

/* Mean and variance go into factor and bias, real numbers. */
static enum nd_status fuse_reals(struct batch_norm *norm, struct nd_error *err)
{
    const struct nd_linear_input *inputs = norm->job->call->inputs;
    const struct nd_op_call op_call = {.node = norm->job->call->node, .opset = norm->job->call->opset};
    double epsilon = (double)(float)nd_op_f(&op_call, "epsilon", DEFAULT_EPSILON);
    ND_TRY(nd_array_copy(inputs[FACTOR].values, &norm->weights, err));
    ND_TRY(nd_array_copy(inputs[BIAS].values, &norm->biases, err));
    for (size_t c = 0; c < norm->weights.n; c++) {
        norm->weights.x[c] = real_of(&inputs[FACTOR], c) / sqrt(real_of(&inputs[VARIANCE], c) + epsilon);
        norm->biases.x[c] = real_of(&inputs[BIAS], c) - real_of(&inputs[MEAN], c) * norm->weights.x[c];
    }
    return ND_OK;
}

/* And these get encodings of their own. *are_known false: it is not known what becomes of them. */
static enum nd_status fuse(struct batch_norm *norm, bool *are_known, struct nd_error *err)
{
    const struct nd_linear_call *call = norm->job->call;
    enum nd_status status = fuse_reals(norm, err);
    *are_known = status == ND_OK && are_usual(norm);
    if (*are_known) {
        bool is_byte = call->inputs[BIAS].quant != NULL && call->inputs[BIAS].values->dtype == ND_DTYPE_U8;
        norm->scale_w = encode_bytes(&norm->weights);
        norm->scale_b = is_byte ? encode_bytes(&norm->biases) : encode_words(&norm->biases, &norm->overflows);
    }
    return status;
}

/* A Mul by constants for the channels with an Add of such ones: they keep their encodings. */
static enum nd_status take_channels(struct batch_norm *norm, bool *are_known, struct nd_error *err)
{
    const struct nd_htp_job *job = norm->job;
    const struct nd_linear_call *call = job->call;
    *are_known = call->n_inputs == 2 && nd_htp_all_are(job, 2, ND_DTYPE_U8) && nd_htp_is_unbounded(job) &&
                 job->layer->origins[FACTOR] == ND_EXACT_FROM_CONSTANT && job->offsets != NULL &&
                 call->inputs[FACTOR].values->n == job->n_slopes && nd_htp_run_of(job, FACTOR) > 0;
    if (!*are_known)
        return ND_OK;
    ND_TRY(nd_array_copy(call->inputs[FACTOR].values, &norm->weights, err));
    ND_TRY(nd_array_copy(call->inputs[FACTOR].values, &norm->biases, err));
    for (size_t c = 0; c < job->n_slopes; c++) {
        norm->weights.x[c] -= (double)call->inputs[FACTOR].quant->zero_point[0];
        norm->biases.x[c] = job->offsets[c]; /* in real numbers */
    }
    norm->scale_w = (double)call->inputs[FACTOR].quant->scale[0];
    norm->scale_b = 1;
    return ND_OK;
}

/* The multiplier; and whether it is one of which it is known. */
static bool find_multiplier(struct batch_norm *norm)
{
    const struct nd_linear_call *call = norm->job->call;
    norm->m = (double)(call->inputs[0].quant->scale[0] * (float)norm->scale_w / call->out_quant->scale[0]);
    return norm->m >= ldexp(1, MIN_LOG) && norm->m < ldexp(1, GREATEST_LOG);
}

/* v73, uint8: a product of one weight, perhaps with what comes after it. */
static bool make_product(const struct batch_norm *norm, size_t channel, const double *x, size_t n,
                         double *qvalues)
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
    bool is_bent = norm->job->after != ND_LAYER_AFTER_NONE;
    for (size_t i = 0; i < n; i++) {
        double sum = (x[i] - column.zero_x) * w;
        qvalues[i] = is_bent ? sum : nd_htp_scale(&scaling, sum, &bounds);
    }
    return !is_bent || nd_htp_bend(norm->job, channel, &column, n, qvalues);
}

/* v69, and uint16: bias and zero point go into the sum, each rounded by itself. */
static bool make_sum(const struct batch_norm *norm, size_t channel, const double *x, size_t n, double *qvalues)
{
    const struct nd_quant *from = norm->job->call->inputs[0].quant, *to = norm->job->call->out_quant;
    float unit = from->scale[0] * (float)norm->scale_w;
    float bias = (float)norm->biases.x[channel] * (float)norm->scale_b * (1 / unit);
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
    return true;
}

/* Without quantised constants it is no operation on quantised values: the provider makes float16 of what it
 * reads, and quantised values of what it makes. */
static bool is_half_batch_norm(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    bool is = call->n_inputs == N_INPUTS && nd_htp_all_are(job, 1, job->layer->dtype) &&
              call->inputs[0].values->shape.rank == RANK;
    for (size_t i = FACTOR; is && i < N_INPUTS; i++)
        is = nd_linear_has(call, i) && call->inputs[i].quant == NULL &&
             call->inputs[i].values->dtype == ND_DTYPE_F32 &&
             call->inputs[i].values->n == (size_t)call->inputs[0].values->shape.dims[1] &&
             job->layer->origins[i] == ND_EXACT_FROM_CONSTANT;
    return is;
}

/* The float16 of Q(x) F16(weight) + bias, a qf32; weight and bias of the real numbers. A Relu or Clip behind
 * it is made in float16, too. */
static enum nd_status make_half_batch_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    struct batch_norm norm = {.job = job};
    const struct nd_linear_input *input = &job->call->inputs[0];
    const struct nd_array *x = input->values;
    enum nd_status status = fuse_reals(&norm, err);
    if (status == ND_OK)
        status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    struct nd_htp_bounds bounds = nd_htp_bounds_between(job, -HUGE_VAL, HUGE_VAL);
    size_t run = nd_dims_product(&x->shape, 2, RANK);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        size_t c = i / run % norm.weights.n;
        struct nd_qfloat weight = nd_qfloat_read((float)nd_htp_as_half(norm.weights.x[c], ND_ROUND_HALF_EVEN)),
                         bias = nd_qfloat_read((float)norm.biases.x[c]),
                         read = nd_qfloat_from((float)nd_htp_half_of_qvalue(input, i));
        double value = nd_htp_as_half(nd_qfloat_value(nd_qfloat_sum(nd_qfloat_product(read, weight), bias)),
                                      ND_ROUND_HALF_EVEN);
        value = fmin(fmax(value, job->call->low), job->call->high);
        job->qvalues->x[i] = nd_within(nd_htp_qvalue_of_half(job, value, false), bounds.low, bounds.high);
    }
    *job->is_covered = status == ND_OK;
    nd_array_deinit(&norm.weights);
    nd_array_deinit(&norm.biases);
    return status;
}

enum nd_status nd_htp_batch_norm(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_job alone = *job;
    struct batch_norm norm = {.job = &alone};
    bool are_known = false, has_channels = job->after == ND_LAYER_AFTER_CHANNELS;
    if (is_half_batch_norm(job) && job->after == ND_LAYER_AFTER_NONE)
        return make_half_batch_norm(job, err);
    if (!has_channels && !is_known_batch_norm(job))
        return ND_OK;
    alone.after = has_channels ? ND_LAYER_AFTER_NONE : job->after;
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = has_channels ? take_channels(&norm, &are_known, err) : fuse(&norm, &are_known, err);
    bool is_covered = status == ND_OK && are_known && find_multiplier(&norm);
    if (is_covered)
        status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    bool is_product = job->arithmetic->arch == ND_HTP_V73 && job->layer->dtype == ND_DTYPE_U8;
    size_t run = has_channels ? nd_htp_run_of(job, FACTOR) : nd_dims_product(&x->shape, 2, x->shape.rank);
    for (size_t i = 0; is_covered && status == ND_OK && i < x->n; i += run)
        is_covered = (is_product ? make_product : make_sum)(&norm, i / run % norm.weights.n, x->x + i, run,
                                                            job->qvalues->x + i);
    *job->is_covered = is_covered && status == ND_OK;
    nd_array_deinit(&norm.weights);
    nd_array_deinit(&norm.biases);
    return status;
}

static bool loses_sign_of_bias(const struct nd_exact_layer *layer)
{
    const struct nd_htp_job job = {.layer = layer, .call = layer->call};
    struct batch_norm norm = {.job = &job};
    bool are_known = false;
    if (is_known_batch_norm(&job))
        (void)fuse(&norm, &are_known, NULL); /* without memory nothing is known */
    nd_array_deinit(&norm.weights);
    nd_array_deinit(&norm.biases);
    return are_known && norm.overflows;
}

bool nd_layer_loses_sign_of_bias(const struct nd_exact_layer *layer)
{
    return nd_htp_ask(layer, loses_sign_of_bias);
}

const struct nd_htp_operator nd_htp_norms[] = {
    {"InstanceNormalization", nd_htp_instance_norm, true},
    {"LayerNormalization", make_layer_norm, false},
    {"InstanceNormalization", nd_htp_instance_norm, false},
    {"BatchNormalization", nd_htp_batch_norm, false},
    {.op_types = NULL},
};
