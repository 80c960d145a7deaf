/* Resize: to the nearest it is a move; between the elements it is the exact mean, where that has few bits, and
 * of floats a number between two float16 numbers. docs/science/htp-arithmetic.md#resize. */
#include <math.h>
#include <string.h>

#include "arithmetic/htp/htp_internal.h"
#include "core/tensors/scales.h"

enum { RANK = 4, FIRST_RESIZED = 2 };

static bool is_attribute(const struct nd_op_call *call, const char *name, const char *value)
{
    char text[32];
    nd_op_text(call, name, text, sizeof text);
    return strcmp(text, value) == 0;
}

static bool is_half_pixel(const struct nd_op_call *call)
{
    return is_attribute(call, "coordinate_transformation_mode", "") ||
           is_attribute(call, "coordinate_transformation_mode", "half_pixel") ||
           is_attribute(call, "coordinate_transformation_mode", "pytorch_half_pixel");
}

/* Of an opset that has coordinates, and without what was not looked at. */
static bool is_linear(const struct nd_htp_job *job, const struct nd_op_call *call)
{
    enum { MAX_INPUTS = 4, MIN_OPSET = 11 };
    return is_attribute(call, "mode", "linear") && job->call->opset >= MIN_OPSET && job->call->n_inputs > 0 &&
           job->call->n_inputs <= MAX_INPUTS && nd_op_i(call, "antialias", 0) == 0 &&
           nd_op_i(call, "exclude_outside", 0) == 0;
}

/* Powers of two, so that the mean has few bits: the greatest that was seen to follow. Of uint8 8 is not always
 * right (measured, see the docs). */
static const double min_quotient = 0.25, greatest_of_bytes = 4, greatest_of_words = 16;

static bool is_known_quotient(enum nd_dtype dtype, double quotient)
{
    int exponent;
    return frexp(quotient, &exponent) == 0.5 && quotient >= min_quotient &&
           quotient <= (dtype == ND_DTYPE_U8 ? greatest_of_bytes : greatest_of_words);
}

/* Whether the sizes are such as there is evidence of, and scales, where the model has these, are their
 * quotients. */
static bool are_known_sizes(const struct nd_htp_job *job, const struct nd_shape *out)
{
    enum { SCALES = 2 };
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    const struct nd_array *scales = nd_linear_has(job->call, SCALES) ? job->call->inputs[SCALES].values : NULL;
    if (in->rank != RANK || out->rank != RANK || (scales != NULL && scales->n != 0 && scales->n != RANK))
        return false;
    for (size_t axis = 0; axis < RANK; axis++) {
        double quotient = (double)out->dims[axis] / (double)in->dims[axis];
        bool is_known = axis < FIRST_RESIZED ? quotient == 1 : is_known_quotient(job->layer->dtype, quotient);
        if (!is_known || (axis >= FIRST_RESIZED && out->dims[axis] == 1) ||
            (scales != NULL && scales->n == RANK && scales->x[axis] != quotient))
            return false;
    }
    return true;
}

/* uint16 that is asymmetric and by 2 x 2 is rounded twice: within the rows, and between them. */
static bool is_rounded_twice(const struct nd_htp_job *job, const struct nd_shape *out, bool is_asymmetric)
{
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    bool is_doubled = true;
    for (size_t axis = FIRST_RESIZED; axis < RANK; axis++)
        is_doubled = is_doubled && out->dims[axis] == 2 * in->dims[axis];
    return job->layer->dtype == ND_DTYPE_U16 && is_asymmetric && is_doubled;
}

static double half_up(double a, double b)
{
    return floor((a + b + 1) / 2);
}

/* Element i of the output, of quantised values of which the last two axes are doubled. */
static double round_twice(const struct nd_array *x, size_t i)
{
    size_t n_rows = (size_t)x->shape.dims[RANK - 2], n_columns = (size_t)x->shape.dims[RANK - 1];
    size_t column = i % (2 * n_columns), row = i / (2 * n_columns) % (2 * n_rows);
    size_t right = (column + 1) / 2 < n_columns ? (column + 1) / 2 : n_columns - 1;
    size_t below = (row + 1) / 2 < n_rows ? (row + 1) / 2 : n_rows - 1;
    const double *plane = x->x + i / (4 * n_rows * n_columns) * n_rows * n_columns,
                 *upper = plane + row / 2 * n_columns, *lower = plane + below * n_columns;
    return half_up(half_up(upper[column / 2], upper[right]), half_up(lower[column / 2], lower[right]));
}

static enum nd_status interpolate(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MAX_INPUTS = 4 };
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *inputs[MAX_INPUTS] = {NULL};
    struct nd_array x = {0}, mean = {0};
    double largest, zero = (double)job->call->out_quant->zero_point[0];
    bool is_asymmetric = is_attribute(&op_call, "coordinate_transformation_mode", "asymmetric");
    if (!is_asymmetric && !is_half_pixel(&op_call))
        return ND_OK;
    for (size_t i = 1; i < job->call->n_inputs; i++)
        inputs[i] = nd_linear_has(job->call, i) ? job->call->inputs[i].values : NULL;
    inputs[0] = &x;
    enum nd_status status = nd_linear_packed_weights(job->call, 0, &x, &largest, err);
    if (status == ND_OK)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &mean, err);
    nd_array_deinit(&x);
    if (status != ND_OK || !are_known_sizes(job, &mean.shape)) {
        nd_array_deinit(&mean);
        return status;
    }
    struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
    bool is_twice = is_rounded_twice(job, &mean.shape, is_asymmetric);
    for (size_t i = 0; i < mean.n; i++) {
        double qvalue = is_twice ? round_twice(job->call->inputs[0].values, i) : floor(mean.x[i] + 0.5) + zero;
        mean.x[i] = nd_within(qvalue, bounds.low, bounds.high);
    }
    mean.dtype = job->layer->dtype;
    *job->qvalues = mean;
    *job->is_covered = true;
    return ND_OK;
}

