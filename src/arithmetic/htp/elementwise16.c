/* What has one line or two for a uint16 input: rescaling (Relu, Clip, Concat, Slice), Neg, Abs,
 * LeakyRelu, HardSigmoid. docs/science/htp-arithmetic.md#elements. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

enum {
    MULTIPLIER_BITS = 18, /* of a rescaling's multiplier, after the point */
    QVALUE_BITS = 3,      /* of its sum, after the point */
};
/* The greatest quotients of scales that the formulas were held against are 200, and 16 for Abs (QAIRT 2.51:
 * from 26 on 4 of 65 536 quantised values were off by one); below 64 the multiplier has no more bits than a
 * float32. */
static const float max_of_rescaling = 64, max_of_abs = 16, max_of_leaky = 200;

/* y = (((d m + half) >> 15) + offset + 4) >> 3 */
struct rescaling {
    int64_t m, offset;
};

static int64_t rescale(const struct rescaling *r, int64_t d)
{
    enum { SHIFT = MULTIPLIER_BITS - QVALUE_BITS };
    int64_t product = (d * r->m + ((int64_t)1 << (SHIFT - 1))) >> SHIFT;
    return (product + r->offset + (1 << (QVALUE_BITS - 1))) >> QVALUE_BITS;
}

/* False: scales that are not known to be handled like this. */
static bool make_rescaling(const struct nd_quant *x, const struct nd_quant *y, bool is_negative,
                           struct rescaling *out)
{
    float ratio = x->scale[0] / y->scale[0];
    if (!(ratio > 0 && ratio < max_of_rescaling))
        return false;
    out->m = llrint(ldexp((double)ratio, MULTIPLIER_BITS));
    float rounded = (float)ldexp((double)out->m, -MULTIPLIER_BITS);
    float moved = (float)x->zero_point[0] * (is_negative ? -rounded : rounded);
    float offset = (1 << QVALUE_BITS) * ((float)y->zero_point[0] - moved);
    out->offset = llrintf(offset);
    out->m = is_negative ? -out->m : out->m;
    return true;
}

bool nd_htp_rescale_words(const struct nd_htp_job *job, size_t i, struct nd_array *qvalues)
{
    enum { SHIFT = MULTIPLIER_BITS - QVALUE_BITS };
    const struct nd_quant *x = job->call->inputs[i].quant, *y = job->call->out_quant;
    struct rescaling r;
    if (!make_rescaling(x, y, false, &r))
        return false;
    int64_t moved = (x->zero_point[0] * r.m + ((int64_t)1 << (SHIFT - 1))) >> SHIFT;
    r.offset = y->zero_point[0] * (1 << QVALUE_BITS) - moved;
    for (size_t k = 0; k < qvalues->n; k++) {
        int64_t sum = (((int64_t)qvalues->x[k] * r.m) >> SHIFT) + r.offset;
        qvalues->x[k] = fmin(fmax((double)((sum + (1 << (QVALUE_BITS - 1))) >> QVALUE_BITS), 0), UINT16_MAX);
    }
    return true;
}

/* Codes: the whole numbers 0 .. 65535. Inputs that are moved, to see how far an error of theirs reaches, may be
 * others. */
static bool are_qvalues(const struct nd_array *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (!(x->x[i] >= 0 && x->x[i] <= UINT16_MAX))
            return false;
    return true;
}

bool nd_htp_are_words(const struct nd_htp_job *job, size_t n)
{
    bool are = job->call->n_inputs >= n && nd_htp_all_are(job, n, ND_DTYPE_U16);
    for (size_t i = 0; i < n && are; i++)
        are = are_qvalues(job->call->inputs[i].values);
    return are;
}

bool nd_htp_has_words(const struct nd_htp_job *job)
{
    return nd_htp_are_words(job, 1);
}

bool nd_htp_is_unbounded(const struct nd_htp_job *job)
{
    return job->call->low <= -HUGE_VAL && job->call->high >= HUGE_VAL;
}

enum nd_status nd_htp_make_words(const struct nd_htp_job *job, nd_htp_word *function, const void *parameters,
                                 const struct nd_htp_bounds *bounds, struct nd_error *err)
{
    const struct nd_array *x = job->call->inputs[0].values;
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        double y = (double)function(parameters, (int64_t)x->x[i]);
        job->qvalues->x[i] = fmin(fmax(y, bounds->low), bounds->high);
    }
    *job->is_covered = status == ND_OK;
    return status;
}

