/* Operators whose input is an input of the graph in floats, and whose output is quantised: the HTP works in
 * float16 and quantises what comes of it, or quantises before. docs/science/htp-arithmetic.md#floats. */
#include <math.h>
#include <string.h>

#include "arithmetic/arithmetics/requantise.h"
#include "arithmetic/htp/htp_internal.h"
#include "core/memory.h"

/* ---- AveragePool ---- */

enum {
    WINDOW = 3, /* of HALF_POOL_PRODUCT */
    HALF_BITS = 10,
};

/* How an AveragePool of float16 is made. */
enum half_pool {
    HALF_POOL_UNKNOWN,
    HALF_POOL_EXACT,   /* 3 x 3 that do not overlap: the average, rounded once */
    HALF_POOL_PAIRS,   /* 2 x 2 that do not overlap: sums of two, as qf32 */
    HALF_POOL_PRODUCT, /* 3 x 3 by steps of one: a Conv whose weights are all alike */
};

static enum half_pool half_pool_of(const struct nd_linear_call *call)
{
    enum { PAIR = 2 };
    int64_t size = nd_htp_window_size(call);
    if (nd_htp_is_apart(call))
        return size == PAIR ? HALF_POOL_PAIRS : HALF_POOL_EXACT;
    /* Of a plane no higher than the window the float16 values are others (measured, see the docs). */
    const struct nd_shape *x = &call->inputs[0].values->shape;
    bool is_product =
        nd_htp_averages_as_product(call) && size == WINDOW && x->dims[2] > WINDOW && x->dims[3] > WINDOW;
    return is_product ? HALF_POOL_PRODUCT : HALF_POOL_UNKNOWN;
}

/* The average of two places below one another and the two at their right. */
static double pairs_of(const double *x, int64_t width)
{
    struct nd_qfloat left = nd_qfloat_sum(nd_qfloat_from((float)x[0]), nd_qfloat_from((float)x[width])),
                     right = nd_qfloat_sum(nd_qfloat_from((float)x[1]), nd_qfloat_from((float)x[width + 1]));
    return nd_qfloat_value(nd_qfloat_product(nd_qfloat_sum(left, right), nd_qfloat_read(0.25F)));
}

struct plane {
    const double *x;
    int64_t n_rows, n_columns;
    bool is_exact; /* v69 does not make the sum a float32 */
};

/* A window that begins at that row and column, both from -1 on: the sum of products with one ninth as a
 * float16, exact: of v73 rounded to float32. */
static double product_of(const struct plane *plane, int64_t row, int64_t column)
{
    double ninth = nd_multiplier_round(1.0 / (WINDOW * WINDOW), HALF_BITS, ND_ROUND_HALF_EVEN), sum = 0;
    for (int64_t i = row; i < row + WINDOW; i++)
        for (int64_t j = column; j < column + WINDOW; j++) {
            if (i < 0 || i >= plane->n_rows || j < 0 || j >= plane->n_columns)
                continue;
            sum += plane->x[i * plane->n_columns + j] * ninth;
        }
    return plane->is_exact ? sum : (double)(float)sum;
}

/* The averages of float16 numbers, not rounded to float16 yet, in the place of exact ones in `made`. */
static void pool_halves(const struct nd_htp_job *job, const struct nd_array *halves, struct nd_array *made)
{
    enum half_pool method = half_pool_of(job->call);
    if (method != HALF_POOL_PAIRS && method != HALF_POOL_PRODUCT)
        return;
    struct plane plane = {.n_rows = halves->shape.dims[2],
                          .n_columns = halves->shape.dims[3],
                          .is_exact = job->arithmetic->arch == ND_HTP_V69};
    int64_t width = made->shape.dims[3], height = made->shape.dims[2];
    int64_t pad = (height + WINDOW - 1 - plane.n_rows) / 2; /* of steps of one, the same at all sides */
    for (size_t i = 0; i < made->n; i++) {
        int64_t column = (int64_t)i % width, row = (int64_t)i / width % height;
        plane.x = halves->x + (int64_t)i / (width * height) * plane.n_rows * plane.n_columns;
        made->x[i] = method == HALF_POOL_PAIRS
                         ? pairs_of(plane.x + 2 * row * plane.n_columns + 2 * column, plane.n_columns)
                         : product_of(&plane, row - pad, column - pad);
    }
}

/* ---- which operators there are, and how they are made ---- */

static const struct method {
    const char *op_type;
    bool is_flat; /* one run over all codes: of uint8, what does not fill a vector at its end is rounded down */
    bool is_qvalues; /* ONNX Runtime quantises the input of the graph: no float16 */
} methods[] = {
    {"Relu", false, false},     {"Clip", false, false},   {"AveragePool", false, false},
    {"Pad", false, false},      {"Resize", false, false}, {"Gather", true, false},
    {"Flatten", true, false},   {"Slice", false, true},   {"MaxPool", false, true},
    {"Reshape", false, true},   {"Squeeze", false, true}, {"Transpose", false, true},
    {"Unsqueeze", false, true},
};
/* A Slice with a Relu or Clip behind it, all in floats. */
static const struct method cut_and_narrowed = {"Slice", false, false};
/* What reads float16 of another float operator: a MaxPool or Resize, and what only names other axes, or turns
 * words; others were not looked at. */
static const struct method chained[] = {{"MaxPool", false, false},  {"Resize", false, false},
                                        {"Flatten", true, false},   {"Reshape", true, false},
                                        {"Unsqueeze", true, false}, {"Transpose", true, false}};

