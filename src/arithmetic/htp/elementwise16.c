/* What has one line or two for a uint16 input: Relu, Clip, Neg, Abs, LeakyRelu, PRelu, HardSigmoid.
 * docs/science/htp-arithmetic.md#elements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

/* The greatest quotients of scales that the formulas were held against: 200, and 16 for Abs (QAIRT 2.51:
 * from 26 on 4 of 65 536 quantised values were off by one). */
static const float max_of_abs = 16, max_of_leaky = 200;

static int64_t rescale_qvalue(const void *parameters, int64_t x)
{
    return nd_htp_follow_line16(parameters, x);
}

/* Relu and Clip: the line between the bounds of the operator. Where these are those of the quantised values the
 * provider leaves it out, and what remains is a change of the encoding, which depends on the layout. */
static enum nd_status narrow(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_call *call = job->call;
    struct nd_htp_line16 line;
    double low = call->low, high = call->high;
    if (!nd_htp_has_words(job) || !nd_linear_fold(call->node, call->n_inputs, call->inputs, &low, &high) ||
        !nd_htp_line16_init(&line, call->inputs[0].quant, call->out_quant, false))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_between(job, low, high);
    bool is_left_out = bounds.low <= 0 && bounds.high >= UINT16_MAX;
    enum nd_htp_layout layout = nd_htp_layout_of(job->memory, job->layer, 0);
    if (is_left_out && layout == ND_HTP_UNKNOWN)
        return ND_OK;
    if (is_left_out && layout == ND_HTP_BLOCKED)
        return nd_htp_rescale_input(job, ND_HTP_LAYOUT, err);
    return nd_htp_make_words(job, rescale_qvalue, &line, &bounds, err);
}

static enum nd_status negate_words(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_htp_line16 line;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !nd_htp_line16_init(&line, job->call->inputs[0].quant, job->call->out_quant, true))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, rescale_qvalue, &line, &bounds, err);
}

/* The product is rounded in rows with an even index alone; in the
 * others it is cut. */
static int64_t rescale_magnitude(const struct nd_htp_line16 *line, int64_t magnitude, bool is_odd_row)
{
    enum { SHIFT = ND_HTP_LINE_BITS - ND_HTP_LINE_QVALUE_BITS };
    int64_t half = is_odd_row ? 0 : (int64_t)1 << (SHIFT - 1);
    return (((magnitude * line->m + half) >> SHIFT) + line->offset + (1 << (ND_HTP_LINE_QVALUE_BITS - 1))) >>
           ND_HTP_LINE_QVALUE_BITS;
}

static enum nd_status make_magnitudes(const struct nd_htp_job *job, struct nd_error *err)
{
    /* With more, the provider may lay a tensor out with the channels last: which rows there are is not known.
     */
    enum { N_AXES = 2 };
    struct nd_htp_line16 line;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        job->call->inputs[0].values->shape.rank != N_AXES ||
        !nd_htp_line16_init(&line, job->call->inputs[0].quant, job->call->out_quant, false) ||
        job->call->inputs[0].quant->scale[0] >= max_of_abs * job->call->out_quant->scale[0])
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    int64_t zero = job->call->inputs[0].quant->zero_point[0];
    size_t length = (size_t)x->shape.dims[1];
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    line.offset = job->call->out_quant->zero_point[0] * (1 << ND_HTP_LINE_QVALUE_BITS);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        bool is_odd = i / length % 2 == 1;
        double y = (double)rescale_magnitude(&line, llabs((int64_t)x->x[i] - zero), is_odd);
        job->qvalues->x[i] = fmin(fmax(y, bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

struct leaky {
    int64_t above, below; /* the multipliers */
    int64_t zero_x, zero_y;
    int shift;
};

/* The sum wraps in 32 bits, before it is rounded: with a shift of 15 what is above 65535 becomes 0. That is a
 * defect of the SDK (2.50.40, 2.51.0). */
static int64_t leak(const void *parameters, int64_t x)
{
    const struct leaky *l = parameters;
    int64_t d = x - l->zero_x;
    int64_t sum = d * (d >= 0 ? l->above : l->below) + l->zero_y * ((int64_t)1 << l->shift);
    int64_t wrapped = (int64_t)((uint64_t)(sum - INT32_MIN) & UINT32_MAX) + INT32_MIN;
    return (wrapped + ((int64_t)1 << (l->shift - 1))) >> l->shift;
}

/* False: a quotient of scales that was not looked at. */
static bool make_leaky(const struct nd_quant *x, const struct nd_quant *y, float slope, struct leaky *out)
{
    float above = x->scale[0] / y->scale[0], below = above * slope, largest = fmaxf(above, fabsf(below));
    if (!(largest < max_of_leaky))
        return false;
    int exponent; /* largest < 2^exponent */
    frexp((double)largest, &exponent);
    *out = (struct leaky){.zero_x = x->zero_point[0], .zero_y = y->zero_point[0]};
    out->shift = 15 - (exponent > 0 ? exponent : 0);
    out->above = (int64_t)ldexp((double)above, out->shift);
    out->below = (int64_t)ldexp((double)below, out->shift);
    return true;
}

static enum nd_status make_leaky_relu(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    struct leaky l;
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        nd_htp_is_made_with_matrix(job) ||
        !make_leaky(job->call->inputs[0].quant, job->call->out_quant, (float)nd_op_f(&op_call, "alpha", 0.01),
                    &l))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, leak, &l, &bounds, err);
}