static int64_t rescale_qvalue(const void *parameters, int64_t x)
{
    return rescale(parameters, x);
}

/* Relu and Clip: the line between the bounds of the operator. Where these are those of the quantised values the
 * provider leaves it out, and what remains is a change of the encoding, which depends on the layout. */
enum nd_status nd_htp_narrow16(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_call *call = job->call;
    struct rescaling r;
    double low = call->low, high = call->high;
    if (!nd_htp_has_words(job) || !nd_linear_fold(call->node, call->n_inputs, call->inputs, &low, &high) ||
        !make_rescaling(call->inputs[0].quant, call->out_quant, false, &r))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_between(job, low, high);
    bool is_left_out = bounds.low <= 0 && bounds.high >= UINT16_MAX;
    enum nd_htp_layout layout = nd_htp_layout_of(job->memory, job->layer, 0);
    if (is_left_out && layout == ND_HTP_UNKNOWN)
        return ND_OK;
    if (is_left_out && layout == ND_HTP_BLOCKED)
        return nd_htp_rescale_input(job, ND_HTP_LAYOUT, err);
    return nd_htp_make_words(job, rescale_qvalue, &r, &bounds, err);
}

enum nd_status nd_htp_neg16(const struct nd_htp_job *job, struct nd_error *err)
{
    struct rescaling r;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        !make_rescaling(job->call->inputs[0].quant, job->call->out_quant, true, &r))
        return ND_OK;
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    return nd_htp_make_words(job, rescale_qvalue, &r, &bounds, err);
}

/* The product is rounded in rows with an even index alone; in the
 * others it is cut. */
static int64_t rescale_magnitude(const struct rescaling *r, int64_t magnitude, bool is_odd_row)
{
    enum { SHIFT = MULTIPLIER_BITS - QVALUE_BITS };
    int64_t half = is_odd_row ? 0 : (int64_t)1 << (SHIFT - 1);
    return (((magnitude * r->m + half) >> SHIFT) + r->offset + (1 << (QVALUE_BITS - 1))) >> QVALUE_BITS;
}