static bool is_nearest(const struct nd_htp_job *job)
{
    char mode[16];
    const struct nd_op_call call = {.node = job->call->node, .opset = job->call->opset};
    nd_op_text(&call, "mode", mode, sizeof mode);
    return mode[0] == '\0' || strcmp(mode, "nearest") == 0;
}

/* The row of the operator, or n. */
static size_t row_of(const char *op_type, const struct method *rows, size_t n)
{
    size_t row = 0;
    while (row < n && strcmp(rows[row].op_type, op_type) != 0)
        row++;
    return row;
}

/* NULL: not known. */
static const struct method *find_method(const struct nd_htp_job *job)
{
    const char *op_type = job->call->node->op_type;
    const struct nd_linear_call *call = job->call;
    enum { N = sizeof methods / sizeof methods[0], N_CHAINED = sizeof chained / sizeof chained[0] };
    size_t row = row_of(op_type, methods, N), next = row_of(op_type, chained, N_CHAINED);
    bool is_known = row < N && call->n_inputs > 0 && nd_linear_has(call, 0) && call->inputs[0].quant == NULL &&
                    job->layer->origins[0] != ND_EXACT_FROM_CONSTANT &&
                    call->inputs[0].values->dtype == ND_DTYPE_F32 && nd_htp_plain_output(job) != NULL;
    for (size_t i = 1; is_known && i < call->n_inputs; i++)
        is_known = call->inputs[i].quant == NULL;
    if (!is_known || (strcmp(op_type, "AveragePool") == 0 && half_pool_of(call) == HALF_POOL_UNKNOWN) ||
        (strcmp(op_type, "Resize") == 0 && !is_nearest(job) &&
         (!nd_htp_is_half_resize(job) || job->layer->origins[0] == ND_EXACT_FROM_LAYER)))
        return NULL;
    if (job->layer->origins[0] == ND_EXACT_FROM_LAYER)
        return next < N_CHAINED && (job->layer->dtype == ND_DTYPE_U16 || strcmp(op_type, "Transpose") != 0)
                   ? &chained[next]
                   : NULL;
    if (methods[row].is_qvalues && !nd_htp_is_unbounded(job))
        return strcmp(op_type, "Slice") == 0 ? &cut_and_narrowed : NULL;
    return &methods[row];
}

/* Of a float32 that is quantised before the operator: half to even, as ONNX Runtime's CPU provider has it. */
static double qvalue_of_input(const struct nd_quant *y, float value)
{
    float steps = value / y->scale[0];
    return rint((double)steps) + (double)y->zero_point[0];
}

static bool round_input(const struct nd_array *x, struct nd_array *halves)
{
    for (size_t i = 0; i < x->n; i++) {
        if (!(fabs(x->x[i]) <= ND_HTP_MAX_OF_HALF))
            return false;
        halves->x[i] = nd_htp_round_to_half(x->x[i], ND_ROUND_HALF_AWAY);
    }
    return true;
}

/* The operator on float16, or float32; takes inputs, of which the first becomes what is read. */
static enum nd_status run(const struct nd_htp_job *job, const struct nd_array **inputs,
                          const struct method *method, struct nd_error *err)
{
    struct nd_array halves = {0}, made = {0};
    enum nd_status status = nd_array_copy(inputs[0], &halves, err);
    bool is_known = status == ND_OK && (method->is_qvalues || round_input(inputs[0], &halves));
    inputs[0] = &halves;
    if (is_known)
        status = nd_linear_run(job->call, job->call->node, inputs, job->call->n_inputs, &made, err);
    if (is_known && status == ND_OK && strcmp(job->call->node->op_type, "AveragePool") == 0)
        pool_halves(job, &halves, &made);
    if (is_known && status == ND_OK && strcmp(job->call->node->op_type, "Resize") == 0 && !is_nearest(job))
        is_known = nd_htp_half_resize(&halves, &made);
    nd_array_deinit(&halves);
    if (!is_known || status != ND_OK) {
        nd_array_deinit(&made);
        return status;
    }
    /* A Relu or Clip behind the operator is made in float16, too. */
    struct nd_htp_bounds bounds = nd_htp_bounds_between(job, -HUGE_VAL, HUGE_VAL);
    size_t n_whole =
        method->is_flat && job->layer->dtype == ND_DTYPE_U8 ? made.n - made.n % ND_HTP_VECTOR_BYTES : made.n;
    for (size_t i = 0; i < made.n; i++) {
        double value = fmin(fmax(made.x[i], job->call->low), job->call->high);
        double qvalue = method->is_qvalues ? qvalue_of_input(job->call->out_quant, (float)value)
                                           : nd_htp_qvalue_of_half(job, value, i >= n_whole);
        made.x[i] = fmin(fmax(qvalue, bounds.low), bounds.high);
    }
    made.dtype = job->layer->dtype;
    *job->qvalues = made;
    *job->is_covered = true;
    return ND_OK;
}

bool nd_htp_reads_floats(const struct nd_exact_layer *layer)
{
    return layer->call->n_inputs > 0 && layer->call->inputs[0].quant == NULL;
}

enum nd_status nd_htp_halves(const struct nd_htp_job *job, struct nd_error *err)
{
    const struct method *method = find_method(job);
    if (method == NULL)
        return ND_OK;
    ND_FREED const struct nd_array **inputs = nd_calloc(job->call->n_inputs, sizeof *inputs);
    ND_TRY_MEMORY(inputs != NULL, err);
    for (size_t i = 0; i < job->call->n_inputs; i++)
        inputs[i] = job->call->inputs[i].values;
    return run(job, inputs, method, err);
}
