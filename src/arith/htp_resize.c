/* Resize: to the nearest it is a move; between the elements it is the exact mean, where that has few bits.
 * docs/science/htp-arithmetic.md#resize. */
#include <math.h>
#include <string.h>

#include "arith/htp_internal.h"
#include "base/scales.h"

enum { RANK = 4, FIRST_RESIZED = 2 };

static bool is_attribute(const struct nd_op_call *call, const char *name, const char *value)
{
    char text[32];
    nd_op_text(call, name, text, sizeof text);
    return strcmp(text, value) == 0;
}

/* Powers of two, so that the mean has few bits: the greatest that was seen to follow. Of uint8 8 is not always
 * right (measured, see the docs). */
static const double least_quotient = 0.25, greatest_of_bytes = 4, greatest_of_words = 16;

static bool is_known_quotient(enum nd_dtype dtype, double quotient)
{
    int exponent;
    return frexp(quotient, &exponent) == 0.5 && quotient >= least_quotient &&
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
        bool is_known = axis < FIRST_RESIZED ? quotient == 1 : is_known_quotient(job->unit->dtype, quotient);
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
    return job->unit->dtype == ND_DTYPE_U16 && is_asymmetric && is_doubled;
}

static double half_up(double a, double b)
{
    return floor((a + b + 1) / 2);
}

/* Element i of the output, of codes of which the last two axes are doubled. */
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
    enum { MOST_INPUTS = 4 };
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    const struct nd_array *inputs[MOST_INPUTS] = {NULL};
    struct nd_array x = {0}, mean = {0};
    double largest, zero = (double)job->call->out_quant->zero_point[0];
    bool is_asymmetric = is_attribute(&op_call, "coordinate_transformation_mode", "asymmetric");
    if (!is_asymmetric && !is_attribute(&op_call, "coordinate_transformation_mode", "") &&
        !is_attribute(&op_call, "coordinate_transformation_mode", "half_pixel") &&
        !is_attribute(&op_call, "coordinate_transformation_mode", "pytorch_half_pixel"))
        return ND_OK;
    for (size_t i = 1; i < job->call->n_inputs; i++)
        inputs[i] = nd_linear_has(job->call, i) ? job->call->inputs[i].values : NULL;
    inputs[0] = &x;
    enum nd_status status = nd_linear_wholes(job->call, 0, &x, &largest, err);
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
        double code = is_twice ? round_twice(job->call->inputs[0].values, i) : floor(mean.x[i] + 0.5) + zero;
        mean.x[i] = nd_within(code, bounds.low, bounds.high);
    }
    mean.dtype = job->unit->dtype;
    *job->codes = mean;
    *job->is_covered = true;
    return ND_OK;
}

enum nd_status nd_htp_resize(const struct nd_htp_job *job, struct nd_error *err)
{
    enum { MOST_INPUTS = 4, LEAST_OPSET = 11 };
    const struct nd_op_call op_call = {.node = job->call->node, .opset = job->call->opset};
    if (is_attribute(&op_call, "mode", "") || is_attribute(&op_call, "mode", "nearest"))
        return nd_htp_move(job, err);
    bool is_known = is_attribute(&op_call, "mode", "linear") && job->call->opset >= LEAST_OPSET &&
                    job->call->n_inputs > 0 && job->call->n_inputs <= MOST_INPUTS &&
                    nd_htp_all_are(job, 1, job->unit->dtype) && nd_op_i(&op_call, "antialias", 0) == 0 &&
                    nd_op_i(&op_call, "exclude_outside", 0) == 0 &&
                    nd_quant_is_same(job->call->inputs[0].quant, job->call->out_quant);
    return is_known ? interpolate(job, err) : ND_OK;
}