enum nd_status nd_htp_abs16(const struct nd_htp_job *job, struct nd_error *err)
{
    /* With more, the provider may lay a tensor out with the channels last: which rows there are is not known.
     */
    enum { N_AXES = 2 };
    struct rescaling r;
    if (!nd_htp_has_words(job) || !nd_htp_is_unbounded(job) ||
        job->call->inputs[0].values->shape.rank != N_AXES ||
        !make_rescaling(job->call->inputs[0].quant, job->call->out_quant, false, &r) ||
        job->call->inputs[0].quant->scale[0] >= max_of_abs * job->call->out_quant->scale[0])
        return ND_OK;
    const struct nd_array *x = job->call->inputs[0].values;
    int64_t zero = job->call->inputs[0].quant->zero_point[0];
    size_t length = (size_t)x->shape.dims[1];
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    r.offset = job->call->out_quant->zero_point[0] * (1 << QVALUE_BITS);
    enum nd_status status = nd_array_make(job->qvalues, job->layer->dtype, &x->shape, err);
    for (size_t i = 0; status == ND_OK && i < x->n; i++) {
        bool is_odd = i / length % 2 == 1;
        double y = (double)rescale_magnitude(&r, llabs((int64_t)x->x[i] - zero), is_odd);
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

enum nd_status nd_htp_leaky16(const struct nd_htp_job *job, struct nd_error *err)
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
enum nd_status nd_htp_prelu16(const struct nd_htp_job *job, struct nd_error *err)
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

enum nd_status nd_htp_hard_sigmoid16(const struct nd_htp_job *job, struct nd_error *err)
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

/* ---- what moves quantised values ---- */

static bool is_word(const struct nd_linear_input *input)
{
    return input->values != NULL && input->quant != NULL && input->quant->n == 1 &&
           input->quant->scale[0] > 0 && input->values->dtype == ND_DTYPE_U16 && are_qvalues(input->values);
}

enum nd_status nd_htp_follow_line16(const struct nd_htp_job *job, size_t i, struct nd_array *out,
                                    bool *is_known, struct nd_error *err)
{
    const struct nd_linear_input *input = &job->call->inputs[i];
    struct rescaling r;
    *is_known = is_word(input) && make_rescaling(input->quant, job->call->out_quant, false, &r);
    if (!*is_known)
        return ND_OK;
    enum nd_status status = nd_array_make(out, ND_DTYPE_U16, &input->values->shape, err);
    for (size_t k = 0; status == ND_OK && k < out->n; k++)
        out->x[k] = fmin(fmax((double)rescale(&r, (int64_t)input->values->x[k]), 0), UINT16_MAX);
    return status;
}

static bool is_rescaled(const struct nd_linear_call *call)
{
    for (size_t i = 0; i < call->n_inputs; i++)
        if (call->inputs[i].quant != NULL && call->inputs[i].quant->n == 1 &&
            (call->inputs[i].quant->scale[0] != call->out_quant->scale[0] ||
             call->inputs[i].quant->zero_point[0] != call->out_quant->zero_point[0]))
            return true;
    return false;
}

/* How the input of an operator is brought to the encoding of the output: in blocks parts of it, and the
 * greatest or least of rows, as uint8 in the layout of a Conv is. docs/science/htp-arithmetic.md#moves16. */
static enum nd_htp_layout layout_for(const struct nd_htp_job *job)
{
    enum { RANK = 4, CHANNELS = 1 };
    const char *op_type = job->call->node->op_type;
    enum nd_htp_layout layout = nd_htp_layout_of(job->memory, job->layer, 0);
    bool is_reduction = strncmp(op_type, "Reduce", strlen("Reduce")) == 0;
    if (strcmp(op_type, "Concat") == 0)
        return ND_HTP_FLAT; /* or the Concat is none by itself */
    if (!is_reduction || layout == ND_HTP_FLAT)
        return layout;
    int64_t axis, rank = job->call->inputs[0].values->shape.rank;
    if (!nd_htp_reduces_one_axis(job->layer, &axis))
        return ND_HTP_FLAT;
    axis = axis < 0 ? axis + rank : axis;
    bool is_known = rank == RANK && (axis == CHANNELS || axis == RANK - 1);
    return !is_known ? ND_HTP_UNKNOWN : axis == CHANNELS ? ND_HTP_FLAT : layout;
}

static enum nd_status bring(const struct nd_htp_job *job, size_t i, struct nd_array *out, bool *is_known,
                            struct nd_error *err)
{
    const struct nd_linear_input *input = &job->call->inputs[i];
    enum nd_htp_layout layout = layout_for(job);
    struct nd_htp_rescaling r;
    if (layout == ND_HTP_FLAT)
        return nd_htp_follow_line16(job, i, out, is_known, err);
    *is_known = layout == ND_HTP_BLOCKED && is_word(input) &&
                nd_htp_rescaling_init(&r, ND_HTP_LAYOUT, (double)input->quant->scale[0],
                                      (double)job->call->out_quant->scale[0]);
    enum nd_status status = *is_known ? nd_array_copy(input->values, out, err) : ND_OK;
    if (*is_known && status == ND_OK)
        nd_htp_rescale_all(job, &r, (double)input->quant->zero_point[0], 1, out);
    return status;
}

/* Concat, Slice, Split, ReduceMax, ReduceMin: the quantised values are rescaled, then moved. With the scale
 * of the output: htp_move.c. */
enum nd_status nd_htp_move16(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_linear_call *call = job->call;
    if (nd_htp_plain_output(job) == NULL || call->n_inputs == 0 || !nd_htp_is_unbounded(job) ||
        !is_rescaled(call))
        return ND_OK;
    struct nd_array *rescaled = nd_calloc(call->n_inputs, sizeof *rescaled), moved = {0};
    const struct nd_array **inputs = nd_calloc(call->n_inputs, sizeof *inputs);
    bool is_known = rescaled != NULL && inputs != NULL;
    enum nd_status status = is_known ? ND_OK : nd_fail_memory(err);
    for (size_t i = 0; is_known && status == ND_OK && i < call->n_inputs; i++) {
        inputs[i] = call->inputs[i].values;
        if (call->inputs[i].quant != NULL || i == 0) {
            status = bring(job, i, &rescaled[i], &is_known, err);
            inputs[i] = &rescaled[i];
        }
    }
    if (is_known && status == ND_OK)
        status = nd_linear_run(call, call->node, inputs, call->n_inputs, &moved, err);
    for (size_t i = 0; rescaled != NULL && i < call->n_inputs; i++)
        nd_array_deinit(&rescaled[i]);
    free(rescaled);
    free(inputs);
    if (status != ND_OK || !is_known) {
        nd_array_deinit(&moved);
        return status;
    }
    moved.dtype = ND_DTYPE_U16;
    *job->qvalues = moved;
    *job->is_covered = true;
    return ND_OK;
}