/* A constant slope for each channel, its zero point 0. */
static bool has_slopes(const struct nd_htp_job *job)
{
    const struct nd_linear_call *call = job->call;
    if (call->n_inputs != 2 || !nd_htp_are_words(job, 2) || !nd_htp_is_unbounded(job) ||
        job->layer->origins[1] != ND_EXACT_FROM_CONSTANT || call->inputs[1].quant->zero_point[0] != 0)
        return false;
    const struct nd_shape *x = &call->inputs[0].values->shape, *slope = &call->inputs[1].values->shape;
    return x->rank == 4 && call->inputs[0].values->n > 0 && slope->rank == 3 && slope->dims[0] == x->dims[1] &&
           slope->dims[1] == 1 && slope->dims[2] == 1;
}

/* PRelu: the LeakyRelu of each channel, of slopes below 1. */
static enum nd_status make_prelu(const struct nd_htp_job *job, struct nd_error *err)
{
    if (!has_slopes(job))
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values, *slopes = job->call->inputs[1].values;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    size_t run = (size_t)(x->shape.dims[2] * x->shape.dims[3]);
    for (size_t first = 0; status == ND_OK && first < x->n; first += run) {
        struct leaky l;
        float slope = (float)slopes->x[first / run % slopes->n] * job->call->inputs[1].quant->scale[0];
        if (!(slope < 1) || !make_leaky(job->call->inputs[0].quant, job->call->out_quant, slope, &l))
            return ND_OK;
        for (size_t i = first; i < first + run; i++)
            job->qvalues->x[i] = fmin(fmax((double)leak(&l, (int64_t)x->x[i]), bounds.low), bounds.high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

struct line {
    double slope, offset;
    int64_t zero;
};

static int64_t follow_line(const void *parameters, int64_t x)
{
    const struct line *l = parameters;
    return (int64_t)floor((double)(x - l->zero) * l->slope + l->offset + 0.5);
}

static enum nd_status make_hard_sigmoid(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (job->call->n_inputs != 1 || !nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !nd_htp_writes(job, ND_HTP_GATE_SCALE, 0))
        return ND_OK;
    const struct nd_quant *x = job->call->inputs[0].quant;
    float slope = x->scale[0] * (float)nd_op_f(&op_call, "alpha", 0.2);
    float offset = (float)nd_op_f(&op_call, "beta", 0.5);
    struct line l = {.slope = (double)slope / ND_HTP_GATE_SCALE,
                     .offset = rint((double)offset / ND_HTP_GATE_SCALE),
                     .zero = x->zero_point[0]};
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, follow_line, &l, &bounds, err);
}

const struct nd_htp_operator nd_htp_lines16[] = {
    {"Relu", narrow, true},
    {"Clip", narrow, true},
    {"Neg", negate_words, true},
    {"Abs", make_magnitudes, true},
    {"LeakyRelu", make_leaky_relu, true},
    {"HardSigmoid", make_hard_sigmoid, true},
    {"PRelu", make_prelu, true},
    {.op_type = NULL},
};