bool nd_htp_is_half_resize(const struct nd_htp_job *job)
{
    enum { SCALES = 2 };
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *scales = nd_linear_has(job->call, SCALES) ? job->call->inputs[SCALES].values : NULL;
    const struct nd_shape *in = &job->call->inputs[0].values->shape;
    return is_linear(job, &op_call) && is_half_pixel(&op_call) && in->rank == RANK &&
           job->call->inputs[0].values->n > 0 && scales != NULL && scales->n == RANK && scales->x[0] == 1 &&
           scales->x[1] == 1 && scales->x[2] == 2 && scales->x[3] == 2;
}

/* The two elements of n between which element i of twice as many lies, and how near it is to the second. */
struct between {
    size_t first, second;
    float weight;
};

static struct between find_between(size_t i, size_t n)
{
    struct between b = {.first = i % 2 == 0 ? (i > 0 ? i / 2 - 1 : 0) : i / 2,
                        .weight = i % 2 == 0 ? 0.75F : 0.25F};
    b.second = i == 0 || b.first + 1 == n ? b.first : b.first + 1;
    return b;
}

/* In one row. The ends are the elements themselves. */
static float between_columns(const double *row, const struct between *b)
{
    float first = (float)row[b->first];
    if (b->first == b->second)
        return first;
    return (float)nd_htp_as_half((double)nd_qhalf_between(first, (float)row[b->second], b->weight));
}

bool nd_htp_half_resize(const struct nd_array *halves, struct nd_array *made)
{
    if (made->n / 4 != halves->n || made->n % 4 != 0)
        return false;
    size_t n_rows = (size_t)halves->shape.dims[RANK - 2], n_columns = (size_t)halves->shape.dims[RANK - 1];
    for (size_t i = 0; i < made->n; i++) {
        struct between column = find_between(i % (2 * n_columns), n_columns),
                       row = find_between(i / (2 * n_columns) % (2 * n_rows), n_rows);
        const double *plane = halves->x + i / (4 * n_rows * n_columns) * n_rows * n_columns;
        float above = between_columns(plane + row.first * n_columns, &column),
              below = between_columns(plane + row.second * n_columns, &column);
        made->x[i] = (double)(row.first == row.second ? above : nd_qhalf_between(above, below, row.weight));
    }
    return true;
}

/* The quantised values of the input as float16 numbers. False: scales of which it is not known. */
static bool read_halves(const struct nd_htp_job *job, struct nd_array *qvalues)
{
    const struct nd_quant *x = job->call->inputs[0].quant;
    struct nd_htp_rescaling method;
    bool is_byte = job->layer->dtype == ND_DTYPE_U8;
    bool is_known = is_byte ? nd_htp_rescaling_init(&method, ND_HTP_HALVES, (double)x->scale[0],
                                                    (double)job->call->out_quant->scale[0])
                            : nd_htp_are_known_halves(x);
    for (size_t i = 0; is_known && i < qvalues->n; i++)
        qvalues->x[i] = is_byte ? nd_htp_half_of_byte(&method, qvalues->x[i] - (double)x->zero_point[0])
                                : nd_htp_half_of_word(x, qvalues->x[i], job->arithmetic->is_v81);
    return is_known;
}

/* From one encoding to another, by way of float16. */
static enum nd_status interpolate_halves(const struct nd_htp_job *job, struct nd_error *err)
{
    struct nd_array halves = {0}, made = {0};
    struct nd_shape shape = job->call->inputs[0].values->shape;
    for (int axis = FIRST_RESIZED; axis < RANK; axis++)
        shape.dims[axis] *= 2;
    enum nd_status status = nd_array_copy(job->call->inputs[0].values, &halves, err);
    bool is_known = status == ND_OK && read_halves(job, &halves);
    if (is_known)
        status = nd_array_make(&made, job->layer->dtype, &shape, err);
    if (is_known && status == ND_OK) {
        struct nd_htp_bounds bounds = nd_htp_bounds_of(job);
        (void)nd_htp_half_resize(&halves, &made); /* four times as many */
        for (size_t i = 0; i < made.n; i++)
            made.x[i] = nd_within(nd_htp_qvalue_of_half(job, made.x[i], false), bounds.low, bounds.high);
        *job->qvalues = made;
        *job->is_covered = true;
    }
    nd_array_deinit(&halves);
    return status;
}

static enum nd_status make_resize(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (is_attribute(&op_call, "mode", "") || is_attribute(&op_call, "mode", "nearest"))
        return nd_htp_move(job, err);
    if (!is_linear(job, &op_call) || !nd_htp_all_are(job, 1, job->layer->dtype))
        return ND_OK;
    if (nd_quant_is_same(job->call->inputs[0].quant, job->call->out_quant))
        return interpolate(job, err);
    bool is_known = nd_htp_is_half_resize(job) && nd_htp_is_unbounded(job) && !nd_htp_is_share(job, 0);
    return is_known ? interpolate_halves(job, err) : ND_OK;
}

const struct nd_htp_operator nd_htp_resizes[] = {
    {"Resize", make_resize, false},
    {.op_type = NULL},
};
